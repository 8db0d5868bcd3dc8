//! A cache image in front of another file system (MeLo@V): its files, at an image's speed.
//!
//! The image holds a shadow of the lower file system: `/tree`, of which each node knows its original
//! ([`engine::lower`]). What is there is served by the engine's own fast paths, with nothing added. What is missing comes
//! here, by the slow paths, and is brought:
//!
//! | asked for | what is done |
//! |---|---|
//! | a name that is not here, in a directory that is not listed | asked below, and made ([`ask`]) |
//! | the names of a directory | listed below whole, once ([`list`]) |
//! | bytes that are a hole here | read below, with some more, and kept ([`data`]) |
//! | extended attributes | asked below each time; that there are none is kept ([`xattr`]) |
//!
//! Every process brings what it needs itself, with its own rights; two that bring the same at once do it twice, and one
//! finds that the other was faster. Nothing is locked while the lower file system is asked, and a node or a block is
//! part of the image by one record: who dies before leaves nothing, and who is adopted has made it.
//!
//! [`fresh`] keeps what is here equal to what is below: a server goes through it.
//!
//! The cache can be read, not changed: every change is `EROFS`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod ask;
mod backend;
mod data;
pub mod fresh;
mod list;
mod lower;
mod make;
mod xattr;

pub use make::{Mismatch, prepare};

use base::{Cred, Cx, Errno, Error, Node, Result};
use engine::Fs;
use engine::lower::Known;
use lower::{Lower, Path};
use vfs::native::Native;

/// Name of the directory of the image that the mount shows.
const TREE: &[u8] = b"tree";
/// Name of the directory of the image in which each original with several names has one more, by its number.
const LINKS: &[u8] = b"links";

/// A cache image, mounted.
#[derive(Debug)]
pub struct Cache {
    native: Native,
    lower: Lower,
    tree: Node,
    links: Node,
}

impl Cache {
    /// Mounts the image, which has been [prepared](prepare), in front of the directory at `place` (absolute, canonical).
    pub fn new(cx: &Cx, fs: &'static Fs, place: &[u8]) -> Result<Cache> {
        let cx = own(cx);
        let root = fs.root_node();
        let (tree, links) = (fs.lookup(&cx, root, TREE)?, fs.lookup(&cx, root, LINKS)?);
        Ok(Cache { native: Native(fs), lower: Lower::new(place)?, tree, links })
    }

    /// What this thread has of the image goes back: it will not call again, or not soon.
    pub fn give_lane_back(&self, thread: &base::Thread) {
        self.fs().give_lane_back(thread);
    }

    fn fs(&self) -> &'static Fs {
        self.native.0
    }

    /// Path of the original of `name` in the directory `dir`, or, if that is empty, of `dir` itself, whatever it is.
    fn path(&self, dir: Node, name: &[u8]) -> Result<Path> {
        self.lower.path(|into| self.fs().path_of(dir, self.tree, into), name)
    }

    /// What is known of a node's original. Every node of the tree has one, as long as nothing is changed here.
    fn known(&self, node: Node) -> Result<Known> {
        self.fs().known(node)?.ok_or(Error::Posix(Errno::ESTALE))
    }
}

/// The context in which the cache does its own work, on behalf of whoever calls.
fn own<'a>(cx: &Cx<'a>) -> Cx<'a> {
    Cx { cred: Cred::ROOT, umask: 0, thread: cx.thread }
}

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
//! Changes are made here, by the engine; that they will be is noted before ([`touch`], [`change`]). Who writes back makes the
//! directory below equal to the tree (`bypath-writeback`); who asks below for what has moved here waits for it ([`settle`]).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod ask;
mod backend;
mod change;
mod compare;
mod data;
mod evict;
pub mod failures;
pub mod fresh;
mod links;
mod list;
mod locks;
pub mod lower;
mod make;
mod mixed;
pub mod mutant;
mod open;
mod settle;
mod shared;
mod successor;
pub mod touch;
mod unread;
pub mod watch;
mod xattr;

pub use make::{Mismatch, Origin, is_of_daemon, prepare};

use base::{Cred, Cx, Errno, Error, Node, Result};
use engine::Fs;
use engine::lower::Known;
use lower::{Lower, Path};
use vfs::native::Native;

/// Name of the directory of the image that the mount shows.
const TREE: &[u8] = b"tree";
/// Name of the directory of the image in which each original with several names has one more, by its number.
const LINKS: &[u8] = b"links";

/// Names at the top of the directory below that are the cache's own: nobody sees them by it.
const OURS: &[u8] = b".bypath-";

/// Whether a name at the top of the directory below is the cache's own. A clone in the making is the user's.
pub fn is_ours(name: &[u8]) -> bool {
    name.starts_with(OURS) && !name.starts_with(vfs::ASIDE)
}

/// What becomes of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// `EROFS`.
    Refused,
    /// They are durable as the image is: `fsync` has nothing to wait for.
    Image,
    /// `fsync` waits until they are in the journal of who writes back, or below, and durable there.
    Journal,
    /// `fsync` waits until they are in the directory below, and synced there.
    Backend,
}

/// A cache image, mounted.
#[derive(Debug)]
pub struct Cache {
    native: Native,
    lower: Lower,
    tree: Node,
    links: Node,
    touched: Node,
    mapped: Node,
    changes: Changes,
}

impl Cache {
    /// Mounts the image, which has been [prepared](prepare), in front of this.
    pub fn new(cx: &Cx, fs: &'static Fs, origin: &Origin, changes: Changes) -> Result<Cache> {
        let cx = own(cx);
        let top = |name| fs.lookup(&cx, fs.root_node(), name);
        if make::has_numbers(&fs.cache_of()?) {
            fs.show_originals()?;
        }
        let (tree, links, touched, mapped) = (top(TREE)?, top(LINKS)?, top(touch::TOUCHED)?, top(touch::MAPPED)?);
        let lower = origin.lower()?.known_by(fs.file_system_below()?);
        Ok(Cache { native: Native(fs), lower, tree, links, touched, mapped, changes })
    }

    /// The cache in this image, to be looked at alone: what is behind it is not asked for anything.
    pub fn alone(cx: &Cx, fs: &'static Fs) -> Result<Cache> {
        Cache::new(cx, fs, &Origin::Directory(b"/dev/null"), Changes::Refused)
    }

    /// The directory that the mount shows.
    pub fn tree(&self) -> Node {
        self.tree
    }

    /// The directory of the log, which has one for each round that is not over.
    pub fn touched(&self) -> Node {
        self.touched
    }

    /// The directory of files that may be stored into by mappings.
    pub fn mapped(&self) -> Node {
        self.mapped
    }

    /// What is behind it, if that is a daemon.
    pub fn daemon(&self) -> Option<&'static dyn vfs::cached::Below> {
        self.lower.as_daemon()
    }

    /// The directory below; empty if a daemon is behind it.
    pub fn place(&self) -> &[u8] {
        self.lower.root()
    }

    /// By what numbers of devices files below are known.
    pub fn devices(&self) -> lower::Devices {
        self.lower.devices()
    }

    /// What this thread has of the image goes back: it will not call again, or not soon.
    pub fn give_lane_back(&self, thread: &base::Thread) {
        self.fs().give_lane_back(thread);
    }

    /// Rises when what is behind it has told of a change by others.
    pub fn told(&self) -> u64 {
        self.lower.told()
    }

    /// The image.
    pub fn fs(&self) -> &'static Fs {
        self.native.0
    }

    /// Path of the original of `name` in the directory `dir`, or, if that is empty, of `dir` itself, whatever it is.
    fn path<'r>(&self, room: &'r mut Path, dir: Node, name: &[u8]) -> Result<&'r Path> {
        self.lower.path(room, |into| self.fs().path_of(dir, self.tree, into), name)
    }

    /// Path of the original of a node; of a file with several names by one of them that is still here.
    fn path_to<'r>(&self, cx: &Cx, room: &'r mut Path, node: Node) -> Result<&'r Path> {
        match self.path(room, node, b"").map(drop) {
            Ok(()) => Ok(room),
            Err(Error::Posix(Errno::ENOENT)) if self.fs().names_here(node)? > 1 => {
                self.fs().go_by_another_name(&own(cx), node, self.links)?;
                self.path(room, node, b"")
            }
            Err(error) => Err(error),
        }
    }

    /// What is known of a node's original. `ESTALE` of one that was made here.
    fn known(&self, node: Node) -> Result<Known> {
        self.known_if(node)?.ok_or(Error::Posix(Errno::ESTALE))
    }

    /// The same; `None` of one that was made here.
    pub fn known_if(&self, node: Node) -> Result<Option<Known>> {
        self.fs().known(node)
    }

    /// Whether a node is newer here than below: made here, or changed.
    pub(crate) fn is_newer(&self, node: Node) -> Result<bool> {
        Ok(self.known_if(node)?.is_none_or(|known| known.is_dirty()))
    }
}

/// The context in which the cache does its own work, on behalf of whoever calls.
fn own<'a>(cx: &Cx<'a>) -> Cx<'a> {
    Cx { cred: Cred::ROOT, umask: 0, thread: cx.thread }
}

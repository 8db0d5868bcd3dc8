//! An image becomes a cache, or is known again as one.

use crate::lower::{Lower, Original, Path, TEXTLESS};
use crate::touch::{MAPPED, TOUCHED};
use crate::{LINKS, TREE, own};
use base::{Cx, Errno, Error, Kind, NewNode, Result};
use engine::Fs;
use engine::lower::Identity;
use vfs::cached::Below;

/// In an [`Identity`]: a directory of the kernel's.
const HOST: u64 = 1;
/// In an [`Identity`]: a daemon, known by how it was started; its numbers are its own affair.
const DAEMON: u64 = 2;

/// What an image is to be the cache of.
#[derive(Clone, Copy)]
pub enum Origin<'a> {
    /// A directory of the kernel's, absolute and canonical.
    Directory(&'a [u8]),
    /// The same, which is reached by another path: through what a process has had open since before something was mounted
    /// over it.
    Through(&'a [u8], &'a [u8]),
    /// A daemon, and how a person would start it again.
    Daemon(&'static dyn Below, &'a [u8]),
}

impl Origin<'_> {
    pub(crate) fn lower(&self) -> Result<Lower> {
        match *self {
            Origin::Directory(place) | Origin::Through(_, place) => Lower::directory(place),
            Origin::Daemon(daemon, _) => Ok(Lower::daemon(daemon)),
        }
    }

    fn identity(&self, root: &Original, own: u64) -> Result<Identity> {
        let made = match *self {
            Origin::Directory(place) | Origin::Through(place, _) => {
                Identity::new(HOST, [root.stamp.device, root.stamp.number], place)
            }
            Origin::Daemon(_, command) => Identity::new(DAEMON, [0, 0], command),
        };
        Ok(made.ok_or(Errno::ENAMETOOLONG)?.with_own(own))
    }
}

/// Whether an image is the cache of a daemon.
pub fn is_of_daemon(identity: &Identity) -> bool {
    identity.kind == DAEMON
}

/// Whether the inode numbers of what is behind an image are to be believed.
pub(crate) fn has_numbers(identity: &Identity) -> bool {
    identity.kind == HOST
}

/// Why an image can't be the cache of a directory.
#[derive(Clone, Copy, Debug)]
pub enum Mismatch {
    /// It is another one's ([`engine::Fs::cache_of`]).
    Another,
    /// It holds files of its own.
    Files,
    /// It could not be looked at, or written.
    Failed(Error),
}

impl From<Error> for Mismatch {
    fn from(error: Error) -> Self {
        Mismatch::Failed(error)
    }
}

/// Makes a new image the cache of this, or checks that it is. Whether it was one before.
pub fn prepare(who: &Cx, fs: &Fs, origin: &Origin) -> core::result::Result<bool, Mismatch> {
    let cx = &own(who);
    let lower = origin.lower()?;
    let directory = lower.open(who, lower.path(&mut Path::room(), |into| Ok(into.len()), b"")?, true)?;
    let root = directory.must_be_directory(who)?;
    let identity = origin.identity(&root, directory.file_system())?;
    let is_one = || fs.cache_of() != Err(Error::Posix(Errno::ENODATA));
    let was_one = is_one();
    if !was_one {
        // Asked again: the names may be those that another session makes, once it is one.
        if !is_empty(cx, fs)? && !is_one() {
            return Err(Mismatch::Files);
        }
        // Another session may be faster.
        exists(fs.become_cache(cx, &identity))?;
    }
    let known = fs.cache_of()?;
    if !known.is_same(&identity) {
        return Err(Mismatch::Another);
    }
    if known.own == 0 && identity.own != 0 {
        fs.note_own_identity(identity.own)?;
    }
    match fs.allow_exact_notes(cx) {
        // Nothing is noted in an image that is only read.
        Err(Error::Posix(Errno::EROFS)) => {}
        allowed => allowed?,
    }
    // Who was interrupted here goes on.
    let own = NewNode { kind: Kind::Directory, mode: 0o700, rdev: 0, target: b"" };
    for name in [LINKS, TOUCHED, MAPPED] {
        exists(fs.create(cx, fs.root_node(), name, &own).map(drop))?;
    }
    exists(fs.create_whole(cx, fs.root_node(), TREE, &root.whole(TEXTLESS)).map(drop))?;
    Ok(was_one)
}

fn exists(made: Result<()>) -> Result<()> {
    match made {
        Err(Error::Posix(Errno::EEXIST)) => Ok(()),
        made => made,
    }
}

fn is_empty(cx: &Cx, fs: &Fs) -> Result<bool> {
    let mut empty = true;
    fs.readdir(cx, fs.root_node(), 0, &mut |entry| {
        empty &= matches!(entry.name, b"." | b"..");
        empty
    })?;
    Ok(empty)
}

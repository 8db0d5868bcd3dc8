//! An image becomes a cache, or is known again as one.

use crate::lower::{Original, open};
use crate::touch::{MAPPED, TOUCHED};
use crate::{LINKS, Lower, TREE, own};
use base::{Cx, Errno, Error, Kind, NewNode, Result};
use engine::Fs;
use engine::lower::Identity;

/// In an [`Identity`]: a directory of the kernel's.
const HOST: u64 = 1;

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

/// Makes a new image the cache of the directory at `place`, or checks that it is. Whether it was one before.
pub fn prepare(cx: &Cx, fs: &Fs, place: &[u8]) -> core::result::Result<bool, Mismatch> {
    let cx = &own(cx);
    let lower = Lower::new(place)?;
    let root = Original::of(&open(&lower.path(|into| Ok(into.len()), b"")?, true)?.statx().map_err(Error::Posix)?)?;
    let identity = Identity::new(HOST, [root.stamp.device, root.stamp.number], place).ok_or(Error::Posix(Errno::ENAMETOOLONG))?;
    let was_one = fs.cache_of() != Err(Error::Posix(Errno::ENODATA));
    if !was_one {
        if !is_empty(cx, fs)? {
            return Err(Mismatch::Files);
        }
        // Another session may be faster.
        exists(fs.become_cache(cx, &identity))?;
    }
    if fs.cache_of()? != identity {
        return Err(Mismatch::Another);
    }
    // Who was interrupted here goes on.
    let own = NewNode { kind: Kind::Directory, mode: 0o700, rdev: 0, target: b"" };
    for name in [LINKS, TOUCHED, MAPPED] {
        exists(fs.create(cx, fs.root_node(), name, &own).map(drop))?;
    }
    exists(fs.create_whole(cx, fs.root_node(), TREE, &root.whole(b"")).map(drop))?;
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

//! Programs that watch files (inotify) are told of changes, whoever of the image's users makes them.
//!
//! An inotify descriptor is the kernel's own, so that `poll`, `epoll`, `dup`, `fork`, `FIONREAD`, overflow and the end of
//! its holder are the kernel's business, and one descriptor may watch the kernel's files and ours. The kernel watches a
//! *mirror* ([`mirror`]): an empty file, or a directory of empty files with the names of the watched one, on the file
//! system of the shared cache. Whoever changes something of ours makes the call on the mirror that has the kernel tell
//! the same ([`events`], [`renaming`]).
//!
//! ```text
//! program         inotify_add_watch(fd, "/bp/src")  →  watch(): mirror of the directory, with its names  →  the kernel's call
//! another one     unlink("/bp/src/a")               →  done in the image  →  unlink("<shared cache>.w/a/<node>/a")
//! ```
//!
//! While nobody watches, that costs nothing: whoever changes something looks at [`Header::server`] anyway, whose
//! highest bit says that somebody does. Then a bit in [`Header::watched`] says whether it may be this node.
//!
//! Invariants
//! - The bits come before the mirror, and the mirror's names before the kernel watches it: who changes something later
//!   finds the bits. Who has begun before and is done later looks again ([`Fs::catch_up_name`]).
//! - A change of names in a mirror is made, with the change in the image, under the mirrors' `flock`: they come in the
//!   same order. It is waited for a moment only, so that nobody stopped keeps others; then order is not certain.
//! - No lock of the engine's is held when a mirror is touched.
//! - Mirrors are one user's, and others neither follow nor touch them ([`Mirrors::usable`]).
//! - Who watches is noted in its process's slot, and in that of its children. Whoever ends the last such process, alive
//!   or dead, takes the bits and the mirrors away.
//!
//! [`Header::server`]: crate::segment::Header::server
//! [`Header::watched`]: crate::segment::Header::watched

pub mod events;
pub mod mirror;
pub mod renaming;
#[cfg(test)]
mod tests;

use crate::fs::Fs;
use crate::segment::{WATCHED, WATCHED_WORDS};
use base::{Cred, Cx, Error, Kind, Node, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use mirror::Mirrors;
use openfiles::TOLD;
use pm::Errno;

/// As much of a node's hash as there are bits.
const HASH_BITS: u32 = (WATCHED_WORDS as u32 * 64).trailing_zeros();

/// The context of what is looked up for those who are told, not for the caller.
fn as_root<'a>(cx: &Cx<'a>) -> Cx<'a> {
    Cx { cred: Cred::ROOT, ..*cx }
}

impl Fs {
    /// Whether anything of the image may be watched.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.header().server.load(Relaxed) & WATCHED != 0
    }

    /// The word and bit of a node.
    fn watched_bit(&self, id: u64) -> (&AtomicU64, u64) {
        let hash = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS);
        (&self.header().watched[(hash / 64) as usize % WATCHED_WORDS], 1 << (hash % 64))
    }

    /// Whether a node may be watched, while anything is.
    fn may_be_watched(&self, id: u64) -> bool {
        let (word, bit) = self.watched_bit(id);
        word.load(SeqCst) & bit != 0
    }

    /// From now on changes of `node`, and of names in it, are told to whoever watches the kernel's file or directory
    /// whose path (with a NUL behind it) this puts into `out`; the path's length. Permission was checked.
    /// `EOPNOTSUPP` where there is no place for mirrors, or they are another user's; `ENOSPC`; `ESTALE` if they were
    /// taken away meanwhile: once more.
    pub fn watch(&self, cx: &Cx, node: Node, out: &mut [u8]) -> Result<usize> {
        let cx = &as_root(cx);
        let own = self.own_process()?;
        let is_directory = self.attr(cx, node)?.kind == Kind::Directory;
        let mirrors = Mirrors::of(self).ok_or(Errno::EOPNOTSUPP)?;
        self.process_slot(own).ok_or(Errno::ENXIO)?.watching.store(1, SeqCst);
        let taken_away = |errno| if errno == Errno::ENOENT { Errno::ESTALE } else { errno };
        let lock = mirrors.made_and_locked().map_err(taken_away)?;
        self.begin_telling();
        let (word, bit) = self.watched_bit(node.id);
        word.fetch_or(bit, SeqCst);
        if mirrors.side(node.id).is_none() {
            self.make_mirror(cx, &mirrors, node, is_directory).map_err(|error| match error {
                Error::Posix(errno) => Error::Posix(taken_away(errno)),
                other => other,
            })?;
        }
        drop(lock);
        let path = mirrors.found(node.id).ok_or(Errno::ESTALE)?;
        let path = path.text().to_bytes_with_nul();
        out.get_mut(..path.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
        Ok(path.len())
    }

    /// Everybody looks whether what they change is watched.
    fn begin_telling(&self) {
        if self.header().server.fetch_or(WATCHED, SeqCst) & WATCHED == 0 {
            self.mark_descriptions();
        }
    }

    /// Every open file tells of its end, also those that are opened later: whoever opens one looks for nothing.
    #[cold]
    pub(crate) fn mark_descriptions(&self) {
        for id in 0..self.header().descriptions_high.get() {
            self.description(id).locks.fetch_or(TOLD, SeqCst);
        }
    }

    /// Makes the mirror of a node, with the names in it, before anybody can see it.
    fn make_mirror(&self, cx: &Cx, mirrors: &Mirrors, node: Node, is_directory: bool) -> Result<()> {
        let new = mirrors.aside(self.own_process()?);
        mirror::remove_tree(&new);
        mirror::make(&new, is_directory)?;
        if is_directory {
            let mut failed = None;
            self.readdir(cx, node, 0, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    let made = mirror::make(&new.child(entry.name), entry.kind == Kind::Directory);
                    failed = made.err().filter(|errno| *errno != Errno::EEXIST);
                }
                failed.is_none()
            })?;
            if let Some(errno) = failed {
                mirror::remove_tree(&new);
                return Err(errno.into());
            }
        }
        mirrors.publish(&new, node.id)?;
        Ok(())
    }

    /// The process of slot `number` ends, or is dead: if it was the last one that watches, nobody is told any more.
    pub(crate) fn watcher_ends(&self, number: u32) {
        let Some(slot) = self.process_slot(number) else { return };
        if slot.watching.swap(0, SeqCst) == 0 || self.any_watcher() {
            return;
        }
        let mirrors = Mirrors::of(self).filter(|mirrors| mirrors.usable());
        // Who makes the next mirror holds it, too.
        let lock = mirrors.as_ref().and_then(Mirrors::lock);
        if mirrors.is_some() && lock.is_none() || self.any_watcher() {
            return;
        }
        self.header().server.fetch_and(!WATCHED, SeqCst);
        for word in &self.header().watched {
            word.store(0, SeqCst);
        }
        if self.any_watcher() {
            // It has set its bits, perhaps before they were taken away: all of them will do.
            for word in &self.header().watched {
                word.store(u64::MAX, SeqCst);
            }
            self.begin_telling();
        } else if let Some(mirrors) = mirrors {
            mirrors.remove();
        }
    }

    /// Whether any process watches anything.
    fn any_watcher(&self) -> bool {
        let slots = (0..self.header().processes_high.get()).filter_map(|number| self.process_slot(number));
        slots.into_iter().any(|slot| slot.is_used() && slot.watching.load(SeqCst) != 0)
    }

    /// Takes the mirrors away, with the segment.
    pub(crate) fn remove_mirrors(&self) {
        if let Some(mirrors) = Mirrors::of(self).filter(|mirrors| mirrors.usable()) {
            mirrors.remove();
        }
    }
}

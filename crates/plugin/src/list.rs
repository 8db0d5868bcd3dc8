//! Reading directories through `fuse_fill_dir_t`, without keeping a list.
//!
//! A library that gives offsets is asked from where the reader is. One that gives none
//! tells everything each time: then entries are reported in the order of a hash of their
//! names, which is their cookie, so that a name that comes or goes meanwhile moves no other.

use crate::Plugin;
use crate::abi::{FileInfo, Stat};
use crate::lower::{done, posix};
use base::{Cx, DirEntry, Kind, Node, Result};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use session::SessionCache;

/// Marks cookies that are hashes.
const HASHED: u64 = 1 << 62;
/// How the library lists, once it is known (offsets may look like hashes).
const BY_OFFSET: u32 = 1;
const BY_HASH: u32 = 2;
/// How many entries are sorted at a time.
const BATCH: usize = 32;
const UNKNOWN_INO: u64 = 0xffff_ffff;

/// An entry that waits to be reported.
#[derive(Clone, Copy)]
struct Waiting {
    cookie: u64,
    ino: u64,
    kind: Option<Kind>,
    name: [u8; 255],
    len: u8,
}

/// What the filler works on: at most `BATCH` entries.
struct Collector {
    /// Report those behind this.
    after: u64,
    uses_ino: bool,
    entries: [Waiting; BATCH],
    len: usize,
    /// The library gives offsets.
    has_offsets: bool,
    /// More came than there was room for.
    full: bool,
}

fn cookie_of(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Never that of the start.
    HASHED | (hash ^ hash >> 29) & (HASHED - 1) | 1
}

impl Collector {
    /// Whether there is room for more.
    fn add(&mut self, name: &[u8], stat: Option<&Stat>, offset: i64) -> bool {
        if name.is_empty() || name.len() > 255 || name.contains(&b'/') {
            return true;
        }
        let kind = stat.filter(|stat| stat.st_mode != 0).and_then(|stat| Kind::from_dt((stat.st_mode >> 12 & 15) as u8));
        let ino = stat.filter(|_| self.uses_ino).map_or(UNKNOWN_INO, |stat| stat.st_ino);
        let cookie = if offset > 0 { offset as u64 } else { cookie_of(name) };
        let mut waiting = Waiting { cookie, ino, kind, name: [0; 255], len: name.len() as u8 };
        waiting.name[..name.len()].copy_from_slice(name);
        if offset > 0 {
            self.has_offsets = true;
            let Some(place) = self.entries.get_mut(self.len) else {
                self.full = true;
                return false;
            };
            *place = waiting;
            self.len += 1;
            return true;
        }
        if cookie <= self.after {
            return true;
        }
        let at = self.entries[..self.len].partition_point(|entry| entry.cookie < cookie);
        if self.len == BATCH {
            self.full = true;
            if at == BATCH {
                return true;
            }
            self.len -= 1;
        }
        self.entries.copy_within(at..self.len, at + 1);
        self.entries[at] = waiting;
        self.len += 1;
        true
    }
}

unsafe extern "C" fn fill(buffer: *mut c_void, name: *const c_char, stat: *const Stat, offset: i64, _flags: c_uint) -> c_int {
    if buffer.is_null() || name.is_null() {
        return 1;
    }
    // SAFETY: what we handed to `readdir`, which is under way; nobody else has it.
    let collector = unsafe { &mut *buffer.cast::<Collector>() };
    // SAFETY: a NUL-terminated name of the library.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: null or a structure of the library.
    let stat = unsafe { stat.as_ref() };
    c_int::from(!collector.add(name.to_bytes(), stat, offset))
}

impl Plugin {
    /// Reports the entries of `dir` behind `cookie`.
    pub(crate) fn list(
        &self,
        s: &SessionCache,
        cx: &Cx,
        dir: Node,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let path = self.path(s, dir, b"")?;
        let mut info = FileInfo::new(pm::sys::abi::O_DIRECTORY, 0);
        done(self.with(cx, |ops| match ops.opendir {
            // SAFETY: a path and a structure for this call.
            Some(opendir) => unsafe { opendir(path.text(), &mut info) },
            None => 0,
        })?)?;
        let result = self.scan(s, cx, (dir, path.text()), cookie, &mut info, each);
        self.with(cx, |ops| match ops.releasedir {
            // SAFETY: as above; the handle is the one that `opendir` gave.
            Some(releasedir) => unsafe { releasedir(path.text(), &mut info) },
            None => 0,
        })?;
        result
    }

    fn scan(
        &self,
        s: &SessionCache,
        cx: &Cx,
        (dir, path): (Node, *const c_char),
        cookie: u64,
        info: &mut FileInfo,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let waiting = Waiting { cookie: 0, ino: 0, kind: None, name: [0; 255], len: 0 };
        let uses_ino = self.uses_ino(true);
        let mut collector =
            Collector { after: cookie, uses_ino, entries: [waiting; BATCH], len: 0, has_offsets: false, full: false };
        loop {
            (collector.len, collector.full) = (0, false);
            // The offset of the library's own, or everything again.
            let hashed = match self.listing.load(Relaxed) {
                0 => collector.after & HASHED != 0,
                known => known == BY_HASH,
            };
            let from = if hashed { 0 } else { collector.after };
            done(self.with(cx, |ops| match ops.readdir {
                // SAFETY: path, collector and structure are the library's for this call.
                Some(readdir) => unsafe { readdir(path, (&raw mut collector).cast(), fill, from as i64, info, 0) },
                None => -Errno::ENOSYS.0,
            })?)?;
            if collector.len > 0 {
                self.listing.store(if collector.has_offsets { BY_OFFSET } else { BY_HASH }, Relaxed);
            }
            for entry in &collector.entries[..collector.len] {
                let name = &entry.name[..usize::from(entry.len)];
                let kind = match entry.kind {
                    Some(kind) => kind,
                    None if matches!(name, b"." | b"..") => Kind::Directory,
                    None => self.attr_at(s, cx, dir, name).map_or(Kind::Regular, |attr| attr.kind),
                };
                if !each(DirEntry { name, ino: entry.ino, kind, next: entry.cookie, id: 0 }) {
                    return Ok(());
                }
            }
            let Some(last) = collector.entries[..collector.len].last() else { return Ok(()) };
            if last.cookie == collector.after {
                // A list that goes round in circles.
                return posix(Errno::EIO);
            }
            collector.after = last.cookie;
            if !collector.full && !collector.has_offsets {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: entries without offsets come in the order of their cookies, every one once, in batches.
    #[test]
    fn batches() {
        let empty = Waiting { cookie: 0, ino: 0, kind: None, name: [0; 255], len: 0 };
        let (mut after, mut seen) = (0, 0);
        loop {
            let mut collector =
                Collector { after, uses_ino: false, entries: [empty; BATCH], len: 0, has_offsets: false, full: false };
            (0..1000u16).for_each(|n| assert!(collector.add(&[b'a' + (n % 25) as u8, 128 + (n / 25) as u8], None, 0)));
            let mut cookies = collector.entries[..collector.len].iter().map(|entry| entry.cookie);
            assert!(cookies.clone().is_sorted() && cookies.clone().all(|cookie| cookie > after));
            seen += collector.len;
            let Some(last) = cookies.next_back() else { break };
            after = last;
        }
        assert_eq!(seen, 1000);
    }
}

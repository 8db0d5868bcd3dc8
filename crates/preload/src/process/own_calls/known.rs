//! What was found, kept for the session in links whose text is key and verdict: one call to ask, and one for whose it is.

use crate::runtime::session;
use core::ffi::CStr;
use core::fmt::Write;
use pm::file::File;
use pm::sys::abi::*;

/// Verdicts kept.
const PLACES: u64 = 4096;
/// Longest text of a link.
pub const TEXT_MAX: usize = 384;

/// A text being put together, with a NUL behind.
struct Text<const N: usize>([u8; N], usize);

impl<const N: usize> Text<N> {
    fn new(parts: core::fmt::Arguments<'_>) -> Option<Self> {
        let mut text = Text([0; N], 0);
        text.write_fmt(parts).ok().map(|()| text)
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let end = self.1 + part.len();
        self.0[..N - 1].get_mut(self.1..end).ok_or(core::fmt::Error)?.copy_from_slice(part.as_bytes());
        self.1 = end;
        Ok(())
    }
}

/// Where a verdict is kept, and under what key.
pub struct Entry {
    path: Text<320>,
    place: u64,
    key: Text<TEXT_MAX>,
}

impl Entry {
    /// Of what has this number and key; `None`: there is no session, or no room.
    pub fn new(number: u64, key: core::fmt::Arguments<'_>) -> Option<Entry> {
        let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & (PLACES - 1);
        let path = session::place().and_then(|session| Text::new(format_args!("{session}/scan/{place}")))?;
        Some(Entry { path, place, key: Text::new(key)? })
    }

    /// The verdict, in `room`.
    pub fn known<'a>(&self, room: &'a mut [u8; TEXT_MAX]) -> Option<&'a [u8]> {
        let path = self.path.0.as_ptr();
        // SAFETY: a NUL-terminated path, and room for the answer.
        let len = unsafe { pm::call!(__NR_readlinkat, AT_FDCWD, path, room.as_mut_ptr(), room.len()) }.ok()?;
        let verdict = room[..len].strip_prefix(&self.key.0[..self.key.1])?;
        is_ours(&self.path.0[..=self.path.1]).then_some(verdict)
    }

    /// Keeps a verdict, where this user may.
    pub fn keep(mut self, verdict: &[u8]) {
        let verdict = core::str::from_utf8(verdict).unwrap_or("");
        if self.key.write_str(verdict).is_err() {
            return;
        }
        let (Some(place), Some(directory)) = (Text::<16>::new(format_args!("{}", self.place)), own_directory()) else { return };
        // SAFETY: a NUL-terminated name. What another had there is found again.
        let _ = unsafe { pm::call!(__NR_unlinkat, directory.number(), place.0.as_ptr(), 0) };
        // SAFETY: NUL-terminated texts. It is of no account who was first, or that nobody may.
        let _ = unsafe { pm::call!(__NR_symlinkat, self.key.0.as_ptr(), directory.number(), place.0.as_ptr()) };
    }
}

/// Whether verdicts of this user's are kept.
pub fn is_kept() -> bool {
    own_directory().is_some()
}

/// Where the verdicts lie, if that is this user's directory: where a session has ended, anybody can make its path again, and
/// lead names in it elsewhere.
fn own_directory() -> Option<File> {
    let path = session::place().and_then(|session| Text::<320>::new(format_args!("{session}/scan")))?;
    let directory = File::directory(CStr::from_bytes_until_nul(&path.0).ok()?).ok()?;
    directory.stat().is_ok_and(|stat| stat.uid == pm::file::own_user()).then_some(directory)
}

/// Whether a link was made by this user or by root: where a session has ended, anybody can make its directory again.
fn is_ours(path: &[u8]) -> bool {
    pm::file::lstat(path).is_ok_and(|stat| stat.uid == 0 || stat.uid == pm::file::own_user())
}

//! A library with system calls of its own is to lie below libc, where the program and what was opened before are: only then
//! one range holds all of them and nothing else.
//!
//! The kernel gives the loader the highest gap that is large enough. So the gaps above libc are filled while it looks.

use crate::process::own_calls::outside;
use crate::runtime::contents::Contents;
use core::ops::Range;
use pm::sys::abi::*;

/// So many gaps are filled; others are left.
const GAPS_MAX: usize = 64;

/// Gaps that are filled; dropping it opens them.
pub struct Filled {
    gaps: [Range<usize>; GAPS_MAX],
    count: usize,
    /// What was read: its memory fills a gap too.
    _maps: Option<Contents>,
}

impl Filled {
    /// Fills the gaps from libc's code up to the last of the loader's and ours.
    pub fn above_libc() -> Filled {
        let places = outside();
        let code = || places.iter().filter(|code| !code.is_empty());
        match (code().map(|code| code.start).min(), code().map(|code| code.end).max()) {
            (Some(begin), Some(end)) => Filled::within(&(begin..end)),
            _ => Filled::nothing(),
        }
    }

    fn nothing() -> Filled {
        Filled { gaps: [const { 0..0 }; GAPS_MAX], count: 0, _maps: None }
    }

    /// Fills those within a range.
    pub fn within(range: &Range<usize>) -> Filled {
        let Range { start: begin, end } = *range;
        let mut filled = Filled::nothing();
        let Some(maps) = Contents::of(c"/proc/self/maps") else { return filled };
        let mut before = usize::MAX;
        for line in maps.bytes().split(|&byte| byte == b'\n') {
            let Some(range) = range_of(line) else { continue };
            if before >= begin && range.start <= end && before < range.start {
                filled.fill(before..range.start);
            }
            before = range.end;
        }
        filled._maps = Some(maps);
        filled
    }

    /// They stay so.
    pub fn keep(self) {
        core::mem::forget(self);
    }

    fn fill(&mut self, gap: Range<usize>) {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        let Some(place) = self.gaps.get_mut(self.count) else { return };
        // SAFETY: new memory where there was none; another thread that is there first keeps its own.
        let at = unsafe { pm::call!(__NR_mmap, gap.start, gap.len(), PROT_NONE, flags, -1isize, 0) };
        match at {
            Ok(at) if at == gap.start => {
                *place = gap;
                self.count += 1;
            }
            // A kernel that does not know the flag.
            // SAFETY: memory of ours, elsewhere.
            Ok(at) => drop(unsafe { pm::call!(__NR_munmap, at, gap.len()) }),
            Err(_) => {}
        }
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        for gap in &self.gaps[..self.count] {
            // SAFETY: ours, which nobody uses.
            let _ = unsafe { pm::call!(__NR_munmap, gap.start, gap.len()) };
        }
    }
}

/// What a line of `/proc/self/maps` is about.
fn range_of(line: &[u8]) -> Option<Range<usize>> {
    let mut parts = core::str::from_utf8(line.split(|&byte| byte == b' ').next()?).ok()?.split('-');
    let mut next = || usize::from_str_radix(parts.next()?, 16).ok();
    Some(next()?..next()?)
}

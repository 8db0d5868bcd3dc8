//! The shared memory that is mapped for ourselves: images, what their users share, sessions.
//!
//! It lies in programs that do not know of it. What they do to all of their memory (`mlockall`) is not meant for it,
//! and would fill files that are mostly holes.

use core::sync::atomic::{AtomicUsize, Ordering::*};

/// Ranges that are noted; those beyond are taken for the program's.
const RANGES: usize = 64;

struct Range {
    /// 0: free.
    start: AtomicUsize,
    len: AtomicUsize,
}

static OWN: [Range; RANGES] = [const { Range { start: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; RANGES];

/// `len` bytes at `start` are mapped.
pub(crate) fn note(start: usize, len: usize) {
    if let Some(free) = OWN.iter().find(|range| range.start.compare_exchange(0, start, AcqRel, Relaxed).is_ok()) {
        free.len.store(len, Release);
    }
}

/// What is mapped at `start` no longer is.
pub(crate) fn forget(start: usize) {
    if let Some(range) = OWN.iter().find(|range| range.start.load(Acquire) == start) {
        range.len.store(0, Relaxed);
        range.start.store(0, Release);
    }
}

/// The ranges, as first address and the one past the last, in no order.
pub fn ranges() -> impl Iterator<Item = (usize, usize)> + Clone {
    let range = |range: &Range| (range.start.load(Acquire), range.len.load(Acquire).next_multiple_of(4096));
    OWN.iter().map(range).filter(|(start, len)| *start != 0 && *len != 0).map(|(start, len)| (start, start + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is noted is told until it is forgotten, and more than there is room for does no harm.
    #[test]
    fn ranges_come_and_go() {
        let all = |from: usize| (from..from + 2 * RANGES).map(|page| page << 40);
        all(1).for_each(|start| note(start, 5000));
        let noted = || ranges().filter(|(start, _)| start.trailing_zeros() >= 40);
        assert!(noted().count() > RANGES / 2 && noted().all(|(start, end)| end - start == 8192));
        all(1).for_each(forget);
        assert_eq!(noted().count(), 0);
    }
}

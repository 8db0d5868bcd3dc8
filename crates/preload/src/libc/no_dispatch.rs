//! The kernel hands no calls back on this architecture.

use core::ops::Range;

/// Never.
pub fn start(_range: &Range<usize>, _outside: impl Iterator<Item = Range<usize>>) -> bool {
    false
}

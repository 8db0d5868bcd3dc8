//! Where stubs lie: at a distance from their sites that has [`TRAP`] in its second byte.

use super::JUMP_BYTES;
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// What faults: `hlt`.
pub const TRAP: u8 = 0xf4;
/// Stubs that lie together: each site can have one of 256 bytes in them only, so that there is room for four at worst.
pub const POOL_BYTES: usize = 64 << 10;
const UNIT: usize = 16;
const UNITS: usize = POOL_BYTES / UNIT;
/// A stub, in units.
const STUB_UNITS: usize = 3;
/// A stub.
pub const STUB_BYTES: usize = STUB_UNITS * UNIT;
/// How far stubs may be from a site.
const REACH: usize = 0x7ff0_0000;
const WORD_BITS: usize = usize::BITS as usize;

/// Memory for stubs, and which units of it are in use. Whoever changes it is alone.
pub struct Pool {
    begin: AtomicUsize,
    used: [AtomicUsize; UNITS / WORD_BITS],
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// One that has no memory yet.
    pub const fn new() -> Pool {
        Pool { begin: AtomicUsize::new(0), used: [const { AtomicUsize::new(0) }; UNITS / WORD_BITS] }
    }

    /// It has [`POOL_BYTES`] from `begin` on, of which the first are taken.
    pub fn start(&self, begin: usize) {
        self.used[0].store(1, Relaxed);
        self.begin.store(begin, Release);
    }

    /// Where it begins, if it has memory.
    pub fn begin(&self) -> Option<usize> {
        Some(self.begin.load(Acquire)).filter(|begin| *begin != 0)
    }

    /// Whether an address is in it.
    pub fn has(&self, address: usize) -> bool {
        self.begin().is_some_and(|begin| address.wrapping_sub(begin) < POOL_BYTES)
    }
    /// Room for a stub that a jump at `site` can lead to.
    pub fn room(&self, site: usize) -> Option<usize> {
        const BLOCK: usize = 256;
        let begin = self.begin()?;
        if begin.abs_diff(site) > REACH {
            return None;
        }
        let next = site + JUMP_BYTES;
        // The first of the addresses with that byte, and what of the ones before is in the pool.
        let skip = (usize::from(TRAP) << 8).wrapping_sub(begin.wrapping_sub(next) & 0xffff) & 0xffff;
        let blocks = [begin + skip, (begin + skip).wrapping_sub(1 << 16)];
        let fits = |at: &usize| *at >= begin && *at + STUB_BYTES <= begin + POOL_BYTES;
        let places = blocks.iter().flat_map(|block| (block.next_multiple_of(UNIT)..block + BLOCK).step_by(UNIT)).filter(fits);
        let unit =
            places.map(|at| (at - begin) / UNIT).find(|unit| (*unit..unit + STUB_UNITS).all(|unit| !self.is_used(unit)))?;
        (unit..unit + STUB_UNITS).for_each(|unit| {
            let (word, bit) = (unit / WORD_BITS, unit % WORD_BITS);
            self.used[word].fetch_or(1 << bit, Relaxed);
        });
        Some(begin + unit * UNIT)
    }

    fn is_used(&self, unit: usize) -> bool {
        self.used[unit / WORD_BITS].load(Relaxed) & 1 << (unit % WORD_BITS) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stubs of sites at any place lie apart, and where the jump to them has the byte that faults. Method: sites all over a
    /// text, until the pool has no room.
    #[test]
    fn places() {
        let pool = Pool::new();
        assert_eq!(pool.room(0x1_1000_0000), None, "no memory yet");
        pool.start(0x1_0000_0000);
        let mut stubs = std::vec::Vec::new();
        for site in (0x1_1000_0000usize..).step_by(37).take(4000) {
            if let Some(stub) = pool.room(site) {
                let distance = (stub.wrapping_sub(site + JUMP_BYTES) as u32).to_le_bytes();
                assert_eq!(distance[1], TRAP);
                assert!(stub >= 0x1_0000_0000 + UNIT && stub + STUB_BYTES <= 0x1_0000_0000 + POOL_BYTES);
                stubs.push(stub);
            }
        }
        stubs.sort_unstable();
        assert!(stubs.windows(2).all(|pair| pair[0] + STUB_BYTES <= pair[1]));
        assert!(pool.has(stubs[0]) && stubs.len() > 1000, "{}", stubs.len());
        assert_eq!(pool.room(0x2_0000_0000), None, "too far");
    }
}

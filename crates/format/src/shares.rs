//! How many more extents have a block than one: the table of what is shared.
//!
//! ```text
//! root word `shares`: top, a run of blocks (1 for every 512 GiB of the limit)
//!   word: offset of a middle, a block, for 1 GiB of the image; 0: nothing there is shared
//!     word: offset of a leaf, a block, for 2 MiB; 0
//!       word: a count, for a block of the image; 0: the extent that has it is the only one
//! ```
//! A count is of the extents that say [`SHARED`](crate::extent::SHARED) and have the block, less one. An extent may say
//! so of blocks that no other has any more. A part of the table with nothing but zeros is not there, but for the part
//! of a record under way.

use crate::layout::{BLOCK, Layout};

/// Words in a block of the table.
pub const WORDS: u64 = BLOCK / 8;
/// Blocks that a middle is about.
const MIDDLE: u64 = WORDS * WORDS;
/// Most extents besides one that can have a block.
pub const COUNT_MAX: u64 = u32::MAX as u64;

/// Blocks of the top, in an image of this layout.
pub const fn top_blocks(layout: &Layout) -> u64 {
    layout.block_count().div_ceil(MIDDLE * WORDS)
}

/// Where a block's count is: number of the word in the top, in the middle, in the leaf.
pub const fn place(block: u64) -> (u64, u64, u64) {
    (block / MIDDLE, block / WORDS % WORDS, block % WORDS)
}

/// How many blocks from this one on have their counts in the same leaf.
pub const fn left_in_leaf(block: u64) -> u64 {
    WORDS - block % WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each block has a word of its own, and the table of the largest image is a run of 32 blocks.
    #[test]
    fn places() {
        assert_eq!((place(0), place(511), place(512)), ((0, 0, 0), (0, 0, 511), (0, 1, 0)));
        assert_eq!((place(MIDDLE - 1), place(MIDDLE)), ((0, 511, 511), (1, 0, 0)));
        assert_eq!((left_in_leaf(0), left_in_leaf(511), left_in_leaf(513)), (512, 1, 511));
        for (limit, blocks) in [(16 << 20, 1), (512 << 30, 1), (1 << 40, 2), (16 << 40, 32)] {
            assert_eq!(Layout::new(limit).map(|layout| top_blocks(&layout)), Some(blocks));
        }
    }
}

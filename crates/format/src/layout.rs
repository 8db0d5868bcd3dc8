//! Where the areas of an image lie.
//!
//! ```text
//! 0x0000  superblock, first copy          one block, constant after mkfs
//! 0x1000  superblock, second copy
//! 0x2000  root                            what changes: generation, grown, index, root inode
//! 0x3000  volatile header                 token of the shared cache; meaningless after a crash
//! 0x4000  lane mutexes                    LANES lines, volatile
//!         process mutexes                 PROCESSES lines, volatile
//!         lanes                           LANES × 1 KiB
//!         permission table                65,536 × 16 B
//!         orphan table                    65,536 × 8 B
//!         bitmap                          one word for each block up to the limit
//!         blocks                          everything else
//! ```
//! The first three groups and the tables have a fixed size; the bitmap is sized
//! for the limit and, like the blocks, given real space as the image grows.

/// Bytes in a line, the unit of allocation and of write-back.
pub const LINE: u64 = 64;
/// Bytes in a block.
pub const BLOCK: u64 = 4096;
/// Lines in a block; one bitmap word holds a bit for each.
pub const LINES_PER_BLOCK: u64 = BLOCK / LINE;
/// Number of lanes: how many threads can change one image at a time.
pub const LANES: u32 = 1024;
/// Number of processes that can use one image at a time.
pub const PROCESSES: u32 = 1024;
/// Bytes in a lane.
pub const LANE_BYTES: u64 = 1024;
/// Entries in the permission table (an index is 16 bits).
pub const PERMISSIONS: u64 = 1 << 16;
/// Entries in the orphan table.
pub const ORPHANS: u64 = 1 << 16;
/// Smallest and largest size of an image, bytes. The largest follows from 32-bit block numbers.
pub const SIZE_MIN: u64 = 16 << 20;
/// See [`SIZE_MIN`].
pub const SIZE_MAX: u64 = 16 << 40;

/// Offset of the second copy of the superblock.
pub const SUPERBLOCK_COPY: u64 = BLOCK;
/// Offset of the root.
pub const ROOT: u64 = 2 * BLOCK;
/// Offset of the volatile header.
pub const VOLATILE: u64 = 3 * BLOCK;
/// Offset of what tells the machine, in the same block.
pub const MACHINE: u64 = VOLATILE + LINE;
/// Offset of the directory of the shared cache, in the same block: text, filled up with zeros; all zero: not noted.
pub const PLACE: u64 = VOLATILE + 1024;
/// Bytes that it may have.
pub const PLACE_BYTES: usize = 232;
/// Offset of the lane mutexes.
pub const LANE_MUTEXES: u64 = 4 * BLOCK;
/// Offset of the process mutexes.
pub const PROCESS_MUTEXES: u64 = LANE_MUTEXES + LANES as u64 * LINE;
/// Offset of the lanes.
pub const LANE_AREA: u64 = PROCESS_MUTEXES + PROCESSES as u64 * LINE;
/// Offset of the permission table.
pub const PERMISSION_TABLE: u64 = LANE_AREA + LANES as u64 * LANE_BYTES;
/// Offset of the orphan table.
pub const ORPHAN_TABLE: u64 = PERMISSION_TABLE + PERMISSIONS * 16;
/// Offset of the bitmap.
pub const BITMAP: u64 = ORPHAN_TABLE + ORPHANS * 8;

const _: () = assert!(BITMAP.is_multiple_of(BLOCK));

/// The areas whose place depends on the size limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Layout {
    /// Offset of the first block that can be allocated.
    pub blocks: u64,
    /// Limit of the image in bytes, a multiple of [`BLOCK`].
    pub limit: u64,
}

impl Layout {
    /// The layout for a size limit in bytes; `None` if it is out of range.
    pub const fn new(limit: u64) -> Option<Layout> {
        let limit = limit & !(BLOCK - 1);
        if limit < SIZE_MIN || limit > SIZE_MAX {
            return None;
        }
        let bitmap_bytes = (limit / BLOCK * 8).next_multiple_of(BLOCK);
        Some(Layout { limit, blocks: BITMAP + bitmap_bytes })
    }

    /// Offset of the bitmap word of the block with this number.
    #[inline]
    pub const fn bitmap_word(block: u64) -> u64 {
        BITMAP + block * 8
    }

    /// Number of the first block that can be allocated.
    #[inline]
    pub const fn first_block(&self) -> u64 {
        self.blocks / BLOCK
    }

    /// Number of blocks up to the limit.
    #[inline]
    pub const fn block_count(&self) -> u64 {
        self.limit / BLOCK
    }
}

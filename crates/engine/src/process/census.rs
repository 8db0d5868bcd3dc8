//! What the users of an image hold at the moment: for tests that kill them, and
//! then want nothing to be held.

use crate::alloc::reservation::CHUNK_BLOCKS;
use crate::fs::Fs;
use crate::segment::{Header, LockWord, PaddedLock, cachelet};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::layout::{LINES_PER_BLOCK, Layout};
use openfiles::Locks;

/// How much is held; each a number of things.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Census {
    /// Process slots in use.
    pub processes: u32,
    /// Open file descriptions, finished or half made.
    pub descriptions: u32,
    /// Pins on cachelets.
    pub pins: u32,
    /// Lanes with an operation in progress.
    pub lanes: u32,
    /// Bucket locks, inodes and global locks.
    pub locks: u32,
    /// Directories closed to entry, cachelets about to be given away.
    pub flags: u32,
    /// Advisory locks.
    pub advisory: u32,
    /// Lines reserved that the image does not count as used, but for the magazines of lanes and what is kept back.
    pub reserved_lines: u64,
}

impl Fs {
    /// Counts what is held. Others may change it meanwhile: a test looks when they rest.
    pub fn census(&self) -> Census {
        let header = self.header();
        let mut census = Census {
            processes: self.users().count() as u32,
            lanes: (0..header.lanes_high.get()).filter(|lane| self.is_lane_busy(*lane)).count() as u32,
            advisory: self.count_locks(),
            reserved_lines: self.reserved_lines().saturating_sub(self.lines_stocked() + self.spare_blocks() * LINES_PER_BLOCK),
            ..Census::default()
        };
        for id in 0..header.descriptions_high.get() {
            census.descriptions += u32::from(self.description(id).refs.load(Acquire) != 0);
        }
        let held = |lock: &LockWord| u32::from(lock.load(Acquire) != 0);
        census.locks = (0..crate::segment::BUCKET_LOCKS).map(|hash| held(self.bucket_lock(hash))).sum();
        census.locks += global_locks(header).iter().map(|lock| held(&lock.0)).sum::<u32>() + held(&header.spare.lock);
        let numbers = 0..header.cachelet_next.load(Acquire);
        for cachelet in numbers.map_while(|number| self.cachelet(number)).filter(|one| one.node.load(Relaxed) != 0) {
            let flags = cachelet.flags.load(Acquire);
            census.pins += cachelet.opens.load(Acquire);
            census.locks += held(&cachelet.owner);
            let closed = cachelet::UNREADABLE | cachelet::DELETING | cachelet::EVICTING;
            census.flags += u32::from(flags & closed != 0 && flags & cachelet::DEAD == 0);
        }
        census
    }

    /// What the thread known as `number` ([`Fs::waits_as`]) has been waiting for.
    pub fn waits_for(&self, number: u32) -> Option<&'static str> {
        let at = self.lane_state(number).waits_for.load(Relaxed);
        match at {
            0 => None,
            _ if at >= self.areas.cachelets => Some("inode"),
            _ if at >= self.areas.descriptions => Some("offset"),
            _ if (self.areas.bucket_locks..self.areas.notices).contains(&at) => Some("bucket"),
            _ => Some("global lock"),
        }
    }

    /// Lines in the magazines of all lanes.
    fn lines_stocked(&self) -> u64 {
        let lanes = 0..self.header().lanes_high.get();
        lanes.map(|lane| crate::alloc::arena::lines_stocked(self.lane_state(lane))).sum()
    }

    /// Lines that the reservation bitmap has and the bitmap has not.
    fn reserved_lines(&self) -> u64 {
        let chunks = self.layout.block_count().div_ceil(CHUNK_BLOCKS);
        let ready = (0..chunks).filter_map(|number| {
            let chunk = self.chunk(number).filter(|chunk| chunk.ready.load(Acquire) == 1)?;
            // What the image has grown by since then is for whoever looks for room.
            let known = u64::from(chunk.known.load(Acquire)).min(CHUNK_BLOCKS);
            Some(number * CHUNK_BLOCKS..number * CHUNK_BLOCKS + known)
        });
        let blocks = ready.flatten();
        let lines = blocks.filter(|block| *block >= self.layout.first_block()).map(|block| {
            let used = self.image.word(Layout::bitmap_word(block)).map_or(0, |word| word.load(Acquire));
            let reserved = self.reservation_word(block).map_or(0, |word| word.load(Acquire));
            u64::from((reserved & !used).count_ones())
        });
        lines.sum()
    }
}

fn global_locks(header: &Header) -> [&PaddedLock; 10] {
    [
        &header.rename,
        &header.split,
        &header.grow,
        &header.permission,
        &header.orphan,
        &header.reservations,
        &header.descriptions,
        &header.advisory,
        &header.space,
        &header.process,
    ]
}

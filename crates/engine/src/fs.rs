//! An attached image.

use crate::lower::Numbers;
use crate::segment::{Areas, BucketLock, Cachelet, Chunk, Descriptor, Header, LaneState};
use base::{Error, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use format::hash::{NameKey, NumberKey};
use format::permission::Permission;
use format::{Bucket, Edentry, Inode, Lane, Layout, Root, Volatile, layout};
use openfiles::OpenFile;
use pm::clock::Clock;
use pm::{Errno, Growing, Pinned, Region, Ring, Steps, Table};
use zerocopy::{FromBytes, KnownLayout};

/// Steps of the index for every number of a bucket: none needs a check. (An image may have more,
/// [`INDEX_SEGMENTS`](format::superblock::INDEX_SEGMENTS); but nobody makes so many buckets, `index::split`.)
const BUCKET_STEPS: usize = 33 - format::bucket::BUCKETS_MIN.trailing_zeros() as usize;

/// Past the tables, with any number of a page behind it.
pub(crate) const NOWHERE: u32 = u32::MAX / 2;

/// An image in use by this process: the mapped image, its segment, and what
/// never changes about them.
///
/// Threads share it; what belongs to a thread is in [`base::Thread`].
///
/// What the fast path reads lies together, on as few lines as can be, and what is asked most often within the first 128
/// bytes, whose addresses are short:
///
/// ```text
/// line 0   reading, writing, changing: image, lanes
///      1   looking for names, and `stat`: cachelets, name key, key of inode numbers, how many buckets there are, where
///          the first ones lie
///      2…  where the other buckets lie
///      5   opening, closing: descriptors, descriptions, head of the segment, root
///      6   changing names: lanes, locks, clock, owners and modes found last, first block, where the segment is
///      7   freeing: the reservation bitmap
/// ```
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Fs {
    pub(crate) image: Region,
    /// The volatile halves of all lanes.
    pub(crate) lane_states: Ring<LaneState>,
    /// Which of a thread's lanes is for this image.
    pub(crate) slot: u8,
    /// Nothing may be changed: mapped read-only, or a persist failed.
    pub(crate) read_only: bool,
    /// The same if the image is [plain](Fs::is_plain), else none of them.
    pub(crate) plain_slot: u8,
    /// The same if overwrites are in place besides, else none of them.
    pub(crate) overwrite_slot: u8,
    /// Generation of the segment: volatile references in the image must carry it.
    pub(crate) generation: u32,
    /// Pages of this process's descriptor table that have real space, a bit each.
    pub(crate) descriptor_pages: AtomicU32,
    /// Where this process looks for a free description, if a number's last one is taken.
    pub(crate) description_hint: AtomicU32,
    /// Slot + 1 of the process that this one was forked from; 0: none.
    pub(crate) forked_from: AtomicU32,

    /// All cachelets that have memory.
    pub(crate) cachelets: Growing<Cachelet>,
    /// This process's number in the process table + 1; 0 before it has one.
    pub(crate) process: AtomicU32,
    /// Key of the name hash.
    pub(crate) name_key: NameKey,
    /// How the inode numbers are made that programs see.
    pub(crate) numbers: Numbers,
    /// Buckets of the index that are in use, as far as this process has seen.
    pub(crate) buckets: Steps<Bucket, { format::bucket::BUCKETS_MIN }, BUCKET_STEPS>,

    /// `st_dev` as long as there was no kernel mount.
    pub(crate) device: u64,
    /// Robust list of the thread that is about to fork (`pm::mutex::renew_robust_list`).
    pub(crate) robust_list: core::sync::atomic::AtomicUsize,

    pub(crate) opens: Opens,
    /// The head of the segment.
    pub(crate) head: Pinned<Header>,
    /// The root block.
    pub(crate) root: Pinned<Root>,
    /// Number of the thread that is about to fork.
    pub(crate) forking_thread: AtomicU32,
    /// What the image's file system is (`file::sync`): 0 not known yet.
    pub(crate) backing: AtomicU32,

    /// The lanes.
    pub(crate) lanes: Ring<Lane>,
    /// The locks of the index.
    pub(crate) bucket_locks: Ring<BucketLock>,
    /// What stamps files.
    pub(crate) clock: Clock,
    /// Owners and modes of new inodes, and where they were found, as [`permission`](crate::permission) packs them: of
    /// modes that everybody may not or may execute.
    pub(crate) permissions_found: [AtomicU64; 2],
    /// Number of the first block that can be allocated.
    pub(crate) first_block: u32,
    pub(crate) segment: Region,
    /// Chunks of the reservation bitmap, and its words (of an image of 16 TiB not the last one).
    pub(crate) chunks: Table<Chunk>,
    pub(crate) reservations: Table<AtomicU64>,
    pub(crate) areas: Areas,
    pub(crate) layout: Layout,
    /// Key of the image's own inode numbers.
    pub(crate) number_key: NumberKey,
    /// The device whose inode numbers a cache shows.
    pub(crate) originals_on: AtomicU64,
    /// The permission table.
    pub(crate) permissions: Ring<Permission>,
    /// Those that have no memory yet, too.
    pub(crate) all_cachelets: Table<Cachelet>,
    /// Path of the image, NUL-terminated.
    pub(crate) path: [u8; 4096],
    /// Path of the segment, NUL-terminated.
    pub(crate) segment_path: [u8; 256],
    /// Which files these paths must lead to.
    pub(crate) files: Files,
}

/// What image and segment are, whatever lies at their paths by now.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The image itself is another file, of which this one's holes show the contents (`process::in_place`).
    pub(crate) in_place: bool,
    /// Device and inode number of the image's file.
    pub(crate) image: [u64; 2],
    /// The image's random identity.
    pub(crate) uuid: [u64; 2],
    /// Version of its format.
    pub(crate) version: u32,
    /// Whether its inode numbers are short ones.
    pub(crate) short_numbers: bool,
    /// What it has that not every program knows: [`format::Features`].
    pub(crate) features: AtomicU64,
    /// How overwrites happen whole or not at all, if all of this mount do.
    pub(crate) atomic: Option<base::Atomic>,
    /// Device and inode number of the segment's file.
    pub(crate) segment: [u64; 2],
}

/// What opening and closing ask.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Opens {
    /// The descriptor tables of all processes, one after the other.
    pub(crate) descriptors: Table<Descriptor>,
    /// Descriptions below this have real space, as this process knows.
    pub(crate) known: AtomicU32,
    /// All open file descriptions.
    pub(crate) descriptions: Table<OpenFile>,
    /// Where in the tables this process's own begins, while its first page has space; else [`NOWHERE`].
    pub(crate) own: AtomicU32,
    /// [`Fs::is_plain`], on the line that opening asks anyway.
    pub(crate) is_plain: bool,
}

// A recorder, which only tests have, makes a region longer.
const _: () = {
    use core::mem::offset_of;
    if size_of::<Region>() == 32 {
        assert!(offset_of!(Fs, cachelets) == 64 && offset_of!(Fs, buckets) == 112 && offset_of!(Fs, opens) == 5 * 64);
        assert!(offset_of!(Fs, lanes) == 6 * 64 && offset_of!(Fs, segment) == 7 * 64 - 8);
    }
};

/// The error for a damaged structure.
#[cold]
#[inline(never)]
pub(crate) fn corrupt(what: &'static str, at: u64) -> Error {
    Error::Corrupt { what, at }
}

impl Fs {
    /// How many bytes the image may grow to.
    pub fn limit(&self) -> u64 {
        self.layout.limit
    }

    /// A structure of the image; `Corrupt` if the offset is out of bounds or unaligned.
    #[inline(always)]
    pub(crate) fn at<T: FromBytes + KnownLayout>(&self, offset: u64, what: &'static str) -> Result<&T> {
        match self.image.at(offset) {
            Some(item) => Ok(item),
            None => self.at_grown(offset, what),
        }
    }

    /// As [`Fs::at`], two structures.
    #[inline]
    pub(crate) fn at_both<A: FromBytes + KnownLayout, B: FromBytes + KnownLayout>(
        &self,
        a: u64,
        b: u64,
        what: &'static str,
    ) -> Result<(&A, &B)> {
        match self.image.at_both(a, b) {
            Some(both) => Ok(both),
            None => {
                let (a, b) = (self.at_grown(a, what)?, self.at_grown(b, what)?);
                Ok((a, b))
            }
        }
    }

    /// Another process may have grown the image since we looked.
    #[cold]
    #[inline(never)]
    fn at_grown<T: FromBytes + KnownLayout>(&self, offset: u64, what: &'static str) -> Result<&T> {
        self.refresh_valid();
        self.image.at(offset).ok_or(corrupt(what, offset))
    }

    /// `count` words of the image from `offset` on; else as [`Fs::at`].
    #[inline]
    pub(crate) fn words(&self, offset: u64, count: usize, what: &'static str) -> Result<&[AtomicU64]> {
        match self.image.words(offset, count) {
            Some(words) => Ok(words),
            None => self.words_grown(offset, count, what),
        }
    }

    #[cold]
    #[inline(never)]
    fn words_grown(&self, offset: u64, count: usize, what: &'static str) -> Result<&[AtomicU64]> {
        self.refresh_valid();
        self.image.words(offset, count).ok_or(corrupt(what, offset))
    }

    /// Takes note of how far the image has grown.
    pub(crate) fn refresh_valid(&self) {
        let grown = self.root().grown.load(core::sync::atomic::Ordering::Acquire);
        self.image.set_valid(grown.min(self.layout.block_count()) * layout::BLOCK);
    }

    /// The root block.
    #[inline]
    pub(crate) fn root(&self) -> &Root {
        &self.root
    }

    /// The volatile header.
    pub(crate) fn volatile(&self) -> &Volatile {
        self.image.at(layout::VOLATILE).expect("volatile header is mapped")
    }

    /// The inode at an offset.
    #[inline(always)]
    pub(crate) fn inode(&self, offset: u64) -> Result<&Inode> {
        self.at(offset, "inode")
    }

    /// The first line of the edentry at an offset.
    #[inline]
    pub(crate) fn edentry(&self, offset: u64) -> Result<&Edentry> {
        self.at(offset, "edentry")
    }

    /// The bucket at an offset.
    #[inline]
    pub(crate) fn bucket(&self, offset: u64) -> Result<&Bucket> {
        self.at(offset, "bucket")
    }

    /// The lane with this number.
    #[inline]
    pub(crate) fn lane(&self, lane: u32) -> &Lane {
        self.lanes.get(lane)
    }

    /// Numbers of the lanes that may hold something: all of them, but for an
    /// image in memory whose recorder knows better.
    #[inline]
    pub(crate) fn lane_numbers(&self) -> core::ops::Range<u32> {
        const FEW: u32 = 8;
        let rest = u64::from(layout::LANES - FEW) * layout::LANE_BYTES;
        let few = self.image.known_zero(layout::LANE_AREA + u64::from(FEW) * layout::LANE_BYTES, rest);
        0..if few { FEW } else { layout::LANES }
    }

    /// The lane of a thread's for this image + 1; 0: none.
    #[inline]
    pub(crate) fn own_lane<'t>(&self, thread: &'t base::Thread) -> &'t core::cell::Cell<u32> {
        &thread.lanes[usize::from(self.slot) % base::MOUNTS_MAX]
    }

    /// Its volatile half.
    #[inline]
    pub(crate) fn lane_state(&self, lane: u32) -> &LaneState {
        self.lane_states.get(lane)
    }

    /// The same by the lane + 1; 0: there is none.
    #[inline]
    pub(crate) fn state_of(&self, owner: u32) -> Option<&LaneState> {
        owner.checked_sub(1).map(|lane| self.lane_state(lane))
    }

    /// The head of the segment.
    #[inline]
    pub(crate) fn header(&self) -> &Header {
        &self.head
    }

    /// The cachelet with this number; `None` if there is no such.
    #[inline]
    pub(crate) fn cachelet(&self, number: u32) -> Option<&Cachelet> {
        match self.cachelets.get(number) {
            None => self.cachelet_later(number),
            cachelet => cachelet,
        }
    }

    /// It may be one of those that have got memory since we last asked.
    #[cold]
    #[inline(never)]
    fn cachelet_later(&self, number: u32) -> Option<&Cachelet> {
        if number >= self.areas.cachelet_count {
            return None;
        }
        self.learn_cachelets();
        self.cachelets.get(number)
    }

    /// Asks how many cachelets have memory. Of any other nothing is looked at: a reference that an image has from an
    /// earlier generation may have the number of one, and who touches it may be killed where there is no memory left.
    pub(crate) fn learn_cachelets(&self) {
        let ready = self.header().cachelet_ready.load(core::sync::atomic::Ordering::Acquire);
        self.cachelets.grow(self.all_cachelets, ready);
    }

    /// Number of a cachelet of this segment.
    #[inline]
    pub(crate) fn cachelet_number(&self, cachelet: &Cachelet) -> u32 {
        self.cachelets.number(cachelet)
    }

    /// Inode number of a node, as programs see it.
    #[inline(always)]
    pub fn ino(&self, id: u64) -> u64 {
        self.numbers.of(id).unwrap_or_else(|| self.ino_as_original(id))
    }

    /// Inode number of a node, of which [`Fs::node_by_number`] makes the node again.
    #[inline]
    pub fn own_number(&self, id: u64) -> u64 {
        format::hash::inode_number(self.number_key, id)
    }

    /// A number that stays the same whatever `device` does.
    pub fn identity(&self) -> u64 {
        self.device
    }

    /// What the image was called by chance when it was made: no other one is.
    pub fn uuid(&self) -> [u64; 2] {
        self.files.uuid
    }

    /// The node with this [number of its own](Fs::own_number) and reuse generation, if the number is one.
    pub fn node_by_number(&self, ino: u64, generation: u32) -> Option<base::Node> {
        let id = format::hash::inode_node(self.number_key, ino, generation)?;
        (format::inode::node_offset(id) < self.layout.limit).then_some(base::Node { id, hint: u32::MAX })
    }

    /// Version of the image's format.
    pub fn format_version(&self) -> u32 {
        self.files.version
    }

    /// Whether all its inode numbers fit 32 bits.
    pub fn has_short_numbers(&self) -> bool {
        self.files.short_numbers
    }

    /// `EROFS` if nothing may be changed.
    #[inline]
    pub(crate) fn writable(&self) -> Result<()> {
        if self.is_writable() { Ok(()) } else { Err(Errno::EROFS.into()) }
    }

    /// Whether who writes has nothing to ask and nothing to order: the image may be changed, and since nothing is made
    /// durable, no persist can fail and end that.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain_slot == self.slot
    }

    #[inline]
    fn is_writable_slow(&self) -> bool {
        !self.read_only && self.root().flags.load(Relaxed) & 1 == 0
    }

    /// Whether who overwrites has nothing to ask, nothing to order and nothing to save.
    #[inline]
    pub(crate) fn may_overwrite(&self) -> bool {
        self.overwrite_slot == self.slot || self.files.atomic.is_none() && self.is_writable()
    }

    /// How overwrites of this mount happen whole or not at all, if they do.
    #[inline]
    pub fn atomic(&self) -> Option<base::Atomic> {
        if self.overwrite_slot == self.slot { None } else { self.files.atomic }
    }

    /// Whether anything may be changed.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.is_plain() || self.is_writable_slow()
    }
}

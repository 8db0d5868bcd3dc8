//! The segment's file: `<directory>/bypath-<token>`.
//!
//! It belongs to one image (`owner`) and one generation. It stays when the last
//! process leaves, so that what is cached is there for the next one; whoever makes
//! a new segment removes those of his whose image is gone (`sweep`). The image notes the directory, so that programs with
//! another environment find it.

use super::attach::{AttachError, no_region};
use super::owner;
use crate::alloc::reservation::CHUNK_BLOCKS;
use crate::fs::Fs;
use crate::segment::{Areas, BUCKET_LOCKS, DESCRIPTIONS, DESCRIPTORS, Header, LaneState, MAGIC, cachelet_budget};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use format::layout::{self, BLOCK, LANES, PLACE_BYTES, PROCESSES};
use pm::file::{self, File, Stat};
use pm::sys::abi;
use pm::{Domain, Errno, Growing, Pinned, Region, Ring, Table};

/// Lanes, and tables of descriptors, that have memory from the beginning.
const LANES_AT_ONCE: u32 = 16;
const TABLES_AT_ONCE: u32 = 8;
/// What the name of a segment starts with; the token follows in 16 hexadecimal digits.
pub(super) const PREFIX: &[u8] = b"/bypath-";

impl Fs {
    /// Joins the segment that the volatile header names; false if there is none that fits.
    pub(super) fn join(&mut self, directory: &[u8], image: &Stat) -> Result<bool, AttachError> {
        let token = self.volatile().token.load(Acquire);
        if token == 0 {
            return Ok(false);
        }
        // Whether that is fatal depends on whether anybody lives.
        let Some((file, stat)) = self.find_segment(directory, token, image)? else { return Ok(false) };
        let Some(areas) = self.fitting_areas(&file, token).filter(|areas| areas.len <= stat.size) else { return Ok(false) };
        self.areas = areas;
        self.files.segment = stat.identity();
        self.map_segment(&file)?;
        // What every start looks at, and stores to.
        self.segment.fetch_alone(0);
        self.segment.fetch_alone(self.areas.processes);
        self.image.fetch_alone(layout::PROCESS_MUTEXES);
        Ok(true)
    }

    /// The segment of that name: in the directory that we are told, or else in the one that its maker was told.
    fn find_segment(&mut self, directory: &[u8], token: u64, image: &Stat) -> Result<Option<(File, Stat)>, AttachError> {
        self.name_segment(directory, token)?;
        if let Some(found) = self.own_segment(image) {
            return Ok(Some(found));
        }
        let place = self.noted_place();
        if place[0] == 0 || self.name_segment(&place, token).is_err() {
            return Ok(None);
        }
        Ok(self.own_segment(image))
    }

    /// The directory that the image names, filled up with zeros.
    fn noted_place(&self) -> [u8; PLACE_BYTES] {
        let mut place = [0; PLACE_BYTES];
        for (at, bytes) in (layout::PLACE..).step_by(8).zip(place.chunks_exact_mut(8)) {
            let word = self.image.word(at).map_or(0, |word| word.load(Relaxed));
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        // It ends somewhere, whoever has written it.
        place[PLACE_BYTES - 1] = 0;
        place
    }

    /// Names the directory of the segment in the image, for those who are told another one.
    fn note_place(&self) {
        let end = self.segment_path.iter().position(|byte| *byte == 0).unwrap_or(0).saturating_sub(PREFIX.len() + 16);
        let mut place = [0; PLACE_BYTES];
        if end < PLACE_BYTES {
            place[..end].copy_from_slice(&self.segment_path[..end]);
        }
        for (at, bytes) in (layout::PLACE..).step_by(8).zip(place.as_chunks::<8>().0) {
            if let Some(word) = self.image.word(at) {
                self.image.store_volatile(word, u64::from_le_bytes(*bytes));
            }
        }
    }

    /// The areas of a segment file, if it is the one that belongs to the image as it is now.
    fn fitting_areas(&self, file: &File, token: u64) -> Option<Areas> {
        let mut head = [0u8; 40];
        file.read_at(&mut head, 0).ok().filter(|len| *len == head.len())?;
        let word = |i: usize| head.iter().skip(i * 8).take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let generation = word(2);
        let of_now = generation == self.volatile().generation.load(Relaxed) && generation == self.root().generation.load(Relaxed);
        let count = u32::try_from(word(4)).ok().filter(|count| (1..=16 << 20).contains(count))?;
        let areas = Areas::new(&self.layout, count);
        (word(0) == MAGIC && word(1) == token && of_now && word(3) == areas.len).then_some(areas)
    }

    fn map_segment(&mut self, file: &File) -> Result<(), AttachError> {
        let len = self.areas.len;
        let address = file.map(len, true, false).map_err(AttachError::Segment)?;
        // SAFETY: just mapped, shared and writable; unmapped by `leave_segment` together with the region.
        let segment = unsafe { Region::new(address, len, len, Domain::Process) };
        self.use_segment(segment)?;
        self.generation = self.root().generation.load(Relaxed) as u32;
        Ok(())
    }

    /// From now on this is the segment; its areas are known.
    pub(super) fn use_segment(&mut self, segment: Region) -> Result<(), AttachError> {
        self.segment = segment;
        self.head = Pinned::new(&self.segment, 0).ok_or(AttachError::Damaged)?;
        let lane_states = Table::new(&self.segment, self.areas.lanes, LANES);
        self.lane_states = lane_states.and_then(Ring::of).ok_or(AttachError::Damaged)?;
        self.opens.descriptors =
            Table::new(&self.segment, self.areas.descriptors, PROCESSES * DESCRIPTORS as u32).ok_or(AttachError::Damaged)?;
        self.all_cachelets =
            Table::new(&self.segment, self.areas.cachelets, self.areas.cachelet_count).ok_or(AttachError::Damaged)?;
        self.cachelets = Growing::of(self.all_cachelets);
        self.learn_cachelets();
        self.opens.descriptions = Table::new(&self.segment, self.areas.descriptions, DESCRIPTIONS).ok_or(AttachError::Damaged)?;
        let bucket_locks = Table::new(&self.segment, self.areas.bucket_locks, BUCKET_LOCKS as u32);
        self.bucket_locks = bucket_locks.and_then(Ring::of).ok_or(AttachError::Damaged)?;
        let blocks = self.layout.block_count();
        let count = |items: u64| u32::try_from(items).unwrap_or(u32::MAX);
        self.chunks =
            Table::new(&self.segment, self.areas.chunks, count(blocks.div_ceil(CHUNK_BLOCKS))).ok_or(AttachError::Damaged)?;
        self.reservations = Table::new(&self.segment, self.areas.reservations, count(blocks)).ok_or(AttachError::Damaged)?;
        // The fast path reads it without asking whether there is one.
        let _ = self.header().served.device.compare_exchange(0, self.device, Release, Relaxed);
        self.tell_device();
        Ok(())
    }

    /// Forgets the segment; nothing in it may be in use by this process.
    pub(super) fn leave_segment(&mut self) {
        let (base, len) = (self.segment.base(), self.segment.len());
        self.segment = no_region();
        (self.head, self.lane_states, self.opens.descriptors) = (Pinned::zero(), Ring::zero(), Table::EMPTY);
        self.all_cachelets = Table::EMPTY;
        self.cachelets = Growing::of(Table::EMPTY);
        self.opens.descriptions = Table::EMPTY;
        (self.chunks, self.reservations) = (Table::EMPTY, Table::EMPTY);
        self.bucket_locks = Ring::zero();
        if len != 0 {
            // SAFETY: the region is gone; a segment holds no mutexes.
            unsafe { file::unmap(base, len) };
        }
    }

    fn name_segment(&mut self, directory: &[u8], token: u64) -> Result<(), AttachError> {
        let directory = directory.split(|byte| *byte == 0).next().unwrap_or(directory);
        let mut name = [0u8; 256];
        let end = directory.len() + PREFIX.len() + 16;
        if directory.first() != Some(&b'/') || end >= name.len() {
            return Err(AttachError::Segment(Errno::ENAMETOOLONG));
        }
        name[..directory.len()].copy_from_slice(directory);
        name[directory.len()..end - 16].copy_from_slice(PREFIX);
        for (i, byte) in name[end - 16..end].iter_mut().enumerate() {
            *byte = b"0123456789abcdef"[(token >> (60 - 4 * i) & 15) as usize];
        }
        self.segment_path = name;
        Ok(())
    }

    /// Makes an empty segment for the present generation and names it in the
    /// volatile header, with so many `cachelets`. Nobody else uses the image.
    pub(super) fn make_segment(&mut self, directory: &[u8], image: &Stat, cachelets: Option<u32>) -> Result<(), AttachError> {
        let old = self.volatile().token.load(Acquire);
        if old != 0
            && let Ok(Some((_, stat))) = self.find_segment(directory, old, image)
        {
            // Wherever it is not reachable from, it is nobody's.
            self.files.segment = stat.identity();
            self.remove_segment();
        }
        self.image.store_volatile(&self.volatile().token, 0);
        let mut random = [0u8; 8];
        file::random(&mut random).map_err(AttachError::Segment)?;
        let token = u64::from_ne_bytes(random) | 1;
        self.name_segment(directory, token)?;
        let flags = abi::O_RDWR | abi::O_CREAT | abi::O_EXCL | abi::O_NOFOLLOW;
        let file = File::open(&self.segment_path, flags, 0o600).map_err(AttachError::Segment)?;
        self.files.segment = file.stat().map_err(AttachError::Segment)?.identity();
        self.areas = Areas::new(&self.layout, cachelets.unwrap_or(cachelet_budget(&self.layout)));
        let made = self.fill_segment(&file, token, image);
        if made.is_err() {
            self.leave_segment();
            self.remove_segment();
        } else {
            self.sweep(directory);
        }
        made
    }

    fn fill_segment(&mut self, file: &File, token: u64, image: &Stat) -> Result<(), AttachError> {
        // With room for zeroes, where a file may be so long: who exceeds a limit of its own dies of it.
        let with_zeros = crate::file::zeros::file_len(self.areas.len, 0);
        if file::may_reach(with_zeros).is_err() || file.truncate(with_zeros).is_err() {
            file.truncate(self.areas.len).map_err(AttachError::Segment)?;
        }
        // The head is looked at as soon as it is mapped. A file system that can't tell can't be helped.
        if file.allocate(0, self.areas.lanes) == Err(Errno::ENOSPC) {
            return Err(AttachError::NoSpace);
        }
        self.map_segment(file)?;
        self.begin_segment(token)?;
        self.note_image_path();
        self.note_served();
        self.note_place();
        // Its users are those of the image. Where we may not give it away, it stays ours; but for the image's group,
        // if we are in it.
        if file.own(image.uid, image.gid, owner::mode(image.gid, image)).is_err() {
            let _ = file.set_group(image.gid);
            let own = file.stat().map_err(AttachError::Segment)?;
            let _ = file.change_mode(owner::mode(own.gid, image));
        }
        self.image.store_volatile(&self.volatile().segment, self.files.segment[1]);
        self.image.store_volatile(&self.volatile().generation, u64::from(self.generation));
        self.image.store_volatile(&self.volatile().token, token);
        // Last: a segment with the magic word is one that its image names (`sweep`).
        self.header().magic.store(MAGIC, Release);
        Ok(())
    }

    /// Fills the head of a segment that is all zero; only the magic word is missing.
    pub(super) fn begin_segment(&self, token: u64) -> Result<(), AttachError> {
        let space = |offset: u64, len: u64| self.segment_space(offset, len).map_err(|_| AttachError::NoSpace);
        space(0, self.areas.lanes)?;
        space(self.areas.lanes, size_of::<LaneState>() as u64)?;
        space(self.areas.processes, u64::from(PROCESSES.min(64)) * 64)?;
        self.chunks_space(0, self.root().grown.load(Relaxed)).map_err(|_| AttachError::NoSpace)?;
        let header: &Header = self.header();
        header.token.store(token, Relaxed);
        header.generation.store(u64::from(self.generation), Relaxed);
        header.len.store(self.areas.len, Relaxed);
        header.cachelet_count.store(u64::from(self.areas.cachelet_count), Relaxed);
        self.note_leftovers();
        if !self.more_cachelets(0) {
            return Err(AttachError::NoSpace);
        }
        self.set_aside();
        Ok(())
    }

    /// What a program needs that starts, and only reads, has memory before it is all gone; as much as there is.
    fn set_aside(&self) {
        // Memory that is no file (rescue, crash explorer) has its space.
        if self.segment_path.first() == Some(&0) {
            return;
        }
        let _ = self.lane_space(LANES_AT_ONCE - 1);
        let _ = self.more_descriptions(0);
        for number in 0..TABLES_AT_ONCE {
            let _ = self.descriptor_space(number, 0);
        }
    }

    /// Leaves the image's path in the segment, for whoever tidies up.
    fn note_image_path(&self) {
        let path = self.path();
        if path.len() <= IMAGE_PATH_MAX {
            let _ = self.segment.copy_in(IMAGE_PATH, pm::UserSlice::from_ref(path));
        }
    }

    /// The next generation: every volatile reference in the image is void.
    pub(super) fn new_generation(&mut self) {
        let generation = &self.root().generation;
        let next = match (generation.load(Relaxed) as u32).wrapping_add(1) {
            0 => 1,
            next => next,
        };
        self.image.store(generation, u64::from(next));
        self.image.flush(self.image.offset_of(generation), 8);
        self.image.fence();
        self.generation = next;
    }
}

/// Where in a segment the path of its image stands, and how long it may be with its NUL.
pub(super) const IMAGE_PATH: u64 = 3072;
pub(super) const IMAGE_PATH_MAX: usize = 1023;
const _: () = assert!(size_of::<Header>() as u64 <= IMAGE_PATH && IMAGE_PATH + IMAGE_PATH_MAX as u64 + 1 == BLOCK);

impl Fs {
    /// The last to leave an image that was removed removes its segment too.
    pub(super) fn tidy_up(&self) {
        if self.users().next().is_some() {
            return;
        }
        let gone = match file::stat(self.path()) {
            Ok(stat) => stat.identity() != self.files.image,
            Err(errno) => errno == Errno::ENOENT,
        };
        if gone {
            self.remove_segment();
        }
    }
}

//! An image and a segment that are memory of this process (crash explorer): the
//! same way from image to [`Fs`] as [`attach`](super::attach), without files and
//! without asking the kernel, so that it takes microseconds.
//!
//! The volatile area holds zeros, which are ordinary free mutexes: nobody dies here.

use super::attach::{AttachError, Options, unjoined};
use super::table::PAGE_DESCRIPTORS;
use crate::fs::Fs;
use crate::segment::{Areas, DESCRIPTORS, Descriptor, LaneState, MAGIC, cachelet_budget};
use base::Cx;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use format::layout::{self, BLOCK, Layout};
use format::{Root, Superblock};
use openfiles::{Processes, state};
use pm::{Region, UserSlice};
use zerocopy::IntoBytes;

/// Bytes that a segment needs for an image of this size limit; `None` if there is no such image.
pub fn segment_bytes(limit: u64) -> Option<u64> {
    let layout = Layout::new(limit)?;
    Some(Areas::new(&layout, cachelet_budget(&layout)).len)
}

/// The parts of a segment that `users` users of a small tree can have touched,
/// offset and length: all that must be zeroed to make it fresh again.
pub fn segment_parts(limit: u64, users: u64) -> Option<[(u64, u64); 8]> {
    let layout = Layout::new(limit)?;
    let areas = Areas::new(&layout, cachelet_budget(&layout));
    let chunks = layout.block_count().div_ceil(512);
    let descriptor = size_of::<Descriptor>() as u64;
    Some([
        (0, areas.lanes),
        (areas.lanes, users * size_of::<LaneState>() as u64),
        (areas.processes, users * 64),
        (areas.descriptors, PAGE_DESCRIPTORS * descriptor),
        (areas.descriptors + DESCRIPTORS * descriptor, PAGE_DESCRIPTORS * descriptor),
        (areas.descriptions, 512 * 64),
        (areas.chunks, chunks * size_of::<crate::segment::Chunk>() as u64 + chunks * BLOCK + (areas.reservations - areas.chunks)),
        (areas.cachelets, 128 * 128),
    ])
}

/// Areas of an image that mean nothing after a crash and are no business of
/// records: the volatile header and the mutexes. Bytes from, bytes to.
pub const VOLATILE_AREA: (u64, u64) = (layout::VOLATILE, layout::LANE_AREA);

/// Offset of the one word that attaching changes in an image that needs no recovery.
pub const GENERATION: u64 = layout::ROOT + core::mem::offset_of!(Root, generation) as u64;

impl Fs {
    /// Attaches the image in `image`. Nobody uses it: it is recovered, and
    /// `segment`, all zero, becomes its segment; or (`join`) others of this
    /// process use it through `segment`, which is theirs.
    pub fn attach_memory<'p>(
        place: &'p mut MaybeUninit<Fs>,
        cx: &Cx,
        image: Region,
        segment: Region,
        join: bool,
        options: &Options,
    ) -> Result<&'p Fs, AttachError> {
        let (superblock, layout) = superblock(&image)?;
        let fs = place.write(unjoined(&superblock, layout, image, b"/\0", options)?);
        let grown = fs.root().grown.load(Relaxed);
        if grown <= layout.first_block() || grown > layout.block_count() || fs.image.len() < grown * BLOCK {
            return Err(AttachError::Damaged);
        }
        fs.refresh_valid();
        let mut cutting = None;
        if !join {
            cutting = Some(fs.recover_records().map_err(AttachError::Failed)?);
            fs.new_generation();
        }
        fs.generation = fs.root().generation.load(Relaxed) as u32;
        fs.areas = Areas::new(&layout, cachelet_budget(&layout));
        fs.use_segment(segment)?;
        if let Some(cutting) = cutting {
            fs.begin_segment(1)?;
            fs.header().magic.store(MAGIC, Release);
            fs.lock_noted(cx, &cutting);
        }
        fs.take_process_in_memory();
        if !join {
            fs.finish_work(cx);
        }
        Ok(fs)
    }

    fn take_process_in_memory(&self) {
        let number = self.header().processes_high.take();
        let mut pages = 0;
        if let Some(slot) = self.process_slot(number) {
            slot.state.store(state::USED, Release);
            slot.pid.store(number + 1, Relaxed);
            pages = slot.table_pages.load(Acquire) as u32;
        }
        self.set_process(number + 1, pages);
    }
}

fn superblock(image: &Region) -> Result<(Superblock, Layout), AttachError> {
    let read = |at: u64| -> Result<Superblock, AttachError> {
        let mut copy = Superblock::new(0, [0; 2], 0, 0, 0);
        image.copy_out(at, UserSlice::from_mut(copy.as_mut_bytes())).map_err(AttachError::Open)?;
        Ok(copy)
    };
    Superblock::choose(read(0)?, read(layout::SUPERBLOCK_COPY)?).map_err(|_| AttachError::Damaged)
}

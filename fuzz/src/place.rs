//! The image that inputs damage, put right again before each of them.
//!
//! One file in `/dev/shm`, written once; what an input has changed is found by
//! comparing with a copy. A child takes its parent's place anew (`replay` forks).

use crate::tree;
use base::{Cred, Cx, Thread};
use engine::Fs;
use engine::process::attach::{AttachError, Options};
use format::layout::{self, LINE};
use std::cell::RefCell;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

/// Limit of the image, bytes.
pub const LIMIT: u64 = 16 << 20;

/// The image file, its contents as they should be, and where there is something to damage.
pub struct Place {
    directory: String,
    file: File,
    /// Our own mapping of the file.
    map: *mut u8,
    golden: Vec<u8>,
    /// Offsets of lines, by area: see [`Place::lines`].
    areas: Vec<Vec<u64>>,
}

/// An attached image, detached and unmapped when dropped.
pub struct Attached {
    /// The thread that uses it.
    pub thread: Box<Thread>,
    /// The image.
    pub fs: &'static Fs,
    place: *mut MaybeUninit<Fs>,
    guards: Vec<(usize, usize)>,
}

thread_local! {
    static PLACE: RefCell<Option<(u32, Place)>> = const { RefCell::new(None) };
}

const GUARD: usize = 4096;

/// Calls `with` with the image as it should be.
///
/// # Panics
/// If the image cannot be made.
pub fn with_place<T>(with: impl FnOnce(&mut Place) -> T) -> T {
    PLACE.with(|cell| {
        let mut cell = cell.borrow_mut();
        let process = std::process::id();
        if cell.as_ref().is_none_or(|(owner, _)| *owner != process) {
            *cell = Some((process, Place::new(process)));
        }
        let (_, place) = cell.as_mut().expect("just made");
        place.restore();
        with(place)
    })
}

impl Place {
    fn new(process: u32) -> Place {
        let directory = format!("/dev/shm/bypath-fuzz-{process}");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a directory");
        let path = format!("{directory}/image");
        let options =
            engine::mkfs::Options { limit: LIMIT, seeds: Some(engine::testing::SEEDS), mode: 0o777, ..Default::default() };
        engine::mkfs::make(format!("{path}\0").as_bytes(), &options).expect("mkfs");
        let file = File::options().read(true).write(true).open(&path).expect("open");
        let mut place = Place { directory, file, map: std::ptr::null_mut(), golden: Vec::new(), areas: Vec::new() };
        place.map = place.map_file();
        {
            let attached = place.attach().expect("attach");
            tree::populate(attached.fs, &attached.cx());
            // As it is while files are open: the orphans stay.
            place.golden = place.bytes().to_vec();
        }
        // But nobody uses it.
        let volatile = layout::VOLATILE as usize..layout::LANE_AREA as usize;
        let left = place.bytes()[volatile.clone()].to_vec();
        place.golden[volatile].copy_from_slice(&left);
        place.find_lines();
        place
    }

    /// Over an image that is in a directory of its own, which goes with it.
    ///
    /// # Panics
    /// If it can't be mapped.
    pub fn over(directory: String) -> Place {
        let file = File::options().read(true).write(true).open(format!("{directory}/image")).expect("open");
        // Where it ends is not where its limit is, while nothing has been stored there.
        file.set_len(LIMIT).expect("length");
        let mut place = Place { directory, file, map: std::ptr::null_mut(), golden: Vec::new(), areas: Vec::new() };
        place.map = place.map_file();
        place
    }

    fn map_file(&self) -> *mut u8 {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LIMIT as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.file.as_raw_fd(),
                0,
            )
        };
        assert!(at != libc::MAP_FAILED, "map");
        at.cast()
    }

    /// The image's bytes. Nobody has it attached but within one call of a target.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped for as long as this lives, and not attached while borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.map, LIMIT as usize) }
    }

    /// Words of the image that others may be changing.
    pub fn words(&self) -> &[std::sync::atomic::AtomicU64] {
        // SAFETY: mapped for as long as this lives, aligned, made of atomics.
        unsafe { std::slice::from_raw_parts(self.map.cast(), LIMIT as usize / 8) }
    }

    /// Makes the image as it was at first, without a segment.
    fn restore(&mut self) {
        if self.file.metadata().is_ok_and(|m| m.len() != LIMIT) {
            self.file.set_len(LIMIT).expect("length");
        }
        let map = self.map;
        for (i, golden) in self.golden.chunks_exact(4096).enumerate() {
            // SAFETY: within the mapping; nobody has the image attached.
            let block = unsafe { std::slice::from_raw_parts_mut(map.add(i * 4096), 4096) };
            if block != golden {
                block.copy_from_slice(golden);
            }
        }
        for entry in std::fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name() != "image" {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Notes which lines are worth damaging.
    pub fn find_lines(&mut self) {
        if self.golden.is_empty() {
            self.golden = self.bytes().to_vec();
        }
        let areas = [
            (0, layout::ROOT),
            (layout::ROOT, layout::VOLATILE),
            (layout::LANE_AREA, layout::LANE_AREA + 4 * layout::LANE_BYTES),
            (layout::PERMISSION_TABLE, layout::ORPHAN_TABLE),
            (layout::ORPHAN_TABLE, layout::ORPHAN_TABLE + 1024),
            (layout::BITMAP, layout::BITMAP + LIMIT / 4096 * 8),
            (layout::BITMAP + LIMIT / 4096 * 8, LIMIT),
        ];
        for (first, end) in areas {
            let lines = (first..end).step_by(LINE as usize).filter(|at| {
                let line = &self.golden[*at as usize..][..LINE as usize];
                line.iter().any(|byte| *byte != 0) && !line.starts_with(&[0x77; 8])
            });
            self.areas.push(lines.collect());
        }
    }

    /// Lines with something in them, of area `area` (any number): superblocks,
    /// root, lanes, permissions, orphans, bitmap; and, for most numbers, blocks.
    pub fn lines(&self, area: u8) -> &[u64] {
        let lines = &self.areas[usize::from(area % 16).min(6)];
        if lines.is_empty() { &self.areas[6] } else { lines }
    }

    /// Path of the image, NUL-terminated.
    pub fn path(&self) -> Vec<u8> {
        format!("{}/image\0", self.directory).into_bytes()
    }

    /// Attaches the image as it is now.
    ///
    /// # Errors
    /// Why not.
    pub fn attach(&self) -> Result<Attached, AttachError> {
        let thread = Box::new(Thread::new());
        let place = Box::into_raw(Box::new(MaybeUninit::uninit()));
        let options = Options { segment_dir: Some(self.directory.as_bytes()), ..Default::default() };
        // SAFETY: from `Box::into_raw`; freed below or when `Attached` is dropped.
        let room: &'static mut MaybeUninit<Fs> = unsafe { &mut *place };
        let attached = Fs::attach_at(room, &Cx { cred: Cred::ROOT, umask: 0, thread: &thread }, &self.path(), &options);
        match attached {
            Ok(fs) => {
                let guards = engine::testing::mappings(fs).into_iter().flat_map(|(at, len)| guard(at, len)).collect();
                Ok(Attached { thread, fs, place, guards })
            }
            Err(error) => {
                // SAFETY: as above; nothing refers to it after a failure.
                drop(unsafe { Box::from_raw(place) });
                Err(error)
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
        // SAFETY: mapped once, and nobody refers to it after this.
        unsafe { libc::munmap(self.map.cast(), LIMIT as usize) };
    }
}

/// Pages that nobody may touch before and behind a mapping, where there is room.
fn guard(at: usize, len: usize) -> Vec<(usize, usize)> {
    let mut guards = Vec::new();
    for place in [at.wrapping_sub(GUARD), at + len] {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: takes only room that nothing is mapped in.
        let got = unsafe { libc::mmap(place as *mut libc::c_void, GUARD, libc::PROT_NONE, flags, -1, 0) };
        if got as usize == place {
            guards.push((place, GUARD));
        }
    }
    guards
}

impl Attached {
    /// The superuser's context.
    pub fn cx(&self) -> Cx<'_> {
        Cx { cred: Cred::ROOT, umask: 0o022, thread: &self.thread }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &self.thread });
        for (at, len) in engine::testing::mappings(self.fs).into_iter().chain(self.guards.drain(..)) {
            // SAFETY: detached: no mutex in it is held, and nobody refers to it after this.
            unsafe { libc::munmap(at as *mut libc::c_void, len) };
        }
        // SAFETY: from `Box::into_raw`; nobody refers to it after this.
        drop(unsafe { Box::from_raw(self.place) });
    }
}

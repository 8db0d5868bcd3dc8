//! From a path to an attached image.
//!
//! 1. Open and lock the file; check the superblocks and the length; ask whether another machine uses it.
//! 2. Map it; find out what the medium promises.
//! 3. Volatile header: of this boot and this file, or made anew.
//! 4. Join the segment that it names; or, if there is none and nobody lives,
//!    recover, and make one under the next generation.
//! 5. Adopt dead processes, take a process slot.
//!
//! None of it depends on the number of files.

use super::machine::{self, Host};
use super::{in_place, kernel, volatile};
use crate::fs::{Files, Fs, NOWHERE, Opens};
use crate::segment::{Areas, cachelet_budget};
use base::{Atomic, Cx, Error};
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use format::hash::{NameKey, NumberKey};
use format::layout::{self, BLOCK, Layout};
use format::superblock::SuperblockError;
use format::{Features, Superblock, VERSION, VERSION_OLD};
use openfiles::{ProcessSlot, Processes};
use pm::file::{self, File, Stat};
use pm::life::Look;
use pm::sys::abi;
use pm::{Domain, Errno, Growing, Pinned, Region, Ring, Steps, Table};
use zerocopy::IntoBytes;

/// Where segments are, unless an option says otherwise.
pub const SEGMENT_DIRECTORY: &[u8] = b"/dev/shm";

/// How an image is attached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// What the medium promises; `None`: find out.
    pub domain: Option<Domain>,
    /// Refuse every change.
    pub read_only: bool,
    /// Directory for the segment; `None`: [`SEGMENT_DIRECTORY`].
    pub segment_dir: Option<&'a [u8]>,
    /// Which of a thread's lanes is for this image (the mount slot).
    pub slot: usize,
    /// How many cachelets the segment has, if it is made now; `None`: as the image's size asks for.
    pub cachelets: Option<u32>,
    /// Overwrites happen whole or not at all, so.
    pub atomic: Option<Atomic>,
    /// The path is that of a session's file before an image that may not be written ([`super::in_place`]).
    pub in_place: bool,
}

/// Why an image was not attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// The file cannot be opened.
    Open(Errno),
    /// The file may not be written; whoever uses an image directly must be able to.
    NotWritable,
    /// Neither copy of the superblock is one.
    NotAnImage,
    /// Made by another version of the format.
    Version(u32),
    /// It has what this program does not know.
    Features(Features),
    /// What is wanted of it needs the present version of the format.
    Older,
    /// Both copies of the superblock are damaged, or the root is.
    Damaged,
    /// The file is shorter than the image has grown to.
    Truncated {
        /// Bytes that the file has.
        has: u64,
        /// Bytes that it must have.
        needs: u64,
    },
    /// Processes use it through a segment that we cannot open.
    InUse,
    /// Processes use it, and it may only be read from here.
    BeingWritten,
    /// The image that a session reads where it lies has been changed or replaced.
    Changed,
    /// Processes of another machine use it, or did when it crashed.
    Elsewhere(Host),
    /// Processes seem to use it under another device number.
    Alias,
    /// Somebody holds the kernel's lock on the file.
    Locked,
    /// No space for the segment, or for the image's own tables.
    NoSpace,
    /// The segment cannot be made.
    Segment(Errno),
    /// The image cannot be mapped.
    Map(Errno),
    /// All process slots are taken.
    TooManyProcesses,
    /// Recovery met damage.
    Failed(Error),
}

impl AttachError {
    /// That of a lock that was not had.
    pub(crate) fn locked(errno: Errno) -> AttachError {
        if errno == Errno::EAGAIN { AttachError::Locked } else { AttachError::Open(errno) }
    }

    /// The error number for callers that can't show more.
    pub fn errno(self) -> Errno {
        match self {
            AttachError::Open(errno) | AttachError::Segment(errno) | AttachError::Map(errno) => errno,
            AttachError::NotWritable => Errno::EACCES,
            AttachError::NotAnImage | AttachError::Version(_) | AttachError::Features(_) | AttachError::Older => Errno::EINVAL,
            AttachError::Damaged | AttachError::Truncated { .. } => Errno::EUCLEAN,
            AttachError::InUse | AttachError::BeingWritten => Errno::EBUSY,
            AttachError::Elsewhere(_) | AttachError::Alias | AttachError::Locked => Errno::EBUSY,
            AttachError::Changed => Errno::ESTALE,
            AttachError::NoSpace => Errno::ENOSPC,
            AttachError::TooManyProcesses => Errno::EAGAIN,
            AttachError::Failed(error) => error.errno(),
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Open(Errno::ENOENT) => f.write_str("no such file"),
            AttachError::Open(errno) => write!(f, "it cannot be opened: {errno}"),
            AttachError::NotWritable => {
                f.write_str("the file is not writable; direct use of an image needs write permission on it")
            }
            AttachError::NotAnImage => f.write_str("not a Bypath image; make one with bypath mkfs"),
            AttachError::Version(version) => {
                write!(f, "an image of format version {version}, and this program knows {VERSION_OLD} and {VERSION} only; ")?;
                match *version > VERSION {
                    true => f.write_str("use the program that made it, or a newer one"),
                    false => f.write_str(
                        "bypath export of the program that made it copies its files out, and bypath import copies them in",
                    ),
                }
            }
            AttachError::Features(features) => {
                write!(f, "the image has {features}, which this program does not know; use the program that made it, or a newer one")
            }
            AttachError::Older => {
                write!(f, "the option atomic= needs format {VERSION}; bypath upgrade makes the image one of that version")
            }
            AttachError::Damaged => f.write_str("the superblock is damaged in both copies, or the root is; see bypath dump"),
            AttachError::Truncated { has, needs } => {
                write!(f, "the file was truncated: it has {has} bytes, the image needs {needs}; restore it from a copy")
            }
            AttachError::InUse => f.write_str(
                "other processes use it through a shared cache that is out of reach here; in a sandbox, bind the directory of \
                 shared caches (/dev/shm) into it; else use the same BYPATH_SEGMENT_DIR and the same version of this program, or \
                 end those processes",
            ),
            AttachError::BeingWritten => {
                f.write_str("the file is not writable from here, and other processes use it; end those processes first")
            }
            AttachError::Changed => {
                f.write_str("the file has been changed or replaced since the session began to read it; start the session again")
            }
            AttachError::Elsewhere(host) => write!(
                f,
                "{host} uses it, or did so when it crashed, and an image is used by one machine at a time; end its use there, or, \
                 if that machine is down, take the image over once with --force (bypath run, mount, import, check --repair)"
            ),
            AttachError::Alias => f.write_str(
                "processes seem to use this file under another device number, as below an overlay; use it by the same mount \
                 as they do, or, if this is a copy that nobody uses, say --force once (bypath run, mount, import, check --repair)",
            ),
            AttachError::Locked => f.write_str(
                "another program has held the lock (flock) on the file for 20 s, as a repair does, or a session that reads the \
                 image while it may not be written; wait for its end, or end it",
            ),
            AttachError::NoSpace => {
                f.write_str("no space for the shared cache in its directory (/dev/shm, or BYPATH_SEGMENT_DIR), or for the image's tables beside the image; free some, or choose another BYPATH_SEGMENT_DIR")
            }
            AttachError::Segment(errno) => {
                write!(f, "the segment cannot be made: {errno}; choose a directory with BYPATH_SEGMENT_DIR")
            }
            AttachError::Map(errno) => write!(f, "the file cannot be mapped: {errno}"),
            AttachError::TooManyProcesses => write!(f, "{} processes use it, which is all there may be", layout::PROCESSES),
            AttachError::Failed(Error::Corrupt { what, at }) => {
                write!(f, "recovery met a damaged {what} at offset {at}; run bypath check")
            }
            AttachError::Failed(Error::Posix(errno)) => write!(f, "recovery failed: {errno}"),
        }
    }
}

/// Nobody is there to be joined, and without the lock nothing else can be done.
const UNLOCKED: AttachError = AttachError::Open(Errno::ENOSYS);

/// The usable superblock of an open file, and the layout.
pub(crate) fn superblock(file: &File) -> Result<(Superblock, Layout), AttachError> {
    superblock_among(file, [0, layout::SUPERBLOCK_COPY])
}

/// The same of copies at these offsets.
pub(super) fn superblock_among(file: &File, at: [u64; 2]) -> Result<(Superblock, Layout), AttachError> {
    let read = |at: u64| -> Result<Superblock, AttachError> {
        let mut copy = Superblock::new(0, [0; 2], 0, 0, 0);
        copy.magic = 0;
        file.read_at(copy.as_mut_bytes(), at).map_err(AttachError::Open)?;
        Ok(copy)
    };
    Superblock::choose(read(at[0])?, read(at[1])?).map_err(|error| match error {
        SuperblockError::NotAnImage => AttachError::NotAnImage,
        SuperblockError::Version(version) => AttachError::Version(version),
        SuperblockError::Features(features) => AttachError::Features(features),
        SuperblockError::Damaged => AttachError::Damaged,
        SuperblockError::Truncated => AttachError::Truncated { has: 0, needs: 0 },
    })
}

/// What is known of an image file before it is mapped.
pub(super) struct Opened {
    pub file: File,
    pub stat: Stat,
    pub superblock: Superblock,
    pub layout: Layout,
    /// Blocks with real space.
    pub grown: u64,
    /// Nobody else attaches or leaves meanwhile.
    pub locked: bool,
    /// Whether other machines may have the file.
    pub is_shared: bool,
    /// Where a volatile header must be from that is believed.
    pub identity: volatile::Identity,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // The mapping keeps the kernel's file, and with it the lock, alive.
        if self.locked {
            self.file.unlock();
        }
    }
}

/// Opens an image, and locks it: against everybody (`alone`), or against who does that, if the image is in use and
/// whole. Any number join at a time, so that one who is stopped then keeps nobody else from it.
fn open(path: &[u8], alone: bool, in_place: bool) -> Result<Opened, AttachError> {
    let file = File::open(path, abi::O_RDWR | abi::O_NONBLOCK, 0).map_err(|errno| match errno {
        Errno::EACCES | Errno::EROFS | Errno::EPERM => AttachError::NotWritable,
        Errno::EISDIR => AttachError::NotAnImage,
        other => AttachError::Open(other),
    })?;
    if !file.stat().map_err(AttachError::Open)?.is_regular() {
        return Err(AttachError::NotAnImage);
    }
    // Where a filter of system calls lets nobody lock, one can join those who use it, and no more.
    let locked = match if alone { file.lock() } else { file.lock_shared() } {
        Ok(()) => true,
        Err(Errno::ENOSYS | Errno::EPERM) if alone => return Err(UNLOCKED),
        Err(Errno::ENOSYS | Errno::EPERM) => false,
        Err(errno) => return Err(AttachError::locked(errno)),
    };
    let found = if in_place { in_place::superblock(&file) } else { superblock(&file) }?;
    let mut opened = look_at(file, found)?;
    opened.locked = locked;
    let Opened { file, stat, layout, grown, identity, .. } = &opened;
    // Who joins finds his own boot id there, if there is one.
    if alone || identity.boot().is_none() {
        machine::refuse_elsewhere(file, stat, identity.boot(), opened.is_shared)?;
    }
    if !alone {
        return Ok(opened);
    }
    if stat.size < layout.limit {
        file.truncate(layout.limit).map_err(AttachError::Open)?;
    }
    // Before a session's file the image shows through the holes.
    if !in_place {
        fill_holes(file, stat, *layout, *grown)?;
    }
    Ok(opened)
}

/// Looks whether an open file is an image, and a whole one.
pub(super) fn examine(file: File) -> Result<Opened, AttachError> {
    if !file.stat().map_err(AttachError::Open)?.is_regular() {
        return Err(AttachError::NotAnImage);
    }
    let found = superblock(&file)?;
    look_at(file, found)
}

fn look_at(file: File, (superblock, layout): (Superblock, Layout)) -> Result<Opened, AttachError> {
    let stat = file.stat().map_err(AttachError::Open)?;
    let mut word = [0u8; 8];
    let at = layout::ROOT + core::mem::offset_of!(format::Root, grown) as u64;
    if file.read_at(&mut word, at).map_err(AttachError::Open)? != 8 {
        return Err(AttachError::Truncated { has: stat.size, needs: layout.blocks });
    }
    let grown = u64::from_le_bytes(word);
    if grown <= layout.first_block() || grown > layout.block_count() {
        return Err(AttachError::Damaged);
    }
    if stat.size < grown * BLOCK {
        return Err(AttachError::Truncated { has: stat.size, needs: grown * BLOCK });
    }
    let identity = volatile::Identity::new(&stat);
    let is_shared = file.is_shared();
    Ok(Opened { file, stat, superblock, layout, grown, locked: true, is_shared, identity })
}

/// A copy of an image may have lost its real space (zeros became holes): it gets it back.
fn fill_holes(file: &File, stat: &Stat, layout: Layout, grown: u64) -> Result<(), AttachError> {
    let first = layout.first_block();
    let bitmap = Layout::bitmap_word(first) & !(BLOCK - 1);
    let parts = [
        (0, layout::BITMAP),
        (bitmap, (Layout::bitmap_word(grown) - bitmap).next_multiple_of(BLOCK)),
        (layout.blocks, (grown - first) * BLOCK),
    ];
    if stat.allocated >= parts.iter().map(|part| part.1).sum() {
        return Ok(());
    }
    for (at, len) in parts {
        match file.allocate(at, len) {
            // A file system that can't tell can't be helped.
            Ok(()) | Err(Errno::EOPNOTSUPP) => {}
            Err(Errno::ENOSPC) => return Err(AttachError::NoSpace),
            Err(errno) => return Err(AttachError::Open(errno)),
        }
    }
    Ok(())
}

/// Maps the image; a mapping that survives power failure, if the medium has such.
fn map(opened: &Opened, wanted: Option<Domain>) -> Result<Region, AttachError> {
    let (file, len) = (&opened.file, opened.layout.limit);
    let (address, domain) = match (file.map(len, true, true), wanted) {
        (Ok(address), wanted) => (address, wanted.unwrap_or(Domain::Power)),
        (Err(_), wanted) => (file.map(len, true, false).map_err(AttachError::Map)?, wanted.unwrap_or(Domain::Process)),
    };
    // SAFETY: just mapped, shared and writable, page-aligned; it is unmapped
    // only when attaching fails and the region is gone.
    Ok(unsafe { Region::new(address, len, opened.grown * BLOCK, domain) })
}

/// A region of nothing, until the segment is there.
pub(super) fn no_region() -> Region {
    // SAFETY: no bytes, so nothing is ever touched.
    unsafe { Region::new(core::ptr::null_mut(), 0, 0, Domain::Process) }
}

impl Fs {
    /// Attaches the image at `path` (NUL-terminated), with this thread holding
    /// the mutex of the process slot: it should be one that lives as long as the process.
    ///
    /// `place` gives the room, so that no allocator is needed; nothing is in it after an error.
    pub fn attach_at<'p>(place: &'p mut MaybeUninit<Fs>, cx: &Cx, path: &[u8], options: &Options) -> Result<&'p Fs, AttachError> {
        if Self::attach_as(place, cx, path, options, false)? || Self::attach_as(place, cx, path, options, true)? {
            // SAFETY: it was written, and has not been given up.
            return Ok(unsafe { place.assume_init_mut() });
        }
        Err(AttachError::InUse)
    }

    /// As [`Fs::attach_at`]: with nobody beside it (`alone`), or as one of several users. False if it must be the former.
    fn attach_as(place: &mut MaybeUninit<Fs>, cx: &Cx, path: &[u8], options: &Options, alone: bool) -> Result<bool, AttachError> {
        let opened = open(path, alone, options.in_place)?;
        let image = map(&opened, options.domain)?;
        if options.in_place
            && let Err(error) = in_place::lay_over(&opened.file, &opened.layout, &image)
        {
            let (base, len) = (image.base(), image.len());
            // SAFETY: nothing refers to the mapping.
            unsafe { file::unmap(base, len) };
            return Err(error);
        }
        let fs = place.write(unjoined(&opened.superblock, opened.layout, image, path, options)?);
        fs.files.image = opened.stat.identity();
        let attached = match alone {
            true => fs.attach(cx, &opened, options).map(|()| true),
            false => fs.attach_beside_others(cx, &opened, options),
        };
        let attached = match attached {
            Ok(true) if options.atomic.is_some() && !options.read_only => fs.allow_atomic(cx).map(|()| true).map_err(|error| {
                fs.detach(cx);
                if error == Error::Posix(Errno::EOPNOTSUPP) { AttachError::Older } else { AttachError::Failed(error) }
            }),
            other => other,
        };
        match attached {
            Ok(true) if opened.is_shared => fs.tell_others(false),
            Ok(true) => {}
            _ => fs.abandon(cx),
        }
        attached
    }

    /// Joins those who use the image; false, and nothing has happened, if there is nobody.
    fn attach_beside_others(&mut self, cx: &Cx, opened: &Opened, options: &Options) -> Result<bool, AttachError> {
        let directory = options.segment_dir.unwrap_or(SEGMENT_DIRECTORY);
        let is_whole = opened.stat.size >= opened.layout.limit;
        if !is_whole || !opened.identity.matches(self.volatile()) {
            return Ok(false);
        }
        if !self.join(directory, &opened.stat)? || self.adopt_all(cx, Look::Quick) == 0 {
            return Ok(false);
        }
        self.note_use();
        self.take_place(cx)?;
        // Who leaves gives up his place before he looks whether he was the last: whoever has a place still sees ours.
        if !opened.locked && self.adopt_all(cx, Look::Quick) == 0 {
            self.detach(cx);
            return Err(UNLOCKED);
        }
        self.finish_beside_others(cx);
        Ok(true)
    }

    fn take_place(&self, cx: &Cx) -> Result<(), AttachError> {
        self.take_process(cx).map_err(|error| match error {
            Error::Posix(Errno::ENOSPC) => AttachError::NoSpace,
            _ => AttachError::TooManyProcesses,
        })
    }

    fn attach(&mut self, cx: &Cx, opened: &Opened, options: &Options) -> Result<(), AttachError> {
        let directory = options.segment_dir.unwrap_or(SEGMENT_DIRECTORY);
        if !opened.identity.matches(self.volatile()) {
            opened.identity.initialise(&self.image, self.volatile());
        }
        self.note_use();
        let mut joined = self.join(directory, &opened.stat)?;
        let alone = !joined || self.adopt_all(cx, Look::Quick) == 0;
        if joined && alone && !self.settle_alone() {
            // Death at an unlucky instant has left something counted that nobody holds.
            self.give_lane_back(cx.thread);
            self.leave_segment();
            joined = false;
        }
        if !joined {
            if volatile::anyone_lives(&self.image) {
                return Err(AttachError::InUse);
            }
            let cutting = self.recover_records().map_err(AttachError::Failed)?;
            self.new_generation();
            self.make_segment(directory, &opened.stat, options.cachelets)?;
            self.lock_noted(cx, &cutting);
        }
        self.take_place(cx)?;
        if alone {
            self.finish_work(cx);
        } else {
            self.finish_beside_others(cx);
        }
        Ok(())
    }

    /// Undoes a failed attempt.
    pub(super) fn abandon(&mut self, cx: &Cx) {
        self.give_lane_back(cx.thread);
        self.leave_segment();
        let (base, len) = (self.image.base(), self.image.len());
        self.image = no_region();
        // SAFETY: the region is gone and no mutex in it is held by this thread:
        // the lane was given back, and a process slot is the last thing taken.
        unsafe { file::unmap(base, len) };
    }

    /// Address of the image's first byte in this process.
    pub fn base_address(&self) -> usize {
        self.image.base() as usize
    }

    /// The domain in force.
    pub fn domain(&self) -> Domain {
        self.image.domain()
    }

    /// Absolute path of the image, NUL-terminated, for the kernel.
    pub fn path(&self) -> &[u8] {
        self.path.split_inclusive(|byte| *byte == 0).next().unwrap_or(b"\0")
    }

    /// Path of the segment, without the NUL.
    pub fn segment_path(&self) -> &[u8] {
        self.segment_path.split(|byte| *byte == 0).next().unwrap_or(&[])
    }

    /// Number of this mount generation.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// What the kernel says of the state of those users that it can be asked of: a letter as in `/proc/PID/stat`.
    pub fn user_states(&self) -> impl Iterator<Item = (u32, u8)> {
        let high = self.header().processes_high.get();
        let slots = (0..high).filter_map(|number| self.process_slot(number));
        slots.filter(|slot| slot.is_used()).map(ProcessSlot::who).filter_map(|who| Some((who.pid, who.state()?)))
    }

    /// Whether none of the processes that use the image lives, as far as can be told, but `pid`.
    pub fn is_alone(&self, pid: u32) -> bool {
        self.living().all(|user| user == pid)
    }

    /// Processes that use the image and live; a number that another process has got since is none of theirs.
    pub fn living(&self) -> impl Iterator<Item = u32> {
        (0..self.header().processes_high.get()).filter_map(|number| self.process_slot(number).and_then(ProcessSlot::user))
    }

    /// Processes that use the image now, as the table says.
    pub fn users(&self) -> impl Iterator<Item = u32> {
        let high = self.header().processes_high.get();
        (0..high).filter_map(|number| {
            let slot: &ProcessSlot = self.process_slot(number)?;
            slot.is_used().then(|| slot.pid.load(Relaxed))
        })
    }
}

/// An image that is mapped, but has no segment yet.
pub(crate) fn unjoined(
    superblock: &Superblock,
    layout: Layout,
    image: Region,
    path: &[u8],
    options: &Options,
) -> Result<Fs, AttachError> {
    let root = Pinned::<format::Root>::new(&image, layout::ROOT).ok_or(AttachError::Damaged)?;
    let is_plain = !options.read_only && image.domain() == Domain::Process && root.flags.load(Relaxed) & 1 == 0;
    let slot = (options.slot % base::MOUNTS_MAX) as u8;
    let number_key = NumberKey::new(superblock.ino_key, superblock.numbers());
    let mut fs = Fs {
        root,
        lanes: Table::new(&image, layout::LANE_AREA, layout::LANES).and_then(Ring::of).ok_or(AttachError::Damaged)?,
        permissions: Table::new(&image, layout::PERMISSION_TABLE, layout::PERMISSIONS as u32)
            .and_then(Ring::of)
            .ok_or(AttachError::Damaged)?,
        permissions_found: [const { AtomicU64::new(crate::permission::NOT_FOUND) }; 2],
        clock: pm::clock::Clock::here(),
        first_block: layout.first_block() as u32,
        image,
        segment: no_region(),
        head: Pinned::zero(),
        lane_states: Ring::zero(),
        bucket_locks: Ring::zero(),
        cachelets: Growing::of(Table::EMPTY),
        all_cachelets: Table::EMPTY,
        chunks: Table::EMPTY,
        reservations: Table::EMPTY,
        opens: Opens {
            descriptors: Table::EMPTY,
            descriptions: Table::EMPTY,
            known: AtomicU32::new(0),
            own: AtomicU32::new(NOWHERE),
            is_plain,
        },
        buckets: Steps::new(),
        layout,
        areas: Areas::new(&layout, cachelet_budget(&layout)),
        numbers: crate::lower::Numbers::new(number_key),
        number_key,
        originals_on: AtomicU64::new(0),
        name_key: NameKey::new(superblock.hash_seed),
        generation: 0,
        slot,
        process: AtomicU32::new(0),
        descriptor_pages: AtomicU32::new(0),
        description_hint: AtomicU32::new(0),
        robust_list: AtomicUsize::new(0),
        forking_thread: AtomicU32::new(0),
        forked_from: AtomicU32::new(0),
        backing: AtomicU32::new(0),
        device: device(superblock),
        read_only: options.read_only,
        plain_slot: if is_plain { slot } else { u8::MAX },
        overwrite_slot: if is_plain && options.atomic.is_none() { slot } else { u8::MAX },
        path: [0; 4096],
        segment_path: [0; 256],
        files: Files {
            uuid: superblock.uuid,
            version: superblock.version,
            short_numbers: superblock.has_short_numbers(),
            features: AtomicU64::new(superblock.features),
            atomic: options.atomic,
            in_place: options.in_place,
            ..Files::default()
        },
    };
    absolute(path, &mut fs.path).ok_or(AttachError::Open(Errno::ENAMETOOLONG))?;
    Ok(fs)
}

/// `st_dev` of an image: a made-up minor of major 0, from its identity, the same in every process.
fn device(superblock: &Superblock) -> u64 {
    let minor = (superblock.uuid[0] ^ superblock.uuid[1] >> 7) & 0xf_ffff;
    // As `makedev` packs it: the low byte of the minor, then the rest above the major.
    let minor = minor | 0x8_0000;
    minor & 0xff | (minor & !0xff) << 12
}

/// Makes a path absolute, so that it is right whatever the working directory later is.
fn absolute(path: &[u8], into: &mut [u8; 4096]) -> Option<()> {
    let path = path.split(|byte| *byte == 0).next()?;
    let mut len = 0;
    if path.first() != Some(&b'/') {
        len = kernel::working_directory(into)?;
        *into.get_mut(len)? = b'/';
        len += 1;
    }
    // A NUL must be left at the end.
    into.get_mut(len..len + path.len() + 1)?[..path.len()].copy_from_slice(path);
    into[len + path.len()..].fill(0);
    Some(())
}

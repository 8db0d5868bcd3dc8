//! One program (or one namespace of the C API) as the core sees it.

use crate::credentials::Credentials;
use crate::descriptors::{CWD_FD, Descriptors};
use crate::handle::Mappings;
use crate::lock::Lock;
use crate::protected::Protected;
use crate::{Bitmap, Door, Numbers, ThreadState};
use base::Cx;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use pm::Errno;
use pm::sys::abi;
use vfs::{Backend, mount::MountTable};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Served; result or negated error number.
    Done(isize),
    /// Not ours: make the system call with its own arguments.
    Kernel,
    /// Make this system call instead. Its pointers lead into the
    /// [`ThreadState`] and hold until that thread's next call.
    KernelWith {
        /// Number.
        nr: usize,
        /// Arguments.
        args: [usize; 6],
    },
}

/// The numbers are its own, and quick to ask.
pub(crate) const OWN_NUMBERS: u8 = 1;
/// A record lock was ever taken.
pub(crate) const RECORD_LOCKS: u8 = 2;

/// What comes next begins a line.
#[repr(align(64))]
struct Line;

/// Mounts, descriptors, working directory, credentials and mappings of one
/// program. Allocates nothing; can be a `static`.
///
/// The working directory's word, where it is, and what calls read of the first mount lie on one line; the lowest numbers,
/// the mask and who calls, as long as it has not changed who it is, on another.
#[repr(C, align(64))]
pub struct Process {
    /// Which numbers are ours.
    pub descriptors: Descriptors,
    /// What is mounted where.
    pub mounts: MountTable,
    before_numbers: Line,
    shift: [u64; 2],
    /// Numbers of its own, if the door has none.
    numbers: Bitmap,
    /// File-creation mask; `u32::MAX` until first asked for.
    pub(crate) umask: AtomicU32,
    /// The kernel's working directory is above a mount point, so that relative
    /// paths may enter a mount.
    pub(crate) cwd_above_mount: AtomicBool,
    /// While the working directory is ours: the kernel's is where [`Door::enter_virtual_cwd`] leads.
    pub(crate) cwd_is_virtual: AtomicBool,
    /// What a close has to ask: [`OWN_NUMBERS`], [`RECORD_LOCKS`].
    pub(crate) closing: AtomicU8,
    /// A mapping was made whose pages are put in place when they are touched: so they are before a call uses them.
    pub(crate) maps_partially: AtomicBool,
    pub(crate) credentials: Credentials,
    pub(crate) door: &'static dyn Door,
    /// A mount point exists in the kernel's namespace too.
    pub(crate) points_exist: AtomicBool,
    /// Bit n: the kernel has the same files as slot n at its mount point.
    pub(crate) shown: AtomicU32,
    /// There is a mount with `sync=none`.
    pub(crate) unsynced: AtomicBool,
    /// This process has opened or bound an object of the kernel's that stands behind a node.
    pub(crate) has_objects: AtomicBool,
    /// What the kernel calls the mount at the same point, 0 where it has none.
    pub(crate) mount_ids: [AtomicU32; base::MOUNTS_MAX],
    /// `RLIMIT_FSIZE`, bytes; `u64::MAX - 1` until first asked for.
    pub(crate) file_limit: AtomicU64,
    /// Held by who moves the working directory, which takes several steps.
    pub(crate) moving: Lock,
    pub(crate) mappings: Mappings,
    pub(crate) protected: Protected,
}

const _: () = {
    use core::mem::offset_of;
    // After the word of the working directory, which is the last one, and where it is.
    assert!(offset_of!(Process, descriptors) == 0 && offset_of!(Process, mounts) % 64 == 24);
    assert!((offset_of!(Process, numbers) + Bitmap::LOWEST).is_multiple_of(64));
    assert!(offset_of!(Process, credentials) % 64 + Credentials::FIRST <= 64);
    assert!(offset_of!(Process, credentials) < offset_of!(Process, numbers) + Bitmap::LOWEST + 64);
};

impl Process {
    /// Whether memory that a mount works on lies at `address`.
    pub fn is_mapped(&self, address: usize) -> bool {
        self.mounts.iter().any(|(_, mount)| mount.backend.is_mapped(address))
    }

    /// The call of this thread was broken off at some instruction, and will not be gone on with.
    pub fn break_off(&self, thread: &ThreadState) {
        thread.retry.set(false);
        self.mounts.iter().for_each(|(_, mount)| mount.backend.break_off(&self.cx(thread)));
    }

    /// A process without mounts.
    pub const fn new(door: &'static dyn Door) -> Self {
        Process {
            door,
            before_numbers: Line,
            shift: [0; 2],
            numbers: Bitmap::new(),
            mounts: MountTable::new(),
            descriptors: Descriptors::new(),
            moving: Lock::new(),
            credentials: Credentials::new(),
            umask: AtomicU32::new(u32::MAX),
            cwd_above_mount: AtomicBool::new(false),
            cwd_is_virtual: AtomicBool::new(false),
            points_exist: AtomicBool::new(false),
            shown: AtomicU32::new(0),
            unsynced: AtomicBool::new(false),
            closing: AtomicU8::new(0),
            maps_partially: AtomicBool::new(false),
            has_objects: AtomicBool::new(false),
            mount_ids: [const { AtomicU32::new(0) }; base::MOUNTS_MAX],
            file_limit: AtomicU64::new(u64::MAX - 1),
            mappings: Mappings::new(),
            protected: Protected::new(),
        }
    }

    /// A process without mounts, behind a door without numbers.
    pub const fn with_numbers(door: &'static dyn Door) -> Self {
        Process { closing: AtomicU8::new(OWN_NUMBERS), ..Process::new(door) }
    }

    /// Where its numbers come from.
    pub fn numbers(&self) -> &dyn Numbers {
        self.door.numbers().unwrap_or(&self.numbers)
    }

    /// The lowest free number, for who opens with these `O_*`. `EMFILE` when there is none.
    #[inline(always)]
    pub(crate) fn take_number(&self, flags: u32) -> Result<u32, Errno> {
        if self.has_numbers()
            && let Some(fd) = self.numbers.take_fast()
        {
            return Ok(fd);
        }
        self.numbers().take(0, flags & abi::O_CLOEXEC != 0)
    }

    /// Nobody uses `fd` any more.
    #[inline]
    pub(crate) fn give_number_back(&self, fd: u32) {
        if self.has_numbers() {
            return self.give_own_number_back(fd);
        }
        self.give_back_to_door(fd);
    }

    /// The same where the numbers are its own.
    #[inline]
    pub(crate) fn give_own_number_back(&self, fd: u32) {
        self.numbers.give_back(fd);
    }

    #[inline]
    fn has_numbers(&self) -> bool {
        self.closing.load(Relaxed) & OWN_NUMBERS != 0
    }

    /// A record lock was ever taken, so that `close` must drop them.
    #[inline]
    pub(crate) fn has_record_locks(&self) -> bool {
        self.closing.load(Relaxed) & RECORD_LOCKS != 0
    }

    #[inline(never)]
    fn give_back_to_door(&self, fd: u32) {
        self.numbers().give_back(fd);
    }

    /// Mounts `backend` at the absolute path `point`; returns its slot. See
    /// [`MountTable::add`] for errors. Calls must not race with one another.
    pub fn mount(&self, thread: &ThreadState, point: &[u8], backend: &'static dyn Backend) -> Result<usize, Errno> {
        // SAFETY: the thread's scratch is in use by no other call of this thread.
        let scratch = unsafe { &mut *thread.room().scratch[0].get() };
        self.credentials.ask_once();
        self.note_namespace();
        self.umask_now();
        let slot = self.mounts.add(&self.cx(thread), point, backend, scratch)?;
        self.settle_here();
        self.point_mounted(thread, slot, point);
        self.note_unsynced();
        self.kernel_cwd_changed();
        Ok(slot)
    }

    /// Unmounts `slot`: see [`MountTable::remove`]. Calls must not race with one another.
    pub fn unmount(&self, slot: usize) {
        self.mounts.remove(slot);
        self.note_unsynced();
        self.settle_here();
    }

    /// Takes note of where relative paths start, after the working directory's word was put or what is mounted has changed.
    pub(crate) fn settle_here(&self) {
        self.moving.with(|| self.note_here());
    }

    /// The same for who is moving the working directory.
    pub(crate) fn note_here(&self) {
        // Else a path has to be looked at component by component.
        let file = self.mounts.is_flat().then(|| self.open_file(self.descriptors.get(CWD_FD)?)).flatten();
        self.descriptors.set_here(file.and_then(|file| Some((self.mounts.place(file.slot)?, file.node.id, file.node.hint))));
    }

    /// The context of a call by this thread; something must have been mounted.
    #[inline]
    pub fn cx<'a>(&'a self, thread: &'a ThreadState) -> Cx<'a> {
        // What an earlier call was told is not this one's.
        thread.thread.looked_up.set(None);
        self.cx_of_data(thread)
    }

    /// The same, of a call that moves an open file's contents and looks at no attributes.
    #[inline]
    pub(crate) fn cx_of_data<'a>(&'a self, thread: &'a ThreadState) -> Cx<'a> {
        if base::ids::is_unmapped() {
            // It may have got its maps by now, of which nobody is told.
            self.credentials_changed();
        }
        Cx { cred: self.credentials.effective(), umask: self.umask_known(), thread: &thread.thread }
    }
}

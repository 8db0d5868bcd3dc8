//! A namespace of its own, called by number: without a kernel beside it, or, for
//! backends whose open files are the kernel's, with one.

use pm::{Errno, call, sys};
use posix::{Bitmap, Door, Numbers, Outcome, Process, Room, ThreadState};
use std::ffi::CStr;
use vfs::Backend;

/// The door of a [`World`]: numbers from a bitmap, no kernel.
struct Alone(Bitmap);

impl Door for Alone {
    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(&self.0)
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

/// The door of a [`World`] beside the kernel: both have their descriptors in this
/// process's table, where ours are a placeholder's duplicates.
struct Beside;

/// The placeholder's number, out of the way of those that are compared.
const PLACEHOLDER: u32 = 901;

impl Door for Beside {
    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(self)
    }
}

impl Numbers for Beside {
    fn take(&self, lowest: u32, cloexec: bool) -> Result<u32, Errno> {
        let command = if cloexec { sys::abi::F_DUPFD_CLOEXEC } else { sys::abi::F_DUPFD };
        // SAFETY: numbers only.
        unsafe { call!(sys::abi::__NR_fcntl, PLACEHOLDER, command, lowest) }.map(|fd| fd as u32)
    }

    fn take_exact(&self, fd: u32, cloexec: bool) -> Result<(), Errno> {
        let flags = if cloexec { sys::abi::O_CLOEXEC } else { 0 };
        // SAFETY: numbers only.
        unsafe { call!(sys::abi::__NR_dup3, PLACEHOLDER, fd, flags) }.map(drop)
    }

    fn give_back(&self, fd: u32) {
        // SAFETY: a number that `take` gave, so nobody else's.
        let _ = unsafe { call!(sys::abi::__NR_close, fd) };
    }
}

/// What a call returns that is about a descriptor nobody has: the kernel
/// would fail it, in one way or another.
pub const NOBODYS: isize = -4001;

/// The text `/`, in a whole aligned block: paths are read so, and the address sanitizer watches.
static ROOT: u128 = b'/' as u128;

/// One process's view of a file system mounted at `/`.
pub struct World {
    /// The core.
    pub process: &'static Process,
    /// This thread's state.
    pub thread: Box<ThreadState>,
    /// Whether what is not ours is the kernel's.
    pub has_kernel: bool,
}

/// A thread's state with a room.
pub fn thread_state() -> Box<ThreadState> {
    Box::new(ThreadState::with_room(Box::leak(Box::new(Room::new()))))
}

impl World {
    /// Mounts `backend` at `/`. Descriptors 0 to 2 are taken, as in a program.
    ///
    /// # Panics
    /// If it can't be mounted.
    pub fn new(backend: &'static dyn Backend) -> World {
        let door: &'static Alone = Box::leak(Box::new(Alone(Bitmap::new())));
        for fd in 0..3 {
            let _ = door.0.take_exact(fd, false);
        }
        World::behind(door, backend)
    }

    /// Mounts `backend` at `/`, with the kernel beside it.
    ///
    /// # Panics
    /// If it can't be mounted.
    pub fn beside_kernel(backend: &'static dyn Backend) -> World {
        // SAFETY: a NUL-terminated name.
        let made = unsafe { call!(sys::abi::__NR_memfd_create, c"placeholder".as_ptr(), 0) }.expect("memfd");
        // SAFETY: numbers only; nobody has the second.
        unsafe { call!(sys::abi::__NR_dup3, made, PLACEHOLDER, sys::abi::O_CLOEXEC) }.expect("dup");
        // SAFETY: made above.
        unsafe { call!(sys::abi::__NR_close, made) }.expect("close");
        World::behind(&Beside, backend)
    }

    fn behind(door: &'static dyn Door, backend: &'static dyn Backend) -> World {
        let process: &'static Process = Box::leak(Box::new(Process::new(door)));
        let thread = thread_state();
        process.mount(&thread, b"/", backend).expect("mount at /");
        let world = World { process, thread, has_kernel: door.has_kernel() };
        assert_eq!(world.enter(), 0, "chdir /");
        world
    }

    /// Mounts `backend` at `point`, where a directory for it is made.
    ///
    /// # Panics
    /// If that can't be done.
    pub fn mount_inside(&self, point: &CStr, backend: &'static dyn Backend) {
        // Read in whole aligned blocks, as above.
        let mut text = [0u128; 16];
        // SAFETY: as many bytes as there are.
        let bytes = unsafe { core::slice::from_raw_parts_mut(text.as_mut_ptr().cast::<u8>(), size_of_val(&text)) };
        bytes[..point.count_bytes()].copy_from_slice(point.to_bytes());
        // SAFETY: a NUL-terminated text.
        let made = unsafe { self.serve(sys::abi::__NR_mkdir as usize, [text.as_ptr() as usize, 0o755, 0, 0, 0, 0]) };
        assert_eq!(made, 0, "mkdir");
        self.process.mount(&self.thread, point.to_bytes(), backend).expect("mount inside");
    }

    /// Makes the root the working directory. Where random calls have shut out an owner
    /// who is not root, he lets himself in again; others may go on shutting him out.
    fn enter(&self) -> isize {
        let root = (&raw const ROOT) as usize;
        // SAFETY: NUL-terminated texts.
        let call = |nr, arg| unsafe { self.serve(nr as usize, [root, arg, 0, 0, 0, 0]) };
        for _ in 0..1000 {
            let entered = call(pm::sys::abi::__NR_chdir, 0);
            if entered != -(libc::EACCES as isize) || call(pm::sys::abi::__NR_chmod, 0o755) != 0 {
                return entered;
            }
        }
        -(libc::EACCES as isize)
    }

    /// Makes a call; result as the kernel would give it.
    ///
    /// # Safety
    /// As for the system call.
    pub unsafe fn serve(&self, nr: usize, args: [usize; 6]) -> isize {
        // SAFETY: the caller's promise.
        match unsafe { self.process.handle(&self.thread, nr, args) } {
            Outcome::Done(result) => result,
            // SAFETY: the caller's promise.
            Outcome::Kernel if self.has_kernel => unsafe { sys::raw(nr, args) },
            // SAFETY: made by the process from what the caller gave.
            Outcome::KernelWith { nr, args } if self.has_kernel => unsafe { sys::raw(nr, args) },
            // Not a descriptor of ours, and there is nobody else's.
            Outcome::Kernel => NOBODYS,
            // A FIFO or device: the kernel would open it.
            Outcome::KernelWith { .. } => -(libc::ENXIO as isize),
        }
    }
}

//! A namespace of its own, without a kernel beside it, called by number.

use posix::{Bitmap, Door, Numbers, Outcome, Process, ThreadState};
use vfs::Backend;

/// The door of a [`World`]: numbers from a bitmap, no kernel.
struct Alone(Bitmap);

impl Door for Alone {
    fn numbers(&self) -> &dyn Numbers {
        &self.0
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

/// What a call returns that is about a descriptor nobody has: the kernel
/// would fail it, in one way or another.
pub const NOBODYS: isize = -4001;

/// One process's view of a file system mounted at `/`.
pub struct World {
    /// The core.
    pub process: &'static Process,
    /// This thread's state.
    pub thread: Box<ThreadState>,
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
        let process: &'static Process = Box::leak(Box::new(Process::new(door)));
        let thread = Box::<ThreadState>::default();
        process.mount(&thread, b"/", backend).expect("mount at /");
        let world = World { process, thread };
        assert_eq!(world.enter(), 0, "chdir /");
        world
    }

    /// Makes the root the working directory. Where random calls have shut out an owner
    /// who is not root, he lets himself in again; others may go on shutting him out.
    fn enter(&self) -> isize {
        let root = c"/".as_ptr() as usize;
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
            // Not a descriptor of ours, and there is nobody else's.
            Outcome::Kernel => NOBODYS,
            // A FIFO or device: the kernel would open it.
            Outcome::KernelWith { .. } => -(libc::ENXIO as isize),
        }
    }
}

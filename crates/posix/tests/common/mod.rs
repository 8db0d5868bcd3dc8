//! Two worlds with the same calls: a directory of the kernel's (tmpfs), and the
//! `mem` file system behind `Process::handle`.
#![allow(dead_code)]

use bypath_posix::{Bitmap, Door, Numbers, Outcome, Process, Room, ThreadState};
use pm::sys::{abi, raw};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};
use vfs::mem::Mem;

/// Numbers of ours far from the kernel's, so that the two never meet.
pub struct High(Bitmap);
pub const FIRST: u32 = 8000;

impl Numbers for High {
    fn take(&self, lowest: u32, cloexec: bool) -> Result<u32, pm::Errno> {
        self.0.take(lowest.max(FIRST), cloexec)
    }
    fn take_exact(&self, fd: u32, cloexec: bool) -> Result<(), pm::Errno> {
        self.0.take_exact(fd, cloexec)
    }
    fn give_back(&self, fd: u32) {
        self.0.give_back(fd)
    }
}

pub struct TestDoor {
    pub numbers: High,
}

impl Door for TestDoor {
    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(&self.numbers)
    }
}

/// Where calls go.
pub struct World {
    /// Absolute path of the directory under test.
    pub root: String,
    process: Option<&'static Process>,
    thread: Box<ThreadState>,
}

pub fn is_root() -> bool {
    // SAFETY: no arguments.
    (unsafe { raw(abi::__NR_geteuid as usize, [0; 6]) }) == 0
}

/// A `mem` file system whose root is the caller's, as a directory that it makes.
fn own(device: u64) -> &'static Mem {
    // SAFETY: no arguments.
    let id = |nr| unsafe { raw(nr as usize, [0; 6]) } as u32;
    Mem::leak(id(abi::__NR_geteuid), id(abi::__NR_getegid), 0o755, device)
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A thread's state with a room.
pub fn thread_state() -> Box<ThreadState> {
    Box::new(ThreadState::with_room(Box::leak(Box::new(Room::new()))))
}

impl World {
    /// A process with an empty `mem` file system at a fresh path.
    pub fn ours() -> World {
        let root = place("o");
        let door: &'static TestDoor = Box::leak(Box::new(TestDoor { numbers: High(Bitmap::new()) }));
        let process: &'static Process = Box::leak(Box::new(Process::new(door)));
        let thread = thread_state();
        // The device's number also names its FIFOs in the kernel.
        let device = (std::process::id() as u64) << 8 | NEXT.load(Ordering::Relaxed) as u64;
        process.mount(&thread, root.as_bytes(), own(device)).expect("mount");
        World { root, process: Some(process), thread }
    }

    /// A fresh tmpfs of the kernel's (or a directory in one, if we may not mount).
    pub fn kernel() -> World {
        let root = place("k");
        let (source, kind, options) = (c"none", c"tmpfs", c"mode=755");
        let target = std::ffi::CString::new(root.clone()).unwrap();
        // SAFETY: the texts are locals, alive over the calls.
        unsafe {
            raw(
                abi::__NR_mount as usize,
                [source.as_ptr() as usize, target.as_ptr() as usize, kind.as_ptr() as usize, 0, options.as_ptr() as usize, 0],
            )
        };
        World { root, process: None, thread: thread_state() }
    }

    pub fn process(&self) -> &'static Process {
        self.process.expect("ours")
    }

    /// Mounts another `mem` file system.
    pub fn mount_more(&self, point: &str) {
        self.process().mount(&self.thread, point.as_bytes(), own(0x6d02)).expect("mount");
    }

    pub fn is_ours(&self) -> bool {
        self.process.is_some()
    }

    /// Makes a call as a door would.
    pub fn call(&self, nr: u32, args: [usize; 6]) -> isize {
        let nr = nr as usize;
        // SAFETY: what the arguments point to is the test's, and outlives the call.
        let Some(process) = self.process else { return unsafe { raw(nr, args) } };
        // SAFETY: what the arguments point to is the test's, and outlives the call.
        let result = match unsafe { process.handle(&self.thread, nr, args) } {
            Outcome::Done(result) => return result,
            // SAFETY: what the arguments point to is the test's, and outlives the call.
            Outcome::Kernel => unsafe { raw(nr, args) },
            // SAFETY: what the arguments point to is the test's, and outlives the call.
            Outcome::KernelWith { nr, args } => unsafe { raw(nr, args) },
        };
        if result >= 0 {
            return result;
        }
        // SAFETY: what the arguments point to is the test's, and outlives the call.
        match unsafe { process.handle_after_failure(&self.thread, nr, args, -result as i32) } {
            Outcome::Done(result) => result,
            Outcome::Kernel => result,
            // SAFETY: what the arguments point to is the test's, and outlives the call.
            Outcome::KernelWith { nr, args } => unsafe { raw(nr, args) },
        }
    }

    /// Changes the file-system user and group of this thread.
    pub fn become_user(&self, uid: u32) {
        // SAFETY: numbers only.
        unsafe { raw(abi::__NR_setfsgid as usize, [uid as usize, 0, 0, 0, 0, 0]) };
        // SAFETY: numbers only.
        unsafe { raw(abi::__NR_setfsuid as usize, [uid as usize, 0, 0, 0, 0, 0]) };
        if let Some(process) = self.process {
            process.credentials_changed();
        }
    }

    /// A NUL-terminated path below the root.
    pub fn path(&self, relative: &str) -> Vec<u8> {
        let mut path = format!("{}/{relative}", self.root).into_bytes();
        path.push(0);
        path
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.become_user(0);
        if !self.is_ours() {
            let target = std::ffi::CString::new(self.root.clone()).unwrap();
            // SAFETY: the path is a local, alive over the call.
            unsafe { raw(abi::__NR_umount2 as usize, [target.as_ptr() as usize, 2, 0, 0, 0, 0]) };
        }
        let top = self.root.rsplit_once("/w/").unwrap().0.to_string();
        let _ = std::fs::remove_dir_all(top);
    }
}

fn place(which: &str) -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let top = format!("/dev/shm/bp{which}-{:07}-{number:03}", std::process::id());
    let root = format!("{top}/w/r");
    // A killed run's, whose process had this number: what is mounted there first.
    let mounted = std::ffi::CString::new(root.clone()).expect("no NUL");
    // SAFETY: the path is a local, alive over the call.
    unsafe { raw(abi::__NR_umount2 as usize, [mounted.as_ptr() as usize, 2, 0, 0, 0, 0]) };
    let _ = std::fs::remove_dir_all(&top);
    std::fs::create_dir_all(&root).expect("test directory");
    // Other users pass here, whatever the caller's umask is.
    for directory in [&top, &format!("{top}/w"), &root] {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).expect("mode");
    }
    root
}

/// xorshift*: small and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

//! FUSE file systems as libraries: a `struct fuse_operations` called in process.
//!
//! Direct-FUSE (§3): several user-level file systems in one program by path
//! prefix, each a library, with no kernel between. A [`Plugin`] is a
//! [`LowerFs`](session::LowerFs): operations get paths, as libfuse's high-level
//! interface has it; a node's path is put together from the session at each call.
//!
//! Invariants
//! - Each program has its own copy of the library's state, loaded at first use: not
//!   at start, when libc may not be ready. A forked child has its parent's.
//! - What the session shares between programs is never believed beyond a call, and
//!   the library's handles are kept here ([`handles`]), not there.
//! - While the library runs, the thread's own file calls are the kernel's ([`Aside`]).
//! - No lock of ours is held over a call of the library.
#![no_std]

#[allow(missing_docs)]
pub mod abi;
mod aside;
pub mod handles;
mod list;
mod lower;
mod operations;

use abi::{Config, Connection, Context, Entry, Operations};
pub use aside::{Aside, Here};
use base::Cx;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU32, Ordering::*};
use handles::Handles;
use pm::{Errno, file, host};

/// Longest text of a plugin: path and arguments, separated by commas.
pub const TEXT_MAX: usize = 2048;
/// Most arguments, the path among them.
const ARGS_MAX: usize = 64;
const RTLD_NOW: c_int = 2;

#[link(name = "c")]
unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const NEW: u32 = 0;
const READY: u32 = 1;
const FAILED: u32 = 2;
// Else the PID of who is loading; no program that we serve has PID 1 or 2.

/// What the library has told.
struct Loaded {
    operations: Operations,
    private_data: *mut c_void,
    config: Config,
}

/// A FUSE file system in a library.
pub struct Plugin {
    /// Path and arguments, each with its NUL, and the length of all.
    text: [u8; TEXT_MAX],
    text_len: usize,
    device: u64,
    read_only: bool,
    here: Here,
    phase: AtomicU32,
    loaded: UnsafeCell<MaybeUninit<Loaded>>,
    handles: Handles,
    /// How directories are listed: see `list.rs`.
    listing: AtomicU32,
}

// SAFETY: `loaded` is written once, by whoever holds the phase, before `READY`; its
// pointer is the library's, which says itself what threads may do.
unsafe impl Sync for Plugin {}
// SAFETY: as above.
unsafe impl Send for Plugin {}

impl Plugin {
    /// The library that `text` names, with its arguments behind commas. Nothing is
    /// loaded yet. `ENAMETOOLONG`, `EINVAL`.
    pub fn new(text: &[u8], device: u64, read_only: bool, here: Here) -> Result<Plugin, Errno> {
        if text.len() >= TEXT_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let words = text.iter().filter(|&&b| b == b',').count() + 1;
        if text.first() != Some(&b'/') || text.contains(&0) || words >= ARGS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut own = [0u8; TEXT_MAX];
        own.iter_mut().zip(text).for_each(|(own, &byte)| *own = if byte == b',' { 0 } else { byte });
        Ok(Plugin {
            text: own,
            text_len: text.len() + 1,
            device,
            read_only,
            here,
            phase: AtomicU32::new(NEW),
            loaded: UnsafeCell::new(MaybeUninit::uninit()),
            handles: Handles::new(),
            listing: AtomicU32::new(0),
        })
    }

    /// Loads the library and finds its entry, which is not called: whether it can be had.
    pub fn find_entry(&self) -> Option<Entry> {
        // SAFETY: a NUL-terminated path.
        let library = unsafe { dlopen(self.text.as_ptr().cast(), RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: a library's handle and a NUL-terminated name.
        let entry = unsafe { dlsym(library, c"bypath_plugin".as_ptr()) };
        // SAFETY: the library's own word that this name is a function of this type.
        (!entry.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, Entry>(entry) })
    }

    fn start(&self) -> Option<Loaded> {
        let entry = self.find_entry()?;
        let mut args = [null::<c_char>(); ARGS_MAX];
        let mut count = 0;
        for word in self.text[..self.text_len].split_inclusive(|&b| b == 0) {
            args[count] = word.as_ptr().cast();
            count += 1;
        }
        let mut private_data = null_mut();
        // SAFETY: `count` texts and a null behind them; they live as long as the mount.
        let operations = unsafe { entry(count as c_int, args.as_ptr(), &mut private_data) };
        // SAFETY: null or the table that the library keeps.
        let operations = *unsafe { operations.as_ref() }?;
        Some(Loaded { operations, private_data, config: Config::default() })
    }

    /// Calls `init` as libfuse does: what it returns is the private data from then on.
    fn init(&self, loaded: &mut Loaded, context: &mut Context) {
        let Some(init) = loaded.operations.init else { return };
        context.private_data = loaded.private_data;
        let mut connection = Connection { proto: [7, 38], max_write: 1 << 20, max_readahead: 1 << 17, ..Connection::default() };
        // SAFETY: both structures are the library's for this call.
        loaded.private_data = unsafe { init(&mut connection, &mut loaded.config) };
    }

    #[cold]
    fn load(&self) -> Result<(), Errno> {
        let own = host::own_pid_cached();
        loop {
            match self.phase.compare_exchange(NEW, own, Acquire, Acquire) {
                Ok(_) => break,
                Err(READY) => return Ok(()),
                Err(FAILED) => return Err(Errno::ENOTCONN),
                // Another thread is at it; in a forked child nobody is.
                Err(pid) if pid == own => file::give_way(),
                Err(pid) => {
                    let _ = self.phase.compare_exchange(pid, FAILED, AcqRel, Acquire);
                }
            }
        }
        let mut context = Context::nobody();
        let inside = (self.here)().enter(&mut context);
        let loaded = self.start().map(|mut loaded| {
            self.init(&mut loaded, &mut context);
            loaded
        });
        drop(inside);
        let Some(loaded) = loaded else {
            self.phase.store(FAILED, Release);
            return Err(Errno::ENOTCONN);
        };
        // SAFETY: nobody reads it before `READY`, and we alone have the phase.
        unsafe { (*self.loaded.get()).write(loaded) };
        self.phase.store(READY, Release);
        Ok(())
    }

    #[inline]
    fn loaded(&self) -> Result<&Loaded, Errno> {
        if self.phase.load(Acquire) != READY {
            self.load()?;
        }
        // SAFETY: written before `READY`, never changed again.
        Ok(unsafe { (*self.loaded.get()).assume_init_ref() })
    }

    /// Calls the library in the name of `cx`: `run` gets its operations.
    #[inline]
    fn with<T>(&self, cx: &Cx, run: impl FnOnce(&Operations) -> T) -> Result<T, Errno> {
        Ok(self.enter(self.loaded()?, cx, run))
    }

    #[inline]
    fn enter<T>(&self, loaded: &Loaded, cx: &Cx, run: impl FnOnce(&Operations) -> T) -> T {
        let mut context = Context {
            fuse: null_mut(),
            uid: cx.cred.uid,
            gid: cx.cred.gid,
            pid: host::own_pid_cached() as c_int,
            private_data: loaded.private_data,
            umask: u32::from(cx.umask),
        };
        let _inside = (self.here)().enter(&mut context);
        run(&loaded.operations)
    }

    /// The library's path.
    pub fn library(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
    }
}

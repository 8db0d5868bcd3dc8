//! Values of the environment as they were at the start, for programs that scrub theirs.

use crate::runtime::alloc;
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// Where the shared caches of images lie.
pub const SEGMENT_DIR: &[u8] = b"BYPATH_SEGMENT_DIR";
/// What the medium is taken to promise.
pub const DOMAIN: &[u8] = b"BYPATH_DOMAIN";
/// Which system calls are ours: `symbols` (default: by interposition), or `patched` (by syscall patching as well).
pub const WAYS: &[u8] = b"BYPATH_WAYS";
/// Names a table of system-call sites for a libc that none is shipped for.
pub const SITES: &[u8] = b"BYPATH_SITES";

/// A value, NUL-terminated, in our own memory; written once, before the namespace is up.
pub struct Value(AtomicPtr<u8>);

impl Value {
    const fn none() -> Self {
        Value(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The value; `None`: it was not set.
    pub fn get(&self) -> Option<&'static CStr> {
        let at = self.0.load(Acquire);
        // SAFETY: `set` has copied a NUL-terminated text there, which is never freed.
        (!at.is_null()).then(|| unsafe { CStr::from_ptr(at.cast()) })
    }

    /// Its bytes; none if it was not set.
    pub fn bytes(&self) -> &'static [u8] {
        self.get().map_or(b"", CStr::to_bytes)
    }

    /// Keeps a copy of a value.
    pub fn set(&self, value: Option<&CStr>) {
        let Some(value) = value else { return };
        let bytes = value.to_bytes_with_nul();
        let at = room_for_text(bytes.len());
        if !at.is_null() {
            // SAFETY: the block has that many bytes, and nobody else has it.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
            self.0.store(at, Release);
        }
    }
}

/// Our variables.
pub struct Saved {
    /// `LD_PRELOAD`.
    pub preload: Value,
    /// `BYPATH_MOUNTS`.
    pub mounts: Value,
    /// `BYPATH_SEGMENT_DIR`.
    pub segment_dir: Value,
    /// `BYPATH_DOMAIN`.
    pub domain: Value,
    /// `BYPATH_WAYS`.
    pub ways: Value,
    /// `BYPATH_SITES`.
    pub sites: Value,
    /// `BYPATH_SESSION`.
    pub session: Value,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Value,
}

/// See [`Saved`].
pub static SAVED: Saved = Saved {
    preload: Value::none(),
    mounts: Value::none(),
    segment_dir: Value::none(),
    domain: Value::none(),
    ways: Value::none(),
    sites: Value::none(),
    session: Value::none(),
    runtime_dir: Value::none(),
};

/// Where kernel objects for special files may be made.
pub fn private_directory() -> &'static [u8] {
    let directory = SAVED.runtime_dir.bytes();
    if directory.first() == Some(&b'/') && directory.len() <= 256 { directory } else { b"/tmp" }
}

/// Room for what [`Value::set`] keeps, usually enough: the first block of the allocator costs two calls and two pages.
struct Texts(UnsafeCell<[u8; 1024]>);
// SAFETY: each byte is written once, by whoever took it from `TEXTS_USED`, before a pointer to it is published.
unsafe impl Sync for Texts {}
static TEXTS: Texts = Texts(UnsafeCell::new([0; 1024]));
static TEXTS_USED: AtomicUsize = AtomicUsize::new(0);

/// `len` bytes for good; null if there are none.
fn room_for_text(len: usize) -> *mut u8 {
    let from = TEXTS_USED.fetch_add(len, Relaxed);
    match from.checked_add(len) {
        // SAFETY: inside the array.
        Some(end) if end <= size_of::<Texts>() => unsafe { TEXTS.0.get().cast::<u8>().add(from) },
        _ => alloc::alloc(len),
    }
}

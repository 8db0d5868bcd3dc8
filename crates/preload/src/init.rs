//! Start: read the environment, attach the images, take over what `exec` left.
//!
//! The constructor does it, or the first call of anybody, whichever comes
//! first. A call made by another thread or by ourselves while it is going on
//! goes straight to the kernel.

use crate::attach::{Wishes, attach, refuse};
use crate::contents::Contents;
use crate::door::PROCESS;
use crate::tls::{self, Tls};
use crate::{alloc, foreign, libc, libraries, patch, placeholders, refused, thread};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use pm::sys::abi::*;
use posix::environment::{self, MountSpec};

const NEW: u32 = 0;
const BUSY: u32 = 1;
const ACTIVE: u32 = 2;
const IDLE: u32 = 3;

static PHASE: AtomicU32 = AtomicU32::new(NEW);

/// Values of our variables as they were at the start, for programs that scrub
/// their environment. Null: not set. Written once before `ACTIVE`, in our own memory.
pub struct Saved {
    /// `LD_PRELOAD`.
    pub preload: AtomicPtr<u8>,
    /// `BYPATH_MOUNTS`.
    pub mounts: AtomicPtr<u8>,
    /// `BYPATH_SEGMENT_DIR`.
    pub segment_dir: AtomicPtr<u8>,
    /// `BYPATH_DOMAIN`.
    pub domain: AtomicPtr<u8>,
    /// `BYPATH_WAYS`.
    pub ways: AtomicPtr<u8>,
    /// `BYPATH_SITES`.
    pub sites: AtomicPtr<u8>,
    /// `BYPATH_SESSION`.
    pub session: AtomicPtr<u8>,
}

/// See [`Saved`].
pub static SAVED: Saved = Saved {
    preload: AtomicPtr::new(core::ptr::null_mut()),
    mounts: AtomicPtr::new(core::ptr::null_mut()),
    segment_dir: AtomicPtr::new(core::ptr::null_mut()),
    domain: AtomicPtr::new(core::ptr::null_mut()),
    ways: AtomicPtr::new(core::ptr::null_mut()),
    sites: AtomicPtr::new(core::ptr::null_mut()),
    session: AtomicPtr::new(core::ptr::null_mut()),
};
/// Names of two of them.
pub const SEGMENT_DIR: &[u8] = b"BYPATH_SEGMENT_DIR";
/// See [`SEGMENT_DIR`].
pub const DOMAIN: &[u8] = b"BYPATH_DOMAIN";

struct Directory(UnsafeCell<([u8; 256], usize)>);
// SAFETY: written once, before `ACTIVE`.
unsafe impl Sync for Directory {}
static PRIVATE: Directory = Directory(UnsafeCell::new(([0; 256], 0)));

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    // Without a look first, which would bring a page that the first store must bring again.
    start(tls::get());
    // Here and not at the first call, which may come from anywhere: this thread is alone now.
    let ways = SAVED.ways.load(Acquire);
    // SAFETY: a copy of ours, with its NUL.
    if !ways.is_null() && unsafe { CStr::from_ptr(ways.cast()) } == c"patched" {
        let sites = SAVED.sites.load(Acquire);
        // SAFETY: as above.
        patch::start((!sites.is_null()).then(|| unsafe { CStr::from_ptr(sites.cast()) }));
    }
}

/// Whether calls of this thread go through `posix`; starts up if nobody has.
#[inline(always)]
pub fn is_active(tls: &Tls) -> bool {
    match PHASE.load(Acquire) {
        ACTIVE => tls.aside.raw.get() == 0,
        NEW => start(tls) && tls.aside.raw.get() == 0,
        _ => false,
    }
}

/// As [`is_active`], where a child by `vfork` shall have memory of its own first.
pub fn serves(tls: &Tls) -> bool {
    is_active(tls) || crate::guest::settle(tls).is_ok_and(|settled| settled)
}

/// Whether anything is mounted (after the start).
pub fn is_mounted() -> bool {
    PHASE.load(Acquire) == ACTIVE
}

/// Where kernel objects for special files may be made.
pub fn private_directory() -> &'static [u8] {
    // SAFETY: only read after start.
    let (text, len) = unsafe { &*PRIVATE.0.get() };
    if *len == 0 { b"/tmp" } else { &text[..*len] }
}

// Not cold, though it comes once: it lies beside what it calls then.
#[inline(never)]
fn start(tls: &Tls) -> bool {
    if PHASE.compare_exchange(NEW, BUSY, AcqRel, Acquire).is_err() {
        return PHASE.load(Acquire) == ACTIVE;
    }
    tls::enter(tls);
    // SAFETY: libc's array; programs change it themselves only later.
    unsafe { libraries::inherit(libc::environ) };
    let active = with_environment(|get| mount_all(tls, get));
    // SAFETY: libc's array; programs change it themselves only later.
    unsafe {
        libc::remove_variable(libc::environ, environment::STATE);
        libc::remove_variable(libc::environ, environment::PASSIVE);
    }
    PHASE.store(if active { ACTIVE } else { IDLE }, Release);
    tls::leave(tls);
    if active {
        crate::started();
    }
    active
}

/// Calls `run` with a look-up for environment variables (values end with NUL).
fn with_environment(run: impl FnOnce(&dyn Fn(&[u8]) -> Option<&'static CStr>) -> bool) -> bool {
    // SAFETY: a plain read of libc's pointer.
    let environ = unsafe { libc::environ };
    if !environ.is_null() {
        // SAFETY: `environ` is an array of strings that ends with null.
        return run(&|name| unsafe { libc::get_variable(environ, name) });
    }
    // Before libc is ready: the kernel's copy.
    let Some(text) = Contents::of(c"/proc/self/environ").map(Contents::leak) else { return false };
    run(&|name| {
        text.split_inclusive(|&b| b == 0).find_map(|entry| {
            let value = entry.strip_prefix(name)?.strip_prefix(b"=")?;
            CStr::from_bytes_with_nul(value).ok()
        })
    })
}

/// Room for what [`save`] keeps, usually enough: the first block of the allocator costs two calls and two pages.
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

/// Copies a value into our own memory, with its NUL.
fn save(slot: &AtomicPtr<u8>, value: Option<&CStr>) {
    let Some(value) = value else { return };
    let bytes = value.to_bytes_with_nul();
    let at = room_for_text(bytes.len());
    if !at.is_null() {
        // SAFETY: the block has that many bytes.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        slot.store(at, Release);
    }
}

fn mount_all(tls: &Tls, get: &dyn Fn(&[u8]) -> Option<&'static CStr>) -> bool {
    if get(environment::PASSIVE).is_some() {
        return false;
    }
    let state = thread::state(tls);
    let mounts = get(environment::MOUNTS);
    let given = |name| get(name).filter(|value| !value.is_empty());
    let (segment_dir, domain) = (given(SEGMENT_DIR), given(DOMAIN));
    let wishes = Wishes { segment_dir: segment_dir.map(CStr::to_bytes), domain: domain.map(CStr::to_bytes) };
    if let Some(text) = given(environment::IDS) {
        PROCESS.take_ids_over(text.to_bytes());
    }
    let mut any = crate::mem_test::mount(state);
    // Before the mounts: what can't be served is judged by it.
    save(&SAVED.session, given(environment::SESSION));
    if let Some(value) = mounts {
        for (slot, spec) in environment::parse(value.to_bytes()).take(base::MOUNTS_MAX).enumerate() {
            any |= mount(state, slot, &spec, &wishes);
        }
    }
    if !any {
        return false;
    }
    save(&SAVED.segment_dir, segment_dir);
    save(&SAVED.domain, domain);
    save(&SAVED.ways, given(patch::WAYS));
    save(&SAVED.sites, given(patch::SITES));
    foreign::learn(PROCESS.mounts.iter().map(|(_, mount)| mount.prefix()));
    save(&SAVED.mounts, mounts);
    save(&SAVED.preload, get(b"LD_PRELOAD"));
    if let Some(directory) = get(b"XDG_RUNTIME_DIR") {
        let bytes = directory.to_bytes();
        // SAFETY: written before anybody reads it.
        let (text, len) = unsafe { &mut *PRIVATE.0.get() };
        if bytes.first() == Some(&b'/') && bytes.len() <= text.len() {
            text[..bytes.len()].copy_from_slice(bytes);
            *len = bytes.len();
        }
    }
    if let Some(text) = get(environment::STATE) {
        claim(state, text.to_bytes());
    }
    true
}

/// Mounts one file system, or what stands in its place if it can't be served; whether there is any.
fn mount(state: &posix::ThreadState, slot: usize, spec: &MountSpec, wishes: &Wishes) -> bool {
    let mut image = [0u8; 4096];
    let mut point = [0u8; 1024];
    let Some(image_len) = environment::unescape(spec.image, &mut image[..4095]) else { return false };
    let Some(point_len) = environment::unescape(spec.point, &mut point[..1023]) else { return false };
    // One more byte each: the NUL.
    let (image, point) = (&image[..image_len + 1], &point[..point_len + 1]);
    let made = attach(state, image, slot, spec.options, wishes);
    let backend = made.map_or_else(|why| refused::instead(image, point, slot, spec.options, &why), Some);
    let mounted = backend.map(|backend| PROCESS.mount(state, &point[..point_len], backend));
    match mounted {
        Some(Ok(slot)) => {
            if environment::option(spec.options, b"same").is_some() {
                PROCESS.set_shown(slot);
            }
            return true;
        }
        // Inside one that is refused everything is.
        Some(Err(errno)) if !refused::holds(&point[..point_len]) => refuse(point, errno),
        _ => {}
    }
    refused::keep_slot(state, slot);
    false
}

/// Takes over the descriptors that the program before us left under the state
/// text. Without them, or in another directory, a program would read and write
/// the wrong files: it does not start then.
fn claim(state: &posix::ThreadState, text: &[u8]) {
    if let Err(errno) = PROCESS.exec_claim(state, text) {
        crate::complain!("what the program before exec had open is lost: {errno}; this program can't go on");
        crate::panic::abort();
    }
    for (fd, _) in PROCESS.descriptors.range(0, posix::FD_MAX) {
        if !placeholders::adopt(fd) {
            // Somebody between closed it or put something else there.
            // SAFETY: no pointers.
            let _ = unsafe { PROCESS.handle(state, __NR_close as usize, [fd as usize, 0, 0, 0, 0, 0]) };
        }
    }
}

//! Memory for rare allocations: thread states, directory streams, arguments of
//! exec. Not the program's `malloc`, which may be replaced, locked, or gone.
//!
//! One range of address space is reserved at first use and made accessible in
//! steps; size classes are powers of two with free lists; every block has a
//! 16-byte header that holds its class. Larger than the largest class: a mapping
//! of its own. All under one spin lock that `fork` takes too.
//!
//! ```text
//! [ header: class or mapping length | user bytes … ]   16-byte aligned
//! ```

use crate::runtime::tls::Tls;
use crate::runtime::{operation, tls};
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use pm::sys::abi;

const RESERVE_BYTES: usize = 256 << 20;
const STEP_BYTES: usize = 256 << 10;
const LAST_BYTES: usize = 512 << 10;
const HEADER_BYTES: usize = 16;
const CLASS_MIN_BITS: usize = 5;
const CLASS_MAX_BITS: usize = 17;
const CLASSES: usize = CLASS_MAX_BITS - CLASS_MIN_BITS + 1;

static LOCK: AtomicU32 = AtomicU32::new(0);
/// Start of the reserved range, 0 before first use.
static START: AtomicUsize = AtomicUsize::new(0);
/// Its length, bytes.
static LEN: AtomicUsize = AtomicUsize::new(0);
/// First byte not yet handed out.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// First byte not yet accessible.
static OPEN_END: AtomicUsize = AtomicUsize::new(0);
static FREE: [AtomicUsize; CLASSES] = [const { AtomicUsize::new(0) }; CLASSES];

#[repr(C)]
struct Header {
    /// Class, or `usize::MAX` for a mapping of its own.
    class: usize,
    /// Whole length in bytes, with the header.
    len: usize,
}

/// Takes the lock; while it is held the thread counts as inside an operation,
/// so no signal handler can come back here.
pub fn lock() {
    let tls = tls::get();
    operation::enter(tls);
    let holder = holder(tls);
    while LOCK.compare_exchange_weak(0, holder, Acquire, Relaxed).is_err() {
        core::hint::spin_loop();
    }
}

/// What the lock says of who has it: 1, or which child by `vfork` on this memory.
fn holder(tls: &Tls) -> u32 {
    // Blocks are aligned to 16, and lie within 4 GiB of one another.
    tls.vfork_child.get() as usize as u32 | 1
}

/// The child by `vfork` at `at` is gone: if it had the lock, which it took in the middle of a step, it is given back.
pub fn child_gone(at: *mut u8) {
    let _ = LOCK.compare_exchange(at as usize as u32 | 1, 0, AcqRel, Relaxed);
}

/// Gives the lock back.
pub fn unlock() {
    LOCK.store(0, Release);
    operation::leave(tls::get());
}

/// In a forked child: whoever held the lock is gone. Every step of `take` and
/// `free` leaves the lists whole, so at most one block is lost.
pub fn after_fork() {
    LOCK.store(0, Release);
}

/// Whole pages of their own, zeroed and untouched; for [`free`]. Null when there is no memory.
pub fn alloc_pages(bytes: usize) -> *mut u8 {
    match bytes.checked_add(HEADER_BYTES) {
        Some(need) => alloc_mapping(need),
        None => core::ptr::null_mut(),
    }
}

/// Room for what lives as long as the process; `None` if there is no memory.
pub fn room_for<T>() -> Option<&'static mut MaybeUninit<T>> {
    let room = alloc_pages(size_of::<T>().checked_add(align_of::<T>())?);
    if room.is_null() {
        return None;
    }
    // The block starts behind a header.
    let place = room.wrapping_add(room.align_offset(align_of::<T>())).cast::<MaybeUninit<T>>();
    // SAFETY: inside the block, which has as much more as it takes to align it; nobody else has it, and it is
    // never given back.
    Some(unsafe { &mut *place })
}

fn map(len: usize, protection: u32) -> Option<usize> {
    let flags = abi::MAP_PRIVATE | abi::MAP_ANONYMOUS | abi::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    unsafe { pm::call!(abi::__NR_mmap, 0, len, protection, flags, usize::MAX, 0) }.ok()
}

/// `bytes` bytes, 16-byte aligned, contents undefined; null when there is no memory.
pub fn alloc(bytes: usize) -> *mut u8 {
    let Some(need) = bytes.checked_add(HEADER_BYTES) else { return core::ptr::null_mut() };
    if need > 1 << CLASS_MAX_BITS {
        return alloc_mapping(need);
    }
    let bits = (usize::BITS - (need - 1).leading_zeros()) as usize;
    let class = bits.max(CLASS_MIN_BITS) - CLASS_MIN_BITS;
    lock();
    let at = take(class);
    unlock();
    match at {
        // SAFETY: `at` is an accessible block of this class that nobody else has.
        Some(at) => unsafe { finish(at, Header { class, len: 1 << (class + CLASS_MIN_BITS) }) },
        None => alloc_mapping(need),
    }
}

/// As [`alloc`], zeroed.
pub fn alloc_zeroed(bytes: usize) -> *mut u8 {
    let at = alloc(bytes);
    if !at.is_null() {
        // SAFETY: the block has at least `bytes` bytes.
        unsafe { core::ptr::write_bytes(at, 0, bytes) };
    }
    at
}

/// Gives a block of [`alloc`] back; null is allowed.
///
/// # Safety
/// `at` came from `alloc` and is not used any more.
pub unsafe fn free(at: *mut u8) {
    if at.is_null() {
        return;
    }
    let start = at as usize - HEADER_BYTES;
    // SAFETY: every block has its header in front.
    let Header { class, len } = unsafe { core::ptr::read(start as *const Header) };
    if class == usize::MAX {
        // SAFETY: the mapping was made by `alloc_mapping` for this block alone.
        let _ = unsafe { pm::call!(abi::__NR_munmap, start, len) };
        return;
    }
    lock();
    let next = FREE[class].load(Relaxed);
    // SAFETY: the block is ours again; its first word links the free list.
    unsafe { *(start as *mut usize) = next };
    FREE[class].store(start, Relaxed);
    unlock();
}

/// Writes the header and returns the user's part.
///
/// # Safety
/// `start` is the start of an accessible block.
unsafe fn finish(start: usize, header: Header) -> *mut u8 {
    // SAFETY: by contract.
    unsafe { core::ptr::write(start as *mut Header, header) };
    (start + HEADER_BYTES) as *mut u8
}

fn alloc_mapping(need: usize) -> *mut u8 {
    let len = (need + 4095) & !4095;
    match map(len, abi::PROT_READ | abi::PROT_WRITE) {
        // SAFETY: a fresh mapping.
        Some(at) => unsafe { finish(at, Header { class: usize::MAX, len }) },
        None => core::ptr::null_mut(),
    }
}

/// A block of `class`: from the free list or from the range. The lock is held.
fn take(class: usize) -> Option<usize> {
    let head = FREE[class].load(Relaxed);
    if head != 0 {
        // SAFETY: blocks on a free list are accessible and link by their first word.
        FREE[class].store(unsafe { *(head as *const usize) }, Relaxed);
        return Some(head);
    }
    if START.load(Relaxed) == 0 {
        reserve()?;
    }
    let size = 1usize << (class + CLASS_MIN_BITS);
    let at = NEXT.load(Relaxed);
    let end = at + size;
    if end > START.load(Relaxed) + LEN.load(Relaxed) {
        return None;
    }
    if end > OPEN_END.load(Relaxed) {
        let from = OPEN_END.load(Relaxed);
        let step = (end - from).next_multiple_of(STEP_BYTES);
        // SAFETY: inside our own reserved range.
        unsafe { pm::call!(abi::__NR_mprotect, from, step, abi::PROT_READ | abi::PROT_WRITE) }.ok()?;
        OPEN_END.store(from + step, Relaxed);
    }
    NEXT.store(end, Relaxed);
    Some(at)
}

/// Reserves the range; less of it where the address space is limited.
fn reserve() -> Option<()> {
    let mut len = RESERVE_BYTES;
    loop {
        if let Some(at) = map(len, abi::PROT_NONE) {
            NEXT.store(at, Relaxed);
            OPEN_END.store(at, Relaxed);
            LEN.store(len, Relaxed);
            START.store(at, Relaxed);
            return Some(());
        }
        len /= 4;
        if len < STEP_BYTES {
            break;
        }
    }
    // Once, as `START` stays set.
    let at = LAST.0.get() as usize;
    NEXT.store(at, Relaxed);
    OPEN_END.store(at + LAST_BYTES, Relaxed);
    LEN.store(LAST_BYTES, Relaxed);
    START.store(at, Relaxed);
    Some(())
}

/// What is there where the address space is limited to less than the process has already: enough to execute a program.
#[repr(align(16))]
struct Last(UnsafeCell<[u8; LAST_BYTES]>);
// SAFETY: blocks of it are handed out under the lock, each to one.
unsafe impl Sync for Last {}
static LAST: Last = Last(UnsafeCell::new([0; LAST_BYTES]));

// For features of the layers below that allocate (the plain model, the checker); what
// a program runs never does.
struct Own;
#[global_allocator]
static GLOBAL: Own = Own;

// SAFETY: blocks are 16-byte aligned, distinct, and live until freed; larger
// alignments get room to shift and keep the start in front.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            return alloc(layout.size());
        }
        let start = alloc(layout.size() + layout.align() + 8);
        if start.is_null() {
            return start;
        }
        let at = (start as usize + 8).next_multiple_of(layout.align());
        // SAFETY: at least 8 bytes lie between the block's start and `at`.
        unsafe { *((at - 8) as *mut usize) = start as usize };
        at as *mut u8
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let start = if layout.align() <= 16 {
            at
        } else {
            // SAFETY: written by `alloc`.
            unsafe { *((at as usize - 8) as *const usize) as *mut u8 }
        };
        // SAFETY: came from our allocator.
        unsafe { free(start) };
    }
}

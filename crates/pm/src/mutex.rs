//! Robust mutexes in shared memory: held for a thread's life, they prove its death.
//!
//! glibc's process-shared robust mutexes: the kernel marks one when its owner
//! dies, whatever else happened (15 ns to lock and unlock; across PID
//! namespaces; after exec). They lie in the volatile part of the image.

use crate::Region;
use crate::sys::abi;
use core::cell::UnsafeCell;

/// Room for a `pthread_mutex_t`, one line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RobustMutex(UnsafeCell<[u64; 8]>);

/// Outcome of an attempt to take a mutex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// It was free; this thread holds it now.
    Taken,
    /// Its holder died; this thread holds it now and must clean up.
    Inherited,
    /// A living thread holds it (perhaps this one).
    Busy,
    /// It is not a usable mutex (never initialised, or damaged).
    Broken,
}

unsafe extern "C" {
    fn pthread_mutex_init(mutex: *mut u64, attr: *const u64) -> i32;
    fn pthread_mutex_trylock(mutex: *mut u64) -> i32;
    fn pthread_mutex_clocklock(mutex: *mut u64, clock: i32, until: *const abi::__kernel_timespec) -> i32;
    fn pthread_mutex_unlock(mutex: *mut u64) -> i32;
    fn pthread_mutex_consistent(mutex: *mut u64) -> i32;
    fn pthread_mutexattr_init(attr: *mut u64) -> i32;
    fn pthread_mutexattr_setpshared(attr: *mut u64, shared: i32) -> i32;
    fn pthread_mutexattr_setrobust(attr: *mut u64, robust: i32) -> i32;
}

/// Where a `pthread_mutex_t` of glibc says what it is (64-bit machines), and what
/// ours are: `PTHREAD_MUTEX_ROBUST_NORMAL_NP` with `PTHREAD_MUTEX_PSHARED_BIT`.
const KIND_AT: usize = 16;
const KIND: u32 = 0x10 | 0x80;

/// In its first word: the thread that holds it, and that it has died.
const HOLDER: u32 = 0x3fff_ffff;
const DEAD: u32 = 1 << 30;

/// Whether the bytes of a mutex say that a thread holds it that has not died, as its own kernel knows. For those of
/// another kernel, which must not be touched.
pub fn says_held(line: &[u8; 64]) -> bool {
    let word = |at: usize| u32::from_ne_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
    word(KIND_AT) == KIND && word(0) & HOLDER != 0 && word(0) & DEAD == 0
}

const EBUSY: i32 = 16;
const ETIMEDOUT: i32 = 110;
const EOWNERDEAD: i32 = 130;

impl RobustMutex {
    /// The mutex at `offset` of a region; `None` if that is outside or unaligned.
    pub fn at(region: &Region, offset: u64) -> Option<&RobustMutex> {
        if !offset.is_multiple_of(64) || !region.holds(offset, 64) {
            return None;
        }
        // SAFETY: in bounds and aligned; the mutex is only touched by the
        // pthread functions, which are made for shared memory.
        Some(unsafe { &*region.base().add(offset as usize).cast::<RobustMutex>() })
    }

    /// Makes it a free mutex. The caller must know that nobody uses it.
    pub fn init(&self) {
        let mut attr = [0u64; 4];
        // SAFETY: `attr` is larger than any pthread_mutexattr_t (4 bytes); the
        // mutex has 64 bytes, more than pthread_mutex_t (40).
        unsafe {
            pthread_mutexattr_init(attr.as_mut_ptr());
            pthread_mutexattr_setpshared(attr.as_mut_ptr(), 1);
            pthread_mutexattr_setrobust(attr.as_mut_ptr(), 1);
            *self.0.get() = [0; 8];
            pthread_mutex_init(self.0.get().cast(), attr.as_ptr());
        }
    }

    /// Tries to take it, without waiting.
    pub fn try_take(&self) -> Attempt {
        if !self.is_of_our_kind() {
            return Attempt::Broken;
        }
        // SAFETY: the memory holds a pthread mutex or something the function
        // refuses with an error; it stays mapped.
        let result = unsafe { pthread_mutex_trylock(self.0.get().cast()) };
        self.outcome(result)
    }

    /// Takes it, asleep while another holds it, for at most `timeout_ns`:
    /// [`Attempt::Busy`] after that.
    pub fn take_within(&self, timeout_ns: i64) -> Attempt {
        if !self.is_of_our_kind() {
            return Attempt::Broken;
        }
        let until = crate::clock::monotonic().saturating_add(timeout_ns);
        let until = abi::__kernel_timespec { tv_sec: until / 1_000_000_000, tv_nsec: until % 1_000_000_000 };
        // SAFETY: as for `try_take`; the time is valid for the call.
        let result = unsafe { pthread_mutex_clocklock(self.0.get().cast(), abi::CLOCK_MONOTONIC as i32, &raw const until) };
        self.outcome(result)
    }

    /// Whether it is robust, shared and nothing else. The others that libc knows
    /// change priorities, or end the program where they find what they don't expect;
    /// a damaged image must not have them.
    fn is_of_our_kind(&self) -> bool {
        // SAFETY: in bounds; read once, as a word that others may be writing.
        let kind = unsafe { self.0.get().cast::<u32>().byte_add(KIND_AT).read_volatile() };
        // Images in memory (crash explorer) hold zeros there: plain mutexes.
        kind == KIND || cfg!(feature = "sim") && kind == 0
    }

    fn outcome(&self, result: i32) -> Attempt {
        match result {
            0 => Attempt::Taken,
            EBUSY | ETIMEDOUT => Attempt::Busy,
            EOWNERDEAD => {
                // SAFETY: we hold it now; it is made usable again at once, and
                // what it protects is cleaned up by the caller.
                unsafe { pthread_mutex_consistent(self.0.get().cast()) };
                Attempt::Inherited
            }
            _ => Attempt::Broken,
        }
    }

    /// Gives it back. Only by the thread that took it.
    pub fn give_back(&self) {
        // SAFETY: as for `try_take`; by another thread the call fails and changes nothing.
        unsafe { pthread_mutex_unlock(self.0.get().cast()) };
    }
}

/// Bytes of the kernel's `struct robust_list_head`.
const ROBUST_HEAD_BYTES: usize = 24;

/// Address of this thread's robust list, as libc told the kernel; 0 if it has none.
pub fn robust_list() -> usize {
    let (mut head, mut len) = (0usize, 0usize);
    // SAFETY: both results are words of ours; PID 0 means this thread.
    let _ = unsafe { crate::call!(crate::sys::abi::__NR_get_robust_list, 0, &raw mut head, &raw mut len) };
    head
}

/// Number of this thread.
pub fn thread_number() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { crate::call!(crate::sys::abi::__NR_gettid) }.unwrap_or(0) as u32
}

/// Where glibc keeps a thread's number, before the head of its robust list: the number, four
/// bytes unused, the way back.
const NUMBER_BEFORE_HEAD: usize = 16;

/// In a child that was forked behind libc's back (a bare `clone`): starts an
/// empty robust list at `head`, its parent's, and has libc know the child's number: mutexes are
/// taken under it, and one under that of the `parent` thread would outlive the child.
/// Does nothing where libc has done so.
pub fn renew_robust_list(head: usize, parent: u32) {
    if head == 0 || robust_list() != 0 {
        return;
    }
    let number = (head - NUMBER_BEFORE_HEAD) as *mut u32;
    // SAFETY: before the head lies more of what libc keeps of this thread, which has no other thread beside it.
    if unsafe { number.read() } == parent {
        // SAFETY: as above; it is what libc writes there in a child of its own.
        unsafe { number.write(thread_number()) };
    }
    // SAFETY: `head` is the head of this thread's list, at the same address as
    // in the parent; an empty list points to its own head, and libc keeps the
    // word before it as the way back (`robust_prev`), which an insertion overwrites.
    unsafe { (head as *mut usize).write(head) };
    // SAFETY: `list_op_pending`, the third word of the same structure.
    unsafe { (head as *mut usize).add(2).write(0) };
    // SAFETY: the head outlives the thread.
    let _ = unsafe { crate::call!(crate::sys::abi::__NR_set_robust_list, head, ROBUST_HEAD_BYTES) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever stands where a mutex should be, none is taken but one of our
    /// own kind. Method: change what it says of itself, bit by bit.
    #[test]
    fn refuses_other_kinds() {
        let mutex = RobustMutex(UnsafeCell::new([0; 8]));
        // The memory images of the crash explorer hold mutexes that nobody made.
        let never_made = if cfg!(feature = "sim") { Attempt::Taken } else { Attempt::Broken };
        assert_eq!(mutex.try_take(), never_made, "never made");
        if never_made == Attempt::Taken {
            mutex.give_back();
        }
        mutex.init();
        assert_eq!(mutex.try_take(), Attempt::Taken);
        mutex.give_back();
        for bit in 0..32 {
            // SAFETY: nobody else has the mutex.
            unsafe { (*mutex.0.get())[KIND_AT / 8] ^= 1 << bit };
            assert_eq!(mutex.try_take(), Attempt::Broken, "bit {bit}");
            // SAFETY: as above.
            unsafe { (*mutex.0.get())[KIND_AT / 8] ^= 1 << bit };
        }
        assert_eq!(mutex.try_take(), Attempt::Taken);
        // SAFETY: nobody else has the mutex.
        let bytes = || unsafe { mutex.0.get().cast::<[u8; 64]>().read_volatile() };
        assert!(says_held(&bytes()));
        mutex.give_back();
        assert!(!says_held(&bytes()) && !says_held(&[0; 64]) && !says_held(&[0xff; 64]));
    }
}

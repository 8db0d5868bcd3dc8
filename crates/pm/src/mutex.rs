//! Robust mutexes in shared memory: held for a thread's life, they prove its death.
//!
//! glibc's process-shared robust mutexes: the kernel marks one when its owner
//! dies, whatever else happened (15 ns to lock and unlock; across
//! PID namespaces; after exec). They lie in the volatile part of the image.
//!
//! The kernel finds what a dead thread held by a list in that thread's memory. Where that list was overwritten or
//! replaced, the mutex stays held: so its taker notes beside it who it is, and whoever finds it held may prove the
//! death ([`crate::life`]) and do what the kernel would have done.

use crate::Region;
use crate::libc::Own;
use crate::life::{self, Look, Who};
use crate::sys::abi;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Room for a `pthread_mutex_t`, and for who holds it; one line.
///
/// ```text
/// 0   pthread_mutex_t      its first word: WAITERS, OWNER_DIED | thread
/// 40  PID 32 | thread 32   who has taken it and not given it back
/// 48  PID namespace
/// 56  when it lived, nanoseconds since boot
/// ```
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

type Init = unsafe extern "C" fn(mutex: *mut u64, attr: *const u64) -> i32;
type OnMutex = unsafe extern "C" fn(mutex: *mut u64) -> i32;

static INIT: Own<Init> = Own::new(c"pthread_mutex_init", pthread_mutex_init);
static TRYLOCK: Own<OnMutex> = Own::new(c"pthread_mutex_trylock", pthread_mutex_trylock);
static UNLOCK: Own<OnMutex> = Own::new(c"pthread_mutex_unlock", pthread_mutex_unlock);

unsafe extern "C" {
    fn pthread_mutex_init(mutex: *mut u64, attr: *const u64) -> i32;
    fn pthread_mutex_trylock(mutex: *mut u64) -> i32;
    fn pthread_mutex_unlock(mutex: *mut u64) -> i32;
    fn pthread_mutex_consistent(mutex: *mut u64) -> i32;
    fn pthread_mutexattr_init(attr: *mut u64) -> i32;
    fn pthread_mutexattr_setpshared(attr: *mut u64, shared: i32) -> i32;
    fn pthread_mutexattr_setrobust(attr: *mut u64, robust: i32) -> i32;
    /// `pthread_mutex_clocklock`, which glibc has from 2.30 on.
    static bypath_mutex_clocklock: Option<unsafe extern "C" fn(*mut u64, i32, *const abi::__kernel_timespec) -> i32>;
}

// A weak reference: null where libc has no such function, so that packages load beside an older one.
core::arch::global_asm!(
    ".weak pthread_mutex_clocklock",
    ".pushsection .data.rel.ro.bypath_mutex,\"aw\"",
    ".p2align 3",
    ".globl bypath_mutex_clocklock",
    ".hidden bypath_mutex_clocklock",
    ".type bypath_mutex_clocklock,%object",
    ".size bypath_mutex_clocklock,8",
    "bypath_mutex_clocklock:",
    ".8byte pthread_mutex_clocklock",
    ".popsection",
);

/// Where a `pthread_mutex_t` of glibc says what it is (64-bit machines), and what
/// ours are: `PTHREAD_MUTEX_ROBUST_NORMAL_NP` with `PTHREAD_MUTEX_PSHARED_BIT`.
const KIND_AT: usize = 16;
const KIND: u32 = 0x10 | 0x80;

/// Where it is noted who holds it: no libc has anything of a mutex from there on.
const NOTED_AT: usize = 40;
/// Bits of its first word, as the kernel knows it (`FUTEX_WAITERS`, `FUTEX_OWNER_DIED`, `FUTEX_TID_MASK`).
const WAITERS: u32 = 1 << 31;
const OWNER_DIED: u32 = 1 << 30;
const THREAD: u32 = OWNER_DIED - 1;
/// How long somebody who has just taken a mutex may need to note it, nanoseconds.
const NOTING: i64 = 1_000_000;
/// Between two attempts where libc cannot wait for a mutex by the clock we use, nanoseconds.
const RETRY: i64 = 200_000;

/// Whose death a mutex proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// That of the thread which took it.
    Thread,
    /// That of its process: the thread may have ended before.
    Process,
}

/// Whether the bytes of a mutex say that a thread holds it that has not died, as its own kernel knows. For those of
/// another kernel, which must not be touched.
pub fn says_held(line: &[u8; 64]) -> bool {
    let word = |at: usize| u32::from_ne_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
    word(KIND_AT) == KIND && word(0) & THREAD != 0 && word(0) & OWNER_DIED == 0
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
            INIT.get()(self.0.get().cast(), attr.as_ptr());
        }
    }

    /// Tries to take it, without waiting.
    pub fn try_take(&self) -> Attempt {
        if !self.is_of_our_kind() {
            return Attempt::Broken;
        }
        // SAFETY: the memory holds a pthread mutex or something the function
        // refuses with an error; it stays mapped.
        let result = unsafe { TRYLOCK.get()(self.0.get().cast()) };
        self.outcome(result)
    }

    /// As [`RobustMutex::try_take`], also from a holder that is dead without the kernel having told: see the module.
    pub fn try_take_from(&self, whose: Whose, look: Look) -> Attempt {
        match self.try_take() {
            Attempt::Busy if self.end_dead_holder(whose, look) => self.try_take(),
            attempt => attempt,
        }
    }

    /// Does for a dead holder what the kernel does at the end of a thread; whether it is dead.
    #[cold]
    #[inline(never)]
    fn end_dead_holder(&self, whose: Whose, look: Look) -> bool {
        let lock = self.lock_word();
        let (word, noted) = (lock.load(Acquire), self.noted());
        let Some((thread, who)) = noted.filter(|(thread, _)| *thread == word & THREAD) else { return false };
        let lives = |look| match whose {
            Whose::Thread => who.thread_lives(thread, look),
            Whose::Process => who.lives(look),
        };
        // A thread that is gone is no dead process: that is asked of the process.
        let seems_alive = |look| lives(look) != Some(false);
        if seems_alive(Look::Quick) {
            if look == Look::Quick || seems_alive(Look::Thorough) {
                return false;
            }
            // Somebody else has that number by now, who may have taken the mutex and not noted it yet.
            crate::file::nap(NOTING);
        }
        if self.noted() != noted || lock.compare_exchange(word, word & WAITERS | OWNER_DIED, AcqRel, Relaxed).is_err() {
            return false;
        }
        if word & WAITERS != 0 {
            crate::file::wake_one(lock);
        }
        true
    }

    /// Who has taken it and not given it back, as noted; dead or alive.
    pub fn holder(&self) -> Option<Who> {
        self.noted().map(|(_, who)| who)
    }

    fn noted(&self) -> Option<(u32, Who)> {
        let [ids, namespace, since] = self.notes();
        let seen = ids.load(Acquire);
        let who = Who { pid: (seen >> 32) as u32, namespace: namespace.load(Relaxed), since: since.load(Relaxed) };
        (seen != 0).then_some((seen as u32, who))
    }

    /// Notes that this thread has it.
    fn note(&self) {
        self.note_of(life::own(), self.lock_word().load(Relaxed) & THREAD);
    }

    fn note_of(&self, who: Who, thread: u32) {
        let [ids, namespace, since] = self.notes();
        ids.store(0, Relaxed);
        namespace.store(who.namespace, Release);
        since.store(who.since, Release);
        ids.store(u64::from(who.pid) << 32 | u64::from(thread), Release);
    }

    fn notes(&self) -> &[AtomicU64; 3] {
        // SAFETY: the last three words of the line, which are only touched as atomics.
        unsafe { &*self.0.get().byte_add(NOTED_AT).cast() }
    }

    fn lock_word(&self) -> &AtomicU32 {
        // SAFETY: the first word, which libc and the kernel change atomically, too.
        unsafe { &*self.0.get().cast() }
    }

    /// Takes it, asleep while another holds it, for at most `timeout_ns`:
    /// [`Attempt::Busy`] after that.
    pub fn take_within(&self, timeout_ns: i64) -> Attempt {
        if !self.is_of_our_kind() {
            return Attempt::Broken;
        }
        let until = crate::clock::monotonic().saturating_add(timeout_ns);
        // SAFETY: a word that the loader has filled, and nobody writes.
        let Some(clocklock) = (unsafe { bypath_mutex_clocklock }) else { return self.outcome(self.lock_until_slow(until)) };
        let until = abi::__kernel_timespec { tv_sec: until / 1_000_000_000, tv_nsec: until % 1_000_000_000 };
        // SAFETY: as for `try_take`; the time is valid for the call.
        self.outcome(unsafe { clocklock(self.0.get().cast(), abi::CLOCK_MONOTONIC as i32, &raw const until) })
    }

    /// Tries again and again: `pthread_mutex_timedlock` goes by a clock that may be set back while it waits.
    fn lock_until_slow(&self, until: i64) -> i32 {
        loop {
            // SAFETY: as for `try_take`.
            let result = unsafe { pthread_mutex_trylock(self.0.get().cast()) };
            if result != EBUSY || crate::clock::monotonic() >= until {
                return result;
            }
            crate::file::nap(RETRY);
        }
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
            0 => {
                self.note();
                Attempt::Taken
            }
            EBUSY | ETIMEDOUT => Attempt::Busy,
            EOWNERDEAD => {
                // SAFETY: we hold it now; it is made usable again at once, and
                // what it protects is cleaned up by the caller.
                unsafe { pthread_mutex_consistent(self.0.get().cast()) };
                self.note();
                Attempt::Inherited
            }
            _ => Attempt::Broken,
        }
    }

    /// Gives it back. Only by the thread that took it.
    pub fn give_back(&self) {
        let ids = &self.notes()[0];
        let noted = ids.load(Relaxed);
        // SAFETY: as for `try_take`; by another thread the call fails and changes nothing.
        if unsafe { UNLOCK.get()(self.0.get().cast()) } == 0 {
            // Unless somebody has taken it meanwhile.
            let _ = ids.compare_exchange(noted, 0, AcqRel, Relaxed);
        }
    }

    /// Gives it back as what `who` holds, whose thread that had it has ended: [`RobustMutex::holder`] says so until
    /// somebody takes it. Only by the thread that took it.
    pub fn give_back_of(&self, who: Who) {
        // First: from then on the note is the next one's. No thread has the number 0, so nobody takes this for held by it.
        self.note_of(who, 0);
        // SAFETY: as for `try_take`; by another thread the call fails and changes nothing.
        unsafe { UNLOCK.get()(self.0.get().cast()) };
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

    unsafe extern "C" {
        fn fork() -> i32;
        fn _exit(status: i32) -> !;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }

    /// A mutex that children share.
    fn shared() -> &'static RobustMutex {
        let flags = abi::MAP_SHARED | abi::MAP_ANONYMOUS;
        // SAFETY: a new mapping of one page.
        let page = unsafe { crate::call!(abi::__NR_mmap, 0, 4096, abi::PROT_READ | abi::PROT_WRITE, flags, -1isize, 0) }.unwrap();
        // SAFETY: a page of zeroes, there for good.
        let mutex = unsafe { &*(page as *const RobustMutex) };
        mutex.init();
        mutex
    }

    /// From now on the kernel finds nothing that this thread holds.
    fn lose_list() {
        static EMPTY: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
        EMPTY[0].store(EMPTY.as_ptr() as u64, Relaxed);
        // SAFETY: an empty list that is there for good.
        unsafe { crate::call!(abi::__NR_set_robust_list, EMPTY.as_ptr(), ROBUST_HEAD_BYTES) }.unwrap();
    }

    /// Goal: a process that dies with a list of its own is found dead, by a thorough look before its parent has asked
    /// for it, by a quick one after that; and never while it lives. Method: a child, and another that takes its place.
    #[test]
    fn dead_with_a_wrecked_list() {
        let (mutex, go) = (shared(), shared());
        assert_eq!(go.try_take(), Attempt::Taken);
        // SAFETY: the child calls the kernel and the mutex only.
        let pid = unsafe { fork() };
        if pid == 0 {
            life::forget();
            mutex.try_take();
            lose_list();
            while go.try_take() == Attempt::Busy {
                crate::file::nap(1_000_000);
            }
            // SAFETY: ends the child.
            unsafe { _exit(0) };
        }
        while mutex.holder().is_none() {
            std::thread::yield_now();
        }
        for whose in [Whose::Thread, Whose::Process] {
            assert_eq!(mutex.try_take_from(whose, Look::Thorough), Attempt::Busy, "it lives");
        }
        go.give_back();
        while mutex.holder().unwrap().lives(Look::Thorough) == Some(true) {
            std::thread::yield_now();
        }
        assert_eq!(mutex.try_take_from(Whose::Process, Look::Quick), Attempt::Busy, "it has not been waited for");
        // What the kernel knows nothing of is not told by the kernel.
        assert_eq!(mutex.try_take(), Attempt::Busy);
        let [ids, namespace, since] = mutex.notes();
        let was = [ids, namespace, since].map(|word| word.load(Relaxed));
        namespace.store(was[1] + 1, Relaxed);
        assert_eq!(mutex.try_take_from(Whose::Process, Look::Thorough), Attempt::Busy, "of another namespace");
        namespace.store(was[1], Relaxed);
        // SAFETY: a child of ours.
        unsafe { waitpid(pid, core::ptr::null_mut(), 0) };
        ids.store(was[0] + 1, Relaxed);
        assert_eq!(mutex.try_take_from(Whose::Process, Look::Thorough), Attempt::Busy, "somebody else has noted himself");
        ids.store(was[0], Relaxed);
        assert_eq!(mutex.try_take_from(Whose::Process, Look::Quick), Attempt::Inherited);
        assert_eq!(mutex.holder(), Some(life::own()));
        mutex.give_back();
        assert_eq!((mutex.holder(), mutex.try_take()), (None, Attempt::Taken));
        let who = Who { pid: 77, namespace: 8, since: 9 };
        mutex.give_back_of(who);
        assert_eq!((mutex.holder(), mutex.try_take()), (Some(who), Attempt::Taken));
        assert_eq!(mutex.holder(), Some(life::own()));
        mutex.give_back();
    }

    /// Goal: beside a libc that cannot wait by our clock a mutex is waited for all the same, and no longer than said.
    #[test]
    fn waits_beside_an_old_libc() {
        struct Everybodys(&'static RobustMutex);
        // SAFETY: made for several processes.
        unsafe impl Send for Everybodys {}
        let mutex = shared();
        assert_eq!(mutex.try_take(), Attempt::Taken);
        let its = Everybodys(mutex);
        let waiter = std::thread::spawn(move || {
            let Everybodys(mutex) = { its };
            let begun = crate::clock::monotonic();
            assert_eq!(mutex.lock_until_slow(begun + 3_000_000), EBUSY);
            let waited = crate::clock::monotonic() - begun;
            assert!((3_000_000..60_000_000_000).contains(&waited), "{waited} ns");
            mutex.lock_until_slow(begun + 60_000_000_000)
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        mutex.give_back();
        // It ends with its thread, like any.
        assert_eq!(waiter.join().unwrap(), 0);
    }

    /// Goal: of a thread that ends with a list of its own only what a thread holds is nobody's: its process lives. Who
    /// waits asleep is woken.
    #[test]
    fn a_thread_ends_with_a_wrecked_list() {
        struct Everybodys(&'static RobustMutex);
        // SAFETY: made for several processes.
        unsafe impl Send for Everybodys {}
        let mutex = shared();
        let its = Everybodys(mutex);
        std::thread::spawn(move || {
            let Everybodys(mutex) = { its };
            assert_eq!(mutex.try_take(), Attempt::Taken);
            lose_list();
        })
        .join()
        .unwrap();
        // The kernel may still be at its end.
        let thread = mutex.notes()[0].load(Relaxed) as u32;
        while life::own().thread_lives(thread, Look::Quick) == Some(true) {
            std::thread::yield_now();
        }
        assert_eq!(mutex.try_take_from(Whose::Process, Look::Thorough), Attempt::Busy);
        let its = Everybodys(mutex);
        let waiter = std::thread::spawn(move || {
            let Everybodys(mutex) = { its };
            let attempt = mutex.take_within(60_000_000_000);
            mutex.give_back();
            attempt
        });
        while mutex.lock_word().load(Relaxed) & WAITERS == 0 {
            std::thread::yield_now();
        }
        let found = mutex.try_take_from(Whose::Thread, Look::Quick);
        // One of the two has inherited it from the dead.
        if found != Attempt::Busy {
            mutex.give_back();
        }
        let waited = waiter.join().unwrap();
        assert!(found == Attempt::Inherited || waited == Attempt::Inherited, "{found:?} {waited:?}");
    }

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

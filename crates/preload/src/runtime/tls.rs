//! What we keep per thread, in initial-exec TLS: one pointer to the thread's
//! state, the depth of operations in progress, and the "go raw" flag.
//!
//! A `.tbss` object in assembly, because `#[thread_local]` is not stable and
//! `std::thread_local!` is not ours to use. The library is loaded at start, so
//! its TLS is in the static block and access is two instructions.

use core::cell::Cell;

/// The thread's words; zero at birth.
#[repr(C, align(64))]
pub struct Tls {
    /// State of the thread (owned by `thread.rs`), null until first use.
    pub state: Cell<*mut u8>,
    /// How many operations of ours are in progress on this thread (nested calls
    /// count). While it is not 0, signal handlers are put off.
    pub depth: Cell<u32>,
    /// Calls served on this thread that are not yet added to the image's count.
    pub calls: Cell<u32>,
    /// Signals put off, as a bit set (signal − 1).
    pub pending: Cell<u64>,
    /// Whether a plugin runs on this thread; its `raw` not 0: every call goes straight to the kernel.
    pub aside: plugin::Aside,
    /// Of `calls`, those by syscall patching.
    pub patched: Cell<u32>,
    /// Address of the mapped page whose fault came last.
    pub touched: Cell<usize>,
    /// How many of it came in a row.
    pub touches: Cell<u32>,
    /// When the last one did, monotonic, nanoseconds.
    pub touched_at: Cell<i64>,
    /// What a child by `vfork` has of ours, while it lives on this thread's memory and words (owned by `vfork_child.rs`);
    /// else null.
    pub vfork_child: Cell<*mut u8>,
    /// Signals that the program believes to have blocked, and has not (`masks.rs`).
    pub hidden: Cell<u64>,
    /// How a program goes on whose child by vfork is on its stack (`libc/dispatch/entry.rs`).
    pub dispatched: [Cell<usize>; 4],
    /// End of the stack on which this thread's own calls are served; 0: that of the program.
    pub service_stack: Cell<usize>,
    /// 1 while one is.
    pub is_on_it: Cell<usize>,
    /// Of a program that we have mapped (`swap.rs`): its own thread pointer, while ours is in the register.
    pub programs_base: Cell<usize>,
    /// There: where the thread goes on when the program has ended it; 0: it is the first one.
    pub own_stack: Cell<usize>,
    /// There: the word that is cleared and woken when the thread ends; 0: none.
    pub cleared: Cell<usize>,
    /// There: the stack that the thread has given up while it was on it, begin and length; 0: none.
    pub given_up: [Cell<usize>; 2],
    /// There: of a child that `posix_spawn` has made, what it shares with its parent; 0: it is none.
    pub shared: Cell<usize>,
    /// There: a stack for signals of ours, in the place of one that the program has not; 0: none.
    pub spare_stack: Cell<usize>,
    /// There: what the program has told to be its list of robust mutexes.
    pub robust_list: Cell<usize>,
    /// What the kernel told about the signals put off, first come first kept.
    pub told: [Told; TOLD_MAX],
}

impl Tls {
    /// Whether a child by `vfork` is on this thread.
    pub fn is_vfork_child(&self) -> bool {
        !self.vfork_child.get().is_null()
    }
}

/// Runs `run` while every call of this thread, and of a child that shares its
/// memory, goes straight to the kernel.
pub fn raw_during<R>(run: impl FnOnce() -> R) -> R {
    get().aside.raw_during(run)
}

/// `siginfo_t` of a signal that was put off.
#[repr(C)]
pub struct Told {
    /// The signal; 0: free.
    pub signal: Cell<u32>,
    /// Unused.
    pub reserved: Cell<u32>,
    /// `siginfo_t`.
    pub info: Cell<[u64; 16]>,
}

/// Where [`Tls::dispatched`] is.
pub const DISPATCHED_OFFSET: usize = core::mem::offset_of!(Tls, dispatched);

/// Where [`Tls::is_on_it`] is.
pub const IS_ON_IT_OFFSET: usize = core::mem::offset_of!(Tls, is_on_it);

/// Where [`Tls::service_stack`] is.
pub const SERVICE_STACK_OFFSET: usize = core::mem::offset_of!(Tls, service_stack);

/// Where [`Tls::programs_base`] is.
pub const PROGRAMS_BASE_OFFSET: usize = core::mem::offset_of!(Tls, programs_base);

/// Where [`Tls::own_stack`] is.
pub const OWN_STACK_OFFSET: usize = core::mem::offset_of!(Tls, own_stack);

/// How many signals put off at one time keep their `siginfo_t`.
pub const TOLD_MAX: usize = 4;
const BYTES: usize = 768;
const _: () = assert!(core::mem::size_of::<Tls>() == BYTES);

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".p2align 6",
    ".globl bypath_tls",
    ".hidden bypath_tls",
    ".type bypath_tls,@object",
    ".size bypath_tls,768",
    "bypath_tls:",
    ".zero 768",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .tbss,\"awT\",%nobits",
    ".p2align 6",
    ".globl bypath_tls",
    ".hidden bypath_tls",
    ".type bypath_tls,%object",
    ".size bypath_tls,768",
    "bypath_tls:",
    ".zero 768",
    ".popsection",
);

/// The calling thread's words.
#[inline(always)]
pub fn get() -> &'static Tls {
    let at: *const Tls;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the thread pointer is at fs:0, the offset is filled in by the loader.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr [rip + bypath_tls@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) at,
            options(pure, nomem, nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the thread pointer is tpidr_el0, the offset is filled in by the loader.
    unsafe {
        core::arch::asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:bypath_tls",
            "ldr {1}, [{1}, :gottprel_lo12:bypath_tls]",
            "add {0}, {0}, {1}",
            out(reg) at,
            out(reg) _,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: the object lives as long as the thread, is zeroed at birth (a valid
    // value), and only its own thread uses it.
    unsafe { &*at }
}

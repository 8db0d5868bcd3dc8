//! Syscall User Dispatch: the kernel hands a thread's system calls back as `SIGSYS`, by where they are made.
//!
//! Linux 6.17 can do so for one range of addresses; older ones, from 5.11 on, for all but one. What is set is the calling
//! thread's; new threads and children begin without it, and `exec` ends it.
//!
//! Where neither is there, a filter (seccomp, Linux 3.5) can do the same by [where programs lie](TRAPPED) that we put there
//! ourselves. It stays for good, over `exec` too: so the range must be one in which nobody else makes calls.

use crate::sys::abi::__NR_prctl;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// `PR_SET_SYSCALL_USER_DISPATCH`.
const SET: usize = 59;
const OFF: usize = 0;
/// `PR_SYS_DISPATCH_EXCLUSIVE_ON`.
const ALL_BUT: usize = 1;
/// `PR_SYS_DISPATCH_INCLUSIVE_ON`.
const ONLY: usize = 2;

/// What a kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Calls from one range.
    Only,
    /// Calls from below an address.
    Below,
    /// Nothing.
    Never,
}

const ALL: [How; 3] = [How::Only, How::Below, How::Never];
/// Index and one in [`ALL`]; 0: not asked yet.
static HOW: AtomicUsize = AtomicUsize::new(0);

fn set(how: usize, begin: usize, len: usize) -> bool {
    // SAFETY: changes only who gets the calls of this thread's instructions; there is no selector.
    unsafe { crate::call!(__NR_prctl, SET, how, begin, len, 0) }.is_ok()
}

/// What this kernel can do, as asked for ranges from which nothing is handed back. A thread that has something set loses it.
pub fn how() -> How {
    static NOTHING: AtomicUsize = AtomicUsize::new(0);
    if let Some(index) = HOW.load(Relaxed).checked_sub(1) {
        return ALL[index];
    }
    let index = match () {
        () if cfg!(not(target_arch = "x86_64")) => 2,
        () if set(ONLY, NOTHING.as_ptr() as usize, 1) && set(OFF, 0, 0) => 0,
        () if set(ALL_BUT, 1, usize::MAX - 1) && set(OFF, 0, 0) => 1,
        () => 2,
    };
    HOW.store(index + 1, Relaxed);
    ALL[index]
}

/// Has the calls that this thread makes in `range` handed back; with [`How::Below`] those that it makes below its end.
pub fn hand_back(range: &Range<usize>) -> bool {
    match how() {
        How::Only => set(ONLY, range.start, range.len()),
        How::Below => set(ALL_BUT, range.end, usize::MAX - range.end),
        How::Never => false,
    }
}

/// Has all calls that this thread makes handed back, but for those that it makes in `range`.
pub fn hand_back_all_but(range: &Range<usize>) -> bool {
    how() != How::Never && set(ALL_BUT, range.start, range.len())
}

/// Calls from here a filter hands back. The kernel puts loaders, libraries and programs that may lie anywhere higher, unless stacks are
/// unlimited.
pub const TRAPPED: Range<usize> = 0..1 << 46;
const SET_FILTER: usize = 22;
const FILTER: usize = 2;
const NO_NEW_PRIVILEGES: usize = 38;

/// Whether a filter can be had, where [`how`] has nothing.
pub fn can_trap() -> bool {
    // SAFETY: there is no filter at that address: it is told so where they are known.
    let asked = unsafe { crate::call!(__NR_prctl, SET_FILTER, FILTER, 0, 0, 0) };
    cfg!(target_arch = "x86_64") && asked == Err(crate::Errno::EFAULT)
}

/// From now on calls made in [`TRAPPED`] are handed back, in this thread, those that it makes, and all that they execute. Programs
/// get no rights by being executed any more, unless this one may forbid calls without that.
pub fn trap() -> bool {
    /// `struct sock_filter`.
    #[repr(C)]
    struct Step(u16, u8, u8, u32);
    /// `struct sock_fprog`.
    #[repr(C)]
    struct Filter(u16, *const Step);
    const LOAD: u16 = 0x20;
    const IF_AT_LEAST: u16 = 0x35;
    const ANSWER: u16 = 0x06;
    const HAND_BACK: u32 = 0x0003_0000;
    const LET_PASS: u32 = 0x7fff_0000;
    /// The upper half of the address in `struct seccomp_data`.
    const ADDRESS: u32 = 12;
    let steps = [
        Step(LOAD, 0, 0, ADDRESS),
        Step(IF_AT_LEAST, 1, 0, (TRAPPED.end >> 32) as u32),
        Step(ANSWER, 0, 0, HAND_BACK),
        Step(ANSWER, 0, 0, LET_PASS),
    ];
    let filter = Filter(steps.len() as u16, steps.as_ptr());
    // SAFETY: the filter outlives the call; calls of ours are not made there.
    let set = || unsafe { crate::call!(__NR_prctl, SET_FILTER, FILTER, &raw const filter, 0, 0) }.is_ok();
    // SAFETY: takes rights only.
    set() || unsafe { crate::call!(__NR_prctl, NO_NEW_PRIVILEGES, 1, 0, 0, 0) }.is_ok() && set()
}

unsafe extern "C" {
    fn getauxval(kind: u64) -> u64;
}

/// How a program may set the bases of its segment registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bases {
    /// By instructions: Linux 5.9.
    ByInstruction,
    /// That of `gs` by an instruction, that of `fs` by a call, which alone stays: gVisor by ptrace.
    ByCall,
    /// The same for `fs`; `gs` is somebody else's: gVisor by systrap.
    ByCallAlone,
    /// By calls only, or not at all.
    Never,
}

const ALL_BASES: [Bases; 4] = [Bases::ByInstruction, Bases::ByCall, Bases::ByCallAlone, Bases::Never];

/// What is possible here. Linux says so (`HWCAP2_FSGSBASE`); where nothing is said, a child tries, once.
pub fn bases() -> Bases {
    const AT_HWCAP2: u64 = 26;
    const FSGSBASE: u64 = 2;
    static TRIED: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: it looks the number up, and knows that 0 means none.
    if cfg!(target_arch = "x86_64") && unsafe { getauxval(AT_HWCAP2) } & FSGSBASE != 0 {
        return Bases::ByInstruction;
    }
    if let Some(index) = TRIED.load(Relaxed).checked_sub(1) {
        return ALL_BASES[index];
    }
    let tried = try_it();
    TRIED.store(1 + tried as usize, Relaxed);
    tried
}

#[cfg(not(target_arch = "x86_64"))]
fn try_it() -> Bases {
    Bases::Never
}

/// A child sets the bases, makes a call, and looks at what they are then; where it dies by the instruction, or loses what it has set,
/// there is no way. The processor is asked before.
#[cfg(target_arch = "x86_64")]
#[cold]
fn try_it() -> Bases {
    use crate::sys::abi::{__NR_clone, __NR_exit_group, __NR_rt_sigaction, __NR_setrlimit, __NR_wait4};
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const BROKEN: usize = 4;
    const CORE: usize = 4;
    const BY_CLONE: usize = 0x8000_0000;
    const STATUS_SHIFT: u32 = 8;
    if __cpuid(0).eax < 7 || __cpuid_count(7, 0).ebx & 1 == 0 {
        return Bases::Never;
    }
    let (nothing, mut status) = ([0usize; 4], 1u32);
    // SAFETY: a child with memory of its own, whose end sends no signal.
    let child = unsafe { crate::call!(__NR_clone, 0, 0, 0, 0, 0) };
    match child {
        Ok(0) => loop {
            // SAFETY: of this child alone, which ends here, by the instruction or after it.
            unsafe {
                let _ = crate::call!(__NR_setrlimit, CORE, nothing.as_ptr());
                let _ = crate::call!(__NR_rt_sigaction, BROKEN, nothing.as_ptr(), 0, 8);
                let stays = stay(&raw const nothing as usize, &raw const status as usize);
                crate::sys::raw(__NR_exit_group as usize, [stays as usize, 0, 0, 0, 0, 0]);
            }
        },
        Ok(child) => {
            // SAFETY: room for the answer.
            while unsafe { crate::call!(__NR_wait4, child, &raw mut status, BY_CLONE, 0) } == Err(crate::Errno::EINTR) {}
            let told = ALL_BASES.into_iter().find(|bases| (*bases as u32) << STATUS_SHIFT == status);
            told.unwrap_or(Bases::Never)
        }
        Err(_) => Bases::Never,
    }
}

/// Which of the ways stays over a call.
///
/// # Safety
/// Nothing that goes by these registers may run in this thread from here on.
#[cfg(target_arch = "x86_64")]
unsafe fn stay(fs: usize, gs: usize) -> Bases {
    use crate::sys::abi::{__NR_arch_prctl, __NR_getppid};
    const ARCH_SET_FS: usize = 0x1002;
    let call = |number: u32, first: usize, second: usize| {
        let (found_fs, found_gs): (usize, usize);
        // SAFETY: by contract; the call is one of the two that use no memory.
        unsafe {
            core::arch::asm!(
                "syscall", "rdfsbase {fs}", "rdgsbase {gs}", fs = out(reg) found_fs, gs = out(reg) found_gs,
                inout("rax") number as usize => _, in("rdi") first, in("rsi") second, out("rcx") _, out("r11") _,
            );
        }
        (found_fs == fs, found_gs)
    };
    let (_, others) = call(__NR_getppid, 0, 0);
    if others != 0 {
        call(__NR_arch_prctl, ARCH_SET_FS, fs);
        return if call(__NR_getppid, 0, 0).0 { Bases::ByCallAlone } else { Bases::Never };
    }
    // SAFETY: by contract.
    unsafe { core::arch::asm!("wrfsbase {}", "wrgsbase {}", in(reg) fs, in(reg) gs, options(nostack, preserves_flags)) };
    if call(__NR_getppid, 0, 0) == (true, gs) {
        return Bases::ByInstruction;
    }
    call(__NR_arch_prctl, ARCH_SET_FS, fs);
    if call(__NR_getppid, 0, 0) == (true, gs) { Bases::ByCall } else { Bases::Never }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: that a child is asked says the same as the kernel, where that says it.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn bases() {
        // SAFETY: as in `bases`.
        if unsafe { getauxval(26) } & 2 != 0 {
            assert_eq!(try_it(), Bases::ByInstruction);
        }
        assert_eq!(try_it(), try_it());
    }

    /// Goal: asking changes nothing: this thread's calls, and those of one that has a range without code, are the kernel's.
    #[test]
    fn asking() {
        let (first, second) = (how(), how());
        assert_eq!(first, second);
        let nothing = [0u8; 8];
        let begin = nothing.as_ptr() as usize;
        if first == How::Only {
            assert!(hand_back(&(begin..begin + 8)));
            assert!(std::fs::metadata("/").is_ok());
            assert!(set(OFF, 0, 0));
        }
    }
}

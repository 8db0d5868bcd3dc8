//! Persistence domains: which failure a store survives, and how it gets there.

/// What the medium promises (`DESIGN` §3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Domain {
    /// Page-cache or tmpfs mapping: survives the death of any process. No cost:
    /// x86-64 keeps stores in order, elsewhere a release fence does.
    Process = 0,
    /// DAX: survives power failure once lines are written back and fenced.
    Power = 1,
    /// eADR or battery: survives power failure in store order; a fence only.
    Whole = 2,
    /// Every store, flush and fence is recorded (tests).
    Sim = 3,
}

impl Domain {
    /// Its name, as `bypath info` shows and `--domain` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Domain::Process => "process",
            Domain::Power => "power",
            Domain::Whole => "whole",
            Domain::Sim => "sim",
        }
    }

    /// The domain called `name`.
    pub fn from_name(name: &str) -> Option<Domain> {
        [Domain::Process, Domain::Power, Domain::Whole, Domain::Sim].into_iter().find(|d| d.name() == name)
    }
}

/// Writes back the 64-byte lines that hold `start..start + len`, without a fence.
#[inline]
pub(crate) fn write_back(start: *const u8, len: usize) {
    let mut line = start as usize & !63;
    let end = start as usize + len;
    while line < end {
        write_back_line(line as *const u8);
        line += 64;
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn write_back_line(line: *const u8) {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static CLWB: AtomicU8 = AtomicU8::new(0);
    let kind = match CLWB.load(Relaxed) {
        0 => {
            let kind = detect();
            CLWB.store(kind, Relaxed);
            kind
        }
        kind => kind,
    };
    // SAFETY: the line lies in a mapping of ours; these instructions change no
    // contents, and the kind was chosen by what the processor offers.
    unsafe {
        match kind {
            1 => core::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
            2 => core::arch::asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
            _ => core::arch::asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
        }
    }
}

/// 1: `clwb`, 2: `clflushopt`, 3: `clflush`.
#[cfg(target_arch = "x86_64")]
#[cold]
fn detect() -> u8 {
    let leaf = core::arch::x86_64::__cpuid_count(7, 0);
    if leaf.ebx & 1 << 24 != 0 {
        1
    } else if leaf.ebx & 1 << 23 != 0 {
        2
    } else {
        3
    }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn write_back_line(line: *const u8) {
    // SAFETY: the line lies in a mapping of ours; `dc cvac` changes no contents.
    unsafe { core::arch::asm!("dc cvac, {}", in(reg) line, options(nostack, preserves_flags)) }
}

/// Orders earlier write-backs before later stores.
#[inline]
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `sfence` has no operands and is part of every x86-64.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier, no operands.
    unsafe {
        core::arch::asm!("dsb ishst", options(nostack, preserves_flags));
    }
}

//! In whose name calls are made.
//!
//! Asking the kernel at every call would cost more than the call, so the
//! answer is kept from the first mount on, until the door says that it changed. Credentials are the
//! process's: threads that change theirs alone by raw system calls are not
//! supported.

use base::{Caller, Cred};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use pm::sys::abi;

/// More supplementary groups than this are not seen.
const GROUPS_MAX: usize = 512;
/// Copies in rotation: a call in progress keeps reading the copy it began with.
const COPIES: usize = 4;
const CAP_DAC_OVERRIDE: u32 = 1;

#[repr(C)]
struct Copy {
    effective: Caller,
    effective_gid: u32,
    real: Caller,
    real_gid: u32,
    /// How many there are, at most [`GROUPS_MAX`]: [`ask`] sees to that.
    groups_len: usize,
    groups: [u32; GROUPS_MAX],
}

impl Copy {
    const EMPTY: Copy = {
        const NOBODY: Caller = Caller { uid: u32::MAX, privileged: false };
        let nobodys = u32::MAX;
        Copy {
            effective: NOBODY,
            effective_gid: nobodys,
            real: NOBODY,
            real_gid: nobodys,
            groups: [0; GROUPS_MAX],
            groups_len: 0,
        }
    };

    #[inline(always)]
    fn groups(&self) -> &[u32] {
        // SAFETY: in bounds, see `groups_len`; asking that at every call would cost more than the groups are looked at.
        unsafe { self.groups.get_unchecked(..self.groups_len) }
    }
}

/// The process's credentials.
#[repr(C)]
pub struct Credentials {
    /// The current copy; before the first question a stranger's.
    current: AtomicPtr<Copy>,
    /// How often it was asked.
    asked: AtomicUsize,
    copies: [UnsafeCell<Copy>; COPIES],
}

// SAFETY: a copy is written only while it is not current, by a caller that the
// door serialises; readers of older copies finish within COPIES changes.
unsafe impl Sync for Credentials {}

/// Who has not been asked for: nobody's rights.
static STRANGER: Copy = Copy::EMPTY;

impl Credentials {
    /// How far the first copy's own words reach.
    pub(crate) const FIRST: usize = core::mem::offset_of!(Credentials, copies) + core::mem::offset_of!(Copy, groups);

    pub(crate) const fn new() -> Self {
        Credentials {
            copies: [const { UnsafeCell::new(Copy::EMPTY) }; COPIES],
            current: AtomicPtr::new((&raw const STRANGER).cast_mut()),
            asked: AtomicUsize::new(0),
        }
    }

    /// Asks the kernel for the first time, if nobody has: before there is anything that rights are needed for.
    pub(crate) fn ask_once(&self) {
        if self.asked.load(Ordering::Relaxed) == 0 {
            self.refresh();
        }
    }

    #[inline(always)]
    fn copy(&self) -> &Copy {
        let current = self.current.load(Ordering::Acquire);
        debug_assert!(!core::ptr::eq(current, &STRANGER), "nobody has asked who calls");
        // SAFETY: `STRANGER`, or one of `copies`, of which the current one is not written to.
        unsafe { &*current }
    }

    /// What a glance asks of the file-system identity.
    #[inline(always)]
    pub(crate) fn caller(&self) -> &Caller {
        &self.copy().effective
    }

    /// The same of the real identity, for `access`.
    #[inline(always)]
    pub(crate) fn real_caller(&self) -> &Caller {
        &self.copy().real
    }

    /// File-system identity.
    #[inline(always)]
    pub(crate) fn effective(&self) -> Cred<'_> {
        let copy = self.copy();
        let (Caller { uid, privileged }, gid) = (copy.effective, copy.effective_gid);
        Cred { uid, gid, groups: copy.groups(), privileged }
    }

    /// Real identity, for `access`.
    #[inline]
    pub(crate) fn real(&self) -> Cred<'_> {
        let copy = self.copy();
        let (Caller { uid, privileged }, gid) = (copy.real, copy.real_gid);
        Cred { uid, gid, groups: copy.groups(), privileged }
    }

    /// Asks the kernel again at the door's word.
    pub(crate) fn changed(&self) {
        self.refresh();
    }

    /// Asks the kernel again.
    #[cold]
    fn refresh(&self) {
        let next = self.copies[self.asked.fetch_add(1, Ordering::Relaxed) % COPIES].get();
        // SAFETY: not the current copy; callers are serialised by the door.
        ask(unsafe { &mut *next });
        self.current.store(next, Ordering::Release);
    }
}

/// The answer of `setfsuid(-1)` or `setfsgid(-1)`: the identity, which the kernel gives in any case. A kernel that does not
/// have the call gives an error number; there the `effective` one is meant.
fn identity(answer: isize, effective: impl FnOnce() -> u32) -> u32 {
    if answer < 0 { effective() } else { answer as u32 }
}

fn ask(copy: &mut Copy) {
    let id = |number: u32, of: [usize; 6]| {
        // SAFETY: none of these takes a pointer; −1 is no valid ID, so that nothing is changed and the current one returned.
        unsafe { pm::sys::raw(number as usize, of) }
    };
    let nobody = [usize::MAX, 0, 0, 0, 0, 0];
    let fsuid = identity(id(abi::__NR_setfsuid, nobody), || id(abi::__NR_geteuid, [0; 6]) as u32);
    let fsgid = identity(id(abi::__NR_setfsgid, nobody), || id(abi::__NR_getegid, [0; 6]) as u32);
    // SAFETY: takes no arguments.
    let uid = unsafe { pm::sys::raw(abi::__NR_getuid as usize, [0; 6]) } as u32;
    // SAFETY: takes no arguments.
    let gid = unsafe { pm::sys::raw(abi::__NR_getgid as usize, [0; 6]) } as u32;
    // SAFETY: the array is ours and as long as we say.
    let groups = unsafe { pm::call!(abi::__NR_getgroups, GROUPS_MAX, copy.groups.as_mut_ptr()) };
    copy.groups_len = groups.unwrap_or(0).min(GROUPS_MAX);

    // _LINUX_CAPABILITY_VERSION_3: header {version, pid}, two words each of
    // effective, permitted, inheritable.
    let mut header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    // SAFETY: header and data have the shape of this version.
    let got = unsafe { pm::call!(abi::__NR_capget, header.as_mut_ptr(), data.as_mut_ptr()) };
    let (effective, permitted) = if got.is_ok() { (data[0], data[1]) } else { (0, 0) };
    let has = |set: u32| set & (1 << CAP_DAC_OVERRIDE) != 0;
    copy.effective = Caller { uid: fsuid, privileged: has(effective) };
    copy.real = Caller { uid, privileged: uid == 0 && has(permitted) };
    (copy.effective_gid, copy.real_gid) = (fsgid, gid);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an error number is nobody's identity. Numbers are 32 bits without a sign, so those above 2³¹ are IDs.
    #[test]
    fn no_error_is_an_identity() {
        for (answer, wanted) in [(0, 0), (1000, 1000), (4_294_967_294, 4_294_967_294), (-38, 7), (-1, 7)] {
            assert_eq!(identity(answer, || 7), wanted);
        }
    }
}

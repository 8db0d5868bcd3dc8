//! In whose name calls are made.
//!
//! Asking the kernel at every call would cost more than the call, so the
//! answer is kept from the first mount on, until the door says that it changed. Credentials are the
//! process's: threads that change theirs alone by raw system calls are not
//! supported.

use crate::namespace;
use crate::text_out::TextOut;
use base::{Caller, Cred, ids};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use pm::Errno;
use pm::sys::abi;

/// More supplementary groups than this are not seen.
const GROUPS_MAX: usize = 512;
/// Copies in rotation: a call in progress keeps reading the copy it began with.
const COPIES: usize = 4;
const CAP_DAC_OVERRIDE: u32 = 1;

/// Places in pairs.
const EFFECTIVE: usize = 0;
const REAL: usize = 1;

/// Users and groups by their numbers in the initial namespace.
#[repr(C)]
struct Copy {
    effective: Caller,
    effective_gid: u32,
    real: Caller,
    real_gid: u32,
    /// How many there are, at most [`GROUPS_MAX`]: [`ask`] sees to that.
    groups_len: u32,
    /// Of either identity: [`Cred::privileged_within`].
    within: [bool; 2],
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
            within: [false; 2],
        }
    };

    #[inline]
    fn groups(&self) -> &[u32] {
        // SAFETY: in bounds, see `groups_len`; asking that at every call would cost more than the groups are looked at.
        unsafe { self.groups.get_unchecked(..self.groups_len as usize) }
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

    /// What was known before; nobody's before the first question.
    fn copy_before(&self) -> &Copy {
        // SAFETY: as in `copy`; not the one that is written next.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    #[inline]
    fn copy(&self) -> &Copy {
        let current = self.current.load(Ordering::Acquire);
        debug_assert!(!core::ptr::eq(current, &STRANGER), "nobody has asked who calls");
        // SAFETY: `STRANGER`, or one of `copies`, of which the current one is not written to.
        unsafe { &*current }
    }

    /// What the fast path asks of the file-system identity.
    #[inline]
    pub(crate) fn caller(&self) -> &Caller {
        &self.copy().effective
    }

    /// The same of the real identity, for `access`.
    #[inline]
    pub(crate) fn real_caller(&self) -> &Caller {
        &self.copy().real
    }

    /// File-system identity.
    #[inline]
    pub(crate) fn effective(&self) -> Cred<'_> {
        let copy = self.copy();
        let (Caller { uid, privileged }, gid) = (copy.effective, copy.effective_gid);
        Cred { uid, gid, groups: copy.groups(), privileged, privileged_within: copy.within[EFFECTIVE] }
    }

    /// Real identity, for `access`.
    #[inline]
    pub(crate) fn real(&self) -> Cred<'_> {
        let copy = self.copy();
        let (Caller { uid, privileged }, gid) = (copy.real, copy.real_gid);
        Cred { uid, gid, groups: copy.groups(), privileged, privileged_within: copy.within[REAL] }
    }

    /// Who we are, for the next program: where our user namespace has no number for us it could not find out.
    /// Returns how long that is: nothing in the initial one.
    pub(crate) fn carry(&self, out: &mut [u8]) -> usize {
        if ids::is_initial() || self.asked.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let Cred { uid, gid, groups, .. } = self.effective();
        let mut text = TextOut::new(out, Errno::E2BIG);
        let mut len = 0;
        for (at, id) in [uid, gid].iter().chain(groups).enumerate() {
            if (at > 0 && text.put(b" ").is_err()) || text.number(u64::from(*id), 10).is_err() {
                break;
            }
            len = text.len();
        }
        len
    }

    /// Takes over what [`Credentials::carry`] wrote. Before anybody has asked.
    pub(crate) fn take_over(&self, text: &[u8]) {
        let last = self.copies[COPIES - 1].get();
        // SAFETY: nobody has asked yet, so that nobody reads or writes any copy.
        let copy = unsafe { &mut *last };
        let mut words = text.split(|&byte| byte == b' ').map_while(ids::number);
        let (Some(uid), Some(gid)) = (words.next(), words.next()) else { return };
        (copy.effective.uid, copy.real.uid, copy.effective_gid, copy.real_gid) = (uid, uid, gid, gid);
        for (place, group) in copy.groups.iter_mut().zip(words) {
            *place = group;
            copy.groups_len += 1;
        }
        self.current.store(last, Ordering::Release);
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
        ask(unsafe { &mut *next }, self.copy_before());
        self.current.store(next, Ordering::Release);
    }
}

/// The answer of `setfsuid(-1)` or `setfsgid(-1)`: the identity, which the kernel gives in any case. A kernel that does not
/// have the call gives an error number; there the `effective` one is meant.
fn identity(answer: isize, effective: impl FnOnce() -> u32) -> u32 {
    if answer < 0 { effective() } else { answer as u32 }
}

/// Asks the kernel. Whom our user namespace has no number for is who he was `before`: it cannot have changed.
fn ask(copy: &mut Copy, before: &Copy) {
    namespace::look();
    let id = |number: u32, of: [usize; 6]| {
        // SAFETY: none of these takes a pointer; −1 is no valid ID, so that nothing is changed and the current one returned.
        unsafe { pm::sys::raw(number as usize, of) }
    };
    let nobody = [usize::MAX, 0, 0, 0, 0, 0];
    let fsuid = identity(id(abi::__NR_setfsuid, nobody), || id(abi::__NR_geteuid, [0; 6]) as u32);
    let fsgid = identity(id(abi::__NR_setfsgid, nobody), || id(abi::__NR_getegid, [0; 6]) as u32);
    let uid = id(abi::__NR_getuid, [0; 6]) as u32;
    let gid = id(abi::__NR_getgid, [0; 6]) as u32;
    // SAFETY: the array is ours and as long as we say.
    let groups = unsafe { pm::call!(abi::__NR_getgroups, GROUPS_MAX, copy.groups.as_mut_ptr()) };
    copy.groups_len = groups.unwrap_or(0).min(GROUPS_MAX) as u32;
    if !ids::is_initial() {
        translate_groups(copy, before);
    }

    // _LINUX_CAPABILITY_VERSION_3: header {version, pid}, two words each of
    // effective, permitted, inheritable.
    let mut header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    // SAFETY: header and data have the shape of this version.
    let got = unsafe { pm::call!(abi::__NR_capget, header.as_mut_ptr(), data.as_mut_ptr()) };
    let (effective, permitted) = if got.is_ok() { (data[0], data[1]) } else { (0, 0) };
    let has = |set: u32| set & (1 << CAP_DAC_OVERRIDE) != 0;
    let overrides = [has(effective), uid == 0 && has(permitted)];
    let everywhere = ids::is_initial();
    copy.within = overrides.map(|overrides| overrides && !everywhere);
    let user = |id, before| known(ids::user(id), before, id);
    let group = |id, before| known(ids::group(id), before, id);
    copy.effective = Caller { uid: user(fsuid, before.effective.uid), privileged: everywhere && overrides[EFFECTIVE] };
    copy.real = Caller { uid: user(uid, before.real.uid), privileged: everywhere && overrides[REAL] };
    (copy.effective_gid, copy.real_gid) = (group(fsgid, before.effective_gid), group(gid, before.real_gid));
}

/// What is known of an identity: what it is, if our namespace has a number for it; else what it was; else what is shown.
fn known(is: Option<u32>, was: u32, shown: u32) -> u32 {
    is.unwrap_or(if was == u32::MAX { shown } else { was })
}

#[cold]
#[inline(never)]
fn translate_groups(copy: &mut Copy, before: &Copy) {
    let len = copy.groups_len as usize;
    let was = |at: usize| if before.groups().len() == len { before.groups()[at] } else { u32::MAX };
    for (at, group) in copy.groups.iter_mut().take(len).enumerate() {
        *group = known(ids::group(*group), was(at), *group);
    }
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

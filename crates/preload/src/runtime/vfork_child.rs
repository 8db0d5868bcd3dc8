//! A child by `vfork`: it lives on its parent's memory and on the words of the thread that made
//! it, while that thread stands still and the others go on.
//!
//! What it does is mostly this: it closes, moves its standard descriptors, and executes a program of the
//! kernel's. All that goes to the kernel as it is, and what of ours it gives up is noted here. As soon
//! as it wants more of what is ours (opens a file in a mount, writes to one, changes into one,
//! executes one), it *settles*: a second child of its parent is made with a copy of the memory, takes
//! over the descriptors that were readied, goes on from there, and is the one that the
//! parent is told of. The first one ends without having touched what the parent has.
//!
//! ```text
//! parent  prepare: descriptors readied as for a fork, listed · signals blocked ─ vfork ─┐ stands still
//! child   arrive ─ kernel calls ─ exec: state from the list, slot to executing          │
//!            └ settle: clone(CLONE_PARENT) ─ child's end                                │
//!                          └ second child: a fork's first steps, table = list           │
//! parent  resume: lock and signals put right, slot given back or noted ◀────────────────┘
//! ```
//!
//! Invariants
//! - While `Tls::vfork_child` is set, the thread's words are the child's: `raw` sends every call to [`serve`].
//! - It changes nothing of its parent's: neither tables nor handlers nor the pool of placeholders.
//!   It takes one lock, that of the allocator, which its parent gives back if it died with it.

use crate::runtime::environ::Environment;
use crate::runtime::front_end::PROCESS;
use crate::runtime::kernel::Who;
use crate::runtime::operation::{block_signals, set_signals};
use crate::runtime::tls::Tls;
use crate::runtime::{child, dispatch, kernel, kernel_path, operation, phase, placeholders, thread, tls};
use core::ffi::{CStr, c_char, c_int};
use core::ptr::null_mut;
use pm::Errno;
use pm::file::File;
use pm::sys::{self, abi::*};
use posix::{CWD_FD, Entry, FD_MAX, ForkToken};

const HERE: i32 = -100;
const TIOCSCTTY: usize = 0x540e;
const PR_SET_PDEATHSIG: usize = 1;
const PR_GET_PDEATHSIG: usize = 2;
const AGAIN: i32 = 11;
/// Blocks that it leaves behind when it execs.
pub const BLOCKS_MAX: usize = 4;

type Strings = *const *mut c_char;

/// One of the descriptors that were readied.
#[derive(Clone, Copy)]
pub struct Descriptor {
    pub fd: u32,
    /// The child still has it.
    pub has: bool,
    pub entry: Entry,
}

/// What the child has of ours. The descriptors lie behind it, by size.
pub struct VforkChild {
    pub token: ForkToken,
    pub descriptors: *mut Descriptor,
    pub count: usize,
    /// The thread's own words, for afterwards.
    pub raw: u32,
    pub depth: u32,
    pub mask: u64,
    pub hidden: u64,
    /// Its robust list and one.
    pub robust_list: usize,
    pub thread: u32,
    /// The settled child; written by the kernel.
    pub settled: c_int,
    /// It has the slot in state *executing*.
    pub executing: bool,
    /// For a program, and what it was made from.
    pub environment: Option<Environment>,
    pub source: Strings,
    pub blocks: [*mut u8; BLOCKS_MAX],
}

impl VforkChild {
    fn descriptors(&mut self) -> &mut [Descriptor] {
        // SAFETY: `prepare` made room for so many, and wrote them.
        unsafe { core::slice::from_raw_parts_mut(self.descriptors, self.count) }
    }

    fn find(&mut self, fd: usize) -> Option<&mut Descriptor> {
        let descriptors = self.descriptors();
        let index = descriptors.binary_search_by_key(&fd, |one| one.fd as usize).ok()?;
        Some(&mut descriptors[index]).filter(|one| one.has)
    }

    fn has(&mut self, fd: usize) -> bool {
        fd < FD_MAX as usize && self.find(fd).is_some()
    }

    /// The child has given up these descriptors.
    fn gives_up(&mut self, first: usize, last: usize) {
        let gone = |one: &&mut Descriptor| (first..=last).contains(&(one.fd as usize));
        self.descriptors().iter_mut().filter(gone).for_each(|one| one.has = false);
        self.environment = None;
    }

    /// What a new program inherits.
    pub fn kept(&mut self) -> impl Iterator<Item = u32> {
        let kept = |one: &&mut Descriptor| one.has && (one.fd == CWD_FD || !one.entry.cloexec());
        self.descriptors().iter_mut().filter(kept).map(|one| one.fd)
    }
}

/// The child that is on this thread.
pub fn here(tls: &Tls) -> Option<&'static mut VforkChild> {
    // SAFETY: `prepare` made it, and frees it when the child, which alone runs until then, is gone.
    unsafe { tls.vfork_child.get().cast::<VforkChild>().as_mut() }
}

/// A block of the allocator's that will be left behind if the child execs.
pub fn note(block: *mut u8) {
    if let Some(child) = here(tls::get())
        && let Some(place) = child.blocks.iter_mut().find(|place| place.is_null())
    {
        *place = block;
    }
}

/// That block is about to be freed.
pub fn forget(block: *mut u8) {
    if let Some(child) = here(tls::get()) {
        child.blocks.iter_mut().filter(|place| **place == block).for_each(|place| *place = null_mut());
    }
}

/// Whether `fd` is ours, where the thread goes raw: a child by `vfork` that asks is about to use it.
#[cold]
pub fn is_ours(tls: &Tls, fd: i32) -> bool {
    here(tls).is_some_and(|child| child.has(fd as u32 as usize)) && settle(tls).is_ok()
}

/// A call of a thread that goes raw: the kernel's result, or `None`, if the thread does not go raw any more.
///
/// # Safety
/// As for the system call.
pub unsafe fn serve(tls: &Tls, nr: usize, args: [usize; 6]) -> Result<Option<isize>, i32> {
    let result = match here(tls) {
        None => match placeholders::before_kernel(nr, args) {
            Some(result) => Some(result),
            // SAFETY: by contract.
            None => Some(unsafe { sys::raw(nr, args) }),
        },
        // SAFETY: by contract.
        Some(child) => unsafe { kernels(child, nr, args) },
    };
    if result.is_none() {
        settle(tls)?;
    }
    Ok(result)
}

/// Makes a call that has nothing to do with what is ours, or only gives it up. `None`: another one.
///
/// # Safety
/// As for the system call.
unsafe fn kernels(child: &mut VforkChild, nr: usize, args: [usize; 6]) -> Option<isize> {
    // SAFETY: by contract.
    let raw = || unsafe { sys::raw(nr, args) };
    let [first, second, ..] = args;
    match nr as u32 {
        __NR_close => {
            let result = raw();
            if result >= 0 && child.has(first) {
                child.gives_up(first, first);
            }
            Some(result)
        }
        __NR_close_range if args[2] == 0 => {
            let result = raw();
            if result >= 0 {
                child.gives_up(first as u32 as usize, (second as u32 as usize).min(FD_MAX as usize - 1));
            }
            Some(result)
        }
        nr if is_dup(nr) && !child.has(first) => {
            let result = raw();
            if result >= 0 && first != second && child.has(second) {
                child.gives_up(second, second);
            }
            Some(result)
        }
        __NR_fcntl if child.has(first) => {
            let on = args[2] as u32 & FD_CLOEXEC != 0;
            let one = child.find(first)?;
            match second as u32 {
                F_GETFD => Some(if one.entry.cloexec() { FD_CLOEXEC as isize } else { 0 }),
                F_SETFD => {
                    one.entry = one.entry.with_cloexec(on);
                    child.environment = None;
                    Some(0)
                }
                _ => None,
            }
        }
        // The terminal would be lost with the child.
        __NR_ioctl if second == TIOCSCTTY => None,
        __NR_read | __NR_write | __NR_pread64 | __NR_pwrite64 | __NR_readv | __NR_writev | __NR_fstat | __NR_lseek | __NR_dup
        | __NR_fcntl | __NR_ioctl | __NR_flock | __NR_fsync | __NR_ftruncate | __NR_getdents64 => (!child.has(first)).then(raw),
        __NR_fchdir if !child.has(first) => {
            let result = raw();
            if result == 0 {
                child.gives_up(CWD_FD as usize, CWD_FD as usize);
            }
            Some(result)
        }
        __NR_chdir => {
            // SAFETY: by contract.
            let result = unsafe { by_path(first, raw) }?;
            if result == 0 {
                child.gives_up(CWD_FD as usize, CWD_FD as usize);
            }
            Some(result)
        }
        // A terminal that a session's leader opens is the session's.
        __NR_openat if !leads_session() => {
            // SAFETY: by contract.
            unsafe { by_path(second, raw) }
        }
        // SAFETY: by contract.
        __NR_newfstatat | __NR_statx | __NR_faccessat | __NR_faccessat2 | __NR_readlinkat => unsafe { by_path(second, raw) },
        _ => None,
    }
}

fn is_dup(nr: u32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if nr == __NR_dup2 {
        return true;
    }
    nr == __NR_dup3
}

/// Whether a path is plainly the kernel's, as far as its text tells: absolute, without detours, in no
/// mount, and none of the names of our descriptors.
///
/// # Safety
/// `path` is bad or a NUL-terminated text.
pub unsafe fn is_kernels(path: usize) -> bool {
    // SAFETY: by contract.
    if unsafe { kernel_path::is_kernel_path(path) } {
        return true;
    }
    if posix::bad_pointer(path) {
        return false;
    }
    let Some(len) = pm::faults::text_len(path as *const u8) else { return true };
    // SAFETY: so many bytes have been read.
    let text = unsafe { core::slice::from_raw_parts(path as *const u8, len) };
    let is_plain = text.first() == Some(&b'/') && !posix::has_detours(text);
    let may_name_ours = [&b"/proc/"[..], b"/dev/fd", b"/dev/std"].iter().any(|begin| text.starts_with(begin));
    is_plain && !may_name_ours && PROCESS.mounts.find(text).is_none()
}

/// Makes a call on a path that is plainly the kernel's; `None`: it is not.
///
/// # Safety
/// `path` is bad or a NUL-terminated text.
unsafe fn by_path(path: usize, raw: impl FnOnce() -> isize) -> Option<isize> {
    // SAFETY: by contract.
    if !unsafe { is_kernels(path) } {
        return None;
    }
    let result = raw();
    // SAFETY: as above, and not bad.
    (!matches!(result, -2 | -20 | -40) || unsafe { is_missing(path as *const c_char) }).then_some(result)
}

/// Whether a path of the kernel's leads nowhere, and not by a symlink that may lead into a mount: one of its
/// names is not there at all.
///
/// # Safety
/// `path` is an absolute, NUL-terminated path.
pub unsafe fn is_missing(path: *const c_char) -> bool {
    // SAFETY: by contract.
    let path = unsafe { CStr::from_ptr(path) };
    why_missing(path).is_some() || is_missing_behind_links(path)
}

/// Why an absolute path of the kernel's leads nowhere, if it meets no symlink as far as it goes; `None` where that can't be told.
pub fn why_missing(path: &CStr) -> Option<Errno> {
    File::handle_followed(path).err().filter(|errno| matches!(*errno, Errno::ENOENT | Errno::ENOTDIR))
}

/// The same where there are symlinks that lead to something.
fn is_missing_behind_links(path: &CStr) -> bool {
    let (mut text, bytes) = ([0u8; 1024], path.to_bytes());
    let Some(room) = text.get_mut(..bytes.len()) else { return false };
    room.copy_from_slice(bytes);
    // From the first name on: each that is there must be what it seems.
    let ends = (1..=bytes.len()).filter(|&end| end == bytes.len() || bytes[end] == b'/');
    for end in ends {
        let Some(behind) = text.get_mut(end) else { return false };
        let before = core::mem::replace(behind, 0);
        let mut stat = core::mem::MaybeUninit::<stat>::uninit();
        // SAFETY: a NUL-terminated text, and room for a `struct stat`.
        let found = unsafe { pm::call!(__NR_newfstatat, HERE, text.as_ptr(), stat.as_mut_ptr(), AT_SYMLINK_NOFOLLOW) };
        // SAFETY: as above.
        let leads_on = unsafe { pm::call!(__NR_newfstatat, HERE, text.as_ptr(), stat.as_mut_ptr(), 0) }.is_ok();
        text[end] = before;
        match found {
            Err(Errno::ENOENT | Errno::ENOTDIR) => return true,
            Ok(_) if leads_on => {}
            _ => return false,
        }
    }
    false
}

/// Calls without arguments, or with 0 for "us".
fn own(nr: u32) -> isize {
    // SAFETY: no pointers.
    unsafe { sys::raw(nr as usize, [0; 6]) }
}

fn leads_session() -> bool {
    kernel::own(Who::Session) == kernel::own(Who::Process)
}

/// Whether calls of this thread go through `posix`, where a child by `vfork` shall have memory of its own first.
pub fn serves(tls: &Tls) -> bool {
    phase::is_active(tls) || settle(tls).is_ok_and(|settled| settled)
}

/// Gives a child by `vfork` memory of its own: `true` in the process that goes on, `false` where
/// there was nothing to do.
#[inline]
pub fn settle(tls: &Tls) -> Result<bool, i32> {
    match here(tls) {
        None => Ok(false),
        Some(child) => settle_child(tls, child).map(|()| true),
    }
}

#[cold]
fn settle_child(tls: &Tls, child: &mut VforkChild) -> Result<(), i32> {
    let mask = block_signals();
    let (session, group) = (leads_session(), kernel::own(Who::Group) == kernel::own(Who::Process));
    let mut signal: c_int = 0;
    // SAFETY: the number outlives the call.
    let _ = unsafe { pm::call!(__NR_prctl, PR_GET_PDEATHSIG, &raw mut signal) };
    let flags = (CLONE_PARENT | CLONE_PARENT_SETTID) as usize;
    // SAFETY: no shared memory, no other stack; the number is our parent's to read.
    let made = unsafe { sys::raw(__NR_clone as usize, [flags, 0, &raw mut child.settled as usize, 0, 0, 0]) };
    if made < 0 {
        set_signals(mask);
        return Err(AGAIN);
    }
    if made > 0 {
        loop {
            own(__NR_exit_group);
        }
    }
    pm::mutex::renew_robust_list(child.robust_list, child.thread);
    tls.vfork_child.set(null_mut());
    tls.aside.raw.set(child.raw);
    operation::enter(tls);
    child::begins(tls, child.token);
    let descriptors = child.descriptors();
    PROCESS.guest_settled(thread::state(tls), descriptors.iter().map(|one| (one.fd, one.entry, one.has)));
    placeholders::settle(descriptors.iter().filter(|one| one.has && one.fd != CWD_FD).map(|one| one.fd));
    operation::leave(tls);
    // What is not inherited, once more.
    if session {
        own(__NR_setsid);
    } else if group {
        own(__NR_setpgid);
    }
    if signal != 0 {
        // SAFETY: no pointers.
        let _ = unsafe { pm::call!(__NR_prctl, PR_SET_PDEATHSIG, signal) };
    }
    child.environment = None;
    set_signals(mask);
    dispatch::set_here();
    Ok(())
}

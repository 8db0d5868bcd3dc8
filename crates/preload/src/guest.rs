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
//! - While `Tls::guest` is set, the thread's words are the child's: `raw` sends every call to [`serve`].
//! - A guest changes nothing of its parent's: neither tables nor handlers nor the pool of placeholders.
//!   It takes one lock, that of the allocator, which its parent gives back if it died with it.

use crate::door::PROCESS;
use crate::environ::Environment;
use crate::exec::STATE_MAX;
use crate::spawn::{block_signals, set_signals};
use crate::{alloc, errno, foreign, fork, hand_over, init, placeholders, thread, tls, tls::Tls};
use core::ffi::{c_char, c_int};
use core::ptr::null_mut;
use pm::sys::{self, abi::*};
use posix::{CWD_FD, Entry, FD_MAX, ForkToken};

const HERE: i32 = -100;
const TIOCSCTTY: usize = 0x540e;
const PR_SET_PDEATHSIG: usize = 1;
const PR_GET_PDEATHSIG: usize = 2;
const AGAIN: i32 = 11;
/// Room for files that other threads open while the list is made; a child that needs more is a fork.
const MORE: usize = 64;
/// Blocks that it leaves behind when it execs.
const BLOCKS_MAX: usize = 4;

type Strings = *const *mut c_char;

/// One of the descriptors that were readied.
#[derive(Clone, Copy)]
struct Number {
    fd: u32,
    /// The child still has it.
    has: bool,
    entry: Entry,
}

/// What the child has of ours. The numbers lie behind it, by size.
pub struct Guest {
    token: ForkToken,
    numbers: *mut Number,
    count: usize,
    /// The thread's own words, for afterwards.
    raw: u32,
    depth: u32,
    mask: u64,
    hidden: u64,
    /// Its robust list and number.
    robust_list: usize,
    thread: u32,
    /// The settled child; written by the kernel.
    settled: c_int,
    /// It has the slot in state *executing*.
    executing: bool,
    /// For a program, and what it was made from.
    environment: Option<Environment>,
    source: Strings,
    blocks: [*mut u8; BLOCKS_MAX],
}

impl Guest {
    fn numbers(&mut self) -> &mut [Number] {
        // SAFETY: `prepare` made room for so many, and wrote them.
        unsafe { core::slice::from_raw_parts_mut(self.numbers, self.count) }
    }

    fn find(&mut self, fd: usize) -> Option<&mut Number> {
        let numbers = self.numbers();
        let index = numbers.binary_search_by_key(&fd, |number| number.fd as usize).ok()?;
        Some(&mut numbers[index]).filter(|number| number.has)
    }

    fn has(&mut self, fd: usize) -> bool {
        fd < FD_MAX as usize && self.find(fd).is_some()
    }

    /// The child has given up these numbers.
    fn gives_up(&mut self, first: usize, last: usize) {
        let gone = |number: &&mut Number| (first..=last).contains(&(number.fd as usize));
        self.numbers().iter_mut().filter(gone).for_each(|number| number.has = false);
        self.environment = None;
    }

    fn kept(&mut self) -> impl Iterator<Item = u32> {
        let kept = |number: &&mut Number| number.has && (number.fd == CWD_FD || !number.entry.cloexec());
        self.numbers().iter_mut().filter(kept).map(|number| number.fd)
    }
}

fn here(tls: &Tls) -> Option<&'static mut Guest> {
    // SAFETY: `prepare` made it, and frees it when the child, which alone runs until then, is gone.
    unsafe { tls.guest.get().as_mut() }
}

/// Whether this is such a child.
pub fn is_here() -> bool {
    !tls::get().guest.get().is_null()
}

/// Before `vfork`: 0 if it is to be a fork.
pub extern "C" fn prepare() -> c_int {
    let tls = tls::get();
    if settle(tls).is_err() || !init::is_active(tls) || tls.depth.get() != 0 {
        return 0;
    }
    placeholders::flush();
    let mask = block_signals();
    tls::enter(tls);
    let at = ready(tls, mask);
    tls::leave(tls);
    if at.is_null() {
        set_signals(mask);
        return 0;
    }
    tls.guest.set(at);
    tls.aside.raw.set(tls.aside.raw.get() + 1);
    1
}

/// What the child will need; null: it can't be. Within an operation.
fn ready(tls: &Tls, mask: u64) -> *mut Guest {
    let state = thread::state(tls);
    let Ok(token) = PROCESS.guest_prepare(state) else { return null_mut() };
    let entries = || PROCESS.descriptors.range(0, FD_MAX);
    // Other threads may open more meanwhile.
    let room = entries().count() + MORE;
    let at = alloc::alloc(size_of::<Guest>() + room * size_of::<Number>()).cast::<Guest>();
    if at.is_null() {
        PROCESS.fork_failed(state, token);
        return at;
    }
    // SAFETY: inside the block, or its end.
    let numbers = unsafe { at.add(1) }.cast::<Number>();
    let mut count = 0;
    let cwd = PROCESS.descriptors.get(CWD_FD).map(|cwd| (CWD_FD, cwd));
    for (fd, entry) in entries().take(room - 1).chain(cwd) {
        // SAFETY: the block has room for so many.
        unsafe { numbers.add(count).write(Number { fd, has: true, entry }) };
        count += 1;
    }
    if count == room {
        PROCESS.fork_failed(state, token);
        // SAFETY: made above.
        unsafe { alloc::free(at.cast()) };
        return null_mut();
    }
    let guest = Guest {
        token,
        numbers,
        count,
        raw: tls.aside.raw.get(),
        depth: tls.depth.get() - 1,
        mask,
        hidden: tls.hidden.get(),
        robust_list: pm::mutex::robust_list(),
        thread: pm::mutex::thread_number(),
        settled: 0,
        executing: false,
        environment: None,
        source: core::ptr::null(),
        blocks: [null_mut(); BLOCKS_MAX],
    };
    // SAFETY: the block is large enough and aligned to 16.
    unsafe { at.write(guest) };
    at
}

/// In the child, first thing.
pub extern "C" fn arrive() -> c_int {
    if let Some(guest) = here(tls::get()) {
        set_signals(guest.mask);
    }
    0
}

/// In the parent, when the child has memory of its own or is gone; `made` is what `vfork` gave.
/// The result for the program.
pub extern "C" fn resume(made: isize) -> c_int {
    let tls = tls::get();
    let at = tls.guest.replace(null_mut());
    // SAFETY: `prepare` made it; the child is gone.
    let Guest { token, raw, depth, mask, hidden, settled, executing, environment, blocks, .. } = unsafe { at.read() };
    alloc::guest_gone(at);
    tls.aside.raw.set(raw);
    tls.depth.set(depth);
    tls.hidden.set(hidden);
    // What was put off was the child's.
    tls.pending.set(0);
    tls.told.iter().for_each(|told| told.signal.set(0));
    tls::enter(tls);
    let mut child = made as c_int;
    if made < 0 {
        PROCESS.fork_failed(thread::state(tls), token);
    } else if settled > 0 {
        PROCESS.fork_done(token, settled as u32);
        reap(child);
        child = settled;
    } else if !executing {
        PROCESS.spawn_failed(thread::state(tls), token);
    }
    drop(environment);
    for block in blocks.into_iter().chain([at.cast()]) {
        // SAFETY: from our allocator, or null; nobody has it any more.
        unsafe { alloc::free(block) };
    }
    tls::leave(tls);
    set_signals(mask);
    if made < 0 { errno::ret_int(made) } else { child }
}

/// The child that the settled one has taken the place of is no news to the program.
fn reap(child: c_int) {
    // __WALL
    // SAFETY: no pointers.
    while unsafe { pm::call!(__NR_wait4, child, 0, 0x4000_0000, 0) } == Err(pm::Errno::EINTR) {}
}

/// A block of the allocator's that will be left behind if the child execs.
pub fn note(block: *mut u8) {
    if let Some(guest) = here(tls::get())
        && let Some(place) = guest.blocks.iter_mut().find(|place| place.is_null())
    {
        *place = block;
    }
}

/// That block is about to be freed.
pub fn forget(block: *mut u8) {
    if let Some(guest) = here(tls::get()) {
        guest.blocks.iter_mut().filter(|place| **place == block).for_each(|place| *place = null_mut());
    }
}

/// Whether `fd` is ours, where the thread goes raw: a child by `vfork` that asks is about to use it.
#[cold]
pub fn is_ours(tls: &Tls, fd: i32) -> bool {
    here(tls).is_some_and(|guest| guest.has(fd as u32 as usize)) && settle(tls).is_ok()
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
        Some(guest) => unsafe { kernels(guest, nr, args) },
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
unsafe fn kernels(guest: &mut Guest, nr: usize, args: [usize; 6]) -> Option<isize> {
    // SAFETY: by contract.
    let raw = || unsafe { sys::raw(nr, args) };
    let [first, second, ..] = args;
    match nr as u32 {
        __NR_close => {
            let result = raw();
            if result >= 0 && guest.has(first) {
                guest.gives_up(first, first);
            }
            Some(result)
        }
        __NR_close_range if args[2] == 0 => {
            let result = raw();
            if result >= 0 {
                guest.gives_up(first as u32 as usize, (second as u32 as usize).min(FD_MAX as usize - 1));
            }
            Some(result)
        }
        nr if is_dup(nr) && !guest.has(first) => {
            let result = raw();
            if result >= 0 && first != second && guest.has(second) {
                guest.gives_up(second, second);
            }
            Some(result)
        }
        __NR_fcntl if guest.has(first) => {
            let on = args[2] as u32 & FD_CLOEXEC != 0;
            let number = guest.find(first)?;
            match second as u32 {
                F_GETFD => Some(if number.entry.cloexec() { FD_CLOEXEC as isize } else { 0 }),
                F_SETFD => {
                    number.entry = number.entry.with_cloexec(on);
                    guest.environment = None;
                    Some(0)
                }
                _ => None,
            }
        }
        // The terminal would be lost with the child.
        __NR_ioctl if second == TIOCSCTTY => None,
        __NR_read | __NR_write | __NR_pread64 | __NR_pwrite64 | __NR_readv | __NR_writev | __NR_fstat | __NR_lseek | __NR_dup
        | __NR_fcntl | __NR_ioctl | __NR_flock | __NR_fsync | __NR_ftruncate | __NR_getdents64 => (!guest.has(first)).then(raw),
        __NR_fchdir if !guest.has(first) => {
            let result = raw();
            if result == 0 {
                guest.gives_up(CWD_FD as usize, CWD_FD as usize);
            }
            Some(result)
        }
        __NR_chdir => {
            // SAFETY: by contract.
            let result = unsafe { by_path(first, raw) }?;
            if result == 0 {
                guest.gives_up(CWD_FD as usize, CWD_FD as usize);
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
unsafe fn is_kernels(path: usize) -> bool {
    // SAFETY: by contract.
    if unsafe { foreign::is_foreign(path) } {
        return true;
    }
    if posix::bad_pointer(path) {
        return false;
    }
    let Some(len) = pm::faults::text_len(path as *const u8) else { return true };
    // SAFETY: so many bytes have been read.
    let text = unsafe { core::slice::from_raw_parts(path as *const u8, len) };
    let is_plain = text.first() == Some(&b'/') && !text.windows(2).any(|pair| matches!(pair, b"//" | b"/."));
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
unsafe fn is_missing(path: *const c_char) -> bool {
    let mut text = [0u8; 1024];
    // SAFETY: by contract.
    let bytes = unsafe { core::ffi::CStr::from_ptr(path) }.to_bytes();
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
            Err(pm::Errno::ENOENT | pm::Errno::ENOTDIR) => return true,
            Ok(_) if leads_on => {}
            _ => return false,
        }
    }
    false
}

/// Executes a program that is plainly the kernel's and that we are loaded into; returns only on
/// failure, with the negated error number. `None`: not so.
///
/// # Safety
/// The pointers are the program's.
pub unsafe fn exec(dirfd: i32, path: *const c_char, argv: Strings, source: Strings, flags: i32) -> Option<isize> {
    let guest = here(tls::get())?;
    // SAFETY: by contract.
    if dirfd != HERE || flags != 0 || !unsafe { is_kernels(path as usize) } {
        return None;
    }
    // SAFETY: by contract.
    if !unsafe { hand_over::loads_us(HERE, path, 0) } {
        return None;
    }
    // SAFETY: by contract.
    unsafe { make_environment(guest, source) }?;
    guest.kept().filter(|&fd| fd != CWD_FD).for_each(|fd| placeholders::set_cloexec(fd, false));
    guest.executing = true;
    PROCESS.spawn_exec(&guest.token, &mut []);
    let environment = guest.environment.as_ref()?.as_ptr();
    crate::signals::pass_on(false);
    // SAFETY: the program's strings, and ours.
    let result = unsafe { sys::raw(__NR_execve as usize, [path as usize, argv as usize, environment as usize, 0, 0, 0]) };
    crate::signals::pass_on(true);
    PROCESS.spawn_undone(&guest.token);
    guest.executing = false;
    guest.kept().filter(|&fd| fd != CWD_FD).for_each(|fd| placeholders::set_cloexec(fd, true));
    let is_known = match result {
        // SAFETY: by contract.
        -2 | -20 | -40 => unsafe { is_missing(path) },
        // What the kernel may not look into may be a mount point.
        -13 => false,
        _ => true,
    };
    is_known.then_some(result)
}

/// # Safety
/// `source` is the program's environment.
unsafe fn make_environment(guest: &mut Guest, source: Strings) -> Option<()> {
    if guest.environment.is_some() && guest.source == source {
        return Some(());
    }
    let block = alloc::alloc(STATE_MAX);
    if block.is_null() {
        return None;
    }
    // SAFETY: a block of that size, ours alone until it is freed below; zeroes are a valid value.
    let room = unsafe {
        core::ptr::write_bytes(block, 0, STATE_MAX);
        core::slice::from_raw_parts_mut(block, STATE_MAX)
    };
    let token = guest.token;
    let state = PROCESS.guest_state(&token, guest.kept(), room);
    // SAFETY: by contract.
    guest.environment = state.ok().and_then(|len| unsafe { Environment::new(source, &room[..len]) });
    guest.source = source;
    // SAFETY: not used any more.
    unsafe { alloc::free(block) };
    guest.environment.as_ref().map(|_| ())
}

/// Calls without arguments, or with 0 for "us".
fn own(nr: u32) -> isize {
    // SAFETY: no pointers.
    unsafe { sys::raw(nr as usize, [0; 6]) }
}

fn leads_session() -> bool {
    own(__NR_getsid) == own(__NR_getpid)
}

/// Gives a child by `vfork` memory of its own: `true` in the process that goes on, `false` where
/// there was nothing to do.
#[inline]
pub fn settle(tls: &Tls) -> Result<bool, i32> {
    match here(tls) {
        None => Ok(false),
        Some(guest) => settle_guest(tls, guest).map(|()| true),
    }
}

#[cold]
fn settle_guest(tls: &Tls, guest: &mut Guest) -> Result<(), i32> {
    let mask = block_signals();
    let (session, group) = (leads_session(), own(__NR_getpgid) == own(__NR_getpid));
    let mut signal: c_int = 0;
    // SAFETY: the number outlives the call.
    let _ = unsafe { pm::call!(__NR_prctl, PR_GET_PDEATHSIG, &raw mut signal) };
    let flags = (CLONE_PARENT | CLONE_PARENT_SETTID) as usize;
    // SAFETY: no shared memory, no other stack; the number is our parent's to read.
    let made = unsafe { sys::raw(__NR_clone as usize, [flags, 0, &raw mut guest.settled as usize, 0, 0, 0]) };
    if made < 0 {
        set_signals(mask);
        return Err(AGAIN);
    }
    if made > 0 {
        loop {
            own(__NR_exit_group);
        }
    }
    pm::mutex::renew_robust_list(guest.robust_list, guest.thread);
    tls.guest.set(null_mut());
    tls.aside.raw.set(guest.raw);
    tls::enter(tls);
    fork::begins(tls, guest.token);
    let numbers = guest.numbers();
    PROCESS.guest_settled(thread::state(tls), numbers.iter().map(|number| (number.fd, number.entry, number.has)));
    placeholders::settle(numbers.iter().filter(|number| number.has && number.fd != CWD_FD).map(|number| number.fd));
    tls::leave(tls);
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
    guest.environment = None;
    set_signals(mask);
    Ok(())
}

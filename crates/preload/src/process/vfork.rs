//! `vfork` from the parent's side, and how its child executes ([`crate::runtime::vfork_child`] says what the child may do).

use crate::process::hand_over;
use crate::process::libraries::preloaded;
use crate::runtime::environ::{Environment, STATE_MAX};
use crate::runtime::front_end::PROCESS;
use crate::runtime::operation::{block_signals, set_signals};
use crate::runtime::tls::Tls;
use crate::runtime::vfork_child::{BLOCKS_MAX, Descriptor, VforkChild, here, is_kernels, is_missing, settle, why_missing};
use crate::runtime::{alloc, dispatch, errno, operation, phase, placeholders, signals, thread, tls};
use core::ffi::{CStr, c_char, c_int};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use pm::sys::{self, abi::*};
use posix::{CWD_FD, FD_MAX};

const HERE: i32 = -100;
/// Room for files that other threads open while the list is made; a child that needs more is a fork.
const MORE: usize = 64;

type Strings = *const *mut c_char;

/// Before `vfork`: 0 if it is to be a fork.
pub extern "C" fn prepare() -> c_int {
    let tls = tls::get();
    if settle(tls).is_err() || !phase::is_active(tls) || tls.depth.get() != 0 || !can_settle() {
        return 0;
    }
    placeholders::flush();
    let mask = block_signals();
    operation::enter(tls);
    let at = ready(tls, mask);
    operation::leave(tls);
    if at.is_null() {
        set_signals(mask);
        return 0;
    }
    tls.vfork_child.set(at.cast());
    tls.aside.raw.set(tls.aside.raw.get() + 1);
    1
}

/// Whether the child can give another process its place (`CLONE_PARENT`), which settling takes. gVisor, which gives itself out as
/// this one kernel, makes that a child of the child's, and nobody hears of its end.
fn can_settle() -> bool {
    const GVISOR: &[u8] = b"#1 SMP Sun Jan 10 15:06:54 PST 2016";
    // Six texts of this length; the fourth is the version.
    const TEXT: usize = 65;
    // 0: not known, 1: it can, 2: it can't.
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    if KNOWN.load(Relaxed) == 0 {
        let mut names = [0u8; 6 * TEXT];
        // SAFETY: the buffer is a `struct utsname`.
        let asked = unsafe { pm::call!(__NR_uname, names.as_mut_ptr()) };
        let is_gvisor = asked.is_ok() && names[3 * TEXT..].starts_with(GVISOR);
        KNOWN.store(if is_gvisor { 2 } else { 1 }, Relaxed);
    }
    KNOWN.load(Relaxed) == 1
}

/// What the child will need; null: it can't be. Within an operation.
fn ready(tls: &Tls, mask: u64) -> *mut VforkChild {
    let state = thread::state(tls);
    let Ok(token) = PROCESS.guest_prepare(state) else { return null_mut() };
    let entries = || PROCESS.descriptors.range(0, FD_MAX);
    // Other threads may open more meanwhile.
    let room = entries().count() + MORE;
    let at = alloc::alloc(size_of::<VforkChild>() + room * size_of::<Descriptor>()).cast::<VforkChild>();
    if at.is_null() {
        PROCESS.fork_failed(state, token);
        return at;
    }
    // SAFETY: inside the block, or its end.
    let descriptors = unsafe { at.add(1) }.cast::<Descriptor>();
    let mut count = 0;
    let cwd = PROCESS.descriptors.get(CWD_FD).map(|cwd| (CWD_FD, cwd));
    for (fd, entry) in entries().take(room - 1).chain(cwd) {
        // SAFETY: the block has room for so many.
        unsafe { descriptors.add(count).write(Descriptor { fd, has: true, entry }) };
        count += 1;
    }
    if count == room {
        PROCESS.fork_failed(state, token);
        // SAFETY: made above.
        unsafe { alloc::free(at.cast()) };
        return null_mut();
    }
    let child = VforkChild {
        token,
        descriptors,
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
    unsafe { at.write(child) };
    at
}

/// In the child, first thing.
pub extern "C" fn arrive() -> c_int {
    if let Some(child) = here(tls::get()) {
        set_signals(child.mask);
    }
    dispatch::set_here();
    0
}

/// In the parent, when the child has memory of its own or is gone; `made` is what `vfork` gave.
/// The result for the program.
pub extern "C" fn resume(made: isize) -> c_int {
    let tls = tls::get();
    let at = tls.vfork_child.replace(null_mut()).cast::<VforkChild>();
    // SAFETY: `prepare` made it; the child is gone.
    let VforkChild { token, raw, depth, mask, hidden, settled, executing, environment, blocks, .. } = unsafe { at.read() };
    alloc::child_gone(at.cast());
    tls.aside.raw.set(raw);
    tls.depth.set(depth);
    tls.hidden.set(hidden);
    // What was put off was the child's.
    tls.pending.set(0);
    tls.told.iter().for_each(|told| told.signal.set(0));
    operation::enter(tls);
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
    operation::leave(tls);
    set_signals(mask);
    if made < 0 { errno::ret_int(made) } else { child }
}

/// The child that the settled one has taken the place of is no news to the program.
fn reap(child: c_int) {
    // __WALL
    // SAFETY: no pointers.
    while unsafe { pm::call!(__NR_wait4, child, 0, 0x4000_0000, 0) } == Err(pm::Errno::EINTR) {}
}

/// Executes a program that is plainly the kernel's and that we are loaded into; returns only on
/// failure, with the negated error one. `None`: not so.
///
/// # Safety
/// The pointers are the program's.
pub unsafe fn exec(dirfd: i32, path: *const c_char, argv: Strings, source: Strings, flags: i32) -> Option<isize> {
    let child = here(tls::get())?;
    // SAFETY: by contract.
    if dirfd != HERE || flags != 0 || unsafe { preloaded::has_suspects(source) || !is_kernels(path as usize) } {
        return None;
    }
    // A program that is looked for in each directory of a list is missing in most of them.
    if pm::faults::text_len(path.cast()).is_some() {
        // SAFETY: it can be read up to its end.
        let path = unsafe { CStr::from_ptr(path) };
        if let Some(errno) = why_missing(path) {
            return Some(-(errno.0 as isize));
        }
    }
    // SAFETY: by contract.
    if !unsafe { hand_over::loads_us(HERE, path, 0) } {
        return None;
    }
    // SAFETY: by contract.
    unsafe { make_environment(child, source) }?;
    child.kept().filter(|&fd| fd != CWD_FD).for_each(|fd| placeholders::set_cloexec(fd, false));
    child.executing = true;
    PROCESS.spawn_exec(&child.token, &mut []);
    let environment = child.environment.as_ref()?.as_ptr();
    signals::pass_on(false);
    // SAFETY: the program's strings, and ours.
    let result = unsafe { sys::raw(__NR_execve as usize, [path as usize, argv as usize, environment as usize, 0, 0, 0]) };
    signals::pass_on(true);
    PROCESS.spawn_undone(&child.token);
    child.executing = false;
    child.kept().filter(|&fd| fd != CWD_FD).for_each(|fd| placeholders::set_cloexec(fd, true));
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
unsafe fn make_environment(child: &mut VforkChild, source: Strings) -> Option<()> {
    if child.environment.is_some() && child.source == source {
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
    let token = child.token;
    let state = PROCESS.guest_state(&token, child.kept(), room);
    // SAFETY: by contract.
    child.environment = state.ok().and_then(|len| unsafe { Environment::new(source, &room[..len]) });
    child.source = source;
    // SAFETY: not used any more.
    unsafe { alloc::free(block) };
    child.environment.as_ref().map(|_| ())
}

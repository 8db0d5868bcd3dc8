//! posix_spawn.
//!
//! When nothing of ours is involved, libc's own `posix_spawn` runs with a rebuilt
//! environment (its child shares our memory, but makes no call through us). When
//! the child only inherits what is ours, it borrows our memory as well ([`borrowed`]). Else
//! we do it ourselves: fork, the file actions through our own calls, exec; a pipe
//! that exec closes brings the child's error number back.

use crate::actions::{Step, Steps, copy, forget, note};
use crate::borrowed;
use crate::exec::{Ready, Whose, leads_in, search, whose};
use crate::fork::quiet_fork;
use crate::patch::raw_during;
use crate::serve;
use crate::symbols::identity::ask_again;
use crate::{call, environ::Environment, errno, guest, init, libc, next, placeholders, signals, tls};
use core::ffi::{CStr, c_char, c_int, c_void};
use pm::sys::{self, abi::*};

/// An array of strings that ends with null.
pub type Strings = *const *mut c_char;
type Spawn = unsafe extern "C" fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;

const HERE: i32 = -100;
const ENOENT: i32 = 2;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;

/// What the attribute object says.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) flags: i16,
    group: c_int,
    defaults: [u64; 16],
    pub(crate) mask: [u64; 16],
    policy: c_int,
    priority: c_int,
}

const RESETIDS: i16 = 1;
const SETPGROUP: i16 = 2;
const SETSIGDEF: i16 = 4;
pub(crate) const SETSIGMASK: i16 = 8;
const SETSCHEDPARAM: i16 = 0x10;
const SETSCHEDULER: i16 = 0x20;
const SETSID: i16 = 0x80;

#[link(name = "c")]
unsafe extern "C" {
    fn posix_spawnattr_getflags(attr: *const c_void, out: *mut i16) -> c_int;
    fn posix_spawnattr_getpgroup(attr: *const c_void, out: *mut c_int) -> c_int;
    fn posix_spawnattr_getsigdefault(attr: *const c_void, out: *mut u64) -> c_int;
    fn posix_spawnattr_getsigmask(attr: *const c_void, out: *mut u64) -> c_int;
    fn posix_spawnattr_getschedpolicy(attr: *const c_void, out: *mut c_int) -> c_int;
    fn posix_spawnattr_getschedparam(attr: *const c_void, out: *mut c_int) -> c_int;
}

impl Attributes {
    /// The signals that the new program is to have with their defaults, as a mask.
    pub(crate) fn defaults(&self) -> u64 {
        if self.flags & SETSIGDEF != 0 { self.defaults[0] } else { 0 }
    }
}

/// # Safety
/// `attr` is null or an attribute object.
pub(crate) unsafe fn attributes(attr: *const c_void) -> Attributes {
    let mut out = Attributes::default();
    if attr.is_null() {
        return out;
    }
    // SAFETY: by contract; every place has room for what is asked.
    unsafe { posix_spawnattr_getflags(attr, &mut out.flags) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_getpgroup(attr, &mut out.group) };
    // SAFETY: as above; a `sigset_t` is 128 bytes.
    unsafe { posix_spawnattr_getsigdefault(attr, out.defaults.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_getsigmask(attr, out.mask.as_mut_ptr()) };
    // SAFETY: as above.
    unsafe { posix_spawnattr_getschedpolicy(attr, &mut out.policy) };
    // SAFETY: as above; a `sched_param` is one int.
    unsafe { posix_spawnattr_getschedparam(attr, &mut out.priority) };
    out
}

/// Everything that a spawn is asked for.
pub struct Order {
    pub(crate) file: *const c_char,
    pub(crate) actions: *const c_void,
    pub(crate) attr: *const c_void,
    pub(crate) argv: Strings,
    pub(crate) envp: Strings,
    pub(crate) search: bool,
}

/// posix_spawn and posix_spawnp: 0 or an error number.
///
/// # Safety
/// The order's pointers are the program's.
pub unsafe fn spawn(pid: *mut c_int, order: &Order) -> i32 {
    if !init::is_mounted() {
        // SAFETY: by contract.
        return unsafe { libc_spawn(pid, order, order.envp) };
    }
    if let Err(errno) = guest::settle(tls::get()) {
        return errno;
    }
    let Some(steps) = Steps::of(order.actions) else { return ENOMEM };
    // SAFETY: by contract.
    if unsafe { needs_us(order, &steps) } {
        // SAFETY: by contract.
        return unsafe { borrowed::spawn(pid, order, &steps).unwrap_or_else(|| own_spawn(pid, order, &steps)) };
    }
    // SAFETY: by contract.
    let Some(environment) = (unsafe { Environment::new(order.envp, b"") }) else { return ENOMEM };
    // SAFETY: by contract.
    let result = unsafe { libc_spawn(pid, order, environment.as_ptr()) };
    // SAFETY: by contract.
    if result == ENOENT && !order.search && unsafe { leads_in(HERE, order.file, 0) } {
        // SAFETY: by contract.
        return unsafe { own_spawn(pid, order, &steps) };
    }
    result
}

/// Whether the child needs anything of ours before it execs.
///
/// # Safety
/// The order's pointers are the program's.
unsafe fn needs_us(order: &Order, steps: &Steps) -> bool {
    // SAFETY: the program's path.
    let ours = |path: *const c_char| !matches!(unsafe { whose(HERE, path, 0) }, Whose::Kernel);
    let mut needs = call::any_ours() || signals::libc_would_pass_others(tls::get());
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(order.file) }.to_bytes();
    if order.search && !name.contains(&b'/') {
        // SAFETY: libc's environment.
        let path = unsafe { libc::get_variable(libc::environ, b"PATH") }.map_or(&b""[..], CStr::to_bytes);
        needs |= path.split(|&b| b == b':').any(|part| crate::door::PROCESS.mounts.find(part).is_some());
    } else {
        needs |= ours(order.file);
    }
    for step in steps.each() {
        if let Step::Open { path, .. } | Step::Chdir(path) = step {
            needs |= ours(path.cast());
        }
    }
    needs
}

/// # Safety
/// As for `posix_spawn`.
unsafe fn libc_spawn(pid: *mut c_int, order: &Order, envp: Strings) -> i32 {
    placeholders::flush();
    let own = if order.search { next!(Spawn, "posix_spawnp") } else { next!(Spawn, "posix_spawn") };
    match own {
        // Its child borrows our memory, this thread's words among it.
        // SAFETY: by contract.
        Some(own) => raw_during(|| unsafe { own(pid, order.file, order.actions, order.attr, order.argv, envp) }),
        None => 38,
    }
}

/// Blocks every signal; the mask before.
pub(crate) fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: both masks outlive the call.
    let _ = unsafe { pm::call!(__NR_rt_sigprocmask, 2, &raw const all, &raw mut before, 8) };
    before
}

/// Sets the thread's signal mask.
pub fn set_signals(mask: u64) {
    // SAFETY: the mask outlives the call.
    let _ = unsafe { pm::call!(__NR_rt_sigprocmask, 2, &raw const mask, 0, 8) };
}

/// The write end of the pipe out of the way of the actions' numbers.
fn out_of_the_way(steps: &Steps, fd: usize) -> Result<usize, pm::Errno> {
    let mut highest = 9;
    for step in steps.each() {
        match step {
            Step::Dup2(from, to) => highest = highest.max(from).max(to),
            Step::Open { fd, .. } | Step::Close(fd) | Step::Fchdir(fd) => highest = highest.max(fd),
            _ => {}
        }
    }
    // SAFETY: no pointers.
    let moved = unsafe { pm::call!(__NR_fcntl, fd, F_DUPFD_CLOEXEC, highest + 1) };
    // SAFETY: our own descriptor.
    let _ = unsafe { pm::call!(__NR_close, fd) };
    moved
}

/// Fork, actions, exec.
///
/// # Safety
/// The order's pointers are the program's.
unsafe fn own_spawn(pid: *mut c_int, order: &Order, steps: &Steps) -> i32 {
    let mut pipe = [0i32; 2];
    // SAFETY: the array outlives the call.
    let made = unsafe { placeholders::creating(__NR_pipe2, [pipe.as_mut_ptr() as usize, O_CLOEXEC as usize, 0, 0, 0, 0]) };
    if made < 0 {
        return -made as i32;
    }
    let close = |fd: usize| {
        // SAFETY: our own descriptor.
        let _ = unsafe { pm::call!(__NR_close, fd) };
    };
    let report = match out_of_the_way(steps, pipe[1] as usize) {
        Ok(fd) => fd,
        Err(errno) => {
            close(pipe[0] as usize);
            return errno.0;
        }
    };
    // SAFETY: by contract.
    let attributes = unsafe { attributes(order.attr) };
    let saved = errno::get();
    let mask = block_signals();
    let child = quiet_fork();
    if child == 0 {
        // SAFETY: by contract.
        let error = unsafe { become_child(order, steps, &attributes, mask, report) };
        // SAFETY: the number outlives the call.
        let _ = unsafe { pm::call!(__NR_write, report, &raw const error, 4) };
        loop {
            // SAFETY: ends the child.
            unsafe { sys::raw(__NR_exit_group as usize, [127, 0, 0, 0, 0, 0]) };
        }
    }
    let fork_error = errno::get();
    set_signals(mask);
    errno::set(saved);
    close(report);
    let mut error = 0i32;
    if child < 0 {
        error = fork_error;
    } else {
        // SAFETY: the number outlives the call.
        while unsafe { pm::call!(__NR_read, pipe[0], &raw mut error, 4) } == Err(pm::Errno::EINTR) {}
        if error != 0 {
            wait(child);
        } else if !pid.is_null() {
            // SAFETY: the program's variable.
            unsafe { *pid = child };
        }
    }
    close(pipe[0] as usize);
    error
}

/// In the child: never returns if all goes well; else the error number.
///
/// # Safety
/// The order's pointers are the program's.
unsafe fn become_child(order: &Order, steps: &Steps, attributes: &Attributes, mask: u64, report: usize) -> i32 {
    signals::reset_handlers(attributes.defaults());
    if let Err(errno) = apply(attributes) {
        return errno.0;
    }
    ask_again();
    if let Err(error) = steps.each().try_for_each(|step| do_step(step, Some(report))) {
        return error;
    }
    let hidden = &tls::get().hidden;
    if attributes.flags & SETSIGMASK != 0 {
        hidden.set(attributes.mask[0] & crate::masks::FAULTS);
    }
    set_signals(if attributes.flags & SETSIGMASK != 0 { attributes.mask[0] & !crate::masks::FAULTS } else { mask });
    let error = if order.search {
        // SAFETY: by contract.
        unsafe { search(order.file, order.argv, order.envp, false) }
    } else {
        // SAFETY: by contract.
        match unsafe { Ready::new(order.envp) } {
            // SAFETY: by contract.
            Ok(ready) => unsafe { ready.try_path(HERE, order.file, order.argv, 0) },
            Err(error) => error,
        }
    };
    block_signals();
    -error as i32
}

/// Scheduling, session, group, identity, in libc's order.
pub(crate) fn apply(attributes: &Attributes) -> Result<(), pm::Errno> {
    let flags = attributes.flags;
    let priority = &raw const attributes.priority;
    if flags & SETSCHEDULER != 0 {
        // SAFETY: the parameter outlives the call.
        unsafe { pm::call!(__NR_sched_setscheduler, 0, attributes.policy, priority) }?;
    } else if flags & SETSCHEDPARAM != 0 {
        // SAFETY: as above.
        unsafe { pm::call!(__NR_sched_setparam, 0, priority) }?;
    }
    if flags & SETSID != 0 {
        // SAFETY: takes no arguments.
        unsafe { pm::call!(__NR_setsid) }?;
    }
    if flags & SETPGROUP != 0 {
        // SAFETY: no pointers.
        unsafe { pm::call!(__NR_setpgid, 0, attributes.group) }?;
    }
    if flags & RESETIDS != 0 {
        // SAFETY: takes no arguments.
        let gid = unsafe { pm::call!(__NR_getgid) }?;
        // SAFETY: no pointers.
        unsafe { pm::call!(__NR_setresgid, -1isize, gid, -1isize) }?;
        // SAFETY: takes no arguments.
        let uid = unsafe { pm::call!(__NR_getuid) }?;
        // SAFETY: no pointers.
        unsafe { pm::call!(__NR_setresuid, -1isize, uid, -1isize) }?;
    }
    Ok(())
}

/// One file action, in the child; the pipe at `report` stays, if there is one.
pub(crate) fn do_step(step: Step, report: Option<usize>) -> Result<(), i32> {
    let check = |result: isize| if result < 0 { Err(-result as i32) } else { Ok(result as c_int) };
    match step {
        Step::Close(fd) => {
            // SAFETY: no pointers. A number that is not open is no error.
            unsafe { serve!(__NR_close, fd) };
        }
        Step::Dup2(from, to) if from == to => {
            // SAFETY: no pointers.
            let flags = check(unsafe { serve!(__NR_fcntl, from, F_GETFD) })?;
            // SAFETY: no pointers.
            check(unsafe { serve!(__NR_fcntl, from, F_SETFD, flags & !(FD_CLOEXEC as c_int)) })?;
        }
        Step::Dup2(from, to) => {
            // SAFETY: no pointers.
            check(unsafe { serve!(__NR_dup3, from, to, 0) })?;
        }
        Step::Open { fd, path, flags, mode } => {
            // SAFETY: no pointers.
            unsafe { serve!(__NR_close, fd) };
            // SAFETY: our copy of the path.
            let got = check(unsafe { serve!(__NR_openat, HERE, path, flags, mode) })?;
            if got != fd {
                // SAFETY: no pointers.
                check(unsafe { serve!(__NR_dup3, got, fd, flags & O_CLOEXEC as c_int) })?;
                // SAFETY: no pointers.
                unsafe { serve!(__NR_close, got) };
            }
        }
        Step::Chdir(path) => {
            // SAFETY: our copy of the path.
            check(unsafe { serve!(__NR_chdir, path) })?;
        }
        Step::Fchdir(fd) => {
            // SAFETY: no pointers.
            check(unsafe { serve!(__NR_fchdir, fd) })?;
        }
        Step::CloseFrom(first) => {
            let first = first.max(0) as usize;
            if let Some(report) = report.filter(|report| first < *report) {
                // SAFETY: no pointers.
                check(unsafe { serve!(__NR_close_range, first, report - 1, 0) })?;
            }
            // SAFETY: no pointers.
            check(unsafe { serve!(__NR_close_range, report.map_or(first, |report| first.max(report + 1)), u32::MAX, 0) })?;
        }
        Step::TcSetPgrp(fd) => {
            // SAFETY: takes no arguments.
            let group = unsafe { sys::raw(__NR_getpgid as usize, [0; 6]) } as i32;
            // SAFETY: the group outlives the call.
            check(unsafe { serve!(__NR_ioctl, fd, 0x5410, &raw const group) })?;
        }
    }
    Ok(())
}

/// Waits for `pid`; its status, or −1.
pub fn wait(pid: c_int) -> c_int {
    let mut status = 0;
    loop {
        // SAFETY: the status outlives the call.
        match unsafe { pm::call!(__NR_wait4, pid, &raw mut status, 0, 0) } {
            Err(pm::Errno::EINTR) => continue,
            Ok(_) => return status,
            Err(errno) => {
                errno::set(errno.0);
                return -1;
            }
        }
    }
}

type Init = unsafe extern "C" fn(*mut c_void) -> c_int;

/// libc's own function on the object, then the note.
macro_rules! add {
    ($name:literal, ($($kind:ty),*), ($actions:expr $(, $argument:expr)*), $step:expr) => {
        match next!(unsafe extern "C" fn(*mut c_void $(, $kind)*) -> c_int, $name) {
            Some(next) => match next($actions $(, $argument)*) {
                0 if !note($actions, $step) => ENOMEM,
                result => result,
            },
            None => EINVAL,
        }
    };
}

export! {
    fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int {
        forget(actions);
        match next!(Init, "posix_spawn_file_actions_init") {
            Some(next) => next(actions),
            None => EINVAL,
        }
    }
    fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
        forget(actions);
        match next!(Init, "posix_spawn_file_actions_destroy") {
            Some(next) => next(actions),
            None => EINVAL,
        }
    }
    fn posix_spawn_file_actions_addclose(actions: *mut c_void, fd: c_int) -> c_int {
        add!("posix_spawn_file_actions_addclose", (c_int), (actions, fd), Step::Close(fd))
    }
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int {
        add!("posix_spawn_file_actions_adddup2", (c_int, c_int), (actions, from, to), Step::Dup2(from, to))
    }
    fn posix_spawn_file_actions_addfchdir_np(actions: *mut c_void, fd: c_int) -> c_int {
        add!("posix_spawn_file_actions_addfchdir_np", (c_int), (actions, fd), Step::Fchdir(fd))
    }
    fn posix_spawn_file_actions_addclosefrom_np(actions: *mut c_void, first: c_int) -> c_int {
        add!("posix_spawn_file_actions_addclosefrom_np", (c_int), (actions, first), Step::CloseFrom(first))
    }
    fn posix_spawn_file_actions_addtcsetpgrp_np(actions: *mut c_void, fd: c_int) -> c_int {
        add!("posix_spawn_file_actions_addtcsetpgrp_np", (c_int), (actions, fd), Step::TcSetPgrp(fd))
    }
    fn posix_spawn_file_actions_addchdir_np(actions: *mut c_void, path: *const c_char) -> c_int {
        let own = copy(path);
        if own.is_null() {
            return ENOMEM;
        }
        add!("posix_spawn_file_actions_addchdir_np", (*const c_char), (actions, path), Step::Chdir(own))
    }
    fn posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: u32) -> c_int {
        let own = copy(path);
        if own.is_null() {
            return ENOMEM;
        }
        let step = Step::Open { fd, path: own, flags, mode };
        add!("posix_spawn_file_actions_addopen", (c_int, *const c_char, c_int, u32), (actions, fd, path, flags, mode), step)
    }
    fn posix_spawn(pid: *mut c_int, file: *const c_char, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int {
        spawn(pid, &Order { file, actions, attr, argv, envp, search: false })
    }
    fn posix_spawnp(pid: *mut c_int, file: *const c_char, actions: *const c_void, attr: *const c_void, argv: Strings, envp: Strings) -> c_int {
        spawn(pid, &Order { file, actions, attr, argv, envp, search: true })
    }
}

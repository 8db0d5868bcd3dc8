//! posix_spawn whose child borrows this process's memory until it execs, as
//! libc's does: a fork costs a copy of all page tables (20 to 40 µs a MiB here),
//! which the child would give up at once.
//!
//! The child may inherit what is ours (the working directory, descriptors), but
//! must not work with it: what it does before `exec` goes to the kernel as it
//! is. So all that needs the file systems is done by the parent beforehand, the copy of a program of ours too, and
//! whatever does not fit goes the general way.
//!
//! ```text
//! parent  descriptors readied as for a fork · environment and state made · signals blocked
//! child   raw: handlers, attributes, file actions · its PID into state and slot · exec
//! parent  goes on, and frees what the child has borrowed
//! ```

use super::actions::{Step, Steps};
use super::order::{Attributes, Order, SETSIGMASK, apply, attributes, do_step, wait};
use super::out_of_the_way;
use crate::next;
use crate::process::exec::{InKernel, Whose, in_kernel, whose};
use crate::process::fork::Clone;
use crate::process::hand_over;
use crate::runtime::environ::{Environment, STATE_MAX};
use crate::runtime::front_end::PROCESS;
use crate::runtime::operation::{block_signals, set_signals};
use crate::runtime::{alloc, call, errno, imports, kernel, operation, placeholders, signals, thread, tls};
use core::ffi::{CStr, c_char, c_int, c_void};
use pm::sys::{self, abi::*};
use posix::ForkToken;

const HERE: i32 = -100;
/// For raw calls, a state of a few numbers, and `clone`.
const STACK_BYTES: usize = 64 << 10;
const SIGCHLD: u32 = 17;
const UNUSED: i32 = 127;
const PATH_MAX: usize = 4096;

/// What the child executes.
enum Program {
    /// A path of the kernel's.
    Kernel(*const c_char),
    /// A file of ours.
    Ours(InKernel),
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Program::Ours(InKernel::Open(file)) = self {
            kernel::close(*file);
        }
    }
}

/// What the child borrows.
struct Child<'a> {
    order: &'a Order,
    steps: &'a Steps,
    program: &'a Program,
    attributes: Attributes,
    mask: u64,
    token: ForkToken,
    environment: Environment,
    /// Why there was no exec.
    error: i32,
}

/// posix_spawn in this way: 0. `None`: not in this way, nothing has happened.
///
/// # Safety
/// The order's pointers are the program's.
pub unsafe fn spawn(pid: *mut c_int, order: &Order, steps: &Steps) -> Option<i32> {
    if !steps.each().all(fits) {
        return None;
    }
    // Not on the stack: those of programs that start others are small, too.
    let block = alloc::alloc_zeroed(PATH_MAX);
    if block.is_null() {
        return None;
    }
    // SAFETY: a block of that size, ours alone.
    let text = unsafe { &mut *block.cast::<[u8; PATH_MAX]>() };
    // SAFETY: by contract.
    let spawned = unsafe { spawn_by(pid, order, steps, text) };
    // SAFETY: not used any more.
    unsafe { alloc::free(block) };
    spawned
}

/// Whether the loader loads us into the program, as far as it is plain which that is.
///
/// # Safety
/// As for [`spawn`].
pub unsafe fn loads(order: &Order) -> bool {
    let block = alloc::alloc_zeroed(PATH_MAX);
    if block.is_null() {
        return true;
    }
    // SAFETY: a block of that size, ours alone.
    let text = unsafe { &mut *block.cast::<[u8; PATH_MAX]>() };
    // SAFETY: by contract.
    let loads = unsafe { program(order, text).is_none_or(|path| hand_over::loads_us(HERE, path, 0)) };
    // SAFETY: not used any more.
    unsafe { alloc::free(block) };
    loads
}

/// As [`spawn`], with room for the program's path.
///
/// # Safety
/// As for [`spawn`].
unsafe fn spawn_by(pid: *mut c_int, order: &Order, steps: &Steps, text: &mut [u8; PATH_MAX]) -> Option<i32> {
    let own = next!(Clone, "clone")?;
    // SAFETY: by contract.
    let program = unsafe { ready(order, steps, text) }?;
    let tls = tls::get();
    operation::enter(tls);
    // SAFETY: by contract.
    let child = unsafe { prepare(tls, order, steps, &program) };
    let child = child.and_then(|mut child| {
        placeholders::flush();
        let stack = alloc::alloc_pages(STACK_BYTES);
        let (saved, mut made) = (errno::get(), -1);
        if !stack.is_null() {
            // SAFETY: the stack's end, aligned to 16.
            let top = unsafe { stack.add(STACK_BYTES).cast::<c_void>() };
            let (parent, area, number) = (core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut());
            let flags = (CLONE_VM | CLONE_VFORK | SIGCHLD) as c_int;
            // The child has this thread's words.
            // SAFETY: `begin` gets what it borrows; nothing here runs until it has given it back.
            made = tls.aside.raw_during(|| unsafe { own(begin, top, flags, (&raw mut child).cast(), parent, area, number) });
            // SAFETY: not used any more.
            unsafe { alloc::free(stack) };
        }
        set_signals(child.mask);
        if made > 0 && child.error != 0 {
            wait(made);
        }
        errno::set(saved);
        if made <= 0 || child.error != 0 {
            PROCESS.spawn_failed(thread::state(tls), child.token);
            return None;
        }
        Some(made)
    });
    operation::leave(tls);
    let child = child?;
    if !pid.is_null() {
        // SAFETY: the program's variable.
        unsafe { *pid = child };
    }
    Some(0)
}

/// All that the child needs; blocks signals. Within an operation.
///
/// # Safety
/// The order's pointers are the program's.
unsafe fn prepare<'a>(tls: &tls::Tls, order: &'a Order, steps: &'a Steps, program: &'a Program) -> Option<Child<'a>> {
    let block = alloc::alloc(STATE_MAX);
    if block.is_null() {
        return None;
    }
    // SAFETY: a block of that size, ours alone until it is freed below; zeroes are a valid value.
    let state = unsafe {
        core::ptr::write_bytes(block, 0, STATE_MAX);
        core::slice::from_raw_parts_mut(block, STATE_MAX)
    };
    let prepared = PROCESS.spawn_prepare(thread::state(tls), state).ok().and_then(|(token, len)| {
        // SAFETY: by contract.
        let environment = unsafe { Environment::new(order.envp, &state[..len]) };
        if environment.is_none() {
            PROCESS.spawn_failed(thread::state(tls), token);
        }
        Some((token, environment?))
    });
    // SAFETY: not used any more.
    unsafe { alloc::free(block) };
    let (token, environment) = prepared?;
    // SAFETY: by contract.
    let attributes = unsafe { attributes(order.attr) };
    Some(Child { order, steps, program, attributes, mask: block_signals(), token, environment, error: 0 })
}

unsafe extern "C" fn begin(at: *mut c_void) -> c_int {
    // SAFETY: `spawn` waits for us, and uses it no more until then.
    let child = unsafe { &mut *at.cast::<Child>() };
    child.error = run(child);
    UNUSED
}

/// In the child; returns only if there is no exec, with the error number.
fn run(child: &mut Child) -> i32 {
    signals::reset_handlers(child.attributes.defaults());
    if let Err(errno) = apply(&child.attributes) {
        return errno.0;
    }
    PROCESS.kept_over_exec().for_each(|fd| placeholders::set_cloexec(fd, false));
    if let Err(error) = child.steps.each().try_for_each(|step| do_step(step, None)) {
        return error;
    }
    PROCESS.spawn_exec(&child.token, child.environment.state_mut());
    set_signals(if child.attributes.flags & SETSIGMASK != 0 {
        child.attributes.mask[0]
    } else {
        child.mask | tls::get().hidden.get()
    });
    let (argv, envp) = (child.order.argv as usize, child.environment.as_ptr() as usize);
    // SAFETY: the program's strings, and ours.
    let error = unsafe {
        match child.program {
            Program::Kernel(path) => sys::raw(__NR_execve as usize, [*path as usize, argv, envp, 0, 0, 0]),
            Program::Ours(InKernel::Path(text)) => sys::raw(__NR_execve as usize, [text.as_ptr() as usize, argv, envp, 0, 0, 0]),
            Program::Ours(InKernel::Open(file)) => {
                let args = [*file as usize, c"".as_ptr() as usize, argv, envp, AT_EMPTY_PATH as usize, 0];
                sys::raw(__NR_execveat as usize, args)
            }
        }
    };
    block_signals();
    -error as i32
}

/// Whether the kernel does the same with this action as we would, and may do it twice.
fn fits(step: Step) -> bool {
    match step {
        // A number of ours that carries something else is closed by the new program.
        Step::Close(_) | Step::CloseFrom(_) | Step::TcSetPgrp(_) => true,
        Step::Dup2(from, to) => !call::is_ours(from) && !call::is_ours(to),
        Step::Open { fd, path, flags, .. } => {
            // SAFETY: our copy of the program's path.
            !call::is_ours(fd) && flags as u32 & (O_EXCL | O_PATH) == 0 && unsafe { is_kernels(path.cast()) }
        }
        // The state says where the child is.
        Step::Chdir(_) | Step::Fchdir(_) => false,
    }
}

/// Whether a path is the kernel's, wherever we are.
///
/// # Safety
/// `path` is NUL-terminated.
unsafe fn is_kernels(path: *const c_char) -> bool {
    // SAFETY: by contract; it has at least its NUL.
    unsafe { *path.cast::<u8>() == b'/' && matches!(whose(HERE, path, 0), Whose::Kernel) }
}

/// The program of an order, ready to be executed by a child that works with nothing of ours; into which the loader loads us.
///
/// # Safety
/// The order's pointers are the program's.
unsafe fn ready(order: &Order, steps: &Steps, text: &mut [u8; PATH_MAX]) -> Option<Program> {
    // SAFETY: by contract.
    let (path, is_kernels) = unsafe { found(order, text) }?;
    if is_kernels {
        // SAFETY: a NUL-terminated path.
        return unsafe { hand_over::loads_us(HERE, path, 0) }.then_some(Program::Kernel(path));
    }
    // SAFETY: by contract.
    match unsafe { in_kernel(path, order.envp) }? {
        InKernel::Open(file) if steps.each().any(|step| matches!(step, Step::CloseFrom(_))) => {
            kernel::close(file);
            None
        }
        InKernel::Open(file) => {
            let file = out_of_the_way(steps, file as usize).ok()?;
            Some(Program::Ours(InKernel::Open(file as i32)))
        }
        path => Some(Program::Ours(path)),
    }
}

/// The kernel's program of an order, if that can be told beforehand.
///
/// # Safety
/// The order's pointers are the program's.
pub unsafe fn program(order: &Order, text: &mut [u8; 4096]) -> Option<*const c_char> {
    // SAFETY: by contract.
    unsafe { found(order, text) }.and_then(|(path, is_kernels)| is_kernels.then_some(path))
}

/// The path of an order's program, and whether it is the kernel's.
///
/// # Safety
/// The order's pointers are the program's.
unsafe fn found(order: &Order, text: &mut [u8; 4096]) -> Option<(*const c_char, bool)> {
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(order.file) }.to_bytes();
    if !order.search || name.contains(&b'/') {
        // SAFETY: by contract.
        return unsafe { executable(order.file) }.ok().flatten().map(|is_kernels| (order.file, is_kernels));
    }
    // SAFETY: libc's environment.
    let path = unsafe { imports::get_variable(imports::environ, b"PATH") }?.to_bytes();
    for directory in path.split(|&b| b == b':') {
        let place = text.get_mut(..directory.len() + 1 + name.len() + 1)?;
        place[..directory.len()].copy_from_slice(directory);
        place[directory.len()] = b'/';
        place[directory.len() + 1..][..name.len()].copy_from_slice(name);
        *place.last_mut()? = 0;
        let path: *const c_char = text.as_ptr().cast();
        // SAFETY: a NUL-terminated path.
        if let Some(is_kernels) = unsafe { executable(path) }.ok()? {
            return Some((path, is_kernels));
        }
    }
    None
}

/// Whether an absolute path is a program of the kernel's (`true`) or of ours (`false`). `None`: there is none. An error: that
/// can't be told without the general way.
///
/// # Safety
/// `path` is NUL-terminated.
unsafe fn executable(path: *const c_char) -> Result<Option<bool>, ()> {
    // SAFETY: by contract; it has at least its NUL.
    if unsafe { *path.cast::<u8>() } != b'/' {
        return Err(());
    }
    // SAFETY: by contract.
    match unsafe { whose(HERE, path, 0) } {
        // SAFETY: by contract.
        Whose::Kernel => Ok(unsafe { pm::call!(__NR_faccessat, HERE, path, 1) }.is_ok().then_some(true)),
        Whose::Ours(0) => Ok(Some(false)),
        Whose::Ours(-2) => Ok(None),
        Whose::Ours(_) | Whose::KernelAt(..) => Err(()),
    }
}

//! posix_spawn.
//!
//! When nothing of ours is involved, libc's own `posix_spawn` runs with a rebuilt
//! environment (its child shares our memory, but makes no call through us). When
//! the child only inherits what is ours, it borrows our memory as well ([`clone_vm`]). Else
//! we do it ourselves: fork, the file actions through our own calls, exec; a pipe
//! that exec closes brings the child's error number back.

pub mod actions;
mod clone_vm;
pub mod order;

use crate::next;
use crate::process::exec::{Ready, Whose, is_for_ours, leads_in, search, whose};
use crate::process::fork::quiet_fork;
use crate::process::libraries::preloaded;
use crate::runtime::environ::Environment;
use crate::runtime::front_end::PROCESS;
use crate::runtime::identity::ask_again;
use crate::runtime::masks::FAULTS;
use crate::runtime::operation::{block_signals, set_signals};
use crate::runtime::tls::raw_during;
use crate::runtime::{call, errno, imports, kernel, phase, placeholders, signals, tls, vfork_child};
use actions::{Step, Steps};
use core::ffi::{CStr, c_char, c_int, c_void};
use order::{Attributes, Order, SETSIGMASK, Strings, apply, attributes, do_step, wait};
use pm::sys::{self, abi::*};

type Spawn = unsafe extern "C" fn(*mut c_int, *const c_char, *const c_void, *const c_void, Strings, Strings) -> c_int;

const HERE: i32 = -100;
const ENOENT: i32 = 2;
const ENOMEM: i32 = 12;

/// posix_spawn and posix_spawnp: 0 or an error number.
///
/// # Safety
/// The order's pointers are the program's.
pub unsafe fn spawn(pid: *mut c_int, order: &Order) -> i32 {
    if !phase::is_mounted() {
        // SAFETY: by contract.
        return unsafe { libc_spawn(pid, order, order.envp) };
    }
    if let Err(errno) = vfork_child::settle(tls::get()) {
        return errno;
    }
    let Some(steps) = Steps::of(order.actions) else { return ENOMEM };
    // SAFETY: by contract.
    if unsafe { preloaded::has_suspects(order.envp) } {
        // SAFETY: by contract.
        return unsafe { own_spawn(pid, order, &steps) };
    }
    // SAFETY: by contract.
    let result = if unsafe { needs_us(order, &steps) } {
        // SAFETY: by contract.
        unsafe { clone_vm::spawn(pid, order, &steps).unwrap_or_else(|| own_spawn(pid, order, &steps)) }
    } else {
        // SAFETY: by contract.
        let Some(environment) = (unsafe { Environment::new(order.envp, b"") }) else { return ENOMEM };
        // SAFETY: by contract.
        unsafe { libc_spawn(pid, order, environment.as_ptr()) }
    };
    // SAFETY: by contract.
    if result == ENOENT && unsafe { needs_us_after_all(order) } {
        // SAFETY: by contract.
        return unsafe { own_spawn(pid, order, &steps) };
    }
    result
}

/// Whether what the kernel did not find is ours: what a path of its own leads to, or the interpreter of a script.
///
/// # Safety
/// The order's pointers are the program's.
#[cold]
#[inline(never)]
unsafe fn needs_us_after_all(order: &Order) -> bool {
    // SAFETY: by contract.
    if !order.search && unsafe { leads_in(HERE, order.file, 0) }.is_some() {
        return true;
    }
    if PROCESS.hidden().next().is_none() {
        return false;
    }
    let mut text = [0; 4096];
    // SAFETY: by contract.
    unsafe { clone_vm::program(order, &mut text) }.is_some_and(|path| unsafe { is_for_ours(HERE, path, 0) })
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
        let path = unsafe { imports::get_variable(imports::environ, b"PATH") }.map_or(&b""[..], CStr::to_bytes);
        needs |= path.split(|&b| b == b':').any(|part| PROCESS.mounts.find(part).is_some());
    } else {
        needs |= ours(order.file);
    }
    for step in steps.each() {
        if let Step::Open { path, .. } | Step::Chdir(path) = step {
            needs |= ours(path.cast());
        }
    }
    // One that no loader loads us into is started by us, or refused.
    // SAFETY: by contract.
    needs || PROCESS.hidden().next().is_some() && !unsafe { clone_vm::loads(order) }
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

/// A descriptor out of the way of the actions' numbers: this one, or another in its place.
fn out_of_the_way(steps: &Steps, fd: usize) -> Result<usize, pm::Errno> {
    let mut highest = -1;
    for step in steps.each() {
        match step {
            Step::Dup2(from, to) => highest = highest.max(from).max(to),
            Step::Open { fd, .. } | Step::Close(fd) | Step::Fchdir(fd) | Step::TcSetPgrp(fd) => highest = highest.max(fd),
            _ => {}
        }
    }
    if fd as i32 > highest {
        return Ok(fd);
    }
    let moved = kernel::fcntl(fd, F_DUPFD_CLOEXEC, highest + 1);
    kernel::close(fd);
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
        kernel::close(fd);
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
        // A number that was free may be asked for: it must not be found taken.
        close(pipe[0] as usize);
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
        hidden.set(attributes.mask[0] & FAULTS);
    }
    set_signals(if attributes.flags & SETSIGMASK != 0 { attributes.mask[0] & !FAULTS } else { mask });
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

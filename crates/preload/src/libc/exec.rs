//! exec*. The variadic ones gather their arguments from registers and stack.

use super::{HERE, Text};
use crate::process::exec::{Arguments, execveat_call, search};
use crate::runtime::errno::{ret_int, set};
use crate::runtime::imports;
use core::ffi::{c_char, c_int};

type Strings = *const *mut c_char;

export! {
    fn execve(path: Text, argv: Strings, envp: Strings) -> c_int {
        execveat_call(HERE, path, argv, envp, 0)
    }
    fn execv(path: Text, argv: Strings) -> c_int {
        execveat_call(HERE, path, argv, imports::environ, 0)
    }
    fn execveat(dirfd: c_int, path: Text, argv: Strings, envp: Strings, flags: c_int) -> c_int {
        execveat_call(dirfd, path, argv, envp, flags)
    }
    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
        if fd < 0 || argv.is_null() || envp.is_null() {
            set(22);
            return -1;
        }
        // AT_EMPTY_PATH
        execveat_call(fd, c"".as_ptr(), argv, envp, 0x1000)
    }
    fn execvp(file: Text, argv: Strings) -> c_int {
        ret_int(search(file, argv, imports::environ, true))
    }
    fn execvpe(file: Text, argv: Strings, envp: Strings) -> c_int {
        ret_int(search(file, argv, envp, true))
    }
}

/// How the gathered arguments are executed.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Path,
    PathWithEnvironment,
    Search,
}

/// The arguments after the first of a variadic call: five words that came in
/// registers, then the stack's.
struct Rest {
    registers: *const *mut c_char,
    stack: *const *mut c_char,
    at: usize,
}

impl Rest {
    /// # Safety
    /// There is a further argument.
    unsafe fn next(&mut self) -> *mut c_char {
        let index = self.at;
        self.at += 1;
        if index < REGISTERS {
            // SAFETY: by contract.
            unsafe { *self.registers.add(index) }
        } else {
            // SAFETY: by contract.
            unsafe { *self.stack.add(index - REGISTERS) }
        }
    }
}

#[cfg(target_arch = "x86_64")]
const REGISTERS: usize = 5;
#[cfg(target_arch = "aarch64")]
const REGISTERS: usize = 7;

/// # Safety
/// `registers` and `stack` are what the variadic entry found.
unsafe fn gather(way: Way, path: Text, registers: Strings, stack: Strings) -> c_int {
    let mut count = 0;
    let mut rest = Rest { registers, stack, at: 0 };
    // SAFETY: the list ends with null.
    while !unsafe { rest.next() }.is_null() {
        count += 1;
    }
    let envp = if way == Way::PathWithEnvironment {
        // SAFETY: after the null comes the environment.
        unsafe { rest.next() }.cast_const().cast()
    } else {
        // SAFETY: a plain read.
        unsafe { imports::environ }.cast_const()
    };
    let Some(mut list) = Arguments::new(count) else {
        set(12);
        return -1;
    };
    let mut rest = Rest { registers, stack, at: 0 };
    // SAFETY: so many arguments have been counted.
    list.extend((0..count).map(|_| unsafe { rest.next() }.cast_const()));
    match way {
        // SAFETY: the program's strings.
        Way::Search => ret_int(unsafe { search(path, list.as_ptr(), envp, true) }),
        // SAFETY: the program's strings.
        _ => unsafe { execveat_call(HERE, path, list.as_ptr(), envp, 0) },
    }
}

unsafe extern "C" fn gather_execl(path: Text, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: called by the entry below.
    unsafe { gather(Way::Path, path, registers, stack) }
}

unsafe extern "C" fn gather_execle(path: Text, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: called by the entry below.
    unsafe { gather(Way::PathWithEnvironment, path, registers, stack) }
}

unsafe extern "C" fn gather_execlp(path: Text, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: called by the entry below.
    unsafe { gather(Way::Search, path, registers, stack) }
}

/// A variadic entry: stores the argument registers in order, then calls
/// `gather(first, registers, stack)`.
macro_rules! variadic {
    ($name:ident, $gather:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {gather}",
                "add rsp, 40",
                "ret",
                gather = sym $gather,
            )
        }

        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "mov x29, sp",
                "stp x1, x2, [sp, #16]",
                "stp x3, x4, [sp, #32]",
                "stp x5, x6, [sp, #48]",
                "str x7, [sp, #64]",
                "add x1, sp, #16",
                "add x2, sp, #80",
                "bl {gather}",
                "ldp x29, x30, [sp], #80",
                "ret",
                gather = sym $gather,
            )
        }
    };
}

variadic!(execl, gather_execl);
variadic!(execle, gather_execle);
variadic!(execlp, gather_execlp);

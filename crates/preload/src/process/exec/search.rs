//! `execvp` and its kin: a program's name is looked for in `PATH`.

use super::{Arguments, Ready};
use crate::runtime::imports;
use core::ffi::{CStr, c_char};

type Strings = *const *mut c_char;

const HERE: i32 = -100;
const ENOENT: isize = -2;
const ENOEXEC: isize = -8;
const ENOMEM: isize = -12;
const EACCES: isize = -13;

/// `execvpe`: searches `PATH`; the negated error number. A file that is no
/// program goes to the shell if `shell`.
///
/// # Safety
/// As for `execvpe`.
pub unsafe fn search(file: *const c_char, argv: Strings, envp: Strings, shell: bool) -> isize {
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes();
    if name.is_empty() {
        return ENOENT;
    }
    // SAFETY: by contract.
    let ready = match unsafe { Ready::new(envp) } {
        Ok(ready) => ready,
        Err(error) => return error,
    };
    if name.contains(&b'/') {
        // SAFETY: by contract.
        return unsafe { try_or_shell(&ready, file, argv, shell) };
    }
    // SAFETY: libc's environment.
    let path = unsafe { imports::get_variable(imports::environ, b"PATH") }.map_or(&b"/bin:/usr/bin"[..], CStr::to_bytes);
    let mut denied = false;
    let mut text = [0u8; 4096];
    for directory in path.split(|&b| b == b':') {
        let slash = !directory.is_empty() as usize;
        let len = directory.len() + slash + name.len();
        if len >= text.len() {
            continue;
        }
        text[..directory.len()].copy_from_slice(directory);
        if slash == 1 {
            text[directory.len()] = b'/';
        }
        text[directory.len() + slash..len].copy_from_slice(name);
        text[len] = 0;
        // SAFETY: a NUL-terminated path.
        match unsafe { try_or_shell(&ready, text.as_ptr().cast(), argv, shell) } {
            EACCES => denied = true,
            // ENOENT, ESTALE, ENOTDIR, ENODEV, ETIMEDOUT: as libc.
            -2 | -116 | -20 | -19 | -110 => {}
            error => return error,
        }
    }
    if denied { EACCES } else { ENOENT }
}

/// # Safety
/// As for `try_path`.
unsafe fn try_or_shell(ready: &Ready, path: *const c_char, argv: Strings, shell: bool) -> isize {
    // SAFETY: by contract.
    let result = unsafe { ready.try_path(HERE, path, argv, 0) };
    if result != ENOEXEC || !shell {
        return result;
    }
    // SAFETY: by contract.
    let given = unsafe { imports::strings(argv) };
    let Some(mut list) = Arguments::new(given.clone().count() + 2) else { return ENOMEM };
    let shell = c"/bin/sh".as_ptr();
    list.extend([shell, path]);
    list.extend(given.skip(1).map(|text| text.cast_const()));
    // SAFETY: valid strings.
    unsafe { ready.try_path(HERE, shell, list.as_ptr(), 0) }
}

//! `dlopen` of a library inside a mount: [`libraries`].
//!
//! libc's `dlopen` looks at its return address (whose `RUNPATH`, which namespace), so where that counts it is jumped to, not
//! called.

use super::{deepbind, dispatch};
use crate::next;
use crate::process::libraries;
use crate::process::libraries::Opened;
use crate::runtime::{errno, imports, phase, tls, vfork_child};
use core::ffi::{CStr, c_char, c_int, c_void};

/// `RTLD_DEEPBIND`.
const DEEP: c_int = 8;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

unsafe extern "C" fn no_loader(_path: *const c_char, _flags: c_int) -> *mut c_void {
    core::ptr::null_mut()
}

/// In two registers.
#[repr(C)]
struct Next {
    /// Where libc's `dlopen` is; 0: not to be asked.
    address: usize,
    /// What to answer then.
    handle: *mut c_void,
}

fn by_flags(flags: c_int, open: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if flags & DEEP == 0 { open() } else { deepbind::opening(open) }
}

/// Whether a path leads to the same library whoever asks.
///
/// # Safety
/// `path` is NUL-terminated.
unsafe fn is_whole(path: *const c_char) -> bool {
    // SAFETY: by contract.
    let path = unsafe { imports::bytes(path) };
    path.contains(&b'/') && !path.contains(&b'$')
}

/// Opens the library if it is ours; else says where libc's `dlopen` is.
unsafe extern "C" fn before(path: *const c_char, flags: c_int) -> Next {
    // SAFETY: a string, where not null.
    if !path.is_null() && unsafe { *path } != 0 && vfork_child::serves(tls::get()) {
        let saved = errno::get();
        let mut opened = Opened::Loaders;
        let mut open = || {
            // SAFETY: as above.
            opened = unsafe { libraries::open(path, flags) };
            if let Opened::Answer(handle) = opened { handle } else { core::ptr::null_mut() }
        };
        dispatch::opening(None, || by_flags(flags, &mut open));
        errno::set(saved);
        match opened {
            Opened::Answer(handle) => return Next { address: 0, handle },
            Opened::Loaders => {}
            Opened::Failed(error) => {
                // SAFETY: as above.
                let name = core::str::from_utf8(unsafe { imports::bytes(path) }).unwrap_or("a library");
                let errno = pm::Errno(-error as i32);
                crate::complain!("cannot load {name}: no copy of it could be made for the loader ({errno})");
            }
        }
    }
    let next = next!(Dlopen, "dlopen").unwrap_or(no_loader);
    // SAFETY: as above.
    if phase::is_mounted() && !path.is_null() && unsafe { is_whole(path) } {
        // Who asks makes no difference, so that what has come can be looked at.
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(path) };
        // SAFETY: as above; what the library does when it is loaded is the program's wish.
        let open = || unsafe { next(path, flags) };
        let handle = dispatch::opening(Some(text), || by_flags(flags, open));
        return Next { address: 0, handle };
    }
    Next { address: next as *const () as usize, handle: core::ptr::null_mut() }
}

/// `dlopen(3)`.
///
/// # Safety
/// As in C.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, rdx",
        "ret",
        before = sym before,
    )
}

/// `dlopen(3)`.
///
/// # Safety
/// As in C.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {before}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        before = sym before,
    )
}

//! Library functions about one name that libc makes of calls inside itself:
//! `realpath`, `remove`, `ftok`.

use core::ffi::{c_char, c_int};

use base::PATH_MAX;
use base::walk::SYMLINKS_MAX;
use pm::Errno;
use pm::sys::abi;

use crate::runtime::{alloc, errno, imports, panic};
use crate::serve;

/// What `realpath` works on; too large for a small stack.
struct Work {
    /// What is resolved so far: absolute, no trailing slash but for the root.
    done: [u8; PATH_MAX],
    done_len: usize,
    /// What is still to be resolved.
    rest: [u8; PATH_MAX],
    rest_at: usize,
    rest_len: usize,
    /// Target of a symlink, and what follows it.
    target: [u8; PATH_MAX],
}

impl Work {
    /// Drops the last component.
    fn pop(&mut self) {
        while self.done_len > 1 {
            self.done_len -= 1;
            if self.done[self.done_len] == b'/' {
                break;
            }
        }
        if self.done_len == 0 || self.done[0] != b'/' {
            self.done[0] = b'/';
            self.done_len = 1;
        }
    }

    /// Adds the component `rest[from..to]`, NUL-terminated.
    fn push(&mut self, from: usize, to: usize) -> Result<(), Errno> {
        if self.done_len > 1 {
            self.done[self.done_len] = b'/';
            self.done_len += 1;
        }
        let len = to - from;
        if self.done_len + len + 1 >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.done[self.done_len..self.done_len + len].copy_from_slice(&self.rest[from..to]);
        self.done_len += len;
        self.done[self.done_len] = 0;
        Ok(())
    }

    /// Whether nothing but a slash, `.` or `..` follows, which only a directory may have.
    fn wants_directory(&self) -> bool {
        let rest = &self.rest[self.rest_at..self.rest_len];
        let Some(start) = rest.iter().position(|&byte| byte != b'/') else { return !rest.is_empty() };
        let next = rest[start..].split(|&byte| byte == b'/').next().unwrap_or(b"");
        start > 0 && (next == b"." || next == b"..")
    }

    /// Puts a symlink's target in front of what is left.
    fn splice(&mut self, target_len: usize) -> Result<(), Errno> {
        let tail = self.rest_len - self.rest_at;
        if target_len + tail >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.rest.copy_within(self.rest_at..self.rest_len, target_len);
        self.rest[..target_len].copy_from_slice(&self.target[..target_len]);
        self.rest_at = 0;
        self.rest_len = target_len + tail;
        Ok(())
    }

    /// Looks at the component just added.
    fn look(&mut self, links: &mut u32) -> Result<(), Errno> {
        // SAFETY: `done` is NUL-terminated, `target` has PATH_MAX bytes.
        let got = unsafe { serve!(abi::__NR_readlinkat, abi::AT_FDCWD, self.done.as_ptr(), self.target.as_mut_ptr(), PATH_MAX) };
        if got >= 0 {
            *links += 1;
            if *links > SYMLINKS_MAX {
                return Err(Errno::ELOOP);
            }
            self.splice(got as usize)?;
            if self.target[0] == b'/' {
                self.done_len = 1;
            } else {
                self.pop();
            }
            return Ok(());
        }
        if got != -(Errno::EINVAL.0 as isize) {
            return Err(Errno(-got as i32));
        }
        if self.wants_directory() {
            let mut stat = core::mem::MaybeUninit::<abi::stat>::uninit();
            // SAFETY: a string and room for the answer.
            let code = unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, self.done.as_ptr(), stat.as_mut_ptr(), 0) };
            if code < 0 {
                return Err(Errno(-code as i32));
            }
            // SAFETY: filled in, since the call succeeded.
            if unsafe { stat.assume_init_ref() }.st_mode & abi::S_IFMT != abi::S_IFDIR {
                return Err(Errno::ENOTDIR);
            }
        }
        Ok(())
    }

    /// Resolves `path` into `done`.
    fn run(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.rest[..path.len()].copy_from_slice(path);
        (self.rest_at, self.rest_len) = (0, path.len());
        (self.done[0], self.done_len) = (b'/', 1);
        if path[0] != b'/' {
            // SAFETY: `done` has PATH_MAX bytes.
            let got = unsafe { serve!(abi::__NR_getcwd, self.done.as_mut_ptr(), PATH_MAX) };
            if got < 0 {
                return Err(Errno(-got as i32));
            }
            self.done_len = (got as usize).saturating_sub(1);
            if self.done[0] != b'/' {
                return Err(Errno::ENOENT);
            }
        }
        let mut links = 0;
        loop {
            while self.rest_at < self.rest_len && self.rest[self.rest_at] == b'/' {
                self.rest_at += 1;
            }
            let from = self.rest_at;
            while self.rest_at < self.rest_len && self.rest[self.rest_at] != b'/' {
                self.rest_at += 1;
            }
            match &self.rest[from..self.rest_at] {
                b"" => return Ok(()),
                b"." => {}
                b".." => self.pop(),
                _ => {
                    self.push(from, self.rest_at)?;
                    self.look(&mut links)?;
                }
            }
        }
    }
}

/// `realpath(3)`.
///
/// # Safety
/// As in C: `out` is null or has room for `PATH_MAX` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char {
    if path.is_null() {
        errno::set(Errno::EINVAL.0);
        return core::ptr::null_mut();
    }
    let work = alloc::alloc(size_of::<Work>()).cast::<Work>();
    if work.is_null() {
        errno::set(Errno::ENOMEM.0);
        return core::ptr::null_mut();
    }
    // SAFETY: a fresh block of this size; every field is plain bytes and numbers.
    unsafe { core::ptr::write_bytes(work, 0, 1) };
    // SAFETY: as above, and nobody else has it.
    let state = unsafe { &mut *work };
    // SAFETY: the program's string.
    let result = state.run(unsafe { imports::bytes(path) });
    let text = &state.done[..state.done_len];
    // As libc: a caller's buffer also learns how far it went when a name is missing or barred.
    let tells = result.is_ok() || matches!(result, Err(Errno::ENOENT | Errno::EACCES));
    let found = if !out.is_null() && tells {
        // SAFETY: room for PATH_MAX bytes by contract; `done` is shorter.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), out.cast::<u8>(), text.len()) };
        // SAFETY: as above.
        unsafe { out.add(text.len()).write(0) };
        out
    } else if result.is_ok() {
        imports::duplicate(text)
    } else {
        core::ptr::null_mut()
    };
    // SAFETY: allocated above; `state` is not used any more.
    unsafe { alloc::free(work.cast()) };
    if let Err(code) = result {
        errno::set(code.0);
        return core::ptr::null_mut();
    }
    found
}

/// `realpath(3)` of fortified programs: they know the size of the buffer.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(path: *const c_char, out: *mut c_char, out_bytes: usize) -> *mut c_char {
    if out_bytes < PATH_MAX {
        crate::complain!("*** buffer overflow detected ***: terminated (realpath)");
        panic::abort();
    }
    // SAFETY: by contract.
    unsafe { realpath(path, out) }
}

/// `remove(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the program's string.
    let mut result = unsafe { serve!(abi::__NR_unlinkat, abi::AT_FDCWD, path, 0) };
    if result == -(Errno::EISDIR.0 as isize) {
        // SAFETY: the program's string.
        result = unsafe { serve!(abi::__NR_unlinkat, abi::AT_FDCWD, path, abi::AT_REMOVEDIR) };
    }
    errno::ret_int(result)
}

/// `ftok(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftok(path: *const c_char, project: c_int) -> c_int {
    let mut stat = core::mem::MaybeUninit::<abi::stat>::uninit();
    // SAFETY: the program's string, and room for the answer.
    if errno::ret(unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, path, stat.as_mut_ptr(), 0) }) < 0 {
        return -1;
    }
    // SAFETY: filled in, since the call succeeded.
    let stat = unsafe { stat.assume_init_ref() };
    let key = (stat.st_ino as u32 & 0xffff) | ((stat.st_dev as u32 & 0xff) << 16) | ((project as u32 & 0xff) << 24);
    key as c_int
}

/// `isfdtype(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isfdtype(fd: c_int, kind: c_int) -> c_int {
    let mut stat = core::mem::MaybeUninit::<abi::stat>::uninit();
    // SAFETY: room for the answer.
    if errno::ret(unsafe { serve!(abi::__NR_fstat, fd, stat.as_mut_ptr()) }) < 0 {
        return -1;
    }
    // SAFETY: filled in, since the call succeeded.
    c_int::from(unsafe { stat.assume_init_ref() }.st_mode & abi::S_IFMT == kind as u32)
}

export! {
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
        realpath(path, core::ptr::null_mut())
    }
}

//! Extended attributes.

use super::number::{NR_LISTXATTRAT, NR_REMOVEXATTRAT, NR_SETXATTRAT};
use super::{done, err, fail};
use crate::path::CWD;
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Last, Node};
use pm::sys::abi;
use pm::{Errno, UserSlice, faults};
use vfs::Backend;

const NAME_MAX: usize = 255;
const SIZE_MAX: usize = 65536;
const PAGE: usize = 4096;

/// A name: 1 to 255 bytes.
///
/// # Safety
/// `pointer` is [bad](crate::bad_pointer) or a NUL-terminated text.
unsafe fn name<'a>(pointer: usize) -> base::Result<&'a [u8]> {
    if bad(pointer) {
        return err(Errno::EFAULT);
    }
    let text = pointer as *const u8;
    for len in 0..=NAME_MAX {
        let at = text.wrapping_add(len);
        if (len == 0 || (at as usize).is_multiple_of(PAGE)) && !pm::faults::is_readable(at) {
            return err(Errno::EFAULT);
        }
        // SAFETY: in a page that is there.
        if unsafe { *at } == 0 {
            if len == 0 {
                break;
            }
            // SAFETY: these bytes were just read.
            return Ok(unsafe { core::slice::from_raw_parts(text, len) });
        }
    }
    err(Errno::ERANGE)
}

/// The result for `len` bytes that are to go where nothing can be.
fn nowhere(len: usize, room: usize) -> base::Result<usize> {
    match len {
        0 => Ok(0),
        _ if len > room => err(Errno::ERANGE),
        _ => err(Errno::EFAULT),
    }
}

/// # Safety
/// As for [`Process::handle`], for arguments name, buffer and size at 1 to 3.
unsafe fn get(cx: &Cx, backend: &dyn Backend, node: Node, a: &[usize; 6]) -> base::Result<usize> {
    // SAFETY: the caller's promise.
    let name = unsafe { name(a[1]) }?;
    if bad(a[2]) && a[3] > 0 {
        return nowhere(backend.get_xattr(cx, node, name, UserSlice::from_mut(&mut []))?, a[3]);
    }
    // SAFETY: the caller's promise.
    let out = unsafe { UserSlice::new(a[2] as *mut u8, a[3].min(SIZE_MAX)) };
    backend.get_xattr(cx, node, name, out)
}

/// As [`get`], of a file of the kernel's.
///
/// # Safety
/// As for [`get`].
unsafe fn get_of(file: &pm::file::File, a: &[usize; 6]) -> base::Result<usize> {
    let mut text = [0u8; NAME_MAX + 1];
    // SAFETY: the caller's promise.
    let name = unsafe { name(a[1]) }?;
    text[..name.len()].copy_from_slice(name);
    let name = core::ffi::CStr::from_bytes_until_nul(&text).map_err(|_| base::Error::Posix(Errno::ERANGE))?;
    // SAFETY: the caller's promise; the kernel looks at it.
    Ok(file.get_xattr(name, unsafe { UserSlice::new(a[2] as *mut u8, a[3]) })?)
}

/// As [`list`], of a file of the kernel's.
///
/// # Safety
/// As for [`list`].
unsafe fn list_of(file: &pm::file::File, a: &[usize; 6]) -> base::Result<usize> {
    // SAFETY: the caller's promise; the kernel looks at it.
    Ok(file.list_xattr(unsafe { UserSlice::new(a[1] as *mut u8, a[2]) })?)
}

/// # Safety
/// As for [`Process::handle`], for arguments name, buffer, size and flags at 1 to 4.
unsafe fn set(cx: &Cx, backend: &dyn Backend, node: Node, a: &[usize; 6]) -> base::Result<usize> {
    if a[4] as u32 & !3 != 0 {
        return err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise.
    let name = unsafe { name(a[1]) }?;
    if a[3] > SIZE_MAX {
        return err(Errno::E2BIG);
    }
    if bad(a[2]) && a[3] > 0 {
        return err(Errno::EFAULT);
    }
    // SAFETY: the caller's promise.
    let value = unsafe { UserSlice::new(a[2] as *mut u8, a[3]) };
    backend.set_xattr(cx, node, name, value, a[4] as u32).map(|()| 0)
}

/// # Safety
/// As for [`Process::handle`], for arguments buffer and size at 1 and 2.
unsafe fn list(cx: &Cx, backend: &dyn Backend, node: Node, a: &[usize; 6]) -> base::Result<usize> {
    if bad(a[1]) && a[2] > 0 {
        return nowhere(backend.list_xattr(cx, node, UserSlice::from_mut(&mut []))?, a[2]);
    }
    // SAFETY: the caller's promise.
    let out = unsafe { UserSlice::new(a[1] as *mut u8, a[2].min(SIZE_MAX)) };
    backend.list_xattr(cx, node, out)
}

/// # Safety
/// As for [`Process::handle`], for a name at 1.
unsafe fn remove(cx: &Cx, backend: &dyn Backend, node: Node, a: &[usize; 6]) -> base::Result<usize> {
    // SAFETY: the caller's promise.
    let name = unsafe { name(a[1]) }?;
    backend.remove_xattr(cx, node, name).map(|()| 0)
}

/// The kernel's `struct xattr_args`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Value {
    value: u64,
    size: u32,
    flags: u32,
}

/// The structure that a call has its value in, and says the size of.
///
/// # Safety
/// `pointer` is [bad](crate::bad_pointer) or leads to so many bytes.
unsafe fn value_at(pointer: usize, size: usize) -> base::Result<Value> {
    match size {
        PAGE.. => return err(Errno::E2BIG),
        0..16 => return err(Errno::EINVAL),
        _ if bad(pointer) => return err(Errno::EFAULT),
        _ => {}
    }
    // What is longer than what we know must be zero.
    for at in size_of::<Value>()..size {
        // SAFETY: the caller's promise.
        if unsafe { faults::read((pointer + at) as *const u8) }? != 0 {
            return err(Errno::E2BIG);
        }
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { faults::read(pointer as *const Value) }?)
}

/// One operation by path, by path without following, by descriptor.
macro_rules! family {
    ($operation:ident: $path:ident $nr:ident, $nofollow:ident $lnr:ident, $fd:ident) => {
        #[doc = concat!("`", stringify!($path), "`.")]
        pub unsafe fn $path(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
            // SAFETY: the caller's promise.
            unsafe { self.on_attributes(thread, abi::$nr, &args, Last::Follow, $operation) }
        }

        #[doc = concat!("`", stringify!($nofollow), "`.")]
        pub unsafe fn $nofollow(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
            // SAFETY: the caller's promise.
            unsafe { self.on_attributes(thread, abi::$lnr, &args, Last::NoFollow, $operation) }
        }

        #[doc = concat!("`", stringify!($fd), "`.")]
        pub unsafe fn $fd(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
            // SAFETY: the caller's promise.
            self.on(thread, args[0], |cx, file| unsafe { $operation(cx, file.mount.backend, file.node, &args) })
        }
    };
}

/// One of [`get`], [`set`], [`list`] and [`remove`].
type Operation = unsafe fn(&Cx, &dyn Backend, Node, &[usize; 6]) -> base::Result<usize>;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// Serves a call on the attributes of what the path in the first argument leads to. `ls -l` makes two a file.
    #[inline]
    unsafe fn on_attributes(
        &self,
        thread: &ThreadState,
        nr: u32,
        args: &[usize; 6],
        last: Last,
        operation: Operation,
    ) -> Outcome {
        // SAFETY: the caller's promise.
        let seen = unsafe { self.at_found(thread, CWD, args[0], last, |cx, backend, node| operation(cx, backend, node, args)) };
        // SAFETY: the caller's promise.
        seen.or_else(|| unsafe { self.on_lower_attributes(nr, args, last) }).unwrap_or_else(|| unsafe {
            self.at(thread, (nr, *args), CWD, 0, last, |cx, spot| operation(cx, spot.mount.backend, spot.node(cx)?, args))
        })
    }

    /// Those calls that only read, which programs make by the thousand, on a file of the kernel's.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    #[inline(never)]
    unsafe fn on_lower_attributes(&self, nr: u32, args: &[usize; 6], last: Last) -> Option<Outcome> {
        let lists = matches!(nr, abi::__NR_listxattr | abi::__NR_llistxattr);
        if !lists && !matches!(nr, abi::__NR_getxattr | abi::__NR_lgetxattr) {
            return None;
        }
        // SAFETY: the caller's promise.
        let handle = unsafe { self.lower_handle(CWD, args[0], last == Last::Follow) }?;
        // SAFETY: the caller's promise.
        Some(done(handle.and_then(|handle| unsafe { if lists { list_of(&handle, args) } else { get_of(&handle, args) } })))
    }

    family!(get: getxattr __NR_getxattr, lgetxattr __NR_lgetxattr, fgetxattr);
    family!(set: setxattr __NR_setxattr, lsetxattr __NR_lsetxattr, fsetxattr);
    family!(list: listxattr __NR_listxattr, llistxattr __NR_llistxattr, flistxattr);
    family!(remove: removexattr __NR_removexattr, lremovexattr __NR_lremovexattr, fremovexattr);

    /// `setxattrat(dirfd, path, flags, name, value, size)` and its three kin, by their number.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    pub(super) unsafe fn xattr_at(&self, thread: &ThreadState, nr: u32, args: [usize; 6]) -> Outcome {
        let [dirfd, path, flags, name, value, size] = args;
        if flags as u32 & !(abi::AT_SYMLINK_NOFOLLOW | abi::AT_EMPTY_PATH) != 0 {
            return fail(Errno::EINVAL);
        }
        let (operation, plain): (Operation, [usize; 6]) = match nr {
            NR_LISTXATTRAT => (list, [0, name, value, 0, 0, 0]),
            NR_REMOVEXATTRAT => (remove, [0, name, 0, 0, 0, 0]),
            _ => {
                // SAFETY: the caller's promise.
                let told = match unsafe { value_at(value, size) } {
                    Ok(told) => told,
                    Err(error) => return fail(error.errno()),
                };
                let plain = [0, name, told.value as usize, told.size as usize, told.flags as usize, 0];
                match nr {
                    NR_SETXATTRAT => (set, plain),
                    _ if told.flags != 0 => return fail(Errno::EINVAL),
                    _ => (get, plain),
                }
            }
        };
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(path, flags, true) } {
            let Some(file) = self.directory(dirfd) else { return Outcome::Kernel };
            // SAFETY: the caller's promise.
            return done(unsafe { operation(&self.cx(thread), file.mount.backend, file.node, &plain) });
        }
        let last = if flags as u32 & abi::AT_SYMLINK_NOFOLLOW != 0 { Last::NoFollow } else { Last::Follow };
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, (nr, args), dirfd, 1, last, |cx, spot| operation(cx, spot.mount.backend, spot.node(cx)?, &plain))
        }
    }

    /// `name_to_handle_at` and others that only the kernel can serve: refused loudly for a path of ours, `EOPNOTSUPP`.
    pub(crate) unsafe fn refuse(&self, thread: &ThreadState, call: (u32, [usize; 6]), dirfd: usize, index: usize) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe {
            self.at(thread, call, dirfd, index, Last::Follow, |cx, spot| {
                spot.node(cx)?;
                err(Errno::EOPNOTSUPP)
            })
        }
    }

    /// `name_to_handle_at(dirfd, path, handle, mount, flags)`: nobody could open it.
    pub(super) unsafe fn handle_of(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        if unsafe { Self::empty_path(args[1], args[4], false) } {
            return if self.directory(args[0]).is_some() { fail(Errno::EOPNOTSUPP) } else { Outcome::Kernel };
        }
        // SAFETY: the caller's promise.
        unsafe { self.refuse(thread, (abi::__NR_name_to_handle_at, args), args[0], 1) }
    }

    /// `fanotify_mark(fd, flags, mask, dirfd, path)`: nobody would tell of changes.
    pub(super) unsafe fn mark(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        const FLUSH: usize = 0x80;
        if args[1] & FLUSH != 0 {
            return Outcome::Kernel;
        }
        if args[4] == 0 {
            // The directory itself.
            return if self.directory(args[3]).is_some() { fail(Errno::EOPNOTSUPP) } else { Outcome::Kernel };
        }
        // SAFETY: the caller's promise.
        unsafe { self.refuse(thread, (abi::__NR_fanotify_mark, args), args[3], 4) }
    }

    /// `umask(mask)`.
    pub unsafe fn umask_call(&self, _thread: &ThreadState, args: [usize; 6]) -> Outcome {
        let mask = args[0] as u32 & 0o777;
        if self.is_parted() {
            return Outcome::Kernel;
        }
        let old = self.umask_now();
        self.umask.store(mask, core::sync::atomic::Ordering::Relaxed);
        if !self.door.has_kernel() {
            return done(Ok(old as usize));
        }
        // SAFETY: any mask is valid.
        let result = unsafe { self.door.kernel(abi::__NR_umask as usize, args) };
        if result < 0 { fail(Errno(-result as i32)) } else { Outcome::Done(result) }
    }
}

//! The calls that are measured, in two ways: through libc (the kernel, or the
//! preload library) and through the C API.

use capi::Namespace;
use libc::{c_char, c_int, c_void, off_t, size_t};
use std::ffi::{CStr, CString};

/// One way to call. Results as in C; failures end the program, since a
/// benchmark of failures is worth nothing.
pub trait Calls: Sync {
    /// `stat`: size, or −1.
    fn stat(&self, path: &CStr) -> i64;
    /// `access(F_OK)`.
    fn access(&self, path: &CStr) -> c_int;
    /// `open`.
    fn open(&self, path: &CStr, flags: c_int) -> c_int;
    /// `close`.
    fn close(&self, fd: c_int) -> c_int;
    /// `unlink`.
    fn unlink(&self, path: &CStr) -> c_int;
    /// `mkdir`.
    fn mkdir(&self, path: &CStr) -> c_int;
    /// `rmdir`.
    fn rmdir(&self, path: &CStr) -> c_int;
    /// `rename`.
    fn rename(&self, from: &CStr, to: &CStr) -> c_int;
    /// `link`.
    fn link(&self, from: &CStr, to: &CStr) -> c_int;
    /// `symlink`.
    fn symlink(&self, target: &CStr, path: &CStr) -> c_int;
    /// `pread`.
    fn pread(&self, fd: c_int, out: &mut [u8], offset: u64) -> isize;
    /// `pwrite`.
    fn pwrite(&self, fd: c_int, data: &[u8], offset: u64) -> isize;
    /// `write`.
    fn write(&self, fd: c_int, data: &[u8]) -> isize;
    /// `ftruncate`.
    fn ftruncate(&self, fd: c_int, len: u64) -> c_int;
    /// `getxattr`.
    fn getxattr(&self, path: &CStr, name: &CStr, out: &mut [u8]) -> isize;
    /// `chdir`.
    fn chdir(&self, path: &CStr) -> c_int;
    /// Lists a directory and asks for each entry's attributes: entries, and the sum of their sizes.
    fn list(&self, path: &CStr) -> (u64, u64);
}

/// libc's functions.
pub struct Libc;

impl Calls for Libc {
    #[inline(never)]
    fn stat(&self, path: &CStr) -> i64 {
        let mut out = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: a text, and room for the result.
        let result = unsafe { libc::stat(path.as_ptr(), out.as_mut_ptr()) };
        // SAFETY: filled in on success.
        if result == 0 { unsafe { out.assume_init_ref() }.st_size } else { -1 }
    }
    fn access(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { libc::access(path.as_ptr(), libc::F_OK) }
    }
    fn open(&self, path: &CStr, flags: c_int) -> c_int {
        // SAFETY: a text.
        unsafe { libc::open(path.as_ptr(), flags, 0o644) }
    }
    fn close(&self, fd: c_int) -> c_int {
        // SAFETY: a descriptor of this benchmark's.
        unsafe { libc::close(fd) }
    }
    fn unlink(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { libc::unlink(path.as_ptr()) }
    }
    fn mkdir(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { libc::mkdir(path.as_ptr(), 0o755) }
    }
    fn rmdir(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { libc::rmdir(path.as_ptr()) }
    }
    fn rename(&self, from: &CStr, to: &CStr) -> c_int {
        // SAFETY: texts.
        unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }
    }
    fn link(&self, from: &CStr, to: &CStr) -> c_int {
        // SAFETY: texts.
        unsafe { libc::link(from.as_ptr(), to.as_ptr()) }
    }
    fn symlink(&self, target: &CStr, path: &CStr) -> c_int {
        // SAFETY: texts.
        unsafe { libc::symlink(target.as_ptr(), path.as_ptr()) }
    }
    fn pread(&self, fd: c_int, out: &mut [u8], offset: u64) -> isize {
        // SAFETY: a buffer and its length.
        unsafe { libc::pread(fd, out.as_mut_ptr().cast(), out.len(), offset as off_t) }
    }
    fn pwrite(&self, fd: c_int, data: &[u8], offset: u64) -> isize {
        // SAFETY: a buffer and its length.
        unsafe { libc::pwrite(fd, data.as_ptr().cast(), data.len(), offset as off_t) }
    }
    fn write(&self, fd: c_int, data: &[u8]) -> isize {
        // SAFETY: a buffer and its length.
        unsafe { libc::write(fd, data.as_ptr().cast(), data.len() as size_t) }
    }
    fn ftruncate(&self, fd: c_int, len: u64) -> c_int {
        // SAFETY: a descriptor of this benchmark's.
        unsafe { libc::ftruncate(fd, len as off_t) }
    }
    fn getxattr(&self, path: &CStr, name: &CStr, out: &mut [u8]) -> isize {
        // SAFETY: texts, a buffer and its length.
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), out.as_mut_ptr().cast(), out.len()) }
    }
    fn chdir(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { libc::chdir(path.as_ptr()) }
    }
    fn list(&self, path: &CStr) -> (u64, u64) {
        let (mut count, mut sum) = (0, 0);
        // SAFETY: a text.
        let dir = unsafe { libc::opendir(path.as_ptr()) };
        assert!(!dir.is_null(), "opendir");
        // SAFETY: an open stream.
        let fd = unsafe { libc::dirfd(dir) };
        loop {
            // SAFETY: an open stream.
            let entry = unsafe { libc::readdir(dir) };
            if entry.is_null() {
                break;
            }
            let mut out = std::mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: the entry's name, and room for the result.
            let result = unsafe {
                libc::fstatat(fd, (&raw const (*entry).d_name).cast::<c_char>(), out.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW)
            };
            assert_eq!(result, 0, "fstatat");
            // SAFETY: filled in.
            let stat = unsafe { out.assume_init_ref() };
            count += 1;
            if stat.st_mode & libc::S_IFMT == libc::S_IFREG {
                sum += stat.st_size as u64;
            }
        }
        // SAFETY: an open stream.
        unsafe { libc::closedir(dir) };
        (count, sum)
    }
}

/// The C API on a namespace with one image.
pub struct Api {
    ns: *mut Namespace,
}

// SAFETY: calls in a namespace may be made by any thread.
unsafe impl Sync for Api {}

impl Api {
    /// Mounts `image` on `/`.
    pub fn open(image: &CStr) -> Result<Api, String> {
        let api = Api { ns: capi::bp_open_namespace() };
        api.mount(image, c"/")?;
        Ok(api)
    }

    /// Mounts `image` on [`Api::AMONG`], and an empty file system on each of `others`; those below it are directories made for it.
    pub fn among(image: &CStr, others: &[&CStr]) -> Result<Api, String> {
        let api = Api { ns: capi::bp_open_namespace() };
        api.mount(image, Api::AMONG)?;
        for other in others {
            if other.to_bytes().starts_with(Api::AMONG.to_bytes()) && api.mkdir(other) != 0 {
                return Err(format!("mkdir {other:?}: {}", std::io::Error::last_os_error()));
            }
            api.mount(c"mem:", other)?;
        }
        Ok(api)
    }

    /// Where [`Api::among`] has its image.
    pub const AMONG: &CStr = c"/image";

    fn mount(&self, source: &CStr, point: &CStr) -> Result<(), String> {
        // SAFETY: texts.
        let result = unsafe { capi::bp_mount(self.ns, source.as_ptr(), point.as_ptr(), std::ptr::null()) };
        if result == 0 { Ok(()) } else { Err(format!("mount {source:?}: {}", std::io::Error::last_os_error())) }
    }
}

// A function that no compiler sees through, called as one of a library is.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".p2align 6", ".globl bypath_nothing", "bypath_nothing:", "xor eax, eax", "ret");
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".p2align 6", ".globl bypath_nothing", "bypath_nothing:", "mov w0, wzr", "ret");

unsafe extern "C" {
    /// Does nothing: 0.
    safe fn bypath_nothing(ns: *const c_void, a: *const c_void, b: *const c_void, c: u64) -> c_int;
}

/// Calls that do nothing, called as those of [`Calls`] are.
impl Api {
    /// As `stat`.
    #[inline(never)]
    pub fn nothing_about(&self, path: &CStr) -> i64 {
        let mut out = std::mem::MaybeUninit::<libc::stat>::uninit();
        i64::from(bypath_nothing(self.ns.cast(), path.as_ptr().cast(), out.as_mut_ptr().cast(), 0))
    }
    /// As a call with one name, or two.
    pub fn nothing(&self, path: &CStr, other: &CStr) -> c_int {
        bypath_nothing(self.ns.cast(), path.as_ptr().cast(), other.as_ptr().cast(), 0)
    }
    /// As `pread`.
    pub fn nothing_read(&self, fd: c_int, out: &mut [u8], offset: u64) -> c_int {
        bypath_nothing(self.ns.cast(), fd as usize as *const c_void, out.as_mut_ptr().cast(), offset)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        // SAFETY: no call is going on.
        unsafe { capi::bp_close_namespace(self.ns) };
    }
}

impl Calls for Api {
    #[inline(never)]
    fn stat(&self, path: &CStr) -> i64 {
        let mut out = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: a text, and room for the result.
        let result = unsafe { capi::bp_stat(self.ns, path.as_ptr(), out.as_mut_ptr()) };
        // SAFETY: filled in on success.
        if result == 0 { unsafe { out.assume_init_ref() }.st_size } else { -1 }
    }
    fn access(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { capi::bp_access(self.ns, path.as_ptr(), libc::F_OK) }
    }
    fn open(&self, path: &CStr, flags: c_int) -> c_int {
        // SAFETY: a text.
        unsafe { capi::bp_open(self.ns, path.as_ptr(), flags, 0o644) }
    }
    fn close(&self, fd: c_int) -> c_int {
        // SAFETY: a descriptor of this benchmark's.
        unsafe { capi::bp_close(self.ns, fd) }
    }
    fn unlink(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { capi::bp_unlink(self.ns, path.as_ptr()) }
    }
    fn mkdir(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { capi::bp_mkdir(self.ns, path.as_ptr(), 0o755) }
    }
    fn rmdir(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { capi::bp_rmdir(self.ns, path.as_ptr()) }
    }
    fn rename(&self, from: &CStr, to: &CStr) -> c_int {
        // SAFETY: texts.
        unsafe { capi::bp_rename(self.ns, from.as_ptr(), to.as_ptr()) }
    }
    fn link(&self, from: &CStr, to: &CStr) -> c_int {
        // SAFETY: texts.
        unsafe { capi::bp_link(self.ns, from.as_ptr(), to.as_ptr()) }
    }
    fn symlink(&self, target: &CStr, path: &CStr) -> c_int {
        // SAFETY: texts.
        unsafe { capi::bp_symlink(self.ns, target.as_ptr(), path.as_ptr()) }
    }
    fn pread(&self, fd: c_int, out: &mut [u8], offset: u64) -> isize {
        // SAFETY: a buffer and its length.
        unsafe { capi::bp_pread(self.ns, fd, out.as_mut_ptr().cast(), out.len(), offset as off_t) }
    }
    fn pwrite(&self, fd: c_int, data: &[u8], offset: u64) -> isize {
        // SAFETY: a buffer and its length.
        unsafe { capi::bp_pwrite(self.ns, fd, data.as_ptr().cast(), data.len(), offset as off_t) }
    }
    fn write(&self, fd: c_int, data: &[u8]) -> isize {
        // SAFETY: a buffer and its length.
        unsafe { capi::bp_write(self.ns, fd, data.as_ptr().cast(), data.len()) }
    }
    fn ftruncate(&self, fd: c_int, len: u64) -> c_int {
        // SAFETY: a descriptor of this benchmark's.
        unsafe { capi::bp_ftruncate(self.ns, fd, len as off_t) }
    }
    fn getxattr(&self, path: &CStr, name: &CStr, out: &mut [u8]) -> isize {
        // SAFETY: texts, a buffer and its length.
        unsafe { capi::bp_getxattr(self.ns, path.as_ptr(), name.as_ptr(), out.as_mut_ptr().cast(), out.len()) }
    }
    fn chdir(&self, path: &CStr) -> c_int {
        // SAFETY: a text.
        unsafe { capi::bp_chdir(self.ns, path.as_ptr()) }
    }
    fn list(&self, path: &CStr) -> (u64, u64) {
        let (mut count, mut sum) = (0, 0);
        // SAFETY: a text.
        let dir = unsafe { capi::bp_opendir(self.ns, path.as_ptr()) };
        assert!(!dir.is_null(), "opendir");
        // SAFETY: an open stream.
        let fd = unsafe { capi::bp_dirfd(dir) };
        loop {
            // SAFETY: an open stream.
            let entry = unsafe { capi::bp_readdir(dir) };
            if entry.is_null() {
                break;
            }
            let mut out = std::mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: the entry's name, and room for the result.
            let result = unsafe {
                capi::bp_fstatat(
                    self.ns,
                    fd,
                    (&raw const (*entry).d_name).cast::<c_char>(),
                    out.as_mut_ptr(),
                    libc::AT_SYMLINK_NOFOLLOW,
                )
            };
            assert_eq!(result, 0, "fstatat");
            // SAFETY: filled in.
            let stat = unsafe { out.assume_init_ref() };
            count += 1;
            if stat.st_mode & libc::S_IFMT == libc::S_IFREG {
                sum += stat.st_size as u64;
            }
        }
        // SAFETY: an open stream.
        unsafe { capi::bp_closedir(dir) };
        (count, sum)
    }
}

/// A name as C wants it.
pub fn text(name: String) -> CString {
    CString::new(name).unwrap_or_default()
}

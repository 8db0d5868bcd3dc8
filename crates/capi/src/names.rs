//! Calls by path.

use crate::{CWD, calls, fast};
use libc::{c_char, c_int, c_uint, c_void, dev_t, gid_t, mode_t, off_t, size_t, ssize_t, stat, timespec, uid_t};

calls! {
    /// `fstatat`.
    fn bp_fstatat(dir: c_int, path: *const c_char, out: *mut stat, flags: c_int) -> c_int = newfstatat(dir, path, out, flags);
    /// `statx`.
    fn bp_statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut c_void) -> c_int = statx(dir, path, flags, mask, out);
    /// `faccessat`.
    fn bp_faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int = faccessat2(dir, path, mode, flags);
    /// `mkdir`.
    fn bp_mkdir(path: *const c_char, mode: mode_t) -> c_int = mkdirat(CWD, path, mode);
    /// `mkdirat`.
    fn bp_mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int = mkdirat(dir, path, mode);
    /// `mknod`.
    fn bp_mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int = mknodat(CWD, path, mode, device);
    /// `mkfifo`.
    fn bp_mkfifo(path: *const c_char, mode: mode_t) -> c_int = mknodat(CWD, path, mode | libc::S_IFIFO, 0);
    /// `rmdir`.
    fn bp_rmdir(path: *const c_char) -> c_int = unlinkat(CWD, path, libc::AT_REMOVEDIR);
    /// `unlink`.
    fn bp_unlink(path: *const c_char) -> c_int = unlinkat(CWD, path, 0);
    /// `unlinkat`.
    fn bp_unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int = unlinkat(dir, path, flags);
    /// `rename`.
    fn bp_rename(from: *const c_char, to: *const c_char) -> c_int = renameat2(CWD, from, CWD, to, 0);
    /// `renameat`.
    fn bp_renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int = renameat2(from_dir, from, to_dir, to, 0);
    /// `renameat2`.
    fn bp_renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int = renameat2(from_dir, from, to_dir, to, flags);
    /// `link`.
    fn bp_link(from: *const c_char, to: *const c_char) -> c_int = linkat(CWD, from, CWD, to, 0);
    /// `linkat`.
    fn bp_linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int = linkat(from_dir, from, to_dir, to, flags);
    /// `symlink`.
    fn bp_symlink(target: *const c_char, path: *const c_char) -> c_int = symlinkat(target, CWD, path);
    /// `symlinkat`.
    fn bp_symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int = symlinkat(target, dir, path);
    /// `readlink`.
    fn bp_readlink(path: *const c_char, out: *mut c_char, len: size_t) -> ssize_t = readlinkat(CWD, path, out, len);
    /// `readlinkat`.
    fn bp_readlinkat(dir: c_int, path: *const c_char, out: *mut c_char, len: size_t) -> ssize_t = readlinkat(dir, path, out, len);
    /// `chmod`.
    fn bp_chmod(path: *const c_char, mode: mode_t) -> c_int = fchmodat(CWD, path, mode);
    /// `fchmodat`.
    fn bp_fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int = fchmodat2(dir, path, mode, flags);
    /// `chown`.
    fn bp_chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int = fchownat(CWD, path, uid, gid, 0);
    /// `lchown`.
    fn bp_lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int = fchownat(CWD, path, uid, gid, libc::AT_SYMLINK_NOFOLLOW);
    /// `fchownat`.
    fn bp_fchownat(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int = fchownat(dir, path, uid, gid, flags);
    /// `utimensat`.
    fn bp_utimensat(dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int = utimensat(dir, path, times, flags);
    /// `truncate`.
    fn bp_truncate(path: *const c_char, len: off_t) -> c_int = truncate(path, len);
    /// `chdir`.
    fn bp_chdir(path: *const c_char) -> c_int = chdir(path);
    /// `chdir`, to an open directory.
    fn bp_fchdir(fd: c_int) -> c_int = fchdir(fd);
    /// `umask`.
    fn bp_umask(mask: mode_t) -> mode_t = umask_call(mask);
    /// `getxattr`.
    fn bp_getxattr(path: *const c_char, name: *const c_char, out: *mut c_void, len: size_t) -> ssize_t = getxattr(path, name, out, len);
    /// `lgetxattr`.
    fn bp_lgetxattr(path: *const c_char, name: *const c_char, out: *mut c_void, len: size_t) -> ssize_t = lgetxattr(path, name, out, len);
    /// `setxattr`.
    fn bp_setxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int = setxattr(path, name, value, len, flags);
    /// `lsetxattr`.
    fn bp_lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, len: size_t, flags: c_int) -> c_int = lsetxattr(path, name, value, len, flags);
    /// `listxattr`.
    fn bp_listxattr(path: *const c_char, out: *mut c_char, len: size_t) -> ssize_t = listxattr(path, out, len);
    /// `llistxattr`.
    fn bp_llistxattr(path: *const c_char, out: *mut c_char, len: size_t) -> ssize_t = llistxattr(path, out, len);
    /// `removexattr`.
    fn bp_removexattr(path: *const c_char, name: *const c_char) -> c_int = removexattr(path, name);
    /// `lremovexattr`.
    fn bp_lremovexattr(path: *const c_char, name: *const c_char) -> c_int = lremovexattr(path, name);
}

fast! {
    /// `stat`.
    fn bp_stat(path: *const c_char, out: *mut stat) -> c_int = stat_fast(CWD as usize, path as usize, out as usize, true), else newfstatat(CWD, path, out, 0);
    /// `lstat`.
    fn bp_lstat(path: *const c_char, out: *mut stat) -> c_int = stat_fast(CWD as usize, path as usize, out as usize, false), else newfstatat(CWD, path, out, libc::AT_SYMLINK_NOFOLLOW);
    /// `access`.
    fn bp_access(path: *const c_char, mode: c_int) -> c_int = access_fast(CWD as usize, path as usize, mode as usize, 0), else faccessat(CWD, path, mode);
}

/// `getcwd`: `out` itself, or null.
///
/// # Safety
/// `out` is writable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_getcwd(ns: *const crate::Namespace, out: *mut c_char, len: size_t) -> *mut c_char {
    // SAFETY: the caller's promise.
    let result = unsafe { crate::call(ns, |process, thread| process.getcwd(thread, crate::words([out as usize, len]))) };
    if result < 0 { std::ptr::null_mut() } else { out }
}

//! The switch from call numbers to handlers.

// The kernel names its calls so.
#![allow(non_upper_case_globals)]

use super::fail;
use crate::{Outcome, Process, ThreadState};
use base::Last;
use pm::Errno;
use pm::sys::abi::*;

/// Numbers newer than the constants at hand; the same on all architectures.
const NR_CACHESTAT: u32 = 451;
const NR_FCHMODAT2: u32 = 452;
pub(super) const NR_SETXATTRAT: u32 = 463;
pub(super) const NR_LISTXATTRAT: u32 = 465;
pub(super) const NR_REMOVEXATTRAT: u32 = 466;
const NR_OPEN_TREE_ATTR: u32 = 467;
const NR_FILE_GETATTR: u32 = 468;
const NR_FILE_SETATTR: u32 = 469;
/// The last call of which it is known where it has paths and descriptors.
const NR_LAST: u32 = NR_FILE_SETATTR;

impl Process {
    /// Serves system call `nr` if it concerns a file, descriptor or path of ours.
    ///
    /// # Safety
    /// `args` are what a program hands the kernel: its pointers must be good
    /// for what the call does with them. (Those that [`crate::bad_pointer`] tells are answered `EFAULT`.)
    pub unsafe fn handle(&self, thread: &ThreadState, nr: usize, args: [usize; 6]) -> Outcome {
        macro_rules! to {
            ($name:ident) => {{
                // SAFETY: the caller's promise.
                unsafe { self.$name(thread, args) }
            }};
        }
        #[cfg(target_arch = "x86_64")]
        match nr as u32 {
            __NR_open => return to!(open),
            __NR_creat => return to!(creat),
            __NR_stat => return to!(stat),
            __NR_lstat => return to!(lstat),
            __NR_access => return to!(access),
            __NR_mkdir => return to!(mkdir),
            __NR_mknod => return to!(mknod),
            __NR_symlink => return to!(symlink),
            __NR_link => return to!(link),
            __NR_unlink => return to!(unlink),
            __NR_rmdir => return to!(rmdir),
            __NR_rename => return to!(rename),
            __NR_readlink => return to!(readlink),
            __NR_chmod => return to!(chmod),
            __NR_chown => return to!(chown),
            __NR_lchown => return to!(lchown),
            __NR_utime => return to!(utime),
            __NR_utimes => return to!(utimes),
            __NR_futimesat => return to!(futimesat),
            __NR_getdents => return to!(getdents),
            __NR_dup2 => return to!(dup2),
            __NR_poll => return to!(poll),
            __NR_select => return to!(select),
            _ => {}
        }
        match nr as u32 {
            __NR_openat => to!(openat),
            __NR_openat2 => to!(openat2),
            __NR_close => to!(close),
            __NR_close_range => to!(close_range),
            __NR_read => to!(read),
            __NR_write => to!(write),
            __NR_pread64 => to!(pread64),
            __NR_pwrite64 => to!(pwrite64),
            __NR_readv => to!(readv),
            __NR_writev => to!(writev),
            __NR_preadv => to!(preadv),
            __NR_pwritev => to!(pwritev),
            __NR_preadv2 => to!(preadv2),
            __NR_pwritev2 => to!(pwritev2),
            __NR_lseek => to!(lseek),
            __NR_fstat => to!(fstat),
            __NR_newfstatat => to!(newfstatat),
            __NR_statx => to!(statx),
            __NR_faccessat => to!(faccessat),
            __NR_faccessat2 => to!(faccessat2),
            __NR_mkdirat => to!(mkdirat),
            __NR_mknodat => to!(mknodat),
            __NR_symlinkat => to!(symlinkat),
            __NR_linkat => to!(linkat),
            __NR_unlinkat => to!(unlinkat),
            __NR_renameat => to!(renameat),
            __NR_renameat2 => to!(renameat2),
            __NR_readlinkat => to!(readlinkat),
            __NR_fchmod => to!(fchmod),
            __NR_fchmodat => to!(fchmodat),
            NR_FCHMODAT2 => to!(fchmodat2),
            __NR_fchown => to!(fchown),
            __NR_fchownat => to!(fchownat),
            __NR_utimensat => to!(utimensat),
            __NR_truncate => to!(truncate),
            __NR_ftruncate => to!(ftruncate),
            __NR_fallocate => to!(fallocate),
            __NR_getdents64 => to!(getdents64),
            __NR_chdir => to!(chdir),
            __NR_fchdir => to!(fchdir),
            __NR_getcwd => to!(getcwd),
            __NR_chroot => to!(chroot),
            __NR_mount => to!(mount_call),
            __NR_move_mount => to!(move_mount),
            __NR_dup => to!(dup),
            __NR_dup3 => to!(dup3),
            __NR_fcntl => to!(fcntl),
            __NR_ioctl => to!(ioctl),
            __NR_flock => to!(flock),
            __NR_fsync => to!(fsync),
            __NR_fdatasync => to!(fdatasync),
            __NR_sync => to!(sync),
            __NR_syncfs => to!(syncfs),
            __NR_sync_file_range => to!(sync_file_range),
            __NR_fadvise64 => to!(fadvise64),
            __NR_readahead => to!(readahead),
            __NR_statfs => to!(statfs),
            __NR_fstatfs => to!(fstatfs),
            __NR_getxattr => to!(getxattr),
            __NR_lgetxattr => to!(lgetxattr),
            __NR_fgetxattr => to!(fgetxattr),
            __NR_setxattr => to!(setxattr),
            __NR_lsetxattr => to!(lsetxattr),
            __NR_fsetxattr => to!(fsetxattr),
            __NR_listxattr => to!(listxattr),
            __NR_llistxattr => to!(llistxattr),
            __NR_flistxattr => to!(flistxattr),
            __NR_removexattr => to!(removexattr),
            __NR_lremovexattr => to!(lremovexattr),
            __NR_fremovexattr => to!(fremovexattr),
            __NR_umask => to!(umask_call),
            __NR_mmap => to!(mmap),
            __NR_munmap => to!(munmap),
            __NR_mremap => to!(mremap),
            __NR_msync => to!(msync),
            __NR_mprotect => to!(mprotect),
            __NR_madvise => to!(madvise),
            __NR_mlockall => to!(mlockall),
            __NR_munlockall => to!(munlockall),
            __NR_sendfile => to!(sendfile),
            __NR_copy_file_range => to!(copy_file_range),
            __NR_splice => to!(splice),
            __NR_tee => to!(tee),
            __NR_ppoll => to!(ppoll),
            __NR_pselect6 => to!(pselect6),
            __NR_epoll_ctl => to!(epoll_ctl),
            __NR_bind => to!(bind),
            __NR_connect => to!(connect),
            __NR_sendto => to!(sendto),
            __NR_getsockname | __NR_getpeername | __NR_getsockopt | __NR_setsockopt | __NR_listen | __NR_shutdown
            | __NR_accept | __NR_accept4 | __NR_recvfrom | __NR_recvmsg | __NR_recvmmsg | __NR_sendmsg | __NR_sendmmsg => {
                self.no_socket(args)
            }
            // SAFETY: the caller's promise.
            nr @ (__NR_setrlimit | __NR_prlimit64) => unsafe { self.limits(nr, args) },
            __NR_remap_file_pages => to!(remap_file_pages),
            __NR_inotify_add_watch => to!(inotify_add_watch),
            // SAFETY: the caller's promise.
            __NR_fanotify_mark => unsafe { self.mark(thread, args) },
            // SAFETY: the caller's promise.
            __NR_name_to_handle_at => unsafe { self.handle_of(thread, args) },
            // There is an older call for the same, to which programs turn then.
            // SAFETY: the caller's promise.
            NR_OPEN_TREE_ATTR => unsafe { self.refuse_at(thread, nr as u32, args, Errno::ENOSYS) },
            // Files have no such flags.
            // SAFETY: the caller's promise.
            NR_FILE_GETATTR | NR_FILE_SETATTR => unsafe { self.refuse_at(thread, nr as u32, args, Errno::EOPNOTSUPP) },
            // SAFETY: the caller's promise.
            nr @ NR_SETXATTRAT..=NR_REMOVEXATTRAT => unsafe { self.xattr_at(thread, nr, args) },
            NR_CACHESTAT => to!(cachestat),
            // A newer kernel's: it might be told a path of ours, and would look for it elsewhere.
            nr if nr > NR_LAST && self.door.has_kernel() => fail(Errno::ENOSYS),
            _ => Outcome::Kernel,
        }
    }

    /// Answers a call on `(dirfd, path, flags, …)` with `errno` if that is ours: by the path, or by the descriptor alone.
    ///
    /// # Safety
    /// As for [`handle`](Self::handle).
    #[cold]
    unsafe fn refuse_at(&self, thread: &ThreadState, nr: u32, args: [usize; 6], errno: Errno) -> Outcome {
        // SAFETY: the caller's promise.
        if args[1] == 0 || unsafe { Self::empty_path(args[1], AT_EMPTY_PATH as usize, true) } {
            return if self.directory(args[0]).is_some() { fail(errno) } else { Outcome::Kernel };
        }
        // SAFETY: the caller's promise.
        unsafe { self.at(thread, (nr, args), args[0], 1, Last::Follow, |_, _| Err(errno.into())) }
    }
}

/// Whether call `nr` takes a path that a second attempt may find to be ours.
pub(super) fn takes_path(nr: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(
        nr as u32,
        __NR_open
            | __NR_creat
            | __NR_stat
            | __NR_lstat
            | __NR_access
            | __NR_mkdir
            | __NR_mknod
            | __NR_symlink
            | __NR_link
            | __NR_unlink
            | __NR_rmdir
            | __NR_rename
            | __NR_readlink
            | __NR_chmod
            | __NR_chown
            | __NR_lchown
            | __NR_utime
            | __NR_utimes
            | __NR_futimesat
    ) {
        return true;
    }
    matches!(
        nr as u32,
        __NR_openat
            | __NR_openat2
            | __NR_newfstatat
            | __NR_statx
            | __NR_faccessat
            | __NR_faccessat2
            | __NR_mkdirat
            | __NR_mknodat
            | __NR_symlinkat
            | __NR_linkat
            | __NR_unlinkat
            | __NR_renameat
            | __NR_renameat2
            | __NR_readlinkat
            | __NR_fchmodat
            | NR_FCHMODAT2
            | NR_SETXATTRAT
            ..=NR_FILE_SETATTR
                | __NR_fchownat
                | __NR_utimensat
                | __NR_truncate
                | __NR_chdir
                | __NR_statfs
                | __NR_getxattr
                | __NR_lgetxattr
                | __NR_setxattr
                | __NR_lsetxattr
                | __NR_listxattr
                | __NR_llistxattr
                | __NR_removexattr
                | __NR_lremovexattr
                | __NR_inotify_add_watch
                | __NR_bind
                | __NR_connect
    )
}

//! Syscall patching: libc's own system-call sites lead to us (x86-64).
//!
//! The exported symbols see what a program asks of libc; what libc does inside
//! itself (locales, time zones, message catalogues, name services, databases)
//! makes its system calls unseen. With `BYPATH_WAYS=patched` the sites of these
//! calls are redirected once, in the constructor:
//!
//! ```text
//! libc:  mov $262,%eax ; syscall      becomes   jmp stub ; nop ; nop
//! stub:  mov $262,%eax ; lea -128(%rsp),%rsp ; call *entry ; lea 128(%rsp),%rsp ; jmp back
//! ```
//! Sites come from a table by build id (`crates/sites` makes it): a shipped one,
//! or the file that `BYPATH_SITES` names, which `bypath run` makes for a libc
//! that none is shipped for.
//!
//! Invariants
//! - A site whose bytes are not those of the table is left alone.
//! - No page is ever writable and executable at once; the loader is never touched.
//! - The kernel's promise is kept for libc's code: all registers but `rax`, `rcx`
//!   and `r11` survive, and so do the red zone and the vector registers.
//!
//! If anything is missing (table, memory near libc, the right to write its
//! text), interposition serves alone, after one line that says why.

mod entry;
mod stubs;
mod table;

use crate::runtime::{call, objects, tls};
use core::ffi::{CStr, c_int};
use pm::sys::abi::*;
use table::Table;

/// Redirects libc's sites; `file` names a table of the user's.
pub fn start(file: Option<&CStr>) {
    match redirect(file) {
        Ok(()) => {}
        Err(why) => crate::complain!("syscall patching is not available here ({why}); libc's own calls are not seen"),
    }
}

/// # Errors
/// What is missing, in words.
fn redirect(file: Option<&CStr>) -> Result<(), &'static str> {
    let libc = Library::find().ok_or("no C library with a build id")?;
    let own = file.and_then(table::read);
    let shipped = table::SHIPPED.iter().copied();
    let table = own.into_iter().chain(shipped).filter_map(Table::parse).find(|table| table.build_id == libc.build_id());
    let table = table.ok_or("there is no table for this C library")?;
    stubs::write(&libc, &table)
}

/// Whether libc's calls of this kind are wanted: those about files. Starting
/// programs stays with the symbols, and so does whatever never names a file.
fn is_wanted(number: u16) -> bool {
    matches!(
        u32::from(number),
        __NR_read
            | __NR_write
            | __NR_open
            | __NR_close
            | __NR_stat
            | __NR_fstat
            | __NR_lstat
            | __NR_poll
            | __NR_lseek
            | __NR_mmap
            | __NR_munmap
            | __NR_ioctl
            | __NR_pread64
            | __NR_pwrite64
            | __NR_readv
            | __NR_writev
            | __NR_access
            | __NR_select
            | __NR_mremap
            | __NR_msync
            | __NR_mprotect
            | __NR_madvise
            | __NR_mlockall
            | __NR_munlockall
            | __NR_dup
            | __NR_dup2
            | __NR_sendfile
            | __NR_connect
            | __NR_bind
            | __NR_sendto
            | __NR_fcntl
            | __NR_flock
            | __NR_fsync
            | __NR_fdatasync
            | __NR_truncate
            | __NR_ftruncate
            | __NR_getdents
            | __NR_getcwd
            | __NR_chdir
            | __NR_fchdir
            | __NR_rename
            | __NR_mkdir
            | __NR_rmdir
            | __NR_creat
            | __NR_link
            | __NR_unlink
            | __NR_symlink
            | __NR_readlink
            | __NR_chmod
            | __NR_fchmod
            | __NR_chown
            | __NR_fchown
            | __NR_lchown
            | __NR_umask
            | __NR_utime
            | __NR_mknod
            | __NR_statfs
            | __NR_fstatfs
            | __NR_chroot
            | __NR_readahead
            | __NR_setxattr
            ..=__NR_fremovexattr
                | __NR_getdents64
                | __NR_fadvise64
                | __NR_utimes
                | __NR_openat
                | __NR_mkdirat
                | __NR_mknodat
                | __NR_fchownat
                | __NR_futimesat
                | __NR_newfstatat
                | __NR_unlinkat
                | __NR_renameat
                | __NR_linkat
                | __NR_symlinkat
                | __NR_readlinkat
                | __NR_fchmodat
                | __NR_faccessat
                | __NR_pselect6
                | __NR_ppoll
                | __NR_splice
                | __NR_tee
                | __NR_sync_file_range
                | __NR_utimensat
                | __NR_fallocate
                | __NR_epoll_ctl
                | __NR_dup3
                | __NR_preadv
                | __NR_pwritev
                | __NR_renameat2
                | __NR_preadv2
                | __NR_pwritev2
                | __NR_statx
                | __NR_copy_file_range
                | __NR_close_range
                | __NR_openat2
                | __NR_faccessat2
                | __NR_inotify_add_watch
                | __NR_name_to_handle_at
    )
}

/// A call that came from inside libc.
///
/// # Safety
/// `args` are six words, what libc hands the kernel for call `number`.
unsafe extern "C" fn serve(number: usize, args: *const [usize; 6]) -> isize {
    // SAFETY: by contract.
    let served = unsafe { call::serve(number, *args) };
    if served.ours {
        let tls = tls::get();
        tls.patched.set(tls.patched.get() + 1);
    }
    served.result
}

/// The C library in memory.
struct Library {
    base: usize,
    build_id: [u8; table::ID_BYTES],
    build_id_len: usize,
    /// Its executable segment, as addresses.
    text: core::ops::Range<usize>,
}

#[link(name = "c")]
unsafe extern "C" {
    safe fn getpid() -> c_int;
}

impl Library {
    /// The library that `getpid`, which we never replace, is in.
    fn find() -> Option<Library> {
        let mut found = None;
        objects::each(|object| {
            let Some(text) = object.text().filter(|text| text.contains(&(getpid as *const () as usize))) else { return false };
            let mut library = Library { base: object.base(), build_id: [0; table::ID_BYTES], build_id_len: 0, text };
            if let Some(id) = object.build_id() {
                library.build_id[..id.len()].copy_from_slice(id);
                library.build_id_len = id.len();
            }
            found = Some(library);
            true
        });
        found.filter(|library: &Library| library.build_id_len != 0)
    }

    fn build_id(&self) -> &[u8] {
        &self.build_id[..self.build_id_len]
    }
}

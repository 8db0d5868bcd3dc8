//! stdio on our descriptors.
//!
//! A `FILE` of libc calls `read`, `write`, `lseek`, `close` and `fstat` through
//! the five last entries of its jump table. [`table`] puts ours there (a store of
//! five words into two tables of libc's data, after each was seen to hold what we
//! expect), and they look whose the descriptor is. So every stream is libc's own:
//! buffering, locking, wide characters, `ungetc`, `dprintf`, the flush at exit and
//! the three standard streams need nothing from us, whoever put our descriptor
//! under them (a redirection by the shell, `dup2`, `exec`).
//!
//! What is left are the functions that open: [`open`].
//!
//! `fopencookie` streams, the obvious other way, have no `fileno`, crash on wide
//! characters and `freopen`, and can't take the place of `stdout` in programs that
//! were linked with its address.

pub mod open;
pub mod table;

/// Descriptor 0, 1 or 2 may have become ours: libc's streams on them need the
/// tables. Says so once, loudly, where this libc has others.
pub fn std_descriptor_changed(fd: i32) {
    use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static SAID: AtomicBool = AtomicBool::new(false);
    if crate::call::is_ours(fd) && !table::prepare() && !SAID.swap(true, Relaxed) {
        crate::complain!("this C library's streams are not known: stdio on descriptor {fd} will fail with EBADF");
    }
}

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

mod more;
mod open;
pub mod table;

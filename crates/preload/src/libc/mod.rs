//! The exported functions, one file a call family.
//!
//! Every name that glibc's dynamic symbol table has for a call is here: the
//! plain one, the `64` one, the `__` one, the fortified `_chk` one and, for the
//! `stat` family, the old `__xstat` generation. C-variadic functions have their
//! optional arguments as fixed ones, which is the same ABI on x86-64 and aarch64.

mod aio;
mod attr;
mod copy;
mod cwd;
mod deepbind;
mod dir;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_dispatch.rs")]
pub mod dispatch;
mod exec;
mod fd;
mod fork;
mod fts;
mod glob;
mod identity;
mod kernel_files;
mod loader;
mod loops;
mod masks;
mod memory;
mod message;
mod misc;
mod names;
mod namespace;
mod open;
mod passed;
pub mod plugin;
mod poll;
mod rw;
mod sanitizers;
mod scan;
mod session;
mod shell;
mod signals;
mod socket;
mod space;
mod spawn;
mod stat;
mod statfs;
mod stores;
mod sync;
mod temporary;
mod tree;
mod xattr;

/// A path or other string of the program.
type Text = *const core::ffi::c_char;
/// `AT_FDCWD`.
const HERE: i32 = -100;
/// `AT_SYMLINK_NOFOLLOW`.
const NOFOLLOW: i32 = 0x100;

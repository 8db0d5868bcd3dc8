//! The C library: the calls of POSIX on namespaces of Bypath's own, without
//! system calls and beside the kernel's files. `include/bypath.h` describes it.
//!
//! Thin: each function takes the namespace's [`posix::Process`] and this
//! thread's state, and goes straight to the call's handler.
//!
//! | file | calls |
//! |---|---|
//! | `namespace.rs` | `bp_open_namespace`, `bp_mount`, … |
//! | `files.rs` | by descriptor: read, write, seek, dup, locks, mapping |
//! | `sources.rs` | what is mounted: images, directories, daemons of a session |
//! | `host.rs` | directories of the kernel's, with its files behind our numbers |
//! | `daemons.rs` | FUSE daemons that this process has started |
//! | `plugins.rs` | mounts of FUSE libraries |
//! | `open.rs` | open in all its forms |
//! | `names.rs` | by path: stat, mkdir, rename, attributes |
//! | `directories.rs` | `bp_opendir` and its kin |
//! | `whole.rs` | whole files in one call |
//! | `trees.rs` | whole trees in one call |
#![allow(clippy::missing_safety_doc)]

mod daemons;
mod directories;
mod files;
mod host;
mod names;
mod namespace;
mod open;
mod plugins;
mod sources;
mod trees;
mod whole;

pub use directories::*;
pub use files::*;
pub use names::*;
pub use namespace::*;
pub use open::*;
pub use plugins::fuse_get_context;
pub use trees::*;
pub use whole::*;

use libc::c_int;
use posix::{Outcome, Process, ThreadState};

/// `bp_ns`: a namespace.
pub struct Namespace {
    process: Process,
}

// SAFETY: libc tells.
static ERRNO: pm::CErrno = unsafe { pm::CErrno::new(libc::__errno_location) };

#[cold]
fn fail(errno: i32) -> isize {
    ERRNO.set(errno);
    -1
}

/// A number or a negated error number in the manner of C.
#[inline]
fn number(result: isize) -> isize {
    if result >= 0 { result } else { fail(-result as i32) }
}

/// A call's result in the manner of C.
#[inline]
fn finish(outcome: Outcome) -> isize {
    match outcome {
        Outcome::Done(result) => number(result),
        // A descriptor that nobody has; there is no kernel behind us.
        Outcome::Kernel | Outcome::KernelWith { .. } => fail(libc::EBADF),
    }
}

/// Makes a call in `ns` with this thread's state.
///
/// # Safety
/// `ns` is null or a namespace that is not closed meanwhile.
#[inline]
unsafe fn call(ns: *const Namespace, serve: impl FnOnce(&Process, &ThreadState) -> Outcome) -> isize {
    // SAFETY: the caller's promise.
    match unsafe { ns.as_ref() } {
        Some(ns) => namespace::with_thread(|thread| finish(serve(&ns.process, thread))),
        None => fail(libc::EFAULT),
    }
}

/// Defines functions that hand their arguments to the handler of the same kind.
///
/// `name(parameters) -> result = handler(six words)`
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($($parameter:ident: $type:ty),*) -> $result:ty = $handler:ident($($word:expr),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the call in C: pointers are valid for what it does with them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(ns: *const crate::Namespace, $($parameter: $type),*) -> $result {
            let words = crate::words([$($word as usize),*]);
            // SAFETY: the caller's promise.
            unsafe { crate::call(ns, |process, thread| process.$handler(thread, words)) as $result }
        }
    )*};
}
pub(crate) use calls;

/// Defines functions that try the fast path first, which needs no state of the
/// thread, or `[thread]`'s.
///
/// `name(parameters) -> result = fast(arguments), else handler(six words)`
macro_rules! fast {
    ($($(#[$doc:meta])* fn $name:ident($($parameter:ident: $type:ty),*) -> $result:ty = $fast:ident$([$state:ident])?($($argument:expr),*), else $handler:ident($($word:expr),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the call in C: pointers are valid for what it does with them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(ns: *const crate::Namespace, $($parameter: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe fn slow(ns: *const crate::Namespace, $($parameter: $type),*) -> $result {
                let words = crate::words([$($word as usize),*]);
                // SAFETY: the caller's promise.
                unsafe { crate::call(ns, |process, thread| process.$handler(thread, words)) as $result }
            }
            // SAFETY: the caller's promise.
            #[allow(unused_unsafe)]
            match unsafe { ns.as_ref().and_then(|ns| ns.process.$fast($(|| crate::namespace::$state(),)? $($argument),*)) } {
                Some(result) => crate::number(result) as $result,
                // SAFETY: the caller's promise.
                None => unsafe { slow(ns, $($parameter),*) },
            }
        }
    )*};
}
pub(crate) use fast;

/// Six words from at most six.
#[inline]
fn words<const N: usize>(some: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    // Word by word, which becomes moves; a copy of a slice would be a call.
    all.iter_mut().zip(some).for_each(|(word, value)| *word = value);
    all
}

/// `AT_FDCWD`.
const CWD: c_int = libc::AT_FDCWD;

//! Whole trees in one call: clones that share their data, and their removal.

use crate::{Namespace, call};
use base::{Cx, Result};
use libc::{c_char, c_int};
use pm::Errno;
use std::ffi::CStr;
use vfs::Backend;
use vfs::tree::{Tally, Trees};

/// Makes a second tree (or file) of one in the same image, which shares its data: all of it or nothing.
///
/// # Safety
/// `ns` is null or a namespace; both paths are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_clone(ns: *const Namespace, from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(ns, |process, thread| {
            process.with_node_and_name(thread, from as usize, to as usize, |cx, node, to| {
                in_trees(cx, to.backend, |trees| trees.clone(node, to.dir, to.name))
            })
        }) as c_int
    }
}

/// Makes a clone of a directory that nobody can change, as `.snap/NAME` in it.
///
/// # Safety
/// `ns` is null or a namespace; path and name are NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_snap(ns: *const Namespace, path: *const c_char, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(ns, |process, thread| {
            let name = if name.is_null() { b"" } else { CStr::from_ptr(name).to_bytes() };
            process.with_node(thread, path as usize, |cx, node, backend| {
                if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
                    return Err(Errno::EINVAL.into());
                }
                in_trees(cx, backend, |trees| trees.snap(node, name))
            })
        }) as c_int
    }
}

/// Removes a tree (or file): its name at once, then all that is in it.
///
/// # Safety
/// `ns` is null or a namespace, `path` NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_drop(ns: *const Namespace, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        call(ns, |process, thread| {
            process.with_name(thread, path as usize, |cx, named| {
                in_trees(cx, named.backend, |trees| trees.remove(named.dir, named.name))
            })
        }) as c_int
    }
}

fn in_trees(
    cx: &Cx,
    backend: &dyn Backend,
    serve: impl FnOnce(&mut Trees) -> std::result::Result<Tally, vfs::tree::Failed>,
) -> Result<()> {
    let mut each = |_: &Tally| true;
    serve(&mut Trees { backend, cx, each: &mut each }).map(drop).map_err(|failed| failed.error)
}

//! Whole trees in one call: clones that share their data, and their removal.

use crate::{Namespace, call};
use base::{Cx, Result};
use libc::{c_char, c_int};
use posix::Named;
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
                in_trees(cx, to, |trees| trees.clone(node, to.dir, to.name))
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
            process.with_name(thread, path as usize, |cx, named| in_trees(cx, named, |trees| trees.remove(named.dir, named.name)))
        }) as c_int
    }
}

fn in_trees(
    cx: &Cx,
    named: Named,
    serve: impl FnOnce(&mut Trees) -> std::result::Result<Tally, vfs::tree::Failed>,
) -> Result<()> {
    let mut each = |_: &Tally| true;
    serve(&mut Trees { backend: named.backend, cx, each: &mut each }).map(drop).map_err(|failed| failed.error)
}

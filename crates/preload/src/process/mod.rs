//! Programs and their children: fork, spawn, exec, and what each inherits of ours. Exported under libc's names by
//! [`crate::libc`].

pub mod copy;
pub mod exec;
pub mod fork;
pub mod hand_over;
pub mod in_mount;
pub mod libraries;
pub mod not_loaded;
pub mod own_calls;
pub mod program;
pub mod shared_copies;
pub mod spawn;
// Elsewhere `vfork` is `fork`.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub mod vfork;

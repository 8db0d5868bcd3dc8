//! `mount` and `move_mount`: the kernel's, which mounts inside its own mount of an image; here it is noted where, so that
//! who comes there next goes to the kernel. The mount's server, who watches the kernel's table, sees it a moment later, and
//! not at all what is mounted in another mount namespace.

use crate::path::{CWD, Place};
use crate::{Outcome, Process, ThreadState};
use base::{Last, Node};
use core::sync::atomic::Ordering::Relaxed;
use pm::sys::abi;
use vfs::Mount;

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// `mount(source, target, type, flags, data)`.
    pub unsafe fn mount_call(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.mount_at(thread, (abi::__NR_mount, args), (CWD, args[1])) }
    }

    /// `move_mount(fromfd, from, tofd, to, flags)`.
    pub unsafe fn move_mount(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.mount_at(thread, (abi::__NR_move_mount, args), (args[2], args[3])) }
    }

    /// Makes a call that mounts something at a path, if that is one of ours where the kernel has the same files.
    unsafe fn mount_at(&self, thread: &ThreadState, (nr, args): (u32, [usize; 6]), (dirfd, path): (usize, usize)) -> Outcome {
        // SAFETY: the caller's promise.
        let Some((mount, node)) = (unsafe { self.shown_node(thread, dirfd, path) }) else { return Outcome::Kernel };
        // SAFETY: the caller's promise.
        let result = unsafe { self.door.kernel(nr as usize, args) };
        if result == 0 {
            // Where there is no room for it, who comes there finds what is below, as the page says.
            let _ = mount.backend.kernel_mount().cover(&self.cx(thread), node);
        }
        Outcome::Done(result)
    }

    /// The node of ours that a path leads to, but for a mount's root.
    unsafe fn shown_node(&self, thread: &ThreadState, dirfd: usize, path: usize) -> Option<(&Mount, Node)> {
        if self.shown.load(Relaxed) == 0 {
            return None;
        }
        let cx = self.cx(thread);
        // SAFETY: the caller's promise.
        let Ok(Place::Ours(spot)) = (unsafe { self.resolve(&cx, thread, 0, dirfd, path, Last::Follow) }) else { return None };
        let (slot, mount) = self.mounts.iter().find(|(slot, _)| *slot == spot.slot)?;
        let is_shown = self.shown.load(Relaxed) >> slot & 1 != 0;
        let node = spot.found.node.filter(|node| is_shown && *node != mount.root)?;
        Some((mount, node))
    }
}

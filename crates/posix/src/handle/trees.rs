//! Where calls on whole trees find what they are about: the C library's own, beyond POSIX.

use super::{done, err, fail};
use crate::path::{CWD, Place, Spot};
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Last, Node};
use pm::Errno;
use vfs::Backend;

/// A name in a directory of a file system.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    /// The file system.
    pub backend: &'a dyn Backend,
    /// The directory.
    pub dir: Node,
    /// What stands in it, or will.
    pub name: &'a [u8],
}

impl Process {
    /// Calls `serve` with what two paths lead to, in one file system: a node, and a name. `EXDEV`, `EEXIST`.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    pub unsafe fn with_node_and_name(
        &self,
        thread: &ThreadState,
        from: usize,
        to: usize,
        serve: impl FnOnce(&Cx, Node, Named) -> base::Result<()>,
    ) -> Outcome {
        let cx = &self.cx(thread);
        // SAFETY: the caller's promise.
        let places = unsafe {
            (self.resolve(cx, thread, 0, CWD, from, Last::NoFollow), self.resolve(cx, thread, 1, CWD, to, Last::Parent))
        };
        match places {
            (Err(error), _) | (_, Err(error)) => fail(error.errno()),
            (Ok(Place::Ours(from)), Ok(Place::Ours(to))) if from.slot == to.slot => {
                let served = from.node(cx).and_then(|node| serve(cx, node, named(&to, Errno::EEXIST)?));
                done(served.map(|()| 0))
            }
            _ => fail(Errno::EXDEV),
        }
    }

    /// Calls `serve` with what a path leads to, symlinks followed.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    pub unsafe fn with_node(
        &self,
        thread: &ThreadState,
        path: usize,
        serve: impl FnOnce(&Cx, Node, &dyn Backend) -> base::Result<()>,
    ) -> Outcome {
        let cx = &self.cx(thread);
        // SAFETY: the caller's promise.
        match unsafe { self.resolve(cx, thread, 0, CWD, path, Last::Follow) } {
            Ok(Place::Ours(spot)) => done(spot.node(cx).and_then(|node| serve(cx, node, spot.mount.backend)).map(|()| 0)),
            Ok(_) => fail(Errno::EXDEV),
            Err(error) => fail(error.errno()),
        }
    }

    /// Calls `serve` with the name that a path leads to, which is to go: `EBUSY` where something is mounted.
    ///
    /// # Safety
    /// As for [`Process::handle`].
    pub unsafe fn with_name(
        &self,
        thread: &ThreadState,
        path: usize,
        serve: impl FnOnce(&Cx, Named) -> base::Result<()>,
    ) -> Outcome {
        let cx = &self.cx(thread);
        // SAFETY: the caller's promise.
        match unsafe { self.resolve(cx, thread, 0, CWD, path, Last::Parent) } {
            Ok(Place::Ours(spot)) => {
                let served =
                    named(&spot, Errno::EBUSY).and_then(|named| self.may_remove(cx, &spot).and_then(|()| serve(cx, named)));
                done(served.map(|()| 0))
            }
            Ok(_) => fail(Errno::EXDEV),
            Err(error) => fail(error.errno()),
        }
    }
}

/// The name that a path ends in; `otherwise` where it is no name.
fn named<'a>(spot: &Spot<'a>, otherwise: Errno) -> base::Result<Named<'a>> {
    if !spot.is_name() {
        return err(otherwise);
    }
    Ok(Named { backend: spot.mount.backend, dir: spot.found.parent, name: spot.found.name })
}

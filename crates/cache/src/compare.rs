//! What has changed below before anybody watched: a node is compared with its original when it is used for the first time.
//!
//! One look at the original tells whether the node is what it was. Where it is not, its name, or the names of the directory that
//! it is, are looked at as for an event ([`crate::watch`]). A directory of which the original has the same times has the same
//! names. Where the original can't be looked at, or a round decides what becomes of the node, it is used as it is; the process
//! that keeps the cache fresh goes over all of it in any case ([`engine::lower`]'s `compare`).

use crate::fresh::TICK;
use crate::lower::Path;
use crate::watch::Look;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use engine::lower::Known;

/// How often a name may lead to another node that is to be compared.
const ATTEMPTS: u32 = 100;

/// Whether names, or what is below one, have not changed since the last look, as far as times tell.
pub(crate) fn is_sure(known: &Known) -> bool {
    // Of a change in the same tick of the clock as the last look the times say nothing.
    known.seen.saturating_sub(known.stamp.ctime) > TICK
}

impl Cache {
    /// What a name leads to, by `find`, which is compared before it is told, as the directory is before it is searched.
    pub(crate) fn compared(
        &self,
        cx: &Cx,
        (dir, name): (Node, &[u8]),
        find: impl Fn() -> Result<(Node, Kind)>,
    ) -> Result<(Node, Kind)> {
        let _ = self.compare(cx, dir);
        let mut found = find()?;
        for _ in 0..ATTEMPTS {
            // One that has gone by now is what the name led to a moment ago.
            if self.fs().is_uncompared(cx, found.0) != Ok(true) {
                break;
            }
            let _ = self.compare_at(cx, found.0, |room| self.path(room, dir, name));
            let before = found.0.id;
            found = find()?;
            if found.0.id == before {
                break;
            }
        }
        Ok(found)
    }

    /// Compares a node with its original, unless that has been done. Its name may lead elsewhere afterwards.
    pub(crate) fn compare(&self, cx: &Cx, node: Node) -> Result<()> {
        self.compare_at(cx, node, |room| self.path_to(cx, room, node))
    }

    /// The same; `path` is that of the original.
    fn compare_at(&self, cx: &Cx, node: Node, path: impl Fn(&mut Path) -> Result<&Path>) -> Result<()> {
        if !self.fs().is_uncompared(cx, node)? {
            return Ok(());
        }
        let Some(known) = self.known_if(node)? else { return Ok(()) };
        let kind = self.fs().attr(&own(cx), node)?.kind;
        let is_directory = kind == Kind::Directory;
        if is_directory {
            self.fs().watch_soon(node);
        }
        let is_same = match self.lower.look(cx, path(&mut Path::room())?) {
            Ok(original) if known.is_dirty() => known.stamp.is_same_file(&original.stamp) && !is_directory,
            Ok(original) => known.stamp == original.stamp && (!is_directory || is_sure(&known)),
            Err(Error::Posix(Errno::ENOENT | Errno::ENOTDIR)) => false,
            Err(_) => return Ok(()),
        };
        if is_same || self.look_at_changed(cx, node, is_directory) {
            self.fs().set_compared(cx, node)?;
        }
        Ok(())
    }

    /// Looks at a node that has changed below; whether that could be done.
    fn look_at_changed(&self, cx: &Cx, node: Node, is_directory: bool) -> bool {
        // What is newer here a round decides.
        if is_directory && self.refresh_one(cx, node).is_ok() {
            return true;
        }
        let mut name = [0; 255];
        for _ in 0..ATTEMPTS {
            let Ok(Some((dir, len))) = self.fs().named(node, &mut name) else { return false };
            match self.refresh_entry(cx, dir, &name[..len]) {
                Ok(Look::Done) => return true,
                // Changed here meanwhile.
                Ok(Look::Again) => {}
                _ => return false,
            }
        }
        false
    }
}

//! A file that is here by one name and gets another one below: no event says which file that is.
//!
//! A name that is brought and has others below leads to the node that is noted for its original in [`Cache::links`]. A file that
//! had one name when it came is not noted there: two nodes are the same file then, until they are joined. The one that programs
//! have open, or have changed, stays.

use crate::ask::Key;
use crate::fresh::{CLOSED, text};
use crate::lower::{Handle, Original, Path};
use crate::watch::Look;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use engine::lower::{Stamp, bits};

/// Most names of a node that are looked at.
const NAMES_MAX: u32 = 1 << 16;
/// After so many names it is asked whether the look goes on.
const NAMES: u64 = 256;

impl Cache {
    /// Looks for files that are here by one name, and by another as another node. Whether all of them are one node now.
    pub fn join_all(&self, cx: &Cx, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        let mut are_joined = true;
        for number in 0..self.fs().names_steps() {
            if number % NAMES == 0 && !goes_on() {
                return Ok(false);
            }
            let mut found = Ok(true);
            self.fs().names_at(number, &mut |dir, node, kind| {
                if kind != Kind::Directory && dir != self.links && found.is_ok() {
                    found = self.is_or_becomes_joined(cx, node);
                }
            })?;
            are_joined &= match found {
                // Gone meanwhile.
                Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => true,
                found => found?,
            };
        }
        Ok(are_joined)
    }

    fn is_or_becomes_joined(&self, cx: &Cx, node: Node) -> Result<bool> {
        let Some(known) = self.known_if(node)? else { return Ok(true) };
        if self.is_joined(cx, node, &known.stamp) {
            return Ok(true);
        }
        let mut name = [0; 255];
        let Some((dir, len)) = self.fs().named(node, &mut name)? else { return Ok(true) };
        let name = &name[..len];
        if self.refresh_entry(cx, dir, name)? != Look::Done {
            return Ok(false);
        }
        // A round has noted before that it has other names.
        let handle = self.lower.handle(cx, self.path(&mut Path::room(), dir, b"")?)?;
        let (known, original) = (self.known(node)?, handle.child(cx, text(name, &mut [0; 256])?)?);
        if known.stamp != original.stamp || self.fs().lookup(&own(cx), dir, name)?.id != node.id {
            return Ok(true);
        }
        match self.join(cx, node, &original) {
            Err(Error::Posix(Errno::EBUSY)) => self.leave(cx, (dir, &handle), name, (node, &known.stamp), 0).map(|()| true),
            joined => joined.map(|()| self.is_joined(cx, node, &original.stamp)),
        }
    }

    /// Whether no other node is noted for the original of a node.
    fn is_joined(&self, cx: &Cx, node: Node, original: &Stamp) -> bool {
        !self.fs().lookup(&own(cx), self.links, &Key::new(original).0).is_ok_and(|noted| noted.id != node.id)
    }

    /// Has the node of an original with several names noted as such. `EBUSY` if another node is noted for it, which programs use,
    /// and this one is to go.
    pub(crate) fn join(&self, cx: &Cx, node: Node, original: &Original) -> Result<()> {
        let (fs, own, key) = (self.fs(), &own(cx), Key::new(&original.stamp));
        // One that was made here is known by its own number, and the names that it has here; what is newer here a round decides.
        if self.known(node)?.state & (bits::MADE | bits::DIRTY) != 0 {
            return Ok(());
        }
        let noted = match fs.lookup(own, self.links, &key.0) {
            Err(Error::Posix(Errno::ENOENT)) => return self.note_if_clean(own, node, original),
            noted => noted?,
        };
        if noted.id == node.id || !self.is_at_its_name(cx, noted, original) {
            return Ok(());
        }
        if self.is_used(own, noted)? {
            return if self.is_used(own, node)? { Ok(()) } else { Err(Errno::EBUSY.into()) };
        }
        fs.unlink(own, self.links, &key.0)?;
        self.note_if_clean(own, node, original)?;
        for _ in 0..NAMES_MAX {
            let mut name = [0; 255];
            let stamp = match self.known(noted) {
                Ok(known) => known.stamp,
                Err(_) => break,
            };
            let Ok(Some((dir, len))) = fs.named(noted, &mut name) else { break };
            self.drop_name(cx, dir, &name[..len], (noted, &stamp), 0)?;
            if self.known(dir)?.is_dirty() {
                // A name that is missing in a directory that is listed is not asked for.
                let _ = self.ask(cx, dir, &name[..len], 0);
            }
        }
        Ok(())
    }

    /// Notes a node for its original, unless programs have changed it: the name that is made for that would count as one of its
    /// own.
    fn note_if_clean(&self, own: &Cx, node: Node, original: &Original) -> Result<()> {
        let Some(closed) = self.fs().close_changes(CLOSED)? else { return Ok(()) };
        let noted = match self.known(node) {
            Ok(known) if !known.is_dirty() => self.note_links(own, node, original),
            known => known.map(drop),
        };
        closed.open();
        noted
    }

    /// A file has changed below by a name that is not here: others may be.
    pub(crate) fn changed_by_another_name(&self, cx: &Cx, handle: &Handle, name: &[u8]) {
        let original = text(name, &mut [0; 256]).and_then(|name| handle.child(cx, name));
        if let Ok(original) = original
            && original.has_names()
        {
            self.doubt_noted(&own(cx), &original.stamp);
        }
    }

    /// An original has lost a name below, or changed by one. Its other names, of which no event tells, lead to the node that is
    /// noted for it: what that shows its next use finds out.
    pub(crate) fn doubt_noted(&self, own: &Cx, original: &Stamp) {
        if let Ok(noted) = self.fs().lookup(own, self.links, &Key::new(original).0) {
            let _ = self.fs().set_uncompared(own, noted);
        }
    }

    /// Whether a node's name leads to this original below: another file may have got the number of one that has gone.
    fn is_at_its_name(&self, cx: &Cx, node: Node, original: &Original) -> bool {
        let there = self.path_to(cx, &mut Path::room(), node).and_then(|path| self.lower.look(cx, path));
        there.is_ok_and(|there| there.stamp.is_same_file(&original.stamp) && there.stamp.ctime == original.stamp.ctime)
    }

    /// Whether programs have a file open, or have changed it.
    fn is_used(&self, own: &Cx, node: Node) -> Result<bool> {
        Ok(self.is_newer(node)? || self.fs().is_open(own, node)?)
    }
}

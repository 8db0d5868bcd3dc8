//! Glances at what a mount holds, quick where the native engine serves it.
//!
//! Nearly always nothing is mounted inside another mount, and nobody need ask at each component whether it is covered.
//! So each glance is compiled twice: for such a namespace (`NESTED` false: [`MountTable::is_flat`]), and for the others.

use super::{Mount, MountTable, Native};
use crate::Node;
use base::stat::Stat;
use base::{Caller, Cx, Glance, Kind, Name, Opening, Sight};
use core::mem::MaybeUninit;
use pm::Text;

impl Mount {
    /// As [`Backend::walk`](crate::Backend::walk), where that is quick: a path of plain components (no leading slash)
    /// whose nodes are at hand, none of them covered. It may always be unsure, and is where a right is missing. Who asks is
    /// only looked up where not everybody may search.
    #[inline(always)]
    pub fn glance<'c, const NESTED: bool>(
        &self,
        _among: &MountTable,
        _who: impl Fn() -> &'c Caller,
        _base: Node,
        _path: Text,
        _follow: bool,
    ) -> (Glance, Sight) {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            let mut sight = Sight::EMPTY;
            return (
                fs.glance(_who, _base, _path, _follow, |node| NESTED && self.is_mounted_on(_among, node), &mut sight),
                sight,
            );
        }
        (Glance::Unsure, Sight::EMPTY)
    }

    /// As [`Mount::glance`], where nothing is asked but whether there is something.
    #[inline(always)]
    pub fn glance_existence<'c, const NESTED: bool>(
        &self,
        _among: &MountTable,
        _who: impl Fn() -> &'c Caller,
        _base: Node,
        _path: Text,
        _follow: bool,
    ) -> Glance {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_existence(_who, _base, _path, _follow, |node| NESTED && self.is_mounted_on(_among, node));
        }
        Glance::Unsure
    }

    /// As [`Mount::glance`], and opens what is there, if the image may be changed where that is asked for. `decide` is told
    /// its mode word ([`Sight::word`]) and owner, and says of which kind it is (no symlink), with which flags it is to be
    /// opened, and under which number. A context is only asked for if it is needed.
    #[inline(always)]
    pub fn glance_open<'c, const NESTED: bool>(
        &self,
        _among: &MountTable,
        _who: impl Fn() -> &'c Caller,
        _from: (Node, Text),
        _writable: bool,
        _decide: impl FnOnce(u32, u32) -> Option<(Kind, u32, u32)>,
        _context: impl FnOnce() -> Cx<'c>,
    ) -> Opening {
        #[cfg(feature = "native")]
        if let Some(fs) = if _writable { self.changing } else { self.direct } {
            let covered = |node| NESTED && self.is_mounted_on(_among, node);
            return fs.glance_open(_who, _from, covered, _writable, _decide, _context);
        }
        Opening::Unsure
    }

    /// As [`Mount::glance`], of a name that may not be there yet, or be covered: the engine, its directory, and the last
    /// component, a proper name without a slash behind it.
    #[inline(always)]
    pub fn glance_parent<'a, 'c, const NESTED: bool>(
        &self,
        _among: &MountTable,
        _who: impl Fn() -> &'c Caller,
        _base: Node,
        _path: Text<'a>,
    ) -> Option<(Native, Node, Name<'a>)> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.changing {
            let (dir, name) = fs.glance_parent(_who, _base, _path, |node| NESTED && self.is_mounted_on(_among, node))?;
            return Some((fs, dir, name));
        }
        None
    }

    /// As [`Mount::glance`], and the node's attributes for the program; `out` is written only if it was seen.
    #[inline(always)]
    pub fn glance_stat<'c, const NESTED: bool>(
        &self,
        _among: &MountTable,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        follow: bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Glance {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_stat(who, base, path, follow, |node| NESTED && self.is_mounted_on(_among, node), out);
        }
        // Another backend's glance does not ask what is covered.
        if NESTED && self.is_covered() { Glance::Unsure } else { self.backend.glance_stat(who(), base, path, follow, out) }
    }

    /// Whether something is mounted on node `id`.
    #[cfg(feature = "native")]
    fn is_mounted_on(&self, among: &MountTable, id: u64) -> bool {
        among.mounted_on(self, id).is_some()
    }

    /// Whether something may be mounted on the directory called `name` in `dir`.
    pub fn may_be_covered_at(&self, among: &MountTable, _dir: Node, _name: &[u8]) -> bool {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return among.inside(self).any(|(_, inner)| fs.is_seen_as(inner.covers, _dir, _name) != Some(false));
        }
        among.inside(self).next().is_some()
    }
}

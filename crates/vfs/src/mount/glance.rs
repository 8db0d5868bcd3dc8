//! Glances at what a mount holds, quick where the native engine serves it.
//!
//! Nearly always nothing is mounted inside another mount; so what asks at each component whether it is
//! covered, the glance *between* mounts, is compiled a second time, for the namespaces that are not flat
//! ([`MountTable::is_flat`]).

use super::{Mount, MountTable};
use crate::Node;
use base::stat::Stat;
use base::{Caller, Glance, Sight};
use core::mem::MaybeUninit;
use pm::Text;

impl Mount {
    /// As [`Backend::walk`](crate::Backend::walk), where that is quick and nothing is mounted inside: a path of plain components
    /// (no leading slash) whose nodes are at hand. It may always be unsure, and is where a right is missing. Who asks is only
    /// looked up where not everybody may search.
    #[inline(always)]
    pub fn glance<'c>(&self, _who: impl Fn() -> &'c Caller, _base: Node, _path: Text, _follow: bool) -> (Glance, Sight) {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            let mut sight = Sight::EMPTY;
            return (fs.glance(_who, _base, _path, _follow, |_| false, &mut sight), sight);
        }
        (Glance::Unsure, Sight::EMPTY)
    }

    /// As [`Mount::glance`], of a name that may not be there yet: its directory, and the last component, a proper name
    /// without a slash behind it.
    #[inline(always)]
    pub fn glance_parent<'a>(&self, _who: &Caller, _base: Node, _path: Text<'a>) -> Option<(Node, &'a [u8])> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_parent(_who, _base, _path, |_| false);
        }
        None
    }

    /// As [`Mount::glance`], and the node's attributes for the program; `out` is written only if it was seen.
    #[inline(always)]
    pub fn glance_stat<'c>(
        &self,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        follow: bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Glance {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_stat(who, base, path, follow, |_| false, out);
        }
        self.backend.glance_stat(who(), base, path, follow, out)
    }
}

/// Between the mounts of a table: of the native engine only, other backends' glances do not ask what is covered.
impl Mount {
    /// As [`Mount::glance`], if none of the nodes is covered.
    pub fn glance_between(&self, _among: &MountTable, _who: &Caller, _base: Node, _path: Text, _follow: bool) -> (Glance, Sight) {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            let mut sight = Sight::EMPTY;
            let covered = |node| _among.mounted_on(self, node).is_some();
            return (fs.glance(|| _who, _base, _path, _follow, covered, &mut sight), sight);
        }
        (Glance::Unsure, Sight::EMPTY)
    }

    /// As [`Mount::glance_parent`], if none of the directories on the way is covered; what the name leads to may be.
    pub fn glance_parent_between<'a>(
        &self,
        _among: &MountTable,
        _who: &Caller,
        _base: Node,
        _path: Text<'a>,
    ) -> Option<(Node, &'a [u8])> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_parent(_who, _base, _path, |node| _among.mounted_on(self, node).is_some());
        }
        None
    }

    /// As [`Mount::glance_stat`], if none of the nodes is covered.
    pub fn glance_stat_between(
        &self,
        _among: &MountTable,
        _who: &Caller,
        _base: Node,
        _path: Text,
        _follow: bool,
        _out: &mut MaybeUninit<Stat>,
    ) -> Glance {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_stat(|| _who, _base, _path, _follow, |node| _among.mounted_on(self, node).is_some(), _out);
        }
        Glance::Unsure
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

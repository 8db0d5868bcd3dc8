//! Glances at what a mount holds: quick where the native engine serves it, also where something is mounted inside.
//!
//! Nearly always nothing is; so what asks at each component whether it is covered is compiled a second
//! time, and the first way pays for one look at a byte.

use super::{Mount, MountTable};
use crate::Node;
use base::stat::Stat;
use base::{Caller, Glance, Sight};
use core::mem::MaybeUninit;
use pm::Text;

impl Mount {
    /// As [`Backend::walk`](crate::Backend::walk), where that is quick: a path of plain components (no leading slash) whose
    /// nodes are at hand, and none of which is covered. It may always be unsure, and is where a right is missing. Who asks
    /// is only looked up where not everybody may search.
    #[inline(always)]
    pub fn glance<'c>(
        &self,
        among: &MountTable,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        follow: bool,
    ) -> (Glance, Sight) {
        let mut sight = Sight::EMPTY;
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            let glance = match self.is_covered() {
                false => fs.glance(who, base, path, follow, |_| false, &mut sight),
                true => self.glance_between(among, who(), base, path, follow, &mut sight),
            };
            return (glance, sight);
        }
        (Glance::Unsure, sight)
    }

    #[cfg(feature = "native")]
    #[cold]
    #[inline(never)]
    fn glance_between(
        &self,
        among: &MountTable,
        who: &Caller,
        base: Node,
        path: Text,
        follow: bool,
        sight: &mut Sight,
    ) -> Glance {
        self.direct.map_or(Glance::Unsure, |fs| {
            fs.glance(|| who, base, path, follow, |node| among.mounted_on(self, node).is_some(), sight)
        })
    }

    /// As [`Mount::glance`], of a name that may not be there yet: its directory, and the last component, a proper name
    /// without a slash behind it. That one may be covered.
    #[inline(always)]
    pub fn glance_parent<'a>(&self, among: &MountTable, who: &Caller, base: Node, path: Text<'a>) -> Option<(Node, &'a [u8])> {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return match self.is_covered() {
                false => fs.glance_parent(who, base, path, |_| false),
                true => self.glance_parent_between(among, who, base, path),
            };
        }
        None
    }

    #[cfg(feature = "native")]
    #[cold]
    #[inline(never)]
    fn glance_parent_between<'a>(
        &self,
        among: &MountTable,
        who: &Caller,
        base: Node,
        path: Text<'a>,
    ) -> Option<(Node, &'a [u8])> {
        self.direct?.glance_parent(who, base, path, |node| among.mounted_on(self, node).is_some())
    }

    /// Whether something may be mounted on the directory called `name` in `dir`.
    pub fn may_be_covered_at(&self, among: &MountTable, dir: Node, name: &[u8]) -> bool {
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return among.inside(self).any(|(_, inner)| fs.is_seen_as(inner.covers, dir, name) != Some(false));
        }
        self.is_covered()
    }

    /// As [`Mount::glance`], and the node's attributes for the program; `out` is written only if it was seen.
    #[inline(always)]
    pub fn glance_stat<'c>(
        &self,
        among: &MountTable,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        follow: bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Glance {
        if self.is_covered() {
            return self.glance_stat_between(among, who(), base, path, follow, out);
        }
        #[cfg(feature = "native")]
        if let Some(fs) = self.direct {
            return fs.glance_stat(who, base, path, follow, |_| false, out);
        }
        self.backend.glance_stat(who(), base, path, follow, out)
    }

    /// Of the native engine only: other backends' own glances do not ask what is covered.
    #[cold]
    #[inline(never)]
    fn glance_stat_between(
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
}

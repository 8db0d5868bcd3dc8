//! Files that share their data here. Below they are copies: a round writes what is new, whosever blocks it has here.

use crate::change::{ATTEMPTS, written};
use crate::data::Brought;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result, Twin};
use vfs::backend::Backend;

impl Cache {
    /// Makes a range of a file one of another file's, or of the same. All of it has to be here: what would be a hole of its own
    /// there would be filled from below. So is the target, whole.
    pub(crate) fn share(&self, cx: &Cx, (from, from_at): (Node, u64), (to, to_at): (Node, u64), len: u64) -> Result<()> {
        self.writable()?;
        let wanted = if len == 0 { u64::MAX } else { len };
        self.have(cx, from, from_at, wanted)?;
        self.change(cx, &[], || {
            let size = self.fs().attr(&own(cx), from)?.size;
            let end = to_at.saturating_add(wanted.min(size.saturating_sub(from_at)));
            let before = self.fs().attr(&own(cx), to)?.size;
            self.touch_bytes(cx, to, written(to_at, end, before, false))?;
            self.bring_whole(cx, to)?;
            self.while_here(cx, &[(from, from_at, wanted)], || self.native.clone_range(cx, (from, from_at), (to, to_at), len))
        })
    }

    /// Nothing is changed by that, so nothing is noted.
    pub(crate) fn share_same(&self, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<Option<u64>> {
        self.writable()?;
        let both = [(from.0, from.1, len), (to.0, to.1, len)];
        for (node, at, len) in both {
            self.have(cx, node, at, len)?;
        }
        self.while_here(cx, &both, || self.native.dedupe_range(cx, from, to, len))
    }

    pub(crate) fn make_twin(
        &self,
        cx: &Cx,
        (source, kind): (Node, Kind),
        dir: Node,
        name: &[u8],
        mode: Option<u16>,
    ) -> Result<Twin> {
        match self.lookup(cx, dir, name) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Errno::EEXIST.into()),
        }
        self.may_change_names(dir)?;
        let whole = [(source, 0, u64::MAX)];
        let needed = if kind == Kind::Regular { &whole[..] } else { &[] };
        for (node, at, len) in needed {
            self.have(cx, *node, *at, *len)?;
        }
        self.change(cx, &[dir], || {
            self.touch_name(cx, dir, name)?;
            self.while_here(cx, needed, || self.native.twin(cx, (source, kind), dir, name, mode))
        })
    }

    fn have(&self, cx: &Cx, node: Node, at: u64, len: u64) -> Result<()> {
        match self.bring_settled(cx, node, at, len)? {
            Brought::All => Ok(()),
            Brought::NoRoom => Err(Errno::ENOSPC.into()),
        }
    }

    /// Makes a change for which these bytes have been brought. What of them has gone meanwhile, for lack of room, is brought again.
    fn while_here<T>(&self, cx: &Cx, needed: &[(Node, u64, u64)], mut change: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS {
            match change() {
                Err(Error::Posix(Errno::EAGAIN)) => {}
                done => return done,
            }
            for (node, at, len) in needed {
                if self.bring_bytes(cx, *node, *at, *len)? == Brought::NoRoom {
                    return Err(Errno::ENOSPC.into());
                }
            }
        }
        Err(Errno::EBUSY.into())
    }
}

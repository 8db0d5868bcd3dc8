//! A name that leads to another file below by now leads to it here in one step: a look-up finds the one or the other, and an
//! open file stays what it was.
//!
//! The node of the successor is made in the directory of files with several names, where it is not looked for, and then takes
//! the name by a rename. A process that dies between the two leaves a name there, which the next call removes.

use crate::fresh::{CLOSED, text};
use crate::lower::{Handle, Original, Target};
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, RenameMode, Result};
use engine::lower::{Stamp, Whole, Written};

/// What a successor is called until it has its name.
const ASIDE: &[u8] = b"successor";

impl Cache {
    /// Has a name of a directory lead to what has it below. `EOPNOTSUPP` where that takes more than one step: directories, and
    /// files with several names. `ESTALE` if it does not lead any more to what was looked at, or that is newer here.
    pub(crate) fn succeed(
        &self,
        cx: &Cx,
        (dir, handle): (Node, &Handle),
        name: &[u8],
        (node, looked): (Node, &Stamp),
    ) -> Result<()> {
        let found = handle.inner(cx, text(name, &mut [0; 256])?)?;
        let original = found.original(cx)?;
        let kinds = [original.attr.kind, self.fs().attr(&own(cx), node)?.kind];
        if kinds.contains(&Kind::Directory) || original.has_names() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let target = Target::of(cx, &found, &original)?;
        let new = self.make_aside(cx, &original.whole(target.text()))?;
        let done = self.take_name(&own(cx), (dir, name), (node, looked), (new, &original));
        if done.is_err() {
            let _ = self.fs().unlink(&own(cx), self.links, ASIDE);
            return done;
        }
        // The rename is no change of the original.
        self.fs().restamp(&own(cx), new, &original.change())?;
        self.tell_name(cx, dir, name);
        self.tell_watchers(cx, (dir, name), Some(node));
        self.tell_followers(cx, new, true);
        Ok(())
    }

    fn make_aside(&self, cx: &Cx, whole: &Whole) -> Result<Node> {
        let (fs, cx) = (self.fs(), &own(cx));
        match fs.create_whole(cx, self.links, ASIDE, whole) {
            Err(Error::Posix(Errno::EEXIST)) => {
                fs.unlink(cx, self.links, ASIDE)?;
                fs.create_whole(cx, self.links, ASIDE, whole)
            }
            made => made,
        }
    }

    /// Gives the node that is aside its name, while changes wait.
    fn take_name(
        &self,
        cx: &Cx,
        (dir, name): (Node, &[u8]),
        (node, looked): (Node, &Stamp),
        (new, original): (Node, &Original),
    ) -> Result<()> {
        let fs = self.fs();
        let Some(closed) = fs.close_changes(CLOSED)? else { return Err(Errno::ESTALE.into()) };
        let take = || -> Result<()> {
            let known = self.known(node)?;
            let is_as_looked = known.stamp == *looked && !known.is_dirty() && fs.lookup(cx, dir, name)? == node;
            // Another process may have made a successor of another file.
            if !is_as_looked || self.is_name_newer(cx, dir, name)? || fs.lookup(cx, self.links, ASIDE)? != new {
                return Err(Errno::ESTALE.into());
            }
            let stays = fs.names_here(node)? > 1;
            fs.rename(cx, self.links, ASIDE, dir, name, RenameMode::Replace)?;
            if stays {
                self.restore_times(cx, node)?;
            }
            self.doubt_noted(cx, &known.stamp);
            self.forget_link(cx, node);
            self.restore_times(cx, dir)?;
            // By that name it is found below.
            fs.written(cx, new, &Written { stamp: original.stamp, is_clean: true, name: Some((dir, name)) })
        };
        let done = take();
        closed.open();
        done
    }
}

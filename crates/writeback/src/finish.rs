//! The end of a round: what has no name any more goes, times of directories, stamps; then the notes go.

use crate::below::{Dir, parked_id};
use crate::journal::Journal;
use crate::place::Found;
use crate::plan::{Spot, if_there, image, names_in, node};
use crate::{Failure, Id, Result, Work};
use base::{Error, Kind, Node};
use cache::touch::Label;
use engine::lower::{Stamp, Written};
use pm::Errno;
use rustix::fs::RenameFlags;
use std::collections::BTreeSet;

/// Stamps set while the gate is closed once.
const BATCH: usize = 256;
/// How long it is closed then, nanoseconds, and attempts.
const CLOSED: u64 = 500_000_000;
const ATTEMPTS: u32 = 200;
/// Most levels of directories that are removed.
const DEPTH_MAX: u32 = 5_000;

/// A node that was written.
struct Stamped {
    node: Node,
    stamp: Stamp,
    name: Option<(Node, Vec<u8>)>,
}

impl Work<'_> {
    /// Removes what is left in the park, and the park.
    pub fn remove(&mut self) -> Result<()> {
        let Some(park) = self.below.park_if()? else { return Ok(()) };
        for name in park.names()? {
            let removed = self.remove_parked(&park, &name);
            self.or_cut(removed)?;
        }
        self.places.clear();
        self.before("unpark")?;
        match self.below.top()?.remove(self.below.park_name(), true) {
            // Something in it is somebody else's: it stays to be seen.
            Err(failure) if failure.errno == Errno::ENOTEMPTY => Ok(()),
            result => result,
        }
    }

    fn remove_parked(&mut self, park: &Dir, name: &[u8]) -> Result<()> {
        let Some(there) = park.stat(name)? else { return Ok(()) };
        let file = there.id;
        if name.starts_with(b"new-") {
            // Gone here before it had its name.
            self.before("remove")?;
            return park.remove(name, there.attr.kind == Kind::Directory);
        }
        if parked_id(name) != Some(file) || !self.plan.ours.contains(&file) {
            return Ok(());
        }
        let is_directory = there.attr.kind == Kind::Directory;
        if self.plan.wanted.contains(&file) {
            if is_directory || !self.stands(file)? {
                // It could not be moved.
                return Err(Failure::new(name, Errno::EBUSY));
            }
            // One of several names, and none of those that it has now.
            self.before("remove")?;
            return park.remove(name, false);
        }
        self.remove_ours(park, name, file, is_directory, 0)
    }

    /// Whether a file stands at all names that it is to have.
    fn stands(&mut self, file: Id) -> Result<bool> {
        let nodes = self.plan.targets.iter().filter(|(node, _)| self.plan.ids.get(*node) == Some(&file));
        let names: Vec<Spot> = nodes.flat_map(|(_, names)| names.clone()).collect();
        for (dir, name) in &names {
            let Some(dir) = self.open(*dir)? else { return Ok(false) };
            if !dir.has(name, file)? {
                return Ok(false);
            }
        }
        Ok(!names.is_empty())
    }

    /// Removes a file or directory of ours. A directory with something of somebody else's in it goes to the top of the
    /// directory below instead.
    fn remove_ours(&mut self, dir: &Dir, name: &[u8], file: Id, is_directory: bool, depth: u32) -> Result<()> {
        if is_directory {
            if depth > DEPTH_MAX {
                return Err(Failure::new(name, Errno::ELOOP));
            }
            let inner = dir.dir(name)?;
            for entry in inner.names()? {
                let Some(there) = inner.stat(&entry)? else { continue };
                let id = there.id;
                if self.plan.ours.contains(&id) && !self.plan.wanted.contains(&id) {
                    self.remove_ours(&inner, &entry, id, there.attr.kind == Kind::Directory, depth + 1)?;
                }
            }
        }
        self.before("remove")?;
        match dir.remove(name, is_directory) {
            Err(failure) if failure.errno == Errno::ENOTEMPTY && depth == 0 => {
                let (top, was) = (self.below.top()?, self.plan.was.get(&file).and_then(|spots| spots.first()).cloned());
                let name_then = was.map_or_else(|| name.to_vec(), |(_, name)| name);
                let kept = [&name_then[..name_then.len().min(200)], b".bypath-theirs"].concat();
                dir.rename(name, &top, &kept, RenameFlags::NOREPLACE)
            }
            Err(failure) if failure.errno == Errno::ENOTEMPTY => Ok(()),
            result => result,
        }
    }

    /// Times of directories whose names have changed below, as they are here.
    pub fn times(&mut self) -> Result<()> {
        let mut dirs: BTreeSet<u64> = self.plan.touched.clone();
        dirs.insert(self.plan.root);
        for id in dirs {
            let done = self.times_of(id);
            self.or_cut(done)?;
        }
        Ok(())
    }

    fn times_of(&mut self, id: u64) -> Result<()> {
        let Some(attr) = if_there(self.cache.fs().attr(&self.cx, node(id)))? else { return Ok(()) };
        let Some(dir) = self.open(id)? else { return Ok(()) };
        self.before("times")?;
        let set = dir.set_times(b".", None, attr.mtime);
        // All that was changed in it has been skipped: it stays as it is below.
        let has_names = self.plan.names.range((id, Vec::new())..(id + 1, Vec::new())).next().is_some();
        match set {
            Err(failure) if matches!(failure.errno, Errno::EROFS | Errno::EACCES | Errno::EPERM) && !has_names => Ok(()),
            // Some daemons have none for their top directory (s3fs); nothing else is lost by that.
            Err(_) if id == self.plan.root && self.below.names().is_some() => Ok(()),
            set => set,
        }
    }

    /// Notes what has become of everything below, and frees the notes of this round.
    pub fn finish(&mut self) -> Result<()> {
        let stamped = self.stamps()?;
        for batch in stamped.chunks(BATCH) {
            self.before("stamps")?;
            self.closed(|work| work.stamp(batch))?;
        }
        self.forget_mapped()?;
        // Until here all of it would be done again, and found done.
        for round in self.plan.rounds.clone() {
            self.before("free")?;
            self.set_off(round)?;
        }
        self.cache.fs().moves_are_written(self.plan.moved).map_err(image)?;
        self.cache.fs().count_written(self.bytes).map_err(image)?;
        self.before("notes")?;
        self.remove_notes()?;
        self.below.end()
    }

    /// What everything that was touched is like below now.
    fn stamps(&mut self) -> Result<Vec<Stamped>> {
        let mut ids: BTreeSet<u64> = self.plan.nodes.keys().copied().collect();
        ids.extend(self.plan.touched.iter().copied());
        ids.extend(self.plan.targets.keys().copied());
        if !self.plan.is_empty() {
            // What was on its way has changed its times.
            ids.insert(self.plan.root);
        }
        let mut all = Vec::new();
        for id in ids {
            let Some(file) = self.plan.ids.get(&id).copied() else { continue };
            if let Some((dir, name)) = self.stands_at(id, file)?
                && let Some(there) = dir.stat(&name)?
                && there.id == file
            {
                let spot = self.plan.targets.get(&id).and_then(|spots| spots.first()).or(self.plan.names_found.get(&id));
                let name = spot.map(|(dir, name)| (node(*dir), name.clone()));
                let mut stamp = there.stamp;
                if self.theirs.contains(&id) {
                    // As it has never been: whoever keeps the cache fresh lists it anew.
                    stamp.ctime -= 1;
                }
                all.push(Stamped { node: node(id), stamp, name });
            }
        }
        Ok(all)
    }

    fn stands_at(&mut self, id: u64, file: Id) -> Result<Option<(Dir, Vec<u8>)>> {
        if id == self.plan.root || self.plan.dirs.contains_key(&id) {
            return Ok(self.open(id)?.map(|dir| (dir, b".".to_vec())));
        }
        let found: Option<Found> = self.find(id, file)?;
        Ok(found.map(|found| (found.dir, found.name)))
    }

    /// Does something with the gate closed.
    fn closed(&mut self, mut act: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let _alone = self.journal.map(Journal::hold);
            let Some(closed) = self.cache.fs().close_changes(CLOSED).map_err(image)? else {
                drop(_alone);
                std::thread::sleep(std::time::Duration::from_millis(5));
                continue;
            };
            let done = act(self);
            if closed.open() {
                return done;
            }
        }
        Err(Failure::new("a program is stopped in the middle of a change", Errno::EBUSY))
    }

    /// Logs of what was noted since this round began: cuts have begun new ones.
    fn logs_since(&self) -> Result<Vec<Node>> {
        let (mut logs, touched) = (Vec::new(), self.cache.touched());
        for name in names_in(self.cache, &self.cx, touched)? {
            if Label::parse(&name).is_some_and(|round| !self.plan.rounds.contains(&round)) {
                logs.extend(if_there(self.cache.fs().lookup(&self.cx, touched, &name))?);
            }
        }
        Ok(logs)
    }

    /// What has not been touched since is clean.
    fn stamp(&mut self, batch: &[Stamped]) -> Result<()> {
        let fs = self.cache.fs();
        let logs = self.logs_since()?;
        for Stamped { node, stamp, name } in batch {
            let mut is_clean = true;
            for (log, kind) in logs.iter().flat_map(|log| [b'n', b'd', b'c'].map(|kind| (*log, kind))) {
                is_clean &= if_there(fs.lookup(&self.cx, log, Label::new(kind, node.id).whole()))?.is_none();
            }
            let name = name.as_ref().map(|(dir, name)| (*dir, &name[..]));
            match fs.written(&self.cx, *node, &Written { stamp: *stamp, is_clean, name }) {
                Ok(()) | Err(Error::Posix(Errno::ESTALE)) => {}
                Err(error) => return Err(image(error)),
            }
        }
        Ok(())
    }

    /// Files that nobody has open, and so nobody has mapped: unless somebody has come since.
    fn forget_mapped(&mut self) -> Result<()> {
        let ids = std::mem::take(&mut self.plan.unmapped);
        if ids.is_empty() {
            return Ok(());
        }
        self.closed(|work| {
            let fs = work.cache.fs();
            let logs = work.logs_since()?;
            for id in &ids {
                let mut is_noted = false;
                for log in &logs {
                    is_noted |= if_there(fs.lookup(&work.cx, *log, Label::new(b'c', *id).whole()))?.is_some();
                }
                if !is_noted && fs.is_open(&work.cx, node(*id)) != Ok(true) {
                    if_there(fs.unlink(&work.cx, work.cache.mapped(), Label::new(b'd', *id).number()))?;
                }
            }
            Ok(())
        })
    }

    /// The notes of a round are not to be taken again: one rename.
    fn set_off(&mut self, round: u64) -> Result<()> {
        let (fs, label) = (self.cache.fs(), Label::new(b'x', round));
        let touched = self.cache.touched();
        if_there(fs.rename(&self.cx, touched, label.number(), touched, label.whole(), base::RenameMode::Replace)).map(drop)
    }

    /// Removes all notes that were set off, those of rounds that were cut off too.
    fn remove_notes(&mut self) -> Result<()> {
        let touched = self.cache.touched();
        for label in names_in(self.cache, &self.cx, touched)? {
            if label.first() != Some(&b'x') || label.len() != 17 {
                continue;
            }
            let Some(log) = if_there(self.cache.fs().lookup(&self.cx, touched, &label))? else { continue };
            self.empty(log)?;
            if_there(self.cache.fs().rmdir(&self.cx, touched, &label))?;
        }
        Ok(())
    }

    fn empty(&mut self, dir: Node) -> Result<()> {
        let fs = self.cache.fs();
        for name in names_in(self.cache, &self.cx, dir)? {
            let Some((inner, kind)) = if_there(fs.lookup_kind(&self.cx, dir, &name))? else { continue };
            if kind == Kind::Directory {
                self.empty(inner)?;
                if_there(fs.rmdir(&self.cx, dir, &name))?;
            } else {
                if_there(fs.unlink(&self.cx, dir, &name))?;
            }
        }
        Ok(())
    }
}

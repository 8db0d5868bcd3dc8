//! The end of a round: what has no name any more goes, times of directories, stamps; then the notes go.

use crate::below::{Dir, There, parked_id};
use crate::journal::Journal;
use crate::place::Found;
use crate::plan::{Spot, if_there, image, names_in, node};
use crate::{Failure, Id, Result, Work};
use base::{Error, Kind, Node};
use cache::touch::{Label, OF_NODES, Set, size_as_blocks};
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
    /// Removes what is left in the park, and the park. What is in a directory before that: if it is not removed, it goes back
    /// there.
    pub fn remove(&mut self) -> Result<()> {
        let Some(park) = self.below.park_if()? else { return Ok(()) };
        let mut names = park.names()?;
        names.sort_by_cached_key(|name| std::cmp::Reverse(parked_id(name).map_or(usize::MAX, |file| self.depth_then(file))));
        for name in names {
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
        if !is_directory
            && let Some(there) = dir.stat(name)?
            && self.is_theirs(&there)
            // By another name it stays.
            && there.stamp.nlink <= 1
        {
            return if depth == 0 { self.put_back(dir, name, file) } else { Ok(()) };
        }
        self.before("remove")?;
        match dir.remove(name, is_directory) {
            Err(failure) if failure.errno == Errno::ENOTEMPTY && depth == 0 => self.put_back(dir, name, file),
            Err(failure) if failure.errno == Errno::ENOTEMPTY => Ok(()),
            result => result,
        }
    }

    /// What was to be removed and holds changes of another program goes back to its directory: beside what is there now, or
    /// by its own name if the directory is on its way out too and stays for that.
    fn put_back(&mut self, park: &Dir, name: &[u8], file: Id) -> Result<()> {
        let Some((mut dir, last)) = self.stood_at(file) else { return Err(Failure::new(name, Errno::EBUSY)) };
        for _ in 0..DEPTH_MAX {
            if let Some(at) = self.open(dir)? {
                let is_parked = at.path.starts_with(self.below.park_name());
                if is_parked && at.stat(&last)?.is_none() {
                    return park.rename(name, &at, &last, RenameFlags::NOREPLACE);
                }
                return self.set_aside_from((park, name), &at, &last);
            }
            let above = self.plan.ids.get(&dir).and_then(|file| self.stood_at(*file));
            dir = above.map_or(self.plan.root, |(above, _)| above);
        }
        Err(Failure::new(name, Errno::ELOOP))
    }

    /// Where a file was when it was touched first.
    pub fn stood_at(&self, file: Id) -> Option<Spot> {
        self.plan.was.get(&file).and_then(|spots| spots.first()).cloned()
    }

    /// Levels above a file then.
    fn depth_then(&self, file: Id) -> usize {
        let (mut at, mut depth) = (self.stood_at(file), 0);
        while let Some((dir, _)) = at.filter(|_| depth < DEPTH_MAX as usize) {
            depth += 1;
            at = self.plan.ids.get(&dir).and_then(|file| self.stood_at(*file));
        }
        depth
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
        let is_set = self.plan.nodes.get(&id).is_some_and(|noted| noted.is_new || noted.set.has(Set::MTIME));
        if self.theirs.contains(&id) && !is_set && self.below.names().is_none() {
            // Another program has changed its names too, later than this session did.
            return Ok(());
        }
        self.before("times")?;
        let set = dir.set_times(b".", None, Some(attr.mtime));
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
        self.look_again();
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
                let stamp = self.stamp_of(id, &there)?;
                all.push(Stamped { node: node(id), stamp, name });
            }
        }
        Ok(all)
    }

    /// What is noted of a file that is there. If another program has changed it, it is noted as it has never been, so that it is
    /// looked at again.
    fn stamp_of(&mut self, id: u64, there: &There) -> Result<Stamp> {
        let mut stamp = there.stamp;
        if self.theirs.contains(&id) {
            stamp.ctime -= 1;
            self.again.insert(id);
            return Ok(stamp);
        }
        if there.attr.kind == Kind::Directory {
            // Another program may have changed its names while this round did, which has set its times. The server
            // takes these over when it has seen all events in the directory, or lists it anew.
            stamp.ctime -= 1;
            return Ok(stamp);
        }
        let (Some(here), Some(known)) = (
            if_there(self.cache.fs().attr(&self.cx, node(id)))?.filter(|here| here.kind == Kind::Regular),
            if_there(self.cache.known_if(node(id)))?.flatten(),
        ) else {
            return Ok(stamp);
        };
        let expected = self.written.get(&id).copied().unwrap_or((known.stamp.size, known.stamp.mtime));
        let is_made = self.plan.made.contains(&id) || self.plan.noted_made.contains(&id);
        let is_as_here = (there.attr.mode, there.attr.uid, there.attr.gid) == (here.mode, here.uid, here.gid);
        if self.merged.contains(&id) || !is_made && (stamp.size, stamp.mtime) != expected {
            stamp.mtime -= 1;
            self.again.insert(id);
        } else if !is_as_here {
            stamp.ctime -= 1;
            self.again.insert(id);
        }
        Ok(stamp)
    }

    /// Files and directories that another program has changed too are shown as they are below from now on. What fails is
    /// looked at again by the server.
    fn look_again(&mut self) {
        for id in std::mem::take(&mut self.again) {
            let spot = self.plan.dirs.get(&id).or(self.plan.targets.get(&id).and_then(|spots| spots.first()));
            let spot = spot.or(self.plan.nodes.get(&id).and_then(|noted| noted.spot.as_ref())).cloned();
            let is_directory = self.theirs.contains(&id);
            let _ = match spot {
                _ if is_directory && self.below.names().is_some() => Ok(()),
                _ if is_directory => self.cache.refresh_one(&self.cx, node(id)).map(drop),
                Some((dir, name)) => self.cache.refresh_entry(&self.cx, node(dir), &name).map(drop),
                None => Ok(()),
            };
        }
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
            for (log, kind) in logs.iter().flat_map(|log| [b'n'].into_iter().chain(OF_NODES).map(|kind| (*log, kind))) {
                is_clean &= if_there(fs.lookup(&self.cx, log, Label::new(kind, node.id).whole()))?.is_none();
            }
            let name = name.as_ref().map(|(dir, name)| (*dir, &name[..]));
            match fs.written(&self.cx, *node, &Written { stamp: *stamp, is_clean, name }) {
                Ok(()) => {}
                Err(Error::Posix(Errno::ESTALE)) => self.note_written(*node, stamp)?,
                Err(error) => return Err(image(error)),
            }
        }
        Ok(())
    }

    /// A node has gone here while its file was written below: the round that removes that has no other way to know what it
    /// was like.
    fn note_written(&mut self, node: Node, stamp: &Stamp) -> Result<()> {
        let log = self.cache.log_of(&self.cx, self.cache.fs().round().map_err(image)?).map_err(image)?;
        let stamp = Stamp { size: node.id, blocks: size_as_blocks(stamp.size), ..*stamp };
        let label = Label::new(b'v', node.id);
        self.cache.note_as(&self.cx, log, label.whole(), Kind::Fifo, stamp).map_err(image)
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

//! The end of a round: times of directories, stamps; then the notes go.

use crate::below::{Dir, There};
use crate::journal::Journal;
use crate::outcome::{LATER, Of};
use crate::place::Found;
use crate::plan::{Spot, if_there, image, names_in, node};
use crate::{Failure, Id, Result, Work};
use base::{Error, Kind, Node};
use cache::touch::{Label, OF_NODES, Set};
use engine::lower::{Stamp, Written, bits};
use pm::Errno;
use std::collections::BTreeSet;

/// Stamps set while the gate is closed once.
const BATCH: usize = 256;
/// How long it is closed then, nanoseconds, and attempts.
const CLOSED: u64 = 500_000_000;
const ATTEMPTS: u32 = 200;

/// A node that was written.
struct Stamped {
    node: Node,
    stamp: Stamp,
    name: Option<(Node, Vec<u8>)>,
}

impl Work<'_> {
    /// Times of directories whose names have changed below, as they are here.
    pub fn times(&mut self) -> Result<()> {
        for id in std::mem::take(&mut self.made_again) {
            let set = self.attributes_of(id);
            self.settle(Of::Node(id), set)?;
        }
        let mut dirs: BTreeSet<u64> = self.plan.touched.clone();
        dirs.insert(self.plan.root);
        for id in dirs {
            let done = self.times_of(id);
            self.settle(Of::Node(id), done)?;
        }
        Ok(())
    }

    fn attributes_of(&mut self, id: u64) -> Result<()> {
        let Some(dir) = self.open(id)? else { return Ok(()) };
        self.before("attributes")?;
        self.set_all_attributes(&dir, b".", node(id)).map(drop)
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

    /// Frees the notes of this round.
    pub fn finish(&mut self) -> Result<()> {
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
        self.forget_removed()?;
        self.look_again();
        self.below.end()
    }

    /// Notes what has become of what was written.
    pub fn note_stamps(&mut self) -> Result<()> {
        let stamped = self.stamps()?;
        for batch in stamped.chunks(BATCH) {
            self.before("stamps")?;
            self.closed(|work| work.stamp(batch))?;
        }
        Ok(())
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
            if self.outcomes.keeps(id) {
                continue;
            }
            let stamped = match self.stamped(id) {
                // Another program moves a directory on its way: it is written, and looked at again.
                Err(failure) if failure.errno == LATER => self.stamped_as_missing(id),
                stamped => stamped,
            };
            let stamped = stamped.map(|stamped| all.extend(stamped));
            self.settle(self.noted_as(id), stamped)?;
        }
        Ok(all)
    }

    /// By what note the next round comes to a node again.
    fn noted_as(&self, id: u64) -> Of {
        let plan = &self.plan;
        let spot = plan.targets.get(&id).and_then(|spots| spots.first());
        let is_noted = plan.nodes.contains_key(&id) || plan.touched.contains(&id);
        spot.filter(|_| !is_noted).map_or(Of::Node(id), |spot| Of::Name(spot.clone()))
    }

    /// The same of one node; `None`: it is not below.
    fn stamped(&mut self, id: u64) -> Result<Option<Stamped>> {
        let Some(file) = self.plan.ids.get(&id).copied() else { return Ok(None) };
        self.before("look")?;
        if let Some((dir, name)) = self.stands_at(id, file)?
            && let Some(there) = dir.stat(&name)?
            && there.id == file
        {
            let spot = self.plan.targets.get(&id).and_then(|spots| spots.first()).or(self.plan.names_found.get(&id));
            let name = spot.map(|(dir, name)| (node(*dir), name.clone()));
            let stamp = self.stamp_of(id, &there)?;
            return Ok(Some(Stamped { node: node(id), stamp, name }));
        }
        let missing = self.stamped_as_missing(id)?;
        if let (None, Some(&(size, mtime, ctime))) = (&missing, self.written.get(&id))
            && self.below.names().is_none()
        {
            // Gone here while it was written, at a name of which only the next round knows.
            self.note_written(id, &Stamp { device: file.0, number: file.1, size, mtime, ctime, ..Stamp::default() })?;
        }
        Ok(missing)
    }

    fn stamped_as_missing(&mut self, id: u64) -> Result<Option<Stamped>> {
        let missing = self.stamp_of_missing(id)?;
        Ok(missing.map(|stamp| Stamped { node: node(id), stamp, name: None }))
    }

    /// Another program has moved or replaced a file since it was written: what is at its name is looked at again.
    fn stamp_of_missing(&mut self, id: u64) -> Result<Option<Stamp>> {
        let is_named = if_there(self.cache.fs().named(node(id), &mut [0; 255]))?.flatten().is_some();
        let Some(known) = if_there(self.cache.known_if(node(id)))?.flatten().filter(|_| is_named) else { return Ok(None) };
        self.again.insert(id, None);
        Ok(Some(Stamp { mtime: known.stamp.mtime - 1, ctime: known.stamp.ctime - 1, ..known.stamp }))
    }

    /// What is noted of a file that is there. If another program has changed it, it is noted as it has never been, so that it is
    /// looked at again.
    fn stamp_of(&mut self, id: u64, there: &There) -> Result<Stamp> {
        let mut stamp = there.stamp;
        if self.theirs.contains(&id) {
            stamp.ctime -= 1;
            self.again.insert(id, None);
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
        let (size, mtime, ctime) = self.written.get(&id).copied().unwrap_or((known.stamp.size, known.stamp.mtime, 0));
        // Of what a round made, its note may know more than the node.
        let is_made = self.plan.noted_made.contains_key(&id) && !self.written.contains_key(&id);
        let is_known = (stamp.size, stamp.mtime) == (size, mtime) || is_made && self.was_looked_at(there);
        let is_as_here = (there.attr.mode, there.attr.uid, there.attr.gid) == (here.mode, here.uid, here.gid);
        // The rename of a file changes its time of status too.
        let known_extended = known.state & (bits::XATTRS | bits::NO_XATTRS) != 0;
        let is_as_written = stamp.ctime == if ctime == 0 { known.stamp.ctime } else { ctime };
        let is_merged = self.merged.contains(&id);
        let was_cut = self.plan.begun.get(&id).is_some_and(|begun| begun.is_before);
        if is_merged || was_cut || !is_known {
            self.again.insert(id, (was_cut && !is_merged).then_some((stamp.size, stamp.mtime)));
            stamp.mtime -= 1;
        } else if !is_as_here || known_extended && !is_as_written {
            stamp.ctime -= 1;
            self.again.insert(id, None);
        }
        Ok(stamp)
    }

    /// Files and directories that another program has changed too are shown as they are below from now on. What fails is
    /// looked at again by the server.
    pub fn look_again(&mut self) {
        for (id, left) in std::mem::take(&mut self.again) {
            let spot = self.plan.dirs.get(&id).or(self.plan.targets.get(&id).and_then(|spots| spots.first()));
            let spot = spot.or(self.plan.nodes.get(&id).and_then(|noted| noted.spot.as_ref())).cloned();
            let is_directory = self.theirs.contains(&id);
            let _ = match spot {
                _ if is_directory && self.below.names().is_some() => Ok(()),
                _ if is_directory => self.cache.refresh_one(&self.cx, node(id)).map(drop),
                Some((dir, name)) => self.cache.refresh_entry(&self.cx, node(dir), &name).map(drop),
                None => Ok(()),
            };
            let Some(left) = left else { continue };
            let known = self.cache.known_if(node(id));
            if known.is_ok_and(|known| known.is_some_and(|known| known.stamp.mtime != left.1)) {
                // A program has changed or moved it meanwhile, so that the next round comes first: it is to know what this one has
                // left.
                let _ = self.note_left_to_next(id, left);
            }
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
    pub fn closed(&mut self, mut act: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
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
    pub fn logs_since(&self) -> Result<Vec<Node>> {
        let (mut logs, touched) = (Vec::new(), self.cache.touched());
        for name in names_in(self.cache, &self.cx, touched)? {
            if Label::parse(&name).is_some_and(|round| !self.plan.rounds.contains(&round)) {
                logs.extend(if_there(self.cache.fs().lookup(&self.cx, touched, &name))?);
            }
        }
        Ok(logs)
    }

    /// Whether something of a node is noted in one of these logs.
    pub fn is_noted(&self, logs: &[Node], id: u64) -> Result<bool> {
        Ok(self.has_note(logs, b"n", id)? || self.has_note(logs, &OF_NODES, id)?)
    }

    /// Whether a file that the round has written has had a name that programs have changed since the round began.
    fn has_lost_name(&self, logs: &[Node], id: u64) -> Result<bool> {
        if !self.written.contains_key(&id) {
            return Ok(false);
        }
        let noted = self.plan.nodes.get(&id).and_then(|noted| noted.spot.as_ref());
        let spots = noted.into_iter().chain(self.plan.targets.get(&id).into_iter().flatten());
        for spot in spots.chain(self.plan.names_found.get(&id)) {
            if self.is_name_noted(logs, spot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a name is noted in one of these logs.
    pub fn is_name_noted(&self, logs: &[Node], (dir, name): &Spot) -> Result<bool> {
        for log in logs {
            if self.cache.is_name_noted(&self.cx, *log, node(*dir), name).map_err(image)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a note of one of these kinds is.
    fn has_note(&self, logs: &[Node], kinds: &[u8], id: u64) -> Result<bool> {
        for (log, kind) in logs.iter().flat_map(|log| kinds.iter().map(|kind| (*log, *kind))) {
            if if_there(self.cache.fs().lookup(&self.cx, log, Label::new(kind, id).whole()))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What has not been touched since is clean.
    fn stamp(&mut self, batch: &[Stamped]) -> Result<()> {
        let fs = self.cache.fs();
        let logs = self.logs_since()?;
        for Stamped { node, stamp, name } in batch {
            let is_over = !self.outcomes.has_names_in(node.id) && !self.outcomes.keeps_notes(node.id);
            let is_clean = is_over && !self.is_noted(&logs, node.id)?;
            let name = name.as_ref().map(|(dir, name)| (*dir, &name[..]));
            match fs.written(&self.cx, *node, &Written { stamp: *stamp, is_clean, name }) {
                // The notes of its names say what it was like before.
                Ok(()) if self.has_lost_name(&logs, node.id)? => self.note_written(node.id, stamp)?,
                Ok(()) => {}
                Err(Error::Posix(Errno::ESTALE)) => self.note_written(node.id, stamp)?,
                Err(error) => return Err(image(error)),
            }
        }
        Ok(())
    }

    /// Files that nobody has open, and so nobody has mapped: unless somebody has come since.
    pub fn forget_mapped(&mut self) -> Result<()> {
        let ids = std::mem::take(&mut self.plan.unmapped);
        if ids.is_empty() {
            return Ok(());
        }
        self.closed(|work| {
            let fs = work.cache.fs();
            let logs = work.logs_since()?;
            for id in &ids {
                if !work.has_note(&logs, b"c", *id)? && fs.is_open(&work.cx, node(*id)) != Ok(true) {
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

    /// Removes one note of a log, which may have notes of its own.
    pub fn remove_note(&mut self, log: Node, label: &[u8]) -> Result<()> {
        let fs = self.cache.fs();
        let Some((note, kind)) = if_there(fs.lookup_kind(&self.cx, log, label))? else { return Ok(()) };
        if kind != Kind::Directory {
            return if_there(fs.unlink(&self.cx, log, label)).map(drop);
        }
        self.empty(note)?;
        if_there(fs.rmdir(&self.cx, log, label)).map(drop)
    }

    fn empty(&mut self, dir: Node) -> Result<()> {
        for name in names_in(self.cache, &self.cx, dir)? {
            self.remove_note(dir, &name)?;
        }
        Ok(())
    }
}

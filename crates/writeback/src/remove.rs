//! Removing: what is left in the park has no name here any more.
//!
//! It goes when all has been made, so that a crash leaves the old or the new. Only where the rest finds no room below it goes
//! at once.
//!
//! What another program has put into a directory that goes is kept, with that directory, beside where it stood: as
//! `NAME.bypath-theirs`, in the first directory above that stays. So is a file that another program has written to.

use crate::below::{Dir, parked_id};
use crate::names::PARK_ID;
use crate::outcome::{LATER, Of};
use crate::plan::Spot;
use crate::{Failure, Id, Result, Work};
use base::Kind;
use pm::Errno;
use rustix::fs::RenameFlags;
use std::collections::HashMap;

/// Most levels of directories that are removed.
const DEPTH_MAX: u32 = 5_000;

/// What is left of something that was to be removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    /// Something that others have put there.
    Theirs,
    /// Something of ours that could not be moved.
    Ours,
}

impl Work<'_> {
    /// Removes what is left in the park, and the park.
    pub fn remove(&mut self) -> Result<()> {
        if self.below.park_if()?.is_none() {
            return Ok(());
        }
        self.clear_exchanged()?;
        self.remove_parked(false)?;
        self.places.forget();
        self.before("unpark")?;
        match self.below.top()?.remove(self.below.park_name(), true) {
            // Something in it is somebody else's, or failed: it stays to be seen.
            Err(failure) if failure.errno == Errno::ENOTEMPTY => Ok(()),
            removed => self.settle(Of::Name((PARK_ID, Vec::new())), removed),
        }
    }

    /// Does something that needs room below: once in a round with that of what is to be removed.
    pub fn with_room(&mut self, mut act: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        match act(self) {
            Err(failure) if matches!(failure.errno, Errno::ENOSPC | Errno::EDQUOT) && !failure.is_of_image() => {
                if std::mem::replace(&mut self.has_made_room, true) {
                    return Err(failure);
                }
                self.remove_parked(true)?;
                if self.outlives {
                    // A number is given to something new only when the removal is durable.
                    self.before("sync")?;
                    self.below.sync()?;
                }
                act(self)
            }
            done => done,
        }
    }

    /// `is_early`: only what takes room, while something is still to be made.
    fn remove_parked(&mut self, is_early: bool) -> Result<()> {
        let Some(park) = self.below.park_if()? else { return Ok(()) };
        // What is in a directory that goes is known by the node of that.
        self.locate()?;
        let mut nodes: HashMap<Id, Vec<u64>> = HashMap::new();
        for node in self.plan.targets.keys() {
            if let Some(file) = self.plan.ids.get(node) {
                nodes.entry(*file).or_default().push(*node);
            }
        }
        let mut names = park.names()?;
        // What is in a directory before that: if it is not removed, it goes back there.
        names.sort_by_cached_key(|name| std::cmp::Reverse(parked_id(name).map_or(usize::MAX, |file| self.depth_then(file))));
        for name in names {
            let file = parked_id(&name);
            if is_early && file.is_none_or(|file| self.plan.wanted.contains(&file)) {
                continue;
            }
            match self.remove_one(&park, &name, &nodes) {
                // It is tried again at the end.
                Err(failure) if is_early && failure.errno != crate::CUT => {}
                removed => self.settle_parked(&name, removed)?,
            }
        }
        Ok(())
    }

    /// A failure is that of the names that it had.
    fn settle_parked(&mut self, name: &[u8], removed: Result<()>) -> Result<()> {
        let Err(failure) = removed else { return Ok(()) };
        let was = parked_id(name).and_then(|file| self.plan.was.get(&file));
        let mut names: Vec<Spot> =
            was.into_iter().flatten().filter(|spot| self.plan.names.contains_key(*spot)).cloned().collect();
        if names.is_empty() {
            names.push((PARK_ID, name.to_vec()));
        }
        for spot in names {
            self.settle(Of::Name(spot), Err(failure.clone()))?;
        }
        Ok(())
    }

    fn remove_one(&mut self, park: &Dir, name: &[u8], nodes: &HashMap<Id, Vec<u64>>) -> Result<()> {
        let Some(there) = park.stat(name)? else { return Ok(()) };
        let (file, is_directory) = (there.id, there.attr.kind == Kind::Directory);
        if name.starts_with(b"new-") {
            // Gone here before it had its name.
            self.before("remove")?;
            return park.remove(name, is_directory);
        }
        if parked_id(name) != Some(file) || !self.plan.ours.contains(&file) {
            return Ok(());
        }
        if self.plan.wanted.contains(&file) {
            if is_directory || !self.stands(file, nodes.get(&file))? {
                // It could not be moved.
                return Err(Failure::new(name, LATER));
            }
            // One of several names, and none of those that it has now.
            self.before("remove")?;
            return park.remove(name, false);
        }
        // By another name it stays.
        if there.stamp.nlink <= 1 && self.is_theirs(&there) {
            return self.put_back(park, name, file);
        }
        match self.remove_ours(park, name, is_directory, 0)? {
            Left::Nothing => Ok(()),
            Left::Theirs => self.put_back(park, name, file),
            Left::Ours => Err(Failure::new(name, LATER)),
        }
    }

    /// Whether a file stands at all names that it is to have.
    fn stands(&mut self, file: Id, nodes: Option<&Vec<u64>>) -> Result<bool> {
        let targets = nodes.into_iter().flatten().filter_map(|node| self.plan.targets.get(node));
        let names: Vec<Spot> = targets.flatten().cloned().collect();
        for (dir, name) in &names {
            let Some(dir) = self.open(*dir)? else { return Ok(false) };
            if !dir.has(name, file)? {
                return Ok(false);
            }
        }
        Ok(!names.is_empty())
    }

    /// Removes a file or directory of ours, as far as all in it is ours and has no other life.
    fn remove_ours(&mut self, dir: &Dir, name: &[u8], is_directory: bool, depth: u32) -> Result<Left> {
        let mut left = Left::Theirs;
        if is_directory {
            if depth > DEPTH_MAX {
                return Err(Failure::new(name, Errno::ELOOP));
            }
            let inner = dir.dir(name)?;
            let nodes = dir.stat(name)?.map_or_else(Vec::new, |there| self.places.nodes_of(there.id));
            for entry in inner.names()? {
                let Some(there) = inner.stat(&entry)? else { continue };
                if self.plan.wanted.contains(&there.id) {
                    left = Left::Ours;
                } else if nodes.iter().any(|node| self.is_ours_at(there.id, (*node, &entry))) && !self.is_theirs(&there) {
                    let is_directory = there.attr.kind == Kind::Directory;
                    left = left.max(self.remove_ours(&inner, &entry, is_directory, depth + 1)?);
                }
            }
        }
        self.before("remove")?;
        match dir.remove(name, is_directory) {
            Err(failure) if matches!(failure.errno, Errno::ENOTEMPTY | Errno::EEXIST) && is_directory => Ok(left),
            result => result.map(|()| Left::Nothing),
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
                self.theirs.insert(dir);
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
}

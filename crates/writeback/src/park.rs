//! Parking: what stands below at a name that leads elsewhere now goes out of the way, by its number.
//!
//! Not parked is what is no directory, has no other life here, and has something to take its name: the rename that brings
//! that replaces it, so that the name is never missing.

use crate::below::{Dir, There, join, parked, parked_id};
use crate::names::PARK_ID;
use crate::outcome::Of;
use crate::plan::{Spot, Target, if_there, node};
use crate::{Failure, Id, Result, Work};
use base::Kind;
use cache::mutant::{self, Mutant};
use cache::touch::{Label, Set};
use pm::Errno;
use rustix::fs::RenameFlags;

/// The owner may read, change and search a directory.
const OWNER_CHANGES: u16 = 0o700;
/// Names tried for what is somebody else's.
const NAMES: u32 = 1000;

impl Work<'_> {
    pub fn park(&mut self) -> Result<()> {
        self.take_rights()?;
        self.note_theirs()?;
        self.clear_park()?;
        self.find_stuck()?;
        let names: Vec<(Spot, Option<Target>)> = self.plan.names.iter().map(|(spot, target)| (spot.clone(), *target)).collect();
        for ((dir, name), target) in names {
            let parked = self.retried(|work| work.park_name(dir, &name, target));
            if target.is_none() {
                self.progress.done();
            }
            self.settle(Of::Name((dir, name)), parked)?;
        }
        Ok(())
    }

    /// Directories that others have changed below since they were looked at: this round's changes are not to hide that. Behind a
    /// daemon, which tells of nothing, others may change them while the round is under way too: all of them are looked at again.
    fn note_theirs(&mut self) -> Result<()> {
        let mut dirs = self.plan.touched.clone();
        dirs.insert(self.plan.root);
        if self.below.names().is_some() {
            self.theirs.extend(dirs);
            return Ok(());
        }
        for id in dirs {
            let Some(known) = if_there(self.cache.known_if(node(id)))?.flatten() else { continue };
            let Ok(Some(dir)) = self.open(id) else { continue };
            let there = dir.stat(b".")?.map(|there| (there.stamp.mtime, there.stamp.ctime));
            // The round before has noted it as it has never been, by one nanosecond.
            let are_known = [known.stamp.ctime, known.stamp.ctime + 1].map(|ctime| (known.stamp.mtime, ctime));
            if there.is_some_and(|there| !are_known.contains(&there)) {
                self.theirs.insert(id);
            }
        }
        Ok(())
    }

    /// Whose names or place change while their owner may not do so himself (`chmod` before or after) may be changed until
    /// their attributes are set.
    fn take_rights(&mut self) -> Result<()> {
        if rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let mut dirs = self.plan.touched.clone();
        let targets = self.plan.names.values().flatten();
        dirs.extend(targets.filter(|target| target.kind == Kind::Directory).map(|target| target.node.id));
        for id in dirs {
            let Ok(Some(dir)) = self.open(id) else { continue };
            let Some(there) = dir.stat(b".")? else { continue };
            if there.attr.mode & OWNER_CHANGES != OWNER_CHANGES {
                self.before("rights")?;
                // So that they are given back by whichever round comes to that.
                let noted = self.plan.nodes.get(&id).map_or(Set::NONE, |noted| noted.set).with(Set::MODE);
                self.note_set(node(id), Set::MODE)?;
                let taken = dir.set_mode(b".", there.attr.mode | OWNER_CHANGES);
                self.settle(Of::Node(id), taken)?;
                self.plan.nodes.entry(id).or_default().set = noted;
            }
        }
        Ok(())
    }

    /// What a round that was cut off had begun to write; and what had changed places with what it made.
    fn clear_park(&mut self) -> Result<()> {
        let Some(park) = self.below.park_if()? else { return Ok(()) };
        for name in park.names()? {
            let Some(there) = park.stat(&name)? else { continue };
            if let Some(node) = name.strip_prefix(b"new-") {
                let cleared = self.clear_new((&park, &name), &there, Label::parse(node));
                self.settle(Of::Name((PARK_ID, name)), cleared)?;
            }
        }
        self.clear_exchanged()
    }

    /// What lies in the park by the number of another file, with which it has changed places.
    pub fn clear_exchanged(&mut self) -> Result<()> {
        let Some(park) = self.below.park_if()? else { return Ok(()) };
        for name in park.names()? {
            if let (Some(file), Some(there)) = (parked_id(&name), park.stat(&name)?)
                && file != there.id
            {
                let cleared = self.put_out_of_place((&park, &name), &there, file);
                self.settle(Of::Name((PARK_ID, name)), cleared)?;
            }
        }
        Ok(())
    }

    fn clear_new(&mut self, (park, name): (&Dir, &[u8]), there: &There, node: Option<u64>) -> Result<()> {
        let file = node.and_then(|node| Some((node, *self.plan.ids.get(&node)?)));
        match file {
            Some((node, file)) if file != there.id && self.has_changed_places(node, file, there)? => {
                self.put_out_of_place((park, name), there, file)
            }
            // All of it is there, and noted: it waits for its name.
            Some((node, file)) if file == there.id && !self.plan.unsure.contains(&node) => Ok(()),
            _ => {
                self.before("clear")?;
                park.remove(name, there.attr.kind == Kind::Directory)
            }
        }
    }

    /// Whether what lies in the park by the name of a new file has changed places with that, and is not half of a file that was
    /// to be made: of that nobody has noted anything, and the file that was made before it is nowhere.
    fn has_changed_places(&mut self, node: u64, file: Id, there: &There) -> Result<bool> {
        if self.plan.ours.contains(&there.id) || !self.plan.noted_made.contains_key(&node) {
            return Ok(self.plan.ours.contains(&there.id));
        }
        self.places.forget_found(node);
        let is_there = self.find(node, file)?.is_some();
        self.places.forget_found(node);
        Ok(is_there)
    }

    /// Something lies in the park in place of this file, with which it has changed places: where the file is to stand, or stood
    /// before a program moved it on.
    fn put_out_of_place(&mut self, at: (&Dir, &[u8]), there: &There, file: Id) -> Result<()> {
        let nodes = self.plan.ids.iter().filter(|(_, id)| **id == file).filter_map(|(node, _)| self.plan.targets.get(node));
        let spots: Vec<Spot> = nodes.flatten().chain(self.plan.was.get(&file).into_iter().flatten()).cloned().collect();
        let known = spots.iter().find(|spot| self.is_ours_at(there.id, (spot.0, &spot.1)));
        known.or(spots.first()).map_or(Ok(()), |spot| self.put_out(at, spot))
    }

    /// Whether a file that stands at a name is one that the round may move from there: it was known there when the name was
    /// touched, this round or one before has made it, or it belongs elsewhere. One that another program has moved there is
    /// not.
    pub fn is_ours_at(&self, file: Id, (dir, name): (u64, &[u8])) -> bool {
        let plan = &self.plan;
        let stood_there =
            || plan.was.get(&file).is_some_and(|spots| spots.iter().any(|spot| (spot.0, &spot.1[..]) == (dir, name)));
        plan.ours.contains(&file) && (plan.wanted.contains(&file) || stood_there() || mutant::is(Mutant::TheirsRemoved))
    }

    fn park_name(&mut self, dir: u64, name: &[u8], target: Option<Target>) -> Result<()> {
        self.must_not_be_stuck(&(dir, name.to_vec()))?;
        let Some(at) = self.open(dir)? else { return Ok(()) };
        let Some(there) = at.stat(name)? else { return Ok(()) };
        let file = there.id;
        let wanted = target.and_then(|target| self.plan.ids.get(&target.node.id)).copied();
        if wanted == Some(file) {
            return Ok(());
        }
        if !self.is_ours_at(file, (dir, name)) {
            // Another program's: it goes aside where something of ours is to stand.
            return match target {
                Some(_) => self.set_aside(&at, name, name),
                None => Ok(()),
            };
        }
        let is_directory = there.attr.kind == Kind::Directory;
        let is_replaced = target.is_some_and(|target| target.kind != Kind::Directory);
        if is_replaced && !is_directory && !self.plan.wanted.contains(&file) {
            return Ok(());
        }
        self.park_file(&at, name, file, is_directory)
    }

    /// What has changed places with something of ours goes into the park by its number, or beside that if it is another
    /// program's.
    pub fn put_out(&mut self, (from, name): (&Dir, &[u8]), spot: &Spot) -> Result<()> {
        let Some(there) = from.stat(name)? else { return Ok(()) };
        if self.is_ours_at(there.id, (spot.0, &spot.1)) {
            return self.park_file(from, name, there.id, there.attr.kind == Kind::Directory);
        }
        let Some(at) = self.open(spot.0)? else { return Ok(()) };
        self.set_aside_from((from, name), &at, &spot.1)
    }

    /// Moves a file of ours into the park, by its number.
    pub fn park_file(&mut self, at: &Dir, name: &[u8], file: Id, is_directory: bool) -> Result<()> {
        let park = self.below.park()?;
        self.before("park")?;
        if !is_directory && park.has(&parked(file), file)? {
            // Another name of it is there: a rename onto it would do nothing.
            return at.remove(name, false);
        }
        at.rename(name, &park, &parked(file), RenameFlags::NOREPLACE)?;
        if self.below.names().is_none() && !park.has(&parked(file), file)? {
            // Another program was faster: what it has put there goes back.
            park.rename(&parked(file), at, name, RenameFlags::NOREPLACE)?;
            return Err(Failure::new(join(&at.path, name), Errno::ENOENT));
        }
        if is_directory {
            self.places.note_moved(file, &(PARK_ID, parked(file)));
        }
        Ok(())
    }

    /// Gives what is somebody else's another name, beside `name`.
    pub fn set_aside(&mut self, at: &Dir, from: &[u8], name: &[u8]) -> Result<()> {
        self.set_aside_from((at, from), at, name)
    }

    /// The same of what lies elsewhere, as `name` of `at`.
    pub fn set_aside_from(&mut self, (there, from): (&Dir, &[u8]), at: &Dir, name: &[u8]) -> Result<()> {
        for number in 0..NAMES {
            let suffix = if number == 0 { ".bypath-theirs".to_owned() } else { format!(".bypath-theirs.{number}") };
            let kept = &name[..name.len().min(255 - suffix.len())];
            let other = [kept, suffix.as_bytes()].concat();
            self.before("aside")?;
            match there.rename(from, at, &other, RenameFlags::NOREPLACE) {
                Err(failure) if failure.errno == Errno::EEXIST => {}
                result => {
                    if result.is_ok() {
                        self.kept.push(join(&at.path, &other));
                    }
                    return result;
                }
            }
        }
        Err(Failure::new(join(&at.path, name), Errno::EEXIST))
    }

    /// Does something again, from its beginning, where another program has changed what is below in its midst.
    pub fn retried(&mut self, mut act: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        const ATTEMPTS: usize = 4;
        for _ in 1..ATTEMPTS {
            match act(self) {
                Err(failure) if is_of_race(failure.errno) => self.places.forget_to_retry(),
                done => return done,
            }
        }
        act(self)
    }
}

/// Whether this may say no more than that a name has come, gone, or become another.
fn is_of_race(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::EEXIST | Errno::ENOTDIR | Errno::EISDIR | Errno::ENOTEMPTY)
}

//! Parking: what stands below at a name that leads elsewhere now goes out of the way, by its number.
//!
//! Not parked is what is no directory, has no other life here, and has something to take its name: the rename that brings
//! that replaces it, so that the name is never missing.

use crate::below::{Dir, join, parked};
use crate::plan::{Spot, Target, if_there, node};
use crate::{Failure, Id, Result, Work};
use base::Kind;
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
            self.or_cut(parked)?;
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
                self.keep(taken)?;
                self.plan.nodes.entry(id).or_default().set = noted;
            }
        }
        Ok(())
    }

    /// What a round that was cut off had begun to write.
    fn clear_park(&mut self) -> Result<()> {
        let Some(park) = self.below.park_if()? else { return Ok(()) };
        for name in park.names()?.iter().filter(|name| name.starts_with(b"new-")) {
            let Some(there) = park.stat(name)? else { continue };
            let node = Label::parse(&name[4..]);
            let is_sure = node.is_none_or(|node| !self.plan.unsure.contains(&node));
            if is_sure && node.and_then(|node| self.plan.ids.get(&node)) == Some(&there.id) {
                // All of it is there, and noted: it waits for its name.
                continue;
            }
            self.before("clear")?;
            park.remove(name, there.attr.kind == Kind::Directory)?;
        }
        Ok(())
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
        if !self.plan.ours.contains(&file) {
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

    /// Moves a file of ours into the park.
    pub fn park_file(&mut self, at: &Dir, name: &[u8], file: Id, is_directory: bool) -> Result<()> {
        let park = self.below.park()?;
        self.before("park")?;
        if !is_directory && park.has(&parked(file), file)? {
            // Another name of it is there: a rename onto it would do nothing.
            return at.remove(name, false);
        }
        at.rename(name, &park, &parked(file), RenameFlags::NOREPLACE)?;
        if is_directory {
            self.places.clear();
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
                    self.places.clear();
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
                Err(failure) if is_of_race(failure.errno) => self.places.clear(),
                done => return done,
            }
        }
        act(self)
    }

    /// Goes on after a failure of what is below; not after one that a test has made.
    pub fn or_cut(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(failure) if failure.errno == crate::CUT => Err(failure),
            result => self.keep(result),
        }
    }
}

/// Whether this may say no more than that a name has come, gone, or become another.
fn is_of_race(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::EEXIST | Errno::ENOTDIR | Errno::EISDIR | Errno::ENOTEMPTY)
}

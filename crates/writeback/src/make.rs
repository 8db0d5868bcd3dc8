//! Making: each touched name leads below to what it leads to here. Parents first.
//!
//! Something new is written whole in the park, its number is noted, and only then does it get its name: so a round that is
//! cut off knows its own files again.

use crate::below::{Dir, There, id_of_node, join, parked};
use crate::outcome::Of;
use crate::place::Found;
use crate::plan::{Appends, Noted, Spot, Target, if_there, image};
use crate::{Conflict, Failure, Id, Result, Work};
use base::{Error, Kind};
use cache::mutant::{self, Mutant};
use cache::touch::Label;
use engine::lower::Written;
use pm::{Errno, UserSlice};
use rustix::fs::{FileType, RenameFlags};

/// Longest text of a symlink.
const TARGET_MAX: usize = 4096;

impl Work<'_> {
    pub fn make(&mut self) -> Result<()> {
        let depths = self.plan.depths();
        let depth = |dir: u64| depths.get(&dir).copied().unwrap_or(0);
        let targets =
            self.plan.names.iter().filter_map(|(spot, target)| target.map(|target| (depth(spot.0), spot.clone(), target)));
        let mut names: Vec<(usize, Spot, Target)> = targets.collect();
        names.sort_by_key(|(depth, ..)| *depth);
        for (_, spot, target) in names {
            self.progress.done();
            // What stands there still may be needed elsewhere.
            if self.outcomes.of_name(&spot).is_none() {
                let made = self.with_room(|work| work.retried(|work| work.make_name(&spot, target)));
                self.settle(Of::Name(spot), made)?;
            }
        }
        Ok(())
    }

    pub fn make_name(&mut self, spot: &Spot, target: Target) -> Result<()> {
        self.must_not_be_stuck(spot)?;
        let (dir, name) = spot;
        let Some(at) = self.open_to_make(*dir)? else { return Ok(()) };
        let there = at.stat(name)?;
        let wanted = self.plan.ids.get(&target.node.id).copied();
        let file = there.map(|there| there.id);
        if let Some(there) = there.as_ref().filter(|there| Some(there.id) == wanted) {
            return self.find_rewritten(spot, target, there);
        }
        if file.is_some_and(|file| !self.is_ours_at(file, (*dir, name))) {
            // It came since names were parked.
            if self.conflict == Conflict::Stop {
                return Err(Failure::new(join(&at.path, name), Errno::ESTALE));
            }
            self.set_aside(&at, name, name)?;
            return self.make_name(spot, target);
        }
        let found = match wanted {
            Some(file) => match self.find(target.node.id, file)? {
                None if target.kind != Kind::Directory => self.find_untouched(target.node.id, file)?,
                found => found,
            },
            None => None,
        };
        match found {
            Some(found) if found.stays => {
                let park = self.below.park()?;
                let link = new_name(target.node.id);
                self.before("link")?;
                self.link_to(&found, (&park, &link), wanted)?;
                self.move_in((&park, &link), (&at, name), there.as_ref(), *dir)?;
            }
            Some(found) => {
                self.move_in((&found.dir, &found.name), (&at, name), there.as_ref(), *dir)?;
                if let (Kind::Directory, Some(file)) = (target.kind, wanted) {
                    self.places.note_moved(file, &(*dir, name.clone()));
                }
            }
            None => return self.make_anew((&at, name), *dir, target, there.as_ref(), wanted.is_some()),
        }
        self.places.note_found(target.node.id, (*dir, name.clone()));
        Ok(())
    }

    /// Links a file into the park. `ENOENT` if another program has put something else in its place.
    fn link_to(&mut self, found: &Found, (park, link): (&Dir, &[u8]), file: Option<Id>) -> Result<()> {
        let gone = || Failure::new(&found.name, Errno::ENOENT);
        let Some(file) = file else { return Err(gone()) };
        match found.dir.link(&found.name, park, link) {
            Err(_) if !found.dir.has(&found.name, file)? => Err(gone()),
            Ok(()) if self.below.names().is_none() && !park.has(link, file)? => {
                park.remove(link, false)?;
                Err(gone())
            }
            linked => linked,
        }
    }

    /// Gives something its name. Where a file stands there, the two change places, and that one goes into the park: another
    /// program may write to it, or put yet another one there, until then.
    fn move_in(&mut self, (from, old): (&Dir, &[u8]), (at, name): (&Dir, &[u8]), there: Option<&There>, dir: u64) -> Result<()> {
        let Some(there) = there else {
            self.before("move")?;
            return from.rename(old, at, name, RenameFlags::NOREPLACE);
        };
        self.must_not_be_theirs(&at.path, name, there)?;
        let is_parked = from.path == self.below.park_name() && !mutant::is(Mutant::NumberGivenTwice);
        if self.looks_at(there) && self.below.names().is_none() && is_parked {
            self.before("move")?;
            match from.rename(old, at, name, RenameFlags::EXCHANGE) {
                Err(failure) if is_unknown(failure.errno) => {}
                exchanged => {
                    exchanged?;
                    self.before("out")?;
                    return self.put_out((from, old), &(dir, name.to_vec()));
                }
            }
        }
        if (self.outlives || self.looks_at(there)) && !mutant::is(Mutant::NumberGivenTwice) {
            self.keep_replaced((at, name), there)?;
        }
        self.before("move")?;
        from.rename(old, at, name, RenameFlags::empty())
    }

    /// A file that is about to be replaced keeps a second name in the park until all has been made:
    /// - what another program has written to it is looked at when it is removed;
    /// - nothing that is made before gets its number: a power failure would bring it back, and the image would take it for
    ///   what was made.
    fn keep_replaced(&mut self, (at, name): (&Dir, &[u8]), there: &There) -> Result<()> {
        let (park, kept) = (self.below.park()?, parked(there.id));
        if self.below.names().is_some() || park.stat(&kept)?.is_some() {
            return Ok(());
        }
        self.before("keep")?;
        match at.link(name, &park, &kept) {
            // Where it may not have a second name: at the risk that this says.
            Err(failure) if matches!(failure.errno, Errno::EPERM | Errno::EMLINK | Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
            linked => linked,
        }
    }

    /// Something that is not below, or is not any more.
    pub fn make_anew(
        &mut self,
        (at, name): (&Dir, &[u8]),
        dir: u64,
        target: Target,
        there: Option<&There>,
        was_below: bool,
    ) -> Result<()> {
        if was_below && !self.is_whole(target)? {
            // Another program has removed it below, and a part of it was nowhere else.
            return Err(Failure::new(join(&at.path, name), Errno::ESTALE));
        }
        let park = self.below.park()?;
        let new = new_name(target.node.id);
        self.before("new")?;
        let written = self.write_new(&park, &new, target);
        let is_full = |failure: &Failure| matches!(failure.errno, Errno::ENOSPC | Errno::EDQUOT);
        let is_half = |failure: &Failure| failure.errno != crate::CUT && (self.below.names().is_none() || is_full(failure));
        if written.as_ref().is_err_and(is_half) {
            // Half of it takes room, and stands in the way of the next attempt.
            let _ = park.remove(&new, target.kind == Kind::Directory);
        }
        let Some(made) = written? else {
            // Gone here since: the next round knows of it, and what it was to replace is of no use.
            return match there {
                Some(there) => self.park_file(at, name, there.id, there.attr.kind == Kind::Directory),
                None => Ok(()),
            };
        };
        if mutant::is(Mutant::NumberAfterName) {
            self.move_in((&park, &new), (at, name), there, dir)?;
        }
        self.before("note")?;
        if self.plan.nodes.get(&target.node.id).is_some_and(Noted::has_appended) {
            // If this round is cut off, the next one is not to append that again.
            let appends = Appends::in_place(made.stamp.size);
            self.note_begun(target.node.id, Some(appends), (made.stamp.size, made.stamp.mtime))?;
        }
        self.note_made(target.node.id, &made.stamp)?;
        self.before("written")?;
        let written = Written { stamp: made.stamp, is_clean: false, name: Some((crate::plan::node(dir), name)) };
        match self.cache.fs().written(&self.cx, target.node, &written) {
            Ok(()) | Err(Error::Posix(Errno::ESTALE)) => {}
            Err(error) => return Err(image(error)),
        }
        let file = id_of_node(self.cache, target.node.id, &made.stamp);
        self.plan.ids.insert(target.node.id, file);
        self.plan.wanted.insert(file);
        self.plan.made.insert(target.node.id);
        self.plan.ours.insert(file);
        self.places.note_found(target.node.id, (dir, name.to_vec()));
        // Its mode and times come when it is filled.
        if target.kind == Kind::Directory {
            self.places.note_directory(target.node.id, file, (dir, name.to_vec()));
            let spot = Some((dir, name.to_vec()));
            let noted = self.plan.nodes.entry(target.node.id).or_default();
            (noted.spot, noted.is_new) = (spot, true);
            self.plan.touched.insert(target.node.id);
        }
        if mutant::is(Mutant::NumberAfterName) {
            return Ok(());
        }
        self.move_in((&park, &new), (at, name), there, dir)?;
        self.note_as_made(target, &made, at.stat(name)?);
        if mutant::is(Mutant::DataAfterName) && target.kind == Kind::Regular {
            self.before("late")?;
            self.write_all(&at.open_file(name)?, target.node)?;
            self.set_all_attributes(at, name, target.node)?;
        }
        Ok(())
    }

    /// Remembers what a file was like when it got its name, which changes its time of status.
    fn note_as_made(&mut self, target: Target, made: &There, named: Option<There>) {
        let ctime = named.filter(|named| named.id == made.id).map_or(0, |named| named.stamp.ctime);
        self.written.insert(target.node.id, (made.stamp.size, made.stamp.mtime, ctime));
    }

    /// Makes something in the park as it is here; `None`: it is here no more.
    fn write_new(&mut self, park: &Dir, new: &[u8], target: Target) -> Result<Option<There>> {
        let fs = self.cache.fs();
        let Some(attr) = if_there(fs.attr(&self.cx, target.node))? else { return Ok(None) };
        match target.kind {
            Kind::Regular => {
                let file = park.make_file(new)?;
                if mutant::is(Mutant::DataAfterName) {
                    return park.stat(new);
                }
                if !self.write_all(&file, target.node)? {
                    return Ok(None);
                }
            }
            Kind::Directory => park.make_directory(new)?,
            Kind::Symlink => {
                let mut text = [0u8; TARGET_MAX];
                let Some(len) = if_there(self.cache.text_here(&self.cx, target.node, UserSlice::from_mut(&mut text)))? else {
                    return Ok(None);
                };
                park.make_symlink(&text[..len], new)?;
            }
            Kind::Fifo => park.make_node(new, FileType::Fifo, 0)?,
            Kind::Socket => park.make_node(new, FileType::Socket, 0)?,
            Kind::CharDevice => park.make_node(new, FileType::CharacterDevice, attr.rdev)?,
            Kind::BlockDevice => park.make_node(new, FileType::BlockDevice, attr.rdev)?,
        }
        if target.kind != Kind::Directory {
            self.before("set")?;
            if !self.set_all_attributes(park, new, target.node)? {
                return Ok(None);
            }
        }
        park.stat(new)
    }
}

/// As what something new lies in the park.
pub fn new_name(node: u64) -> Vec<u8> {
    [b"new-", Label::new(b'd', node).number()].concat()
}

/// Whether a file system may say so of a rename of a kind that it does not know.
fn is_unknown(errno: Errno) -> bool {
    matches!(errno, Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP)
}

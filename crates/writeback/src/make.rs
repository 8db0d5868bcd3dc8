//! Making: each touched name leads below to what it leads to here. Parents first.
//!
//! Something new is written whole in the park, its number is noted, and only then does it get its name: so a round that is
//! cut off knows its own files again.

use crate::below::{Dir, There, id_of_node, join, parked};
use crate::plan::{Spot, Target, if_there, image};
use crate::{Conflict, Failure, Result, Work};
use base::{Error, Kind};
use cache::mutant::{self, Mutant};
use cache::touch::{Label, size_as_blocks};
use engine::lower::{Stamp, Written};
use pm::{Errno, UserSlice};
use rustix::fs::{FileType, RenameFlags};

/// Longest text of a symlink.
const TARGET_MAX: usize = 4096;

impl Work<'_> {
    pub fn make(&mut self) -> Result<()> {
        let mut names: Vec<(usize, Spot, Target)> = Vec::new();
        for (spot, target) in &self.plan.names {
            if let Some(target) = target {
                names.push((self.plan.depth(spot.0), spot.clone(), *target));
            }
        }
        names.sort_by_key(|(depth, ..)| *depth);
        for (_, spot, target) in names {
            let made = self.retried(|work| work.make_name(&spot, target));
            self.progress.done();
            self.or_cut(made)?;
        }
        Ok(())
    }

    fn make_name(&mut self, spot: &Spot, target: Target) -> Result<()> {
        self.must_not_be_stuck(spot)?;
        let (dir, name) = spot;
        let Some(at) = self.open(*dir)? else { return Err(Failure::new(name, Errno::ESTALE)) };
        let there = at.stat(name)?;
        let wanted = self.plan.ids.get(&target.node.id).copied();
        let file = there.map(|there| there.id);
        if file.is_some() && file == wanted {
            return Ok(());
        }
        if file.is_some_and(|file| !self.plan.ours.contains(&file)) {
            // It came since names were parked.
            if self.conflict == Conflict::Stop {
                return Err(Failure::new(join(&at.path, name), Errno::ESTALE));
            }
            self.set_aside(&at, name, name)?;
            return self.make_name(spot, target);
        }
        let found = match wanted {
            Some(file) => self.find(target.node.id, file)?,
            None => None,
        };
        match found {
            Some(found) if found.stays => {
                let park = self.below.park()?;
                let link = new_name(target.node.id);
                self.before("link")?;
                found.dir.link(&found.name, &park, &link)?;
                self.move_in((&park, &link), (&at, name), there.as_ref())
            }
            Some(found) => {
                let moved = self.move_in((&found.dir, &found.name), (&at, name), there.as_ref());
                if target.kind == Kind::Directory {
                    self.places.clear();
                }
                moved
            }
            None => self.make_anew((&at, name), *dir, target, there.as_ref(), wanted.is_some()),
        }
    }

    fn move_in(&mut self, (from, old): (&Dir, &[u8]), (at, name): (&Dir, &[u8]), there: Option<&There>) -> Result<()> {
        if let Some(there) = there {
            self.before_replacing((at, name), there)?;
        }
        self.before("move")?;
        let flags = if there.is_some() { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        from.rename(old, at, name, flags)
    }

    /// A file is about to be replaced by a rename. It keeps a second name in the park until all has been made:
    /// - another program may write to it until the rename, and what it wrote is looked at when it is removed;
    /// - nothing that is made before gets its number: a power failure would bring it back, and the image would take it for
    ///   what was made.
    fn before_replacing(&mut self, (at, name): (&Dir, &[u8]), there: &There) -> Result<()> {
        self.must_not_be_theirs(&at.path, name, there)?;
        if (self.outlives || self.looks_at(there)) && !mutant::is(Mutant::NumberGivenTwice) {
            self.keep_replaced((at, name), there)?;
        }
        Ok(())
    }

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
    fn make_anew(
        &mut self,
        (at, name): (&Dir, &[u8]),
        dir: u64,
        target: Target,
        there: Option<&There>,
        was_below: bool,
    ) -> Result<()> {
        if was_below && !self.is_whole(target)? {
            // Somebody has removed it below, and a part of it was nowhere else.
            return Err(Failure::new(join(&at.path, name), Errno::ESTALE));
        }
        let park = self.below.park()?;
        let new = new_name(target.node.id);
        self.before("new")?;
        let Some(made) = self.write_new(&park, &new, target)? else {
            // Gone here since: the next round knows of it, and what it was to replace is of no use.
            return match there {
                Some(there) => self.park_file(at, name, there.id, there.attr.kind == Kind::Directory),
                None => Ok(()),
            };
        };
        if mutant::is(Mutant::NumberAfterName) {
            self.move_in((&park, &new), (at, name), there)?;
        }
        self.before("note")?;
        self.note_made(target, &made)?;
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
        // Its mode and times come when it is filled.
        if target.kind == Kind::Directory {
            let spot = Some((dir, name.to_vec()));
            let noted = self.plan.nodes.entry(target.node.id).or_default();
            (noted.spot, noted.is_new) = (spot, true);
            self.plan.touched.insert(target.node.id);
        }
        if mutant::is(Mutant::NumberAfterName) {
            return Ok(());
        }
        self.move_in((&park, &new), (at, name), there)?;
        if mutant::is(Mutant::DataAfterName) && target.kind == Kind::Regular {
            self.before("late")?;
            self.write_all(&at.open_file(name)?, target.node)?;
            self.set_all_attributes(at, name, target.node)?;
        }
        Ok(())
    }

    /// Whether a directory was made by a round that was cut off, so that all that is in it is noted too: what it had done
    /// is gone if the power has failed below.
    fn is_new(&self, target: Target) -> bool {
        let (plan, id) = (&self.plan, target.node.id);
        let Some(file) = plan.ids.get(&id).filter(|_| plan.noted_made.contains(&id)) else { return false };
        let stood_there = |spot: &Spot| plan.led.get(spot) == Some(&file.1);
        !plan.was.get(file).is_some_and(|spots| spots.iter().any(stood_there))
    }

    /// Whether all of a node is here, so that it can be made again.
    fn is_whole(&self, target: Target) -> Result<bool> {
        match target.kind {
            Kind::Directory => Ok(self.is_new(target)),
            Kind::Regular => {
                let Some(known) = if_there(self.cache.known_if(target.node))?.flatten() else { return Ok(true) };
                let Some(attr) = if_there(self.cache.fs().attr(&self.cx, target.node))? else { return Ok(true) };
                match self.cache.fs().seek(&self.cx, target.node, 0, false) {
                    Ok(hole) => Ok(hole >= known.end.min(attr.size)),
                    Err(_) => Ok(true),
                }
            }
            _ => Ok(true),
        }
    }

    /// The number of what was made is noted, before it has a name and before the node says so: who finds it there knows it.
    fn note_made(&mut self, target: Target, made: &There) -> Result<()> {
        let fs = self.cache.fs();
        let log = self.cache.log_of(&self.cx, fs.round().map_err(image)?).map_err(image)?;
        let label = Label::new(b'm', target.node.id);
        if if_there(fs.lookup(&self.cx, log, label.whole()))?.is_some() {
            fs.unlink(&self.cx, log, label.whole()).map_err(image)?;
        }
        let stamp = Stamp { size: target.node.id, blocks: size_as_blocks(made.stamp.size), ..made.stamp };
        self.cache.note_as(&self.cx, log, label.whole(), Kind::Fifo, stamp).map_err(image)
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

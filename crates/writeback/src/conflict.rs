//! Changes that this session and another program have both made since they last agreed.
//!
//! | here | below | kept |
//! |---|---|---|
//! | bytes | other bytes of the same file | both, in the file |
//! | bytes | the same bytes, or some that are cut off here | ours in the file, all of theirs in `NAME.bypath-theirs` |
//! | `O_APPEND` | a longer file | theirs, then ours |
//! | attributes | contents, or other attributes | both |
//! | removal, replacement | contents | ours at the name, theirs in `NAME.bypath-theirs` |
//! | a new name | the same name | ours at the name, theirs in `NAME.bypath-theirs` |
//!
//! `ours` does not keep theirs where bytes are overwritten or a changed file is removed; `stop` leaves the name alone below and
//! `fsync` of it fails. A file counts as changed if its size or time of change is none that a note or an earlier round has
//! seen. A round that was cut off may have changed it too: before its first byte a round notes what the file is like
//! after its last one (`wNODE`). A file that is neither like that nor like what is known counts as changed, where its bytes
//! differ from ours.

use crate::below::{Dir, File, There, join};
use crate::outcome::Of;
use crate::plan::{Spot, Target, if_there, image, node};
use crate::{Failure, Id, Result, Work};
use base::Kind;
use cache::mutant::{self, Mutant};
use cache::touch::{Set, size_as_blocks};
use pm::{Errno, UserSlice};

/// Bytes compared at a time.
const PIECE: u64 = 64 << 10;

/// What is done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// Ours replaces theirs.
    Ours,
    /// Theirs is kept beside it, as `NAME.bypath-theirs`.
    #[default]
    Both,
    /// Ours is not written until somebody decides: `fsync` fails, the rest is written.
    Stop,
}

impl Conflict {
    /// As a mount option says it.
    pub fn from_name(name: &str) -> Option<Conflict> {
        Some(match name {
            "ours" => Conflict::Ours,
            "both" => Conflict::Both,
            "stop" => Conflict::Stop,
            _ => return None,
        })
    }

    /// The same.
    pub fn name(self) -> &'static str {
        match self {
            Conflict::Ours => "ours",
            Conflict::Both => "both",
            Conflict::Stop => "stop",
        }
    }
}

impl Work<'_> {
    /// Whether it matters what a file is like that is to be removed or replaced.
    pub fn looks_at(&self, there: &There) -> bool {
        self.conflict != Conflict::Ours && there.attr.kind == Kind::Regular && !mutant::is(Mutant::TheirsRemoved)
    }

    /// Whether another program has written to a file of ours since it was last looked at.
    pub fn is_theirs(&self, there: &There) -> bool {
        self.looks_at(there)
            && self.plan.looked.contains_key(&there.id)
            && !self.was_looked_at(there)
            && !self.has_begun(there.id)
    }

    /// Whether a note says that a file was like this.
    pub fn was_looked_at(&self, there: &There) -> bool {
        let like = (size_as_blocks(there.stamp.size), there.stamp.mtime);
        self.plan.looked.get(&there.id).is_some_and(|looked| looked.contains(&like))
    }

    /// Another program has written over a file of ours at the name that it had, and then moved it where it is moved here: two
    /// programs that replace a file by way of the same temporary name. The file that was moved here is written there.
    pub fn find_rewritten(&mut self, spot: &Spot, target: Target, there: &There) -> Result<()> {
        let (plan, id) = (&self.plan, target.node.id);
        let leads_away =
            |from: &Spot| from != spot && plan.names.get(from).is_some_and(|now| now.map(|to| to.node.id) != Some(id));
        let was_moved = plan.was.get(&there.id).is_some_and(|spots| !spots.is_empty() && spots.iter().all(leads_away));
        // A round that was cut off may have moved it.
        let is_others = was_moved && plan.rounds.len() == 1 && self.below.names().is_none();
        let is_rewritten = is_others && !self.was_looked_at(there) && !self.has_begun(there.id);
        if target.kind != Kind::Regular || !is_rewritten || !self.is_whole(target)? {
            return Ok(());
        }
        let noted = self.plan.nodes.entry(id).or_default();
        (noted.from, noted.set) = (Some(0), noted.set.with(Set::SIZE));
        Ok(())
    }

    fn has_begun(&self, file: Id) -> bool {
        let is_its = |node: &u64| self.plan.ids.get(node) == Some(&file);
        self.plan.begun.keys().any(is_its) || self.plan.unsure.iter().any(is_its)
    }

    /// With `stop`: finds the names that are left alone, with the directories on their way, before anything is moved.
    pub fn find_stuck(&mut self) -> Result<()> {
        if self.conflict != Conflict::Stop {
            return Ok(());
        }
        let names: Vec<(Spot, Option<Target>)> = self.plan.names.iter().map(|(spot, target)| (spot.clone(), *target)).collect();
        for ((dir, name), target) in names {
            let spot = (dir, name);
            match self.is_stuck(&spot, target) {
                Ok(false) => continue,
                Ok(true) => {}
                failed => {
                    self.settle(Of::Name(spot), failed.map(drop))?;
                    continue;
                }
            }
            let mut spot = Some(spot);
            while let Some(one) = spot.filter(|one| !self.stuck.contains(one)) {
                spot = self.plan.ids.get(&one.0).and_then(|file| self.stood_at(*file));
                self.stuck.insert(one);
            }
        }
        Ok(())
    }

    fn is_stuck(&mut self, (dir, name): &Spot, target: Option<Target>) -> Result<bool> {
        let Some(at) = self.open(*dir)? else { return Ok(false) };
        let Some(there) = at.stat(name)? else { return Ok(false) };
        let wanted = target.and_then(|target| self.plan.ids.get(&target.node.id)).copied();
        let is_gone = !self.plan.wanted.contains(&there.id);
        let is_stuck = match self.plan.ours.contains(&there.id) {
            true if there.attr.kind == Kind::Directory => is_gone && self.has_others(&at.dir(name)?)?,
            true => is_gone && there.stamp.nlink <= 1 && self.is_theirs(&there),
            false => target.is_some(),
        };
        Ok(is_stuck && wanted != Some(there.id))
    }

    /// Whether there is something in a directory that no note knows.
    fn has_others(&self, dir: &Dir) -> Result<bool> {
        for name in dir.names()? {
            if dir.stat(&name)?.is_some_and(|there| !self.plan.ours.contains(&there.id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `ESTALE` of a name that is left alone.
    pub fn must_not_be_stuck(&self, spot: &Spot) -> Result<()> {
        if self.stuck.contains(spot) { Err(Failure::new(&spot.1, Errno::ESTALE)) } else { Ok(()) }
    }

    /// `ESTALE` for a file that is to be replaced, and that stays as it is until somebody decides.
    pub fn must_not_be_theirs(&self, dir: &[u8], name: &[u8], there: &There) -> Result<()> {
        if self.conflict == Conflict::Stop && self.is_theirs(there) {
            return Err(Failure::new(join(dir, name), Errno::ESTALE));
        }
        Ok(())
    }

    /// Whether writing these runs would take bytes away that another program has written: some that are there differ. `is_cut`:
    /// the size was set; if it was there too, both have changed the same.
    pub fn overlaps(&self, id: u64, file: &File, runs: &[(u64, u64)], (size, is_cut): (u64, bool)) -> Result<bool> {
        let (there, known) = (file.size()?, if_there(self.cache.known_if(node(id)))?.flatten());
        // A round that was cut off may have come as far as that.
        let is_left = self.plan.begun.get(&id).is_some_and(|begun| begun.is_before && begun.left.0 == size_as_blocks(there));
        if is_cut && there != size && !is_left && (there > size || known.is_some_and(|known| known.stamp.size != there)) {
            return Ok(true);
        }
        let (mut ours, mut theirs) = (vec![0u8; PIECE as usize], vec![0u8; PIECE as usize]);
        for (from, to) in runs {
            let (mut at, to) = (*from, (*to).min(size).min(there));
            while at < to {
                let want = (to - at).min(PIECE) as usize;
                let mine = UserSlice::from_mut(&mut ours[..want]);
                let came = self.cache.fs().read(&self.cx, node(id), at, &[mine]).map_err(image)?;
                let came = came.min(file.read(&mut theirs[..want], at)?);
                if ours[..came] != theirs[..came] {
                    return Ok(true);
                }
                if came == 0 {
                    break;
                }
                at += came as u64;
            }
        }
        Ok(false)
    }

    /// A copy of what is there, beside it.
    pub fn keep_theirs(&mut self, dir: &Dir, name: &[u8]) -> Result<()> {
        let (park, new) = (self.below.park()?, b"theirs".to_vec());
        if park.stat(&new)?.is_some() {
            // Half of one.
            park.remove(&new, false)?;
        }
        self.before("theirs")?;
        let Some(there) = dir.stat(name)? else { return Ok(()) };
        let (from, to) = (dir.open_file(name)?, park.make_file(&new)?);
        from.copy_to(&to)?;
        // An ordinary user may not be able to give it away.
        let _ = park.set_owner(&new, Some(there.attr.uid), Some(there.attr.gid));
        park.set_last(&new, Some(there.attr.mode), None, Some(there.attr.mtime))?;
        self.set_aside_from((&park, &new), dir, name)
    }
}

//! Where something is below. A place is believed only if the file there is the one.
//!
//! While a round is under way, and after one that was cut off, a file is in the park, where it was when it was touched, or
//! where it is to be. Paths of directories are found the same way, each by those of its parents.

use crate::below::{Dir, join, parked};
use crate::make::new_name;
use crate::names::PARK_ID;
use crate::plan::Spot;
use crate::{Id, Result, Work};
use pm::Errno;

/// Where a file was found: the directory, the name, and whether that name stays.
pub struct Found {
    pub dir: Dir,
    pub name: Vec<u8>,
    pub stays: bool,
}

impl Work<'_> {
    /// Path below of the directory with this number here.
    pub fn place(&mut self, id: u64) -> Result<Option<Vec<u8>>> {
        self.place_from(id, &mut Vec::new())
    }

    fn place_from(&mut self, id: u64, above: &mut Vec<u64>) -> Result<Option<Vec<u8>>> {
        if id == self.plan.root {
            return Ok(Some(Vec::new()));
        }
        if let Some(place) = self.places.get(&id) {
            return Ok(Some(place.clone()));
        }
        let Some(file) = self.plan.ids.get(&id).copied() else { return Ok(None) };
        if above.contains(&id) {
            // X in Y, which was in X: this way leads to nothing.
            return Ok(None);
        }
        above.push(id);
        let found = self.place_among(id, file, above);
        above.pop();
        let found = found?;
        if let (Some(found), true) = (&found, above.is_empty()) {
            self.places.insert(id, found.clone());
        }
        Ok(found)
    }

    fn place_among(&mut self, id: u64, file: Id, above: &mut Vec<u64>) -> Result<Option<Vec<u8>>> {
        let name = parked(file);
        if self.below.has((self.below.park_name(), PARK_ID), &name, file)? {
            return Ok(Some(join(self.below.park_name(), &name)));
        }
        let now = self.plan.dirs.get(&id).cloned();
        let before = self.plan.was.get(&file).cloned().unwrap_or_default();
        for (parent, name) in now.into_iter().chain(before) {
            if let Some(place) = self.place_from(parent, above)?
                && self.below.has((&place, parent), &name, file)?
            {
                return Ok(Some(join(&place, &name)));
            }
        }
        Ok(None)
    }

    /// A directory of ours below, open.
    pub fn open(&mut self, id: u64) -> Result<Option<Dir>> {
        for _ in 0..2 {
            let Some(path) = self.place(id)? else { return Ok(None) };
            match self.below.dir_as(&path, id) {
                // It was there once in this round.
                Err(failure) if matches!(failure.errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => self.places.clear(),
                opened => return opened.map(Some),
            }
        }
        Ok(None)
    }

    /// Where the file of a node is below.
    pub fn find(&mut self, node: u64, file: Id) -> Result<Option<Found>> {
        if let Some(park) = self.below.park_if()? {
            for name in [new_name(node), parked(file)] {
                if park.has(&name, file)? {
                    return Ok(Some(Found { dir: park, name, stays: false }));
                }
            }
        }
        let targets = self.plan.targets.get(&node).cloned().unwrap_or_default();
        let before = self.plan.was.get(&file).cloned().unwrap_or_default();
        let spot = self.plan.nodes.get(&node).and_then(|noted| noted.spot.clone());
        let before = before.into_iter().filter(|spot| !targets.contains(spot));
        let mut ways: Vec<(Spot, bool)> = before.map(|spot| (spot, false)).collect();
        ways.extend(targets.iter().map(|spot| (spot.clone(), true)));
        ways.extend(spot.map(|spot| (spot, true)));
        for ((dir, name), stays) in ways {
            if let Some(dir) = self.open(dir)?
                && dir.has(&name, file)?
            {
                return Ok(Some(Found { dir, name, stays }));
            }
        }
        Ok(None)
    }
}

//! Where something is below. A place is believed only if the file there is the one.
//!
//! While a round is under way, and after one that was cut off, a file is in the park, at a name that it had when it was
//! touched, or at one that it is to have. All directories that matter are located in one pass from the root and the park
//! downwards: a name is looked at only in a directory that was located itself, so the pass costs one look for each name
//! that is noted, however the directories have been moved into one another. From then on the round updates the places that
//! it changes.
//!
//! Directories of the kernel are kept open, and opened from their parents: a descriptor leads to the same directory
//! wherever that is moved, and a path costs as much as it is long. Behind a daemon a path is what a directory is known by.

use crate::below::{Dir, join, parked, parked_id};
use crate::make::new_name;
use crate::names::PARK_ID;
use crate::outcome::LATER;
use crate::plan::Spot;
use crate::{Failure, Id, Result, Work};
use pm::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Directories kept open at most.
const OPEN_MAX: usize = 200;
/// How often all directories are located anew in one round because one was not where it had been.
const AGAIN_MAX: u32 = 8;

/// Where a file was found: the directory, the name, and whether that name stays.
pub struct Found {
    pub dir: Dir,
    pub name: Vec<u8>,
    pub stays: bool,
}

/// What is known of places in a round.
#[derive(Default)]
pub struct Places {
    /// Whether all directories have been located since something unforeseen moved.
    is_located: bool,
    /// How often that was.
    located: u32,
    /// Looks below, for those who count them.
    pub looks: u64,
    /// The parent and name of each directory that was found; the park is the parent [`PARK_ID`].
    lies: HashMap<u64, Spot>,
    /// Why a directory could not be looked for.
    refused: HashMap<u64, Failure>,
    /// Nodes of directories.
    by_file: HashMap<Id, Vec<u64>>,
    open: HashMap<u64, Dir>,
    /// Where nodes were found, and whether that name stays; `None`: nowhere.
    found: HashMap<u64, Option<(Spot, bool)>>,
}

impl Places {
    /// Nothing of it is known any more.
    pub fn forget(&mut self) {
        *self = Places { located: self.located, looks: self.looks, ..Places::default() };
    }

    /// The same where something is tried again, a bounded number of times.
    pub fn forget_to_retry(&mut self) {
        self.forget();
        self.located = 0;
    }

    /// A directory can't be reached in this round.
    pub fn refuse(&mut self, id: u64, failure: &Failure) {
        self.lies.remove(&id);
        self.refused.insert(id, failure.clone());
    }

    /// A directory has moved, or was made.
    pub fn note_directory(&mut self, id: u64, file: Id, at: Spot) {
        self.open.remove(&id);
        let nodes = self.by_file.entry(file).or_default();
        if !nodes.contains(&id) {
            nodes.push(id);
        }
        self.note_moved(file, &at);
    }

    /// A file has moved, which may be a directory.
    pub fn note_moved(&mut self, file: Id, at: &Spot) {
        for id in self.by_file.get(&file).into_iter().flatten() {
            self.refused.remove(id);
            self.lies.insert(*id, at.clone());
        }
    }

    /// A node stands at a name from now on.
    pub fn note_found(&mut self, node: u64, at: Spot) {
        self.found.insert(node, Some((at, true)));
    }

    /// A node may be elsewhere.
    pub fn forget_found(&mut self, node: u64) {
        self.found.remove(&node);
    }

    /// Nodes of a directory below.
    pub fn nodes_of(&self, file: Id) -> Vec<u64> {
        self.by_file.get(&file).cloned().unwrap_or_default()
    }

    fn keep_open(&mut self, id: u64, dir: &Dir) {
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(id, dir.clone());
    }
}

/// Whether a directory is not where it was thought to be.
fn is_elsewhere(failure: &Failure) -> bool {
    matches!(failure.errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ESTALE)
}

impl Work<'_> {
    /// A directory of ours below, open; `None`: it is not there.
    pub fn open(&mut self, id: u64) -> Result<Option<Dir>> {
        loop {
            self.locate()?;
            match self.open_located(id) {
                Err(failure) if is_elsewhere(&failure) => {
                    if self.places.located > AGAIN_MAX {
                        // It moves all the time: that it is nowhere must not be believed.
                        return Err(Failure::new(format!("directory {id:x}"), LATER));
                    }
                    // It was there once in this round.
                    self.places.forget();
                }
                Ok(None) => return self.places.refused.get(&id).map_or(Ok(None), |refused| Err(refused.clone())),
                opened => return opened,
            }
        }
    }

    fn open_located(&mut self, id: u64) -> Result<Option<Dir>> {
        if self.below.names().is_some() {
            return self.path_of(id).map_or(Ok(None), |path| self.below.dir_as(&path, id).map(Some));
        }
        let (mut missing, mut at) = (Vec::new(), id);
        let mut dir = loop {
            if let Some(dir) = self.places.open.get(&at) {
                if dir.is_there()? {
                    break dir.clone();
                }
                self.places.open.remove(&at);
            }
            if at == self.plan.root || at == PARK_ID {
                let top = if at == PARK_ID { self.below.park_if()? } else { Some(self.below.top()?) };
                let Some(top) = top else { return Ok(None) };
                self.places.keep_open(at, &top);
                break top;
            }
            let Some((parent, _)) = self.places.lies.get(&at) else { return Ok(None) };
            missing.push(at);
            at = *parent;
            if missing.len() > self.places.lies.len() {
                return Ok(None);
            }
        };
        for id in missing.into_iter().rev() {
            self.places.looks += 1;
            let Some((_, name)) = self.places.lies.get(&id) else { return Ok(None) };
            dir = dir.dir(name)?;
            if self.plan.ids.get(&id) != dir.stat(b".")?.map(|there| there.id).as_ref() {
                return Err(Failure::new(&dir.path, Errno::ESTALE));
            }
            self.places.keep_open(id, &dir);
        }
        Ok(Some(dir))
    }

    /// Path below of a directory that was located.
    fn path_of(&self, id: u64) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), id);
        while at != self.plan.root {
            if at == PARK_ID {
                names.push(self.below.park_name());
                break;
            }
            let (parent, name) = self.places.lies.get(&at)?;
            names.push(name);
            at = *parent;
            if names.len() > self.places.lies.len() + 1 {
                return None;
            }
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Locates all directories that matter, unless they are.
    pub fn locate(&mut self) -> Result<()> {
        if self.places.is_located {
            return Ok(());
        }
        self.places.is_located = true;
        self.places.located += 1;
        let mut awaited = self.awaited();
        let mut todo = vec![self.plan.root];
        todo.extend(self.locate_parked()?);
        let mut missing = HashMap::new();
        while !todo.is_empty() {
            self.locate_in(todo, &mut awaited, &mut missing)?;
            todo = self.locate_moved(std::mem::take(&mut missing))?;
        }
        Ok(())
    }

    /// Locates what is in these directories, and in those that are found. `missing`: what is not there, by directory.
    fn locate_in(
        &mut self,
        mut todo: Vec<u64>,
        awaited: &mut HashMap<u64, Vec<Spot>>,
        missing: &mut HashMap<u64, Vec<u64>>,
    ) -> Result<()> {
        while let Some(parent) = todo.pop() {
            let Some(mut children) = awaited.remove(&parent) else { continue };
            if let Some(names) = self.below.names() {
                // What is not known to be there is not asked for.
                children.retain(|(id, name)| names.led(&(parent, name.clone())) == Some(*id));
            }
            if children.is_empty() {
                continue;
            }
            let dir = match self.open_located(parent) {
                Ok(Some(dir)) => dir,
                Ok(None) => continue,
                Err(failure) if is_elsewhere(&failure) => continue,
                Err(failure) => {
                    todo.extend(self.refuse(&children, &failure));
                    continue;
                }
            };
            for (id, name) in children {
                let Some(file) = self.plan.ids.get(&id).copied() else { continue };
                if self.places.lies.contains_key(&id) {
                    continue;
                }
                self.places.looks += 1;
                match dir.has(&name, file) {
                    Ok(true) => {
                        self.places.refused.remove(&id);
                        self.places.lies.insert(id, (parent, name));
                        todo.push(id);
                    }
                    Ok(false) => missing.entry(parent).or_default().push(id),
                    Err(failure) => todo.extend(self.refuse(&[(id, name)], &failure)),
                }
            }
        }
        Ok(())
    }

    /// Directories to which another program has given another name in the same directory.
    fn locate_moved(&mut self, missing: HashMap<u64, Vec<u64>>) -> Result<Vec<u64>> {
        /// One may be moved to and fro just while its directory is listed.
        const LOOKS: usize = 3;
        let mut located = Vec::new();
        for (parent, ids) in missing {
            for _ in 0..LOOKS {
                let is_missing = |id: &&u64| !self.places.lies.contains_key(id);
                let files: HashMap<Id, u64> =
                    ids.iter().filter(is_missing).filter_map(|id| Some((*self.plan.ids.get(id)?, *id))).collect();
                if files.is_empty() {
                    break;
                }
                let Ok(Some(dir)) = self.open_located(parent) else { break };
                match self.named_anew(&dir, &files) {
                    Ok(named) => {
                        located.extend(named.iter().map(|(id, _)| *id));
                        self.places.lies.extend(named.into_iter().map(|(id, name)| (id, (parent, name))));
                    }
                    Err(failure) => {
                        let children: Vec<Spot> = files.values().map(|id| (*id, Vec::new())).collect();
                        self.refuse(&children, &failure);
                        break;
                    }
                }
            }
        }
        Ok(located)
    }

    /// The names of these files in a directory.
    fn named_anew(&mut self, dir: &Dir, files: &HashMap<Id, u64>) -> Result<Vec<Spot>> {
        let mut named = Vec::new();
        for name in dir.directories(&files.keys().map(|(_, number)| *number).collect())? {
            self.places.looks += 1;
            if let Some(id) = dir.stat(&name)?.and_then(|there| files.get(&there.id)) {
                named.push((*id, name));
            }
        }
        Ok(named)
    }

    /// For each directory the directories that may be in it, with their names.
    fn awaited(&mut self) -> HashMap<u64, Vec<Spot>> {
        let mut dirs: BTreeSet<u64> = self.plan.dirs.keys().copied().collect();
        dirs.extend(self.plan.names.keys().map(|(dir, _)| *dir));
        dirs.extend(self.plan.was.values().flatten().map(|(dir, _)| *dir));
        dirs.remove(&self.plan.root);
        let mut awaited: HashMap<u64, Vec<Spot>> = HashMap::new();
        for id in dirs {
            let Some(file) = self.plan.ids.get(&id).copied() else { continue };
            self.places.by_file.entry(file).or_default().push(id);
            let before = self.plan.was.get(&file).into_iter().flatten();
            for (parent, name) in self.plan.dirs.get(&id).into_iter().chain(before) {
                awaited.entry(*parent).or_default().push((id, name.clone()));
            }
        }
        awaited
    }

    /// Those in the park.
    fn locate_parked(&mut self) -> Result<Vec<u64>> {
        let Some(park) = self.below.park_if()? else { return Ok(Vec::new()) };
        let mut located = Vec::new();
        for name in park.names()? {
            let Some(file) = parked_id(&name) else { continue };
            if self.places.by_file.contains_key(&file) && park.has(&name, file)? {
                self.places.note_moved(file, &(PARK_ID, name));
                located.extend(self.places.by_file[&file].iter().copied());
            }
        }
        Ok(located)
    }

    /// These could not be looked for in one of the places where they may be; nor, then, could what may be in them.
    fn refuse(&mut self, children: &[Spot], failure: &Failure) -> Vec<u64> {
        let mut refused = Vec::new();
        for (id, _) in children {
            if !self.places.lies.contains_key(id) && self.places.refused.insert(*id, failure.clone()).is_none() {
                refused.push(*id);
            }
        }
        refused
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
        match self.places.found.get(&node).cloned() {
            Some(None) => return Ok(None),
            Some(Some(((dir, name), stays))) => {
                self.places.looks += 1;
                if let Some(dir) = self.open(dir)?
                    && dir.has(&name, file)?
                {
                    return Ok(Some(Found { dir, name, stays }));
                }
            }
            None => {}
        }
        let mut at = None;
        for (spot, stays) in self.ways(node, file) {
            self.places.looks += 1;
            if let Some(dir) = self.open(spot.0)?
                && dir.has(&spot.1, file)?
            {
                at = Some((dir, spot, stays));
                break;
            }
        }
        let known = at.as_ref().map(|(_, spot, stays)| (spot.clone(), *stays));
        self.places.found.insert(node, known);
        Ok(at.map(|(dir, (_, name), stays)| Found { dir, name, stays }))
    }

    /// Names that a node may have below, and whether they stay.
    fn ways(&self, node: u64, file: Id) -> Vec<(Spot, bool)> {
        let targets = self.plan.targets.get(&node).map_or(&[][..], Vec::as_slice);
        let stay: HashSet<&Spot> = targets.iter().collect();
        let before = self.plan.was.get(&file).into_iter().flatten().filter(|spot| !stay.contains(spot));
        let mut ways: Vec<(Spot, bool)> = before.map(|spot| (spot.clone(), false)).collect();
        ways.extend(targets.iter().map(|spot| (spot.clone(), true)));
        let spot = self.plan.nodes.get(&node).and_then(|noted| noted.spot.clone());
        ways.extend(spot.or(self.plan.names_found.get(&node).cloned()).map(|spot| (spot, true)));
        ways
    }

    /// The path of a name, for people.
    pub fn shown(&self, (dir, name): (u64, &[u8])) -> Vec<u8> {
        let (mut path, mut at) = (name.to_vec(), dir);
        while let Some((parent, name)) = self.plan.dirs.get(&at) {
            (path, at) = (join(name, &path), *parent);
            if path.len() > base::PATH_MAX {
                break;
            }
        }
        path
    }
}

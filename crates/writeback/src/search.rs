//! Names in the tree of nodes of which none is known: looked for everywhere, once for all. Rare: files with several names
//! of which the first has gone.

use crate::below::id_of_node;
use crate::place::Found;
use crate::plan::{Plan, Spot, if_there, image, names_in, node};
use crate::{Id, Result, Work};
use base::Kind;
use std::collections::BTreeSet;

impl Work<'_> {
    /// Finds a name for each node that was touched, has names, and of which none is known.
    pub fn find_names(&mut self) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for (id, noted) in &self.plan.nodes {
            let is_known = noted.spot.is_some() || self.plan.targets.contains_key(id) || *id == self.plan.root;
            if !is_known && self.plan.ids.contains_key(id) && self.has_name(*id)? {
                wanted.insert(*id);
            }
        }
        if wanted.is_empty() { Ok(()) } else { self.search(wanted) }
    }

    /// Where the file of a node is below that has a name to be made, and is at none of those that are noted: at one that nobody
    /// has touched, if it has such a name here. All of those are looked for together.
    pub fn find_untouched(&mut self, id: u64, file: Id) -> Result<Option<Found>> {
        if !std::mem::replace(&mut self.has_searched, true) {
            let mut wanted = BTreeSet::new();
            for (id, spots) in &self.plan.targets {
                let names = if_there(self.cache.fs().names_here(node(*id)))?.unwrap_or(0);
                if self.plan.ids.contains_key(id) && names as usize > spots.len() {
                    wanted.insert(*id);
                }
            }
            self.search(wanted)?;
        }
        if self.plan.names_found.contains_key(&id) { self.find(id, file) } else { Ok(None) }
    }

    /// Looks in the tree, then in the notes that have been made since this round began: a name that was touched meanwhile says
    /// nothing about what is below; its note says what it led to before.
    fn search(&mut self, mut wanted: BTreeSet<u64>) -> Result<()> {
        let (mut todo, mut found) = (vec![self.plan.root], Vec::new());
        let (mut has_touched, logs) = (false, self.logs_since()?);
        while let (Some(dir), false) = (todo.pop(), wanted.is_empty()) {
            for name in if_there_names(self, dir)? {
                let Some((child, kind)) = if_there(self.cache.fs().lookup_kind(&self.cx, node(dir), &name))? else { continue };
                let (spot, is_directory) = ((dir, name), kind == Kind::Directory);
                if is_directory {
                    todo.push(child.id);
                } else if self.plan.names.contains_key(&spot) || !wanted.contains(&child.id) {
                    continue;
                }
                // Asked behind the look: who changes a name notes that before.
                if self.is_name_noted(&logs, &spot)? {
                    has_touched = true;
                } else if is_directory {
                    self.found_directory(child.id, &spot, &mut found)?;
                } else {
                    wanted.remove(&child.id);
                    self.found_name(child.id, spot.clone());
                    found.push((spot, child.id));
                }
            }
        }
        if has_touched || !wanted.is_empty() {
            self.search_notes(&wanted, &mut found)?;
        }
        // Directories that were not known before.
        self.places.forget();
        self.know(found)
    }

    /// The same in the notes.
    fn search_notes(&mut self, wanted: &BTreeSet<u64>, found: &mut Vec<(Spot, u64)>) -> Result<()> {
        let last = self.plan.rounds.last().copied().unwrap_or(0);
        let since = Plan::read_notes(self.cache, &self.cx, (last, u64::MAX))?;
        for (id, file) in &since.ids {
            let mut spots = since.was.get(file).into_iter().flatten();
            let Some(spot) = spots.find(|spot| !self.plan.names.contains_key(*spot)).cloned() else { continue };
            if wanted.contains(id) {
                self.found_name(*id, spot.clone());
                found.push((spot, *id));
            } else if if_there(self.cache.fs().attr(&self.cx, node(*id)))?.is_some_and(|attr| attr.kind == Kind::Directory) {
                self.found_directory(*id, &spot, found)?;
            }
        }
        Ok(())
    }

    /// From now on the node is found by this name.
    fn found_name(&mut self, id: u64, spot: Spot) {
        if let Some(noted) = self.plan.nodes.get_mut(&id) {
            noted.spot = Some(spot.clone());
        }
        self.plan.names_found.insert(id, spot);
    }

    fn found_directory(&mut self, id: u64, spot: &Spot, found: &mut Vec<(Spot, u64)>) -> Result<()> {
        if let Some(known) = if_there(self.cache.known_if(node(id)))?.flatten() {
            let file = id_of_node(self.cache, id, &known.stamp);
            self.plan.ids.entry(id).or_insert(file);
            found.push((spot.clone(), id));
        }
        self.plan.dirs.entry(id).or_insert_with(|| spot.clone());
        Ok(())
    }

    /// Whether something has moved here since this round began, so that names that nobody had touched then may lead elsewhere.
    fn has_moved(&self) -> Result<bool> {
        Ok(self.cache.fs().directory_moves().map_err(image)?.0 != self.plan.moved)
    }

    /// Whether a file behind a daemon may be at a name that nobody had touched when this round began, which cannot be told since
    /// something has moved.
    pub fn may_stand_untouched(&self, id: u64) -> Result<bool> {
        let has_only_untouched = self.below.names().is_some() && !self.plan.targets.contains_key(&id);
        Ok(has_only_untouched && self.has_name(id)? && self.has_moved()?)
    }

    /// What names that were found lead to below, unless something has moved since this round began.
    fn know(&self, found: Vec<(Spot, u64)>) -> Result<()> {
        if let Some(names) = self.below.names()
            && !self.has_moved()?
        {
            found
                .into_iter()
                .filter(|(spot, _)| !self.plan.names.contains_key(spot))
                .for_each(|(spot, file)| names.know(spot, file));
        }
        Ok(())
    }

    /// Whether a node that the lower file system has still has a name here.
    fn has_name(&self, id: u64) -> Result<bool> {
        let known = if_there(self.cache.known_if(node(id)))?.flatten();
        Ok(known.is_some_and(|known| known.stamp.nlink > 0))
    }
}

fn if_there_names(work: &Work<'_>, dir: u64) -> Result<Vec<Vec<u8>>> {
    match names_in(work.cache, &work.cx, node(dir)) {
        Err(failure) if matches!(failure.errno, pm::Errno::ENOENT | pm::Errno::ESTALE) => Ok(Vec::new()),
        names => names,
    }
}

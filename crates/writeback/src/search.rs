//! Names in the tree of nodes of which none is known: looked for everywhere, once for all. Rare: files with several names
//! of which the first has gone.

use crate::below::id_of_node;
use crate::place::Found;
use crate::plan::{Spot, if_there, image, names_in, node};
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

    fn search(&mut self, mut wanted: BTreeSet<u64>) -> Result<()> {
        let (mut todo, mut found) = (vec![self.plan.root], Vec::new());
        while let (Some(dir), false) = (todo.pop(), wanted.is_empty()) {
            for name in if_there_names(self, dir)? {
                let Some((child, kind)) = if_there(self.cache.fs().lookup_kind(&self.cx, node(dir), &name))? else { continue };
                if kind == Kind::Directory {
                    todo.push(child.id);
                    if let Some(known) = if_there(self.cache.known_if(child))?.flatten() {
                        let file = id_of_node(self.cache, child.id, &known.stamp);
                        self.plan.ids.entry(child.id).or_insert(file);
                        found.push(((dir, name.clone()), child.id));
                    }
                    self.plan.dirs.entry(child.id).or_insert((dir, name));
                } else if !self.plan.names.contains_key(&(dir, name.clone())) && wanted.remove(&child.id) {
                    if let Some(noted) = self.plan.nodes.get_mut(&child.id) {
                        noted.spot = Some((dir, name.clone()));
                    }
                    found.push(((dir, name.clone()), child.id));
                    // So that it is found by this name from now on.
                    self.plan.names_found.insert(child.id, (dir, name));
                }
            }
        }
        // Directories that were not known before.
        self.places.forget();
        self.know(found)
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

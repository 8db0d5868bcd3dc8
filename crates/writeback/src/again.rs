//! Making again what others have removed below while it was changed here.
//!
//! A directory is made again whenever something in it is to be written: what was not changed in it here is not put back. A
//! file is made again if its bytes were changed and all of them are here. Of a file of which only attributes were changed
//! the removal stands.

use crate::below::{Dir, join};
use crate::outcome::LATER;
use crate::plan::{Noted, Spot, Target, if_there, image, node};
use crate::{Conflict, Failure, Result, Work};
use base::{Attr, Error, Kind};
use engine::lower::Written;
use pm::Errno;

/// Most levels of directories.
const DEPTH_MAX: usize = 100_000;

impl Work<'_> {
    /// Something in this directory is left for the next round: a program has moved it, or one above it, since this one began.
    pub fn later(&self, id: u64) -> Failure {
        Failure::new(format!("directory {id:x}"), LATER)
    }

    /// Whether a directory has no name here any more: all that was in it is gone or has moved, which is noted.
    fn has_no_name(&self, id: u64) -> Result<bool> {
        Ok(id != self.plan.root && if_there(self.cache.fs().named(node(id), &mut [0; 255]))?.flatten().is_none())
    }

    /// The directory of a name that is to be made, made again if it is missing. `None`: it has gone here, and the name with it.
    pub fn open_to_make(&mut self, dir: u64) -> Result<Option<Dir>> {
        if let Some(open) = self.open(dir)? {
            return Ok(Some(open));
        }
        let (mut missing, mut at) = (Vec::new(), dir);
        let mut open = loop {
            if self.has_no_name(at)? {
                return if at == dir { Ok(None) } else { Err(self.later(dir)) };
            }
            missing.push(at);
            at = match self.plan.dirs.get(&at) {
                Some((parent, _)) if missing.len() < DEPTH_MAX => *parent,
                _ => return Err(self.later(dir)),
            };
            if let Some(open) = self.open(at)? {
                break open;
            }
        };
        while let Some(id) = missing.pop() {
            match self.make_directory_again(&open, id) {
                Ok(made) => open = made,
                Err(failure) => {
                    // Nor is there a way to what is in it.
                    missing.push(id);
                    missing.into_iter().for_each(|id| self.places.refuse(id, &failure));
                    return Err(failure);
                }
            }
        }
        Ok(Some(open))
    }

    fn make_directory_again(&mut self, at: &Dir, id: u64) -> Result<Dir> {
        let spot = self.plan.dirs.get(&id).cloned().ok_or_else(|| self.later(id))?;
        if let Some(failure) = self.outcomes.of_name(&spot) {
            return Err(failure.clone());
        }
        let Some(file) = self.plan.ids.get(&id).copied().filter(|_| self.is_named_so(id, &spot)) else {
            // To be made by this round, and moved before it came to that.
            return Err(self.later(id));
        };
        match at.stat(&spot.1)? {
            Some(there) if there.id == file => self.places.note_directory(id, file, spot.clone()),
            Some(there) if self.is_ours_at(there.id, (spot.0, &spot.1)) && !self.plan.wanted.contains(&there.id) => {
                return Err(self.later(id));
            }
            Some(there) if there.attr.kind == Kind::Directory && self.below.names().is_none() => {
                self.before("adopt")?;
                self.adopt(id, &there, &spot)?;
            }
            there => {
                match there {
                    // Another program has moved it here from where this session moves it, too.
                    Some(there) if self.plan.wanted.contains(&there.id) => {
                        self.park_file(at, &spot.1, there.id, there.attr.kind == Kind::Directory)?;
                    }
                    Some(_) => self.set_aside(at, &spot.1, &spot.1)?,
                    None => {}
                }
                let target = Target { node: node(id), kind: Kind::Directory };
                self.make_anew((at, &spot.1), spot.0, target, None, true)?;
                self.made_again.push(id);
            }
        }
        // The rest of it has gone, or is another's: it is listed anew.
        self.theirs.insert(id);
        self.open(id)?.ok_or_else(|| self.later(id))
    }

    fn is_named_so(&self, id: u64, (parent, name): &Spot) -> bool {
        let mut text = [0; 255];
        let named = self.cache.fs().named(node(id), &mut text);
        matches!(named, Ok(Some((dir, len))) if dir.id == *parent && text[..len] == name[..])
    }

    /// Another directory stands where one of ours was: that is it from now on.
    fn adopt(&mut self, id: u64, there: &crate::below::There, (parent, name): &Spot) -> Result<()> {
        let written = Written { stamp: there.stamp, is_clean: false, name: Some((node(*parent), name)) };
        self.note_made(id, &there.stamp)?;
        match self.cache.fs().written(&self.cx, node(id), &written) {
            Ok(()) | Err(Error::Posix(Errno::ESTALE)) => {}
            Err(error) => return Err(image(error)),
        }
        self.plan.ids.insert(id, there.id);
        self.plan.ours.insert(there.id);
        self.plan.touched.insert(id);
        self.places.note_directory(id, there.id, (*parent, name.clone()));
        Ok(())
    }

    /// A file or directory that was changed here is nowhere below.
    pub fn make_again(&mut self, id: u64, noted: &Noted, attr: &Attr) -> Result<()> {
        let spots = self.plan.targets.get(&id).cloned().unwrap_or_else(|| noted.spot.iter().cloned().collect());
        // Without a name in the tree: whoever has it open is the last to see it.
        let Some(first) = spots.first().cloned() else { return Ok(()) };
        if let Some(failure) = spots.iter().find_map(|spot| self.outcomes.of_name(spot)) {
            return Err(failure.clone());
        }
        if attr.kind == Kind::Directory {
            if !self.plan.touched.contains(&id) {
                self.removed.push((id, first));
                return Ok(());
            }
            return self.open_to_make(id).map(drop);
        }
        let known = if_there(self.cache.known_if(node(id)))?.flatten();
        let has_bytes = noted.has_contents() || known.is_none();
        if attr.kind != Kind::Regular || !has_bytes {
            self.removed.push((id, first));
            return Ok(());
        }
        let (target, file) = (Target { node: node(id), kind: attr.kind }, self.plan.ids.get(&id).copied());
        for spot in spots {
            let Some(at) = self.open_to_make(spot.0)? else { continue };
            let there = at.stat(&spot.1)?;
            if let Some(there) = there.as_ref().filter(|there| Some(there.id) == file) {
                // Another program has moved it, or its directory, away and back.
                return self.change_found(id, noted, (there.id, attr), (&at, &spot.1));
            }
            if there.is_some_and(|there| !self.is_ours_at(there.id, (spot.0, &spot.1))) {
                if self.conflict == Conflict::Stop || file.is_some() && !self.is_whole(target)? {
                    return Err(Failure::new(join(&at.path, &spot.1), Errno::ESTALE));
                }
                self.set_aside(&at, &spot.1, &spot.1)?;
            }
            self.make_name(&spot, target)?;
        }
        Ok(())
    }

    /// Whether all of a node is here, so that it can be made again.
    pub fn is_whole(&self, target: Target) -> Result<bool> {
        if target.kind != Kind::Regular {
            return Ok(true);
        }
        let Some(known) = if_there(self.cache.known_if(target.node))?.flatten() else { return Ok(true) };
        let Some(attr) = if_there(self.cache.fs().attr(&self.cx, target.node))? else { return Ok(true) };
        match self.cache.fs().seek(&self.cx, target.node, 0, false) {
            Ok(hole) => Ok(hole >= known.end.min(attr.size)),
            Err(_) => Ok(true),
        }
    }
}

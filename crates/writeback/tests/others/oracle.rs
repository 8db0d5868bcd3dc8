//! The table of `docs/internals/cache-others.md`: of a tree as both sides knew it, as ours left it, and as theirs left it,
//! follows what there is to be in the end. Each side is tried alone, by the kernel, in a twin.

use super::contents::{Both, Bytes};
use super::operations::Edit;
use super::twin::{Key, LATELY, Snap, TOP, Thing};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use writeback::Conflict;

/// What theirs is called that is kept beside ours.
pub const BESIDE: &str = ".bypath-theirs";

/// All that there is to know of both sides.
pub struct Sides<'a> {
    pub base: &'a Snap,
    pub ours: &'a Snap,
    pub theirs: &'a Snap,
    pub our_edits: &'a HashMap<String, Vec<Edit>>,
    pub their_edits: &'a HashMap<String, Vec<Edit>>,
}

/// When the contents of a file were last changed, by the name that leads to it in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Exactly(i64),
    NotAt(i64),
}

/// What is to be found at a name.
struct Wanted {
    like: Thing,
    bytes: Bytes,
    modes: Vec<u32>,
    when: When,
    /// They have removed it: attributes that only it had are not here, and go with it.
    is_made_again: bool,
    /// What stands beside it if not all of theirs is in it.
    copy: Option<Thing>,
    is_needed: bool,
}

/// One way in which it may come out.
pub struct Merged {
    at: BTreeMap<Key, String>,
    /// Theirs, beside a name of ours; whether it has to be there.
    beside: Vec<(Key, Thing, bool)>,
    /// Names that may be there or not: both have moved a file.
    free: BTreeSet<Key>,
    /// Names at which a file is as one side has left it: one that was moved and not found is there twice. Whether it is ours.
    forced: BTreeMap<Key, bool>,
    /// Directories that may be called `NAME.bypath-theirs`: ours are gone, theirs are in them.
    renamed: BTreeSet<String>,
    /// Only that nothing is lost can be said.
    pub is_loose: bool,
}

/// What to do with a file of which one side has changed no more than attributes, and which the other has removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub ours_stay: bool,
    pub theirs_stay: bool,
    /// Whether what they have moved is found where it is now; else it counts as removed, and ours is made again.
    pub is_found: bool,
}

impl<'a> Sides<'a> {
    fn bytes_changed(&self, side: &'a Snap, label: &str) -> bool {
        self.base.things[label].bytes != side.things[label].bytes
    }

    fn attributes_changed(&self, side: &'a Snap, label: &str) -> bool {
        let (was, is) = (&self.base.things[label], &side.things[label]);
        (was.mode, &was.notes, was.mtime) != (is.mode, &is.notes, is.mtime)
    }

    /// Whether a copy of theirs may be made without a conflict: what the bytes were that both have written around is not known.
    fn may_copy(&self, label: &str) -> bool {
        let [Some(was), Some(theirs)] = [self.base, self.theirs].map(|snap| snap.things.get(label)) else { return false };
        self.ours.things.contains_key(label)
            && self.bytes_changed(self.ours, label)
            && (&was.bytes, was.mtime) != (&theirs.bytes, theirs.mtime)
    }

    /// Whether both sides have done something to a file or its names.
    pub fn both_touch(&self, label: &str) -> bool {
        [self.ours, self.theirs].iter().all(|side| {
            let is_same = side.things.get(label) == self.base.things.get(label);
            !is_same || !side.names_of(label).eq(self.base.names_of(label))
        })
    }

    /// Whether what a side has done to a file keeps it, though the other has removed it.
    fn keeps(&self, side: &'a Snap, label: &str, attributes_keep: bool) -> bool {
        self.bytes_changed(side, label) || attributes_keep && self.attributes_changed(side, label)
    }

    /// Names, three ways.
    pub fn merge(&self, policy: Policy) -> Merged {
        let mut merged = Merged {
            at: BTreeMap::new(),
            beside: Vec::new(),
            free: BTreeSet::new(),
            forced: BTreeMap::new(),
            renamed: BTreeSet::new(),
            is_loose: false,
        };
        let keys: BTreeSet<&Key> = [self.base, self.ours, self.theirs].iter().flat_map(|snap| snap.names.keys()).collect();
        for key in keys {
            let [was, ours, theirs] = [self.base, self.ours, self.theirs].map(|snap| snap.names.get(key));
            let stands = if ours == was || ours.is_none() && theirs != was { theirs } else { ours };
            if let Some(label) = stands {
                merged.at.insert(key.clone(), label.clone());
            }
            if let (Some(ours), Some(theirs)) = (ours, theirs)
                && Some(ours) != was
                && Some(theirs) != was
                && ours != theirs
            {
                self.put_beside(&mut merged, key, theirs, true);
            }
        }
        // What was removed here from a directory that they have moved, and that is not found.
        for (key, label) in &self.base.names {
            if !self.ours.names.contains_key(key) && self.theirs.names.get(key) == Some(label) && self.have_moved(&key.0) {
                merged.at.entry(key.clone()).or_insert_with(|| {
                    merged.free.insert(key.clone());
                    label.clone()
                });
            }
        }
        for (label, was) in &self.base.things {
            if !was.is_directory {
                self.merge_file(&mut merged, label, policy);
            }
        }
        if !policy.is_found {
            self.split_moved(&mut merged);
        }
        self.merge_directories(&mut merged);
        merged
    }

    /// What they have moved is as they have left it, and what was changed of it here is made again at our names.
    fn split_moved(&self, merged: &mut Merged) {
        for label in self.base.things.keys() {
            let has_moved = self.base.names_of(label).any(|key| self.theirs.names.get(key) != Some(label));
            if !has_moved || !self.theirs.things.contains_key(label) || !self.ours.things.contains_key(label) {
                continue;
            }
            for key in self.theirs.names_of(label) {
                if merged.at.entry(key.clone()).or_insert_with(|| label.clone()) == label {
                    merged.forced.insert(key.clone(), false);
                }
            }
            let is_changed = self.bytes_changed(self.ours, label);
            for key in self.ours.names_of(label).filter(|key| self.theirs.names.get(*key) != Some(label)) {
                if is_changed && let Some(theirs) = merged.at.insert(key.clone(), label.clone()).filter(|at| at != label) {
                    self.put_beside(merged, key, &theirs, true);
                }
                if merged.at.get(key) == Some(label) {
                    merged.forced.insert(key.clone(), true);
                }
            }
        }
    }

    /// Whether a directory, or one above it, stands elsewhere with them.
    fn have_moved(&self, dir: &str) -> bool {
        let mut dir = dir.to_owned();
        while dir != TOP {
            let Some(key) = self.base.names_of(&dir).next() else { return false };
            if self.theirs.names.get(key) != Some(&dir) {
                return true;
            }
            dir = key.0.clone();
        }
        false
    }

    /// Whether the session has changed a name in a directory, or a file of one, that they have moved: one that is not found is
    /// made again.
    pub fn is_in_moved(&self) -> bool {
        let names = self.ours.names.iter().filter(|(key, label)| self.base.names.get(*key) != Some(*label));
        let files = self.our_edits.keys().filter_map(|label| self.base.names_of(label).next());
        names.map(|(key, _)| key).chain(files).any(|(dir, _)| self.have_moved(dir))
    }

    /// What they have at a name that is ours.
    fn put_beside(&self, merged: &mut Merged, key: &Key, label: &str, is_needed: bool) {
        let thing = self.theirs.things[label].clone();
        if thing.is_directory {
            let is_empty = !self.theirs.names.keys().any(|(dir, _)| dir == label);
            merged.is_loose |= !is_empty || self.base.things.contains_key(label);
            // An empty one may be the same as ours.
            merged.beside.push((key.clone(), thing, is_needed && !is_empty));
        } else if !self.base.things.contains_key(label) || !merged.at.values().any(|at| at == label) {
            merged.beside.push((key.clone(), thing, is_needed));
        } else {
            // One of the files that were there before: it has a name of its own, or it has moved on both sides.
            merged.beside.push((key.clone(), thing, false));
        }
    }

    /// A file that was there before.
    fn merge_file(&self, merged: &mut Merged, label: &str, policy: Policy) {
        let (here, there) = (self.ours.things.contains_key(label), self.theirs.things.contains_key(label));
        match (here, there) {
            (true, true) => {
                // Moved by both: at our name, or where they have moved it.
                let gone = |side: &Snap| self.base.names_of(label).any(|key| side.names.get(key).is_none_or(|to| to != label));
                if gone(self.ours) && gone(self.theirs) {
                    let made = |one: &'a Snap, other: &Snap| {
                        let keys = one.names_of(label).filter(|key| other.names.get(*key).is_none_or(|to| to != label));
                        keys.filter(|key| self.base.names.get(*key).is_none_or(|to| to != label)).cloned().collect::<Vec<Key>>()
                    };
                    let (here, there) = (made(self.ours, self.theirs), made(self.theirs, self.ours));
                    merged.free.extend(if policy.ours_stay || there.is_empty() { there } else { here });
                }
            }
            (true, false) if self.keeps(self.ours, label, policy.ours_stay) => {
                for key in self.ours.names_of(label) {
                    if let Some(theirs) = merged.at.insert(key.clone(), label.to_owned()).filter(|at| at != label) {
                        self.put_beside(merged, key, &theirs, true);
                    }
                }
            }
            // Renamed here, and no more: with the file its names have gone.
            (true, false) if !policy.ours_stay => {
                let new = self.ours.names_of(label).filter(|key| self.base.names.get(*key).is_none_or(|to| to != label));
                merged.free.extend(new.cloned());
            }
            (false, true) => {
                let is_needed = self.bytes_changed(self.theirs, label);
                if self.keeps(self.theirs, label, policy.theirs_stay) && !merged.at.values().any(|at| at == label) {
                    let key = self.theirs.names_of(label).next().unwrap();
                    merged.beside.push((key.clone(), self.theirs.things[label].clone(), is_needed));
                }
            }
            _ => {}
        }
    }

    /// Directories in which something stays, though one side has removed them.
    fn merge_directories(&self, merged: &mut Merged) {
        loop {
            let here: BTreeSet<String> = merged.at.values().cloned().chain([TOP.to_owned()]).collect();
            let beside = merged.beside.iter().filter(|(.., is_needed)| *is_needed).map(|((dir, _), ..)| dir);
            let missing = merged.at.keys().map(|(dir, _)| dir).chain(beside).find(|dir| !here.contains(*dir));
            let Some(dir) = missing.cloned() else { break };
            let (ours, theirs) = (self.ours.names_of(&dir).next(), self.theirs.names_of(&dir).next());
            let Some(key) = ours.or(theirs).cloned() else { return merged.is_loose = true };
            if ours.is_none() {
                merged.renamed.insert(dir.clone());
            }
            if merged.at.insert(key, dir).is_some() {
                return merged.is_loose = true;
            }
        }
        let mut seen = BTreeSet::new();
        for label in merged.at.values() {
            let is_directory = [self.base, self.ours, self.theirs]
                .iter()
                .any(|snap| snap.things.get(label).is_some_and(|thing| thing.is_directory));
            // Moved by both.
            merged.is_loose |= is_directory && !seen.insert(label);
        }
    }

    /// What is to be at a name in the end where one side's file is.
    fn wanted_of(&self, label: &str, is_ours: bool, is_needed: bool) -> Wanted {
        let like = if is_ours { self.ours } else { self.theirs }.things[label].clone();
        let (bytes, modes) = (Bytes::Exact(like.bytes.clone()), vec![like.mode]);
        let when = when(self.base.things.get(label), &[&like]);
        Wanted { bytes, modes, when, like, is_made_again: is_ours, copy: None, is_needed }
    }

    /// What is to be at a name in the end.
    fn wanted(&self, label: &str, is_needed: bool) -> Wanted {
        let [was, ours, theirs] = [self.base, self.ours, self.theirs].map(|snap| snap.things.get(label));
        let (Some(was), Some(ours), Some(theirs)) = (was, ours, theirs) else {
            // Of one side alone, or of one side when the other has removed it.
            let like = ours.or(theirs).unwrap().clone();
            let (bytes, modes) = (Bytes::Exact(like.bytes.clone()), vec![like.mode]);
            let is_made_again = was.is_some() && theirs.is_none();
            return Wanted { bytes, modes, when: when(was, &[&like]), like, is_made_again, copy: None, is_needed };
        };
        let edits = |of: &HashMap<String, Vec<Edit>>| of.get(label).cloned().unwrap_or_default();
        let both = Both {
            base: was.bytes.clone(),
            ours: ours.bytes.clone(),
            theirs: theirs.bytes.clone(),
            our_edits: edits(self.our_edits),
            their_edits: edits(self.their_edits),
        };
        let mut like = if ours.mode == was.mode { theirs.clone() } else { ours.clone() };
        for number in 0..like.notes.len() {
            let changed = if ours.notes[number] == was.notes[number] { theirs } else { ours };
            like.notes[number] = changed.notes[number].clone();
        }
        let (when, modes) = (when(Some(was), &[ours, theirs]), vec![like.mode]);
        let copy = Some(theirs.clone());
        Wanted { bytes: both.merged(), modes, when, like, is_made_again: false, copy, is_needed }
    }
}

/// Times follow contents, and whoever sets them.
fn when(was: Option<&Thing>, sides: &[&Thing]) -> When {
    let was = was.map_or(0, |was| was.mtime);
    let changed: Vec<i64> = sides.iter().map(|side| side.mtime).filter(|mtime| *mtime != was).collect();
    match changed[..] {
        [] => When::Exactly(was),
        [time] if time < LATELY => When::Exactly(time),
        _ => When::NotAt(was),
    }
}

impl Merged {
    /// Paths at which something in this directory may be.
    fn paths(&self, (dir, name): &Key, depth: u32) -> Vec<String> {
        if dir == TOP {
            return vec![format!("/{name}")];
        }
        let above = self.at.iter().find(|(_, label)| *label == dir).filter(|_| depth < 20);
        let Some((key, _)) = above else { return Vec::new() };
        let mut all = Vec::new();
        for path in self.paths(key, depth + 1) {
            all.push(format!("{path}/{name}"));
            if self.renamed.contains(dir) {
                all.push(format!("{path}{BESIDE}/{name}"));
            }
        }
        all
    }

    /// What there is in the end that is not as this says; empty: all is.
    pub fn compare(&self, sides: &Sides, there: &BTreeMap<String, Thing>, mode: Conflict) -> Vec<String> {
        let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
        let mut beside: Vec<(Vec<String>, &Thing, bool, bool)> =
            self.beside.iter().map(|(key, thing, is_needed)| (self.paths(key, 0), thing, *is_needed, true)).collect();
        let mut copies = Vec::new();
        for (key, label) in &self.at {
            let is_needed = !self.free.contains(key);
            let wanted = match self.forced.get(key) {
                Some(is_ours) => sides.wanted_of(label, *is_ours, is_needed),
                None => sides.wanted(label, is_needed),
            };
            let mut paths = self.paths(key, 0);
            if self.renamed.contains(label) {
                paths.extend(paths.clone().iter().map(|path| format!("{path}{BESIDE}")));
            }
            let Some(path) = paths.iter().find(|path| there.contains_key(*path)) else {
                if wanted.is_needed {
                    wrong.push(format!("lost: {paths:?}, {:?}", wanted.like));
                }
                continue;
            };
            met.insert(path.clone());
            let found = &there[path];
            wrong.extend(wanted.compare(path, found));
            if let Some(copy) = wanted.copy.filter(|_| matches!(wanted.bytes, Bytes::Either(_))) {
                copies.push((paths.clone(), copy, wanted.bytes.needs_copy(&found.bytes)));
            } else if let Some(theirs) = sides.theirs.things.get(label).filter(|_| sides.may_copy(label)) {
                copies.push((paths.clone(), theirs.clone(), false));
            }
        }
        beside.extend(copies.iter().map(|(paths, copy, is_needed)| (paths.clone(), copy, *is_needed, false)));
        let mut copied: BTreeSet<(u32, Vec<u8>)> = BTreeSet::new();
        for (paths, thing, is_needed, is_file) in beside {
            let is_it = |path: &String| {
                let is_beside = paths.iter().any(|name| path.strip_prefix(name).is_some_and(|rest| rest.starts_with(BESIDE)));
                is_beside && (there[path].kind, &there[path].bytes) == (thing.kind, &thing.bytes) && !met.contains(path)
            };
            let found = there.keys().find(|path| is_it(path)).cloned();
            match found {
                // A file of theirs is not removed for a name; a copy of one is not made.
                Some(path) if mode == Conflict::Ours && !is_file => wrong.push(format!("a copy that nobody wants: {path}")),
                // Two names of one file need one copy.
                None if is_needed && mode == Conflict::Both && !copied.contains(&(thing.kind, thing.bytes.clone())) => {
                    wrong.push(format!("lost: theirs beside {paths:?}, {thing:?}"));
                }
                None => {}
                Some(path) => {
                    copied.insert((thing.kind, thing.bytes.clone()));
                    met.insert(path);
                }
            }
        }
        wrong.extend(
            there.iter().filter(|(path, _)| !met.contains(*path)).map(|(path, thing)| format!("nobody's: {path}: {thing:?}")),
        );
        wrong
    }

    /// Whether both have changed the same.
    pub fn is_conflict(&self, sides: &Sides) -> bool {
        self.is_loose
            || self.beside.iter().any(|(.., is_needed)| *is_needed)
            || self.at.values().any(|label| matches!(sides.wanted(label, true).bytes, Bytes::Either(_)))
    }
}

impl Wanted {
    fn compare(&self, path: &str, found: &Thing) -> Vec<String> {
        let mut wrong = Vec::new();
        if found.kind != self.like.kind {
            return vec![format!("another kind: {path}: {found:?}, not {:?}", self.like)];
        }
        if !self.bytes.are(&found.bytes) {
            wrong.push(format!("contents: {path}: {found:?}, not {:?}", self.like));
        }
        if !self.modes.contains(&found.mode) {
            wrong.push(format!("mode: {path}: {:o}, not {:?}", found.mode, self.modes));
        }
        let are_same =
            found.notes.iter().zip(&self.like.notes).all(|(found, like)| found == like || self.is_made_again && found.is_empty());
        if !are_same {
            wrong.push(format!("attributes: {path}: {found:?}, not {:?}", self.like));
        }
        let is_file = self.like.kind == 8;
        let is_then = match self.when {
            When::Exactly(time) => found.mtime == time,
            When::NotAt(time) => found.mtime != time,
        };
        if is_file && self.like.mtime != 0 && !is_then && self.bytes.are(&found.bytes) {
            wrong.push(format!("mtime: {path}: {}, not {:?}", found.mtime, self.when));
        }
        wrong
    }
}

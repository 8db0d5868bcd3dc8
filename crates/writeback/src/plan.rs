//! What a round is to do: the notes, and what the tree is like at one moment.

use crate::below::id_of_node;
use crate::names::Facts;
use crate::{Failure, Id, Result};
use base::{Cx, Error, Kind, Node};
use cache::Cache;
use cache::mutant::{self, Mutant};
use cache::touch::{CHUNK, Label, Range, Set};
use engine::lower::{Stamp, bits};
use pm::{Errno, UserSlice};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// How long the gate is closed at first, and at most, nanoseconds.
const CLOSED: (u64, u64) = (200_000_000, 5_000_000_000);
/// Attempts to find the gate free.
const ATTEMPTS: u32 = 200;
/// Most levels of directories.
const DEPTH_MAX: usize = 100_000;

/// A name of a directory.
pub type Spot = (u64, Vec<u8>);

/// Where a name leads.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub node: Node,
    pub kind: Kind,
}

/// What is noted of a node.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    /// Bytes that were written, in order.
    pub ranges: Vec<Range>,
    /// Bytes some of which were written.
    pub chunks: Vec<(u64, u64)>,
    /// All from here on were.
    pub from: Option<u64>,
    /// Attributes that were set.
    pub set: Set,
    /// Extended attributes that were set or removed.
    pub extended: BTreeSet<Vec<u8>>,
    /// All attributes count as set: the node is new below.
    pub is_new: bool,
    /// One of its names in the tree.
    pub spot: Option<Spot>,
}

impl Noted {
    /// Runs of bytes to be written, in order; an end of [`Range::END`] is that of the file.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        let ranges = self.ranges.iter().map(|range| (range.from, range.to));
        let mut runs: Vec<_> = ranges.chain(self.chunks.iter().copied()).collect();
        runs.extend(self.from.map(|from| (from, Range::END)));
        runs.sort_unstable();
        runs
    }

    /// Whether bytes, or their number, were changed.
    pub fn has_contents(&self) -> bool {
        self.set.has(Set::SIZE) || self.from.is_some() || !(self.ranges.is_empty() && self.chunks.is_empty())
    }

    /// Whether bytes were written by `O_APPEND`.
    pub fn has_appended(&self) -> bool {
        self.ranges.iter().any(|range| range.is_appended)
    }

    /// From where on the file was extended by `O_APPEND` alone.
    pub fn appended_from(&self) -> Option<u64> {
        let mut appended = self.ranges.iter().filter(|range| range.is_appended).map(|range| range.from);
        let first = appended.next()?;
        let first = appended.fold(first, u64::min);
        let is_other = |range: &&Range| !range.is_appended && range.to > first;
        let is_plain = !self.is_new && self.from.is_none() && !self.set.has(Set::SIZE);
        let is_alone = !self.ranges.iter().any(|range| is_other(&range)) && self.chunks.iter().all(|(_, to)| *to <= first);
        (is_plain && is_alone).then_some(first)
    }
}

/// Bytes that a round appends to a file.
#[derive(Clone, Copy, Debug)]
pub struct Appends {
    /// Where they begin here.
    pub from: u64,
    /// Where they begin below.
    pub at: u64,
    /// How many are there for certain.
    pub done: u64,
}

impl Appends {
    /// All of a file of this size, which is below as it is here.
    pub fn in_place(size: u64) -> Appends {
        Appends { from: 0, at: 0, done: size }
    }

    /// Those of them from an offset here on: a round that was cut off at its end may have removed the notes of the others. `None`:
    /// they begin behind it.
    pub fn since(self, from: u64) -> Option<Appends> {
        let skipped = from.checked_sub(self.from)?;
        Some(Appends { from, at: self.at + skipped, done: self.done.saturating_sub(skipped) })
    }
}

/// A file that a round has begun to write.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// What it appends below.
    pub appends: Option<Appends>,
    /// What it is like when the round is through with it, or was when the round failed.
    pub left: Looked,
    /// It was a round before this one.
    pub is_before: bool,
    /// This one has written to it.
    pub is_now: bool,
}

/// What a file was like when a note of it was made: which, its size as notes keep it, and its time of change.
pub type Looked = (u32, i64);

/// All that a round has to do.
#[derive(Debug, Default)]
pub struct Plan {
    /// Rounds whose notes these are.
    pub rounds: Vec<u64>,
    /// Names that were touched, and where they lead now.
    pub names: BTreeMap<Spot, Option<Target>>,
    /// Directories of the tree that matter: their parents and names.
    pub dirs: HashMap<u64, Spot>,
    /// Directories whose names were touched and that are in the tree.
    pub touched: BTreeSet<u64>,
    /// Nodes whose bytes or attributes were touched and that are here.
    pub nodes: BTreeMap<u64, Noted>,
    /// Which file below a node is.
    pub ids: HashMap<u64, Id>,
    /// All files that are known to be ours.
    pub ours: HashSet<Id>,
    /// Where files were when they were touched.
    pub was: HashMap<Id, Vec<Spot>>,
    /// Where nodes are to stand.
    pub targets: HashMap<u64, Vec<Spot>>,
    /// Files that are to stand somewhere that was touched.
    pub wanted: HashSet<Id>,
    /// Nodes that names below led to before they were touched, and those that were not touched lead to.
    pub led: HashMap<Spot, u64>,
    /// Bytes of files when the round began: those behind are noted for the next one, which appends them.
    pub sizes: HashMap<u64, u64>,
    /// What is known of the files of nodes.
    pub facts: HashMap<u64, Facts>,
    /// Names that had to be looked for.
    pub names_found: HashMap<u64, Spot>,
    /// Nodes that a round has made below that was cut off.
    pub unsure: HashSet<u64>,
    /// Nodes that a round has made below, this one before it was cut off, or the one before it, as which files, and when.
    pub noted_made: HashMap<u64, (Id, i64)>,
    /// Nodes that this round has begun to write, or one before that was cut off or failed.
    pub begun: HashMap<u64, Begun>,
    /// What files below were like when they were touched, or written by the round before.
    pub looked: HashMap<Id, Vec<Looked>>,
    /// Nodes that were written whole in this round.
    pub made: HashSet<u64>,
    /// Those of them that are mapped and open no more.
    pub unmapped: Vec<u64>,
    /// Moves of directories, ever.
    pub moved: u64,
    /// How much was noted.
    pub noted: u64,
    /// The root of the tree.
    pub root: u64,
}

/// The node with this number.
pub fn node(id: u64) -> Node {
    Node { id, hint: u32::MAX }
}

/// What a failure of the image is about.
pub const IMAGE: &str = "the cache image";

pub fn image(error: Error) -> Failure {
    Failure::new(IMAGE, error.errno())
}

/// Names of a directory of the image.
pub fn names_in(cache: &Cache, cx: &Cx, dir: Node) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut each = |entry: base::DirEntry<'_>| {
        if !matches!(entry.name, b"." | b"..") {
            names.push(entry.name.to_vec());
        }
        true
    };
    cache.fs().readdir(cx, dir, 0, &mut each).map_err(image)?;
    Ok(names)
}

/// Nothing, where that is what is not there.
pub fn if_there<T>(found: base::Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => Ok(None),
        Err(error) => Err(image(error)),
    }
}

impl Plan {
    /// Takes what has been noted. From now on notes are made for the next round.
    pub fn take(cache: &Cache, cx: &Cx) -> Result<Plan> {
        Plan::closed(cache, cx, |now| Plan::of_round(cache, cx, now))
    }

    /// All that has been noted before a number, for a round. The gate is closed.
    pub fn of_round(cache: &Cache, cx: &Cx, now: u64) -> Result<Plan> {
        let plan = Plan::read(cache, cx, (0, now), true)?;
        if !plan.is_empty() {
            // The round changes the times of the directory at the top, which nobody is to take for others' doing.
            cache.fs().mark(cx, cache.tree(), bits::DIRTY, 0).map_err(image)?;
        }
        plan.mark_dirty(cache, cx)?;
        if let Some(last) = plan.rounds.last() {
            let log = cache.log_of(cx, *last).map_err(image)?;
            cache.note(cx, log, Label::new(b'p', *last).whole(), Kind::Fifo, None).map_err(image)?;
        }
        Ok(plan)
    }

    /// A round that was cut off at its end has called nodes clean, and left their notes. Whoever compares such a node with its
    /// original, while this round writes that again, is not to take the half for the whole.
    fn mark_dirty(&self, cache: &Cache, cx: &Cx) -> Result<()> {
        for id in self.nodes.keys().chain(&self.touched) {
            let known = if_there(cache.known_if(node(*id)))?.flatten();
            let is_directory = self.touched.contains(id);
            if known.is_some_and(|known| !known.is_dirty() && (known.is_listed() || !is_directory)) {
                if_there(cache.fs().mark(cx, node(*id), bits::DIRTY, 0))?;
            }
        }
        Ok(())
    }

    /// Reads something at a moment without changes; what is noted from now on has the number that it is told.
    pub fn closed<T>(cache: &Cache, cx: &Cx, mut read: impl FnMut(u64) -> Result<T>) -> Result<T> {
        let fs = cache.fs();
        // A writer that has died in the middle of a record leaves directories of notes that are neither empty nor not.
        fs.adopt_those_gone(cx);
        if !names_in(cache, cx, cache.mapped())?.is_empty() {
            // Who died with a file mapped has it open no more.
            fs.adopt_dead_processes(cx);
        }
        let (mut time, longest) = CLOSED;
        for _ in 0..ATTEMPTS {
            let now = fs.round().map_err(image)?;
            cache.log_of(cx, now + 1).map_err(image)?;
            let Some(closed) = fs.close_changes(time).map_err(image)? else {
                std::thread::sleep(std::time::Duration::from_millis(5));
                continue;
            };
            fs.begin_round(now + 1).map_err(image)?;
            if mutant::is(Mutant::OpenedBeforeCopy) {
                closed.open();
                return read(now + 1);
            }
            let plan = read(now + 1);
            if closed.open() {
                return plan;
            }
            // It took too long: what has been read may be a mixture.
            time = (time * 4).min(longest);
        }
        Err(Failure::new("a program is stopped in the middle of a change", Errno::EBUSY))
    }

    /// Of the notes behind the first number and before the second.
    pub fn read(cache: &Cache, cx: &Cx, (behind, now): (u64, u64), with_mapped: bool) -> Result<Plan> {
        let mut plan = Plan::read_notes(cache, cx, (behind, now))?;
        if with_mapped {
            plan.read_mapped(cache, cx)?;
        }
        plan.read_tree(cache, cx)?;
        Ok(plan)
    }

    /// The same, with files that are mapped to be stored into if they are not longer than so much together. How long they
    /// are.
    pub fn since(cache: &Cache, cx: &Cx, numbers: (u64, u64), mapped_max: u64) -> Result<(Plan, u64)> {
        let mut bytes = 0;
        for name in names_in(cache, cx, cache.mapped())? {
            if let Some(id) = Label::parse(&name)
                && let Some(attr) = if_there(cache.fs().attr(cx, node(id)))?
            {
                bytes += attr.size;
            }
        }
        Ok((Plan::read(cache, cx, numbers, bytes <= mapped_max)?, bytes))
    }

    /// The same without the tree: what has been noted, and what names led to.
    pub fn read_notes(cache: &Cache, cx: &Cx, (behind, now): (u64, u64)) -> Result<Plan> {
        let mut plan = Plan { root: cache.tree().id, moved: cache.fs().directory_moves().map_err(image)?.0, ..Plan::default() };
        let mut rounds: Vec<u64> = names_in(cache, cx, cache.touched())?
            .iter()
            .filter_map(|name| Label::parse(name))
            .filter(|round| *round < now && (behind == 0 || *round > behind))
            .collect();
        rounds.sort_unstable();
        let mut unsure = Vec::new();
        for (index, round) in rounds.iter().enumerate() {
            plan.read_round(cache, cx, (*round, index > 0), &mut unsure)?;
        }
        // What a name led to may have been noted before the round made that anew.
        plan.ids.extend(plan.noted_made.iter().map(|(node, (file, _))| (*node, *file)));
        for (spot, made, was_touched) in unsure {
            let Some(file) = plan.ids.get(&made).copied() else { continue };
            plan.was.entry(file).or_default().push(spot.clone());
            if !was_touched {
                plan.led.entry(spot).or_insert(file.1);
            }
        }
        plan.rounds = rounds;
        Ok(plan)
    }

    /// Not what a name of a touched directory led to when it was touched again.
    fn led_to(&mut self, spot: Spot, file: Option<Id>) {
        if let Some(file) = file.filter(|_| !self.names.contains_key(&spot)) {
            self.led.entry(spot).or_insert(file.1);
        }
    }

    /// `is_after`: an older one is there too.
    fn read_round(
        &mut self,
        cache: &Cache,
        cx: &Cx,
        (round, is_after): (u64, bool),
        unsure: &mut Vec<(Spot, u64, bool)>,
    ) -> Result<()> {
        let log = cache.log_of(cx, round).map_err(image)?;
        for label in names_in(cache, cx, log)? {
            let (Some(kind), Some(id)) = (label.first().copied(), label.get(1..).and_then(Label::parse)) else { continue };
            let note = cache.fs().lookup(cx, log, &label).map_err(image)?;
            self.noted += 1;
            if b"abcdek".contains(&kind) && mutant::is(Mutant::NoteLeftOut) || kind == b'n' && mutant::is(Mutant::NameLeftOut) {
                continue;
            }
            match kind {
                b'n' => {
                    self.learn(cache, note)?;
                    self.touched.insert(id);
                    for name in names_in(cache, cx, note)? {
                        let was = cache.fs().lookup(cx, note, &name).map_err(image)?;
                        let file = self.learn(cache, was)?;
                        if file.is_none() {
                            // Made here; perhaps it was below before the round was over that was under way then.
                            let node = cache.known_if(was).map_err(image)?.map_or(0, |known| known.stamp.size);
                            unsure.push(((id, name.clone()), node, self.names.contains_key(&(id, name.clone()))));
                        }
                        self.led_to((id, name.clone()), file);
                        if let Some(file) = file {
                            self.was.entry(file).or_default().push((id, name.clone()));
                        }
                        self.names.insert((id, name), None);
                        self.noted += 1;
                    }
                }
                b'm' => {
                    let file = self.learn(cache, note)?;
                    let when = cache.known_if(note).map_err(image)?.map_or(0, |known| known.seen);
                    self.noted_made.extend(file.map(|file| (id, (file, when))));
                    // The notes that it was made by go when the round is over.
                    if is_after {
                        self.unsure.insert(id);
                    }
                }
                b'w' => {
                    let stamp = cache.known_if(note).map_err(image)?.map_or(Stamp::default(), |known| known.stamp);
                    let done = stamp.ctime.max(0) as u64;
                    // Older versions did not note where that is here.
                    let from = stamp.device.wrapping_sub(1);
                    let appends = stamp.number.checked_sub(1).map(|at| Appends { from, at, done });
                    let left = (stamp.blocks, stamp.mtime);
                    self.facts.entry(id).or_default().mtimes.push(stamp.mtime);
                    self.begun.insert(id, Begun { appends, left, is_before: true, is_now: false });
                }
                b'v' | b'g' => drop(self.learn(cache, note)?),
                b'p' | b't' => {}
                _ => read_noted(cache, cx, (kind, note), self.nodes.entry(id).or_default())?,
            }
        }
        Ok(())
    }

    /// Which file below something was, as an empty node of the log says.
    fn learn(&mut self, cache: &Cache, note: Node) -> Result<Option<Id>> {
        let Some(known) = cache.known_if(note).map_err(image)? else { return Ok(None) };
        let id = known.stamp.size;
        let file = id_of_node(cache, id, &known.stamp);
        if known.stamp.number == 0 {
            return Ok(None);
        }
        self.know(id, &known.stamp);
        self.ours.insert(file);
        self.looked.entry(file).or_default().push((known.stamp.blocks, known.stamp.mtime));
        if id != 0 {
            self.ids.insert(id, file);
        }
        Ok(Some(file))
    }

    fn know(&mut self, node: u64, stamp: &Stamp) {
        let facts = self.facts.entry(node).or_default();
        facts.kind = stamp.number;
        facts.mtimes.push(stamp.mtime);
    }

    fn read_mapped(&mut self, cache: &Cache, cx: &Cx) -> Result<()> {
        for name in names_in(cache, cx, cache.mapped())? {
            let Some(id) = Label::parse(&name) else { continue };
            self.nodes.entry(id).or_default().from = Some(0);
            if cache.fs().is_open(cx, node(id)) != Ok(true) {
                self.unmapped.push(id);
            }
        }
        Ok(())
    }

    /// What the tree is like at this moment, as far as it matters.
    fn read_tree(&mut self, cache: &Cache, cx: &Cx) -> Result<()> {
        let dirs = std::mem::take(&mut self.touched);
        for id in dirs {
            if self.learn_dir(cache, cx, id)? {
                self.touched.insert(id);
            }
        }
        let mut names = self.names.clone();
        for ((dir, name), target) in &mut names {
            if !self.touched.contains(dir) {
                continue;
            }
            let Some((child, kind)) = if_there(cache.fs().lookup_kind(cx, node(*dir), name))? else { continue };
            *target = Some(Target { node: child, kind });
            self.targets.entry(child.id).or_default().push((*dir, name.clone()));
            self.learn_node(cache, child)?;
            if kind == Kind::Regular
                && let Some(attr) = if_there(cache.fs().attr(cx, child))?
            {
                self.sizes.insert(child.id, attr.size);
            }
            if kind == Kind::Directory {
                self.learn_dir(cache, cx, child.id)?;
                if self.noted_made.contains_key(&child.id) {
                    // Made by a round that was cut off: it has not its mode yet.
                    self.nodes.entry(child.id).or_default().is_new = true;
                }
            }
        }
        self.names = names;
        let mut nodes = std::mem::take(&mut self.nodes);
        let mut gone = Vec::new();
        for (id, noted) in &mut nodes {
            let Some(attr) = if_there(cache.fs().attr(cx, node(*id)))? else {
                gone.push(*id);
                continue;
            };
            self.sizes.insert(*id, attr.size);
            self.learn_node(cache, node(*id))?;
            let mut text = [0; 255];
            if *id == self.root {
                continue;
            }
            if let Some(Some((parent, len))) = if_there(cache.fs().named(node(*id), &mut text))?
                && self.learn_dir(cache, cx, parent.id)?
            {
                let spot = (parent.id, text[..len].to_vec());
                let file = self.ids.get(id).copied();
                self.led_to(spot.clone(), file);
                noted.spot = Some(spot);
            }
        }
        for id in gone {
            nodes.remove(&id);
        }
        self.nodes = nodes;
        self.wanted = self.targets.keys().filter_map(|node| self.ids.get(node)).copied().collect();
        Ok(())
    }

    /// Bytes of a file that a round writes: those that it had when the round began, or has now, whichever is less.
    pub fn size_of(&self, id: u64, now: u64) -> u64 {
        self.sizes.get(&id).map_or(now, |then| now.min(*then))
    }

    /// Which file below a node is, from the node itself.
    fn learn_node(&mut self, cache: &Cache, at: Node) -> Result<()> {
        if let Some(known) = if_there(cache.known_if(at))?.flatten() {
            let file = id_of_node(cache, at.id, &known.stamp);
            self.know(at.id, &known.stamp);
            self.ours.insert(file);
            // A round notes what it has made before the node says so. A node that was seen later may be another file's since.
            if self.noted_made.get(&at.id).is_none_or(|(_, when)| known.seen > *when) {
                self.ids.insert(at.id, file);
            }
        }
        Ok(())
    }

    /// The way from a directory up to the root of the tree; whether there is one.
    fn learn_dir(&mut self, cache: &Cache, cx: &Cx, id: u64) -> Result<bool> {
        let mut found = Vec::new();
        let mut at = id;
        while at != self.root && !self.dirs.contains_key(&at) {
            let mut text = [0; 255];
            let is_directory = if_there(cache.fs().attr(cx, node(at)))?.is_some_and(|attr| attr.kind == Kind::Directory);
            let named = if is_directory { if_there(cache.fs().named(node(at), &mut text))?.flatten() } else { None };
            let Some((parent, len)) = named else { return Ok(false) };
            found.push((at, (parent.id, text[..len].to_vec())));
            at = parent.id;
            if found.len() > DEPTH_MAX {
                return Err(Failure::new(IMAGE, Errno::ELOOP));
            }
        }
        for (id, spot) in found {
            self.learn_node(cache, node(id))?;
            let file = self.ids.get(&id).copied();
            self.led_to(spot.clone(), file);
            self.dirs.insert(id, spot);
        }
        self.learn_node(cache, node(self.root))?;
        Ok(true)
    }

    /// Levels above each directory.
    pub fn depths(&self) -> HashMap<u64, usize> {
        let mut depths = HashMap::from([(self.root, 0)]);
        for id in self.dirs.keys() {
            let (mut way, mut at) = (Vec::new(), *id);
            while !depths.contains_key(&at) {
                way.push(at);
                let Some((parent, _)) = self.dirs.get(&at) else { break };
                at = *parent;
            }
            let mut depth = depths.get(&at).copied().unwrap_or(0);
            for id in way.into_iter().rev() {
                depth += 1;
                depths.insert(id, depth);
            }
        }
        depths
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.nodes.is_empty() && self.touched.is_empty()
    }
}

/// Adds what one kind of notes says of a node.
pub fn read_noted(cache: &Cache, cx: &Cx, (kind, note): (u8, Node), noted: &mut Noted) -> Result<()> {
    let chunk = |chunk: u64| (chunk * CHUNK, (chunk + 1) * CHUNK);
    match kind {
        b'a' => {
            let mut bytes = [0; Set::COUNT];
            let came = cache.fs().read(cx, note, 0, &[UserSlice::from_mut(&mut bytes)]).map_err(image)?;
            noted.set = noted.set.with(Set::parse(&bytes[..came]));
        }
        b'b' => read_ranges(cache, cx, note, &mut noted.ranges)?,
        b'e' => noted.extended.extend(names_in(cache, cx, note)?),
        b'k' => read_map(cache, cx, note, |at| noted.chunks.push(chunk(at)))?,
        b'c' => read_map(cache, cx, note, |at| noted.from = Some(noted.from.unwrap_or(u64::MAX).min(at * CHUNK)))?,
        // Of an older version: any attribute may have been set.
        b'd' => {
            noted.set = Set::ALL;
            noted.is_new = true;
            read_map(cache, cx, note, |at| noted.chunks.push(chunk(at)))?;
        }
        _ => {}
    }
    Ok(())
}

fn read_ranges(cache: &Cache, cx: &Cx, note: Node, ranges: &mut Vec<Range>) -> Result<()> {
    let (mut at, mut bytes) = (0, vec![0u8; 64 << 10]);
    loop {
        let came = cache.fs().read(cx, note, at, &[UserSlice::from_mut(&mut bytes)]).map_err(image)?;
        if came < Range::LEN {
            ranges.sort_unstable_by_key(|range| (range.from, range.to));
            ranges.dedup();
            return Ok(());
        }
        let records = bytes[..came].chunks_exact(Range::LEN).map(Range::parse);
        for record in records {
            ranges.push(record.ok_or_else(|| Failure::new("the log of the cache image", Errno::EUCLEAN))?);
        }
        at += (came - came % Range::LEN) as u64;
    }
}

/// Calls `each` with every chunk that a map of the log has.
fn read_map(cache: &Cache, cx: &Cx, map: Node, mut each: impl FnMut(u64)) -> Result<()> {
    let mut at = 0;
    let mut bytes = vec![0u8; 64 << 10];
    loop {
        at = match cache.fs().seek(cx, map, at, true) {
            Ok(at) => at,
            Err(Error::Posix(Errno::ENXIO)) => return Ok(()),
            Err(error) => return Err(image(error)),
        };
        let came = cache.fs().read(cx, map, at, &[UserSlice::from_mut(&mut bytes)]).map_err(image)?;
        if came == 0 {
            return Ok(());
        }
        bytes[..came].iter().enumerate().filter(|(_, byte)| **byte != 0).for_each(|(index, _)| each(at + index as u64));
        at += came as u64;
    }
}

//! Cuts: what was touched since the one before, as it is at one moment.
//!
//! What a reader of all groups behind the tail needs, they must say, whatever a round has done by then:
//! - A node that is not below and gets a name is said whole, once after each tail that may come.
//! - A block that was touched is said at least once after each tail that may come: a round writes it as it is *then*.
//! - What a file has become longer by is said, from where it ended at the cut before.

use super::record::{Body, NodeFact, Xattrs};
use crate::attributes::extended_here;
use crate::below::join;
use crate::contents::seek_within;
use crate::plan::{Noted, Plan, Spot, if_there, image, node};
use crate::{Id, Result};
use base::{Cx, Kind};
use cache::Cache;
use cache::touch::CHUNK;
use engine::lower::bits;
use pm::UserSlice;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Bytes of a block that is said or not.
const BLOCK: usize = 4096;
/// Longest text of a symlink.
const TARGET_MAX: usize = 4096;
/// Chunks that are kept to be compared with.
const COPIES: usize = 512;
/// Most levels of directories.
const DEPTH_MAX: usize = 4096;

/// A chunk as it was said last: which blocks of it, and their bytes.
#[derive(Debug)]
struct Copy {
    said: u16,
    bytes: Vec<u8>,
}

/// What has been said.
#[derive(Debug, Default)]
pub struct Cutter {
    /// All that was noted up to this number.
    pub covered: u64,
    copies: BTreeMap<(u64, u64), Copy>,
    /// Nodes that were said whole since the last cut for a round.
    whole: HashSet<u64>,
    /// Where files ended: since that cut, and before.
    sizes: [HashMap<u64, u64>; 2],
    /// Of the cut that is not durable yet.
    new: Vec<(u64, u64, bool)>,
}

/// Of a node, what a cut has to know.
struct Seen<'a> {
    id: u64,
    attr: base::Attr,
    lower: Option<Id>,
    noted: Option<&'a Noted>,
    is_changed: bool,
    is_named: bool,
}

impl Cutter {
    /// The cut is durable. `now`: what was noted up to here was in it. `is_for_round`: the tail may come here.
    pub fn is_durable(&mut self, now: u64, is_for_round: bool) {
        self.covered = now;
        for (id, size, is_whole) in std::mem::take(&mut self.new) {
            self.sizes[0].insert(id, size);
            if is_whole {
                self.whole.insert(id);
            }
        }
        if is_for_round {
            self.copies.clear();
            self.whole.clear();
            let sizes = std::mem::take(&mut self.sizes[0]);
            self.sizes[1].extend(sizes);
        }
    }

    /// The cut is not, or nobody knows.
    pub fn is_lost(&mut self) {
        self.new.clear();
        self.copies.clear();
    }

    /// The round is over: what was known of files before its cut is known of them below.
    pub fn is_below(&mut self) {
        self.sizes[1].clear();
    }

    /// Says what a plan has found. The gate is closed.
    pub fn say(&mut self, cache: &Cache, cx: &Cx, plan: &Plan, body: &mut Body) -> Result<()> {
        self.new.clear();
        if plan.is_empty() {
            return Ok(());
        }
        let mut changed: BTreeSet<u64> = plan.nodes.keys().chain(&plan.touched).copied().collect();
        changed.insert(plan.root);
        let mut all = changed.clone();
        all.extend(plan.targets.keys().chain(plan.dirs.keys()).copied());
        for id in &all {
            let Some(attr) = if_there(cache.fs().attr(cx, node(*id)))? else { continue };
            let lower = if_there(cache.known_if(node(*id)))?.flatten();
            let lower = lower.map(|known| (known.stamp.device, known.stamp.number)).filter(|(_, number)| *number != 0);
            let is_named = plan.targets.contains_key(id);
            let is_changed = changed.contains(id) || is_named && lower.is_none();
            let seen = Seen { id: *id, attr, lower, noted: plan.nodes.get(id), is_changed, is_named };
            self.say_node(cache, cx, plan, &seen, body)?;
        }
        let mut was: HashMap<&Spot, Id> = HashMap::new();
        for (id, spots) in &plan.was {
            was.extend(spots.iter().map(|spot| (spot, *id)));
        }
        for (spot, target) in &plan.names {
            // Of a directory that has gone nobody asks.
            if plan.touched.contains(&spot.0) {
                body.name(spot.0, &spot.1, target.map_or(0, |target| target.node.id), was.get(spot).copied());
            }
        }
        Ok(())
    }

    fn say_node(&mut self, cache: &Cache, cx: &Cx, plan: &Plan, seen: &Seen, body: &mut Body) -> Result<()> {
        let Seen { id, attr, lower, .. } = *seen;
        let is_regular = attr.kind == Kind::Regular;
        let is_whole = is_regular && seen.is_named && lower.is_none() && !self.whole.contains(&id);
        let mut target = Vec::new();
        if attr.kind == Kind::Symlink && seen.is_changed {
            let mut text = [0u8; TARGET_MAX];
            let len = cache.text_here(cx, node(id), UserSlice::from_mut(&mut text)).map_err(image)?;
            target.extend_from_slice(&text[..len]);
        }
        let xattrs = if seen.is_changed && attr.kind != Kind::Symlink { attributes(cache, cx, id, lower)? } else { None };
        body.node(&NodeFact {
            id,
            kind: attr.kind,
            lower,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            atime: attr.atime,
            mtime: attr.mtime,
            size: attr.size,
            target,
            hint: if lower.is_some() { hints(plan, id, lower) } else { Vec::new() },
            xattrs,
            is_whole,
            is_changed: seen.is_changed,
        });
        // Without a name it is seen by nobody who comes after; when it gets one it is said whole.
        if is_regular && seen.is_changed && (attr.nlink > 0 || is_whole) {
            self.say_bytes(cache, cx, seen, is_whole, body)?;
        }
        Ok(())
    }

    fn say_bytes(&mut self, cache: &Cache, cx: &Cx, seen: &Seen, is_whole: bool, body: &mut Body) -> Result<()> {
        let (id, size) = (seen.id, seen.attr.size);
        let known = if_there(cache.known_if(node(id)))?.flatten();
        let end = known.map_or(0, |known| known.end);
        let ended = self.sizes.iter().find_map(|sizes| sizes.get(&id)).copied();
        let ended = ended.or(known.map(|known| known.stamp.size)).unwrap_or(0);
        let mut ranges = seen.noted.map_or_else(Vec::new, Noted::runs);
        if size > ended {
            ranges.push((ended, u64::MAX));
        }
        if is_whole {
            ranges = vec![(0, u64::MAX)];
        }
        // What a reader forgets is not there to be compared with.
        let from = if is_whole { 0 } else { size / CHUNK };
        if is_whole || size < ended {
            self.copies.retain(|(node, chunk), _| *node != id || *chunk < from);
        }
        ranges.sort_unstable();
        let mut done = 0;
        for (from, to) in ranges {
            let (from, to) = (from.max(done), to.min(size));
            if from < to {
                self.say_range(cache, cx, id, (from, to), end, body)?;
                done = to;
            }
        }
        self.new.push((id, size, is_whole));
        Ok(())
    }

    /// One run of bytes; below `end` holes are as they are below.
    fn say_range(&mut self, cache: &Cache, cx: &Cx, id: u64, (from, to): (u64, u64), end: u64, body: &mut Body) -> Result<()> {
        let seek = |from, is_data| seek_within(cache, cx, id, (from, to), is_data);
        let mut from = from;
        while from < to {
            let data = seek(from, true)?;
            let hole = from.max(end);
            if hole < data {
                body.zeros(id, hole, data - hole);
                for chunk in hole / CHUNK..=(data - 1) / CHUNK {
                    self.copies.remove(&(id, chunk));
                }
            }
            from = data;
            let hole = if from < to { seek(from, false)? } else { to };
            while from < hole {
                let len = (hole - from).min(CHUNK - from % CHUNK) as usize;
                let mut bytes = vec![0u8; len];
                let came = cache.fs().read(cx, node(id), from, &[UserSlice::from_mut(&mut bytes)]).map_err(image)?;
                if came == 0 {
                    return Ok(());
                }
                self.say_blocks(id, from, &bytes[..came], body);
                from += came as u64;
            }
        }
        Ok(())
    }

    /// Bytes of one chunk: only blocks that are not as they were said last.
    fn say_blocks(&mut self, id: u64, offset: u64, bytes: &[u8], body: &mut Body) {
        if self.copies.len() > COPIES {
            self.copies.clear();
        }
        let copy = self.copies.entry((id, offset / CHUNK)).or_insert_with(|| Copy { said: 0, bytes: vec![0; CHUNK as usize] });
        let start = (offset % CHUNK) as usize;
        let mut run: Option<usize> = None;
        let mut at = 0;
        while at < bytes.len() {
            let (place, len) = (start + at, (BLOCK - (start + at) % BLOCK).min(bytes.len() - at));
            let (bit, part) = (1u16 << (place / BLOCK), &bytes[at..at + len]);
            let is_same = copy.said & bit != 0 && copy.bytes[place..place + len] == *part;
            if is_same {
                if let Some(from) = run.take() {
                    body.data(id, offset + from as u64, &bytes[from..at]);
                }
            } else {
                run.get_or_insert(at);
                copy.bytes[place..place + len].copy_from_slice(part);
                copy.said = if len == BLOCK { copy.said | bit } else { copy.said & !bit };
            }
            at += len;
        }
        if let Some(from) = run {
            body.data(id, offset + from as u64, &bytes[from..]);
        }
    }
}

/// Extended attributes, if they are here.
fn attributes(cache: &Cache, cx: &Cx, id: u64, lower: Option<Id>) -> Result<Option<Xattrs>> {
    let known = if_there(cache.known_if(node(id)))?.flatten();
    if lower.is_some() && known.is_some_and(|known| known.state & bits::XATTRS == 0) {
        return Ok(None);
    }
    Ok(Some(extended_here(cache, cx, node(id))?.into_iter().collect()))
}

/// Paths at which a node may be below, each with a NUL behind it.
fn hints(plan: &Plan, id: u64, lower: Option<Id>) -> Vec<u8> {
    let was = lower.and_then(|lower| plan.was.get(&lower)).into_iter().flatten();
    let now = plan.targets.get(&id).into_iter().flatten().chain(plan.dirs.get(&id));
    let noted = plan.nodes.get(&id).and_then(|noted| noted.spot.as_ref());
    let mut text = Vec::new();
    for (dir, name) in was.chain(now).chain(noted) {
        if let Some(path) = path(plan, *dir) {
            text.extend_from_slice(&join(&path, name));
            text.push(0);
        }
    }
    text
}

/// Path of a directory of the tree.
fn path(plan: &Plan, dir: u64) -> Option<Vec<u8>> {
    let (mut at, mut names) = (dir, Vec::new());
    while at != plan.root {
        let (parent, name) = plan.dirs.get(&at)?;
        names.push(&name[..]);
        at = *parent;
        if names.len() > DEPTH_MAX {
            return None;
        }
    }
    names.reverse();
    Some(names.join(&b'/'))
}

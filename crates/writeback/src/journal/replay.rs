//! Replay: the directory becomes what the last group says, by the journal alone.
//!
//! Below is what the last finished round has left, and any part of what was done since: things are in the park, have been
//! made, moved, written, or not. What a round does is in the journal before it does it, so all that may be half done is
//! named there:
//!
//! 1. **Find** the files that are needed, by number: where the journal has seen them, in the park, else everywhere.
//! 2. **Displace** what stands at a touched name and does not belong there: into the park.
//! 3. **Place**, parents first: from the park, by a link, or made anew, whole, from the journal.
//! 4. **Bytes**, **attributes**; **remove** what is left in the park; sync.
//!
//! Each step looks at what is there, and the journal stays until all of it is synced: so it may be cut off anywhere, and
//! runs again.
//!
//! **A damaged journal** is replayed up to the damage: groups behind it say how they differ from one that is missing, so
//! of them nothing is made. Those may be half done below. So nothing is removed then: the park, with all that the last
//! round has moved away, is kept under another name.
//!
//! What stands at a touched name and is not known may have been made by the round that was under way. It goes, unless it
//! has changed since the machine started and before the first replay: then it is somebody else's, and stays.

use super::fold::{File, Fold, Step};
use super::ring::Damage;
use crate::below::{self, Below, Dir, join, parked};
use crate::{CUT, Failure, Hook, Id, PARK, Result};
use base::Kind;
use cache::touch::Label;
use pm::Errno;
use rustix::fs::{FileType, RenameFlags};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// Most levels of directories that are looked through.
const DEPTH_MAX: usize = 5_000;
/// Whoever runs the file gets the rights of its owner, or group.
const SET_ID: u16 = 0o6000;
/// The owner may read, change and search a directory.
const OWNER_CHANGES: u16 = 0o700;

/// What a replay has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Names that were touched.
    pub names: u64,
    /// Bytes written.
    pub bytes: u64,
    /// What could not be made, because it is missing below; only where that was asked for.
    pub missing: Vec<String>,
    /// Why the rest of the journal could not be read.
    pub damage: Option<Damage>,
    /// Where, in the directory, that is kept which was on its way to or from places that only the damaged part says.
    pub kept: Option<String>,
}

/// How groups are replayed.
pub struct How {
    /// Between these times what has changed is somebody else's.
    pub others: Option<(i64, i64)>,
    /// What is missing is left out.
    pub skip: bool,
    /// There were more groups.
    pub damage: Option<Damage>,
    /// Number of the first group, and where each is.
    pub first: u64,
    pub places: Vec<u64>,
}

/// A replay under way.
pub struct Replay<'a> {
    below: &'a Below,
    groups: &'a [Vec<u8>],
    fold: Fold,
    /// Where the files are.
    at: HashMap<u64, Vec<u8>>,
    /// Between these times changes were somebody else's.
    others: Option<(i64, i64)>,
    skip: bool,
    done: Replayed,
    /// What this replay has put into the park, and the groups know to have lost its name.
    displaced: HashSet<Vec<u8>>,
    /// Directories whose rights were taken, and their mode.
    rights: HashMap<Vec<u8>, u16>,
    failure: Option<Failure>,
    hook: &'a mut Hook<'a>,
}

fn cut(path: &[u8]) -> (&[u8], &[u8]) {
    path.iter().rposition(|byte| *byte == b'/').map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]))
}

fn is_parked(path: &[u8]) -> bool {
    path.strip_prefix(PARK.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// Replays groups on a directory, up to the sync; those before the first that is damaged.
pub fn replay<'a>(below: &'a Below, groups: &'a [Vec<u8>], how: How, hook: &'a mut Hook<'a>) -> Result<Replayed> {
    let root = below.stat(b"")?.ok_or_else(|| Failure::new("the directory", Errno::ENOENT))?;
    let (fold, count) = Fold::of(groups, root.stamp.device);
    let mut damage = how.damage;
    if count < groups.len() {
        let why = "it says what can't be true".to_owned();
        let at = how.places.get(count).copied().unwrap_or(0);
        damage = Some(Damage { group: how.first + count as u64, at, why });
    }
    let (at, done) = (HashMap::new(), Replayed { damage, ..Replayed::default() });
    let (others, skip, rights, displaced) = (how.others, how.skip, HashMap::new(), HashSet::new());
    let mut replay = Replay { below, groups, fold, at, others, skip, done, displaced, rights, failure: None, hook };
    replay.all(root.id)?;
    Ok(replay.done)
}

impl Replay<'_> {
    fn all(&mut self, root: Id) -> Result<()> {
        self.clear()?;
        self.find(root)?;
        self.displace()?;
        self.place()?;
        self.change()?;
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.done.damage.is_none() {
            self.remove()?;
        } else {
            self.keep_park()?;
        }
        self.attributes_of_directories()?;
        self.before("sync")?;
        self.below.sync()
    }

    fn before(&mut self, step: &str) -> Result<()> {
        (self.hook)(step).map_err(|errno| Failure::new(step, errno))
    }

    /// Goes on with the rest where one thing fails.
    fn keep(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Err(failure) if failure.errno == CUT => Err(failure),
            Err(failure) => {
                self.failure.get_or_insert(failure);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// What was half made goes; behind damage only what can be made again.
    fn clear(&mut self) -> Result<()> {
        let park = self.below.park()?;
        let again: HashSet<Vec<u8>> = self.fold.files.keys().map(|node| crate::make::new_name(*node)).collect();
        let is_whole = self.done.damage.is_none();
        for name in park.names()?.iter().filter(|name| name.starts_with(b"new-") && (is_whole || again.contains(*name))) {
            if let Some(there) = park.stat(name)? {
                self.before("clear")?;
                park.remove(name, there.attr.kind == Kind::Directory)?;
            }
        }
        Ok(())
    }

    /// Finds the files that are below and needed.
    fn find(&mut self, root: Id) -> Result<()> {
        let mut wanted: HashMap<Id, u64> = HashMap::new();
        for (node, file) in &self.fold.files {
            let Some(id) = file.lower else { continue };
            if id == root {
                self.at.insert(*node, Vec::new());
            } else {
                wanted.insert(id, *node);
            }
        }
        let mut hints: Vec<Vec<u8>> = self.fold.files.values().flat_map(|file| file.hints.clone()).collect();
        let park = self.below.park()?;
        hints.extend(park.names()?.iter().map(|name| join(PARK.as_bytes(), name)));
        for hint in hints {
            if let Some(there) = self.below.stat(&hint)?
                && let Some(node) = wanted.remove(&there.id)
            {
                self.at.insert(node, hint);
            }
        }
        // What is below no more and has lost its name, is gone because it was removed.
        let targets: HashSet<u64> = self.fold.names.values().copied().collect();
        wanted.retain(|id, node| targets.contains(node) || !self.fold.lost.contains(id));
        if wanted.is_empty() {
            return Ok(());
        }
        self.look_through(Vec::new(), &mut wanted, 0)
    }

    fn look_through(&mut self, path: Vec<u8>, wanted: &mut HashMap<Id, u64>, depth: usize) -> Result<()> {
        let mut inner = Vec::new();
        let Ok(dir) = self.below.dir_as(&path, 0) else { return Ok(()) };
        for name in dir.names()? {
            let Some(there) = dir.stat(&name)? else { continue };
            if let Some(node) = wanted.remove(&there.id) {
                self.at.insert(node, join(&path, &name));
            }
            if there.attr.kind == Kind::Directory {
                inner.push(name);
            }
        }
        drop(dir);
        for name in inner {
            if wanted.is_empty() || depth > DEPTH_MAX {
                return Ok(());
            }
            self.look_through(join(&path, &name), wanted, depth + 1)?;
        }
        Ok(())
    }

    /// A directory, in which its owner may change something.
    fn open(&mut self, path: &[u8]) -> Result<Dir> {
        let dir = self.below.dir_as(path, 0)?;
        if !rustix::process::geteuid().is_root() && !self.rights.contains_key(path) {
            let mode = dir.stat(b".")?.map_or(OWNER_CHANGES, |there| there.attr.mode);
            if mode & OWNER_CHANGES != OWNER_CHANGES {
                dir.set_mode(b".", mode | OWNER_CHANGES)?;
                self.rights.insert(path.to_vec(), mode);
            }
        }
        Ok(dir)
    }

    /// Something has moved, and all in it.
    fn moved(&mut self, from: &[u8], to: &[u8]) {
        for path in self.at.values_mut() {
            if let Some(rest) = path.strip_prefix(from)
                && matches!(rest.first(), None | Some(b'/'))
            {
                *path = [to, rest].concat();
            }
        }
    }

    fn displace(&mut self) -> Result<()> {
        let names: Vec<((u64, Vec<u8>), u64)> = self.fold.names.iter().map(|(spot, node)| (spot.clone(), *node)).collect();
        self.done.names = names.len() as u64;
        for ((dir, name), node) in names {
            let result = self.displace_name(dir, &name, node);
            self.keep(result)?;
        }
        Ok(())
    }

    fn displace_name(&mut self, dir: u64, name: &[u8], node: u64) -> Result<()> {
        // One that is not below has no names there.
        let Some(path) = self.at.get(&dir).cloned() else { return Ok(()) };
        if path.is_empty() && cache::is_ours(name) {
            return Err(Failure::new(name, Errno::EPERM));
        }
        let at = self.open(&path)?;
        let Some(there) = at.stat(name)? else { return Ok(()) };
        let id = there.id;
        if self.fold.files.get(&node).is_some_and(|file| file.lower == Some(id)) {
            return Ok(());
        }
        if !self.fold.known.contains(&id) && self.is_others(&there) {
            return if node == 0 { Ok(()) } else { self.set_aside(&at, name) };
        }
        let (park, is_directory) = (self.below.park()?, there.attr.kind == Kind::Directory);
        self.before("displace")?;
        let (old, new) = (join(&path, name), join(PARK.as_bytes(), &parked(id)));
        if !is_directory && park.has(&parked(id), id)? {
            at.remove(name, false)?;
        } else {
            at.rename(name, &park, &parked(id), RenameFlags::NOREPLACE)?;
        }
        self.moved(&old, &new);
        if self.fold.known.contains(&id) && self.fold.lost.contains(&id) {
            self.displaced.insert(parked(id));
        }
        Ok(())
    }

    fn is_others(&self, there: &below::There) -> bool {
        self.others.is_some_and(|(from, to)| (from..to).contains(&there.attr.ctime))
    }

    fn set_aside(&mut self, at: &Dir, name: &[u8]) -> Result<()> {
        for number in 0..1000 {
            let suffix = if number == 0 { ".bypath-theirs".to_owned() } else { format!(".bypath-theirs.{number}") };
            let other = [&name[..name.len().min(255 - suffix.len())], suffix.as_bytes()].concat();
            self.before("aside")?;
            match at.rename(name, at, &other, RenameFlags::NOREPLACE) {
                Err(failure) if failure.errno == Errno::EEXIST => {}
                result => return result,
            }
        }
        Err(Failure::new(join(&at.path, name), Errno::EEXIST))
    }

    fn place(&mut self) -> Result<()> {
        let targets: HashSet<u64> = self.fold.names.values().copied().collect();
        let dirs: BTreeSet<u64> = self.fold.names.keys().map(|(dir, _)| *dir).collect();
        // Those whose place nobody has touched.
        let mut settled: VecDeque<u64> =
            dirs.into_iter().filter(|dir| !targets.contains(dir) && self.at.contains_key(dir)).collect();
        while let Some(dir) = settled.pop_front() {
            let range = (dir, Vec::new())..=(dir, vec![255; 256]);
            let names: Vec<(Vec<u8>, u64)> = self
                .fold
                .names
                .range(range)
                .map(|((_, name), node)| (name.clone(), *node))
                .filter(|(_, node)| *node != 0)
                .collect();
            for (name, node) in names {
                let result = self.place_name(dir, &name, node);
                self.keep(result)?;
                if self.fold.files.get(&node).is_some_and(|file| file.fact.kind == Kind::Directory) {
                    settled.push_back(node);
                }
            }
        }
        Ok(())
    }

    fn place_name(&mut self, dir: u64, name: &[u8], node: u64) -> Result<()> {
        let Some(path) = self.at.get(&dir).cloned() else { return self.is_missing(name) };
        if path.is_empty() && cache::is_ours(name) {
            return Err(Failure::new(name, Errno::EPERM));
        }
        let at = self.open(&path)?;
        let to = join(&path, name);
        let Some(file) = self.fold.files.get(&node).cloned() else { return Err(Failure::new(to, Errno::EUCLEAN)) };
        if at.stat(name)?.is_some_and(|there| file.lower == Some(there.id)) {
            self.at.insert(node, to);
            return Ok(());
        }
        match self.at.get(&node).cloned() {
            Some(from) if is_parked(&from) || file.fact.kind == Kind::Directory => {
                let (from_dir, from_name) = cut(&from);
                let from_dir = self.open(from_dir)?;
                self.before("move")?;
                from_dir.rename(from_name, &at, name, RenameFlags::NOREPLACE)?;
                self.moved(&from, &to);
                Ok(())
            }
            Some(from) => {
                let (from_dir, from_name) = cut(&from);
                let from_dir = self.open(from_dir)?;
                self.before("link")?;
                from_dir.link(from_name, &at, name)
            }
            None if !file.is_whole && (file.lower.is_some() || file.fact.kind == Kind::Regular) => self.is_missing(&to),
            None => {
                let park = self.below.park()?;
                let new = crate::make::new_name(node);
                self.before("new")?;
                self.make(&park, &new, &file)?;
                self.before("name")?;
                park.rename(&new, &at, name, RenameFlags::NOREPLACE)?;
                self.at.insert(node, to);
                Ok(())
            }
        }
    }

    fn is_missing(&mut self, path: &[u8]) -> Result<()> {
        if self.skip {
            self.done.missing.push(String::from_utf8_lossy(path).into_owned());
            return Ok(());
        }
        Err(Failure::new(path, Errno::ESTALE))
    }

    /// Makes something from the journal alone.
    fn make(&mut self, park: &Dir, name: &[u8], file: &File) -> Result<()> {
        match file.fact.kind {
            Kind::Regular => {
                let made = park.make_file(name)?;
                self.write(&made, &file.steps)?;
            }
            Kind::Directory => return park.make_directory(name),
            Kind::Symlink => park.make_symlink(&file.fact.target, name)?,
            Kind::Fifo => park.make_node(name, FileType::Fifo, 0)?,
            Kind::Socket => park.make_node(name, FileType::Socket, 0)?,
            Kind::CharDevice => park.make_node(name, FileType::CharacterDevice, file.fact.rdev)?,
            Kind::BlockDevice => park.make_node(name, FileType::BlockDevice, file.fact.rdev)?,
        }
        self.set_attributes(park, name, file)
    }

    fn write(&mut self, file: &below::File, steps: &[Step]) -> Result<()> {
        for step in steps {
            match *step {
                Step::Data { offset, group, at, len } => {
                    file.write(&self.groups[group][at..at + len], offset)?;
                    self.done.bytes += len as u64;
                }
                Step::Zeros { offset, len } => file.zero(offset, (offset + len).min(file.size()?.max(offset)))?,
                Step::Size(len) if file.size()? != len => file.set_size(len)?,
                Step::Size(_) => {}
            }
        }
        Ok(())
    }

    /// Bytes and attributes of what was below before.
    fn change(&mut self) -> Result<()> {
        let files: Vec<(u64, File)> = self.fold.files.iter().map(|(node, file)| (*node, file.clone())).collect();
        for (node, file) in files {
            if file.lower.is_some() && file.fact.is_changed && file.fact.kind != Kind::Directory {
                let result = self.change_file(node, &file);
                self.keep(result)?;
            }
        }
        Ok(())
    }

    fn change_file(&mut self, node: u64, file: &File) -> Result<()> {
        let Some(path) = self.at.get(&node).cloned() else {
            // Missing at a name that was touched: that has been said. Else it may have been removed.
            let is_named = self.fold.names.values().any(|named| *named == node);
            let is_lost = file.lower.is_some_and(|id| self.fold.lost.contains(&id));
            let hint = file.hints.first().cloned().unwrap_or_else(|| Label::new(b'd', node).number().to_vec());
            return if is_named || is_lost { Ok(()) } else { self.is_missing(&hint) };
        };
        let (dir, name) = cut(&path);
        let dir = self.open(dir)?;
        if !file.steps.is_empty() {
            self.before("bytes")?;
            let opened = dir.open_file(name)?;
            self.write(&opened, &file.steps)?;
        }
        self.before("attributes")?;
        self.set_attributes(&dir, name, file)
    }

    /// Those of directories, from the deepest up, when all that is in them is done.
    fn attributes_of_directories(&mut self) -> Result<()> {
        let mut dirs: Vec<(Vec<u8>, File)> = Vec::new();
        for (node, file) in &self.fold.files {
            if file.fact.kind == Kind::Directory
                && (file.fact.is_changed || file.lower.is_none())
                && let Some(path) = self.at.get(node)
            {
                dirs.push((path.clone(), file.clone()));
            }
        }
        dirs.sort_by(|(a, _), (b, _)| b.cmp(a));
        for (path, file) in dirs {
            if is_parked(&path) {
                continue;
            }
            self.before("directory")?;
            self.rights.remove(&path);
            let dir = self.below.dir_as(&path, 0)?;
            self.set_attributes(&dir, b".", &file)?;
        }
        for (path, mode) in std::mem::take(&mut self.rights) {
            if let Ok(dir) = self.below.dir_as(&path, 0) {
                dir.set_mode(b".", mode)?;
            }
        }
        Ok(())
    }

    fn set_attributes(&mut self, dir: &Dir, name: &[u8], file: &File) -> Result<()> {
        let fact = &file.fact;
        let Some(there) = dir.stat(name)? else { return Err(Failure::new(join(&dir.path, name), Errno::ESTALE)) };
        let uid = (there.attr.uid != fact.uid).then_some(fact.uid);
        let gid = (there.attr.gid != fact.gid).then_some(fact.gid);
        if uid.is_some() || gid.is_some() {
            dir.set_owner(name, uid, gid)?;
        }
        if fact.kind != Kind::Symlink {
            if let Some(xattrs) = &fact.xattrs {
                for (attribute, value) in xattrs {
                    dir.set_attribute(name, attribute, value)?;
                }
                for attribute in dir.attributes(name)?.keys() {
                    let is_set = xattrs.iter().any(|(name, _)| name == attribute);
                    if !is_set && (attribute.starts_with(b"user.") || attribute.starts_with(b"trusted.")) {
                        dir.remove_attribute(name, attribute)?;
                    }
                }
            }
            // A record is no reason to give rights that the owner of the directory does not have.
            let taken = if self.below.is_above_owner(fact.uid) { SET_ID } else { 0 };
            dir.set_mode(name, fact.mode & !taken)?;
        }
        dir.set_times(name, (fact.atime != fact.mtime).then_some(fact.atime), Some(fact.mtime))
    }

    fn remove(&mut self) -> Result<()> {
        let park = self.below.park()?;
        for name in park.names()? {
            let Some(there) = park.stat(&name)? else { continue };
            let is_known = self.fold.known.contains(&there.id);
            self.before("remove")?;
            if !self.remove_tree(&park, &name, there.attr.kind == Kind::Directory, is_known, 0)? {
                // With something of somebody else's in it.
                let top = self.below.top()?;
                let kept = [&name[..], b".bypath-theirs"].concat();
                park.rename(&name, &top, &kept, RenameFlags::NOREPLACE)?;
            }
        }
        drop(park);
        self.before("unpark")?;
        self.below.top()?.remove(PARK.as_bytes(), true)
    }

    /// What was in the park may belong where only the damaged part of the journal says.
    fn keep_park(&mut self) -> Result<()> {
        let (park, top) = (self.below.park()?, self.below.top()?);
        for name in park.names()?.iter().filter(|name| self.displaced.contains(*name)).cloned().collect::<Vec<_>>() {
            let Some(there) = park.stat(&name)? else { continue };
            self.before("remove")?;
            self.remove_tree(&park, &name, there.attr.kind == Kind::Directory, true, 0)?;
        }
        self.before("unpark")?;
        if park.names()?.is_empty() {
            return top.remove(PARK.as_bytes(), true);
        }
        for number in 0..1000 {
            let kept = if number == 0 { format!("{PARK}.damaged") } else { format!("{PARK}.damaged.{number}") };
            match top.rename(PARK.as_bytes(), &top, kept.as_bytes(), RenameFlags::NOREPLACE) {
                Err(failure) if failure.errno == Errno::EEXIST => {}
                renamed => {
                    self.done.kept = Some(kept);
                    return renamed;
                }
            }
        }
        Err(Failure::new(PARK, Errno::EEXIST))
    }

    /// Whether it is gone. What is left in a directory that was known is somebody else's: all that was in it here was noted.
    fn remove_tree(&mut self, dir: &Dir, name: &[u8], is_directory: bool, is_known: bool, depth: usize) -> Result<bool> {
        let mut is_empty = true;
        if is_directory && !is_known && depth < DEPTH_MAX {
            let inner = dir.dir(name)?;
            for entry in inner.names()? {
                let Some(there) = inner.stat(&entry)? else { continue };
                if self.is_others(&there) && !self.fold.known.contains(&there.id) {
                    is_empty = false;
                } else {
                    is_empty &= self.remove_tree(&inner, &entry, there.attr.kind == Kind::Directory, false, depth + 1)?;
                }
            }
        }
        match dir.remove(name, is_directory) {
            Err(failure) if failure.errno == Errno::ENOTEMPTY => Ok(false),
            Err(failure) => Err(failure),
            Ok(()) => Ok(is_empty),
        }
    }
}

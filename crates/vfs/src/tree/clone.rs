//! Cloning a tree: a twin of each node, made aside, and one rename that shows all of it.
//!
//! Each file is as it was at one moment; a tree that nobody writes to meanwhile is as it was. Names that go while the walk is
//! at them are left out. Files with several names in the tree have them in the clone. Others may [help](super::crew).

use super::crew::{Crew, Later, Part, Share};
use super::{Failed, Listed, Names, Tally, Trees};
use crate::ASIDE;
use crate::backend::Backend;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use base::{Error, Kind, NewNode, Node, RenameMode, Result, SetAttr, SetTime, Twin};
use pm::{Errno, UserSlice};

/// Name of the directory that has the snapshots of the one that it lies in.
pub const SNAPS: &[u8] = b".snap";
/// A file in it, for git and other tools that go by such files: else `git add -A` adds all of a repository once more with
/// each snapshot. The directory is not hidden from listings instead, because `rm -r` would meet a directory that is not empty
/// and shows nothing.
pub const IGNORED: (&[u8], &[u8]) = (b".gitignore", b"*\n");
/// So many names ahead of the one that is made, what its making takes is fetched, far and near.
const AHEAD: (usize, usize) = (6, 3);
/// So many names one clones before he offers others a part: fewer are done sooner than handed over.
const ALONE: u64 = 256;
/// Most bytes of a list of attributes, and of one.
const XATTRS_MAX: usize = 65_536;
/// Most bytes that are copied at a time, where they can't be shared.
const COPIED_MAX: u64 = 1 << 30;

/// A directory on the way down.
pub(super) struct Level {
    source: Node,
    twin: Twin,
    /// Its name, which ends the path so far.
    name_len: usize,
    names: Names,
    /// A second name of a file was put into it, which has changed its time.
    is_touched: bool,
    /// A name in it is put off.
    is_unfinished: bool,
    /// It is the clone itself, which had another mode so far.
    is_top: bool,
}

/// A clone in progress, or what one of several who make it has of it.
pub(super) struct Clone<'t, 'a> {
    trees: &'t mut Trees<'a>,
    share: Share,
    crew: Option<&'t dyn Crew>,
    /// Files with several names, and their twins.
    linked: BTreeMap<u64, Node>,
    levels: Vec<Level>,
    /// Names of directories that have been done, whose room others take.
    spare: Vec<Names>,
    path: Vec<u8>,
    /// It is a snapshot: each node is frozen when it is whole.
    freezes: bool,
}

impl Trees<'_> {
    /// Makes a clone of `source` that is called `name` in `dir`: all of it or nothing. `EEXIST`; `EINVAL` into itself.
    pub fn clone(&mut self, source: Node, dir: Node, name: &[u8]) -> core::result::Result<Tally, Failed> {
        self.clone_as(source, dir, name, false, None)
    }

    /// The same, together with others.
    pub fn clone_with(&mut self, crew: &dyn Crew, source: Node, dir: Node, name: &[u8]) -> core::result::Result<Tally, Failed> {
        self.clone_as(source, dir, name, false, Some(crew))
    }

    /// Makes a clone of directory `source` that nobody can change, as `name` in its directory [`SNAPS`].
    pub fn snap(&mut self, source: Node, name: &[u8]) -> core::result::Result<Tally, Failed> {
        let dir = match self.look(source, SNAPS)? {
            Some((dir, _)) => dir,
            None => self.make_snaps(source)?,
        };
        self.clone_as(source, dir, name, true, None)
    }

    fn make_snaps(&self, source: Node) -> Result<Node> {
        let new = NewNode { kind: Kind::Directory, mode: 0o755, rdev: 0, target: b"" };
        let dir = self.backend.create(self.cx, source, SNAPS, &new)?;
        let new = NewNode { kind: Kind::Regular, mode: 0o644, ..new };
        let file = self.backend.create(self.cx, dir, IGNORED.0, &new)?;
        self.backend.write_one(self.cx, file, 0, UserSlice::from_ref(IGNORED.1))?;
        Ok(dir)
    }

    fn clone_as(
        &mut self,
        source: Node,
        dir: Node,
        name: &[u8],
        freezes: bool,
        crew: Option<&dyn Crew>,
    ) -> core::result::Result<Tally, Failed> {
        if self.look(dir, name)?.is_some() {
            return Err(Error::Posix(Errno::EEXIST).into());
        }
        let kind = self.backend.attr(self.cx, source)?.kind;
        if kind == Kind::Directory && !freezes && self.is_within(dir, source)? {
            return Err(Error::Posix(Errno::EINVAL).into());
        }
        self.sweep(dir);
        let mode = (kind == Kind::Directory).then_some(0o700);
        let make = |trees: &mut Self, aside: &[u8]| {
            trees.backend.twin(trees.cx, (source, kind), dir, aside, mode).map(|twin| (twin.node, twin))
        };
        let (aside, twin) = self.make_aside(dir, make)?;
        let mut clone = Clone::new(self, freezes, crew);
        let result = clone.all((source, kind), &twin);
        let result = match (clone.ended(result), crew.map(Crew::end)) {
            // Nobody works on in what is to go; and this one was told to end, perhaps, since another one could not go on.
            (Err(failed), Some(Err(other))) if failed.error == Error::Posix(Errno::EINTR) => Err(other),
            (ended, _) => ended,
        };
        let result = result.and_then(|share| {
            self.backend.rename(self.cx, dir, &aside.name, dir, name, RenameMode::NoReplace)?;
            Ok(share.tally)
        });
        match result {
            Ok(_) => self.unlock_aside(aside.node),
            Err(_) => self.forget(&aside),
        }
        result
    }

    /// Whether directory `dir` is `top`, or lies below it.
    fn is_within(&self, dir: Node, top: Node) -> Result<bool> {
        let (mut dir, root) = (dir, self.backend.root());
        while dir.id != top.id && dir.id != root.id {
            dir = self.backend.parent(self.cx, dir)?;
        }
        Ok(dir.id == top.id)
    }
}

/// Has what the twin of the name after so many others takes brought near.
fn expect_far(backend: &dyn Backend, names: &Names, others: usize, to: Node) {
    if let Some((name, far)) = names.ahead(others).filter(|(_, far)| far.id != 0) {
        backend.expect_twin(far.id, Some((to, name)));
    }
}

/// The same, once what leads to it has been.
fn expect_near(backend: &dyn Backend, names: &Names, others: usize) {
    if let Some((_, near)) = names.ahead(others).filter(|(_, near)| near.id != 0 && near.kind == Kind::Regular) {
        backend.expect_twin(near.id, None);
    }
}

impl<'t, 'a> Clone<'t, 'a> {
    pub(super) fn new(trees: &'t mut Trees<'a>, freezes: bool, crew: Option<&'t dyn Crew>) -> Self {
        let (linked, levels, spare, path) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Clone { trees, share: Share::default(), crew, linked, levels, spare, path, freezes }
    }

    /// What has been done, or why not, and where. Nobody is at work any more.
    pub(super) fn ended(self, result: Result<()>) -> core::result::Result<Share, Failed> {
        result.map(|()| self.share).map_err(|error| Failed { error, path: self.path })
    }

    fn all(&mut self, (source, kind): (Node, Kind), twin: &Twin) -> Result<()> {
        if kind != Kind::Directory {
            return self.finish_leaf(source, kind, twin);
        }
        self.enter(source, *twin, 0)?;
        self.walk()?;
        if let Some(crew) = self.crew {
            while let Some(part) = crew.next() {
                self.part(part)?;
            }
            self.finish_together(crew)?;
        }
        // Names could not be given to them any more.
        let linked = core::mem::take(&mut self.linked);
        linked.values().filter(|_| self.freezes).try_for_each(|twin| self.trees.backend.freeze(self.trees.cx, *twin, true))
    }

    /// Fills a directory that was offered.
    pub(super) fn part(&mut self, part: Part) -> Result<()> {
        self.path = part.path;
        match self.enter(part.source, part.twin, 0) {
            // It has gone meanwhile.
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => Ok(()),
            entered => entered.and_then(|()| self.walk()),
        }
    }

    /// Nobody works any more: what was put off.
    fn finish_together(&mut self, crew: &dyn Crew) -> Result<()> {
        let others = crew.end().map_err(|failed| {
            self.path = failed.path;
            failed.error
        })?;
        self.crew = None;
        self.share.add(others);
        for later in core::mem::take(&mut self.share.later) {
            self.path = later.path;
            match self.node(later.source, later.to, self.path.len() - later.name_len) {
                // It has gone meanwhile, or is another one.
                Ok(_) | Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => {}
                Err(error) => return Err(error),
            }
        }
        for mut level in core::mem::take(&mut self.share.unfinished) {
            level.is_touched = true;
            self.finish_directory(&level)?;
        }
        Ok(())
    }

    fn walk(&mut self) -> Result<()> {
        while let Some(level) = self.levels.last_mut() {
            let (from, to, before) = (level.source, level.twin.node, self.path.len());
            let Some((name, listed)) = level.names.next_listed() else {
                self.leave()?;
                continue;
            };
            if before > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            let first = self.path.len() - name.len();
            expect_far(self.trees.backend, &level.names, AHEAD.0, to);
            expect_near(self.trees.backend, &level.names, AHEAD.1);
            if !self.entry((from, listed), to, first)? {
                self.path.truncate(before);
            }
        }
        Ok(())
    }

    /// Clones the name that stands in the path from `first` on; whether it is a directory, which is entered.
    fn entry(&mut self, (from, listed): (Node, Listed), to: Node, first: usize) -> Result<bool> {
        // What another one is making, or this one, is no part of it.
        if self.path[first..].starts_with(ASIDE) {
            return Ok(false);
        }
        if self.is_snapshot(from, listed, first)? {
            return Ok(false);
        }
        if self.puts_off(listed, to, first) {
            return Ok(false);
        }
        if let Some(source) = listed.node() {
            match self.node((source, listed.kind), to, first) {
                // The name may lead elsewhere by now.
                Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => {}
                entered => return entered,
            }
        }
        let Some(found) = self.trees.look(from, &self.path[first..])? else { return Ok(false) };
        match self.node(found, to, first) {
            // It has gone meanwhile, or is another one.
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => Ok(false),
            entered => entered,
        }
    }

    /// Whether it is made when nobody else works any more: it may have a name where another one is at work.
    fn puts_off(&mut self, listed: Listed, to: Node, first: usize) -> bool {
        let Some(source) = listed.node().filter(|_| self.crew.is_some() && listed.kind != Kind::Directory) else { return false };
        if !self.trees.backend.has_several_names(source.id) {
            return false;
        }
        let (path, name_len) = (self.path.clone(), self.path.len() - first);
        self.share.later.push(Later { source: (source, listed.kind), to, path, name_len });
        self.levels.iter_mut().rev().take(1).for_each(|level| level.is_unfinished = true);
        true
    }

    /// Whether another one fills that directory.
    fn is_taken(&self, source: Node, twin: Twin) -> bool {
        self.share.tally.names >= ALONE
            && self.crew.is_some_and(|crew| crew.offer(Part { source, twin, path: self.path.clone() }).is_ok())
    }

    /// Whether it is a snapshot in its directory: those are no part of a clone.
    fn is_snapshot(&self, from: Node, listed: Listed, first: usize) -> Result<bool> {
        let above = self.path[..first].strip_suffix(b"/").unwrap_or(b"");
        if above.rsplit(|byte| *byte == b'/').next() != Some(SNAPS) {
            return Ok(false);
        }
        let found = listed
            .node()
            .map_or_else(|| Ok(self.trees.look(from, &self.path[first..])?.map(|found| found.0)), |node| Ok(Some(node)));
        found.and_then(|node| node.map_or(Ok(false), |node| self.trees.backend.is_frozen(node)))
    }

    /// Clones what is found at that name. `ENOENT`, `ESTALE`: it is not there any more.
    fn node(&mut self, (source, kind): (Node, Kind), to: Node, first: usize) -> Result<bool> {
        let (backend, cx) = (self.trees.backend, self.trees.cx);
        let name = &self.path[first..];
        if let Some(twin) = self.linked.get(&source.id) {
            backend.link(cx, *twin, to, name)?;
            self.levels.iter_mut().rev().take(1).for_each(|level| level.is_touched = true);
            self.count()?;
            return Ok(false);
        }
        let twin = backend.twin(cx, (source, kind), to, name, None)?;
        if kind == Kind::Directory {
            let name_len = name.len();
            if self.is_taken(source, twin) {
                return Ok(false);
            }
            self.enter(source, twin, name_len)?;
            return Ok(true);
        }
        if twin.nlink > 1 {
            self.linked.insert(source.id, twin.node);
        }
        self.finish_leaf(source, kind, &twin)?;
        Ok(false)
    }

    fn enter(&mut self, source: Node, twin: Twin, name_len: usize) -> Result<()> {
        let mut names = self.spare.pop().unwrap_or_default();
        names.read(self.trees.backend, self.trees.cx, source)?;
        (0..=AHEAD.0).for_each(|others| expect_far(self.trees.backend, &names, others, twin.node));
        (0..=AHEAD.1).for_each(|others| expect_near(self.trees.backend, &names, others));
        let is_top = self.path.is_empty();
        self.levels.push(Level { source, twin, name_len, names, is_touched: false, is_unfinished: false, is_top });
        Ok(())
    }

    /// All of a directory is there, but for what is put off.
    fn leave(&mut self) -> Result<()> {
        let Some(mut level) = self.levels.pop() else { return Ok(()) };
        self.spare.push(core::mem::take(&mut level.names));
        if !level.is_unfinished {
            self.finish_directory(&level)?;
        }
        self.path.truncate((self.path.len() - level.name_len).saturating_sub(1));
        if level.is_unfinished {
            self.share.unfinished.push(level);
        }
        Ok(())
    }

    /// A directory gets what it could not have while it was filled.
    fn finish_directory(&mut self, level: &Level) -> Result<()> {
        let twin = &level.twin;
        if twin.has_more {
            self.copy_more(level.source, twin)?;
        }
        if level.is_top || twin.mode & 0o700 != 0o700 {
            self.set(twin.node, SetAttr { mode: Some(twin.mode), ..SetAttr::default() })?;
        }
        if level.is_touched {
            self.set(twin.node, SetAttr { mtime: Some(SetTime::At(twin.mtime)), ..SetAttr::default() })?;
        }
        self.share.tally.dropped += u64::from(twin.is_taken);
        if self.freezes {
            self.trees.backend.freeze(self.trees.cx, twin.node, true)?;
        }
        self.count()
    }

    /// What a node that is no directory does not have yet.
    fn finish_leaf(&mut self, source: Node, kind: Kind, twin: &Twin) -> Result<()> {
        if kind == Kind::Regular {
            if twin.is_filled {
                self.share.tally.shared += twin.size;
            } else {
                self.fill(source, twin)?;
            }
        }
        if twin.has_more {
            self.copy_more(source, twin)?;
        }
        self.share.tally.dropped += u64::from(twin.is_taken);
        if self.freezes && twin.nlink <= 1 {
            self.trees.backend.freeze(self.trees.cx, twin.node, true)?;
        }
        self.count()
    }

    /// Gives a file the contents, in more steps than one: shared if that can be, else copied.
    fn fill(&mut self, source: Node, twin: &Twin) -> Result<()> {
        let (backend, cx) = (self.trees.backend, self.trees.cx);
        match backend.clone_range(cx, (source, 0), (twin.node, 0), 0) {
            Ok(()) => self.share.tally.shared += twin.size,
            Err(Error::Posix(Errno::EOPNOTSUPP | Errno::EMLINK)) => self.copy(source, twin)?,
            Err(error) => return Err(error),
        }
        // Set-id bits go with what is written.
        if twin.mode & 0o6000 != 0 {
            self.set(twin.node, SetAttr { mode: Some(twin.mode), ..SetAttr::default() })?;
        }
        self.set(twin.node, SetAttr { mtime: Some(SetTime::At(twin.mtime)), ..SetAttr::default() })
    }

    fn copy(&mut self, source: Node, twin: &Twin) -> Result<()> {
        let (backend, cx) = (self.trees.backend, self.trees.cx);
        let mut at = 0;
        while at < twin.size {
            let data = match backend.seek(cx, source, at, true) {
                Err(Error::Posix(Errno::ENXIO)) => break,
                data => data?,
            };
            let hole = backend.seek(cx, source, data, false)?;
            let done = backend.copy_range(cx, source, data, twin.node, data, (hole - data).min(COPIED_MAX))?;
            if done == 0 {
                break;
            }
            at = data + done;
            self.share.tally.copied += done;
            self.trees.told(&self.share.tally)?;
        }
        self.set(twin.node, SetAttr { size: Some(twin.size), size_checked: true, ..SetAttr::default() })
    }

    /// Extended attributes, and an access time of its own.
    fn copy_more(&mut self, source: Node, twin: &Twin) -> Result<()> {
        // Setting one asks for the right to write.
        let is_shut = twin.mode & 0o200 == 0 && !self.trees.cx.cred.privileged;
        if is_shut {
            self.set(twin.node, SetAttr { mode: Some(twin.mode | 0o200), ..SetAttr::default() })?;
        }
        self.copy_xattrs(source, twin.node)?;
        if is_shut {
            self.set(twin.node, SetAttr { mode: Some(twin.mode), ..SetAttr::default() })?;
        }
        if twin.atime != twin.mtime {
            self.set(twin.node, SetAttr { atime: Some(SetTime::At(twin.atime)), ..SetAttr::default() })?;
        }
        Ok(())
    }

    fn copy_xattrs(&mut self, source: Node, twin: Node) -> Result<()> {
        let (backend, cx) = (self.trees.backend, self.trees.cx);
        let mut list = vec![0; XATTRS_MAX];
        let len = backend.list_xattr(cx, source, UserSlice::from_mut(&mut list))?;
        let mut value = Vec::new();
        for name in list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            value.resize(XATTRS_MAX, 0);
            let copied = backend
                .get_xattr(cx, source, name, UserSlice::from_mut(&mut value))
                .and_then(|len| backend.set_xattr(cx, twin, name, UserSlice::from_ref(&value[..len]), 0));
            match copied {
                Ok(()) => {}
                Err(Error::Posix(Errno::ENODATA | Errno::EACCES | Errno::EPERM | Errno::EOPNOTSUPP)) => {
                    self.share.tally.dropped += 1
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn set(&self, node: Node, change: SetAttr) -> Result<()> {
        self.trees.backend.set_attr(self.trees.cx, node, &change)
    }

    fn count(&mut self) -> Result<()> {
        self.share.tally.names += 1;
        if self.crew.is_some_and(Crew::has_failed) {
            return Err(Errno::EINTR.into());
        }
        self.trees.told(&self.share.tally)
    }
}

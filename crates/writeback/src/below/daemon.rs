//! A daemon below. It is asked by paths from its root; what a name leads to is known by [`Names`].

use super::file::Opened;
use super::{ATTRIBUTES_MAX, File, There, join};
use crate::attributes::Attributes;
use crate::names::{Names, PARK_ID, Step, What};
use crate::{Failure, Id, PARK, Result};
use base::{Cred, Cx, Error, Kind, NewNode, Node, RenameMode, SetAttr, SetTime, Thread};
use cache::lower::Original;
use cache::touch::Label;
use pm::{Errno, UserSlice};
use rustix::fs::FileType;
use std::cell::Cell;
use vfs::cached;

/// Asks a daemon, in the name of who writes back, who may do what the programs might.
pub fn ask<T>(ask: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    ask(&Cx { cred: Cred { uid, gid, ..Cred::ROOT }, umask: 0, thread: &thread })
}

/// Its root.
pub struct Below {
    pub daemon: &'static dyn cached::Below,
    pub names: Names,
    /// Number of the root of the tree.
    pub root: u64,
    /// What the directory for what is on its way is called.
    pub park: Vec<u8>,
}

/// A directory of it.
#[derive(Clone)]
pub struct Dir {
    daemon: &'static dyn cached::Below,
    names: Names,
    node: Node,
    /// Its number.
    id: u64,
    path: Vec<u8>,
}

fn walk(daemon: &dyn cached::Below, path: &[u8]) -> base::Result<Node> {
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.try_fold(daemon.root(), |dir, name| ask(|cx| daemon.lookup(cx, dir, name)))
}

fn names_in(daemon: &dyn cached::Below, dir: Node) -> base::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    ask(|cx| {
        daemon.list_below(cx, dir, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                names.push(entry.name.to_vec());
            }
            Ok(())
        })
    })?;
    Ok(names)
}

/// Whether a path leads to something: by the listing, which nothing that is remembered stands before.
pub fn is_there(daemon: &dyn cached::Below, path: &[u8]) -> Result<bool> {
    let cut = path.iter().rposition(|byte| *byte == b'/');
    let (dir, name) = cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
    match walk(daemon, dir).and_then(|dir| names_in(daemon, dir)) {
        Ok(names) => Ok(names.iter().any(|there| there == name)),
        Err(Error::Posix(Errno::ENOENT | Errno::ENOTDIR)) => Ok(false),
        Err(error) => Err(Failure::new(path, error.errno())),
    }
}

impl Below {
    pub fn dir(&self, path: &[u8], id: u64) -> Result<Dir> {
        let failed = |errno| Failure::new(if path.is_empty() { b"." } else { path }, errno);
        let node = walk(self.daemon, path).map_err(|error| failed(error.errno()))?;
        let attr = ask(|cx| self.daemon.attr(cx, node)).map_err(|error| failed(error.errno()))?;
        if attr.kind != Kind::Directory {
            return Err(failed(Errno::ENOTDIR));
        }
        Ok(Dir { daemon: self.daemon, names: self.names.clone(), node, id, path: path.to_vec() })
    }

    /// Waits for a daemon that stores later.
    pub fn sync(&self) -> Result<()> {
        if !self.daemon.syncs_whole() {
            return Ok(());
        }
        ask(|cx| self.daemon.sync(cx, None, true)).map_err(|error| Failure::new("what was written", error.errno()))
    }

    /// Makes a directory at its top: the park, which no step is about.
    pub fn make_directory(&self, name: &[u8]) -> Result<()> {
        let new = NewNode { kind: Kind::Directory, mode: 0o700, rdev: 0, target: b"" };
        let made = ask(|cx| self.daemon.create(cx, self.daemon.root(), name, &new));
        made.map(drop).map_err(|error| Failure::new(name, error.errno()))
    }
}

impl Dir {
    fn failed(&self, name: &[u8]) -> impl Fn(Error) -> Failure {
        let path = join(&self.path, name);
        move |error| Failure::new(&path, error.errno())
    }

    fn node(&self, name: &[u8]) -> base::Result<Node> {
        if name == b"." { Ok(self.node) } else { ask(|cx| self.daemon.lookup(cx, self.node, name)) }
    }

    /// Whether that file is called so here. Who is not known to be is not asked for.
    pub fn has(&self, name: &[u8], id: Id) -> Result<bool> {
        let is_known = id.0 == 0 && self.names.led(&(self.id, name.to_vec())) == Some(id.1);
        Ok(is_known && self.stat(name)?.is_some_and(|there| there.id == id))
    }

    /// What stands at a name; nothing, where nothing did before in this round.
    pub fn stat(&self, name: &[u8]) -> Result<Option<There>> {
        if name != b"." && self.names.is_absent(&(self.id, name.to_vec())) {
            return Ok(None);
        }
        let attr = match self.node(name).and_then(|node| ask(|cx| self.daemon.attr(cx, node))) {
            Err(Error::Posix(Errno::ENOENT)) => {
                self.names.note_absent((self.id, name.to_vec()));
                return Ok(None);
            }
            attr => attr.map_err(self.failed(name))?,
        };
        let id = if name == b"." { (0, self.id) } else { self.names.identify(&(self.id, name.to_vec()), &attr) };
        Ok(Some(There { attr, stamp: Original::of_daemon(&attr).stamp, id }))
    }

    /// Which file a name leads to; `u64::MAX`: somebody else's, which it stays.
    fn file_of(&self, name: &[u8]) -> u64 {
        self.names.led(&(self.id, name.to_vec())).unwrap_or(u64::MAX)
    }

    fn spot(&self, name: &[u8]) -> (u64, Vec<u8>) {
        (self.id, join(&self.path, name))
    }

    /// Something that changes names.
    fn act(&self, step: Step, act: impl FnOnce(&Cx) -> base::Result<()>) -> Result<()> {
        let path = if step.from.1.is_empty() { step.to.1.clone() } else { step.from.1.clone() };
        let act = || ask(act).map_err(|error| Failure::new(path, error.errno()));
        self.names.act(step, &|path| is_there(self.daemon, path), act)
    }

    /// `replaces`: what has the new name already goes. A daemon may not be able to refuse that by itself.
    pub fn rename(&self, name: &[u8], to: &Dir, new: &[u8], replaces: bool) -> Result<()> {
        let is_free = |node: base::Result<Node>| matches!(node, Err(Error::Posix(Errno::ENOENT)));
        // Nobody else makes names in the park.
        if !replaces && to.id != PARK_ID && !is_free(ask(|cx| self.daemon.lookup(cx, to.node, new))) {
            return Err(to.failed(new)(Errno::EEXIST.into()));
        }
        let step =
            Step { what: What::Move, file: self.file_of(name), kind: Kind::Regular, from: self.spot(name), to: to.spot(new) };
        self.act(step, |cx| self.daemon.rename(cx, self.node, name, to.node, new, RenameMode::Replace))
    }

    pub fn link(&self, name: &[u8], to: &Dir, new: &[u8]) -> Result<()> {
        let node = self.node(name).map_err(self.failed(name))?;
        let step =
            Step { what: What::Link, file: self.file_of(name), kind: Kind::Regular, from: self.spot(name), to: to.spot(new) };
        self.act(step, |cx| self.daemon.link(cx, node, to.node, new))
    }

    pub fn remove(&self, name: &[u8], is_directory: bool) -> Result<()> {
        let remove = |cx: &Cx| match is_directory {
            true => self.daemon.rmdir(cx, self.node, name),
            false => self.daemon.unlink(cx, self.node, name),
        };
        if self.id != PARK_ID && name.starts_with(PARK.as_bytes()) {
            return ask(remove).map_err(self.failed(name));
        }
        let step = Step {
            what: What::Remove,
            file: self.file_of(name),
            kind: Kind::Regular,
            from: self.spot(name),
            to: (0, Vec::new()),
        };
        self.act(step, remove)
    }

    /// Makes something in the park: its name there says for which node.
    fn make(&self, name: &[u8], new: &NewNode) -> Result<()> {
        let file = name.strip_prefix(b"new-").and_then(Label::parse).unwrap_or(u64::MAX);
        let step = Step { what: What::Make, file, kind: new.kind, from: (0, Vec::new()), to: self.spot(name) };
        self.act(step, |cx| self.daemon.create_absent(cx, self.node, name, new).map(drop))
    }

    pub fn make_directory(&self, name: &[u8]) -> Result<()> {
        self.make(name, &NewNode { kind: Kind::Directory, mode: 0o700, rdev: 0, target: b"" })
    }

    pub fn make_symlink(&self, target: &[u8], name: &[u8]) -> Result<()> {
        self.make(name, &NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0, target })
    }

    pub fn make_node(&self, name: &[u8], kind: FileType, device: u64) -> Result<()> {
        let kind = match kind {
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            _ => Kind::BlockDevice,
        };
        self.make(name, &NewNode { kind, mode: 0o600, rdev: device, target: b"" })
    }

    fn file(&self, name: &[u8]) -> Result<File> {
        let node = self.node(name).map_err(self.failed(name))?;
        Ok(File::Node(Opened { daemon: self.daemon, node, size: Cell::new(None) }))
    }

    pub fn make_file(&self, name: &[u8]) -> Result<File> {
        self.make(name, &NewNode { kind: Kind::Regular, mode: 0o600, rdev: 0, target: b"" })?;
        self.file(name)
    }

    /// A file, to be written; one that may not be is made so for as long as it takes.
    pub fn open_file(&self, name: &[u8]) -> Result<File> {
        let there = self.stat(name)?.ok_or(Error::Posix(Errno::ENOENT)).map_err(self.failed(name))?;
        self.names.write(there.id)?;
        let is_own = there.attr.uid == rustix::process::geteuid().as_raw() && there.attr.uid != 0;
        if is_own && there.attr.mode & 0o200 == 0 {
            // The attributes, which come after the bytes, take that back.
            self.set_mode(name, there.attr.mode | 0o600)?;
        }
        self.file(name)
    }

    fn set(&self, name: &[u8], change: &SetAttr) -> Result<()> {
        if name != b"." {
            self.names.write((0, self.file_of(name)))?;
        }
        let node = self.node(name).map_err(self.failed(name))?;
        ask(|cx| self.daemon.set_attr(cx, node, change)).map_err(self.failed(name))
    }

    pub fn set_mode(&self, name: &[u8], mode: u16) -> Result<()> {
        self.set(name, &SetAttr { mode: Some(mode), checked: true, ..SetAttr::default() })
    }

    /// Whose files are is the daemon's to say: that it refuses to change it is no failure of a round.
    pub fn set_owner(&self, name: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        match self.set(name, &SetAttr { uid, gid, checked: true, ..SetAttr::default() }) {
            Err(failure) if matches!(failure.errno, Errno::EPERM | Errno::EACCES | Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
            set => set,
        }
    }

    pub fn set_times(&self, name: &[u8], atime: Option<i64>, mtime: Option<i64>) -> Result<()> {
        self.set_last(name, None, atime, mtime)
    }

    /// Mode and times in one message. Older daemons know both times or none: a missing time of access is that of change, and
    /// a missing time of change is what it is.
    pub fn set_last(&self, name: &[u8], mode: Option<u16>, atime: Option<i64>, mtime: Option<i64>) -> Result<()> {
        let mtime = match (atime, mtime) {
            (Some(_), None) => self.stat(name)?.map(|there| there.attr.mtime),
            _ => mtime,
        };
        let (atime, mtime) = (atime.or(mtime).map(SetTime::At), mtime.map(SetTime::At));
        match self.set(name, &SetAttr { mode, atime, mtime, checked: true, ..SetAttr::default() }) {
            // A symlink's, nearly always.
            Err(failure) if matches!(failure.errno, Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
            set => set,
        }
    }

    pub fn attributes(&self, name: &[u8]) -> Result<Attributes> {
        let node = self.node(name).map_err(self.failed(name))?;
        let mut names = vec![0u8; ATTRIBUTES_MAX];
        let len = match ask(|cx| self.daemon.list_xattr(cx, node, UserSlice::from_mut(&mut names))) {
            Err(Error::Posix(Errno::EOPNOTSUPP)) => return Ok(Attributes::new()),
            len => len.map_err(self.failed(name))?,
        };
        let mut all = Attributes::new();
        for attribute in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0u8; ATTRIBUTES_MAX];
            let len = ask(|cx| self.daemon.get_xattr(cx, node, attribute, UserSlice::from_mut(&mut value)));
            value.truncate(len.map_err(self.failed(name))?);
            all.insert(attribute.to_vec(), value);
        }
        Ok(all)
    }

    pub fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<()> {
        let node = self.node(name).map_err(self.failed(name))?;
        ask(|cx| self.daemon.set_xattr(cx, node, attribute, UserSlice::from_ref(value), 0)).map_err(self.failed(name))
    }

    pub fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<()> {
        let node = self.node(name).map_err(self.failed(name))?;
        ask(|cx| self.daemon.remove_xattr(cx, node, attribute)).map_err(self.failed(name))
    }

    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        names_in(self.daemon, self.node).map_err(self.failed(b""))
    }

    /// A directory in it.
    pub fn dir(&self, name: &[u8]) -> Result<Dir> {
        let there = self.stat(name)?.ok_or(Error::Posix(Errno::ENOENT)).map_err(self.failed(name))?;
        if there.attr.kind != Kind::Directory {
            return Err(self.failed(name)(Errno::ENOTDIR.into()));
        }
        let node = self.node(name).map_err(self.failed(name))?;
        let id = there.id;
        Ok(Dir { daemon: self.daemon, names: self.names.clone(), node, id: id.1, path: join(&self.path, name) })
    }
}

//! What is below: a directory of the kernel's, or a daemon.

mod daemon;
mod file;
mod host;
mod owner;

pub use file::{File, PIECE};

use crate::attributes::Attributes;
use crate::names::{Names, PARK_ID};
use crate::plan::Plan;
use crate::{Failure, Id, PARK, Result};
use base::{Attr, Name};
use cache::Cache;
use cache::lower::{Devices, Original};
use engine::lower::Stamp;
use pm::Errno;
use rustix::fs::{FileType, RenameFlags};
use std::collections::HashSet;

/// Longest list of names of attributes, and longest value.
pub const ATTRIBUTES_MAX: usize = 64 << 10;

/// Its root.
pub enum Below {
    Host(host::Below),
    Daemon(daemon::Below),
}

/// A directory of it.
#[derive(Clone)]
pub struct Dir {
    at: At,
    /// Its path, for people.
    pub path: Vec<u8>,
}

#[derive(Clone)]
enum At {
    Host(host::Dir),
    Daemon(daemon::Dir),
}

/// What stands at a name.
#[derive(Clone, Copy, Debug)]
pub struct There {
    pub attr: Attr,
    pub stamp: Stamp,
    /// Which file it is.
    pub id: Id,
}

impl There {
    /// Known by its number.
    fn of(original: &Original) -> There {
        There { attr: original.attr, stamp: original.stamp, id: (original.stamp.device, original.stamp.number) }
    }
}

pub fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

/// The name of a directory, and what is called so in it.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// As what it lies in the park.
pub fn parked(id: Id) -> Vec<u8> {
    format!("{:x}.{:x}", id.0, id.1).into_bytes()
}

/// The file that a name of the park says.
pub fn parked_id(name: &[u8]) -> Option<Id> {
    let (device, number) = std::str::from_utf8(name).ok()?.split_once('.')?;
    Some((u64::from_str_radix(device, 16).ok()?, u64::from_str_radix(number, 16).ok()?))
}

/// Which file below a node is: by the number there, or, where daemons make those up, by its own.
pub fn id_of_node(cache: &Cache, node: u64, stamp: &Stamp) -> Id {
    if cache.daemon().is_some() { (0, node) } else { (stamp.device, stamp.number) }
}

impl Below {
    /// The directory at `place`, files of which are known by these numbers. `is_trusted`: nobody but this user, or root, may
    /// have written what is to be done there.
    pub fn open(place: &[u8], devices: Devices, is_trusted: bool) -> Result<Below> {
        host::Below::open(place, devices, is_trusted).map(Below::Host)
    }

    /// Whether set-id bits of a file of this user would give more than the owner of the directory has.
    pub fn is_above_owner(&self, uid: u32) -> bool {
        matches!(self, Below::Host(below) if below.owner().is_above(uid))
    }

    /// What is behind a cache.
    pub fn of(cache: &'static Cache) -> Result<Below> {
        match cache.daemon() {
            None => Below::open(cache.place(), cache.devices(), crate::trusted::is_image(cache.fs())),
            Some(daemon) => {
                let park = format!("{PARK}-{:016x}", cache.fs().uuid()[0]).into_bytes();
                Ok(Below::Daemon(daemon::Below { daemon, names: Names::new(cache), root: cache.tree().id, park }))
            }
        }
    }

    /// A round begins.
    pub fn begin(&self, plan: &Plan) -> Result<()> {
        let Below::Daemon(daemon) = self else { return Ok(()) };
        daemon.names.begin(plan, &|path| daemon::is_there(daemon.daemon, path))
    }

    /// What is known of where files stand, if numbers do not say it.
    pub fn names(&self) -> Option<&Names> {
        match self {
            Below::Host(_) => None,
            Below::Daemon(daemon) => Some(&daemon.names),
        }
    }

    /// A directory of it. A daemon's is known by `id` from then on.
    pub fn dir_as(&self, path: &[u8], id: u64) -> Result<Dir> {
        let at = match self {
            Below::Host(below) => below.dir(path).map(At::Host),
            Below::Daemon(below) => below.dir(path, id).map(At::Daemon),
        };
        at.map(|at| Dir { at, path: path.to_vec() })
    }

    /// That at the top.
    pub fn top(&self) -> Result<Dir> {
        let id = if let Below::Daemon(below) = self { below.root } else { 0 };
        self.dir_as(b"", id)
    }

    /// What lies at a path of a directory of the kernel's; `None`: nothing.
    pub fn stat(&self, path: &[u8]) -> Result<Option<There>> {
        if path.is_empty() {
            return self.top()?.stat(b".");
        }
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (dir, name) = cut.map_or((&b""[..], path), |cut| (&path[..cut], &path[cut + 1..]));
        match self.dir_as(dir, 0) {
            Ok(dir) => dir.stat(name),
            Err(failure) if matches!(failure.errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// What the directory for what is on its way is called. Behind a daemon each image has one of its own: another session, or
    /// another machine, may have an image in front of the same files, and numbers its nodes alike.
    pub fn park_name(&self) -> &[u8] {
        match self {
            Below::Host(_) => PARK.as_bytes(),
            Below::Daemon(below) => &below.park,
        }
    }

    /// The directory for what is on its way.
    pub fn park(&self) -> Result<Dir> {
        if let Some(park) = self.park_if()? {
            return Ok(park);
        }
        match self {
            Below::Host(below) => below.make_directory(self.park_name())?,
            Below::Daemon(below) => below.make_directory(self.park_name())?,
        }
        let made = self.park_if()?;
        made.ok_or_else(|| Failure::new(self.park_name(), Errno::ENOENT))
    }

    /// The same if it is there.
    pub fn park_if(&self) -> Result<Option<Dir>> {
        match self.dir_as(self.park_name(), PARK_ID) {
            Err(failure) if failure.errno == Errno::ENOENT => Ok(None),
            opened => {
                let park = opened?;
                if let (Below::Host(below), At::Host(dir)) = (self, &park.at) {
                    below.secure(dir)?;
                }
                Ok(Some(park))
            }
        }
    }

    /// Whether what was written is below only after [`Below::sync`].
    pub fn is_later(&self) -> bool {
        matches!(self, Below::Daemon(below) if below.daemon.syncs_whole())
    }

    /// All of the file system that was written is durable. With most daemons each file is when it has been written.
    pub fn sync(&self) -> Result<()> {
        match self {
            Below::Host(below) => below.sync(),
            Below::Daemon(below) => below.sync(),
        }
    }

    /// A round is over.
    pub fn end(&self) -> Result<()> {
        self.names().map_or(Ok(()), Names::end)
    }
}

/// The same call of either.
macro_rules! either {
    ($self:ident, $dir:ident => $call:expr) => {
        match &$self.at {
            At::Host($dir) => $call,
            At::Daemon($dir) => $call,
        }
    };
}

impl Dir {
    pub fn stat(&self, name: &[u8]) -> Result<Option<There>> {
        either!(self, dir => dir.stat(name))
    }

    /// Whether that file is called so here.
    pub fn has(&self, name: &[u8], id: Id) -> Result<bool> {
        match &self.at {
            At::Host(dir) => Ok(dir.stat(name)?.is_some_and(|there| there.id == id)),
            At::Daemon(dir) => dir.has(name, id),
        }
    }

    /// Only a name of this directory is changed by a call, whatever an image or a journal says; at the top none that is the
    /// cache's own, but the park.
    fn check(&self, name: &[u8]) -> Result<()> {
        let is_own = self.path.is_empty() && cache::is_ours(name) && !name.starts_with(PARK.as_bytes());
        match Name::new(name) {
            Some(_) if !is_own => Ok(()),
            _ => Err(Failure::new(join(&self.path, name), Errno::EUCLEAN)),
        }
    }

    /// `flags`: nothing, `NOREPLACE`, or, of the kernel's, `EXCHANGE`.
    pub fn rename(&self, name: &[u8], to: &Dir, new: &[u8], flags: RenameFlags) -> Result<()> {
        self.check(name)?;
        to.check(new)?;
        match (&self.at, &to.at) {
            (At::Host(from), At::Host(to)) => from.rename(name, to, new, flags),
            (At::Daemon(from), At::Daemon(to)) => from.rename(name, to, new, flags.is_empty()),
            _ => Err(Failure::new(name, Errno::EXDEV)),
        }
    }

    pub fn link(&self, name: &[u8], to: &Dir, new: &[u8]) -> Result<()> {
        self.check(name)?;
        to.check(new)?;
        match (&self.at, &to.at) {
            (At::Host(from), At::Host(to)) => from.link(name, to, new),
            (At::Daemon(from), At::Daemon(to)) => from.link(name, to, new),
            _ => Err(Failure::new(name, Errno::EXDEV)),
        }
    }

    pub fn remove(&self, name: &[u8], is_directory: bool) -> Result<()> {
        self.check(name)?;
        either!(self, dir => dir.remove(name, is_directory))
    }

    pub fn make_directory(&self, name: &[u8]) -> Result<()> {
        self.check(name)?;
        either!(self, dir => dir.make_directory(name))
    }

    pub fn make_symlink(&self, target: &[u8], name: &[u8]) -> Result<()> {
        self.check(name)?;
        either!(self, dir => dir.make_symlink(target, name))
    }

    pub fn make_node(&self, name: &[u8], kind: FileType, device: u64) -> Result<()> {
        self.check(name)?;
        either!(self, dir => dir.make_node(name, kind, device))
    }

    pub fn make_file(&self, name: &[u8]) -> Result<File> {
        self.check(name)?;
        either!(self, dir => dir.make_file(name))
    }

    /// A file, to be written; one that may not be is made so for as long as it takes.
    pub fn open_file(&self, name: &[u8]) -> Result<File> {
        self.check(name)?;
        either!(self, dir => dir.open_file(name))
    }

    pub fn set_mode(&self, name: &[u8], mode: u16) -> Result<()> {
        either!(self, dir => dir.set_mode(name, mode))
    }

    pub fn set_owner(&self, name: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        either!(self, dir => dir.set_owner(name, uid, gid))
    }

    /// Times of last access and change (`None`: as it is), nanoseconds since the epoch.
    pub fn set_times(&self, name: &[u8], atime: Option<i64>, mtime: Option<i64>) -> Result<()> {
        either!(self, dir => dir.set_times(name, atime, mtime))
    }

    /// The same, and the mode, if it is to change.
    pub fn set_last(&self, name: &[u8], mode: Option<u16>, atime: Option<i64>, mtime: Option<i64>) -> Result<()> {
        match &self.at {
            At::Host(dir) => {
                mode.map_or(Ok(()), |mode| dir.set_mode(name, mode))?;
                if atime.is_some() || mtime.is_some() { dir.set_times(name, atime, mtime) } else { Ok(()) }
            }
            At::Daemon(dir) => dir.set_last(name, mode, atime, mtime),
        }
    }

    /// Extended attributes; none where there are none at all.
    pub fn attributes(&self, name: &[u8]) -> Result<Attributes> {
        either!(self, dir => dir.attributes(name))
    }

    pub fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<()> {
        either!(self, dir => dir.set_attribute(name, attribute, value))
    }

    pub fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<()> {
        either!(self, dir => dir.remove_attribute(name, attribute))
    }

    /// All names.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        either!(self, dir => dir.names())
    }

    /// Names in it under which directories with these numbers may stand; none behind a daemon.
    pub fn directories(&self, numbers: &HashSet<u64>) -> Result<Vec<Vec<u8>>> {
        match &self.at {
            At::Host(dir) => dir.directories(numbers),
            At::Daemon(_) => Ok(Vec::new()),
        }
    }

    /// Whether it has not been removed since it was opened, as far as can be told.
    pub fn is_there(&self) -> Result<bool> {
        match &self.at {
            At::Host(dir) => dir.is_there(),
            At::Daemon(_) => Ok(true),
        }
    }

    /// A directory in it.
    pub fn dir(&self, name: &[u8]) -> Result<Dir> {
        let at = match &self.at {
            At::Host(dir) => dir.dir(name).map(At::Host),
            At::Daemon(dir) => dir.dir(name).map(At::Daemon),
        };
        at.map(|at| Dir { at, path: join(&self.path, name) })
    }
}

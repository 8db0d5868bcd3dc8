//! An image in use by this program: attach it, find things in it.

use crate::attach::{Attached, attach, attach_to_read};
use crate::cmd::cache::open_to_change;
use crate::failure::{Failure, Result};
use crate::mounts::cache::refuse_alone;
use crate::place::Place;
use base::{Attr, Cred, Cx, Exit, Found, Last, Node, Scratch, Thread, Walk, ids};
use std::path::Path;
use vfs::Backend;

/// A file system and in whose name it is used. One thread's.
pub struct Tree {
    /// The file system.
    pub backend: &'static dyn Backend,
    attached: Option<Attached>,
    thread: Thread,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// In the namespace.
    is_root: bool,
    scratch: Box<Scratch>,
}

impl Tree {
    /// `backend` in the name of the user who runs this program.
    pub fn new(backend: &'static dyn Backend) -> Tree {
        posix::namespace::look();
        let group = |id: rustix::process::Gid| ids::group(id.as_raw()).unwrap_or(id.as_raw());
        let groups = rustix::process::getgroups().unwrap_or_default().into_iter().map(group).collect();
        let uid = rustix::process::geteuid().as_raw();
        Tree {
            backend,
            attached: None,
            thread: Thread::new(),
            uid: ids::user(uid).unwrap_or(uid),
            gid: group(rustix::process::getegid()),
            is_root: uid == 0,
            groups,
            scratch: Box::new(Scratch::new()),
        }
    }

    /// The image of a place, to change it: where the place is seen through a cache, with what is behind that.
    pub fn attach_at(place: &Place) -> Result<Tree> {
        if !place.is_cached {
            return Tree::attach(&place.image);
        }
        let (attached, cache) = open_to_change(&place.image)?;
        let mut tree = Tree::new(cache);
        tree.attached = Some(attached);
        Ok(tree)
    }

    /// The same, to read it.
    pub fn attach_to_read_at(place: &Place) -> Result<Tree> {
        if place.is_cached { Tree::attach_at(place) } else { Tree::attach_to_read(&place.image) }
    }

    /// The image at `path`, to change it.
    pub fn attach(path: &Path) -> Result<Tree> {
        let attached = attach(path)?;
        refuse_alone(attached.fs, path).inspect_err(|_| attached.leave())?;
        Ok(Tree::of(attached))
    }

    /// The image at `path`, to read it; its file need not be writable.
    pub fn attach_to_read(path: &Path) -> Result<Tree> {
        Ok(Tree::of(attach_to_read(path)?))
    }

    fn of(attached: Attached) -> Tree {
        let mut tree = Tree::new(attached.backend);
        tree.attached = Some(attached);
        tree
    }

    /// Leaves the image: gives back the lane, and takes the segment away if nobody else uses it.
    fn finish(&self) {
        if let Some(attached) = self.attached {
            attached.fs.end_session(&self.cx());
        }
    }

    /// The image itself.
    pub fn image(&self) -> Option<&'static engine::Fs> {
        self.attached.map(|attached| attached.fs)
    }

    /// The context of a call. Modes are given in full, so no mask applies.
    pub fn cx(&self) -> Cx<'_> {
        let (privileged, within) = (self.is_privileged(), self.is_root && !ids::is_initial());
        let cred = Cred { uid: self.uid, gid: self.gid, groups: &self.groups, privileged, privileged_within: within };
        Cx { cred, umask: 0, thread: &self.thread }
    }

    /// Whether the user is root, and not of another user namespace only.
    pub fn is_privileged(&self) -> bool {
        self.is_root && ids::is_initial()
    }

    /// The node at `place`; symlinks at its end are followed if `follow`.
    pub fn find(&mut self, place: &Place, follow: bool) -> Result<Node> {
        let last = if follow { Last::Follow } else { Last::NoFollow };
        let found = self.walk(place, &place.path, last)?;
        found.ok_or_else(|| Failure::errno(place, pm::Errno::ENOENT))
    }

    /// Whether a directory lies there.
    pub fn is_directory(&mut self, place: &Place) -> Result<bool> {
        let Ok(Some(node)) = self.walk(place, &place.path, Last::Follow) else { return Ok(false) };
        Ok(self.attr(place, node)?.kind == base::Kind::Directory)
    }

    /// What is at `path` (of the same image as `place`, which is named in errors).
    fn walk(&mut self, place: &Place, path: &[u8], last: Last) -> Result<Option<Node>> {
        let root = self.backend.root();
        let rest = trim_start(path);
        if rest.is_empty() {
            return Ok(Some(root));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let walked = self.backend.walk(&self.cx(), root, rest, last, &mut 0, None, &mut scratch);
        let answer = match walked {
            Ok(Walk::Found(Found { node, .. })) => Ok(node),
            Ok(Walk::Exit(Exit::Above { .. })) => {
                Err(Failure::new(format!("{place}: leads out of the image; write a path below its root")))
            }
            Ok(Walk::Exit(Exit::Absolute { path })) => {
                let target = String::from_utf8_lossy(path);
                Err(Failure::new(format!("{place}: a symlink leads out of the image, to {target}; name that file itself")))
            }
            Ok(Walk::Exit(Exit::Mountpoint { node, .. })) => Ok(Some(node)),
            Err(error) if error.errno() == pm::Errno::ENOENT => Ok(None),
            Err(error) => Err(Failure::engine(place, error)),
        };
        self.scratch = scratch;
        answer
    }

    /// The directory at `path` of `place`'s image, made with all its parents if it is not there.
    pub fn make_directories(&mut self, place: &Place, path: &[u8]) -> Result<Node> {
        let mut dir = self.backend.root();
        let mut upto = 0;
        for part in path.split(|&b| b == b'/') {
            upto += part.len() + 1;
            if part.is_empty() {
                continue;
            }
            let so_far = &path[..(upto - 1).min(path.len())];
            dir = match self.walk(place, so_far, Last::Follow)? {
                Some(node) => node,
                None => {
                    let new = base::NewNode { kind: base::Kind::Directory, mode: 0o755, rdev: 0, target: b"" };
                    self.backend.create(&self.cx(), dir, part, &new).map_err(|error| Failure::engine(place, error))?
                }
            };
        }
        Ok(dir)
    }

    /// Attributes of a node; `what` is named in errors.
    pub fn attr(&self, what: &dyn std::fmt::Display, node: Node) -> Result<Attr> {
        self.backend.attr(&self.cx(), node).map_err(|error| Failure::engine(what, error))
    }

    /// Names in a directory, without `.` and `..`, sorted. Asks for read permission.
    pub fn list(&self, what: &dyn std::fmt::Display, dir: Node) -> Result<Vec<Vec<u8>>> {
        let cx = self.cx();
        self.backend.access(&cx, dir, base::R).map_err(|error| Failure::engine(what, error))?;
        let mut names = Vec::new();
        self.backend
            .readdir(&cx, dir, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push(entry.name.to_vec());
                }
                true
            })
            .map_err(|error| Failure::engine(what, error))?;
        names.sort_unstable();
        Ok(names)
    }

    /// The node called `name` in `dir`, if there is one.
    pub fn lookup(&self, what: &dyn std::fmt::Display, dir: Node, name: &[u8]) -> Result<Option<Node>> {
        match self.backend.lookup(&self.cx(), dir, name) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.errno() == pm::Errno::ENOENT => Ok(None),
            Err(error) => Err(Failure::engine(what, error)),
        }
    }

    /// Target of a symlink.
    pub fn target(&self, what: &dyn std::fmt::Display, node: Node) -> Result<Vec<u8>> {
        let mut text = vec![0; base::PATH_MAX];
        let len = self
            .backend
            .readlink(&self.cx(), node, pm::UserSlice::from_mut(&mut text))
            .map_err(|error| Failure::engine(what, error))?;
        text.truncate(len);
        Ok(text)
    }
}

fn trim_start(path: &[u8]) -> &[u8] {
    let slashes = path.iter().take_while(|&&b| b == b'/').count();
    &path[slashes..]
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.finish();
    }
}

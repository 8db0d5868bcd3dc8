//! The protocol: a request of bytes in, an answer of bytes out.

use crate::contents::now;
use crate::nodes::{Node, Set, lock};
use crate::tree::{DT_DIR, Tree};
use pm::Errno;
use server::fuse::abi::{self, *};
use server::fuse::message::{Body, Reply, Result, err};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const SECOND: i64 = 1_000_000_000;
/// How long the session believes names and attributes, seconds.
const BELIEVED_S: u64 = crate::listing::BELIEVED.as_secs();
/// What files, and directories, are that nobody has given a mode.
pub const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const S_IFMT: u32 = 0o170000;
const S_IFREG: u32 = 0o100000;
const S_IFDIR: u32 = 0o040000;
const S_IFLNK: u32 = 0o120000;
const ACCESS: u32 = 34;

/// Names, numbers, and types (`DT_…`).
type Names = Vec<(String, u64, u32)>;

/// Who answers.
pub struct Requests {
    tree: Tree,
    directories: Mutex<HashMap<u64, Arc<Names>>>,
    next: AtomicU64,
    owner: (u32, u32),
}

impl Requests {
    /// Answers for a tree, whose files are this user's.
    pub fn new(tree: Tree) -> Requests {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Requests { tree, directories: Mutex::default(), next: AtomicU64::new(1), owner }
    }

    /// What is asked about.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Answers one request; `None` where there is nothing to be sent.
    pub fn answer<'r>(&self, request: &[u8], reply: &'r mut Reply) -> Option<&'r [u8]> {
        reply.clear();
        let (header, body) = Body::split(request)?;
        if matches!(header.opcode, op::FORGET | op::BATCH_FORGET) {
            self.forget(&header, body);
            return None;
        }
        if header.opcode == op::INTERRUPT {
            return None;
        }
        let done = self.dispatch(&header, body, reply);
        Some(reply.finish(header.unique, done))
    }

    fn dispatch(&self, header: &InHeader, body: Body, reply: &mut Reply) -> Result<()> {
        if header.opcode == op::INIT {
            return self.init(body, reply);
        }
        if header.opcode == op::DESTROY {
            return Ok(());
        }
        if header.opcode == op::STATFS {
            return statfs(reply);
        }
        let node = self.tree.node(header.node)?;
        match header.opcode {
            op::LOOKUP => self.lookup(&node, body, reply),
            op::GETATTR => self.attributes(&node, reply),
            op::SETATTR => self.set_attributes(&node, body, reply),
            op::MKNOD => self.mknod(&node, body, reply),
            op::MKDIR => self.mkdir(&node, body, reply),
            op::UNLINK => Ok(self.tree.unlink(&node, named(body)?)?),
            op::RMDIR => Ok(self.tree.rmdir(&node, named(body)?)?),
            op::RENAME | op::RENAME2 => self.rename(&node, header.opcode, body),
            // There is one name for an object, and none for what is neither a file nor a directory.
            op::LINK => err(Errno::EPERM),
            op::SYMLINK => self.symlink(&node, body, reply),
            op::READLINK => {
                reply.bytes(&self.tree.read_link(&node)?);
                Ok(())
            }
            op::OPEN => self.open(&node, reply),
            op::CREATE => self.create(&node, body, reply),
            op::OPENDIR => self.open_directory(reply),
            op::RELEASEDIR => self.release_directory(body),
            op::READDIR => self.read_directory(&node, body, reply),
            op::READ => self.read(&node, body, reply),
            op::WRITE => self.write(&node, body, reply),
            op::FLUSH => Ok(self.tree.closed(&node)?),
            op::FSYNC => Ok(self.tree.flush(&node)?),
            op::SYNCFS => Ok(self.tree.sync_all()?),
            op::RELEASE => {
                self.tree.release(&node);
                Ok(())
            }
            op::FALLOCATE => self.allocate(&node, body),
            // A name is in the store as soon as it is made.
            op::FSYNCDIR | ACCESS => Ok(()),
            _ => err(Errno::ENOSYS),
        }
    }

    fn init(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let [major, minor, readahead, flags] = body.take::<[u32; 4]>()?;
        if major != MAJOR {
            return err(Errno::EPROTO);
        }
        let wanted = init::ASYNC_READ | init::BIG_WRITES | init::PARALLEL_DIROPS | init::MAX_PAGES;
        let flags = flags & wanted as u32;
        let write_max = fuse_client::ring::DATA_MAX as u32;
        reply.put(&InitOut { major: MAJOR, minor: minor.min(abi::MINOR), readahead, flags, write_max, ..InitOut::default() });
        Ok(())
    }

    fn forget(&self, header: &InHeader, mut body: Body) {
        let mut table = lock(&self.tree.table);
        if header.opcode == op::FORGET {
            if let Ok(asked) = body.take::<ForgetIn>() {
                table.forget(header.node, asked.times);
            }
            return;
        }
        let count = body.take::<ForgetManyIn>().map_or(0, |asked| asked.count);
        for _ in 0..count {
            let Ok(one) = body.take::<ForgetOne>() else { return };
            table.forget(one.node, one.times);
        }
    }

    // ---- attributes ----

    fn attr(&self, node: &Node) -> FuseAttr {
        let place = lock(&node.place);
        let (meta, path, is_gone) = (place.meta.clone(), place.path.clone(), place.is_gone);
        drop(place);
        let set = if is_gone { Set::default() } else { lock(&self.tree.table).set_of(&path) };
        let mtime = set.mtime.unwrap_or(meta.mtime);
        let atime = set.atime.unwrap_or(mtime);
        let (kind, mode) = match (node.is_dir, node.is_link) {
            (true, _) => (S_IFDIR, DIRECTORY_MODE),
            (_, true) => (S_IFLNK, 0o777),
            _ => (S_IFREG, FILE_MODE),
        };
        let (seconds, parts) = (|ns: i64| ns.div_euclid(SECOND) as u64, |ns: i64| ns.rem_euclid(SECOND) as u32);
        FuseAttr {
            ino: node.ino,
            size: meta.size,
            blocks: meta.size.div_ceil(512),
            atime: seconds(atime),
            mtime: seconds(mtime),
            ctime: seconds(meta.mtime),
            atime_ns: parts(atime),
            mtime_ns: parts(mtime),
            ctime_ns: parts(meta.mtime),
            mode: kind | set.mode.unwrap_or(mode),
            nlink: if is_gone { 0 } else { 1 },
            uid: set.uid.unwrap_or(self.owner.0),
            gid: set.gid.unwrap_or(self.owner.1),
            block_bytes: 4096,
            ..FuseAttr::default()
        }
    }

    fn entry(&self, node: &Node) -> EntryOut {
        let attr = self.attr(node);
        EntryOut { node: node.id, entry_s: BELIEVED_S, attr_s: BELIEVED_S, attr, ..EntryOut::default() }
    }

    fn lookup(&self, directory: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let node = self.tree.lookup(directory, body.text()?)?;
        reply.put(&self.entry(&node));
        Ok(())
    }

    fn attributes(&self, node: &Node, reply: &mut Reply) -> Result<()> {
        self.tree.refresh(node)?;
        reply.put(&AttrOut { valid_s: BELIEVED_S, attr: self.attr(node), ..AttrOut::default() });
        Ok(())
    }

    fn set_attributes(&self, node: &Arc<Node>, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: SetAttrIn = body.take()?;
        if asked.valid & set::SIZE != 0 {
            if node.is_dir {
                return err(Errno::EISDIR);
            }
            self.tree.truncate(node, asked.size)?;
        }
        let time = |at: u32, is_now: u32, seconds: u64, parts: u32| {
            let said = (seconds as i64).saturating_mul(SECOND).saturating_add(i64::from(parts));
            (asked.valid & at != 0).then(|| if asked.valid & is_now != 0 { now() } else { said })
        };
        let change = Set {
            mode: (asked.valid & set::MODE != 0).then_some(asked.mode & 0o7777),
            uid: (asked.valid & set::UID != 0).then_some(asked.uid),
            gid: (asked.valid & set::GID != 0).then_some(asked.gid),
            atime: time(set::ATIME, set::ATIME_NOW, asked.atime, asked.atime_ns),
            mtime: time(set::MTIME, set::MTIME_NOW, asked.mtime, asked.mtime_ns),
            is_link: node.is_link,
        };
        if let Ok(path) = node.path() {
            let mut table = lock(&self.tree.table);
            if asked.valid & set::SIZE != 0 {
                table.changed(&path);
            }
            table.set(&path, |set| {
                *set = Set {
                    mode: change.mode.or(set.mode),
                    uid: change.uid.or(set.uid),
                    gid: change.gid.or(set.gid),
                    atime: change.atime.or(set.atime),
                    mtime: change.mtime.or(set.mtime),
                    is_link: set.is_link,
                };
            });
            drop(table);
            if asked.valid & (set::MODE | set::UID | set::GID | set::MTIME) != 0 {
                self.tree.keep(node)?;
            }
        }
        self.attributes(node, reply)
    }

    // ---- names ----

    fn mknod(&self, directory: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: MknodIn = body.take()?;
        if asked.mode & S_IFMT != S_IFREG {
            return err(Errno::EPERM);
        }
        let node = self.tree.create(directory, body.text()?, Set::with_mode(asked.mode & !asked.umask))?;
        let stored = self.tree.closed(&node);
        self.tree.release(&node);
        stored?;
        reply.put(&self.entry(&node));
        Ok(())
    }

    fn symlink(&self, directory: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let (name, target) = (body.text()?, body.text()?);
        let node = self.tree.symlink(directory, name, target)?;
        reply.put(&self.entry(&node));
        Ok(())
    }

    fn mkdir(&self, directory: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: MkdirIn = body.take()?;
        let node = self.tree.mkdir(directory, body.text()?, asked.mode)?;
        reply.put(&self.entry(&node));
        Ok(())
    }

    fn rename(&self, directory: &Node, opcode: u32, mut body: Body) -> Result<()> {
        const NO_REPLACE: u32 = 1;
        let (to, flags) = match opcode {
            op::RENAME => (body.take::<RenameIn>()?.to, 0),
            _ => {
                let asked: Rename2In = body.take()?;
                (asked.to, asked.flags)
            }
        };
        if flags & !NO_REPLACE != 0 {
            return err(Errno::EINVAL);
        }
        let (old, new) = (body.text()?, body.text()?);
        let to = self.tree.node(to)?;
        Ok(self.tree.rename((directory, old), (&to, new), flags & NO_REPLACE != 0)?)
    }

    // ---- files ----

    fn open(&self, node: &Node, reply: &mut Reply) -> Result<()> {
        if node.is_dir {
            return err(Errno::EISDIR);
        }
        let keeps = self.tree.open(node)?;
        let flags = if keeps { OPEN_KEEP_CACHE } else { 0 };
        reply.put(&OpenOut { handle: node.id, flags, backing: 0 });
        Ok(())
    }

    fn create(&self, directory: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: CreateIn = body.take()?;
        let node = self.tree.create(directory, body.text()?, Set::with_mode(asked.mode))?;
        reply.put(&self.entry(&node));
        reply.put(&OpenOut { handle: node.id, flags: OPEN_KEEP_CACHE, backing: 0 });
        Ok(())
    }

    fn read(&self, node: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: ReadIn = body.take()?;
        let size = (asked.size as usize).min(fuse_client::ring::DATA_MAX);
        reply.fill(size, |room| {
            let mut contents = lock(&node.contents);
            Ok(contents.read(self.tree.store, node, asked.offset, room)?)
        })
    }

    fn write(&self, node: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: WriteIn = body.take()?;
        let data = body.bytes(asked.size)?;
        lock(&node.contents).write(self.tree.store, &self.tree.spool, node, asked.offset, data)?;
        if let Ok(path) = node.path() {
            lock(&self.tree.table).changed(&path);
        }
        reply.put(&WriteOut { size: asked.size, padding: 0 });
        Ok(())
    }

    fn allocate(&self, node: &Node, mut body: Body) -> Result<()> {
        let asked: FallocateIn = body.take()?;
        if asked.mode != 0 {
            return err(Errno::EOPNOTSUPP);
        }
        let range = (asked.offset, asked.len);
        Ok(lock(&node.contents).allocate(self.tree.store, &self.tree.spool, node, range)?)
    }

    // ---- directories ----

    fn open_directory(&self, reply: &mut Reply) -> Result<()> {
        reply.put(&OpenOut { handle: self.next.fetch_add(1, Relaxed), flags: 0, backing: 0 });
        Ok(())
    }

    fn release_directory(&self, mut body: Body) -> Result<()> {
        let asked: ReleaseIn = body.take()?;
        lock(&self.directories).remove(&asked.handle);
        Ok(())
    }

    fn read_directory(&self, node: &Node, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: ReadIn = body.take()?;
        let held = lock(&self.directories).get(&asked.handle).cloned();
        let names = match held.filter(|_| asked.offset != 0) {
            Some(names) => names,
            None => {
                let names = Arc::new(self.tree.list(node)?);
                lock(&self.directories).insert(asked.handle, Arc::clone(&names));
                names
            }
        };
        let dots = [(".", node.ino, DT_DIR), ("..", node.ino, DT_DIR)].into_iter();
        let all = dots.chain(names.iter().map(|(name, ino, kind)| (name.as_str(), *ino, *kind)));
        let mut left = asked.size as usize;
        for (next, (name, ino, kind)) in (1u64..).zip(all).skip(asked.offset as usize) {
            let size = (size_of::<DirentHead>() + name.len()).next_multiple_of(8);
            if size > left {
                break;
            }
            left -= size;
            reply.put(&DirentHead { ino, next, name_len: name.len() as u32, kind });
            reply.bytes(name.as_bytes());
            reply.align();
        }
        Ok(())
    }
}

/// The one name of a request.
fn named(mut body: Body<'_>) -> Result<&[u8]> {
    body.text()
}

/// A store does not say how much room there is.
fn statfs(reply: &mut Reply) -> Result<()> {
    const BLOCKS: u64 = 1 << 40;
    const FILES: u64 = 1 << 40;
    reply.put(&StatfsOut {
        blocks: BLOCKS,
        free: BLOCKS,
        available: BLOCKS,
        files: FILES,
        files_free: FILES,
        block_bytes: 4096,
        name_max: 255,
        fragment: 4096,
        ..StatfsOut::default()
    });
    Ok(())
}

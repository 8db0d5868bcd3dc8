//! Nodes with their names: dentry cache, negative entries, attributes.
//!
//! A node is a name in a directory (`parent`, `name`), found through a hash over
//! both; what it was the lower file system's name for is its `key` (a FUSE node id, an inode
//! number). Another name of the same file is another node with the same key.
//! An entry is believed until `entry_until`, its attributes until `attr_until`. A directory in which a name is made or goes
//! has other times then, but who may do what there is believed until `rights_until`.

mod chains;
mod fast;
mod gone;
mod held;
mod keys;
mod paths;
mod slots;

use super::changes::{Moment, Of};
use super::{NODES, SessionCache, damaged};
use base::stat::Figures;
use base::{Attr, Errno, Error, Kind, Node, Result};
use chains::hash_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
pub use fast::Rule;
use zerocopy::{FromBytes, KnownLayout};

const FREE: u32 = 0;
/// Has a name and is in the hash.
const NAMED: u32 = 1;
/// A name that is known not to be there.
const NEGATIVE: u32 = 2;
/// Lost its name; somebody still has it open or is in it.
const UNNAMED: u32 = 3;

/// How long a node is kept that has lost its name.
const GRACE_NS: u64 = 1_000_000_000;

/// Longest name, in bytes.
const NAME_MAX: usize = 255;

/// A node, 512 bytes.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C, align(64))]
pub struct Record {
    state: AtomicU32,
    generation: AtomicU32,
    parent: AtomicU32,
    /// Next in the chain, + 1.
    next: AtomicU32,
    hash: AtomicU32,
    name_len: AtomicU32,
    /// Nodes whose parent this is.
    children: AtomicU32,
    /// Descriptions that keep it, and 1 for the root.
    pub(super) holds: AtomicU32,
    /// What the lower file system calls it.
    pub key: AtomicU64,
    /// How often the lower file system was asked for it, if the lower file system counts.
    pub lookups: AtomicU64,
    /// Incarnation of the daemon in which `key` and `handles` hold.
    pub incarnation: AtomicU32,
    touched: AtomicU32,
    entry_until: AtomicU64,
    attr_until: AtomicU64,
    /// The lower file system's handles: for reading, for writing, for appending. Present as `handle_bits` says.
    pub handles: [AtomicU64; 3],
    /// Bit 0: a handle for reading; bit 1: one for writing; bit 4: one for appending.
    pub handle_bits: AtomicU32,
    /// Whether pages are kept: [`Caching`].
    pub caching: AtomicU32,
    pub(super) ino: AtomicU64,
    kind_mode: AtomicU32,
    nlink: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    rdev: AtomicU64,
    size: AtomicU64,
    blocks: AtomicU64,
    times: [AtomicU64; 4],
    device: AtomicU64,
    /// Incarnation of the daemon in which the handles hold.
    pub handle_incarnation: AtomicU32,
    /// Its name was removed by one of us, so that a directory is empty for good.
    pub removed: AtomicU32,
    /// Where the last read ended.
    pub(super) read_on: AtomicU64,
    /// The number of the last change of a node when the attributes were asked for.
    attr_asked: AtomicU64,
    /// Its place among the changes of nodes: when it was first entered under this name.
    named_at: AtomicU64,
    rights_until: AtomicU64,
    reserved: [AtomicU64; 3],
    name: [AtomicU64; 32],
}

const _: () = assert!(size_of::<Record>() == 512);

impl Record {
    #[inline]
    pub(super) fn in_use(&self) -> bool {
        matches!(self.state.load(Relaxed), NAMED | UNNAMED)
    }

    /// Type of the node.
    pub fn kind(&self) -> Kind {
        Kind::from_dt((self.kind_mode.load(Relaxed) >> 12) as u8 & 15).unwrap_or(Kind::Regular)
    }

    /// `st_dev`, if the lower file system says so.
    pub fn device(&self) -> u64 {
        self.device.load(Relaxed)
    }

    /// Whether it has its name only since `asked`.
    fn is_named_since(&self, asked: Moment) -> bool {
        self.named_at.load(Relaxed) > asked.nodes
    }

    /// Whether others have changed the contents, as far as attributes tell.
    fn is_changed_by(&self, attr: &Attr) -> bool {
        let known = self.attr_until.load(Relaxed) != 0;
        known && (self.size.load(Relaxed) != attr.size || self.times[1].load(Relaxed) as i64 != attr.mtime)
    }

    fn put_attr(&self, attr: &Attr, until: u64, asked: Moment) {
        self.attr_asked.store(asked.nodes, Relaxed);
        self.ino.store(attr.ino, Relaxed);
        self.kind_mode.store(attr.kind.type_bits() | u32::from(attr.mode), Relaxed);
        self.nlink.store(attr.nlink, Relaxed);
        self.uid.store(attr.uid, Relaxed);
        self.gid.store(attr.gid, Relaxed);
        self.rdev.store(attr.rdev, Relaxed);
        self.size.store(attr.size, Relaxed);
        self.blocks.store(attr.blocks, Relaxed);
        let times = [attr.atime, attr.mtime, attr.ctime, attr.btime.unwrap_or(i64::MIN)];
        self.times.iter().zip(times).for_each(|(word, time)| word.store(time as u64, Relaxed));
        self.attr_until.store(until, Relaxed);
        self.rights_until.store(until, Relaxed);
    }

    /// Nothing of its attributes is believed any more.
    fn doubt_attr(&self) {
        self.attr_until.store(0, Relaxed);
        self.rights_until.store(0, Relaxed);
    }

    /// What a `stat` shows; `device` where the lower file system says none.
    #[inline(always)]
    fn figures(&self, device: u64) -> Figures {
        let time = |index: usize| self.times[index].load(Relaxed) as i64;
        Figures {
            device: match self.device() {
                0 => device,
                own => own,
            },
            ino: self.ino.load(Relaxed),
            mode: self.kind_mode.load(Relaxed),
            nlink: self.nlink.load(Relaxed),
            uid: self.uid.load(Relaxed),
            gid: self.gid.load(Relaxed),
            rdev: self.rdev.load(Relaxed),
            size: self.size.load(Relaxed),
            blocks: self.blocks.load(Relaxed),
            atime: time(0),
            mtime: time(1),
            ctime: time(2),
        }
    }

    fn get_attr(&self) -> Attr {
        let time = |index: usize| self.times[index].load(Relaxed) as i64;
        Attr {
            ino: self.ino.load(Relaxed),
            kind: self.kind(),
            mode: self.kind_mode.load(Relaxed) as u16 & 0o7777,
            nlink: self.nlink.load(Relaxed),
            uid: self.uid.load(Relaxed),
            gid: self.gid.load(Relaxed),
            rdev: self.rdev.load(Relaxed),
            size: self.size.load(Relaxed),
            blocks: self.blocks.load(Relaxed),
            atime: time(0),
            mtime: time(1),
            ctime: time(2),
            btime: (time(3) != i64::MIN).then_some(time(3)),
        }
    }
}

/// Whether pages of a file are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Caching {
    /// They are not.
    None = 0,
    /// Until it is opened again.
    WhileOpen = 1,
    /// As long as there is room.
    AcrossOpens = 2,
}

/// What a lower file system answers to a look-up.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What it calls the node.
    pub key: u64,
    /// `st_dev`; 0: the mount's.
    pub device: u64,
    /// Attributes.
    pub attr: Attr,
    /// How long the name may be believed, nanoseconds.
    pub entry_ns: u64,
    /// How long the attributes may be believed, nanoseconds.
    pub attr_ns: u64,
    /// Incarnation of the daemon that the key belongs to.
    pub incarnation: u32,
    /// A handle for reading and writing that came with the node.
    pub handle: Option<u64>,
    /// Whether pages of it are kept, if it came with a handle.
    pub caching: Caching,
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    Node(Node),
    /// It is not there.
    Absent,
    /// Ask the lower file system.
    Unknown,
}

/// Whether `incarnation` is before `other`.
fn is_past(incarnation: u32, other: u32) -> bool {
    (incarnation.wrapping_sub(other) as i32) < 0
}

/// Until when what was told at `now` is believed; 0 stands for what is known to have changed.
fn until(now: u64, ns: u64) -> u64 {
    if ns == 0 { 1 } else { now.saturating_add(ns) }
}

impl SessionCache {
    /// The record in slot `index`.
    #[inline]
    pub(crate) fn record(&self, index: u32) -> Option<&Record> {
        self.records.get(index)
    }

    fn node_of(&self, index: u32, record: &Record) -> Node {
        Node { id: u64::from(record.generation.load(Relaxed)) << 32 | u64::from(index), hint: record.kind() as u32 }
    }

    /// The record of a node; `ESTALE` if it is another's now.
    #[inline]
    pub fn get(&self, node: Node) -> Result<&Record> {
        match self.record(node.id as u32) {
            Some(record) if record.in_use() && u64::from(record.generation.load(Relaxed)) == node.id >> 32 => Ok(record),
            _ => Err(Error::Posix(Errno::ESTALE)),
        }
    }

    /// The root directory, made at the first call.
    pub fn root(&self) -> Node {
        let Some(record) = self.record(0) else { return Node { id: 0, hint: 4 } };
        if record.state.load(Acquire) == FREE {
            let _guard = self.lock();
            if record.state.load(Acquire) == FREE {
                record.kind_mode.store(Kind::Directory.type_bits() | 0o755, Relaxed);
                record.holds.store(1, Relaxed);
                record.key.store(1, Relaxed);
                self.header().nodes_high.fetch_max(1, Relaxed);
                record.state.store(UNNAMED, Release);
            }
        }
        self.node_of(0, record)
    }

    /// What the cache knows of `name` in `dir`.
    pub fn find(&self, dir: Node, name: &[u8]) -> Result<Found> {
        if let Some(found) = self.find_fast(dir, name) {
            return Ok(found);
        }
        let guard = self.lock();
        self.get(dir)?;
        let hash = hash_of(dir.id as u32, name);
        if let Some(index) = self.search(&guard, dir.id as u32, name, hash)?
            && let Some(record) = self.record(index)
            && Self::now() < record.entry_until.load(Relaxed)
        {
            self.found(record, 1);
            return Ok(self.found_at(index, record));
        }
        self.header().misses.fetch_add(1, Relaxed);
        Ok(Found::Unknown)
    }

    /// The node that was last seen under `name` in `dir`, believed or not.
    pub fn last_known(&self, dir: Node, name: &[u8]) -> Option<Node> {
        let guard = self.lock();
        let index = self.search(&guard, dir.id as u32, name, hash_of(dir.id as u32, name)).ok()??;
        let record = self.record(index).filter(|record| record.state.load(Relaxed) == NAMED)?;
        Some(self.node_of(index, record))
    }

    /// A name was found that is believed, at the end of `names` of them.
    #[inline(always)]
    fn found(&self, record: &Record, names: u64) {
        self.header().hits.fetch_add(names, Relaxed);
        if record.touched.load(Relaxed) == 0 {
            record.touched.store(1, Relaxed);
        }
    }

    fn found_at(&self, index: u32, record: &Record) -> Found {
        match record.state.load(Relaxed) {
            NEGATIVE => Found::Absent,
            _ => Found::Node(self.node_of(index, record)),
        }
    }

    /// Attributes, if they may still be believed.
    pub fn attr(&self, node: Node) -> Result<Option<Attr>> {
        if let Some(attr) = self.attr_fast(node) {
            return Ok(Some(attr));
        }
        let _guard = self.lock();
        let record = self.get(node)?;
        Ok(self.has_attr(record, Self::now()).then(|| record.get_attr()))
    }

    /// Whether a node's attributes may still be believed.
    #[inline(always)]
    fn has_attr(&self, record: &Record, now: u64) -> bool {
        // Other names of the node tell of its changes through its key.
        let fresh = record.attr_asked.load(Relaxed) >= self.last_change(Of::Attributes, record.key.load(Relaxed));
        fresh && now < record.attr_until.load(Relaxed)
    }

    /// Whether a node's type, mode and owner may still be believed.
    #[inline(always)]
    fn has_rights(&self, record: &Record, now: u64) -> bool {
        let fresh = record.attr_asked.load(Relaxed) >= self.last_change(Of::Rights, record.key.load(Relaxed));
        fresh && now < record.rights_until.load(Relaxed)
    }

    /// Attributes of which type, mode and owner may still be believed.
    pub fn rights(&self, node: Node) -> Result<Option<Attr>> {
        let _guard = self.lock();
        let record = self.get(node)?;
        Ok(self.has_rights(record, Self::now()).then(|| record.get_attr()))
    }

    /// Attributes of a node that the caller has just looked up, if none of us has changed them since.
    pub fn attr_looked_up(&self, node: Node) -> Result<Option<Attr>> {
        if let Some(attr) = self.attr_fast(node) {
            return Ok(Some(attr));
        }
        let _guard = self.lock();
        let record = self.get(node)?;
        let fresh = record.attr_asked.load(Relaxed) >= self.last_change(Of::Attributes, record.key.load(Relaxed));
        Ok(fresh.then(|| record.get_attr()))
    }

    /// Attributes as they were last seen.
    pub fn last_attr(&self, node: Node) -> Result<Attr> {
        let _guard = self.lock();
        Ok(self.get(node)?.get_attr())
    }

    /// How large a file was when it was last looked at.
    pub(super) fn last_size(&self, node: Node) -> Result<u64> {
        Ok(self.get(node)?.size.load(Relaxed))
    }

    /// Puts attributes that the lower file system told when it was asked at `asked`. If they
    /// changed since, they are not believed beyond this call.
    pub fn set_attr(&self, node: Node, attr: &Attr, ns: u64, asked: Moment) -> Result<()> {
        let now = Self::now();
        let _guard = self.lock();
        let record = self.get(node)?;
        let key = record.key.load(Relaxed);
        if record.is_changed_by(attr) {
            self.note_change(Of::Contents, key);
        }
        record.put_attr(attr, until(now, ns), asked);
        Ok(())
    }

    /// The attributes of a node (and of its other names) are to be asked for again.
    pub fn forget_attr(&self, node: Node) {
        let _guard = self.lock();
        let Ok(record) = self.get(node) else { return };
        self.note_change(Of::Attributes, record.key.load(Relaxed));
        self.note_change(Of::Rights, record.key.load(Relaxed));
        record.doubt_attr();
    }

    /// One of us has made or taken a name of this directory: its times, size and links are others, not its mode nor its owner.
    pub fn names_changed(&self, dir: Node) {
        let _guard = self.lock();
        let Ok(record) = self.get(dir) else { return };
        self.note_change(Of::Attributes, record.key.load(Relaxed));
        record.attr_until.store(0, Relaxed);
    }

    /// The lower file system says that attributes of what it calls `key` are others now, and `contents` perhaps.
    pub fn invalidate(&self, key: u64, contents: bool) {
        self.note_change(Of::Attributes, key);
        self.note_change(Of::Rights, key);
        if contents {
            self.note_change(Of::Contents, key);
        }
    }

    /// It says that `name` is another one's, or nobody's, in the directory that it calls `dir`.
    pub fn invalidate_name(&self, dir: u64, name: &[u8]) {
        self.invalidate(dir, false);
        let is_meant = |record: &&Record| record.in_use() && record.kind() == Kind::Directory && record.key.load(Relaxed) == dir;
        let high = self.header().nodes_high.load(Acquire).min(NODES);
        let found = (0..high).find_map(|index| Some((index, self.record(index).filter(is_meant)?)));
        match found {
            Some((index, record)) => drop(self.doubt(self.node_of(index, record), name)),
            // What is on its way into the cache is not to stay.
            None => self.changed(),
        }
    }

    /// Enters what the lower file system said of `name` in `dir` when it was asked at `asked`.
    /// What changed since is not believed beyond this call. `forget` is told of
    /// keys that nobody knows any more, with their count of look-ups.
    pub fn enter(
        &self,
        dir: Node,
        name: &[u8],
        entry: &Entry,
        asked: Moment,
        forget: &mut dyn FnMut(u64, u64, u32),
    ) -> Result<Node> {
        let now = Self::now();
        let guard = self.lock();
        self.get(dir)?;
        let fresh = self.changes() == asked.names;
        let hash = hash_of(dir.id as u32, name);
        let mut index = self.search(&guard, dir.id as u32, name, hash)?;
        if let Some(found) = index
            && let Some(record) = self.record(found)
        {
            let same =
                record.state.load(Relaxed) == NAMED && record.key.load(Relaxed) == entry.key && record.kind() == entry.attr.kind;
            if !same {
                self.drop_name(&guard, found, forget)?;
                index = None;
            }
        }
        let is_new = index.is_none();
        let index = match index {
            Some(index) => index,
            None => self.insert(&guard, dir.id as u32, name, hash, NAMED, forget)?,
        };
        let Some(record) = self.record(index) else { return damaged() };
        if is_new {
            self.note_name(record);
        }
        if record.is_changed_by(&entry.attr) {
            self.note_change(Of::Contents, entry.key);
        }
        record.key.store(entry.key, Relaxed);
        record.device.store(entry.device, Relaxed);
        record.incarnation.store(entry.incarnation, Relaxed);
        record.lookups.fetch_add(1, Relaxed);
        record.touched.store(1, Relaxed);
        record.put_attr(&entry.attr, if fresh { until(now, entry.attr_ns) } else { 0 }, asked);
        record.entry_until.store(if fresh { until(now, entry.entry_ns) } else { 0 }, Relaxed);
        Ok(self.node_of(index, record))
    }

    /// Enters that `name` was not in `dir` at `asked`, for `ns` (0: only forgets what
    /// was there). If names changed since, or the name was entered since, it is asked for again.
    pub fn enter_absent(
        &self,
        dir: Node,
        name: &[u8],
        ns: u64,
        asked: Moment,
        forget: &mut dyn FnMut(u64, u64, u32),
    ) -> Result<()> {
        let now = Self::now();
        let guard = self.lock();
        self.get(dir)?;
        let hash = hash_of(dir.id as u32, name);
        let fresh = self.changes() == asked.names;
        if let Some(index) = self.search(&guard, dir.id as u32, name, hash)? {
            let Some(record) = self.record(index) else { return damaged() };
            let is_named = record.state.load(Relaxed) == NAMED;
            // Another program may have found it, new, after we were told that it is not there.
            if !fresh || is_named && record.is_named_since(asked) {
                record.entry_until.store(0, Relaxed);
                return Ok(());
            }
            if !is_named {
                record.entry_until.store(until(now, ns), Relaxed);
                return Ok(());
            }
            self.drop_name(&guard, index, forget)?;
        }
        if ns != 0 && fresh {
            let index = self.insert(&guard, dir.id as u32, name, hash, NEGATIVE, forget)?;
            if let Some(record) = self.record(index) {
                record.entry_until.store(until(now, ns), Relaxed);
            }
        }
        Ok(())
    }

    /// A name is to be asked for again, whatever is known of it. The number of
    /// this change of names.
    pub fn doubt(&self, dir: Node, name: &[u8]) -> u64 {
        let guard = self.lock();
        let number = self.header().changes.fetch_add(1, AcqRel) + 1;
        let hash = hash_of(dir.id as u32, name);
        if let Ok(Some(index)) = self.search(&guard, dir.id as u32, name, hash)
            && let Some(record) = self.record(index)
        {
            record.entry_until.store(0, Relaxed);
        }
        number
    }
}

//! What the session knows by number: paths, attributes, contents.
//!
//! A node is there from its look-up until the session forgets it. What a program has set of a file's attributes (mode,
//! owner, times) is kept by path for as long as the daemon lives: objects have no room for it.

use crate::contents::Contents;
use crate::keys;
use crate::listing::{BELIEVED, Listing, Search};
use crate::store::{Expected, Meta};
use pm::Errno;
use server::fuse::abi::ROOT;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A lock, also one that a panic has left behind: every change under one is whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or a directory.
pub struct Node {
    /// The session's number for it.
    pub id: u64,
    /// `st_ino`.
    pub ino: u64,
    /// Otherwise a file.
    pub is_dir: bool,
    /// A symlink: a file that holds its target.
    pub is_link: bool,
    /// Where it is, and what it looks like.
    pub place: Mutex<Place>,
    /// Its bytes. Held while the store is asked about them.
    pub contents: Mutex<Contents>,
}

/// Where a node is, and what it looks like.
#[derive(Debug)]
pub struct Place {
    /// Relative to the root, which is empty.
    pub path: String,
    /// Its name was removed.
    pub is_gone: bool,
    /// As programs of this session see it.
    pub meta: Meta,
    /// When the store said so.
    pub asked: Instant,
    /// It is being written here: what the store says does not count.
    pub is_local: bool,
}

impl Place {
    /// Whether what is known may still be believed.
    pub fn is_fresh(&self) -> bool {
        self.is_local || self.is_gone || self.meta.is_dir || self.asked.elapsed() < BELIEVED
    }

    /// The store said so just now.
    pub fn told(&mut self, meta: &Meta) {
        if !self.is_local && !self.is_gone {
            // A time that was made up at an upload stays with the contents that it was made up for.
            if !self.meta.is_same(meta) || self.meta.etag.is_none() {
                self.meta = meta.clone();
            }
            self.asked = Instant::now();
        }
    }
}

impl Node {
    /// A node that nobody knows yet.
    pub fn new(id: u64, path: String, meta: Meta, is_local: bool, is_link: bool) -> Node {
        let ino = if id == ROOT { ROOT } else { number_of(&path) };
        let (is_dir, asked) = (meta.is_dir, Instant::now());
        let contents = Mutex::new(Contents::new(Expected::Nothing));
        Node { id, ino, is_dir, is_link, place: Mutex::new(Place { path, is_gone: false, meta, asked, is_local }), contents }
    }

    /// Its path; `ENOENT` if its name was removed.
    pub fn path(&self) -> Result<String, Errno> {
        let place = lock(&self.place);
        if place.is_gone { Err(Errno::ENOENT) } else { Ok(place.path.clone()) }
    }
}

/// `st_ino` of what has no number yet: the same at every start.
pub fn number_of(path: &str) -> u64 {
    let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash | 1 << 63
}

/// Attributes that a program has set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Nanoseconds since 1970.
    pub atime: Option<i64>,
    /// Likewise; until the contents change.
    pub mtime: Option<i64>,
    /// It is a symlink.
    pub is_link: bool,
}

impl Set {
    /// Of a new file.
    pub fn with_mode(mode: u32) -> Set {
        Set { mode: Some(mode & 0o7777), ..Set::default() }
    }
}

struct Known {
    node: Arc<Node>,
    lookups: u64,
}

/// All nodes, by number and by path.
pub struct Table {
    by_id: HashMap<u64, Known>,
    by_path: BTreeMap<String, u64>,
    next: u64,
    listings: HashMap<String, Listing>,
    set: BTreeMap<String, Set>,
    /// Versions of which `set` says what their metadata does.
    known: HashMap<String, Meta>,
    changes: u64,
    /// The last of them: a path, and what is there since.
    recent: VecDeque<(String, Option<Meta>)>,
}

impl Table {
    /// The root alone.
    pub fn new() -> Table {
        let root = Node::new(ROOT, String::new(), Meta::DIR, false, false);
        let by_id = HashMap::from([(ROOT, Known { node: Arc::new(root), lookups: 1 })]);
        let by_path = BTreeMap::from([(String::new(), ROOT)]);
        Table {
            by_id,
            by_path,
            next: ROOT + 1,
            listings: HashMap::new(),
            set: BTreeMap::new(),
            known: HashMap::new(),
            changes: 0,
            recent: VecDeque::new(),
        }
    }

    /// The node with a number.
    pub fn node(&self, id: u64) -> Result<Arc<Node>, Errno> {
        self.by_id.get(&id).map(|known| Arc::clone(&known.node)).ok_or(Errno::ESTALE)
    }

    /// The node at a path, if it is known.
    pub fn at(&self, path: &str) -> Option<Arc<Node>> {
        self.by_path.get(path).and_then(|id| self.by_id.get(id)).map(|known| Arc::clone(&known.node))
    }

    /// All nodes.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.by_id.values().map(|known| Arc::clone(&known.node)).collect()
    }

    /// Known nodes below a directory, at any depth.
    pub fn below(&self, directory: &str) -> Vec<Arc<Node>> {
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        let range = self.by_path.range::<str, _>((Excluded(prefix.as_str()), Unbounded));
        let inside = range.take_while(|(path, _)| path.starts_with(&prefix));
        inside.filter_map(|(_, id)| self.by_id.get(id)).map(|known| Arc::clone(&known.node)).collect()
    }

    /// The node of a path that was looked up and is `meta`, which counts as one look-up. `local`: nothing but this session
    /// knows of it.
    pub fn enter(&mut self, path: &str, meta: &Meta, local: bool) -> Arc<Node> {
        let is_link = self.set_of(path).is_link;
        if let Some(known) = self.by_path.get(path).and_then(|id| self.by_id.get_mut(id))
            && known.node.is_dir == meta.is_dir
            && known.node.is_link == is_link
        {
            known.lookups += 1;
            lock(&known.node.place).told(meta);
            return Arc::clone(&known.node);
        }
        let id = self.next;
        self.next += 1;
        let node = Arc::new(Node::new(id, path.to_string(), meta.clone(), local, is_link));
        if let Some(old) = self.by_path.insert(path.to_string(), id)
            && let Some(old) = self.by_id.get(&old)
        {
            lock(&old.node.place).is_gone = true;
        }
        self.by_id.insert(id, Known { node: Arc::clone(&node), lookups: 1 });
        node
    }

    /// The session forgets a node.
    pub fn forget(&mut self, id: u64, times: u64) {
        let Some(known) = self.by_id.get_mut(&id).filter(|_| id != ROOT) else { return };
        known.lookups = known.lookups.saturating_sub(times);
        self.drop_unknown(id);
    }

    /// A node that nobody knows any more, and whose bytes are in the store, goes.
    pub fn drop_unknown(&mut self, id: u64) {
        let Some(known) = self.by_id.get(&id).filter(|known| known.lookups == 0) else { return };
        let place = lock(&known.node.place);
        if place.is_local && !place.is_gone {
            return;
        }
        if self.by_path.get(&place.path) == Some(&id) {
            self.by_path.remove(&place.path);
        }
        drop(place);
        self.by_id.remove(&id);
    }

    // ---- names change ----

    /// A name was removed.
    pub fn removed(&mut self, path: &str) {
        if let Some(node) = self.by_path.remove(path).and_then(|id| self.by_id.get(&id)) {
            lock(&node.node.place).is_gone = true;
        }
        self.set.remove(path);
        self.known.remove(path);
        self.listings.remove(path);
        self.unlisted(path);
    }

    /// A name was moved, with all below it.
    pub fn moved(&mut self, from: &str, to: &str) {
        let inside = |path: &str| path == from || path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/'));
        let new = |path: &str| format!("{to}{}", &path[from.len()..]);
        let paths: Vec<String> = self.by_path.range(from.to_string()..).map(|(path, _)| path.clone()).collect();
        for path in paths.into_iter().take_while(|path| path.starts_with(from)).filter(|path| inside(path)) {
            let Some(id) = self.by_path.remove(&path) else { continue };
            if let Some(known) = self.by_id.get(&id) {
                lock(&known.node.place).path = new(&path);
            }
            self.by_path.insert(new(&path), id);
        }
        let set: Vec<String> = self.set.keys().filter(|path| inside(path)).cloned().collect();
        for path in set {
            if let Some(value) = self.set.remove(&path) {
                self.set.insert(new(&path), value);
            }
        }
        self.known.retain(|path, _| !inside(path));
        self.listings.retain(|path, _| !inside(path));
        self.unlisted(from);
    }

    // ---- what lies in directories ----

    /// How often names have changed here.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// A listing that may be believed, for a look-up.
    pub fn listing_for_name(&mut self, directory: &str) -> Option<&Listing> {
        let listing = self.listings.get_mut(directory).filter(|listing| listing.is_fresh())?;
        listing.asked += 1;
        Some(listing)
    }

    /// How a name of a directory is looked for that no fresh listing tells of.
    pub fn search(&mut self, directory: &str) -> Search {
        self.listings.get_mut(directory).map_or(Search::Page, Listing::search)
    }

    /// Whether a directory has a marker, or other names, as far as was known lately.
    pub fn stays(&self, directory: &str) -> bool {
        self.listings.get(directory).is_some_and(Listing::is_there)
    }

    /// Puts into a listing what was changed here since so many changes, which the store may have told of or not. `false`: that is
    /// more than is known.
    pub fn amend(&self, directory: &str, listing: &mut Listing, changes: u64) -> bool {
        let since = (self.changes - changes) as usize;
        let Some(first) = self.recent.len().checked_sub(since) else { return false };
        for (path, there) in self.recent.range(first..) {
            if keys::parent(path) == directory {
                match there {
                    Some(meta) => listing.names.insert(keys::name(path).to_string(), meta.clone()),
                    None => listing.names.remove(keys::name(path)),
                };
            }
        }
        true
    }

    /// Keeps a listing that has been amended.
    pub fn keep(&mut self, directory: &str, listing: Listing) {
        const LISTINGS: usize = 4096;
        if self.listings.len() >= LISTINGS {
            self.listings.retain(|_, listing| listing.is_fresh());
        }
        self.listings.insert(directory.to_string(), listing);
    }

    /// A directory was made: nothing is in it.
    pub fn made(&mut self, directory: &str) {
        self.listed(directory, &Meta::DIR);
        self.listings.insert(directory.to_string(), Listing::empty());
    }

    fn note(&mut self, path: &str, there: Option<Meta>) {
        const RECENT: usize = 4096;
        self.changes += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((path.to_string(), there));
    }

    /// A name is there now.
    pub fn listed(&mut self, path: &str, meta: &Meta) {
        self.note(path, Some(meta.clone()));
        if let Some(listing) = self.listings.get_mut(keys::parent(path)) {
            listing.names.insert(keys::name(path).to_string(), meta.clone());
        }
    }

    /// A name is there no more.
    pub fn unlisted(&mut self, path: &str) {
        self.note(path, None);
        if let Some(listing) = self.listings.get_mut(keys::parent(path)) {
            listing.names.remove(keys::name(path));
        }
    }

    // ---- attributes that programs have set ----

    /// Those of a path.
    pub fn set_of(&self, path: &str) -> Set {
        self.set.get(path).copied().unwrap_or_default()
    }

    /// Whether it is known what the metadata of this version says, or nobody else's version counts.
    pub fn knows(&self, path: &str, meta: &Meta) -> bool {
        let is_local = || self.at(path).is_some_and(|node| lock(&node.place).is_local);
        self.known.get(path).is_some_and(|known| known.is_same(meta) && known.mtime == meta.mtime) || is_local()
    }

    /// What the metadata of a version says.
    pub fn learn(&mut self, path: &str, meta: Meta, set: Set) {
        const KNOWN: usize = 200_000;
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        let atime = self.set_of(path).atime;
        self.set.insert(path.to_string(), Set { atime, ..set });
        self.known.insert(path.to_string(), meta);
    }

    /// Changes those of a path.
    pub fn set(&mut self, path: &str, change: impl FnOnce(&mut Set)) {
        change(self.set.entry(path.to_string()).or_default());
    }

    /// The contents changed: a time that was set is over.
    pub fn changed(&mut self, path: &str) {
        if let Some(set) = self.set.get_mut(path) {
            set.mtime = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Meta {
        Meta { is_dir: false, size: 1, mtime: 0, etag: Some("e".to_string()) }
    }

    /// Goal: a directory moves with all below it, what was set of it too, and not with what only begins alike.
    #[test]
    fn moves() {
        let mut table = Table::new();
        let nodes = ["a", "a/x", "a/x/y", "ab", "a-b"].map(|path| table.enter(path, &file(), false));
        table.set("a/x", |set| set.mode = Some(0o700));
        table.moved("a", "z");
        let paths = nodes.map(|node| node.path().unwrap());
        assert_eq!(paths, ["z", "z/x", "z/x/y", "ab", "a-b"]);
        assert_eq!(table.set_of("z/x").mode, Some(0o700));
        assert_eq!(table.below("z").len(), 2);
        assert!(table.at("a/x").is_none() && table.at("ab").is_some());
    }

    /// Goal: a listing that was asked for before names changed here shows them as they are now.
    #[test]
    fn listed_meanwhile() {
        let mut table = Table::new();
        let before = table.changes();
        table.listed("d/new", &file());
        table.unlisted("d/old");
        table.listed("other/new", &file());
        let mut listing = Listing::empty();
        listing.names.insert("old".to_string(), file());
        assert!(table.amend("d", &mut listing, before));
        table.keep("d", listing);
        let names: Vec<_> = table.listing_for_name("d").unwrap().names.keys().cloned().collect();
        assert_eq!(names, ["new"]);
    }

    /// Goal: a node is known as often as it was looked up, and one that is being written stays.
    #[test]
    fn forgotten() {
        let mut table = Table::new();
        let id = table.enter("f", &file(), false).id;
        assert_eq!(table.enter("f", &file(), false).id, id);
        table.forget(id, 1);
        assert!(table.node(id).is_ok());
        table.forget(id, 1);
        assert!(table.node(id).is_err() && table.at("f").is_none());
        let id = table.enter("new", &file(), true).id;
        table.forget(id, 1);
        assert!(table.at("new").is_some());
    }
}

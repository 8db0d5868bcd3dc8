//! Look-up, making, opening, removing, renaming: what changes names, and when bytes go to the store.

use crate::contents::Contents;
use crate::contents::Spool;
use crate::keys;
use crate::later::Later;
use crate::listing::{self, Listing, Refused, Search};
use crate::nodes::{Node, Set, Table, lock};
use crate::store::{Expected, Meta, Store};
use crate::upload::upload;
use pm::Errno;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Types in a listing.
pub const DT_DIR: u32 = 4;
/// How often a directory is listed again in which more has changed meanwhile than is remembered.
const LISTED_AGAIN: usize = 3;
const DT_REG: u32 = 8;
const DT_LNK: u32 = 10;

/// The mount.
pub struct Tree {
    /// Where the objects are.
    pub store: &'static Store,
    /// Where files are written.
    pub spool: Spool,
    /// What the session knows.
    pub table: Mutex<Table>,
    /// Attributes are kept with objects.
    pub is_posix: bool,
    /// Files that are stored behind the program's back, if any are.
    pub later: Option<Later>,
    /// Written by who moves a name: paths stay as they are for who reads it.
    moving: RwLock<()>,
    /// Written by who moves a directory: while it is read, a file stays where it is if its contents are locked too.
    uploads: RwLock<()>,
    refused: Mutex<Refused>,
}

impl Tree {
    /// The tree in a store, for the rest of this process's life.
    pub fn new(store: Store, spool: Spool, later: bool, is_posix: bool) -> Tree {
        let store: &'static Store = Box::leak(Box::new(store));
        let (table, later) = (Mutex::new(Table::new()), later.then(Later::default));
        let (moving, uploads) = (RwLock::new(()), RwLock::new(()));
        Tree { store, spool, table, is_posix, later, moving, uploads, refused: Mutex::default() }
    }

    fn stay(&self) -> std::sync::RwLockReadGuard<'_, ()> {
        self.moving.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node with a number.
    pub fn node(&self, id: u64) -> Result<Arc<Node>, Errno> {
        lock(&self.table).node(id)
    }

    // ---- look-up ----

    /// What is at a path, a second ago at most.
    fn find(&self, path: &str) -> Result<Meta, Errno> {
        let (directory, name) = (keys::parent(path), keys::name(path));
        let (changes, search) = {
            let mut table = lock(&self.table);
            if let Some(node) = table.at(path) {
                let place = lock(&node.place);
                if place.is_local {
                    return Ok(place.meta.clone());
                }
            }
            match table.listing_for_name(directory) {
                Some(listing) if listing.names.contains_key(name) => return Ok(listing.names[name].clone()),
                Some(listing) if listing.is_whole => return Err(Errno::ENOENT),
                _ => {}
            }
            let search = table.search(directory);
            (table.changes(), search)
        };
        if search == Search::Name {
            return self.store.find(path);
        }
        let mut listing = listing::list(self.store, directory, Some(search), &self.refused)?;
        let found = listing.names.get(name).cloned();
        let is_whole = listing.is_whole;
        let mut table = lock(&self.table);
        if table.amend(directory, &mut listing, changes) {
            table.keep(directory, listing);
        }
        drop(table);
        match found {
            Some(meta) => Ok(meta),
            None if is_whole => Err(Errno::ENOENT),
            None => self.store.find(path),
        }
    }

    /// The node called `name` in `directory`.
    pub fn lookup(&self, directory: &Node, name: &[u8]) -> Result<Arc<Node>, Errno> {
        let _stay = self.stay();
        // A name that can't be a key is not there.
        let path = keys::join(&directory.path()?, name).map_err(|errno| match errno {
            Errno::ENAMETOOLONG => errno,
            _ => Errno::ENOENT,
        })?;
        let meta = self.find(&path)?;
        self.learn(&path, &meta)?;
        Ok(lock(&self.table).enter(&path, &meta, false))
    }

    /// Asks the store if what is known of a node is too old.
    pub fn refresh(&self, node: &Node) -> Result<(), Errno> {
        let path = {
            let place = lock(&node.place);
            if place.is_fresh() {
                return Ok(());
            }
            place.path.clone()
        };
        let meta = self.find(&path)?;
        self.learn(&path, &meta)?;
        lock(&node.place).told(&meta);
        Ok(())
    }

    /// All that is in a directory: names, and what they are (`DT_…`).
    pub fn list(&self, directory: &Node) -> Result<Vec<(String, u64, u32)>, Errno> {
        let _stay = self.stay();
        let path = directory.path()?;
        let mut changes = lock(&self.table).changes();
        let mut listing = listing::list(self.store, &path, None, &self.refused)?;
        let at = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
        self.learn_all(listing.names.iter().map(|(name, meta)| (at(name), meta.clone())).collect())?;
        let mut table = lock(&self.table);
        // A file that was stored meanwhile is not local any more.
        let mut is_amended = table.amend(&path, &mut listing, changes);
        for _ in 0..LISTED_AGAIN {
            if is_amended {
                break;
            }
            changes = table.changes();
            drop(table);
            listing = listing::list(self.store, &path, None, &self.refused)?;
            table = lock(&self.table);
            is_amended = table.amend(&path, &mut listing, changes);
        }
        let mut names: std::collections::BTreeMap<String, bool> =
            listing.names.iter().map(|(name, meta)| (name.clone(), meta.is_dir)).collect();
        for node in table.below(&path) {
            let place = lock(&node.place);
            if place.is_local && !place.is_gone && keys::parent(&place.path) == path {
                names.insert(keys::name(&place.path).to_string(), node.is_dir);
            }
        }
        if is_amended {
            table.keep(&path, listing);
        }
        let entry = |(name, is_dir): (String, bool)| {
            let path = at(&name);
            let ino = table.at(&path).map_or_else(|| crate::nodes::number_of(&path), |node| node.ino);
            let kind = match is_dir {
                true => DT_DIR,
                false if table.set_of(&path).is_link => DT_LNK,
                false => DT_REG,
            };
            (name, ino, kind)
        };
        Ok(names.into_iter().map(entry).collect())
    }

    // ---- making, opening, closing ----

    /// The path of a name at which nothing is.
    fn free_path(&self, directory: &Node, name: &[u8]) -> Result<String, Errno> {
        let path = keys::join(&directory.path()?, name)?;
        match self.find(&path) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) => Ok(path),
            Err(errno) => Err(errno),
        }
    }

    /// A new file, open. It is in the store when it is closed or synced, unless another one is there then.
    pub fn create(&self, directory: &Node, name: &[u8], set: Set) -> Result<Arc<Node>, Errno> {
        let _stay = self.stay();
        let path = self.free_path(directory, name)?;
        let meta = Meta { is_dir: false, size: 0, mtime: crate::contents::now(), etag: None };
        let node = {
            let mut table = lock(&self.table);
            table.set(&path, |there| *there = set);
            table.enter(&path, &meta, true)
        };
        lock(&node.place).is_local = true;
        let mut contents = lock(&node.contents);
        contents.create(&self.spool, Expected::Nothing)?;
        contents.opens += 1;
        drop(contents);
        Ok(node)
    }

    /// A new directory: a marker, an empty object whose key ends with a slash.
    pub fn mkdir(&self, directory: &Node, name: &[u8], mode: u32) -> Result<Arc<Node>, Errno> {
        let _stay = self.stay();
        let path = self.free_path(directory, name)?;
        self.store.mark(&path)?;
        let mut table = lock(&self.table);
        table.made(&path);
        table.set(&path, |set| set.mode = Some(mode & 0o7777));
        Ok(table.enter(&path, &Meta::DIR, false))
    }

    /// Opens a file: what was closed before, here or elsewhere, is what it shows. Whether the session's pages of it hold.
    pub fn open(&self, node: &Node) -> Result<bool, Errno> {
        let _stay = self.stay();
        let mut contents = lock(&node.contents);
        if !contents.is_dirty {
            let path = node.path()?;
            let found = self.store.stat(&path)?;
            self.learn(&path, &found)?;
            if contents.file.is_some() && matches!(&contents.expected, Expected::This(meta) if !meta.is_same(&found)) {
                contents.unload();
            }
            let mut place = lock(&node.place);
            if !place.meta.is_same(&found) {
                contents.forget_windows();
            }
            place.is_local = false;
            place.told(&found);
        }
        contents.opens += 1;
        let now = lock(&node.place).meta.clone();
        let keeps = contents.opened.as_ref().is_some_and(|before| before.etag.is_some() && before.is_same(&now));
        contents.opened = Some(now);
        Ok(keeps)
    }

    /// What was written goes to the store.
    pub fn flush(&self, node: &Node) -> Result<(), Errno> {
        let _stay = self.uploads.read().unwrap_or_else(PoisonError::into_inner);
        let mut contents = lock(&node.contents);
        self.flush_in_place(node, &mut contents)
    }

    /// Where it is must stay as it is.
    fn flush_in_place(&self, node: &Node, contents: &mut Contents) -> Result<(), Errno> {
        // Nobody will find it again.
        let Ok(path) = node.path() else { return Ok(()) };
        if !contents.is_dirty {
            return Ok(());
        }
        let kept = self.kept_of(node, &path);
        let stored = upload(self.store, contents, &path, kept.clone())?;
        contents.is_stored(&path, &stored);
        contents.opened = Some(stored.clone());
        // Whoever looks for it finds that it is here, or that it is listed.
        let mut table = lock(&self.table);
        table.listed(&path, &stored);
        if let Some(kept) = kept {
            let kept = kept.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            table.learn(&path, stored.clone(), crate::kept::read(kept));
        }
        let mut place = lock(&node.place);
        (place.meta, place.is_local, place.asked) = (stored, false, std::time::Instant::now());
        Ok(())
    }

    /// A program closes a file: what was written goes to the store, now or, if it may wait, later.
    pub fn closed(&self, node: &Node) -> Result<(), Errno> {
        let may_wait = self.may_wait(&lock(&node.contents));
        if may_wait { Ok(()) } else { self.flush(node) }
    }

    /// A handle is closed. With the last one, what was written goes to the store.
    pub fn release(&self, node: &Arc<Node>) {
        let (is_last, is_put_off) = {
            let mut contents = lock(&node.contents);
            contents.opens = contents.opens.saturating_sub(1);
            let is_put_off = contents.opens == 0 && contents.is_dirty && self.may_wait(&contents);
            if is_put_off {
                self.put_off(node, &mut contents);
            }
            (contents.opens == 0, is_put_off)
        };
        if !is_last || is_put_off {
            return;
        }
        // Who closed it was told already, if anybody was there.
        if let Err(errno) = self.flush(node) {
            let path = lock(&node.place).path.clone();
            self.store.say(&format!("{path}: not stored: {errno}; what was written to it since the last fsync is lost"));
        }
        self.let_go(node);
    }

    /// Nobody has the file open: its bytes are the store's.
    pub fn let_go(&self, node: &Node) {
        let mut contents = lock(&node.contents);
        if contents.opens == 0 && !contents.is_put_off {
            contents.unload();
            lock(&node.place).is_local = false;
        }
        drop(contents);
        lock(&self.table).drop_unknown(node.id);
    }

    /// Sets a file's length; without a handle, it is in the store at once.
    pub fn truncate(&self, node: &Arc<Node>, len: u64) -> Result<(), Errno> {
        let mut contents = lock(&node.contents);
        contents.truncate(self.store, &self.spool, node, len)?;
        self.changed(node);
        self.changed_alone(node, contents)
    }

    /// A file's bytes have changed: a time that was set of it is over. Its contents are locked.
    pub fn changed(&self, node: &Node) {
        if let Ok(path) = node.path() {
            lock(&self.table).changed(&path);
        }
    }

    /// What was changed without a handle is in the store at once, or later.
    pub fn changed_alone(&self, node: &Arc<Node>, mut contents: MutexGuard<'_, Contents>) -> Result<(), Errno> {
        if contents.opens > 0 {
            return Ok(());
        }
        if self.may_wait(&contents) {
            self.put_off(node, &mut contents);
            return Ok(());
        }
        drop(contents);
        let stored = self.flush(node);
        self.let_go(node);
        stored
    }

    // ---- removing and moving ----

    /// A file whose object is about to go, and that somebody has open, is kept here.
    fn keep_if_open(&self, node: &Node, contents: &mut Contents) -> Result<(), Errno> {
        if contents.opens > 0 { contents.load(self.store, &self.spool, node, u64::MAX) } else { Ok(()) }
    }

    /// Removes a file.
    pub fn unlink(&self, directory: &Node, name: &[u8]) -> Result<(), Errno> {
        let _stay = self.stay();
        let parent = directory.path()?;
        let path = keys::join(&parent, name)?;
        if self.find(&path)?.is_dir {
            return Err(Errno::EISDIR);
        }
        let node = lock(&self.table).at(&path).filter(|node| !node.is_dir);
        {
            // Nobody uploads it until its name is gone.
            let mut contents = node.as_ref().map(|node| lock(&node.contents));
            if !contents.as_ref().is_some_and(|contents| contents.is_only_here()) {
                if let (Some(node), Some(contents)) = (&node, &mut contents) {
                    self.keep_if_open(node, contents)?;
                }
                self.store.delete(&path)?;
            }
            lock(&self.table).removed(&path);
        }
        self.keep_directory(&parent)
    }

    /// A directory that was only there because of what was in it stays.
    fn keep_directory(&self, path: &str) -> Result<(), Errno> {
        if path.is_empty() || lock(&self.table).stays(path) || !self.store.list(path, 1, false)?.0.is_empty() {
            return Ok(());
        }
        self.store.mark(path)?;
        lock(&self.table).made(path);
        Ok(())
    }

    /// Nothing is in a directory, as the store says now.
    fn must_be_empty(&self, path: &str) -> Result<Listing, Errno> {
        let is_local = |node: &Arc<Node>| {
            let place = lock(&node.place);
            place.is_local && !place.is_gone
        };
        if lock(&self.table).below(path).iter().any(is_local) {
            return Err(Errno::ENOTEMPTY);
        }
        let (entries, _) = self.store.list(path, 2, false)?;
        let marker = keys::marker(path);
        if entries.iter().any(|(key, _)| *key != marker) {
            return Err(Errno::ENOTEMPTY);
        }
        Ok(Listing::empty())
    }

    /// Removes a directory.
    pub fn rmdir(&self, directory: &Node, name: &[u8]) -> Result<(), Errno> {
        let _stay = self.stay();
        let parent = directory.path()?;
        let path = keys::join(&parent, name)?;
        if !self.find(&path)?.is_dir {
            return Err(Errno::ENOTDIR);
        }
        self.must_be_empty(&path)?;
        self.store.delete(&keys::marker(&path))?;
        lock(&self.table).removed(&path);
        self.keep_directory(&parent)
    }

    /// Moves a name: a copy and a removal, or an upload to another key for what is being written.
    pub fn rename(&self, from: (&Node, &[u8]), to: (&Node, &[u8]), only_new: bool) -> Result<(), Errno> {
        let _alone = self.moving.write().unwrap_or_else(PoisonError::into_inner);
        let (old_directory, new_directory) = (from.0.path()?, to.0.path()?);
        let (old, new) = (keys::join(&old_directory, from.1)?, keys::join(&new_directory, to.1)?);
        let source = self.find(&old)?;
        if old == new {
            return if only_new { Err(Errno::EEXIST) } else { Ok(()) };
        }
        let there = self.find(&new);
        match &there {
            Ok(_) if only_new => return Err(Errno::EEXIST),
            Ok(target) if target.is_dir && !source.is_dir => return Err(Errno::EISDIR),
            Ok(target) if !target.is_dir && source.is_dir => return Err(Errno::ENOTDIR),
            Ok(target) if target.is_dir => drop(self.must_be_empty(&new)?),
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(*errno),
        }
        match source.is_dir {
            true => self.move_directory(&old, &new)?,
            false => self.move_file(&old, &new, only_new || self.later.is_some() && there.is_err())?,
        }
        self.keep_directory(&old_directory)
    }

    fn move_file(&self, old: &str, new: &str, only_new: bool) -> Result<(), Errno> {
        let (node, target) = {
            let table = lock(&self.table);
            (table.at(old), table.at(new).filter(|node| !node.is_dir))
        };
        // Nobody uploads either until the names are what they will be.
        let mut contents = node.as_ref().map(|node| lock(&node.contents));
        let mut replaced = target.as_ref().map(|node| lock(&node.contents));
        if let (Some(target), Some(replaced)) = (&target, &mut replaced) {
            self.keep_if_open(target, replaced)?;
        }
        let is_new = only_new || replaced.as_ref().is_some_and(|replaced| self.later.is_some() && replaced.is_only_here());
        let expected = if is_new { Expected::Nothing } else { Expected::Anything };
        let stored = match &mut contents {
            Some(contents) if self.later.is_some() && contents.is_only_here() => {
                contents.expected = expected;
                None
            }
            Some(contents) if contents.is_dirty => {
                let was = std::mem::replace(&mut contents.expected, expected);
                let kept = node.as_ref().and_then(|node| self.kept_of(node, old));
                let stored = match upload(self.store, contents, new, kept) {
                    Ok(stored) => stored,
                    Err(errno) => {
                        contents.expected = was;
                        return Err(errno);
                    }
                };
                contents.is_stored(new, &stored);
                if was != Expected::Nothing {
                    self.store.delete(old)?;
                }
                Some(stored)
            }
            held => {
                self.store.copy(old, new, only_new)?;
                let stored = self.store.stat(new)?;
                self.store.delete(old)?;
                if let Some(contents) = held
                    && contents.file.is_some()
                {
                    contents.is_stored(new, &stored);
                    // What was copied may be somebody else's version: no part is taken from it.
                    contents.stored = None;
                }
                Some(stored)
            }
        };
        let mut table = lock(&self.table);
        table.removed(new);
        table.moved(old, new);
        let Some(stored) = stored else { return Ok(()) };
        table.listed(new, &stored);
        if let Some(node) = &node {
            let mut place = lock(&node.place);
            place.is_local = false;
            let mtime = place.meta.mtime;
            place.meta = stored;
            // To this session it is the same file.
            place.meta.mtime = mtime;
        }
        Ok(())
    }

    fn move_directory(&self, old: &str, new: &str) -> Result<(), Errno> {
        if new.strip_prefix(old).is_some_and(|rest| rest.starts_with('/')) {
            return Err(Errno::EINVAL);
        }
        let _alone = self.uploads.write().unwrap_or_else(PoisonError::into_inner);
        let inside = lock(&self.table).below(old);
        for node in inside.iter().filter(|node| !node.is_dir) {
            self.flush_in_place(node, &mut lock(&node.contents))?;
        }
        let (entries, _) = self.store.list(old, usize::MAX, true)?;
        if let Some((odd, _)) = entries.iter().find(|(key, _)| !keys::is_path(key)) {
            self.store.say(&format!("{old} can't be moved: key {odd:?} in it is no path"));
            return Err(Errno::EIO);
        }
        let target = |key: &str| format!("{new}{}", &key[old.len()..]);
        let mut pairs: Vec<_> = entries.iter().map(|(key, _)| (key.clone(), target(key))).collect();
        if !entries.iter().any(|(key, _)| *key == keys::marker(old)) {
            // What was implied is so no more when the last name in it goes.
            pairs.push((keys::marker(old), keys::marker(new)));
        }
        if let Err(errno) = self.store.copy_all(pairs.clone()) {
            // The old tree is whole; of the new one nothing stays, if the store lets us.
            let _ = self.store.delete_all(pairs.into_iter().map(|(_, to)| to).collect());
            return Err(errno);
        }
        // Names before the directories that they are in.
        let mut keys: Vec<_> = entries.into_iter().map(|(key, _)| key).collect();
        keys.sort_by(|one, other| other.cmp(one));
        self.store.delete_all(keys)?;
        let mut table = lock(&self.table);
        table.removed(new);
        table.moved(old, new);
        table.listed(new, &Meta::DIR);
        for node in table.below(new) {
            let mut place = lock(&node.place);
            // Copies have their own times, and perhaps tags.
            place.asked = place.asked.checked_sub(listing::BELIEVED).unwrap_or(place.asked);
        }
        Ok(())
    }
}

//! What the kernel tells of changes in the directory behind a cache: a watch on each directory that the cache holds.
//!
//! An event marks a name, which is looked at; a queue that has overflowed asks for a round over all. A directory that
//! programs bring is watched soon after and then compared, so that nothing is missed in between. A directory's own
//! times are taken over when a look has passed without an event in it (`cache::watch`).

use base::{Cx, Errno, Error, Node};
use cache::Cache;
use cache::watch::Seen;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// From so many names of a directory on all of it is looked at.
const NAMES_MAX: usize = 1000;

/// Types of file systems that others change without this kernel's knowing.
const UNTOLD: [u64; 11] = [
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x6573_5546, // FUSE
    0x0102_1997, // 9p
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x7375_7245, // Coda
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
];

/// The watches of one cache.
pub struct Watch {
    events: OwnedFd,
    by_watch: HashMap<i32, Node>,
    by_node: HashMap<u64, i32>,
    brought: Option<u64>,
    seen: Vec<(Node, Seen)>,
    /// Whether every directory that is here is watched.
    is_whole: bool,
}

/// What has been told.
#[derive(Default)]
struct Told {
    names: HashMap<u64, (Node, HashSet<Vec<u8>>)>,
    is_overflown: bool,
}

impl Watch {
    /// For the cache of the directory at `place`, if the kernel tells of all changes in it.
    pub fn make(place: &Path) -> Option<Watch> {
        let kind = rustix::fs::statfs(place).ok()?.f_type as u64 & 0xffff_ffff;
        if UNTOLD.contains(&kind) {
            return None;
        }
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let (by_watch, by_node) = (HashMap::new(), HashMap::new());
        Some(Watch { events, by_watch, by_node, brought: None, seen: Vec::new(), is_whole: false })
    }

    /// Whether every directory that is here is watched.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Watches the directories that have come since the last time; those are then compared if `compare` says so.
    pub fn cover(&mut self, cache: &Cache, cx: &Cx, compare: bool) {
        let brought = cache.brought();
        if self.brought == Some(brought) {
            return;
        }
        let (mut new, mut here, mut is_whole) = (Vec::new(), HashSet::new(), true);
        let walked = cache.each_directory(cx, &mut |dir, path| {
            here.insert(dir.id);
            if self.by_node.contains_key(&dir.id) {
                return true;
            }
            match inotify::add_watch(&self.events, path, wanted()) {
                Ok(watch) => {
                    self.by_watch.insert(watch, dir);
                    self.by_node.insert(dir.id, watch);
                    new.push(dir);
                }
                // Gone below: whoever looks at its name finds out.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
                Err(_) => is_whole = false,
            }
            true
        });
        self.is_whole = is_whole && walked.is_ok();
        self.brought = Some(brought);
        self.leave_all_but(&here);
        if compare {
            for dir in new {
                let _ = cache.refresh_one(cx, dir);
            }
        }
    }

    /// Those of directories that are here no more.
    fn leave_all_but(&mut self, here: &HashSet<u64>) {
        let events = &self.events;
        self.by_watch.retain(|watch, dir| {
            let is_here = here.contains(&dir.id);
            if !is_here {
                let _ = inotify::remove_watch(events, *watch);
            }
            is_here
        });
        self.by_node.retain(|id, _| here.contains(id));
    }

    /// Looks at what the kernel has told of since the last time. Whether a round over all is needed.
    pub fn look(&mut self, cache: &Cache, cx: &Cx) -> bool {
        let told = self.read();
        for (dir, seen) in std::mem::take(&mut self.seen) {
            if !told.names.contains_key(&dir.id) {
                let _ = cache.settle(cx, dir, &seen);
            }
        }
        for (dir, names) in told.names.into_values() {
            if look_at(cache, cx, dir, &names) == Err(Error::Posix(Errno::ENOSPC)) {
                return true;
            }
            if let Ok(seen) = cache.see(cx, dir) {
                self.seen.push((dir, seen));
            }
        }
        told.is_overflown
    }

    fn read(&mut self) -> Told {
        let (mut told, mut buffer) = (Told::default(), [MaybeUninit::uninit(); 32768]);
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told.is_overflown = true;
            }
            let Some(&dir) = self.by_watch.get(&event.wd()) else { continue };
            if event.events().intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF) {
                self.by_watch.remove(&event.wd());
                self.by_node.remove(&dir.id);
                continue;
            }
            let (_, names) = told.names.entry(dir.id).or_insert_with(|| (dir, HashSet::new()));
            if let Some(name) = event.file_name() {
                names.insert(name.to_bytes().to_vec());
            }
        }
        told
    }
}

fn wanted() -> WatchFlags {
    WatchFlags::ATTRIB
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR
        | WatchFlags::DONT_FOLLOW
}

/// Looks at names of a directory.
fn look_at(cache: &Cache, cx: &Cx, dir: Node, names: &HashSet<Vec<u8>>) -> base::Result<()> {
    if names.len() > NAMES_MAX {
        return cache.refresh_one(cx, dir);
    }
    for name in names {
        match cache.refresh_entry(cx, dir, name) {
            // Gone here meanwhile, or there.
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => {}
            result => result?,
        }
    }
    Ok(())
}

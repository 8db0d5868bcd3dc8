//! What the kernel tells of changes in the directory behind a cache: a watch on each directory that the cache holds.
//!
//! An event marks a name, which is looked at; a queue that has overflowed asks for a round over all. A directory that
//! programs bring, or that a round of writing back makes below, is watched soon after and then compared, so that nothing is
//! missed in between. A name that is newer here is kept, and looked at again when the round is over that decides what becomes
//! of it. A directory's own times are taken over when a look has passed without an event in it (`cache::watch`).

use base::{Cx, Errno, Error, Node};
use cache::Cache;
use cache::watch::{Cursor, Look, News, Seen};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

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

/// After so long what waits for a round is looked at again in any case: the writer may have died at the round's end.
const AGAIN: Duration = Duration::from_secs(2);

/// How long directories are compared before the server looks whether there are events.
pub const TURN: Duration = Duration::from_millis(20);

/// After so long a move that waits for a round is followed no more: its two names are looked at.
const FOLLOWED: Duration = Duration::from_secs(5);

/// A move of something from one directory that is watched to another.
struct Move {
    from: (Node, Vec<u8>),
    to: (Node, Vec<u8>),
    since: Instant,
}

/// Names of directories, by the number of the directory.
type Names = HashMap<u64, (Node, HashSet<Vec<u8>>)>;

/// The watches of one cache.
pub struct Watch {
    events: OwnedFd,
    by_watch: HashMap<i32, Node>,
    by_node: HashMap<u64, i32>,
    /// The watch on the cache image, by which sessions that begin ask for all that was reported until then.
    asked_by: Option<i32>,
    /// Directories to be watched that have come into use: how far they have been read.
    read: Cursor,
    /// The walk over all directories that is under way.
    walk: Option<Walk>,
    /// What there was when directories were looked for again, and when names were.
    covered: News,
    settled: News,
    /// When that was.
    again: Instant,
    seen: Vec<(Node, Seen)>,
    /// Directories that have no watch, because there is nothing at their paths below yet.
    unwatched: HashMap<u64, Node>,
    /// Directories that are watched and have not been compared since.
    new: Vec<Node>,
    /// The same, of which something is newer here.
    uncompared: HashMap<u64, Node>,
    /// Names that are newer here, for which there were events.
    later: Names,
    /// Names that were changed here while they were looked at.
    soon: Names,
    /// Moves that wait for a round.
    moves: Vec<Move>,
    /// Whether every directory that is here is watched.
    is_whole: bool,
}

/// A walk over the directories of the cache, which watches those that are not watched yet.
struct Walk {
    /// Directories that are still to be looked at.
    left: Vec<Node>,
    here: HashSet<u64>,
    is_partial: bool,
}

impl Walk {
    fn new(cache: &Cache) -> Walk {
        Walk { left: vec![cache.tree()], here: HashSet::new(), is_partial: false }
    }
}

/// What has been told.
#[derive(Default)]
struct Told {
    names: Names,
    moves: Vec<Move>,
    is_overflown: bool,
    /// A session that begins waits for the look.
    is_asked: bool,
}

impl Watch {
    /// For the cache of the directory at `place`, if the kernel tells of all changes in it.
    pub fn make(cache: &Cache, place: &Path, image: &Path) -> Option<Watch> {
        let kind = rustix::fs::statfs(place).ok()?.f_type as u64 & 0xffff_ffff;
        if UNTOLD.contains(&kind) {
            return None;
        }
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let asked_by = inotify::add_watch(&events, image, WatchFlags::ATTRIB).ok();
        Some(Watch {
            events,
            asked_by,
            by_watch: HashMap::new(),
            by_node: HashMap::new(),
            read: Cursor::default(),
            walk: Some(Walk::new(cache)),
            covered: News::default(),
            settled: News::default(),
            again: Instant::now(),
            seen: Vec::new(),
            unwatched: HashMap::new(),
            new: Vec::new(),
            uncompared: HashMap::new(),
            later: Names::new(),
            soon: Names::new(),
            moves: Vec::new(),
            is_whole: false,
        })
    }

    /// Whether every directory that is here is watched.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether something waits for a round.
    pub fn waits(&self) -> bool {
        !(self.later.is_empty()
            && self.soon.is_empty()
            && self.uncompared.is_empty()
            && self.unwatched.is_empty()
            && self.moves.is_empty())
    }

    /// Whether there are directories to be watched or compared.
    pub fn is_behind(&self) -> bool {
        self.walk.is_some() || !self.new.is_empty()
    }

    /// Has the next [`Watch::cover`] walk over all directories.
    pub fn walk_again(&mut self, cache: &Cache) {
        self.walk.get_or_insert_with(|| Walk::new(cache));
    }

    /// Readable when there is an event.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Watches the directories that programs have come to use since the last time, then others that are not watched, and
    /// compares those whose watches are new, since a change before made no event. For [`TURN`] at most, and while `goes_on`
    /// says so.
    pub fn cover(&mut self, cache: &Cache, cx: &Cx, goes_on: &dyn Fn() -> bool) {
        let begun = Instant::now();
        let may = || begun.elapsed() < TURN && goes_on();
        let mut first = Vec::new();
        if !cache.fs().each_to_watch(&mut self.read, &mut |dir| first.push(dir)) {
            self.walk_again(cache);
        }
        for dir in first {
            self.cover_one(cache, cx, dir);
        }
        let news = cache.news();
        if std::mem::replace(&mut self.covered, news).rounds != news.rounds {
            // What a round has put where it belongs.
            for dir in std::mem::take(&mut self.unwatched).into_values() {
                self.is_whole &= self.add(cache, cx, dir);
            }
        }
        while may() {
            if let Some(dir) = self.new.pop() {
                self.compare(cache, cx, dir, goes_on);
            } else if !self.walk_on(cache, cx) {
                break;
            }
        }
    }

    /// Watches a directory unless it is watched.
    fn cover_one(&mut self, cache: &Cache, cx: &Cx, dir: Node) {
        let is_watched = self.by_node.contains_key(&dir.id) || self.add(cache, cx, dir);
        match &mut self.walk {
            Some(walk) => {
                walk.here.insert(dir.id);
                walk.is_partial |= !is_watched;
            }
            None => self.is_whole &= is_watched,
        }
    }

    /// One step of the walk over all directories; false if there is none to be made.
    fn walk_on(&mut self, cache: &Cache, cx: &Cx) -> bool {
        let Some(walk) = &mut self.walk else { return false };
        let Some(dir) = walk.left.pop() else {
            let (is_whole, here) = (!walk.is_partial, std::mem::take(&mut walk.here));
            self.walk = None;
            self.is_whole = is_whole;
            self.leave_all_but(&here);
            return false;
        };
        if let Err(error) = cache.each_directory_in(cx, dir, &mut |dir| walk.left.push(dir)) {
            // Gone meanwhile.
            walk.is_partial |= !matches!(error, Error::Posix(Errno::ENOENT | Errno::ESTALE));
        }
        self.cover_one(cache, cx, dir);
        true
    }

    /// Watches a directory; false if that can't be done. The watch is on the one that is the original, wherever its path leads.
    fn add(&mut self, cache: &Cache, cx: &Cx, dir: Node) -> bool {
        let handle = match cache.open_below(cx, dir) {
            Err(error) if is_elsewhere(error) => {
                if cache.is_behind(dir).is_ok() {
                    self.unwatched.insert(dir.id, dir);
                }
                return true;
            }
            Err(_) => return false,
            Ok(handle) => handle,
        };
        let Some(number) = handle.number() else { return false };
        match inotify::add_watch(&self.events, format!("/proc/self/fd/{number}/."), wanted()) {
            Ok(watch) => {
                self.by_watch.insert(watch, dir);
                self.by_node.insert(dir.id, watch);
                self.new.push(dir);
                true
            }
            Err(_) => false,
        }
    }

    /// Compares the names of a directory.
    fn compare(&mut self, cache: &Cache, cx: &Cx, dir: Node, goes_on: &dyn Fn() -> bool) {
        let look = cache.refresh_one_while(cx, dir, &mut || goes_on());
        let is_later = look.map_or_else(is_elsewhere, |look| look != Look::Done);
        if is_later && cache.is_behind(dir).is_ok() {
            self.uncompared.insert(dir.id, dir);
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
        self.later.retain(|id, _| here.contains(id));
        self.soon.retain(|id, _| here.contains(id));
        self.unwatched.retain(|id, _| here.contains(id));
        self.moves.retain(|one| here.contains(&one.from.0.id) && here.contains(&one.to.0.id));
        self.new.retain(|dir| here.contains(&dir.id));
        self.uncompared.retain(|id, _| here.contains(id));
    }

    /// Looks at what the kernel has told of since the last time, and at what has waited for a round that is over. Whether a
    /// round over all is needed.
    pub fn look(&mut self, cache: &Cache, cx: &Cx) -> bool {
        let mut told = self.read();
        let is_asked = told.is_asked;
        let is_due = self.look_at_all(cache, cx, &mut told);
        if is_asked && !is_due {
            cache.fs().count_answer();
        }
        is_due
    }

    fn look_at_all(&mut self, cache: &Cache, cx: &Cx, told: &mut Told) -> bool {
        for (dir, seen) in std::mem::take(&mut self.seen) {
            if !told.names.contains_key(&dir.id) {
                let _ = cache.settle(cx, dir, &seen);
            }
        }
        self.again(cache, &mut told.names);
        self.follow_moves(cache, cx, told);
        for (dir, names) in std::mem::take(&mut told.names).into_values() {
            match self.look_at(cache, cx, dir, names) {
                Err(Error::Posix(Errno::ENOSPC)) => return true,
                Ok(Look::Done) => match cache.see(cx, dir) {
                    Ok(seen) => self.seen.push((dir, seen)),
                    // Moved below, and that is not followed yet.
                    Err(error) if is_elsewhere(error) => {
                        self.later.entry(dir.id).or_insert_with(|| (dir, HashSet::new()));
                    }
                    Err(_) => {}
                },
                // What is noted of it is not to be newer than its names.
                _ => {}
            }
        }
        told.is_overflown
    }

    /// Has what other programs have moved below move here too. The names of moves that wait for a round wait as well.
    fn follow_moves(&mut self, cache: &Cache, cx: &Cx, told: &mut Told) {
        let moves = std::mem::take(&mut self.moves);
        for one in moves.into_iter().chain(std::mem::take(&mut told.moves)) {
            let (from, to) = (&one.from, &one.to);
            let waits = matches!(cache.follow_move(cx, (from.0, &from.1), (to.0, &to.1)), Ok(Look::Later | Look::Again));
            if !waits || one.since.elapsed() > FOLLOWED {
                continue;
            }
            for (dir, name) in [from, to] {
                if let Some((_, names)) = told.names.get_mut(&dir.id) {
                    names.remove(name);
                }
                self.later.entry(dir.id).or_insert_with(|| (*dir, HashSet::new())).1.insert(name.clone());
            }
            self.moves.push(one);
        }
    }

    /// Adds what has waited for a round to the names that are looked at, if one is over.
    fn again(&mut self, cache: &Cache, names: &mut Names) {
        for (id, (dir, soon)) in std::mem::take(&mut self.soon) {
            names.entry(id).or_insert_with(|| (dir, HashSet::new())).1.extend(soon);
        }
        let news = cache.news();
        if news.rounds == self.settled.rounds && self.again.elapsed() < AGAIN {
            return;
        }
        (self.settled, self.again) = (news, Instant::now());
        for (id, (dir, later)) in std::mem::take(&mut self.later) {
            names.entry(id).or_insert_with(|| (dir, HashSet::new())).1.extend(later);
        }
        self.new.extend(std::mem::take(&mut self.uncompared).into_values());
    }

    /// Looks at names of a directory; those that are newer here are kept.
    fn look_at(&mut self, cache: &Cache, cx: &Cx, dir: Node, names: HashSet<Vec<u8>>) -> base::Result<Look> {
        if names.len() > NAMES_MAX {
            let look = cache.refresh_one(cx, dir)?;
            if look != Look::Done {
                self.uncompared.insert(dir.id, dir);
            }
            return Ok(look);
        }
        let mut all = Look::Done;
        for name in names {
            match cache.refresh_entry(cx, dir, &name) {
                // Gone here meanwhile, or there.
                Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) | Ok(Look::Done) => {}
                Ok(look) => {
                    all = look;
                    let kept = if look == Look::Again { &mut self.soon } else { &mut self.later };
                    kept.entry(dir.id).or_insert_with(|| (dir, HashSet::new())).1.insert(name);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn read(&mut self) -> Told {
        let (mut told, mut buffer) = (Told::default(), [MaybeUninit::uninit(); 32768]);
        let mut left = HashMap::new();
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                told.is_overflown = true;
            }
            told.is_asked |= self.asked_by == Some(event.wd());
            let Some(&dir) = self.by_watch.get(&event.wd()) else { continue };
            if event.events().intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF) {
                self.by_watch.remove(&event.wd());
                self.by_node.remove(&dir.id);
                // A round makes it again if it is newer here.
                self.unwatched.insert(dir.id, dir);
                continue;
            }
            let (_, names) = told.names.entry(dir.id).or_insert_with(|| (dir, HashSet::new()));
            let Some(name) = event.file_name().map(|name| name.to_bytes().to_vec()) else { continue };
            names.insert(name.clone());
            if event.events().contains(ReadFlags::MOVED_FROM) {
                left.insert(event.cookie(), (dir, name));
            } else if event.events().contains(ReadFlags::MOVED_TO)
                && let Some(from) = left.remove(&event.cookie())
            {
                told.moves.push(Move { from, to: (dir, name), since: Instant::now() });
            }
        }
        told
    }
}

/// Whether a directory is not at its path below yet, or not any more, which a look at its name finds.
fn is_elsewhere(error: Error) -> bool {
    matches!(error, Error::Posix(Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ELOOP))
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
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
        | WatchFlags::DONT_FOLLOW
}

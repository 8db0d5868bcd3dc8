//! Names and attributes, read without the session's lock.
//!
//! The lock is a sequence lock to whoever only reads: it notes the version,
//! goes along the chains while the lock is free, and is believed if afterwards
//! the lock is free still and the version the same. Who holds the lock may have
//! changed anything meanwhile, so what is read on the way may be nonsense: every
//! index is checked, every chain ends after a few steps, and nothing is kept before
//! the end. Who is unsure takes the lock, or asks.
//!
//! The orderings, for which `models/src/session.rs` has the schedules: a writer's
//! lock comes before its changes (a release fence in [`SessionCache::lock`]), and a reader's
//! changes before its second look at the lock (an acquire fence in `is_still`); so
//! a reader who has seen any of the changes finds the lock taken, or the version a new one.

use super::chains::{hash_of, hash_of_short};
use super::{Found, NAMED, NEGATIVE, Record, SessionCache};
use base::stat::Stat;
use base::{Attr, Caller, Fast, Kind, Node};
use core::mem::MaybeUninit;
use core::sync::atomic::{Ordering::*, fence};
use pm::Text;

/// Nodes of a chain that a look-up without the lock follows.
const STEPS: u32 = 16;

/// Whose path it is, and what is to be shown at its end.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// Who must have search permission in each directory; `None`: nobody is asked for it.
    pub who: Option<&'a Caller>,
    /// A symlink at the end is not what is meant.
    pub follow: bool,
    /// `st_dev` where the lower file system says none.
    pub device: u64,
}

impl SessionCache {
    /// The version, if nobody holds the lock.
    #[inline(always)]
    fn version(&self) -> Option<u64> {
        let header = self.header();
        let version = header.version.load(Acquire);
        (header.lock.load(Acquire) == 0).then_some(version)
    }

    /// Whether nobody has held the lock since it was `version`.
    #[inline(always)]
    fn is_still(&self, version: u64) -> bool {
        fence(Acquire);
        let header = self.header();
        header.lock.load(Acquire) == 0 && header.version.load(Relaxed) == version
    }

    /// The node or absence with this hash in the directory in slot `parent` that `is_called` so and is believed at `now`.
    #[inline(always)]
    fn believed(&self, parent: u32, hash: u32, now: u64, is_called: impl Fn(&Record) -> bool) -> Option<(u32, &Record)> {
        let mut at = self.bucket(hash).ok()?.load(Relaxed);
        for _ in 0..STEPS {
            let index = at.checked_sub(1)?;
            let record = self.record(index)?;
            if record.hash.load(Relaxed) == hash && record.parent.load(Relaxed) == parent && is_called(record) {
                return (now < record.entry_until.load(Relaxed)).then_some((index, record));
            }
            at = record.next.load(Relaxed);
        }
        None
    }

    /// What is known of `name` in `dir`, if that can be said without the lock.
    pub(super) fn find_fast(&self, dir: Node, name: &[u8]) -> Option<Found> {
        let version = self.version()?;
        self.get(dir).ok()?;
        let parent = dir.id as u32;
        let (index, record) = self.believed(parent, hash_of(parent, name), Self::now(), |record| record.is_called(name))?;
        let found = self.found_at(index, record);
        self.is_still(version).then(|| {
            self.found(record, 1);
            found
        })
    }

    /// A node's attributes, if they are believed and that can be said without the lock.
    pub(super) fn attr_fast(&self, node: Node) -> Option<Attr> {
        let version = self.version()?;
        let record = self.get(node).ok()?;
        let attr = self.has_attr(record, Self::now()).then(|| record.get_attr())?;
        self.is_still(version).then_some(attr)
    }

    /// `walk` and `attr` of a plain path without the lock, where that can be done.
    #[inline]
    pub fn stat_fast(&self, base: Node, path: Text, rule: &Rule, out: &mut MaybeUninit<Stat>) -> Fast<()> {
        let (Some(version), Ok(mut dir)) = (self.version(), self.get(base)) else { return Fast::Slow };
        let now = Self::now();
        let mut index = base.id as u32;
        let (mut rest, mut names) = (path, 0);
        loop {
            if dir.kind() != Kind::Directory || rule.who.is_some_and(|who| !self.may_search(who, dir, now)) {
                return Fast::Slow;
            }
            let (found, end) = match rest.short() {
                // Empty, `.` or `..`.
                Some((name, _)) if name.may_be_dots() => return Fast::Slow,
                Some((name, end)) => {
                    let hash = hash_of_short(index, &name);
                    (self.believed(index, hash, now, |record| record.is_called_short(&name)), end)
                }
                None => {
                    let (name, end) = rest.component();
                    if path.is_long_by(rest, end) {
                        return Fast::Slow;
                    }
                    (self.believed(index, hash_of(index, name), now, |record| record.is_called(name)), end)
                }
            };
            let Some((at, record)) = found else { return Fast::Slow };
            names += 1;
            match (record.state.load(Relaxed), end.next()) {
                (NAMED, Some(next)) => (dir, index, rest) = (record, at, next),
                (state @ (NAMED | NEGATIVE), None) => {
                    let found = match state {
                        NEGATIVE if self.is_still(version) => Fast::Absent,
                        NAMED => self.stat_of(record, version, now, rule, out),
                        _ => Fast::Slow,
                    };
                    if found != Fast::Slow {
                        self.found(record, names);
                    }
                    return found;
                }
                _ => return Fast::Slow,
            }
        }
    }

    /// `attr` of a node without the lock, where that can be done. `device` where the lower file system says none.
    pub fn stat_node_fast(&self, node: Node, device: u64, out: &mut MaybeUninit<Stat>) -> Fast<()> {
        let (Some(version), Ok(record)) = (self.version(), self.get(node)) else { return Fast::Slow };
        self.stat_of(record, version, Self::now(), &Rule { who: None, follow: false, device }, out)
    }

    #[inline(always)]
    fn stat_of(&self, record: &Record, version: u64, now: u64, rule: &Rule, out: &mut MaybeUninit<Stat>) -> Fast<()> {
        let figures = record.figures(rule.device);
        let is_link = rule.follow && record.kind() == Kind::Symlink;
        // A `statx` wants to know when it was made, if the lower file system does.
        let is_dated = record.times[3].load(Relaxed) as i64 != i64::MIN;
        if is_link || is_dated || !self.has_attr(record, now) || !self.is_still(version) {
            return Fast::Slow;
        }
        match figures.write(out) {
            true => Fast::Done(()),
            false => Fast::Slow,
        }
    }

    /// Whether everybody, the superuser, or the owner `who` may search a directory; by group, the proper way finds out.
    #[inline(always)]
    fn may_search(&self, who: &Caller, dir: &Record, now: u64) -> bool {
        let mode = dir.kind_mode.load(Relaxed);
        self.has_rights(dir, now) && (mode & 0o111 == 0o111 || who.may_search_own(dir.uid.load(Relaxed), mode))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::SessionCache;
    use super::*;
    use crate::{Caching, Entry};
    use base::Errno;
    use core::sync::atomic::{AtomicBool, AtomicU64};
    use std::ffi::CString;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    /// A session with a file of its own.
    struct Place(SessionCache, std::path::PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let path = std::env::temp_dir().join(format!("bypath-found-{}-{name}", std::process::id()));
            std::fs::File::create(&path).unwrap().set_len(SessionCache::bytes()).unwrap();
            let text = CString::new(path.to_str().unwrap()).unwrap();
            Place(SessionCache::open(text.as_bytes_with_nul()).unwrap(), path)
        }

        fn enter(&self, dir: Node, name: &[u8], key: u64, kind: Kind, mode: u16) -> Node {
            let attr = Attr { ino: key, kind, mode, nlink: 1, uid: 7, size: key, ..Attr::EMPTY };
            let long = 1 << 40;
            let entry = Entry {
                key,
                device: 0,
                attr,
                entry_ns: long,
                attr_ns: long,
                incarnation: 0,
                handle: None,
                caching: Caching::None,
            };
            self.0.enter(dir, name, &entry, self.0.moment(), &mut |_, _, _| ()).unwrap()
        }

        /// What is seen, and of which inode.
        fn look(&self, base: Node, path: &str, who: Option<&Caller>, follow: bool) -> (Fast<()>, Option<u64>) {
            let path = CString::new(path).unwrap();
            let mut out = MaybeUninit::uninit();
            // SAFETY: the text ends in a NUL.
            let text = unsafe { Text::new(path.as_ptr().cast()) };
            let found = self.0.stat_fast(base, text, &Rule { who, follow, device: 9 }, &mut out);
            // SAFETY: it was seen, so it was written.
            (found, (found == Fast::Done(())).then(|| unsafe { out.assume_init_ref() }.st_ino))
        }

        fn sees(&self, path: &str) -> Option<u64> {
            self.look(self.0.root(), path, None, true).1
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.1);
        }
    }

    /// Goal: the fast path tells what the cache knows, of names of every length, and is unsure of all else.
    #[test]
    fn as_with_the_lock() {
        let place = Place::new("lock");
        let (session, root) = (&place.0, place.0.root());
        let dir = place.enter(root, b"dir", 2, Kind::Directory, 0o755);
        let names: Vec<String> =
            (1..=255).map(|len| (0..len).map(|at| (b'a' + (at * 7 + len) as u8 % 26) as char).collect()).collect();
        for (index, name) in names.iter().enumerate() {
            place.enter(dir, name.as_bytes(), 100 + index as u64, Kind::Regular, 0o644);
        }
        for (index, name) in names.iter().enumerate() {
            assert_eq!(place.sees(&format!("dir/{name}")), Some(100 + index as u64), "{name}");
            assert_eq!(place.look(dir, name, None, true).1, Some(100 + index as u64));
        }
        session.enter_absent(dir, b"nobody", 1 << 40, session.moment(), &mut |_, _, _| ()).unwrap();
        assert_eq!(place.look(root, "dir/nobody", None, true).0, Fast::Absent);
        let link = place.enter(dir, b"link", 3, Kind::Symlink, 0o777);
        assert_eq!(place.look(root, "dir/link", None, false), (Fast::Done(()), Some(3)));
        let file = names[3].as_str();
        for unsure in ["", ".", "..", "dir/", "dir/.", "dir//x", "dir/nobody/x", "dir/unheard", "dir/link", "dir/link/x"] {
            assert_eq!(place.look(root, unsure, None, true).0, Fast::Slow, "{unsure}");
        }
        assert_eq!(place.look(root, &format!("dir/{file}/x"), None, true).0, Fast::Slow);
        assert_eq!(place.look(link, file, None, true).0, Fast::Slow, "not a directory");

        // What is to be asked for again.
        session.forget_attr(dir);
        assert_eq!(place.look(root, "dir", None, true).0, Fast::Slow);
        assert_eq!(place.sees(&format!("dir/{file}")), Some(103), "its attributes matter to nobody");
        session.doubt(dir, file.as_bytes());
        assert_eq!(place.look(dir, file, None, true).0, Fast::Slow);
        // The lock is held, if only by somebody who died.
        let other = names[4].as_str();
        session.header().lock.store(u32::MAX / 4, Relaxed);
        assert_eq!(place.look(dir, other, None, true).0, Fast::Slow);
        session.header().lock.store(0, Relaxed);
        assert_eq!(place.sees(&format!("dir/{other}")), Some(104));
        assert_eq!(session.get(Node { id: 1 << 32 | 5000, hint: 0 }).err(), Some(Errno::ESTALE.into()));
    }

    /// Goal: where search permission is asked for, everybody, the owner and the superuser are seen to have it.
    #[test]
    fn permission() {
        let place = Place::new("permission");
        let root = place.0.root();
        for (name, mode) in [(b"free", 0o711), (b"ours", 0o700), (b"none", 0o600)] {
            let dir = place.enter(root, name, 2, Kind::Directory, mode);
            place.enter(dir, b"file", 3, Kind::Regular, 0o644);
        }
        let base = |name: &[u8]| place.0.last_known(root, name).unwrap();
        let owner = Caller { uid: 7, privileged: false };
        let other = Caller { uid: 8, privileged: false };
        let super_user = Caller { uid: 0, privileged: true };
        for (name, who, seen) in [
            ("free", &other, true),
            ("ours", &other, false),
            ("ours", &owner, true),
            ("none", &owner, false),
            ("none", &super_user, true),
        ] {
            let (found, _) = place.look(base(name.as_bytes()), "file", Some(who), true);
            assert_eq!(found == Fast::Done(()), seen, "{name} {who:?}");
        }
        // Whose attributes are not known any more, nobody is seen to search.
        place.0.forget_attr(base(b"free"));
        assert_eq!(place.look(base(b"free"), "file", Some(&super_user), true).0, Fast::Slow);
    }

    /// Goal: what is seen beside a program that moves names and changes attributes was so at one moment.
    #[test]
    fn never_torn() {
        let place = Place::new("torn");
        let (session, root) = (&place.0, place.0.root());
        let node = place.enter(root, b"a", 5, Kind::Regular, 0o644);
        let (over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut names: [&[u8]; 2] = [b"a", b"a name of more than sixteen bytes"];
                for turn in 1..60_000_000u32 {
                    // On a busy machine the other one may not have run yet.
                    if turn >= 60_000 && seen.load(Relaxed) != 0 {
                        break;
                    }
                    let time = i64::from(turn);
                    let (size, blocks) = (u64::from(turn), u64::from(turn));
                    let times = Attr { atime: time, mtime: time, ctime: time, ..Attr::EMPTY };
                    let attr = Attr { ino: 5, kind: Kind::Regular, uid: turn, gid: turn, size, blocks, ..times };
                    session.set_attr(node, &attr, 1 << 40, session.moment()).unwrap();
                    if turn % 4 == 0 {
                        session.moved((root, names[0]), (root, names[1]), false, session.moment(), &mut |_, _, _| ()).unwrap();
                        names.reverse();
                    }
                    if turn % 16 == 0 {
                        // A program that is put off for a while, with the lock.
                        let _guard = session.lock();
                        std::thread::yield_now();
                    }
                }
                over.store(true, Relaxed);
            });
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    for path in [c"a", c"a name of more than sixteen bytes"] {
                        let mut out = MaybeUninit::uninit();
                        // SAFETY: the text ends in a NUL.
                        let text = unsafe { Text::new(path.as_ptr().cast()) };
                        let rule = Rule { who: None, follow: true, device: 9 };
                        if session.stat_fast(root, text, &rule, &mut out) == Fast::Done(()) {
                            // SAFETY: it was seen, so it was written.
                            let stat = unsafe { out.assume_init() };
                            let turn = i64::from(stat.st_uid);
                            let times = [stat.st_mtime_nsec as i64, stat.st_ctime_nsec as i64];
                            let all = [i64::from(stat.st_gid), stat.st_blocks, times[0], times[1]];
                            assert!(stat.st_ino == 5 && (turn == 7 || all == [turn; 4]), "{turn} {all:?}");
                            seen.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        });
        assert!(seen.load(Relaxed) != 0);
    }
}

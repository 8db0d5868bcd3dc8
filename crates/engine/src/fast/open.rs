//! A description for what was found, and its end. The protocol is that of `process::descriptions`.

use crate::fs::{Fs, Opens};
use crate::process::descriptions::{DOUBT, PINNED, forget_pin};
use crate::process::table::PAGE_DESCRIPTORS;
use crate::segment::{Cachelet, Descriptor, cachelet};
use base::{Cx, DescriptionId, Fast, Kind, Node, Sight};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use openfiles::refcount::{self, MAKING};
use openfiles::{OpenFile, Unclosed};
use pm::sys::abi;

/// Flags of a cachelet that is not to be pinned without further ado.
const ODD: u32 =
    cachelet::EVICTING | cachelet::DELETING | cachelet::DEAD | cachelet::INVALID | cachelet::EXECUTED | cachelet::UNCOMPARED;
/// Flags of a cachelet whose last close leaves something to do.
const LEFT: u32 = cachelet::AHEAD | cachelet::MAPPED | cachelet::INVALID | cachelet::REMOVED;

impl Fs {
    /// Opens what the fast path has found as number `fd`, with these flags; nothing else is asked of who opens it.
    #[inline(always)]
    pub fn open_fast(&self, found: &Sight, flags: u32, fd: u32) -> Fast<DescriptionId> {
        self.try_open(found, flags, fd).into()
    }

    #[inline(always)]
    fn try_open(&self, found: &Sight, flags: u32, fd: u32) -> Option<DescriptionId> {
        if flags & abi::O_ACCMODE != abi::O_RDONLY && !self.is_writable() {
            return None;
        }
        let cachelet = self.cachelets.get(found.node.hint)?;
        let (id, description) = self.open_cachelet(cachelet, found.node, found.kind()?, flags, fd)?;
        description.parent.store(found.parent, Relaxed);
        Some(id)
    }

    /// Opens a node whose cachelet is `cachelet`, if that is so, and if there is a description and the number's place is
    /// in the first page. `None`: what was done has been taken back.
    #[inline(always)]
    fn open_cachelet(
        &self,
        cachelet: &Cachelet,
        node: Node,
        kind: Kind,
        flags: u32,
        fd: u32,
    ) -> Option<(DescriptionId, &OpenFile)> {
        let process = self.process.load(Relaxed);
        let place = self.opens.place(fd)?;
        // The one that this number had last, so that threads whose numbers differ have descriptions of their own.
        let last = place.last.load(Relaxed).wrapping_sub(1);
        let (id, description) = match self.opens.descriptions.get(last) {
            // Peers may have written anything there.
            Some(description) if last < self.opens.known.load(Relaxed) && is_taken(description, process) => (last, description),
            _ => self.next_description(process, &place.last)?,
        };
        pm::touched();
        description.node.store(node.id, Relaxed);
        description.hint.store(node.hint, Relaxed);
        description.pin.store(DOUBT, Release);
        pm::touched();
        // Count first, then look.
        cachelet.opens.fetch_add(1, SeqCst);
        pm::touched();
        if cachelet.flags.load(SeqCst) & ODD != 0 || cachelet.node.load(SeqCst) != node.id {
            self.open_undone(cachelet, description);
            return None;
        }
        description.pin.store(PINNED, Release);
        pm::touched();
        description.flags.store(flags, Relaxed);
        description.offset.store(0, Relaxed);
        description.offset_owner.store(0, Relaxed);
        description.kind.store(kind as u32, Relaxed);
        if place.word.compare_exchange(0, id + 1, AcqRel, Relaxed).is_err() {
            // A number that was left in the table.
            self.open_undone(cachelet, description);
            return None;
        }
        pm::touched();
        description.refs.store(refcount::opened(process.wrapping_sub(1), fd), Release);
        Some((id, description))
    }

    /// A free description, marked as being made: the next one, which `last` takes note of.
    #[inline(never)]
    fn next_description(&self, process: u32, last: &AtomicU32) -> Option<(DescriptionId, &OpenFile)> {
        let id = self.description_hint.load(Relaxed);
        let description = self.opens.descriptions.get(id)?;
        if !self.header().descriptions_high.has(id) || !is_taken(description, process) {
            return None;
        }
        self.description_hint.store(id + 1, Relaxed);
        self.opens.known.fetch_max(id + 1, Relaxed);
        last.store(id + 1, Relaxed);
        Some((id, description))
    }

    /// Takes back what `open_cachelet` has begun.
    #[cold]
    #[inline(never)]
    fn open_undone(&self, cachelet: &Cachelet, description: &OpenFile) {
        self.with_own_context(|cx| self.unpin(cx, cachelet, description));
        description.refs.store(0, Release);
    }

    /// Begins to close a number of this process, shared or not; nearly always that is all. Else the rest is for [`Fs::close_rest`].
    #[inline(always)]
    pub fn close_fast(&self, fd: u32) -> Option<Unclosed> {
        let Some(place) = self.opens.place(fd) else { return Some(Unclosed::All) };
        self.close_seen(fd, &place.word, place.word.load(Acquire))
    }

    /// Closes a number of this process whose place held `entry` when it was looked at.
    #[inline(always)]
    fn close_seen(&self, fd: u32, place: &AtomicU32, entry: u32) -> Option<Unclosed> {
        let process = self.process.load(Relaxed);
        let id = entry.wrapping_sub(1);
        let Some(description) = self.opens.descriptions.get(id) else { return Some(Unclosed::All) };
        let opened = refcount::opened(process.wrapping_sub(1), fd);
        if description.refs.compare_exchange(opened, MAKING | u64::from(process), SeqCst, Relaxed).is_err() {
            return Some(Unclosed::All);
        }
        pm::touched();
        // Nobody else ever held it: marked before it leaves the table, so that it ends even if we die in between.
        if place.compare_exchange(entry, 0, AcqRel, Relaxed).is_err() {
            return Some(Unclosed::Placed(id));
        }
        if description.pin.load(Acquire) != PINNED || description.locks.load(SeqCst) != 0 {
            return Some(Unclosed::Marked(id));
        }
        let Some(cachelet) = self.cachelets.get(description.hint.load(Relaxed)) else { return Some(Unclosed::Marked(id)) };
        description.pin.store(DOUBT, Release);
        pm::touched();
        let last = cachelet.opens.fetch_sub(1, SeqCst) == 1;
        pm::touched();
        forget_pin(description, 0);
        pm::touched();
        if last && leaves_something(cachelet) {
            return Some(Unclosed::Last(id));
        }
        description.refs.store(0, Release);
        None
    }

    /// Closes the rest of what [`Fs::close_fast`] began.
    #[cold]
    #[inline(never)]
    pub fn close_rest(&self, cx: &Cx, fd: u32, rest: Unclosed) {
        match rest {
            Unclosed::All => {
                if let Ok(process) = self.own_process() {
                    self.give_up(cx, process, fd);
                }
            }
            Unclosed::Placed(id) => {
                if let Some(place) = self.opens.place(fd) {
                    refcount::leave(&place.word, id);
                }
                self.end_description(cx, id, self.description(id));
            }
            Unclosed::Marked(id) => self.end_description(cx, id, self.description(id)),
            Unclosed::Last(id) => {
                let description = self.description(id);
                if let Some(cachelet) = self.cachelets.get(description.hint.load(Relaxed)) {
                    self.last_unpin(cx, cachelet);
                }
                description.refs.store(0, Release);
            }
        }
    }
}

impl Opens {
    /// The place of a number of this process, if it is one of the first and they have space.
    #[inline]
    fn place(&self, fd: u32) -> Option<&Descriptor> {
        if u64::from(fd) >= PAGE_DESCRIPTORS {
            return None;
        }
        self.descriptors.get(self.own.load(Relaxed).wrapping_add(fd))
    }
}

/// Whether a description was free, and is being made by process `process - 1` now.
#[inline]
fn is_taken(description: &OpenFile, process: u32) -> bool {
    description.refs.compare_exchange(0, MAKING | u64::from(process), AcqRel, Relaxed).is_ok()
}

/// Whether the last to close a node has more to do than to go.
#[inline]
fn leaves_something(cachelet: &Cachelet) -> bool {
    let nameless = || cachelet.nlink.load(Acquire) == 0 && cachelet.mode.load(Relaxed) >> 16 & 0xff != Kind::Directory as u32;
    cachelet.flags.load(SeqCst) & LEFT != 0 || nameless()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::census::Census;
    use crate::testing::TestFs;
    use base::{Lock, LockKind, LockOwner, NewNode};

    /// Opens a file for reading and writing, on the fast path.
    fn open(test: &TestFs, node: Node, fd: u32) -> Option<DescriptionId> {
        test.open_cachelet(test.cachelets.get(node.hint)?, node, Kind::Regular, 2, fd).map(|(id, _)| id)
    }

    /// Goal: what is opened on the fast path is open as by `open`, and ends as completely.
    /// Method: a plain close; the last one of a file without a name; one of a file
    /// with a lock; a node that is gone; a number without space.
    #[test]
    fn opens_and_closes() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let make = |name: &[u8]| {
            let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
            test.create(&cx, root, name, &new).unwrap()
        };
        let (file, gone) = (make(b"file"), make(b"gone"));
        let open = |node, fd| open(&test, node, fd);
        assert_eq!(open(file, 4), None, "the page of the number has no space yet");
        test.open(&cx, file, 2, 4).unwrap();
        test.close(&cx, 4);
        let before = test.census();

        let id = open(file, 4).unwrap();
        let description = test.description(id);
        let seen = (description.node.load(Relaxed), description.flags.load(Relaxed), description.refs.load(Relaxed));
        let opened = refcount::opened(test.process.load(Relaxed) - 1, 4);
        assert_eq!((seen, test.census().pins), ((file.id, 2, opened), before.pins + 1));
        test.close(&cx, 4);
        assert_eq!(test.census(), before);

        let files = || test.statfs().map(|figures| figures.files - figures.files_free).unwrap();
        let with_both = files();
        open(gone, 5).unwrap();
        test.unlink(&cx, root, b"gone").unwrap();
        assert_eq!(files(), with_both);
        test.close(&cx, 5);
        assert_eq!(files(), with_both - 1);
        assert_eq!((open(gone, 5), test.census()), (None, before), "freed, and nothing left of the attempt");

        let id = open(file, 6).unwrap();
        let lock =
            Lock { owner: LockOwner::Flock(id), through: None, kind: LockKind::Exclusive, start: 0, end: u64::MAX, pid: 0 };
        test.advisory_lock(&cx, file, &lock).unwrap();
        assert_eq!(test.census().advisory, 1);
        test.close(&cx, 6);
        assert_eq!(test.census(), before);

        // A number that was left in the table: slow, and the old holder goes.
        open(file, 7).unwrap();
        let before_it = test.census();
        assert_eq!((open(file, 7), test.census()), (None, before_it));
        test.open(&cx, file, 2, 7).unwrap();
        assert_eq!(test.census().descriptions, before.descriptions + 1);
        test.close(&cx, 7);
        assert_eq!(test.census(), before);
    }

    /// Goal: a number finds the description that it had last, and a free one where that is taken.
    #[test]
    fn last_descriptions() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let file = test.create(&cx, root, b"file", &new).unwrap();
        test.open(&cx, file, 2, 40).unwrap();
        test.close(&cx, 40);
        let open = |fd| open(&test, file, fd).unwrap();
        let (three, four) = (open(3), open(4));
        assert_ne!(three, four);
        test.close(&cx, 3);
        test.close(&cx, 4);
        // Whoever opens first takes nothing from the other.
        assert_eq!((open(4), open(3)), (four, three));
        // Its description is somebody else's meanwhile.
        test.close(&cx, 3);
        let taken = test.try_description(three, 99).unwrap().1;
        test.description_hint.store(four + 1, Relaxed);
        let other = open(3);
        assert!(![three, four].contains(&other));
        taken.refs.store(0, Relaxed);
        test.close(&cx, 3);
        assert_eq!(open(3), other, "as it had it last");
        test.close(&cx, 3);
        test.close(&cx, 4);
        assert_eq!(test.census().descriptions, 0);
        // Whatever a peer writes there, nothing but what is free and has space.
        let high = test.header().descriptions_high.get();
        for word in [u32::MAX, 0, high + 1, other + 1] {
            test.opens.place(3).unwrap().last.store(word, Relaxed);
            test.description_hint.store(other, Relaxed);
            assert_eq!(open(3), other, "{word}");
            test.close(&cx, 3);
        }
        assert_eq!(test.census().descriptions, 0);
    }

    /// Goal: whoever closes a number that another thread has closed meanwhile ends nothing of somebody else's.
    /// Method: the second close sees what the first one saw, but goes on when the description is in use under
    /// another number; when it is free; when the number has been opened again as it was.
    #[test]
    fn closed_twice() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let (one, two) = (test.create(&cx, root, b"one", &new).unwrap(), test.create(&cx, root, b"two", &new).unwrap());
        // The numbers get space.
        test.open(&cx, one, 2, 4).unwrap();
        test.close(&cx, 4);
        let before = test.census();
        let open = |node, fd| open(&test, node, fd).unwrap();
        let process = test.process.load(Relaxed);
        let place = &test.opens.place(4).unwrap().word;

        let id = open(one, 4);
        let seen = place.load(Acquire);
        test.close(&cx, 4);
        test.description_hint.store(id, Relaxed);
        assert_eq!(open(two, 5), id, "the description is used again");
        let (description, opened) = (test.description(id), refcount::opened(process - 1, 5));
        // Were it marked, and this thread killed now, it would be ended under its holder.
        assert_eq!(test.close_seen(4, place, seen), Some(Unclosed::All));
        assert_eq!((description.node.load(Relaxed), description.refs.load(Relaxed)), (two.id, opened));
        test.close_rest(&cx, 4, Unclosed::All);
        assert_eq!((description.node.load(Relaxed), description.refs.load(Relaxed)), (two.id, opened));
        assert_eq!(test.census(), Census { descriptions: before.descriptions + 1, pins: before.pins + 1, ..before });
        test.close(&cx, 5);
        assert_eq!(test.close_seen(4, place, seen), Some(Unclosed::All));
        test.close_rest(&cx, 4, Unclosed::All);
        assert_eq!(test.census(), before);

        // Another thread is giving it up, by the other way, and waits for the mark: whoever has set it ends it.
        assert_eq!(open(one, 4), id);
        place.store(seen | 1 << 30, Release);
        assert_eq!(test.close_seen(4, place, seen), Some(Unclosed::Placed(id)));
        test.close_rest(&cx, 4, Unclosed::Placed(id));
        assert_eq!((place.load(Relaxed), test.census()), (0, before));

        // Opened again it is the number's own: one close closes it, as in the kernel.
        assert_eq!(open(one, 4), id);
        assert_eq!(test.close_seen(4, place, seen), None);
        assert_eq!((place.load(Relaxed), test.census()), (0, before));
    }
}

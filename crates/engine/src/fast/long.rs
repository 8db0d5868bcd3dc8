//! A name that is too long for a cachelet: its edentry has it.
//!
//! Out of line: nine names in ten are shorter. The entry in the bucket leads to the
//! edentry, whose head, directory and name are compared on the medium, and to the
//! cachelet, which must be that of the edentry's child.
//!
//! Invariants
//! - An edentry is never changed while the entry stands that leads to it, so what
//!   was read counts only if the entry is found unchanged after that.
//! - The child is read before the head, which was written before it: a line that was used
//!   again for another name of the same fingerprint shows the new half of the hash with the new child.
//! - The cachelet's sequence is read before its node, and both before the entry is
//!   looked at again: if the sequence is still the same when the attributes have
//!   been read, they are those of the node that had the name.

use super::lookup::Found;
use crate::fs::Fs;
use crate::index::EntryKey;
use crate::segment::Cachelet;
use base::Fast;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::bucket::{Bucket, entry_offset};
use format::edentry::{Edentry, NAME_MAX};

impl Fs {
    /// Looks for a name that no cachelet carries.
    #[cold]
    #[inline(never)]
    pub(super) fn find_longer(&self, parent: u64, name: &[u8]) -> Found<'_> {
        if name.len() > NAME_MAX {
            return Fast::Slow;
        }
        let key = self.entry_key(parent, name);
        let at = |bucket, i| self.cachelet_by_edentry(bucket, i, &key);
        self.find_hash(key.hash, at, |home, buckets| self.find_in_chain((home, buckets), key.hash, &at))
    }

    /// The entry may be the name's: what its edentry says, and whose cachelet lies beside it.
    fn cachelet_by_edentry(&self, bucket: &Bucket, i: usize, key: &EntryKey) -> Option<(&Cachelet, u32)> {
        let entry = bucket.entries[i].load(Acquire);
        let child = self.cachelets.get(self.hint_of(bucket, i))?;
        let sequence = child.sequence.load(Acquire);
        let node = child.node.load(Relaxed);
        let offset = entry_offset(entry);
        let edentry = self.image.at::<Edentry>(offset)?;
        let named = node != 0
            && !self.is_covered(node)
            && edentry.child.load(Acquire) == node
            && key.may_be_in(edentry, edentry.head.load(Acquire))
            && self.has_name(offset, edentry, key.name) == Ok(true);
        fence(Acquire);
        let stands = bucket.entries[i].load(Relaxed) == entry;
        (named && stands && sequence & 1 == 0).then_some((child, sequence))
    }
}

#[cfg(test)]
mod tests {
    use crate::index::EntryKey;
    use crate::testing::{TestFs, find_fast as look};
    use base::{Cx, Fast, Kind, NewNode, Node, RenameMode, Thread};
    use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};
    use core::sync::atomic::{AtomicBool, AtomicU64, fence};
    use format::hash::fingerprint;
    use format::inode::node_offset;
    use std::vec;
    use std::vec::Vec;

    /// A name of `len` bytes that differs from others in its last one only.
    fn name(len: usize, last: u8) -> Vec<u8> {
        let mut name = vec![b'n'; len];
        name[len - 1] = last;
        name
    }

    fn make(test: &TestFs, cx: &Cx, dir: Node, name: &[u8], kind: Kind, mode: u16) -> Node {
        test.create(cx, dir, name, &NewNode { kind, mode, rdev: 0, target: b"" }).unwrap()
    }

    /// Goal: the fast path finds names of every length, tells apart those that differ in the last byte
    /// only, at their end and in the middle of a path, and is not sure of what is too long.
    /// Method: lengths around what a cachelet, an edentry and each of its further lines hold.
    #[test]
    fn sees_names_of_every_length() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        // The first look in a step of the index only learns where it lies.
        look(&test, root, b"missing");
        for len in [39, 40, 41, 63, 64, 65, 87, 88, 89, 95, 96, 97, 151, 152, 153, 215, 216, 217, 254, 255] {
            let (dir, file, inside) = (name(len, b'd'), name(len, b'f'), name(len, b'i'));
            let dir_node = make(&test, &cx, root, &dir, Kind::Directory, 0o755);
            let file_node = make(&test, &cx, root, &file, Kind::Regular, 0o644);
            let inside_node = make(&test, &cx, dir_node, &inside, Kind::Regular, 0o644);
            let path = [&dir[..], &inside].join(&b'/');
            for (path, node) in [(&dir, dir_node), (&file, file_node), (&path, inside_node)] {
                let (found, id, _) = look(&test, root, path);
                assert_eq!((found, id), (Fast::Done(()), node.id), "{len}: {}", path.escape_ascii());
            }
            let missing = [&dir[..], &file].join(&b'/');
            let through_a_file = [&file[..], &inside].join(&b'/');
            for path in [&name(len, b'm'), &inside, &missing, &through_a_file] {
                assert_ne!(look(&test, root, path).0, Fast::Done(()), "{len}: {}", path.escape_ascii());
            }
            let (found, ..) = look(&test, root, &name(len, b'm'));
            assert_eq!(found, Fast::Absent, "{len}");
            // Moved away and back, the same; removed, no longer.
            test.rename(&cx, root, &file, dir_node, &file, RenameMode::Replace).unwrap();
            assert_ne!(look(&test, root, &file).0, Fast::Done(()), "{len}");
            assert_eq!(look(&test, root, &missing).1, file_node.id, "{len}");
            test.unlink(&cx, dir_node, &file).unwrap();
            assert_ne!(look(&test, root, &missing).0, Fast::Done(()), "{len}");
        }
        for len in [256, 257, 1000] {
            assert_eq!(look(&test, root, &name(len, b'x')).0, Fast::Slow, "{len}");
        }
    }

    /// Goal: neither a name of the same hash and length nor a wrong cachelet beside the entry is
    /// taken for the name. Method: looks with the hash of a name that is there for names that
    /// differ from it in one byte; numbers of other cachelets, and of none, written beside its entry.
    #[test]
    fn compares_every_byte_and_the_node() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let other = make(&test, &cx, root, &name(41, b'o'), Kind::Regular, 0o644);
        let parent = node_offset(root.id);
        look(&test, root, b"missing");
        for len in [41, 64, 88, 89, 152, 153, 216, 217, 255] {
            let text = name(len, b'f');
            let node = make(&test, &cx, root, &text, Kind::Regular, 0o644);
            let hash = test.hash(parent, &text);
            let found = |name: &[u8]| {
                let key = EntryKey { parent, name, hash, low: 0, high: 0 };
                match test.find_hash(hash, |bucket, i| test.cachelet_by_edentry(bucket, i, &key), |_, _| Fast::Slow) {
                    Fast::Done((cachelet, _)) => Some(cachelet.node.load(Acquire)),
                    Fast::Absent | Fast::Slow => None,
                }
            };
            assert_eq!(found(&text), Some(node.id), "{len}");
            for at in 0..len {
                let mut wrong = text.clone();
                wrong[at] ^= 1;
                assert_eq!(found(&wrong), None, "{len}: byte {at}");
            }
            assert_eq!(found(&text[..len - 1]), None, "{len}");
            let (bucket, _) = test.home(hash).unwrap();
            let i = bucket.entries.iter().position(|entry| entry.load(Acquire) >> 48 == fingerprint(hash)).unwrap();
            for number in [other.hint + 1, 0, u32::MAX] {
                test.fs.image.store_volatile32(&bucket.cachelets[i], number);
                assert_eq!(look(&test, root, &text).0, Fast::Slow, "{len}: cachelet {number}");
            }
            assert_eq!(test.lookup(&cx, root, &text).unwrap().id, node.id, "{len}");
            assert_eq!(look(&test, root, &text).1, node.id, "{len}");
        }
    }

    /// Says that a thread has ended, whichever way.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Release);
        }
    }

    /// Goal: beside one who makes, moves and removes long names, the fast path shows a node only under a
    /// name that it has, and is never wrong while nothing changes. Method: nodes made under one of
    /// two names have another mode each, and use the same lines and cachelets in turn; the writer
    /// tells between its steps whose the first name is. The reader ends the test, by count.
    #[test]
    fn beside_renames_and_removals() {
        const LOOKS: usize = 100_000;
        const MODES: [u16; 2] = [0o700, 0o600];
        let test = TestFs::new(64 << 20);
        let (fs, root, done) = (test.fs, test.root_node(), AtomicBool::new(false));
        // Odd while a step is being made; whose the first name is.
        let (steps, owner) = (AtomicU64::new(0), AtomicU64::new(0));
        let names = [name(200, b'a'), name(200, b'b')];
        look(fs, root, b"missing");
        std::thread::scope(|scope| {
            let (names, done, steps, owner) = (&names, &done, &steps, &owner);
            scope.spawn(move || {
                let _ends = Ends(done);
                for _ in 0..LOOKS {
                    let before = steps.load(Acquire);
                    let whose = owner.load(Acquire);
                    let (found, id, mode) = look(fs, root, &names[0]);
                    fence(SeqCst);
                    assert!(found != Fast::Done(()) || mode == u32::from(MODES[0]), "{mode:o} under the first name");
                    if before & 1 == 0 && steps.load(Acquire) == before {
                        match found {
                            Fast::Done(()) => assert_eq!(id, whose),
                            Fast::Absent => assert_eq!(0, whose),
                            Fast::Slow => {}
                        }
                    }
                    let (found, _, mode) = look(fs, root, &names[1]);
                    assert!(found != Fast::Done(()) || mode == u32::from(MODES[1]), "{mode:o} under the second name");
                }
            });
            let own = Thread::new();
            let cx = Cx { cred: base::Cred::ROOT, umask: 0o022, thread: &own };
            let step = |make: &dyn Fn() -> u64| {
                steps.fetch_add(1, SeqCst);
                owner.store(make(), SeqCst);
                steps.fetch_add(1, SeqCst);
            };
            let create = |name: &[u8], mode| {
                fs.create(&cx, root, name, &NewNode { kind: Kind::Regular, mode, rdev: 0, target: b"" }).unwrap().id
            };
            let elsewhere = name(210, b'c');
            while !done.load(Acquire) {
                step(&|| create(&names[0], MODES[0]));
                assert_eq!(look(fs, root, &names[0]), (Fast::Done(()), owner.load(Acquire), u32::from(MODES[0])));
                step(&|| fs.rename(&cx, root, &names[0], root, &elsewhere, RenameMode::Replace).map_or(1, |()| 0));
                assert_eq!(look(fs, root, &names[0]).0, Fast::Absent);
                fs.unlink(&cx, root, &elsewhere).unwrap();
                create(&names[1], MODES[1]);
                fs.unlink(&cx, root, &names[1]).unwrap();
            }
        });
    }
}

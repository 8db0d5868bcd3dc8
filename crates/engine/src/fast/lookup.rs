//! From a path to a cachelet: one look at a bucket (rarely at those [behind](super::chain) it too) and one at a
//! cachelet a component, nothing allocated, locked or written.

use crate::fs::Fs;
use crate::rights::may_search_fast;
use crate::segment::cachelet::{Cachelet, NAME_SHORT, ODD, PARTIAL};
use base::{Caller, Fast, Kind, Node, Sight};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::bucket::{self, Bucket, ENTRIES};
use format::edentry::NAME_MAX;
use format::hash::fingerprint;
use format::inode::node_offset;
use pm::Text;
use pm::text::Short;

/// What looking for one name tells: its cachelet, and the sequence while that carried the name.
pub(super) type Found<'a> = Fast<(&'a Cachelet, u32)>;

/// What is at the end of a path.
pub(super) struct Resolved<'a> {
    pub(super) cachelet: &'a Cachelet,
    /// Its sequence while it carried the name.
    pub(super) sequence: u32,
    /// [`Node::id`] of it.
    pub(super) id: u64,
    /// The directory's.
    pub(super) dir: &'a Cachelet,
}

impl Resolved<'_> {
    /// Its type, `DT_*`.
    #[inline(always)]
    pub(super) fn kind(&self) -> u8 {
        (self.cachelet.mode.load(Relaxed) >> 16) as u8
    }
}

impl Fs {
    /// What is at the end of `path` from directory `base`; `follow` says whether a symlink there is to be followed.
    /// `covered` tells on which nodes something is mounted.
    #[inline(always)]
    pub fn find_fast(&self, who: &Caller, from: (Node, Text), follow: bool, covered: impl Fn(u64) -> bool) -> Fast<Sight> {
        let found = match self.resolve_fast(who, from, covered) {
            Fast::Done(found) => found,
            Fast::Absent => return Fast::Absent,
            Fast::Slow => return Fast::Slow,
        };
        let cachelet = found.cachelet;
        let sight = Sight {
            node: Node { id: found.id, hint: self.cachelet_number(cachelet) },
            parent: found.dir.node.load(Relaxed),
            word: cachelet.mode.load(Relaxed),
            uid: cachelet.uid.load(Relaxed),
            gid: cachelet.gid.load(Relaxed),
        };
        let is_link = follow && found.kind() == Kind::Symlink as u8;
        if is_link || !cachelet.is_still(found.sequence, ODD) { Fast::Slow } else { Fast::Done(sight) }
    }

    /// The directory in which `path` from `base` ends, which may be searched, and the last component: a name, for which nobody has looked.
    pub fn parent_fast<'p>(
        &self,
        who: &Caller,
        (base, path): (Node, Text<'p>),
        covered: impl Fn(u64) -> bool,
    ) -> Fast<(Node, &'p [u8])> {
        let Some((mut dir, mut sequence)) = self.start(base) else { return Fast::Slow };
        let (mut id, mut rest) = (base.id, path);
        loop {
            if !may_search_fast(who, dir, sequence) {
                return Fast::Slow;
            }
            let (name, next) = match name_at(rest, path) {
                Some((name, Some(next))) => (name, next),
                Some((name, None)) => return Fast::Done((Node { id, hint: self.cachelet_number(dir) }, name)),
                None => return Fast::Slow,
            };
            let found = match rest.short() {
                Some((short, _)) => self.find_short(node_offset(id), &short),
                None => self.find_long(node_offset(id), name),
            };
            let Fast::Done(found) = found else { return Fast::Slow };
            (dir, sequence) = found;
            (id, rest) = (dir.node.load(Relaxed), next);
            if covered(id) {
                return Fast::Slow;
            }
        }
    }

    /// Whether a directory is called `name` in `dir`, if its cachelet tells.
    pub fn is_called(&self, directory: Node, dir: Node, name: &[u8]) -> Option<bool> {
        let (cachelet, sequence) = self.start(directory)?;
        let parent = node_offset(dir.id);
        let is_there = cachelet.parent.load(Relaxed) == parent;
        if is_there && name.len() > NAME_SHORT {
            return None;
        }
        let is_named = is_there && self.carries_name(cachelet, parent, name);
        cachelet.is_still(sequence, ODD).then_some(is_named)
    }

    /// Goes along `path` from a directory, but not onto what is `covered`. What is found counts while its sequence is the same.
    #[inline(always)]
    pub(super) fn resolve_fast<'a>(
        &'a self,
        who: &Caller,
        (base, path): (Node, Text),
        covered: impl Fn(u64) -> bool,
    ) -> Fast<Resolved<'a>> {
        let Some((mut dir, mut dir_sequence)) = self.start(base) else { return Fast::Slow };
        let (mut parent, mut rest) = (node_offset(base.id), path);
        loop {
            if !may_search_fast(who, dir, dir_sequence) {
                return Fast::Slow;
            }
            let (found, end) = match rest.short() {
                // Empty, `.` or `..`: no names of the index.
                Some((name, _)) if name.may_be_dots() => return Fast::Slow,
                Some((name, end)) => (self.find_short(parent, &name), end),
                None => {
                    let (name, end) = rest.component();
                    if matches!(name, b"" | b"." | b"..") || path.is_long_by(rest, end) {
                        return Fast::Slow;
                    }
                    (self.find_long(parent, name), end)
                }
            };
            let (cachelet, sequence) = match found {
                Fast::Done(found) => found,
                // That holds when the bucket was read, whatever has become of the directory since it was
                // searched: a removed one has no names, and no name of another one is found by its offset. But not all
                // names of a cached directory need be here (`crate::lower`).
                Fast::Absent if end.first() == 0 && dir.is_still(dir_sequence, PARTIAL) => return Fast::Absent,
                _ => return Fast::Slow,
            };
            let id = cachelet.node.load(Relaxed);
            if covered(id) {
                return Fast::Slow;
            }
            match end.next() {
                None => return Fast::Done(Resolved { cachelet, sequence, id, dir }),
                Some(next) => rest = next,
            }
            parent = node_offset(id);
            (dir, dir_sequence) = (cachelet, sequence);
        }
    }

    /// The cachelet of the directory where a path starts, and its sequence, [settled].
    #[inline(always)]
    fn start(&self, base: Node) -> Option<(&Cachelet, u32)> {
        let mut dir = self.cachelets.get(base.hint).or_else(|| self.by_reference(base.id))?;
        let mut sequence = dir.sequence.load(Acquire);
        if dir.node.load(Relaxed) != base.id {
            // The hint of a mount's root is as old as the mount.
            dir = self.by_reference(base.id)?;
            sequence = dir.sequence.load(Acquire);
            if dir.node.load(Relaxed) != base.id {
                return None;
            }
        }
        Some((dir, settled(sequence)))
    }

    #[cold]
    #[inline(never)]
    fn by_reference(&self, id: u64) -> Option<&Cachelet> {
        self.reference(self.inode(node_offset(id)).ok()?, id)
    }

    /// Looks for a name of at most 15 bytes. Two words that are the name's say
    /// how long it is too: a longer name has no zero at the end of the second one.
    #[inline(always)]
    fn find_short(&self, parent: u64, name: &Short) -> Found<'_> {
        let hash = format::hash::name_short(self.name_key, parent, name.low, name.high, name.len);
        let at = |bucket, i| self.cachelet_beside(bucket, i, |child| is_called(child, parent, name));
        self.find_hash(hash, at, |_, _| self.find_short_in_chain(parent, *name))
    }

    /// As `find_short`, where the home bucket has others behind it.
    #[inline(never)]
    fn find_short_in_chain(&self, parent: u64, name: Short) -> Found<'_> {
        let hash = format::hash::name_short(self.name_key, parent, name.low, name.high, name.len);
        let (home, buckets) = self.buckets.of_hash(hash);
        let at = |bucket, i| self.cachelet_beside(bucket, i, |child| is_called(child, parent, &name));
        self.find_in_chain((home, buckets), hash, &at)
    }

    /// Looks for any other name.
    #[inline(never)]
    fn find_long(&self, parent: u64, name: &[u8]) -> Found<'_> {
        if name.len() > NAME_SHORT {
            return self.find_longer(parent, name);
        }
        let hash = self.hash(parent, name);
        let at = |bucket, i| self.cachelet_beside(bucket, i, |child| self.carries_name(child, parent, name));
        self.find_hash(hash, at, |home, buckets| self.find_in_chain((home, buckets), hash, &at))
    }

    /// Looks into the home bucket of a hash, and with `at` at what may be the name's entry; where there are buckets
    /// behind it, `behind` looks there.
    #[inline(always)]
    pub(super) fn find_hash<'a>(
        &'a self,
        hash: u64,
        at: impl Fn(&'a Bucket, usize) -> Option<(&'a Cachelet, u32)>,
        behind: impl FnOnce(&'a Bucket, u64) -> Found<'a>,
    ) -> Found<'a> {
        let (home, buckets) = self.buckets.of_hash(hash);
        for i in 0..ENTRIES {
            if bucket::seems_of(home.entries[i].load(Acquire), hash) {
                return at(home, i).map_or_else(|| self.find_later(), Fast::Done);
            }
        }
        // Read before the bucket is asked whether it was split, and by who asks the directory.
        fence(Acquire);
        if home.is_split_since(buckets) {
            return self.find_later();
        }
        match home.next.load(Acquire) {
            // There is nothing behind the bucket, and was nothing that seemed to be of this hash in it. What was
            // behind until now has come here before, by a split that we may know of already (`index::split`).
            0 if self.seems_free(home, fingerprint(hash)) => Fast::Absent,
            0 => Fast::Slow,
            _ => behind(home, buckets),
        }
    }

    /// The name may be in a bucket that there was not yet when we last asked.
    #[cold]
    #[inline(never)]
    pub(super) fn find_later(&self) -> Found<'_> {
        self.learn_buckets();
        Fast::Slow
    }

    /// The cachelet beside an entry may carry the name. If it does, the name is there, whoever gave its number and in
    /// whatever generation: so nobody asks that of the bucket.
    #[inline(always)]
    fn cachelet_beside<'a>(
        &'a self,
        bucket: &Bucket,
        i: usize,
        is_named: impl Fn(&Cachelet) -> bool,
    ) -> Option<(&'a Cachelet, u32)> {
        let child = self.cachelets.get(self.hint_of(bucket, i))?;
        let sequence = settled(child.sequence.load(Acquire));
        is_named(child).then_some((child, sequence))
    }
}

/// The first component of `rest`, a part of `path`, and what follows it; `None` if it is no proper name, or `path` too long.
#[inline(always)]
fn name_at<'p>(rest: Text<'p>, path: Text<'p>) -> Option<(&'p [u8], Option<Text<'p>>)> {
    let (name, end) = rest.component();
    let is_name = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX && !path.is_long_by(rest, end);
    is_name.then(|| (name, end.next()))
}

/// Whether a cachelet carries a name of at most 15 bytes.
#[inline(always)]
fn is_called(child: &Cachelet, parent: u64, name: &Short) -> bool {
    let [low, high, ..] = &child.name;
    child.parent.load(Relaxed) == parent && low.load(Relaxed) == name.low && high.load(Relaxed) == name.high
}

/// A sequence number that stays while nothing is changed. In the middle of a change it is one that will not come again:
/// who asks for it afterwards, as all must, finds another.
#[inline(always)]
fn settled(sequence: u32) -> u32 {
    sequence & !1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::NewNode;
    use pm::Errno;
    use std::vec;

    fn make(test: &TestFs, dir: Node, name: &[u8], kind: Kind) -> Node {
        test.create(&test.cx(), dir, name, &NewNode { kind, mode: 0o755, rdev: 0, target: b"" }).unwrap()
    }

    /// The node at the end of a path of plain names, a look-up at a time.
    fn walk(test: &TestFs, root: Node, path: &[u8]) -> base::Result<u64> {
        let mut node = root;
        for name in path.split(|byte| *byte == b'/') {
            assert!(!matches!(name, b"" | b"." | b".."), "no plain name");
            node = test.lookup(&test.cx(), node, name)?;
        }
        Ok(node.id)
    }

    /// Goal: where the fast path answers, it says what a walk says, wherever in a page
    /// the text lies. Method: short and long names, missing ones, dots and slashes.
    #[test]
    fn agrees_with_the_walk() {
        let test = TestFs::new(64 << 20);
        let root = test.root_node();
        let dir = make(&test, root, b"dir", Kind::Directory);
        let long = make(&test, dir, b"a-name-of-seventeen", Kind::Directory);
        make(&test, long, b"fifteen-bytes-x", Kind::Regular);
        make(&test, long, b"sixteen-bytes-xy", Kind::Regular);
        let paths = [
            &b"dir"[..],
            b"dir/a-name-of-seventeen/fifteen-bytes-x",
            b"dir/a-name-of-seventeen/sixteen-bytes-xy",
            b"missing",
            b"dir/missing-and-rather-long",
            b"",
            b".",
            b"..",
            b"dir/",
            b"dir/.",
            b"dir/..",
            b"dir//a-name-of-seventeen",
            b"dir/fifteen/x",
            b"dir/a-name-of-seventeen/fifteen-bytes-x/y",
        ];
        let who = Caller { uid: 0, privileged: true };
        let mut buffer = vec![0u8; 3 * 4096];
        let page = buffer.as_ptr().align_offset(4096) + 4096;
        let (mut seen, mut absent) = (0, 0);
        for path in paths {
            let is_plain = path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."));
            let walked = if is_plain { walk(&test, root, path) } else { Err(Errno::EIO.into()) };
            for lead in 0..64 {
                let at = page - lead;
                buffer[at..at + path.len()].copy_from_slice(path);
                buffer[at + path.len()] = 0;
                // SAFETY: NUL-terminated, just above.
                let text = unsafe { Text::new(buffer.as_ptr().add(at)) };
                match test.find_fast(&who, (root, text), true, |_| false) {
                    Fast::Done(sight) => {
                        seen += 1;
                        assert_eq!(walked, Ok(sight.node.id), "{} at -{lead}", path.escape_ascii());
                    }
                    Fast::Absent => {
                        absent += 1;
                        assert_eq!(walked, Err(Errno::ENOENT.into()), "{} at -{lead}", path.escape_ascii());
                    }
                    Fast::Slow => {}
                }
            }
        }
        assert!(seen >= 3 * 63 && absent >= 2 * 63, "{seen} seen, {absent} absent");
    }

    /// Goal: an image whose root block says that there are no buckets hides no name. Method: one with that
    /// damage, attached anew.
    #[test]
    fn no_buckets_hide_nothing() {
        let test = TestFs::new(16 << 20);
        test.root().buckets.store(0, Relaxed);
        let test = test.again();
        let root = test.root_node();
        // The directory itself is cached.
        test.attr(&test.cx(), root).unwrap();
        for name in 0..100 {
            let name = std::format!("name{name}");
            assert_eq!(crate::testing::find_fast(&test, root, name.as_bytes()).0, Fast::Slow, "{name}");
        }
    }

    /// Goal: a number of buckets that others have raised since hides no name. Method: names are made, without
    /// a look at them, until the index has grown; then each is looked at: never absent, and seen at the second look.
    #[test]
    fn an_old_number_of_buckets_hides_nothing() {
        let test = TestFs::new(64 << 20);
        let root = test.root_node();
        let who = Caller { uid: 0, privileged: true };
        let name = |i: u32| std::format!("name{i}\0").into_bytes();
        let hash = |i: u32| test.hash(node_offset(root.id), name(i).strip_suffix(b"\0").unwrap());
        let look = |i: u32| {
            let text = name(i);
            // SAFETY: NUL-terminated, and dropped afterwards.
            match test.find_fast(&who, (root, unsafe { Text::new(text.as_ptr()) }), true, |_| false) {
                Fast::Done(_) => Fast::Done(()),
                Fast::Absent => Fast::Absent,
                Fast::Slow => Fast::Slow,
            }
        };
        let mut made = 0;
        while test.root().buckets.load(Acquire) < bucket::BUCKETS_MIN + 300 {
            make(&test, root, name(made).strip_suffix(b"\0").unwrap(), Kind::Regular);
            made += 1;
        }
        let moved = |i: &u32| {
            let home = test.bucket_offset(hash(*i), test.root().buckets.load(Acquire)).unwrap();
            test.fs.image.offset_of(test.buckets.of_hash(hash(*i)).0) != home
        };
        let first = (0..made).find(moved).expect("some names have moved");
        assert_eq!([look(first), look(first)], [Fast::Slow, Fast::Done(())]);
        assert_eq!((0..made).find(moved), None, "one look learns the number");
        assert!((0..made).all(|i| look(i) != Fast::Absent));
    }
}

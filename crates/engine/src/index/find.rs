//! Lookups: warm in one function, everything else out of line.

use super::{CHAIN_MAX, EntryKey};
use crate::fs::{Fs, corrupt};
use crate::segment::cache::short_word;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, fence};
use format::bucket::{self, Bucket, ENTRIES};
use format::edentry::{self, Edentry, Head};
use format::hash::fingerprint;
use pm::Errno;

/// How often a bucket may change while a name is looked for.
const CHANGES: u32 = 1 << 20;

/// What a lookup tells of a node: enough to go on walking.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// Node id.
    pub(crate) id: u64,
    pub(crate) cachelet: &'a Cachelet,
    /// name length 8 | kind 8 | mode 16, as in the cachelet.
    pub(crate) word: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Seen<'_> {
    /// The node's type.
    #[inline]
    pub(crate) fn is(&self, kind: Kind) -> bool {
        (self.word >> 16) as u8 == kind as u8
    }

    /// Permission bits.
    #[inline]
    pub(crate) fn mode(&self) -> u16 {
        self.word as u16
    }
}

/// An entry of the index that has the name looked for.
#[derive(Clone, Copy)]
pub(crate) struct Hit<'a> {
    /// The child.
    pub(crate) node: Node,
    /// `DT_*` of the child, as the edentry says.
    pub(crate) kind: u8,
    /// Offset of the edentry.
    pub(crate) edentry: u64,
    /// The bucket and the edentry, once they have been looked into.
    pub(crate) place: Option<(&'a Bucket, &'a Edentry)>,
    /// Which entry of it.
    pub(crate) index: usize,
    /// The entry.
    pub(crate) entry: u64,
}

impl Fs {
    /// Looks up a name. `None`: no such name.
    #[inline]
    pub(crate) fn find<'a>(&'a self, cx: &Cx, key: &EntryKey) -> Result<Option<Seen<'a>>> {
        let (bucket, buckets) = self.home(key.hash)?;
        let print = fingerprint(key.hash);
        if let Some(i) = bucket.entries.iter().position(|entry| entry.load(Acquire) >> 48 == print)
            && let Some(cachelet) = self.cachelet(self.hint_of(bucket, i))
            && let Some(seen) = self.seen_named(cachelet, key)
        {
            return Ok(Some(seen));
        }
        self.find_slow(cx, key, bucket, buckets)
    }

    /// Whether a name with this fingerprint is likely to be free: nothing in its home bucket looks like it.
    #[inline]
    pub(crate) fn seems_free(&self, home: &Bucket, print: u64) -> bool {
        home.entries.iter().all(|entry| entry.load(Relaxed) >> 48 != print)
    }

    /// The bucket does not tell at once where the name is, or it is not there.
    #[cold]
    #[inline(never)]
    fn find_slow<'a>(&'a self, cx: &Cx, key: &EntryKey, bucket: &Bucket, buckets: u64) -> Result<Option<Seen<'a>>> {
        let print = fingerprint(key.hash);
        // Before the entries: what was behind comes here before it is given up (`split`).
        let next = bucket.next.load(Acquire);
        let known = bucket.entries.iter().any(|entry| entry.load(Acquire) >> 48 == print);
        if !known && next == 0 && !bucket.is_split_since(buckets) {
            return Ok(None);
        }
        self.find_cold(cx, key)
    }

    #[inline]
    fn seen_named<'a>(&self, cachelet: &'a Cachelet, key: &EntryKey) -> Option<Seen<'a>> {
        let before = cachelet.sequence.load(Acquire);
        let unusable = cachelet.flags.load(Relaxed) & (cachelet::INVALID | cachelet::DEAD);
        if before & 1 | unusable != 0 || !self.carries(cachelet, key) {
            return None;
        }
        let seen = Seen {
            id: cachelet.node.load(Relaxed),
            cachelet,
            word: cachelet.mode.load(Relaxed),
            uid: cachelet.uid.load(Relaxed),
            gid: cachelet.gid.load(Relaxed),
        };
        fence(Acquire);
        (cachelet.sequence.load(Relaxed) == before && seen.id != 0).then_some(seen)
    }

    /// Whether a cachelet carries this name. Identity only: read the rest consistently.
    #[inline]
    fn carries(&self, cachelet: &Cachelet, key: &EntryKey) -> bool {
        match key.is_short() {
            true => key.is_carried(cachelet),
            false => self.carries_name(cachelet, key.parent, key.name),
        }
    }

    /// The lookup by edentry; leaves a cachelet for the next one.
    #[cold]
    #[inline(never)]
    fn find_cold<'a>(&'a self, cx: &Cx, key: &EntryKey) -> Result<Option<Seen<'a>>> {
        for _ in 0..10_000 {
            let Some(hit) = self.find_hit(key)? else { return Ok(None) };
            let seen = self.cached(cx, hit.node).and_then(|cachelet| {
                self.warm(cx, cachelet, &hit, key);
                self.seen(cx, cachelet, hit.node.id)
            });
            match seen {
                Ok(seen) => return Ok(Some(seen)),
                // Removed, or its cachelet taken away, since we saw the entry.
                Err(base::Error::Posix(Errno::ESTALE)) => core::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Err(corrupt("edentry without inode", key.parent))
    }

    /// The node that a lookup has seen.
    #[inline]
    pub(crate) fn node_seen(&self, seen: &Seen) -> Node {
        Node { id: seen.id, hint: self.cachelet_number(seen.cachelet) }
    }

    /// What a walk needs to know of a cached node.
    #[inline]
    pub(crate) fn seen<'a>(&self, cx: &Cx, cachelet: &'a Cachelet, id: u64) -> Result<Seen<'a>> {
        self.consistent(cx, cachelet, id, |c| Seen {
            id,
            cachelet,
            word: c.mode.load(Relaxed),
            uid: c.uid.load(Relaxed),
            gid: c.gid.load(Relaxed),
        })
    }

    /// Finds the entry of a name through the edentries, without a lock.
    pub(crate) fn find_hit<'a>(&'a self, key: &EntryKey) -> Result<Option<Hit<'a>>> {
        let hash = key.hash;
        'again: for _ in 0..CHANGES {
            let buckets = self.root().buckets.load(Acquire);
            let mut offset = self.bucket_offset(hash, buckets)?;
            let home = self.bucket(offset)?;
            // A split may take a whole chain away: what lies there counts only
            // while the home bucket leads to it.
            let chain = home.next.load(Acquire);
            for _ in 0..CHAIN_MAX {
                let bucket = self.bucket(offset)?;
                for index in 0..ENTRIES {
                    let entry = bucket.entries[index].load(Acquire);
                    if bucket::entry_fingerprint(entry) != fingerprint(hash) {
                        continue;
                    }
                    let found = self.matches(entry, key);
                    // Only if the entry still stands was it an edentry that we read.
                    fence(Acquire);
                    if bucket.entries[index].load(Relaxed) != entry || home.next.load(Relaxed) != chain {
                        continue 'again;
                    }
                    if let Some((id, kind)) = found? {
                        let node = Node { id, hint: self.hint_of(bucket, index) };
                        let offset = bucket::entry_offset(entry);
                        let place = Some((bucket, self.edentry(offset)?));
                        return Ok(Some(Hit { node, kind, edentry: offset, place, index, entry }));
                    }
                }
                offset = if core::ptr::eq(bucket, home) { chain } else { bucket.next.load(Acquire) };
                fence(Acquire);
                if home.next.load(Relaxed) != chain {
                    continue 'again;
                }
                if offset == 0 {
                    if self.root().buckets.load(Acquire) != buckets {
                        continue 'again;
                    }
                    return Ok(None);
                }
            }
            return Err(corrupt("chain of buckets", offset));
        }
        Err(corrupt("bucket", key.hash))
    }

    /// Whether the edentry of an entry is that name: child and kind if it is.
    #[inline]
    pub(super) fn matches(&self, entry: u64, key: &EntryKey) -> Result<Option<(u64, u8)>> {
        let offset = bucket::entry_offset(entry);
        let edentry = self.edentry(offset)?;
        let head = edentry.head.load(Acquire);
        if !key.is_short() || !key.is_in(edentry, head) {
            return self.matches_long(offset, edentry, head, key);
        }
        let child = edentry.child.load(Relaxed);
        fence(Acquire);
        // A reused edentry has another head.
        Ok((edentry.head.load(Relaxed) == head).then_some((child, (head >> 16) as u8)))
    }

    /// It is not the short name looked for; perhaps a long one, or no edentry at all.
    #[cold]
    #[inline(never)]
    fn matches_long(&self, offset: u64, edentry: &Edentry, word: u64, key: &EntryKey) -> Result<Option<(u64, u8)>> {
        let Some(head) = Head::unpack(word) else { return Err(corrupt("edentry", offset)) };
        if key.is_short()
            || head.hash != (key.hash >> 32) as u32
            || usize::from(head.name_len) != key.name.len()
            || edentry.parent.load(Relaxed) != key.parent
            || !self.has_name(offset, edentry, key.name)?
        {
            return Ok(None);
        }
        let child = edentry.child.load(Relaxed);
        fence(Acquire);
        // A reused edentry has another head.
        Ok((edentry.head.load(Relaxed) == word).then_some((child, head.kind)))
    }

    /// Whether the name of an edentry is `name`, of the same length.
    #[inline]
    pub(crate) fn has_name(&self, offset: u64, edentry: &Edentry, name: &[u8]) -> Result<bool> {
        if name.len() <= edentry::WORDS * 8 {
            return Ok(same_words(&edentry.name, name));
        }
        self.has_long_name(offset, name)
    }

    /// The same of a name that goes on behind the first line.
    #[inline]
    fn has_long_name(&self, offset: u64, name: &[u8]) -> Result<bool> {
        // In the block of the edentry's first line, which has been looked at.
        match self.image.words(offset + edentry::NAME, name.len().div_ceil(8)) {
            Some(words) => Ok(same_words(words, name)),
            None => Err(corrupt("name", offset)),
        }
    }

    /// The cachelet that a bucket suggests for an entry, which may be another's, or of a segment that is gone.
    #[inline]
    pub(crate) fn hint_of(&self, bucket: &Bucket, index: usize) -> u32 {
        bucket.cachelets[index].load(Relaxed).wrapping_sub(1)
    }

    /// Leaves a cachelet's number in the bucket, and the name in the cachelet if it has none.
    fn warm(&self, cx: &Cx, cachelet: &Cachelet, hit: &Hit, key: &EntryKey) {
        let Some((bucket, _)) = hit.place else { return };
        let number = self.cachelet_number(cachelet);
        if self.hint_of(bucket, hit.index) != number {
            self.suggest(bucket, hit.index, number);
        }
        if key.fits_cachelet() && cachelet.parent.load(Relaxed) == 0 {
            self.give_name(cx, cachelet, hit, key);
        }
    }

    /// Notes the cachelet of an entry. Races are harmless: identity is always checked.
    #[inline]
    pub(super) fn suggest(&self, bucket: &Bucket, index: usize, number: u32) {
        self.image.store_volatile32(&bucket.cachelets[index], number.wrapping_add(1));
    }

    /// Lets a cachelet carry the name of an entry. Who removes the name must hold
    /// `owner`: so if the entry still stands once we hold it, the name does too.
    fn give_name(&self, cx: &Cx, cachelet: &Cachelet, hit: &Hit, key: &EntryKey) {
        let (Ok(lane), Some((bucket, edentry))) = (self.lane_of(cx), hit.place) else { return };
        let listed = &self.lane_state(lane).loading_cachelet;
        listed.store(self.segment.offset_of(&cachelet.owner), SeqCst);
        if cachelet.owner.compare_exchange(0, lane + 1, AcqRel, Relaxed).is_err() {
            listed.store(0, SeqCst);
            return;
        }
        let same_entry = bucket.entries[hit.index].load(Acquire) == hit.entry;
        let same_child = edentry.child.load(Acquire) == hit.node.id;
        // What the kernel has mounted something on carries no name: the fast path must not come there.
        let is_free = !self.is_covered(hit.node.id);
        if is_free && same_entry && same_child && cachelet.node.load(Acquire) == hit.node.id {
            self.set_name(cachelet, key);
        }
        self.let_go(lane, cachelet);
    }
}

/// Whether `words`, of which there are enough, begin with these bytes, the last word zero-filled.
#[inline]
fn same_words(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks::<8>();
    let last = words.get(whole.len());
    // Of a name with a whole word, the rest ends its last eight bytes.
    let rest_word = || match bytes.last_chunk::<8>() {
        Some(end) => u64::from_le_bytes(*end) >> (64 - 8 * rest.len()),
        None => short_word(rest),
    };
    words.iter().zip(whole).all(|(word, bytes)| word.load(Relaxed) == u64::from_le_bytes(*bytes))
        && (rest.is_empty() || last.is_some_and(|word| word.load(Relaxed) == rest_word()))
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestFs, find_fast};
    use base::{Fast, Kind, NewNode};
    use core::sync::atomic::Ordering::{Acquire, Relaxed};
    use std::format;
    use std::vec::Vec;

    /// Goal: the numbers of cachelets that buckets suggest are believed by nobody: those that an earlier segment has left are
    /// as good as any. Method: each is another entry's, or none; names are looked for, made, moved and removed.
    #[test]
    fn a_wrong_suggestion_leads_nowhere() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        let name = |i: usize| format!("name-{i}{}", if i.is_multiple_of(3) { "-of-more-than-sixteen-bytes" } else { "" });
        let nodes: Vec<_> = (0..500).map(|i| test.create(&cx, root, name(i).as_bytes(), &new).unwrap()).collect();
        let mislead = |by: u32| {
            for number in 0..test.root().buckets.load(Acquire) {
                let bucket = test.bucket(test.bucket_place(number).unwrap()).unwrap();
                for (i, cachelet) in bucket.cachelets.iter().enumerate() {
                    cachelet.store((number as u32 * 4 + i as u32).wrapping_mul(by) % 700, Relaxed);
                }
            }
        };
        for (round, by) in [1, 7, 0, 0x9e37_79b1].into_iter().enumerate() {
            mislead(by);
            for (i, node) in nodes.iter().enumerate().skip(4) {
                let name = name(i);
                let (seen, id, _) = find_fast(&test, root, name.as_bytes());
                assert!(seen == Fast::Slow || (seen == Fast::Done(()) && id == node.id), "{name}: {seen:?}");
                assert_eq!(test.lookup(&cx, root, name.as_bytes()).unwrap().id, node.id, "{name}");
            }
            mislead(by.wrapping_add(2));
            test.unlink(&cx, root, name(round).as_bytes()).unwrap();
            test.create(&cx, root, format!("new {round}").as_bytes(), &new).unwrap();
            assert!(test.create(&cx, root, name(100).as_bytes(), &new).is_err());
        }
    }
}

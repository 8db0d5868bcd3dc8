//! A glance at the buckets behind a home bucket.
//!
//! Where names are many, one in nine is there: its home bucket was full when it came. Out of line,
//! for the other eight. The home bucket is looked at once more, so that what is
//! found, or is not, was asked of the whole chain by one number of buckets.
//!
//! Invariants
//! - A split may take a whole chain away and use its lines again: what lies there
//!   counts only while the home bucket leads to it.
//! - A split marks the home bucket before it takes a name out of the chain, and what comes from behind to the home
//!   bucket is there before the chain is given up. So a miss is a miss if mark and chain are the same after the scan
//!   as before.

use super::{ABSENT, Looked};
use crate::fs::Fs;
use crate::segment::cachelet::Cachelet;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::bucket::{self, Bucket};
use pm::text::Short;

/// Most buckets of a chain that are looked at; longer ones are left to the walk.
const CHAIN_SHORT: usize = 8;

impl Fs {
    /// As `look_short`, where the home bucket has others behind it.
    #[inline(never)]
    pub(super) fn look_short_behind(&self, parent: u64, name: Short) -> Looked<'_> {
        let hash = format::hash::name_short(self.name_key, parent, name.low, name.high, name.len);
        let (home, buckets) = self.buckets.of_hash(hash);
        let is_named = |child: &Cachelet| child.name[0].load(Relaxed) == name.low && child.name[1].load(Relaxed) == name.high;
        self.look_behind(home, buckets, hash, |bucket, i| self.look_at(bucket, i, parent, is_named))
    }

    /// Looks into the chain of `home`, the home bucket of a hash while there are `buckets`.
    #[inline(always)]
    pub(super) fn look_behind<'a>(
        &'a self,
        home: &'a Bucket,
        buckets: u64,
        hash: u64,
        at: impl Fn(&'a Bucket, usize) -> Option<super::Near<'a>>,
    ) -> Looked<'a> {
        let print = format::hash::fingerprint(hash);
        let chain = home.next.load(Acquire);
        let mut bucket = home;
        for _ in 0..CHAIN_SHORT {
            let position = bucket.entries.iter().position(|entry| bucket::entry_fingerprint(entry.load(Acquire)) == print);
            let looked = position.map(|i| at(bucket, i));
            let next = bucket.next.load(Acquire);
            fence(Acquire);
            if home.next.load(Relaxed) != chain {
                return self.look_later();
            }
            match looked {
                Some(Some((child, sequence))) => return Looked { child: Some(child), word: sequence },
                Some(None) => return self.look_later(),
                None if next == 0 => return self.absent_behind(home, buckets),
                None => match self.bucket(next) {
                    Ok(behind) => bucket = behind,
                    Err(_) => return Looked::UNSURE,
                },
            }
        }
        Looked::UNSURE
    }

    /// No bucket of the chain has the name.
    fn absent_behind(&self, home: &Bucket, buckets: u64) -> Looked<'_> {
        match home.is_split_since(buckets) {
            true => self.look_later(),
            false => Looked { child: None, word: ABSENT },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestFs, glance as look};
    use base::{Glance, Kind, NewNode};
    use core::sync::atomic::Ordering::Acquire;
    use format::inode::node_offset;
    use std::vec::Vec;

    /// Whether the name's home bucket has others behind it.
    fn is_chained(test: &TestFs, name: &[u8]) -> bool {
        let hash = test.hash(node_offset(test.root_node().id), name);
        test.home(hash).unwrap().0.next.load(Acquire) != 0
    }

    /// Goal: a glance sees every name that is in a chain of buckets, short, long and very long, says of
    /// names whose home bucket has a chain that they are absent, and sees none that was removed.
    /// Method: files until some hundred home buckets have chains; every second one removed.
    #[test]
    fn sees_what_is_behind_a_home_bucket() {
        const FILES: usize = 4000;
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let name = |i: usize, there: bool| {
            let mut name = std::format!("{}{i}", if there { 'f' } else { 'm' }).into_bytes();
            name.resize([8, 30, 60][i % 3], b'x');
            name
        };
        let make =
            |i| test.create(&cx, root, &name(i, true), &NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" });
        let ids: Vec<u64> = (0..FILES).map(|i| make(i).unwrap().id).collect();
        // The first looks learn the number of buckets and where they lie.
        (0..FILES).for_each(|i| _ = look(&test, root, &name(i, false)));
        let mut chained = [0; 3];
        for (i, id) in ids.iter().enumerate() {
            chained[i % 3] += usize::from(is_chained(&test, &name(i, true)));
            assert_eq!(look(&test, root, &name(i, true)), (Glance::Seen, *id, 0o644), "{i}");
            assert_eq!(look(&test, root, &name(i, false)).0, Glance::Absent, "{i}");
        }
        assert!(chained.iter().all(|count| *count > 100), "names in chains: {chained:?}");
        for i in (0..FILES).step_by(2) {
            test.unlink(&cx, root, &name(i, true)).unwrap();
        }
        for (i, id) in ids.iter().enumerate() {
            let (glance, seen, _) = look(&test, root, &name(i, true));
            match i % 2 {
                0 => assert_eq!(glance, Glance::Absent, "{i}"),
                _ => assert_eq!((glance, seen), (Glance::Seen, *id), "{i}"),
            }
        }
    }
}

//! A name in a chain of buckets.
//!
//! Where names are many, one in nine is there: its home bucket was full when it came. The home bucket is looked at once
//! more, so that what is found, or is not, was asked of the whole chain by one number of buckets.
//!
//! Invariants
//! - A split may take a whole chain away and use its lines again: what lies there
//!   counts only while the home bucket leads to it.
//! - A split marks the home bucket before it takes a name out of the chain, and what comes from behind to the home
//!   bucket is there before the chain is given up. So a miss is a miss if mark and chain are the same after the scan
//!   as before.

use super::lookup::Found;
use crate::fs::Fs;
use crate::segment::Cachelet;
use base::Fast;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::bucket::{self, Bucket};

/// Most buckets of a chain that are looked at; longer ones are left to the slow path.
const CHAIN_SHORT: usize = 8;

impl Fs {
    /// Looks into the chain of `home`, the home bucket of a hash while there are `buckets`, and with `at` at what may be
    /// the name's entry.
    #[inline(never)]
    pub(super) fn find_in_chain<'a>(
        &'a self,
        (home, buckets): (&'a Bucket, u64),
        hash: u64,
        at: &dyn Fn(&'a Bucket, usize) -> Option<(&'a Cachelet, u32)>,
    ) -> Found<'a> {
        let print = format::hash::fingerprint(hash);
        let chain = home.next.load(Acquire);
        let mut bucket = home;
        for _ in 0..CHAIN_SHORT {
            let position = bucket.entries.iter().position(|entry| bucket::entry_fingerprint(entry.load(Acquire)) == print);
            let found = position.map(|i| at(bucket, i));
            let next = bucket.next.load(Acquire);
            fence(Acquire);
            if home.next.load(Relaxed) != chain {
                return self.find_later();
            }
            match found {
                Some(Some(found)) => return Fast::Done(found),
                Some(None) => return self.find_later(),
                None if next == 0 && home.is_split_since(buckets) => return self.find_later(),
                None if next == 0 => return Fast::Absent,
                None => match self.bucket(next) {
                    Ok(behind) => bucket = behind,
                    Err(_) => return Fast::Slow,
                },
            }
        }
        Fast::Slow
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestFs, find_fast as look};
    use base::{Fast, Kind, NewNode};
    use core::sync::atomic::Ordering::Acquire;
    use format::inode::node_offset;
    use std::vec::Vec;

    /// Whether the name's home bucket has others behind it.
    fn is_chained(test: &TestFs, name: &[u8]) -> bool {
        let hash = test.hash(node_offset(test.root_node().id), name);
        test.home(hash).unwrap().0.next.load(Acquire) != 0
    }

    /// Goal: the fast path finds every name that is in a chain of buckets, short, long and very long, says of
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
            assert_eq!(look(&test, root, &name(i, true)), (Fast::Done(()), *id, 0o644), "{i}");
            assert_eq!(look(&test, root, &name(i, false)).0, Fast::Absent, "{i}");
        }
        assert!(chained.iter().all(|count| *count > 100), "names in chains: {chained:?}");
        for i in (0..FILES).step_by(2) {
            test.unlink(&cx, root, &name(i, true)).unwrap();
        }
        for (i, id) in ids.iter().enumerate() {
            let (found, node, _) = look(&test, root, &name(i, true));
            match i % 2 {
                0 => assert_eq!(found, Fast::Absent, "{i}"),
                _ => assert_eq!((found, node), (Fast::Done(()), *id), "{i}"),
            }
        }
    }
}

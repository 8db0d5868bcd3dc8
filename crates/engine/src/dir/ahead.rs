//! What a listing fetches ahead: who lists names mostly asks for each of them next.
//!
//! `ls -l`, `find`, `du`, `rm -r` and the like take some hundred names at a time, then look at one after the other:
//! at its home bucket, whose entry leads to the cachelet. In a large directory each is a miss of
//! the processor's caches, the second after the first. While names are listed nothing waits for
//! them: the bucket is fetched with its name, the cachelet some names later. In a small one, which
//! is likely to be in the caches, it would cost more than it saves (decision 0191).

use crate::fs::Fs;
use core::sync::atomic::Ordering::Relaxed;
use format::bucket::{self, Bucket};
use pm::fetch::fetch;

/// How many names later.
const LATER: usize = 8;

/// The names listed last.
pub(super) struct Ahead<'a> {
    /// The home bucket and the fingerprint of each.
    names: [Option<(&'a Bucket, u64)>; LATER],
    next: usize,
}

impl<'a> Ahead<'a> {
    pub(super) const fn new() -> Self {
        Ahead { names: [None; LATER], next: 0 }
    }

    /// A name has been listed, of the directory whose inode is at `parent`.
    #[inline]
    pub(super) fn listed(&mut self, fs: &'a Fs, parent: u64, name: &[u8]) {
        let hash = fs.hash(parent, name);
        let home = fs.known_home(hash);
        fetch(home);
        let now = (home, format::hash::fingerprint(hash));
        if let Some(earlier) = self.names[self.next % LATER].replace(now) {
            fs.fetch_cachelet(earlier);
        }
        self.next += 1;
    }

    /// Nothing more is listed.
    pub(super) fn end(self, fs: &Fs) {
        self.names.into_iter().flatten().for_each(|earlier| fs.fetch_cachelet(earlier));
    }
}

impl Fs {
    /// The home bucket of a hash, by what this process knows of the index: a guess that costs nothing.
    #[inline]
    pub(crate) fn known_home(&self, hash: u64) -> &Bucket {
        self.buckets.of_hash(hash).0
    }

    /// Fetches the cachelet that lies beside the entry of a fingerprint.
    #[inline]
    fn fetch_cachelet(&self, (home, print): (&Bucket, u64)) {
        let position = home.entries.iter().position(|entry| bucket::entry_fingerprint(entry.load(Relaxed)) == print);
        if let Some(cachelet) = position.and_then(|i| self.cachelet(self.hint_of(home, i))) {
            fetch(cachelet);
        }
    }
}

//! The index against the names: each is in it once, and nothing else is.

use super::walk::shown;
use super::{Checker, IssueKind};
use crate::index::CHAIN_MAX;
use core::sync::atomic::Ordering::Relaxed;
use format::bucket::{self, ENTRIES};
use format::hash::fingerprint;
use heap::format;

impl Checker<'_> {
    /// A name must be in the bucket of its hash.
    pub(super) fn indexed(&mut self, parent: u64, name: &[u8], at: u64) {
        let fs = self.fs;
        let hash = fs.hash(parent, name);
        let wanted = bucket::pack_entry(hash, at);
        let Ok(mut offset) = fs.bucket_offset(hash, fs.root().buckets.load(Relaxed)) else { return };
        for _ in 0..CHAIN_MAX {
            let Ok(bucket) = fs.bucket(offset) else { break };
            for entry in &bucket.entries {
                let entry = entry.load(Relaxed);
                if entry == wanted {
                    return;
                }
                if bucket::entry_fingerprint(entry) == fingerprint(hash) && self.is_name(entry, parent, name) {
                    let other = bucket::entry_offset(entry);
                    self.issue(IssueKind::Name, at, format!("{} is there twice: also at {other:#x}", shown(name)));
                }
            }
            offset = bucket.next.load(Relaxed);
            if offset == 0 {
                break;
            }
        }
        self.issue(IssueKind::Index, at, format!("{} is not in the index", shown(name)));
    }

    fn is_name(&self, entry: u64, parent: u64, name: &[u8]) -> bool {
        let mut buffer = crate::dir::NameBuffer::new();
        let found = self.fs.read_edentry(bucket::entry_offset(entry), &mut buffer);
        found.is_ok_and(|found| found.parent == parent && buffer.raw(found.head.name_len) == name)
    }

    /// Every entry of the index must be one of the names met; overflow buckets are claimed.
    pub(super) fn whole_index(&mut self) {
        let buckets = self.fs.root().buckets.load(Relaxed);
        let most = self.used.len() as u64 * 64;
        for number in 0..buckets.min(most) {
            let Ok(home) = self.fs.bucket_place(number) else { return };
            let mut offset = home;
            for _ in 0..CHAIN_MAX {
                // An overflow bucket that is claimed already is not followed: so a circle ends.
                if offset != home && !self.claim_lines(offset, 1, "an overflow bucket") {
                    break;
                }
                let Ok(bucket) = self.fs.bucket(offset) else {
                    self.issue(IssueKind::Index, offset, format!("bucket {number} is outside the image"));
                    break;
                };
                for index in 0..ENTRIES {
                    let entry = bucket.entries[index].load(Relaxed);
                    if entry != 0 {
                        self.index_entry(number, offset, index, entry);
                    }
                }
                offset = bucket.next.load(Relaxed);
                if offset == 0 {
                    break;
                }
            }
        }
    }

    fn index_entry(&mut self, number: u64, bucket: u64, index: usize, entry: u64) {
        let at = bucket::entry_offset(entry);
        match self.line_bit(at) {
            // Each name has one entry: the bit goes with the first.
            Some((place, bit)) if self.edentries[place] & bit != 0 => self.edentries[place] &= !bit,
            _ => {
                let place = bucket + index as u64 * 8;
                self.issue(
                    IssueKind::Index,
                    place,
                    format!("an entry of bucket {number} refers to {at:#x}, which is no name (or one that is there twice)"),
                );
            }
        }
    }
}

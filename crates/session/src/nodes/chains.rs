//! The hash over directory and name: its chains, and what enters and leaves them.

use super::super::{BUCKETS, BUCKETS_AT, Guard, damaged};
use super::{Caching, FREE, GRACE_NS, NAME_MAX, NEGATIVE, NODES, Record, SessionCache, UNNAMED};
use base::Result;
use core::sync::atomic::{AtomicU32, Ordering::*};
use pm::text::Short;

/// A name as nodes keep it: its words, the last one filled up with zeroes.
fn words(name: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = name.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    whole.iter().copied().chain((!rest.is_empty()).then_some(last)).map(u64::from_le_bytes)
}

/// Of a name in the directory in slot `parent`.
pub(super) fn hash_of(parent: u32, name: &[u8]) -> u32 {
    words(name).fold(seed(parent), mix) as u32
}

/// The same of a short name.
#[inline(always)]
pub(super) fn hash_of_short(parent: u32, name: &Short) -> u32 {
    let hash = mix(seed(parent), name.low);
    (if name.len > 8 { mix(hash, name.high) } else { hash }) as u32
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn seed(parent: u32) -> u64 {
    u64::from(parent).wrapping_mul(FACTOR)
}

#[inline(always)]
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(FACTOR);
    hash ^ hash >> 32
}

impl Record {
    pub(super) fn is_called(&self, name: &[u8]) -> bool {
        self.name_len.load(Relaxed) as usize == name.len()
            && name.len() <= NAME_MAX
            && self.name.iter().zip(words(name)).all(|(stored, word)| stored.load(Relaxed) == word)
    }

    #[inline(always)]
    pub(super) fn is_called_short(&self, name: &Short) -> bool {
        self.name_len.load(Relaxed) == name.len
            && self.name[0].load(Relaxed) == name.low
            && (name.len <= 8 || self.name[1].load(Relaxed) == name.high)
    }
}

impl SessionCache {
    #[inline(always)]
    pub(super) fn bucket(&self, hash: u32) -> Result<&AtomicU32> {
        match self.region.at(BUCKETS_AT + u64::from(hash % BUCKETS) * 4) {
            Some(word) => Ok(word),
            None => damaged(),
        }
    }

    /// Copies a node's own name; its length.
    pub(super) fn name_into(&self, record: &Record, out: &mut [u8; NAME_MAX]) -> usize {
        let len = (record.name_len.load(Relaxed) as usize).min(NAME_MAX);
        for (bytes, word) in out[..len].chunks_mut(8).zip(&record.name) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..bytes.len()]);
        }
        len
    }

    pub(super) fn search(&self, _: &Guard, parent: u32, name: &[u8], hash: u32) -> Result<Option<u32>> {
        let mut at = self.bucket(hash)?.load(Relaxed);
        // A chain can't be longer than there are nodes: a loop is damage.
        for _ in 0..NODES {
            let Some(index) = at.checked_sub(1) else { return Ok(None) };
            let Some(record) = self.record(index) else { return damaged() };
            if record.hash.load(Relaxed) == hash && record.parent.load(Relaxed) == parent && record.is_called(name) {
                return Ok(Some(index));
            }
            at = record.next.load(Relaxed);
        }
        damaged()
    }

    pub(super) fn put_name(&self, record: &Record, name: &[u8]) {
        let name = &name[..name.len().min(NAME_MAX)];
        record.name.iter().zip(words(name)).for_each(|(stored, word)| stored.store(word, Relaxed));
        record.name_len.store(name.len() as u32, Relaxed);
    }

    pub(super) fn chain(&self, _: &Guard, index: u32, hash: u32) -> Result<()> {
        let Some(record) = self.record(index) else { return damaged() };
        let bucket = self.bucket(hash)?;
        record.hash.store(hash, Relaxed);
        record.next.store(bucket.load(Relaxed), Relaxed);
        bucket.store(index + 1, Relaxed);
        Ok(())
    }

    pub(super) fn unchain(&self, _: &Guard, index: u32) -> Result<()> {
        let Some(record) = self.record(index) else { return damaged() };
        let mut link = self.bucket(record.hash.load(Relaxed))?;
        for _ in 0..NODES {
            let Some(at) = link.load(Relaxed).checked_sub(1) else { return Ok(()) };
            let Some(here) = self.record(at) else { return damaged() };
            if at == index {
                link.store(here.next.load(Relaxed), Relaxed);
                return Ok(());
            }
            link = &here.next;
        }
        damaged()
    }

    pub(super) fn insert(
        &self,
        guard: &Guard,
        parent: u32,
        name: &[u8],
        hash: u32,
        state: u32,
        forget: &mut dyn FnMut(u64, u64, u32),
    ) -> Result<u32> {
        let index = self.take_slot(guard, forget)?;
        let Some(record) = self.record(index) else { return damaged() };
        record.generation.fetch_add(1, Relaxed);
        for word in [&record.children, &record.holds, &record.handle_bits] {
            word.store(0, Relaxed);
        }
        record.caching.store(Caching::None as u32, Relaxed);
        record.removed.store(0, Relaxed);
        for word in [&record.key, &record.lookups, &record.entry_until, &record.attr_until, &record.rights_until, &record.read_on]
        {
            word.store(0, Relaxed);
        }
        record.nlink.store(1, Relaxed);
        record.parent.store(parent, Relaxed);
        record.touched.store(1, Relaxed);
        self.put_name(record, name);
        record.state.store(state, Relaxed);
        self.chain(guard, index, hash)?;
        if let Some(parent) = self.record(parent) {
            parent.children.fetch_add(1, Relaxed);
        }
        Ok(index)
    }

    /// Takes a node's name away. What nobody holds goes a little later ([`SessionCache::bury`]): another
    /// program may just have looked it up, and its lower file system must know it until then.
    pub(super) fn drop_name(&self, guard: &Guard, index: u32, forget: &mut dyn FnMut(u64, u64, u32)) -> Result<()> {
        let Some(record) = self.record(index) else { return damaged() };
        self.unchain(guard, index)?;
        record.doubt_attr();
        record.entry_until.store(Self::now().saturating_add(GRACE_NS), Relaxed);
        let state = record.state.swap(UNNAMED, Relaxed);
        if state == NEGATIVE {
            self.free(index, record, state, forget);
        } else {
            self.header().unnamed.store(1, Relaxed);
        }
        Ok(())
    }

    /// After a holder of the lock died: chains and counts anew, from the nodes.
    #[cold]
    pub(in super::super) fn repair(&self) {
        let high = self.header().nodes_high.load(Relaxed).min(NODES);
        for hash in 0..BUCKETS {
            if let Ok(bucket) = self.bucket(hash) {
                bucket.store(0, Relaxed);
            }
        }
        for index in 0..high {
            if let Some(record) = self.record(index) {
                record.children.store(0, Relaxed);
            }
        }
        let guard = core::mem::ManuallyDrop::new(Guard(self));
        for index in 1..high {
            let Some(record) = self.record(index) else { return };
            let state = record.state.load(Relaxed);
            if state == FREE {
                continue;
            }
            if let Some(parent) = self.record(record.parent.load(Relaxed)) {
                parent.children.fetch_add(1, Relaxed);
            }
            record.entry_until.store(0, Relaxed);
            record.doubt_attr();
            if state != UNNAMED {
                let mut name = [0u8; NAME_MAX];
                let len = self.name_into(record, &mut name);
                let _ = self.chain(&guard, index, hash_of(record.parent.load(Relaxed), &name[..len]));
            }
        }
        self.recount_holds(&guard);
        self.header().changes.fetch_add(1, AcqRel);
    }
}

//! Which nodes the kernel may know: how often it was told of each, less what it has
//! forgotten (`FORGET`, `BATCH_FORGET`).
//!
//! An invalidation may overtake the answer that tells the kernel of a node for the first time: then the
//! kernel has nothing to forget, and believes the answer afterwards. So an invalidation of which the
//! kernel says that it has no such node is repeated while this table says that it was told of
//! one: until the answer has arrived, or the kernel's `FORGET` here. An answer about a node that the
//! kernel has already is no danger: the kernel compares versions.

use super::abi::{ForgetIn, ForgetManyIn, ForgetOne, ROOT};
use super::message::{Body, Result};
use super::{Call, Fuse};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Parts of the table, so that workers seldom wait for each other.
const PARTS: usize = 16;

/// How often the kernel was told of each node.
#[derive(Debug, Default)]
pub(super) struct Nlookup([Mutex<HashMap<u64, Known>>; PARTS]);

/// What there is about a node that the kernel may know.
#[derive(Debug, Default)]
struct Known {
    /// How often it was told.
    times: u64,
    /// A handle that holds it, since it has no name any more.
    held: Option<u64>,
}

/// What a `FORGET` has left.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// The kernel knows the node still, or never did.
    Same,
    /// It does not any more; with the handle that held the node.
    Nothing(Option<u64>),
}

impl Nlookup {
    fn part(&self, number: u64) -> MutexGuard<'_, HashMap<u64, Known>> {
        // Numbers are offsets of lines with a generation above them.
        let part = (number ^ number >> 7 ^ number >> 40) as usize % PARTS;
        self.0[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer is about to tell the kernel of a node.
    pub(super) fn count(&self, number: u64) {
        self.part(number).entry(number).or_default().times += 1;
    }

    /// The kernel has forgotten so many tellings.
    fn forget(&self, number: u64, times: u64) -> Left {
        let mut part = self.part(number);
        let Some(known) = part.get_mut(&number) else { return Left::Same };
        known.times = known.times.saturating_sub(times);
        if known.times > 0 {
            return Left::Same;
        }
        let held = known.held;
        part.remove(&number);
        Left::Nothing(held)
    }

    /// Notes the handle that holds a node until the kernel has forgotten it; false if the kernel does not know it.
    pub(super) fn hold(&self, number: u64, handle: u64) -> bool {
        let mut part = self.part(number);
        match part.get_mut(&number) {
            Some(known) if known.held.is_none() => {
                known.held = Some(handle);
                true
            }
            _ => false,
        }
    }

    fn has(&self, number: u64) -> bool {
        self.part(number).contains_key(&number)
    }

    fn all(&self) -> Vec<u64> {
        let numbers = |part: &Mutex<HashMap<u64, Known>>| {
            part.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect::<Vec<_>>()
        };
        self.0.iter().flat_map(numbers).collect()
    }
}

impl Fuse {
    /// Whether the kernel may know of a node, or be about to.
    pub fn is_known(&self, number: u64) -> bool {
        self.nlookup.has(number)
    }

    /// All nodes that the kernel may know, the root first, which it knows without being told.
    pub fn all_known(&self) -> Vec<u64> {
        let mut all = self.nlookup.all();
        all.insert(0, ROOT);
        all
    }
}

impl Call<'_> {
    pub(super) fn forget(&self, mut body: Body) -> Result<()> {
        let asked: ForgetIn = body.take()?;
        self.forgotten(self.header.node, asked.times);
        Ok(())
    }

    pub(super) fn forget_many(&self, mut body: Body) -> Result<()> {
        let asked: ForgetManyIn = body.take()?;
        for _ in 0..asked.count {
            // Ends with the message at the latest.
            let one: ForgetOne = body.take()?;
            self.forgotten(one.node, one.times);
        }
        Ok(())
    }

    fn forgotten(&self, number: u64, times: u64) {
        if let Left::Nothing(held) = self.fuse.nlookup.forget(number, times) {
            if let Some(handle) = held {
                self.let_go(handle);
            }
            self.fuse.listings.forget(number);
            self.fuse.contents.dropped(number, u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a node is told of until the kernel has forgotten it as often as it was told, no matter what it forgets beyond that.
    #[test]
    fn counts() {
        let nlookup = Nlookup::default();
        nlookup.forget(7, 1);
        assert!(!nlookup.has(7));
        nlookup.count(7);
        nlookup.count(7);
        nlookup.forget(7, 1);
        assert!(nlookup.has(7) && !nlookup.has(8));
        nlookup.count(8);
        let mut all = nlookup.all();
        all.sort_unstable();
        assert_eq!(all, [7, 8]);
        nlookup.forget(7, 9);
        assert!(!nlookup.has(7));
        nlookup.count(7);
        assert!(nlookup.has(7));
        // Who holds it is told when the kernel knows it no more, once.
        assert!(nlookup.hold(7, 3) && !nlookup.hold(7, 4) && !nlookup.hold(9, 5));
        assert_eq!((nlookup.forget(7, 1), nlookup.forget(7, 1)), (Left::Nothing(Some(3)), Left::Same));
    }
}

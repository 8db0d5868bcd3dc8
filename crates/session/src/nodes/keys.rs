//! Keys of nodes, for lower file systems that have none of their own (a library that knows paths alone).

use super::{NAMED, NEGATIVE, SessionCache, hash_of};
use base::{Kind, Node, Result};
use core::sync::atomic::Ordering::Relaxed;

impl SessionCache {
    /// The key of the node that `name` in `dir` is, or is about to be. Programs that
    /// meet a new name at the same time get the same one, so that none of them takes
    /// the others' node for another file that has come in its place.
    pub fn key_for(&self, dir: Node, name: &[u8], kind: Kind) -> Result<u64> {
        let guard = self.lock();
        self.get(dir)?;
        let hash = hash_of(dir.id as u32, name);
        let index = match self.search(&guard, dir.id as u32, name, hash)? {
            Some(index) => index,
            // A name that is not there yet, nor believed not to be: it holds the key until it is.
            // Nobody is told of what makes room for it: such lower file systems keep nothing for their keys.
            None => self.insert(&guard, dir.id as u32, name, hash, NEGATIVE, &mut |_, _, _| ())?,
        };
        let Some(record) = self.record(index) else { return Ok(self.fresh_key()) };
        if record.state.load(Relaxed) == NAMED && record.kind() != kind {
            return Ok(self.fresh_key());
        }
        let known = record.key.load(Relaxed);
        if known != 0 {
            return Ok(known);
        }
        let key = self.fresh_key();
        record.key.store(key, Relaxed);
        Ok(key)
    }

    /// A key that no node of this mount has had.
    fn fresh_key(&self) -> u64 {
        // 1 is the root's.
        self.header().keys.fetch_add(1, Relaxed) + 2
    }
}

//! Who keeps a node, and the lower file system's handles that lie beside it.

use super::super::{DESCRIPTIONS, Guard, NO_NODE};
use super::{Caching, NODES, SessionCache, is_past};
use base::{DescriptionId, Kind, Node, Result};
use core::sync::atomic::Ordering::*;
use openfiles::OpenFile;

impl SessionCache {
    /// A description keeps `node`: that has its slot until [`SessionCache::let_go`].
    pub(crate) fn keep(&self, description: &OpenFile, node: Node) -> Result<()> {
        let _guard = self.lock();
        self.get(node)?.holds.fetch_add(1, Relaxed);
        description.hint.store(node.hint, Relaxed);
        description.node.store(node.id, Release);
        Ok(())
    }

    /// A description that ends lets go of its node, the last one that keeps it only
    /// `even_if_last`. Whether it keeps none now.
    pub(crate) fn let_go(&self, id: DescriptionId, even_if_last: bool) -> bool {
        let _guard = self.lock();
        let word = &self.description(id).node;
        let node = word.load(Acquire);
        if let Ok(record) = self.get(Node { id: node, hint: 0 }) {
            let holds = record.holds.load(Relaxed);
            if holds <= 1 && !even_if_last {
                return false;
            }
            record.holds.store(holds.saturating_sub(1), Relaxed);
        }
        word.store(NO_NODE, Release);
        true
    }

    /// A description that ends lets go of its node if another one keeps that too. Of
    /// several that end at once, one is told that it is the last; it keeps the node yet.
    pub fn let_go_if_shared(&self, id: DescriptionId) -> bool {
        self.let_go(id, false)
    }

    /// After a holder of the lock died: who keeps what, from the descriptions.
    pub(super) fn recount_holds(&self, _: &Guard) {
        for index in 0..self.header().nodes_high.load(Relaxed).min(NODES) {
            if let Some(record) = self.record(index) {
                // The root stays.
                record.holds.store(u32::from(index == 0), Relaxed);
            }
        }
        for id in 0..self.header().descriptions_high.load(Acquire).min(DESCRIPTIONS) {
            if let Ok(record) = self.get(Node { id: self.description(id).node.load(Acquire), hint: 0 }) {
                record.holds.fetch_add(1, Relaxed);
            }
        }
    }

    /// The lower file system, in its new incarnation, calls a node `key`.
    pub fn renew(&self, node: Node, key: u64, incarnation: u32) {
        let _guard = self.lock();
        if let Ok(record) = self.get(node)
            && !is_past(incarnation, record.incarnation.load(Relaxed))
        {
            record.key.store(key, Relaxed);
            record.lookups.store(1, Relaxed);
            record.doubt_attr();
            record.incarnation.store(incarnation, Release);
        }
    }

    /// Lays a handle beside a node for what `bits` say (1 reading, 2 writing, 4 one
    /// for both, 16 appending). False if that was there already.
    pub fn put_handles(&self, node: Node, bits: u32, handle: u64, incarnation: u32, caching: Caching) -> Result<bool> {
        let _guard = self.lock();
        let record = self.get(node)?;
        let of = record.handle_incarnation.load(Relaxed);
        if record.handle_bits.load(Relaxed) != 0 && is_past(incarnation, of) {
            return Ok(false);
        }
        let present = if of == incarnation { record.handle_bits.load(Relaxed) } else { 0 };
        if present & bits & 0b10011 != 0 {
            return Ok(false);
        }
        for (index, bit) in [1, 2, 16].into_iter().enumerate() {
            if bits & bit != 0 {
                record.handles[index].store(handle, Relaxed);
            }
        }
        record.caching.store(caching as u32, Relaxed);
        record.handle_incarnation.store(incarnation, Relaxed);
        record.handle_bits.store(present | bits, Release);
        Ok(true)
    }

    /// Takes a node's handles away if no more than `holders` hold it (0: in any
    /// case): key, handles, bits, incarnation, whether it is a directory.
    pub fn take_handles(&self, node: Node, holders: u32) -> Option<(u64, [u64; 3], u32, u32, bool)> {
        let _guard = self.lock();
        let record = self.get(node).ok()?;
        if holders != 0 && record.holds.load(Relaxed) > holders {
            return None;
        }
        let bits = record.handle_bits.swap(0, Relaxed);
        let handles = [0, 1, 2].map(|index: usize| record.handles[index].load(Relaxed));
        let incarnation = record.handle_incarnation.load(Relaxed);
        (bits != 0).then(|| (record.key.load(Relaxed), handles, bits, incarnation, record.kind() == Kind::Directory))
    }

    /// How many descriptions keep a node.
    pub fn holds(&self, node: Node) -> u32 {
        self.get(node).map_or(0, |record| record.holds.load(Relaxed))
    }
}

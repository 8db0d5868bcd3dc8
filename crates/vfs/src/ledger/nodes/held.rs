//! Who holds a node, and the source's handles that lie beside it.

use super::{Caching, Ledger, is_past};
use crate::{Kind, Node, Result};
use core::sync::atomic::Ordering::*;

impl Ledger {
    /// Holds a node: it keeps its slot until [`Ledger::release`].
    pub fn hold(&self, node: Node) -> Result<()> {
        let _guard = self.lock();
        self.get(node)?.holds.fetch_add(1, Relaxed);
        Ok(())
    }

    /// The source, in its new life, calls a node `key`.
    pub fn renew(&self, node: Node, key: u64, epoch: u32) {
        let _guard = self.lock();
        if let Ok(record) = self.get(node)
            && !is_past(epoch, record.epoch.load(Relaxed))
        {
            record.key.store(key, Relaxed);
            record.lookups.store(1, Relaxed);
            record.attr_until.store(0, Relaxed);
            record.epoch.store(epoch, Release);
        }
    }

    /// Lays a handle beside a node for what `bits` say (1 reading, 2 writing, 4 one
    /// for both). False if that was there already.
    pub fn put_handles(&self, node: Node, bits: u32, handle: u64, epoch: u32, caching: Caching) -> Result<bool> {
        let _guard = self.lock();
        let record = self.get(node)?;
        let of = record.handle_epoch.load(Relaxed);
        if record.handle_bits.load(Relaxed) != 0 && is_past(epoch, of) {
            return Ok(false);
        }
        let present = if of == epoch { record.handle_bits.load(Relaxed) } else { 0 };
        if present & bits & 3 != 0 {
            return Ok(false);
        }
        for index in 0..2 {
            if bits & (1 << index) != 0 {
                record.handles[index].store(handle, Relaxed);
            }
        }
        record.caching.store(caching as u32, Relaxed);
        record.handle_epoch.store(epoch, Relaxed);
        record.handle_bits.store(present | bits, Release);
        Ok(true)
    }

    /// Takes a node's handles away if no more than `holders` hold it (0: in any
    /// case): key, handles, bits, life, whether it is a directory.
    pub fn take_handles(&self, node: Node, holders: u32) -> Option<(u64, [u64; 2], u32, u32, bool)> {
        let _guard = self.lock();
        let record = self.get(node).ok()?;
        if holders != 0 && record.holds.load(Relaxed) > holders {
            return None;
        }
        let bits = record.handle_bits.swap(0, Relaxed);
        let handles = [record.handles[0].load(Relaxed), record.handles[1].load(Relaxed)];
        let epoch = record.handle_epoch.load(Relaxed);
        (bits != 0).then(|| (record.key.load(Relaxed), handles, bits, epoch, record.kind() == Kind::Directory))
    }

    /// How many hold a node.
    pub fn holds(&self, node: Node) -> u32 {
        self.get(node).map_or(0, |record| record.holds.load(Relaxed))
    }

    /// Lets a node go.
    pub fn release(&self, node: Node) {
        let _guard = self.lock();
        let Ok(record) = self.get(node) else { return };
        record.holds.store(record.holds.load(Relaxed).saturating_sub(1), Relaxed);
    }
}

//! Names that go, and names that move.
//!
//! A lower file system is told first, the session afterwards; meanwhile another program may
//! have made the name again and entered it. So whoever speaks of a name says when
//! he asked the lower file system ([`Moment`]): a node that has the name only since then is
//! not the one that went. It is asked for again, and nothing more.

use super::super::{Guard, changes::Of, damaged};
use super::{Moment, NAMED, Record, SessionCache, hash_of};
use base::{Node, Result};
use core::sync::atomic::Ordering::*;

impl SessionCache {
    /// The node has its name from now on.
    pub(super) fn note_name(&self, record: &Record) {
        record.named_at.store(self.header().ticks.fetch_add(1, AcqRel) + 1, Relaxed);
    }

    /// A name was removed by the lower file system, which was asked at `asked`. The node that had it.
    pub fn removed(&self, dir: Node, name: &[u8], asked: Moment, forget: &mut dyn FnMut(u64, u64, u32)) -> Result<Option<Node>> {
        let guard = self.lock();
        self.header().changes.fetch_add(1, AcqRel);
        let Some(index) = self.search(&guard, dir.id as u32, name, hash_of(dir.id as u32, name))? else { return Ok(None) };
        let Some(record) = self.record(index) else { return damaged() };
        record.entry_until.store(0, Relaxed);
        if record.state.load(Relaxed) != NAMED || record.is_named_since(asked) {
            return Ok(None);
        }
        let node = self.node_of(index, record);
        self.note_change(Of::Attributes, record.key.load(Relaxed));
        record.removed.store(1, Relaxed);
        self.drop_name(&guard, index, forget)?;
        Ok(Some(node))
    }

    /// A name was moved by the lower file system, which was asked at `asked`: the node goes with
    /// it, what was in its place loses its name.
    pub fn moved(
        &self,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        exchange: bool,
        asked: Moment,
        forget: &mut dyn FnMut(u64, u64, u32),
    ) -> Result<()> {
        let guard = self.lock();
        self.header().changes.fetch_add(1, AcqRel);
        let (from_dir, to_dir) = (from.0.id as u32, to.0.id as u32);
        let source = self.search(&guard, from_dir, from.1, hash_of(from_dir, from.1))?;
        let target = self.search(&guard, to_dir, to.1, hash_of(to_dir, to.1))?;
        if source == target {
            return Ok(());
        }
        let both = [source, target].map(|index| self.record(index?));
        let mut is_new = false;
        for record in both.into_iter().flatten().filter(|record| record.state.load(Relaxed) == NAMED) {
            self.note_change(Of::Attributes, record.key.load(Relaxed));
            record.attr_until.store(0, Relaxed);
            is_new |= record.is_named_since(asked);
        }
        if is_new {
            both.into_iter().flatten().for_each(|record| record.entry_until.store(0, Relaxed));
            return Ok(());
        }
        if let Some(index) = source {
            self.unchain(&guard, index)?;
        }
        match target {
            Some(index) if exchange => {
                self.unchain(&guard, index)?;
                self.rechain(&guard, index, from_dir, from.1)?;
            }
            Some(index) => {
                if let [_, Some(record)] = both {
                    record.removed.store(1, Relaxed);
                }
                self.drop_name(&guard, index, forget)?;
            }
            None => {}
        }
        if let Some(index) = source {
            self.rechain(&guard, index, to_dir, to.1)?;
        }
        Ok(())
    }

    /// Gives an unchained node its new place.
    fn rechain(&self, guard: &Guard, index: u32, parent: u32, name: &[u8]) -> Result<()> {
        let Some(record) = self.record(index) else { return damaged() };
        if let Some(old) = self.record(record.parent.load(Relaxed)) {
            old.children.fetch_sub(1, Relaxed);
        }
        if let Some(new) = self.record(parent) {
            new.children.fetch_add(1, Relaxed);
        }
        record.parent.store(parent, Relaxed);
        self.put_name(record, name);
        self.note_name(record);
        self.chain(guard, index, hash_of(parent, name))
    }
}

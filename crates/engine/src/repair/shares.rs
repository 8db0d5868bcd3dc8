//! The table of what is shared: kept where it is right, else written anew from the maps.

use super::Fixer;
use crate::check::IssueKind;
use crate::check::shares::Leaf;
use core::mem::offset_of;
use format::Root;
use format::layout::{BLOCK, ROOT};
use format::shares::{self, WORDS};
use heap::collections::BTreeMap;
use heap::format;
use heap::vec::Vec;

/// Offset of the word that leads to the table.
const TABLE: u64 = ROOT + offset_of!(Root, shares) as u64;

/// The table as it was found.
#[derive(Debug, Default)]
pub(super) struct Table {
    leaves: Vec<Leaf>,
    /// Blocks of it.
    claimed: Vec<u64>,
    /// Something of it cannot be.
    damaged: bool,
}

impl Fixer<'_> {
    /// Claims the table, as far as it can be one.
    pub(super) fn claim_table(&mut self) {
        let fs = self.fs;
        let mut table = Table::default();
        if fs.may_have_shares() {
            table.leaves = fs.table_leaves(&fs.layout, &mut |at, blocks| {
                let is_free = at.is_multiple_of(BLOCK) && (0..blocks).all(|i| self.is_free(at + i * BLOCK, 64));
                table.damaged |= !is_free;
                if is_free {
                    (0..blocks).for_each(|i| _ = self.claim(at + i * BLOCK, 64));
                    table.claimed.extend((0..blocks).map(|i| at + i * BLOCK));
                }
                is_free
            });
        }
        self.table = table;
    }

    /// What each leaf should say: the words that are not 0.
    fn leaves_due(&self) -> BTreeMap<u64, Vec<(u64, u64)>> {
        let mut due: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (place, met) in self.shared.iter().enumerate().filter(|(_, met)| **met > 1) {
            let block = self.fs.layout.first_block() + place as u64;
            due.entry(block / WORDS * WORDS).or_default().push((block % WORDS, u64::from(*met - 1)));
        }
        due
    }

    fn is_table_right(&self, due: &BTreeMap<u64, Vec<(u64, u64)>>) -> bool {
        let says = |leaf: u64| (0..WORDS).map(move |i| (i, self.get(leaf + i * 8))).filter(|(_, count)| *count != 0);
        let leaves = &self.table.leaves;
        // Nothing but leaves, a middle for some of them, and the top.
        let top = if due.is_empty() { 0 } else { shares::top_blocks(&self.fs.layout) };
        let middles = due.keys().map(|first| first / (WORDS * WORDS)).collect::<heap::collections::BTreeSet<_>>().len();
        !self.table.damaged
            && leaves.len() == due.len()
            && self.table.claimed.len() as u64 == (leaves.len() + middles) as u64 + top
            && leaves.iter().all(|(first, leaf)| due.get(first).is_some_and(|due| says(*leaf).eq(due.iter().copied())))
    }

    /// The table says what the maps say.
    pub(super) fn write_shares(&mut self) {
        if !self.fs.may_have_shares() {
            return;
        }
        let due = self.leaves_due();
        if self.is_table_right(&due) {
            return;
        }
        let detail = format!("the table of what is shared is written again, for {} MiB", due.len() * 2);
        self.act(IssueKind::ShareCount, ROOT, false, detail);
        for at in core::mem::take(&mut self.table.claimed) {
            self.release(at, 64);
        }
        if due.is_empty() {
            return self.set(TABLE, 0);
        }
        let Some(top) = self.take_blocks(shares::top_blocks(&self.fs.layout)) else { return };
        let mut middles: BTreeMap<u64, u64> = BTreeMap::new();
        for (first, counts) in due {
            let (number, word, _) = shares::place(first);
            let middle = match middles.get(&number) {
                Some(middle) => *middle,
                None => {
                    let Some(middle) = self.take_blocks(1) else { return };
                    self.set_fresh(top * BLOCK + number * 8, middle * BLOCK);
                    middles.insert(number, middle);
                    middle
                }
            };
            let Some(leaf) = self.take_blocks(1) else { return };
            self.set_fresh(middle * BLOCK + word * 8, leaf * BLOCK);
            for (i, count) in counts {
                self.set_fresh(leaf * BLOCK + i * 8, count);
            }
        }
        self.set(TABLE, top * BLOCK);
    }
}

//! Which nodes of a cache have been compared with their originals since its shared cache was made.
//!
//! Nobody watched the originals before. A cachelet that is loaded meanwhile has [`UNCOMPARED`](cachelet::UNCOMPARED), which
//! keeps the fast path off it; the slow path compares the node, and takes the flag away. The process that keeps the cache fresh
//! goes over all nodes, and says when it has: from then on cachelets are loaded without the flag. A node whose original has
//! changed in a way that is not known yet gets it again.

use crate::fs::Fs;
use crate::segment::cachelet;
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicU64};
use pm::{clock, file, host};
use zerocopy::{FromBytes, KnownLayout};

/// So many directories can wait for the process that watches their originals.
const WAITING: usize = 64;
/// How long one who looks at changed names waits for another, nanoseconds.
const PATIENCE: i64 = 300_000_000;

/// What programs and the process that keeps a cache fresh have of one another, in the shared cache.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Freshness {
    /// Not 0: all nodes have been compared.
    compared: AtomicU32,
    /// How many files have come with several names.
    linked: AtomicU32,
    /// Who looks at names that have changed, a [mark](host::own_mark); 0: nobody.
    looking: AtomicU32,
    /// How often the process that keeps the cache fresh has been asked for all that was reported until then, and looked at it.
    answered: AtomicU32,
    /// How many directories programs have come to use, ever; the last of them, node ids, the oldest overwritten first.
    used: AtomicU32,
    nodes: [AtomicU64; WAITING],
}

/// How far a process has read the directories that have come into use.
#[derive(Clone, Copy, Default, Debug)]
pub struct Cursor(u32);

impl Fs {
    fn freshness(&self) -> &Freshness {
        &self.header().freshness
    }

    /// The flag of a cachelet that is loaded now.
    pub(crate) fn uncompared(&self) -> u32 {
        if self.are_all_compared() { 0 } else { cachelet::UNCOMPARED }
    }

    /// Whether all nodes have been compared.
    pub fn are_all_compared(&self) -> bool {
        self.freshness().compared.load(SeqCst) != 0
    }

    /// Whether a node has yet to be compared. `ESTALE`.
    pub fn is_uncompared(&self, cx: &Cx, node: Node) -> Result<bool> {
        Ok(self.cached(cx, node)?.flags.load(SeqCst) & cachelet::UNCOMPARED != 0)
    }

    /// A node is to be compared before it is used again. `ESTALE`.
    pub fn set_uncompared(&self, cx: &Cx, node: Node) -> Result<()> {
        self.cached(cx, node)?.flags.fetch_or(cachelet::UNCOMPARED, SeqCst);
        self.tell_shown(cx, node);
        Ok(())
    }

    /// A node has been compared. `ESTALE`.
    pub fn set_compared(&self, cx: &Cx, node: Node) -> Result<()> {
        self.cached(cx, node)?.flags.fetch_and(!cachelet::UNCOMPARED, SeqCst);
        Ok(())
    }

    /// All nodes have been compared.
    pub fn set_all_compared(&self) {
        self.freshness().compared.store(1, SeqCst);
    }

    /// Nobody has watched the originals for a while: every node is to be compared again. Costs a look at each cachelet that is
    /// in use.
    pub fn set_none_compared(&self) {
        // Whoever loads a cachelet from here on sees that; the others are found below.
        self.freshness().compared.store(0, SeqCst);
        let used = self.header().cachelet_next.load(SeqCst);
        for cachelet in (0..used).map_while(|number| self.cachelet(number)) {
            if cachelet.node.load(SeqCst) != 0 {
                cachelet.flags.fetch_or(cachelet::UNCOMPARED, SeqCst);
            }
        }
    }

    /// Programs have come to use a directory: its original is to be watched soon.
    pub fn watch_soon(&self, dir: Node) {
        let fresh = self.freshness();
        let place = fresh.used.fetch_add(1, SeqCst) as usize % WAITING;
        fresh.nodes[place].store(dir.id, SeqCst);
    }

    /// Runs `look`, which takes several steps to have names lead to what has them below, while nobody else does that. Who waits
    /// for [`PATIENCE`] goes on all the same: then a name may be missing for a moment.
    pub fn look_alone<T>(&self, look: impl FnOnce() -> T) -> T {
        let (word, own, begun) = (&self.freshness().looking, host::own_mark(), clock::monotonic());
        let take = |from| word.compare_exchange(from, own, SeqCst, SeqCst).is_ok();
        let is_alone = loop {
            let holder = word.load(SeqCst);
            if holder == 0 && take(0) {
                break true;
            }
            let is_over = clock::monotonic() - begun > PATIENCE;
            if is_over || holder != 0 && host::is_alive_by_mark(holder) == Some(false) {
                break take(holder);
            }
            file::give_way();
        };
        let result = look();
        if is_alone {
            let _ = word.compare_exchange(own, 0, SeqCst, SeqCst);
        }
        result
    }

    /// How often the process that keeps the cache fresh has answered.
    pub fn answers(&self) -> u32 {
        self.freshness().answered.load(SeqCst)
    }

    /// It has looked at all that was reported until it was asked.
    pub fn count_answer(&self) {
        self.freshness().answered.fetch_add(1, SeqCst);
    }

    /// A file has come with several names.
    pub fn count_linked(&self) {
        self.freshness().linked.fetch_add(1, SeqCst);
    }

    /// How many have.
    pub fn linked_count(&self) -> u32 {
        self.freshness().linked.load(SeqCst)
    }

    /// Calls `each` with those directories that are new since `read`. False if there may have been more of them.
    pub fn each_to_watch(&self, read: &mut Cursor, each: &mut dyn FnMut(Node)) -> bool {
        let fresh = self.freshness();
        let count = fresh.used.load(SeqCst);
        let new = count.wrapping_sub(read.0);
        read.0 = count;
        if new as usize > WAITING {
            fresh.nodes.iter().for_each(|node| node.store(0, SeqCst));
            return false;
        }
        let mut are_all = true;
        for number in (0..new).rev() {
            let place = count.wrapping_sub(number + 1) as usize % WAITING;
            match fresh.nodes[place].swap(0, SeqCst) {
                // Its process has not come to write it yet.
                0 => are_all = false,
                id => each(Node { id, hint: u32::MAX }),
            }
        }
        are_all
    }
}

//! Files that are being executed, through the kernel's mount: nobody opens them
//! for writing (`ETXTBSY`).
//!
//! Such a file is open in the server, with a flag that no program can set. Its
//! cachelet is marked, so that it is not opened on the fast path; who opens it
//! properly looks whether there are any, and then through the descriptions.

use crate::fs::Fs;
use crate::segment::cachelet::EXECUTED;
use base::description::EXECUTE;
use base::{Cx, Node};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

impl Fs {
    /// The kernel has begun to execute a file, or ended; it is still open.
    pub fn count_executed(&self, cx: &Cx, node: Node, begins: bool) {
        // Taken away by nobody but the cachelet's end: a mark too many costs a look.
        if begins && let Ok(cachelet) = self.cached(cx, node) {
            cachelet.flags.fetch_or(EXECUTED, AcqRel);
        }
        let count = &self.header().served.executed;
        let change = |count: u32| if begins { count.checked_add(1) } else { count.checked_sub(1) };
        let _ = count.fetch_update(AcqRel, Relaxed, change);
    }

    /// Whether any file may be being executed.
    #[inline]
    pub fn any_executed(&self) -> bool {
        self.header().served.executed.load(Relaxed) != 0
    }

    /// Whether a node is being executed.
    #[cold]
    pub fn is_executed(&self, node: Node) -> bool {
        let high = self.header().descriptions_high.get();
        (0..high)
            .map(|id| self.description(id))
            .any(|one| one.refs.load(Acquire) != 0 && one.node.load(Relaxed) == node.id && one.flags.load(Relaxed) & EXECUTE != 0)
    }
}

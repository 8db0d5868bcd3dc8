//! What a file system offers that keeps locks of a session as a whole.

use crate::SessionCache;
use base::{Cx, Lock, Node, Result};

/// Leases: files that are open below to be locked in the session's name. `file` is what who asks calls one.
pub trait LowerLeases {
    /// Has a lease of the file of this name, which is this node. `EIO` while there is one whose locks are lost.
    fn begin(&self, s: &SessionCache, cx: &Cx, name: (Node, &[u8], Node), file: u64) -> Result<()>;

    /// Sets or clears a lock by a lease; `EAGAIN` where another has a conflicting one, `EIO` where the lease is lost.
    fn lock(&self, s: &SessionCache, cx: &Cx, file: u64, lock: &Lock) -> Result<()>;

    /// The first lock of another's that conflicts with one.
    fn conflicting_lock(&self, s: &SessionCache, cx: &Cx, file: u64, lock: &Lock) -> Result<Option<Lock>>;

    /// Gives a lease up, with all that is locked by it.
    fn end(&self, s: &SessionCache, cx: &Cx, file: u64);

    /// Whether what was locked by a lease is lost: who had it in keeping has ended.
    fn is_lost(&self, s: &SessionCache, file: u64) -> bool;
}

//! What is to be done for a daemon's mount though no program calls: its notices are obeyed, and what dead programs have
//! locked at a daemon that keeps locks itself is given back. Others wait for it, in other sessions perhaps, where nobody can
//! see that they are dead.

use base::{Cred, Cx, Thread};
use fuse_client::FuseClient;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use vfs::cached::Cached;

/// How often one looks for the dead.
const EACH_NS: i64 = 1_000_000_000;

/// A thread at it until this is dropped.
pub struct Upkeep {
    mount: &'static Cached<FuseClient>,
    is_over: Arc<AtomicBool>,
}

impl Upkeep {
    /// Of this mount.
    pub fn start(mount: &'static Cached<FuseClient>) -> Upkeep {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        mount.lower().ring().watch_notices(true);
        std::thread::spawn(move || {
            let thread = Thread::new();
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            while !ends.load(SeqCst) && mount.lower().obey_notices(mount.session(), EACH_NS).is_ok() {
                if mount.session().has_lock_handles() {
                    mount.reap(&cx);
                }
            }
        });
        Upkeep { mount, is_over }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        self.mount.lower().ring().watch_notices(false);
    }
}

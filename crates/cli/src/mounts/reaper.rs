//! Gives back what dead programs of a session have locked at a daemon that keeps locks itself: others wait for it, in other
//! sessions perhaps, where nobody can see that they are dead.

use base::{Cred, Cx, Thread};
use fuse_client::FuseClient;
use session::LowerFs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use vfs::cached::Cached;

/// How often one looks.
const EACH: Duration = Duration::from_secs(1);

/// A thread that looks until this is dropped.
pub struct Reaper {
    _stop: Sender<()>,
}

impl Reaper {
    /// For this mount, if its daemon keeps locks.
    pub fn start(mount: &'static Cached<FuseClient>) -> Option<Reaper> {
        if ![false, true].into_iter().any(|flock| mount.lower().keeps_locks(flock)) {
            return None;
        }
        let (stop, stopped) = channel();
        std::thread::spawn(move || {
            let thread = Thread::new();
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            while stopped.recv_timeout(EACH) == Err(RecvTimeoutError::Timeout) {
                if mount.session().has_lock_handles() {
                    mount.reap(&cx);
                }
            }
        });
        Some(Reaper { _stop: stop })
    }
}

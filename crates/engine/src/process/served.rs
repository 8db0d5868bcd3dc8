//! The server of the kernel mount: at most one process at a time.

use crate::fs::Fs;
use base::{Cx, Result};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use pm::Errno;

impl Fs {
    /// Makes this process the server of the image's kernel mount. `EBUSY` if
    /// another one is and lives.
    pub fn start_serving(&self, cx: &Cx) -> Result<()> {
        let own = self.own_process()? + 1;
        let server = &self.header().served.server;
        loop {
            let before = server.load(Acquire);
            if before == own {
                return Ok(());
            }
            if before != 0 && self.server_lives(cx, before) && server.load(Acquire) == before {
                return Err(Errno::EBUSY.into());
            }
            if server.compare_exchange(before, own, AcqRel, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Ends what `start_serving` began; another process may begin.
    pub fn stop_serving(&self) {
        if let Ok(own) = self.own_process() {
            self.server_ends(own);
        }
    }

    /// If the process of slot `number` was the server, there is none now.
    pub(super) fn server_ends(&self, number: u32) {
        let _ = self.header().served.server.compare_exchange(number + 1, 0, AcqRel, Relaxed);
    }

    /// Makes the mount's `st_dev` that of everything in the image, so that both ways agree.
    pub fn set_device(&self, device: u64) {
        self.header().served.device.store(device, Release);
    }

    /// PID of the server as its own namespace knows it, if there is one that lives.
    pub fn server(&self, cx: &Cx) -> Option<u32> {
        let server = self.header().served.server.load(Acquire);
        if server == 0 || (server != self.process.load(Relaxed) && !self.server_lives(cx, server)) {
            return None;
        }
        self.process_slot(server - 1).map(|slot| slot.pid.load(Relaxed))
    }

    /// Whether any other process uses the image.
    pub fn others(&self, cx: &Cx) -> bool {
        self.adopt_dead_processes(cx) != 0
    }

    /// Whether the process of slot `server - 1` lives; if not, it is adopted.
    fn server_lives(&self, cx: &Cx, server: u32) -> bool {
        self.adopt_process_if_dead(cx, server - 1)
    }
}

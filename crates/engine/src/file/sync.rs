//! What `fsync` and `sync` do: every write is as durable as its domain makes it
//! when it returns, so there is nothing left to do but to have the kernel write
//! a page-cache file back to its disk.

use crate::fs::Fs;
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::Relaxed;
use pm::Domain;
use pm::file::{self, FileSystem};

const UNKNOWN: u32 = 0;
const MEMORY: u32 = 1;
const DISK: u32 = 2;

impl Fs {
    /// Makes what was written durable, as far as the medium promises.
    pub fn sync(&self, _cx: &Cx, _node: Option<Node>, _data_only: bool) -> Result<()> {
        self.image.fence();
        if self.image.domain() == Domain::Process && self.on_disk() {
            file::sync(self.image.base(), self.image.valid())?;
        }
        Ok(())
    }

    /// Whether the image lies on a file system with a disk behind it.
    fn on_disk(&self) -> bool {
        let known = self.backing.load(Relaxed);
        if known != UNKNOWN {
            return known == DISK;
        }
        // If in doubt, there is a disk.
        let found = if file::file_system(&self.path) == Ok(FileSystem::Memory) { MEMORY } else { DISK };
        self.backing.store(found, Relaxed);
        found == DISK
    }
}

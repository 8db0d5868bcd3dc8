//! What `fsync` and `sync` do: every write is as durable as its domain makes it
//! when it returns, so there is nothing left to do but to have the kernel write
//! a page-cache file back to its disk.

use crate::fs::Fs;
use crate::segment::cachelet::{self, Cachelet};
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::lane::Kind;
use pm::Domain;
use pm::file::{self, FileSystem};

const UNKNOWN: u32 = 0;
const MEMORY: u32 = 1;
const DISK: u32 = 2;

impl Fs {
    /// Makes what was written durable, as far as the medium promises.
    pub fn sync(&self, cx: &Cx, node: Option<Node>, _data_only: bool) -> Result<()> {
        match (self.image.domain(), node) {
            (Domain::Process, _) if self.on_disk() => {
                self.image.fence();
                return Ok(file::sync(self.image.base(), self.image.valid())?);
            }
            // What programs store into mappings, nobody has written back.
            (Domain::Power | Domain::Sim, Some(node)) => self.write_back_mapped(cx, node)?,
            (Domain::Power, None) => file::sync(self.image.base(), self.image.valid())?,
            _ => {}
        }
        self.image.fence();
        Ok(())
    }

    /// Starts the write-back of a file that is mapped.
    fn write_back_mapped(&self, cx: &Cx, node: Node) -> Result<()> {
        if self.read_only || self.cached(cx, node)?.flags.load(Acquire) & cachelet::MAPPED == 0 {
            return Ok(());
        }
        let mut tx = self.begin(cx, Kind::Write)?;
        let cachelet = self.lock_file(&mut tx, cx, node)?;
        self.write_back_contents(cachelet)
    }

    /// Starts the write-back of all of a file's contents. The caller holds the inode.
    pub(super) fn write_back_contents(&self, cachelet: &Cachelet) -> Result<()> {
        self.report_ranges(cachelet, 0, u64::MAX, &mut |_, place, len| self.image.flush(place, len))
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

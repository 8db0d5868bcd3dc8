//! From the copy to the file.
//!
//! The order lets a repair that is killed in the middle run again without
//! loss: first the root (volatile references are void from now on), then new
//! objects, to which nothing refers yet, then what refers to them, and only
//! then the bitmap and the lanes: until the end nothing that salvage needs is
//! called free.

use super::{Repair, RepairError};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::layout::{BITMAP, BLOCK, LANE_AREA, LINE, PERMISSION_TABLE, ROOT, VOLATILE};
use heap::vec::Vec;
use pm::file;
use pm::{Domain, Region};

impl Repair {
    /// Writes what [`Repair::plan`] has decided.
    pub fn apply(&self) -> Result<(), RepairError> {
        let fs = &self.image.fs;
        let len = fs.root().grown.load(Relaxed).min(fs.layout.block_count()) * BLOCK;
        self.file.allocate(0, BITMAP).map_err(RepairError::Write)?;
        self.file.allocate(fs.layout.blocks, len - fs.layout.blocks).map_err(RepairError::Write)?;
        let address = self.file.map(len, true, false).map_err(RepairError::Write)?;
        // SAFETY: just mapped, shared and writable; unmapped below, when nothing refers to it any more.
        let target = unsafe { Region::new(address, len, len, Domain::Process) };
        let written = self.steps().iter().try_for_each(|step| self.write(&target, step));
        // SAFETY: `target` is not used after this.
        unsafe { file::unmap(address, len) };
        written
    }

    /// Lines to be written, in groups that must be durable one after the other.
    pub(super) fn steps(&self) -> [Vec<u64>; 4] {
        let blocks = self.image.fs.layout.blocks;
        let mut steps = [const { Vec::new() }; 4];
        for line in &self.changes.fresh {
            steps[1].push(*line);
        }
        for line in self.changes.lines.iter().filter(|line| !self.changes.fresh.contains(line)) {
            let step = match *line {
                ROOT..LANE_AREA => 0,
                LANE_AREA..PERMISSION_TABLE => 3,
                at if at >= BITMAP && at < blocks => 3,
                at if at < VOLATILE => 0,
                _ => 2,
            };
            steps[step].push(*line);
        }
        steps
    }

    fn write(&self, target: &Region, lines: &[u64]) -> Result<(), RepairError> {
        for line in lines {
            for at in (*line..*line + LINE).step_by(8) {
                let Ok(from) = self.image.fs.at::<AtomicU64>(at, "fixed word") else { continue };
                if let Some(word) = target.word(at) {
                    target.store(word, from.load(Relaxed));
                }
            }
            target.flush(*line, LINE);
        }
        target.fence();
        file::sync(target.base(), target.len()).map_err(RepairError::Write)
    }
}

//! An image looked at without being used: for the checker and the dump.
//!
//! The file is mapped as a private copy, so nothing that happens here reaches
//! it. The checker lets the copy recover first (whole records are applied), as
//! attaching would; the dump shows what is there.

use crate::fs::Fs;
use crate::process::attach::{self, AttachError, Options};
use base::Result;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::Relaxed;
use format::lane::State;
use format::{BLOCK, Layout, Superblock, layout};
use pm::file::{self, File};
use pm::sys::abi;
use pm::{Domain, Region};

/// A private copy of an image.
#[derive(Debug)]
pub struct Inspected {
    pub(crate) fs: ManuallyDrop<Fs>,
    /// The usable superblock.
    pub superblock: Superblock,
    /// Length of the file, bytes.
    pub file_len: u64,
}

impl Inspected {
    /// Opens the image at `path` (NUL-terminated) for reading.
    pub fn open(path: &[u8]) -> core::result::Result<Inspected, AttachError> {
        let inspected = Inspected::map(path)?.0;
        inspected.validate()?;
        Ok(inspected)
    }

    /// The same, but how far the image has grown is believed only if the bitmap
    /// says so too; returns what the root said.
    #[cfg(any(test, feature = "check"))]
    pub(crate) fn open_to_repair(path: &[u8]) -> core::result::Result<(Inspected, u64), AttachError> {
        let (inspected, file) = Inspected::map(path)?;
        let fs = &*inspected.fs;
        let said = fs.root().grown.load(Relaxed);
        let least = fs.layout.first_block() + 1;
        let plausible = (least..=fs.layout.block_count()).contains(&said);
        // An image has whole blocks. Where the root does not say how many, nothing else tells of what was cut off.
        let whole = inspected.file_len.next_multiple_of(BLOCK);
        if !plausible && whole != inspected.file_len {
            return Err(AttachError::Truncated { has: inspected.file_len, needs: whole });
        }
        let grown = last_used(&file, fs.layout)?.max(if plausible { said } else { least });
        fs.root().grown.store(grown, Relaxed);
        inspected.validate()?;
        Ok((inspected, said))
    }

    fn map(path: &[u8]) -> core::result::Result<(Inspected, File), AttachError> {
        let file = File::open(path, abi::O_RDONLY | abi::O_NONBLOCK, 0).map_err(AttachError::Open)?;
        let stat = file.stat().map_err(AttachError::Open)?;
        if stat.mode & abi::S_IFMT != abi::S_IFREG {
            return Err(AttachError::NotAnImage);
        }
        let (superblock, layout) = attach::superblock(&file)?;
        if stat.size < layout::BITMAP {
            return Err(AttachError::Truncated { has: stat.size, needs: layout.blocks });
        }
        let len = stat.size.min(layout.limit) & !(BLOCK - 1);
        let address = file.map_copy(len).map_err(AttachError::Map)?;
        // SAFETY: just mapped; it is unmapped when this value is dropped and the region with it.
        let image = unsafe { Region::new(address, len, layout::BITMAP, Domain::Process) };
        let options = Options { read_only: true, ..Default::default() };
        let fs = attach::unjoined(&superblock, layout, image, path, &options)?;
        Ok((Inspected { fs: ManuallyDrop::new(fs), superblock, file_len: stat.size }, file))
    }

    /// Looks at how far the image has grown.
    fn validate(&self) -> core::result::Result<(), AttachError> {
        let layout = self.fs.layout;
        let grown = self.fs.root().grown.load(Relaxed);
        if grown <= layout.first_block() || grown > layout.block_count() {
            return Err(AttachError::Damaged);
        }
        if self.file_len < grown * BLOCK {
            return Err(AttachError::Truncated { has: self.file_len, needs: grown * BLOCK });
        }
        self.fs.refresh_valid();
        Ok(())
    }

    /// Applies, in the copy, the records that were left in the lanes; how many there were.
    pub fn recover(&self) -> Result<u32> {
        let pending = (0..layout::LANES).filter(|lane| State::counts(self.fs.lane(*lane).state.load(Relaxed))).count();
        self.fs.recover_records()?;
        Ok(pending as u32)
    }

    /// Where the areas lie.
    pub fn layout(&self) -> Layout {
        self.fs.layout
    }
}

/// The block after the last that the bitmap calls used and that is not empty
/// (a bit set by damage stands for an empty block). Read, not mapped: holes stay holes.
#[cfg(any(test, feature = "check"))]
fn last_used(file: &File, layout: Layout) -> core::result::Result<u64, AttachError> {
    let mut last = 0;
    let mut bytes = [0u8; BLOCK as usize];
    let mut contents = [0u8; BLOCK as usize];
    for at in (layout::BITMAP..layout.blocks).step_by(BLOCK as usize) {
        let len = file.read_at(&mut bytes, at).map_err(AttachError::Open)?;
        if bytes[..len].iter().all(|byte| *byte == 0) {
            continue;
        }
        for (i, word) in bytes[..len].chunks(8).enumerate().rev() {
            let block = (at - layout::BITMAP) / 8 + i as u64;
            if block < layout.first_block() || block >= layout.block_count() || word.iter().all(|byte| *byte == 0) {
                continue;
            }
            let len = file.read_at(&mut contents, block * BLOCK).map_err(AttachError::Open)?;
            if contents[..len].iter().any(|byte| *byte != 0) {
                last = block + 1;
                break;
            }
        }
    }
    Ok(last)
}

impl Drop for Inspected {
    fn drop(&mut self) {
        let (base, len) = (self.fs.image.base(), self.fs.image.len());
        // SAFETY: the region is not used after this: `fs` is never touched again.
        unsafe { file::unmap(base, len) };
    }
}

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
        let file = File::open(path, abi::O_RDONLY, 0).map_err(AttachError::Open)?;
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
        let inspected = Inspected { fs: ManuallyDrop::new(fs), superblock, file_len: stat.size };
        let grown = inspected.fs.root().grown.load(Relaxed);
        if grown <= layout.first_block() || grown > layout.block_count() {
            return Err(AttachError::Damaged);
        }
        if stat.size < grown * BLOCK {
            return Err(AttachError::Truncated { has: stat.size, needs: grown * BLOCK });
        }
        inspected.fs.refresh_valid();
        Ok(inspected)
    }

    /// Applies, in the copy, the records that were left in the lanes; how many there were.
    pub fn recover(&self) -> Result<u32> {
        let pending = (0..layout::LANES).filter(|lane| self.fs.lane(*lane).state.load(Relaxed) != 0).count();
        self.fs.recover_records()?;
        Ok(pending as u32)
    }

    /// Where the areas lie.
    pub fn layout(&self) -> Layout {
        self.fs.layout
    }
}

impl Drop for Inspected {
    fn drop(&mut self) {
        let (base, len) = (self.fs.image.base(), self.fs.image.len());
        // SAFETY: the region is not used after this: `fs` is never touched again.
        unsafe { file::unmap(base, len) };
    }
}

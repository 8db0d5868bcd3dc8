//! Contents of regular files: a map of pages, absent ones are holes.

use super::node::{Body, Inode};
use super::posix;
use crate::*;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use pm::{UserSlice, faults};

const PAGE: u64 = 4096;
/// Largest file, as tmpfs has it.
const SIZE_MAX: u64 = i64::MAX as u64;

/// A regular file's contents.
pub(super) struct File {
    pub size: u64,
    pub pages: BTreeMap<u64, Page>,
}

/// One page; allocated in advance and never written, it still counts as a hole for `seek`.
pub(super) struct Page {
    bytes: Box<[u8; PAGE as usize]>,
    written: bool,
}

/// Copies to a program's buffer, which the caller has made long enough.
pub(super) fn copy_out(from: &[u8], to: *mut u8) -> Result<()> {
    // SAFETY: a `UserSlice` is the program's over its length (its maker's promise),
    // and all callers copy within it.
    match unsafe { faults::transfer(from.as_ptr(), to, from.len()) } == from.len() {
        true => Ok(()),
        false => posix(Errno::EFAULT),
    }
}

/// Copies from a program's buffer, which the caller has made long enough.
pub(super) fn copy_in(from: *const u8, to: &mut [u8]) -> Result<()> {
    // SAFETY: a `UserSlice` is the program's over its length (its maker's promise),
    // and all callers copy within it.
    match unsafe { faults::transfer(from, to.as_mut_ptr(), to.len()) } == to.len() {
        true => Ok(()),
        false => posix(Errno::EFAULT),
    }
}

impl File {
    pub fn new() -> Self {
        File { size: 0, pages: BTreeMap::new() }
    }

    fn page(&mut self, index: u64) -> &mut Page {
        self.pages.entry(index).or_insert_with(|| Page { bytes: Box::new([0; PAGE as usize]), written: false })
    }

    fn has_data(&self, index: u64) -> bool {
        self.pages.get(&index).is_some_and(|p| p.written)
    }

    pub fn resize(&mut self, size: u64) {
        if size <= self.size {
            let _ = self.pages.split_off(&size.div_ceil(PAGE));
            if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
                page.bytes[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }

    /// Whole pages within go, edges become zero.
    fn punch(&mut self, start: u64, end: u64) {
        let touched = start / PAGE..end.div_ceil(PAGE);
        for index in touched {
            let (low, high) = (start.max(index * PAGE), end.min((index + 1) * PAGE));
            if high - low == PAGE {
                self.pages.remove(&index);
            } else if let Some(page) = self.pages.get_mut(&index) {
                page.bytes[(low - index * PAGE) as usize..(high - index * PAGE) as usize].fill(0);
            }
            if self.pages.range(index..).next().is_none() {
                break;
            }
        }
    }

    pub fn seek(&self, offset: u64, data: bool) -> Result<u64> {
        if offset >= self.size {
            return posix(Errno::ENXIO);
        }
        let mut index = offset / PAGE;
        if data {
            return match self.pages.range(index..).find(|p| p.1.written) {
                Some((&at, _)) if at * PAGE < self.size => Ok(offset.max(at * PAGE)),
                _ => posix(Errno::ENXIO),
            };
        }
        while self.has_data(index) {
            index += 1;
        }
        Ok(offset.max(index * PAGE).min(self.size))
    }
}

impl Inode {
    pub fn file(&self) -> Result<&File> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => posix(Errno::EISDIR),
            _ => posix(Errno::EINVAL),
        }
    }

    pub fn file_mut(&mut self) -> Result<&mut File> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => posix(Errno::EISDIR),
            _ => posix(Errno::EINVAL),
        }
    }

    pub fn read(&self, offset: u64, into: &[UserSlice]) -> Result<usize> {
        let file = self.file()?;
        let mut at = offset;
        for buffer in into {
            let mut filled = 0;
            while filled < buffer.len && at < file.size {
                let within = (at % PAGE) as usize;
                let len = (PAGE as usize - within).min(buffer.len - filled).min((file.size - at) as usize);
                let target = buffer.ptr.wrapping_add(filled);
                match file.pages.get(&(at / PAGE)) {
                    Some(page) => copy_out(&page.bytes[within..within + len], target)?,
                    None => copy_out(&[0; PAGE as usize][..len], target)?,
                }
                filled += len;
                at += len as u64;
            }
        }
        Ok((at.saturating_sub(offset)) as usize)
    }

    pub fn write(&mut self, cx: &Cx, offset: Option<u64>, from: &[UserSlice]) -> Result<(usize, u64)> {
        let file = self.file_mut()?;
        let start = offset.unwrap_or(file.size);
        let total = UserSlice::total(from);
        if total == 0 {
            return Ok((0, start));
        }
        if start >= SIZE_MAX {
            return posix(Errno::EFBIG);
        }
        let mut at = start;
        for buffer in from {
            let mut taken = 0;
            while taken < buffer.len && at < SIZE_MAX {
                let within = (at % PAGE) as usize;
                let len = (PAGE as usize - within).min(buffer.len - taken).min((SIZE_MAX - at) as usize);
                let page = file.page(at / PAGE);
                page.written = true;
                copy_in(buffer.ptr.wrapping_add(taken), &mut page.bytes[within..within + len])?;
                taken += len;
                at += len as u64;
            }
        }
        file.size = file.size.max(at);
        self.modified(cx);
        Ok(((at - start) as usize, at))
    }

    pub fn fallocate(&mut self, cx: &Cx, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|&e| e <= SIZE_MAX).ok_or(Error::Posix(Errno::EFBIG))?;
        let file = self.file_mut()?;
        if matches!(how, Fallocate::PunchHole | Fallocate::Zero | Fallocate::ZeroKeepSize) {
            file.punch(offset, end);
        }
        if how != Fallocate::PunchHole {
            if len > 1 << 32 {
                return posix(Errno::ENOSPC);
            }
            for index in offset / PAGE..end.div_ceil(PAGE) {
                file.page(index);
            }
        }
        if matches!(how, Fallocate::Allocate | Fallocate::Zero) {
            file.size = file.size.max(end);
        }
        self.modified(cx);
        Ok(())
    }
}

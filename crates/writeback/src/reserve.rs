//! Room that is kept for rounds: without it an image that programs have filled could not be written back.
//!
//! It is kept in the image, as a file, and in the file systems beneath the image and the shared cache, as files without a
//! name: both grow while a round works. A round that finds no room gets all of it; it is taken again when one is over.

use crate::Writer;
use base::{Error, Fallocate, Kind, NewNode, SetAttr};
use pm::Errno;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the file that keeps it, at the top of the image.
const NAME: &[u8] = b"reserve";
/// Bytes in the image.
const LEN: u64 = 512 << 10;
/// Bytes in a file system beneath.
const BENEATH: u64 = 2 << 20;
/// This part of what is free there at most.
const PART: u64 = 8;

/// Room in a file system beneath.
#[derive(Debug)]
struct Kept {
    file: OwnedFd,
    len: u64,
    /// It is taken: asking for it again would cost each round a look at every page.
    is_taken: bool,
}

/// Room in file systems beneath.
#[derive(Debug, Default)]
pub(crate) struct Ballast(Mutex<Vec<Kept>>);

impl Ballast {
    /// Keeps room beneath these directories: once for each file system.
    fn keep_in(&self, directories: &[&Path]) {
        let (mut devices, mut all) = (Vec::new(), self.files());
        for directory in directories {
            let Ok(stat) = rustix::fs::stat(*directory) else { continue };
            if devices.contains(&stat.st_dev) {
                continue;
            }
            devices.push(stat.st_dev);
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let Ok(file) = rustix::fs::open(*directory, flags, Mode::RUSR | Mode::WUSR) else { continue };
            let Ok(figures) = rustix::fs::fstatvfs(&file) else { continue };
            let free = figures.f_bavail.saturating_mul(figures.f_frsize);
            all.push(Kept { file, len: BENEATH.min(free / PART), is_taken: false });
        }
    }

    fn files(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) {
        for kept in self.files().iter_mut().filter(|kept| kept.len > 0 && !kept.is_taken) {
            kept.is_taken = rustix::fs::fallocate(&kept.file, FallocateFlags::empty(), 0, kept.len).is_ok();
        }
    }

    fn give(&self) {
        for kept in self.files().iter_mut() {
            kept.is_taken = rustix::fs::ftruncate(&kept.file, 0).is_err();
        }
    }
}

impl Writer {
    /// Room for rounds is kept beneath these directories, too: those of the image and of the shared cache.
    pub fn keeping_room_in(self, directories: &[&Path]) -> Writer {
        self.ballast.keep_in(directories);
        self
    }

    /// Keeps room, if there is any.
    pub fn keep_room(&self) {
        let _ = self.set_room(LEN);
        self.ballast.take();
    }

    /// Gives it to the round that is under way.
    pub(crate) fn give_room(&self) {
        self.ballast.give();
        let _ = self.set_room(0);
    }

    fn set_room(&self, len: u64) -> base::Result<()> {
        let (fs, cx) = (self.cache.fs(), self.cx());
        let file = match fs.lookup(&cx, fs.root_node(), NAME) {
            Err(Error::Posix(Errno::ENOENT)) if len > 0 => {
                fs.create(&cx, fs.root_node(), NAME, &NewNode { kind: Kind::Regular, mode: 0o600, rdev: 0, target: b"" })?
            }
            found => found?,
        };
        if fs.attr(&cx, file)?.size == len {
            return Ok(());
        }
        match len {
            0 => fs.set_attr(&cx, file, &SetAttr { size: Some(0), size_checked: true, ..SetAttr::default() }),
            _ => fs.fallocate(&cx, file, Fallocate::Allocate, 0, len),
        }
    }
}

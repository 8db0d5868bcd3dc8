//! The journal's file on a disk: past the page cache where that is possible, and durable when a call returns.

use super::ring::{BLOCK, Medium, START};
use crate::Result;
use crate::below::errno;
use crate::trusted::{self, failed};
use pm::Errno;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

/// Bytes that are zeroed at a time.
const PIECE: usize = 1 << 20;
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// The file.
#[derive(Debug)]
pub struct Disk {
    file: OwnedFd,
    /// Memory that is written from: on a block's boundary, as the disk wants it.
    buffer: Vec<u8>,
}

/// The part of some memory that begins on a block's boundary.
fn aligned(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    let block = BLOCK as usize;
    if buffer.len() < len + block {
        buffer.resize(len + block, 0);
    }
    let skipped = buffer.as_ptr().align_offset(block);
    &mut buffer[skipped..skipped + len]
}

impl Disk {
    /// Opens the file, or makes it: then it is this long, of zeros that are on the disk.
    pub fn open(path: &Path, room: u64) -> Result<Disk> {
        if let Some(disk) = Disk::open_if(path)? {
            return Ok(disk);
        }
        make(path, room)?;
        Disk::open_if(path)?.ok_or_else(|| failed(path)(rustix::io::Errno::NOENT))
    }

    /// Of a journal that is there, and trusted.
    pub fn open_if(path: &Path) -> Result<Option<Disk>> {
        let flags = OFlags::RDWR | OFlags::DSYNC;
        let opened = match trusted::open(path, flags | OFlags::DIRECT) {
            Err(failure) if failure.errno == Errno::EINVAL => trusted::open(path, flags),
            opened => opened,
        };
        Ok(opened?.map(|file| Disk { file, buffer: Vec::new() }))
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a file with this path is in memory, and gone when the machine stops.
pub fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(parent(path)).is_ok_and(|stat| matches!(stat.f_type as u64, TMPFS | RAMFS))
}

fn make(path: &Path, room: u64) -> Result<()> {
    let mut new = path.as_os_str().to_os_string();
    new.push(".bypath-new");
    let new = std::path::PathBuf::from(new);
    // A start that was cut off has left it, or another user has put it there.
    let _ = rustix::fs::unlink(&new);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&new, flags, Mode::RUSR | Mode::WUSR).map_err(failed(&new))?;
    let zeros = vec![0u8; PIECE];
    let (mut at, end) = (0, START + room);
    // Written, and not only promised: a block that has never been written costs the file system's journal too.
    while at < end {
        let len = (end - at).min(PIECE as u64) as usize;
        at += rustix::io::pwrite(&file, &zeros[..len], at).map_err(failed(&new))? as u64;
    }
    rustix::fs::fsync(&file).map_err(failed(&new))?;
    rustix::fs::rename(&new, path).map_err(failed(path))?;
    sync_parent(path)
}

/// What is called so is durable.
pub fn sync_parent(path: &Path) -> Result<()> {
    let parent = parent(path);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(parent, flags, Mode::empty()).map_err(failed(parent))?;
    rustix::fs::fsync(&dir).map_err(failed(parent))
}

impl Medium for Disk {
    fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<usize, Errno> {
        let (from, end) = (at - at % BLOCK, (at + into.len() as u64).next_multiple_of(BLOCK));
        // A length that is a lie is more than there is.
        let size = rustix::fs::fstat(&self.file).map_err(errno)?.st_size as u64;
        if from >= size {
            return Ok(0);
        }
        let mut buffer = Vec::new();
        let buffer = aligned(&mut buffer, (end.min(size.next_multiple_of(BLOCK)) - from) as usize);
        let mut came = 0;
        while came < buffer.len() {
            match rustix::io::pread(&self.file, &mut buffer[came..], from + came as u64).map_err(errno)? {
                0 => break,
                more => came += more,
            }
        }
        let there = buffer[..came].get((at - from) as usize..).unwrap_or(&[]);
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> std::result::Result<(), Errno> {
        let buffer = aligned(&mut self.buffer, bytes.len());
        buffer.copy_from_slice(bytes);
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.file, &buffer[done..], at + done as u64).map_err(errno)? {
                0 => return Err(Errno::EIO),
                more => done += more,
            }
        }
        Ok(())
    }

    fn cut(&mut self, len: u64) -> std::result::Result<(), Errno> {
        match rustix::fs::fstat(&self.file).map_err(errno)?.st_size as u64 > len {
            true => rustix::fs::ftruncate(&self.file, len).map_err(errno),
            false => Ok(()),
        }
    }
}

//! A file below that is written to.

use super::errno;
use crate::{Failure, Result};
use base::{Cx, Fallocate, Node, SetAttr};
use pm::{Errno, UserSlice};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, OFlags};
use std::cell::Cell;

/// Bytes written at a time.
pub const PIECE: u64 = 1 << 20;

/// It.
pub enum File {
    Fd(OwnedFd),
    Node(Opened),
}

/// A daemon's.
pub struct Opened {
    pub daemon: &'static dyn vfs::cached::Below,
    pub node: Node,
    /// Its size, once it is known: nobody else writes to it.
    pub size: Cell<Option<u64>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = super::daemon::ask(|cx| self.daemon.done_below(cx, self.node));
    }
}

impl Opened {
    fn ask<T>(&self, ask: impl FnOnce(&dyn vfs::cached::Below, &Cx, Node) -> base::Result<T>) -> std::result::Result<T, Errno> {
        super::daemon::ask(|cx| ask(self.daemon, cx, self.node)).map_err(|error| error.errno())
    }
}

impl File {
    pub fn size(&self) -> Result<u64> {
        match self {
            File::Fd(fd) => rustix::fs::fstat(fd).map(|stat| stat.st_size as u64).map_err(errno),
            File::Node(file) => match file.size.get() {
                Some(size) => Ok(size),
                None => file.ask(|daemon, cx, node| daemon.attr(cx, node)).map(|attr| attr.size),
            },
        }
        .map_err(|errno| Failure::new("bytes of a file", errno))
    }

    pub fn set_size(&self, size: u64) -> Result<()> {
        match self {
            File::Fd(fd) => rustix::fs::ftruncate(fd, size).map_err(errno),
            File::Node(file) => {
                let change = SetAttr { size: Some(size), size_checked: true, ..SetAttr::default() };
                file.ask(|daemon, cx, node| daemon.set_attr(cx, node, &change)).inspect(|()| file.size.set(Some(size)))
            }
        }
        .map_err(|errno| Failure::new("bytes of a file", errno))
    }

    /// All of it.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let failed = |errno| Failure::new("bytes of a file", errno);
        match self {
            File::Fd(fd) => {
                let mut done = 0;
                while done < bytes.len() {
                    let wrote = rustix::io::pwrite(fd, &bytes[done..], offset + done as u64);
                    done += wrote.map_err(|error| failed(errno(error)))?;
                }
                Ok(())
            }
            File::Node(file) => {
                let size = self.size()?;
                file.ask(|daemon, cx, node| daemon.write_below(cx, node, offset, UserSlice::from_ref(bytes))).map_err(failed)?;
                file.size.set(Some(size.max(offset + bytes.len() as u64)));
                Ok(())
            }
        }
    }

    /// Writes at the end, wherever that is by then; the offset behind the last byte.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let failed = |error| Failure::new("bytes of a file", errno(error));
        match self {
            File::Fd(fd) => {
                rustix::fs::fcntl_setfl(fd, OFlags::APPEND).map_err(failed)?;
                let mut done = 0;
                while done < bytes.len() {
                    done += rustix::io::write(fd, &bytes[done..]).map_err(failed)?;
                }
                let end = rustix::fs::tell(fd).map_err(failed);
                rustix::fs::fcntl_setfl(fd, OFlags::empty()).map_err(failed)?;
                end
            }
            File::Node(_) => {
                let end = self.size()?;
                self.write(bytes, end)?;
                Ok(end + bytes.len() as u64)
            }
        }
    }

    /// Reads as much as is there.
    pub fn read(&self, into: &mut [u8], offset: u64) -> Result<usize> {
        let failed = |errno| Failure::new("bytes of a file", errno);
        let mut done = 0;
        while done < into.len() {
            let (rest, at) = (&mut into[done..], offset + done as u64);
            let came = match self {
                File::Fd(fd) => rustix::io::pread(fd, rest, at).map_err(|error| failed(errno(error)))?,
                File::Node(file) => {
                    let slice = UserSlice::from_mut(rest);
                    file.ask(|daemon, cx, node| daemon.read_below(cx, node, at, slice)).map_err(failed)?
                }
            };
            if came == 0 {
                break;
            }
            done += came;
        }
        Ok(done)
    }

    /// Whether it is the file with this number; a daemon's are known by their names.
    pub fn is_numbered(&self, number: u64) -> Result<bool> {
        match self {
            File::Fd(fd) => rustix::fs::fstat(fd)
                .map(|stat| stat.st_ino == number)
                .map_err(|error| Failure::new("bytes of a file", errno(error))),
            File::Node(_) => Ok(true),
        }
    }

    /// Size, and time of change in nanoseconds since the epoch.
    pub fn looked(&self) -> Result<(u64, i64)> {
        let failed = |errno| Failure::new("bytes of a file", errno);
        match self {
            File::Fd(fd) => {
                let stat = rustix::fs::fstat(fd).map_err(|error| failed(errno(error)))?;
                Ok((stat.st_size as u64, stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64)))
            }
            File::Node(file) => file
                .ask(|daemon, cx, node| daemon.attr(cx, node))
                .map(|attr| (file.size.get().unwrap_or(attr.size), attr.mtime))
                .map_err(failed),
        }
    }

    /// A copy of all of it.
    pub fn copy_to(&self, to: &File) -> Result<()> {
        let (mut buffer, mut at) = (vec![0u8; PIECE as usize], 0);
        loop {
            let came = self.read(&mut buffer, at)?;
            if came == 0 {
                return Ok(());
            }
            to.write(&buffer[..came], at)?;
            at += came as u64;
        }
    }

    fn punch(&self, from: u64, len: u64) -> std::result::Result<(), Errno> {
        match self {
            File::Fd(fd) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(fd, flags, from, len).map_err(errno)
            }
            File::Node(file) => file.ask(|daemon, cx, node| daemon.fallocate(cx, node, Fallocate::PunchHole, from, len)),
        }
    }

    /// Makes bytes zero that are there.
    pub fn zero(&self, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        match self.punch(from, to - from) {
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {}
            done => return done.map_err(|errno| Failure::new("a hole of a file", errno)),
        }
        let zeros = vec![0u8; PIECE.min(to - from) as usize];
        let mut from = from;
        while from < to {
            let len = (to - from).min(PIECE) as usize;
            self.write(&zeros[..len], from)?;
            from += len as u64;
        }
        Ok(())
    }
}

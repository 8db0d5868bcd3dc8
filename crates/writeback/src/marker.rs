//! `.bypath-cache`, at the top of a directory with a cache in front: which image, and who writes back.
//!
//! Whoever writes back has it locked. That of a daemon's cache lies beside the image: `IMG.bypath-cache`.
//! It is made, and durable, before the first change, and goes when all is below.

use crate::Conflict;
use crate::below::errno;
use pm::Errno;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its name.
pub const NAME: &str = ".bypath-cache";

/// The marker, locked by this process.
#[derive(Debug)]
pub struct Marker {
    file: OwnedFd,
    path: PathBuf,
}

/// What an attempt to lock it came to.
#[derive(Debug)]
pub enum Claim {
    /// It is ours.
    Ours(Marker),
    /// Another process writes back for the same image.
    Served,
    /// It is another image's.
    Another(String),
}

/// The image that the marker of a directory names, if there is one.
pub fn of(directory: &Path) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(NAME)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("image ")).map(str::to_owned)
}

/// The same, unless it goes within half a second: then it was of a session that was just ending.
pub fn that_stays(directory: &Path) -> Option<String> {
    const LOOKS: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..LOOKS {
        of(directory)?;
        std::thread::sleep(PAUSE);
    }
    of(directory)
}

/// The marker of a cache of a daemon: in the daemon's own tree it might be refused, or be seen by others.
pub fn beside(image: &Path) -> PathBuf {
    let mut path = image.as_os_str().to_os_string();
    path.push(NAME);
    path.into()
}

/// The journal that it names, if there is one.
pub fn journal_of(directory: &Path) -> Option<PathBuf> {
    line_of(directory, "journal ").map(PathBuf::from)
}

/// What it says becomes of files that others have changed too.
pub fn conflict_of(directory: &Path) -> Conflict {
    line_of(directory, "conflict ").and_then(|word| Conflict::from_name(&word)).unwrap_or_default()
}

fn line_of(directory: &Path, word: &str) -> Option<String> {
    let text = std::fs::read_to_string(directory.join(NAME)).ok()?;
    text.lines().find_map(|line| line.strip_prefix(word)).map(str::to_owned)
}

impl Marker {
    /// Names the journal in it; durable when this returns.
    pub fn set_journal(&self, journal: &Path) -> Result<(), Errno> {
        self.set("journal ", &journal.display().to_string())
    }

    /// Says what becomes of files that others have changed too, for whoever goes on.
    pub fn set_conflict(&self, conflict: Conflict) -> Result<(), Errno> {
        self.set("conflict ", conflict.name())
    }

    fn set(&self, word: &str, value: &str) -> Result<(), Errno> {
        if line_of(self.directory(), word).as_deref() == Some(value) {
            return Ok(());
        }
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().filter(|line| !line.starts_with(word)).map(str::to_owned).collect();
        lines.push(format!("{word}{value}\n"));
        let text = lines.join("\n");
        rustix::io::pwrite(&self.file, text.as_bytes(), 0).map_err(errno)?;
        rustix::fs::ftruncate(&self.file, text.len() as u64).map_err(errno)?;
        rustix::fs::fsync(&self.file).map_err(errno)
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// All is below: it goes, and then the journal that it named. While it is there, so is that.
    pub fn remove_with(self, journal: &Path) {
        let path = self.path.clone();
        self.remove();
        if crate::journal::sync_parent(&path).is_ok() {
            let _ = std::fs::remove_file(journal);
        }
    }

    /// Locks a marker, that of a directory or [`beside`] an image, for an image (its path, and its number), and makes it if it is missing.
    pub fn claim(path: &Path, image: &Path, number: u64) -> Result<Claim, Errno> {
        let (path, directory) = (path.to_path_buf(), path.parent().unwrap_or(Path::new("/")));
        let text = format!(
            "A bypath cache holds changes of this directory: bypath cache status {0}\nimage {0}\nnumber {number:x}\n",
            image.display()
        );
        loop {
            let times = Times::of(directory);
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH).map_err(errno)?;
            let is_locked = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(rustix::io::Errno::WOULDBLOCK) => false,
                Err(error) => return Err(errno(error)),
            };
            let said = std::fs::read_to_string(&path).unwrap_or_default();
            let is_its = said.lines().any(|line| line == format!("number {number:x}"));
            if !said.is_empty() && !is_its {
                let other = said.lines().find_map(|line| line.strip_prefix("image ")).unwrap_or("?");
                return Ok(Claim::Another(other.to_owned()));
            }
            if !is_locked {
                return Ok(Claim::Served);
            }
            // Whoever had it may have removed it between our opening and our lock.
            let (mine, there) = (rustix::fs::fstat(&file).map_err(errno)?, rustix::fs::lstat(&path));
            if there.map(|there| (there.st_dev, there.st_ino)) != Ok((mine.st_dev, mine.st_ino)) {
                continue;
            }
            if said.is_empty() {
                rustix::io::pwrite(&file, text.as_bytes(), 0).map_err(errno)?;
                rustix::fs::fsync(&file).map_err(errno)?;
                let dir = rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
                times.restore(directory);
                rustix::fs::fsync(&dir).map_err(errno)?;
            }
            return Ok(Claim::Ours(Marker { file, path }));
        }
    }

    /// All is below: it goes.
    pub fn remove(self) {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let times = Times::of(directory);
        let _ = rustix::fs::unlink(&self.path);
        times.restore(directory);
        drop(self.file);
    }
}

/// Times of the directory: the marker is no change of what people keep in it.
struct Times(Option<rustix::fs::Timestamps>);

impl Times {
    fn of(directory: &Path) -> Times {
        let time = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
        Times(rustix::fs::stat(directory).ok().map(|stat| rustix::fs::Timestamps {
            last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
            last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
        }))
    }

    fn restore(self, directory: &Path) {
        if let Some(times) = self.0 {
            let _ = rustix::fs::utimensat(rustix::fs::CWD, directory, &times, rustix::fs::AtFlags::empty());
        }
    }
}

/// A path from bytes.
pub fn path(bytes: &[u8]) -> &Path {
    Path::new(if bytes.is_empty() { OsStr::new("/") } else { OsStr::from_bytes(bytes) })
}

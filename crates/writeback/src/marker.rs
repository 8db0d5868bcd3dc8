//! `.bypath-cache`, at the top of a directory with a cache in front: which image, and who writes back.
//!
//! Whoever writes back has it locked. That of a daemon's cache lies beside the image: `IMG.bypath-cache`.
//! It is made, and durable, before the first change, and goes when all is below. Other users may be able to put a file there
//! too: one that is not [`trusted`] is refused by name.

use crate::trusted::{self, failed};
use crate::{Conflict, Result};
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
pub fn of(directory: &Path) -> Result<Option<String>> {
    line_of(directory, "image ")
}

/// Whether a trusted marker is there.
pub fn is_there(directory: &Path) -> bool {
    of(directory).is_ok_and(|image| image.is_some())
}

/// The same, unless it goes within half a second: then it was of a session that was just ending.
pub fn that_stays(directory: &Path) -> Result<Option<String>> {
    const LOOKS: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..LOOKS {
        if of(directory)?.is_none() {
            return Ok(None);
        }
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
pub fn journal_of(directory: &Path) -> Result<Option<PathBuf>> {
    Ok(line_of(directory, "journal ")?.map(PathBuf::from))
}

/// What it says becomes of files that others have changed too.
pub fn conflict_of(directory: &Path) -> Conflict {
    let word = line_of(directory, "conflict ").ok().flatten();
    word.and_then(|word| Conflict::from_name(&word)).unwrap_or_default()
}

fn line_of(directory: &Path, word: &str) -> Result<Option<String>> {
    let text = trusted::text(&directory.join(NAME))?.unwrap_or_default();
    Ok(text.lines().find_map(|line| line.strip_prefix(word)).map(str::to_owned))
}

impl Marker {
    /// Names the journal in it; durable when this returns.
    pub fn set_journal(&self, journal: &Path) -> Result<()> {
        self.set("journal ", &journal.display().to_string())
    }

    /// Says what becomes of files that others have changed too, for whoever goes on.
    pub fn set_conflict(&self, conflict: Conflict) -> Result<()> {
        self.set("conflict ", conflict.name())
    }

    fn set(&self, word: &str, value: &str) -> Result<()> {
        let text = trusted::text_of(&self.file, &self.path)?;
        if text.lines().any(|line| line.strip_prefix(word) == Some(value)) {
            return Ok(());
        }
        let mut lines: Vec<String> = text.lines().filter(|line| !line.starts_with(word)).map(str::to_owned).collect();
        lines.push(format!("{word}{value}\n"));
        let (text, failed) = (lines.join("\n"), failed(&self.path));
        rustix::io::pwrite(&self.file, text.as_bytes(), 0).map_err(&failed)?;
        rustix::fs::ftruncate(&self.file, text.len() as u64).map_err(&failed)?;
        rustix::fs::fsync(&self.file).map_err(failed)
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
    pub fn claim(path: &Path, image: &Path, number: u64) -> Result<Claim> {
        let (path, directory) = (path.to_path_buf(), path.parent().unwrap_or(Path::new("/")));
        let text = format!(
            "A bypath cache holds changes of this directory: bypath cache status {0}\nimage {0}\nnumber {number:x}\n",
            image.display()
        );
        let failed = failed(&path);
        loop {
            let times = Times::of(directory);
            let Some(file) = open_or_make(&path)? else { continue };
            let is_locked = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(rustix::io::Errno::WOULDBLOCK) => false,
                Err(error) => return Err(failed(error)),
            };
            let said = trusted::text_of(&file, &path)?;
            let is_its = said.lines().any(|line| line == format!("number {number:x}"));
            if !said.is_empty() && !is_its {
                let other = said.lines().find_map(|line| line.strip_prefix("image ")).unwrap_or("?");
                return Ok(Claim::Another(other.to_owned()));
            }
            if !is_locked {
                return Ok(Claim::Served);
            }
            // Whoever had it may have removed it between our opening and our lock.
            let (mine, there) = (rustix::fs::fstat(&file).map_err(&failed)?, rustix::fs::lstat(&path));
            if there.map(|there| (there.st_dev, there.st_ino)) != Ok((mine.st_dev, mine.st_ino)) {
                continue;
            }
            if said.is_empty() {
                rustix::io::pwrite(&file, text.as_bytes(), 0).map_err(&failed)?;
                rustix::fs::fsync(&file).map_err(&failed)?;
                let dir = rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(&failed)?;
                times.restore(directory);
                rustix::fs::fsync(&dir).map_err(&failed)?;
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

/// The marker at a path, or a new one. `None`: another process made or removed one meanwhile.
fn open_or_make(path: &Path) -> Result<Option<OwnedFd>> {
    if let Some(file) = trusted::open(path, OFlags::RDWR)? {
        return Ok(Some(file));
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH) {
        Err(rustix::io::Errno::EXIST) => Ok(None),
        made => made.map(Some).map_err(failed(path)),
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

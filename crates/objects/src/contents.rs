//! A file's bytes: by ranges from the store while they are only read, in the spool once they are written.
//!
//! The spool is an unlinked file: nothing of it stays when the daemon ends, and a full disk is `ENOSPC` at the write.

use crate::nodes::{Node, lock};
use crate::store::{Expected, Meta, Store};
use crate::stored::Stored;
use crate::windows::Windows;
use pm::Errno;
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file that is about to be changed is fetched in pieces of so many bytes.
const PIECE: u64 = 8 << 20;

/// Where files are written.
pub struct Spool {
    directory: PathBuf,
}

impl Spool {
    /// In `directory`, where a first file is tried.
    pub fn at(directory: &Path) -> Result<Spool, String> {
        let spool = Spool { directory: directory.to_path_buf() };
        let tried = spool.file();
        tried.map_err(|errno| {
            format!("{}: {errno}; spool=DIR names a directory for files that are written", directory.display())
        })?;
        Ok(spool)
    }

    /// An empty file without a name.
    fn file(&self) -> Result<File, Errno> {
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, &self.directory, flags, mode) {
            Ok(file) => Ok(file.into()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => self.file_with_name(),
            Err(errno) => Err(Errno(errno.raw_os_error())),
        }
    }

    /// The same in file systems that make none without a name: in a private directory, gone at once.
    fn file_with_name(&self) -> Result<File, Errno> {
        for count in 0..1000u32 {
            let directory = self.directory.join(format!(".bypath-spool-{}-{count}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(errno)?,
            }
            let path = directory.join("file");
            let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(errno);
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir(&directory);
            return file;
        }
        Err(Errno::EEXIST)
    }
}

/// What a local file's failure is called.
pub fn errno(error: io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(Errno::EIO.0))
}

/// The present time, nanoseconds since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// The bytes of a file.
pub struct Contents {
    /// How many handles there are.
    pub opens: u32,
    /// The spool, once something was written.
    pub file: Option<File>,
    /// Bytes in the spool.
    pub len: u64,
    /// The spool holds what the store does not.
    pub is_dirty: bool,
    /// What the store must still hold when that is uploaded.
    pub expected: Expected,
    /// What of the spool the store has.
    pub stored: Option<Stored>,
    /// It waits to be uploaded.
    pub is_put_off: bool,
    /// What an open said last, whose pages the session may have.
    pub opened: Option<Meta>,
    windows: Windows,
}

impl Contents {
    /// Nothing is here, and nothing open.
    pub fn new(expected: Expected) -> Contents {
        Contents {
            opens: 0,
            file: None,
            len: 0,
            is_dirty: false,
            expected,
            stored: None,
            is_put_off: false,
            opened: None,
            windows: Windows::default(),
        }
    }

    /// A new, empty file.
    pub fn create(&mut self, spool: &Spool, expected: Expected) -> Result<(), Errno> {
        self.file = Some(spool.file()?);
        (self.len, self.is_dirty, self.expected, self.stored) = (0, true, expected, None);
        Ok(())
    }

    /// What is in the spool is the object at `path`.
    pub fn is_stored(&mut self, path: &str, meta: &Meta) {
        self.stored = Stored::as_it_is(path, meta, self.len);
        (self.is_dirty, self.expected) = (false, Expected::This(meta.clone()));
    }

    /// Whether only this session knows of the file yet.
    pub fn is_only_here(&self) -> bool {
        self.is_dirty && self.expected == Expected::Nothing
    }

    /// Another version is in the store: what was read ahead is not of it.
    pub fn forget_windows(&mut self) {
        self.windows.clear();
    }

    /// Reads; how much there was.
    pub fn read(&mut self, store: &'static Store, node: &Node, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let Some(file) = &self.file else {
            let (path, meta) = known(node)?;
            return self.windows.read(store, &path, &meta, offset, out);
        };
        let len = (out.len() as u64).min(self.len.saturating_sub(offset)) as usize;
        file.read_exact_at(&mut out[..len], offset).map_err(errno)?;
        Ok(len)
    }

    /// Writes all of `bytes`.
    pub fn write(&mut self, store: &'static Store, spool: &Spool, node: &Node, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.load(store, spool, node, u64::MAX)?;
        let Some(file) = &self.file else { return Err(Errno::EIO) };
        if let Some(stored) = &mut self.stored {
            stored.rewritten(offset, bytes.len() as u64);
        }
        file.write_all_at(bytes, offset).map_err(errno)?;
        self.len = self.len.max(offset + bytes.len() as u64);
        self.changed(node);
        Ok(())
    }

    /// Sets the length.
    pub fn truncate(&mut self, store: &'static Store, spool: &Spool, node: &Node, len: u64) -> Result<(), Errno> {
        self.load(store, spool, node, len)?;
        let Some(file) = &self.file else { return Err(Errno::EIO) };
        if let Some(stored) = &mut self.stored {
            stored.cut(len);
        }
        file.set_len(len).map_err(errno)?;
        self.len = len;
        self.changed(node);
        Ok(())
    }

    /// Has room for a range, and the length that it ends at.
    pub fn allocate(&mut self, store: &'static Store, spool: &Spool, node: &Node, range: (u64, u64)) -> Result<(), Errno> {
        self.load(store, spool, node, u64::MAX)?;
        let Some(file) = &self.file else { return Err(Errno::EIO) };
        let made = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), range.0, range.1);
        made.map_err(|errno| Errno(errno.raw_os_error()))?;
        self.len = self.len.max(range.0 + range.1);
        self.changed(node);
        Ok(())
    }

    fn changed(&mut self, node: &Node) {
        self.is_dirty = true;
        let mut place = lock(&node.place);
        place.is_local = true;
        (place.meta.size, place.meta.mtime) = (self.len, now());
    }

    /// Brings the file's first `most` bytes into the spool.
    pub fn load(&mut self, store: &'static Store, spool: &Spool, node: &Node, most: u64) -> Result<(), Errno> {
        if self.file.is_some() {
            return Ok(());
        }
        let (path, meta) = known(node)?;
        let (file, len) = (spool.file()?, meta.size.min(most));
        let mut at = 0;
        while at < len {
            let piece = PIECE.min(len - at);
            let bytes = store.runtime().block_on(store.read(&path, &meta, at, piece))?;
            let mut to = at;
            for part in bytes {
                file.write_all_at(&part, to).map_err(errno)?;
                to += part.len() as u64;
            }
            at += piece;
        }
        self.windows.clear();
        (self.file, self.len) = (Some(file), len);
        self.is_stored(&path, &meta);
        Ok(())
    }

    /// What is in the spool is in the store as well, and nobody needs it.
    pub fn unload(&mut self) {
        (self.file, self.is_dirty, self.stored) = (None, false, None);
        self.windows.clear();
    }
}

/// Where a node is and what it is; `ESTALE` once its name is gone, and its object with it.
fn known(node: &Node) -> Result<(String, Meta), Errno> {
    let place = lock(&node.place);
    if place.is_gone { Err(Errno::ESTALE) } else { Ok((place.path.clone(), place.meta.clone())) }
}

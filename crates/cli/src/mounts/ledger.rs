//! Files in memory that the users of a mount share, for as long as the session lives.

use super::leavings::{self, PREFIX};
use crate::attach::segment_directory;
use crate::failure::{Failure, Result};
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use vfs::ledger::Ledger;

/// Most memory of a page cache, bytes, where no mount option says otherwise.
const PAGES_DEFAULT: u64 = 64 << 20;

/// A shared file; removed when dropped.
pub struct SharedFile {
    path: PathBuf,
}

impl SharedFile {
    /// Makes one of `bytes` bytes; `what` becomes part of its name.
    pub fn make(what: &str, bytes: u64) -> Result<SharedFile> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let directory = segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
        let shown = directory.display().to_string();
        if shown.contains(':') {
            return Err(Failure::new(format!("BYPATH_SEGMENT_DIR={shown}: may not hold a colon")));
        }
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| leavings::remove_from(&directory, leavings::AGE));
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("{PREFIX}{what}-{}-{count}", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    file.set_len(bytes).map_err(|error| Failure::io(path.display(), &error))?;
                    return Ok(SharedFile { path });
                }
                // Of a session that was killed, whose number is ours now; or of one that lives where that number is
                // another process's: what nobody uses is swept (`leavings`).
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(path.display(), &error)),
            }
        }
    }

    /// A new ledger.
    pub fn ledger() -> Result<(SharedFile, Ledger)> {
        SharedFile::ledger_of(Ledger::bytes())
    }

    /// A new ledger with a page cache of at most `pages` bytes, or as much as is
    /// seemly where the file lies.
    pub fn ledger_with_pages(pages: Option<u64>) -> Result<(SharedFile, Ledger)> {
        if pages == Some(0) {
            return SharedFile::ledger();
        }
        let (file, ledger) = SharedFile::ledger_of(Ledger::bytes_with_pages())?;
        let free = rustix::fs::statvfs(&file.path).map_or(0, |figures| figures.f_bavail * figures.f_frsize);
        ledger.limit_pages(pages.unwrap_or(PAGES_DEFAULT.min(free / 8)));
        Ok((file, ledger))
    }

    fn ledger_of(bytes: u64) -> Result<(SharedFile, Ledger)> {
        let file = SharedFile::make("ledger", bytes)?;
        let text = [file.bytes(), b"\0"].concat();
        let ledger = Ledger::open(&text).map_err(|errno| Failure::errno(file.path.display(), errno))?;
        Ok((file, ledger))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path, as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a file that has a name of ours already, and may be another session's, is left alone. Method: such files
    /// under the next names; what is made lies beside them.
    #[test]
    fn beside_what_is_there() {
        let directory = segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
        let name = |count: u32| directory.join(format!("{PREFIX}taken-{}-{count}", std::process::id()));
        for count in 0..50 {
            fs::write(name(count), "theirs").unwrap();
        }
        let made = SharedFile::make("taken", 4096).unwrap();
        assert_eq!(fs::metadata(&made.path).unwrap().len(), 4096);
        for count in 0..50 {
            assert_eq!(fs::read(name(count)).unwrap(), b"theirs");
            fs::remove_file(name(count)).unwrap();
        }
    }
}

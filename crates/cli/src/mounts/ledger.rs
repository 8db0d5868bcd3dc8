//! The file in memory that the users of a mount share, for as long as the session lives.

use crate::attach::segment_directory;
use crate::failure::{Failure, Result};
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use vfs::ledger::Ledger;

/// A ledger's file; removed when dropped.
pub struct LedgerFile {
    path: PathBuf,
}

impl LedgerFile {
    /// Makes one with room for a channel of `channel` bytes.
    pub fn make(channel: u64) -> Result<LedgerFile> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let directory = segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
        let shown = directory.display().to_string();
        if shown.contains(':') {
            return Err(Failure::new(format!("BYPATH_SEGMENT_DIR={shown}: may not hold a colon")));
        }
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!("bypath-mount-{}-{count}", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    file.set_len(Ledger::bytes(channel)).map_err(|error| Failure::io(path.display(), &error))?;
                    return Ok(LedgerFile { path });
                }
                // Left behind by a session that was killed, whose number is ours now.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    let _ = fs::remove_file(&path);
                }
                Err(error) => return Err(Failure::io(path.display(), &error)),
            }
        }
    }

    /// Its path.
    pub fn bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    /// Maps it.
    pub fn open(&self, channel: u64) -> Result<Ledger> {
        let text = [self.bytes(), b"\0"].concat();
        Ledger::open(&text, channel).map_err(|errno| Failure::errno(self.path.display(), errno))
    }
}

impl Drop for LedgerFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

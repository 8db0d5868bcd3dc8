//! A cache image that a session makes for itself, and that goes with it.

use super::spec::CacheImage;
use crate::cmd::cache::figures;
use crate::failure::{Failure, Result};
use crate::size;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// It. What it holds and the store has not got keeps it.
pub struct OwnCache {
    path: PathBuf,
    size: u64,
}

impl OwnCache {
    /// A place for one in the directory for temporary files, which is said: whoever ends the session by force finds there
    /// what is not stored.
    pub fn new(size: u64, point: &str) -> Result<OwnCache> {
        let directory = std::env::temp_dir();
        for count in 0..1000u32 {
            // Nobody else puts anything in its place there.
            let own = directory.join(format!("bypath-cache-{}-{count}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&own) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|error| Failure::io(own.display(), &error))?,
            }
            let path = own.join("cache.img");
            eprintln!("bypath: {point}: cache {}, {} at most", path.display(), size::show(size));
            return Ok(OwnCache { path, size });
        }
        Err(Failure::new(format!("{}: no name is free for a cache", directory.display())))
    }

    /// As one that was named.
    pub fn image(&self) -> CacheImage {
        CacheImage { path: self.path.clone(), size: self.size }
    }
}

impl Drop for OwnCache {
    fn drop(&mut self) {
        // Who wrote back has said so, and how it is brought to its end.
        let is_made = self.path.exists();
        if !is_made || figures(&self.path).is_some_and(|left| left.dirty_names + left.dirty_files == 0) {
            let _ = std::fs::remove_file(&self.path);
            self.path.pop();
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

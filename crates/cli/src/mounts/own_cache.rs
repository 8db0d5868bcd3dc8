//! A cache image that a session makes for itself, and that goes with it, as soon as nobody uses it and all it holds is below.

use super::spec::CacheImage;
use crate::cmd::cache::is_over;
use crate::failure::{Failure, Result};
use crate::size;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its directory's name, before the number of its session and a count.
const PREFIX: &str = "bypath-cache-";
const NAME: &str = "cache.img";

/// It.
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
            let own = directory.join(format!("{PREFIX}{}-{count}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&own) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(|error| Failure::io(own.display(), &error))?,
            }
            let path = own.join(NAME);
            eprintln!("bypath: {point}: cache {}, {} at most", path.display(), size::show(size));
            return Ok(OwnCache { path, size });
        }
        Err(Failure::new(format!("{}: cannot create a unique name for a cache", directory.display())))
    }

    /// Who writes back for programs that go on removes it in the end.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// As one that was named.
    pub fn image(&self) -> CacheImage {
        CacheImage { path: self.path.clone(), size: self.size }
    }
}

impl Drop for OwnCache {
    fn drop(&mut self) {
        // What is not below yet has been said by whoever wrote back.
        if !remove_if_over(&self.path) && self.path.exists() {
            let path = self.path.display();
            eprintln!("bypath: {path} stays, until nobody uses it and `bypath cache drain {path}` has written what it holds");
        }
    }
}

/// The session that made the image, if one has made it for itself.
pub fn maker(image: &Path) -> Option<u32> {
    let own = image.parent().filter(|own| image.ends_with(NAME) && own.parent() == Some(&std::env::temp_dir()))?;
    let (pid, count) = own.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    count.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// The image in a directory that is a session's own cache.
pub fn image_in(own: &Path) -> Option<PathBuf> {
    let image = own.join(NAME);
    maker(&image).map(|_| image)
}

/// Removes it, if a session has made it for itself, nobody uses it, and nothing is missing below.
pub fn remove_if_over(image: &Path) -> bool {
    let Some(own) = image.parent().filter(|_| maker(image).is_some()) else { return false };
    if image.exists() && !is_over(image) {
        return false;
    }
    let _ = std::fs::remove_file(image);
    std::fs::remove_dir(own).is_ok()
}

/// The same, for who has waited for all other users: the server of a kernel mount does so too, and may end a moment later.
pub fn remove_when_over(image: &Path) {
    for _ in 0..50 {
        if maker(image).is_none() || remove_if_over(image) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a session has made for itself is known by its name, and nothing else is taken for that.
    #[test]
    fn names() {
        let image = std::env::temp_dir().join("bypath-cache-12-0");
        assert_eq!(maker(&image_in(&image).unwrap()), Some(12));
        for other in ["bypath-cache-12", "bypath-cache-x-0", "bypath-cache-12-", "bypath-cache-1-0/bypath-cache-1-0", "cache-1-0"]
        {
            assert_eq!(image_in(&std::env::temp_dir().join(other)), None, "{other}");
        }
        assert_eq!(image_in(Path::new("/bypath-cache-12-0")), None);
    }
}

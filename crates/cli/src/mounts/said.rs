//! What the programs of a session know of it beside its mounts: where its root directory is, and what one of them has
//! said already, so that a thousand do not say it again.

use super::copies;
use super::leavings::PREFIX;
use crate::attach::segment_directory;
use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A directory in which every program of the session, whoever's it is, may make a name for what it has said. Removed
/// when dropped.
#[derive(Debug)]
pub struct Said(Option<PathBuf>);

impl Said {
    /// Makes one; without, every program says everything.
    pub fn make() -> Said {
        let directory = segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
        for count in 0..100 {
            let path = directory.join(format!("{PREFIX}said-{}-{count}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    // What is found out about programs, by this user's; other users' may read it.
                    let _ = DirBuilder::new().mode(0o755).create(path.join("scan"));
                    let _ = fs::set_permissions(&path, Permissions::from_mode(0o1777));
                    copies::keep(&path);
                    return Said(Some(path));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(_) => break,
            }
        }
        Said(None)
    }

    /// The value of [`posix::environment::SESSION`].
    pub fn told(&self) -> Vec<u8> {
        let root = identity(Path::new("/")).unwrap_or_default();
        let place = self.0.as_ref().map_or(&b""[..], |path| path.as_os_str().as_bytes());
        [root.as_bytes(), b";", place].concat()
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// A file's device and inode, as programs are told of them.
pub fn identity(path: &Path) -> Option<String> {
    fs::metadata(path).ok().map(|meta| format!("{}.{}", meta.dev(), meta.ino()))
}

/// Whether both paths lead to the same file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    identity(one).is_some_and(|file| identity(other) == Some(file))
}

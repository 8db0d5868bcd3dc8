//! Files in memory that the users of a mount share, for as long as the session lives.

use super::leavings::{self, PREFIX};
use super::spec::Mount;
use crate::attach::segment_directory;
use crate::failure::{Failure, Result};
use pm::Errno;
use session::SessionCache;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most memory of a page cache, bytes, where no mount option says otherwise.
const PAGES_DEFAULT: u64 = 64 << 20;

/// Who may use a shared file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Programs of this user.
    Ours,
    /// Other users' of the session too: those to whom its name was told, which nobody else can find out.
    Sessions,
}

impl Whose {
    /// Of a mount's files.
    pub fn of(mount: &Mount) -> Whose {
        if mount.options.allow_other { Whose::Sessions } else { Whose::Ours }
    }
}

/// A shared file; removed when dropped.
pub struct SharedFile {
    path: PathBuf,
    /// The directory that hides its name.
    directory: Option<PathBuf>,
}

impl SharedFile {
    /// Makes one of `bytes` bytes; `what` becomes part of its name.
    pub fn make(what: &str, bytes: u64, whose: Whose) -> Result<SharedFile> {
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
            let made = match whose {
                Whose::Ours => create(&path, 0o600).map(|file| (file, SharedFile { path: path.clone(), directory: None })),
                Whose::Sessions => hidden_in(&path),
            };
            match made {
                Ok((file, shared)) => {
                    file.set_len(bytes).map_err(|error| Failure::io(path.display(), &error))?;
                    return Ok(shared);
                }
                // Of a session that was killed, whose number is ours now; or of one that lives where that number is
                // another process's: what nobody uses is swept (`leavings`).
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(path.display(), &error)),
            }
        }
    }

    /// The same with all of its memory, so that nobody who touches it is killed where the directory is full.
    pub fn make_whole(what: &str, bytes: u64, whose: Whose) -> Result<SharedFile> {
        let made = SharedFile::make(what, bytes, whose)?;
        let file = pm::file::File::open(&[made.bytes(), b"\0"].concat(), pm::sys::abi::O_RDWR, 0);
        match file.and_then(|file| file.allocate(0, bytes)) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(made),
            Err(errno) => Err(made.refused(errno)),
        }
    }

    /// A new cache.
    pub fn session(whose: Whose) -> Result<(SharedFile, SessionCache)> {
        SharedFile::session_of(SessionCache::bytes(), whose)
    }

    /// A new cache with a page cache of at most `pages` bytes, or as much as is
    /// seemly where the file lies.
    pub fn session_with_pages(pages: Option<u64>, whose: Whose) -> Result<(SharedFile, SessionCache)> {
        if pages == Some(0) {
            return SharedFile::session(whose);
        }
        let (file, cache) = SharedFile::session_of(SessionCache::bytes_with_pages(), whose)?;
        let free = rustix::fs::statvfs(&file.path).map_or(0, |figures| figures.f_bavail * figures.f_frsize);
        cache.limit_pages(pages.unwrap_or(PAGES_DEFAULT.min(free / 8)));
        Ok((file, cache))
    }

    fn session_of(bytes: u64, whose: Whose) -> Result<(SharedFile, SessionCache)> {
        let file = SharedFile::make("ledger", bytes, whose)?;
        let text = [file.bytes(), b"\0"].concat();
        SessionCache::set_aside(&text).map_err(|errno| file.refused(errno))?;
        let cache = SessionCache::open(&text).map_err(|errno| Failure::errno(file.path.display(), errno))?;
        Ok((file, cache))
    }

    /// There is no memory for it.
    fn refused(&self, errno: Errno) -> Failure {
        match errno {
            Errno::ENOSPC => Failure::new(format!(
                "{}: its directory is full; make room there, or choose another BYPATH_SEGMENT_DIR",
                self.path.display()
            )),
            errno => Failure::errno(self.path.display(), errno),
        }
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
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn create(path: &Path, mode: u32) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// A file for everybody, in a directory that nobody else can list, under a name that nobody can guess.
fn hidden_in(directory: &Path) -> std::io::Result<(File, SharedFile)> {
    DirBuilder::new().mode(0o700).create(directory)?;
    let mut name = [0; 16];
    pm::file::random(&mut name).map_err(|errno| std::io::Error::from_raw_os_error(errno.0))?;
    let path = directory.join(name.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let shared = SharedFile { path: path.clone(), directory: Some(directory.to_path_buf()) };
    let file = create(&path, 0o600)?;
    // Whatever the mask says.
    file.set_permissions(Permissions::from_mode(0o666))?;
    fs::set_permissions(directory, Permissions::from_mode(0o711))?;
    Ok((file, shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who may use a file that is for other users too must have been told its name; and it goes as any.
    #[test]
    fn for_others() {
        let made = SharedFile::make("others", 4096, Whose::Sessions).unwrap();
        let (path, directory) = (made.path.clone(), made.path.parent().unwrap().to_path_buf());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&directory)), (0o666, 0o711));
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let other = SharedFile::make("others", 4096, Whose::Sessions).unwrap();
        assert!(name(&path).len() == 32 && name(&path) != name(&other.path));
        drop(made);
        assert!(!directory.exists());
    }

    /// Goal: a file that has a name of ours already, and may be another session's, is left alone. Method: such files
    /// under the next names; what is made lies beside them.
    #[test]
    fn beside_what_is_there() {
        let directory = segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
        let name = |count: u32| directory.join(format!("{PREFIX}taken-{}-{count}", std::process::id()));
        for count in 0..50 {
            fs::write(name(count), "theirs").unwrap();
        }
        let made = SharedFile::make("taken", 4096, Whose::Ours).unwrap();
        assert_eq!(fs::metadata(&made.path).unwrap().len(), 4096);
        for count in 0..50 {
            assert_eq!(fs::read(name(count)).unwrap(), b"theirs");
            fs::remove_file(name(count)).unwrap();
        }
    }
}

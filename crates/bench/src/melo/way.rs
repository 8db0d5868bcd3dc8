//! A place for files, and how it is called: a directory by libc, with syncs and without, or an image by the C API.

use super::load::Files;
use capi::Namespace;
use libc::{c_int, mode_t};
use std::ffi::{CStr, CString};
use std::io::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How files are called.
enum Calls {
    /// By libc, below a directory; whether `fsync` waits.
    Libc { syncs: bool },
    /// By the C API.
    Api(*mut Namespace),
}

/// A place.
pub struct Way {
    /// Its name in the table.
    pub name: String,
    calls: Calls,
    /// Where the files are.
    root: PathBuf,
}

// SAFETY: calls in a namespace may be made by any thread.
unsafe impl Sync for Way {}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// What a call has returned, which must not be an error: a benchmark of failures is worth nothing.
fn checked(what: &str, path: &Path, result: isize) -> isize {
    assert!(result >= 0, "{what} {}: {}", path.display(), Error::last_os_error());
    result
}

impl Way {
    /// A directory of the kernel's.
    pub fn directory(name: &str, root: &Path, syncs: bool) -> Way {
        Way { name: name.into(), calls: Calls::Libc { syncs }, root: root.into() }
    }

    /// An image, mounted with these options.
    pub fn image(name: &str, image: &Path, options: &CStr) -> Result<Way, String> {
        let ns = capi::bp_open_namespace();
        // SAFETY: texts.
        let mounted = unsafe { capi::bp_mount(ns, text(image).as_ptr(), c"/".as_ptr(), options.as_ptr()) };
        if mounted != 0 {
            return Err(format!("{}: {}", image.display(), Error::last_os_error()));
        }
        Ok(Way { name: name.into(), calls: Calls::Api(ns), root: "/".into() })
    }

    /// Opens one of the files.
    pub fn open(&self, path: &Path, flags: c_int) -> c_int {
        let place = text(&self.root.join(path));
        let mode: mode_t = 0o644;
        let fd = match self.calls {
            // SAFETY: a text.
            Calls::Libc { .. } => unsafe { libc::open(place.as_ptr(), flags, mode) },
            // SAFETY: a namespace and a text.
            Calls::Api(ns) => unsafe { capi::bp_open(ns, place.as_ptr(), flags, mode) },
        };
        checked("open", path, fd as isize) as c_int
    }

    /// Closes it.
    pub fn close(&self, fd: c_int) {
        match self.calls {
            // SAFETY: a descriptor of the caller's.
            Calls::Libc { .. } => unsafe { libc::close(fd) },
            // SAFETY: the same.
            Calls::Api(ns) => unsafe { capi::bp_close(ns, fd) },
        };
    }

    /// Reads from its position.
    pub fn read(&self, fd: c_int, into: &mut [u8]) -> usize {
        let done = match self.calls {
            // SAFETY: a buffer and its length.
            Calls::Libc { .. } => unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) },
            // SAFETY: the same.
            Calls::Api(ns) => unsafe { capi::bp_read(ns, fd, into.as_mut_ptr().cast(), into.len()) },
        };
        checked("read", Path::new(""), done) as usize
    }

    /// Writes all of it at its position.
    pub fn write(&self, fd: c_int, from: &[u8]) {
        let done = match self.calls {
            // SAFETY: a buffer and its length.
            Calls::Libc { .. } => unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) },
            // SAFETY: the same.
            Calls::Api(ns) => unsafe { capi::bp_write(ns, fd, from.as_ptr().cast(), from.len()) },
        };
        assert_eq!(checked("write", Path::new(""), done), from.len() as isize, "a short write");
    }

    /// The same, at an offset.
    pub fn pwrite(&self, fd: c_int, from: &[u8], at: u64) {
        let done = match self.calls {
            // SAFETY: a buffer and its length.
            Calls::Libc { .. } => unsafe { libc::pwrite(fd, from.as_ptr().cast(), from.len(), at as i64) },
            // SAFETY: the same.
            Calls::Api(ns) => unsafe { capi::bp_pwrite(ns, fd, from.as_ptr().cast(), from.len(), at as i64) },
        };
        assert_eq!(checked("pwrite", Path::new(""), done), from.len() as isize, "a short write");
    }

    /// Waits for the medium, if this place does so.
    pub fn fsync(&self, fd: c_int) {
        match self.calls {
            Calls::Libc { syncs: false } => {}
            // SAFETY: a descriptor of the caller's.
            Calls::Libc { syncs: true } => drop(checked("fsync", Path::new(""), unsafe { libc::fsync(fd) } as isize)),
            // SAFETY: the same.
            Calls::Api(ns) => drop(checked("fsync", Path::new(""), unsafe { capi::bp_fsync(ns, fd) } as isize)),
        }
    }

    /// Removes a file.
    pub fn unlink(&self, path: &Path) {
        let place = text(&self.root.join(path));
        let done = match self.calls {
            // SAFETY: a text.
            Calls::Libc { .. } => unsafe { libc::unlink(place.as_ptr()) },
            // SAFETY: a namespace and a text.
            Calls::Api(ns) => unsafe { capi::bp_unlink(ns, place.as_ptr()) },
        };
        checked("unlink", path, done as isize);
    }

    /// Asks for a file's size.
    pub fn stat(&self, path: &Path) -> i64 {
        let place = text(&self.root.join(path));
        let mut out = std::mem::MaybeUninit::<libc::stat>::zeroed();
        let done = match self.calls {
            // SAFETY: a text, and room for the result.
            Calls::Libc { .. } => unsafe { libc::stat(place.as_ptr(), out.as_mut_ptr()) },
            // SAFETY: the same.
            Calls::Api(ns) => unsafe { capi::bp_stat(ns, place.as_ptr(), out.as_mut_ptr()) },
        };
        checked("stat", path, done as isize);
        // SAFETY: filled in, and zeroed before.
        unsafe { out.assume_init() }.st_size
    }

    fn mkdir(&self, path: &Path) {
        let place = text(&self.root.join(path));
        let done = match self.calls {
            // SAFETY: a text.
            Calls::Libc { .. } => unsafe { libc::mkdir(place.as_ptr(), 0o755) },
            // SAFETY: a namespace and a text.
            Calls::Api(ns) => unsafe { capi::bp_mkdir(ns, place.as_ptr(), 0o755) },
        };
        checked("mkdir", path, done as isize);
    }

    fn rmdir(&self, path: &Path) {
        let place = text(&self.root.join(path));
        let done = match self.calls {
            // SAFETY: a text.
            Calls::Libc { .. } => unsafe { libc::rmdir(place.as_ptr()) },
            // SAFETY: a namespace and a text.
            Calls::Api(ns) => unsafe { capi::bp_rmdir(ns, place.as_ptr()) },
        };
        checked("rmdir", path, done as isize);
    }

    /// Makes the directories, and the files that are there at first.
    pub fn fill(&self, files: &Files, sizes: &mut dyn FnMut() -> u64) {
        files.directories.iter().for_each(|directory| self.mkdir(directory));
        let bytes = vec![0x5a; 1 << 20];
        for file in files.there() {
            let fd = self.open(&files.paths[file], libc::O_CREAT | libc::O_WRONLY);
            let mut left = sizes() as usize;
            while left > 0 {
                let part = left.min(bytes.len());
                self.write(fd, &bytes[..part]);
                left -= part;
            }
            self.close(fd);
        }
    }

    /// Removes all of them.
    pub fn empty(&self, files: &Files) {
        files.there().for_each(|file| self.unlink(&files.paths[file]));
        files.directories.iter().rev().for_each(|directory| self.rmdir(directory));
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Calls::Api(ns) = self.calls {
            // SAFETY: from `bp_open_namespace`, and no call is going on.
            unsafe { capi::bp_close_namespace(ns) };
        }
    }
}

//! Names of the kernel's, by their absolute path: made, moved, removed and touched without anything being open.
//!
//! For files of ours that stand for something else, where each call is made for what the kernel tells others of it.

use crate::file::File;
use crate::{Errno, call, sys::abi};
use core::ffi::CStr;

const HERE: i32 = abi::AT_FDCWD;
const NOW: i64 = 0x3fff_ffff;
const OMIT: i64 = 0x3fff_fffe;

/// Makes a directory that is its owner's alone.
pub fn make_directory(path: &CStr) -> Result<(), Errno> {
    // SAFETY: a NUL-terminated path.
    unsafe { call!(abi::__NR_mkdirat, HERE, path.as_ptr(), 0o700) }.map(drop)
}

/// Makes an empty file that is its owner's alone, without opening it.
pub fn make_file(path: &CStr) -> Result<(), Errno> {
    // SAFETY: a NUL-terminated path.
    unsafe { call!(abi::__NR_mknodat, HERE, path.as_ptr(), abi::S_IFREG | 0o600, 0) }.map(drop)
}

/// Removes a name.
pub fn remove(path: &CStr, directory: bool) -> Result<(), Errno> {
    let flags = if directory { abi::AT_REMOVEDIR } else { 0 };
    // SAFETY: a NUL-terminated path.
    unsafe { call!(abi::__NR_unlinkat, HERE, path.as_ptr(), flags) }.map(drop)
}

/// Renames; `exchange`: both names change places.
pub fn rename(from: &CStr, to: &CStr, exchange: bool) -> Result<(), Errno> {
    let flags = if exchange { abi::RENAME_EXCHANGE } else { 0 };
    // SAFETY: NUL-terminated paths.
    unsafe { call!(abi::__NR_renameat2, HERE, from.as_ptr(), HERE, to.as_ptr(), flags) }.map(drop)
}

/// Sets the time of the last access, of the last modification, or both, to now; of a symlink, its own.
pub fn touch(path: &CStr, access: bool, modification: bool) -> Result<(), Errno> {
    let time = |set: bool| [0, if set { NOW } else { OMIT }];
    let times = [time(access), time(modification)];
    // SAFETY: a NUL-terminated path and two times.
    unsafe { call!(abi::__NR_utimensat, HERE, path.as_ptr(), times.as_ptr(), abi::AT_SYMLINK_NOFOLLOW) }.map(drop)
}

/// Opens a file or directory and closes it again.
pub fn visit(path: &CStr, writing: bool) -> Result<(), Errno> {
    let access = if writing { abi::O_WRONLY } else { abi::O_RDONLY };
    File::open(path.to_bytes_with_nul(), access | abi::O_NOFOLLOW | abi::O_NONBLOCK, 0).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    /// Goal: each does what its name says, and what is there stays as it is where it can't.
    #[test]
    fn names() {
        let place = std::env::temp_dir().join(std::format!("bypath-names-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        let path = |name: &str| CString::new(place.join(name).as_os_str().as_bytes()).unwrap();
        make_directory(&path("")).unwrap();
        make_file(&path("a")).unwrap();
        assert_eq!(make_file(&path("a")), Err(Errno::EEXIST));
        make_directory(&path("d")).unwrap();
        rename(&path("a"), &path("d"), true).unwrap();
        assert!(place.join("a").is_dir() && place.join("d").is_file());
        rename(&path("d"), &path("e"), false).unwrap();
        let before = std::fs::metadata(place.join("e")).unwrap();
        crate::file::nap(20_000_000);
        touch(&path("e"), false, true).unwrap();
        let after = std::fs::metadata(place.join("e")).unwrap();
        assert!(after.modified().unwrap() > before.modified().unwrap());
        assert_eq!(after.accessed().unwrap(), before.accessed().unwrap());
        visit(&path("e"), true).unwrap();
        visit(&path("a"), false).unwrap();
        assert_eq!(visit(&path("x"), false), Err(Errno::ENOENT));
        assert_eq!(remove(&path("e"), true), Err(Errno::ENOTDIR));
        remove(&path("e"), false).unwrap();
        remove(&path("a"), true).unwrap();
        remove(&path(""), true).unwrap();
    }
}

//! Where the libraries are that programs are started with: beside `bypath`, or where it is installed in `../lib/bypath`.

use crate::failure::{Failure, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What every program of a session has loaded.
const PRELOAD: &str = "libbypath_preload.so";
/// The same for a C library before 2.34; only packages have it.
const PRELOAD_OLD: &str = "libbypath_preload-glibc2.17.so";
/// What a FUSE daemon has loaded.
const DAEMON: &str = "libbypath_daemon.so";
/// The daemon for stores of objects.
const OBJECTS: &str = "bypath-objects";
/// Where they are, seen from the program's directory.
const PLACES: [&str; 2] = [".", "../lib/bypath"];

/// The preload library: `BYPATH_PRELOAD`, or ours for this C library.
pub fn preload() -> Result<PathBuf> {
    let path = named("BYPATH_PRELOAD", &[PRELOAD, PRELOAD_OLD])?;
    let old = path.with_file_name(PRELOAD_OLD);
    let is_ours = path.ends_with(PRELOAD) && std::env::var_os("BYPATH_PRELOAD").is_none_or(|value| value.is_empty());
    Ok(if is_ours && old.is_file() && c_library().is_some_and(|library| is_old(&library)) { old } else { path })
}

/// The library for FUSE daemons: `BYPATH_DAEMON`, or ours.
pub fn daemon() -> Result<PathBuf> {
    named("BYPATH_DAEMON", &[DAEMON])
}

/// The daemon for stores of objects: `BYPATH_OBJECTS`, or ours.
pub fn objects() -> Result<PathBuf> {
    named("BYPATH_OBJECTS", &[OBJECTS])
}

/// The one that a variable names, or the first of `names` that is there.
fn named(variable: &str, names: &[&str]) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from) {
        if !path.is_file() {
            return Err(Failure::new(format!("{}: not there; {variable} must name a file", path.display())));
        }
        return std::path::absolute(&path).map_err(|error| Failure::io(path.display(), &error));
    }
    let own = std::env::current_exe().map_err(|error| Failure::io("/proc/self/exe", &error))?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    let places = || PLACES.iter().flat_map(|place| names.iter().map(move |name| directory.join(place).join(name)));
    let found = places().find(|path| path.is_file()).ok_or_else(|| {
        let (name, prefix) = (names[0], directory.parent().unwrap_or(Path::new("/")).join("lib/bypath"));
        Failure::new(format!(
            "{name} is neither beside {} nor in {}; build it with `make` and put it there with `make install`, or name it in {variable}",
            own.display(),
            prefix.display()
        ))
    })?;
    // Without `.` and `..`, as far as there are directories.
    std::fs::canonicalize(&found).map_err(|error| Failure::io(found.display(), &error))
}

/// The C library that this program, and so its children, run with.
pub fn c_library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().filter_map(|line| line.split_once('/')).map(|(_, path)| PathBuf::from(format!("/{path}"))).find(|path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or("");
        name == "libc.so.6" || is_old(path)
    })
}

/// Whether a C library is one before 2.34: those had their number in the file's name, and threads in another library.
fn is_old(library: &Path) -> bool {
    let name = library.file_name().and_then(OsStr::to_str).unwrap_or("");
    name.strip_prefix("libc-2.").is_some_and(|rest| rest.ends_with(".so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the C library is found, and old ones are told by their names.
    #[test]
    fn c_libraries() {
        assert!(c_library().is_some());
        let old = ["/lib/x86_64-linux-gnu/libc-2.31.so", "/lib64/libc-2.17.so"];
        assert!(old.iter().all(|path| is_old(Path::new(path))));
        let other = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/libc-client.so", "/lib/libc.musl-x86_64.so.1", "/"];
        assert!(!other.iter().any(|path| is_old(Path::new(path))));
    }
}

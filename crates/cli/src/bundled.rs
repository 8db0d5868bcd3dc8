//! A C library of ours, for systems of another one (Alpine): `glibc` beside the preload library, with its loader.
//!
//! This program is static there. Programs of that system are mapped by the preload library, which the loader starts
//! (`docs/internals/mapped-programs.md`); the first that it maps is this one, which executes what was asked for.

use crate::failure::{Failure, Result};
use crate::library;
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory beside the preload library; that one's run path has it too.
const DIRECTORY: &str = "glibc";
/// Whether this program brings its C library along.
const IS_STATIC: bool = cfg!(target_feature = "crt-static");
/// What the preload library takes for `LD_PRELOAD` when it has mapped a program.
pub const LATER: &str = "BYPATH_LD_PRELOAD";

/// Whether programs are started by what comes with us.
pub fn is_needed() -> bool {
    IS_STATIC
}

/// The loader that comes with us; `None`: the system's is the right one.
pub fn loader() -> Option<PathBuf> {
    if !IS_STATIC {
        return None;
    }
    let directory = library::preload().ok()?.with_file_name(DIRECTORY);
    let files = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    files.into_iter().find(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-linux")))
}

/// The C library that comes with us, where it is needed.
pub fn c_library() -> Option<PathBuf> {
    Some(loader()?.with_file_name("libc.so.6"))
}

/// The words that start a program for our C library.
pub fn with_loader(program: PathBuf) -> Vec<OsString> {
    let Some(loader) = loader() else { return vec![program.into()] };
    let libraries = loader.parent().unwrap_or(Path::new("/")).to_path_buf();
    vec![loader.into(), "--library-path".into(), libraries.into(), program.into()]
}

/// This program with the preload library in it.
pub fn own() -> Result<Command> {
    let own = std::env::current_exe().map_err(|error| Failure::io("/proc/self/exe", &error))?;
    if !IS_STATIC {
        return Ok(Command::new(own));
    }
    let library = library::preload()?;
    let loader = loader().ok_or_else(|| {
        let directory = library.with_file_name(DIRECTORY);
        Failure::new(format!("{}: no loader is there; unpack bypath again", directory.display()))
    })?;
    // The library closes it.
    let file =
        rustix::fs::open(&own, OFlags::RDONLY, Mode::empty()).map_err(|errno| Failure::io(own.display(), &errno.into()))?;
    let mut what = OsString::from(format!("{}:", file.into_raw_fd()));
    what.push(&own);
    let mut command = Command::new(loader);
    command.arg(library).arg(what).arg("bypath");
    Ok(command)
}

/// Sees to it that the programs of a command have these libraries.
pub fn preload(command: &mut Command, list: &OsStr) {
    if IS_STATIC {
        command.env_remove("LD_PRELOAD").env(LATER, list);
    } else {
        command.env("LD_PRELOAD", list);
    }
}

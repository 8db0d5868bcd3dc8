//! What a cache has that the directory behind it has not, as files elsewhere. For a directory that does not come back.
//!
//! An image may say anything: a file is made where nothing was, a directory entered only if it is one and no symlink, and
//! levels of directories are bounded.

use crate::trusted::failed as by_kernel;
use crate::{Failure, Result};
use base::{Cx, Error, Kind, Node};
use cache::Cache;
use pm::{Errno, UserSlice};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use vfs::Backend;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// Most levels of directories: a path of that many names is longer than the kernel takes.
const DEPTH_MAX: usize = 2048;

/// What was written, and what could not be.
#[derive(Default)]
pub struct Exported {
    /// Files, symlinks and directories that are newer in the cache.
    pub written: u64,
    /// Those that have parts that are only below.
    pub incomplete: Vec<PathBuf>,
}

/// Writes all that is newer here than below to `target`, by its path.
pub fn export(cache: &Cache, cx: &Cx, target: &Path) -> Result<Exported> {
    let mut done = Exported::default();
    std::fs::create_dir_all(target).map_err(io(target))?;
    directory(cache, cx, cache.tree(), (target, Path::new("")), &mut done)?;
    Ok(done)
}

fn failed(path: &Path, error: base::Error) -> Failure {
    Failure::new(path.as_os_str().as_bytes(), error.errno())
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(path.as_os_str().as_bytes(), pm::Errno(error.raw_os_error().unwrap_or(pm::Errno::EIO.0)))
}

/// A directory at a path, and those above it below `target`, made where they are missing.
fn make_directory(target: &Path, path: &Path) -> Result<PathBuf> {
    let mut at = target.to_path_buf();
    for name in path {
        at.push(name);
        match std::fs::create_dir(&at) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let is_directory = std::fs::symlink_metadata(&at).is_ok_and(|meta| meta.is_dir());
                if !is_directory {
                    return Err(Failure::new(at.as_os_str().as_bytes(), pm::Errno::ENOTDIR));
                }
            }
            made => made.map_err(io(&at))?,
        }
    }
    Ok(at)
}

/// Those in a directory; whether there were any.
fn directory(cache: &Cache, cx: &Cx, dir: Node, (target, path): (&Path, &Path), done: &mut Exported) -> Result<()> {
    if path.components().count() > DEPTH_MAX {
        return Err(Failure::new(path.as_os_str().as_bytes(), pm::Errno::ELOOP));
    }
    let mut names = Vec::new();
    let listed = cache.fs().readdir(cx, dir, 0, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            names.push(entry.name.to_vec());
        }
        true
    });
    listed.map_err(|error| failed(path, error))?;
    for name in names {
        let path = path.join(OsStr::from_bytes(&name));
        let Ok((node, kind)) = cache.fs().lookup_kind(cx, dir, &name) else { continue };
        let known = cache.known_if(node).map_err(|error| failed(&path, error))?;
        if kind == Kind::Directory {
            if known.is_none() {
                done.written += 1;
                make_directory(target, &path)?;
            }
            directory(cache, cx, node, (target, &path), done)?;
        } else if known.is_none_or(|known| known.is_dirty()) {
            one(cache, cx, (node, kind), (target, &path), done)?;
        }
    }
    Ok(())
}

fn one(cache: &Cache, cx: &Cx, (node, kind): (Node, Kind), (target, path): (&Path, &Path), done: &mut Exported) -> Result<()> {
    let at = target.join(path);
    let (io, errno) = (io(&at), by_kernel(&at));
    make_directory(target, path.parent().unwrap_or(Path::new("")))?;
    let attr = cache.fs().attr(cx, node).map_err(|error| failed(path, error))?;
    match kind {
        Kind::Regular => {
            let mut file = std::fs::File::create_new(&at).map_err(&io)?;
            if !contents(cache, cx, node, &mut file).map_err(&io)? {
                done.incomplete.push(path.to_path_buf());
            }
            file.set_permissions(std::fs::Permissions::from_mode(u32::from(attr.mode))).map_err(&io)?;
        }
        Kind::Symlink => {
            let mut text = vec![0; 4096];
            let len = cache.text_here(cx, node, UserSlice::from_mut(&mut text)).map_err(|error| failed(path, error))?;
            std::os::unix::fs::symlink(OsStr::from_bytes(&text[..len]), &at).map_err(&io)?;
        }
        _ => {
            let kind = FileType::from_raw_mode(attr.kind.type_bits());
            rustix::fs::mknodat(CWD, &at, kind, Mode::from_raw_mode(attr.mode.into()), attr.rdev).map_err(&errno)?;
        }
    }
    let time = Timespec { tv_sec: attr.mtime.div_euclid(1_000_000_000), tv_nsec: attr.mtime.rem_euclid(1_000_000_000) };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, &at, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
    done.written += 1;
    Ok(())
}

/// All bytes of a file; false if some are only below, where they can't be had: they are zeros then. Holes stay holes.
fn contents(cache: &Cache, cx: &Cx, node: Node, file: &mut std::fs::File) -> std::io::Result<bool> {
    let io = |error: Error| std::io::Error::from_raw_os_error(error.errno().0);
    let (size, known) = (cache.fs().attr(cx, node).map_err(io)?.size, cache.known_if(node).map_err(io)?);
    // Before it a hole is to be fetched.
    let end = known.map_or(0, |known| known.end);
    let (mut buffer, mut at, mut is_whole) = (vec![0u8; PIECE], 0u64, true);
    loop {
        let mut len = PIECE;
        if at >= end {
            match cache.fs().seek(cx, node, at, true) {
                Ok(data) => at = data,
                Err(Error::Posix(Errno::ENXIO)) => break,
                Err(error) => return Err(io(error)),
            }
            let hole = cache.fs().seek(cx, node, at, false).map_err(io)?;
            len = (hole - at).min(PIECE as u64) as usize;
        }
        let came = match cache.read(cx, node, at, &[UserSlice::from_mut(&mut buffer[..len])]) {
            Ok(came) => came,
            Err(_) => {
                is_whole = false;
                cache.fs().read(cx, node, at, &[UserSlice::from_mut(&mut buffer[..len])]).map_err(io)?
            }
        };
        if came == 0 {
            break;
        }
        file.write_all_at(&buffer[..came], at)?;
        at += came as u64;
    }
    file.set_len(size.max(at))?;
    Ok(is_whole)
}

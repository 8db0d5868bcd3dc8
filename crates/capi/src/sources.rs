//! What is mounted: a text becomes a backend, the namespace's own or one that
//! a session's programs share.
//!
//! | text | by `bp_mount` | in a session's list |
//! |---|---|---|
//! | an image's path | attached | attached |
//! | `host:/dir` | with a session of its own | `host:LEDGER:/dir` |
//! | `plugin:LIB.so,args` | with a session of its own | `plugin:LEDGER:LIB.so,args` |
//! | a daemon | `fuse:COMMAND … @`, in a session of its own | `wire:LEDGER:CHANNEL` |
//! | `mem:` | in this process's memory | – |
//!
//! Each mount maps its session's session for itself and has a place of its own in
//! it, so that namespaces, and the preload library beside them, may share one
//! process.

use crate::host::Directory;
use crate::{daemons, plugins};
use fuse_client::FuseClient;
use posix::environment::{self, MountSpec, unescape};
use session::SessionCache;
use std::ffi::{CStr, CString, OsStr};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use vfs::Backend;
use vfs::cached::Cached;

/// What a text names, or an error number.
pub type Attached = Result<&'static dyn Backend, i32>;

/// The kernel's error number.
pub fn errno(error: &Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// What a caller may ask of each kind of mount. A daemon's options are those of `bypath run`, which checks them.
const IMAGE: &[&str] = &["ro", "rw", "domain=process", "domain=power", "domain=whole", "atomic=undo", "atomic=replay"];
const HOST: &[&str] = &["ro", "rw", "sync=none"];
const PLUGIN: &[&str] = &["ro", "rw"];

/// Refuses a word that is no option of the mount, since a misspelt `ro` would else give one that can be written. The word is
/// named on standard error, for which an error number has no room.
fn check_options(source: &CStr, options: &[u8]) -> Result<(), i32> {
    let text = source.to_bytes();
    let known = match text {
        b"mem:" => &[],
        _ if text.starts_with(b"fuse:") => return Ok(()),
        _ if text.starts_with(b"plugin:") => PLUGIN,
        _ if text.starts_with(b"host:") => HOST,
        _ => IMAGE,
    };
    let is_known = |word: &[u8]| word.is_empty() || known.iter().any(|known| known.as_bytes() == word);
    let Some(word) = options.split(|&byte| byte == b',').find(|word| !is_known(word)) else { return Ok(()) };
    let (source, word) = (source.to_string_lossy(), String::from_utf8_lossy(word));
    let there = if known.is_empty() { "none".to_string() } else { known.join(", ") };
    eprintln!("bypath: {source}: unknown mount option '{word}'; options are: {there}");
    Err(libc::EINVAL)
}

fn is_unsynced(options: &[u8]) -> bool {
    environment::option(options, b"sync") == Some(b"none")
}

/// The last word counts.
pub fn is_read_only(options: &[u8]) -> bool {
    options.split(|&b| b == b',').rfind(|word| [&b"ro"[..], b"rw"].contains(word)) == Some(b"ro")
}

fn keep<B: Backend + 'static>(backend: B) -> Attached {
    Ok(Box::leak(Box::new(backend)))
}

/// Attaches what the caller of `bp_mount` names.
pub fn of_caller(source: &CStr, options: &[u8]) -> Attached {
    check_options(source, options)?;
    let text = source.to_bytes();
    if text == b"mem:" {
        // SAFETY: take no arguments.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        Ok(vfs::mem::Mem::leak(uid, gid, 0o755, 0x6d65))
    } else if let Some(library) = text.strip_prefix(b"plugin:") {
        plugins::attach(library, own_session()?, is_read_only(options))
    } else if let Some(directory) = text.strip_prefix(b"host:") {
        let path = std::fs::canonicalize(OsStr::from_bytes(directory)).map_err(|e| errno(&e))?;
        host(path.as_os_str().as_bytes(), own_session()?, options)
    } else if let Some(command) = text.strip_prefix(b"fuse:") {
        daemons::attach(command, options)
    } else {
        image(source, options)
    }
}

/// Attaches one mount of a session's list; its point as well.
pub fn of_session(spec: &MountSpec) -> Result<(&'static dyn Backend, CString), i32> {
    let (source, point) = (plain(spec.image)?, plain(spec.point)?);
    let text = source.to_bytes();
    if text.starts_with(b"/") {
        return Ok((image(&source, spec.options)?, point));
    }
    let mut parts = text.splitn(3, |&b| b == b':');
    let (Some(kind), Some(session), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { return Err(libc::EINVAL) };
    let session = SessionCache::open(&[session, b"\0"].concat()).map_err(|errno| errno.0)?;
    let backend = match kind {
        b"host" => host(rest, session, spec.options)?,
        b"plugin" => plugins::attach(rest, session, is_read_only(spec.options))?,
        b"wire" => {
            let wire = FuseClient::open(rest, session.device(), is_read_only(spec.options)).map_err(|errno| errno.0)?;
            keep(Cached::new(wire, session))?
        }
        _ => return Err(libc::EINVAL),
    };
    Ok((backend, point))
}

fn host(path: &[u8], session: SessionCache, options: &[u8]) -> Attached {
    let directory = Directory::new(path, is_read_only(options), is_unsynced(options)).map_err(|errno| errno.0)?;
    keep(Cached::new(directory, session))
}

#[cfg(feature = "native")]
fn image(path: &CStr, options: &[u8]) -> Attached {
    crate::namespace::native::attach(path, options)
}

#[cfg(not(feature = "native"))]
fn image(_: &CStr, _: &[u8]) -> Attached {
    Err(libc::ENODEV)
}

/// A part of a list without its escapes.
fn plain(part: &[u8]) -> Result<CString, i32> {
    let mut text = vec![0; part.len()];
    let len = unescape(part, &mut text).ok_or(libc::EINVAL)?;
    text.truncate(len);
    CString::new(text).map_err(|_| libc::EINVAL)
}

/// Memory for a session, which is this mount's own.
fn own_session() -> Result<SessionCache, i32> {
    // glibc has a function for it from 2.27 on.
    // SAFETY: a NUL-terminated name.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, c"bypath-session".as_ptr(), libc::MFD_CLOEXEC) } as RawFd;
    if fd < 0 {
        return Err(errno(&Error::last_os_error()));
    }
    // SAFETY: just made, and nobody else's.
    let file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(SessionCache::bytes()).map_err(|e| errno(&e))?;
    let path = format!("/proc/self/fd/{}\0", file.as_raw_fd());
    SessionCache::open(path.as_bytes()).map_err(|errno| errno.0)
}

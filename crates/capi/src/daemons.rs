//! FUSE daemons of `bp_mount`: each in a session of its own, which `bypath
//! session` keeps beside this process.
//!
//! The steward is no child of this process (its end would surprise a program
//! that waits for any). It reads one pipe of ours, whose end is its end, also if this
//! process is killed; on another it writes the list of its mounts, and the end of
//! that one tells that its daemon has ended too: what archivemount writes at
//! its end is there when `bp_umount` returns.

use crate::sources::{Attached, errno, of_session};
use posix::environment;
use std::ffi::{CStr, OsStr};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use vfs::Backend;

/// Longest list that a steward may write.
const LIST_MAX: u64 = 64 << 10;
/// How long the end of a daemon may take, milliseconds; more than its steward gives it.
const GRACE_MS: i32 = 15_000;

/// Exit code of the steward for what it cannot read.
const WRONG: i32 = 2;

/// A session of ours.
struct Kept {
    /// Address of the backend.
    backend: usize,
    life: PipeWriter,
    ended: PipeReader,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// `bypath`: beside this library, in `bin` beside its directory, or wherever programs are.
fn program() -> PathBuf {
    // SAFETY: all zero is a value of it.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    let own = crate::bp_open_namespace as *const libc::c_void;
    // SAFETY: an address of ours, and room for the answer.
    let found = unsafe { libc::dladdr(own, &mut about) } != 0 && !about.dli_fname.is_null();
    if found {
        // SAFETY: the loader's text, which stays as long as this library.
        let library = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(about.dli_fname) }.to_bytes()));
        let near = ["bypath", "../bin/bypath"].map(|name| library.with_file_name(name));
        if let Some(program) = near.into_iter().find(|path| path.is_file()) {
            return program;
        }
    }
    PathBuf::from("bypath")
}

/// Starts the daemon that `text` (`COMMAND ARG… @`) names and attaches it. `ENOTCONN` if it does not
/// serve, `EINVAL` for an option that is unknown; the steward has said why on standard error.
pub fn attach(text: &[u8], options: &[u8]) -> Attached {
    // Where the steward mounts it is nobody's business.
    let spec = [b"fuse:", text, b":/bypath-daemon,", options].concat();
    let failed = |error| errno(&error);
    let (its_life, life) = pipe().map_err(failed)?;
    let (ended, its_end) = pipe().map_err(failed)?;
    let mut command = Command::new(program());
    command.arg("session").arg("--mount").arg(OsStr::from_bytes(&spec));
    command.stdin(Stdio::from(its_life)).stdout(Stdio::from(its_end));
    let started = command.spawn().and_then(|mut child| child.wait());
    // Our copies of the steward's ends.
    drop(command);
    match started.map_err(failed)?.code() {
        Some(0) => {}
        Some(WRONG) => return Err(libc::EINVAL),
        _ => return Err(libc::ENOTCONN),
    }
    let mut list = Vec::new();
    let mut lines = BufReader::new((&ended).take(LIST_MAX));
    lines.read_until(0, &mut list).map_err(failed)?;
    if list.pop() != Some(0) {
        return Err(libc::ENOTCONN);
    }
    let mut kept = Kept { backend: 0, life, ended };
    let attached = environment::parse(&list).next().ok_or(libc::EIO).and_then(|spec| of_session(&spec));
    match attached {
        Ok((backend, _)) => {
            kept.backend = address(backend);
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
            Ok(backend)
        }
        Err(errno) => {
            kept.end();
            Err(errno)
        }
    }
}

fn address(backend: &'static dyn Backend) -> usize {
    std::ptr::from_ref(backend).cast::<()>() as usize
}

impl Kept {
    fn end(self) {
        drop(self.life);
        let mut waits = libc::pollfd { fd: self.ended.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry. A signal ends the waiting early, which harms nobody.
        unsafe { libc::poll(&mut waits, 1, GRACE_MS) };
    }
}

/// A backend has been detached: if it was a daemon of ours, it ends.
pub fn detached(backend: &'static dyn Backend) {
    let mut all = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().position(|kept| kept.backend == address(backend));
    let kept = found.map(|at| all.swap_remove(at));
    drop(all);
    if let Some(kept) = kept {
        kept.end();
    }
}

/// In a forked child: the daemons are the parent's, and end with it alone.
pub fn in_child() {
    if let Ok(mut all) = KEPT.try_lock() {
        all.clear();
    }
}

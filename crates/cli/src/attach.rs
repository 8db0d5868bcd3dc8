//! From the path of an image to the engine.

use crate::failure::{Failure, Result};
use base::{Atomic, Cred, Cx, Thread};
use engine::Fs;
use engine::process::machine::{self, Host};
use engine::process::{AttachError, Options};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vfs::Backend;
use vfs::native::Native;

/// An image that this program has attached; it stays so until the program ends.
#[derive(Clone, Copy)]
pub struct Attached {
    /// The engine.
    pub fs: &'static Fs,
    /// The same as a file system of the namespace.
    pub backend: &'static dyn Backend,
}

impl Attached {
    /// Leaves the image; if nobody else uses it, takes its segment away.
    pub fn leave(&self) {
        let thread = Thread::new();
        self.fs.end_session(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
    }
}

/// Where the engine is for good.
fn place() -> &'static mut MaybeUninit<Fs> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// Attaches the image at `path`. Call it on the main thread: the image is in
/// use for as long as the thread lives.
pub fn attach(path: &Path) -> Result<Attached> {
    shared(path, 0)?.map_err(|error| refused(path, error))
}

/// How an image is attached.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// It is the `slot`-th of this program.
    pub slot: usize,
    /// Without any right to change it.
    pub read_only: bool,
    /// Overwrites happen whole or not at all.
    pub atomic: Option<Atomic>,
}

/// The same, so.
pub fn attach_as(path: &Path, how: How) -> Result<Attached> {
    shared_as(path, how)?.map_err(|error| refused(path, error))
}

/// As `attach_as`; `None` if the file may not be written.
pub fn attach_if_writable(path: &Path, how: How) -> Result<Option<Attached>> {
    match shared_as(path, how)? {
        Err(AttachError::NotWritable) => Ok(None),
        other => other.map(Some).map_err(|error| refused(path, error)),
    }
}

/// Has the image at `path` be nobody's, where another machine may be using it: the user has said that it is not.
pub fn take_over(path: &Path) -> Result<()> {
    machine::take_over(&text(path)).map_err(|error| refused(path, error))
}

/// Who uses the image at `path` or was the last to do so, and whether that is another machine that may be at work.
pub fn host(path: &Path) -> Result<(Option<Host>, bool)> {
    machine::look(&text(path)).map_err(|error| refused(path, error))
}

/// A private copy of the image at `path`, in memory, which nobody can change.
/// Refused if a living process uses the image.
pub fn copied(path: &Path) -> Result<Attached> {
    private(path, false).map_err(|error| refused(path, error))
}

/// The same of an image that is in use, perhaps by another machine: good for a rough look.
pub fn copied_beside(path: &Path) -> Result<Attached> {
    private(path, true).map_err(|error| refused(path, error))
}

fn private(path: &Path, beside: bool) -> std::result::Result<Attached, AttachError> {
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    Fs::attach_copy_at(place(), &cx, &text(path), 0, beside).map(|fs| ready(fs, &thread))
}

/// Attaches the image at `path` to read it. Where its file may not be written
/// this is a private copy of it, in memory, which nobody can change.
pub fn attach_to_read(path: &Path) -> Result<Attached> {
    let attached = match shared(path, 0)? {
        Err(AttachError::NotWritable) => private(path, false),
        other => other,
    };
    attached.map_err(|error| refused(path, error))
}

fn shared(path: &Path, slot: usize) -> Result<std::result::Result<Attached, AttachError>> {
    shared_as(path, How { slot, ..How::default() })
}

fn shared_as(path: &Path, How { slot, read_only, atomic }: How) -> Result<std::result::Result<Attached, AttachError>> {
    let directory = segment_directory();
    let segment_dir = directory.as_deref().map(|directory| directory.as_os_str().as_bytes());
    let options = Options { domain: domain()?, read_only, segment_dir, slot, cachelets: None, atomic };
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    Ok(Fs::attach_at(place(), &cx, &text(path), &options).map(|fs| ready(fs, &thread)))
}

fn ready(fs: &'static Fs, thread: &Thread) -> Attached {
    fs.give_lane_back(thread);
    Attached { fs, backend: Box::leak(Box::new(Native(fs))) }
}

fn text(path: &Path) -> Vec<u8> {
    let mut text = path.as_os_str().as_bytes().to_vec();
    text.push(0);
    text
}

/// Why an image was not attached, for people.
pub fn refused(path: &Path, error: AttachError) -> Failure {
    let path = path.display();
    match error {
        AttachError::Open(pm::Errno::ENOENT) => {
            Failure::new(format!("{path}: no such file; make an image with `bypath mkfs {path}`"))
        }
        other => Failure::new(format!("{path}: {other}")),
    }
}

/// Directory for segments, if the user chose one.
pub fn segment_directory() -> Option<PathBuf> {
    std::env::var_os("BYPATH_SEGMENT_DIR").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// What the medium promises, if the user says so.
fn domain() -> Result<Option<pm::Domain>> {
    let Some(text) = std::env::var_os("BYPATH_DOMAIN") else { return Ok(None) };
    let known = text.to_str().and_then(pm::Domain::from_name).filter(|domain| *domain != pm::Domain::Sim);
    match known {
        Some(domain) => Ok(Some(domain)),
        None => Err(Failure::new(format!("BYPATH_DOMAIN={}: write process, power or whole", text.display()))),
    }
}

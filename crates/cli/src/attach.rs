//! From the path of an image to the engine.

use crate::failure::{Failure, Result};
use base::{Atomic, Cred, Cx, Thread};
use engine::Fs;
use engine::process::in_place;
use engine::process::machine::{self, Host};
use engine::process::{AttachError, Options};
use std::ffi::OsStr;
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
    /// It is a session's file before an image that may not be written.
    pub in_place: bool,
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
    private(path, false).map_err(|error| match error {
        AttachError::BeingWritten => Failure::new(format!("{}: other processes use it; end them first", path.display())),
        other => refused(path, other),
    })
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

/// The path of the image that a session's file stands before; its own, where that can't be told.
pub fn path_behind(session: &[u8]) -> Vec<u8> {
    let mut text = [0; in_place::PATH_MAX];
    match in_place::path_behind(&[session, b"\0"].concat(), &mut text) {
        Ok(len) => text[..len].to_vec(),
        Err(_) => session.to_vec(),
    }
}

/// Attaches the image at `path` to read it. Where its file may not be written, or sessions read it in place, which keeps
/// others from changing it, this is a private copy of it, in memory, which nobody can change.
pub fn attach_to_read(path: &Path) -> Result<Attached> {
    if is_only_read(path)
        && let Ok(attached) = private(path, false)
    {
        return Ok(attached);
    }
    let attached = match shared(path, 0)? {
        Err(AttachError::NotWritable) => private(path, false),
        other => other,
    };
    attached.map_err(|error| refused(path, error))
}

/// The image that programs attach by that path: another one where it is a session's file before one.
pub fn image_behind(path: &[u8]) -> Vec<u8> {
    let is_before_one = is_sessions(Path::new(OsStr::from_bytes(path))) && in_place::is_own(&[path, b"\0"].concat());
    if is_before_one { path_behind(path) } else { path.to_vec() }
}

/// Whether others have the lock on the file that any number can have, for more than the moment that attaching takes.
fn is_only_read(path: &Path) -> bool {
    let flags = pm::sys::abi::O_RDONLY | pm::sys::abi::O_NONBLOCK;
    pm::file::File::open(&text(path), flags, 0).is_ok_and(|file| !file.lock_soon() && file.lock_shared_soon().is_ok())
}

fn shared(path: &Path, slot: usize) -> Result<std::result::Result<Attached, AttachError>> {
    shared_as(path, How { slot, ..How::default() })
}

fn shared_as(path: &Path, How { slot, read_only, atomic, in_place }: How) -> Result<std::result::Result<Attached, AttachError>> {
    // Commands that look at a session know its file by name only.
    let in_place = in_place || (is_sessions(path) && in_place::is_own(&text(path)));
    let directory = segment_directory();
    let segment_dir = directory.as_deref().map(|directory| directory.as_os_str().as_bytes());
    let options = Options { domain: domain()?, read_only, segment_dir, slot, cachelets: None, atomic, in_place };
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    Ok(Fs::attach_at(place(), &cx, &text(path), &options).map(|fs| ready(fs, &thread)))
}

/// Whether it may be a session's file, by its name.
fn is_sessions(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"bypath-rescue-"))
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

/// Directory for segments, if it is not `/dev/shm`: the user's choice; or, where nothing can be made there, that of his run
/// time or of temporary files.
pub fn segment_directory() -> Option<PathBuf> {
    chosen_directory().or_else(fallback_directory)
}

fn chosen_directory() -> Option<PathBuf> {
    std::env::var_os("BYPATH_SEGMENT_DIR").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The directory in the place of `/dev/shm`, which programs of a session must be told.
pub fn fallback_directory() -> Option<PathBuf> {
    if chosen_directory().is_some() || can_make_files_in(Path::new("/dev/shm")) {
        return None;
    }
    let named = ["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    named.chain([PathBuf::from("/tmp")]).find(|directory| can_make_files_in(directory))
}

/// Whether it is a directory of ours to make files in. One with a colon can't be told to programs.
fn can_make_files_in(directory: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let writable = || accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    directory.is_absolute() && !directory.as_os_str().as_bytes().contains(&b':') && directory.is_dir() && writable()
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

//! A kernel mount over the very directory that is behind a cache: programs that go past the library, other users', other
//! sessions' find what the session sees.
//!
//! Whoever brings something, or writes back, must not come to the mount itself. So a process that lives as long as anybody
//! needs it (the spare) has the directory open since before, and all go through that: `/proc/PID/fd/N` leads to what is open,
//! whatever is mounted over it by now.

use super::said::is_same_file;
use super::spec::CacheImage;
use crate::attach::Attached;
use base::{Cred, Cx, Thread};
use engine::Fs;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use server::device;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The option by which a server is told where the directory is.
pub const BELOW: &str = "--below";
/// So many of those who are inside are named.
const NAMED: usize = 5;

/// The directory, opened before anything is mounted over it.
pub fn open(place: &Path) -> Option<OwnedFd> {
    rustix::fs::open(place, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Where what a process has open as its standard output is found.
pub fn through(process: &str) -> Vec<u8> {
    format!("/proc/{process}/fd/1/.").into_bytes()
}

/// Whether the mount can be over `place`: nothing that it is made of may lie in there.
pub fn is_free(place: &Path, image: &Path, journal: Option<&CacheImage>) -> bool {
    let is_inside = |path: &Path| {
        let parent = path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
        parent.is_none_or(|parent| parent.starts_with(place))
    };
    place != Path::new("/") && !is_inside(image) && !journal.is_some_and(|journal| is_inside(&journal.path))
}

/// The cache image that the kernel shows at `place`, if it is one's.
pub fn image_at(place: &Path) -> Option<PathBuf> {
    let mounted = device::mounted_at(&std::fs::canonicalize(place).ok()?)?;
    (mounted.kind == "fuse.bypath").then(|| PathBuf::from(mounted.source))
}

/// Whether it shows `image` there, by the kernel's table: a server may not be there yet, or no longer.
pub fn shows(image: &Path, place: &Path) -> bool {
    image_at(place).is_some_and(|there| is_same_file(&there, image))
}

/// By what path the directory at `place` is reached, where a session has the cache of it mounted over it.
pub fn below(fs: &'static Fs, image: &Path, place: &Path) -> Option<Vec<u8>> {
    if !shows(image, place) {
        return None;
    }
    let thread = Thread::new();
    let server = fs.server(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
    fs.give_lane_back(&thread);
    // It has been told so.
    let words = std::fs::read(format!("/proc/{}/cmdline", server?)).ok()?;
    let mut words = words.split(|byte| *byte == 0).skip_while(|word| *word != BELOW.as_bytes());
    words.nth(1).map(<[u8]>::to_vec)
}

/// A path as a process of this program is told it.
pub fn text(path: &[u8]) -> OsString {
    OsString::from_vec(path.to_vec())
}

/// Names those who are in the directory already, but for this program, here and of other sessions, who has started us, and
/// whom we have: they go on to see what is below.
pub fn say_who_is_inside(place: &Path, shown: &str) {
    let around = ancestors();
    let mut inside: Vec<String> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let is_about_us = || around.contains(&pid) || around.starts_with(&[parent(pid)]) || runs_this(&entry.path());
        if is_inside(&entry.path(), place) && !is_about_us() {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            inside.push(format!("{} ({pid})", name.trim_end()));
        }
    }
    if inside.is_empty() {
        return;
    }
    let more = if inside.len() > NAMED { format!(" and {} more", inside.len() - NAMED) } else { String::new() };
    inside.truncate(NAMED);
    eprintln!(
        "bypath: {shown}: in use by {}{more}: what they have open there is the directory as it is, behind the cache, \
         until they open it again (a shell: cd .)",
        inside.join(", ")
    );
}

/// Whether a process has its working directory in there, or files open.
fn is_inside(process: &Path, place: &Path) -> bool {
    let leads = |link: PathBuf| std::fs::read_link(link).is_ok_and(|to| to.starts_with(place));
    let fds = || std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    leads(process.join("cwd")) || fds().any(|fd| leads(fd.path()))
}

/// Whether a process executes this program: a server, or who goes on for a session that has ended.
pub fn runs_this(process: &Path) -> bool {
    is_same_file(&process.join("exe"), Path::new("/proc/self/exe"))
}

/// This process, and those that have started it.
fn ancestors() -> Vec<u32> {
    let mut all = vec![std::process::id()];
    while let Some(last) = all.last().copied().filter(|last| *last > 1 && all.len() < 100) {
        all.push(parent(last));
    }
    all
}

/// Who has started a process; 0: nobody that is known.
fn parent(process: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).and_then(|text| text.trim().parse().ok());
    parent.unwrap_or(0)
}

/// The working directory, if it is in one of these directories: whoever is started there has to enter it anew.
pub fn working_directory(over: &[PathBuf]) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    over.iter().any(|place| here.starts_with(place)).then_some(here)
}

/// Whether anybody uses the image beside its server, the session that has started that, and who keeps the cache fresh.
pub fn is_used(attached: &Attached, session: Option<u32>) -> bool {
    let fs = attached.fs;
    let spared = [Some(std::process::id()), session, u32::try_from(fs.cache_keeper()).ok()];
    fs.living().any(|user| !spared.contains(&Some(user)))
}

/// Whether programs go on to use the image without a session: with another one that does what is to be done for them.
pub fn goes_on(attached: &Attached) -> bool {
    let is_other_session = |user| user != std::process::id() && is_session(user);
    is_used(attached, None) && !attached.fs.living().any(is_other_session)
}

/// Whether a process is a `bypath run`, or what does that for the C library.
fn is_session(process: u32) -> bool {
    let place = PathBuf::from(format!("/proc/{process}"));
    let words = std::fs::read(place.join("cmdline")).unwrap_or_default();
    runs_this(&place) && matches!(words.split(|byte| *byte == 0).nth(1), Some(b"run" | b"session"))
}

/// A path for the program's own use.
pub fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

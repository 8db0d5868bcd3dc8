//! Images for tests: made, attached by this thread, checked.

use crate::leavings;
use base::{Atomic, Cred, Cx};
use engine::Fs;
use engine::process::attach::Options;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use vfs::native::Native;

/// A path that nobody else uses, on tmpfs.
pub fn fresh_path(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    leavings::remove_once();
    let count = COUNT.fetch_add(1, Relaxed);
    PathBuf::from(format!("/dev/shm/bypath-testkit-{}-{count}-{name}.image", std::process::id()))
}

fn text(path: &Path) -> Vec<u8> {
    let mut text = path.as_os_str().as_encoded_bytes().to_vec();
    text.push(0);
    text
}

/// Where segments lie during a test: named in the environment, so that all its
/// processes agree and the first one can remove it.
pub fn segments() -> PathBuf {
    std::env::var_os("BYPATH_SEGMENT_DIR").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from)
}

/// A directory for segments, gone when this is dropped.
pub struct Segments(PathBuf);

impl Segments {
    /// Makes it and names it in the environment; before any thread is started.
    pub fn new() -> Self {
        leavings::remove_once();
        let path = PathBuf::from(format!("/dev/shm/bypath-testkit-{}-segments", std::process::id()));
        let _ = std::fs::create_dir_all(&path);
        // SAFETY: this program has one thread so far.
        unsafe { std::env::set_var("BYPATH_SEGMENT_DIR", &path) };
        Segments(path)
    }
}

impl Default for Segments {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes an image of at most `bytes` whose root is the caller's, mode 777.
///
/// # Panics
/// If that does not work.
pub fn make(path: &Path, bytes: u64) {
    // SAFETY: takes no arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let options = engine::mkfs::Options { limit: bytes, force: true, mode: 0o777, uid, gid, ..Default::default() };
    if let Err(error) = engine::mkfs::make(&text(path), &options) {
        panic!("{}: {error}", path.display());
    }
}

/// What is wrong with an image that nobody uses; nothing, one hopes.
///
/// # Errors
/// The first findings, one a line.
pub fn check(path: &Path) -> Result<engine::check::Report, String> {
    let report = engine::check::run(&text(path), &mut |_| {}).map_err(|e| format!("{}: {e}", path.display()))?;
    if report.issues.is_empty() {
        return Ok(report);
    }
    let lines: Vec<String> = report.issues.iter().take(10).map(|issue| format!("    {issue}")).collect();
    Err(format!("{} findings:\n{}", report.issues.len(), lines.join("\n")))
}

/// How many cachelets segments have; 0: as the image's size asks for. With few of them nodes lose theirs all
/// the time, in the middle of every call.
pub static CACHELETS: AtomicU32 = AtomicU32::new(0);

/// How overwrites happen whole or not at all: 0: they do not; else [`Atomic`] + 1.
pub static ATOMIC: AtomicU32 = AtomicU32::new(0);

/// The same.
pub fn atomic() -> Option<Atomic> {
    [Atomic::Undo, Atomic::Replay].into_iter().find(|how| *how as u32 + 1 == ATOMIC.load(Relaxed))
}

/// Attaches an image; the calling thread keeps its place among the image's
/// processes, so it must live as long as the process.
///
/// # Panics
/// If that does not work.
pub fn attach(path: &Path) -> &'static Native {
    let thread = base::Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let place: &'static mut MaybeUninit<Fs> = Box::leak(Box::new(MaybeUninit::uninit()));
    let directory = segments();
    let cachelets = Some(CACHELETS.load(Relaxed)).filter(|count| *count != 0);
    let segment_dir = Some(directory.as_os_str().as_encoded_bytes());
    let options = Options { segment_dir, cachelets, atomic: atomic(), ..Default::default() };
    match Fs::attach_at(place, &cx, &text(path), &options) {
        Ok(fs) => {
            fs.give_lane_back(&thread);
            Box::leak(Box::new(Native(fs)))
        }
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

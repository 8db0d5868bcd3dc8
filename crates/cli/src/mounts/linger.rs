//! Processes that keep a cache fresh, and write back, for a while after the session that it was for (`linger=SECONDS`): the next
//! session on the cache joins them, and starts at once. They are those of [`super::spare`].

use super::over;
use crate::failure::{Failure, Result};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of such a process, by which it is known from one that waits for the end of its session.
const NAME: &std::ffi::CStr = c"bypath-linger";
/// How long one may take for what it has to write back.
const ENDS: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);

/// One of them.
pub struct Lingering {
    pid: u32,
    /// The cache image, and the directory behind it.
    pub image: PathBuf,
    pub directory: PathBuf,
}

/// This process is one from now on.
pub fn begin() {
    let _ = rustix::thread::set_name(NAME);
}

/// All of this user's.
pub fn all() -> Vec<Lingering> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| of_process(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn of_process(pid: u32) -> Option<Lingering> {
    let place = PathBuf::from(format!("/proc/{pid}"));
    let owner = std::fs::metadata(&place).ok()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return None;
    }
    let name = std::fs::read(place.join("comm")).ok()?;
    if name.strip_suffix(b"\n")? != NAME.to_bytes() || !over::runs_this(&place) {
        return None;
    }
    let words = std::fs::read(place.join("cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0).skip_while(|word| *word != b"cache-spare").skip(2);
    let mut path = || words.next().map(|word| PathBuf::from(OsString::from_vec(word.to_vec())));
    let (image, directory) = (path()?, path()?);
    // One that holds the directory reaches it by its own descriptor.
    let held = directory.starts_with("/proc/self").then(|| std::fs::read_link(place.join("fd/1")).ok()).flatten();
    Some(Lingering { pid, image, directory: held.unwrap_or(directory) })
}

/// Ends those of an image, or of the directory behind one; how many there were.
pub fn end(place: &Path) -> Result<usize> {
    let place = std::fs::canonicalize(place).unwrap_or_else(|_| place.to_path_buf());
    let is_there = |path: &Path| *path == place || std::fs::canonicalize(path).is_ok_and(|path| path == place);
    let ending: Vec<Lingering> = all().into_iter().filter(|one| is_there(&one.image) || is_there(&one.directory)).collect();
    ending.iter().try_for_each(Lingering::end)?;
    Ok(ending.len())
}

impl Lingering {
    /// Ends it, when it has written back what there is.
    pub fn end(&self) -> Result<()> {
        let Some(pid) = Pid::from_raw(self.pid as i32) else { return Ok(()) };
        let (begun, shown) = (Instant::now(), self.image.display());
        kill_process(pid, Signal::TERM).map_err(|error| Failure::io(&shown, &error.into()))?;
        while test_kill_process(pid).is_ok() && of_process(self.pid).is_some() {
            if begun.elapsed() > ENDS {
                return Err(Failure::new(format!("{shown}: process {} has not ended within 10 s", self.pid)));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

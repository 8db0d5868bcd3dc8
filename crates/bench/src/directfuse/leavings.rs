//! What is left in directories for everybody: nothing, if a run ends by itself or is asked to
//! end; what a killed one has left goes with the next.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const NAME: &str = "bypath-directfuse-";

static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOPPED.store(true, Relaxed);
}

/// From now on the first `SIGINT`, `SIGTERM` or `SIGHUP` is waited for by [`go_on`]; a second one kills.
pub fn watch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all zeroes is an action without flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = stop as *const () as usize;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: a handler that only stores a flag.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
}

/// Whether to go on; if not, what is open is closed on the way out.
pub fn go_on() -> Result<(), String> {
    if STOPPED.load(Relaxed) { Err("stopped by a signal; what was mounted and made is gone".into()) } else { Ok(()) }
}

/// A name of this run's in `dir`.
pub fn own(dir: &Path, ending: &str) -> PathBuf {
    dir.join(format!("{NAME}{}{ending}", std::process::id()))
}

/// Removes the directories of ours in `dir` whose runs live no more.
pub fn sweep(dir: &Path) {
    // SAFETY: no arguments.
    let us = unsafe { libc::geteuid() };
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(NAME)) else { continue };
        let Ok(pid) = rest.trim_end_matches(".d").parse::<u32>() else { continue };
        // Not what a link of somebody's leads to.
        let is_ours = std::fs::symlink_metadata(entry.path()).is_ok_and(|about| about.is_dir() && about.uid() == us);
        if is_ours && !pm::host::is_alive(pid) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Goal: what a killed run has left goes, and nothing else. Method: directories by the name of a process
    /// that has ended and of one that lives, a link by such a name, and another's name.
    #[test]
    fn what_a_killed_run_has_left_goes() {
        let dir = std::env::temp_dir().join(format!("bypath-leavings-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("elsewhere/kept")).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        let named = |ending: &str| dir.join(format!("{NAME}{ending}"));
        let (dead, dead_media) = (named(&format!("{ended}")), named(&format!("{ended}.d")));
        let (alive, strange) = (own(&dir, ".d"), named("x"));
        for made in [&dead, &dead_media.join("files0"), &alive, &strange] {
            std::fs::create_dir_all(made).unwrap();
        }
        let link = named(&format!("{ended}.d.d"));
        symlink(dir.join("elsewhere"), &link).unwrap();

        sweep(&dir);
        assert!(!dead.exists() && !dead_media.exists());
        assert!(alive.exists() && strange.exists() && link.exists() && dir.join("elsewhere/kept").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

//! The guard of a kernel mount: a process that frees all who wait in the kernel
//! if the server is killed.
//!
//! The kernel ends a mount when the last thread of its server is gone. But a
//! thread that is killed while it waits in the kernel for an answer, or for a lock that
//! somebody holds who waits for an answer, waits on for ever: nobody is left who would
//! give it. Such a server is never quite dead, its pidfd and its pipes stay
//! silent, and whoever has touched the mount hangs. So
//!
//! - the guard has the kernel tell it when one thread of the server ends (`PR_SET_PDEATHSIG`), one
//!   that waits for nothing but the guard and therefore always dies at once;
//! - then it ends the connection by a file that the server opened for it beforehand. That
//!   does nothing to one that has ended already, or to the next that has its number;
//! - where it has no such file, and the server is stuck, it takes the mount away,
//!   so that nobody else runs into it.
//!
//! It has its own session, so that a terminal's signals pass it by, and holds nothing else.

use crate::failure::{Failure, Result};
use rustix::process::{Pid, Signal};
use server::device;
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server that was killed has to end.
const LAST_BREATH: Duration = Duration::from_millis(200);

/// Starts the guard of the mount at `directory` with this `st_dev`, on a thread of its own.
/// `covers`: the mount is over something that is to be seen again without it.
pub fn start(number: Option<u64>, directory: &Path, covers: bool) -> std::io::Result<()> {
    let file = number.and_then(device::abort_file);
    let directory = directory.to_path_buf();
    let start = move || {
        // By the link: its path might lead into the mount.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("bypath").arg("guard-mount").current_dir("/");
        command.args([rustix::process::getpid(), rustix::thread::gettid()].map(|id| id.as_raw_nonzero().to_string()));
        command.args(covers.then_some("--covers"));
        command.arg(directory).stdin(file.map_or_else(Stdio::null, Stdio::from)).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(mut guard) = command.spawn() {
            let _ = guard.wait();
        }
    };
    std::thread::Builder::new().name("guard".to_string()).spawn(start).map(drop)
}

/// Waits for the end of a thread of the server, and sees to it that nobody waits for the server then.
pub fn guard(server: i32, thread: i32, directory: &Path, covers: bool) -> Result<u8> {
    let _ = rustix::process::setsid();
    let mut signals = Signals::new([SIGUSR1]).map_err(|error| Failure::io("signals", &error))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))
        .map_err(|errno| Failure::io("prctl", &std::io::Error::from(errno)))?;
    // It may have ended already; and after a signal, because anybody may send one.
    if task(server, thread).exists() {
        while signals.forever().next().is_some() && !has_ended(server, thread) {}
    }
    if rustix::io::write(rustix::stdio::stdin(), b"1").is_err() {
        std::thread::sleep(LAST_BREATH);
        if rustix::process::getppid() == Pid::from_raw(server) {
            let _ = device::unmount(directory, true);
        }
    }
    // A mount that is not answered any more is nobody else's.
    let begun = Instant::now();
    while covers && begun.elapsed() < LAST_BREATH {
        if device::is_stale(directory) {
            let _ = device::unmount(directory, true);
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(0)
}

fn task(server: i32, thread: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{server}/task/{thread}"))
}

/// Whether a thread of the server is gone, or is so in a moment.
fn has_ended(server: i32, thread: i32) -> bool {
    let begun = Instant::now();
    while task(server, thread).exists() {
        if begun.elapsed() > LAST_BREATH {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

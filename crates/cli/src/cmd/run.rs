//! `bypath run --mount IMG:/dir -- CMD…`
//!
//! The images are attached here first, so that a bad one gives one clear line
//! and so that they stay attached, and warm, from one program of a session to
//! the next. Then CMD runs as a child with the library loaded into it; signals
//! are handed on; its end is ours.

use crate::args::Run;
use crate::attach;
use crate::bundled;
use crate::cmd::ways;
use crate::doctor::program;
use crate::failure::{Failure, Result};
use crate::library;
use crate::limits;
use crate::mounts::over;
use crate::mounts::spec::{self, Mount, Source};
use crate::mounts::{For, Session, beside, check_points};
use posix::{environment, own_calls};
use rustix::process::{Pid, Signal, kill_process};
use server::device;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::backend::Handle;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Sent};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Runs the program; its exit code, 128 + signal if it was killed, 126 or 127
/// if it could not be started.
pub fn run(args: &Run) -> Result<u8> {
    let mut mounts = match &args.config {
        Some(path) => spec::from_file(path)?,
        None => Vec::new(),
    };
    for text in &args.mounts {
        mounts.push(Mount::parse(text)?);
    }
    check_points(&mounts)?;
    if args.force {
        take_over(&mounts)?;
    }
    let library = library()?;
    // The mounts of a session around this one, then ours.
    let around = std::env::var_os(variable(environment::MOUNTS)).unwrap_or_default().into_vec();
    let mounts = beside(mounts, &around)?;
    let mut session = Session::start(&mounts, around, For::Programs { kernel: !args.no_fuse })?;
    session.writers.iter_mut().for_each(|writer| writer.leave = args.leave);
    Ok(code(start(args, &mounts, &session, &library)?))
}

/// Images that another machine may be using are nobody's: the user has said that it does not.
fn take_over(mounts: &[Mount]) -> Result<()> {
    mounts.iter().try_for_each(|mount| match &mount.source {
        Source::Image(path) => attach::take_over(path),
        _ => Ok(()),
    })
}

/// The preload library, where the loader can take its path.
fn library() -> Result<PathBuf> {
    let path = library::preload()?;
    if path.as_os_str().as_bytes().iter().any(|b| b" :;".contains(b)) {
        let shown = path.display();
        return Err(Failure::new(format!("{shown}: the loader can't take a path with spaces or colons; put bypath elsewhere")));
    }
    Ok(path)
}

fn start(args: &Run, mounts: &[Mount], session: &Session, library: &Path) -> Result<ExitStatus> {
    let program = &args.command[0];
    let points: Vec<&[u8]> = mounts.iter().map(|mount| &mount.point[..]).collect();
    let mut command = command(&args.command, &points)?;
    // Who is in a directory that has been covered goes into what covers it.
    if let Some(here) = over::working_directory(&session.covered) {
        command.current_dir(here);
    }
    bundled::preload(&mut command, &preload_list(library));
    command.env(variable(environment::MOUNTS), OsStr::from_bytes(&session.list));
    if let Some(directory) = attach::fallback_directory() {
        command.env("BYPATH_SEGMENT_DIR", directory);
    }
    command.env(variable(environment::SESSION), OsStr::from_bytes(&session.told()));
    let sites = ways::sites()?;
    if let Some(sites) = &sites {
        command.env(ways::SITES, sites.path());
    }
    let forwarding = Forwarding::start()?;
    let child = spawn(command, &session.uncovered).map_err(|error| not_started(program, &error))?;
    wait(child, forwarding)
}

/// Starts the program; where `uncovered` directories would be found in the place of mounts, from a thread with mounts of
/// its own, in which empty ones that nobody can change cover them. Only root may; for others they stay as they are.
fn spawn(mut command: Command, uncovered: &[PathBuf]) -> std::io::Result<Child> {
    if uncovered.is_empty() {
        return command.spawn();
    }
    let uncovered = uncovered.to_vec();
    let start = move || {
        if device::set_apart(&uncovered).is_ok() {
            let here = std::env::current_dir();
            uncovered.iter().for_each(|point| drop(device::cover(point)));
            // Who is in such a directory goes into what covers it.
            if let Ok(here) = here {
                let _ = std::env::set_current_dir(here);
            }
        }
        command.spawn()
    };
    let spawned = std::thread::Builder::new().name("start".into()).spawn(start)?.join();
    spawned.unwrap_or_else(|_| Err(std::io::Error::from_raw_os_error(pm::Errno::EAGAIN.0)))
}

/// How a program is started that is to have mounts at these points.
pub fn command(words: &[OsString], points: &[&[u8]]) -> Result<Command> {
    let program = &words[0];
    if bundled::is_needed() || is_inside(program, points) || goes_past(program) {
        // The kernel does not see it, or the library is to say whether it is started, and how: a preloaded program does it.
        let mut command = bundled::own()?;
        command.args(["exec-inside", "--"]).args(words);
        return Ok(command);
    }
    let mut command = Command::new(program);
    command.args(&words[1..]);
    Ok(command)
}

fn is_inside(program: &OsStr, points: &[&[u8]]) -> bool {
    let path = program.as_bytes();
    points.iter().any(|point| path.strip_prefix(*point).is_some_and(|rest| rest.starts_with(b"/")))
}

/// Segment type of the loader's name.
const INTERPRETER: u32 = 3;
/// Larger programs are looked at where it is kept what was found, bytes.
const LOOKED_AT: u64 = 4 << 20;

/// Whether a program goes past the library, or may: static, set-uid, musl's, a script, one with system calls of its own.
fn goes_past(program: &OsStr) -> bool {
    let Some(path) = program::find(program) else { return false };
    let Ok(meta) = std::fs::metadata(&path) else { return false };
    if meta.len() > LOOKED_AT || meta.mode() & 0o6000 != 0 {
        return true;
    }
    let text = std::fs::read(path).unwrap_or_default();
    !own_calls::is_elf(&text)
        || !own_calls::segments(&text).any(|(kind, ..)| kind == INTERPRETER)
        || own_calls::is_musls(&text)
        || own_calls::calls_with_paths(&text)
}

/// `exec-inside CMD…`: the second half of a start inside a mount.
pub fn exec_inside(command: &[OsString]) -> Result<u8> {
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    Err(not_started(&command[0], &error))
}

/// Why a program was not started, with a shell's exit code.
pub fn not_started(program: &OsStr, error: &std::io::Error) -> Failure {
    let shown = program.display();
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(format!("{shown}: command not found")).code(127),
        std::io::ErrorKind::PermissionDenied => Failure::new(format!("{shown}: cannot be executed: permission denied")).code(126),
        _ => Failure::io(shown, error).code(126),
    }
}

/// Our library behind those that are there already, which wrap what it serves.
fn preload_list(library: &Path) -> OsString {
    let library = library.as_os_str();
    let Some(mut list) = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty()) else { return library.to_os_string() };
    if !list.as_bytes().split(|b| b" :".contains(b)).any(|part| part == library.as_bytes()) {
        list.push(":");
        list.push(library);
    }
    list
}

fn variable(name: &'static [u8]) -> &'static OsStr {
    OsStr::from_bytes(name)
}

/// Signals that would end us without the program; those that whoever started us ignores stay ignored.
fn forwarded_signals() -> Result<SignalsInfo<WithOrigin>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok()).unwrap_or(0);
    let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH];
    let wanted: Vec<i32> = all.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0).collect();
    SignalsInfo::new(wanted).map_err(|error| Failure::io("signals", &error))
}

/// A thread that sends the program the signals that other processes send to us. The terminal sends the program its signals
/// itself, as that is in the foreground too.
struct Forwarding {
    handle: Handle,
    tell: mpsc::Sender<Pid>,
    thread: JoinHandle<()>,
}

impl Forwarding {
    /// Starts it before the program, so that a program is not left alone where there can't be a thread.
    fn start() -> Result<Forwarding> {
        let mut signals = forwarded_signals()?;
        let (handle, (tell, told)) = (signals.handle(), mpsc::channel());
        let thread = limits::start("signals", move || {
            let Ok(pid) = told.recv() else { return };
            for origin in signals.forever() {
                let is_sent = matches!(origin.cause, Cause::Sent(Sent::User | Sent::TKill | Sent::Queue));
                if let (true, Some(signal)) = (is_sent, Signal::from_named_raw(origin.signal)) {
                    let _ = kill_process(pid, signal);
                }
            }
        })?;
        Ok(Forwarding { handle, tell, thread })
    }
}

/// Waits for the program.
fn wait(mut child: Child, forwarding: Forwarding) -> Result<ExitStatus> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = forwarding.tell.send(pid);
    }
    let status = child.wait().map_err(|error| Failure::io("waiting for the program", &error));
    forwarding.handle.close();
    drop(forwarding.tell);
    let _ = forwarding.thread.join();
    status
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: programs below a mount point are told from those beside it.
    #[test]
    fn inside() {
        assert!(is_inside(OsStr::new("/bp/a"), &[b"/bp"]));
        assert!(!is_inside(OsStr::new("/bpa"), &[b"/bp"]));
        assert!(!is_inside(OsStr::new("bp/a"), &[b"/bp"]));
    }
}

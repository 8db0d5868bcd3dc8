//! A FUSE daemon: started with our library in place of the kernel's device,
//! watched, started again if asked, ended with the session.

use super::ledger::SharedFile;
use super::spec::Mount;
use crate::failure::{Failure, Result};
use base::{Cred, Cx, Thread};
use pm::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfs::wire::channel::{CHANNEL_BYTES, Channel, life};
use vfs::wire::{READ_ONLY, agree};

const LIBRARY: &str = "libbypath_daemon.so";
/// Seconds that a request may take, unless the user says otherwise.
const TIMEOUT: u32 = 60;
/// How long a daemon may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(5);
/// A daemon that lives shorter has failed to start.
const SHORT: Duration = Duration::from_secs(1);
/// How often in a row it may.
const TRIES: u32 = 5;

/// A daemon of a session.
pub struct Daemon {
    care: Arc<Care>,
    ended: Receiver<()>,
    file: SharedFile,
}

/// What the watching thread needs.
struct Care {
    shown: String,
    words: Vec<OsString>,
    library: PathBuf,
    path: PathBuf,
    directory: PathBuf,
    channel: Channel,
    read_only: bool,
    restart: bool,
    closing: AtomicBool,
    child: Mutex<Option<Child>>,
}

impl Daemon {
    /// Starts the daemon of a mount and waits until it serves.
    pub fn start(mount: &Mount, words: &[OsString]) -> Result<Daemon> {
        let shown = format!("{} at {}", mount.source.shown(), mount.shown_point());
        let file = SharedFile::make("channel", CHANNEL_BYTES)?;
        let text = [file.bytes(), b"\0"].concat();
        let channel = Channel::open(&text).map_err(|errno| Failure::errno(&shown, errno))?;
        if let Ok(header) = channel.header() {
            header.supervisor.store(std::process::id(), SeqCst);
            header.timeout_ms.store(mount.options.timeout.unwrap_or(TIMEOUT).saturating_mul(1000), SeqCst);
        }
        let library = library()?;
        let directory = empty_directory()?;
        let care = Arc::new(Care {
            words: words.iter().map(|word| if word == "@" { directory.clone().into_os_string() } else { word.clone() }).collect(),
            library,
            path: file.path().to_path_buf(),
            directory,
            channel,
            read_only: mount.options.read_only,
            restart: mount.options.restart,
            closing: AtomicBool::new(false),
            child: Mutex::new(None),
            shown,
        });
        let (tell, ended) = channel_pair();
        let life = care.spawn().inspect_err(|_| {
            let _ = std::fs::remove_dir(&care.directory);
        })?;
        let watched = Arc::clone(&care);
        std::thread::spawn(move || {
            watched.watch(life);
            drop(tell);
        });
        let daemon = Daemon { care, ended, file };
        daemon.care.begin().map_err(|errno| daemon.care.not_begun(errno))?;
        Ok(daemon)
    }

    /// Path of the channel.
    pub fn bytes(&self) -> &[u8] {
        self.file.bytes()
    }
}

fn channel_pair() -> (std::sync::mpsc::Sender<()>, Receiver<()>) {
    channel()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.care.closing.store(true, SeqCst);
        let _ = self.care.channel.set_life(life::CLOSING);
        // The watching thread ends with the daemon, and its end of this with it.
        if self.ended.recv_timeout(GRACE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            self.care.kill();
            let _ = self.ended.recv_timeout(GRACE);
        }
        let _ = std::fs::remove_dir(&self.care.directory);
    }
}

impl Care {
    /// Starts the process; what is returned ends when it and all that it has become have ended.
    fn spawn(&self) -> Result<PipeReader> {
        let shown = self.words[0].display();
        self.channel.renew().map_err(|errno| Failure::errno(&self.shown, errno))?;
        let (life, held) = std::io::pipe().map_err(|error| Failure::io("pipe", &error))?;
        let error_output =
            std::io::stderr().as_fd().try_clone_to_owned().map_err(|error| Failure::io("standard error", &error))?;
        let mut preload = self.library.clone().into_os_string();
        if let Some(present) = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty()) {
            preload.push(":");
            preload.push(present);
        }
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::from(held)).stdout(Stdio::from(error_output));
        command.env("LD_PRELOAD", preload).env("BYPATH_CHANNEL", &self.path);
        // What the terminal sends is for the program, not for its file systems.
        command.process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::new(format!("{}: {shown}: command not found", self.shown)),
            _ => Failure::io(shown, &error),
        })?;
        if let Ok(mut place) = self.child.lock() {
            *place = Some(child);
        }
        Ok(life)
    }

    /// Agrees with the daemon; from then on it serves.
    fn begin(&self) -> std::result::Result<(), Errno> {
        let thread = Thread::new();
        agree(&self.channel, &Cx { cred: Cred::ROOT, umask: 0, thread: &thread })?;
        let header = self.channel.header()?;
        if self.read_only {
            header.mount_flags.fetch_or(READ_ONLY, SeqCst);
        }
        self.channel.set_life(life::SERVING)
    }

    fn not_begun(&self, errno: Errno) -> Failure {
        let status = self.collect();
        let why = match (status, errno) {
            (Some(status), Errno::ENOTCONN) => format!("the daemon ended ({status}) before it served"),
            (None, Errno::ENOTCONN) => "the daemon ended before it served".to_string(),
            (_, Errno::EOPNOTSUPP) => "the daemon speaks no FUSE protocol that we know (7.19 to 7.40)".to_string(),
            (_, Errno::ETIMEDOUT) => "the daemon does not answer; is it linked dynamically, and does it use libfuse?".to_string(),
            (_, other) => other.to_string(),
        };
        Failure::new(format!("{}: {why}", self.shown))
    }

    /// The status of the process that was started, once it has ended.
    fn collect(&self) -> Option<ExitStatus> {
        let until = Instant::now() + Duration::from_millis(200);
        loop {
            let status = self.child.lock().ok()?.as_mut()?.try_wait().ok()?;
            if status.is_some() || Instant::now() > until {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&self) {
        let pid = self.channel.header().map_or(0, |header| header.daemon.load(SeqCst));
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|pid| pid.as_raw_nonzero().get() > 1) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if let Ok(mut child) = self.child.lock()
            && let Some(child) = child.as_mut()
        {
            let _ = child.kill();
        }
    }

    /// Waits for the daemon's end, again and again if it is to be started again.
    fn watch(&self, mut life: PipeReader) {
        let (mut failures, mut is_first) = (0, true);
        loop {
            let begun = Instant::now();
            let _ = life.read(&mut [0]);
            let status = self.collect();
            if self.closing.load(SeqCst) {
                return;
            }
            let served = self.channel.header().is_ok_and(|header| header.life.load(SeqCst) == life::SERVING);
            let _ = self.channel.set_life(life::DEAD);
            failures = if served && begun.elapsed() >= SHORT { 0 } else { failures + 1 };
            if !served && is_first {
                // Whoever starts it says so.
                return;
            }
            is_first = false;
            let how = status.map_or(String::new(), |status| format!(" ({status})"));
            if !self.restart {
                eprintln!("bypath: {}: the daemon ended{how}; its files are gone until it is mounted again", self.shown);
                return;
            }
            if failures > TRIES {
                eprintln!("bypath: {}: the daemon ended{how} {failures} times in a row; not started again", self.shown);
                return;
            }
            std::thread::sleep(Duration::from_millis(if failures > 1 { 50 << failures } else { 0 }));
            match self.spawn() {
                Ok(next) => life = next,
                Err(failure) => {
                    eprintln!("bypath: {failure}");
                    return;
                }
            }
            if let Ok(header) = self.channel.header() {
                header.restarts.fetch_add(1, SeqCst);
            }
            // Its end while it begins ends the beginning too: the pipe is looked at next.
            let beginning = self.begin_watched(&life);
            if let Err(errno) = beginning {
                eprintln!("bypath: {}", self.not_begun(errno));
            }
        }
    }

    /// `begin`, with somebody who sees the daemon end meanwhile.
    fn begin_watched(&self, life: &PipeReader) -> std::result::Result<(), Errno> {
        let Ok(mut second) = life.try_clone() else { return self.begin() };
        std::thread::scope(|scope| {
            let watcher = scope.spawn(move || {
                // Nobody writes: this returns when the daemon has ended, or has begun.
                let mut poll = [rustix::event::PollFd::new(&second, rustix::event::PollFlags::IN)];
                loop {
                    let step = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                    let ended = rustix::event::poll(&mut poll, Some(&step)).is_ok_and(|count| count > 0);
                    let begun = self.channel.header().is_ok_and(|header| header.life.load(SeqCst) == life::SERVING);
                    if ended {
                        let _ = self.channel.set_life(life::DEAD);
                    }
                    if ended || begun {
                        break;
                    }
                }
                let _ = &mut second;
            });
            let result = self.begin();
            if result.is_err() {
                let _ = self.channel.set_life(life::DEAD);
                self.kill();
            }
            let _ = watcher.join();
            result
        })
    }
}

/// The library for daemons: `BYPATH_DAEMON`, or beside this program.
fn library() -> Result<PathBuf> {
    let path = match std::env::var_os("BYPATH_DAEMON").filter(|value| !value.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe().map_err(|error| Failure::io("/proc/self/exe", &error))?.with_file_name(LIBRARY),
    };
    if !path.is_file() {
        let shown = path.display();
        return Err(Failure::new(format!("{shown}: not there; build it with `make`, or name it in BYPATH_DAEMON")));
    }
    std::path::absolute(&path).map_err(|error| Failure::io(path.display(), &error))
}

/// A directory that the daemon takes for its mount point.
fn empty_directory() -> Result<PathBuf> {
    for count in 0..1000u32 {
        let path = std::env::temp_dir().join(format!("bypath-fuse-{}-{count}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::io(path.display(), &error)),
        }
    }
    Err(Failure::new(format!("{}: no name is free for a mount point", OsStr::from_bytes(b"/tmp").display())))
}

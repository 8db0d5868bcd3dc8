//! A FUSE daemon: started with our library, or with a socket, in place of the kernel's
//! device, watched, started again if asked, ended with the session.

use super::daemon_log::DaemonLog;
use super::helper::{self, Helpers};
use super::proxy::{self, Proxy};
use super::shared_file::{SharedFile, Whose};
use super::spec::{Mount, Source};
use super::transport::{Transport, find, is_go_program, mount_flags};
use crate::failure::{Failure, Result};
use base::{Cred, Cx, Thread};
use fuse_client::ring::{RING_BYTES, Ring, daemon_state};
use fuse_client::{AWAY, DEFAULT_PERMISSIONS, MINOR, READ_ONLY, UNSPLICED, agree};
use pm::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The mount point of a daemon with a socket.
pub const SOCKET: &str = "/dev/fd/3";
/// Seconds that a request may take, unless the user says otherwise.
const TIMEOUT: u32 = 60;
/// The same where the daemon answers in time by itself.
const UNLIMITED: u32 = 7 * 86400;
/// How long a daemon may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(5);
/// The same for one of ours: files that programs have left open go to the store first.
const STORING: Duration = Duration::from_secs(120);
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
    into: Into,
    ring: Arc<Ring>,
    /// What the options say to the kernel's mount, where there is one.
    mount_flags: u32,
    restart: bool,
    closing: AtomicBool,
    child: Arc<Mutex<Option<Child>>>,
    log: DaemonLog,
}

/// What it takes to get requests into the daemon.
enum Into {
    Memory {
        library: PathBuf,
        path: PathBuf,
        directory: PathBuf,
    },
    Socket {
        proxy: Mutex<Option<Proxy>>,
        helpers: Helpers,
        said: u32,
    },
    /// It is one of ours, and looks for the ring itself.
    Ring {
        path: PathBuf,
    },
}

/// Why there is no daemon.
struct Refused {
    failure: Failure,
    /// What it answered.
    errno: Option<Errno>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused { failure, errno: None }
    }
}

/// What a proxy may know of its daemon.
pub struct Watched {
    shown: String,
    child: Arc<Mutex<Option<Child>>>,
}

impl Watched {
    /// For people.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether the process that was started has ended otherwise than by going into the background.
    pub fn has_failed(&self) -> bool {
        let Ok(mut child) = self.child.lock() else { return false };
        child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(status)) if !status.success()))
    }
}

impl Daemon {
    /// Starts the daemon of a mount and waits until it serves.
    pub fn start(mount: &Mount, words: &[OsString]) -> Result<Daemon> {
        if matches!(mount.source, Source::Objects(_)) {
            return Self::start_saying(mount, words, None, MINOR).map_err(|refused| refused.failure);
        }
        let transport = mount.options.transport.unwrap_or_else(|| Transport::of_program(&words[0]));
        if transport == Transport::Memory {
            return Self::start_saying(mount, words, Some(transport), MINOR).map_err(|refused| refused.failure);
        }
        Self::start_saying(mount, words, Some(transport), UNSPLICED).or_else(|refused| {
            // A library of Go's that knows no `splice` wants a newer version, and says so.
            if refused.errno != Some(Errno::EPROTO) || !is_go_program(&words[0]) {
                return Err(refused.failure);
            }
            Self::start_saying(mount, words, Some(transport), MINOR).map_err(|refused| refused.failure)
        })
    }

    /// `transport`: none for a daemon of ours.
    fn start_saying(
        mount: &Mount,
        words: &[OsString],
        transport: Option<Transport>,
        said: u32,
    ) -> std::result::Result<Daemon, Refused> {
        let shown = format!("{} at {}", mount.source.shown(), mount.shown_point());
        let file = SharedFile::make_whole("channel", RING_BYTES, Whose::of(mount))?;
        let text = [file.bytes(), b"\0"].concat();
        let ring = Ring::open(&text).map_err(|errno| Failure::errno(&shown, errno))?;
        if let Ok(header) = ring.header() {
            header.supervisor.store(pm::host::own_mark(), SeqCst);
            // A daemon of ours minds the time itself: an upload takes as long as it takes, if only it goes on.
            let seconds = if transport.is_some() { mount.options.timeout.unwrap_or(TIMEOUT) } else { UNLIMITED };
            header.timeout_ms.store(seconds.saturating_mul(1000), SeqCst);
        }
        let mut flags = if mount.options.read_only { READ_ONLY } else { 0 };
        if mount.options.default_permissions {
            flags |= DEFAULT_PERMISSIONS;
        }
        let (into, point) = match transport {
            None => (Into::Ring { path: file.path().to_path_buf() }, OsString::new()),
            Some(Transport::Memory) => {
                let (library, directory) = (crate::library::daemon()?, temporary_directory()?);
                let point = directory.clone().into_os_string();
                (Into::Memory { library, path: file.path().to_path_buf(), directory }, point)
            }
            Some(Transport::Socket) => {
                flags |= mount_flags(words);
                if let Ok(header) = ring.header() {
                    header.by_socket.store(1, SeqCst);
                }
                (Into::Socket { proxy: Mutex::new(None), helpers: Helpers::make()?, said }, SOCKET.into())
            }
        };
        let care = Arc::new(Care {
            words: words.iter().map(|word| if word == "@" { point.clone() } else { word.clone() }).collect(),
            into,
            ring: Arc::new(ring),
            mount_flags: flags,
            restart: mount.options.restart,
            closing: AtomicBool::new(false),
            child: Arc::new(Mutex::new(None)),
            log: DaemonLog::open(mount.options.log.as_deref())?,
            shown,
        });
        let (tell, ended) = channel_pair();
        let said = care.log.len();
        let life = care.spawn().inspect_err(|_| care.clear())?;
        let watched = Arc::clone(&care);
        std::thread::spawn(move || {
            watched.watch(life);
            drop(tell);
        });
        let daemon = Daemon { care, ended, file };
        let begun = daemon.care.begin();
        daemon.care.log.show_since(said);
        begun.map_err(|errno| Refused { errno: Some(errno), failure: daemon.care.not_begun(errno) })?;
        Ok(daemon)
    }

    /// Whether what it asks itself, a store of objects, did not answer when it began.
    pub fn is_away(&self) -> bool {
        self.care.ring.header().is_ok_and(|header| header.mount_flags.load(SeqCst) & AWAY != 0)
    }

    /// Path of the ring.
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
        let _ = self.care.ring.set_daemon_state(daemon_state::CLOSING);
        self.care.tell_end();
        // The watching thread ends with the daemon, and its end of this with it.
        // Ours may have something to store.
        let grace = if matches!(self.care.into, Into::Ring { .. }) { STORING } else { GRACE };
        if self.ended.recv_timeout(grace) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            self.care.kill();
            let _ = self.ended.recv_timeout(GRACE);
        }
        self.care.end_stranger();
        self.care.clear();
    }
}

impl Care {
    /// Starts the process; what is returned ends when it and all that it has become have ended.
    fn spawn(&self) -> Result<PipeReader> {
        self.ring.renew().map_err(|errno| Failure::errno(&self.shown, errno))?;
        let (life, held) = std::io::pipe().map_err(|error| Failure::io("pipe", &error))?;
        match &self.into {
            Into::Memory { library, path, .. } => self.spawn_with_library(library, path, held),
            Into::Socket { proxy, helpers, .. } => self.spawn_with_socket(proxy, helpers, held),
            Into::Ring { path } => self.spawn_with_ring(path, held),
        }?;
        Ok(life)
    }

    /// Its standard input holds the pipe; the library gives it another number.
    fn spawn_with_library(&self, library: &Path, ring: &Path, held: PipeWriter) -> Result<()> {
        let mut preload = library.to_path_buf().into_os_string();
        if let Some(present) = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty()) {
            preload.push(":");
            preload.push(present);
        }
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::from(held));
        command.env("LD_PRELOAD", preload).env("BYPATH_CHANNEL", ring);
        self.start_process(command)
    }

    fn spawn_with_ring(&self, ring: &Path, held: PipeWriter) -> Result<()> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::from(held)).env("BYPATH_CHANNEL", ring).env_remove("LD_PRELOAD");
        self.start_process(command)
    }

    /// A shell puts the socket, which is its standard input, where a daemon in the background
    /// leaves it alone, and becomes the daemon. The pipe is the proxy's.
    fn spawn_with_socket(&self, proxy: &Mutex<Option<Proxy>>, helpers: &Helpers, held: PipeWriter) -> Result<()> {
        let (ours, theirs) = proxy::pair()?;
        if find(&self.words[0]).is_none() {
            return Err(self.not_found());
        }
        let mut command = Command::new("/bin/sh");
        let script = format!("exec \"$@\" 3<&0 {}<&0 </dev/null", helper::SPARE);
        command.args(["-c", &script, "sh"]).args(&self.words).stdin(Stdio::from(theirs));
        helpers.lead(&mut command);
        self.start_process(command)?;
        let daemon = Watched { shown: self.shown.clone(), child: Arc::clone(&self.child) };
        let begun = Proxy::start(ours, &self.ring, daemon, held)?;
        if let Ok(mut place) = proxy.lock() {
            *place = Some(begun);
        }
        Ok(())
    }

    /// Where it prints. One of ours says little, and that to whoever started the session.
    fn output(&self) -> Result<Stdio> {
        if !matches!(self.into, Into::Ring { .. }) || self.log.is_named() {
            return self.log.output();
        }
        let ours = std::io::stderr().as_fd().try_clone_to_owned();
        ours.map(Stdio::from).map_err(|error| Failure::io("standard error", &error))
    }

    fn start_process(&self, mut command: Command) -> Result<()> {
        // What the terminal sends is for the program, not for its file systems.
        command.stdout(self.output()?).stderr(self.output()?).process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => self.not_found(),
            _ => Failure::io(self.words[0].display(), &error),
        })?;
        if let Ok(mut place) = self.child.lock() {
            *place = Some(child);
        }
        Ok(())
    }

    fn not_found(&self) -> Failure {
        Failure::new(format!("{}: {}: command not found", self.shown, self.words[0].display()))
    }

    /// Agrees with the daemon; from then on it serves.
    fn begin(&self) -> std::result::Result<(), Errno> {
        let thread = Thread::new();
        let said = if let Into::Socket { said, .. } = self.into { said } else { MINOR };
        agree(&self.ring, &Cx { cred: Cred::ROOT, umask: 0, thread: &thread }, said)?;
        let header = self.ring.header()?;
        header.mount_flags.fetch_or(self.mount_flags, SeqCst);
        self.ring.set_daemon_state(daemon_state::SERVING)
    }

    fn not_begun(&self, errno: Errno) -> Failure {
        let status = self.collect(Duration::from_millis(200));
        let by_socket = matches!(self.into, Into::Socket { .. });
        let is_ours = matches!(self.into, Into::Ring { .. });
        let why = match (status, errno) {
            // It has said why.
            (Some(_), Errno::ENOTCONN) if is_ours => "not mounted".to_string(),
            (Some(status), Errno::ENOTCONN) => format!("the daemon ended ({status}) before it served"),
            (None, Errno::ENOTCONN) if by_socket => "the daemon ended before it served".to_string(),
            // Its mark goes when a program becomes another.
            (None, Errno::ENOTCONN) => "the command became another program before it served; \
                name the daemon itself (`nice`, `env` or a script before it can stand before `bypath run`), or try carrier=socket"
                .to_string(),
            (_, Errno::EOPNOTSUPP) => "the daemon speaks no FUSE protocol that we know (7.19 to 7.40)".to_string(),
            (_, Errno::EPROTO) if by_socket => {
                "the daemon wants what a socket can't do, such as splice; it needs carrier=memory".to_string()
            }
            (_, Errno::ETIMEDOUT) if by_socket => {
                format!("the daemon does not answer; does it take a mount point {SOCKET}, or call fusermount?")
            }
            (_, Errno::ETIMEDOUT) => {
                "the daemon does not answer; does it use libfuse? If it calls the kernel by itself, try carrier=socket"
                    .to_string()
            }
            (_, other) => other.to_string(),
        };
        Failure::new(format!("{}: {why}", self.shown))
    }

    /// The status of the process that was started, once it has ended.
    fn collect(&self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            let status = self.child.lock().ok()?.as_mut()?.try_wait().ok()?;
            if status.is_some() || Instant::now() > until {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes what was made for the daemon away.
    fn clear(&self) {
        if let Into::Memory { directory, .. } = &self.into {
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// Has the daemon end; one with our library sees it in the ring.
    fn tell_end(&self) {
        let Into::Socket { proxy, .. } = &self.into else { return };
        let running = self.child.lock().ok().and_then(|mut child| {
            let child = child.as_mut()?;
            matches!(child.try_wait(), Ok(None)).then(|| child.id())
        });
        let asked = running.filter(|&pid| ends_by_signal(pid)).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        match (asked, proxy.lock()) {
            (Some(pid), _) => drop(kill_process(pid, Signal::TERM)),
            (None, Ok(proxy)) => drop(proxy.as_ref().map(Proxy::hang_up)),
            (None, Err(_)) => {}
        }
    }

    /// The status of what was started, when its life is over: with a socket, it may have left that
    /// and be about to end.
    fn over(&self) -> Option<ExitStatus> {
        let Into::Socket { proxy, .. } = &self.into else { return self.collect(Duration::from_millis(200)) };
        let status = self.collect(GRACE).or_else(|| {
            self.kill();
            self.collect(GRACE)
        });
        if let Some(proxy) = proxy.lock().ok().and_then(|mut proxy| proxy.take()) {
            proxy.end();
        }
        status
    }

    /// Ends a program that has not served: one that another has become has not our library, and mounts by the kernel.
    fn end_stranger(&self) {
        if !matches!(self.into, Into::Memory { .. }) || self.collect(Duration::from_millis(200)).is_some() {
            return;
        }
        let running = self.child.lock().ok().and_then(|child| child.as_ref().map(|child| child.id()));
        if let Some(pid) = running.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if self.collect(GRACE).is_none() {
            self.kill();
        }
    }

    fn kill(&self) {
        if let Into::Socket { proxy, .. } = &self.into {
            // The ring's daemon is the proxy: this process.
            if let Ok(proxy) = proxy.lock()
                && let Some(proxy) = proxy.as_ref()
            {
                proxy.hang_up();
            }
        } else {
            self.kill_serving();
        }
        if let Ok(mut child) = self.child.lock()
            && let Some(child) = child.as_mut()
        {
            let _ = child.kill();
        }
    }

    /// The process that serves: it may not be the one that was started.
    fn kill_serving(&self) {
        let pid = self.ring.header().map_or(0, |header| pm::host::pid_of(header.daemon.load(SeqCst)));
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|pid| pid.as_raw_nonzero().get() > 1) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Waits for the daemon's end, again and again if it is to be started again.
    fn watch(&self, mut life: PipeReader) {
        let (mut failures, mut is_first) = (0, true);
        loop {
            let begun = Instant::now();
            let _ = life.read(&mut [0]);
            if self.closing.load(SeqCst) {
                self.over();
                return;
            }
            let served = self.ring.header().is_ok_and(|header| header.daemon_state.load(SeqCst) == daemon_state::SERVING);
            let _ = self.ring.set_daemon_state(daemon_state::DEAD);
            let status = self.over();
            failures = if served && begun.elapsed() >= SHORT { 0 } else { failures + 1 };
            if !served && is_first {
                // Whoever starts it says so.
                return;
            }
            is_first = false;
            let how = status.map_or(String::new(), |status| format!(" ({status})"));
            let gives_up = !self.restart || failures > TRIES;
            let said = gives_up
                .then(|| self.log.keep())
                .flatten()
                .map_or(String::new(), |path| format!("; what it said is in {}", path.display()));
            if !self.restart {
                eprintln!("bypath: {}: the daemon ended{how}; its files are gone until it is mounted again{said}", self.shown);
                return;
            }
            if failures > TRIES {
                eprintln!("bypath: {}: the daemon ended{how} {failures} times in a row; not started again{said}", self.shown);
                return;
            }
            std::thread::sleep(Duration::from_millis(if failures > 1 { 50 << failures } else { 0 }));
            if self.closing.load(SeqCst) {
                return;
            }
            match self.spawn() {
                Ok(next) => life = next,
                Err(failure) => {
                    let _ = self.ring.set_daemon_state(daemon_state::DEAD);
                    eprintln!("bypath: {failure}");
                    return;
                }
            }
            if let Ok(header) = self.ring.header() {
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
                    let begun = self.ring.header().is_ok_and(|header| header.daemon_state.load(SeqCst) == daemon_state::SERVING);
                    if ended {
                        let _ = self.ring.set_daemon_state(daemon_state::DEAD);
                    }
                    if ended || begun {
                        break;
                    }
                }
                let _ = &mut second;
            });
            let result = self.begin();
            if result.is_err() {
                let _ = self.ring.set_daemon_state(daemon_state::DEAD);
                self.kill();
            }
            let _ = watcher.join();
            result
        })
    }
}

/// Whether SIGTERM makes a process end in good order, as it does those of libfuse. Others see that their socket
/// ends, of which libfuse complains. Go's runtime catches every signal, `SIGURG` too, which nobody
/// else wants, and ends at once by those that its program has not asked for.
fn ends_by_signal(pid: u32) -> bool {
    let caught = std::fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|text| {
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    let catches = |signal: Signal| caught.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 != 0);
    catches(Signal::TERM) && !catches(Signal::URG)
}

/// Whether the command of a daemon names the mount point: it may show what is there.
pub fn is_named(mount: &Mount) -> bool {
    let Source::Fuse(words) = &mount.source else { return false };
    let real = |path: &[u8]| std::fs::canonicalize(OsStr::from_bytes(path)).ok();
    let Some(point) = real(&mount.point) else { return false };
    words
        .iter()
        .flat_map(|word| word.as_bytes().split(|byte| b":=,".contains(byte)))
        .any(|part| real(part).as_ref() == Some(&point))
}

/// The command of the daemon of ours for a store of objects.
pub fn objects(mount: &Mount, address: &str) -> Result<Vec<OsString>> {
    let mut words = crate::bundled::with_loader(crate::library::objects()?);
    words.push(address.into());
    if let Some(seconds) = mount.options.timeout {
        words.push(format!("--timeout={seconds}").into());
    }
    if let Some(directory) = &mount.options.spool {
        words.push("--spool".into());
        words.push(directory.into());
    }
    if mount.options.posix {
        words.push("--posix".into());
    }
    if mount.options.cache.as_ref().is_some_and(|image| image.path.exists()) {
        words.push("--warm".into());
    }
    // Whoever writes back waits for all of it at once.
    if mount.options.close_later || mount.options.cache.is_some() {
        words.push("--later".into());
    }
    Ok(words)
}

/// An empty directory: for the daemon, who takes it for its mount point, or for what it finds.
pub fn temporary_directory() -> Result<PathBuf> {
    for count in 0..1000u32 {
        let path = std::env::temp_dir().join(format!("bypath-fuse-{}-{count}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::io(path.display(), &error)),
        }
    }
    Err(Failure::new(format!("{}: cannot create a unique name for a mount point", OsStr::from_bytes(b"/tmp").display())))
}

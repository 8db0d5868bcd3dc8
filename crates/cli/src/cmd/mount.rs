//! `bypath mount IMG DIR` and `bypath umount DIR`.
//!
//! The server is this program once more, in the foreground: `mount` starts it
//! and returns when it says that the mount answers. It ends with the mount.

use crate::args::Mount;
use crate::attach::{self, Attached, How};
use crate::cmd::{guard, inside};
use crate::failure::{Failure, Result};
use crate::mounts::cache::refuse_alone;
use crate::mounts::{in_place, linger, over};
use crate::place::split;
use base::{Cred, Cx, Errno, Thread};
use cache::{Cache, Changes, Origin};
use fuse_client::FuseClient;
use posix::environment;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use server::device::{self, MountError, Mounted, Wanted};
use server::fuse::Keepers;
use server::serve::Session;
use session::SessionCache;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vfs::Backend;
use vfs::cached::{Below, Cached};

/// What a server says when its mount answers, and when others still use it.
const READY: &str = "ready";
const SHARED: &str = "shared";
/// How long users of a mount that is taken away have to end.
const GRACE: Duration = Duration::from_secs(1);
/// How long a server waits for the one before it to end, and if that one's mount is gone already.
const HANDOVER: Duration = Duration::from_millis(500);
const HANDOVER_OF_GONE: Duration = Duration::from_secs(5);
/// How long `umount` waits for the server to end.
const LAST_WORK: Duration = Duration::from_secs(10);
/// How often a server that is no longer held looks for users of the image.
const LOOK: Duration = Duration::from_millis(50);

/// Mounts an image.
pub fn mount(args: &Mount) -> Result<u8> {
    refuse_inside(&args.image, &args.directory)?;
    if args.force {
        attach::take_over(&args.image)?;
    }
    if args.foreground {
        return serve(args).map(|()| 0);
    }
    let mut command = server_command(&args.image, &args.directory, args.threads, args.how())?;
    if let Some(log) = &args.log {
        command.arg("--log").arg(std::path::absolute(log).map_err(|error| Failure::io(log.display(), &error))?);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Failure::io("bypath mount", &error))?;
    if child.stdout.take().is_some_and(|out| says(&mut BufReader::new(out), READY)) {
        return Ok(0);
    }
    // It has said why.
    let status = child.wait().map_err(|error| Failure::io("bypath mount", &error))?;
    Ok(status.code().map_or(1, |code| code.max(1) as u8))
}

/// Refuses a directory inside an image (`IMG:/inside`), which cannot be mounted alone.
fn refuse_inside(image: &Path, directory: &Path) -> Result<()> {
    match split(image.as_os_str()) {
        Some((whole, inside)) if !image.exists() && whole.is_file() => {
            let (shown, whole, point) = (image.display(), whole.display(), directory.display());
            Err(Failure::new(format!(
                "{shown}: a directory inside an image cannot be mounted alone; write bypath mount {whole} {point} and use {point}{}",
                String::from_utf8_lossy(&inside)
            )))
        }
        _ => Ok(()),
    }
}

/// This program as a server of `image` at `directory`.
fn server_command(image: &Path, directory: &Path, threads: u8, how: How) -> Result<Command> {
    let own = std::env::current_exe().map_err(|error| Failure::io("/proc/self/exe", &error))?;
    let mut command = Command::new(own);
    command.args(["mount", "--foreground", "--announce", "--threads", &threads.to_string()]);
    if how.read_only {
        command.args(["-o", "ro"]);
    }
    if let Some(atomic) = how.atomic {
        command.arg("-o").arg(format!("atomic={}", atomic.name()));
    }
    command.arg(image).arg(directory);
    Ok(command)
}

fn says(from: &mut impl BufRead, word: &str) -> bool {
    let mut line = String::new();
    from.read_line(&mut line).is_ok() && line.trim_end() == word
}

/// A mount that lasts as long as a session, or as its longest user.
#[derive(Debug)]
pub struct SessionMount {
    /// Closed to let the server go.
    hold: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
    child: std::process::Child,
}

impl SessionMount {
    /// Mounts `image` at `directory`, which is free. `None` if this cannot be; the short way does without.
    pub fn start(image: &Path, directory: &Path, how: How) -> Option<SessionMount> {
        let mut command = server_command(image, directory, 4, how).ok()?;
        SessionMount::spawn(command.arg("--while-used"))
    }

    /// The same of a cache, whose directory is reached at `below`; how long `fsync` waits.
    pub fn start_cache(image: &Path, directory: &Path, how: How, (below, sync): (&OsStr, &str)) -> Option<SessionMount> {
        let mut command = server_command(image, directory, 4, how).ok()?;
        command.args(["--while-used", "--sync", sync, "--session", &std::process::id().to_string(), over::BELOW]).arg(below);
        SessionMount::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Option<SessionMount> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let hold = child.stdin.take();
        let mut out = BufReader::new(child.stdout.take()?);
        if says(&mut out, READY) {
            return Some(SessionMount { hold, says: out, child });
        }
        drop(hold);
        let _ = child.wait();
        None
    }

    /// Lets go. Returns when the mount is gone, or others go on using it. The
    /// image must have been left before, unless it is a cache. Whether they do.
    pub fn end(mut self) -> bool {
        drop(self.hold.take());
        if says(&mut self.says, SHARED) {
            return true;
        }
        let _ = self.child.wait();
        false
    }
}

/// Whether the kernel shows the image there already.
pub fn is_mounted(attached: &Attached, directory: &Path) -> bool {
    let thread = Thread::new();
    let served = attached.fs.server(&cx(&thread)).is_some();
    attached.fs.give_lane_back(&thread);
    served && std::fs::metadata(directory).is_ok_and(|meta| meta.dev() == attached.fs.device())
}

fn cx(thread: &Thread) -> Cx<'_> {
    Cx { cred: Cred::ROOT, umask: 0, thread }
}

/// Takes a mount away. Unless `lazy`, returns when its server has ended and the image may be
/// mounted again. Nothing here asks the server before: a stuck one could not be taken away.
pub fn umount(directory: &Path, lazy: bool) -> Result<u8> {
    let shown = directory.display();
    // Fails at a mount whose server is gone.
    let real = std::fs::canonicalize(directory).or_else(|error| match device::is_stale(directory) {
        true => std::path::absolute(directory),
        false => Err(error),
    });
    let real = real.map_err(|error| Failure::io(&shown, &error))?;
    let mounted = match device::mounted_at(&real) {
        Some(mounted) if mounted.kind == "fuse.bypath" => mounted,
        _ if linger::end(directory)? > 0 => return Ok(0),
        _ => return Err(Failure::new(format!("{shown}: no image is mounted there"))),
    };
    let server = if lazy { None } else { server_of(Path::new(&mounted.source), mounted.device) };
    match device::unmount(&real, lazy) {
        Ok(()) => {}
        Err(MountError::Failed(_, rustix::io::Errno::BUSY)) if device::is_stale(&real) => {
            device::unmount(&real, true).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
        }
        Err(MountError::Failed(_, rustix::io::Errno::BUSY)) => {
            return Err(Failure::new(format!(
                "{shown}: in use; end what uses it, or take it away lazily (`bypath umount --lazy`)"
            )));
        }
        Err(error) => return Err(Failure::new(format!("{shown}: {error}"))),
    }
    if let Some((pid, server)) = server
        && !ends(&server, &mounted)
    {
        eprintln!("bypath: {shown}: unmounted; the image can be mounted again when its server, process {pid}, has ended");
    }
    Ok(0)
}

/// The process that serves `image` by a mount with this `st_dev`, as far as we may know.
fn server_of(image: &Path, device: u64) -> Option<(u32, OwnedFd)> {
    // The source of a mount is what its maker calls so, and opening a device may do something.
    if !std::fs::metadata(image).is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    let attached = attach::attach(image).ok()?;
    let thread = Thread::new();
    let pid = attached.fs.server(&cx(&thread)).filter(|_| attached.fs.device() == device);
    attached.fs.give_lane_back(&thread);
    // Before the server leaves: the last one does more.
    attached.leave();
    let pid = pid?;
    // A number of another PID namespace is somebody else's here.
    let name = |pid: &str| std::fs::read(format!("/proc/{pid}/comm")).ok();
    let server = rustix::process::pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
    (name(&pid.to_string()) == name("self")).then_some((pid, server))
}

/// Waits until the server of a mount that was taken away ends, and with it its use of the image. Not
/// if other mount namespaces have the mount too; whether it has ended.
fn ends(server: &OwnedFd, mounted: &Mounted) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LAST_WORK {
        let slice = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match rustix::event::poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&slice)) {
            Ok(0) if device::is_mounted_for_others(Path::new(&mounted.source), mounted.device) => return false,
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            ended => return ended.is_ok(),
        }
    }
    false
}

// ---- the server ----

/// Where the server reports.
#[derive(Clone)]
struct Log(Option<Arc<Mutex<File>>>);

impl Log {
    fn open(path: Option<&Path>) -> Result<Log> {
        let Some(path) = path else { return Ok(Log(None)) };
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|error| Failure::io(path.display(), &error))?;
        Ok(Log(Some(Arc::new(Mutex::new(file)))))
    }

    fn say(&self, text: &str) {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let line = format!("{time:.3} bypath[{}]: {text}\n", std::process::id());
        if let Some(Ok(mut file)) = self.0.as_ref().map(|file| file.lock()) {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// Serves the mount until it is taken away.
fn serve(args: &Mount) -> Result<()> {
    let log = Log::open(args.log.as_deref())?;
    let shown = args.directory.display();
    let refused = |error: MountError| Failure::new(format!("{shown}: {error}"));
    // The shell's signals are for the shell's programs.
    if args.announce {
        let _ = rustix::process::setsid();
    }
    let (attached, _before) = in_place::attach(&args.image, args.how())?;
    let backend = backend_of(args, attached).inspect_err(|_| attached.leave())?;
    let thread = Thread::new();
    let mut claimed = attached.fs.start_serving(&cx(&thread));
    // One whose mount was taken away just now needs a moment to end; a session need not wait for that.
    let begun = Instant::now();
    let source = source_of(&args.image);
    let is_gone = || !args.while_used && !device::is_mounted(&source, attached.fs.device());
    while claimed.is_err() && (begun.elapsed() < HANDOVER || begun.elapsed() < HANDOVER_OF_GONE && is_gone()) {
        std::thread::sleep(Duration::from_millis(10));
        claimed = attached.fs.start_serving(&cx(&thread));
    }
    let pid = attached.fs.server(&cx(&thread));
    attached.fs.give_lane_back(&thread);
    if claimed.is_err() {
        attached.leave();
        let pid = pid.map_or_else(String::new, |pid| format!(" by process {pid}"));
        let place = std::fs::canonicalize(&args.directory).ok();
        let is_here =
            place.and_then(|place| device::mounted_at(&place)).is_some_and(|there| there.device == attached.fs.device());
        let place = if is_here { "there" } else { "elsewhere" };
        return Err(Failure::new(format!(
            "{}: already mounted {place}{pid}; an image has one kernel mount at a time, `bypath umount` that one",
            args.image.display()
        )));
    }
    let result = prepare(args).map_err(refused).and_then(|directory| {
        let trusted = is_trusted(&source) && args.below.as_deref().is_none_or(device::honours_rights);
        let wanted = Wanted { source: &source, directory: &directory, trusted, read_only: args.is_read_only() };
        let device = device::mount(&wanted).map_err(refused)?;
        let served = serve_mounted(args, &log, Attached { backend, ..attached }, device, &directory);
        if served.is_err() {
            let _ = device::unmount(&directory, true);
        }
        served
    });
    finish(attached, &log);
    result
}

/// Looks at the directory to be mounted on. What covers itself may be a mount already.
fn prepare(args: &Mount) -> std::result::Result<PathBuf, MountError> {
    match args.below.as_deref().is_some_and(is_through) {
        true => std::fs::canonicalize(&args.directory).map_err(|_| MountError::Missing),
        false => device::prepare(&args.directory),
    }
}

/// Whether a directory is reached through what a process has open: the mount is over it.
fn is_through(below: &Path) -> bool {
    below.starts_with("/proc")
}

/// The image, or the cache that it is.
fn backend_of(args: &Mount, attached: Attached) -> Result<&'static dyn Backend> {
    let Some(below) = &args.below else {
        refuse_alone(attached.fs, &args.image)?;
        return Ok(attached.backend);
    };
    let changes = match (args.is_read_only(), args.sync.as_str()) {
        (true, _) => Changes::Refused,
        (false, "image") => Changes::Image,
        (false, "journal") => Changes::Journal,
        _ => Changes::Backend,
    };
    let failed = |errno| Failure::errno(args.image.display(), errno);
    let below = below.as_os_str().as_bytes();
    let origin = match environment::parts(below) {
        Some((b"wire", session, ring)) => {
            Origin::Daemon(daemon_of_session(session, ring, args.is_read_only()).map_err(failed)?, b"")
        }
        _ => Origin::Directory(below),
    };
    let thread = Thread::new();
    let cache = Cache::new(&cx(&thread), attached.fs, &origin, changes).map_err(|error| failed(error.errno()))?;
    cache.give_lane_back(&thread);
    Ok(Box::leak(Box::new(cache)))
}

/// A session's daemon, which is reached as its programs reach it.
fn daemon_of_session(session: &[u8], ring: &[u8], read_only: bool) -> std::result::Result<&'static dyn Below, Errno> {
    let session = SessionCache::open(&[session, b"\0"].concat())?;
    let client = FuseClient::open(ring, session.device(), read_only)?;
    Ok(Box::leak(Box::new(Cached::new(client, session))))
}

/// What the mount of an image shows as its source.
fn source_of(image: &Path) -> PathBuf {
    std::fs::canonicalize(image).unwrap_or_else(|_| image.to_path_buf())
}

/// Only root could have put programs and devices into it.
fn is_trusted(image: &Path) -> bool {
    std::fs::metadata(image).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o022 == 0)
}

/// Those who may write the image.
fn keepers(image: &Path) -> Keepers {
    posix::namespace::look();
    match std::fs::metadata(image) {
        Ok(meta) => Keepers::of_file(meta.uid(), meta.gid(), meta.mode()),
        Err(_) => Keepers::of_file(0, 0, 0o600),
    }
}

fn serve_mounted(args: &Mount, log: &Log, attached: Attached, device: OwnedFd, directory: &Path) -> Result<()> {
    let fs = attached.fs;
    let at_end = |thread: &Thread| fs.give_lane_back(thread);
    // From now on a signal takes the mount away with it.
    watch_signals(attached, log.clone(), directory.to_path_buf())?;
    // From now on nobody here may touch the mount: who waits for his own answer cannot be killed.
    let number = device::mounted_at(directory).map(|mounted| mounted.device);
    // Before anybody is answered: who sees the mount answer finds its server by it.
    if let Some(number) = number {
        fs.set_device(number);
        device::read_ahead(number);
    }
    if let Err(error) = guard::start(number, directory, args.below.as_deref().is_some_and(is_through)) {
        log.say(&format!("there is no guard: {error}"));
    }
    let notices = |cx: &Cx, nap: i64, pass: &mut dyn FnMut(base::Stale)| fs.pass_notices(cx, nap, pass);
    let threads = usize::from(args.threads);
    let report = {
        let log = log.clone();
        move |text: &str| log.say(text)
    };
    let started = Session::start(device, attached.backend, keepers(&args.image), threads, notices, report, at_end);
    // A working directory would keep some other mount busy.
    let _ = std::env::set_current_dir("/");
    let session = started.map_err(|error| Failure::io("starting threads", &error))?;
    if number.is_none() {
        let meta = std::fs::metadata(directory).map_err(|error| Failure::io(directory.display(), &error))?;
        fs.set_device(meta.dev());
    }
    let watch = number.map(|number| {
        let log = log.clone();
        inside::Watch::start(attached, directory.to_path_buf(), number, move |text| log.say(text))
    });
    if let Some(Err(error)) = &watch {
        log.say(&format!("mounts inside the mount are not watched: {error}"));
    }
    log.say(&format!("{} is mounted at {}", args.image.display(), directory.display()));
    if args.announce {
        announce(READY)?;
        if args.while_used {
            watch_users(attached, log.clone(), directory.to_path_buf(), (args.below.is_some(), args.session));
        } else {
            keep_quiet();
        }
    }
    let ended = session.join(|| fs.wake_server());
    if let Some(Ok(watch)) = watch {
        watch.end();
    }
    ended.map_err(|errno| Failure::new(format!("{}: {}", directory.display(), std::io::Error::from(errno))))
}

fn announce(word: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}").and_then(|()| out.flush()).map_err(|error| Failure::io("standard output", &error))
}

/// Lets go of whatever the program that started us may wait for.
fn keep_quiet() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

fn finish(attached: Attached, log: &Log) {
    attached.fs.stop_serving();
    attached.leave();
    log.say("ended");
}

/// Unmounts and ends the program, with or without the mount's users.
fn give_up(attached: Attached, log: &Log, directory: &Path) -> ! {
    if let Err(error) = device::unmount(directory, true) {
        log.say(&format!("{}: {error}", directory.display()));
    }
    // The main thread ends the program as soon as nobody uses the mount.
    let begun = Instant::now();
    while begun.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(10));
    }
    log.say("there are users left; their open files end here");
    finish(attached, log);
    std::process::exit(0)
}

fn watch_signals(attached: Attached, log: Log, directory: PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| Failure::io("signals", &error))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            log.say(&format!("signal {signal}"));
            give_up(attached, &log, &directory);
        }
    });
    Ok(())
}

/// Ends the mount when whoever has started us is gone and nobody uses the image any more.
fn watch_users(attached: Attached, log: Log, directory: PathBuf, (is_cache, session): (bool, Option<u32>)) {
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        let thread = Thread::new();
        let mut said = false;
        while attached.fs.others(&cx(&thread)) && (!is_cache || over::is_used(&attached, session)) {
            if !said {
                let _ = announce(SHARED);
                keep_quiet();
                said = true;
            }
            std::thread::sleep(LOOK);
        }
        attached.fs.give_lane_back(&thread);
        log.say("nobody uses the image any more");
        give_up(attached, &log, &directory);
    });
}

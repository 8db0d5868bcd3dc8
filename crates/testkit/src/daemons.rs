//! Programs and FUSE daemons under load, both killed at random.
//!
//! A session of `bypath run` has four mounts of `bindfs`, started again when they end;
//! in it ten client processes read, write, list and make files that say which daemon
//! they belong to. Daemons and clients are killed with `SIGKILL`. A call may fail as one
//! to a dead daemon may; it may not take longer than the time-out of a request, it may not
//! give another file's contents, and when the killing is over every daemon is back.

use crate::rng::Rng;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DAEMONS: u64 = 4;
const FILES: u64 = 20;
/// Time-out of a request, seconds.
const TIMEOUT: u64 = 10;
/// What a loaded machine may add to it before a client gets its processor.
const SLACK: Duration = Duration::from_secs(5);
/// A daemon that is killed younger than that counts as one that fails to start.
const AGE: Duration = Duration::from_millis(1300);
/// The end of the time, in which nobody is killed any more.
const QUIET: Duration = Duration::from_secs(3);

fn text(daemon: u64, file: u64) -> String {
    format!("file {file} of daemon {daemon}\n")
}

fn point(daemon: u64) -> PathBuf {
    PathBuf::from(format!("/bypath-daemons-{daemon}"))
}

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the whole for `seconds`; `bypath` is the program.
pub fn daemons(bypath: &Path, clients: u64, seconds: u64, seed: u64) -> Result<String, String> {
    let scratch = Scratch(std::env::temp_dir().join(format!("bypath-daemons-{}", std::process::id())));
    let mut command = Command::new(bypath);
    command.args(["run", "--no-fuse"]);
    for daemon in 0..DAEMONS {
        let dir = scratch.0.join(daemon.to_string());
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for file in 0..FILES {
            fs::write(dir.join(format!("f{file}")), text(daemon, file)).map_err(|e| e.to_string())?;
        }
        let (dir, point) = (dir.display(), point(daemon));
        command.arg("--mount").arg(format!("fuse:bindfs -f {dir} @:{},restart,timeout={TIMEOUT}", point.display()));
    }
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    command.arg("--").arg(own).args(["daemons", "--clients", &clients.to_string()]);
    command.args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]);
    let begun = Instant::now();
    let mut session = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("{}: {e}", bypath.display()))?;
    let killed = kill_daemons(&mut session, begun + Duration::from_secs(seconds).saturating_sub(QUIET), &mut Rng::new(seed));
    let mut said = String::new();
    if let Some(mut out) = session.stdout.take() {
        out.read_to_string(&mut said).map_err(|e| e.to_string())?;
    }
    let status = session.wait().map_err(|e| e.to_string())?;
    let said = said.trim_end();
    if !status.success() {
        return Err(format!("seed {seed}, {killed} daemons killed: {said} ({status})"));
    }
    Ok(format!("seed {seed}, {:.0} s, {killed} daemons killed, {said}", begun.elapsed().as_secs_f64()))
}

/// Process and parent, of all whose program is called `name`.
fn processes(name: &str) -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, rest) = text.rsplit_once(") ")?;
        let parent = rest.split(' ').nth(1)?.parse().ok()?;
        head.ends_with(&format!("({name}")).then_some((pid, parent))
    };
    entries.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn kill(pid: u32) {
    // SAFETY: a signal to a process that descends from this one.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
}

fn kill_daemons(session: &mut Child, until: Instant, rng: &mut Rng) -> u64 {
    let (mut seen, mut killed) = (HashMap::new(), 0);
    while Instant::now() < until && matches!(session.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(50 + rng.below(300)));
        let now = Instant::now();
        let ours: Vec<u32> =
            processes("bindfs").into_iter().filter(|&(_, parent)| parent == session.id()).map(|(pid, _)| pid).collect();
        let grown: Vec<u32> = ours.into_iter().filter(|&pid| now - *seen.entry(pid).or_insert(now) > AGE).collect();
        if !grown.is_empty() {
            kill(grown[rng.below(grown.len() as u64) as usize]);
            killed += 1;
        }
    }
    killed
}

/// Inside the session: starts the clients, kills some, and starts others in their place.
pub fn clients(count: u64, seconds: u64, seed: u64) -> Result<String, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let whole = Duration::from_secs(seconds);
    let (mut rng, mut number) = (Rng::new(seed ^ 0xc11e), 0);
    let mut start = |left: Duration| {
        number += 1;
        let mut command = Command::new(&own);
        command.args(["daemons", "--client", &number.to_string(), "--millis", &left.as_millis().to_string()]);
        command.stdout(Stdio::piped()).spawn().map_err(|e| format!("client: {e}"))
    };
    let mut running = Vec::new();
    for _ in 0..count {
        running.push(start(whole)?);
    }
    let mut killed = 0;
    while begun.elapsed() + QUIET < whole {
        std::thread::sleep(Duration::from_millis(50 + rng.below(300)));
        let which = rng.below(count) as usize;
        if let Ok(Some(_)) = running[which].try_wait() {
            break;
        }
        kill(running[which].id());
        let _ = running[which].wait();
        running[which] = start(whole.saturating_sub(begun.elapsed()))?;
        killed += 1;
    }
    let (mut calls, mut failed, mut longest, mut wrong) = (0, 0, 0, Vec::new());
    for child in running {
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [of, failures, ms] if output.status.success() => {
                (calls, failed, longest) = (calls + of, failed + failures, longest.max(ms));
            }
            _ => wrong.push(format!("a client: {} ({})", said.trim_end(), output.status)),
        }
    }
    let text = format!(
        "{killed} of {count} clients killed, {calls} calls by the last ones, {failed} of them failed, the longest took {longest} ms"
    );
    if wrong.is_empty() { Ok(text) } else { Err(format!("{text}; {}", wrong.join("; "))) }
}

/// What a call to a daemon that has died, or to what it knew, may be answered.
fn may_fail(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::EIO | libc::ETIMEDOUT | libc::ESTALE))
}

struct Client {
    rng: Rng,
    number: u64,
    /// A file of each daemon that stays open while it is killed.
    open: Vec<Option<(u64, File)>>,
    calls: u64,
    failed: u64,
    longest: Duration,
}

/// One client: works for `millis`, then wants every daemon back. Its calls, those that failed, the longest in milliseconds.
pub fn client(number: u64, millis: u64) -> Result<String, String> {
    let begun = Instant::now();
    let open = (0..DAEMONS).map(|_| None).collect();
    let mut client = Client { rng: Rng::new(number), number, open, calls: 0, failed: 0, longest: Duration::ZERO };
    while begun.elapsed() < Duration::from_millis(millis) {
        client.step()?;
    }
    for daemon in 0..DAEMONS {
        let asked = Instant::now();
        while !client.reads(daemon, 0)? {
            if asked.elapsed() > Duration::from_secs(TIMEOUT) + SLACK {
                return Err(format!("daemon {daemon} did not come back"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(format!("{} {} {}", client.calls, client.failed, client.longest.as_millis()))
}

impl Client {
    /// Makes a call: its time is looked at, and how it failed if it did.
    fn call<T>(&mut self, what: &str, call: impl FnOnce() -> std::io::Result<T>) -> Result<Option<T>, String> {
        let begun = Instant::now();
        let result = call();
        let took = begun.elapsed();
        self.calls += 1;
        self.longest = self.longest.max(took);
        if took > Duration::from_secs(TIMEOUT) + SLACK {
            return Err(format!("{what} took {} ms", took.as_millis()));
        }
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if may_fail(&error) => {
                self.failed += 1;
                Ok(None)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    fn is_right(&self, what: &str, found: &str, wanted: &str) -> Result<(), String> {
        if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?} instead of {wanted:?}")) }
    }

    /// Opens and reads a file; whether that could be done.
    fn reads(&mut self, daemon: u64, file: u64) -> Result<bool, String> {
        let path = point(daemon).join(format!("f{file}"));
        let Some(mut opened) = self.call("open", || File::open(&path))? else { return Ok(false) };
        let mut room = [0u8; 100];
        let Some(len) = self.call("read", || opened.read(&mut room))? else { return Ok(false) };
        self.is_right("read", &String::from_utf8_lossy(&room[..len]), &text(daemon, file))?;
        Ok(true)
    }

    fn step(&mut self) -> Result<(), String> {
        let (daemon, file) = (self.rng.below(DAEMONS), self.rng.below(FILES));
        let path = point(daemon).join(format!("f{file}"));
        match self.rng.below(6) {
            0 | 1 => self.reads(daemon, file).map(drop),
            2 => match self.call("stat", || fs::metadata(&path))? {
                Some(about) if about.len() != text(daemon, file).len() as u64 => Err(format!("stat: {} bytes", about.len())),
                _ => Ok(()),
            },
            3 => self.reads_open(daemon, file),
            4 => self.makes(daemon),
            _ => {
                let list = || fs::read_dir(point(daemon))?.collect::<std::io::Result<Vec<_>>>();
                let Some(entries) = self.call("list", list)? else { return Ok(()) };
                let named = |file: u64| entries.iter().any(|entry| entry.file_name() == format!("f{file}").as_str());
                match (0..FILES).find(|&file| !named(file)) {
                    Some(file) => Err(format!("list: f{file} is not among {} entries", entries.len())),
                    None => Ok(()),
                }
            }
        }
    }

    /// Reads a file that was opened long ago, perhaps in an earlier life of its daemon.
    fn reads_open(&mut self, daemon: u64, file: u64) -> Result<(), String> {
        let path = point(daemon).join(format!("f{file}"));
        if self.open[daemon as usize].is_none() || self.rng.one_in(50) {
            self.open[daemon as usize] = self.call("open", || File::open(&path))?.map(|opened| (file, opened));
        }
        let Some((file, opened)) = self.open[daemon as usize].take() else { return Ok(()) };
        let mut room = [0u8; 100];
        if let Some(len) = self.call("pread", || opened.read_at(&mut room, 0))? {
            self.is_right("pread", &String::from_utf8_lossy(&room[..len]), &text(daemon, file))?;
        }
        self.open[daemon as usize] = Some((file, opened));
        Ok(())
    }

    /// Makes a file of its own, writes it, reads it, removes it.
    fn makes(&mut self, daemon: u64) -> Result<(), String> {
        let path = point(daemon).join(format!("own-{}-{}", self.number, self.calls));
        let wanted = format!("client {} call {}", self.number, self.calls);
        let make = || OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let Some(mut file) = self.call("create", make)? else { return Ok(()) };
        if self.call("write", || file.write_all(wanted.as_bytes()))?.is_some() {
            let mut room = [0u8; 100];
            if let Some(len) = self.call("pread", || file.read_at(&mut room, 0))? {
                self.is_right("own file", &String::from_utf8_lossy(&room[..len]), &wanted)?;
            }
        }
        drop(file);
        self.call("unlink", || match fs::remove_file(&path) {
            // Done by the daemon that died before it said so.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        })?;
        Ok(())
    }
}

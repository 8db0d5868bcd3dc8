//! A process that works on command: `job bytes n` on a line of its standard input,
//! what it has [`Spent`] on one of its output.

use crate::calls::{Api, Calls, Libc, text};
use libc::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
use std::ffi::{CStr, OsString};
use std::io::{BufRead, Write};
use std::time::Instant;

/// Files that `stat` goes round.
const FILES: usize = 100;

/// What a job took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Nanoseconds.
    pub ns: u64,
    /// Of them inside the file system's own operations, as far as it says.
    pub real_ns: u64,
    /// Calls.
    pub calls: u64,
    /// Voluntary context switches of this process and of the daemon's.
    pub switches: u64,
    /// Of results, the same by every way.
    pub sum: u64,
}

impl Spent {
    /// From a worker's line.
    pub fn parse(line: &str) -> Option<Spent> {
        let words: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [ns, real_ns, calls, switches, sum] = words[..] else { return None };
        Some(Spent { ns, real_ns, calls, switches, sum })
    }
}

/// `libc DIR` or `api SOURCE`.
pub fn serve(args: &[OsString]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    let [how, place] = words[..] else { return Err("worker: how, place".into()) };
    let place = text(place.to_string());
    match how {
        "libc" => {
            if Libc.chdir(&place) != 0 {
                return Err(format!("{place:?}: {}", std::io::Error::last_os_error()));
            }
            work(&Libc)
        }
        "api" => work(&Api::open(&place)?),
        _ => Err(format!("worker: {how}?")),
    }
}

fn work<C: Calls>(calls: &C) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let mut say = |text: String| out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| e.to_string());
    say("ready\n".into())?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let words: Vec<&str> = line.split('\t').collect();
        let [job, bytes, n] = words[..] else { break };
        let (bytes, n) = (bytes.parse().map_err(|_| "worker: bytes")?, n.parse().map_err(|_| "worker: calls")?);
        let s = run(calls, job, bytes, n);
        say(format!("{} {} {} {} {}\n", s.ns, s.real_ns, s.calls, s.switches, s.sum))?;
    }
    Ok(())
}

/// One job: `n` calls, of `bytes` each where that means anything.
fn run<C: Calls>(calls: &C, job: &str, bytes: usize, n: usize) -> Spent {
    let mut buffer = vec![b'x'; bytes.max(1)];
    match job {
        "write" => with_file(calls, c"bulk", O_WRONLY | O_CREAT | O_TRUNC, |fd| {
            timed(calls, n, |i| calls.pwrite(fd, &buffer, (i * bytes) as u64) as u64)
        }),
        "read" => with_file(calls, c"bulk", O_RDONLY, |fd| {
            timed(calls, n, |i| calls.pread(fd, &mut buffer, (i * bytes) as u64) as u64 + u64::from(buffer[bytes - 1]))
        }),
        "dummy write" => with_file(calls, c"dummy", O_RDWR, |fd| timed(calls, n, |_| calls.pwrite(fd, &buffer, 0) as u64)),
        "dummy read" => with_file(calls, c"dummy", O_RDWR, |fd| timed(calls, n, |_| calls.pread(fd, &mut buffer, 0) as u64)),
        "create+close" => {
            let files: Vec<_> = (0..n).map(|i| text(format!("new{i:06}"))).collect();
            let spent = timed(calls, n, |i| {
                let fd = calls.open(&files[i], O_WRONLY | O_CREAT | O_EXCL);
                assert!(fd >= 0, "create: {}", std::io::Error::last_os_error());
                calls.close(fd) as u64 + 1
            });
            files.iter().for_each(|file| assert_eq!(calls.unlink(file), 0, "unlink"));
            spent
        }
        "stat" => {
            let files: Vec<_> = (0..FILES).map(|i| text(format!("file{i:03}"))).collect();
            for file in &files {
                with_file(calls, file, O_WRONLY | O_CREAT, |fd| timed(calls, 1, |_| calls.pwrite(fd, b"seven b", 0) as u64));
                calls.stat(file);
            }
            timed(calls, n, |i| calls.stat(&files[i % FILES]) as u64)
        }
        other => panic!("no such job: {other}"),
    }
}

fn with_file<C: Calls>(calls: &C, path: &CStr, flags: i32, job: impl FnOnce(i32) -> Spent) -> Spent {
    let fd = calls.open(path, flags);
    assert!(fd >= 0, "open {path:?}: {}", std::io::Error::last_os_error());
    let spent = job(fd);
    assert_eq!(calls.close(fd), 0, "close");
    spent
}

/// Nanoseconds in the file system's operations, and context switches of it and of this process.
fn counters<C: Calls>(calls: &C) -> (u64, u64) {
    let mut text = [0u8; 64];
    let len = usize::try_from(calls.getxattr(c".", c"user.spent", &mut text)).unwrap_or(0);
    let words: Vec<u64> = String::from_utf8_lossy(&text[..len]).split(' ').filter_map(|word| word.parse().ok()).collect();
    // SAFETY: all zero is a valid one.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for the result.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut used) };
    let own = used.ru_nvcsw as u64;
    match words[..] {
        // In process both are the same counter.
        [real, theirs] if theirs == own => (real, own),
        [real, theirs] => (real, own + theirs),
        _ => (0, own),
    }
}

#[inline(always)]
fn timed<C: Calls>(calls: &C, n: usize, mut each: impl FnMut(usize) -> u64) -> Spent {
    let mut sum = 0u64;
    let before = counters(calls);
    let start = Instant::now();
    for i in 0..n {
        sum = sum.wrapping_add(each(i));
    }
    let ns = start.elapsed().as_nanos() as u64;
    let after = counters(calls);
    let switches = after.1.saturating_sub(before.1);
    Spent { ns, real_ns: after.0.saturating_sub(before.0), calls: n as u64, switches, sum }
}

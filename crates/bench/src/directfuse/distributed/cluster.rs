//! A CephFS cluster of this machine's, for one run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What brings it up, and down again; the tests' own.
const SCRIPT: &str = include_str!("../../../../../tests/cluster/mini-ceph.sh");
/// Programs that it needs, and ceph's clients.
const PROGRAMS: [&str; 7] = ["ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "bc"];

/// How long its processes may take to end.
const GRACE: Duration = Duration::from_secs(3);

/// `Err`: what is missing, and how to have it.
pub fn is_there() -> Result<(), String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &&str| std::env::split_paths(&paths).any(|dir| dir.join(program).exists());
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !has(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} not installed: the figure needs a CephFS cluster of this machine's (Debian: ceph-mon ceph-mgr ceph-osd ceph-mds \
         ceph-common ceph-fuse bc)",
        missing.join(", ")
    ))
}

/// It, until it is dropped.
pub struct Cluster {
    /// How many object servers it has.
    pub servers: u32,
    scratch: PathBuf,
}

impl Cluster {
    /// Starts one in `scratch`, which goes with it.
    pub fn start(scratch: &Path, servers: u32) -> Result<Cluster, String> {
        let fail = |e: std::io::Error| format!("{}: {e}", scratch.display());
        std::fs::create_dir_all(scratch).map_err(fail)?;
        let cluster = Cluster { servers, scratch: scratch.to_path_buf() };
        std::fs::write(cluster.script(), SCRIPT).map_err(fail)?;
        let log = cluster.log("cluster")?;
        let mut command = cluster.command("start");
        // A port that no other cluster of the machine's has, as far as one can tell.
        command.env("NOSD", servers.to_string()).env("PORT", (21000 + std::process::id() % 20000).to_string());
        command.env("SIZE", (8u64 << 30).to_string());
        let command = command.stdout(log.try_clone().map_err(fail)?).stderr(log);
        let status = command.status().map_err(|e| format!("bash: {e}"))?;
        if status.success() { Ok(cluster) } else { Err(format!("the cluster does not start: {}", cluster.last_words("cluster"))) }
    }

    fn script(&self) -> PathBuf {
        self.scratch.join("mini-ceph.sh")
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new("bash");
        command.arg(self.script()).arg(what).arg(self.place()).stdin(Stdio::null());
        command
    }

    /// Where its configuration and key are.
    pub fn place(&self) -> PathBuf {
        self.scratch.join("ceph")
    }

    /// A file or directory of the run's.
    pub fn own(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// What somebody says goes there.
    pub fn log(&self, name: &str) -> Result<std::fs::File, String> {
        let path = self.own(&format!("{name}.log"));
        std::fs::File::create(&path).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The end of what it has said.
    pub fn last_words(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.own(&format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join("; ")
    }

    /// Its processes.
    fn pids(&self) -> Vec<u32> {
        let files = std::fs::read_dir(self.place().join("run")).into_iter().flatten().flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "pid"));
        files.filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok()).collect()
    }

    /// Hundredths of a second that they have had of the processors.
    fn ticks(&self) -> u64 {
        let of = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let words: Vec<u64> = stat.rsplit_once(") ")?.1.split(' ').map(|word| word.parse().unwrap_or(0)).collect();
            Some(words.get(11)? + words.get(12)?)
        };
        self.pids().into_iter().filter_map(of).sum()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let pids = self.pids();
        let _ = self.command("stop").stdout(Stdio::null()).stderr(Stdio::null()).status();
        // Who has lost the others may wait for them for minutes.
        let until = Instant::now() + GRACE;
        while pids.iter().any(|pid| pm::host::is_alive(*pid)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        for pid in pids.into_iter().filter(|pid| pm::host::is_alive(*pid)) {
            // SAFETY: a number; it was ours a moment ago, and still is what it was.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// How busy the processors have been so far, hundredths of a second.
pub struct Busy {
    cluster: u64,
    all: u64,
}

impl Busy {
    /// Until now.
    pub fn now(cluster: &Cluster) -> Busy {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = stat.lines().next().unwrap_or_default();
        let words: Vec<u64> = first.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // But for those at rest, and waiting for a disk.
        let all = words.iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks).sum();
        Busy { cluster: cluster.ticks(), all }
    }

    /// Which part of it was the cluster's since then.
    pub fn share_since(&self, before: &Busy) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.cluster.saturating_sub(before.cluster) as f64 / all as f64 }
    }
}

//! A client: a process with a mount of the cluster of its own, which works on command.

use super::cluster::Cluster;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of a call.
const CALL: usize = 1 << 20;

/// How long another's file may take to be seen.
const LOOK: Duration = Duration::from_secs(60);

/// How a client gets to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// `ceph-fuse`, mounted by the kernel.
    Kernel,
    /// The same by the ring.
    Ring,
    /// … behind a cache image.
    Cache,
}

impl Way {
    /// All.
    pub const ALL: [Way; 3] = [Way::Kernel, Way::Ring, Way::Cache];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Way::Kernel => "kernel FUSE",
            Way::Ring => "ring",
            Way::Cache => "ring and cache image",
        }
    }
}

/// A client.
pub struct Node {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    shown: String,
    words: PathBuf,
    image: Option<PathBuf>,
}

impl Node {
    /// Starts one; it mounts the cluster by itself.
    pub fn start(cluster: &Cluster, way: Way, number: usize) -> Result<Node, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let name = format!("node{number}");
        let point = cluster.own(&name);
        std::fs::create_dir_all(&point).map_err(|e| format!("{}: {e}", point.display()))?;
        let (conf, keyring) = (cluster.place().join("ceph.conf"), cluster.place().join("keyring"));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--"]);
        let mut image = None;
        if way == Way::Kernel {
            // It ends with its mount, and that with the namespace; the worker's end is waited for first.
            let script = "ceph-fuse -c \"$1\" -k \"$2\" --pid_file \"$3.$$.pid\" \"$3\" >&2 </dev/null && \
                { \"$4\" bench directfuse --worker node \"$3\"; umount \"$3\"; }";
            command.args(["sh", "-c", script, "sh"]).args([&conf, &keyring, &point, &own]);
        } else {
            // Who may have no namespace needs none.
            // SAFETY: no arguments.
            if unsafe { libc::geteuid() } != 0 {
                command = Command::new("env");
            }
            let mut mount = format!("ceph:/:{},conf={},keyring={}", point.display(), conf.display(), keyring.display());
            if way == Way::Cache {
                let path = Path::new("/dev/shm").join(format!("bypath-directfuse-{}-{name}.img", std::process::id()));
                mount += &format!(",cache={}:512M", path.display());
                image = Some(path);
            }
            command.arg(&own).args(["run", "--no-fuse", "--mount", &mount, "--"]);
            command.arg(&own).args(["bench", "directfuse", "--worker", "node"]).arg(&point);
        }
        let words = cluster.own(&format!("{name}.log"));
        command.stderr(cluster.log(&name)?).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", way.name()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else { return Err("worker: no pipes".into()) };
        Ok(Node { child, to: Some(to), from: BufReader::new(from), shown: way.name().into(), words, image })
    }

    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) | Err(_) => {
                let said = std::fs::read_to_string(&self.words).unwrap_or_default();
                let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_string();
                Err(format!("{}: a client has ended: {said}", self.shown))
            }
            Ok(_) => Ok(line.trim_end().to_string()),
        }
    }

    /// It has its mount.
    pub fn wait_until_ready(&mut self) -> Result<(), String> {
        match self.hear()?.as_str() {
            "ready" => Ok(()),
            other => Err(format!("{}: {other}", self.shown)),
        }
    }

    /// Has it do something.
    pub fn tell(&mut self, what: &str) -> Result<(), String> {
        let to = self.to.as_mut().ok_or("worker: no pipe")?;
        to.write_all(format!("{what}\n").as_bytes()).and_then(|()| to.flush()).map_err(|e| format!("worker: {e}"))
    }

    /// The checksum of what it has done.
    pub fn answer(&mut self) -> Result<u64, String> {
        let line = self.hear()?;
        line.parse().map_err(|_| format!("{}: {line}", self.shown))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It ends with its input.
        self.to = None;
        let _ = self.child.wait();
        for path in
            self.image.iter().flat_map(|image| [image.clone(), PathBuf::from(format!("{}.bypath-cache", image.display()))])
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What it does: `write`, `look` until it is there, `read`, `again` or `remove`, a number of a file, MiB.
pub fn serve(point: &OsString) -> Result<(), String> {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let words: Vec<&str> = line.split('\t').collect();
        let [job, number, mib] = words[..] else { return Err(format!("{line}?")) };
        let path = Path::new(point).join(format!("file{number}"));
        let number: u64 = number.parse().map_err(|_| "a number".to_string())?;
        match work(job, &path, number, mib.parse().unwrap_or(0)) {
            Ok(sum) => println!("{sum}"),
            Err(error) => println!("{job} {}: {error}", path.display()),
        }
    }
    Ok(())
}

fn work(job: &str, path: &Path, number: u64, mib: u64) -> std::io::Result<u64> {
    let mut bytes = vec![0u8; CALL];
    let mut sum = 0u64;
    match job {
        "write" => {
            let mut file = File::create(path)?;
            for call in 0..mib {
                fill(&mut bytes, number << 32 | call);
                sum = sum.wrapping_add(checksum(&bytes));
                file.write_all(&bytes)?;
            }
            file.sync_all()?;
        }
        "read" | "again" => {
            let mut file = File::open(path)?;
            for _ in 0..mib {
                file.read_exact(&mut bytes)?;
                sum = sum.wrapping_add(checksum(&bytes));
            }
        }
        // Behind a cache what others have made is seen within seconds.
        "look" => {
            let until = Instant::now() + LOOK;
            while Instant::now() < until && std::fs::metadata(path).map_or(0, |about| about.len()) != mib << 20 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        _ => std::fs::remove_file(path)?,
    }
    Ok(sum)
}

fn fill(bytes: &mut [u8], seed: u64) {
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seed ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_ne_bytes());
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0u64, |sum, word| {
        let mut own = [0; 8];
        own.copy_from_slice(word);
        sum.rotate_left(5).wrapping_add(u64::from_ne_bytes(own))
    })
}

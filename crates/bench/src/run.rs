//! The rounds: every call on every target in turn, again and again, so that a
//! slow minute of the machine hits all of them.

use crate::Options;
use crate::work::ROWS;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// How many do it at once.
const MODES: [(&str, usize, usize); 3] = [("1 thread", 1, 1), ("2 threads", 1, 2), ("2 processes", 2, 1)];

/// Everything that was measured.
#[derive(Serialize)]
pub struct Results {
    /// Where.
    pub environment: Environment,
    /// Names of the targets; the first is the one the ratios refer to.
    pub targets: Vec<String>,
    /// A row for each call and mode.
    pub rows: Vec<Measured>,
}

/// The machine.
#[derive(Serialize)]
pub struct Environment {
    /// Processor.
    pub cpu: String,
    /// Kernel release.
    pub kernel: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Rounds, and calls in each.
    pub rounds: usize,
    /// Calls a round.
    pub calls: usize,
    /// Entries of the listed directory.
    pub entries: usize,
    /// Which program.
    pub version: &'static str,
}

/// One call in one mode.
#[derive(Serialize)]
pub struct Measured {
    /// Name of the call.
    pub call: String,
    /// Name of the mode.
    pub mode: String,
    /// What `DESIGN` §9 asks for, against the first target.
    pub target: Option<f64>,
    /// Median nanoseconds a call, by target.
    pub ns: Vec<f64>,
    /// Best round, by target.
    pub best_ns: Vec<f64>,
    /// Checksum of the work, by target.
    pub checksum: Vec<u64>,
}

impl Results {
    /// Whether all targets gave the same results.
    pub fn same_work(&self) -> bool {
        self.rows.iter().all(|row| row.checksum.iter().all(|sum| *sum == row.checksum[0]))
    }
}

/// Removes what a run has made.
struct Cleanup(Vec<PathBuf>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
    }
}

/// A worker process and the ends of its pipes.
struct Worker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Worker {
    fn say(&mut self, text: &str) -> Result<(), String> {
        self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()).map_err(|e| format!("worker: {e}"))
    }

    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err(format!("a worker has ended: {:?}", self.child.wait())),
            Ok(_) => Ok(line.trim_end().to_string()),
            Err(error) => Err(format!("worker: {error}")),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.say("\n");
        let _ = self.child.wait();
    }
}

/// A way to a file system.
struct Target {
    name: String,
    workers: Vec<Worker>,
}

struct Sizes {
    rounds: usize,
    calls: usize,
    entries: usize,
}

/// Starts worker `number`: how, where, and what else is in its environment.
fn start(
    words: &[&str],
    sizes: &Sizes,
    number: usize,
    how: &str,
    place: &Path,
    environment: &[(&str, String)],
) -> Result<Worker, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.args(words).arg("--worker").arg(how).arg(place);
    command.args([number.to_string(), sizes.calls.to_string(), sizes.entries.to_string()]);
    command.envs(environment.iter().map(|(k, v)| (*k, v.as_str())));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| format!("worker: {e}"))?;
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else { return Err("worker: no pipes".into()) };
    Ok(Worker { child, to, from: BufReader::new(from) })
}

fn target(
    words: &[&str],
    sizes: &Sizes,
    name: &str,
    how: &str,
    place: &Path,
    environment: &[(&str, String)],
) -> Result<Target, String> {
    let mut workers = Vec::new();
    for number in 0..2 {
        let mut worker = start(words, sizes, number, how, place, environment)?;
        // One after the other: the first one's files are there when the second begins.
        if worker.hear().map_err(|e| format!("{name}: {e}"))? != "ready" {
            return Err(format!("{name}: the worker did not get ready"));
        }
        workers.push(worker);
    }
    Ok(Target { name: name.into(), workers })
}

/// The preload library: beside this program, or where `BYPATH_PRELOAD` says.
fn preload_library() -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("libbypath_preload.so"));
    std::env::var_os("BYPATH_PRELOAD").map(PathBuf::from).or_else(beside).filter(|path| path.exists())
}

fn make_image(path: &Path, bytes: u64) -> Result<(), String> {
    let text = format!("{}\0", path.display());
    // SAFETY: take no arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let options = engine::mkfs::Options { limit: bytes, force: true, uid, gid, ..Default::default() };
    engine::mkfs::make(text.as_bytes(), &options).map_err(|e| format!("{}: {e}", path.display()))
}

fn open_targets(words: &[&str], options: &Options, sizes: &Sizes, cleanup: &mut Cleanup) -> Result<Vec<Target>, String> {
    let pid = std::process::id();
    let mut targets = Vec::new();
    let parents = if options.against.is_empty() { vec![PathBuf::from("/dev/shm")] } else { options.against.clone() };
    for parent in parents {
        let dir = parent.join(format!("bypath-bench-{pid}"));
        // A killed run's, whose process had this number.
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        cleanup.0.push(dir.clone());
        let name = if parent == Path::new("/dev/shm") { "tmpfs".into() } else { parent.display().to_string() };
        targets.push(target(words, sizes, &name, "libc", &dir, &[])?);
    }
    // Of their own, since segments outlive the images that are removed.
    let segments = PathBuf::from(format!("/dev/shm/bypath-bench-{pid}.segments"));
    let _ = std::fs::create_dir(&segments);
    cleanup.0.push(segments.clone());
    let segments = ("BYPATH_SEGMENT_DIR", segments.display().to_string());
    let image = options.image_dir.join(format!("bypath-bench-{pid}.image"));
    cleanup.0.push(image.clone());
    make_image(&image, 4 << 30)?;
    targets.push(target(words, sizes, "bypath", "api", &image, std::slice::from_ref(&segments))?);
    match preload_library() {
        None => eprintln!("bench: no preload library beside this program (set BYPATH_PRELOAD): that way is left out"),
        Some(library) => {
            let image = options.image_dir.join(format!("bypath-bench-{pid}-preload.image"));
            cleanup.0.push(image.clone());
            make_image(&image, 4 << 30)?;
            let mounts = format!("{}:/bypath-bench", image.display());
            let environment = [("LD_PRELOAD", library.display().to_string()), ("BYPATH_MOUNTS", mounts), segments];
            targets.push(target(words, sizes, "preload", "libc", Path::new("/bypath-bench"), &environment)?);
        }
    }
    Ok(targets)
}

/// The middle one; there is at least one.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One run of a call on a target: nanoseconds a call, and the checksum.
fn once(target: &mut Target, call: &str, processes: usize, threads: usize, calls: usize) -> Result<(f64, u64), String> {
    let name = target.name.clone();
    let workers = &mut target.workers[..processes];
    for worker in workers.iter_mut() {
        worker.say(&format!("{call}\t{threads}\t{calls}\n")).map_err(|e| format!("{name}: {e}"))?;
    }
    let (mut slowest, mut sum) = (0f64, 0u64);
    for worker in workers {
        let line = worker.hear().map_err(|e| format!("{name}: {call}: {e}"))?;
        let parts: Vec<u64> = line.split('\t').filter_map(|w| w.parse().ok()).collect();
        let [ns, calls, checksum] = parts[..] else { return Err(format!("{name}: {line}")) };
        slowest = slowest.max(ns as f64 / calls.max(1) as f64);
        sum = sum.wrapping_add(checksum);
    }
    Ok((slowest, sum))
}

/// Processor, how many of them, kernel.
fn machine() -> (String, usize, String) {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = info.lines().find_map(|l| l.strip_prefix("model name")?.split(':').nth(1)).unwrap_or("?").trim().to_string();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
    (cpu, std::thread::available_parallelism().map_or(1, usize::from), kernel)
}

/// The machine in a line, for people.
pub(crate) fn processor() -> String {
    let (cpu, processors, kernel) = machine();
    format!("{cpu} ({processors} processors), Linux {kernel}")
}

fn environment(sizes: &Sizes) -> Environment {
    let (cpu, processors, kernel) = machine();
    Environment {
        cpu,
        kernel,
        processors,
        rounds: sizes.rounds,
        calls: sizes.calls,
        entries: sizes.entries,
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// Measures everything.
pub fn run(words: &[&str], options: &Options) -> Result<Results, String> {
    let mut sizes = if options.quick {
        Sizes { rounds: 3, calls: 500, entries: 2000 }
    } else {
        Sizes { rounds: 9, calls: 4000, entries: 100_000 }
    };
    sizes.entries = options.entries.unwrap_or(sizes.entries);
    let mut cleanup = Cleanup(Vec::new());
    let mut targets = open_targets(words, options, &sizes, &mut cleanup)?;
    let mut rows = Vec::new();
    for (mode, processes, threads) in MODES {
        for row in ROWS {
            let only = options.only.as_ref().is_some_and(|only| !row.name.contains(only.as_str()));
            if only || row.name == "readdir+stat" && (processes, threads) != (1, 1) {
                continue;
            }
            let mut all = vec![Vec::new(); targets.len()];
            let mut checksum = vec![0; targets.len()];
            for round in 0..=sizes.rounds {
                for step in 0..targets.len() {
                    let which = (round + step) % targets.len();
                    let (ns, sum) = once(&mut targets[which], row.name, processes, threads, sizes.calls)?;
                    // The first round warms up.
                    if round > 0 {
                        all[which].push(ns);
                        checksum[which] = sum.wrapping_add(checksum[which]);
                    }
                }
            }
            rows.push(Measured {
                call: row.name.into(),
                mode: mode.into(),
                target: row.target,
                best_ns: all.iter().map(|ns| ns.iter().copied().fold(f64::INFINITY, f64::min)).collect(),
                ns: all.iter_mut().map(|ns| median(ns)).collect(),
                checksum,
            });
        }
    }
    let names = targets.iter().map(|t| t.name.clone()).collect();
    drop(targets);
    Ok(Results { environment: environment(&sizes), targets: names, rows })
}

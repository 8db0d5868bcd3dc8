//! The rounds: every job by every way in turn, again and again, so that a slow
//! minute of the machine hits all of them.

use super::Options;
use super::leavings;
use super::line;
use super::way::{Built, How, On, Way};
use super::worker::Spent;
use crate::run::{median, processor};
use std::path::{Path, PathBuf};

/// A job, and on which media and ways it is done.
#[derive(Clone, Debug)]
pub struct Job {
    /// What.
    pub name: &'static str,
    /// Bytes a call.
    pub bytes: usize,
    /// Calls a round.
    pub n: usize,
    /// Rounds that count.
    pub rounds: usize,
}

impl Job {
    /// Whether a way does it at all: nothing native answers at once.
    fn is_for(&self, way: &Way) -> bool {
        match self.name {
            "dummy write" | "dummy read" => way.how != How::Native,
            "write" | "read" => way.on == On::Any && way.how != How::Socket,
            _ => true,
        }
    }
}

/// Medians of a job by a way.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What.
    pub job: Job,
    /// Where.
    pub medium: String,
    /// By which way.
    pub how: How,
    /// With its processes on which processors.
    pub on: On,
    /// Nanoseconds a call.
    pub ns: f64,
    /// The same in each round, in order.
    pub round_ns: Vec<f64>,
    /// Of them in the file system's own operations.
    pub real_ns: f64,
    /// Context switches a call.
    pub switches: f64,
    /// Of the work.
    pub sum: u64,
}

/// Everything.
pub struct Results {
    /// For people: machine, kernel, rounds.
    pub machine: String,
    /// Their names, in order.
    pub media: Vec<String>,
    /// All medians.
    pub rows: Vec<Measured>,
    /// Nanoseconds that a line of memory took there and back, beside the dummy calls, in order.
    pub line_ns: Vec<f64>,
}

impl Results {
    /// One row, if it was measured.
    pub fn find(&self, medium: &str, how: How, on: On, job: &str, bytes: usize) -> Option<&Measured> {
        self.rows.iter().find(|row| {
            (row.medium.as_str(), row.how, row.on) == (medium, how, on) && (row.job.name, row.job.bytes) == (job, bytes)
        })
    }

    /// Whether all ways gave the same results.
    pub fn same_work(&self) -> bool {
        self.rows.iter().all(|row| {
            let same = |other: &&Measured| (other.job.name, other.job.bytes) == (row.job.name, row.job.bytes);
            self.rows.iter().filter(same).all(|other| other.sum == row.sum)
        })
    }
}

/// What is done on the first medium alone: it does not depend on it.
const ONCE: [&str; 3] = ["dummy write", "dummy read", "stat"];

/// Rounds that count, and of bandwidth, where one takes some 10 ms, in which the machine writes back or waits for its host.
fn rounds_of(options: &Options) -> (usize, usize) {
    let rounds = usize::from(options.rounds);
    if options.quick { (1, 1) } else { (rounds, rounds * 3) }
}

fn jobs(options: &Options) -> Vec<Job> {
    let (rounds, rounds_of_bulk) = rounds_of(options);
    let quick = options.quick;
    let (sizes, total, n): (&[usize], usize, usize) = if quick {
        (&[4 << 10, 64 << 10, 1 << 20], 2 << 20, 200)
    } else {
        (&[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20], 32 << 20, 4000)
    };
    let mut jobs = Vec::new();
    for &bytes in sizes {
        // Reading follows on what writing has left.
        jobs.extend(["write", "read"].map(|name| Job { name, bytes, n: total / bytes, rounds: rounds_of_bulk }));
    }
    for bytes in [1, 64, 1024] {
        jobs.extend(["dummy write", "dummy read"].map(|name| Job { name, bytes, n, rounds }));
    }
    jobs.push(Job { name: "create+close", bytes: 0, n: n.min(1000), rounds });
    jobs.push(Job { name: "stat", bytes: 0, n, rounds });
    jobs
}

/// A directory of the run's, removed with it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Medium {
    name: String,
    ways: Vec<Way>,
    // After the workers, which are inside.
    _scratch: Scratch,
}

fn medium_name(dir: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let place = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    let lines = mounts.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        Some((*words.get(1)?, *words.get(2)?))
    });
    let under = lines.filter(|(point, _)| place.starts_with(point)).max_by_key(|(point, _)| point.len());
    under.map_or_else(|| dir.display().to_string(), |(_, kind)| kind.to_string())
}

fn open_medium(built: &Built, dir: &Path, is_first: bool) -> Result<Medium, String> {
    leavings::sweep(dir);
    let scratch = Scratch(leavings::own(dir, ".d"));
    let mut ways = Vec::new();
    let apart = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1).then_some((How::Channel, On::Apart));
    let more = [(How::Kernel, On::One), (How::Channel, On::One), (How::Socket, On::Any)].into_iter().chain(apart);
    for (how, on) in How::ALL.map(|how| (how, On::Any)).into_iter().chain(more.filter(|_| is_first)) {
        leavings::go_on()?;
        let number = ways.len();
        let own = scratch.0.join(format!("files{number}"));
        std::fs::create_dir_all(&own).map_err(|e| format!("{}: {e}", own.display()))?;
        match Way::open(built, how, on, &own, &scratch.0.join(format!("point{number}"))) {
            Ok(way) => ways.push(way),
            Err(what) if how == How::Kernel => eprintln!("bench: {what}: that way is left out"),
            Err(what) => return Err(what),
        }
    }
    Ok(Medium { name: medium_name(dir), ways, _scratch: scratch })
}

/// Measures everything.
pub fn run(options: &Options) -> Result<Results, String> {
    let built = Built::new()?;
    let mut media = Vec::new();
    for (at, dir) in options.media.iter().enumerate() {
        media.push(open_medium(&built, dir, at == 0)?);
    }
    let (mut rows, mut line_ns) = (Vec::new(), Vec::new());
    for (at, medium) in media.iter_mut().enumerate() {
        for job in jobs(options).into_iter().filter(|job| at == 0 || !ONCE.contains(&job.name)) {
            let mut all: Vec<Vec<Spent>> = medium.ways.iter().map(|_| Vec::new()).collect();
            for round in 0..=job.rounds {
                if job.name.starts_with("dummy") {
                    line_ns.extend(line::there_and_back());
                }
                for step in 0..medium.ways.len() {
                    let which = (round + step) % medium.ways.len();
                    let way = &mut medium.ways[which];
                    if !job.is_for(way) {
                        continue;
                    }
                    leavings::go_on()?;
                    let spent = way.run(job.name, job.bytes, job.n)?;
                    // The first round warms up.
                    if round > 0 {
                        all[which].push(spent);
                    }
                }
            }
            for (way, spent) in medium.ways.iter().zip(&all).filter(|(_, spent)| !spent.is_empty()) {
                let each = |what: fn(&Spent) -> u64| -> Vec<f64> {
                    spent.iter().map(|s| what(s) as f64 / s.calls.max(1) as f64).collect()
                };
                let of = |what| median(&mut each(what));
                rows.push(Measured {
                    job: job.clone(),
                    medium: medium.name.clone(),
                    how: way.how,
                    on: way.on,
                    ns: of(|s| s.ns),
                    round_ns: each(|s| s.ns),
                    real_ns: of(|s| s.real_ns),
                    switches: of(|s| s.switches),
                    sum: spent.iter().fold(0, |sum, s| sum.wrapping_add(s.sum)),
                });
            }
        }
    }
    line_ns.sort_unstable_by(f64::total_cmp);
    let media = media.iter().map(|medium| medium.name.clone()).collect();
    let (rounds, bulk) = rounds_of(options);
    let rounds = if options.quick { "one round".into() } else { format!("medians of {rounds} rounds, of bandwidth {bulk}") };
    Ok(Results { machine: format!("{}; {rounds}", processor()), media, rows, line_ns })
}

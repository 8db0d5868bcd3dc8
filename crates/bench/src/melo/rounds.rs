//! The rounds: every load, and every length of overwrite, by every way in turn, so that a slow minute of the machine hits
//! all of them.

use super::Options;
use super::load::{Draw, Files, LOADS, Load, Step};
use super::media::{self, Medium};
use super::way::Way;
use crate::run::{median, processor};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of the file that is overwritten.
const OVERWRITTEN: u64 = 64 << 20;
/// How much one overwrite changes.
pub const LENGTHS: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// The log of a web server.
const LOG: &str = "log";

/// A row: what a way has done.
pub struct Row {
    /// The load, or the length of an overwrite.
    pub what: String,
    /// The way.
    pub way: String,
    /// Operations a second in each round, or nanoseconds an overwrite.
    pub rounds: Vec<f64>,
}

impl Row {
    /// What stands for the rounds: of speeds the median, of times the least, which others' work disturbs least.
    pub fn figure(&self, is_time: bool) -> f64 {
        if is_time { self.rounds.iter().copied().fold(f64::INFINITY, f64::min) } else { median(&mut self.rounds.clone()) }
    }
}

/// Everything.
pub struct Results {
    /// For people: machine, rounds.
    pub machine: String,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// Names of the ways, in order.
    pub ways: Vec<String>,
    /// Loads: operations a second.
    pub loads: Vec<Row>,
    /// The same: nanoseconds of processor time an operation, which others' work disturbs less.
    pub processor: Vec<Row>,
    /// Overwrites: nanoseconds.
    pub overwrites: Vec<Row>,
}

impl Results {
    /// One of the rows.
    pub fn find<'a>(rows: &'a [Row], what: &str, way: &str) -> Option<&'a Row> {
        rows.iter().find(|row| row.what == what && row.way == way)
    }
}

/// A thread's work until it is to end; operations done.
fn work(way: &Way, load: &Load, files: &Files, seed: u64, ends: &AtomicBool) -> u64 {
    let (mut draw, mut done) = (Draw::new(seed), 0);
    let mut buffer = vec![0x61u8; 1 << 20];
    let mut open: Option<(usize, libc::c_int)> = None;
    while !ends.load(Relaxed) {
        for step in load.steps {
            match (step, open) {
                (Step::Delete, _) => {
                    let file = files.take_present(&mut draw);
                    way.unlink(&files.paths[file]);
                    files.give_back(file, false);
                }
                (Step::Create, _) => {
                    let file = files.take_absent(&mut draw);
                    open = Some((file, way.open(&files.paths[file], libc::O_CREAT | libc::O_RDWR | libc::O_APPEND)));
                }
                (Step::Open, _) => {
                    let file = files.take_present(&mut draw);
                    open = Some((file, way.open(&files.paths[file], libc::O_RDWR | libc::O_APPEND)));
                }
                (Step::Close, Some((file, fd))) => {
                    way.close(fd);
                    files.give_back(file, true);
                    open = None;
                }
                (Step::WriteWhole, Some((_, fd))) => {
                    let mut left = draw.size(load.mean) as usize;
                    while left > 0 {
                        let part = left.min(buffer.len());
                        way.write(fd, &buffer[..part]);
                        left -= part;
                    }
                }
                (Step::ReadWhole, Some((_, fd))) => while way.read(fd, &mut buffer) > 0 {},
                (Step::Append, Some((_, fd))) => way.write(fd, &buffer[..draw.below(16 << 10) as usize + 1]),
                (Step::Fsync, Some((_, fd))) => way.fsync(fd),
                (Step::AppendLog, _) => {
                    let fd = way.open(LOG.as_ref(), libc::O_WRONLY | libc::O_APPEND);
                    way.write(fd, &buffer[..draw.below(16 << 10) as usize + 1]);
                    way.close(fd);
                }
                (Step::Stat, _) => {
                    let file = files.take_present(&mut draw);
                    way.stat(&files.paths[file]);
                    files.give_back(file, true);
                }
                // The definitions close what they open.
                (_, None) => {}
            }
        }
        done += load.steps.len() as u64;
    }
    done
}

/// Processor time of this program so far, nanoseconds.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A load by a way, for so long: operations a second, and nanoseconds of processor time an operation.
fn round(way: &Way, load: &Load, files: &Files, (seed, threads): (u64, usize), time: Duration) -> [f64; 2] {
    let (ends, done) = (AtomicBool::new(false), AtomicU64::new(0));
    // As long as the others', however fast this way is.
    way.close(way.open(LOG.as_ref(), libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC));
    let (begun, spent) = (Instant::now(), processor_time());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (ends, done) = (&ends, &done);
            let seed = seed * 1000 + thread as u64;
            scope.spawn(move || done.fetch_add(work(way, load, files, seed, ends), Relaxed));
        }
        std::thread::sleep(time);
        ends.store(true, Relaxed);
    });
    let done = done.load(Relaxed) as f64;
    [done / begun.elapsed().as_secs_f64(), (processor_time() - spent) / done.max(1.0)]
}

/// A load on an image and in two directories, with each number of threads: operations a second by way.
pub fn speeds(
    name: &str,
    image: &Path,
    directories: [&Path; 2],
    threads: &[usize],
    whole: Option<usize>,
) -> Result<Vec<Vec<f64>>, String> {
    let (rounds, time) = whole.map_or((1, 50), |rounds| (rounds, 500));
    let load = LOADS.iter().find(|load| load.name == name).ok_or_else(|| format!("no load {name}"))?;
    let mut ways = vec![Way::image("image", image, c"")?];
    ways.extend(directories.map(|dir| Way::directory("directory", dir, true)));
    // Of fileserver's files one in ten, as `bench melo` has them.
    let scale = if whole.is_none() {
        100
    } else if load.files > 1000 {
        10
    } else {
        1
    };
    let all: Vec<Files> = ways.iter().map(|_| Files::new(load, scale)).collect();
    for (way, files) in ways.iter().zip(&all) {
        let mut draw = Draw::new(7);
        way.fill(files, &mut || draw.size(load.mean));
    }
    let mut best = vec![vec![0f64; ways.len()]; threads.len()];
    for number in 0..rounds {
        for (row, &threads) in threads.iter().enumerate() {
            for (at, way) in ways.iter().enumerate() {
                let [speed, _] = round(way, load, &all[at], (number as u64 + 1, threads), Duration::from_millis(time));
                best[row][at] = best[row][at].max(speed);
            }
        }
    }
    for (way, files) in ways.iter().zip(&all) {
        way.empty(files);
        way.unlink(LOG.as_ref());
    }
    Ok(best)
}

/// Speeds, and processor times.
fn loads(options: &Options, media: &[Medium]) -> [Vec<Row>; 2] {
    let (rounds, time) = if options.quick { (1, 200) } else { (usize::from(options.rounds), 500) };
    let mut rows = [Vec::new(), Vec::new()];
    for load in LOADS.iter().filter(|load| options.only.as_ref().is_none_or(|only| load.name.contains(only.as_str()))) {
        let ways: Vec<&Way> = media.iter().map(|medium| &medium.way).collect();
        let threads = options.threads.map_or(load.threads, usize::from);
        let scale = if load.files > 1000 { usize::from(options.scale) } else { 1 };
        let all: Vec<Files> = ways.iter().map(|_| Files::new(load, scale)).collect();
        let mut figures = [vec![Vec::new(); ways.len()], vec![Vec::new(); ways.len()]];
        for (way, files) in ways.iter().zip(&all) {
            let mut draw = Draw::new(7);
            way.fill(files, &mut || draw.size(load.mean));
        }
        for number in 0..=rounds {
            for step in 0..ways.len() {
                let which = (number + step) % ways.len();
                let found = round(ways[which], load, &all[which], (number as u64 + 1, threads), Duration::from_millis(time));
                // The first round warms up.
                if number > 0 || options.quick {
                    figures.iter_mut().zip(found).for_each(|(all, figure)| all[which].push(figure));
                }
            }
        }
        for (way, files) in ways.iter().zip(&all) {
            way.empty(files);
            way.unlink(LOG.as_ref());
        }
        for (rows, figures) in rows.iter_mut().zip(figures) {
            let row = |(way, rounds): (&&Way, _)| Row { what: load.name.into(), way: way.name.clone(), rounds };
            rows.extend(ways.iter().zip(figures).map(row));
        }
    }
    rows
}

/// Overwrites at places drawn at random, whole blocks apart.
fn overwrites(options: &Options, media: &[Medium]) -> Vec<Row> {
    // Short rounds, and many: the least of each counts.
    let (rounds, bytes) = (if options.quick { 3 } else { usize::from(options.rounds) * 5 }, 16u64 << 20);
    let path = "overwritten";
    let fds: Vec<_> = media
        .iter()
        .map(|medium| {
            let fd = medium.way.open(path.as_ref(), libc::O_CREAT | libc::O_RDWR);
            let part = vec![1; 1 << 20];
            (0..OVERWRITTEN >> 20).for_each(|_| medium.way.write(fd, &part));
            fd
        })
        .collect();
    let mut rows = Vec::new();
    for len in LENGTHS {
        let mut times = vec![Vec::new(); media.len()];
        let (from, calls) = (vec![2; len], bytes / len as u64);
        for number in 0..=rounds {
            for step in 0..media.len() {
                let which = (number + step) % media.len();
                let mut draw = Draw::new(number as u64 + 1);
                let begun = Instant::now();
                for _ in 0..calls {
                    let at = draw.below(OVERWRITTEN / len as u64) * len as u64;
                    media[which].way.pwrite(fds[which], &from, at);
                }
                if number > 0 {
                    times[which].push(begun.elapsed().as_nanos() as f64 / calls as f64);
                }
            }
        }
        rows.extend(media.iter().zip(times).map(|(medium, rounds)| Row {
            what: size(len),
            way: medium.way.name.clone(),
            rounds,
        }));
    }
    for (medium, fd) in media.iter().zip(fds) {
        medium.way.close(fd);
        medium.way.unlink(path.as_ref());
    }
    rows
}

/// A length, for people.
pub fn size(bytes: usize) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// Measures everything.
pub fn run(options: &Options) -> Result<Results, String> {
    let (media, left_out) = media::open(options)?;
    let rounds =
        if options.quick { "one short round".into() } else { format!("medians of {} rounds of half a second", options.rounds) };
    let scale =
        if options.scale > 1 { format!("; 1/{} of the files of fileserver and webproxy", options.scale) } else { String::new() };
    let threads = options.threads.map_or(String::new(), |threads| format!("; {threads} threads each"));
    let overwrites = if options.only.is_none() { overwrites(options, &media) } else { Vec::new() };
    let [loads, times] = loads(options, &media);
    let ways = media.iter().map(|medium| medium.way.name.clone()).collect();
    Ok(Results {
        machine: format!("{}; {rounds}{scale}{threads}", processor()),
        left_out,
        ways,
        loads,
        processor: times,
        overwrites,
    })
}

//! Goal: after the death of all its users an image is attached at the same cost
//! whatever it holds.
//! Method: workers change names and contents until all are killed with
//! `SIGKILL`; then one process attaches, with the segment that they left and
//! without it (as after a restart). What that costs is counted, since times
//! depend on the machine's mood: page faults (space that is asked for is among
//! them), and pages of image and segment that are in the process's page table
//! afterwards (none of them a huge one). Whatever were done for each file, if only a look at its inode,
//! would touch more memory with more files. The same with a thousand files and
//! with many; medians are compared.

use super::deaths::{Calls, Round, WORKERS, die, fork, lose_segments, own_directory, wait};
use super::{Image, expect, wait_all};
use crate::differential::sandbox::spawn;
use crate::image::{self, check};
use crate::rng::Rng;
use crate::shared::Words;
use crate::world::World;
use format::layout::{LANE_AREA, LANE_BYTES, LANES};
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Deaths of everybody, for each row of the table; an odd number has a median.
const ROUNDS: u64 = 15;
/// Calls that every worker has made before they are killed.
const CALLS: u64 = 40;
/// How much more may be counted with many files.
const RATIO: f64 = 1.2;
/// The least that killed workers must have been doing for this to say anything: one in so many was in a call.
const IN_CALL: u64 = 4;

/// Words: what attaching cost.
const COST: usize = 0;

/// What attaching once has cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    faults: u64,
    pages: u64,
    nanoseconds: u64,
}

/// What was found when everybody was dead.
#[derive(Default)]
struct Found {
    in_call: u64,
    records: u64,
}

/// What the dead left behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment {
    Kept,
    Lost,
}

/// Compares an image of `many` files with one of a thousand.
///
/// # Errors
/// If more is counted with many, or something failed.
pub fn recover(many: u64, seed: u64) -> Result<String, String> {
    // A huge page that is touched anywhere would count for 512.
    // SAFETY: no pointers.
    if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0 {
        return Err(format!("no way to do without huge pages: {}", std::io::Error::last_os_error()));
    }
    let mut text = format!("seed {seed}; medians of {ROUNDS} deaths of {WORKERS} workers each\n");
    text += "segment      files   page faults   pages touched      time, us   (longest)   killed in a call   records left";
    let mut rng = Rng::new(seed);
    let (few, lots) = (filled(1000)?, filled(many)?);
    let mut failed = Vec::new();
    for segment in [Segment::Kept, Segment::Lost] {
        let mut rows = Vec::new();
        for (image, files) in [(&few, 1000), (&lots, many)] {
            let (cost, longest, found) = measured(image, segment, &mut rng)?;
            let name = if segment == Segment::Kept { "kept" } else { "lost" };
            text += &format!(
                "\n{name:<7} {files:>10} {:>13} {:>15} {:>13} {:>11} {:>13} of {} {:>9}",
                cost.faults,
                cost.pages,
                cost.nanoseconds / 1000,
                longest / 1000,
                found.in_call,
                ROUNDS * WORKERS as u64,
                found.records
            );
            if found.in_call * IN_CALL < ROUNDS * WORKERS as u64 {
                failed.push(format!("{name}, {files} files: nearly nobody was killed in a call"));
            }
            rows.push(cost);
        }
        for (what, of) in [("page faults", (|cost| cost.faults) as fn(&Cost) -> u64), ("pages touched", |cost| cost.pages)] {
            let ratio = of(&rows[1]) as f64 / of(&rows[0]).max(1) as f64;
            text += &format!("\n        {what}: {ratio:.2} ×");
            if of(&rows[0]) == 0 {
                failed.push(format!("{what} cannot be counted here"));
            }
            if ratio > RATIO {
                failed.push(format!("{what} depend on the number of files: {ratio:.2} ×"));
            }
        }
    }
    for image in [&few, &lots] {
        check(image.path())?;
    }
    if failed.is_empty() { Ok(text) } else { Err(format!("{}\n{text}", failed.join("\n"))) }
}

/// An image with so many empty files, and a directory for each worker.
fn filled(files: u64) -> Result<Image, String> {
    let image = Image::new("recover", 4 << 30);
    let filler = spawn(|watch| {
        let world = image.world();
        for worker in 0..WORKERS {
            own_directory(&world, worker)?;
        }
        for at in 0..files {
            if at % 1000 == 0 {
                watch.step(at as usize);
                expect(world.mkdir(&format!("/d{}", at / 1000)), || format!("directory at {at}"))?;
            }
            expect(world.create(&format!("/d{}/file{at}", at / 1000)), || format!("file {at}"))?;
        }
        world.process.detach(&world.thread);
        Ok(())
    });
    wait_all(vec![filler], 120)?;
    Ok(image)
}

/// Medians over all rounds, the longest time, and what the dead were doing.
fn measured(image: &Image, segment: Segment, rng: &mut Rng) -> Result<(Cost, u64, Found), String> {
    let mut found = Found::default();
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        found.in_call += die(image, &Round { calls: Calls::Few, least: CALLS, killed: true }, rng)?;
        found.records += records_left(image)?;
        if segment == Segment::Lost {
            lose_segments()?;
        }
        costs.push(attach(image)?);
    }
    let cost = Cost {
        faults: median(&costs, |cost| cost.faults),
        pages: median(&costs, |cost| cost.pages),
        nanoseconds: median(&costs, |cost| cost.nanoseconds),
    };
    Ok((cost, costs.iter().map(|cost| cost.nanoseconds).max().unwrap_or(0), found))
}

fn median(costs: &[Cost], of: impl Fn(&Cost) -> u64) -> u64 {
    let mut values: Vec<u64> = costs.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Lanes whose records are not retired.
fn records_left(image: &Image) -> Result<u64, String> {
    let mut lanes = vec![0; LANES as usize * LANE_BYTES as usize];
    let read = std::fs::File::open(image.path()).and_then(|file| file.read_exact_at(&mut lanes, LANE_AREA));
    read.map_err(|error| format!("{}: {error}", image.path().display()))?;
    Ok(lanes.chunks(LANE_BYTES as usize).filter(|lane| lane[..8] != [0; 8]).count() as u64)
}

/// Attaches the image in a process of its own.
fn attach(image: &Image) -> Result<Cost, String> {
    let words = Words::new();
    let pid = fork(|| {
        let (pages, faults, start) = (pages(), faults(), Instant::now());
        let native = image::attach(image.path());
        let spent = start.elapsed().as_nanos() as u64;
        words.set(COST, self::faults() - faults);
        words.set(COST + 1, self::pages() - pages);
        let world = World::new(native);
        world.process.detach(&world.thread);
        words.set(COST + 2, spent);
    });
    let status = wait(pid);
    match words.get(COST + 2) {
        0 => Err(format!("the attaching process ended early, status {status:#x}")),
        nanoseconds => Ok(Cost { faults: words.get(COST), pages: words.get(COST + 1), nanoseconds }),
    }
}

/// Pages of shared files in this process's page table.
fn pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
    };
    (kib("Shared_Dirty:") + kib("Shared_Clean:") + kib("Private_Dirty:") + kib("Private_Clean:") - kib("Anonymous:")) / 4
}

/// Page faults of this process so far, without reading from a disk.
pub(super) fn faults() -> u64 {
    // SAFETY: plain data, zero is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_minflt as u64
}

//! Goal: all users of an image die at once, in the middle of whatever they do to
//! the same names, and nothing is torn: the next one finds an image without fault.
//! Method: workers make every call that changes names, on a few names of all;
//! where they are interrupted is drawn at random ([`restless`]), so that their
//! operations overlap in ways that take years to happen. All are killed with
//! `SIGKILL` (in some rounds they end in order: then overlap alone must do no
//! harm). One process attaches, with the segment that they left or without it,
//! as after a restart; then the image is checked. The image is small and its
//! segment new after half of the rounds, since much goes wrong only while pages
//! of the reservation bitmap are loaded and the image grows.

use super::{Image, expect, wait_all};
use crate::differential::sandbox::spawn;
use crate::image::{self, check};
use crate::restless;
use crate::rng::Rng;
use crate::shared::Words;
use crate::world::World;
use std::time::Duration;

/// Workers of one round.
pub(super) const WORKERS: usize = 6;
/// Names that a worker uses, in its own directory.
const NAMES: u64 = 12;
/// Rounds until a fresh image takes the place of the one in use.
const ROUNDS_OF_IMAGE: u64 = 50;

/// Words: calls made, by worker; whether it is in one; its failure; whether all shall end.
const MADE: usize = 0;
const INSIDE: usize = 16;
const FAILED: usize = 32;
const STOP: usize = 33;

/// What the workers do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// Files are made, written, moved and removed.
    Few,
    /// And linked, and cut; directories, symlinks and long names too. Where a worker is interrupted is drawn.
    All,
}

/// One round, until death.
pub(super) struct Round {
    pub(super) calls: Calls,
    /// Calls that every worker has made before the end.
    pub(super) least: u64,
    /// Whether they are killed, or told to end.
    pub(super) killed: bool,
}

/// So many rounds.
///
/// # Errors
/// What the checker finds, or a call that failed as it may not.
pub fn deaths(rounds: u64, seed: u64) -> Result<String, String> {
    let mut rng = Rng::new(seed);
    let (mut in_call, mut killed, mut lost) = (0, 0, 0);
    let mut image = None;
    for round in 0..rounds {
        if round % ROUNDS_OF_IMAGE == 0 {
            image = None;
        }
        let image = image.get_or_insert_with(|| Image::new("deaths", 24 << 20));
        if round % ROUNDS_OF_IMAGE == 0 {
            attach(image, |world| (0..WORKERS).try_for_each(|worker| own_directory(world, worker)))?;
        }
        let plan = Round { calls: Calls::All, least: rng.below(40), killed: !rng.one_in(4) };
        let failed = |error| format!("seed {seed}, round {round}: {error}");
        in_call += die(image, &plan, &mut rng).map_err(failed)?;
        killed += u64::from(plan.killed);
        if rng.one_in(2) {
            lose_segments()?;
            lost += 1;
        }
        attach(image, |_| Ok(())).and_then(|()| check(image.path()).map(drop)).map_err(failed)?;
    }
    Ok(format!(
        "seed {seed}: {rounds} rounds, {killed} times {WORKERS} workers killed, {in_call} of them in a call, the segment lost {lost} times: no finding"
    ))
}

/// The directory of a worker.
pub(super) fn own_directory(world: &World, worker: usize) -> Result<(), String> {
    expect(world.mkdir(&format!("/own{worker}")), || format!("directory {worker}"))
}

/// Attaches the image in a process of its own, and does `work`.
pub(super) fn attach(image: &Image, work: impl FnOnce(&World) -> Result<(), String>) -> Result<(), String> {
    let child = spawn(|_| {
        let world = image.world();
        work(&world)?;
        world.process.detach(&world.thread);
        Ok(())
    });
    wait_all(vec![child], 60)
}

/// Starts the workers, and ends them all, killed in the middle of their calls if
/// that is the plan; how many were in one.
pub(super) fn die(image: &Image, plan: &Round, rng: &mut Rng) -> Result<u64, String> {
    let words = Words::new();
    let pids: Vec<i32> = (0..WORKERS)
        .map(|worker| {
            let seed = rng.draw();
            fork(|| {
                if plan.calls == Calls::All {
                    restless::begin(seed);
                }
                let world = image.world();
                match work(&world, worker, plan.calls, seed, words) {
                    Ok(()) => return world.process.detach(&world.thread),
                    Err(error) => eprintln!("worker {worker}: {error}"),
                }
                words.set(FAILED, worker as u64 + 1);
            })
        })
        .collect();
    let late = (0..WORKERS).find(|worker| !words.wait(MADE + worker, plan.least, Duration::from_secs(20)));
    let made = late.map_or(0, |worker| words.get(MADE + worker));
    std::thread::sleep(Duration::from_micros(rng.below(2000)));
    words.set(STOP, 1);
    for pid in &pids {
        if plan.killed {
            // SAFETY: our own child, not yet waited for.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
    }
    for pid in &pids {
        wait(*pid);
    }
    match (words.get(FAILED), late) {
        (0, None) => {}
        (0, Some(worker)) => return Err(format!("worker {worker} made {made} of {} calls in 20 s", plan.least)),
        (failed, _) => return Err(format!("worker {} failed", failed - 1)),
    }
    Ok((0..WORKERS).map(|worker| words.get(INSIDE + worker)).sum::<u64>())
}

/// Results that say nothing but how things were at that moment.
const FINE: [i32; 10] = [
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    libc::ENOSPC,
    libc::EINVAL,
    libc::EPERM,
    libc::ELOOP,
    libc::EBUSY,
];

/// Makes calls until told to end. Names change all the time; their number does not.
fn work(world: &World, worker: usize, calls: Calls, seed: u64, words: Words) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let data = [worker as u8; 500];
    let mut descriptors = [-1i64; 3];
    let call = |each: &mut dyn FnMut() -> i64| {
        words.set(INSIDE + worker, 1);
        let result = each();
        words.set(INSIDE + worker, 0);
        words.add(MADE + worker, 1);
        let fine = result >= 0 || FINE.contains(&(-result as i32));
        if fine { Ok(result) } else { Err(crate::differential::compare::error(result as isize)) }
    };
    // Names that are kept in a cachelet, in an edentry of its usual size, and in a longer one.
    let name = |rng: &mut Rng, owner: u64| {
        let number = rng.below(NAMES);
        let width = if calls == Calls::All && number % 4 == 3 { [50, 90][number as usize / 4 % 2] } else { 1 };
        format!("/own{owner}/name{number:0width$}")
    };
    while words.get(STOP) == 0 {
        let own = name(&mut rng, worker as u64);
        let owner = rng.below(WORKERS as u64);
        let other = name(&mut rng, owner);
        let what = rng.below(if calls == Calls::All { 12 } else { 4 });
        match what {
            0 => {
                let place = &mut descriptors[rng.below(3) as usize];
                let old = *place;
                if old >= 0 {
                    call(&mut || world.close(old) as i64)?;
                }
                *place = call(&mut || world.open(&own, libc::O_CREAT | libc::O_RDWR))?;
            }
            1 => {
                let descriptor = descriptors[rng.below(3) as usize];
                if descriptor >= 0 {
                    call(&mut || world.write(descriptor, &data) as i64)?;
                }
            }
            2 | 4 => drop(call(&mut || world.rename(&own, &other) as i64)?),
            3 | 5 => drop(call(&mut || world.unlink(&other) as i64)?),
            6 => drop(call(&mut || world.link(&own, &other) as i64)?),
            7 => drop(call(&mut || world.symlink("a text that is no name of ours", &other) as i64)?),
            8 => drop(call(&mut || world.mkdir(&other) as i64)?),
            9 => drop(call(&mut || world.rmdir(&other) as i64)?),
            10 => drop(call(&mut || world.exchange(&own, &other) as i64)?),
            _ => {
                let size = rng.below(3) * 5000;
                call(&mut || world.truncate(&other, size) as i64)?;
            }
        }
    }
    Ok(())
}

/// Removes all segments, as a restart does.
pub(super) fn lose_segments() -> Result<(), String> {
    let segments = std::fs::read_dir(image::segments()).map_err(|error| error.to_string())?;
    for segment in segments {
        let path = segment.map_err(|error| error.to_string())?.path();
        std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Does `work` in a child.
pub(super) fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: this program has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        // SAFETY: at the parent's death this child ends too.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        work();
        // SAFETY: ends this child without the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    pid
}

/// How a child of ours ended or was stopped.
pub(super) fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of ours, and room for the answer.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    status
}

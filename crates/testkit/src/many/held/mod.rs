//! Goal: what a process has open or locked ends with it, whenever it dies, and
//! nothing of the living ends with it.
//! Method: workers open, duplicate, close, remove what is open, lock and unlock,
//! with one thread or two that close each other's numbers; where they are
//! interrupted is drawn at random ([`restless`]). Some are forked from a process
//! that has files open and locks of its own, and share its descriptions; some
//! attach by themselves; some fork. One after the other is killed with `SIGKILL`.
//! The process that stays looks after its own all the while. In the end all
//! others are killed: then it gets every lock at once, and what is held is what
//! was held before. In some rounds it is killed too, and the next one looks.

mod worker;

use super::deaths::{attach, fork, lose_segments, wait};
use super::{Image, expect, wait_all};
use crate::differential::sandbox::spawn;
use crate::image::{self, check};
use crate::restless;
use crate::rng::Rng;
use crate::shared::Words;
use crate::world::World;
use engine::process::census::Census;
use std::time::Duration;
use worker::{Calls, Worker, record};

/// Workers that live at a time, without their children.
const WORKERS: usize = 5;
/// Workers killed in a round before all are.
const KILLS: u64 = 8;
/// Files that are locked.
const LOCKED: u64 = 3;
/// Rounds until a fresh image takes the place of the one in use.
const ROUNDS_OF_IMAGE: u64 = 20;

/// Words: calls made; the first failure; children of workers; forks under way; who holds which exclusive lock; what one process passes to another.
const MADE: usize = 0;
const FAILED: usize = 1;
const CHILDREN: usize = 2;
const FORKING: usize = 3;
const HOLDERS: usize = 16;
const COUNTS: usize = 32;

/// What the process that stays has in its files.
const KEPT: &[u8] = b"what stays open";

/// So many rounds.
///
/// # Errors
/// What was left of the dead, or lost by the living.
pub fn held(rounds: u64, seed: u64) -> Result<String, String> {
    let mut rng = Rng::new(seed);
    let mut image = None;
    let mut at_first = Census::default();
    let (mut killed, mut calls) = (0, 0);
    let words = Words::new();
    take_orphans();
    for round in 0..rounds {
        let failed = |error| format!("seed {seed}, round {round}: {error}");
        if round % ROUNDS_OF_IMAGE == 0 {
            let fresh = Image::new("held", 64 << 20);
            prepare(&fresh)?;
            at_first = alone(&fresh, words)?;
            image = Some(fresh);
        }
        let Some(image) = &image else { continue };
        [MADE, FAILED, CHILDREN, FORKING].iter().for_each(|word| words.set(*word, 0));
        let draw = rng.draw();
        let dies = rng.one_in(4);
        if dies {
            let pid = fork(|| {
                if let Err(error) = stay(image, draw, words, true) {
                    eprintln!("{error}");
                    words.set(FAILED, 1);
                }
            });
            wait(pid);
            reap();
            if words.get(FAILED) != 0 {
                return Err(failed("the process that stays failed".into()));
            }
        } else {
            wait_all(vec![spawn(|_| stay(image, draw, words, false))], 60).map_err(failed)?;
        }
        if words.get(FORKING) != 0 {
            // A child may yet come of it, for all that anybody knows, and is waited for.
            lose_segments()?;
        }
        let now = alone(image, words).map_err(failed)?;
        (killed, calls) = (killed + KILLS + WORKERS as u64 + u64::from(dies), calls + words.get(MADE));
        if now != at_first {
            return Err(failed(format!("held by who attaches after all are gone: {now:?}\nand at first: {at_first:?}")));
        }
        check(image.path()).map_err(failed)?;
    }
    Ok(format!(
        "seed {seed}: {rounds} rounds, {calls} calls, {killed} workers killed: nothing of theirs is left, nothing else lost"
    ))
}

/// The files, in a process of its own.
fn prepare(image: &Image) -> Result<(), String> {
    attach(image, |world| {
        (0..LOCKED).try_for_each(|number| expect(world.create(&format!("/lock{number}")), || format!("lock file {number}")))?;
        expect(world.create("/kept"), || "kept file".into())
    })
}

/// What is held by a process that attaches alone, without what depends on the image's contents.
fn alone(image: &Image, words: Words) -> Result<Census, String> {
    let child = spawn(|_| {
        let native = image::attach(image.path());
        let world = World::new(native);
        let census = native.0.census();
        let counts =
            [census.processes, census.descriptions, census.pins, census.lanes, census.locks, census.flags, census.advisory];
        counts.iter().enumerate().for_each(|(at, count)| words.set(COUNTS + at, u64::from(*count)));
        world.process.detach(&world.thread);
        Ok(())
    });
    wait_all(vec![child], 60)?;
    let count = |at| words.get(COUNTS + at) as u32;
    Ok(Census {
        processes: count(0),
        descriptions: count(1),
        pins: count(2),
        lanes: count(3),
        locks: count(4),
        flags: count(5),
        advisory: count(6),
        reserved_lines: 0,
    })
}

/// From now on the children of our dead children are ours.
fn take_orphans() {
    // SAFETY: numbers only.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Waits for every child, ours and those of children that are gone.
fn reap() {
    // SAFETY: no pointers that are followed.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
}

/// The process that stays, with what it has open and locked.
struct Stayer {
    calls: Calls,
    /// One description, under two numbers; it has the locks.
    kept: [i64; 2],
    /// Another one of the same file.
    probe: i64,
    /// A file without a name.
    gone: i64,
}

impl Stayer {
    fn new(world: World) -> Result<Stayer, String> {
        let calls = Calls(world);
        let need = |result: i64, what: &str| expect(result as isize, || what.into()).map(|()| result);
        let first = need(calls.0.open("/kept", libc::O_RDWR), "open")?;
        let kept = [first, need(calls.dup(first), "dup")?];
        let probe = need(calls.0.open("/kept", libc::O_RDWR), "open again")?;
        let gone = need(calls.0.open("/gone", libc::O_RDWR | libc::O_CREAT), "create")?;
        need(calls.0.unlink("/gone") as i64, "unlink")?;
        for fd in [first, gone] {
            need(calls.0.write(fd, KEPT) as i64, "write")?;
        }
        // What workers write goes behind it.
        need(calls.seek(probe, 100), "seek")?;
        need(calls.flock(first, libc::LOCK_EX), "flock")?;
        need(calls.record(first, libc::F_OFD_SETLK, &mut record(libc::F_WRLCK, 0, 10)), "OFD lock")?;
        need(calls.record(first, libc::F_SETLK, &mut record(libc::F_WRLCK, 20, 10)), "record lock")?;
        Ok(Stayer { calls, kept, probe, gone })
    }

    /// Whether everything is still there.
    fn look(&self) -> Result<(), String> {
        for fd in [self.kept[0], self.kept[1], self.probe, self.gone] {
            let mut data = [0; KEPT.len()];
            let got = self.calls.0.pread(fd, &mut data, 0);
            if got != KEPT.len() as isize || data != KEPT {
                return Err(format!("descriptor {fd} of who stays: {got}, {data:?}"));
            }
        }
        let flock = self.calls.flock(self.probe, libc::LOCK_EX);
        if flock != -i64::from(libc::EAGAIN) {
            return Err(format!("who stays has a flock that another gets: {flock}"));
        }
        for start in [0, 20] {
            let mut wanted = record(libc::F_WRLCK, start, 10);
            let asked = self.calls.record(self.probe, libc::F_OFD_GETLK, &mut wanted);
            if asked != 0 || i32::from(wanted.l_type) != libc::F_WRLCK {
                return Err(format!("who stays has lost its lock at {start}: {asked}, type {}", wanted.l_type));
            }
        }
        Ok(())
    }

    /// Gets every lock, now that nobody lives who has one.
    fn get_all(&self) -> Result<(), String> {
        for number in 0..LOCKED {
            let path = format!("/lock{number}");
            let fd = self.calls.0.open(&path, libc::O_RDWR);
            expect(fd as isize, || path.clone())?;
            let flock = self.calls.flock(fd, libc::LOCK_EX);
            expect(flock as isize, || format!("flock of {path}, whose holders are dead"))?;
            let whole = self.calls.record(fd, libc::F_OFD_SETLK, &mut record(libc::F_WRLCK, 0, 0));
            expect(whole as isize, || format!("lock of {path}, whose holders are dead"))?;
            self.calls.0.close(fd);
        }
        Ok(())
    }
}

/// One round of the process that stays; in the end it `dies`, or looks what is left.
fn stay(image: &Image, seed: u64, words: Words, dies: bool) -> Result<(), String> {
    take_orphans();
    let mut rng = Rng::new(seed);
    let native = image::attach(image.path());
    let stayer = Stayer::new(World::new(native))?;
    let world = &stayer.calls.0;
    let cx = world.process.cx(&world.thread);
    let before = native.0.census();
    let mut pids = [0; WORKERS];
    let own = std::process::id();
    let inherited = [stayer.kept[0], stayer.kept[1], stayer.probe, stayer.gone];
    let begin = |rng: &mut Rng| -> Result<i32, String> {
        let (draw, threads) = (rng.draw(), if rng.one_in(3) { 2 } else { 1 });
        if rng.one_in(2) {
            let token = world.process.fork_prepare(&world.thread).map_err(|errno| format!("before fork: {errno}"))?;
            let pid = fork(|| {
                if is_orphan(own) {
                    return;
                }
                world.process.fork_child(token);
                restless::begin(draw);
                let world = World { process: world.process, thread: crate::world::thread_state(), has_kernel: false };
                // Of two threads one might lock what the other has just put under a number.
                let numbers: &[i64] = if threads == 1 { &inherited } else { &[] };
                Worker::new(draw, words, numbers).run(world, threads);
            });
            world.process.fork_done(token, pid as u32);
            return Ok(pid);
        }
        Ok(fork(|| {
            if is_orphan(own) {
                return;
            }
            restless::begin(draw);
            Worker::new(draw, words, &[]).run(image.world(), threads);
        }))
    };
    for pid in &mut pids {
        *pid = begin(&mut rng)?;
    }
    for kill in 0..KILLS {
        words.wait(MADE, (kill + 1) * 20, Duration::from_secs(20));
        std::thread::sleep(Duration::from_micros(rng.below(2000)));
        let place = rng.below(WORKERS as u64) as usize;
        end(pids[place]);
        wait(pids[place]);
        stayer.look()?;
        if rng.one_in(2) {
            native.0.adopt_dead_processes(&cx);
            stayer.look()?;
        }
        if words.get(FAILED) != 0 {
            return Err("a worker failed".into());
        }
        pids[place] = begin(&mut rng)?;
    }
    if dies {
        // The others with us.
        end(std::process::id() as i32);
    }
    std::thread::sleep(Duration::from_micros(rng.below(2000)));
    pids.iter().for_each(|pid| end(*pid));
    reap();
    if words.get(FAILED) != 0 {
        return Err("a worker failed".into());
    }
    if words.get(FORKING) != 0 {
        world.process.detach(&world.thread);
        return Ok(());
    }
    if rng.one_in(2) {
        stayer.get_all()?;
    }
    let living = native.0.adopt_dead_processes(&cx);
    if living != 0 {
        return Err(format!("{living} of the dead are taken to live"));
    }
    stayer.get_all()?;
    stayer.look()?;
    let after = native.0.census();
    if after != before {
        return Err(format!("held after all others are dead: {after:?}\nand before they began: {before:?}"));
    }
    world.process.detach(&world.thread);
    Ok(())
}

/// Whether `parent` died before this child of its could ask to die with it.
fn is_orphan(parent: u32) -> bool {
    // SAFETY: no arguments.
    unsafe { libc::getppid() as u32 != parent }
}

fn end(pid: i32) {
    // SAFETY: our own child, not yet waited for, or ourselves.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

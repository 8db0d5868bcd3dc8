//! Programs of a session that work all through rounds, some of which are cut off: what comes out is what a plain directory is after
//! the same calls, and nothing is taken for another program's.
//!
//! Random work; `BYPATH_CASES` runs so many, from `BYPATH_SEED` on.

mod bench;

use bench::Op::{self, *};
use bench::power::number;
use bench::{Bench, Dice, How, may_run, wait_a_moment};
use std::thread::ScopedJoinHandle;
use writeback::{CUT, Failure};

/// Few names, so that they are used again and again.
const WORK: &[Op] = &[
    Create("f"),
    Create("g"),
    Create("d/f"),
    Write("f", 3, 10),
    Write("g", 0, 5_000),
    Append("f", 100),
    Append("g", 9),
    Append("d/f", 9),
    Append("big", 9),
    Cut("f", 2),
    Cut("big", 5),
    Unlink("f"),
    Unlink("g"),
    Unlink("d/f"),
    Rename("f", "g"),
    Rename("g", "f"),
    Rename("f", "d/f"),
    Rename("d/f", "g"),
    Rename("big", "f"),
    Rename("g", "big"),
    Exchange("f", "g"),
    Link("f", "g"),
    Link("g", "d/f"),
    Link("hard1", "f"),
    Rename("hard2", "g"),
    Chmod("f", 0o600),
    Mkdir("n"),
    Rename("f", "n/f"),
    Rename("n/f", "f"),
    Rmdir("n"),
    Rename("n", "d/n"),
    Rename("d/n", "n"),
    Rename("d", "m"),
    Rename("m", "d"),
];

/// A round in which programs do something before each step with a chance of one in six; perhaps it is cut off. What was
/// done.
fn round_beside(bench: &Bench, run: usize, dice: &mut Dice) -> String {
    /// A round has fewer steps than that, as a rule.
    const STEPS: usize = 30;
    let cut_at = if dice.roll(2) == 0 { 1 + dice.roll(STEPS) } else { usize::MAX };
    let mut done = String::new();
    std::thread::scope(|scope| {
        let (mut step, mut other) = (0, None::<ScopedJoinHandle<'_, ()>>);
        let mut hook = |name: &str| {
            step += 1;
            let is_free = other.as_ref().is_none_or(ScopedJoinHandle::is_finished);
            if is_free && dice.roll(6) == 0 {
                let ops: Vec<Op> = (0..=dice.roll(3)).map(|_| WORK[dice.roll(WORK.len())]).collect();
                done += &format!("; before step {step}, {name}: {ops:?}");
                let begun = scope.spawn(move || ops.iter().for_each(|op| bench.both(run, *op)));
                wait_a_moment(&begun);
                other = Some(begun);
            }
            if step >= cut_at { Err(CUT) } else { Ok(()) }
        };
        let round = bench.writer.lock().unwrap().round_with(false, &mut hook);
        let has_failed = |failure: &Failure| failure.errno != CUT;
        assert!(!round.as_ref().is_err_and(has_failed), "run {run}{done}: {round:?}");
        done += &format!("; {step} steps{}", if round.is_err() { ", cut" } else { "" });
    });
    done
}

fn restless(how: How, name: &str) {
    if !may_run() {
        return;
    }
    const BATCH: usize = 100;
    let (first, cases) = (number("BYPATH_SEED", 1) as usize, number("BYPATH_CASES", 300) as usize);
    for batch in (first..first + cases).step_by(BATCH) {
        // A kill in the midst of a file may leave a copy of it.
        let bench = Bench::new(name, BATCH, how).deciding_for_ours();
        for (run, seed) in (batch..first + cases).take(BATCH).enumerate() {
            let mut dice = Dice((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let mut what = format!("BYPATH_SEED={seed} BYPATH_CASES=1");
            for _ in 0..1 + dice.roll(3) {
                for _ in 0..1 + dice.roll(3) {
                    let op = WORK[dice.roll(WORK.len())];
                    what += &format!("; {op:?}");
                    bench.both(run, op);
                }
                what += &round_beside(&bench, run, &mut dice);
            }
            bench.check(run, &what);
        }
        bench.end();
    }
}

/// Goal: whatever programs do in the midst of rounds comes out as they did it.
#[test]
fn restless_directory() {
    restless(How::Directory, "restless");
}

/// The same behind a daemon, whose files have no numbers that last.
#[test]
fn restless_daemon() {
    restless(How::Daemon, "restless-daemon");
}

/// The same with a journal.
#[test]
fn restless_journal() {
    restless(How::Journal, "restless-journal");
}

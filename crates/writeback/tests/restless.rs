//! Programs of a session that work all through rounds, some of which are cut off: what comes out is what a plain directory is after
//! the same calls, and nothing is taken for another program's.
//!
//! Random work; `BYPATH_CASES` runs so many, from `BYPATH_SEED` on.

mod bench;

use bench::Op::{self, *};
use bench::power::number;
use bench::{Bench, Dice, How, may_run};

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
                what += &bench.restless(run, &mut dice, 6, WORK);
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

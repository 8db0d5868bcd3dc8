//! Rounds with faults that are planted in them: the tests of rounds notice each.
//!
//! Method: for each fault, a part of `rounds.rs` or of `power.rs` that is to notice it, until it does.

mod bench;
#[path = "others/mod.rs"]
mod others;

use bench::Op::{self, *};
use bench::deaths::{Part, die_if_told, points};
use bench::power::Start;
use bench::{Bench, How, OPS, may_run};
use cache::mutant::{Mutant, plant};
use others::explorer::{Explorer, Model, Point};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use writeback::Conflict;

/// One fault is planted at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What frees a number, and what is given it.
const TWICE: [Op; 2] = [Rename("d/e/deep", "f"), Mkdir("n")];
/// A case with a power failure, by its number.
type Case = dyn Fn(&mut Start, u64);

/// Cases with a power failure at most.
const CASES: u64 = 30;
/// Attempts with somebody beside at most.
const BESIDE: u32 = 40;
/// Steps of a round at most.
const STEPS: usize = 24;

/// Whether one of some trees comes out wrong.
fn is_noticed(name: &str, mut each: impl FnMut(&Bench, usize)) -> bool {
    let bench = Bench::new(name, STEPS * 8, How::Directory);
    let noticed = (0..STEPS * 8).any(|run| catch_unwind(AssertUnwindSafe(|| each(&bench, run))).is_err());
    let _ = std::fs::remove_dir_all(bench.image.parent().unwrap());
    noticed
}

/// Two operations, and a round that is cut off.
fn cut_off(name: &str, work: &[[Op; 2]]) -> bool {
    is_noticed(name, |bench, run| {
        work[run % work.len()].iter().for_each(|op| bench.both(run, *op));
        bench.cut(1 + run / work.len());
        bench.check(run, name);
    })
}

/// Goal: faults that a kill brings to light.
#[test]
fn rounds_notice() {
    if !may_run() {
        return;
    }
    let _alone = alone();
    std::panic::set_hook(Box::new(|_| {}));
    let new = [[Create("new"), Write("new", 0, 9)], [Create("d/new"), Chmod("d", 0o711)], [Append("big", 100_000), OPS[0]]];
    let fails = |test: &dyn Fn()| catch_unwind(AssertUnwindSafe(test)).is_err();
    let beside = || {
        let bench = Bench::new("beside", 160, How::Directory);
        fails(&|| {
            bench.moved_beside_rounds();
            (0..bench.runs).for_each(|run| bench.check(run, "beside"));
        })
    };
    let tests: [(Mutant, &dyn Fn() -> bool); 7] = [
        (Mutant::NoteAfterChange, &|| fails(&|| points(Part::Change, &[Create("new")], 24))),
        (Mutant::NoteAfterChange, &|| fails(&|| points(Part::Change, &[Write("f", 3, 10)], 24))),
        // Whoever moves things about has to come at the right moment.
        (Mutant::OpenedBeforeCopy, &|| (0..BESIDE).any(|_| beside())),
        (Mutant::NoteLeftOut, &|| cut_off("note", &new)),
        (Mutant::NameLeftOut, &|| cut_off("name", &new)),
        (Mutant::DataAfterName, &|| cut_off("data", &new)),
        (Mutant::NumberAfterName, &|| cut_off("number", &new)),
    ];
    let mut missed = Vec::new();
    for (mutant, notices) in tests {
        plant(Some(mutant));
        if !notices() {
            missed.push(mutant);
        }
        plant(None);
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// The other user of the image, where one is wanted.
#[test]
fn the_one_that_dies() {
    die_if_told();
}

/// Goal: faults that a power failure brings to light. Method: for each a seed of `power.rs` that does.
#[test]
fn power_notices() {
    if !may_run() {
        return;
    }
    let _alone = alone();
    let tests: [(Mutant, How, &Case); 4] = [
        (Mutant::FreedBeforeSync, How::Outlived, &|start, number| start.drawn(3 + number)),
        (Mutant::NumberGivenTwice, How::Outlived, &|start, number| start.case(&TWICE, Some(24), 6 + number, 24)),
        (Mutant::BelievedWhole, How::Outlived, &|start, number| start.case(&[Create("new")], Some(3), 5 + number, 24)),
        (Mutant::TailBeforeSync, How::JournalBeside, &|start, number| {
            start.without_image([Create("new"), Append("big", 9)], true, (Some(100), 5 + number), 24);
        }),
    ];
    for (mutant, how, case) in tests {
        // What panics leaves nothing that could go on.
        let Some(mut start) = Start::make(how) else {
            println!("skip: no loop device or mkfs here: NOT tested");
            return;
        };
        plant(Some(mutant));
        let noticed = (0..CASES).find(|number| catch_unwind(AssertUnwindSafe(|| case(&mut start, *number))).is_err());
        plant(None);
        println!("{mutant:?}: noticed by case {noticed:?}");
        assert!(noticed.is_some(), "not noticed: {mutant:?}");
        start.end();
    }
}

/// Goal: faults by which another program on the directory below loses something. Method: for each a few pairs of two writers.
#[test]
fn others_notice() {
    if !may_run() {
        return;
    }
    let _alone = alone();
    use others::operations::Theirs;
    let tests: [(Mutant, Op, Theirs, Point); 3] = [
        (Mutant::TheirsOverwritten, Write("f", 3, 10), Theirs::Put("f", 3, 2), Point::Between),
        (Mutant::TheirsRemoved, Unlink("f"), Theirs::Add("f", 7), Point::Between),
        (Mutant::TheirsRemoved, Rename("f", "big"), Theirs::Add("big", 5_000), Point::Between),
    ];
    let mut missed = Vec::new();
    for (mutant, ours, theirs, point) in tests {
        plant(Some(mutant));
        let mut explorer = Explorer::new(&format!("{mutant:?}"), Conflict::Both);
        let model = Model::of(&explorer.twins(), &[ours], &[theirs]).unwrap();
        explorer.case(&model, &[ours], &[theirs], point);
        if explorer.end(1) {
            missed.push((mutant, ours, theirs, point));
        }
        plant(None);
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

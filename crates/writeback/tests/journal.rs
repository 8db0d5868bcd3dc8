//! The journal alone makes the directory what it was at the last cut.
//!
//! Method: one cache with a journal in front of many equal small trees, as in `rounds.rs`, and a twin of each by the
//! kernel. Work is done on all of them, with cuts, rounds, and rounds that are cut off at step k in between; then the image
//! is removed, and the journal replayed, perhaps cut off itself and begun again. The trees must be what their twins were at
//! the last cut, whatever has been done since.

mod bench;

use bench::{Bench, Dice, How, OPS, Shown, Trees, may_run, tree};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use writeback::CUT;
use writeback::journal::Left;

fn commit(bench: &Bench) -> Trees {
    // What is done meanwhile, by nobody, would be in one and not in the other.
    let committed = bench.committer.as_ref().unwrap().lock().unwrap().commit().unwrap();
    assert!(committed);
    bench.trees_of_twins()
}

/// A round that is cut off before step `at`, in the middle of which, before step `middle`, `act` is done. Whether it came to
/// its end.
fn round(bench: &Bench, at: usize, middle: usize, act: &mut dyn FnMut()) -> bool {
    let mut step = 0;
    let mut hook = |_: &str| {
        step += 1;
        if step == middle {
            act();
        }
        if step > at { Err(CUT) } else { Ok(()) }
    };
    bench.writer.lock().unwrap().round_with(false, &mut hook).is_ok()
}

fn replay(bench: &Bench, cuts: &[usize]) {
    for cut in cuts.iter().map(Some).chain([None]) {
        let mut left = Left::open(&bench.journal).unwrap().unwrap();
        let mut step = 0;
        let mut hook = |_: &str| {
            step += 1;
            if cut.is_some_and(|cut| step > *cut) { Err(CUT) } else { Ok(()) }
        };
        let result = left.replay_with(&bench.low, false, &mut hook);
        match (cut, result) {
            (Some(_), Ok(_)) => return,
            (Some(_), Err(failure)) => assert_eq!(failure.errno, CUT, "{failure}"),
            (None, result) => drop(result.unwrap()),
        }
    }
    assert_eq!(Left::open(&bench.journal).unwrap().unwrap().groups(), 0);
}

fn compare(bench: &Bench, wanted: &Trees, what: &str) {
    for (run, wanted) in wanted.iter().enumerate() {
        let there = tree(&bench.low.join(run.to_string()));
        let names = |all: &BTreeMap<String, Shown>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&there), names(wanted), "{what}: run {run}");
        for (name, wanted) in wanted {
            let there = &there[name];
            let differs = there.3.iter().zip(&wanted.3).position(|(a, b)| a != b);
            let like = |shown: &Shown| (shown.0, shown.1, shown.2, shown.3.len(), shown.4.clone());
            assert_eq!((like(there), differs), (like(wanted), None), "{what}: run {run}: {name}");
        }
    }
    assert!(!bench.low.join(writeback::PARK).exists(), "{what}: left in the park");
    let others: Vec<_> = std::fs::read_dir(&bench.low).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(others.len(), bench.runs, "{what}: {others:?}");
}

/// One life of a cache, and its end; whether it told anything.
fn life(seed: u64) -> bool {
    let mut dice = Dice(seed);
    let bench = Bench::new(&format!("journal-{seed}"), 24, How::Journal);
    let is_warm = dice.roll(2) == 0;
    if is_warm {
        bench.warm();
    }
    let mut wanted = commit(&bench);
    let mut helped = 0;
    let work = |dice: &mut Dice, count: usize| {
        for _ in 0..count {
            let (run, op) = (dice.roll(bench.runs), OPS[dice.roll(OPS.len())]);
            bench.both(run, op);
        }
    };
    for _ in 0..2 + dice.roll(6) {
        let count = 1 + dice.roll(12);
        work(&mut dice, count);
        match dice.roll(4) {
            0 => wanted = commit(&bench),
            1 | 2 => {
                // A round says in the journal what it is going to do.
                let before = bench.trees_of_twins();
                let (at, middle) = (if dice.roll(3) == 0 { usize::MAX } else { 1 + dice.roll(120) }, 1 + dice.roll(60));
                let acted = Mutex::new(None);
                let cut_in = dice.roll(2) == 0;
                let mut act = || {
                    for _ in 0..if is_warm { 3 } else { 0 } {
                        let (run, op) = (dice.roll(bench.runs), OPS[dice.roll(OPS.len())]);
                        bench.both(run, op);
                    }
                    if cut_in {
                        *acted.lock().unwrap() = Some(commit(&bench));
                    }
                };
                // One that came to its end has said all that was done until then.
                wanted = match round(&bench, at, middle, &mut act) {
                    true => bench.trees_of_twins(),
                    false => acted.into_inner().unwrap().unwrap_or(before),
                };
            }
            _ => continue,
        }
        helped = bench.helped.load(SeqCst);
    }
    // Somebody who needed bytes, or names, from below has waited for a round, which has cut something else.
    let tells = helped == bench.helped.load(SeqCst);
    std::fs::remove_file(&bench.image).unwrap();
    let cuts: Vec<usize> = (0..dice.roll(4)).map(|_| dice.roll(150)).collect();
    replay(&bench, &cuts);
    if tells {
        compare(&bench, &wanted, &format!("seed {seed}, replay cut off at {cuts:?}"));
    }
    let _ = std::fs::remove_dir_all(bench.low.parent().unwrap());
    tells
}

/// Goal: nothing that a cut said is lost or mixed with what came after, whatever was done and wherever it ended.
#[test]
fn image_is_lost() {
    if !may_run() {
        return;
    }
    let lives = std::env::var("BYPATH_LIVES").ok().and_then(|text| text.parse().ok()).unwrap_or(120);
    let first = std::env::var("BYPATH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let told = (first..first + lives).filter(|seed| life(*seed)).count() as u64;
    assert!(told * 2 > lives, "{told} of {lives}");
}

/// Goal: each pair of operations, the first said in a cut, the second by the round, which is cut off, and the replay too.
/// A few of them; with `BYPATH_FIRST`, the number of the first operation, a third of all steps of all its pairs.
#[test]
fn pairs_cut_off() {
    if !may_run() {
        return;
    }
    let first = bench::first();
    let stride = if first.is_some() { 3 } else { 400 };
    for index in (0..OPS.len()).filter(|index| first.map_or(index % 3 == 1, |first| first == *index)) {
        for at in (1 + index * 5 % stride..).step_by(stride) {
            let bench = Bench::new(&format!("pairs-{index}-{at}"), OPS.len(), How::Journal);
            (0..bench.runs).for_each(|run| bench.both(run, OPS[index]));
            commit(&bench);
            OPS.iter().enumerate().for_each(|(run, op)| bench.both(run, *op));
            let wanted = bench.trees_of_twins();
            let is_over = round(&bench, at, 0, &mut || {});
            std::fs::remove_file(&bench.image).unwrap();
            replay(&bench, &[at % 97]);
            compare(&bench, &wanted, &format!("{:?}, cut off at {at}", OPS[index]));
            let _ = std::fs::remove_dir_all(bench.low.parent().unwrap());
            if is_over {
                break;
            }
        }
    }
}

/// The device had another number when that round was made.
fn renumber(bench: &Bench) {
    for entry in std::fs::read_dir(bench.low.join(writeback::PARK)).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if let Some((device, number)) = name.split_once('.') {
            let device = u64::from_str_radix(device, 16).unwrap() + 0x100;
            std::fs::rename(entry.path(), entry.path().with_file_name(format!("{device:x}.{number}"))).unwrap();
        }
    }
}

/// Goal: each operation alone, said in one cut, and its round cut off at each step; the device's number may be another when
/// that is replayed.
#[test]
fn each_operation() {
    if !may_run() {
        return;
    }
    for (at, is_renumbered) in (1..400).step_by(3).flat_map(|at| [(at, false), (at, true)]) {
        let bench = Bench::new(&format!("operations-{at}"), OPS.len(), How::Journal);
        for (run, op) in OPS.iter().enumerate() {
            bench.both(run, *op);
        }
        let wanted = bench.trees_of_twins();
        let is_over = round(&bench, at, 0, &mut || {});
        if is_renumbered {
            renumber(&bench);
        }
        std::fs::remove_file(&bench.image).unwrap();
        replay(&bench, &[]);
        compare(&bench, &wanted, &format!("cut off at {at}"));
        let _ = std::fs::remove_dir_all(bench.low.parent().unwrap());
        if is_over && is_renumbered {
            break;
        }
    }
}

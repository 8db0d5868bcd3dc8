//! Two writers: the session, and another program on the directory below. Nothing of either is lost.
//!
//! Method: each operation of a session with each operation of another program, at each point in time: before the session's
//! operation, between it and the round, before each step of the round, after it, after a round that was cut off; and random
//! ones, more of each. Then rounds until all is below, and a look. What is to be there then: `others/oracle.rs`, the table
//! of `docs/internals/cache-others.md`. A portion; `BYPATH_FIRST=n`: all of operation n. `make cache-others`: all.

mod bench;
#[path = "others/mod.rs"]
mod others;

use bench::{OPS, Op, may_run};
use others::explorer::{Explorer, Model, Point, STEPS};
use others::operations::{THEIRS, before};
use writeback::Conflict;

/// Faults that are shown in full.
fn shown_max() -> usize {
    std::env::var("BYPATH_SHOWN").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// One of so many pairs is tried where no operation is asked for.
const PORTION: usize = 13;

/// All that the session does for this operation.
fn work(op: Op) -> Vec<Op> {
    before(op).iter().copied().chain([op]).collect()
}

/// Pairs, at these points in time; `steps`: and at each step of the round.
fn pairs(name: &str, mode: Conflict, points: &[Point], (portion, steps): (usize, bool)) {
    if !may_run() {
        return;
    }
    let (first, mut explorer) = (bench::first(), Explorer::new(name, mode));
    let chosen = OPS.iter().enumerate().filter(|(index, _)| first.is_none_or(|first| first == *index));
    for (index, ours) in chosen {
        for (other, theirs) in THEIRS.iter().enumerate() {
            if first.is_none() && (index * 5 + other) % portion != 0 {
                continue;
            }
            let ours = work(*ours);
            let theirs = [*theirs];
            let Some(model) = Model::of(&explorer.twins(), &ours, &theirs) else { panic!("{ours:?}, {theirs:?}: not done") };
            for point in points {
                explorer.case(&model, &ours, &theirs, *point);
            }
            let mut at = 1;
            while steps && at < STEPS && explorer.case(&model, &ours, &theirs, Point::Step(at)) {
                if (index + other + at) % 3 == 0 {
                    explorer.case(&model, &ours, &theirs, Point::Cut(at));
                }
                at += 1;
            }
        }
    }
    assert!(explorer.end(shown_max()), "both wrote, and not all of it is there");
}

/// Goal: neither side loses anything, whenever the other program comes.
#[test]
fn pairs_with_others() {
    let points = [Point::First, Point::Between, Point::After];
    pairs("both", Conflict::Both, &points, (PORTION, true));
}

/// Goal: with `conflict=ours` what both have changed is ours, and the rest is kept of both.
#[test]
fn pairs_that_are_ours() {
    pairs("ours", Conflict::Ours, &[Point::Between], (PORTION / 2 + 1, false));
}

/// Goal: with `conflict=stop` what both have changed stays theirs, and rounds say so; the rest is kept of both.
#[test]
fn pairs_that_stop() {
    pairs("stop", Conflict::Stop, &[Point::Between], (PORTION / 2 + 1, false));
}

/// Goal: the same of longer work of both sides. `BYPATH_SEED`, `BYPATH_CASES`.
#[test]
fn random_with_others() {
    if !may_run() {
        return;
    }
    let seed = bench::power::number("BYPATH_SEED", 46);
    let cases = bench::power::number("BYPATH_CASES", 200);
    println!("BYPATH_SEED={seed}");
    let mut explorer = Explorer::new("random", Conflict::Both);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let mut case = 0;
    while case < cases {
        let ours: Vec<Op> = (0..1 + below(3)).flat_map(|_| work(OPS[below(OPS.len())])).collect();
        let theirs: Vec<_> = (0..1 + below(2)).map(|_| THEIRS[below(THEIRS.len())]).collect();
        let point = match below(6) {
            0 => Point::First,
            1 | 2 => Point::Amid,
            3 => Point::Between,
            4 if theirs.len() == 1 => [Point::Step, Point::Cut][below(2)](1 + below(20)),
            _ => Point::After,
        };
        if let Some(model) = Model::of(&explorer.twins(), &ours, &theirs) {
            explorer.case(&model, &ours, &theirs, point);
            case += 1;
        }
    }
    assert!(explorer.end(shown_max()), "both wrote, and not all of it is there: BYPATH_SEED={seed}");
}

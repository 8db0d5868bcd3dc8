//! Rounds, cut off at every step and run again: the directory below becomes what a plain directory is after the same work.
//!
//! Method: one cache in front of a directory with many equal small trees. On each a sequence of operations is done by the
//! cache, and on a twin of it by the kernel; a round is cut off at step k, for all k, perhaps followed by more work, and
//! run to the end. Then the tree below, the twin, and what the cache shows are compared: names, kinds, contents, modes,
//! link counts, owners.

mod bench;

use bench::Op::{self, *};
use bench::{Bench, How, OPS, may_run};

/// Goal: each operation, and each pair of them, comes out below as on a plain directory, with one round after both and
/// with one between.
#[test]
fn pairs() {
    pairs_behind(How::Directory);
}

/// The same behind a daemon, whose files have no numbers that last.
#[test]
fn pairs_of_a_daemon() {
    pairs_behind(How::Daemon);
}

fn pairs_behind(how: How) {
    if !may_run() {
        return;
    }
    let bench = Bench::new("pairs", 2 * OPS.len() * OPS.len(), how);
    let mut run = 0;
    for a in OPS {
        for b in OPS {
            // The half of them, where each is checked in more ways than one.
            let betweens: &[bool] = if how == How::Daemon { &[run % 2 == 0] } else { &[false, true] };
            for &between in betweens {
                bench.both(run, *a);
                if between {
                    bench.writer.lock().unwrap().round(false).unwrap();
                }
                bench.both(run, *b);
                bench.check(run, &format!("{a:?}, {b:?}, round between: {between}"));
                run += 1;
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: a round after each pair of operations may be cut off at any step. One step of a third of the pairs; with
/// `BYPATH_FIRST`, the number of the first operation, all steps of all its pairs.
#[test]
fn pairs_cut_off() {
    pairs_cut_off_behind(How::Directory);
}

/// The same behind a daemon.
#[test]
fn pairs_cut_off_of_a_daemon() {
    pairs_cut_off_behind(How::Daemon);
}

fn pairs_cut_off_behind(how: How) {
    if !may_run() {
        return;
    }
    const STEPS: usize = 60;
    let first = bench::first();
    let bench = Bench::new("pairs-cut", OPS.len() * if first.is_some() { STEPS } else { OPS.len() }, how);
    let mut run = 0;
    for (index, a) in OPS.iter().enumerate().filter(|(index, _)| first.is_none_or(|first| first == *index)) {
        for (other, b) in OPS.iter().enumerate().filter(|(other, _)| first.is_some() || (index + other) % 3 == 0) {
            let one = 1 + (index * OPS.len() + other) * 7 % 19;
            for at in if first.is_some() { 1..STEPS } else { one..one + 1 } {
                bench.both(run, *a);
                bench.both(run, *b);
                let was_cut = bench.cut(at);
                bench.check(run, &format!("{a:?}, {b:?}, cut at {at}"));
                run += 1;
                if !was_cut {
                    break;
                }
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: a round that takes over the notes of one that was cut off may be cut off itself, at any step, and programs go on in between:
/// what they append comes once, in order.
#[test]
fn cut_off_twice() {
    if !may_run() {
        return;
    }
    for how in [How::Directory, How::Journal] {
        cut_off_twice_behind(how);
    }
}

fn cut_off_twice_behind(how: How) {
    const STEPS: usize = 40;
    let triples: [[Op; 3]; 4] = [
        [Append("f", 100), Append("f", 30), Append("f", 7)],
        [Append("big", 70_000), Append("big", 9), Append("f", 7)],
        [Append("f", 100), Write("f", 3, 10), Append("f", 7)],
        [Append("f", 10), Rename("f", "g"), Append("g", 7)],
    ];
    let bench = Bench::new("twice", triples.len() * STEPS * 3, how);
    let mut run = 0;
    for triple in triples {
        // The first one is cut off when it has written, or at its end.
        for first in [6, 9, 11] {
            for second in 1..STEPS {
                bench.both(run, triple[0]);
                bench.cut(first);
                bench.both(run, triple[1]);
                let was_cut = bench.cut(second);
                bench.both(run, triple[2]);
                bench.check(run, &format!("{triple:?}, cut at {first} and at {second}"));
                run += 1;
                if !was_cut {
                    break;
                }
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: a round reads the tree at one moment, however busy somebody is: nothing is taken for gone that was on its way.
#[test]
fn moved_beside_rounds() {
    moved_beside_rounds_behind(How::Directory);
}

/// The same behind a daemon.
#[test]
fn moved_beside_rounds_of_a_daemon() {
    moved_beside_rounds_behind(How::Daemon);
}

fn moved_beside_rounds_behind(how: How) {
    if !may_run() {
        return;
    }
    let bench = Bench::new("beside", 160, how);
    bench.moved_beside_rounds();
    (0..bench.runs).for_each(|run| bench.check(run, "moved beside rounds"));
    bench.end();
}

/// Goal: a round may be cut off at any step and runs again, with and without work in between.
#[test]
fn cut_anywhere() {
    cut_anywhere_behind(How::Directory);
}

/// The same behind a daemon, whose files have no numbers that last.
#[test]
fn cut_anywhere_of_a_daemon() {
    cut_anywhere_behind(How::Daemon);
}

fn cut_anywhere_behind(how: How) {
    if !may_run() {
        return;
    }
    const STEPS: usize = 60;
    let bench = Bench::new("cut", OPS.len() * STEPS * 2, how);
    let mut run = 0;
    for (index, a) in OPS.iter().enumerate() {
        let b = OPS[(index * 7 + 3) % OPS.len()];
        for then in [false, true] {
            for at in 1..STEPS {
                bench.both(run, *a);
                bench.both(run, OPS[(index * 5 + 1) % OPS.len()]);
                let was_cut = bench.cut(at);
                if then {
                    bench.both(run, b);
                }
                bench.check(run, &format!("{a:?}, cut at {at}, then {then}: {b:?}"));
                run += 1;
                if !was_cut {
                    break;
                }
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: what changed places with a file of ours, before the round was cut off and the file was moved on, is nobody else's.
#[test]
fn moved_on_after_a_cut() {
    if !may_run() {
        return;
    }
    const STEPS: usize = 40;
    let firsts: [&[_]; 3] =
        [&[Create("new"), Rename("new", "f")], &[Unlink("f"), Create("f")], &[Link("hard1", "new"), Rename("new", "f")]];
    let thens: [&[_]; 5] = [
        &[Rename("f", "g")],
        &[Rename("f", "d/f"), Create("f")],
        &[Unlink("f")],
        &[Rename("f", "big")],
        &[Rename("f", "d/f"), Rename("d", "moved")],
    ];
    let bench = Bench::new("moved-on", firsts.len() * thens.len() * STEPS, How::Directory);
    let mut run = 0;
    for (first, then) in firsts.iter().flat_map(|first| thens.iter().map(move |then| (first, then))) {
        for at in 1..STEPS {
            first.iter().for_each(|op| bench.both(run, *op));
            let was_cut = bench.cut(at);
            then.iter().for_each(|op| bench.both(run, *op));
            bench.check(run, &format!("{first:?}, cut at {at}, then {then:?}"));
            run += 1;
            if !was_cut {
                break;
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: files with several names, moved about at random within one round: each name comes out, and none is left over.
#[test]
fn names_of_one_file() {
    names_of_one_file_behind(How::Directory);
}

/// The same behind a daemon.
#[test]
fn names_of_one_file_of_a_daemon() {
    names_of_one_file_behind(How::Daemon);
}

fn names_of_one_file_behind(how: How) {
    if !may_run() {
        return;
    }
    const RUNS: usize = 400;
    const NAMES: [&str; 6] = ["hard1", "hard2", "d/h3", "h4", "f", "d/e/deep"];
    let bench = Bench::new("names", RUNS, how);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for run in 0..RUNS {
        let mut done = Vec::new();
        for _ in 0..2 + below(7) {
            let (a, b) = (NAMES[below(NAMES.len())], NAMES[below(NAMES.len())]);
            let op =
                [Link(a, b), Rename(a, b), Rename(a, b), Unlink(a), Exchange(a, b), Rename("d", "moved"), Rename("moved", "d")]
                    [below(7)];
            bench.both(run, op);
            done.push(op);
        }
        bench.check(run, &format!("{done:?}"));
    }
    bench.end();
}

/// Goal: what is done while a round is under way comes out too, whatever the round has done by then.
#[test]
fn changes_meanwhile() {
    changes_meanwhile_behind(How::Directory);
}

/// The same behind a daemon, whose files have no numbers that last.
#[test]
fn changes_meanwhile_of_a_daemon() {
    changes_meanwhile_behind(How::Daemon);
}

fn changes_meanwhile_behind(how: How) {
    if !may_run() {
        return;
    }
    const STEPS: usize = 40;
    let others = [
        Unlink("new"),
        Rename("new", "f"),
        Unlink("f"),
        Rename("d", "d3"),
        Rename("f", "d/f2"),
        Append("big", 9),
        Append("new", 9),
        Cut("new", 3),
        Rmdir("n"),
        Rename("f", "big"),
    ];
    let firsts = [
        Create("new"),
        Mkdir("n"),
        Rename("f", "new"),
        Rename("d", "moved"),
        Write("big", 5, 9),
        Append("big", 100),
        Exchange("f", "d"),
    ];
    let bench = Bench::new("meanwhile", firsts.len() * others.len() * STEPS, how);
    let mut run = 0;
    for first in firsts {
        for other in others {
            for at in 1..STEPS {
                bench.both(run, first);
                let came = bench.meanwhile(run, at, &[other], usize::MAX);
                bench.check(run, &format!("{first:?}, before step {at}: {other:?}"));
                run += 1;
                if !came {
                    break;
                }
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: what a round makes and somebody moves before the image knows which file that is below comes out once, where it is.
#[test]
fn moved_before_it_is_known() {
    moved_before_it_is_known_behind(How::Directory);
}

/// The same behind a daemon.
#[test]
fn moved_before_it_is_known_of_a_daemon() {
    moved_before_it_is_known_behind(How::Daemon);
}

fn moved_before_it_is_known_behind(how: How) {
    if !may_run() {
        return;
    }
    const STEPS: usize = 40;
    // A directory in one that is newer, and in one that is older.
    let firsts = [Mkdir("n"), Mkdir("n/e"), Create("n/x"), Create("n/e/y"), Mkdir("q"), Rename("n", "q/n")];
    let others: [&[_]; 5] = [
        &[Unlink("q/n/x"), Rename("q/n", "m")],
        &[Rename("q/n", "m"), Unlink("m/x"), Rmdir("q")],
        &[Rename("q/n", "m"), Rename("m/x", "z")],
        &[Rename("q/n", "d/m"), Rename("d/m/e", "k"), Rename("k/y", "d/m/x")],
        &[Rename("q/n/e", "k"), Rename("q/n", "k/n"), Rename("k/n/x", "k/y")],
    ];
    let bench = Bench::new("unknown", others.len() * STEPS * 2, how);
    let mut run = 0;
    for other in others {
        for cut_after in [2, usize::MAX] {
            for at in (1..STEPS).step_by(if how == How::Daemon { 2 } else { 1 }) {
                firsts.iter().for_each(|op| bench.both(run, *op));
                let came = bench.meanwhile(run, at, other, cut_after);
                bench.check(run, &format!("before step {at}: {other:?}, cut after {cut_after}"));
                run += 1;
                if !came {
                    break;
                }
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: a daemon that fails at any call of a round, or dies having done what it was asked for, loses nothing; the rounds
/// after it find out which. Method: the call number k of a round is answered by an error, made or not.
#[test]
fn daemon_fails_anywhere() {
    if !may_run() {
        return;
    }
    const CALLS: usize = 40;
    let pairs = OPS.iter().enumerate().filter(|(index, _)| index % 2 == 0);
    let bench = Bench::new("fails", OPS.len() * CALLS, How::Daemon);
    let daemon = bench.by.unwrap().lower();
    let mut run = 0;
    for (index, a) in pairs {
        for is_made in [false, true] {
            // The one that sets the times of the top directory, which some daemons can't.
            let mut forgiven = 0;
            for at in 1..CALLS {
                bench.both(run, *a);
                bench.both(run, OPS[(index * 5 + 1) % OPS.len()]);
                daemon.fail(at, is_made);
                let result = bench.writer.lock().unwrap().round(false);
                let has_failed = daemon.has_failed();
                forgiven += usize::from(has_failed && result.is_ok());
                assert!((has_failed || result.is_ok()) && forgiven <= 1, "{a:?}, call {at}: {result:?}");
                bench.check(run, &format!("{a:?}, call {at} fails, made: {is_made}"));
                run += 1;
                if !has_failed {
                    break;
                }
            }
        }
    }
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: what others have put below, or changed there, in place of what was seen is kept beside, and what was changed here
/// gets its name.
#[test]
fn daemon_with_others() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("others", 2, How::Daemon);
    bench.warm();
    bench.both(0, Create("new"));
    bench.both(0, Rename("d/e/deep", "f"));
    std::fs::write(bench.low.join("0/new"), b"theirs").unwrap();
    std::fs::write(bench.low.join("0/f"), b"changed by them").unwrap();
    bench.writer.lock().unwrap().round(false).unwrap();
    let read = |name: &str| std::fs::read(bench.low.join(name)).unwrap();
    assert_eq!(read("0/new"), b"");
    assert_eq!(read("0/new.bypath-theirs"), b"theirs");
    assert_eq!(read("0/f"), b"deep");
    assert_eq!(read("0/f.bypath-theirs"), b"changed by them");
    bench.end();
}

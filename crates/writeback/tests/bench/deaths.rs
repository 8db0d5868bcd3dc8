//! Another process that dies: `tests/deaths.rs` says how.

use super::{Bench, How, OPS, Op, by_kernel, tree};
use cache::mutant::{Mutant, is, plant};
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Says which part of what, in the environment of the one that dies.
const TOLD: &str = "BYPATH_DIES";

/// What it is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Change,
    Round,
}

thread_local! {
    /// Accesses that are left, of this thread; and whether they are counted.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

fn touched() {
    LEFT.with(|left| match left.get() {
        Some(0) => {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        Some(some) => left.set(Some(some - 1)),
        None => {}
    });
}

/// Does what the environment says.
pub fn die_if_told() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let [top, part, run, op, left, is_warm, has_fault] = told.splitn(7, ' ').collect::<Vec<_>>().try_into().unwrap();
    let [run, op] = [run, op].map(|text| text.parse::<usize>().unwrap());
    let left: u64 = left.parse().unwrap();
    let is_warm = is_warm == "true";
    plant((has_fault == "true").then_some(Mutant::NoteAfterChange));
    let at = |name: &str| std::path::Path::new(top).join(name);
    let bench = Bench::beside(at("low"), at("twins"), at("c.img"), How::Directory);
    pm::record::on_touch(touched);
    if is_warm {
        // All that is in its way is here.
        bench.with(|cx| bench.show_run(cx, run));
    }
    LEFT.set(Some(left));
    if part == "Change" {
        // As the kernel does it, it can or it can't be done.
        let _ = bench.with(|cx| bench.by_cache(cx, run, OPS[op]));
    } else {
        bench.writer.lock().unwrap().round(false).unwrap();
    }
    let rest = LEFT.take().unwrap();
    std::fs::write(at("accesses"), (left - rest).to_string()).unwrap();
    // Its threads and what it has attached end with it.
    std::process::exit(0);
}

/// Has another process do it, and die before an access. How many there were, if it has lived.
pub fn one(bench: &Bench, run: usize, part: Part, op: Op, (at, is_warm): (u64, bool)) -> Option<u64> {
    let top = bench.image.parent().unwrap();
    let number = OPS.iter().position(|other| format!("{other:?}") == format!("{op:?}")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_one_that_dies", "--nocapture", "--test-threads=1"]);
    let told = format!("{} {part:?} {run} {number} {at} {is_warm} {}", top.display(), is(Mutant::NoteAfterChange));
    let output = command.env(TOLD, told).output().unwrap();
    if output.status.signal() == Some(9) {
        return None;
    }
    assert!(output.status.success(), "{op:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read_to_string(top.join("accesses")).unwrap().parse().unwrap())
}

/// Whether a file is written in place, so that a death leaves it half written.
fn is_in_place(op: &Op) -> bool {
    matches!(op, Op::Write(..) | Op::Append(..) | Op::Punch(..))
}

/// Each operation, in a process that dies at some of its accesses: where all that it needs is in the image, and where not.
pub fn points(part: Part, ops: &[Op], points: u64) {
    let (in_place, others): (Vec<Op>, Vec<Op>) = ops.iter().partition(|op| is_in_place(op));
    let runs = |ops: &[Op]| 2 * ops.len() * (points as usize + 3);
    let name = |kind: &str| format!("deaths-{part:?}-{kind}");
    let deaths = points_of(Bench::new(&name("names"), runs(&others), How::Directory), part, &others, points);
    // A half that a dead writer has left may be kept as another program's; here there is none.
    let bench = Bench::new(&name("bytes"), runs(&in_place), How::Directory).deciding_for_ours();
    let deaths = deaths + points_of(bench, part, &in_place, points);
    let all = 2 * ops.len() as u64 * points;
    assert!(deaths * 3 > all * 2, "{deaths} of {all}");
}

/// The same on one directory; how often a process has died.
fn points_of(bench: Bench, part: Part, ops: &[Op], points: u64) -> u64 {
    let (mut runs, mut deaths) = (0.., 0);
    for (op, is_warm) in ops.iter().flat_map(|op| [(op, false), (op, true)]) {
        let mut at = |access: u64| dies(&bench, runs.next().unwrap(), part, *op, (access, is_warm));
        // After a death it takes more of them than before.
        let all = at(u64::MAX).and_then(|all| at(all / 2).or_else(|| at(u64::MAX))).unwrap();
        for point in 0..points {
            // Not the same part of each stretch.
            deaths += u64::from(at((all * point + point * 7919 % all) / points).is_none());
        }
    }
    bench.end();
    deaths
}

/// One of them, and what is left; how many accesses there were, if it has lived.
fn dies(bench: &Bench, run: usize, part: Part, op: Op, (at, is_warm): (u64, bool)) -> Option<u64> {
    let twin = bench.twins.join(run.to_string());
    if part == Part::Round {
        bench.both(run, op);
    }
    let before = tree(&twin);
    let lived = one(bench, run, part, op, (at, is_warm));
    if part == Part::Change {
        by_kernel(&twin, op);
    }
    let after = tree(&twin);
    let what = format!("{op:?}, warm: {is_warm}, dead at access {at}");
    let there = bench.drained(run, &what);
    if lived.is_some() || part == Part::Round {
        assert_eq!(there, after, "run {run}: {what}");
    } else if !is_in_place(&op) {
        // Of bytes each may be old or new.
        assert!(there == after || there == before, "run {run}: {what}: {there:?}");
    }
    lived
}

//! Failures below, at each call of a round: the rest arrives, what failed is named, and the next rounds do what is left.
//!
//! Method: the session works in three places that have nothing to do with each other. A round is refused at step k, for all k,
//! with an error as file systems have them: once, or at all steps of one kind for three rounds. Obstacles that are real:
//! `tests/conformance/cached_obstacles.sh`.

mod bench;

use bench::Op::{self, *};
use bench::{Bench, How, by_kernel, may_run, tree};
use pm::Errno;
use std::collections::BTreeSet;

/// What the session does in three places; each is made of paths that no other has.
const WORK: &[[&[Op]; 3]] = &[
    [&[Append("f", 9), Chmod("f", 0o600)], &[Write("big", 70_000, 5_000)], &[Create("d/e/new"), Write("d/e/new", 0, 9)]],
    [&[Rename("f", "g")], &[Unlink("big")], &[Rename("d/e/deep", "d/deep")]],
    [&[Create("new"), Rename("new", "f")], &[Cut("big", 400_000), Times("big", 7)], &[Mkdir("d/n"), Create("d/n/x")]],
    [&[Link("f", "l")], &[Punch("big", 4_096, 100_000)], &[Rename("d", "moved"), Create("moved/x")]],
    [&[Exchange("f", "s")], &[Attribute("big")], &[Rename("empty", "d/empty"), Symlink("to", "d/empty/s")]],
    [&[Rename("f", "g"), Chmod("g", 0o600)], &[Rename("big", "d/large"), Times("d/large", 7)], &[Unlink("d/e/deep")]],
    [&[Fifo("p")], &[Rename("hard1", "big")], &[Unlink("d/e/deep"), Rmdir("d/e")]],
];

/// Full, a quota, read-only, rights taken, a bad block, removed by another program.
const ERRORS: &[Errno] = &[Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS, Errno::EACCES, Errno::EIO, Errno::ENOENT];

/// Steps of a round at most.
const STEPS: usize = 80;

/// Steps that are everybody's: without them nothing of a round can be done, or be called done.
const COMMON: &[&str] = &["take", "sync", "stamps", "free", "notes", "tail", "clear"];

/// How many of the places are below as they are in the twin.
fn arrived(bench: &Bench, run: usize, work: &[&[Op]; 3]) -> usize {
    let (there, wanted) = (tree(&bench.low.join(run.to_string())), tree(&bench.twins.join(run.to_string())));
    let differ: BTreeSet<&String> =
        there.keys().chain(wanted.keys()).filter(|path| there.get(*path) != wanted.get(*path)).collect();
    let is_of = |ops: &[Op]| {
        let mut names = BTreeSet::new();
        for op in ops {
            match op {
                Rename(a, b) | Exchange(a, b) | Link(a, b) => names.extend([*a, *b]),
                Symlink(_, a) => drop(names.insert(*a)),
                Create(a) | Mkdir(a) | Fifo(a) | Unlink(a) | Rmdir(a) | Attribute(a) => drop(names.insert(*a)),
                Write(a, ..) | Append(a, _) | Cut(a, _) | Chmod(a, _) | Times(a, _) | Punch(a, ..) => drop(names.insert(*a)),
            }
        }
        differ.iter().any(|path| names.iter().any(|name| path[1..] == **name || path.starts_with(&format!("/{name}/"))))
    };
    work.iter().filter(|ops| !is_of(ops)).count()
}

/// Goal: whatever call of a round fails, two of three places arrive in that round, and all of them in the next.
#[test]
fn one_call_fails() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("refused", WORK.len() * STEPS, How::Directory);
    let (mut run, mut wrong) = (0, Vec::new());
    for (index, work) in WORK.iter().enumerate() {
        for at in 1..STEPS {
            work.iter().flat_map(|ops| ops.iter()).for_each(|op| bench.both(run, *op));
            let error = ERRORS[(index + at) % ERRORS.len()];
            let (mut step, mut refused) = (0, None);
            let mut hook = |what: &str| {
                step += 1;
                if step == at {
                    refused = Some(what.to_owned());
                    return Err(error);
                }
                Ok(())
            };
            let round = bench.writer.lock().unwrap().round_with(false, &mut hook);
            let what = format!("{work:?}, step {at} ({refused:?}) fails: {error:?}");
            if let Some(step) = &refused {
                if !COMMON.contains(&&step[..]) {
                    let came = arrived(&bench, run, work);
                    if came < 2 {
                        wrong.push(format!("{what}: {came} of 3 places have arrived: {round:?}"));
                    }
                }
                if let Err(failure) = &round
                    && (failure.errno != error || failure.what.is_empty())
                {
                    wrong.push(format!("{what}: another failure: {failure}"));
                }
            }
            bench.check(run, &what);
            run += 1;
            if refused.is_none() {
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
    assert!(run <= bench.runs);
    bench.end();
}

/// Goal: an obstacle that lasts for many rounds costs nothing else, whatever is done meanwhile: all steps of one kind fail.
#[test]
fn one_kind_of_call_fails_for_long() {
    if !may_run() {
        return;
    }
    const KINDS: &[&str] = &["park", "new", "move", "contents", "attributes", "remove", "times", "link", "set", "note", "unpark"];
    let bench = Bench::new("for-long", KINDS.len() * WORK.len(), How::Directory);
    let mut run = 0;
    for kind in KINDS {
        for (index, work) in WORK.iter().enumerate() {
            let error = ERRORS[(index + run) % ERRORS.len()];
            let mut hook = |what: &str| if what == *kind { Err(error) } else { Ok(()) };
            for ops in work {
                ops.iter().for_each(|op| bench.both(run, *op));
                // What fails is said, and nothing is damaged by it.
                let _ = bench.writer.lock().unwrap().round_with(false, &mut hook);
            }
            bench.check(run, &format!("{work:?}: all of {kind} failed in three rounds: {error:?}"));
            run += 1;
        }
    }
    bench.end();
}

/// Goal: a file that may not be changed (the kernel says so) keeps nothing else waiting, and is written when it may.
#[test]
fn one_file_may_not_be_changed() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("immutable", 1, How::Directory);
    let file = bench.low.join("0/f");
    if !changeable(&file, false) {
        println!("skip: files cannot be made immutable here: NOT tested");
        return bench.end();
    }
    for op in [Append("f", 9), Create("new"), Rename("d", "moved"), Unlink("big")] {
        bench.both(0, op);
    }
    let mut said = Vec::new();
    for _ in 0..3 {
        said.extend(bench.writer.lock().unwrap().round(true).err());
        assert!(bench.low.join("0/new").exists() && bench.low.join("0/moved").exists() && !bench.low.join("0/big").exists());
        assert_eq!(std::fs::read(&file).unwrap(), b"hello");
    }
    assert_eq!(said.len(), 3, "a round said that all is below");
    assert!(said.iter().all(|failure| failure.errno == Errno::EPERM && failure.what.ends_with('f')), "{said:?}");
    // Meanwhile names that exist are found, and others are written.
    assert!(bench.with(|cx| bench.by_cache(cx, 0, Chmod("moved/e/deep", 0o600))).is_ok());
    assert!(by_kernel(&bench.twins.join("0"), Chmod("moved/e/deep", 0o600)));
    assert!(changeable(&file, true));
    bench.check(0, "a file that may be changed again");
    bench.end();
}

/// Whether the flag could be set.
fn changeable(file: &std::path::Path, may: bool) -> bool {
    let flag = if may { "-i" } else { "+i" };
    let ran = std::process::Command::new("chattr").arg(flag).arg(file).stderr(std::process::Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

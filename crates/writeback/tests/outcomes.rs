//! Each name and each file of a round has an outcome of its own: what fails costs only what depends on it, and what others
//! have removed or put below blocks nothing.
//!
//! Method: that of `rounds.rs`, with obstacles: a step that fails, files that are removed below, directories that go with
//! something of others in them.

mod bench;

use base::{Cred, Cx, Thread};
use bench::Op::{self, *};
use bench::{Bench, How, OPS, may_run, text};
use cache::{Cache, Changes, Origin};
use pm::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use vfs::backend::Backend;
use writeback::failures;

/// A tree with all of it in the image, except the bytes of files that have not been read.
fn bench(name: &str, runs: usize) -> Bench {
    Bench::new(name, runs, How::Directory)
}

fn low(bench: &Bench, path: &str) -> PathBuf {
    bench.low.join("0").join(path)
}

/// By the cache alone.
fn here(bench: &Bench, ops: &[Op]) {
    bench.with(|cx| ops.iter().for_each(|op| bench.by_cache(cx, 0, *op).unwrap_or_else(|error| panic!("{op:?}: {error:?}"))));
}

fn round(bench: &Bench) -> Result<writeback::Round, writeback::Failure> {
    bench.writer.lock().unwrap().round(false)
}

/// Paths that could not be written, and why.
fn failed(bench: &Bench) -> Vec<(String, Errno)> {
    let all = bench.with(|cx| failures::of(bench.cache, cx).unwrap());
    all.into_iter().map(|one| (String::from_utf8(one.path).unwrap(), one.failed.errno)).collect()
}

/// Goal: directories that programs make and remove while a round is under way fail neither it nor who waits for it,
/// wherever it is by then; those that move come out where they are.
#[test]
fn directories_that_go_meanwhile() {
    if !may_run() {
        return;
    }
    const STEPS: usize = 40;
    let firsts = [Mkdir("t"), Mkdir("t/a"), Mkdir("t/a/b"), Create("t/a/b/x"), Create("t/a/y"), Rename("d", "t/d")];
    let others: [&[Op]; 4] = [
        &[Unlink("t/a/b/x"), Rmdir("t/a/b"), Unlink("t/a/y"), Rmdir("t/a"), Rename("t/d", "d"), Rmdir("t")],
        &[Rename("t/a", "k"), Rename("t/d", "d"), Rmdir("t")],
        &[Rename("t/a/b", "k"), Unlink("t/a/y"), Rmdir("t/a"), Rename("t/d", "k/d"), Rmdir("t")],
        &[Rename("t/a/b", "d2"), Rename("t/a", "d2/a"), Rename("t", "d2/a/t")],
    ];
    let bench = bench("go", others.len() * STEPS);
    let mut run = 0;
    for other in others {
        for at in 1..STEPS {
            firsts.iter().for_each(|op| bench.both(run, *op));
            let came = bench.meanwhile(run, at, other, usize::MAX);
            bench.check(run, &format!("before step {at}: {other:?}"));
            run += 1;
            if !came {
                break;
            }
        }
    }
    bench.end();
}

/// Goal: a file that has lost the name that is noted of it is found below by another one, which programs change, or the
/// directory of which they move, while the round looks for it: it is written where it is, and not made again.
#[test]
fn names_that_change_while_they_are_looked_for() {
    if !may_run() {
        return;
    }
    const STEPS: usize = 40;
    let firsts: [&[Op]; 3] = [
        &[Append("hard1", 9), Create("new"), Rename("new", "hard1")],
        &[Append("d/deep", 9), Unlink("d/deep")],
        &[Append("hard1", 9), Unlink("hard1"), Link("hard2", "h")],
    ];
    let others: [&[Op]; 5] = [
        &[Rename("hard2", "d/e/h")],
        &[Link("hard2", "d/h"), Unlink("hard2"), Rename("d/h", "h2")],
        &[Rename("d/e", "e2"), Rename("d", "e2/d"), Rename("e2/deep", "deep")],
        &[Unlink("hard2"), Create("hard2"), Rename("d/e", "k"), Unlink("k/deep")],
        &[Rename("d", "d3"), Mkdir("d"), Rename("d3/e", "d/e")],
    ];
    let bench = bench("names", firsts.len() * others.len() * STEPS);
    // A second name of a file deep in the tree.
    (0..bench.runs).for_each(|run| bench.both(run, Link("d/e/deep", "d/deep")));
    round(&bench).unwrap();
    let mut run = 0;
    for first in firsts {
        for other in others {
            for at in 1..STEPS {
                first.iter().for_each(|op| bench.both(run, *op));
                let came = bench.meanwhile(run, at, other, usize::MAX);
                bench.check(run, &format!("{first:?}; before step {at}: {other:?}"));
                run += 1;
                if !came {
                    break;
                }
            }
        }
    }
    bench.end();
}

/// Goal: a step that fails is made again by the next round, and all comes out, whichever it is.
#[test]
fn any_step_fails() {
    if !may_run() {
        return;
    }
    const STEPS: usize = 40;
    let bench = bench("step", OPS.len() * STEPS);
    let mut run = 0;
    for (index, a) in OPS.iter().enumerate() {
        for at in 1..STEPS {
            bench.both(run, *a);
            bench.both(run, OPS[(index * 5 + 1) % OPS.len()]);
            bench.both(run, OPS[(index * 7 + 3) % OPS.len()]);
            let mut step = 0;
            let mut hook = |_: &str| {
                step += 1;
                if step == at { Err(Errno::EIO) } else { Ok(()) }
            };
            let result = bench.writer.lock().unwrap().round_with(false, &mut hook);
            assert!(step < at || result.is_err(), "{a:?}, step {at}");
            bench.check(run, &format!("{a:?}, step {at} fails"));
            run += 1;
            if step < at {
                break;
            }
        }
    }
    bench.end();
}

/// Goal: a file that can't be written keeps its notes, and nothing else does; who waits for another file is answered well.
#[test]
fn one_file_fails_alone() {
    if !may_run() {
        return;
    }
    let bench = bench("alone", 1);
    here(&bench, &[Append("big", 9)]);
    std::fs::remove_file(low(&bench, "big")).unwrap();
    here(&bench, &[Create("new"), Rename("d", "moved"), Write("new", 0, 9), Unlink("f")]);
    assert_eq!(round(&bench).unwrap_err().errno, Errno::ESTALE);
    assert_eq!(failed(&bench), [("0/big".to_owned(), Errno::ESTALE)]);
    assert_eq!(std::fs::read(low(&bench, "new")).unwrap(), text(9, 0));
    assert_eq!(std::fs::read(low(&bench, "moved/e/deep")).unwrap(), b"deep");
    assert!(!low(&bench, "f").exists());
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let status = writeback::Status::of(bench.cache, &cx).unwrap();
    assert_eq!((status.names, status.files), (0, 1), "notes of what is below stay");
    let fs = bench.cache.fs();
    let waits = Cache::new(&cx, fs, &Origin::Directory(bench.low.as_os_str().as_bytes()), Changes::Backend).unwrap();
    let top = waits.lookup(&cx, waits.root(), b"0").unwrap();
    let node = |name: &[u8]| waits.lookup(&cx, top, name).unwrap();
    assert_eq!(waits.sync(&cx, Some(node(b"new")), false), Ok(()));
    assert_eq!(waits.sync(&cx, Some(top), false), Ok(()));
    assert_eq!(waits.sync(&cx, Some(node(b"big")), false), Err(Errno::ESTALE.into()));
    assert_eq!(waits.sync(&cx, None, false), Err(Errno::ESTALE.into()));
    // What has moved is found, and read, while the other file fails.
    let deep = waits.lookup(&cx, waits.lookup(&cx, node(b"moved"), b"e").unwrap(), b"deep").unwrap();
    let mut bytes = [0; 4];
    assert_eq!(waits.read(&cx, deep, 0, &[pm::UserSlice::from_mut(&mut bytes)]), Ok(4));
    waits.give_lane_back(&thread);
    // The obstacle goes.
    std::fs::write(low(&bench, "big"), text(300_000, 1)).unwrap();
    here(&bench, &[Unlink("big")]);
    round(&bench).unwrap();
    assert!(bench.writer.lock().unwrap().is_clean().unwrap());
    assert!(failed(&bench).is_empty());
    bench.end();
}

/// Goal: a file that can't be looked at when all has been written keeps its notes, and nothing else does.
#[test]
fn one_look_fails_alone() {
    if !may_run() {
        return;
    }
    let bench = bench("look", 1);
    here(&bench, &[Create("new"), Write("new", 0, 9), Mkdir("made"), Create("made/inner"), Append("f", 3)]);
    let mut looks = 0;
    let mut hook = |step: &str| {
        looks += usize::from(step == "look");
        if step == "look" && looks == 3 { Err(Errno::EIO) } else { Ok(()) }
    };
    let result = bench.writer.lock().unwrap().round_with(false, &mut hook);
    assert_eq!(result.unwrap_err().errno, Errno::EIO);
    assert!(looks > 4, "the round goes on");
    assert_eq!(failed(&bench).len(), 1, "{:?}", failed(&bench));
    assert_eq!(std::fs::read(low(&bench, "new")).unwrap(), text(9, 0));
    round(&bench).unwrap();
    assert!(bench.writer.lock().unwrap().is_clean().unwrap() && failed(&bench).is_empty());
    assert!(low(&bench, "made/inner").exists());
    bench.end();
}

/// Goal: what others have removed below while it was changed here is made again, with the directories on the way to it, if
/// all of it is here; of a file of which only attributes were changed the removal stands.
#[test]
fn removed_below() {
    if !may_run() {
        return;
    }
    let bench = bench("removed", 1);
    bench.warm();
    here(&bench, &[Mkdir("n"), Create("n/x"), Write("n/x", 0, 7), Create("n/y")]);
    round(&bench).unwrap();
    here(&bench, &[Cut("f", 0), Write("f", 0, 6), Write("n/x", 2, 7), Write("d/e/deep", 0, 5), Chmod("big", 0o600)]);
    for name in ["n", "d"] {
        std::fs::remove_dir_all(low(&bench, name)).unwrap();
    }
    for name in ["f", "big"] {
        std::fs::remove_file(low(&bench, name)).unwrap();
    }
    round(&bench).unwrap();
    let read = |name: &str| std::fs::read(low(&bench, name)).unwrap();
    assert_eq!(read("f"), text(6, 0));
    assert_eq!(read("n/x"), [&text(7, 0)[..2], &text(7, 2)].concat());
    assert_eq!(read("d/e/deep"), text(5, 0));
    assert!(!low(&bench, "n/y").exists(), "was not changed here");
    assert!(!low(&bench, "big").exists(), "none of its bytes were changed here");
    assert!(bench.writer.lock().unwrap().is_clean().unwrap());
    let gone = bench.with(|cx| {
        let top = bench.cache.lookup(cx, bench.cache.root(), b"0").unwrap();
        bench.cache.lookup(cx, top, b"big")
    });
    assert_eq!(gone, Err(Errno::ENOENT.into()));
    bench.end();
}

/// Goal: what others have put into directories that go is kept beside, several of one name too.
#[test]
fn theirs_in_directories_that_go() {
    if !may_run() {
        return;
    }
    let bench = bench("theirs", 1);
    bench.warm();
    here(&bench, &[Mkdir("o"), Mkdir("o/1b"), Mkdir("p"), Mkdir("p/1b"), Mkdir("d/1b")]);
    round(&bench).unwrap();
    for (dir, name) in [("o", "t"), ("p", "u"), ("d", "v")] {
        std::fs::write(low(&bench, &format!("{dir}/1b/{name}")), name).unwrap();
    }
    here(&bench, &[Rmdir("o/1b"), Rmdir("o"), Rmdir("p/1b"), Rmdir("p"), Rmdir("d/1b"), Create("later")]);
    round(&bench).unwrap();
    let beside =
        |name: &str| std::fs::read_dir(low(&bench, name)).unwrap().map(|entry| entry.unwrap().file_name()).next().unwrap();
    assert_eq!([beside("o.bypath-theirs/1b"), beside("p.bypath-theirs/1b")], ["t", "u"]);
    assert_eq!(beside("d/1b.bypath-theirs"), "v");
    assert!(low(&bench, "later").exists() && !bench.low.join(writeback::PARK).exists());
    bench.end();
}

/// Goal: where there is no room below, what is to be removed goes before the rest is made.
#[test]
fn removed_first_where_there_is_no_room() {
    if !may_run() {
        return;
    }
    let bench = bench("room", 1);
    bench.warm();
    here(&bench, &[Unlink("big"), Create("new"), Write("new", 0, 9)]);
    let mut is_full = true;
    let mut hook = |step: &str| {
        is_full &= step != "remove";
        if step == "new" && is_full { Err(Errno::ENOSPC) } else { Ok(()) }
    };
    bench.writer.lock().unwrap().round_with(false, &mut hook).unwrap();
    assert_eq!(std::fs::read(low(&bench, "new")).unwrap(), text(9, 0));
    bench.end();
}

/// Goal: directories that have been moved into one another again and again, while the notes of all rounds stay because one
/// name fails, are found by looks that grow with the notes. Without memory of failures they would grow by powers.
#[test]
fn places_are_found_once() {
    if !may_run() {
        return;
    }
    let looks = [10, 20, 40].map(|count| {
        let bench = bench(&format!("places{count}"), 1);
        let name = |number: usize| -> &'static str { Box::leak(format!("m{number}").into_boxed_str()) };
        let mut paths: Vec<String> = (0..count).map(|number| name(number).to_owned()).collect();
        let leak = |path: &str| -> &'static str { Box::leak(path.to_owned().into_boxed_str()) };
        paths.iter().for_each(|path| bench.both(0, Mkdir(leak(path))));
        round(&bench).unwrap();
        // Each goes into the one before it and out again, and the rounds are cut off.
        for turn in 0..4 {
            for index in 1..count {
                let into = format!("{}/x{turn}", paths[index - 1]);
                bench.both(0, Rename(leak(&paths[index]), leak(&into)));
                paths[index] = into;
            }
            assert!(bench.cut(5 + turn));
            for index in (1..count).rev() {
                let out = format!("o{turn}-{index}");
                bench.both(0, Rename(leak(&paths[index]), leak(&out)));
                paths[index] = out;
            }
            assert!(bench.cut(7 + turn));
        }
        let looks = round(&bench).unwrap().looks;
        bench.check(0, "moved into one another");
        bench.end();
        looks
    });
    assert!(looks[1] <= 3 * looks[0] && looks[2] <= 3 * looks[1], "{looks:?}");
}

/// Goal: the work of a round grows with the number of names of one file, made, moved and removed.
#[test]
fn names_of_one_file_are_linear() {
    if !may_run() {
        return;
    }
    let looks = [50, 100, 200].map(|count| {
        let bench = bench(&format!("links{count}"), 1);
        let name = |start: &str, number: usize| -> &'static str { Box::leak(format!("{start}{number}").into_boxed_str()) };
        (0..count).for_each(|number| bench.both(0, Link("f", name("l", number))));
        let made = round(&bench).unwrap().looks;
        (0..count).for_each(|number| bench.both(0, Rename(name("l", number), name("m", number))));
        let moved = round(&bench).unwrap().looks;
        (1..count).for_each(|number| bench.both(0, Unlink(name("m", number))));
        let removed = round(&bench).unwrap().looks;
        bench.check(0, "names of one file");
        bench.end();
        [made, moved, removed]
    });
    for work in 0..3 {
        let [few, more, many] = looks.map(|looks| looks[work]);
        assert!(more <= 3 * few.max(10) && many <= 3 * more.max(20), "{looks:?}");
    }
}

/// Goal: a hostile image makes a round write no terabytes of zeros. Method: bytes that were appended, in a file that the image
/// has made longer without a note.
#[test]
fn a_wide_hole_stays_one() {
    use std::os::unix::fs::MetadataExt;
    if !may_run() {
        return;
    }
    const SIZE: u64 = 4 << 30;
    let bench = bench("hole", 1);
    here(&bench, &[Append("f", 9)]);
    bench.with(|cx| {
        let top = bench.cache.lookup(cx, bench.cache.root(), b"0").unwrap();
        let file = bench.cache.lookup(cx, top, b"f").unwrap();
        let longer = base::SetAttr { size: Some(SIZE), size_checked: true, ..base::SetAttr::default() };
        bench.cache.fs().set_attr(cx, file, &longer).unwrap();
    });
    let bytes = round(&bench).unwrap().bytes;
    let there = low(&bench, "f").metadata().unwrap();
    assert!(there.len() == SIZE && there.blocks() < 1000 && bytes < 1 << 20, "{} {} {bytes}", there.len(), there.blocks());
    bench.end();
}

//! Operations on names by several threads and processes at once.

use super::*;
use core::sync::atomic::AtomicBool;
use openfiles::Handover;

/// Goal: threads that create, rename and remove in the same directories at once
/// leave them as their counts say. Method: each thread owns its names but for a
/// few that all fight for; the rest must agree at the end.
#[test]
fn threads_at_once() {
    let test = TestFs::new(256 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let dirs: Vec<Node> =
        (0..2).map(|i| test.create(&cx, root, format!("d{i}").as_bytes(), &new(Kind::Directory)).unwrap()).collect();
    let fs = test.fs;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let dirs = &dirs;
            scope.spawn(move || {
                let own = Thread::new();
                let cx = Cx { cred: Cred::ROOT, umask: 0o022, thread: &own };
                let mut seed = thread + 1;
                let mut random = |below: u64| {
                    seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    (seed >> 33) % below
                };
                for i in 0..10_000u64 {
                    let (d, e) = (dirs[random(2) as usize], dirs[random(2) as usize]);
                    let shared = format!("shared {}", random(8));
                    let other = format!("shared {}", random(8));
                    let allowed = |result: Result<()>| {
                        if let Err(error) = result {
                            assert!(
                                matches!(
                                    error.errno(),
                                    Errno::ENOENT
                                        | Errno::EEXIST
                                        | Errno::ENOTEMPTY
                                        | Errno::EISDIR
                                        | Errno::ENOTDIR
                                        | Errno::EINVAL
                                ),
                                "{error:?}"
                            );
                        }
                    };
                    match random(6) {
                        0 => allowed(fs.create(&cx, d, shared.as_bytes(), &new(Kind::Regular)).map(drop)),
                        1 => allowed(fs.create(&cx, d, shared.as_bytes(), &new(Kind::Directory)).map(drop)),
                        2 => allowed(fs.unlink(&cx, d, shared.as_bytes())),
                        3 => allowed(fs.rmdir(&cx, d, shared.as_bytes())),
                        4 => allowed(fs.rename(&cx, d, shared.as_bytes(), e, other.as_bytes(), RenameMode::Replace)),
                        _ => allowed(fs.rename(&cx, d, shared.as_bytes(), e, other.as_bytes(), RenameMode::Exchange)),
                    }
                    let mine = format!("mine {thread} {}", i / 4);
                    match i % 4 {
                        0 => drop(fs.create(&cx, d, mine.as_bytes(), &new(Kind::Regular)).unwrap()),
                        1 => {
                            let count = dirs.iter().filter(|d| fs.lookup(&cx, **d, mine.as_bytes()).is_ok()).count();
                            assert_eq!(count, 1, "{mine}");
                        }
                        2 if i / 4 % 3 != 0 => {
                            let count = dirs.iter().filter(|d| fs.unlink(&cx, **d, mine.as_bytes()).is_ok()).count();
                            assert_eq!(count, 1, "{mine}");
                        }
                        _ => {}
                    }
                }
                fs.give_lane_back(&own);
            });
        }
    });
    for dir in &dirs {
        let attr = test.attr(&cx, *dir).unwrap();
        let mut names = Vec::new();
        let mut directories = 0;
        test.readdir(&cx, *dir, 2, &mut |entry| {
            names.push(entry.name.to_vec());
            directories += u32::from(entry.kind == Kind::Directory);
            true
        })
        .unwrap();
        assert_eq!((attr.size, attr.nlink), (40 + 20 * names.len() as u64, 2 + directories));
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
        for name in &names {
            test.lookup(&cx, *dir, name).unwrap();
        }
    }
}

/// Goal: who removes a directory that somebody is inside waits with nothing held, and takes it once it is left, but not
/// if it has a name by then. Method: this thread is inside while another one removes; each lock of the removal must be
/// seen free.
#[test]
fn a_removal_waits_with_nothing_held() {
    const ROUNDS: u32 = 20;
    const LOOKS: u32 = 10_000;
    let test = TestFs::new(64 * MIB);
    let (cx, root, fs) = (test.cx(), test.root_node(), test.fs);
    for filled in [false, true] {
        let dir = test.create(&cx, root, b"dir", &new(Kind::Directory)).unwrap();
        let mut tx = test.begin(&cx, ::format::lane::Kind::Create).unwrap();
        let cachelet = test.enter(&mut tx, &cx, dir).unwrap().seen.cachelet;
        let bucket = test.bucket_lock(test.hash(node_offset(root.id), b"dir"));
        let seen = |what: &dyn Fn() -> bool| (0..LOOKS).any(|_| what() || (std::thread::yield_now(), false).1);
        std::thread::scope(|scope| {
            let removal = scope.spawn(move || {
                let own = Thread::new();
                let result = fs.rmdir(&Cx { cred: Cred::ROOT, umask: 0o022, thread: &own }, root, b"dir");
                fs.give_lane_back(&own);
                result
            });
            for _ in 0..ROUNDS {
                // It has tried, and tries again.
                std::thread::sleep(core::time::Duration::from_millis(1));
                assert!(seen(&|| bucket.load(SeqCst) == 0), "the lock of the name");
                assert!(seen(&|| cachelet.owner.load(SeqCst) == 0), "the lock of the directory");
            }
            assert!(!removal.is_finished());
            drop(tx);
            let made = filled.then(|| test.create(&cx, dir, b"name", &new(Kind::Regular)));
            let result = removal.join().unwrap();
            match made {
                Some(Ok(_)) => assert_eq!(errno(result), Errno::ENOTEMPTY),
                Some(Err(error)) => assert_eq!((error.errno(), result.is_ok()), (Errno::ENOENT, true)),
                None => result.unwrap(),
            }
        });
    }
}

/// Goal: a directory that is removed is empty, and stays so. Method: one thread makes names in it and takes them away
/// again, another removes it, until that succeeds.
#[test]
fn no_name_is_made_in_a_directory_removed() {
    let test = TestFs::new(64 * MIB);
    let (cx, root, fs) = (test.cx(), test.root_node(), test.fs);
    for _ in 0..30 {
        let dir = test.create(&cx, root, b"dir", &new(Kind::Directory)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let own = Thread::new();
                let cx = Cx { cred: Cred::ROOT, umask: 0o022, thread: &own };
                while let Err(error) = fs.rmdir(&cx, root, b"dir") {
                    assert_eq!(error.errno(), Errno::ENOTEMPTY);
                }
                fs.give_lane_back(&own);
            });
            while test.create(&cx, dir, b"name", &new(Kind::Regular)).map_err(Error::errno) != Err(Errno::ENOENT) {
                test.unlink(&cx, dir, b"name").unwrap();
            }
        });
    }
}

/// Goal: the name and the parent of a step of `getcwd` are of one moment. Method: a directory goes to and fro between two, under another
/// name in each, while another thread asks.
#[test]
fn a_step_up_is_of_one_moment() {
    let test = TestFs::new(64 * MIB);
    let (cx, root, fs) = (test.cx(), test.root_node(), test.fs);
    let [a, b] = [b"a", b"b"].map(|name| test.create(&cx, root, name, &new(Kind::Directory)).unwrap());
    let dir = test.create(&cx, a, b"in a", &new(Kind::Directory)).unwrap();
    let ended = &AtomicBool::new(false);
    let mut torn = None;
    std::thread::scope(|scope| {
        let mover = scope.spawn(move || {
            let own = Thread::new();
            let cx = Cx { cred: Cred::ROOT, umask: 0o022, thread: &own };
            while !ended.load(SeqCst) {
                fs.rename(&cx, a, b"in a", b, b"there, in b", RenameMode::Replace).unwrap();
                fs.rename(&cx, b, b"there, in b", a, b"in a", RenameMode::Replace).unwrap();
            }
            fs.give_lane_back(&own);
        });
        let (mut name, mut last, mut moves) = ([0; 255], a.id, 0);
        while moves < 1000 && torn.is_none() && !mover.is_finished() {
            let Ok((len, parent)) = test.step_up(&cx, dir, &mut name) else { break };
            let expected = if parent.id == a.id { &b"in a"[..] } else { b"there, in b" };
            moves += u32::from(parent.id != last);
            last = parent.id;
            torn = (&name[..len] != expected).then_some(parent.id);
        }
        ended.store(true, SeqCst);
        assert!(moves == 1000 || torn.is_some(), "{moves} moves seen");
    });
    assert_eq!(torn, None, "the name and the parent do not fit");
    assert_eq!(errno(test.step_up(&cx, root, &mut [0; 255])), Errno::ENOENT);
}

/// Goal: a rename removes the old name where it stands, also when a split moves
/// it while the rename is being planned. Method: two threads rename thousands of
/// names while the index grows; the checker finds every entry in its bucket.
#[test]
fn renames_while_the_index_grows() {
    for round in 0..4 {
        let test = TestFs::new(256 * MIB);
        let (fs, root) = (test.fs, test.root_node());
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    let own = Thread::new();
                    let cx = Cx { cred: Cred::ROOT, umask: 0o022, thread: &own };
                    let name = |kind: &str, i: u32| format!("{kind} {round} {thread} {i}");
                    for i in 0..6000 {
                        fs.create(&cx, root, name("old", i).as_bytes(), &new(Kind::Regular)).unwrap();
                        let (old, moved) = (name("old", i / 2), name("new", i / 2));
                        if i % 2 == 1 {
                            fs.rename(&cx, root, old.as_bytes(), root, moved.as_bytes(), RenameMode::Replace).unwrap();
                        }
                    }
                    fs.give_lane_back(&own);
                });
            }
        });
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert!(report.issues.is_empty(), "{}", report.issues[0]);
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// Goal: whoever dies in the middle of making, moving or removing names leaves
/// whole names and right counts behind. Method: a child tells which step it has
/// done and is killed; every name is then where that step, or the next, has put it.
#[test]
fn killed_in_the_middle() {
    let test = TestFs::new(256 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let dirs: Vec<Node> =
        (0..2).map(|i| test.create(&cx, root, format!("d{i}").as_bytes(), &new(Kind::Directory)).unwrap()).collect();
    let name = |round: u32, i: u32| format!("name {round} {i}");
    for round in 0..40u32 {
        let path = format!("{}/progress", test.image.directory());
        let token = test.fork_prepare(&cx).unwrap();
        // SAFETY: the child runs until it is killed.
        let pid = unsafe { fork() };
        if pid == 0 {
            let own = Thread::new();
            test.fork_child(token);
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &own };
            let progress = std::fs::File::create(&path).unwrap();
            for step in 0u32.. {
                let (i, what) = (step / 3, step % 3);
                let name = name(round, i);
                let name = name.as_bytes();
                match what {
                    0 => drop(
                        test.create(&cx, dirs[0], name, &new(if i % 4 == 3 { Kind::Directory } else { Kind::Regular })).unwrap(),
                    ),
                    1 => test.rename(&cx, dirs[0], name, dirs[1], name, RenameMode::Replace).unwrap(),
                    _ if i % 4 == 0 => test.unlink(&cx, dirs[1], name).unwrap(),
                    _ => {}
                }
                std::os::unix::fs::FileExt::write_at(&progress, &(step + 1).to_ne_bytes(), 0).unwrap();
            }
        }
        std::thread::sleep(std::time::Duration::from_micros(2000 + u64::from(round) * 331 % 3000));
        // SAFETY: a child of ours.
        unsafe { kill(pid, 9) };
        // SAFETY: as above.
        unsafe { waitpid(pid, core::ptr::null_mut(), 0) };
        let done = std::fs::read(&path).ok().and_then(|b| Some(u32::from_ne_bytes(b.get(..4)?.try_into().ok()?))).unwrap_or(0);
        let _ = std::fs::remove_file(&path);
        // What is half done stays so until somebody meets the dead: here it is us.
        let lanes = test.header().lanes_high.get();
        for lane in 0..lanes {
            test.adopt_if_dead(lane);
        }
        for i in 0..done / 3 + 2 {
            let name = name(round, i);
            let (in_0, in_1) = (test.lookup(&cx, dirs[0], name.as_bytes()), test.lookup(&cx, dirs[1], name.as_bytes()));
            let state = |steps: u32| match steps {
                0 => (false, false),
                1 => (true, false),
                3 if i % 4 == 0 => (false, false),
                _ => (false, true),
            };
            let steps = done.saturating_sub(3 * i).min(3);
            let found = (in_0.is_ok(), in_1.is_ok());
            assert!(
                found == state(steps) || found == state((steps + 1).min(3)),
                "round {round} name {i}, {done} steps: {in_0:?} {in_1:?}"
            );
            assert!([in_0, in_1].into_iter().all(|r| r.is_ok() || r.map_err(Error::errno) == Err(Errno::ENOENT)));
        }
        test.create(&cx, dirs[0], format!("after {round}").as_bytes(), &new(Kind::Regular)).unwrap();
        for dir in &dirs {
            let names = list(&test, *dir).len() as u64 - 2;
            assert_eq!(test.attr(&cx, *dir).unwrap().size, 40 + 20 * names);
        }
    }
    let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, []);
}

/// Goal: long names are made and found in space that another process has added to the image. Method: a child writes a
/// file that makes it grow; in what is left of that, this process, which has not asked since, makes names.
#[test]
fn long_names_in_what_another_process_has_added() {
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    let dir = test.create(&cx, root, b"dir", &new(Kind::Directory)).unwrap();
    let file = test.create(&cx, root, b"file", &new(Kind::Regular)).unwrap();
    let name = |i: usize| format!("{i:0width$}", width = 33 + i % 222).into_bytes();
    // As many as use up what a lane has claimed, time after time.
    const NAMES: usize = 2000;
    for round in 0..16 {
        test.dying(|cx| {
            let mut data = std::vec![1; MIB as usize];
            (0..2).all(|i| test.write(cx, file, Some((round * 2 + i) * MIB), &[pm::UserSlice::from_mut(&mut data)]).is_ok())
        });
        for i in 0..NAMES {
            test.create(&cx, dir, &name(round as usize * NAMES + i), &new(Kind::Regular)).unwrap();
        }
    }
    for i in 0..16 * NAMES {
        test.lookup(&cx, dir, &name(i)).unwrap();
    }
    assert_eq!(list(&test, dir).len(), 16 * NAMES + 2);
}

//! Deaths: of a child before its first step, in the middle of everything, of everybody.

use super::*;
use openfiles::Handover;

/// Goal: a child killed before its first step is noticed by the first who looks.
#[test]
fn a_newborn_dies() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let token = test.fork_prepare(&cx).unwrap();
    // SAFETY: the child does nothing.
    let pid = unsafe { fork() };
    if pid == 0 {
        std::thread::sleep(std::time::Duration::from_secs(100));
        // SAFETY: ends the child.
        unsafe { _exit(0) };
    }
    test.fork_done(token, pid as u32);
    assert_eq!(test.adopt_dead_processes(&cx), 1, "it is asleep, not dead");
    // SAFETY: a child of ours.
    unsafe { kill(pid, 9) };
    wait(pid);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
    assert_eq!(openfiles::refcount::count(test.description(id).refs.load(Relaxed)), 1);
    assert_eq!(test.users().count(), 1);
    // What is noted late, when the slot is another's, means nothing.
    let second = test.fork_prepare(&cx).unwrap();
    test.fork_done(token, pid as u32);
    assert_eq!(test.adopt_dead_processes(&cx), 1);
    test.fork_failed(&cx, second);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
}

/// Goal: a child that has not made its first step uses the image, also when its parent has ended. Method: a process forks a
/// child that sleeps, notes it, and ends.
#[test]
fn a_newborn_outlives_its_parent() {
    let test = TestFs::new(64 << 20);
    // SAFETY: the child forks one that sleeps, and ends.
    let parent = unsafe { fork() };
    let path = format!("{}/newborn", test.image.directory());
    if parent == 0 {
        let thread = Thread::new();
        let token = test.fork_prepare(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread }).unwrap();
        // SAFETY: the child only sleeps.
        let newborn = unsafe { fork() };
        if newborn == 0 {
            std::thread::sleep(std::time::Duration::from_secs(100));
        } else {
            let slot = test.process_slot((token & 0xffff) as u32 - 1).unwrap();
            slot.pid.store(std::process::id(), Relaxed);
            test.fork_done(token, newborn as u32);
            std::fs::write(&path, newborn.to_string()).unwrap();
        }
        // SAFETY: ends the child.
        unsafe { _exit(0) };
    }
    assert_eq!(wait(parent), 0);
    let newborn: i32 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    assert!(test.living().any(|user| user == newborn as u32) && !test.is_alone(std::process::id()));
    // SAFETY: of the test's own.
    unsafe { kill(newborn, 9) };
    let ended = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        test.is_alone(std::process::id())
    });
    assert!(ended, "it is taken to live");
}

/// Goal: whether a parent that died before it noted its child had one is not waited for for long. Method: the
/// PID of a dead process in the slot that was readied, and that of one that lives, at different ages.
#[test]
fn a_parent_dies_before_it_notes_its_child() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let refs = || openfiles::refcount::count(test.description(id).refs.load(Relaxed));
    // SAFETY: the child only ends.
    let dead = unsafe { fork() };
    if dead == 0 {
        // SAFETY: ends the child.
        unsafe { _exit(0) };
    }
    wait(dead);
    let token = test.fork_prepare(&cx).unwrap();
    let slot = test.process_slot((token & 0xffff) as u32 - 1).unwrap();
    let begun = slot.begun.load(Relaxed);
    let own = slot.pid.load(Relaxed);
    for (pid, seconds, kept) in [(dead as u32, 0, 1), (own, 30, 1), (dead as u32, 30, 0)] {
        slot.pid.store(pid, Relaxed);
        slot.begun.store(begun - seconds * 1_000_000_000, Relaxed);
        assert_eq!((test.adopt_dead_processes(&cx), refs()), (kept, 1 + u64::from(kept)), "{seconds} s");
    }
}

/// Goal: a death in the middle of everything is survived, and what was
/// acknowledged is there. Method: a child creates and unlinks as fast as it can,
/// tells what it has done, and is killed; another looks.
#[test]
fn kill_in_the_middle() {
    let test = TestFs::new(256 << 20);
    let cx = test.cx();
    for round in 0..60u32 {
        let path = format!("{}/progress", test.image.directory());
        let _ = std::fs::remove_file(&path);
        let token = test.fork_prepare(&cx).unwrap();
        // SAFETY: the child runs until it is killed.
        let pid = unsafe { fork() };
        if pid == 0 {
            let thread = Thread::new();
            test.fork_child(token);
            let child = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            let progress = std::fs::File::create(&path).unwrap();
            for i in 0u32.. {
                let name = format!("r{round}-{i}");
                let node = test.create(&child, test.root_node(), name.as_bytes(), &FILE).unwrap();
                test.open(&child, node, 0, i % 50).unwrap();
                if i % 3 == 0 {
                    test.unlink(&child, test.root_node(), name.as_bytes()).unwrap();
                }
                std::os::unix::fs::FileExt::write_at(&progress, &(i + 1).to_ne_bytes(), 0).unwrap();
            }
        }
        test.fork_done(token, pid as u32);
        std::thread::sleep(std::time::Duration::from_micros(500 + u64::from(round) * 331 % 3000));
        // SAFETY: a child of ours.
        unsafe { kill(pid, 9) };
        assert_eq!(wait(pid), -9);
        let done = std::fs::read(&path).ok().and_then(|b| Some(u32::from_ne_bytes(b.get(..4)?.try_into().ok()?))).unwrap_or(0);
        for i in 0..done {
            let found = test.lookup(&cx, test.root_node(), format!("r{round}-{i}").as_bytes());
            assert_eq!(found.is_ok(), i % 3 != 0, "round {round}, file {i} of {done}: {found:?}");
        }
        // The directory is not blocked.
        let name = format!("after-{round}");
        test.create(&cx, test.root_node(), name.as_bytes(), &FILE).unwrap();
        assert_eq!(test.adopt_dead_processes(&cx), 0);
    }
    let test = test.again();
    assert!(test.lookup(&test.cx(), test.root_node(), b"after-0").is_ok());
    let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, []);
    assert_eq!(report.orphans, 0);
}

/// Goal: whoever kills all users finds the image whole, in a new generation
/// when the segment is gone.
#[test]
fn everybody_dies() {
    let image = TestImage::new(64 << 20);
    for round in 0..10 {
        // SAFETY: the child runs until it kills itself.
        let pid = unsafe { fork() };
        if pid == 0 {
            let thread = Thread::new();
            let fs = image.attach(&thread).unwrap();
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            for i in 0..100 {
                fs.create(&cx, fs.root_node(), format!("{round}-{i}").as_bytes(), &FILE).unwrap();
            }
            // SAFETY: kills itself.
            unsafe { kill(pm::host::own_pid() as i32, 9) };
        }
        assert_eq!(wait(pid), -9);
        if round % 2 == 1 {
            for entry in std::fs::read_dir(image.directory()).unwrap().flatten() {
                if entry.file_name().to_string_lossy().starts_with("bypath-") {
                    std::fs::remove_file(entry.path()).unwrap();
                }
            }
        }
    }
    let test = TestFs::from_image(image).unwrap();
    for round in 0..10 {
        for i in 0..100 {
            test.lookup(&test.cx(), test.root_node(), format!("{round}-{i}").as_bytes()).unwrap();
        }
    }
    assert_eq!(test.users().count(), 1);
}

/// What a child of the storm does until it is killed: everything that changes
/// names and data, in directories that all share.
fn storm(test: &TestFs, cx: &Cx, seed: u64) -> ! {
    let mut state = seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % below
    };
    let root = test.root_node();
    let text = [b'x'; 9000];
    for i in 0u64.. {
        let dir = test.lookup(cx, root, format!("d{}", random(3)).as_bytes()).unwrap_or(root);
        let name = format!("n{}", random(40));
        let other = format!("n{}", random(40));
        let (name, other) = (name.as_bytes(), other.as_bytes());
        let node = test.lookup(cx, dir, name);
        // Errors of every kind are right here: others change the same names.
        let _ = match random(13) {
            0 | 1 => test.create(cx, dir, name, &FILE).map(drop),
            2 => test.create(cx, dir, name, &DIRECTORY).map(drop),
            3 => test.unlink(cx, dir, name),
            4 => test.rmdir(cx, dir, name),
            5 => test.rename(cx, dir, name, root, other, crate::RenameMode::Replace),
            6 => test.rename(cx, root, other, dir, name, crate::RenameMode::Replace),
            7 => test.rename(cx, dir, name, dir, other, crate::RenameMode::Exchange),
            8 => node.and_then(|node| test.link(cx, node, root, other)),
            9 => node.and_then(|node| test.open(cx, node, 2, random(20) as u32)).map(drop),
            10 => node.and_then(|node| {
                let len = 1 + random(9000) as usize;
                test.write(cx, node, None, &[pm::UserSlice::from_ref(&text[..len])]).map(drop)
            }),
            11 => node.and_then(|node| {
                let change = crate::SetAttr { size: Some(random(20_000)), ..Default::default() };
                test.set_attr(cx, node, &change)
            }),
            _ => {
                let target = NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0, target: b"where to" };
                test.create(cx, dir, name, &target).map(drop)
            }
        };
        if i % 5 == 0 {
            test.close(cx, random(20) as u32);
        }
    }
    unreachable!()
}

/// Killed when the test ends, however it does.
struct Children([i32; 3]);

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.0 {
            // SAFETY: a child of ours.
            unsafe { kill(child, 9) };
            wait(child);
        }
    }
}

/// Goal: whoever is killed in whatever he does, the others go on and the image
/// stays whole. Method: three processes at random operations on the same names,
/// one after the other killed; this one works too, against a clock. `KILLS` says how many.
#[test]
fn kill_storm() {
    let kills: u32 = std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let seed: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(u64::from(pm::host::own_pid()));
    std::println!("SEED={seed} KILLS={kills}");
    let test = TestFs::new(256 << 20);
    let cx = test.cx();
    for i in 0..3 {
        test.create(&cx, test.root_node(), format!("d{i}").as_bytes(), &DIRECTORY).unwrap();
    }
    let start = |number: u64| {
        let token = test.fork_prepare(&cx).unwrap();
        // SAFETY: the child works until it is killed.
        let pid = unsafe { fork() };
        if pid == 0 {
            let thread = Thread::new();
            test.fork_child(token);
            storm(
                &test,
                &Cx { cred: Cred::ROOT, umask: 0, thread: &thread },
                seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 32,
            );
        }
        test.fork_done(token, pid as u32);
        pid
    };
    let mut children = Children([start(1), start(2), start(3)]);
    for kill_number in 0..kills {
        let clock = std::time::Instant::now();
        while clock.elapsed().as_micros() < 500 + u128::from(kill_number) * 131 % 2000 {
            let name = format!("mine {kill_number}");
            test.create(&cx, test.root_node(), name.as_bytes(), &FILE).unwrap();
            test.unlink(&cx, test.root_node(), name.as_bytes()).unwrap();
        }
        let victim = &mut children.0[kill_number as usize % 3];
        // SAFETY: a child of ours.
        unsafe { kill(*victim, 9) };
        assert_eq!(wait(*victim), -9, "a child ended by itself");
        *victim = start(u64::from(kill_number) + 4);
        assert!(clock.elapsed().as_secs() < 20, "held up after kill {kill_number}");
    }
    drop(children);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
    let TestFs { thread, fs, image } = test;
    fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
    // Whoever attaches alone finishes what the dead have left.
    let mut test = TestFs::from_image(image).unwrap();
    for attempt in 0.. {
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        for issue in report.issues.iter().take(20) {
            std::println!("{issue}");
        }
        assert!(report.issues.is_empty());
        if report.orphans == 0 {
            break;
        }
        // A slow machine may take more than one attachment.
        std::println!("attempt {attempt}: {} orphans", report.orphans);
        for number in 0..format::layout::ORPHANS {
            let id = test.orphan_slot(number).unwrap().load(Relaxed);
            if id != 0 && attempt > 3 {
                let cached = test.cached(&test.cx(), Node { id, hint: u32::MAX });
                std::println!(
                    "orphan {number}: {id:x} {cached:?}: {:?}",
                    test.try_orphan(&test.cx(), Node { id, hint: u32::MAX })
                );
            }
        }
        assert!(attempt < 5, "orphans stay");
        test = test.again();
    }
}

//! Tests of attaching, open files, fork, exec and death, with real processes.

use super::AttachError;
use crate::testing::{TestFs, TestImage};
use crate::{Cred, Cx, Error, Kind, NewNode, Node, Thread};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::sys::abi;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn kill(pid: i32, signal: i32) -> i32;
    fn execv(path: *const core::ffi::c_char, arguments: *const *const core::ffi::c_char) -> i32;
}

const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
const DIRECTORY: NewNode = NewNode { kind: Kind::Directory, mode: 0o755, rdev: 0, target: b"" };

/// Runs `child` in a forked process that carries the descriptors over; its result is the exit code.
fn forked(test: &TestFs, child: impl FnOnce(&Cx) -> i32) -> i32 {
    let token = test.fork_prepare(&test.cx()).unwrap();
    // SAFETY: the child only runs `child` and ends.
    let pid = unsafe { fork() };
    if pid == 0 {
        let thread = Thread::new();
        test.fork_child(token);
        let code = child(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        // SAFETY: ends the child at once.
        unsafe { _exit(code) };
    }
    test.fork_done(token, pid as u32);
    wait(pid)
}

/// The exit code, or minus the signal.
fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
    if status & 0x7f == 0 { status >> 8 & 0xff } else { -(status & 0x7f) }
}

fn exists(test: &TestFs, node: Node) -> bool {
    test.attr(&test.cx(), node).is_ok()
}

/// Goal: a description is held by its descriptors and goes with the last; an
/// unlinked file lives as long.
#[test]
fn last_close_frees_an_unlinked_file() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    test.dup(id, 9000).unwrap();
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 2);
    test.unlink(&cx, test.root_node(), b"file").unwrap();
    test.close(&cx, 3);
    assert!(exists(&test, node));
    assert_eq!(test.attr(&cx, node).unwrap().nlink, 0);
    test.close(&cx, 9000);
    assert!(!exists(&test, node));
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 0);
    assert_eq!(test.dup(id, 5), Err(Error::Posix(Errno::EBADF)));
    assert_eq!(test.open(&cx, node, 0, 3), Err(Error::Posix(Errno::ESTALE)));
}

/// Goal: a directory removed while open lives until the last close.
#[test]
fn last_close_frees_a_removed_directory() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"dir", &DIRECTORY).unwrap();
    test.open(&cx, node, abi::O_DIRECTORY, 3).unwrap();
    test.rmdir(&cx, test.root_node(), b"dir").unwrap();
    assert!(exists(&test, node));
    test.close(&cx, 3);
    assert!(!exists(&test, node));
}

/// Goal: the same number of descriptions before and after many opens, and ENFILE-free use of many at once.
#[test]
fn many_descriptions() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    for fd in 0..5000 {
        test.open(&cx, node, 0, fd).unwrap();
    }
    assert_eq!(test.users().count(), 1);
    for fd in 0..5000 {
        test.close(&cx, fd);
    }
    assert!(!test.any_description());
}

/// Goal: a forked child shares descriptions; what it closes or dies with is counted off.
#[test]
fn fork_shares_descriptions() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let code = forked(&test, |child| {
        let description = test.description(id);
        assert_eq!(base::hold::count(description.refs.load(Relaxed)), 2);
        test.offset_lock(child, id);
        description.offset.store(77, Relaxed);
        test.offset_unlock(child, id);
        test.create(child, test.root_node(), b"by the child", &FILE).unwrap();
        test.close(child, 3);
        test.detach(child);
        5
    });
    assert_eq!(code, 5);
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 1);
    assert_eq!(test.description(id).offset.load(Relaxed), 77);
    assert!(test.lookup(&cx, test.root_node(), b"by the child").is_ok());
    // This one dies without a word, holding the offset too.
    let code = forked(&test, |child| {
        test.offset_lock(child, id);
        // SAFETY: kills itself.
        unsafe { kill(super::kernel::pid() as i32, 9) };
        0
    });
    assert_eq!(code, -9);
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 2);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 1);
    test.offset_lock(&cx, id);
    test.offset_unlock(&cx, id);
    assert_eq!(test.users().count(), 1);
}

/// Goal: a failed fork leaves nothing.
#[test]
fn failed_fork() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let token = test.fork_prepare(&cx).unwrap();
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 2);
    test.fork_failed(&cx, token);
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 1);
    assert_eq!(test.users().count(), 1);
}

/// Goal: descriptors pass to the new program, and are given up when it ends
/// without having claimed them. Method: a child really executes a program that
/// knows nothing of us; the test claims in its place.
#[test]
fn exec_hands_over() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let fork_token = test.fork_prepare(&cx).unwrap();
    let token = test.image.directory().to_owned() + "/token";
    // SAFETY: the child prepares and ends.
    let pid = unsafe { fork() };
    if pid == 0 {
        test.fork_child(fork_token);
        let text = test.exec_prepare().to_string();
        std::fs::write(token.clone() + "~", text).unwrap();
        std::fs::rename(token.clone() + "~", &token).unwrap();
        let arguments = [c"sleep".as_ptr(), c"100".as_ptr(), core::ptr::null()];
        // SAFETY: two strings and a null; the child ends if it fails.
        unsafe {
            execv(c"/bin/sleep".as_ptr(), arguments.as_ptr());
            _exit(1)
        };
    }
    while !std::path::Path::new(&token).exists() {
        std::thread::yield_now();
    }
    let token: u64 = std::fs::read_to_string(&token).unwrap().parse().unwrap();
    while !std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("sleep") {
        std::thread::yield_now();
    }
    let thread = Thread::new();
    let second = test.image.attach(&thread).unwrap();
    let mut seen = std::vec::Vec::new();
    assert!(second.exec_claim(token ^ 1 << 20, &mut |_, _| {}).is_err());
    second.exec_claim(token, &mut |fd, id| seen.push((fd, id))).unwrap();
    assert_eq!(seen, [(3, id)]);
    assert!(second.exec_claim(token, &mut |_, _| {}).is_err());
    assert_eq!(test.users().count(), 2);
    let second_cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    second.close(&second_cx, 3);
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 1);
    // Once more: this time nobody claims.
    second.dup(id, 3).unwrap();
    second.exec_prepare();
    second.exec_failed();
    second.exec_prepare();
    second.process_slot(1).unwrap().pid.store(pid as u32, Relaxed);
    second.process_slot(1).unwrap().started.store(0, Relaxed);
    second.process_mutex(1).unwrap().give_back();
    assert_eq!(test.adopt_dead_processes(&cx), 1);
    // SAFETY: a child of ours.
    unsafe { kill(pid, 9) };
    wait(pid);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 1);
    assert_eq!(test.users().count(), 1);
}

/// Goal: fork and exec get over somebody who looks, however long he looks.
/// Method: another thread holds the slot's mutex while the next step is due.
#[test]
fn a_look_delays_and_no_more() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let token = test.fork_prepare(&cx).unwrap();
    let number = (token & 0xffff) as u32 - 1;
    let looks = || {
        let (say, is_taken) = std::sync::mpsc::channel();
        let fs = test.fs;
        let looker = std::thread::spawn(move || {
            let mutex = fs.process_mutex(number).unwrap();
            while mutex.try_take() == pm::mutex::Attempt::Busy {}
            say.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(200));
            mutex.give_back();
        });
        is_taken.recv().unwrap();
        looker
    };
    // The child's first step, made by a thread in its place.
    let looker = looks();
    let fs = test.fs;
    let parent = fs.process.load(Relaxed);
    let child = std::thread::spawn(move || {
        fs.fork_child(token);
        assert_eq!(fs.process.load(Relaxed), number + 1);
        assert_eq!(fs.process_mutex(number).unwrap().try_take(), pm::mutex::Attempt::Busy, "it goes on without its mutex");
        fs.exec_prepare()
        // The mutex goes with the thread, as it does with the old program.
    });
    let token = child.join().unwrap();
    looker.join().unwrap();
    let looker = looks();
    let mut seen = std::vec::Vec::new();
    test.process.store(0, Relaxed);
    test.exec_claim(token, &mut |fd, id| seen.push((fd, id))).unwrap();
    looker.join().unwrap();
    assert_eq!(seen, [(3, id)]);
    test.process.store(parent, Relaxed);
}

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
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 1);
    assert_eq!(test.users().count(), 1);
    // What is noted late, when the slot is another's, means nothing.
    let second = test.fork_prepare(&cx).unwrap();
    test.fork_done(token, pid as u32);
    assert_eq!(test.adopt_dead_processes(&cx), 1);
    test.fork_failed(&cx, second);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
}

/// Goal: two attachments see each other's changes.
#[test]
fn two_attachments() {
    let test = TestFs::new(64 << 20);
    let thread = Thread::new();
    let second = test.image.attach(&thread).unwrap();
    let cx2 = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let node = test.create(&test.cx(), test.root_node(), b"x", &FILE).unwrap();
    assert_eq!(second.lookup(&cx2, second.root_node(), b"x").unwrap(), node);
    second.unlink(&cx2, second.root_node(), b"x").unwrap();
    assert!(test.lookup(&test.cx(), test.root_node(), b"x").is_err());
    second.detach(&cx2);
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
            unsafe { kill(super::kernel::pid() as i32, 9) };
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

/// Goal: one clear error for each thing that is not an image. Method: damage a copy each time.
#[test]
fn bad_images() {
    let thread = Thread::new();
    let refused = |damage: &dyn Fn(&TestImage)| {
        let image = TestImage::new(16 << 20);
        damage(&image);
        image.attach(&thread).unwrap_err()
    };
    let write = |image: &TestImage, at: u64, bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(image.file()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
    };
    assert_eq!(refused(&|i| drop(std::fs::remove_file(i.file()))), AttachError::Open(Errno::ENOENT));
    assert_eq!(refused(&|i| std::fs::write(i.file(), "no image").unwrap()), AttachError::NotAnImage);
    assert_eq!(refused(&|i| std::fs::write(i.file(), "").unwrap()), AttachError::NotAnImage);
    assert_eq!(refused(&|i| [0, 4096].iter().for_each(|at| write(i, at + 8, &[9]))), AttachError::Version(9));
    assert_eq!(refused(&|i| [0, 4096].iter().for_each(|at| write(i, at + 60, &[9]))), AttachError::Damaged);
    assert_eq!(refused(&|i| write(i, 0x2008, &[0xff; 8])), AttachError::Damaged);
    let truncated = refused(&|i| std::fs::File::options().write(true).open(i.file()).unwrap().set_len(5 << 20).unwrap());
    assert!(matches!(truncated, AttachError::Truncated { .. }), "{truncated:?}");
    assert_eq!(
        refused(&|i| {
            std::fs::remove_file(i.file()).unwrap();
            std::fs::create_dir(i.file()).unwrap();
        }),
        AttachError::NotAnImage
    );
    // One copy is enough.
    let image = TestImage::new(16 << 20);
    write(&image, 0, &[0; 128]);
    assert!(image.attach(&thread).is_ok());
}

/// Goal: a segment whose image was removed does not stay for ever. Method: a
/// process dies with its image; the next segment made in the same directory sweeps.
#[test]
fn needless_segments_are_swept() {
    let segments = |directory: &str| {
        let names = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("bypath-")).count()
    };
    let gone = TestImage::new(16 << 20);
    // SAFETY: the child kills itself.
    let pid = unsafe { fork() };
    if pid == 0 {
        gone.attach(&Thread::new()).unwrap();
        // SAFETY: kills itself.
        unsafe { kill(super::kernel::pid() as i32, 9) };
    }
    assert_eq!(wait(pid), -9);
    std::fs::remove_file(gone.file()).unwrap();
    assert_eq!(segments(gone.directory()), 1);
    let image = TestImage::new(16 << 20);
    let thread = Thread::new();
    let options = super::Options { segment_dir: Some(gone.directory().as_bytes()), ..Default::default() };
    image.attach_with(&thread, &options).unwrap();
    assert_eq!(segments(gone.directory()), 1);
    // The segment of a living user stays, whatever became of its image.
    std::fs::remove_file(image.file()).unwrap();
    let third = TestImage::new(16 << 20);
    third.attach_with(&Thread::new(), &options).unwrap();
    assert_eq!(segments(gone.directory()), 2);
}

/// Goal: users whose segment cannot be reached are not joined and not disturbed.
#[test]
fn unreachable_segment() {
    let test = TestFs::new(16 << 20);
    std::fs::remove_file(String::from_utf8(test.segment_path().to_vec()).unwrap()).unwrap();
    assert_eq!(test.image.attach(&Thread::new()).unwrap_err(), AttachError::InUse);
    assert!(test.create(&test.cx(), test.root_node(), b"still", &FILE).is_ok());
}

use std::borrow::ToOwned;
use std::format;
use std::string::{String, ToString};

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
    let seed: u64 = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(u64::from(super::kernel::pid()));
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
                    test.reclaim_orphan(&test.cx(), Node { id, hint: u32::MAX })
                );
            }
        }
        assert!(attempt < 5, "orphans stay");
        test = test.again();
    }
}

/// Measures attaching: joining, after a death of everybody, after a restart
/// (no segment). Each in a process of its own. `cargo test --release attach_times -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn attach_times() {
    let measure = |image: &TestImage, what: &str| {
        let path = format!("{}/time", image.directory());
        let mut times: std::vec::Vec<u64> = (0..15)
            .map(|_| {
                if what == "restart" {
                    for entry in std::fs::read_dir(image.directory()).unwrap().flatten() {
                        if entry.file_name().to_string_lossy().starts_with("bypath-") {
                            std::fs::remove_file(entry.path()).unwrap();
                        }
                    }
                }
                // SAFETY: the child measures and ends.
                let pid = unsafe { fork() };
                if pid == 0 {
                    let thread = Thread::new();
                    let start = std::time::Instant::now();
                    let fs = image.attach(&thread).unwrap();
                    let time = start.elapsed().as_nanos() as u64;
                    std::fs::write(&path, time.to_string()).unwrap();
                    if what == "orderly" {
                        fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
                    }
                    // SAFETY: ends the child.
                    unsafe { _exit(0) };
                }
                assert_eq!(wait(pid), 0);
                std::fs::read_to_string(&path).unwrap().parse().unwrap()
            })
            .collect();
        times.sort_unstable();
        std::println!("{what:>10}: {:6} ns, worst {:6}", times[times.len() / 2], times[times.len() - 1]);
    };
    for files in [1_000, 200_000] {
        let test = TestFs::new(2 << 30);
        let cx = test.cx();
        let start = std::time::Instant::now();
        for i in 0..files {
            test.create(&cx, test.root_node(), format!("file {i}").as_bytes(), &FILE).unwrap();
        }
        std::println!("{files} files, {} ns a create", start.elapsed().as_nanos() / files);
        measure(&test.image, "join");
        test.detach(&cx);
        measure(&test.image, "alone");
        measure(&test.image, "orderly");
        measure(&test.image, "restart");
        let start = std::time::Instant::now();
        assert_eq!(crate::check::run(&test.image.path(), &mut |_| {}).unwrap().issues, []);
        std::println!("     check: {} ms", start.elapsed().as_millis());
    }
}

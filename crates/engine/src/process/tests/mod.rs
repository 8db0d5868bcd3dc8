//! Tests of attaching, open files, fork, exec and death, with real processes.

mod attach;
mod death;
mod left;
mod owner;

use super::AttachError;
use crate::testing::{TestFs, TestImage};
use crate::{Cred, Cx, Error, Kind, NewNode, Node, Thread};
use core::sync::atomic::Ordering::Relaxed;
use openfiles::{Handover, Processes};
use pm::Errno;
use pm::sys::abi;
use std::borrow::ToOwned;
use std::format;
use std::string::{String, ToString};

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
        unsafe { kill(pm::host::own_pid() as i32, 9) };
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
    second.process_slot(1).unwrap().since.store(0, Relaxed);
    second.process_mutex(1).unwrap().give_back();
    assert_eq!(test.adopt_dead_processes(&cx), 1);
    // SAFETY: a child of ours.
    unsafe { kill(pid, 9) };
    wait(pid);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
    assert_eq!(base::hold::count(test.description(id).refs.load(Relaxed)), 1);
    assert_eq!(test.users().count(), 1);
}

/// Goal: the death of a child that was made behind libc's back (a bare `clone`) is noticed like any
/// other's. Method: such a child takes its slot and ends.
#[test]
fn a_bare_childs_death_is_noticed() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let token = test.fork_prepare(&cx).unwrap();
    const SIGCHLD: usize = 17;
    // SAFETY: as fork; the child takes its slot and ends.
    let pid = unsafe { pm::sys::raw(abi::__NR_clone as usize, [SIGCHLD, 0, 0, 0, 0, 0]) } as i32;
    if pid == 0 {
        test.fork_child(token);
        // SAFETY: ends the child.
        unsafe { _exit(7) };
    }
    test.fork_done(token, pid as u32);
    assert_eq!(wait(pid), 7);
    assert_eq!(test.adopt_dead_processes(&cx), 0);
    assert_eq!((base::hold::count(test.description(id).refs.load(Relaxed)), test.users().count()), (1, 1));
}

/// Goal: a child that borrows its parent's memory leaves the slot to its program without ever
/// having been a process; the slot is given up if there is no exec, and if the program dies before it
/// has claimed it. Method: a forked child makes the one step; the test claims in the program's place.
#[test]
fn a_borrowing_child_hands_over() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let node = test.create(&cx, test.root_node(), b"file", &FILE).unwrap();
    let id = test.open(&cx, node, abi::O_RDWR, 3).unwrap();
    let refs = || base::hold::count(test.description(id).refs.load(Relaxed));
    let spawn = |token| {
        // SAFETY: the child makes the step and waits to be killed.
        let pid = unsafe { fork() };
        if pid == 0 {
            test.spawn_exec(token);
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        let slot = test.process_slot((token & 0xffff) as u32 - 1).unwrap();
        while slot.state.load(core::sync::atomic::Ordering::Acquire) != openfiles::state::EXECUTING {
            std::thread::yield_now();
        }
        assert_eq!(slot.pid.load(Relaxed), pid as u32);
        pid
    };
    let end = |pid| {
        // SAFETY: a child of ours.
        unsafe { kill(pid, 9) };
        wait(pid);
    };
    // No exec: as if nothing had been.
    let token = test.fork_prepare(&cx).unwrap();
    assert_eq!(refs(), 2);
    test.spawn_failed(&cx, token);
    assert_eq!((refs(), test.users().count()), (1, 1));
    let token = test.fork_prepare(&cx).unwrap();
    end(spawn(token));
    test.spawn_failed(&cx, token);
    assert_eq!((refs(), test.users().count()), (1, 1));
    // The program claims.
    let token = test.fork_prepare(&cx).unwrap();
    let pid = spawn(token);
    assert_eq!(test.adopt_dead_processes(&cx), 1);
    let thread = Thread::new();
    let second = test.image.attach(&thread).unwrap();
    let mut seen = std::vec::Vec::new();
    second.exec_claim(token, &mut |fd, id| seen.push((fd, id))).unwrap();
    assert_eq!(seen, [(3, id)]);
    // What the parent may still do with the token changes nothing.
    test.spawn_failed(&cx, token);
    assert_eq!((refs(), test.users().count()), (2, 2));
    end(pid);
    let second_cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    second.detach(&second_cx);
    assert_eq!((refs(), test.users().count()), (1, 1));
    // It dies before it has claimed.
    let pid = spawn(test.fork_prepare(&cx).unwrap());
    assert_eq!((refs(), test.adopt_dead_processes(&cx)), (2, 1));
    end(pid);
    assert_eq!((test.adopt_dead_processes(&cx), refs()), (0, 1));
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
    let pages = test.descriptor_pages.load(Relaxed);
    test.set_process(0, 0);
    test.exec_claim(token, &mut |fd, id| seen.push((fd, id))).unwrap();
    looker.join().unwrap();
    assert_eq!(seen, [(3, id)]);
    test.set_process(parent, pages);
}

/// Goal: a process whose first thread has ended is still noted as the holder of its slot after others have looked at it.
#[test]
fn a_look_leaves_the_holder_noted() {
    let test = TestFs::new(64 << 20);
    let (cx, fs) = (test.cx(), test.fs);
    let own = test.process.load(Relaxed) - 1;
    let mutex = test.process_mutex(own).unwrap();
    mutex.give_back();
    let first = std::thread::spawn(move || assert_eq!(fs.process_mutex(own).unwrap().try_take(), pm::mutex::Attempt::Taken));
    first.join().unwrap();
    let is_noted = || mutex.holder().and_then(|who| who.lives(pm::life::Look::Thorough)) == Some(true);
    for _ in 0..2 {
        assert!(test.adopt_process_if_dead(&cx, own, pm::life::Look::Quick) && is_noted());
    }
    let other = test.claim_slot(&cx).unwrap();
    assert!(other != own && is_noted());
    test.process_mutex(other).unwrap().give_back();
}

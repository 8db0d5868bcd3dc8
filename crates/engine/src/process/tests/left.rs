//! What the dead leave half done, finished beside the living.

use super::*;
use core::sync::atomic::Ordering::SeqCst;
use format::layout::BLOCK;
use openfiles::{Handover, Processes};
use pm::UserSlice;

/// Nodes in the orphan table.
fn orphans(test: &TestFs) -> usize {
    test.orphan_numbers().filter(|number| test.orphan_slot(*number).unwrap().load(SeqCst) != 0).count()
}

fn free(test: &TestFs) -> u64 {
    test.statfs().unwrap().blocks_free
}

/// Adopts the dead, and finishes what they left, for which one call has a certain time only.
fn adopt(test: &TestFs) {
    for _ in 0..1000 {
        assert_eq!(test.adopt_dead_processes(&test.cx()), 0);
        if !test.has_leftovers() {
            return;
        }
    }
    panic!("some stays");
}

/// A file of that many extents, a block each.
fn scattered(test: &TestFs, cx: &Cx, name: &[u8], extents: u64) -> Node {
    let node = test.create(cx, test.root_node(), name, &FILE).unwrap();
    for extent in 0..extents {
        test.write(cx, node, Some(extent * 2 * BLOCK), &[UserSlice::from_ref(b"x")]).unwrap();
    }
    node
}

/// Goal: a file that the dead made without a name and had not opened yet goes; one of the living stays until it is open.
#[test]
fn unopened_files_without_names() {
    let test = TestFs::new(64 << 20);
    let cx = test.cx();
    let ours = test.tmpfile(&cx, test.root_node(), 0o600, 0).unwrap();
    test.dying(|child| test.tmpfile(child, test.root_node(), 0o600, 0).is_ok());
    assert_eq!(orphans(&test), 2);
    adopt(&test);
    assert_eq!(orphans(&test), 1);
    test.open(&cx, ours, abi::O_RDWR, 3).unwrap();
    // Open, it is spared though the lane has made another one since.
    let other = test.tmpfile(&cx, test.root_node(), 0o600, 0).unwrap();
    test.dying(|_| true);
    adopt(&test);
    assert!(exists(&test, ours) && exists(&test, other));
    test.forget_tmpfile(&cx, other);
    test.close(&cx, 3);
    assert_eq!(orphans(&test), 0);
}

/// Goal: who looks for orphans, as every start of a program does, looks as far as one ever was, and through the whole
/// table once in a segment's life. Method: one is put further on than any is known to have been.
#[test]
fn as_far_as_one_was() {
    let test = TestFs::new(64 << 20);
    test.dying(|child| test.tmpfile(child, test.root_node(), 0o600, 0).is_ok());
    test.adopt_all(&test.cx(), pm::life::Look::Thorough);
    let [first, far] = [0, 500].map(|number| test.orphan_slot(number).unwrap());
    far.store(first.swap(0, SeqCst), SeqCst);
    let met = || {
        let mut met = 0;
        test.finish_what_nobody_has(&test.cx(), &mut || {
            met += 1;
            false
        });
        met
    };
    assert_eq!(met(), 0);
    // As a new segment has it.
    test.header().orphans_high.store(0, SeqCst);
    assert_eq!(met(), 1);
    adopt(&test);
    assert_eq!((far.load(SeqCst), orphans(&test)), (0, 0));
}

/// Goal: what the dead had open without a name, and files whose removal they had begun, go beside the living; what
/// the living have open stays. Method: a child leaves each kind; a second one dies while it adopts the first.
#[test]
fn removals_cut_off() {
    let test = TestFs::new(64 << 20);
    let (cx, root) = (test.cx(), test.root_node());
    let kept = scattered(&test, &cx, b"kept", 10);
    test.open(&cx, kept, abi::O_RDWR, 3).unwrap();
    test.unlink(&cx, root, b"kept").unwrap();
    scattered(&test, &cx, b"first", 1);
    let before = free(&test);
    // First: who readies a slot adopts the dead.
    let adopter = test.fork_prepare(&cx).unwrap();
    test.dying(|child| {
        let open = scattered(&test, child, b"open", 1000);
        test.open(child, open, abi::O_RDWR, 4).unwrap();
        test.unlink(child, root, b"open").unwrap();
        for name in [&b"removed"[..], b"replaced"] {
            let node = scattered(&test, child, name, 1000);
            let cachelet = test.cached(child, node).unwrap();
            // As if somebody had it open until the name is gone: then death.
            cachelet.opens.fetch_add(1, SeqCst);
            match name {
                b"removed" => test.unlink(child, root, name).unwrap(),
                _ => {
                    test.create(child, root, b"new", &FILE).unwrap();
                    test.rename(child, root, b"new", root, name, crate::RenameMode::Replace).unwrap();
                }
            }
            cachelet.opens.fetch_sub(1, SeqCst);
        }
        true
    });
    assert_eq!(orphans(&test), 4);
    // Killed between the adoption and what it leaves to do.
    test.dying_as(adopter, |child| test.adopt_all(child, pm::life::Look::Thorough) == 1 && orphans(&test) == 3);
    adopt(&test);
    assert_eq!(orphans(&test), 1);
    test.unlink(&cx, root, b"replaced").unwrap();
    assert!(before - free(&test) <= 16, "{before} {}", free(&test));
    assert!(exists(&test, kept));
    test.close(&cx, 3);
    assert_eq!(orphans(&test), 0);
}

/// Goal: whenever in a large removal or truncation death comes, and to the adopter too, the space comes back.
#[test]
fn killed_at_any_time() {
    let test = TestFs::new(128 << 20);
    let (cx, root) = (test.cx(), test.root_node());
    scattered(&test, &cx, b"first", 1);
    for round in 0..40u32 {
        let before = free(&test);
        let node = scattered(&test, &cx, b"large", 2000);
        let kill_after = |token: u64, delay: u32, work: &dyn Fn(&Cx) -> crate::Result<()>| {
            // SAFETY: the child works until it is killed.
            let pid = unsafe { fork() };
            if pid == 0 {
                let thread = Thread::new();
                test.fork_child(token);
                let done = work(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
                while done.is_ok() {
                    std::thread::park();
                }
                // SAFETY: ends the child at once.
                unsafe { _exit(1) };
            }
            test.fork_done(token, pid as u32);
            std::thread::sleep(std::time::Duration::from_micros(u64::from(delay)));
            // SAFETY: a child of ours.
            unsafe { kill(pid, 9) };
            assert_eq!(wait(pid), -9);
        };
        let [worker, adopter] = [0; 2].map(|_| test.fork_prepare(&cx).unwrap());
        kill_after(worker, 300 + round * 37 % 700, &|child| match round % 2 {
            0 => test.unlink(child, root, b"large"),
            _ => test.set_attr(child, node, &crate::SetAttr { size: Some(0), ..Default::default() }),
        });
        kill_after(adopter, 200 + round * 53 % 900, &|child| {
            test.adopt_dead_processes(child);
            Ok(())
        });
        adopt(&test);
        // Unless death came before all of it.
        let size = test.lookup(&cx, root, b"large").map_or(0, |node| test.attr(&cx, node).unwrap().size);
        if size == 0 {
            assert!(before - free(&test) <= 16, "round {round}: {before} {}", free(&test));
        }
        assert_eq!((orphans(&test), test.census().lanes), (0, 0));
        let _ = test.unlink(&cx, root, b"large");
    }
    let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
    assert_eq!(report.issues, []);
}

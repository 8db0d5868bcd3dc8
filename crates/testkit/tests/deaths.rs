//! Goal: a directory whose last name has gone can be removed, and replaced, whenever whoever removed that name died. Method: a
//! child dies before each access of its `unlink`.

use base::{Cred, Cx, Errno, Kind, NewNode, Node, RenameMode, Thread};
use bypath_testkit::image;
use std::cell::Cell;
use vfs::Backend;
use vfs::backend::Handover;
use vfs::native::Native;

/// More than an `unlink` has.
const ACCESSES: u64 = 200;

thread_local! {
    /// Accesses to the image until this process dies.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

fn touched() {
    LEFT.with(|left| match left.get() {
        // SAFETY: a signal to ourselves.
        Some(0) => drop(unsafe { libc::raise(libc::SIGKILL) }),
        Some(some) => left.set(Some(some - 1)),
        None => {}
    });
}

#[test]
fn the_last_name_goes_with_its_remover() {
    let _segments = image::Segments::new();
    let path = image::fresh_path("deaths");
    image::make(&path, 64 << 20);
    let native = image::attach(&path);
    let _ = std::fs::remove_file(&path);
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let root = native.root();
    let make = |dir: Node, name: &[u8], kind| {
        native.create(&cx, dir, name, &NewNode { kind, mode: 0o755, rdev: 0, target: b"" }).unwrap()
    };
    pm::record::on_touch(touched);
    for is_replaced in [false, true] {
        let mut gone = 0;
        for at in 0..ACCESSES {
            let dir = make(root, b"d", Kind::Directory);
            make(dir, b"f", Kind::Regular);
            dying(native, &cx, |cx| {
                LEFT.set(Some(at));
                let _ = native.unlink(cx, dir, b"f");
            });
            match native.lookup(&cx, dir, b"f") {
                Ok(_) => native.unlink(&cx, dir, b"f").unwrap(),
                Err(error) => {
                    assert_eq!(error.errno(), Errno::ENOENT);
                    gone += 1;
                }
            }
            if is_replaced {
                make(root, b"other", Kind::Directory);
                assert_eq!(
                    native.rename(&cx, root, b"other", root, b"d", RenameMode::Replace),
                    Ok(()),
                    "dead before access {at}"
                );
            }
            assert_eq!(native.rmdir(&cx, root, b"d"), Ok(()), "dead before access {at}");
        }
        assert!(gone > 0 && gone < ACCESSES, "{gone}");
    }
    let dir = make(root, b"d", Kind::Directory);
    make(dir, b"f", Kind::Regular);
    assert_eq!(native.rmdir(&cx, root, b"d"), Err(Errno::ENOTEMPTY.into()));
}

/// Runs `last` in a child, which then dies.
fn dying(native: &Native, cx: &Cx, last: impl FnOnce(&Cx)) {
    let token = native.fork_prepare(cx).unwrap();
    // SAFETY: the child ends itself.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let thread = Thread::new();
        native.fork_child(token);
        last(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        // SAFETY: a signal to ourselves.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    native.fork_done(token, pid as u32);
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
}

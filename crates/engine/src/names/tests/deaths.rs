//! A process that dies in the middle of a change of names; who comes next sees it made, or not made.

use super::*;
use core::cell::Cell;

std::thread_local! {
    /// Accesses to the image until this process dies.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

fn touched() {
    unsafe extern "C" {
        fn raise(signal: i32) -> i32;
    }
    LEFT.with(|left| match left.get() {
        Some(0) => {
            // SAFETY: a signal to ourselves.
            unsafe { raise(9) };
        }
        Some(some) => left.set(Some(some - 1)),
        None => {}
    });
}

/// Goal: a directory whose last name has gone can be removed, whenever whoever removed that name died. Method: a child dies
/// before each access of its `unlink`.
#[test]
fn the_last_name_goes_with_its_remover() {
    const ACCESSES: u64 = 200;
    let test = TestFs::new(64 * MIB);
    let (cx, root) = (test.cx(), test.root_node());
    pm::record::on_touch(touched);
    let mut gone = 0;
    for at in 0..ACCESSES {
        let dir = test.create(&cx, root, b"d", &new(Kind::Directory)).unwrap();
        test.create(&cx, dir, b"f", &new(Kind::Regular)).unwrap();
        test.dying(|cx| {
            LEFT.set(Some(at));
            test.unlink(cx, dir, b"f").is_ok()
        });
        match test.lookup(&cx, dir, b"f") {
            Ok(_) => test.unlink(&cx, dir, b"f").unwrap(),
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOENT);
                gone += 1;
            }
        }
        assert_eq!(test.rmdir(&cx, root, b"d"), Ok(()), "dead before access {at}");
    }
    assert!(gone > 0 && gone < ACCESSES, "{gone}");
}

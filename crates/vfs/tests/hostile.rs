//! Daemons that mean harm, seen from above the caching layer: names without end, node ids
//! that lead in circles, answers to nothing. See `fuzz/src/target/daemon.rs` for everything else.

mod scripted;

use bypath_vfs as vfs;
use fuse_client::ring::Request;
use pm::{Errno, UserSlice};
use scripted::{Place, entry, reply};
use session::NODES;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use vfs::*;

fn with_cx(run: impl FnOnce(&Cx)) {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
}

const LOOKUP: u32 = 1;
const READDIR: u32 = 28;

/// A page of a list: one name, whose cookie follows on the one asked for by `step`.
fn page(asked: &[u8], step: u64) -> Vec<u8> {
    let cookie = u64::from_ne_bytes(asked[8..16].try_into().unwrap()).wrapping_add(step);
    let mut out = 5u64.to_ne_bytes().to_vec();
    out.extend(cookie.to_ne_bytes());
    out.extend(1u32.to_ne_bytes());
    out.extend(8u32.to_ne_bytes());
    out.extend(*b"x\0\0\0\0\0\0\0");
    out
}

/// Goal: a directory without an end is read for as long as the reader wants and no longer;
/// one that stays on the spot is an error.
#[test]
fn endless_directory() {
    for (step, fine) in [(1, true), (0, false)] {
        let place = Place::new(&format!("endless-{step}"));
        let backend = place.mount(move |operation, _, asked| match operation {
            READDIR => page(asked, step),
            _ => vec![0; 16],
        });
        with_cx(|cx| {
            let mut count = 0;
            let result = backend.readdir(cx, backend.root(), 0, &mut |entry| {
                assert_eq!(entry.name, b"x");
                count += 1;
                count < 1000
            });
            assert_eq!((count == 1000, result.is_ok()), (fine, fine), "{count} entries, {result:?}");
        });
    }
}

/// Goal: a directory that is its own child, under every name, is no way without an end: each
/// name is a node of its own, and from the deepest it goes up to the root. The root is nobody's child.
#[test]
fn circles() {
    let place = Place::new("circles");
    let backend = place.mount(|operation, _, asked| match operation {
        LOOKUP => entry(if asked.starts_with(b"root") { 1 } else { 7 }, 0o040_755, 0),
        _ => vec![0; 16],
    });
    with_cx(|cx| {
        assert_eq!(backend.lookup(cx, backend.root(), b"root").err(), Some(Error::Posix(Errno::EIO)));
        let mut node = backend.root();
        for depth in 0..50 {
            match backend.lookup(cx, node, b"again") {
                Ok(next) => node = next,
                Err(error) => return assert!(depth > 0, "{error:?}"),
            }
        }
        let mut levels = 0;
        while node.id != backend.root().id {
            node = backend.parent(cx, node).unwrap();
            levels += 1;
            assert!(levels <= 50, "from a directory that lies in itself it does not go up");
        }
    });
}

/// Goal: more names than are kept at a time, all with ids of their own: the table stays as large
/// as it is, and every look-up is answered.
#[test]
fn names_without_end() {
    let place = Place::new("names");
    let backend =
        place.mount(|operation, unique, _| if operation == LOOKUP { entry(unique | 1 << 40, 0o040_755, 0) } else { vec![0; 16] });
    with_cx(|cx| {
        for number in 0..NODES + NODES / 8 {
            let name = format!("name {number}");
            backend.lookup(cx, backend.root(), name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
    });
}

/// Goal: answers to nothing, to others' requests and to past ones change nothing for those who
/// wait for theirs. Method: a second thread of the daemon's that sends them without a pause.
#[test]
fn replies_to_nothing() {
    let place = Place::new("nothing");
    let backend = place.mount(|_, unique, _| unique.to_ne_bytes().repeat(13));
    let ring = backend.lower().ring();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut unique = 1u64;
            while !ends.load(SeqCst) {
                unique = unique.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let stray = reply(unique & 0xffff, &[0xee; 104]);
                let _ = ring.reply(&[UserSlice::from_ref(&stray)], false);
                std::thread::yield_now();
            }
        });
        with_cx(|cx| {
            let (mut right, mut strays) = (0, 0);
            for _ in 0..2000 {
                let request = Request {
                    operation: 3,
                    node: 1,
                    incarnation: ring.incarnation(),
                    parts: [b""; 3],
                    data: UserSlice::from_ref(b""),
                };
                let mut room = [0u8; 104];
                assert_eq!(ring.call(cx, &request, UserSlice::from_mut(&mut room)), Ok(104));
                // A stray may hit: it is the daemon's own answer then. Nothing is mixed.
                match room.iter().all(|&byte| byte == 0xee) {
                    true => strays += 1,
                    false => {
                        assert!(room.chunks(8).all(|word| word == &room[..8]), "two answers in one");
                        right += 1;
                    }
                }
            }
            assert!(right > strays, "{right} answers, {strays} strays");
        });
        ends.store(true, SeqCst);
    });
}

//! What a daemon is asked for a call, and what is answered without it.

mod scripted;

use bypath_vfs as vfs;
use fuse_client::DEFAULT_PERMISSIONS;
use fuse_client::ring::{RING_BYTES, Request, Ring, SLOTS, daemon_state};
use pm::{Errno, UserSlice};
use scripted::{Place, entry};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use vfs::backend::OpenFileTable;
use vfs::cached::Below;
use vfs::*;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const RMDIR: u32 = 11;
const CREATE: u32 = 35;

const ROOT: Cred = Cred::ROOT;
const STRANGER: Cred = Cred { uid: 1000, gid: 1000, groups: &[], privileged: false, privileged_within: false };
const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

fn with_cx(cred: Cred<'static>, run: impl FnOnce(&Cx)) {
    let thread = Thread::new();
    run(&Cx { cred, umask: 0, thread: &thread });
}

/// `struct fuse_entry_out` of a regular file, and `struct fuse_open_out`.
fn made(id: u64) -> Vec<u8> {
    [entry(id, 0o100_644, 0), vec![0; 16]].concat()
}

/// Goal: a name that the call's own walk has not found is not looked for a second time before it is made; one that
/// nobody has looked for is, since libfuse relies on that.
#[test]
fn one_look_for_a_new_name() {
    let place = Place::new("new");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let backend = place.mount(move |operation, unique, _| {
        log.lock().unwrap().push(operation);
        // A node with number 0 is a name that is not there.
        if operation == CREATE { made(unique) } else { vec![0; 128] }
    });
    let take = || std::mem::take(&mut *asked.lock().unwrap());
    with_cx(ROOT, |cx| {
        assert_eq!(backend.lookup(cx, backend.root(), b"one").err(), Some(Error::Posix(Errno::ENOENT)));
        backend.create_absent(cx, backend.root(), b"one", &FILE).unwrap();
        assert_eq!(take(), [LOOKUP, CREATE]);
        backend.create(cx, backend.root(), b"two", &FILE).unwrap();
        assert_eq!(take(), [LOOKUP, CREATE]);
        assert_eq!(backend.create(cx, backend.root(), b"two", &FILE).err(), Some(Error::Posix(Errno::EEXIST)));
        assert_eq!(take(), []);
    });
}

/// Goal: nothing is made in a directory that was removed, and this is told before whether the caller might.
#[test]
fn nothing_in_what_was_removed() {
    let place = Place::new("removed");
    let backend = place.mount(|operation, unique, asked| match operation {
        LOOKUP if asked == b"d\0" => entry(7, 0o040_755, 0),
        LOOKUP => vec![0; 128],
        // `struct fuse_attr_out`: the attributes lie 16 bytes from its begin, 40 from that of an entry.
        GETATTR => [&[0u8; 16], &entry(7, 0o040_755, 0)[40..128]].concat(),
        RMDIR => Vec::new(),
        _ => made(unique),
    });
    backend.lower().ring().header().unwrap().mount_flags.store(DEFAULT_PERMISSIONS, SeqCst);
    let mut removed = None;
    with_cx(ROOT, |cx| {
        let dir = backend.lookup(cx, backend.root(), b"d").unwrap();
        removed = Some(dir);
        with_cx(STRANGER, |cx| {
            assert_eq!(backend.create(cx, dir, b"f", &FILE).err(), Some(Error::Posix(Errno::EACCES)));
        });
        backend.open(cx, dir, pm::sys::abi::O_DIRECTORY, 3).unwrap();
        backend.rmdir(cx, backend.root(), b"d").unwrap();
        assert_eq!(backend.create(cx, dir, b"f", &FILE).err(), Some(Error::Posix(Errno::ENOENT)));
    });
    with_cx(STRANGER, |cx| {
        let dir = removed.unwrap();
        assert_eq!(backend.create(cx, dir, b"f", &FILE).err(), Some(Error::Posix(Errno::ENOENT)));
    });
}

/// Goal: what a daemon's end leaves of messages that nobody waits for does not take the next one's slots: its first
/// request would find none. Method: as many as there are slots, sent by a client that lives on, and no daemon.
#[test]
fn a_new_daemon_finds_free_slots() {
    let place = Place::new("slots");
    let path = place.file("ring", RING_BYTES);
    let ring = Ring::open(format!("{path}\0").as_bytes()).unwrap();
    ring.header().unwrap().timeout_ms.store(50, SeqCst);
    let nothing = UserSlice::from_ref(&[]);
    with_cx(ROOT, |cx| {
        for _ in 0..2 {
            ring.renew().unwrap();
            ring.set_daemon_state(daemon_state::SERVING).unwrap();
            let forget =
                Request { operation: 2, node: 1, incarnation: ring.incarnation(), parts: [&[0; 8], b"", b""], data: nothing };
            for _ in 0..SLOTS {
                ring.send(cx, &forget).unwrap();
            }
            assert_eq!(ring.send(cx, &forget), Err(Errno::ETIMEDOUT));
        }
        // What slipped into a slot just when the lives changed is freed by who finds none.
        let header = ring.header().unwrap();
        header.incarnation.fetch_add(1, SeqCst);
        header.timeout_ms.store(60_000, SeqCst);
        let forget =
            Request { operation: 2, node: 1, incarnation: ring.incarnation(), parts: [&[0; 8], b"", b""], data: nothing };
        assert_eq!(ring.send(cx, &forget), Ok(()));
    });
}

/// Goal: who appends has a handle that the daemon knows to be for that, so that it finds the end itself; who writes elsewhere
/// has another; both are released.
#[test]
fn who_appends_has_a_handle_for_it() {
    const OPEN: u32 = 14;
    const WRITE: u32 = 16;
    const RELEASE: u32 = 18;
    const APPEND: u32 = pm::sys::abi::O_APPEND;
    let place = Place::new("append");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let backend = place.mount(move |operation, _, body| {
        let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().unwrap());
        match operation {
            OPEN => log.lock().unwrap().push((OPEN, word(0) & APPEND)),
            // By which handle, and with which flags.
            WRITE => log.lock().unwrap().push((WRITE + word(0) * 100, word(32) & APPEND)),
            RELEASE => log.lock().unwrap().push((RELEASE, word(0))),
            _ => {}
        }
        match operation {
            LOOKUP => entry(7, 0o100_644, 5),
            GETATTR => [&[0u8; 16], &entry(7, 0o100_644, 5)[40..128]].concat(),
            OPEN => [[if word(0) & APPEND != 0 { 2u8 } else { 1 }, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat(),
            WRITE => word(16).to_ne_bytes().into_iter().chain([0; 4]).collect(),
            _ => Vec::new(),
        }
    });
    let take = || std::mem::take(&mut *asked.lock().unwrap());
    with_cx(ROOT, |cx| {
        let node = backend.lookup(cx, backend.root(), b"log").unwrap();
        let text = [UserSlice::from_ref(b"line\n")];
        backend.open(cx, node, pm::sys::abi::O_WRONLY | APPEND, 3).unwrap();
        assert_eq!(backend.write(cx, node, None, &text).unwrap(), (5, 10));
        assert_eq!(take(), [(OPEN, APPEND), (WRITE + 200, APPEND)]);
        backend.open(cx, node, pm::sys::abi::O_WRONLY, 4).unwrap();
        backend.write(cx, node, Some(0), &text).unwrap();
        backend.write(cx, node, None, &text).unwrap();
        assert_eq!(take(), [(OPEN, 0), (WRITE + 100, 0), (WRITE + 200, APPEND)]);
        backend.close(cx, 3);
        backend.close(cx, 4);
        assert_eq!(take(), [(RELEASE, 1), (RELEASE, 2)]);
    });
}

/// Goal: what a directory's begin lists with attributes is not asked for by name, those least that the caller has not taken;
/// a name without a number, and the two dots, are; a daemon that can't is asked for a plain list.
#[test]
fn listed_names_are_known() {
    const FORGET: u32 = 2;
    const OPENDIR: u32 = 27;
    const READDIR: u32 = 28;
    const READDIRPLUS: u32 = 44;
    /// `FUSE_DO_READDIRPLUS` and `FUSE_READDIRPLUS_AUTO`.
    const PLUS: u32 = 3 << 13;
    let place = Place::new("plus");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let dirent = |next: u64, name: &[u8]| {
        let mut out =
            [&[9, 0, 0, 0, 0, 0, 0, 0][..], &next.to_ne_bytes(), &(name.len() as u32).to_ne_bytes(), &[8, 0, 0, 0], name]
                .concat();
        out.resize(out.len().next_multiple_of(8), 0);
        out
    };
    let backend = place.mount(move |operation, _, body| {
        log.lock().unwrap().push(operation);
        let of = |id: u64| if id == 0 { vec![0; 128] } else { entry(id, 0o100_644, 5) };
        match operation {
            READDIRPLUS if body[8] == 0 => [(1, 0, &b"."[..]), (2, 7, b"a"), (3, 0, b"b"), (4, 8, b"c")]
                .iter()
                .flat_map(|(at, id, name)| [of(*id), dirent(*at, name)].concat())
                .collect(),
            READDIR if body[8] == 4 => dirent(5, b"d"),
            LOOKUP => entry(9, 0o100_644, 5),
            OPENDIR => vec![0; 16],
            _ => Vec::new(),
        }
    });
    let take = || std::mem::take(&mut *asked.lock().unwrap());
    backend.lower().ring().header().unwrap().agreed.store(PLUS, SeqCst);
    with_cx(ROOT, |cx| {
        let root = backend.root();
        let list = |cookie, most: usize| {
            let mut names = Vec::new();
            let each = &mut |entry: DirEntry| {
                names.push(entry.name.to_vec());
                names.len() < most
            };
            backend.readdir(cx, root, cookie, each).unwrap();
            names.concat()
        };
        assert_eq!(list(0, 2), b".a");
        assert_eq!(take(), [OPENDIR, READDIRPLUS]);
        for name in [&b"a"[..], b"c"] {
            let node = backend.lookup(cx, root, name).unwrap();
            backend.attr(cx, node).unwrap();
        }
        assert_eq!(take(), [], "both are known");
        backend.lookup(cx, root, b"b").unwrap();
        assert_eq!(take(), [LOOKUP]);
        assert_eq!(list(4, 9), b"d", "what follows is a plain list");
        assert!(!take().contains(&FORGET));
    });
}

/// Goal: whoever wants a directory whole is told all names with their attributes by as few messages as hold them, from a
/// daemon that leaves it to us and lets nothing be kept; and no more is asked of any of them. Method: a directory of 1,000
/// names in pages of forty; messages are counted.
#[test]
fn a_whole_list_has_attributes_throughout() {
    const OPENDIR: u32 = 27;
    const RELEASEDIR: u32 = 29;
    const READDIRPLUS: u32 = 44;
    const PLUS: u32 = 3 << 13;
    const NAMES: u64 = 1000;
    let place = Place::new("whole");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let backend = place.mount(move |operation, _, body| {
        log.lock().unwrap().push(operation);
        let named = |at: u64| {
            let name = format!("n{at}");
            let mut about = entry(2 + at, 0o100_644, at);
            // Neither the name nor the attributes hold for longer.
            about[16..40].fill(0);
            let mut out = [&9u64.to_ne_bytes()[..], &(at + 1).to_ne_bytes(), &(name.len() as u32).to_ne_bytes()].concat();
            out.extend([8, 0, 0, 0]);
            out.extend(name.as_bytes());
            out.resize(out.len().next_multiple_of(8), 0);
            [about, out].concat()
        };
        match operation {
            READDIRPLUS => {
                let from = u64::from_ne_bytes(body[8..16].try_into().unwrap());
                (from..NAMES.min(from + 40)).flat_map(named).collect()
            }
            LOOKUP => entry(9, 0o100_644, 5),
            OPENDIR => vec![0; 16],
            _ => Vec::new(),
        }
    });
    backend.lower().ring().header().unwrap().agreed.store(PLUS, SeqCst);
    let mut sizes = Vec::new();
    with_cx(ROOT, |cx| {
        let each = &mut |entry: DirEntry, attr: Option<&base::Attr>| {
            assert_eq!(entry.name, format!("n{}", sizes.len()).as_bytes());
            sizes.push(attr.expect("attributes").size);
            Ok(())
        };
        backend.list_whole(cx, backend.root(), each).unwrap();
    });
    assert!(sizes.into_iter().eq(0..NAMES));
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    let count = |which: u32| asked.iter().filter(|operation| **operation == which).count();
    assert_eq!((count(OPENDIR), count(READDIRPLUS), count(RELEASEDIR)), (1, 26, 1), "{asked:?}");
    assert_eq!((count(LOOKUP), count(3)), (0, 0), "no name is asked for");
}

//! The caching layer: the session's tables, the ring with a hostile daemon, and a
//! directory of the kernel's.

use bypath_vfs as vfs;
use fuse_client::ring::{RING_BYTES, Request, Ring, SLOTS, daemon_state};
use fuse_client::{MINOR, agree};
use openfiles::Handover;
use pm::{Errno, UserSlice};
use session::{Caching, Ends, Entry, Found, SessionCache};
use session::{LowerFs, Miss};
use std::cell::RefCell;
use std::ffi::CString;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use vfs::cached::Cached;
use vfs::host::Host;
use vfs::*;

/// A directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("bypath-cached-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Place(path.canonicalize().unwrap())
    }

    fn file(&self, name: &str, bytes: u64) -> Vec<u8> {
        let path = self.0.join(name);
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).unwrap();
        file.set_len(bytes).unwrap();
        CString::new(path.to_str().unwrap()).unwrap().into_bytes_with_nul()
    }

    fn session(&self) -> SessionCache {
        SessionCache::open(&self.file("session", SessionCache::bytes())).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn entry(key: u64, kind: Kind) -> Entry {
    let attr = Attr { ino: key, kind, mode: 0o755, nlink: 1, ..Attr::EMPTY };
    Entry { key, device: 0, attr, entry_ns: 1 << 40, attr_ns: 1 << 40, incarnation: 0, handle: None, caching: Caching::None }
}

/// Notes which open files end.
#[derive(Default)]
struct Noted(RefCell<Vec<DescriptionId>>);

impl Ends for Noted {
    fn ended(&self, _: &Cx, id: DescriptionId) {
        self.0.borrow_mut().push(id);
    }
}

fn with_cx<T>(run: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread })
}

/// Goal: programs that meet a new name at once know one node, whoever enters it first, and
/// whoever is told meanwhile that it is not there; another kind of thing is another node.
#[test]
fn one_key_for_a_new_name() {
    let place = Place::new("keys");
    let session = place.session();
    let (root, asked) = (session.root(), session.moment());
    let forgotten = &mut |_, _, _| panic!("nothing is to be forgotten");
    let maker = session.key_for(root, b"new", Kind::Regular).unwrap();
    assert_eq!(session.find(root, b"new").unwrap(), Found::Unknown);
    session.enter_absent(root, b"new", 0, asked, forgotten).unwrap();
    let finder = session.key_for(root, b"new", Kind::Regular).unwrap();
    let found = session.enter(root, b"new", &entry(finder, Kind::Regular), asked, forgotten).unwrap();
    session.enter_absent(root, b"new", 0, asked, forgotten).unwrap();
    let made = session.enter(root, b"new", &entry(maker, Kind::Regular), asked, forgotten).unwrap();
    assert_eq!((maker, made), (finder, found));
    let keys = [b"new", b"two"].map(|name| session.key_for(root, name, Kind::Directory).unwrap());
    assert!(keys[0] != maker && keys[1] != maker && keys[0] != keys[1]);
    session.enter_absent(root, b"new", 0, session.moment(), forgotten).unwrap();
    assert_ne!(session.key_for(root, b"new", Kind::Regular).unwrap(), maker, "gone, and made again");
}

/// Goal: names, absences and attributes are kept, moved and forgotten as told; a
/// look-up that overlaps with a change is not believed.
#[test]
fn names() {
    let place = Place::new("names");
    let session = place.session();
    let root = session.root();
    let forgotten = &mut |_, _, _| panic!("nothing is to be forgotten yet");
    let dir = session.enter(root, b"dir", &entry(2, Kind::Directory), session.moment(), forgotten).unwrap();
    let file = session.enter(dir, b"file", &entry(3, Kind::Regular), session.moment(), forgotten).unwrap();
    assert_eq!(session.find(dir, b"file").unwrap(), Found::Node(file));
    assert_eq!(session.find(dir, b"other").unwrap(), Found::Unknown);
    session.enter_absent(dir, b"other", 1 << 40, session.moment(), forgotten).unwrap();
    assert_eq!(session.find(dir, b"other").unwrap(), Found::Absent);

    let mut path = [0u8; 64];
    let len = session.path(b"/top", file, b"x", &mut path).unwrap();
    assert_eq!(&path[..len], b"/top/dir/file/x");
    session.moved((root, b"dir"), (root, b"moved"), false, session.moment(), forgotten).unwrap();
    let len = session.path(b"", file, b"", &mut path).unwrap();
    assert_eq!(&path[..len], b"/moved/file");
    assert_eq!(session.find(root, b"dir").unwrap(), Found::Unknown);

    // A change between question and answer.
    let before = session.moment();
    session.doubt(root, b"whatever");
    session.enter(root, b"late", &entry(4, Kind::Regular), before, forgotten).unwrap();
    assert_eq!(session.find(root, b"late").unwrap(), Found::Unknown);

    assert!(session.attr(file).unwrap().is_some());
    session.forget_attr(file);
    assert!(session.attr(file).unwrap().is_none());

    // A write between question and answer: under its own name, another one, and by attributes alone.
    let other_name = session.enter(dir, b"hard", &entry(3, Kind::Regular), session.moment(), forgotten).unwrap();
    let before = session.moment();
    session.forget_attr(file);
    session.enter(dir, b"file", &entry(3, Kind::Regular), before, forgotten).unwrap();
    session.enter(dir, b"hard", &entry(3, Kind::Regular), before, forgotten).unwrap();
    assert!(session.attr(file).unwrap().is_none() && session.attr(other_name).unwrap().is_none());
    session.set_attr(file, &entry(3, Kind::Regular).attr, 1 << 40, before).unwrap();
    assert!(session.attr(file).unwrap().is_none());
    session.set_attr(file, &entry(3, Kind::Regular).attr, 1 << 40, session.moment()).unwrap();
    assert!(session.attr(file).unwrap().is_some());

    // An absence that was true before a change does not take a name away.
    let before = session.moment();
    session.doubt(root, b"new");
    session.enter_absent(dir, b"file", 1 << 40, before, forgotten).unwrap();
    assert!(session.path(b"", file, b"", &mut path).is_ok());
    assert_eq!(session.find(dir, b"file").unwrap(), Found::Unknown);
    // Nor one that was true before the name was first entered.
    let before = session.moment();
    let found = session.enter(dir, b"found", &entry(9, Kind::Regular), session.moment(), forgotten).unwrap();
    session.enter_absent(dir, b"found", 0, before, forgotten).unwrap();
    assert!(session.path(b"", found, b"", &mut path).is_ok());
    assert_eq!(session.find(dir, b"found").unwrap(), Found::Unknown);
    // Another file under the same name takes the old one's place; who holds that keeps it.
    let noted = Noted::default();
    let files = session.open_files(&noted);
    with_cx(|cx| files.open(cx, file, (Kind::Regular, 0), 5, || Ok(())).unwrap());
    let other = session.enter(dir, b"file", &entry(5, Kind::Regular), session.moment(), forgotten).unwrap();
    assert!(other != file && session.get(file).is_ok());
    with_cx(|cx| files.close(cx, 5));
    std::thread::sleep(Duration::from_millis(1100));
    let mut told = Vec::new();
    session.bury(&mut |key, count, _| told.push((key, count)));
    assert_eq!(told, [(3, 2)]);
    assert_eq!(session.get(file).err(), Some(Error::Posix(Errno::ESTALE)));
}

/// Goal: whoever removes or moves a name does not take it from a node that got it meanwhile;
/// a directory made anew is not taken for the removed one.
#[test]
fn names_made_again() {
    let place = Place::new("again");
    let session = place.session();
    let root = session.root();
    let forgotten = &mut |_, _, _| panic!("nothing is to be forgotten yet");
    let enter =
        |name: &[u8], key| session.enter(root, name, &entry(key, Kind::Directory), session.moment(), &mut |_, _, _| ()).unwrap();
    let marked = |node| session.get(node).unwrap().removed.load(SeqCst);
    let old = enter(b"dir", 2);
    let asked = session.moment();
    // The lower file system has removed it; another program makes it again, and enters that first.
    let new = enter(b"dir", 3);
    assert_eq!(session.removed(root, b"dir", asked, forgotten).unwrap(), None);
    assert_eq!((session.last_known(root, b"dir"), marked(new)), (Some(new), 0));
    assert_eq!(session.find(root, b"dir").unwrap(), Found::Unknown, "asked for again");
    assert_ne!(old, new);

    // The same beside a move: of what is moved, and of what is in its place.
    let target = enter(b"target", 4);
    let asked = session.moment();
    let again = enter(b"dir", 5);
    session.moved((root, b"dir"), (root, b"target"), false, asked, forgotten).unwrap();
    assert_eq!([&b"dir"[..], b"target"].map(|name| session.last_known(root, name)), [Some(again), Some(target)]);
    assert_eq!([again, target].map(marked), [0, 0]);

    // A node that was moved to the name since.
    let asked = session.moment();
    session.moved((root, b"dir"), (root, b"target"), false, session.moment(), forgotten).unwrap();
    assert_eq!((session.last_known(root, b"target"), marked(target)), (Some(again), 1));
    assert_eq!(session.removed(root, b"target", asked, forgotten).unwrap(), None);
    assert_eq!(session.removed(root, b"target", session.moment(), forgotten).unwrap(), Some(again));
    assert_eq!((session.last_known(root, b"target"), marked(again)), (None, 1));
}

/// Goal: more names than there is room for push out the least used, never one that is held or has children.
#[test]
fn full() {
    let place = Place::new("full");
    let session = place.session();
    let root = session.root();
    let forgotten = &mut |_, _, _| {};
    let dir = session.enter(root, b"dir", &entry(2, Kind::Directory), session.moment(), forgotten).unwrap();
    let kept = session.enter(dir, b"kept", &entry(3, Kind::Regular), session.moment(), forgotten).unwrap();
    let noted = Noted::default();
    with_cx(|cx| session.open_files(&noted).open(cx, kept, (Kind::Regular, 0), 5, || Ok(())).unwrap());
    let mut forgets = 0u64;
    for number in 0..200_000u64 {
        let name = format!("{number}");
        session
            .enter(root, name.as_bytes(), &entry(number + 10, Kind::Regular), session.moment(), &mut |_, count, _| {
                forgets += count
            })
            .unwrap();
    }
    assert!(session.get(dir).is_ok() && session.get(kept).is_ok());
    assert!(session.nodes_in_use() <= session::NODES);
    assert_eq!(forgets + u64::from(session.nodes_in_use()), 200_000 + 3, "every look-up is forgotten once");
}

/// Goal: a fork's child shares open files; the last close ends them, once.
#[test]
fn forked() {
    let place = Place::new("forked");
    let (session, noted) = (place.session(), Noted::default());
    let files = session.open_files(&noted);
    with_cx(|cx| {
        let id = files.open(cx, session.root(), (Kind::Directory, 0), 5, || Ok(())).unwrap();
        files.dup(cx, id, 6).unwrap();
        let token = files.fork_prepare(cx).unwrap();
        files.close(cx, 5);
        files.close(cx, 6);
        assert!(noted.0.borrow().is_empty());
        files.fork_failed(cx, token);
        assert_eq!((&noted.0.borrow()[..], session.holding(5)), (&[id][..], None));
    });
}

/// Goal: no way through a symlink that somebody has put in place of a directory.
#[test]
fn confined() {
    let place = Place::new("confined");
    let (inside, outside) = (place.0.join("in"), place.0.join("out"));
    std::fs::create_dir_all(inside.join("dir")).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(inside.join("dir/f"), "inside").unwrap();
    std::fs::write(outside.join("f"), "outside").unwrap();
    let host = Cached::new(Host::new(inside.to_str().unwrap().as_bytes(), false).unwrap(), place.session());
    with_cx(|cx| {
        let dir = host.lookup(cx, host.root(), b"dir").unwrap();
        let file = host.lookup(cx, dir, b"f").unwrap();
        assert_eq!(host.attr(cx, file).unwrap().size, 6);
        std::fs::rename(inside.join("dir"), inside.join("away")).unwrap();
        symlink(&outside, inside.join("dir")).unwrap();
        assert_eq!(host.attr(cx, file).err(), Some(Error::Posix(Errno::ELOOP)));
        assert_eq!(host.unlink(cx, dir, b"f").err(), Some(Error::Posix(Errno::ELOOP)));
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        assert!(host.create(cx, dir, b"new", &new).is_err());
    });
    assert!(outside.join("f").exists() && !outside.join("new").exists());
}

/// A daemon that answers each request with `answer(operation, unique)`.
fn hostile(place: &Place, answer: impl Fn(u32, u64) -> Vec<u8> + Send + 'static) -> Ring {
    let path = place.file("ring", RING_BYTES);
    let (client, daemon) = (Ring::open(&path).unwrap(), Ring::open(&path).unwrap());
    let header = client.header().unwrap();
    header.supervisor.store(pm::host::own_mark(), SeqCst);
    header.timeout_ms.store(60_000, SeqCst);
    client.renew().unwrap();
    std::thread::spawn(move || {
        let mut request = vec![0u8; 1 << 18];
        while let Ok(len) = daemon.receive(&[UserSlice::from_mut(&mut request)]) {
            assert!(len >= 40);
            let operation = u32::from_ne_bytes(request[4..8].try_into().unwrap());
            let unique = u64::from_ne_bytes(request[8..16].try_into().unwrap());
            let reply = answer(operation, unique);
            if !reply.is_empty() {
                let _ = daemon.reply(&[UserSlice::from_ref(&reply)], true);
            }
        }
    });
    client
}

fn reply(unique: u64, error: i32, payload: &[u8]) -> Vec<u8> {
    let mut out = ((16 + payload.len()) as u32).to_ne_bytes().to_vec();
    out.extend(error.to_ne_bytes());
    out.extend(unique.to_ne_bytes());
    out.extend(payload);
    out
}

fn ask(ring: &Ring, room: usize) -> std::result::Result<usize, Errno> {
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let request = Request {
        operation: 3,
        node: 1,
        incarnation: ring.incarnation(),
        parts: [b"", b"", b""],
        data: UserSlice::from_ref(b""),
    };
    ring.call(&cx, &request, UserSlice::from_mut(&mut vec![0u8; room]))
}

/// Goal: wrong lengths, numbers and errors become `EIO` or a time-out; nothing hangs, nothing leaks.
#[test]
fn hostile_daemon() {
    let place = Place::new("hostile");
    let ring = hostile(&place, |_, unique| match unique >> 8 & 7 {
        0 => reply(unique, 0, &[7; 104]),
        1 => reply(unique, 0, &[7; 4096]),
        2 => reply(unique, 12345, b""),
        3 => reply(unique, -2, b""),
        4 => reply(unique ^ 0xff00, 0, b""),
        5 => vec![1, 2, 3],
        6 => reply(0, 0, b"notification"),
        _ => Vec::new(),
    });
    ring.header().unwrap().timeout_ms.store(100, SeqCst);
    ring.set_daemon_state(daemon_state::SERVING).unwrap();
    let begun = Instant::now();
    for _ in 0..24 {
        match ask(&ring, 104) {
            Ok(len) => assert_eq!(len, 104),
            Err(errno) => assert!(matches!(errno, Errno::EIO | Errno::ENOENT | Errno::ETIMEDOUT), "{errno}"),
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(30));
    // What was never answered is given back when its number comes up again.
    ring.set_daemon_state(daemon_state::DEAD).unwrap();
    assert_eq!(ask(&ring, 104), Err(Errno::ENOTCONN));
}

/// Goal: a daemon that dies takes nobody along: whoever waits is told at once.
#[test]
fn death() {
    let place = Place::new("death");
    let ring = hostile(&place, |_, _| Vec::new());
    ring.set_daemon_state(daemon_state::SERVING).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| ask(&ring, 104))).collect();
        std::thread::sleep(Duration::from_millis(50));
        ring.set_daemon_state(daemon_state::DEAD).unwrap();
        for one in waiting {
            assert_eq!(one.join().unwrap(), Err(Errno::ENOTCONN));
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// Goal: what was meant for one life of the daemon never reaches the next, and what a life has left
/// undone takes no slots from it. Method: more time-outs than there are slots, then another daemon.
#[test]
fn lives() {
    let place = Place::new("lives");
    let thread = Arc::new(());
    let held = Arc::clone(&thread);
    let ring = hostile(&place, move |_, _| {
        let _ = &held;
        Vec::new()
    });
    ring.header().unwrap().timeout_ms.store(20, SeqCst);
    ring.set_daemon_state(daemon_state::SERVING).unwrap();
    let before = ring.incarnation();
    std::thread::scope(|scope| {
        for _ in 0..SLOTS {
            scope.spawn(|| assert_eq!(ask(&ring, 8), Err(Errno::ETIMEDOUT)));
        }
    });
    // The first daemon's thread ends.
    ring.set_daemon_state(daemon_state::DEAD).unwrap();
    while Arc::strong_count(&thread) > 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ring = hostile(&place, |_, unique| reply(unique, 0, &unique.to_ne_bytes()));
    ring.set_daemon_state(daemon_state::SERVING).unwrap();
    let late = Request { operation: 3, node: 1, incarnation: before, parts: [b"", b"", b""], data: UserSlice::from_ref(b"") };
    with_cx(|cx| assert_eq!(ring.call(cx, &late, UserSlice::from_mut(&mut [0; 8])), Err(Errno::ENOTCONN)));
    std::thread::scope(|scope| {
        for _ in 0..SLOTS {
            scope.spawn(|| assert_eq!(ask(&ring, 8), Ok(8)));
        }
    });
}

/// Goal: many programs' requests each get their own answer.
#[test]
fn many() {
    let place = Place::new("many");
    let ring = hostile(&place, |_, unique| reply(unique, 0, &unique.to_ne_bytes()));
    ring.set_daemon_state(daemon_state::SERVING).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(ask(&ring, 8), Ok(8))));
        }
    });
}

/// Goal: a daemon of another protocol is refused, not believed.
#[test]
fn other_protocol() {
    let place = Place::new("protocol");
    let ring = hostile(&place, |_, unique| reply(unique, 0, &[9; 64]));
    with_cx(|cx| assert_eq!(agree(&ring, cx, MINOR), Err(Errno::EOPNOTSUPP)));
}

/// Goal: an answer without an entry says how long to believe it.
#[test]
fn misses() {
    assert!(matches!(Miss::from(Errno::ENOENT), Miss::Absent(0)));
    assert!(matches!(Miss::from(Errno::EIO), Miss::Failed(Error::Posix(Errno::EIO))));
    fn is_source<S: LowerFs>() {}
    is_source::<Host>();
}

//! What a daemon tells of changes is obeyed before its notification returns.

mod scripted;

use bypath_vfs as vfs;
use fuse_client::ring::Ring;
use pm::UserSlice;
use pm::sys::abi::O_RDONLY;
use scripted::{Place, entry};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use vfs::backend::OpenFileTable;
use vfs::*;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;

const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const DELETE: u32 = 6;

fn with_cx(run: impl FnOnce(&Cx)) {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
}

/// As libfuse sends it: header, what is fixed, name and its end, each a part.
fn notify(daemon: &Ring, code: u32, fixed: &[u64], name: &[u8]) {
    let fixed: Vec<u8> = fixed.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = if name.is_empty() { &b""[..] } else { b"\0" };
    let len = (16 + fixed.len() + name.len() + end.len()) as u32;
    let head = [&len.to_ne_bytes()[..], &code.to_ne_bytes(), &[0; 8]].concat();
    let parts = [&head[..], &fixed, name, end].map(UserSlice::from_ref);
    assert_eq!(daemon.reply(&parts, false), Ok(len as usize));
}

/// Goal: of each kind of notice exactly what it names is asked for again, at once, though all was to be believed for an hour;
/// without anybody who obeys, pages at least begin anew.
#[test]
fn each_forgets_what_it_names() {
    let place = Place::new("notices");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let backend = place.mount(move |operation, _, body| {
        log.lock().unwrap().push(operation);
        match operation {
            LOOKUP => entry(7, 0o100_644, 5),
            GETATTR => [&3600u64.to_ne_bytes()[..], &[0; 8], &entry(7, 0o100_644, 5)[40..128]].concat(),
            // FOPEN_KEEP_CACHE.
            OPEN => [5u64, 2].map(u64::to_ne_bytes).concat(),
            READ if body[8..16] == [0; 8] => b"hello".to_vec(),
            _ => Vec::new(),
        }
    });
    let daemon = Ring::open(&[place.path("ring").as_bytes(), b"\0"].concat()).unwrap();
    let take = || std::mem::take(&mut *asked.lock().unwrap());
    let ends = AtomicBool::new(false);
    let ring = backend.lower().ring();
    backend.session().limit_pages(1 << 20);
    ring.watch_notices(true);
    with_cx(|cx| {
        let name = |name: &[u8]| backend.lookup(cx, backend.root(), name).unwrap();
        let node = name(b"f");
        name(b"g");
        backend.open(cx, node, O_RDONLY, 3).unwrap();
        let read = || {
            let mut text = [0u8; 8];
            assert_eq!(backend.read(cx, node, 0, &[UserSlice::from_mut(&mut text)]).unwrap(), 5);
        };
        let look = || {
            for each in [b"f", b"g"] {
                name(each);
            }
            backend.attr(cx, node).unwrap();
            read();
            let mut seen = take();
            seen.dedup();
            seen
        };
        look();
        assert_eq!(look(), [], "all is believed");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(SeqCst) {
                    backend.lower().obey_notices(backend.session(), 50_000_000).unwrap();
                }
            });
            notify(&daemon, INVAL_ENTRY, &[1, 1], b"g");
            assert_eq!(look(), [LOOKUP], "a name");
            assert_eq!(look(), []);
            notify(&daemon, INVAL_INODE, &[7, -1i64 as u64, 0], b"");
            assert_eq!(look(), [GETATTR], "attributes");
            notify(&daemon, INVAL_INODE, &[7, 0, 0], b"");
            assert_eq!(look(), [GETATTR, READ], "contents");
            notify(&daemon, DELETE, &[1, 7, 1], b"f");
            assert_eq!(look()[0], LOOKUP, "a name that is gone");
            notify(&daemon, INVAL_INODE, &[8, 0, 0], b"");
            notify(&daemon, INVAL_ENTRY, &[99, 1], b"f");
            notify(&daemon, INVAL_ENTRY, &[1, 1], b"h");
            notify(&daemon, INVAL_ENTRY, &[1, 1 << 20], b"f");
            notify(&daemon, 77, &[], b"");
            assert_eq!(look(), [], "nothing that is cached");
            assert_eq!(ring.header().unwrap().unheeded.load(SeqCst), 0);
            ends.store(true, SeqCst);
            ring.watch_notices(false);
        });
        notify(&daemon, INVAL_INODE, &[7, 0, 0], b"");
        assert_eq!(look(), [READ], "nobody obeys");
    });
}

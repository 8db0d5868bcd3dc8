//! Reading ahead of a program that reads in order, over the ring to a daemon.

mod scripted;

use bypath_vfs as vfs;
use fuse_client::FuseClient;
use pm::UserSlice;
use scripted::{Place, entry};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vfs::backend::OpenFileTable;
use vfs::cached::Cached;
use vfs::*;

const ASYNC_READ: u32 = 1;
const PART: usize = 65536;

/// A daemon's one file, and what it was asked.
struct File {
    /// Its number.
    id: AtomicU64,
    data: Mutex<Vec<u8>>,
    opened: Mutex<HashSet<u64>>,
    handles: AtomicU32,
    reads: Mutex<Vec<u64>>,
    /// Reads whose handle had been released.
    late: AtomicU32,
    /// How long a read takes.
    takes: Duration,
}

fn word(body: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(body[at..at + 8].try_into().unwrap())
}

impl File {
    fn new(len: usize, takes: Duration) -> Arc<File> {
        let data = Mutex::new((0..len).map(|at| (at / 251 * 7 + at) as u8).collect());
        let (opened, reads) = (Mutex::default(), Mutex::default());
        Arc::new(File { id: AtomicU64::new(2), data, opened, handles: AtomicU32::new(1), reads, late: AtomicU32::new(0), takes })
    }

    fn answer(&self, operation: u32, body: &[u8]) -> Vec<u8> {
        const LOOKUP: u32 = 1;
        const GETATTR: u32 = 3;
        const OPEN: u32 = 14;
        const READ: u32 = 15;
        const WRITE: u32 = 16;
        const RELEASE: u32 = 18;
        match operation {
            LOOKUP => entry(self.id.load(SeqCst), 0o100_644, self.data.lock().unwrap().len() as u64),
            GETATTR => {
                let mut out = vec![0u8; 104];
                // The same attributes, sixteen bytes from the start instead of forty.
                out[16..].copy_from_slice(&entry(self.id.load(SeqCst), 0o100_644, self.data.lock().unwrap().len() as u64)[40..]);
                out
            }
            OPEN => {
                let handle = u64::from(self.handles.fetch_add(1, SeqCst));
                self.opened.lock().unwrap().insert(handle);
                // Kept from one opening to the next.
                [handle.to_ne_bytes(), 2u64.to_ne_bytes()].concat()
            }
            READ => {
                let (handle, offset) = (word(body, 0), word(body, 8));
                self.reads.lock().unwrap().push(offset);
                std::thread::sleep(self.takes);
                let is_open = self.opened.lock().unwrap().contains(&handle);
                self.late.fetch_add(u32::from(!is_open), SeqCst);
                let data = self.data.lock().unwrap();
                let from = data.len().min(offset as usize);
                data[from..data.len().min(from + word(body, 16) as u32 as usize)].to_vec()
            }
            WRITE => {
                let (offset, bytes) = (word(body, 8) as usize, &body[40..]);
                self.data.lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(bytes);
                (bytes.len() as u64).to_ne_bytes().to_vec()
            }
            RELEASE => {
                assert!(self.opened.lock().unwrap().remove(&word(body, 0)), "released twice");
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Where it was read since the last time this was asked.
    fn reads(&self) -> Vec<u64> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }
}

fn mount(place: &Place, file: &Arc<File>, agreed: u32) -> Cached<FuseClient> {
    let file = Arc::clone(file);
    let cached = place.mount(move |operation, _, body| file.answer(operation, body));
    cached.lower().ring().header().unwrap().agreed.store(agreed, SeqCst);
    cached.session().limit_pages(64 << 20);
    cached
}

/// A program that has the file open.
struct Program<'a> {
    cached: &'a Cached<FuseClient>,
    node: Node,
    fd: u32,
}

fn with_cx<T>(run: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread })
}

impl Program<'_> {
    fn open(cached: &Cached<FuseClient>, fd: u32) -> Program<'_> {
        let node = with_cx(|cx| {
            let node = cached.lookup(cx, cached.root(), b"file").unwrap();
            cached.open(cx, node, 2, fd).unwrap();
            node
        });
        Program { cached, node, fd }
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        let got = with_cx(|cx| self.cached.read(cx, self.node, offset as u64, &[UserSlice::from_mut(&mut bytes)]).unwrap());
        bytes.truncate(got);
        bytes
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        with_cx(|cx| self.cached.write(cx, self.node, Some(offset as u64), &[UserSlice::from_ref(bytes)]).unwrap());
    }

    /// From `from` to `to` in pieces of `len`.
    fn in_order(&self, from: usize, to: usize, len: usize) -> Vec<u8> {
        (from..to).step_by(len).flat_map(|at| self.read(at, len.min(to - at))).collect()
    }

    fn close(self) {
        with_cx(|cx| self.cached.close(cx, self.fd));
    }
}

/// Goal: what is read in order is asked for ahead, each part once, whatever the size of a read; what is read here and
/// there, or only begun, is not; nor is anything of a daemon that does not want it.
#[test]
fn in_order() {
    for (agreed, len) in [(ASYNC_READ, 4096), (ASYNC_READ, 10_000), (0, 4096)] {
        let (place, file) = (Place::new(&format!("in-order-{agreed}-{len}")), File::new(PART * 8, Duration::ZERO));
        let cached = mount(&place, &file, agreed);
        let program = Program::open(&cached, 3);
        assert_eq!(program.read(0, 100).len(), 100);
        for at in [3, 7, 5] {
            program.read(at * PART + 4096, 4096);
        }
        assert_eq!(file.reads(), [0, 3 * PART + 4096, 7 * PART + 4096, 5 * PART + 4096].map(|at| at as u64));
        assert!(program.in_order(0, 2 * PART, len) == file.data.lock().unwrap()[..2 * PART]);
        // The part after the second is on its way, and so far nobody has wanted it.
        let ahead = if agreed == 0 { 0 } else { 1 };
        let asked = || file.reads.lock().unwrap().len();
        (0..1000).take_while(|_| asked() < 1 + ahead).for_each(|_| std::thread::sleep(Duration::from_millis(10)));
        assert_eq!(file.reads(), [PART as u64, 2 * PART as u64][..1 + ahead]);
        assert!(program.in_order(2 * PART, 8 * PART, len) == file.data.lock().unwrap()[2 * PART..]);
        assert!(program.read(8 * PART, 10).is_empty());
        program.close();
        let each: Vec<u64> = (2 + ahead as u64..=8).map(|part| part * PART as u64).collect();
        assert_eq!(file.reads(), each);
        assert_eq!(file.late.load(SeqCst), 0);
    }
}

/// Goal: what was asked for ahead is not shown once the file has been written since.
#[test]
fn written_since() {
    let (place, file) = (Place::new("written"), File::new(PART * 8, Duration::ZERO));
    let cached = mount(&place, &file, ASYNC_READ);
    let program = Program::open(&cached, 3);
    program.in_order(0, 2 * PART, 4096);
    // It has come before the write.
    while file.reads.lock().unwrap().len() < 3 {
        std::thread::yield_now();
    }
    program.write(2 * PART + 5000, b"new");
    assert!(program.in_order(2 * PART, 8 * PART, 4096) == file.data.lock().unwrap()[2 * PART..]);
    assert_eq!(&program.read(2 * PART + 5000, 3), b"new");
}

/// Goal: no read is under way when its handle is released, however the file is let go of, nor more than one a file; and
/// slots are free again.
#[test]
fn let_go_of() {
    let (place, file) = (Place::new("let-go"), File::new(PART * 8, Duration::from_millis(3)));
    let cached = mount(&place, &file, ASYNC_READ);
    let under_way = || cached.lower().ring().posted();
    let close = |fd| with_cx(|cx| cached.close(cx, fd));
    for round in 0..60 {
        let program = Program::open(&cached, 3);
        // Nothing of the last round counts.
        cached.session().contents_changed(program.node);
        program.in_order(0, 2 * PART, 4096);
        assert_eq!(under_way(), 1);
        match round % 4 {
            0 => close(3),
            // The file stays open, for another program perhaps.
            1 => {
                with_cx(|cx| cached.open(cx, program.node, 2, 4).unwrap());
                close(3);
                assert_eq!(under_way(), 0);
                close(4);
            }
            // Something else takes its number.
            2 => {
                let root = with_cx(|cx| cached.open(cx, cached.root(), 0, 4).unwrap());
                cached.dup(root, 3).unwrap();
                close(3);
                close(4);
            }
            // In order, but elsewhere.
            _ => {
                program.in_order(4 * PART, 6 * PART, 4096);
                assert_eq!(under_way(), 1);
                close(3);
            }
        }
        assert_eq!(under_way(), 0);
    }
    assert_eq!((file.late.load(SeqCst), file.opened.lock().unwrap().len()), (0, 0));
    let program = Program::open(&cached, 3);
    cached.session().contents_changed(program.node);
    program.in_order(0, 2 * PART, 4096);
    assert_eq!(under_way(), 1);
    // As before it becomes another program.
    vfs::backend::Handover::exec_prepare(&cached);
    assert_eq!(under_way(), 0);
}

/// Goal: what was asked of one life of the daemon is neither shown nor kept in the next.
#[test]
fn another_life() {
    let (place, file) = (Place::new("life"), File::new(PART * 16, Duration::ZERO));
    let cached = mount(&place, &file, ASYNC_READ);
    let program = Program::open(&cached, 3);
    for round in 1..6 {
        program.in_order((round - 1) * 2 * PART, round * 2 * PART, 4096);
        assert_eq!(cached.lower().ring().posted(), 1);
        let ring = cached.lower().ring();
        ring.renew().unwrap();
        file.id.fetch_add(1, SeqCst);
        ring.set_daemon_state(fuse_client::ring::daemon_state::SERVING).unwrap();
        file.data.lock().unwrap()[round * 2 * PART + 9] ^= 0xff;
        assert!(
            program.in_order(round * 2 * PART, (round * 2 + 2) * PART, 4096)[..]
                == file.data.lock().unwrap()[round * 2 * PART..][..2 * PART]
        );
    }
    assert_eq!(cached.lower().ring().posted(), 1);
    program.close();
    assert_eq!(cached.lower().ring().posted(), 0);
}

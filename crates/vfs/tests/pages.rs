//! The page cache of the caching layer, over a lower file system that counts what it is asked.

use bypath_vfs as vfs;
use pm::UserSlice;
use session::{Caching, Entry, PageKey, SessionCache};
use session::{LowerFs, Miss};
use std::cell::RefCell;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use vfs::cached::Cached;
use vfs::*;

/// One file in one directory.
struct Slow {
    data: Mutex<Vec<u8>>,
    mtime: AtomicU64,
    reads: AtomicU32,
}

thread_local! {
    /// What happens between a read's beginning and its end.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

const NONE: Error = Error::Posix(Errno::ENOSYS);

impl Slow {
    fn file_attr(&self) -> Attr {
        let (size, mtime) = (self.data.lock().unwrap().len() as u64, self.mtime.load(SeqCst) as i64);
        Attr { ino: 2, kind: Kind::Regular, mode: 0o644, nlink: 1, size, mtime, ..Attr::EMPTY }
    }
}

impl LowerFs for &Slow {
    fn device(&self) -> u64 {
        1
    }
    fn lookup(&self, _: &SessionCache, _: &Cx, _: Node, _: &[u8]) -> std::result::Result<Entry, Miss> {
        let attr = self.file_attr();
        Ok(Entry { key: 2, device: 0, attr, entry_ns: 1 << 40, attr_ns: 0, incarnation: 0, handle: None, caching: Caching::None })
    }
    fn attr(&self, _: &SessionCache, _: &Cx, _: Node) -> Result<(Attr, u64)> {
        Ok((self.file_attr(), 0))
    }
    fn access(&self, _: &SessionCache, _: &Cx, _: Node, _: u16, _: &dyn Fn() -> Result<Attr>) -> Result<()> {
        Ok(())
    }
    fn set_attr(&self, _: &SessionCache, _: &Cx, _: Node, change: &SetAttr) -> Result<()> {
        self.data.lock().unwrap().resize(change.size.unwrap() as usize, 0);
        Ok(())
    }
    fn readlink(&self, _: &SessionCache, _: &Cx, _: Node, _: UserSlice) -> Result<usize> {
        Err(NONE)
    }
    fn create(&self, _: &SessionCache, _: &Cx, _: Node, _: &[u8], _: &NewNode) -> Result<Entry> {
        Err(NONE)
    }
    fn link(&self, _: &SessionCache, _: &Cx, _: Node, _: Node, _: &[u8]) -> Result<()> {
        Err(NONE)
    }
    fn remove(&self, _: &SessionCache, _: &Cx, _: Node, _: &[u8], _: bool) -> Result<()> {
        Err(NONE)
    }
    fn rename(&self, _: &SessionCache, _: &Cx, _: (Node, &[u8]), _: (Node, &[u8]), _: RenameMode) -> Result<()> {
        Err(NONE)
    }
    fn readdir(&self, _: &SessionCache, _: &Cx, _: Node, _: u64, _: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        Err(NONE)
    }
    fn statfs(&self, _: &SessionCache) -> Result<StatFs> {
        Err(NONE)
    }
    fn read(&self, _: &SessionCache, _: &Cx, _: Node, offset: u64, into: UserSlice) -> Result<usize> {
        self.reads.fetch_add(1, SeqCst);
        let bytes = {
            let data = self.data.lock().unwrap();
            let from = data.len().min(offset as usize);
            data[from..data.len().min(from + into.len)].to_vec()
        };
        if let Some(meanwhile) = MEANWHILE.with_borrow_mut(Option::take) {
            meanwhile();
        }
        Ok(pm::user::copy(UserSlice::from_ref(&bytes), into)?)
    }
    fn page_key(&self, _: &SessionCache, _: Node) -> Option<PageKey> {
        Some(PageKey { key: 2, version: 0 })
    }
    fn write(&self, _: &SessionCache, _: &Cx, _: Node, offset: u64, from: UserSlice) -> Result<usize> {
        let mut data = self.data.lock().unwrap();
        let end = offset as usize + from.len;
        if data.len() < end {
            data.resize(end, 0);
        }
        Ok(pm::user::copy(from, UserSlice::from_mut(&mut data[offset as usize..end]))?)
    }
    fn sync(&self, _: &SessionCache, _: &Cx, _: Option<Node>, _: bool) -> Result<()> {
        Ok(())
    }
    fn get_xattr(&self, _: &SessionCache, _: &Cx, _: Node, _: &[u8], _: UserSlice) -> Result<usize> {
        Err(NONE)
    }
    fn set_xattr(&self, _: &SessionCache, _: &Cx, _: Node, _: &[u8], _: UserSlice, _: u32) -> Result<()> {
        Err(NONE)
    }
    fn list_xattr(&self, _: &SessionCache, _: &Cx, _: Node, _: UserSlice) -> Result<usize> {
        Err(NONE)
    }
    fn remove_xattr(&self, _: &SessionCache, _: &Cx, _: Node, _: &[u8]) -> Result<()> {
        Err(NONE)
    }
}

/// A session's file, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = PathBuf::from("/dev/shm").join(format!("bypath-pages-{}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(SessionCache::bytes_with_pages()).unwrap();
        Place(path)
    }

    /// One program's view.
    fn program<'a>(&self, slow: &'a Slow) -> Program<'a> {
        let text = CString::new(self.0.to_str().unwrap()).unwrap();
        let session = SessionCache::open(text.as_bytes_with_nul()).unwrap();
        session.limit_pages(64 << 20);
        let cached = Cached::new(slow, session);
        let root = cached.root();
        let node = with_cx(|cx| cached.lookup(cx, root, b"file").unwrap());
        Program { cached, node }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Program<'a> {
    cached: Cached<&'a Slow>,
    node: Node,
}

impl Program<'_> {
    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        let got = with_cx(|cx| self.cached.read(cx, self.node, offset, &[UserSlice::from_mut(&mut bytes)]).unwrap());
        bytes.truncate(got);
        bytes
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        with_cx(|cx| self.cached.write(cx, self.node, Some(offset), &[UserSlice::from_ref(bytes)]).unwrap());
    }

    fn truncate(&self, size: u64) {
        let change = SetAttr { size: Some(size), ..Default::default() };
        with_cx(|cx| self.cached.set_attr(cx, self.node, &change).unwrap());
    }
}

fn with_cx<T>(run: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread })
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

fn slow(len: usize) -> Slow {
    let mut seed = 88172645463325252;
    let data = (0..len).map(|_| random(&mut seed) as u8).collect();
    Slow { data: Mutex::new(data), mtime: AtomicU64::new(1), reads: AtomicU32::new(0) }
}

/// Goal: reading in order asks for 64 KiB at a time, reading again for nothing, in
/// another program too; a page here and there is not more than a page.
#[test]
fn ahead() {
    let (place, slow) = (Place::new("ahead"), slow(1 << 20));
    let (one, other) = (place.program(&slow), place.program(&slow));
    let whole: Vec<u8> = (0..).map(|n| one.read(n * 4096, 4096)).take_while(|part| !part.is_empty()).flatten().collect();
    assert!(whole == *slow.data.lock().unwrap());
    // 16 parts and the look past the end.
    assert_eq!(slow.reads.swap(0, SeqCst), 17);
    let again: Vec<u8> = (0..1024).flat_map(|n| other.read(n * 1024, 1024)).collect();
    assert!(again == whole && slow.reads.load(SeqCst) == 0);

    one.truncate(1 << 20);
    let before = one.cached.session().page_figures();
    assert_eq!(one.read(65536 * 5 + 9000, 100), whole[65536 * 5 + 9000..][..100]);
    assert_eq!(one.read(65536 * 5 + 8192, 4096), whole[65536 * 5 + 8192..][..4096]);
    assert_eq!(one.read(65536 * 5 + 12288, 1), whole[65536 * 5 + 12288..][..1]);
    assert_eq!(one.cached.session().page_figures().misses - before.misses, 2);
    assert_eq!(slow.reads.load(SeqCst), 2);
}

/// Goal: two programs that read, write and truncate see what one file without a
/// cache would show. Random, from a fixed seed.
#[test]
fn as_without() {
    let (place, slow) = (Place::new("as-without"), slow(300_000));
    let programs = [place.program(&slow), place.program(&slow)];
    let mut seed = 0x1234_5678_9abc;
    for turn in 0..20_000 {
        let program = &programs[random(&mut seed) as usize % 2];
        let offset = random(&mut seed) % 400_000;
        let len = 1 + random(&mut seed) as usize % [100, 5000, 150_000][random(&mut seed) as usize % 3];
        match random(&mut seed) % 8 {
            0 => program.write(offset, &vec![turn as u8; len.min(10_000)]),
            1 if turn % 4 == 0 => program.truncate(offset),
            _ => {
                let expected = {
                    let data = slow.data.lock().unwrap();
                    let from = data.len().min(offset as usize);
                    data[from..data.len().min(from + len)].to_vec()
                };
                assert!(program.read(offset, len) == expected, "turn {turn}: {len} bytes at {offset}");
            }
        }
    }
    let figures = programs[0].cached.session().page_figures();
    assert!(figures.hits > figures.misses / 4, "{figures:?}");
}

/// Goal: what was asked for before a write and came after it is not kept; nor what
/// others changed, once attributes tell.
#[test]
fn overlap() {
    let (place, slow) = (Place::new("overlap"), slow(1 << 17));
    let program = place.program(&slow);
    let other = place.program(&slow);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (sender, receiver) = std::sync::mpsc::channel::<()>();
            let (back, done) = std::sync::mpsc::channel::<()>();
            let writer = scope.spawn(move || {
                receiver.recv().unwrap();
                other.write(5000, b"new");
                back.send(()).unwrap();
            });
            MEANWHILE.set(Some(Box::new(move || {
                sender.send(()).unwrap();
                done.recv().unwrap();
            })));
            assert!(program.read(5000, 3) != b"new", "asked before the write");
            writer.join().unwrap();
            assert!(program.read(5000, 3) == b"new");
            // A file that grew behind its known end.
            assert_eq!(program.read((1 << 17) - 10, 100).len(), 10);
            program.write((1 << 17) + 500_000, b"end");
            assert_eq!(program.read((1 << 17) - 10, 100).len(), 100);
            // Somebody else, of whom only the time tells.
            slow.data.lock().unwrap()[5000] = b'X';
            assert_eq!(program.read(5000, 1), b"n");
            with_cx(|cx| program.cached.attr(cx, program.node).unwrap());
            assert_eq!(program.read(5000, 1), b"n", "nothing tells yet");
            slow.mtime.store(2, SeqCst);
            with_cx(|cx| program.cached.attr(cx, program.node).unwrap());
            assert_eq!(program.read(5000, 1), b"X");
        });
    });
}

/// Goal: no more memory than allowed, none for what is not used, none at all if so wished.
#[test]
fn limit() {
    let (place, slow) = (Place::new("limit"), slow(8 << 20));
    let program = place.program(&slow);
    let session = program.cached.session();
    session.limit_pages(1 << 20);
    for turn in 0..3 {
        for n in 0..2048 {
            let at = (n * 4096 + turn) as usize;
            assert!(program.read(at as u64, 4096)[..] == slow.data.lock().unwrap()[at..(at + 4096).min(8 << 20)]);
            assert!(session.page_figures().bytes <= 1 << 20);
        }
    }
    assert!(session.page_figures().bytes > 1 << 19);
    use std::os::unix::fs::MetadataExt;
    let memory = || std::fs::metadata(&place.0).unwrap().blocks() * 512;
    let before = memory();
    session.empty_unused(u64::MAX);
    assert_eq!(session.page_figures().bytes, 0);
    assert!(before - memory() > 1 << 19);
    session.limit_pages(0);
    slow.reads.store(0, SeqCst);
    assert_eq!((program.read(0, 10).len(), program.read(0, 10).len(), slow.reads.load(SeqCst)), (10, 10, 2));
    assert_eq!(session.page_figures().bytes, 0);
}

/// Goal: readers beside a writer never see a value older than the last whose write had ended.
#[test]
fn beside_a_writer() {
    let (place, slow) = (Place::new("beside"), slow(1 << 20));
    let written = [const { AtomicU64::new(0) }; 16];
    for at in 0..16 {
        place.program(&slow).write(at * 65536, &0u64.to_le_bytes());
    }
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (place, slow, written) = (&place, &slow, &written);
            scope.spawn(move || {
                let (program, mut seed) = (place.program(slow), 99 + reader);
                while written[0].load(SeqCst) < u64::MAX {
                    let at = random(&mut seed) % 15 + 1;
                    let least = written[at as usize].load(SeqCst);
                    let seen = u64::from_le_bytes(program.read(at * 65536, 8).try_into().unwrap());
                    assert!(seen >= least, "{seen} after {least}");
                }
            });
        }
        let (program, mut seed) = (place.program(&slow), 7);
        for value in 1..20_000u64 {
            let at = random(&mut seed) % 15 + 1;
            program.write(at * 65536, &value.to_le_bytes());
            written[at as usize].store(value, SeqCst);
        }
        written[0].store(u64::MAX, SeqCst);
    });
}

/// Goal: frames that are emptied and filled under readers' hands never show another part's bytes.
#[test]
fn crowded() {
    let (place, slow) = (Place::new("crowded"), slow(8 << 20));
    let data = slow.data.lock().unwrap().clone();
    std::thread::scope(|scope| {
        for reader in 0..4u64 {
            let (place, slow, data) = (&place, &slow, &data);
            scope.spawn(move || {
                let (program, mut seed) = (place.program(slow), 1000 + reader);
                program.cached.session().limit_pages(256 << 10);
                for _ in 0..20_000 {
                    // Near each other, so that all want the same few frames.
                    let at = (random(&mut seed) % 10 * 65536 + random(&mut seed) % 16 * 4096) as usize;
                    assert!(program.read(at as u64, 4096)[..] == data[at..at + 4096], "at {at}");
                }
            });
        }
    });
}

/// Goal: a short file takes the pages that it fills, and one request; one that ends with a page is known to end there; one that
/// has grown unseen is read whole.
#[test]
fn short_files() {
    for (len, pages, more) in [(5, 1, 0), (4096, 2, 0), (5000, 2, 60_000), (60_000, 15, 0), (65_536, 32, 0)] {
        let (place, slow) = (Place::new("short"), slow(len));
        let program = place.program(&slow);
        slow.data.lock().unwrap().extend(vec![7; more]);
        let all: Vec<u8> = (0..).map(|n| program.read(n * 4096, 4096)).take_while(|part| !part.is_empty()).flatten().collect();
        assert!(all == *slow.data.lock().unwrap(), "{len} bytes");
        if more == 0 {
            assert_eq!(program.cached.session().page_figures().bytes, pages * 4096, "{len} bytes");
            assert!(slow.reads.load(SeqCst) <= 1 + u32::from(len == 65_536), "{len} bytes");
        }
    }
}

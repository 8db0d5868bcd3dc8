//! Reads and writes of one buffer, which go straight to a backend that is not native: its answers, its errors and the
//! order in which everything else is found out are those of the long way. Over a lower file system that counts what it is asked.

use bypath_posix::{Bitmap, Door, Numbers, Outcome, Process, Room, ThreadState};
use pm::sys::abi::*;
use pm::{Errno, UserSlice};
use session::{Caching, Entry, PageKey, SessionCache};
use session::{LowerFs, Miss};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vfs::cached::Cached;
use vfs::*;

const AT: usize = AT_FDCWD as usize;
const EIO: isize = -5;
const EBADF: isize = -9;
const EFAULT: isize = -14;
const EISDIR: isize = -21;
const EINVAL: isize = -22;
const EFBIG: isize = -27;
const NONE: Error = Error::Posix(Errno::ENOSYS);
/// A limit on file sizes, which is the whole process's: one test at a time.
const LIMIT: usize = 3 << 20;
static ALONE: Mutex<()> = Mutex::new(());
/// A buffer, as long as any here.
const LEN: usize = 64;

/// One file, `file`, and one directory, `dir`.
struct Counting {
    data: Mutex<Vec<u8>>,
    asked: AtomicU32,
    fails: AtomicBool,
    remembered: bool,
}

impl Counting {
    fn attr_of(&self, key: u64) -> Attr {
        let (kind, size) = match key {
            2 => (Kind::Regular, self.data.lock().unwrap().len() as u64),
            _ => (Kind::Directory, 0),
        };
        Attr { ino: key, kind, mode: 0o755, nlink: 1, size, mtime: 1, ..Attr::EMPTY }
    }

    fn answers(&self) -> Result<()> {
        self.asked.fetch_add(1, SeqCst);
        if self.fails.load(SeqCst) { Err(Error::Posix(Errno::EIO)) } else { Ok(()) }
    }
}

impl LowerFs for &Counting {
    fn device(&self) -> u64 {
        1
    }
    fn lookup(&self, _: &SessionCache, _: &Cx, _: Node, name: &[u8]) -> std::result::Result<Entry, Miss> {
        let key = if name == b"file" { 2 } else { 3 };
        let (attr, entry_ns, attr_ns) = (self.attr_of(key), 1 << 40, 1 << 40);
        Ok(Entry { key, device: 0, attr, entry_ns, attr_ns, incarnation: 0, handle: None, caching: Caching::None })
    }
    fn attr(&self, s: &SessionCache, _: &Cx, node: Node) -> Result<(Attr, u64)> {
        Ok((self.attr_of(s.get(node)?.key.load(SeqCst)), 1 << 40))
    }
    fn access(&self, _: &SessionCache, _: &Cx, _: Node, _: u16, _: &dyn Fn() -> Result<Attr>) -> Result<()> {
        Ok(())
    }
    fn set_attr(&self, _: &SessionCache, _: &Cx, _: Node, _: &SetAttr) -> Result<()> {
        Err(NONE)
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
        self.answers()?;
        let data = self.data.lock().unwrap();
        let from = data.len().min(offset as usize);
        Ok(pm::user::copy(UserSlice::from_ref(&data[from..data.len().min(from + into.len)]), into)?)
    }
    fn page_key(&self, _: &SessionCache, _: Node) -> Option<PageKey> {
        Some(PageKey { key: 2, version: 0 })
    }
    fn is_remembered(&self) -> bool {
        self.remembered
    }
    fn write(&self, _: &SessionCache, _: &Cx, _: Node, offset: u64, from: UserSlice) -> Result<usize> {
        self.answers()?;
        let mut data = self.data.lock().unwrap();
        let end = offset as usize + from.len;
        if data.len() < end {
            data.resize(end, 0);
        }
        Ok(pm::user::copy(from, UserSlice::from_mut(&mut data[offset as usize..end]))?)
    }
    fn sync(&self, _: &SessionCache, _: &Cx, _: Option<Node>, _: bool) -> Result<()> {
        self.asked.fetch_add(100, SeqCst);
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

struct Here(Bitmap);

impl Numbers for Here {
    fn take(&self, lowest: u32, cloexec: bool) -> std::result::Result<u32, Errno> {
        self.0.take(lowest.max(8000), cloexec)
    }
    fn take_exact(&self, fd: u32, cloexec: bool) -> std::result::Result<(), Errno> {
        self.0.take_exact(fd, cloexec)
    }
    fn give_back(&self, fd: u32) {
        self.0.give_back(fd)
    }
}

impl Door for Here {
    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(self)
    }
}

struct World {
    process: &'static Process,
    thread: ThreadState,
    source: &'static Counting,
    _alone: MutexGuard<'static, ()>,
}

impl World {
    fn new(name: &str, remembered: bool) -> World {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let data = Mutex::new((0..100).collect());
        let source =
            &*Box::leak(Box::new(Counting { data, asked: AtomicU32::new(0), fails: AtomicBool::new(false), remembered }));
        let path = std::env::temp_dir().join(format!("bypath-straight-{}-{name}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(if remembered { SessionCache::bytes_with_pages() } else { SessionCache::bytes() }).unwrap();
        let session = SessionCache::open(CString::new(path.to_str().unwrap()).unwrap().as_bytes_with_nul()).unwrap();
        std::fs::remove_file(&path).unwrap();
        session.limit_pages(if remembered { 1 << 20 } else { 0 });
        let process: &'static Process = Box::leak(Box::new(Process::new(Box::leak(Box::new(Here(Bitmap::new()))))));
        let world = World { process, thread: ThreadState::with_room(Box::leak(Box::new(Room::new()))), source, _alone: alone };
        process.mount(&world.thread, b"/straight", Box::leak(Box::new(Cached::new(source, session)))).expect("mount");
        world
    }

    fn call(&self, nr: u32, args: &[usize]) -> isize {
        let mut six = [0; 6];
        six[..args.len()].copy_from_slice(args);
        // SAFETY: what the arguments point to is the test's, and outlives the call.
        match unsafe { self.process.handle(&self.thread, nr as usize, six) } {
            Outcome::Done(result) => result,
            // SAFETY: as above.
            Outcome::Kernel => unsafe { pm::sys::raw(nr as usize, six) },
            // SAFETY: as above.
            Outcome::KernelWith { nr, args } => unsafe { pm::sys::raw(nr, args) },
        }
    }

    fn open(&self, name: &str, flags: u32) -> usize {
        let path = CString::new(format!("/straight/{name}")).unwrap();
        let fd = self.call(__NR_openat, &[AT, path.as_ptr() as usize, flags as usize]);
        assert!(fd >= 8000, "{name}: {fd}");
        fd as usize
    }

    /// How often the lower file system was asked since the last time.
    fn asked(&self) -> u32 {
        self.source.asked.swap(0, SeqCst)
    }

    fn position(&self, fd: usize) -> isize {
        self.call(__NR_lseek, &[fd, 0, 1])
    }
}

/// Goal: such a call is answered by the quick way, with what the lower file system says, and moves the offset by what was transferred.
#[test]
fn one_buffer_goes_straight() {
    let world = World::new("one", false);
    let (fd, mut buffer) = (world.open("file", O_RDWR), [0u8; LEN]);
    let at = buffer.as_mut_ptr() as usize;
    assert_eq!(world.call(__NR_pwrite64, &[fd, at, 1, 0]), 1, "asks for the limit on file sizes once");
    assert_eq!(world.asked(), 1);
    // SAFETY: a buffer of that length.
    let quick = unsafe {
        [
            world.process.pread_fast(|| &world.thread, fd, at, LEN, 10),
            world.process.pwrite_fast(|| &world.thread, fd, at, 3, 20),
            world.process.write_fast(|| &world.thread, fd, at, 4),
        ]
    };
    assert_eq!(quick, [Some(LEN as isize), Some(3), Some(4)]);
    assert_eq!((world.asked(), world.position(fd), buffer[0]), (3, 4, 10));
    assert_eq!(world.source.data.lock().unwrap()[..6], [10, 11, 12, 13, 4, 5]);
    assert_eq!((world.call(__NR_read, &[fd, at, LEN]), world.position(fd), buffer[0]), (LEN as isize, 4 + LEN as isize, 4));
    assert_eq!((world.call(__NR_read, &[fd, at, LEN]), world.position(fd)), (32, 100));
    assert_eq!((world.call(__NR_read, &[fd, at, LEN]), world.call(__NR_pread64, &[fd, at, LEN, 200]), world.asked()), (0, 0, 4));
    world.source.fails.store(true, SeqCst);
    let failed = [__NR_read, __NR_write, __NR_pread64, __NR_pwrite64].map(|nr| world.call(nr, &[fd, at, LEN, 0]));
    assert_eq!((failed, world.position(fd), world.asked()), ([EIO; 4], 100, 4));
}

/// Goal: what is not usual is found out before the lower file system is asked, in the kernel's order, and what belongs to a call beside
/// the transfer is done.
#[test]
fn what_is_not_usual() {
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    let world = World::new("unusual", false);
    let (fd, reader, writer) = (world.open("file", O_RDWR), world.open("file", O_RDONLY), world.open("file", O_WRONLY));
    let (dir, path) = (world.open("dir", O_RDONLY | O_DIRECTORY), world.open("file", O_PATH));
    let mut buffer = [7u8; LEN];
    let at = buffer.as_mut_ptr() as usize;
    let both = |reads: u32, writes: u32, args: &[usize]| [world.call(reads, args), world.call(writes, args)];
    // Once with the limit on file sizes known: then the quick way is had.
    assert_eq!(world.call(__NR_pwrite64, &[fd, at, 1, 0]), 1);
    world.asked();
    assert_eq!(both(__NR_pread64, __NR_pwrite64, &[path, at, 1, 0]), [EBADF; 2]);
    assert_eq!([world.call(__NR_pread64, &[writer, 1, 1, 0]), world.call(__NR_pwrite64, &[reader, 1, 1, 0])], [EBADF; 2]);
    assert_eq!([world.call(__NR_read, &[writer, 1, 1]), world.call(__NR_write, &[reader, 1, 1])], [EBADF; 2]);
    assert_eq!(
        (both(__NR_pread64, __NR_pwrite64, &[fd, 1, 1, 0]), world.asked()),
        ([EFAULT; 2], 1),
        "whether there is anything to read"
    );
    assert_eq!(both(__NR_pread64, __NR_pwrite64, &[fd, at, 1, usize::MAX]), [EINVAL; 2]);
    assert_eq!(both(__NR_pread64, __NR_pwrite64, &[fd, at, LEN, isize::MAX as usize]), [EINVAL; 2]);
    assert_eq!(both(__NR_pread64, __NR_pwrite64, &[fd, at, 0, 0]), [0; 2]);
    assert_eq!(both(__NR_read, __NR_write, &[fd, at, 0]), [0; 2]);
    assert_eq!([world.call(__NR_pread64, &[dir, at, 1, 0]), world.call(__NR_read, &[dir, at, 1])], [EISDIR; 2]);
    assert_eq!(world.call(__NR_lseek, &[fd, isize::MAX as usize, 0]), isize::MAX);
    assert_eq!((both(__NR_read, __NR_write, &[fd, at, LEN]), world.asked()), ([EINVAL; 2], 0));

    let end = world.open("file", O_WRONLY | O_APPEND);
    assert_eq!(world.call(__NR_pwrite64, &[end, at, 2, 0]), 2, "at the end, whatever the offset says");
    assert_eq!((world.call(__NR_write, &[end, at, 2]), world.position(end)), (2, 104));
    assert_eq!((world.source.data.lock().unwrap()[98..].to_vec(), world.asked()), (vec![98, 99, 7, 7, 7, 7], 2));
    let durable = world.open("file", O_WRONLY | O_DSYNC);
    assert_eq!([world.call(__NR_pwrite64, &[durable, at, 1, 0]), world.call(__NR_write, &[durable, at, 1])], [1; 2]);
    assert_eq!(world.asked(), 202, "two writes, each made durable");

    // SAFETY: 25 is SIGXFSZ, 1 is SIG_IGN.
    unsafe { signal(25, 1) };
    let (new, mut old) = ([LIMIT as u64, u64::MAX], [0u64; 2]);
    assert_eq!(world.call(__NR_lseek, &[fd, LIMIT - 2, 0]), LIMIT as isize - 2);
    assert_eq!(world.call(__NR_prlimit64, &[0, 1, new.as_ptr() as usize, old.as_mut_ptr() as usize]), 0);
    let results = [
        world.call(__NR_pwrite64, &[fd, at, LEN, LIMIT - 5]),
        world.call(__NR_write, &[fd, at, LEN]),
        world.call(__NR_pwrite64, &[fd, at, 1, LIMIT]),
        world.call(__NR_write, &[fd, at, 1]),
    ];
    assert_eq!(world.call(__NR_prlimit64, &[0, 1, old.as_ptr() as usize, 0]), 0);
    assert_eq!(results, [5, 2, EFBIG, EFBIG]);
}

/// Goal: pages and attributes that are kept stay what they are: read from there, and forgotten when they are written over.
#[test]
fn what_is_remembered() {
    let world = World::new("remembered", true);
    let (fd, mut buffer) = (world.open("file", O_RDWR), [0u8; LEN]);
    let at = buffer.as_mut_ptr() as usize;
    let size = || {
        let mut stat = [0u64; 18];
        assert_eq!(world.call(__NR_fstat, &[fd, stat.as_mut_ptr() as usize]), 0);
        stat[6]
    };
    assert_eq!(world.call(__NR_pwrite64, &[fd, at, 1, 0]), 1, "the limit on file sizes is known");
    assert_eq!((world.call(__NR_pread64, &[fd, at, 8, 0]), size()), (8, 100));
    let first = world.asked();
    assert_eq!((world.call(__NR_pread64, &[fd, at, 8, 50]), first > 0, world.asked()), (8, true, 0));
    assert_eq!((world.call(__NR_pwrite64, &[fd, at, 8, 96]), size()), (8, 104));
    world.asked();
    assert_eq!((world.call(__NR_pread64, &[fd, at, 1, 96]), buffer[0]), (1, 50));
    assert!(world.asked() > 0, "what was written over is asked for again");
}

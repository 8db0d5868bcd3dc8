//! A cache in front of a directory of many small trees, and a twin of each by the kernel.
#![allow(dead_code, reason = "each test uses a part")]

mod daemon;
pub mod deaths;
pub mod power;

use daemon::ByCalls;

use base::{Cred, Cx, Kind, NewNode, Node, RenameMode, SetAttr, Thread};
use cache::{Cache, Changes, Origin, prepare};
use engine::Fs;
use engine::mkfs::{self, Options};
use pm::{Errno, UserSlice};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use vfs::backend::{Backend, Xattrs};
use vfs::cached::Cached;
use writeback::{CUT, Conflict, Journal, Writer};

/// What can be done to a small tree.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Create(&'static str),
    Write(&'static str, u64, usize),
    Append(&'static str, usize),
    Cut(&'static str, u64),
    Mkdir(&'static str),
    Symlink(&'static str, &'static str),
    Fifo(&'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Link(&'static str, &'static str),
    Chmod(&'static str, u16),
    Times(&'static str, i64),
    Punch(&'static str, u64, u64),
    Attribute(&'static str),
}

use Op::*;

/// Alone, and all pairs of them.
pub const OPS: &[Op] = &[
    Create("new"),
    Create("d/new"),
    Write("f", 3, 10),
    Write("big", 70_000, 5_000),
    Write("new", 0, 9),
    Append("f", 100),
    Append("big", 100_000),
    Cut("big", 5),
    Cut("big", 400_000),
    Mkdir("n"),
    Create("n/x"),
    Symlink("to", "s2"),
    Fifo("p2"),
    Unlink("f"),
    Unlink("hard1"),
    Unlink("d/e/deep"),
    Rmdir("empty"),
    Rename("f", "g"),
    Rename("f", "d/f"),
    Rename("f", "big"),
    Rename("d/e/deep", "f"),
    Rename("d", "moved"),
    Rename("d/e", "e"),
    Rename("empty", "d/empty"),
    Rename("moved", "empty"),
    Rename("empty", "d2"),
    Rename("new", "f"),
    Exchange("f", "d"),
    Exchange("d", "empty"),
    Link("f", "l1"),
    Link("hard1", "d/hard3"),
    Link("new", "l2"),
    Chmod("f", 0o600),
    Chmod("d", 0o711),
    Times("big", 12_345_678_901),
    Punch("big", 4_096, 100_000),
    Attribute("f"),
    Rename("hard1", "h"),
    Rename("hard2", "d/e/h"),
];

pub fn text(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31).wrapping_add(seed * 7) % 251) as u8).collect()
}

/// What is below.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    Directory,
    /// With a journal.
    Journal,
    /// With one beside the directory, on the same disk.
    JournalBeside,
    /// A daemon: its numbers are not believed.
    Daemon,
    /// A directory of a machine that the image outlives: on DAX, or by a battery.
    Outlived,
}

/// The tree that each run begins with.
pub fn plant(at: &Path, how: How) {
    std::fs::create_dir_all(at.join("d/e")).unwrap();
    std::fs::create_dir(at.join("empty")).unwrap();
    std::fs::write(at.join("f"), b"hello").unwrap();
    std::fs::write(at.join("big"), text(300_000, 1)).unwrap();
    std::fs::write(at.join("d/e/deep"), b"deep").unwrap();
    std::fs::write(at.join("hard1"), b"hard").unwrap();
    // Of a daemon's each name is a file of its own.
    match how {
        How::Daemon => std::fs::write(at.join("hard2"), b"other").unwrap(),
        _ => std::fs::hard_link(at.join("hard1"), at.join("hard2")).unwrap(),
    }
    std::os::unix::fs::symlink("f", at.join("s")).unwrap();
}

fn c(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// By the kernel; whether it could be done.
pub fn by_kernel(at: &Path, op: Op) -> bool {
    use rustix::fs as r;
    let p = |name: &str| at.join(name);
    let write = |name: &str| std::fs::OpenOptions::new().write(true).open(p(name));
    match op {
        Create(name) => std::fs::OpenOptions::new().write(true).create_new(true).open(p(name)).is_ok(),
        Write(name, offset, len) => {
            write(name).is_ok_and(|file| std::os::unix::fs::FileExt::write_all_at(&file, &text(len, offset), offset).is_ok())
        }
        Append(name, len) => write(name).is_ok_and(|file| {
            let size = file.metadata().unwrap().len();
            std::os::unix::fs::FileExt::write_all_at(&file, &text(len, 5), size).is_ok()
        }),
        Cut(name, size) => write(name).is_ok_and(|file| file.set_len(size).is_ok()),
        Mkdir(name) => std::fs::create_dir(p(name)).is_ok(),
        Symlink(target, name) => std::os::unix::fs::symlink(target, p(name)).is_ok(),
        Fifo(name) => r::mknodat(r::CWD, c(&p(name)), r::FileType::Fifo, r::Mode::from_raw_mode(0o644), 0).is_ok(),
        Unlink(name) => std::fs::remove_file(p(name)).is_ok(),
        Rmdir(name) => std::fs::remove_dir(p(name)).is_ok(),
        Rename(from, to) => std::fs::rename(p(from), p(to)).is_ok(),
        Exchange(from, to) => r::renameat_with(r::CWD, c(&p(from)), r::CWD, c(&p(to)), r::RenameFlags::EXCHANGE).is_ok(),
        Link(from, to) => std::fs::hard_link(p(from), p(to)).is_ok(),
        Chmod(name, mode) => std::fs::set_permissions(p(name), std::fs::Permissions::from_mode(mode.into())).is_ok(),
        Times(name, mtime) => {
            let time = r::Timespec { tv_sec: mtime / 1_000_000_000, tv_nsec: mtime % 1_000_000_000 };
            let times = r::Timestamps { last_access: time, last_modification: time };
            r::utimensat(r::CWD, c(&p(name)), &times, r::AtFlags::empty()).is_ok()
        }
        Punch(name, from, len) => write(name).is_ok_and(|file| {
            let flags = r::FallocateFlags::PUNCH_HOLE | r::FallocateFlags::KEEP_SIZE;
            r::fallocate(&file, flags, from, len).is_ok()
        }),
        Attribute(name) => r::setxattr(c(&p(name)), c"user.note", b"value", r::XattrFlags::empty()).is_ok(),
    }
}

pub struct Bench {
    /// The daemon, if it is one.
    pub by: Option<&'static Cached<ByCalls>>,
    pub cache: &'static Cache,
    pub writer: Arc<Mutex<Writer>>,
    /// Makes cuts, where there is a journal.
    pub committer: Option<Mutex<Writer>>,
    pub journal: PathBuf,
    /// Rounds that somebody has waited for.
    pub helped: Arc<AtomicUsize>,
    helper: Option<JoinHandle<()>>,
    pub image: PathBuf,
    pub low: PathBuf,
    pub twins: PathBuf,
    pub runs: usize,
}

impl Bench {
    pub fn new(name: &str, runs: usize, how: How) -> Bench {
        // Where extended attributes and holes are kept as they are.
        let top = PathBuf::from(format!("/dev/shm/bypath-rounds-{}-{name}-{}", std::process::id(), how as u8));
        let _ = std::fs::remove_dir_all(&top);
        let (low, twins, image) = (top.join("low"), top.join("twins"), top.join("c.img"));
        for run in 0..runs {
            plant(&low.join(run.to_string()), how);
            plant(&twins.join(run.to_string()), how);
        }
        make_image(&image, 1 << 30);
        Bench { runs, ..Bench::at(low, twins, image, how) }
    }

    /// Over what is there: a directory, its twin, and an image that is, or is to be, the cache of the first.
    pub fn at(low: PathBuf, twins: PathBuf, image: PathBuf, how: How) -> Bench {
        let bench = Bench::beside(low, twins, image, how);
        let helper = Some(help(bench.cache.fs(), Arc::downgrade(&bench.writer), bench.helped.clone()));
        Bench { helper, ..bench }
    }

    /// The same, where somebody else makes the rounds that are waited for.
    pub fn beside(low: PathBuf, twins: PathBuf, image: PathBuf, how: How) -> Bench {
        let text = [image.as_os_str().as_bytes(), b"\0"].concat();
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let place: &'static mut MaybeUninit<Fs> = Box::leak(Box::new(MaybeUninit::uninit()));
        let domain = (how == How::Outlived).then_some(pm::Domain::Whole);
        // Many come one after the other in one process, which keeps them all.
        let cachelets = matches!(how, How::Outlived | How::JournalBeside).then_some(1024);
        let options = engine::process::Options { domain, cachelets, ..Default::default() };
        let fs = Fs::attach_at(place, &cx, &text, &options).map_err(|error| error.to_string()).unwrap();
        let mut by = None;
        let origin = match how {
            How::Daemon => Origin::Daemon(*by.get_or_insert_with(|| daemon::daemon(&low)), b"a daemon"),
            _ => Origin::Directory(low.as_os_str().as_bytes()),
        };
        prepare(&cx, fs, &origin).unwrap();
        let cache = Cache::new(&cx, fs, &origin, Changes::Image).unwrap();
        let cache: &'static Cache = Box::leak(Box::new(cache));
        let journal = if how == How::JournalBeside { &low } else { &image }.with_file_name("journal");
        let journaled = matches!(how, How::Journal | How::JournalBeside);
        let opened = journaled.then(|| Arc::new(Journal::open(cache, &image, &journal, 2 << 20).unwrap()));
        let writer = || match &opened {
            Some(journal) => Writer::new(cache).unwrap().journaled(journal.clone()),
            None => Writer::new(cache).unwrap(),
        };
        let committer = opened.is_some().then(|| Mutex::new(writer()));
        let writer = Arc::new(Mutex::new(writer()));
        Bench { by, cache, writer, committer, journal, helped: Arc::default(), helper: None, image, low, twins, runs: 1 }
    }

    /// The same, of which what both sides have changed is ours.
    pub fn deciding_for_ours(self) -> Bench {
        let mut writer = self.writer.lock().unwrap();
        let as_made = std::mem::replace(&mut *writer, Writer::new(self.cache).unwrap());
        *writer = as_made.deciding(Conflict::Ours);
        drop(writer);
        self
    }

    /// Lets go of all that it has below and in memory; the image stays as it is.
    pub fn let_go(mut self) {
        let helper = self.helper.take();
        drop((self.writer, self.committer));
        helper.unwrap().join().unwrap();
    }

    /// With a thread's words for one call: it may be any thread's.
    pub fn with<T>(&self, call: impl FnOnce(&Cx) -> T) -> T {
        let thread = Thread::new();
        let result = call(&Cx { cred: Cred::ROOT, umask: 0o022, thread: &thread });
        self.cache.give_lane_back(&thread);
        result
    }

    /// The directory that a path of run `run` is in, and the last name.
    fn walk<'p>(&self, cx: &Cx, run: usize, path: &'p str) -> base::Result<(Node, &'p [u8])> {
        let mut dir = self.cache.lookup(cx, self.cache.root(), run.to_string().as_bytes())?;
        let mut parts = path.split('/').peekable();
        loop {
            let part = parts.next().unwrap();
            if parts.peek().is_none() {
                return Ok((dir, part.as_bytes()));
            }
            dir = self.cache.lookup(cx, dir, part.as_bytes())?;
        }
    }

    fn node(&self, cx: &Cx, run: usize, path: &str) -> base::Result<Node> {
        let (dir, name) = self.walk(cx, run, path)?;
        self.cache.lookup(cx, dir, name)
    }

    /// A regular file, as who opens it to write finds it.
    fn file(&self, cx: &Cx, run: usize, path: &str) -> base::Result<Node> {
        let node = self.node(cx, run, path)?;
        match self.cache.attr(cx, node)?.kind {
            Kind::Regular => Ok(node),
            _ => Err(Errno::EISDIR.into()),
        }
    }

    pub fn by_cache(&self, cx: &Cx, run: usize, op: Op) -> base::Result<()> {
        let cache = self.cache;
        let make = |path, kind, target: &'static str| {
            let (dir, name) = self.walk(cx, run, path)?;
            let mode = if kind == Kind::Directory { 0o777 } else { 0o666 };
            cache.create(cx, dir, name, &NewNode { kind, mode, rdev: 0, target: target.as_bytes() }).map(drop)
        };
        let rename = |from, to, mode| {
            let ((a, from), (b, to)) = (self.walk(cx, run, from)?, self.walk(cx, run, to)?);
            cache.rename(cx, a, from, b, to, mode)
        };
        match op {
            Create(path) => make(path, Kind::Regular, ""),
            Mkdir(path) => make(path, Kind::Directory, ""),
            Symlink(target, path) => make(path, Kind::Symlink, target),
            Fifo(path) => make(path, Kind::Fifo, ""),
            Write(path, offset, len) => {
                cache.write(cx, self.file(cx, run, path)?, Some(offset), &[UserSlice::from_ref(&text(len, offset))]).map(drop)
            }
            Append(path, len) => {
                cache.write(cx, self.file(cx, run, path)?, None, &[UserSlice::from_ref(&text(len, 5))]).map(drop)
            }
            Cut(path, size) => {
                let size = SetAttr { size: Some(size), size_checked: true, ..SetAttr::default() };
                cache.set_attr(cx, self.file(cx, run, path)?, &size)
            }
            Unlink(path) => self.walk(cx, run, path).and_then(|(dir, name)| cache.unlink(cx, dir, name)),
            Rmdir(path) => self.walk(cx, run, path).and_then(|(dir, name)| cache.rmdir(cx, dir, name)),
            Rename(from, to) => rename(from, to, RenameMode::Replace),
            Exchange(from, to) => rename(from, to, RenameMode::Exchange),
            Link(from, to) => {
                let (node, (dir, name)) = (self.node(cx, run, from)?, self.walk(cx, run, to)?);
                cache.link(cx, node, dir, name)
            }
            Chmod(path, mode) => {
                cache.set_attr(cx, self.node(cx, run, path)?, &SetAttr { mode: Some(mode), ..SetAttr::default() })
            }
            Times(path, time) => {
                let at = Some(base::SetTime::At(time));
                cache.set_attr(cx, self.node(cx, run, path)?, &SetAttr { atime: at, mtime: at, ..SetAttr::default() })
            }
            Punch(path, from, len) => cache.fallocate(cx, self.file(cx, run, path)?, base::Fallocate::PunchHole, from, len),
            Attribute(path) => cache.set_xattr(cx, self.node(cx, run, path)?, b"user.note", UserSlice::from_ref(b"value"), 0),
        }
    }

    /// By both; they agree on whether it can be done.
    pub fn both(&self, run: usize, op: Op) {
        let kernel = by_kernel(&self.twins.join(run.to_string()), op);
        let ours = self.with(|cx| self.by_cache(cx, run, op));
        assert_eq!(kernel, ours.is_ok(), "run {run}: {op:?}: {ours:?}");
    }

    /// A round that is cut off at step `at`; whether it came so far.
    pub fn cut(&self, at: usize) -> bool {
        let mut step = 0;
        let mut hook = |_: &str| {
            step += 1;
            if step > at { Err(CUT) } else { Ok(()) }
        };
        self.writer.lock().unwrap().round_with(false, &mut hook).is_err()
    }

    /// A round in the middle of which, before step `at`, somebody else does something, and which is cut off so many steps
    /// later; whether it came so far.
    pub fn meanwhile(&self, run: usize, at: usize, ops: &[Op], cut_after: usize) -> bool {
        std::thread::scope(|scope| {
            let (mut step, mut begun) = (0, false);
            let mut hook = |_: &str| {
                step += 1;
                if step == at {
                    begun = true;
                    let other = scope.spawn(|| ops.iter().for_each(|op| self.both(run, *op)));
                    wait_a_moment(&other);
                }
                if step > at.saturating_add(cut_after) { Err(CUT) } else { Ok(()) }
            };
            let round = self.writer.lock().unwrap().round_with(false, &mut hook);
            // What programs do meanwhile fails no round, and no `fsync` that waits for it.
            let has_failed = |failure: &writeback::Failure| failure.errno != CUT;
            assert!(!round.as_ref().is_err_and(has_failed), "run {run}, before step {at}: {ops:?}: {round:?}");
            begun
        })
    }

    /// Rounds all the time, beside somebody who moves files about of which some bytes are only below.
    pub fn moved_beside_rounds(&self) {
        const MOVES: [Op; 7] = [
            Rename("big", "x"),
            Rename("x", "d/y"),
            Rename("d/e/deep", "deep"),
            Rename("d/y", "big"),
            Append("f", 100),
            Exchange("f", "deep"),
            Rename("deep", "d/e/deep"),
        ];
        /// Trees that are changed in turn: what a round has taken is moved again while it is under way.
        const TOGETHER: usize = 3;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let rounds = || {
                while !is_over.load(SeqCst) {
                    // What is moved meanwhile it may fail to find; the next one does.
                    let _ = self.writer.lock().unwrap().round(false);
                }
            };
            scope.spawn(rounds);
            let _ends = Ends(&is_over);
            for first in (0..self.runs).step_by(TOGETHER) {
                for op in MOVES.into_iter().chain(MOVES) {
                    (first..self.runs.min(first + TOGETHER)).for_each(|run| self.both(run, op));
                }
            }
        });
    }

    pub fn check(&self, run: usize, what: &str) {
        let there = self.drained(run, what);
        must_be_same(&there, &tree(&self.twins.join(run.to_string())), &format!("run {run}: {what}"));
    }

    /// Rounds until all is below; what is there then, which is what the cache shows.
    pub fn drained(&self, run: usize, what: &str) -> BTreeMap<String, Shown> {
        while !self.writer.lock().unwrap().is_clean().unwrap() {
            self.writer.lock().unwrap().round(false).unwrap_or_else(|failure| panic!("run {run}: {what}: {failure}"));
        }
        let there = tree(&self.low.join(run.to_string()));
        println!("run {run}: {what}");
        let here = self.with(|cx| self.show_run(cx, run));
        must_be_same(&here, &there, &format!("run {run}: {what}: as the cache shows it"));
        let park = self.low.join(writeback::PARK);
        assert!(!park.exists(), "run {run}: {what}: left in the park: {:?}", tree(&park));
        there
    }

    /// The twins of all runs.
    pub fn trees_of_twins(&self) -> Trees {
        self.trees_in(&self.twins)
    }

    /// What is below of all runs.
    pub fn trees_below(&self) -> Trees {
        self.trees_in(&self.low)
    }

    fn trees_in(&self, dir: &Path) -> Trees {
        (0..self.runs).map(|run| tree(&dir.join(run.to_string()))).collect()
    }

    /// Has all of it in the image: nothing waits for a round then.
    pub fn warm(&self) {
        self.with(|cx| self.show(cx, self.cache.root(), String::new(), &mut BTreeMap::new()));
    }

    /// The tree of a run.
    pub fn show_run(&self, cx: &Cx, run: usize) -> BTreeMap<String, Shown> {
        let mut all = BTreeMap::new();
        let top = self.cache.lookup(cx, self.cache.root(), run.to_string().as_bytes());
        self.show(cx, top.unwrap(), String::new(), &mut all);
        all
    }

    fn show(&self, cx: &Cx, dir: Node, path: String, into: &mut BTreeMap<String, Shown>) {
        let mut names = Vec::new();
        let mut each = |entry: base::DirEntry<'_>| {
            if !matches!(entry.name, b"." | b"..") {
                names.push(entry.name.to_vec());
            }
            true
        };
        self.cache.readdir(cx, dir, 0, &mut each).unwrap();
        for name in names {
            let node = self.cache.lookup(cx, dir, &name).unwrap();
            let attr = self.cache.attr(cx, node).unwrap();
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            let mut contents = vec![0; attr.size as usize];
            match attr.kind {
                Kind::Regular => {
                    let read = self.cache.read(cx, node, 0, &[UserSlice::from_mut(&mut contents)]);
                    read.unwrap_or_else(|error| panic!("{path}: {error:?}"));
                }
                Kind::Symlink => drop(self.cache.readlink(cx, node, UserSlice::from_mut(&mut contents)).unwrap()),
                _ => contents.clear(),
            }
            let mut value = [0; 64];
            let note = self.cache.get_xattr(cx, node, b"user.note", UserSlice::from_mut(&mut value)).unwrap_or(0);
            let nlink = if attr.kind == Kind::Directory { 0 } else { attr.nlink };
            into.insert(path.clone(), (attr.kind as u8, u32::from(attr.mode), nlink, contents, value[..note].to_vec()));
            if attr.kind == Kind::Directory {
                self.show(cx, node, path, into);
            }
        }
    }

    pub fn end(mut self) {
        let helper = self.helper.take();
        drop(self.writer);
        helper.unwrap().join().unwrap();
        let text = [self.image.as_os_str().as_bytes(), b"\0"].concat();
        let checked = engine::check::run(&text, &mut |_| {});
        let checked = checked.map_err(|error| error.to_string()).unwrap();
        assert!(checked.issues.is_empty(), "{:?}", checked.issues);
        let _ = std::fs::remove_dir_all(self.image.parent().unwrap());
    }
}

/// A new image that may grow to `limit`.
pub fn make_image(image: &Path, limit: u64) {
    let text = [image.as_os_str().as_bytes(), b"\0"].concat();
    let options = Options { limit, features: format::Features::CACHE, mode: 0o700, ..Options::default() };
    mkfs::make(&text, &options).unwrap();
}

/// Makes the rounds that somebody waits for.
fn help(fs: &'static Fs, writer: Weak<Mutex<Writer>>, helped: Arc<AtomicUsize>) -> JoinHandle<()> {
    fs.writes_back(true).unwrap();
    std::thread::spawn(move || {
        while let Some(writer) = writer.upgrade() {
            let (seen, wanted) = fs.rounds_wanted().unwrap();
            if let Some(wanted) = wanted {
                helped.fetch_add(1, SeqCst);
                let result = writer.lock().unwrap().round(false);
                fs.answer(wanted, result.map(drop).map_err(|failure| failure.errno)).unwrap();
            }
            drop(writer);
            fs.await_call(seen, 5_000_000).unwrap();
        }
    })
}

/// Kind, mode, links, contents, an attribute.
pub type Shown = (u8, u32, u32, Vec<u8>, Vec<u8>);

/// The trees of all runs.
pub type Trees = Vec<BTreeMap<String, Shown>>;

pub fn tree(at: &Path) -> BTreeMap<String, Shown> {
    fn fill(at: &Path, path: String, into: &mut BTreeMap<String, Shown>) {
        for entry in std::fs::read_dir(at).into_iter().flatten() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            let path = format!("{path}/{}", entry.file_name().to_string_lossy());
            let kind = ((meta.mode() >> 12) & 15) as u8;
            let contents = match meta.file_type() {
                kind if kind.is_file() => std::fs::read(entry.path()).unwrap(),
                kind if kind.is_symlink() => std::fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec(),
                _ => Vec::new(),
            };
            let mut value = [0; 64];
            let len = rustix::fs::lgetxattr(c(&entry.path()), c"user.note", &mut value[..]).unwrap_or(0);
            let nlink = if meta.is_dir() { 0 } else { meta.nlink() as u32 };
            into.insert(path.clone(), (kind, meta.mode() & 0o7777, nlink, contents, value[..len].to_vec()));
            if meta.is_dir() {
                fill(&entry.path(), path, into);
            }
        }
    }
    let mut all = BTreeMap::new();
    fill(at, String::new(), &mut all);
    all
}

/// Numbers as good as chance.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Waits for what a program does in the midst of a round. What waits for a round itself is done after this one.
pub fn wait_a_moment(program: &std::thread::ScopedJoinHandle<'_, ()>) {
    for _ in 0..20 {
        if !program.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Says that it is over, whatever happens.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The operation to which a test is to keep, of a number in the environment: it tries all of that then.
pub fn first() -> Option<usize> {
    std::env::var("BYPATH_FIRST").ok().and_then(|text| text.parse().ok())
}

pub fn may_run() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says in what paths two trees differ.
fn must_be_same(one: &BTreeMap<String, Shown>, other: &BTreeMap<String, Shown>, what: &str) {
    let paths: BTreeSet<&String> = one.keys().chain(other.keys()).filter(|path| one.get(*path) != other.get(*path)).collect();
    let differ = paths.iter().map(|path| format!("{path}: {:?}\n  and {:?}", one.get(*path), other.get(*path)));
    assert!(paths.is_empty(), "{what}:\n{}", differ.collect::<Vec<_>>().join("\n"));
}

//! What is timed: each call many times, with everything around it prepared
//! outside the clock. All paths are relative to one directory, a component long
//! unless the call says otherwise.

use crate::calls::{Calls, text};
use libc::{O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY};
use std::ffi::CString;
use std::time::Instant;

/// Files that are looked at.
const FILES: usize = 1000;
/// Size of the file that is read and overwritten, bytes.
const DATA: u64 = 16 << 20;

/// A call, its target against tmpfs (through the C API), and its name.
pub struct Row {
    /// For people and files.
    pub name: &'static str,
    /// Time against tmpfs that `DESIGN` §9 asks for, if it does.
    pub target: Option<f64>,
}

const fn row(name: &'static str, target: f64) -> Row {
    Row { name, target: Some(target) }
}

/// All calls, in the order they are run.
pub const ROWS: &[Row] = &[
    row("stat", 1.0 / 12.0),
    row("stat depth 8", 1.0 / 8.0),
    row("access", 1.0 / 12.0),
    row("negative lookup", 1.0 / 12.0),
    row("open+close", 1.0 / 10.0),
    row("create+close", 1.0 / 8.0),
    row("unlink", 1.0 / 8.0),
    row("mkdir", 1.0 / 8.0),
    row("rmdir", 1.0 / 8.0),
    row("rename", 1.0 / 6.0),
    row("link", 1.0 / 6.0),
    row("symlink", 1.0 / 6.0),
    row("pread 64 B", 1.0 / 8.0),
    Row { name: "pread 4 KiB", target: None },
    Row { name: "overwrite 4 KiB", target: None },
    row("append 4 KiB", 1.0 / 3.0),
    row("readdir+stat", 1.0 / 12.0),
];

/// One thread's files.
pub struct Hand {
    files: Vec<CString>,
    deep: Vec<CString>,
    missing: Vec<CString>,
    fresh: Vec<CString>,
    moved: Vec<CString>,
    listed: CString,
    /// Only read.
    source: CString,
    data: i32,
    log: i32,
    state: u64,
}

/// What a run gave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Nanoseconds.
    pub ns: u64,
    /// Calls.
    pub calls: u64,
    /// Of results, the same on every target.
    pub sum: u64,
}

impl Hand {
    /// Makes the files of thread `who`; `n` is the most calls of a run, `entries` those of the listed directory.
    pub fn new<C: Calls>(calls: &C, who: &str, n: usize, entries: usize) -> Hand {
        let names = |kind: &str, count: usize| (0..count).map(|i| text(format!("{who}-{kind}{i:06}"))).collect::<Vec<_>>();
        let files = names("file", FILES);
        for (i, file) in files.iter().enumerate() {
            make(calls, file, i % 100);
        }
        let mut dir = format!("{who}-deep");
        for depth in 0..7 {
            assert_eq!(calls.mkdir(&text(dir.clone())), 0, "mkdir {dir}");
            if depth < 6 {
                dir += "/below";
            }
        }
        let deep: Vec<CString> = (0..100).map(|i| text(format!("{dir}/file{i:03}"))).collect();
        deep.iter().for_each(|file| make(calls, file, 7));
        let listed = text(format!("{who}-listed"));
        assert_eq!(calls.mkdir(&listed), 0, "mkdir");
        for i in 0..entries {
            make(calls, &text(format!("{who}-listed/entry{i:07}")), 0);
        }
        let block: Vec<u8> = (0..65536u32).map(|i| (i % 251) as u8).collect();
        let filled = |path: &CString| {
            let data = calls.open(path, O_RDWR | O_CREAT | O_EXCL);
            for at in (0..DATA).step_by(block.len()) {
                assert_eq!(calls.pwrite(data, &block, at), block.len() as isize, "pwrite");
            }
            data
        };
        let data = filled(&text(format!("{who}-data")));
        let source = text(format!("{who}-source"));
        calls.close(filled(&source));
        let log = calls.open(&text(format!("{who}-log")), O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
        Hand {
            files,
            deep,
            missing: names("none", FILES),
            fresh: names("new", n),
            moved: names("moved", n),
            listed,
            source,
            data,
            log,
            state: 0x2545_f491,
        }
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// Runs call `name` `n` times.
    pub fn run<C: Calls>(&mut self, calls: &C, name: &str, n: usize) -> Spent {
        let fresh = &self.fresh[..n.min(self.fresh.len())];
        let moved = &self.moved[..fresh.len()];
        let create = |files: &[CString]| timed(files, |f| closed(calls, calls.open(f, O_WRONLY | O_CREAT | O_EXCL)));
        let unlink = |files: &[CString]| timed(files, |f| calls.unlink(f) as u64);
        let cycle = |files: &[CString], each: &dyn Fn(&CString) -> u64| timed_n(n, |i| each(&files[i % files.len()]));
        match name {
            "stat" => cycle(&self.files, &|f| calls.stat(f) as u64),
            "stat depth 8" => cycle(&self.deep, &|f| calls.stat(f) as u64),
            "access" => cycle(&self.files, &|f| calls.access(f) as u64),
            "negative lookup" => cycle(&self.missing, &|f| calls.stat(f) as u64 & 1),
            "open+close" => cycle(&self.files, &|f| closed(calls, calls.open(f, O_RDONLY))),
            "create+close" => {
                let spent = create(fresh);
                unlink(fresh);
                spent
            }
            "unlink" => {
                create(fresh);
                unlink(fresh)
            }
            "mkdir" => {
                let spent = timed(fresh, |f| calls.mkdir(f) as u64);
                timed(fresh, |f| calls.rmdir(f) as u64);
                spent
            }
            "rmdir" => {
                timed(fresh, |f| calls.mkdir(f) as u64);
                timed(fresh, |f| calls.rmdir(f) as u64)
            }
            "rename" => {
                create(fresh);
                let spent = timed_n(fresh.len(), |i| calls.rename(&fresh[i], &moved[i]) as u64);
                unlink(moved);
                spent
            }
            "link" => {
                let spent = timed(fresh, |f| calls.link(&self.files[0], f) as u64);
                unlink(fresh);
                spent
            }
            "symlink" => {
                let spent = timed(fresh, |f| calls.symlink(c"somewhere/else", f) as u64);
                unlink(fresh);
                spent
            }
            "readdir+stat" => {
                let start = Instant::now();
                let (count, sum) = calls.list(&self.listed);
                Spent { ns: start.elapsed().as_nanos() as u64, calls: count, sum: sum + count }
            }
            _ => self.data(calls, name, n),
        }
    }

    fn data<C: Calls>(&mut self, calls: &C, name: &str, n: usize) -> Spent {
        let mut block = vec![0x5au8; 4096];
        let offsets: Vec<u64> = (0..n).map(|_| self.random() % (DATA / 4096) * 4096).collect();
        let first = |block: &[u8]| block[0] as u64 + block[63] as u64;
        let mut pread = |len: usize| {
            let fd = calls.open(&self.source, O_RDONLY);
            // Whoever keeps what he has read has it now.
            let mut all = vec![0; 1 << 16];
            (0..DATA).step_by(all.len()).for_each(|at| assert!(calls.pread(fd, &mut all, at) > 0, "pread"));
            let spent = timed_n(n, |i| calls.pread(fd, &mut block[..len], offsets[i]) as u64 + first(&block));
            calls.close(fd);
            spent
        };
        match name {
            "pread 64 B" => pread(64),
            "pread 4 KiB" => pread(4096),
            "overwrite 4 KiB" => timed_n(n, |i| {
                block[0] = i as u8;
                calls.pwrite(self.data, &block, offsets[i]) as u64
            }),
            "append 4 KiB" => {
                let spent = timed_n(n, |_| calls.write(self.log, &block) as u64);
                assert_eq!(calls.ftruncate(self.log, 0), 0, "ftruncate");
                spent
            }
            "memory copy 4 KiB" => {
                let source: Vec<u8> = (0..DATA).map(|i| i as u8).collect();
                timed_n(n, |i| {
                    block.copy_from_slice(&source[offsets[i] as usize..][..4096]);
                    first(std::hint::black_box(&block))
                })
            }
            other => panic!("no such call: {other}"),
        }
    }
}

fn make<C: Calls>(calls: &C, path: &CString, len: usize) {
    let fd = calls.open(path, O_WRONLY | O_CREAT | O_EXCL);
    assert!(fd >= 0, "create {path:?}: {}", std::io::Error::last_os_error());
    assert_eq!(calls.write(fd, &vec![b'x'; len]), len as isize, "write");
    calls.close(fd);
}

#[inline(always)]
fn closed<C: Calls>(calls: &C, fd: i32) -> u64 {
    assert!(fd >= 0, "open: {}", std::io::Error::last_os_error());
    calls.close(fd) as u64 + 1
}

#[inline(always)]
fn timed(files: &[CString], each: impl Fn(&CString) -> u64) -> Spent {
    timed_n(files.len(), |i| each(&files[i]))
}

#[inline(always)]
fn timed_n(n: usize, mut each: impl FnMut(usize) -> u64) -> Spent {
    let mut sum = 0u64;
    let start = Instant::now();
    for i in 0..n {
        sum = sum.wrapping_add(each(i));
    }
    Spent { ns: start.elapsed().as_nanos() as u64, calls: n as u64, sum }
}

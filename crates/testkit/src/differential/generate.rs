//! Random sequences. A sequence does not depend on what its calls return, so
//! that it stays meaningful when parts are taken out.

use super::op::{Arg, Op, Step};
use crate::rng::Rng;
use libc::*;
use pm::sys::abi as nr;

const CWD: i64 = AT_FDCWD as i64;
/// Descriptors that sequences use are small: the lowest free one is handed out.
const FIRST_FD: i64 = 3;
const FDS: u64 = 9;

const NAMES: [&[u8]; 9] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"quite-a-long-name-that-fits-no-short-slot-of-forty-bytes",
    b"name.with.dots",
    b".hidden",
];
const MODES: [i64; 14] = [0o644, 0o755, 0o777, 0o666, 0o600, 0o700, 0, 0o444, 0o555, 0o111, 0o4755, 0o2755, 0o2775, 0o1775];
const OFFSETS: [i64; 14] = [0, 1, 10, 63, 64, 100, 4095, 4096, 4097, 8192, 12288, 40000, 65536, 1 << 20];
const LENGTHS: [usize; 10] = [0, 1, 7, 64, 100, 511, 4096, 4097, 9000, 20000];

/// Makes one sequence.
pub struct Generator {
    rng: Rng,
    /// Whether to allocate space, or else to look for data and holes: what is
    /// allocated and not written is a hole in tmpfs, and data here.
    allocates: bool,
}

fn name(rng: &mut Rng) -> Vec<u8> {
    if rng.one_in(60) {
        let len = rng.pick(&[100, 254, 255, 256]);
        return vec![b'L'; len];
    }
    // The first few come up most.
    let at = rng.below(NAMES.len() as u64).min(rng.below(NAMES.len() as u64));
    NAMES[at as usize].to_vec()
}

fn path(rng: &mut Rng) -> Vec<u8> {
    match rng.below(200) {
        0 => return Vec::new(),
        1 => return b"/".to_vec(),
        2 => return b"..".to_vec(),
        3 => return vec![b'x'; 5000],
        4 => return b"//".to_vec(),
        _ => {}
    }
    let mut out = Vec::new();
    match rng.below(12) {
        0..=2 => out.push(b'/'),
        3 => out.extend_from_slice(b"./"),
        4 => out.extend_from_slice(b"../"),
        _ => {}
    }
    let depth = rng.pick(&[1, 1, 1, 2, 2, 3]);
    for at in 0..depth {
        if at > 0 {
            out.extend_from_slice(if rng.one_in(25) { b"//" } else { b"/" });
        }
        match rng.below(30) {
            0 => out.push(b'.'),
            1 => out.extend_from_slice(b".."),
            _ => out.extend(name(rng)),
        }
    }
    if rng.one_in(15) {
        out.push(b'/');
    }
    out
}

/// The text of a symlink. One that ends in a slash is left out: whether it can
/// be opened with `O_CREAT` is a question of taste.
fn target(rng: &mut Rng) -> Vec<u8> {
    let mut text = path(rng);
    while text.len() > 1 && text.ends_with(b"/") {
        text.pop();
    }
    text
}

impl Generator {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Generator { rng: Rng::new(seed), allocates: seed.is_multiple_of(2) }
    }

    fn path(&mut self) -> Arg {
        if self.rng.one_in(400) {
            return Arg::Int(self.rng.pick(&[0, 8]));
        }
        Arg::Text(path(&mut self.rng))
    }

    fn dir(&mut self) -> Arg {
        if self.rng.one_in(4) { self.fd() } else { Arg::Int(CWD) }
    }

    fn fd(&mut self) -> Arg {
        if self.rng.one_in(150) {
            return Arg::Int(self.rng.pick(&[-1, 200, 100_000]));
        }
        Arg::Int(FIRST_FD + self.rng.below(FDS).min(self.rng.below(FDS)) as i64)
    }

    fn mode(&mut self) -> Arg {
        Arg::Int(self.rng.pick(&MODES))
    }

    fn offset(&mut self) -> Arg {
        if self.rng.one_in(50) {
            return Arg::Int(self.rng.pick(&[-1, 1 << 33, i64::MAX, i64::MIN]));
        }
        Arg::Int(self.rng.pick(&OFFSETS))
    }

    /// An offset for things that allocate everything up to there.
    fn near(&mut self) -> i64 {
        if self.rng.one_in(60) { self.rng.pick(&[-1, i64::MAX]) } else { self.rng.pick(&OFFSETS) }
    }

    fn len(&mut self) -> usize {
        self.rng.pick(&LENGTHS)
    }

    fn fill(&mut self) -> (Arg, Arg) {
        let len = self.len();
        (Arg::Fill(self.rng.draw() as u8, len), Arg::Int(len as i64))
    }

    fn out(&mut self) -> (Arg, Arg) {
        let len = self.len();
        (Arg::Out(len), Arg::Int(len as i64))
    }

    fn lens(&mut self) -> Vec<usize> {
        (0..self.rng.below(4)).map(|_| self.len()).collect()
    }

    fn id(&mut self) -> Arg {
        Arg::Int(self.rng.pick(&[-1, 0, 0, 1000, 1000, 1001]))
    }

    fn times(&mut self) -> Arg {
        if self.rng.one_in(5) {
            return Arg::Int(0);
        }
        let mut words = Vec::new();
        // No modification time in the future: a directory of ours keeps the later of that and now.
        for last in [4_000_000_000, 1_500_000_000] {
            words.push(self.rng.pick(&[1, 1_000_000_000, 1_234_567_890, last, -2]));
            words.push(self.rng.pick(&[0, 5, 999_999_999, UTIME_NOW, UTIME_OMIT, 1_000_000_000]));
        }
        Arg::Words(words)
    }

    fn open_flags(&mut self) -> i32 {
        let r = &mut self.rng;
        let mut flags = r.pick(&[O_RDONLY, O_RDWR, O_RDWR, O_RDWR, O_WRONLY]);
        if r.one_in(2) {
            flags |= O_CREAT;
        }
        for (chance, flag) in [
            (6, O_EXCL),
            (6, O_TRUNC),
            (5, O_APPEND),
            (6, O_DIRECTORY),
            (10, O_NOFOLLOW),
            (20, O_PATH),
            (8, O_CLOEXEC),
            (20, O_NONBLOCK),
            (40, O_SYNC),
            (60, O_NOATIME),
        ] {
            if r.one_in(chance) {
                flags |= flag;
            }
        }
        if r.one_in(12) {
            // Directories to work from.
            flags = O_RDONLY | O_DIRECTORY;
        }
        if r.one_in(25) {
            flags = O_TMPFILE | r.pick(&[O_RDWR, O_WRONLY, O_RDONLY, O_RDWR | O_EXCL]);
        }
        flags
    }

    fn xattr_name(&mut self) -> Arg {
        let names: [&[u8]; 8] =
            [b"user.a", b"user.a", b"user.b", b"user.long-name-of-an-attribute", b"user.", b"nonsense", b"trusted.t", b"a.b"];
        Arg::Text(self.rng.pick(&names).to_vec())
    }

    fn xattr_value(&mut self) -> (Arg, Arg) {
        let len = self.rng.pick(&[0usize, 1, 10, 60, 200, 1000, 3000]);
        (Arg::Fill(self.rng.draw() as u8, len), Arg::Int(len as i64))
    }

    fn lock(&mut self) -> Arg {
        let kind = self.rng.pick(&[F_RDLCK, F_WRLCK, F_UNLCK, 9]) as i16;
        let whence = self.rng.pick(&[0i16, 0, 0, 1, 2]);
        Arg::Flock(kind, whence, self.rng.pick(&[0, 0, 5, 10, 100, -3]), self.rng.pick(&[0, 1, 10, 50, -5]))
    }

    /// The next step.
    pub fn step(&mut self) -> Op {
        match self.rng.below(1000) {
            0..=129 => self.open(),
            130..=199 => Op::call("close", nr::__NR_close, [self.fd()]),
            200..=349 => self.data(),
            350..=409 => self.space(),
            410..=649 => self.names(),
            650..=719 => self.look(),
            720..=799 => self.attributes(),
            800..=849 => self.descriptors(),
            850..=889 => self.xattrs(),
            890..=919 => Op { name: "readdir", step: Step::ReadDir(FIRST_FD + self.rng.below(FDS) as i64) },
            920..=939 => self.locks(),
            940..=959 => self.whereabouts(),
            960..=974 => Op { name: "user", step: Step::User(self.rng.pick(&[0, 0, 0, 1000, 1001])) },
            975..=984 => self.map(),
            _ => self.rare(),
        }
    }

    fn open(&mut self) -> Op {
        let flags = self.open_flags() as i64;
        let (dir, path, mode) = (self.dir(), self.path(), self.mode());
        #[cfg(target_arch = "x86_64")]
        match self.rng.below(20) {
            0 => return Op::call("open", nr::__NR_open, [path, Arg::Int(flags), mode]),
            1 => return Op::call("creat", nr::__NR_creat, [path, mode]),
            _ => {}
        }
        Op::call("openat", nr::__NR_openat, [dir, path, Arg::Int(flags), mode])
    }

    fn data(&mut self) -> Op {
        let fd = self.fd();
        match self.rng.below(16) {
            0..=1 => {
                let (out, len) = self.out();
                Op::call("read", nr::__NR_read, [fd, out, len])
            }
            2..=5 => {
                let (data, len) = self.fill();
                Op::call("write", nr::__NR_write, [fd, data, len])
            }
            6..=7 => {
                let (out, len) = self.out();
                Op::call("pread64", nr::__NR_pread64, [fd, out, len, self.offset()])
            }
            8..=10 => {
                let (data, len) = self.fill();
                Op::call("pwrite64", nr::__NR_pwrite64, [fd, data, len, self.offset()])
            }
            11 => {
                let lens = self.lens();
                let count = Arg::Int(lens.len() as i64);
                Op::call("readv", nr::__NR_readv, [fd, Arg::IovOut(lens), count])
            }
            12 => {
                let lens = self.lens();
                let count = Arg::Int(lens.len() as i64);
                Op::call("writev", nr::__NR_writev, [fd, Arg::IovFill(7, lens), count])
            }
            13 => {
                let lens = self.lens();
                let count = Arg::Int(lens.len() as i64);
                match self.rng.below(3) {
                    0 => Op::call("preadv", nr::__NR_preadv, [fd, Arg::IovOut(lens), count, self.offset()]),
                    1 => Op::call("pwritev", nr::__NR_pwritev, [fd, Arg::IovFill(9, lens), count, self.offset()]),
                    _ => Op::call(
                        "pwritev2",
                        nr::__NR_pwritev2,
                        [
                            fd,
                            Arg::IovFill(9, lens),
                            count,
                            Arg::Int(self.rng.pick(&[-1, 0, 4096])),
                            Arg::Int(0),
                            Arg::Int(self.rng.pick(&[0, 0, RWF_APPEND as i64])),
                        ],
                    ),
                }
            }
            _ => {
                let by_content = if self.allocates { SEEK_END } else { self.rng.pick(&[SEEK_DATA, SEEK_HOLE]) };
                let whence = self.rng.pick(&[SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END, by_content, by_content, 9]);
                let offset = if self.rng.one_in(8) { Arg::Int(-3) } else { self.offset() };
                Op::call("lseek", nr::__NR_lseek, [fd, offset, Arg::Int(whence as i64)])
            }
        }
    }

    fn space(&mut self) -> Op {
        match self.rng.below(8) {
            0..=1 => Op::call("ftruncate", nr::__NR_ftruncate, [self.fd(), self.offset()]),
            2 => Op::call("truncate", nr::__NR_truncate, [self.path(), self.offset()]),
            3..=5 => {
                let punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
                let allocate = if self.allocates { 0 } else { punch };
                let how = self.rng.pick(&[allocate, allocate | FALLOC_FL_KEEP_SIZE, punch, FALLOC_FL_PUNCH_HOLE]);
                let (mut offset, mut len) = (self.near(), self.rng.pick(&[1i64, 100, 4096, 10000, 65536, 0, -1]));
                if !self.allocates && offset < 1 << 30 && len > 0 {
                    // Whether a page at the end, punched as far as there are data, is a hole, is each one's own business.
                    (offset, len) = (offset & !4095, (len + 4095) & !4095);
                }
                Op::call("fallocate", nr::__NR_fallocate, [self.fd(), Arg::Int(how as i64), Arg::Int(offset), Arg::Int(len)])
            }
            6 => {
                let (a, b) = (self.fd(), self.fd());
                let len = Arg::Int(self.len() as i64);
                let at = |g: &mut Self| if g.rng.one_in(2) { Arg::Int(0) } else { Arg::Words(vec![g.rng.pick(&OFFSETS)]) };
                let (from, to) = (at(self), at(self));
                Op::call("copy_file_range", nr::__NR_copy_file_range, [a, from, b, to, len, Arg::Int(0)])
            }
            _ => match self.rng.below(3) {
                0 => Op::call("fsync", nr::__NR_fsync, [self.fd()]),
                1 => Op::call("fdatasync", nr::__NR_fdatasync, [self.fd()]),
                _ => {
                    let (fd, offset, len) = (self.fd(), self.offset(), self.offset());
                    Op::call("fadvise64", nr::__NR_fadvise64, [fd, offset, len, Arg::Int(self.rng.pick(&[0, 3, 4, 77]))])
                }
            },
        }
    }

    fn names(&mut self) -> Op {
        let (d, p) = (self.dir(), self.path());
        match self.rng.below(24) {
            0..=4 => Op::call(
                "mkdirat",
                nr::__NR_mkdirat,
                [d, p, Arg::Int(self.rng.pick(&[0o755, 0o755, 0o777, 0o700, 0o2775, 0o1775]))],
            ),
            5..=8 => {
                let flags = self.rng.pick(&[0, 0, 0, AT_REMOVEDIR, AT_REMOVEDIR, 1]);
                Op::call("unlinkat", nr::__NR_unlinkat, [d, p, Arg::Int(flags as i64)])
            }
            9..=13 => {
                let (d2, p2) = (self.dir(), self.path());
                let flags = self.rng.pick(&[0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_EXCHANGE | RENAME_NOREPLACE, 64]);
                Op::call("renameat2", nr::__NR_renameat2, [d, p, d2, p2, Arg::Int(flags as i64)])
            }
            14..=17 => {
                let (d2, p2) = (self.dir(), self.path());
                let flags = self.rng.pick(&[0, 0, 0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, 1]);
                let p = if flags == AT_EMPTY_PATH { Arg::Text(Vec::new()) } else { p };
                Op::call("linkat", nr::__NR_linkat, [d, p, d2, p2, Arg::Int(flags as i64)])
            }
            18..=20 => {
                let target = match self.rng.below(10) {
                    0 => Arg::Text(vec![b't'; 150]),
                    1 => Arg::Text(Vec::new()),
                    _ => Arg::Text(target(&mut self.rng)),
                };
                Op::call("symlinkat", nr::__NR_symlinkat, [target, d, p])
            }
            21 => {
                let kind = self.rng.pick(&[S_IFIFO, S_IFREG, S_IFSOCK, 0, S_IFCHR, S_IFDIR]) as i64;
                let device = if kind == S_IFCHR as i64 { 0x103 } else { 0 };
                Op::call("mknodat", nr::__NR_mknodat, [d, p, Arg::Int(kind | self.rng.pick(&MODES)), Arg::Int(device)])
            }
            _ => self.old_names(p),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn old_names(&mut self, p: Arg) -> Op {
        match self.rng.below(6) {
            0 => Op::call("mkdir", nr::__NR_mkdir, [p, Arg::Int(0o777)]),
            1 => Op::call("rmdir", nr::__NR_rmdir, [p]),
            2 => Op::call("unlink", nr::__NR_unlink, [p]),
            3 => Op::call("rename", nr::__NR_rename, [p, self.path()]),
            4 => Op::call("link", nr::__NR_link, [p, self.path()]),
            _ => Op::call("symlink", nr::__NR_symlink, [Arg::Text(target(&mut self.rng)), p]),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn old_names(&mut self, p: Arg) -> Op {
        Op::call("unlinkat", nr::__NR_unlinkat, [Arg::Int(CWD), p, Arg::Int(0)])
    }

    fn look(&mut self) -> Op {
        let (d, p) = (self.dir(), self.path());
        match self.rng.below(8) {
            0..=1 => {
                let flags = self.rng.pick(&[0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1]);
                Op::call("newfstatat", nr::__NR_newfstatat, [d, p, Arg::Stat, Arg::Int(flags as i64)])
            }
            2 => {
                let flags = self.rng.pick(&[0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH]);
                Op::call("statx", nr::__NR_statx, [d, p, Arg::Int(flags as i64), Arg::Int(0x7ff), Arg::Statx])
            }
            3 => Op::call("fstat", nr::__NR_fstat, [self.fd(), Arg::Stat]),
            4 => Op::call("faccessat", nr::__NR_faccessat, [d, p, Arg::Int(self.rng.pick(&[0, 1, 2, 4, 6, 7, 8]))]),
            5 => {
                let flags = self.rng.pick(&[0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1]);
                let want = self.rng.pick(&[0, 1, 2, 4, 6]);
                Op::call("faccessat2", nr::__NR_faccessat2, [d, p, Arg::Int(want), Arg::Int(flags as i64)])
            }
            _ => {
                let len = self.rng.pick(&[0usize, 1, 5, 100, 4096]);
                Op::call("readlinkat", nr::__NR_readlinkat, [d, p, Arg::Out(len), Arg::Int(len as i64)])
            }
        }
    }

    fn attributes(&mut self) -> Op {
        let (d, p) = (self.dir(), self.path());
        match self.rng.below(9) {
            0..=1 => Op::call("fchmodat", nr::__NR_fchmodat, [d, p, self.mode()]),
            2 => Op::call("fchmod", nr::__NR_fchmod, [self.fd(), self.mode()]),
            3..=4 => {
                let flags = self.rng.pick(&[0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1]);
                Op::call("fchownat", nr::__NR_fchownat, [d, p, self.id(), self.id(), Arg::Int(flags as i64)])
            }
            5 => Op::call("fchown", nr::__NR_fchown, [self.fd(), self.id(), self.id()]),
            6 => {
                let flags = self.rng.pick(&[0, AT_SYMLINK_NOFOLLOW, 1]);
                Op::call("fchmodat2", 452, [d, p, self.mode(), Arg::Int(flags as i64)])
            }
            7 => {
                let flags = self.rng.pick(&[0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1]);
                Op::call("utimensat", nr::__NR_utimensat, [d, p, self.times(), Arg::Int(flags as i64)])
            }
            _ => Op::call("utimensat", nr::__NR_utimensat, [self.fd(), Arg::Int(0), self.times(), Arg::Int(0)]),
        }
    }

    fn descriptors(&mut self) -> Op {
        match self.rng.below(10) {
            0..=1 => Op::call("dup", nr::__NR_dup, [self.fd()]),
            2 => Op::call("dup3", nr::__NR_dup3, [self.fd(), self.fd(), Arg::Int(self.rng.pick(&[0, O_CLOEXEC as i64, 1]))]),
            3 => Op::call("fcntl", nr::__NR_fcntl, [self.fd(), Arg::Int(F_DUPFD as i64), self.fd()]),
            4 => Op::call("fcntl", nr::__NR_fcntl, [self.fd(), Arg::Int(F_GETFD as i64)]),
            5 => Op::call("fcntl", nr::__NR_fcntl, [self.fd(), Arg::Int(F_SETFD as i64), Arg::Int(self.rng.pick(&[0, 1]))]),
            6 => Op::call("fcntl", nr::__NR_fcntl, [self.fd(), Arg::Int(F_GETFL as i64)]),
            7 => {
                let flags = self.rng.pick(&[0, O_APPEND, O_NONBLOCK, O_APPEND | O_RDWR, O_NOATIME]) as i64;
                Op::call("fcntl", nr::__NR_fcntl, [self.fd(), Arg::Int(F_SETFL as i64), Arg::Int(flags)])
            }
            8 => {
                let first = FIRST_FD + self.rng.below(FDS + 6) as i64;
                Op::call(
                    "close_range",
                    nr::__NR_close_range,
                    [Arg::Int(first), Arg::Int(first + self.rng.below(20) as i64), Arg::Int(0)],
                )
            }
            _ => Op::call("close", nr::__NR_close, [Arg::Int(FIRST_FD + self.rng.below(20) as i64)]),
        }
    }

    fn xattrs(&mut self) -> Op {
        let name = self.xattr_name();
        let out = self.rng.pick(&[0usize, 5, 300, 4000]);
        match self.rng.below(9) {
            0..=2 => {
                let (value, len) = self.xattr_value();
                let flags = Arg::Int(self.rng.pick(&[0, 0, 0, 1, 2, 3]));
                match self.rng.below(3) {
                    0 => Op::call("setxattr", nr::__NR_setxattr, [self.path(), name, value, len, flags]),
                    1 => Op::call("lsetxattr", nr::__NR_lsetxattr, [self.path(), name, value, len, flags]),
                    _ => Op::call("fsetxattr", nr::__NR_fsetxattr, [self.fd(), name, value, len, flags]),
                }
            }
            3 => Op::call("getxattr", nr::__NR_getxattr, [self.path(), name, Arg::Out(out), Arg::Int(out as i64)]),
            4 => Op::call("lgetxattr", nr::__NR_lgetxattr, [self.path(), name, Arg::Out(out), Arg::Int(out as i64)]),
            5 => Op::call("fgetxattr", nr::__NR_fgetxattr, [self.fd(), name, Arg::Out(out), Arg::Int(out as i64)]),
            6 => Op::call("removexattr", nr::__NR_removexattr, [self.path(), name]),
            7 => Op::call("lremovexattr", nr::__NR_lremovexattr, [self.path(), name]),
            _ => Op::call("fremovexattr", nr::__NR_fremovexattr, [self.fd(), name]),
        }
    }

    fn locks(&mut self) -> Op {
        let fd = self.fd();
        match self.rng.below(4) {
            0 => Op::call(
                "flock",
                nr::__NR_flock,
                [fd, Arg::Int((self.rng.pick(&[LOCK_SH, LOCK_EX, LOCK_UN, 77]) | LOCK_NB) as i64)],
            ),
            1 => Op::call("fcntl", nr::__NR_fcntl, [fd, Arg::Int(F_OFD_SETLK as i64), self.lock()]),
            2 => Op::call("fcntl", nr::__NR_fcntl, [fd, Arg::Int(self.rng.pick(&[F_OFD_GETLK, F_GETLK]) as i64), self.lock()]),
            _ => Op::call("fcntl", nr::__NR_fcntl, [fd, Arg::Int(F_SETLK as i64), self.lock()]),
        }
    }

    fn whereabouts(&mut self) -> Op {
        match self.rng.below(6) {
            0..=1 => Op::call("chdir", nr::__NR_chdir, [self.path()]),
            2 => Op::call("chdir", nr::__NR_chdir, [Arg::Text(b"/".to_vec())]),
            3 => Op::call("fchdir", nr::__NR_fchdir, [self.fd()]),
            4 => {
                let len = self.rng.pick(&[0usize, 1, 2, 10, 4096]);
                Op::call("getcwd", nr::__NR_getcwd, [Arg::Out(len), Arg::Int(len as i64)])
            }
            _ => Op::call("umask", nr::__NR_umask, [Arg::Int(self.rng.pick(&[0o22, 0, 0o77, 0o27]))]),
        }
    }

    fn map(&mut self) -> Op {
        let write = if self.rng.one_in(2) { Some(self.rng.draw() as u8) } else { None };
        Op {
            name: "mmap",
            step: Step::Map {
                fd: FIRST_FD + self.rng.below(FDS) as i64,
                offset: self.rng.pick(&[0, 0, 4096, 8192, 100]),
                len: self.rng.pick(&[0usize, 100, 4096, 10000, 65536]),
                shared: self.rng.one_in(2),
                write,
            },
        }
    }

    fn rare(&mut self) -> Op {
        match self.rng.below(6) {
            0 => Op::call(
                "ioctl",
                nr::__NR_ioctl,
                [self.fd(), Arg::Int(self.rng.pick(&[0x5451, 0x5450, 0x5401, 0x1234])), Arg::Int(0)],
            ),
            1 => Op::call("sendfile", nr::__NR_sendfile, [self.fd(), self.fd(), Arg::Int(0), Arg::Int(self.len() as i64)]),
            2 => Op::call(
                "sync_file_range",
                nr::__NR_sync_file_range,
                [self.fd(), self.offset(), self.offset(), Arg::Int(self.rng.pick(&[0, 7, 9]))],
            ),
            3 => Op::call("getdents64", nr::__NR_getdents64, [self.fd(), Arg::Out(10), Arg::Int(10)]),
            4 => Op::call("readahead", nr::__NR_readahead, [self.fd(), self.offset(), Arg::Int(4096)]),
            _ => Op::call("sync", nr::__NR_sync, []),
        }
    }
}

/// The sequence of `len` steps that belongs to `seed`.
pub fn sequence(seed: u64, len: usize) -> Vec<Op> {
    let mut generator = Generator::new(seed);
    (0..len).map(|_| generator.step()).collect()
}

//! Goal: the calls on `mem` through `handle` give the results and error numbers
//! of tmpfs. Method: random sequences over a small set of names and
//! descriptors, made in both worlds, compared call by call; the seed is printed.
//! `BYPATH_SEED`, `BYPATH_OPS` choose another run.

mod common;
use common::{Random, World};
use pm::sys::abi::*;

const SLOTS: usize = 8;

/// One call, in terms that mean the same in both worlds.
#[derive(Clone, Debug)]
enum Op {
    Open { at: usize, path: String, flags: u32, mode: u32, slot: usize },
    Close { slot: usize },
    Dup { from: usize, to: usize },
    Dup2 { from: usize, to: usize },
    Read { slot: usize, len: usize },
    Write { slot: usize, len: usize, fill: u8 },
    Pread { slot: usize, len: usize, at: i64 },
    Pwrite { slot: usize, len: usize, at: i64, fill: u8 },
    Readv { slot: usize },
    Writev { slot: usize, fill: u8 },
    Seek { slot: usize, offset: i64, whence: u32 },
    Truncate { path: String, len: i64 },
    Ftruncate { slot: usize, len: i64 },
    Fallocate { slot: usize, mode: u32, offset: i64, len: i64 },
    Stat { at: usize, path: String, flags: u32 },
    Fstat { slot: usize },
    Statx { path: String, flags: u32 },
    Access { path: String, mode: u32, flags: u32 },
    Mkdir { at: usize, path: String, mode: u32 },
    Mknod { path: String, mode: u32 },
    Symlink { target: String, path: String },
    Link { from: String, to: String, flags: u32 },
    LinkFd { slot: usize, to: String },
    Unlink { at: usize, path: String, flags: u32 },
    Rename { from: String, to: String, flags: u32 },
    Readlink { path: String },
    Chmod { path: String, mode: u32 },
    Fchmod { slot: usize, mode: u32 },
    Chown { path: String, uid: u32, gid: u32, flags: u32 },
    Times { path: String, times: [i64; 4], flags: u32 },
    List { path: String },
    Chdir { path: String },
    Fchdir { slot: usize },
    Getcwd { len: usize },
    GetFl { slot: usize },
    SetFl { slot: usize, flags: u32 },
    Lock { slot: usize, kind: i16, start: i64, len: i64, command: u32 },
    Flock { slot: usize, operation: u32 },
    SetX { path: String, name: String, len: usize, flags: u32 },
    GetX { path: String, name: String, len: usize },
    ListX { path: String },
    RemoveX { path: String, name: String },
    Copy { from: usize, to: usize, at: [i64; 2], len: usize },
    Sendfile { from: usize, to: usize, len: usize },
    User { uid: u32 },
    ProcFd { slot: usize, flags: u32, to: usize },
    Ioctl { slot: usize, request: u32 },
    Fsync { slot: usize },
}

/// A world with its descriptors.
struct Run {
    world: World,
    slots: [i32; SLOTS],
}

const NONE: i32 = 15000;
const AT: usize = AT_FDCWD as usize;

impl Run {
    fn new(world: World) -> Run {
        Run { world, slots: [NONE; SLOTS] }
    }

    fn fd(&self, slot: usize) -> usize {
        self.slots[slot] as usize
    }

    /// Directory argument: a slot, or (one past the slots) the root by name, or the working directory.
    fn dir(&self, at: usize, path: &str) -> (usize, Vec<u8>) {
        if at < SLOTS {
            (self.fd(at), format!("{path}\0").into_bytes())
        } else if at == SLOTS {
            (AT, self.world.path(path))
        } else {
            (AT, format!("{path}\0").into_bytes())
        }
    }

    fn put(&mut self, slot: usize, result: isize) -> Vec<i64> {
        if result < 0 {
            return vec![result as i64];
        }
        // An open FIFO of ours is the kernel's: nothing more to compare.
        let mut out = new_stat();
        self.world.call(__NR_fstat, [result as usize, &raw mut out as usize, 0, 0, 0, 0]);
        if out.st_mode & 0o170000 == 0o010000
            && self.world.call(__NR_fcntl, [result as usize, F_GETFL as usize, 0, 0, 0, 0]) & O_PATH as isize == 0
        {
            self.world.call(__NR_close, [result as usize, 0, 0, 0, 0, 0]);
            return vec![1];
        }
        if self.slots[slot] != NONE {
            self.world.call(__NR_close, [self.fd(slot), 0, 0, 0, 0, 0]);
        }
        self.slots[slot] = result as i32;
        vec![0]
    }

    fn c(&self, nr: u32, args: &[usize]) -> isize {
        let mut six = [0; 6];
        six[..args.len()].copy_from_slice(args);
        self.world.call(nr, six)
    }

    fn run(&mut self, op: &Op) -> Vec<i64> {
        let one = |r: isize| vec![r as i64];
        let root = |p: &str| self.world.path(p);
        match op {
            Op::Open { at, path, flags, mode, slot } => {
                let (dir, path) = self.dir(*at, path);
                let result = self.c(__NR_openat, &[dir, path.as_ptr() as usize, *flags as usize, *mode as usize]);
                self.put(*slot, result)
            }
            Op::Close { slot } => {
                let result = self.c(__NR_close, &[self.fd(*slot)]);
                self.slots[*slot] = NONE;
                one(result)
            }
            Op::Dup { from, to } => {
                let result = self.c(__NR_dup, &[self.fd(*from)]);
                self.put(*to, result)
            }
            Op::Dup2 { from, to } => {
                if self.slots[*to] == NONE {
                    return vec![];
                }
                let result = self.c(__NR_dup3, &[self.fd(*from), self.fd(*to), 0]);
                one(if result > 0 { 0 } else { result })
            }
            Op::Read { slot, len } => {
                let mut buffer = vec![0u8; *len];
                let result = self.c(__NR_read, &[self.fd(*slot), buffer.as_mut_ptr() as usize, *len]);
                data(result, &buffer)
            }
            Op::Write { slot, len, fill } => {
                let buffer = pattern(*len, *fill);
                one(self.c(__NR_write, &[self.fd(*slot), buffer.as_ptr() as usize, *len]))
            }
            Op::Pread { slot, len, at } => {
                let mut buffer = vec![0u8; *len];
                let result = self.c(__NR_pread64, &[self.fd(*slot), buffer.as_mut_ptr() as usize, *len, *at as usize]);
                data(result, &buffer)
            }
            Op::Pwrite { slot, len, at, fill } => {
                let buffer = pattern(*len, *fill);
                one(self.c(__NR_pwrite64, &[self.fd(*slot), buffer.as_ptr() as usize, *len, *at as usize]))
            }
            Op::Readv { slot } => {
                let mut buffer = vec![0u8; 300];
                let p = buffer.as_mut_ptr() as usize;
                let vector = [p, 100, p + 100, 0, p + 100, 200];
                let result = self.c(__NR_readv, &[self.fd(*slot), vector.as_ptr() as usize, 3]);
                data(result, &buffer)
            }
            Op::Writev { slot, fill } => {
                let buffer = pattern(5000, *fill);
                let p = buffer.as_ptr() as usize;
                let vector = [p, 10, p + 10, 0, p + 10, 4990];
                one(self.c(__NR_writev, &[self.fd(*slot), vector.as_ptr() as usize, 3]))
            }
            Op::Seek { slot, offset, whence } => {
                let before = self.c(__NR_lseek, &[self.fd(*slot), 0, 1]);
                let result = self.c(__NR_lseek, &[self.fd(*slot), *offset as usize, *whence as usize]);
                if *whence > 2 && result >= 0 {
                    self.c(__NR_lseek, &[self.fd(*slot), before as usize, 0]);
                }
                one(result)
            }
            Op::Truncate { path, len } => one(self.c(__NR_truncate, &[root(path).as_ptr() as usize, *len as usize])),
            Op::Ftruncate { slot, len } => one(self.c(__NR_ftruncate, &[self.fd(*slot), *len as usize])),
            Op::Fallocate { slot, mode, offset, len } => {
                one(self.c(__NR_fallocate, &[self.fd(*slot), *mode as usize, *offset as usize, *len as usize]))
            }
            Op::Stat { at, path, flags } => {
                let (dir, path) = self.dir(*at, path);
                let mut out = new_stat();
                let result = self.c(__NR_newfstatat, &[dir, path.as_ptr() as usize, &raw mut out as usize, *flags as usize]);
                stat_data(result, &out)
            }
            Op::Fstat { slot } => {
                let mut out = new_stat();
                let result = self.c(__NR_fstat, &[self.fd(*slot), &raw mut out as usize]);
                stat_data(result, &out)
            }
            Op::Statx { path, flags } => {
                // SAFETY: plain numbers: all zeros is a value of the type.
                let mut out: statx = unsafe { std::mem::zeroed() };
                let result =
                    self.c(__NR_statx, &[AT, root(path).as_ptr() as usize, *flags as usize, 0xfff, &raw mut out as usize]);
                if result < 0 {
                    return one(result);
                }
                vec![
                    0,
                    out.stx_mode as i64,
                    out.stx_nlink as i64,
                    out.stx_uid as i64,
                    out.stx_size as i64,
                    out.stx_blocks as i64,
                    (out.stx_mask & 0xfff) as i64,
                ]
            }
            Op::Access { path, mode, flags } => {
                one(self.c(__NR_faccessat2, &[AT, root(path).as_ptr() as usize, *mode as usize, *flags as usize]))
            }
            Op::Mkdir { at, path, mode } => {
                let (dir, path) = self.dir(*at, path);
                one(self.c(__NR_mkdirat, &[dir, path.as_ptr() as usize, *mode as usize]))
            }
            Op::Mknod { path, mode } => one(self.c(__NR_mknodat, &[AT, root(path).as_ptr() as usize, *mode as usize, 0])),
            Op::Symlink { target, path } => {
                let target = match target.strip_prefix('/') {
                    Some(rest) => root(rest),
                    None => format!("{target}\0").into_bytes(),
                };
                one(self.c(__NR_symlinkat, &[target.as_ptr() as usize, AT, root(path).as_ptr() as usize]))
            }
            Op::Link { from, to, flags } => {
                one(self.c(__NR_linkat, &[AT, root(from).as_ptr() as usize, AT, root(to).as_ptr() as usize, *flags as usize]))
            }
            Op::LinkFd { slot, to } => {
                let from = format!("/proc/self/fd/{}\0", self.slots[*slot]);
                one(self
                    .c(__NR_linkat, &[AT, from.as_ptr() as usize, AT, root(to).as_ptr() as usize, AT_SYMLINK_FOLLOW as usize]))
            }
            Op::Unlink { at, path, flags } => {
                let (dir, path) = self.dir(*at, path);
                one(self.c(__NR_unlinkat, &[dir, path.as_ptr() as usize, *flags as usize]))
            }
            Op::Rename { from, to, flags } => {
                one(self.c(__NR_renameat2, &[AT, root(from).as_ptr() as usize, AT, root(to).as_ptr() as usize, *flags as usize]))
            }
            Op::Readlink { path } => {
                let mut buffer = vec![0u8; 200];
                let result = self.c(__NR_readlinkat, &[AT, root(path).as_ptr() as usize, buffer.as_mut_ptr() as usize, 200]);
                self.text_data(result, buffer)
            }
            Op::Chmod { path, mode } => one(self.c(__NR_fchmodat, &[AT, root(path).as_ptr() as usize, *mode as usize])),
            Op::Fchmod { slot, mode } => one(self.c(__NR_fchmod, &[self.fd(*slot), *mode as usize])),
            Op::Chown { path, uid, gid, flags } => {
                one(self.c(__NR_fchownat, &[AT, root(path).as_ptr() as usize, *uid as usize, *gid as usize, *flags as usize]))
            }
            Op::Times { path, times, flags } => {
                one(self.c(__NR_utimensat, &[AT, root(path).as_ptr() as usize, times.as_ptr() as usize, *flags as usize]))
            }
            Op::List { path } => self.list(path),
            Op::Chdir { path } => one(self.c(__NR_chdir, &[root(path).as_ptr() as usize])),
            Op::Fchdir { slot } => one(self.c(__NR_fchdir, &[self.fd(*slot)])),
            Op::Getcwd { len } => {
                let mut buffer = vec![0u8; *len];
                let result = self.c(__NR_getcwd, &[buffer.as_mut_ptr() as usize, *len]);
                self.text_data(result, buffer)
            }
            Op::GetFl { slot } => one(self.c(__NR_fcntl, &[self.fd(*slot), F_GETFL as usize])),
            Op::SetFl { slot, flags } => one(self.c(__NR_fcntl, &[self.fd(*slot), F_SETFL as usize, *flags as usize])),
            Op::Lock { slot, kind, start, len, command } => {
                let mut lock: [i64; 4] = [*kind as i64 & 0xffff, *start, *len, 0];
                let result = self.c(__NR_fcntl, &[self.fd(*slot), *command as usize, lock.as_mut_ptr() as usize]);
                if result < 0 {
                    return one(result);
                }
                vec![0, lock[0], lock[1], lock[2]]
            }
            Op::Flock { slot, operation } => one(self.c(__NR_flock, &[self.fd(*slot), *operation as usize])),
            Op::SetX { path, name, len, flags } => {
                let value = pattern(*len, 7);
                let name = format!("{name}\0");
                one(self.c(
                    __NR_setxattr,
                    &[root(path).as_ptr() as usize, name.as_ptr() as usize, value.as_ptr() as usize, *len, *flags as usize],
                ))
            }
            Op::GetX { path, name, len } => {
                let mut value = vec![0u8; *len];
                let name = format!("{name}\0");
                let result = self
                    .c(__NR_getxattr, &[root(path).as_ptr() as usize, name.as_ptr() as usize, value.as_mut_ptr() as usize, *len]);
                if *len == 0 { one(result) } else { data(result, &value) }
            }
            Op::ListX { path } => {
                let mut names = vec![0u8; 1000];
                let result = self.c(__NR_llistxattr, &[root(path).as_ptr() as usize, names.as_mut_ptr() as usize, 1000]);
                if result < 0 {
                    return one(result);
                }
                let mut names: Vec<&[u8]> = names[..result as usize].split(|&b| b == 0).collect();
                names.sort();
                vec![result as i64, hash(&names.concat())]
            }
            Op::RemoveX { path, name } => {
                let name = format!("{name}\0");
                one(self.c(__NR_removexattr, &[root(path).as_ptr() as usize, name.as_ptr() as usize]))
            }
            Op::Copy { from, to, at, len } => {
                let mut at = *at;
                let p = |x: &mut i64| if *x == -7 { 0 } else { x as *mut i64 as usize };
                let [a, b] = &mut at;
                let (a, b) = (p(a), p(b));
                let result = self.c(__NR_copy_file_range, &[self.fd(*from), a, self.fd(*to), b, *len, 0]);
                vec![result as i64, at[0], at[1]]
            }
            // From a file to itself it depends on the size of the kernel's pipe.
            Op::Sendfile { from, to, .. } if self.same_file(*from, *to) => vec![],
            Op::Sendfile { from, to, len } => one(self.c(__NR_sendfile, &[self.fd(*to), self.fd(*from), 0, *len])),
            Op::User { uid } => {
                self.world.become_user(*uid);
                vec![]
            }
            Op::ProcFd { slot, flags, to } => {
                let path = format!("/proc/self/fd/{}\0", self.slots[*slot]);
                let result = self.c(__NR_openat, &[AT, path.as_ptr() as usize, *flags as usize, 0]);
                self.put(*to, result)
            }
            Op::Ioctl { slot, request } => {
                let mut value = 0u32;
                let result = self.c(__NR_ioctl, &[self.fd(*slot), *request as usize, &raw mut value as usize]);
                vec![result as i64, value as i64]
            }
            Op::Fsync { slot } => one(self.c(__NR_fsync, &[self.fd(*slot)])),
        }
    }

    fn same_file(&self, one: usize, other: usize) -> bool {
        let [mut a, mut b] = [new_stat(), new_stat()];
        self.c(__NR_fstat, &[self.fd(one), &raw mut a as usize]) == 0
            && self.c(__NR_fstat, &[self.fd(other), &raw mut b as usize]) == 0
            && a.st_ino == b.st_ino
    }

    /// Text that may hold the root's path, which differs.
    fn text_data(&self, result: isize, buffer: Vec<u8>) -> Vec<i64> {
        if result < 0 {
            return vec![result as i64];
        }
        let text = String::from_utf8_lossy(&buffer[..result as usize]).replace(&self.world.root, "ROOT");
        let text = text.replace(self.world.root.rsplit_once("/r").unwrap().0, "ABOVE");
        vec![result as i64, hash(text.as_bytes())]
    }

    fn list(&mut self, path: &str) -> Vec<i64> {
        let path = self.world.path(path);
        let fd = self.c(__NR_openat, &[AT, path.as_ptr() as usize, (O_RDONLY | O_DIRECTORY) as usize]);
        if fd < 0 {
            return vec![fd as i64];
        }
        let mut names: Vec<(Vec<u8>, u8)> = vec![];
        loop {
            let mut buffer = vec![0u8; 320];
            let got = self.c(__NR_getdents64, &[fd as usize, buffer.as_mut_ptr() as usize, buffer.len()]);
            if got <= 0 {
                if got < 0 {
                    names.push((vec![], -got as u8));
                }
                break;
            }
            let mut at = 0;
            while at < got as usize {
                let len = u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
                let name = &buffer[at + 19..at + len];
                let end = name.iter().position(|&b| b == 0).unwrap();
                names.push((name[..end].to_vec(), buffer[at + 18]));
                at += len;
            }
        }
        self.c(__NR_close, &[fd as usize]);
        names.sort();
        let mut result = vec![names.len() as i64];
        result.extend(names.iter().map(|(n, k)| hash(n) ^ *k as i64));
        result
    }
}

fn hash(bytes: &[u8]) -> i64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3)) as i64
}

fn pattern(len: usize, fill: u8) -> Vec<u8> {
    (0..len).map(|i| fill.wrapping_add((i / 7) as u8)).collect()
}

fn data(result: isize, buffer: &[u8]) -> Vec<i64> {
    if result < 0 { vec![result as i64] } else { vec![result as i64, hash(&buffer[..result as usize])] }
}

fn new_stat() -> stat {
    // SAFETY: plain numbers: all zeros is a value of the type.
    unsafe { std::mem::zeroed() }
}

fn stat_data(result: isize, out: &stat) -> Vec<i64> {
    if result < 0 {
        return vec![result as i64];
    }
    let old = |t: i64| if t < 1_000_000_000 { t } else { -1 };
    vec![
        0,
        out.st_mode as i64,
        out.st_nlink as i64,
        out.st_uid as i64,
        out.st_gid as i64,
        out.st_size,
        out.st_blocks,
        old(out.st_mtime as i64),
        out.st_rdev as i64,
    ]
}

fn path(r: &mut Random) -> String {
    let names = ["a", "b", "c", "d", "e"];
    let mut path = String::new();
    let depth = 1 + r.below(3);
    for level in 0..depth {
        if level > 0 {
            path.push_str(if r.below(30) == 0 { "//" } else { "/" });
        }
        match r.below(60) {
            0 => path.push('.'),
            1 if level > 0 => path.push_str(".."),
            2 => path.push_str(&"n".repeat(254 + r.below(3) as usize)),
            _ => path.push_str(r.pick::<&str>(&names)),
        }
    }
    if r.below(15) == 0 {
        path.push('/');
    }
    if r.below(200) == 0 { String::new() } else { path }
}

/// Not the mount point itself, whose removal depends on rights outside.
fn below(r: &mut Random) -> String {
    let path = path(r);
    if path.is_empty() { "a".into() } else { path }
}

fn op(r: &mut Random) -> Op {
    let slot = r.below(SLOTS as u64) as usize;
    let other = r.below(SLOTS as u64) as usize;
    let at = r.below(SLOTS as u64 * 2) as usize;
    let at = if at > SLOTS + 1 { SLOTS } else { at };
    let mode = *r.pick(&[0o777, 0o755, 0o700, 0o644, 0o600, 0o1777, 0o2775, 0o4755, 0o2755, 0o6711, 0o000, 0o555, 0o111]);
    let len = *r.pick(&[0usize, 1, 10, 100, 4096, 4097, 9000, 20000]);
    let offset = *r.pick(&[0i64, 0, 1, 5, 100, 4000, 4096, 8192, 10000, 50000, -1, -5]);
    let fill = r.next() as u8;
    match r.below(60) {
        0..=5 => {
            let mut flags = *r.pick(&[O_RDONLY, O_WRONLY, O_RDWR, O_RDWR]);
            for flag in
                [O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_PATH, O_CLOEXEC, O_NONBLOCK, O_NOATIME]
            {
                if r.below(5) == 0 {
                    flags |= flag;
                }
            }
            if r.below(20) == 0 {
                flags |= O_TMPFILE;
            }
            // A FIFO must not block.
            Op::Open { at, path: below(r), flags: flags | O_NONBLOCK, mode, slot }
        }
        6 => Op::Close { slot },
        7 => Op::Dup { from: slot, to: other },
        8 => Op::Dup2 { from: slot, to: other },
        9 | 10 => Op::Read { slot, len },
        11..=13 => Op::Write { slot, len, fill },
        14 => Op::Pread { slot, len, at: offset },
        15 => Op::Pwrite { slot, len, at: offset, fill },
        16 => Op::Readv { slot },
        17 => Op::Writev { slot, fill },
        18 => Op::Seek { slot, offset, whence: r.below(6) as u32 },
        19 => Op::Truncate { path: path(r), len: offset },
        20 => Op::Ftruncate { slot, len: offset },
        21 => Op::Fallocate { slot, mode: *r.pick(&[0, 1, 3, 2, 3]), offset, len: len as i64 },
        22..=24 => Op::Stat { at, path: path(r), flags: *r.pick(&[0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0x8000_0000]) },
        25 => Op::Fstat { slot },
        26 => Op::Statx { path: path(r), flags: *r.pick(&[0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0x6000]) },
        27 => Op::Access { path: path(r), mode: r.below(9) as u32, flags: *r.pick(&[0, 0x200, 0x100]) },
        28..=30 => Op::Mkdir { at, path: path(r), mode },
        31 => Op::Mknod { path: path(r), mode: mode | *r.pick(&[0o10000, 0o100000, 0o140000, 0, 0o40000, 0o120000, 0o20000]) },
        32 | 33 => {
            let target = path(r);
            Op::Symlink { target: if r.below(4) == 0 { format!("/{target}") } else { target }, path: path(r) }
        }
        34 | 35 => Op::Link { from: path(r), to: path(r), flags: *r.pick(&[0, 0, AT_SYMLINK_FOLLOW, 7]) },
        36 => Op::LinkFd { slot, to: path(r) },
        37..=39 => Op::Unlink { at, path: below(r), flags: *r.pick(&[0, 0, AT_REMOVEDIR, 1]) },
        40..=43 => Op::Rename { from: below(r), to: below(r), flags: *r.pick(&[0, 0, 0, 1, 2, 3, 8]) },
        44 => Op::Readlink { path: path(r) },
        45 => Op::Chmod { path: path(r), mode },
        46 => Op::Fchmod { slot, mode },
        47 => Op::Chown {
            path: path(r),
            uid: *r.pick(&[u32::MAX, 0, 1000, 1001]),
            gid: *r.pick(&[u32::MAX, 0, 1000, 1001]),
            flags: *r.pick(&[0, AT_SYMLINK_NOFOLLOW]),
        },
        48 => {
            let nsec = [0, 5, 0x3fff_ffff, 0x3fff_fffe, 1_000_000_000];
            Op::Times {
                path: path(r),
                times: [100, *r.pick(&nsec), -100, *r.pick(&nsec)],
                flags: *r.pick(&[0, AT_SYMLINK_NOFOLLOW]),
            }
        }
        49 => Op::List { path: path(r) },
        50 => match r.below(4) {
            0 => Op::Chdir { path: path(r) },
            1 => Op::Fchdir { slot },
            2 => Op::Getcwd { len: *r.pick(&[1usize, 20, 300, 5000]) },
            _ => Op::Ioctl { slot, request: *r.pick(&[0x541b, 0x5401, 0x5451, 0x4004_6601, 2]) },
        },
        51 => match r.below(2) {
            0 => Op::GetFl { slot },
            _ => Op::SetFl { slot, flags: *r.pick(&[0, O_APPEND, O_NONBLOCK, O_NOATIME, O_RDWR]) },
        },
        52 => Op::Lock {
            slot,
            kind: r.below(4) as i16,
            start: offset,
            len: *r.pick(&[0i64, 1, 10, 1000, -1]),
            command: *r.pick(&[F_GETLK, F_SETLK, F_SETLK, F_OFD_GETLK, F_OFD_SETLK]),
        },
        53 => Op::Flock { slot, operation: *r.pick(&[5, 6, 8, 7]) },
        54 => match r.below(4) {
            0 | 1 => Op::SetX { path: path(r), name: xname(r), len: len.min(100), flags: r.below(4) as u32 },
            2 => Op::GetX { path: path(r), name: xname(r), len: len.min(100) },
            _ => Op::RemoveX { path: path(r), name: xname(r) },
        },
        55 => Op::ListX { path: path(r) },
        56 => Op::Copy { from: slot, to: other, at: [*r.pick(&[-7, 0, 100, 5000]), *r.pick(&[-7, 0, 100, 5000])], len },
        57 => Op::Sendfile { from: slot, to: other, len },
        58 => match r.below(3) {
            0 => Op::User { uid: *r.pick(&[0, 0, 0, 1000, 1001]) },
            _ => Op::Fsync { slot },
        },
        _ => Op::ProcFd { slot, flags: *r.pick(&[O_RDONLY, O_RDWR, O_WRONLY | O_TRUNC]) | O_NONBLOCK, to: other },
    }
}

fn xname(r: &mut Random) -> String {
    r.pick(&["user.a", "user.b", "other.o", "user.", "nodot"]).to_string()
}

/// Known and kept: for `O_CREAT` through a symlink that ends in a slash, the
/// kernel looks at the slash before it goes on; and whether space allocated in
/// advance is data or a hole is each file system's own.
fn allowed(op: &Op, mine: &[i64], theirs: &[i64]) -> bool {
    match op {
        Op::Open { flags, .. } => flags & O_CREAT != 0 && mine[0] < 0 && theirs == [-21],
        Op::Seek { whence, .. } => *whence > 2 && (mine[0] >= 0 || mine == [-6]) && (theirs[0] >= 0 || theirs == [-6]),
        _ => false,
    }
}

/// Whether it may join our tree and its surroundings, which is EXDEV for us, but
/// not for tmpfs where it is a mere directory because we may not mount.
fn leaves_the_tree(op: &Op) -> bool {
    matches!(op, Op::Link { from, to, .. } | Op::Rename { from, to, .. } if from.contains("..") || to.contains(".."))
}

/// The same sequence in both worlds.
fn differ(seed: u64, count: usize) {
    println!("seed {seed}");
    // The kernel's world has a thread with its own working directory and mask,
    // because ours moves those of this one.
    let (ask, asked) = std::sync::mpsc::channel::<Op>();
    let (answer, answered) = std::sync::mpsc::channel();
    let oracle = std::thread::spawn(move || {
        const CLONE_FS: usize = 0x200;
        // SAFETY: numbers only.
        unsafe { pm::sys::raw(__NR_unshare as usize, [CLONE_FS, 0, 0, 0, 0, 0]) };
        let mut kernel = Run::new(World::kernel());
        while let Ok(op) = asked.recv() {
            let _ = answer.send(kernel.run(&op));
        }
    });
    let mut ours = Run::new(World::ours());
    let mut random = Random(seed | 1);
    let mut history = std::collections::VecDeque::new();
    let mut failure = None;
    for index in 0..count {
        let op = if index == 0 { Op::Chdir { path: ".".into() } } else { op(&mut random) };
        if leaves_the_tree(&op) && !common::is_root() {
            continue;
        }
        ask.send(op.clone()).unwrap();
        let theirs = answered.recv().unwrap();
        let mine = ours.run(&op);
        history.push_back(format!("{op:?} -> {mine:?}"));
        if history.len() > number("BYPATH_HISTORY", 30) as usize {
            history.pop_front();
        }
        if mine != theirs && !allowed(&op, &mine, &theirs) {
            for line in &history {
                println!("{line}");
            }
            println!("{:?}", ours.slots);
            failure = Some(format!("seed {seed}, call {index}: {op:?}\n ours {mine:?}\n tmpfs {theirs:?}"));
            break;
        }
    }
    drop(ask);
    drop(ours);
    oracle.join().unwrap();
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn mem_behaves_as_tmpfs() {
    let count = number("BYPATH_OPS", 20_000) as usize;
    let first = number("BYPATH_SEED", 0);
    if first != 0 {
        return differ(first, count);
    }
    for seed in 1..=10 {
        differ(seed * 7919, count);
    }
}

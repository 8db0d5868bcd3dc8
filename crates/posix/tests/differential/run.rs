//! A call made in one of the worlds, and what of its result can be compared.

use crate::common::World;
use crate::op::{Op, SLOTS};
use pm::sys::abi::*;

/// A world with its descriptors.
pub struct Run {
    world: World,
    pub slots: [i32; SLOTS],
}

const NONE: i32 = 15000;
const AT: usize = AT_FDCWD as usize;

impl Run {
    pub fn new(world: World) -> Run {
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

    pub fn run(&mut self, op: &Op) -> Vec<i64> {
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

//! The calls, and how they are chosen: small sets of names, lengths and flags, so that they meet.

use crate::common::Random;
use pm::sys::abi::*;

/// So many descriptors are kept open at a time.
pub const SLOTS: usize = 8;

/// One call, in terms that mean the same in both worlds.
#[derive(Clone, Debug)]
pub enum Op {
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

pub fn op(r: &mut Random) -> Op {
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

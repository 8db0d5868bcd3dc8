//! Operations of another program on the directory below, by the kernel, and what each side writes into files.

use crate::bench::Op::{self, *};
use crate::bench::text;
use rustix::fs as r;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// An operation of a program outside of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theirs {
    /// With `O_APPEND`.
    Add(&'static str, usize),
    /// In place.
    Put(&'static str, u64, usize),
    /// Shorter or longer.
    Size(&'static str, u64),
    Mode(&'static str, u32),
    Time(&'static str),
    Note(&'static str),
    /// Takes the attribute away that the tree begins with.
    Unnote(&'static str),
    /// A new file is renamed over it, as most editors do.
    Replace(&'static str),
    Remove(&'static str),
    /// Removed and made again.
    Remake(&'static str),
    Move(&'static str, &'static str),
    Swap(&'static str, &'static str),
    NewFile(&'static str),
    NewDir(&'static str),
    RemoveDir(&'static str),
    RemoveTree(&'static str),
    Name(&'static str, &'static str),
}

use Theirs::*;

/// All that the explorer combines with the operations of a session.
pub const THEIRS: &[Theirs] = &[
    Add("f", 7),
    Put("f", 3, 2),
    Replace("f"),
    Remove("f"),
    Move("f", "f2"),
    Mode("f", 0o640),
    Add("big", 5_000),
    Put("big", 71_000, 100),
    Put("big", 200_000, 1_000),
    Size("big", 100_000),
    Size("big", 500_000),
    Replace("big"),
    NewFile("new"),
    NewFile("g"),
    NewDir("n"),
    Remake("f"),
    Put("f", 0, 2),
    Time("f"),
    Note("f"),
    Unnote("f"),
    Name("f", "l9"),
    Move("f", "empty/f"),
    Swap("f", "d"),
    Move("d", "d9"),
    Move("d/e", "e9"),
    Move("empty", "d/e/empty"),
    RemoveDir("empty"),
    RemoveTree("d"),
    NewFile("empty/t"),
    NewFile("d/new"),
    Add("d/e/deep", 9),
    Replace("d/e/deep"),
    Remove("d/e/deep"),
    Add("hard2", 6),
    Remove("hard1"),
    Name("hard1", "l1"),
    Mode("d", 0o750),
    Time("big"),
];

/// A time that they set, seconds.
pub const THEIR_TIME: i64 = 900_000_000;
/// The attribute that `f` begins with.
pub const OTHER: &std::ffi::CStr = c"user.other";

/// What a program does to the bytes of a file.
#[derive(Clone, Debug)]
pub enum Edit {
    Put(u64, Vec<u8>),
    Append(Vec<u8>),
    Size(u64),
    Zero(u64, u64),
}

/// Bytes that nobody but another program writes: `text` has none above 250.
fn their_bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| 251 + ((at * 3 + at / 4 + salt) % 4) as u8).collect()
}

/// What an operation of the session does to the file at this path.
pub fn our_edit(op: Op) -> Option<(&'static str, Edit)> {
    Some(match op {
        Write(path, at, len) => (path, Edit::Put(at, text(len, at))),
        Append(path, len) => (path, Edit::Append(text(len, 5))),
        Cut(path, size) => (path, Edit::Size(size)),
        Punch(path, at, len) => (path, Edit::Zero(at, len)),
        _ => return None,
    })
}

/// What an operation of another program does to the file at this path.
pub fn their_edit(op: Theirs) -> Option<(&'static str, Edit)> {
    Some(match op {
        Add(path, len) => (path, Edit::Append(their_bytes(len, 1))),
        Put(path, at, len) => (path, Edit::Put(at, their_bytes(len, at))),
        Size(path, size) => (path, Edit::Size(size)),
        _ => return None,
    })
}

fn c(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// By the kernel, in this tree; whether all of it could be done.
pub fn act(top: &Path, op: Theirs) -> bool {
    try_to(top, op).is_ok()
}

fn try_to(top: &Path, op: Theirs) -> io::Result<()> {
    let p = |name: &str| top.join(name);
    let open = |name: &str| OpenOptions::new().write(true).open(p(name));
    let make = |name: &str| File::create_new(p(name)).and_then(|file| file.write_all_at(&their_bytes(8, 2), 0));
    match op {
        Add(name, len) => {
            let file = OpenOptions::new().append(true).open(p(name))?;
            io::Write::write_all(&mut &file, &their_bytes(len, 1))
        }
        Put(name, at, len) => open(name)?.write_all_at(&their_bytes(len, at), at),
        Size(name, size) => open(name)?.set_len(size),
        Mode(name, mode) => std::fs::set_permissions(p(name), Permissions::from_mode(mode)),
        Time(name) => {
            let time = r::Timespec { tv_sec: THEIR_TIME, tv_nsec: 0 };
            let times = r::Timestamps { last_access: time, last_modification: time };
            Ok(r::utimensat(r::CWD, c(&p(name)), &times, r::AtFlags::empty())?)
        }
        Note(name) => Ok(r::setxattr(c(&p(name)), c"user.note", b"theirs", r::XattrFlags::empty())?),
        Unnote(name) => Ok(r::removexattr(c(&p(name)), OTHER)?),
        Replace(name) => {
            // There must be something to be replaced.
            std::fs::symlink_metadata(p(name))?;
            let new = p(&format!("{name}.tmp"));
            std::fs::write(&new, their_bytes(12, 3))?;
            std::fs::rename(&new, p(name)).inspect_err(|_| drop(std::fs::remove_file(&new)))
        }
        Remove(name) => std::fs::remove_file(p(name)),
        Remake(name) => std::fs::remove_file(p(name)).and_then(|()| make(name)),
        Move(from, to) => Ok(r::renameat_with(r::CWD, c(&p(from)), r::CWD, c(&p(to)), r::RenameFlags::NOREPLACE)?),
        Swap(from, to) => Ok(r::renameat_with(r::CWD, c(&p(from)), r::CWD, c(&p(to)), r::RenameFlags::EXCHANGE)?),
        NewFile(name) => make(name),
        NewDir(name) => std::fs::create_dir(p(name)),
        RemoveDir(name) => std::fs::remove_dir(p(name)),
        RemoveTree(name) => std::fs::remove_dir_all(p(name)),
        Name(from, to) => std::fs::hard_link(p(from), p(to)),
    }
}

/// What has to be done first, so that an operation of the session can be done.
pub fn before(op: Op) -> &'static [Op] {
    match op {
        Write("new", ..) | Rename("new", _) | Link("new", _) => &[Create("new")],
        Create("n/x") => &[Mkdir("n")],
        Rename("moved", _) => &[Rename("d", "moved"), Rmdir("empty")],
        _ => &[],
    }
}

//! What is done to a tree: operations over a few names, and where they start from.

use super::check::Times;
use super::memory::Machine;
use base::{Atomic, Cx, Errno, Error, Fallocate, Kind, NewNode, Node, RenameMode, SetAttr, SetTime};
use engine::Fs;
use pm::UserSlice;
use std::fmt;

/// The names; a slash separates a directory of the first level.
pub const NAMES: [&str; 7] = ["foo", "bar", "A/foo", "A/bar", "A", "B", "A/C"];

/// Index into [`NAMES`].
pub type Name = usize;

const FOO: Name = 0;
const BAR: Name = 1;
const A_FOO: Name = 2;
const A_BAR: Name = 3;
const A: Name = 4;
const B: Name = 5;
const A_C: Name = 6;

/// Contents: bytes counted up from the seed.
fn fill(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add((at / 8) as u8) | 1).collect()
}

/// Whether a name is a directory's, where a workload starts with some.
pub fn is_directory(name: Name) -> bool {
    matches!(name, A | B | A_C)
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Op {
    Create(Name),
    Mkdir(Name),
    Symlink(Name, usize),
    Link(Name, Name),
    Unlink(Name),
    Rmdir(Name),
    Rename(Name, Name),
    Exchange(Name, Name),
    /// At an offset (`None`: at the end), so many bytes.
    Write(Name, Option<u64>, usize),
    /// The same, whole or not at all.
    Whole(Atomic, Name, u64, usize),
    /// From a file into another one, so many bytes from the beginning of the one to an offset of the other, whole or not at all.
    CopyWhole(Atomic, Name, Name, u64, u64),
    /// Bytes that somebody fills in, fewer than he said, whole or not at all.
    FillWhole(Name, u64, usize),
    /// A file becomes one that shares the blocks of another.
    Clone(Name, Name),
    /// A node is made as another one is; a file with its blocks.
    Twin(Name, Name),
    /// The first block of a file becomes another one of it, or of another file, from an offset on.
    CloneBlock(Name, Name, u64),
    /// The first block of a file is copied to another one, and found to be the same: they share it.
    Same(Name, Name),
    /// Nobody changes a node any more; or again.
    Freeze(Name, bool),
    Truncate(Name, u64),
    Allocate(Name, Fallocate, u64, u64),
    SetXattr(Name, usize),
    RemoveXattr(Name),
    Chmod(Name),
    Chown(Name),
    SetTimes(Name),
    /// A store into a mapping of the file, then `fsync`.
    MapStore(Name),
    Fsync(Name),
    /// A file without a name, which then gets one.
    Tmpfile(Name),
    /// Opened, name removed, written to, still open when the power goes.
    OpenUnlink(Name),
    /// As before, but closed: freed at the last close.
    OpenUnlinkClose(Name),
    /// Two descriptors of one file write in turn; at the last close what was given out ahead goes back.
    TwoDescriptors(Name),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |name: Name| NAMES[name];
        match *self {
            Op::Create(a) => write!(f, "create({})", n(a)),
            Op::Mkdir(a) => write!(f, "mkdir({})", n(a)),
            Op::Symlink(a, len) => write!(f, "symlink({},{len})", n(a)),
            Op::Link(a, b) => write!(f, "link({},{})", n(a), n(b)),
            Op::Unlink(a) => write!(f, "unlink({})", n(a)),
            Op::Rmdir(a) => write!(f, "rmdir({})", n(a)),
            Op::Rename(a, b) => write!(f, "rename({},{})", n(a), n(b)),
            Op::Exchange(a, b) => write!(f, "exchange({},{})", n(a), n(b)),
            Op::Write(a, Some(at), len) => write!(f, "write({},{at},{len})", n(a)),
            Op::Write(a, None, len) => write!(f, "append({},{len})", n(a)),
            Op::Whole(how, a, at, len) => write!(f, "{}({},{at},{len})", how.name(), n(a)),
            Op::CopyWhole(how, a, b, at, len) => write!(f, "{}copy({},{},{at},{len})", how.name(), n(a), n(b)),
            Op::FillWhole(a, at, len) => write!(f, "undofill({},{at},{len})", n(a)),
            Op::Clone(a, b) => write!(f, "clone({},{})", n(a), n(b)),
            Op::Twin(a, b) => write!(f, "twin({},{})", n(a), n(b)),
            Op::CloneBlock(a, b, at) => write!(f, "cloneblock({},{},{at})", n(a), n(b)),
            Op::Same(a, b) => write!(f, "same({},{})", n(a), n(b)),
            Op::Freeze(a, false) => write!(f, "freeze({})", n(a)),
            Op::Freeze(a, true) => write!(f, "thaw({})", n(a)),
            Op::Truncate(a, size) => write!(f, "truncate({},{size})", n(a)),
            Op::Allocate(a, how, at, len) => write!(f, "fallocate({},{how:?},{at},{len})", n(a)),
            Op::SetXattr(a, len) => write!(f, "setxattr({},{len})", n(a)),
            Op::RemoveXattr(a) => write!(f, "removexattr({})", n(a)),
            Op::Chmod(a) => write!(f, "chmod({})", n(a)),
            Op::Chown(a) => write!(f, "chown({})", n(a)),
            Op::SetTimes(a) => write!(f, "utimes({})", n(a)),
            Op::MapStore(a) => write!(f, "mapstore({})", n(a)),
            Op::Fsync(a) => write!(f, "fsync({})", n(a)),
            Op::Tmpfile(a) => write!(f, "tmpfile({})", n(a)),
            Op::OpenUnlink(a) => write!(f, "openunlink({})", n(a)),
            Op::OpenUnlinkClose(a) => write!(f, "openunlinkclose({})", n(a)),
            Op::TwoDescriptors(a) => write!(f, "twodescriptors({})", n(a)),
        }
    }
}

/// The clone that [`Start::Shared`] has made already.
pub const CLONE_AGAIN: Op = Op::Clone(FOO, BAR);

/// Bytes of a file that may be old or new while an operation is under way:
/// data are written in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct InPlace {
    pub name: Name,
    pub from: u64,
    pub to: u64,
}

/// All operations, in a fixed order.
pub fn all() -> Vec<Op> {
    let mut ops = Vec::new();
    let files = [FOO, BAR, A_FOO, A_BAR];
    for name in 0..NAMES.len() {
        ops.extend([Op::Create(name), Op::Mkdir(name), Op::Symlink(name, 3), Op::Unlink(name), Op::Rmdir(name)]);
        for other in 0..NAMES.len() {
            if other == name {
                continue;
            }
            ops.push(Op::Rename(name, other));
            if other > name {
                ops.push(Op::Exchange(name, other));
            }
            if files.contains(&name) {
                ops.push(Op::Link(name, other));
            }
        }
    }
    for name in files {
        ops.extend([
            Op::Write(name, None, 100),
            Op::Write(name, Some(0), 24),
            Op::Write(name, Some(4090), 13),
            Op::Write(name, Some(20_480), 10),
            Op::Truncate(name, 0),
            Op::Truncate(name, 77),
            Op::Truncate(name, 9000),
        ]);
    }
    for name in [FOO, A_FOO] {
        ops.extend([
            Op::Allocate(name, Fallocate::Allocate, 3000, 10_000),
            Op::Allocate(name, Fallocate::KeepSize, 8192, 8192),
            Op::Allocate(name, Fallocate::PunchHole, 0, 4096),
            Op::Allocate(name, Fallocate::PunchHole, 40, 4200),
            Op::Allocate(name, Fallocate::Zero, 50, 20),
            Op::Allocate(name, Fallocate::ZeroKeepSize, 0, 8192),
            Op::MapStore(name),
            Op::OpenUnlink(name),
            Op::OpenUnlinkClose(name),
            Op::TwoDescriptors(name),
            Op::SetTimes(name),
            Op::RemoveXattr(name),
        ]);
    }
    for how in [Atomic::Undo, Atomic::Replay] {
        ops.extend([
            // In the block; over the end of a block; of several blocks; over the end of the file.
            Op::Whole(how, FOO, 100, 1000),
            Op::Whole(how, FOO, 500, 1500),
            Op::Whole(how, FOO, 3000, 1100),
            Op::Whole(how, FOO, 4900, 700),
            Op::Whole(how, A_FOO, 10, 600),
            Op::CopyWhole(how, FOO, A_FOO, 5, 500),
        ]);
    }
    ops.extend([
        // In the record alone: within a word, over a block's end, over the file's end; in a hole.
        Op::Whole(Atomic::Replay, FOO, 3, 2),
        Op::Whole(Atomic::Undo, FOO, 4090, 13),
        Op::Whole(Atomic::Replay, A_FOO, 60, 90),
        Op::Whole(Atomic::Replay, FOO, 7000, 400),
        Op::Whole(Atomic::Undo, FOO, 4700, 4000),
        Op::FillWhole(FOO, 100, 700),
    ]);
    ops.extend([
        Op::Clone(FOO, A_FOO),
        Op::Clone(FOO, BAR),
        Op::Clone(BAR, FOO),
        Op::Clone(A_FOO, BAR),
        Op::Clone(FOO, A_BAR),
        Op::Twin(FOO, A_BAR),
        Op::Twin(FOO, BAR),
        Op::Twin(A_FOO, BAR),
        Op::Twin(BAR, A_BAR),
        Op::Twin(A, BAR),
        Op::CloneBlock(FOO, FOO, 4096),
        Op::CloneBlock(FOO, FOO, 16_384),
        Op::CloneBlock(FOO, A_FOO, 8192),
        Op::CloneBlock(BAR, FOO, 0),
        Op::Same(FOO, A_FOO),
        Op::Same(FOO, BAR),
        Op::Same(BAR, FOO),
        Op::Freeze(FOO, false),
        Op::Freeze(FOO, true),
        Op::Freeze(A, false),
    ]);
    for name in [FOO, A_FOO, A] {
        ops.extend([Op::SetXattr(name, 5), Op::SetXattr(name, 5000), Op::Chmod(name), Op::Chown(name)]);
    }
    ops.extend([Op::SetXattr(A_FOO, 7), Op::SetXattr(FOO, 7), Op::SetXattr(A_FOO, 40)]);
    ops.extend([Op::Symlink(BAR, 700), Op::Write(BAR, Some(4096), 8192), Op::Tmpfile(BAR), Op::Tmpfile(A_BAR), Op::Fsync(FOO)]);
    ops
}

/// Those of [`all`] that differ in what they do to the image, rather than in the name or the length they do
/// it with; one or two of each. Sequences of three are complete for these, from the larger start or the empty one.
const CORE: [&str; 43] = [
    // An inode and a slot: in a directory with a block of slots, in one without, the first in the image.
    "create(bar)",
    "create(A/bar)",
    "mkdir(A)",
    "symlink(bar,3)",
    "symlink(bar,700)",
    // A file without a name, linked; one whose name goes while it is open, then its contents.
    "tmpfile(bar)",
    "openunlink(foo)",
    "openunlinkclose(foo)",
    // A count and a slot, in the same directory and in another; away with an inode with blocks, with an attribute.
    "link(foo,bar)",
    "link(foo,A/bar)",
    "unlink(foo)",
    "unlink(bar)",
    "unlink(A/foo)",
    "rmdir(B)",
    // A slot moves: in a directory, into another; over a file; a directory, whose parent changes; over a directory.
    "rename(foo,bar)",
    "rename(foo,A/foo)",
    "rename(A/foo,bar)",
    "rename(B,A/C)",
    "rename(A/C,bar)",
    "exchange(foo,A/foo)",
    "exchange(foo,B)",
    // Contents: behind the end in the last block, in place, over the end of a block, behind a hole.
    "append(foo,100)",
    "write(foo,0,24)",
    "write(foo,4090,13)",
    "write(foo,20480,10)",
    "twodescriptors(foo)",
    "mapstore(foo)",
    // Blocks shared with another file, and within one.
    "clone(foo,A/foo)",
    "cloneblock(foo,foo,16384)",
    "twin(foo,A/bar)",
    // The map and the length: all goes, a part goes, a hole at the end; blocks ahead, with the length and without.
    "truncate(foo,0)",
    "truncate(foo,77)",
    "truncate(foo,9000)",
    "fallocate(foo,Allocate,3000,10000)",
    "fallocate(foo,KeepSize,8192,8192)",
    // Blocks out of the middle, parts of blocks, zeros.
    "fallocate(foo,PunchHole,40,4200)",
    "fallocate(foo,ZeroKeepSize,0,8192)",
    // Attributes in a line and in blocks, away; the permission table; the inode alone.
    "setxattr(foo,5)",
    "setxattr(foo,5000)",
    "removexattr(A/foo)",
    "chmod(foo)",
    "chown(A)",
    "utimes(foo)",
];

/// Whether the operation is one of the core set.
pub fn is_core(op: &Op) -> bool {
    CORE.contains(&op.to_string().as_str())
}

/// The operation with this text.
pub fn parse(text: &str) -> Option<Op> {
    all().into_iter().find(|op| op.to_string() == text)
}

/// Where a workload starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Nothing but the root directory.
    Empty,
    /// Files `foo` (two blocks) and `A/foo` (short, with an attribute), directories `A`, `B`, `A/C`.
    Some,
    /// The same, and files that share: `bar` has the blocks of `foo`, `A/bar` the first of them, and a hole.
    Shared,
}

impl Start {
    /// All.
    pub const ALL: [Start; 3] = [Start::Some, Start::Shared, Start::Empty];

    /// Its name in replay strings.
    pub const fn name(self) -> &'static str {
        match self {
            Start::Empty => "empty",
            Start::Some => "some",
            Start::Shared => "shared",
        }
    }

    /// Makes it in an empty image.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn make(self, machine: &Machine, fs: &Fs) -> Result<(), Error> {
        if self == Start::Empty {
            return Ok(());
        }
        let ops = [Op::Mkdir(A), Op::Create(FOO), Op::Write(FOO, None, 5000), Op::Create(A_FOO), Op::Write(A_FOO, None, 100)];
        for op in ops.into_iter().chain([Op::SetXattr(A_FOO, 9), Op::Mkdir(B), Op::Mkdir(A_C)]) {
            op.perform(machine, fs, 0)?;
        }
        if self == Start::Shared {
            let ops = [Op::Create(BAR), Op::Clone(FOO, BAR), Op::Create(A_BAR), Op::CloneBlock(FOO, A_BAR, 4096)];
            ops.into_iter().try_for_each(|op| op.perform(machine, fs, 0))?;
        }
        Ok(())
    }
}

/// The directory and the last component of a name.
fn place(fs: &Fs, cx: &Cx, name: Name) -> Result<(Node, &'static [u8]), Error> {
    match NAMES[name].split_once('/') {
        None => Ok((fs.root_node(), NAMES[name].as_bytes())),
        Some((dir, last)) => Ok((fs.lookup(cx, fs.root_node(), dir.as_bytes())?, last.as_bytes())),
    }
}

fn find(fs: &Fs, cx: &Cx, name: Name) -> Result<Node, Error> {
    let (dir, last) = place(fs, cx, name)?;
    fs.lookup(cx, dir, last)
}

/// The regular file of that name.
fn file(fs: &Fs, cx: &Cx, name: Name) -> Result<Node, Error> {
    let node = find(fs, cx, name)?;
    match fs.attr(cx, node)?.kind {
        Kind::Regular => Ok(node),
        Kind::Directory => Err(Errno::EISDIR.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

fn new(kind: Kind, target: &[u8]) -> NewNode<'_> {
    NewNode { kind, mode: 0o666 | if kind == Kind::Directory { 0o111 } else { 0 }, rdev: 0, target }
}

fn write(fs: &Fs, cx: &Cx, node: Node, at: Option<u64>, bytes: &[u8]) -> Result<(), Error> {
    fs.write(cx, node, at, &[UserSlice::from_ref(bytes)]).map(drop)
}

impl Op {
    /// Does it as one user.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn perform(self, machine: &Machine, fs: &Fs, user: usize) -> Result<(), Error> {
        self.perform_in_calls(machine, fs, user, &mut || {})
    }

    /// As [`Op::perform`]; of an operation that is several calls, `returned` is called after each but the last.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn perform_in_calls(self, machine: &Machine, fs: &Fs, user: usize, returned: &mut dyn FnMut()) -> Result<(), Error> {
        let cx = &machine.cx(user);
        match self {
            Op::Create(a) | Op::Mkdir(a) => {
                let kind = if matches!(self, Op::Mkdir(_)) { Kind::Directory } else { Kind::Regular };
                let (dir, name) = place(fs, cx, a)?;
                fs.create(cx, dir, name, &new(kind, b"")).map(drop)
            }
            Op::Symlink(a, len) => {
                let (dir, name) = place(fs, cx, a)?;
                fs.create(cx, dir, name, &new(Kind::Symlink, &fill(b'a', len))).map(drop)
            }
            Op::Link(a, b) => {
                let node = find(fs, cx, a)?;
                let (dir, name) = place(fs, cx, b)?;
                fs.link(cx, node, dir, name)
            }
            Op::Unlink(a) => {
                let (dir, name) = place(fs, cx, a)?;
                fs.unlink(cx, dir, name)
            }
            Op::Rmdir(a) => {
                let (dir, name) = place(fs, cx, a)?;
                fs.rmdir(cx, dir, name)
            }
            Op::Rename(a, b) | Op::Exchange(a, b) => {
                let mode = if matches!(self, Op::Rename(..)) { RenameMode::Replace } else { RenameMode::Exchange };
                let ((from_dir, from), (to_dir, to)) = (place(fs, cx, a)?, place(fs, cx, b)?);
                fs.rename(cx, from_dir, from, to_dir, to, mode)
            }
            Op::Write(a, at, len) => write(fs, cx, file(fs, cx, a)?, at, &fill(0x40 + len as u8, len)),
            Op::Whole(how, a, at, len) => {
                let bytes = fill(0x41 + len as u8, len);
                fs.write_as(cx, file(fs, cx, a)?, Some(at), &[UserSlice::from_ref(&bytes)], how).map(drop)
            }
            Op::CopyWhole(how, a, b, at, len) => {
                fs.copy_range_as(cx, (file(fs, cx, a)?, 0), (file(fs, cx, b)?, at), len, Some(how)).map(drop)
            }
            Op::FillWhole(a, at, len) => {
                let bytes = fill(0x43, len);
                let mut left = len - 90;
                let mut from = |part: UserSlice| {
                    let count = part.len.min(left);
                    left -= count;
                    pm::user::copy(UserSlice::from_ref(&bytes[..count]), part)
                };
                fs.write_with_whole(cx, file(fs, cx, a)?, (at, len as u64), &mut from).map(drop)
            }
            Op::Truncate(a, size) => {
                let change = SetAttr { size: Some(size), ..Default::default() };
                fs.set_attr(cx, file(fs, cx, a)?, &change)
            }
            Op::Clone(a, b) => fs.clone_range(cx, (file(fs, cx, a)?, 0), (file(fs, cx, b)?, 0), 0),
            Op::Twin(a, b) => {
                let source = find(fs, cx, a)?;
                let (dir, name) = place(fs, cx, b)?;
                fs.twin(cx, (source, fs.attr(cx, source)?.kind), dir, name, None).map(drop)
            }
            Op::CloneBlock(a, b, at) => fs.clone_range(cx, (file(fs, cx, a)?, 0), (file(fs, cx, b)?, at), 4096),
            Op::Same(a, b) => {
                let (from, to) = (file(fs, cx, a)?, file(fs, cx, b)?);
                // A part of a block is not shared: what fails changes nothing.
                if fs.attr(cx, from)?.size < 4096 {
                    return Err(Errno::EINVAL.into());
                }
                fs.copy_range(cx, from, 0, to, 0, 4096)?;
                fs.dedupe_range(cx, (from, 0), (to, 0), 4096).map(drop)
            }
            Op::Freeze(a, thaws) => {
                let node = find(fs, cx, a)?;
                fs.freeze(cx, node, !thaws)
            }
            Op::Allocate(a, how, at, len) => fs.fallocate(cx, file(fs, cx, a)?, how, at, len),
            _ => self.perform_other(machine, fs, user, returned),
        }
    }

    fn perform_other(self, machine: &Machine, fs: &Fs, user: usize, returned: &mut dyn FnMut()) -> Result<(), Error> {
        let cx = &machine.cx(user);
        let fd = 3 + user as u32 * 4;
        match self {
            Op::SetXattr(a, len) => fs.set_xattr(
                cx,
                find(fs, cx, a)?,
                if len == 7 { b"user.y" } else { b"user.x" },
                UserSlice::from_ref(&fill(b'x', len)),
                0,
            ),
            Op::RemoveXattr(a) => fs.remove_xattr(cx, find(fs, cx, a)?, b"user.x"),
            Op::Chmod(a) => fs.set_attr(cx, find(fs, cx, a)?, &SetAttr { mode: Some(0o4711), ..Default::default() }),
            Op::Chown(a) => fs.set_attr(cx, find(fs, cx, a)?, &SetAttr { uid: Some(1000), gid: Some(100), ..Default::default() }),
            Op::SetTimes(a) => {
                let times = SetAttr { atime: Some(SetTime::At(1)), mtime: Some(SetTime::At(2)), ..Default::default() };
                fs.set_attr(cx, find(fs, cx, a)?, &times)
            }
            Op::MapStore(a) => {
                let node = file(fs, cx, a)?;
                fs.open(cx, node, 2, fd)?;
                let mut at = None;
                fs.map(cx, node, 0, 4096, base::MapFor::Writing, &mut |_, image, _| at = at.or(Some(image)))?;
                if let Some(at) = at {
                    machine.poke(at + 16, &fill(0x33, 8));
                }
                let synced = fs.sync(cx, Some(node), false);
                fs.close(cx, fd);
                synced
            }
            Op::Fsync(a) => fs.sync(cx, Some(file(fs, cx, a)?), false),
            Op::Tmpfile(a) => {
                let (dir, name) = place(fs, cx, a)?;
                let node = fs.tmpfile(cx, dir, 0o640, 0)?;
                fs.open(cx, node, 2, fd)?;
                let linked = write(fs, cx, node, None, &fill(0x55, 300)).and_then(|()| fs.link(cx, node, dir, name));
                fs.close(cx, fd);
                linked
            }
            Op::OpenUnlink(a) | Op::OpenUnlinkClose(a) => {
                let node = file(fs, cx, a)?;
                fs.open(cx, node, 2, fd)?;
                let (dir, name) = place(fs, cx, a)?;
                fs.unlink(cx, dir, name)?;
                // Under another name, if it has one, what follows shows.
                returned();
                write(fs, cx, node, None, &fill(0x66, 5000))?;
                if matches!(self, Op::OpenUnlinkClose(_)) {
                    fs.close(cx, fd);
                }
                Ok(())
            }
            Op::TwoDescriptors(a) => {
                let node = file(fs, cx, a)?;
                fs.open(cx, node, 2, fd)?;
                fs.open(cx, node, 2, fd + 1)?;
                write(fs, cx, node, Some(8000), &fill(0x77, 500))?;
                returned();
                write(fs, cx, node, None, &fill(0x78, 33))?;
                fs.close(cx, fd);
                returned();
                write(fs, cx, node, None, &fill(0x79, 5000))?;
                fs.close(cx, fd + 1);
                Ok(())
            }
            _ => Err(Errno::ENOSYS.into()),
        }
    }

    /// How times are compared while it is under way.
    pub fn times(self) -> Times {
        // Behind the end of the files there are it is a write like any other.
        let behind = matches!(self, Op::Whole(_, _, 5000.., _));
        let stamps = behind
            || matches!(self, Op::Write(..) | Op::Truncate(..) | Op::Allocate(..) | Op::MapStore(..) | Op::TwoDescriptors(..));
        match self {
            // Each of their records stamps.
            Op::Clone(..) | Op::CloneBlock(..) | Op::Same(..) => Times::Between,
            _ if stamps => Times::Each,
            _ => Times::Exact,
        }
    }

    /// What may be half done while it, or the first of its calls, is under way.
    pub fn in_place(self) -> Option<InPlace> {
        match self {
            Op::Write(name, Some(from), len) => Some(InPlace { name, from, to: from + len as u64 }),
            Op::Allocate(name, how, from, len) if !matches!(how, Fallocate::Allocate | Fallocate::KeepSize) => {
                Some(InPlace { name, from, to: from + len })
            }
            // Extent by extent.
            Op::Clone(_, name) => Some(InPlace { name, from: 0, to: 1 << 20 }),
            Op::Same(_, name) => Some(InPlace { name, from: 0, to: 4096 }),
            Op::CloneBlock(_, name, from) => Some(InPlace { name, from, to: from + 4096 }),
            Op::MapStore(name) => Some(InPlace { name, from: 16, to: 24 }),
            // Where the file was that long.
            Op::TwoDescriptors(name) => Some(InPlace { name, from: 8000, to: 8500 }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is called complete is. Method: each text of the core set names one operation of all.
    #[test]
    fn core_operations_are_operations() {
        assert!(CORE.iter().all(|text| parse(text).is_some()));
        assert_eq!(all().iter().filter(|op| is_core(op)).count(), CORE.len());
    }
}

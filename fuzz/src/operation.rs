//! Inputs as calls: each byte or two is a call on one of a few names.

use crate::input::Input;
use crate::visit::contents;
use base::{Cx, Fallocate, Kind, Lock, LockKind, LockOwner, NewNode, Node, RenameMode, SetAttr};
use engine::Fs;
use pm::UserSlice;

/// Calls that an input may make.
pub const CALLS_MAX: usize = 60;

/// Names that calls use: of the tree, and new ones. A path is walked a name at a time.
const NAMES: [&[u8]; 23] = [
    b"a",
    b"b",
    b"c",
    b"file",
    b"second",
    b"third",
    b"whole",
    b"holes",
    b"deep",
    b"ahead",
    b"link",
    b"long",
    b"many",
    b"name 4",
    b"name 5",
    b"moved",
    b"new",
    b"other",
    b"fifo",
    b"clone",
    b"broken",
    b"twin",
    b"fresh name that is longer than what a cachelet has room for, for sure",
];

/// What calls go on with.
pub struct Caller<'a> {
    fs: &'a Fs,
    cx: Cx<'a>,
    /// Nodes met so far; the first is the root.
    nodes: Vec<Node>,
    next_fd: u32,
}

impl<'a> Caller<'a> {
    /// Knows the root only.
    pub fn new(fs: &'a Fs, cx: Cx<'a>) -> Self {
        Caller { fs, cx, nodes: vec![fs.root_node()], next_fd: 10 }
    }

    fn node(&self, input: &mut Input) -> Node {
        let which = usize::from(input.byte());
        self.nodes[which % self.nodes.len()]
    }

    fn met(&mut self, node: Node) {
        if self.nodes.len() < 16 {
            self.nodes.push(node);
        } else {
            let at = 1 + node.id as usize % 15;
            self.nodes[at] = node;
        }
    }

    /// Makes the next call; what it returns is of no interest, as long as it does.
    pub fn call(&mut self, input: &mut Input) {
        let which = input.byte();
        match which % 32 {
            0..=7 => self.lookup(input),
            8..=10 => self.create(input, which),
            11..=13 => self.remove(input, which),
            14..=16 => self.rename(input, which),
            17..=18 => self.link(input),
            19..=21 => self.write(input),
            22 => self.truncate(input),
            23 => self.fallocate(input),
            24 => self.attributes(input),
            25 => self.xattr(input),
            26 => self.open(input),
            27 => self.close(input),
            28 => self.copy(input),
            29 => self.lock(input),
            30 => self.list(input),
            _ => self.read(input),
        }
    }

    fn name(input: &mut Input) -> &'static [u8] {
        NAMES[usize::from(input.byte()) % NAMES.len()]
    }

    fn lookup(&mut self, input: &mut Input) {
        let dir = self.node(input);
        if let Ok(node) = self.fs.lookup(&self.cx, dir, Self::name(input)) {
            self.met(node);
        }
    }

    fn create(&mut self, input: &mut Input, which: u8) {
        let (dir, name) = (self.node(input), Self::name(input));
        let kind = [Kind::Regular, Kind::Directory, Kind::Symlink][usize::from(which % 3)];
        let new = NewNode { kind, mode: 0o777 & u16::from(which) << 2, rdev: 0, target: b"a/b" };
        if let Ok(node) = self.fs.create(&self.cx, dir, name, &new) {
            self.met(node);
        }
    }

    fn remove(&mut self, input: &mut Input, which: u8) {
        let (dir, name) = (self.node(input), Self::name(input));
        let _ = if which & 1 == 0 { self.fs.unlink(&self.cx, dir, name) } else { self.fs.rmdir(&self.cx, dir, name) };
    }

    fn rename(&mut self, input: &mut Input, which: u8) {
        let (from_dir, from) = (self.node(input), Self::name(input));
        let (to_dir, to) = (self.node(input), Self::name(input));
        let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][usize::from(which % 3)];
        let _ = self.fs.rename(&self.cx, from_dir, from, to_dir, to, mode);
    }

    fn link(&mut self, input: &mut Input) {
        let (node, dir) = (self.node(input), self.node(input));
        let _ = self.fs.link(&self.cx, node, dir, Self::name(input));
    }

    fn write(&mut self, input: &mut Input) {
        let (node, at, len) = (self.node(input), input.short(), usize::from(input.short()) % 20_000);
        let data = vec![at as u8; len];
        let at = if at & 1 == 0 { None } else { Some(u64::from(at) * 64) };
        let _ = self.fs.write(&self.cx, node, at, &[UserSlice::from_ref(&data)]);
    }

    fn truncate(&mut self, input: &mut Input) {
        let (node, size) = (self.node(input), u64::from(input.short()) * 37);
        let _ = self.fs.set_attr(&self.cx, node, &SetAttr { size: Some(size), ..Default::default() });
    }

    fn fallocate(&mut self, input: &mut Input) {
        let (node, how) = (self.node(input), input.byte());
        let (at, len) = (u64::from(input.short()) * 16, u64::from(input.short()) * 4 + 1);
        let how = [Fallocate::Allocate, Fallocate::KeepSize, Fallocate::PunchHole, Fallocate::Zero, Fallocate::ZeroKeepSize]
            [usize::from(how % 5)];
        let _ = self.fs.fallocate(&self.cx, node, how, at, len);
    }

    fn attributes(&mut self, input: &mut Input) {
        let (node, mode, uid) = (self.node(input), input.short() & 0o7777, u32::from(input.byte()));
        let _ = self.fs.set_attr(&self.cx, node, &SetAttr { mode: Some(mode), uid: Some(uid), ..Default::default() });
    }

    fn xattr(&mut self, input: &mut Input) {
        let (node, len) = (self.node(input), usize::from(input.short()) % 6000);
        let _ = match len % 3 {
            0 => self.fs.remove_xattr(&self.cx, node, b"user.colour"),
            1 => self.fs.set_xattr(&self.cx, node, b"user.colour", UserSlice::from_ref(&vec![7; len]), 0),
            _ => self.fs.set_xattr(&self.cx, node, b"user.new", UserSlice::from_ref(&vec![7; len]), 0),
        };
    }

    fn open(&mut self, input: &mut Input) {
        let node = self.node(input);
        let fd = self.next_fd;
        let opened = if fd.is_multiple_of(5) {
            self.fs.tmpfile(&self.cx, node, 0o600, 2).and_then(|made| {
                self.met(made);
                self.fs.open(&self.cx, made, 2, fd)
            })
        } else {
            self.fs.open(&self.cx, node, 2, fd)
        };
        if let Ok(id) = opened {
            self.next_fd += 1;
            self.fs.offset_lock(&self.cx, id);
            self.fs.offset_unlock(&self.cx, id);
            let _ = self.fs.dup(id, fd + 1000);
        }
    }

    fn close(&mut self, input: &mut Input) {
        let fd = 10 + u32::from(input.byte()) % (self.next_fd - 9);
        self.fs.close(&self.cx, fd);
        self.fs.close(&self.cx, fd + 1000);
    }

    fn copy(&mut self, input: &mut Input) {
        let (from, to) = (self.node(input), self.node(input));
        let (at, len) = (u64::from(input.short()), u64::from(input.short()));
        match len % 16 {
            13 => self.share((from, to), at, len),
            14 => self.twin(from, to, input),
            15 => drop(self.fs.freeze(&self.cx, to, at & 1 == 0)),
            _ => drop(self.fs.copy_range(&self.cx, from, at, to, len / 2, len)),
        }
    }

    /// Whole blocks, mostly.
    fn share(&mut self, (from, to): (Node, Node), at: u64, len: u64) {
        let (from_at, to_at, len) = (at % 7 * 4096, at % 5 * 4096, len / 16 % 12 * 4096 + u64::from(at == 0));
        let _ = match at % 3 {
            0 => self.fs.clone_range(&self.cx, (from, from_at), (to, to_at), len),
            1 => self.fs.clone_range(&self.cx, (from, 0), (to, 0), 0),
            _ => self.fs.dedupe_range(&self.cx, (from, from_at), (to, to_at), len).map(drop),
        };
        let mut at = 0;
        while let Ok(Some(run)) = self.fs.run_at(&self.cx, to, at) {
            at = run.start.saturating_add(run.len);
            if run.is_last || at > 64 << 20 {
                break;
            }
        }
    }

    fn twin(&mut self, source: Node, dir: Node, input: &mut Input) {
        let name = Self::name(input);
        let Ok(attr) = self.fs.attr(&self.cx, source) else { return };
        self.fs.expect_twin(source.id, Some((dir, name)));
        self.fs.expect_twin(source.id, None);
        if let Ok(twin) = self.fs.twin(&self.cx, (source, attr.kind), dir, name, None) {
            self.met(twin.node);
        }
    }

    fn lock(&mut self, input: &mut Input) {
        let (node, how) = (self.node(input), input.byte());
        let kind = [LockKind::Shared, LockKind::Exclusive, LockKind::Unlock][usize::from(how % 3)];
        let start = u64::from(how >> 4);
        let lock = Lock { kind, owner: LockOwner::Process, through: None, start, end: start + 5, pid: 0 };
        let _ = self.fs.advisory_lock(&self.cx, node, &lock);
        let _ = self.fs.conflicting_lock(&self.cx, node, &lock);
    }

    fn list(&mut self, input: &mut Input) {
        let dir = self.node(input);
        let mut left = 100;
        let _ = self.fs.readdir(&self.cx, dir, u64::from(input.byte()), &mut |_| {
            left -= 1;
            left > 0
        });
    }

    fn read(&mut self, input: &mut Input) {
        let node = self.node(input);
        let _ = contents(self.fs, &self.cx, node);
    }
}

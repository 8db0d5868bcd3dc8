//! Names that only one worker changes: every call on them has one right result,
//! and after a death they are as before the last call or as after it, whole.
//!
//! ```text
//! words 0..12          a name each: kind 8 | number of its inode 8; 0: not there
//! words 12 + 4 i ..    inode i: token (what its bytes are made from), size, mode, attribute
//! ```

use super::board::{NOTHING, RETURNED, WORDS};
use super::calls::Worker;
use crate::rng::Rng;
use pm::sys::abi as nr;

const NAMES: usize = 12;
const INODES: usize = 12;
const _: () = assert!(NAMES + INODES * 4 <= WORDS);
const KIND: u64 = 0xff00;
const FILE: u64 = 1 << 8;
const DIRECTORY: u64 = 2 << 8;
const SYMLINK: u64 = 3 << 8;
const TOKEN: usize = 0;
const SIZE: usize = 1;
const MODE: usize = 2;
const ATTRIBUTE: usize = 3;
/// Files do not grow beyond.
const SIZE_MAX: u64 = 40_000;

type Model = [u64; WORDS];

fn word(inode: usize, what: usize) -> usize {
    NAMES + inode * 4 + what
}

fn inode_of(name: u64) -> usize {
    (name & 0xff) as usize % INODES
}

/// The bytes of a file, from its token.
fn content(token: u64, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|at| (token >> (8 * (at % 8))) as u8 ^ (at / 8) as u8).collect()
}

impl Worker {
    /// Path of an own name; half of them lie in a directory that all share.
    fn own(&self, name: usize) -> String {
        if name.is_multiple_of(2) { format!("/own{}/n{name}", self.number) } else { format!("/both/s{}n{name}", self.number) }
    }

    /// Sees to it that what was acknowledged is there: `Err` says what is lost or torn.
    pub fn take_over(&self) -> Result<(), String> {
        let seat = self.seat();
        let (before, after) = seat.models();
        match seat.intent.phase.load(std::sync::atomic::Ordering::SeqCst) {
            NOTHING => self.compare(&before)?,
            RETURNED => {
                self.compare(&after).map_err(|text| format!("acknowledged, and lost: {text}"))?;
                seat.apply();
            }
            _ => match (self.compare(&after), self.compare(&before)) {
                (Ok(()), _) => seat.apply(),
                (_, Ok(())) => seat.intent.phase.store(NOTHING, std::sync::atomic::Ordering::SeqCst),
                (Err(after), Err(before)) => {
                    let what = seat.intent.what.load(std::sync::atomic::Ordering::SeqCst);
                    return Err(format!("torn: call {what} was under way; not as after it: {after}; not as before it: {before}"));
                }
            },
        }
        Ok(())
    }

    /// Compares everything of our own with a model.
    fn compare(&self, model: &Model) -> Result<(), String> {
        let mut inos = [0u64; INODES];
        for name in 0..NAMES {
            let path = self.own(name);
            self.compare_name(model, name, &path, &mut inos).map_err(|text| format!("{path}: {text}"))?;
        }
        Ok(())
    }

    fn compare_name(&self, model: &Model, name: usize, path: &str, inos: &mut [u64; INODES]) -> Result<(), String> {
        let wanted = model[name];
        let stat = match (self.stat(path), wanted) {
            (Err(-2), 0) => return Ok(()),
            (Ok(stat), 0) => return Err(format!("is there, mode {:o}", stat.st_mode)),
            (Err(error), _) => return Err(format!("error {error}")),
            (Ok(stat), _) => stat,
        };
        let kind = stat.st_mode & libc::S_IFMT;
        if wanted & KIND == DIRECTORY {
            return if kind == libc::S_IFDIR && stat.st_nlink == 2 { Ok(()) } else { Err(format!("mode {:o}", stat.st_mode)) };
        }
        let inode = inode_of(wanted);
        let field = |what: usize| model[word(inode, what)];
        if wanted & KIND == SYMLINK {
            let target = self.readlink(path).map_err(|error| format!("readlink: error {error}"))?;
            let right = target == format!("to {inode}").into_bytes() && stat.st_nlink == 1;
            return if right { Ok(()) } else { Err(format!("leads to {}", String::from_utf8_lossy(&target))) };
        }
        let links = model[..NAMES].iter().filter(|&&other| other == wanted).count() as u64;
        let seen = [kind as u64, stat.st_size as u64, u64::from(stat.st_mode & 0o7777), stat.st_nlink];
        let right = [libc::S_IFREG as u64, field(SIZE), field(MODE), links];
        if seen != right {
            return Err(format!("kind, size, mode, links: {seen:?} and not {right:?}"));
        }
        if inos[inode] != 0 && inos[inode] != stat.st_ino {
            return Err("two names of one file lead to two".into());
        }
        inos[inode] = stat.st_ino;
        match (self.xattr(path), field(ATTRIBUTE)) {
            (Err(error), 0) if error == -(libc::ENODATA as isize) => {}
            (Ok(value), wanted) if value == wanted => {}
            (found, wanted) => return Err(format!("attribute {found:?} and not {wanted}")),
        }
        let data = self.read_all(path).map_err(|error| format!("read: error {error}"))?;
        let first = data.iter().zip(content(field(TOKEN), 0, field(SIZE))).position(|(seen, right)| *seen != right);
        match first {
            None if data.len() as u64 == field(SIZE) => Ok(()),
            None => Err(format!("{} bytes read", data.len())),
            Some(at) => Err(format!("byte {at} of {} is {:#x}", data.len(), data[at])),
        }
    }

    /// One call at random.
    pub fn own_step(&self, rng: &mut Rng) -> Result<(), String> {
        let (model, _) = self.seat().models();
        let a = rng.below(NAMES as u64) as usize;
        let b = (a + 1 + rng.below(NAMES as u64 - 1) as usize) % NAMES;
        let free = (0..INODES).find(|inode| !model[..NAMES].iter().any(|&name| name != 0 && inode_of(name) == *inode));
        let is_file = |name: usize| model[name] & KIND == FILE;
        // Of another's bytes it can be a clone at once.
        let is_empty = |name: &usize| is_file(*name) && model[word(inode_of(model[*name]), SIZE)] == 0;
        let empty = (0..NAMES).find(|name| is_empty(name) && is_file(a) && !is_empty(&a));
        match (rng.below(16), model[a]) {
            (0..3, _) if crate::image::atomic().is_none() && empty.is_some() => self.own_clone(&model, a, empty.unwrap_or(a)),
            (0..8, 0) => self.own_make(rng, a, free),
            (0..2, _) if is_file(a) && crate::image::atomic().is_some() => self.own_overwrite(rng, &model, a),
            (0..4, _) if is_file(a) => self.own_append(rng, &model, a),
            (4, _) if is_file(a) => self.own_truncate(rng, &model, a),
            (5, _) if is_file(a) => {
                let mode = 0o600 | rng.below(0o100);
                let change = [(word(inode_of(model[a]), MODE), mode)];
                self.own_call(5, "chmod", &change, || self.chmod(&self.own(a), mode as u32))
            }
            (6, _) if is_file(a) => {
                let value = rng.draw() | 1;
                let change = [(word(inode_of(model[a]), ATTRIBUTE), value)];
                self.own_call(6, "setxattr", &change, || self.set_xattr(&self.own(a), value))
            }
            (7, _) if is_file(a) && model[b] == 0 => {
                self.own_call(7, "link", &[(b, model[a])], || self.link(&self.own(a), &self.own(b)))
            }
            (8..11, _) => self.own_rename(rng, &model, a, b),
            (11, 1..) if model[b] != 0 => {
                let change = [(a, model[b]), (b, model[a])];
                self.own_call(11, "exchange", &change, || self.rename(&self.own(a), &self.own(b), libc::RENAME_EXCHANGE))
            }
            (12, 1..) => {
                let flags = if model[a] & KIND == DIRECTORY { libc::AT_REMOVEDIR } else { 0 };
                self.own_call(12, "remove", &[(a, 0)], || self.unlink(&self.own(a), flags))
            }
            (13, _) => self.own_refusals(&model, a),
            (14, _) => self.own_orphan(rng),
            _ => self.compare_name(&model, a, &self.own(a), &mut [0; INODES]).map_err(|text| format!("{}: {text}", self.own(a))),
        }
    }

    /// Makes a call that must succeed; if it does not, tells whether the names are as before it.
    fn own_call(&self, what: u32, name: &str, changes: &[(usize, u64)], call: impl FnOnce() -> isize) -> Result<(), String> {
        let made = self.seat().change(self.board, (what, name), changes, call);
        made.map(drop).map_err(|text| match self.compare(&self.seat().models().0) {
            Ok(()) => format!("{text}; all names are as before"),
            Err(state) => format!("{text}; not as before: {state}"),
        })
    }

    fn own_make(&self, rng: &mut Rng, a: usize, free: Option<usize>) -> Result<(), String> {
        let path = self.own(a);
        let Some(inode) = free else { return Ok(()) };
        match rng.below(6) {
            0 => self.own_call(20, "mkdir", &[(a, DIRECTORY | inode as u64)], || self.mkdir(&path)),
            1 => self.own_call(21, "symlink", &[(a, SYMLINK | inode as u64)], || self.symlink(&format!("to {inode}"), &path)),
            _ => {
                let [token, size, mode, attribute] = [TOKEN, SIZE, MODE, ATTRIBUTE].map(|what| word(inode, what));
                let changes = [(a, FILE | inode as u64), (token, rng.draw()), (size, 0), (mode, 0o644), (attribute, 0)];
                self.own_call(22, "create", &changes, || self.create(&path))
            }
        }
    }

    fn own_append(&self, rng: &mut Rng, model: &Model, a: usize) -> Result<(), String> {
        let inode = inode_of(model[a]);
        let (size, len) = (model[word(inode, SIZE)], 1 + rng.below(6000));
        if size + len > SIZE_MAX {
            return self.own_truncate(rng, model, a);
        }
        let fd = self.open(&self.own(a), libc::O_WRONLY | libc::O_APPEND);
        let data = content(model[word(inode, TOKEN)], size, len);
        let change = [(word(inode, SIZE), size + len)];
        let written = self.seat().change(self.board, (1, "append"), &change, || self.write(fd, &data))?;
        if written as u64 != len {
            return Err(format!("append: {written} of {len} bytes"));
        }
        self.own_call(2, "close", &[], || self.close(fd))
    }

    /// An empty file becomes a clone of another one, all of it or not at all.
    fn own_clone(&self, model: &Model, a: usize, b: usize) -> Result<(), String> {
        let (from, to) = (inode_of(model[a]), inode_of(model[b]));
        let source = self.open(&self.own(a), libc::O_RDONLY);
        let target = self.open(&self.own(b), libc::O_WRONLY);
        let changes = [(word(to, TOKEN), model[word(from, TOKEN)]), (word(to, SIZE), model[word(from, SIZE)])];
        self.own_call(9, "clone", &changes, || self.clone_data(source, target))?;
        self.own_call(2, "close", &[], || self.close(source))?;
        self.own_call(2, "close", &[], || self.close(target))
    }

    /// All of a file is overwritten by one call, which happens whole or not at all.
    fn own_overwrite(&self, rng: &mut Rng, model: &Model, a: usize) -> Result<(), String> {
        let inode = inode_of(model[a]);
        let (size, token) = (model[word(inode, SIZE)], rng.draw());
        let fd = self.open(&self.own(a), libc::O_WRONLY);
        let data = content(token, 0, size);
        let change = [(word(inode, TOKEN), token)];
        let written = self.seat().change(self.board, (3, "overwrite"), &change, || self.write(fd, &data))?;
        if written as u64 != size {
            return Err(format!("overwrite: {written} of {size} bytes"));
        }
        self.own_call(2, "close", &[], || self.close(fd))
    }

    fn own_truncate(&self, rng: &mut Rng, model: &Model, a: usize) -> Result<(), String> {
        let size = word(inode_of(model[a]), SIZE);
        let shorter = rng.below(model[size] + 1);
        self.own_call(4, "truncate", &[(size, shorter)], || self.truncate(&self.own(a), shorter))
    }

    fn own_rename(&self, rng: &mut Rng, model: &Model, a: usize, b: usize) -> Result<(), String> {
        let (from, to) = (model[a], model[b]);
        let directory = |name: u64| name & KIND == DIRECTORY;
        if from == 0 || (to != 0 && directory(from) != directory(to)) {
            return Ok(());
        }
        let flags = if to == 0 && rng.one_in(2) { libc::RENAME_NOREPLACE } else { 0 };
        // Two names of one file stay as they are.
        let changes: &[(usize, u64)] = if from == to { &[] } else { &[(a, 0), (b, from)] };
        let (old, new) = (self.own(a), self.own(b));
        let moved = self.own_call(8, "rename", changes, || self.rename(&old, &new, flags));
        moved.map_err(|text| format!("{old} ({from:#x}) to {new} ({to:#x}), flags {flags}: {text}"))
    }

    /// Calls that must fail, and change nothing.
    fn own_refusals(&self, model: &Model, a: usize) -> Result<(), String> {
        let path = self.own(a);
        let (what, found, wanted) = if model[a] == 0 {
            ("unlink", self.seat().timed(self.board, || self.unlink(&path, 0)), libc::ENOENT)
        } else {
            ("mkdir", self.seat().timed(self.board, || self.mkdir(&path)), libc::EEXIST)
        };
        if found == -(wanted as isize) { Ok(()) } else { Err(format!("{what} {path}: {found} and not -{wanted}")) }
    }

    /// A file that is open and has no name when death may come.
    fn own_orphan(&self, rng: &mut Rng) -> Result<(), String> {
        let path = format!("/own{}/tmp", self.number);
        let fd = self.open(&path, libc::O_CREAT | libc::O_RDWR);
        let gone = self.timed(nr::__NR_unlinkat, &path, [0, 0]);
        let data = content(rng.draw(), 0, 1 + rng.below(20_000));
        let written = self.seat().timed(self.board, || self.write(fd, &data));
        let closed = self.close(fd);
        if fd < 0 || gone < 0 || written != data.len() as isize || closed < 0 {
            return Err(format!("a file without a name: open {fd}, unlink {gone}, write {written}, close {closed}"));
        }
        Ok(())
    }
}

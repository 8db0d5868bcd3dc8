//! Where a tree lies while it is made, or after it has lost its name: beside that name, under one that nobody looks for.
//!
//! Who has it there keeps a record lock on it, which goes with his death. So whoever comes next into the same directory
//! knows what was left by a dead one, and takes it away ([`Trees::sweep`]).

use super::{Tally, Trees};
use crate::ASIDE;
use alloc::vec::Vec;
use base::{Error, Lock, LockKind, LockOwner, Node, RenameMode, Result};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use pm::Errno;

/// How often another name is tried.
const NAMES: u32 = 64;

/// Numbers of this process, behind a random one.
static NEXT: AtomicU64 = AtomicU64::new(0);
static TOKEN: AtomicU64 = AtomicU64::new(0);

/// What belongs to this process: 16 digits.
fn token() -> u64 {
    let mut bytes = [0; 8];
    if TOKEN.load(Relaxed) == 0 && pm::file::random(&mut bytes).is_ok() {
        let _ = TOKEN.compare_exchange(0, u64::from_ne_bytes(bytes) | 1, Relaxed, Relaxed);
    }
    TOKEN.load(Relaxed)
}

fn digits(mut number: u64, out: &mut Vec<u8>) {
    for _ in 0..16 {
        out.push(b"0123456789abcdef"[(number >> 60) as usize]);
        number <<= 4;
    }
}

/// A name of this process that nobody has.
fn fresh() -> Vec<u8> {
    let mut name = ASIDE.to_vec();
    digits(token(), &mut name);
    digits(NEXT.fetch_add(1, Relaxed), &mut name);
    name
}

/// Something aside, and its name there.
pub(super) struct Aside {
    pub(super) dir: Node,
    pub(super) name: Vec<u8>,
    pub(super) node: Node,
}

impl Trees<'_> {
    /// Has `make` put something new aside in `dir`, under the name that it is given; it is locked then.
    pub(super) fn make_aside<T>(
        &mut self,
        dir: Node,
        mut make: impl FnMut(&mut Self, &[u8]) -> Result<(Node, T)>,
    ) -> Result<(Aside, T)> {
        for _ in 0..NAMES {
            let name = fresh();
            let (node, made) = match make(self, &name) {
                Err(Error::Posix(Errno::EEXIST)) => continue,
                made => made?,
            };
            // Who sweeps may have been there before the lock.
            let is_ours = self.lock_aside(node).is_ok();
            if is_ours && self.backend.lookup(self.cx, dir, &name).is_ok_and(|found| found.id == node.id) {
                return Ok((Aside { dir, name, node }, made));
            }
        }
        Err(Errno::EBUSY.into())
    }

    /// Puts what is called `name` aside, locked before. `EBUSY` if another one is at it.
    pub(super) fn move_aside(&mut self, dir: Node, name: &[u8], node: Node) -> Result<Aside> {
        self.lock_aside(node).map_err(|_| Errno::EBUSY)?;
        let mut moved = Err(Errno::EEXIST.into());
        let mut aside = Vec::new();
        for _ in 0..NAMES {
            aside = fresh();
            moved = self.backend.rename(self.cx, dir, name, dir, &aside, RenameMode::NoReplace);
            if moved != Err(Error::Posix(Errno::EEXIST)) {
                break;
            }
        }
        moved.inspect_err(|_| self.unlock_aside(node))?;
        Ok(Aside { dir, name: aside, node })
    }

    /// Fails if another process has it, or where there are no locks.
    fn lock_aside(&self, node: Node) -> Result<()> {
        self.backend.lock(self.cx, node, &whole(LockKind::Exclusive))
    }

    /// It has its name, or is no more.
    pub(super) fn unlock_aside(&self, node: Node) {
        let _ = self.backend.lock(self.cx, node, &whole(LockKind::Unlock));
    }

    /// Removes what dead ones have left aside in `dir`, as far as the caller may.
    pub fn sweep(&mut self, dir: Node) {
        let Ok(mut names) = self.names(dir) else { return };
        let mut own = ASIDE.to_vec();
        digits(token(), &mut own);
        while let Some(name) = names.next() {
            if !name.starts_with(ASIDE) || name.starts_with(&own) {
                continue;
            }
            let Ok(Some((node, kind))) = self.look(dir, name) else { continue };
            if self.lock_aside(node).is_ok() {
                let name = name.to_vec();
                let _ = self.remove_all(dir, &name, (node, kind), &mut Tally::default());
                self.unlock_aside(node);
            }
        }
    }
}

/// A lock of this process on all of a file.
fn whole(kind: LockKind) -> Lock {
    Lock { kind, owner: LockOwner::Process, through: None, start: 0, end: u64::MAX, pid: 0 }
}

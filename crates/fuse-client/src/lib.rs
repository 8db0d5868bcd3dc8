//! A file system in a process of its own that speaks the FUSE protocol: any
//! unmodified daemon, without the kernel's part of FUSE.
//!
//! The daemon's node ids are the keys of our nodes, its times those of our cache,
//! its file handles lie with the node: the first description that needs one for
//! reading or writing opens it, the last one closes it. What it answers is
//! checked: lengths, kinds, names, ids.
//!
//! When it is started anew (`restart`), its old ids and handles mean nothing: a
//! node of an earlier incarnation is looked up again by its path, and opened again. Every
//! request says for which incarnation it is meant, so that none reaches the wrong one: all
//! that goes into it (ids, handles) is of the incarnation of one `Key`.
#![no_std]

#[cfg(test)]
extern crate std;

mod adaptive_spin;
mod ahead;
mod call;
mod co_location;
mod copy;
mod handles;
mod leases;
mod locks;
mod lower;
mod notices;
mod permission;
mod protocol;
pub mod ring;
mod yielding;

pub use call::{MINOR, UNSPLICED, agree};
pub use session::lacks;

use base::{Cx, Errno, Error, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use pm::UserSlice;
use protocol::*;
use ring::Ring;
use session::{Entry, SessionCache};

/// `mount_flags` of the ring.
pub const DEFAULT_PERMISSIONS: u32 = 1;
/// See [`DEFAULT_PERMISSIONS`].
pub const READ_ONLY: u32 = 2;
/// See [`DEFAULT_PERMISSIONS`]. Every open asks the daemon, also of a file that is open, and what was known of its
/// attributes is forgotten then (close-to-open).
pub const OPENS_ASK: u32 = 4;
/// See [`DEFAULT_PERMISSIONS`]. What was written and closed is stored later: `SYNCFS` waits for all of it, and says what has
/// failed.
pub const SYNCS_WHOLE: u32 = 8;
/// See [`DEFAULT_PERMISSIONS`]. What the daemon itself asks did not answer when it began: a cache in front of it compares
/// nothing with it then.
pub const AWAY: u32 = 16;
/// See [`DEFAULT_PERMISSIONS`]. What it can't hold (`session::lacks`), so many bits to the left.
pub const LACKS_SHIFT: u32 = 8;

/// A FUSE daemon.
#[derive(Debug)]
pub struct FuseClient {
    ring: Ring,
    ahead: ahead::Ahead,
    device: u64,
    read_only: bool,
}

/// What the daemon calls a node, in one of its incarnations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    id: u64,
    incarnation: u32,
}

const fn posix<T>(errno: Errno) -> Result<T> {
    Err(Error::Posix(errno))
}

impl FuseClient {
    /// The daemon behind the ring at `path` (no NUL in it); `device` is the mount's `st_dev`.
    pub fn open(path: &[u8], device: u64, read_only: bool) -> core::result::Result<FuseClient, Errno> {
        let mut text = [0u8; base::PATH_MAX];
        let room = text.get_mut(..path.len()).filter(|room| room.len() < base::PATH_MAX).ok_or(Errno::ENAMETOOLONG)?;
        room.copy_from_slice(path);
        Ok(FuseClient { ring: Ring::open(&text[..path.len() + 1])?, ahead: ahead::Ahead::new(), device, read_only })
    }

    /// The way to the daemon.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    fn mount_flags(&self) -> u32 {
        self.ring.header().map_or(0, |header| header.mount_flags.load(Relaxed))
    }

    fn checks_permission(&self) -> bool {
        self.mount_flags() & DEFAULT_PERMISSIONS != 0
    }

    fn opens_ask(&self) -> bool {
        self.mount_flags() & OPENS_ASK != 0
    }

    fn syncs_whole(&self) -> bool {
        self.mount_flags() & SYNCS_WHOLE != 0
    }

    fn writable(&self) -> Result<()> {
        if self.read_only || self.mount_flags() & READ_ONLY != 0 { posix(Errno::EROFS) } else { Ok(()) }
    }

    /// The root, in the present incarnation.
    fn root(&self) -> Key {
        Key { id: ROOT_ID, incarnation: self.ring.incarnation() }
    }

    /// Two nodes for one request.
    fn keys(&self, s: &SessionCache, cx: &Cx, first: Node, second: Node) -> Result<(Key, Key)> {
        let (first, second) = (self.key(s, cx, first)?, self.key(s, cx, second)?);
        if first.incarnation == second.incarnation { Ok((first, second)) } else { posix(Errno::ENOTCONN) }
    }

    /// The daemon's id of a node, looked up anew if it is of an earlier incarnation.
    fn key(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<Key> {
        let root = self.root();
        if node.id as u32 == 0 {
            return Ok(root);
        }
        let incarnation = root.incarnation;
        loop {
            let record = s.get(node)?;
            if record.incarnation.load(Acquire) == incarnation {
                return Ok(Key { id: record.key.load(Relaxed), incarnation });
            }
            // The topmost stale node on the way, whose directory is known.
            let (mut stale, mut parent) = (node, s.parent(node)?);
            let mut levels = 0;
            while parent.id as u32 != 0 && s.get(parent)?.incarnation.load(Relaxed) != incarnation {
                (stale, parent) = (parent, s.parent(parent)?);
                levels += 1;
                if levels > session::NODES {
                    return posix(Errno::ELOOP);
                }
            }
            let mut name = [0u8; 255];
            let len = s.name(stale, &mut name).map_err(|_| Error::Posix(Errno::ESTALE))?;
            let dir = if parent.id as u32 == 0 { ROOT_ID } else { s.get(parent)?.key.load(Relaxed) };
            let dir = Key { id: dir, incarnation };
            let entry = match self.ask_entry(cx, LOOKUP, dir, [&name[..len], b"\0", b""]) {
                Err(Error::Posix(Errno::ENOENT)) => return posix(Errno::ESTALE),
                other => other?,
            };
            s.lose_locks(stale, incarnation);
            s.renew(stale, entry.key, incarnation);
            if self.ring.incarnation() != incarnation {
                return posix(Errno::ENOTCONN);
            }
        }
    }

    /// Sends a request whose answer is an entry.
    fn ask_entry(&self, cx: &Cx, operation: u32, node: Key, parts: [&[u8]; 3]) -> Result<Entry> {
        let mut reply = [0u8; ENTRY_BYTES];
        self.ask_exact(cx, operation, node, parts, &mut reply)?;
        parse_entry(&reply, node.incarnation)
    }

    /// Sends a request whose answer has at least the length of `reply`.
    fn ask_exact(&self, cx: &Cx, operation: u32, node: Key, parts: [&[u8]; 3], reply: &mut [u8]) -> Result<()> {
        let len = self.ask(cx, operation, node, parts, UserSlice::from_mut(reply))?;
        if len < reply.len() { posix(Errno::EIO) } else { Ok(()) }
    }

    fn ask_nothing(&self, cx: &Cx, operation: u32, node: Key, parts: [&[u8]; 3]) -> Result<()> {
        self.ask(cx, operation, node, parts, NOTHING).map(drop)
    }

    fn ask(&self, cx: &Cx, operation: u32, node: Key, parts: [&[u8]; 3], into: UserSlice) -> Result<usize> {
        if self.ring.is_unknown(operation) {
            return posix(Errno::ENOSYS);
        }
        Ok(self.ring.call(cx, &request(operation, node, parts, NOTHING), into)?)
    }
}

fn request<'a>(operation: u32, node: Key, parts: [&'a [u8]; 3], data: UserSlice) -> ring::Request<'a> {
    ring::Request { operation, node: node.id, incarnation: node.incarnation, parts, data }
}

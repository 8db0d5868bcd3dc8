//! Nodes that nobody changes: those of snapshots.
//!
//! The inode says so. A directory's cachelet says so too, by the bit that says of a file that it is executed ([`EXECUTED`]): who
//! wants to change names looks at the flags anyhow, before it enters. A file's has that bit as well, so that it is not opened
//! on the fast path; the slow one looks at the inode before anybody can open it for writing. So nobody has a way to its bytes,
//! and what is left are its attributes, by slow paths all of them.
//!
//! Reading asks for nothing. Names of a frozen node are names in its directory: the top of a snapshot lies in one that is not
//! frozen, and can be renamed, and taken apart once it is made free.

use crate::fs::Fs;
use crate::segment::cachelet::EXECUTED;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use format::inode::{FROZEN, Head, node_offset, word};
use format::{Features, lane};
use pm::Errno;

/// The bit in an inode's first word.
const BIT: u64 = Head { generation: 0, flags: FROZEN, kind: 0, permission: 0 }.pack();

impl Fs {
    /// Nobody changes a node from here on; or anybody who may, again (`frozen` is false). For its owner: `EPERM`. `EBUSY` of a file
    /// that somebody has open; `EOPNOTSUPP` in a cache, and an image of an older format.
    pub fn freeze(&self, cx: &Cx, node: Node, frozen: bool) -> Result<()> {
        if self.is_cache() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if frozen {
            self.allow(Features::FROZEN)?;
        }
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let now = self.snapshot(cx, cachelet, node.id)?;
        if now.uid != cx.cred.uid && !cx.cred.is_privileged_over(now.uid, now.gid) {
            return Err(Errno::EPERM.into());
        }
        if self.is_frozen(node)? == frozen {
            return Ok(());
        }
        let at = node_offset(node.id) + word::HEAD;
        if !frozen {
            tx.clear_bits(at, BIT)?;
            tx.commit()?;
            if now.kind == Kind::Directory {
                cachelet.flags.fetch_and(!EXECUTED, SeqCst);
            }
            return Ok(());
        }
        // From here on it is opened on the slow path, which looks at the inode.
        cachelet.flags.fetch_or(EXECUTED, SeqCst);
        if now.kind == Kind::Regular && cachelet.opens.load(SeqCst) != 0 {
            return Err(Errno::EBUSY.into());
        }
        tx.set_bits(at, BIT)?;
        tx.commit()
    }

    /// Whether nobody may change a node.
    #[inline]
    pub fn is_frozen(&self, node: Node) -> Result<bool> {
        Ok(self.inode(node_offset(node.id))?.head().flags & FROZEN != 0)
    }

    /// `EROFS` if nobody may change a node.
    #[inline]
    pub(crate) fn may_change(&self, node: Node) -> Result<()> {
        if self.is_frozen(node)? { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// The bit that inodes of this image may have for that.
    #[cfg_attr(not(any(test, feature = "check")), allow(dead_code))]
    pub(crate) fn frozen_flag(&self) -> u8 {
        let has = self.files.features.load(Relaxed) & Features::FROZEN.0 != 0;
        if has { FROZEN } else { 0 }
    }
}

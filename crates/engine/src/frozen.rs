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
use format::inode::{FROZEN, Head, node_generation, node_offset, word};
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
        self.allow(&mut tx, Features::FROZEN)?;
        // From here on it is opened on the slow path, which looks at the inode.
        cachelet.flags.fetch_or(EXECUTED, SeqCst);
        if now.kind == Kind::Regular && cachelet.opens.load(SeqCst) != 0 {
            return Err(Errno::EBUSY.into());
        }
        tx.set_bits(at, BIT)?;
        tx.commit()
    }

    /// Whether nobody may change a node. `ESTALE` if the line is something else by now, whose bytes say nothing.
    #[inline]
    pub fn is_frozen(&self, node: Node) -> Result<bool> {
        let head = self.inode(node_offset(node.id))?.head();
        if head.flags & FROZEN == 0 {
            return Ok(false);
        }
        let is_its = head.generation & 0xff_ffff == node_generation(node.id) && Kind::from_dt(head.kind).is_some();
        if is_its { Ok(true) } else { Err(Errno::ESTALE.into()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::{NewNode, RenameMode, SetAttr};
    use pm::UserSlice;

    /// Goal: what is frozen is changed by no call, in this process and in one that has not seen it before, and by any again
    /// once it is free; a file that is open is not frozen; others than its owner may not say so.
    #[test]
    fn nobody_changes_it() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = |kind| NewNode { kind, mode: 0o755, rdev: 0, target: b"" };
        let dir = test.create(&cx, root, b"dir", &new(Kind::Directory)).unwrap();
        let file = test.create(&cx, dir, b"file", &new(Kind::Regular)).unwrap();
        test.open(&cx, file, 0, 4).unwrap();
        assert_eq!(test.freeze(&cx, file, true), Err(Errno::EBUSY.into()));
        test.close(&cx, 4);
        test.freeze(&cx, file, true).unwrap();
        test.freeze(&cx, dir, true).unwrap();
        let refused = Err::<(), _>(base::Error::Posix(Errno::EROFS));
        let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        for again in [false, true] {
            assert_eq!(test.open(&cx, file, 1, 4).map(drop), refused);
            assert_eq!(test.set_attr(&cx, file, &change), refused);
            assert_eq!(test.set_attr(&cx, dir, &change), refused);
            assert_eq!(test.set_attr(&cx, file, &SetAttr { size: Some(5), ..SetAttr::default() }), refused);
            assert_eq!(test.set_xattr(&cx, file, b"user.x", UserSlice::from_ref(b"y"), 0), refused);
            assert_eq!(test.link(&cx, file, root, b"other"), refused);
            assert_eq!(test.unlink(&cx, dir, b"file"), refused);
            assert_eq!(test.create(&cx, dir, b"new", &new(Kind::Regular)).map(drop), refused);
            assert_eq!(test.rename(&cx, dir, b"file", root, b"file", RenameMode::Replace), refused);
            assert_eq!(test.access(&cx, file, base::W), refused);
            test.open(&cx, file, 0, 4).unwrap();
            test.close(&cx, 4);
            // Nothing that is cached says so any more.
            for node in [dir, file].into_iter().filter(|_| !again) {
                let cachelet = test.cached(&cx, node).unwrap();
                cachelet.flags.fetch_or(crate::segment::cachelet::INVALID, SeqCst);
                cachelet.flags.fetch_and(!EXECUTED, SeqCst);
            }
        }
        let groups = [];
        let other =
            Cx { cred: base::Cred { uid: 7, gid: 7, groups: &groups, privileged: false, privileged_within: false }, ..cx };
        assert_eq!(test.freeze(&other, dir, false), Err(Errno::EPERM.into()));
        test.rename(&cx, root, b"dir", root, b"moved", RenameMode::Replace).unwrap();
        test.freeze(&cx, dir, false).unwrap();
        test.freeze(&cx, file, false).unwrap();
        test.set_attr(&cx, file, &change).unwrap();
        test.unlink(&cx, dir, b"file").unwrap();
        test.rmdir(&cx, root, b"moved").unwrap();
    }

    /// Goal: of a node that has gone while it was looked up, bytes of what took its line are not taken for its flags.
    #[test]
    fn another_line_says_nothing() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = NewNode { kind: Kind::Regular, mode: 0o755, rdev: 0, target: b"" };
        let file = test.create(&cx, root, b"file", &new).unwrap();
        test.unlink(&cx, root, b"file").unwrap();
        let head = &test.inode(node_offset(file.id)).unwrap().head;
        let free = head.swap(u64::from_le_bytes(*b"textfile"), Relaxed);
        assert_ne!(head.load(Relaxed) & BIT, 0);
        let gone = Err::<(), _>(base::Error::Posix(Errno::ESTALE));
        for change in [SetAttr { size: Some(5), ..SetAttr::default() }, SetAttr { mode: Some(0o600), ..SetAttr::default() }] {
            assert_eq!(test.set_attr(&cx, file, &change), gone);
        }
        assert_eq!(test.access(&cx, file, base::W), gone);
        assert_eq!(test.link(&cx, file, root, b"other"), Err(Errno::ENOENT.into()));
        head.store(free, Relaxed);
    }
}

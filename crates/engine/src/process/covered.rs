//! Nodes that the kernel has mounted something on, below the image's kernel mount: a path that comes to one goes on in the
//! kernel, in all programs.
//!
//! The fast path asks nothing for it: the cachelet of such a node carries no name, so no name of at most
//! [`NAME_SHORT`](crate::segment::cachelet::NAME_SHORT) bytes leads to it there; longer ones are looked up out of line,
//! where they are asked about. A node is listed before its name is taken away, and who gives a name holds the
//! cachelet's `owner` and asks the list then: so one of the two sees the other.
//!
//! The list is the server's, who watches the kernel's table of mounts, and means nothing without one.

use crate::fs::{Fs, corrupt};
use crate::lane::lock::Waiter;
use crate::segment::cachelet::Cachelet;
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use format::inode::node_offset;
use pm::Errno;

impl Fs {
    /// Whether the kernel has mounted something on any node.
    #[inline]
    pub fn has_covered(&self) -> bool {
        self.header().covered.count.load(SeqCst) != 0 && self.header().server() != 0
    }

    /// Whether it has on the node with this id.
    #[inline]
    pub fn is_covered(&self, id: u64) -> bool {
        self.has_covered() && self.lists_covered(id)
    }

    #[cold]
    #[inline(never)]
    fn lists_covered(&self, id: u64) -> bool {
        self.header().covered.nodes.iter().any(|node| node.load(SeqCst) == id)
    }

    /// The kernel has mounted something on a node: no name leads there on the fast path any more. `ENOSPC`: on too many.
    pub fn cover(&self, cx: &Cx, node: Node) -> Result<()> {
        if !self.lists_covered(node.id) {
            self.list_covered(cx, node.id)?;
        }
        self.with_cached(cx, node, |cachelet| self.take_name(cx, cachelet, node.id))
    }

    /// What the mount namespace whose mounts the server sees calls the kernel mount; 0: not known.
    pub fn mount_id(&self) -> u32 {
        self.header().covered.mount.load(Acquire)
    }

    /// The server sees the kernel mount under this number.
    pub fn set_mount_id(&self, id: u32) {
        self.header().covered.mount.store(id, Release);
    }

    /// The kernel has nothing mounted on a node any more.
    pub fn uncover(&self, id: u64) {
        let covered = &self.header().covered;
        for node in &covered.nodes {
            if node.compare_exchange(id, 0, AcqRel, Relaxed).is_ok() {
                covered.count.fetch_sub(1, AcqRel);
            }
        }
    }

    /// A new server's kernel has mounted nothing yet.
    pub(super) fn uncover_all(&self) {
        let covered = &self.header().covered;
        covered.nodes.iter().for_each(|node| node.store(0, SeqCst));
        covered.count.store(0, SeqCst);
        covered.mount.store(0, SeqCst);
    }

    fn list_covered(&self, cx: &Cx, id: u64) -> Result<()> {
        let covered = &self.header().covered;
        // Before, so that who dies here leaves a count that is too high.
        covered.count.fetch_add(1, SeqCst);
        let put = |from: u64| covered.nodes.iter().any(|node| node.compare_exchange(from, id, SeqCst, Relaxed).is_ok());
        if put(0) {
            return Ok(());
        }
        covered.count.fetch_sub(1, AcqRel);
        // One that is gone takes its place in the count along.
        let is_gone = |id: u64| self.see(cx, Node { id, hint: u32::MAX }).is_err();
        let gone = covered.nodes.iter().map(|node| node.load(Acquire)).find(|id| is_gone(*id));
        if gone.is_some_and(put) { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    /// Takes the name out of the cachelet of `id`.
    fn take_name(&self, cx: &Cx, cachelet: &Cachelet, id: u64) -> Result<()> {
        let lane = self.lane_of(cx)?;
        let listed = &self.lane_state(lane).loading_cachelet;
        listed.store(self.segment.offset_of(&cachelet.owner), SeqCst);
        let mut wait = Waiter::of(lane);
        if !wait.take(self, &cachelet.owner, lane + 1) {
            listed.store(0, SeqCst);
            wait.check(self)?;
            return Err(corrupt("cachelet", node_offset(id)));
        }
        let is_its = cachelet.node.load(SeqCst) == id;
        if is_its {
            self.forget_name(cachelet);
        }
        self.let_go(lane, cachelet);
        if is_its { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestFs, find_fast};
    use base::{Fast, Kind, NewNode};
    use std::format;

    /// Goal: the fast path comes to no node that the kernel has mounted something on, and the slow path and what lies
    /// beside it are as before. Method: names of both kinds, before, while and after they are covered.
    #[test]
    fn the_fast_path_keeps_off() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        test.start_serving(&cx).unwrap();
        let make = |dir, name: &[u8]| {
            test.create(&cx, dir, name, &NewNode { kind: Kind::Directory, mode: 0o755, rdev: 0, target: b"" }).unwrap()
        };
        let long = format!("{:050}", 1);
        find_fast(&test, root, b"missing");
        for name in ["short", "not so short a name", &long] {
            let node = make(root, name.as_bytes());
            make(node, b"below");
            let below = format!("{name}/below");
            let finds = || (find_fast(&test, root, name.as_bytes()).0, find_fast(&test, root, below.as_bytes()).0);
            assert_eq!(finds(), (Fast::Done(()), Fast::Done(())), "{name}");
            test.cover(&cx, node).unwrap();
            for _ in 0..2 {
                // The slow path leaves no name there either.
                assert_eq!(test.lookup(&cx, root, name.as_bytes()).unwrap().id, node.id);
                assert_eq!(finds(), (Fast::Slow, Fast::Slow), "{name} covered");
            }
            // Who is inside goes on.
            assert_eq!(find_fast(&test, node, b"below").0, Fast::Done(()));
            test.uncover(node.id);
            assert!(!test.has_covered());
            test.lookup(&cx, root, name.as_bytes()).unwrap();
            assert_eq!(finds(), (Fast::Done(()), Fast::Done(())), "{name} uncovered");
        }
    }

    /// Goal: there is room for as many as there are, and that of those that are gone.
    #[test]
    fn the_list_is_full_of_those_that_are_there() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        test.start_serving(&cx).unwrap();
        let make = |i: usize| {
            let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
            test.create(&cx, root, format!("name{i}").as_bytes(), &new).unwrap()
        };
        for i in 0..crate::segment::COVERED {
            test.cover(&cx, make(i)).unwrap();
        }
        let one_more = make(1000);
        assert_eq!(test.cover(&cx, one_more), Err(pm::Errno::ENOSPC.into()));
        test.unlink(&cx, root, b"name7").unwrap();
        assert_eq!(test.cover(&cx, one_more), Ok(()));
        assert!(test.is_covered(one_more.id));
    }
}

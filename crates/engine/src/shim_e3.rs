//! Stand-ins until `file/` is there.
use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::segment::Cachelet;
use base::{Cx, Node, Result};
use core::sync::atomic::Ordering::Acquire;
use format::extent::{Extent, Root};
use format::inode::{Head, word};
use format::BLOCK;
use pm::Errno;
impl Fs {
    pub(crate) fn end_of_extents(&self, root: u64) -> Result<u64> { Err(corrupt("tree", root)) }
    pub(crate) fn find_extent(&self, root: u64, _b: u64) -> Result<Option<Extent>> { Err(corrupt("tree", root)) }
    pub(crate) fn append_blocks(&self, tx: &mut Tx, _c: &Cachelet, offset: u64, _want: u64, _zero: bool) -> Result<Extent> {
        let inode = self.inode(offset)?;
        let (file, near, first) = match Root::unpack(inode.root.load(Acquire)) {
            Some(Root::Empty) => (0, 0, 0),
            Some(Root::One { block, len }) => (len, block + len, block),
            _ => return Err(Errno::ENOSPC.into()),
        };
        let (block, len) = tx.blocks(_want.max(64), near)?;
        if near != 0 && block != near { return Err(Errno::ENOSPC.into()); }
        self.image.zero(block * BLOCK, len * BLOCK)?;
        tx.order();
        let first = if near == 0 { block } else { first };
        tx.set(offset + word::ROOT, Root::One { block: first, len: file + len }.pack())?;
        Ok(Extent { file, block, len })
    }
    pub(crate) fn free_small(&self, tx: &mut Tx, offset: u64) -> Result<bool> {
        let inode = self.inode(offset)?;
        let head = inode.head();
        match (head.kind, Root::unpack(inode.root.load(Acquire))) {
            (10, _) => tx.free_lines(inode.root.load(Acquire), inode.size.load(Acquire).div_ceil(64) as u32)?,
            (4 | 8, Some(Root::One { block, len })) => tx.free_blocks(block, len)?,
            _ => {}
        }
        tx.set(offset + word::HEAD, Head { kind: 0, flags: 0, ..head }.pack())?;
        tx.free_lines(offset, 1)?;
        tx.files(-1);
        Ok(true)
    }
    pub(crate) fn reclaim(&self, _tx: &mut Tx, _offset: u64) -> Result<()> { Ok(()) }
    pub(crate) fn truncate(&self, _cx: &Cx, _n: Node, _s: u64) -> Result<()> { Ok(()) }
    pub(crate) fn cold_line(&self, tx: &mut Tx, _o: u64) -> Result<u64> { tx.lines(1, crate::alloc::Arena::Other) }
}

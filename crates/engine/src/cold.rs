//! The cold line of an inode: what few inodes have (`format::inode::Cold`).

use crate::alloc::Arena;
use crate::fs::Fs;
use crate::lane::Tx;
use base::{Kind, Result};
use core::sync::atomic::Ordering::Acquire;
use format::Cold;
use format::inode::{COLD, Head, word};

impl Fs {
    /// Offset of the cold line of a locked inode, which is made if there is none.
    ///
    /// A new one (the head of the inode has no `COLD` yet) is written aside: the
    /// caller stores into it directly and then names it with `tx.object(line, 1)`.
    /// One that is there is changed by `tx.set`. After the commit the caller sets
    /// the cachelet's `COLD`.
    pub(crate) fn cold_line(&self, tx: &mut Tx, offset: u64) -> Result<u64> {
        let inode = self.inode(offset)?;
        let (head, extra) = (inode.head(), inode.extra.load(Acquire));
        if head.flags & COLD != 0 {
            return Ok(extra);
        }
        let line = tx.lines(1, Arena::Other)?;
        let cold: &Cold = self.at(line, "cold line")?;
        for word in [&cold.atime, &cold.btime, &cold.xattr, &cold.own, &cold.flags, &cold.lower, &cold.shown]
            .into_iter()
            .chain(&cold.reserved)
        {
            self.image.store(word, 0);
        }
        if head.kind == Kind::Directory as u8 {
            self.image.store(&cold.own, extra);
        }
        tx.set(offset + word::EXTRA, line)?;
        tx.set_bits(offset + word::HEAD, Head { generation: 0, flags: COLD, kind: 0, permission: 0 }.pack())?;
        Ok(line)
    }
}

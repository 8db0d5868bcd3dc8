//! A node that was made or changed here has been written to the lower file system.

use super::{Stamp, bits};
use crate::alloc::Arena;
use crate::fs::Fs;
use base::{Cx, Kind, Node, Result};
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use format::inode::{self, Head, node_offset, word};
use format::lane;
use pm::Errno;

impl Fs {
    /// Takes note of which file a node is below, and what that is like. Contents and attributes here stay: they are the
    /// newer ones. A node that the lower file system did not have gets its lower line, by the record; none of its holes
    /// are to be fetched. `EOPNOTSUPP` of one that has a cold line without a lower one.
    pub fn written(&self, cx: &Cx, node: Node, stamp: &Stamp) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::SetAttr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let offset = node_offset(node.id);
        let inode = self.inode(offset)?;
        let head = inode.head();
        if let Some((cold, lower)) = self.lower_lines(inode)? {
            let shown = u64::from(stamp.blocks) << 32 | u64::from(stamp.nlink);
            for (word, value) in [
                (&cold.shown, shown),
                (&lower.number, stamp.number),
                (&lower.device, stamp.device),
                (&lower.size, stamp.size),
                (&lower.mtime, stamp.mtime as u64),
                (&lower.ctime, stamp.ctime as u64),
                (&lower.seen, pm::clock::now() as u64),
            ] {
                tx.set(self.image.offset_of(word), value)?;
            }
        } else {
            if head.flags & inode::COLD != 0 {
                return Err(Errno::EOPNOTSUPP.into());
            }
            let is_directory = head.kind == Kind::Directory as u8;
            let own = if is_directory { inode.extra.load(Acquire) } else { 0 };
            let line = tx.lines(2, Arena::Other)?;
            // All names of a directory that was made here are here.
            self.write_lower(line, own, stamp, if is_directory { bits::LISTED } else { 0 })?;
            let (_, lower) = self.lower_pair(line)?;
            self.image.store(&lower.end, 0);
            tx.object(line, 2)?;
            tx.set(offset + word::EXTRA, line)?;
            tx.set_bits(offset + word::HEAD, Head { generation: 0, flags: inode::COLD, kind: 0, permission: 0 }.pack())?;
        }
        // Odd while head and extra change: a directory's own edentry moves.
        let change = self.change(cachelet);
        tx.commit()?;
        let flags = self.show_lower(&change, inode)?.unwrap_or(0);
        change.flags.fetch_or(flags, SeqCst);
        Ok(())
    }
}

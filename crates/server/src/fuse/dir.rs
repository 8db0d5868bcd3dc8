//! Directories are read.

use super::Call;
use super::abi::{DirentHead, EntryOut, ReadIn};
use super::init::DATA_MAX;
use super::message::{Body, Reply, Result, err};
use base::Kind;
use pm::Errno;
use std::sync::atomic::Ordering::Relaxed;

/// An entry, kept while the directory is read.
struct Entry {
    ino: u64,
    next: u64,
    kind: Kind,
    name: Vec<u8>,
}

impl Call<'_> {
    /// Fills the answer with entries; `plus` is with their attributes.
    pub(super) fn read_directory(&self, mut body: Body, reply: &mut Reply, plus: bool) -> Result<()> {
        let asked: ReadIn = body.take()?;
        let size = asked.size.min(DATA_MAX) as usize;
        // The kernel may keep it: in this order, see `listings`.
        if self.fuse.keeps_listed.load(Relaxed) {
            self.fuse.listings.answer(self.header.node, asked.offset);
            if self.keep_attr(self.node()) == 0 {
                // Gone: nobody would tell of it.
                return err(Errno::ESTALE);
            }
        }
        let entry_s = if plus { self.keep_names(self.node()) } else { 0 };
        let extra = if plus { size_of::<EntryOut>() } else { 0 };
        let (mut entries, mut used) = (Vec::new(), 0);
        self.backend().readdir(&self.cx, self.node(), asked.offset, &mut |entry| {
            let len = (extra + size_of::<DirentHead>() + entry.name.len()).next_multiple_of(8);
            if used + len > size {
                return false;
            }
            used += len;
            entries.push(Entry { ino: entry.ino, next: entry.next, kind: entry.kind, name: entry.name.to_vec() });
            true
        })?;
        self.fuse.listings.has_answer(self.header.node, entries.is_empty(), plus);
        for entry in &entries {
            if plus {
                reply.put(&self.entry_of(entry, entry_s));
            }
            let head =
                DirentHead { ino: entry.ino, next: entry.next, name_len: entry.name.len() as u32, kind: entry.kind as u32 };
            reply.put(&head);
            reply.bytes(&entry.name);
            reply.align();
        }
        Ok(())
    }

    /// What `LOOKUP` would say; nothing of `.` and `..`, and of what has gone meanwhile.
    fn entry_of(&self, entry: &Entry, entry_s: u64) -> EntryOut {
        if matches!(&entry.name[..], b"." | b"..") {
            return EntryOut::default();
        }
        let node = self.backend().lookup(&self.cx, self.node(), &entry.name);
        node.and_then(|node| self.found(node, entry_s)).unwrap_or_default()
    }
}

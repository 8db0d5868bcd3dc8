//! Contents of files.

use super::Call;
use super::abi::{self, CopyIn, FallocateIn, ReadIn, SeekIn, SeekOut, SyncIn, WriteIn, WriteOut};
use super::contents::Sent;
use super::init::DATA_MAX;
use super::message::{Body, Reply, Result, err};
use base::{Cx, Fallocate};
use pm::sys::abi as sys;
use pm::{Errno, UserSlice};

/// Most bytes copied in one request, so that the answer does not take long.
const COPY_MAX: u64 = 64 << 20;

impl Call<'_> {
    pub(super) fn read(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: ReadIn = body.take()?;
        let size = asked.size.min(DATA_MAX) as usize;
        // It may be for a page that is mapped.
        self.keep_attr(self.node());
        let for_page = asked.read_flags & abi::READ_BY_OWNER == 0;
        let mut read = || {
            reply.fill(size, |room| {
                let read = self.backend().read(&self.cx, self.node(), asked.offset, &[UserSlice::from_mut(room)])?;
                if !for_page {
                    self.moved(asked.handle, asked.offset + read as u64);
                }
                Ok(read)
            })
        };
        match for_page && self.fuse.may_store(self.header.node) {
            true => {
                let range = (asked.offset, size as u64);
                self.fuse.stores.read(self.header.node, range, || self.backend().kernel_mount().count_stored(true), read)
            }
            false => read(),
        }
    }

    pub(super) fn write(&self, mut body: Body, reply: &mut Reply) -> Result<Sent> {
        let asked: WriteIn = body.take()?;
        let data = body.bytes(asked.size)?;
        let from_pages = asked.write_flags & abi::WRITE_FROM_PAGES != 0;
        let written = if from_pages { self.take_back(&asked, data)? } else { self.write_as_asked(&asked, data)? };
        if asked.flags & (sys::O_SYNC | sys::O_DSYNC) != 0 {
            self.backend().sync(&self.cx, Some(self.node()), asked.flags & sys::O_SYNC != sys::O_SYNC)?;
        }
        reply.put(&WriteOut { size: written as u32, padding: 0 });
        Ok(self.count_write(from_pages))
    }

    fn write_as_asked(&self, asked: &WriteIn, data: &[u8]) -> Result<usize> {
        // What the kernel takes for the end may be old: the end is where we say.
        let at = (asked.flags & sys::O_APPEND == 0).then_some(asked.offset);
        let keeps = asked.write_flags & abi::WRITE_KILL_SET_ID == 0;
        let write = |cx: &Cx| self.backend().write(cx, self.node(), at, &[UserSlice::from_ref(data)]);
        // Where the end will be found nobody knows yet; not before where it is.
        let range = match at {
            Some(at) => (at, at.saturating_add(data.len() as u64)),
            None if self.fuse.stores.knows(self.header.node) => (self.backend().attr(&self.cx, self.node())?.size, u64::MAX),
            None => (0, u64::MAX),
        };
        let (written, end) =
            self.change_contents(self.node(), Some(keeps), |cx| self.fuse.stores.write(self.header.node, range, || write(cx)))?;
        self.moved(asked.handle, end);
        Ok(written)
    }

    /// Pages that were stored into: see `stores`. That takes nobody's rights away. They do not make the file longer, whatever
    /// the kernel takes for its end.
    fn take_back(&self, asked: &WriteIn, data: &[u8]) -> Result<usize> {
        let size = self.backend().attr(&self.cx, self.node())?.size;
        let (start, end) = (asked.offset, asked.offset.saturating_add(data.len() as u64).min(size));
        if start < end {
            self.fuse.stores.take_back(self.header.node, start, end, |from, to| {
                let part = data.get((from - start) as usize..(to - start) as usize).unwrap_or_default();
                let (written, _) = self.backend().write_stored(&self.cx, self.node(), from, &[UserSlice::from_ref(part)])?;
                if written == part.len() { Ok(()) } else { err(Errno::ENOSPC) }
            })?;
        }
        Ok(data.len())
    }

    pub(super) fn sync(&self, mut body: Body) -> Result<()> {
        let asked: SyncIn = body.take()?;
        self.backend().sync(&self.cx, Some(self.node()), asked.flags & abi::SYNC_DATA != 0)
    }

    pub(super) fn fallocate(&self, mut body: Body) -> Result<()> {
        let asked: FallocateIn = body.take()?;
        let Some(how) = Fallocate::of_flags(asked.mode) else { return err(Errno::EOPNOTSUPP) };
        // That the kernel asks for set-id bits to be taken away before does not suffice: it goes by a mode that may be old.
        self.change_contents(self.node(), None, |cx| self.backend().fallocate(cx, self.node(), how, asked.offset, asked.len))
    }

    pub(super) fn seek(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: SeekIn = body.take()?;
        let data = match asked.whence {
            sys::SEEK_DATA => true,
            sys::SEEK_HOLE => false,
            _ => return err(Errno::EINVAL),
        };
        reply.put(&SeekOut { offset: self.backend().seek(&self.cx, self.node(), asked.offset, data)? });
        Ok(())
    }

    pub(super) fn copy(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        let asked: CopyIn = body.take()?;
        if asked.flags != 0 {
            return err(Errno::EINVAL);
        }
        if self.fuse.stores.knows(asked.to_node) {
            // The kernel would drop pages that were stored into; it copies by itself then.
            return err(Errno::EOPNOTSUPP);
        }
        let (from, to) = (self.node(), self.fuse.node(asked.to_node));
        let len = asked.len.min(COPY_MAX);
        let copy = |cx: &Cx| self.backend().copy_range(cx, from, asked.offset, to, asked.to_offset, len);
        let copied = self.change_contents(to, None, copy)?;
        self.moved(asked.handle, asked.offset + copied);
        self.moved(asked.to_handle, asked.to_offset + copied);
        reply.put(&WriteOut { size: copied as u32, padding: 0 });
        Ok(())
    }
}

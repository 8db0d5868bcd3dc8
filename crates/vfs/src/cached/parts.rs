//! Open files and extended attributes of [`Cached`]: the session's, or asked below.

use super::{Cached, posix};
use crate::backend::{Mappings, OpenFileTable, Xattrs};
use crate::*;
use pm::{Table, UserSlice};
use session::LowerFs;

impl<S: LowerFs> OpenFileTable for Cached<S> {
    fn tmpfile(&self, _cx: &Cx, _dir: Node, _mode: u16, _flags: u32, _fd: u32) -> Result<DescriptionId> {
        posix(Errno::EOPNOTSUPP)
    }

    fn open(&self, cx: &Cx, node: Node, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.reap(cx);
        let kind = self.session.get(node)?.kind();
        self.files().open(cx, node, (kind, flags), fd, || self.lower.open(&self.session, cx, node, flags))
    }

    fn descriptions(&self) -> Table<OpenFile> {
        self.session.descriptions()
    }

    fn description(&self, id: DescriptionId) -> &OpenFile {
        self.session.description(id)
    }

    fn dup(&self, id: DescriptionId, fd: u32) -> Result<()> {
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        self.files().dup(&cx, id, fd)
    }

    fn close(&self, cx: &Cx, fd: u32) {
        // Nobody is there to be told.
        let _ = self.close_checked(cx, fd);
    }

    fn close_checked(&self, cx: &Cx, fd: u32) -> Result<()> {
        // First, while the description and its handles are there for certain.
        let flushed = self.session.holding(fd).map_or(Ok(()), |id| self.flush_of(cx, id));
        self.files().close(cx, fd);
        flushed
    }

    fn offset_lock(&self, _cx: &Cx, id: DescriptionId) {
        self.session.offset_lock(id)
    }

    fn offset_unlock(&self, _cx: &Cx, id: DescriptionId) {
        self.session.offset_unlock(id)
    }
}

impl<S: LowerFs> Mappings for Cached<S> {
    fn is_mapped(&self, address: usize) -> bool {
        self.session.is_mapped(address)
    }

    fn map(&self, _: &Cx, _: Node, _: u64, _: u64, _: MapFor, _: &mut dyn FnMut(MapRange)) -> Result<()> {
        posix(Errno::ENODEV)
    }

    fn backing(&self) -> Option<pm::file::File> {
        None
    }
}

impl<S: LowerFs> Xattrs for Cached<S> {
    fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.lower.get_xattr(&self.session, cx, node, name, out)
    }

    fn set_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        let result = self.lower.set_xattr(&self.session, cx, node, name, value, flags);
        self.session.forget_attr(node);
        result
    }

    fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.lower.list_xattr(&self.session, cx, node, out)
    }

    fn remove_xattr(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        let result = self.lower.remove_xattr(&self.session, cx, node, name);
        self.session.forget_attr(node);
        result
    }
}

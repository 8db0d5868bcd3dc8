//! A file system in the place of one that can't be served: every call on it is an error.
//!
//! It stands where the other would, so that no path of it leads to what lies underneath.

use crate::backend::*;
use base::DescriptionId;
use base::*;
use openfiles::OpenFile;
use pm::{Errno, UserSlice};

/// What stands in its place.
#[derive(Debug)]
pub struct Refused {
    errno: Errno,
    description: OpenFile,
}

impl Refused {
    /// Answers everything with `errno`.
    pub const fn new(errno: Errno) -> Refused {
        Refused { errno, description: OpenFile::new() }
    }

    fn no<T>(&self) -> Result<T> {
        Err(Error::Posix(self.errno))
    }
}

impl Backend for Refused {
    fn root(&self) -> Node {
        Node { id: 1, hint: 0 }
    }
    fn device(&self) -> u64 {
        0
    }
    fn refuses(&self) -> Option<Errno> {
        Some(self.errno)
    }
    fn walk<'a>(
        &self,
        _: &Cx,
        _: Node,
        _: &'a [u8],
        _: Last,
        _: &mut u32,
        _: Option<&dyn Fn(Node) -> bool>,
        _: &'a mut Scratch,
    ) -> Result<Walk<'a>> {
        self.no()
    }
    fn lookup(&self, _: &Cx, _: Node, _: &[u8]) -> Result<Node> {
        self.no()
    }
    fn parent(&self, _: &Cx, _: Node) -> Result<Node> {
        self.no()
    }
    fn name_of(&self, _: &Cx, _: Node, _: &mut [u8; 255]) -> Result<usize> {
        self.no()
    }
    fn attr(&self, _: &Cx, _: Node) -> Result<Attr> {
        self.no()
    }
    fn access(&self, _: &Cx, _: Node, _: u16) -> Result<()> {
        self.no()
    }
    fn set_attr(&self, _: &Cx, _: Node, _: &SetAttr) -> Result<()> {
        self.no()
    }
    fn readlink(&self, _: &Cx, _: Node, _: UserSlice) -> Result<usize> {
        self.no()
    }
    fn create(&self, _: &Cx, _: Node, _: &[u8], _: &NewNode) -> Result<Node> {
        self.no()
    }
    fn link(&self, _: &Cx, _: Node, _: Node, _: &[u8]) -> Result<()> {
        self.no()
    }
    fn unlink(&self, _: &Cx, _: Node, _: &[u8]) -> Result<()> {
        self.no()
    }
    fn rmdir(&self, _: &Cx, _: Node, _: &[u8]) -> Result<()> {
        self.no()
    }
    fn rename(&self, _: &Cx, _: Node, _: &[u8], _: Node, _: &[u8], _: RenameMode) -> Result<()> {
        self.no()
    }
    fn readdir(&self, _: &Cx, _: Node, _: u64, _: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.no()
    }
    fn statfs(&self) -> Result<StatFs> {
        self.no()
    }
    fn read(&self, _: &Cx, _: Node, _: u64, _: &[UserSlice]) -> Result<usize> {
        self.no()
    }
    fn write(&self, _: &Cx, _: Node, _: Option<u64>, _: &[UserSlice]) -> Result<(usize, u64)> {
        self.no()
    }
    fn copy_range(&self, _: &Cx, _: Node, _: u64, _: Node, _: u64, _: u64) -> Result<u64> {
        self.no()
    }
    fn fallocate(&self, _: &Cx, _: Node, _: Fallocate, _: u64, _: u64) -> Result<()> {
        self.no()
    }
    fn seek(&self, _: &Cx, _: Node, _: u64, _: bool) -> Result<u64> {
        self.no()
    }
    fn sync(&self, _: &Cx, node: Option<Node>, _: bool) -> Result<()> {
        // `sync` of everything has nothing to do here.
        node.map_or(Ok(()), |_| self.no())
    }
    fn detach(&self, _: &Cx) {}

    fn handover(&self) -> &dyn Handover {
        self
    }
}

impl OpenFileTable for Refused {
    fn tmpfile(&self, _: &Cx, _: Node, _: u16, _: u32, _: u32) -> Result<DescriptionId> {
        self.no()
    }

    fn open(&self, _: &Cx, _: Node, _: u32, _: u32) -> Result<DescriptionId> {
        self.no()
    }

    fn description(&self, _: DescriptionId) -> &OpenFile {
        // Nothing was ever opened.
        &self.description
    }

    fn dup(&self, _: DescriptionId, _: u32) -> Result<()> {
        self.no()
    }

    fn close(&self, _: &Cx, _: u32) {}

    fn offset_lock(&self, _: &Cx, _: DescriptionId) {}

    fn offset_unlock(&self, _: &Cx, _: DescriptionId) {}
}

impl Mappings for Refused {
    fn map(&self, _: &Cx, _: Node, _: u64, _: u64, _: MapFor, _: &mut dyn FnMut(MapRange)) -> Result<()> {
        self.no()
    }

    fn backing(&self) -> Option<pm::file::File> {
        None
    }
}

impl Xattrs for Refused {
    fn get_xattr(&self, _: &Cx, _: Node, _: &[u8], _: UserSlice) -> Result<usize> {
        self.no()
    }

    fn set_xattr(&self, _: &Cx, _: Node, _: &[u8], _: UserSlice, _: u32) -> Result<()> {
        self.no()
    }

    fn list_xattr(&self, _: &Cx, _: Node, _: UserSlice) -> Result<usize> {
        self.no()
    }

    fn remove_xattr(&self, _: &Cx, _: Node, _: &[u8]) -> Result<()> {
        self.no()
    }
}

impl AdvisoryLocks for Refused {
    fn lock(&self, _: &Cx, _: Node, _: &Lock) -> Result<()> {
        self.no()
    }

    fn conflicting_lock(&self, _: &Cx, _: Node, _: &Lock) -> Result<Option<Lock>> {
        self.no()
    }

    fn drop_process_locks(&self, _: &Cx, _: Node) {}
}

impl Handover for Refused {
    fn fork_prepare(&self, _: &Cx) -> Result<u64> {
        Ok(0)
    }

    fn fork_child(&self, _: u64) {}

    fn fork_failed(&self, _: &Cx, _: u64) {}

    fn spawns(&self) -> bool {
        true
    }

    fn exec_prepare(&self) -> u64 {
        0
    }

    fn exec_failed(&self) {}

    fn exec_claim(&self, _: u64, _: &mut dyn FnMut(u32, DescriptionId)) -> Result<()> {
        // What the program before had open is lost: its numbers answer `EBADF`.
        Ok(())
    }
}

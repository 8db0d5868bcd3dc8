//! A file system behind a cache image: what that asks beside what a [`Backend`] has.

use super::Cached;
use crate::{Backend, Cx, DirEntry, Node, Result};
use pm::UserSlice;
use session::LowerFs;

/// A file system that a cache image can stand in front of. Nobody opens files in it: it opens what it needs for a call.
pub trait Below: Backend {
    /// As `read_one`, of a file that nobody has open; fewer bytes only at its end.
    fn read_below(&self, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize>;

    /// As `seek`, of a file that nobody has open.
    fn seek_below(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64>;

    /// All entries of a directory.
    fn list_below(&self, cx: &Cx, dir: Node, each: &mut dyn FnMut(DirEntry) -> Result<()>) -> Result<()>;

    /// Rises when it has told of a change by others.
    fn told(&self) -> u64;
}

impl<S: LowerFs> Below for Cached<S> {
    fn read_below(&self, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        // Alone: nobody lets go of what another reads by.
        self.session.alone(node, || {
            let read = self.lower.read(&self.session, cx, node, offset, into);
            self.lower.closed(&self.session, cx, node);
            read
        })
    }

    fn seek_below(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        self.session.alone(node, || {
            let found = self.seek(cx, node, offset, data);
            self.lower.closed(&self.session, cx, node);
            found
        })
    }

    fn list_below(&self, cx: &Cx, dir: Node, each: &mut dyn FnMut(DirEntry) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        let listed = self.readdir(cx, dir, 0, &mut |entry| {
            result = each(entry);
            result.is_ok()
        });
        self.session.alone(dir, || {
            self.lower.closed(&self.session, cx, dir);
            Ok(())
        })?;
        listed.and(result)
    }

    fn told(&self) -> u64 {
        self.lower.told()
    }
}

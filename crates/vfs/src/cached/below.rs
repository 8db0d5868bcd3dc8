//! A file system behind a cache image: what that asks beside what a [`Backend`] has.

use super::Cached;
use crate::{Attr, Backend, Cx, DirEntry, Errno, Lock, Node, Result};
use core::sync::atomic::Ordering::Relaxed;
use pm::UserSlice;
use session::{LowerFs, LowerLeases};

/// A file system that a cache image can stand in front of. Nobody opens files in it: it opens what it needs for a call.
pub trait Below: Backend {
    /// As `read_one`, of a file that nobody has open; fewer bytes only at its end.
    fn read_below(&self, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize>;

    /// As `seek`, of a file that nobody has open.
    fn seek_below(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64>;

    /// All entries of a directory.
    fn list_below(&self, cx: &Cx, dir: Node, each: &mut dyn FnMut(DirEntry) -> Result<()>) -> Result<()>;

    /// The same, with their attributes where it tells them at once.
    fn list_whole(&self, cx: &Cx, dir: Node, each: &mut dyn FnMut(DirEntry, Option<&Attr>) -> Result<()>) -> Result<()>;

    /// Writes all of this at `offset`, into a file that nobody has open, and syncs it, unless the whole is synced
    /// ([`Below::syncs_whole`]): what a daemon that writes later could not do is told here.
    fn write_below(&self, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<()>;

    /// What it can't hold ([`session::lacks`]).
    fn lacks(&self) -> u32;

    /// Whether a sync of the whole (`sync` of no node) waits for all that was written, and says what has failed.
    fn syncs_whole(&self) -> bool;

    /// A file that was made, or managed, is wanted no more.
    fn done_below(&self, cx: &Cx, node: Node) -> Result<()>;

    /// Rises when it has told of a change by others.
    fn told(&self) -> u64;

    /// What is known of a node's attributes is believed no more.
    fn doubt(&self, node: Node);

    /// Its locks, for a session as a whole.
    fn leases(&self) -> &dyn Leases;
}

/// Locks that a file system keeps itself, had by a session as a whole: a cache image in front of it keeps its programs apart.
/// Files are called as the image calls them.
pub trait Leases {
    /// Whether it keeps locks: `flock`, or else record and OFD locks.
    fn keeps_locks(&self, flock: bool) -> bool;

    /// Runs with the leases to itself. Not to be nested.
    fn alone(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()>;

    /// Has a lease of the file of this name: [`LowerLeases::begin`].
    fn begin(&self, cx: &Cx, name: (Node, &[u8]), file: u64) -> Result<()>;

    /// Sets or clears a lock by it; `EAGAIN` where another has a conflicting one.
    fn lock(&self, cx: &Cx, file: u64, lock: &Lock) -> Result<()>;

    /// The first lock of another's that conflicts with one.
    fn conflicting_lock(&self, cx: &Cx, file: u64, lock: &Lock) -> Result<Option<Lock>>;

    /// Gives a lease up, with all that is locked by it.
    fn end(&self, cx: &Cx, file: u64);

    /// Whether a file has a lease.
    fn has(&self, file: u64) -> bool;

    /// Whether a file has one that is lost.
    fn is_lost(&self, file: u64) -> bool;

    /// Calls `each` with every file that has a lease.
    fn each(&self, each: &mut dyn FnMut(u64));
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
        self.done_below(cx, dir)?;
        listed.and(result)
    }

    fn list_whole(&self, cx: &Cx, dir: Node, each: &mut dyn FnMut(DirEntry, Option<&Attr>) -> Result<()>) -> Result<()> {
        if self.session.get(dir)?.removed.load(Relaxed) != 0 {
            return Err(Errno::ENOENT.into());
        }
        let mut result = Ok(());
        let listed = self.lower.list(&self.session, cx, dir, &mut |entry, attr| {
            result = each(entry, attr);
            result.is_ok()
        });
        self.done_below(cx, dir)?;
        listed.and(result)
    }

    fn write_below(&self, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<()> {
        self.session.alone(node, || {
            let written = self.write_whole(cx, node, offset, from);
            let is_later = self.lower.syncs_whole();
            let synced =
                written.and_then(|()| if is_later { Ok(()) } else { self.lower.sync(&self.session, cx, Some(node), true) });
            self.lower.closed(&self.session, cx, node);
            synced
        })
    }

    fn lacks(&self) -> u32 {
        self.lower.lacks()
    }

    fn syncs_whole(&self) -> bool {
        self.lower.syncs_whole()
    }

    fn done_below(&self, cx: &Cx, node: Node) -> Result<()> {
        self.session.alone(node, || {
            self.lower.closed(&self.session, cx, node);
            Ok(())
        })
    }

    fn told(&self) -> u64 {
        self.lower.told()
    }

    fn doubt(&self, node: Node) {
        self.session.forget_attr(node);
    }

    fn leases(&self) -> &dyn Leases {
        self
    }
}

impl<S: LowerFs> Leases for Cached<S> {
    fn keeps_locks(&self, flock: bool) -> bool {
        self.lower.keeps_locks(flock)
    }

    fn alone(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.session.alone_with_leases(run)
    }

    fn begin(&self, cx: &Cx, name: (Node, &[u8]), file: u64) -> Result<()> {
        let node = self.lookup(cx, name.0, name.1)?;
        self.lower_leases()?.begin(&self.session, cx, (name.0, name.1, node), file)
    }

    fn lock(&self, cx: &Cx, file: u64, lock: &Lock) -> Result<()> {
        self.lower_leases()?.lock(&self.session, cx, file, lock)
    }

    fn conflicting_lock(&self, cx: &Cx, file: u64, lock: &Lock) -> Result<Option<Lock>> {
        self.lower_leases()?.conflicting_lock(&self.session, cx, file, lock)
    }

    fn end(&self, cx: &Cx, file: u64) {
        if let Ok(leases) = self.lower_leases() {
            leases.end(&self.session, cx, file);
        }
    }

    fn has(&self, file: u64) -> bool {
        self.session.lease(file).is_some()
    }

    fn is_lost(&self, file: u64) -> bool {
        self.lower_leases().is_ok_and(|leases| leases.is_lost(&self.session, file))
    }

    fn each(&self, each: &mut dyn FnMut(u64)) {
        self.session.leases().for_each(|lease| each(lease.file));
    }
}

impl<S: LowerFs> Cached<S> {
    fn lower_leases(&self) -> Result<&dyn LowerLeases> {
        self.lower.leases().ok_or(Errno::EOPNOTSUPP.into())
    }

    fn write_whole(&self, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<()> {
        let mut done = 0;
        while done < from.len {
            match self.write(cx, node, Some(offset + done as u64), &[from.part(done, from.len - done)])? {
                (0, _) => return Err(Errno::EIO.into()),
                (wrote, _) => done += wrote,
            }
        }
        Ok(())
    }
}

//! FUSE requests on a file system of ours: bytes in, bytes out.
//!
//! | file | requests |
//! |---|---|
//! | `abi`, `message` | structures; taking requests apart, putting answers together |
//! | `init` | `INIT`: what is agreed on |
//! | `nodes` | numbers of nodes, attributes: `LOOKUP GETATTR SETATTR READLINK STATFS` |
//! | `names` | `MKNOD MKDIR SYMLINK LINK UNLINK RMDIR RENAME` |
//! | `open` | `OPEN CREATE TMPFILE OPENDIR RELEASE FLUSH IOCTL`, and the numbers of what is open |
//! | `contents` | files whose contents the kernel keeps |
//! | `stores` | stores into mapped pages beside writes to the same pages |
//! | `data` | `READ WRITE FSYNC FALLOCATE LSEEK COPY_FILE_RANGE` |
//! | `dir` | `READDIR READDIRPLUS` |
//! | `listings` | directories that the kernel lists by itself |
//! | `xattr` | extended attributes |
//! | `rights` | set-id bits, which a change takes away |
//! | `nlookup` | `FORGET BATCH_FORGET`: which nodes the kernel may know |
//! | `notify` | what the kernel is told to forget |
//! | `lock` | `GETLK SETLK SETLKW INTERRUPT` |
//!
//! The kernel has checked permissions (`default_permissions`) with the
//! caller's real rights, groups and capabilities before a request gets here;
//! so calls are made with all rights, but in the caller's name: what is new belongs to him.

pub mod abi;
mod contents;
mod data;
mod dir;
mod init;
mod listings;
mod lock;
pub mod message;
mod names;
mod nlookup;
mod nodes;
mod notify;
mod open;
mod rights;
mod stores;
mod xattr;

use crate::pool::{Pool, Seat};
use abi::{InHeader, op};
use base::{Calls, Cred, Cx, Node, Thread, ids};
pub use contents::REST;
use contents::Sent;
pub use init::READ_AHEAD;
use message::{Body, Reply, Result, err};
pub use nodes::Keepers;
pub(crate) use notify::{forget_name, forget_node};
use pm::Errno;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use vfs::Backend;

/// Carries an answer that is ready later than its request to the kernel.
pub type Later = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A file system, as the kernel sees it. Any number of threads ask it.
pub struct Fuse {
    backend: &'static dyn Backend,
    keepers: Keepers,
    handles: open::Handles,
    locks: lock::Locks,
    nlookup: nlookup::Nlookup,
    listings: listings::Listings,
    contents: contents::Contents,
    stores: stores::Stores,
    /// The kernel drops pages after a direct write by itself; see [`abi::MINOR_DROPS_AFTER`].
    drops_after: AtomicBool,
    pool: Pool,
    /// Files go by direct I/O; false on kernels that could not map them then.
    direct: AtomicBool,
    /// The kernel may keep the attributes that it finds with a name; see [`abi::MINOR_EVICTIONS`].
    keeps_found: AtomicBool,
    /// It may keep what it lists; see `listings`.
    keeps_listed: AtomicBool,
}

/// What a thread brings along.
#[derive(Debug, Default)]
pub struct Worker {
    thread: Thread,
    seat: Arc<Seat>,
    /// Who asked last, whether that is a program with the library, and how often it is believed yet.
    last: Cell<(u32, bool, u32)>,
}

/// So many requests of one process in a row are counted alike before the table is looked at again.
const BELIEVED: u32 = 64;

impl std::fmt::Debug for Fuse {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Fuse").finish_non_exhaustive()
    }
}

impl Fuse {
    /// Serves `backend`; `keepers` may search `.bypath`; answers to requests that wait go to `later`. The kernel
    /// may keep the contents of files that nobody has changed for `rest`.
    pub fn new(backend: &'static dyn Backend, keepers: Keepers, later: Later, rest: Duration) -> Fuse {
        Fuse {
            backend,
            keepers,
            handles: open::Handles::new(),
            locks: lock::Locks::new(later),
            nlookup: nlookup::Nlookup::default(),
            listings: listings::Listings::default(),
            contents: contents::Contents::new(rest),
            stores: stores::Stores::default(),
            drops_after: AtomicBool::new(false),
            pool: Pool::default(),
            direct: AtomicBool::new(true),
            keeps_found: AtomicBool::new(false),
            keeps_listed: AtomicBool::new(false),
        }
    }

    /// Answers one request; `None` where there is nothing to be sent (now).
    pub fn answer<'r>(&self, worker: &Worker, request: &[u8], reply: &'r mut Reply) -> Option<&'r [u8]> {
        reply.clear();
        let (header, body) = Body::split(request)?;
        self.count(worker, &header);
        worker.seat.begin(header.unique, header.pid);
        let done = self.dispatch(worker, &header, body, reply);
        worker.seat.end(self.backend);
        match done {
            Ok(Done::Silent) => None,
            Ok(Done::Answered(Sent::Now)) => Some(reply.finish(header.unique, Ok(()))),
            Ok(Done::Answered(sent)) => {
                self.in_turn(header.node, sent, reply.finish(header.unique, Ok(())));
                None
            }
            Err(error) => Some(reply.finish(header.unique, Err(error))),
        }
    }

    /// Counts a request that a program made; the kernel's own have no PID.
    fn count(&self, worker: &Worker, header: &InHeader) {
        if header.pid != 0 {
            let passed = u64::from(worker.has_library(self.backend, header.pid));
            self.backend.count_calls(&Calls { mount: 1, passed, ..Calls::default() });
        }
    }

    fn dispatch(&self, worker: &Worker, header: &InHeader, body: Body, reply: &mut Reply) -> Result<Done> {
        let call = Call { fuse: self, header, cx: cx(worker, header) };
        match header.opcode {
            op::FORGET => return call.forget(body).map(|()| Done::Silent),
            op::BATCH_FORGET => return call.forget_many(body).map(|()| Done::Silent),
            op::INTERRUPT => return call.interrupt(body),
            op::SETLKW => return call.set_lock(body, true),
            op::SETLK => return call.set_lock(body, false),
            op::OPEN => return call.open(body, reply).map(Done::Answered),
            op::WRITE => return call.write(body, reply).map(Done::Answered),
            op::INIT => call.init(body, reply),
            op::DESTROY => Ok(()),
            op::LOOKUP => call.lookup(body, reply),
            op::GETATTR => call.get_attr(body, reply),
            op::SETATTR => call.set_attr(body, reply),
            op::READLINK => call.read_link(reply),
            op::STATFS => call.statfs(reply),
            op::MKNOD => call.mknod(body, reply),
            op::MKDIR => call.mkdir(body, reply),
            op::SYMLINK => call.symlink(body, reply),
            op::LINK => call.link(body, reply),
            op::UNLINK => call.unlink(body),
            op::RMDIR => call.rmdir(body),
            op::RENAME => call.rename(body),
            op::RENAME2 => call.rename2(body),
            op::OPENDIR => call.open_directory(body, reply),
            op::CREATE => call.create(body, reply),
            op::TMPFILE => call.tmpfile(body, reply),
            op::FLUSH => call.flush(body),
            op::RELEASE | op::RELEASEDIR => call.release(body),
            op::READ => call.read(body, reply),
            op::FSYNC | op::FSYNCDIR => call.sync(body),
            op::FALLOCATE => call.fallocate(body),
            op::LSEEK => call.seek(body, reply),
            op::COPY_FILE_RANGE => call.copy(body, reply),
            op::READDIR => call.read_directory(body, reply, false),
            op::READDIRPLUS => call.read_directory(body, reply, true),
            op::SETXATTR => call.set_xattr(body),
            op::GETXATTR => call.get_xattr(body, reply),
            op::LISTXATTR => call.list_xattr(body, reply),
            op::REMOVEXATTR => call.remove_xattr(body),
            op::GETLK => call.get_lock(body, reply),
            op::IOCTL => call.ioctl(body, reply),
            _ => err(Errno::ENOSYS),
        }?;
        Ok(Done::Answered(Sent::Now))
    }

    /// Whether files go by direct I/O.
    fn direct(&self) -> bool {
        self.direct.load(Relaxed)
    }

    /// The threads that ask it.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Lets `wait_for_locks` look whether it is to stop.
    pub fn wake_locks(&self) {
        self.locks.wake();
    }

    /// Tries again, for good, to give waiting requests their locks; ends with `stop`.
    pub fn wait_for_locks(&self, worker: &Worker, stop: &AtomicBool) {
        self.locks.run(self.backend, worker, stop);
    }
}

impl Worker {
    /// What a thread in this seat brings along.
    pub fn at(seat: Arc<Seat>) -> Worker {
        Worker { seat, ..Worker::default() }
    }

    /// What the thread holds of the file system.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Whether process `pid` has the image open itself.
    fn has_library(&self, backend: &dyn Backend, pid: u32) -> bool {
        let (last, known, left) = self.last.get();
        let (has, left) =
            if last == pid && left > 0 { (known, left - 1) } else { (backend.kernel_mount().is_user(pid), BELIEVED) };
        self.last.set((pid, has, left));
        has
    }
}

/// Whether an answer is to be sent.
enum Done {
    Answered(Sent),
    Silent,
}

/// In whose name a request is served.
fn cx<'w>(worker: &'w Worker, header: &InHeader) -> Cx<'w> {
    let cred = Cred { uid: user(header.uid), gid: group(header.gid), ..Cred::ROOT };
    Cx { cred, umask: 0, thread: &worker.thread }
}

/// Whom a mount in another user namespace than the initial one gives this number: the server's own.
fn user(id: u32) -> u32 {
    ids::user(id).unwrap_or(id)
}

/// The same of a group.
fn group(id: u32) -> u32 {
    ids::group(id).unwrap_or(id)
}

/// One request.
struct Call<'c> {
    fuse: &'c Fuse,
    header: &'c InHeader,
    cx: Cx<'c>,
}

impl Call<'_> {
    fn backend(&self) -> &'static dyn Backend {
        self.fuse.backend
    }

    /// The node that the request is about.
    fn node(&self) -> Node {
        self.fuse.node(self.header.node)
    }
}

//! Putting messages together, and the first of them.

use super::protocol::{INIT, NOTHING, word32};
use super::ring::{DATA_MAX, Request, Ring};
use base::Cx;
use core::sync::atomic::Ordering::Relaxed;
use pm::{Errno, UserSlice};

/// The fixed part of a request.
pub(super) struct Message {
    bytes: [u8; 96],
    len: usize,
}

impl Message {
    pub fn new() -> Self {
        Message { bytes: [0; 96], len: 0 }
    }

    pub fn word32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    pub fn word64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        // No message has more than 88 bytes.
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
        self
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The version that we speak; a daemon may answer with an older one, down to 7.19.
pub const MINOR: u32 = 31;
const OLDEST: u32 = 19;
/// What we say to a daemon that has a socket. From 7.13 on Go's, from 7.14 on libfuse moves replies to the kernel by `splice`,
/// which cuts them into packets there. Nothing else in a message has changed since but for what `INIT` and notices hold.
pub const UNSPLICED: u32 = 12;
/// It takes several reads of a file at a time.
pub(super) const ASYNC_READ: u32 = 1;
/// It keeps record locks, and OFD locks.
pub(super) const POSIX_LOCKS: u32 = 1 << 1;
const BIG_WRITES: u32 = 1 << 5;
/// The daemon applies the umask itself.
pub(super) const DONT_MASK: u32 = 1 << 6;
/// It keeps the locks of `flock`.
pub(super) const FLOCK_LOCKS: u32 = 1 << 10;
/// Names in a directory come with their attributes.
pub(super) const DO_READDIRPLUS: u32 = 1 << 13;
/// It is for us to say when.
pub(super) const READDIRPLUS_AUTO: u32 = 1 << 14;
const PARALLEL_DIROPS: u32 = 1 << 18;
const MAX_PAGES: u32 = 1 << 22;

/// Agrees with a daemon that was just started on version and sizes; it is told that we speak 7.`said`.
/// `EOPNOTSUPP` for one that speaks another protocol.
pub fn agree(ring: &Ring, cx: &Cx, said: u32) -> Result<(), Errno> {
    let header = ring.header()?;
    let mut message = Message::new();
    let flags = ASYNC_READ
        | POSIX_LOCKS
        | FLOCK_LOCKS
        | BIG_WRITES
        | DONT_MASK
        | DO_READDIRPLUS
        | READDIRPLUS_AUTO
        | PARALLEL_DIROPS
        | MAX_PAGES;
    message.word32(7).word32(said).word32(DATA_MAX as u32).word32(flags);
    let mut reply = [0u8; 64];
    let incarnation = ring.incarnation();
    let request = Request { operation: INIT, node: 0, incarnation, parts: [message.bytes(), b"", b""], data: NOTHING };
    let len = ring.first_call(cx, &request, UserSlice::from_mut(&mut reply))?;
    let (major, minor) = (word32(&reply, 0), word32(&reply, 4));
    if len < 24 || major != 7 || minor < said.min(OLDEST) {
        return Err(Errno::EOPNOTSUPP);
    }
    header.minor.store(minor.min(said), Relaxed);
    header.agreed.store(word32(&reply, 12) & flags, Relaxed);
    header.max_write.store(word32(&reply, 20).clamp(4096, DATA_MAX as u32), Relaxed);
    Ok(())
}

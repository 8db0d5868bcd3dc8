//! The daemon's file and directory handles.

use super::call::{DO_READDIRPLUS, Message, READDIRPLUS_AUTO};
use super::protocol::*;
use super::{FuseClient, Key, posix};
use base::{Attr, Cx, DirEntry, Errno, Error, Kind, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use pm::UserSlice;
use pm::sys::abi;
use session::LowerFs;
use session::{Caching, SessionCache};

/// Index of the handle for reading and of that for writing.
pub(super) const READ: usize = 0;
/// See [`READ`].
pub(super) const WRITE: usize = 1;
/// That for appending: the daemon itself finds the end, where others append too.
pub(super) const APPEND: usize = 2;
/// Bits of what is open.
pub(super) const FOR_READ: u32 = 1;
/// See [`FOR_READ`].
pub(super) const FOR_WRITE: u32 = 2;
/// Both are one.
const SHARED: u32 = 4;
/// The daemon wants no opening: there is nothing to release. A bit, since any word may be a handle.
pub(super) const UNOPENED: u32 = 8;
/// See [`FOR_READ`].
pub(super) const FOR_APPEND: u32 = 16;

/// What `open_flags` of an answer say.
pub(super) fn caching_of(flags: u32) -> Caching {
    const DIRECT_IO: u32 = 1;
    const KEEP_CACHE: u32 = 2;
    const NO_PLACE: u32 = 4 | 16;
    match flags {
        _ if flags & (DIRECT_IO | NO_PLACE) != 0 => Caching::None,
        _ if flags & KEEP_CACHE != 0 => Caching::AcrossOpens,
        _ => Caching::WhileOpen,
    }
}

/// Most bytes of a directory in one request.
const DIRECTORY_BYTES: usize = 8192;

impl FuseClient {
    /// What of a node is open in a incarnation of the daemon's.
    pub(super) fn open_bits(&self, s: &SessionCache, node: Node, incarnation: u32) -> Result<u32> {
        let record = s.get(node)?;
        let is_fresh = record.handle_incarnation.load(Relaxed) == incarnation;
        Ok(if is_fresh { record.handle_bits.load(Acquire) } else { 0 })
    }

    /// A handle of the node for reading, writing or appending, of its key's incarnation; opened if there is none.
    pub(super) fn handle(&self, s: &SessionCache, cx: &Cx, node: Node, key: Key, want: usize) -> Result<u64> {
        let (bit, access) = match want {
            READ => (FOR_READ, abi::O_RDONLY),
            WRITE => (FOR_WRITE, abi::O_WRONLY),
            _ => (FOR_APPEND, abi::O_WRONLY | abi::O_APPEND),
        };
        if self.open_bits(s, node, key.incarnation)? & bit == 0 {
            self.open_handle(s, cx, node, key, access)?;
        }
        let handle = s.get(node)?.handles[want].load(Acquire);
        // Opened anew meanwhile, in another incarnation: that one is not for this request.
        if s.get(node)?.handle_incarnation.load(Relaxed) == key.incarnation { Ok(handle) } else { posix(Errno::ENOTCONN) }
    }

    /// The handle by which a node is changed otherwise than by writing: the one that is there.
    pub(super) fn for_change(bits: u32) -> usize {
        if bits & (FOR_WRITE | FOR_APPEND) == FOR_APPEND { APPEND } else { WRITE }
    }

    /// Opens with an access mode and lays the handle beside the node, unless
    /// somebody was quicker.
    pub(super) fn open_handle(&self, s: &SessionCache, cx: &Cx, node: Node, key: Key, access: u32) -> Result<()> {
        let directory = s.get(node)?.kind() == Kind::Directory;
        self.locks_must_last(s, node)?;
        let operation = if directory { OPENDIR } else { OPEN };
        let mut message = Message::new();
        message.word32(access | if directory { abi::O_DIRECTORY } else { 0 } | LARGEFILE).word32(0);
        let mut reply = [0u8; 16];
        let (handle, opened, caching) = match self.ask_exact(cx, operation, key, [message.bytes(), b"", b""], &mut reply) {
            Ok(()) => (word64(&reply, 0), 0, caching_of(word32(&reply, 8))),
            Err(Error::Posix(Errno::ENOSYS)) => (0, UNOPENED, Caching::AcrossOpens),
            Err(error) => return Err(error),
        };
        let bits = match access {
            abi::O_RDONLY => FOR_READ,
            abi::O_WRONLY => FOR_WRITE,
            _ if access & abi::O_APPEND != 0 => FOR_APPEND,
            _ => FOR_READ | FOR_WRITE | SHARED,
        };
        if !s.put_handles(node, bits | opened, handle, key.incarnation, caching)? && opened == 0 {
            self.release_handle(cx, key, handle, directory);
        }
        Ok(())
    }

    /// Has the daemon look at a file that is open, as at an open; what it says of pages counts.
    pub(super) fn ask_open(&self, s: &SessionCache, cx: &Cx, node: Node, key: Key) -> Result<()> {
        let mut message = Message::new();
        message.word32(abi::O_RDONLY | LARGEFILE).word32(0);
        let mut reply = [0u8; 16];
        self.ask_exact(cx, OPEN, key, [message.bytes(), b"", b""], &mut reply)?;
        self.release_handle(cx, key, word64(&reply, 0), false);
        if caching_of(word32(&reply, 8)) == Caching::WhileOpen {
            s.contents_changed(node);
        }
        Ok(())
    }

    pub(super) fn release_handle(&self, cx: &Cx, key: Key, handle: u64, directory: bool) {
        let mut message = Message::new();
        message.word64(handle).word32(0).word32(0).word64(0);
        // The kernel does not wait for the answer; here whoever looks next sees the file closed.
        let operation = if directory { RELEASEDIR } else { RELEASE };
        let _ = self.ask_nothing(cx, operation, key, [message.bytes(), b"", b""]);
    }

    /// Releases a node's handles if no more than `holders` hold it (0: in any case).
    pub(super) fn release_handles(&self, s: &SessionCache, cx: &Cx, node: Node, holders: u32) {
        self.settle(s, node);
        let Some((key, handles, bits, incarnation, directory)) = s.take_handles(node, holders) else { return };
        if incarnation != self.ring.incarnation() || bits & UNOPENED != 0 {
            return;
        }
        let key = Key { id: if node.id as u32 == 0 { ROOT_ID } else { key }, incarnation };
        if bits & FOR_READ != 0 {
            self.release_handle(cx, key, handles[READ], directory);
        }
        if bits & FOR_WRITE != 0 && bits & SHARED == 0 {
            self.release_handle(cx, key, handles[WRITE], directory);
        }
        if bits & FOR_APPEND != 0 {
            self.release_handle(cx, key, handles[APPEND], directory);
        }
    }

    /// Whether a list from `cookie` on comes with attributes: as with the kernel, its begin, unless the daemon, or who asks,
    /// wants `all`.
    fn lists_with_attributes(&self, cookie: u64, all: bool) -> bool {
        let agreed = self.ring.header().map_or(0, |header| header.agreed.load(Relaxed));
        let is_wanted = all || cookie == 0 || agreed & READDIRPLUS_AUTO == 0;
        agreed & DO_READDIRPLUS != 0 && is_wanted && !self.ring.is_unknown(READDIRPLUS)
    }

    /// Enters what a list says of a name, as if it had been looked up; its attributes.
    fn link(
        &self,
        s: &SessionCache,
        dir: Node,
        (name, about): (&[u8], &[u8]),
        incarnation: u32,
        asked: session::Moment,
    ) -> Option<Attr> {
        if matches!(name, b"." | b"..") || about.len() < ENTRY_BYTES {
            return None;
        }
        // No number: it has not looked.
        let entry = parse_entry(about, incarnation).ok()?;
        let mut forget = |key, count, incarnation| self.forget(s, key, count, incarnation);
        if s.enter(dir, name, &entry, asked, &mut forget).is_err() {
            forget(entry.key, 1, incarnation);
        }
        Some(entry.attr)
    }

    /// Reads a directory from `cookie` on, with the node taken for this call alone; `all`: with attributes throughout.
    pub(super) fn scan(
        &self,
        s: &SessionCache,
        cx: &Cx,
        (dir, cookie): (Node, u64),
        all: bool,
        each: &mut dyn FnMut(DirEntry, Option<&Attr>) -> bool,
    ) -> Result<()> {
        if cookie == 0 {
            // A new look: the daemon's handle may hold an old list.
            self.release_handles(s, cx, dir, 0);
        }
        let key = self.key(s, cx, dir)?;
        let handle = self.handle(s, cx, dir, key, READ)?;
        let mut at = cookie;
        loop {
            let mut message = Message::new();
            message.word64(handle).word64(at).word32(DIRECTORY_BYTES as u32).word32(0);
            message.word64(0).word32(0).word32(0);
            let mut buffer = [0u8; DIRECTORY_BYTES];
            let is_plus = self.lists_with_attributes(at, all);
            let (operation, head) = if is_plus { (READDIRPLUS, ENTRY_BYTES) } else { (READDIR, 0) };
            let asked = s.moment();
            let len = match self.ask(cx, operation, key, [message.bytes(), b"", b""], UserSlice::from_mut(&mut buffer)) {
                // It has said otherwise, and will not be asked again.
                Err(Error::Posix(Errno::ENOSYS)) if is_plus => continue,
                other => other?,
            };
            let mut rest = &buffer[..len];
            if rest.is_empty() {
                return Ok(());
            }
            let before = at;
            let mut goes_on = true;
            // A record that is cut off (libfuse fills a reply to its last byte) comes whole with the next ones.
            while !rest.is_empty() && (at == before || !rest.get(head..).is_none_or(is_cut)) {
                let about = &rest[..head.min(rest.len())];
                let (mut entry, is_known, size) = parse_dirent(&rest[about.len()..])?;
                let attr = if is_plus { self.link(s, dir, (entry.name, about), key.incarnation, asked) } else { None };
                rest = &rest[about.len() + size..];
                // Those that are not taken now are known all the same: the daemon counts them.
                if !goes_on {
                    continue;
                }
                at = entry.next;
                // Programs go by the type; one that the daemon does not say is looked up.
                if let Some(attr) = &attr {
                    entry.kind = attr.kind;
                } else if !is_known && let Ok(found) = self.ask_entry(cx, LOOKUP, key, [entry.name, b"\0", b""]) {
                    self.forget(s, found.key, 1, found.incarnation);
                    entry.kind = found.attr.kind;
                }
                goes_on = each(entry, attr.as_ref());
                if !goes_on && !is_plus {
                    return Ok(());
                }
            }
            if !goes_on {
                return Ok(());
            }
            // A list that goes round in circles.
            if at == before {
                return posix(Errno::EIO);
            }
        }
    }
}

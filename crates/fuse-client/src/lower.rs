//! What the namespace asks, as requests of the protocol.

use super::call::{DONT_MASK, Message};
use super::handles::{APPEND, FOR_APPEND, FOR_READ, FOR_WRITE, READ, UNOPENED, WRITE, caching_of};
use super::permission::{may_change, mode_without_set_id, times_of};
use super::protocol::*;
use super::ring::DATA_MAX;
use super::{FuseClient, Key, posix, request};
use base::{
    Attr, Cred, Cx, DescriptionId, DirEntry, Errno, Error, Fallocate, Kind, Lock, NewNode, Node, PATH_MAX, RenameMode, Result,
    SetAttr, StatFs,
};
use base::{SetTime, Thread, W, X};
use core::sync::atomic::Ordering::Relaxed;
use pm::UserSlice;
use pm::sys::abi;
use session::{Caching, Entry, PageKey, SessionCache};
use session::{LowerFs, LowerLeases, Miss};

/// Runs in nobody's name.
fn with_own_context<T>(run: impl FnOnce(&Cx) -> T) -> T {
    let thread = Thread::new();
    run(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread })
}

/// `ENOSYS` where a program expects to hear that a file system cannot do it.
fn unsupported<T>(result: Result<T>) -> Result<T> {
    match result {
        Err(Error::Posix(Errno::ENOSYS)) => posix(Errno::EOPNOTSUPP),
        other => other,
    }
}

/// The same where there is nothing to do then.
pub(super) fn needless(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Posix(Errno::ENOSYS)) => Ok(()),
        other => other,
    }
}

/// `struct fuse_read_in`, which is `struct fuse_write_in` too.
pub(super) fn piece(handle: u64, offset: u64, len: usize) -> Message {
    flagged_piece(handle, offset, len, 0)
}

/// The same with the open file's flags.
fn flagged_piece(handle: u64, offset: u64, len: usize, flags: u32) -> Message {
    let mut message = Message::new();
    message.word64(handle).word64(offset).word32(len as u32).word32(0).word64(0).word32(flags).word32(0);
    message
}

/// Does `step` for one piece of a buffer after the other until one is short.
fn in_pieces(whole: UserSlice, most: usize, mut step: impl FnMut(usize, UserSlice) -> Result<usize>) -> Result<usize> {
    let mut done = 0;
    while done < whole.len {
        let part = whole.part(done, most);
        match step(done, part) {
            Ok(count) => {
                done += count;
                if count < part.len {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

impl LowerFs for FuseClient {
    fn device(&self) -> u64 {
        self.device
    }

    fn lookup(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> core::result::Result<Entry, Miss> {
        let key = self.key(s, cx, dir)?;
        let mut reply = [0u8; ENTRY_BYTES];
        self.ask_exact(cx, LOOKUP, key, [name, b"\0", b""], &mut reply)?;
        match parse_entry(&reply, key.incarnation) {
            Err(Error::Posix(Errno::ENOENT)) => Err(Miss::Absent(entry_ns(&reply))),
            other => Ok(other?),
        }
    }

    fn attr(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<(Attr, u64)> {
        let key = self.key(s, cx, node)?;
        let mut reply = [0u8; ATTR_OUT_BYTES];
        self.ask_exact(cx, GETATTR, key, [&[0; 16], b"", b""], &mut reply)?;
        let (attr, ns) = parse_attr_out(&reply)?;
        if attr.kind == s.get(node)?.kind() { Ok((attr, ns)) } else { posix(Errno::EIO) }
    }

    fn access(&self, s: &SessionCache, cx: &Cx, node: Node, want: u16, attr: &dyn Fn() -> Result<Attr>) -> Result<()> {
        let kind = s.get(node)?.kind();
        if want & W != 0 && matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink) {
            self.writable()?;
        }
        if self.checks_permission() {
            let attr = attr()?;
            let may = cx.cred.may(attr.kind, attr.mode, attr.uid, attr.gid, want);
            return if may { Ok(()) } else { posix(Errno::EACCES) };
        }
        if want & X != 0 && kind == Kind::Regular && attr()?.mode & 0o111 == 0 {
            return posix(Errno::EACCES);
        }
        self.ask_access(cx, self.key(s, cx, node)?, want)
    }

    fn permits(&self, s: &SessionCache, cx: &Cx, node: Node, want: u16, attr: &dyn Fn() -> Result<Attr>) -> Result<()> {
        self.may_go_on(s, cx, node, want, attr)
    }

    fn checks_search(&self) -> bool {
        self.checks_permission()
    }

    fn set_attr(&self, s: &SessionCache, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        self.writable()?;
        let mut change = *change;
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if change.drops_rights && !changes_owner {
            // There is no request for that but another mode.
            change.mode = mode_without_set_id(cx, &self.attr(s, cx, node)?.0);
            if change.mode.is_none() {
                return Ok(());
            }
        }
        let is_written = change.size.is_some() && !cx.cred.privileged;
        if self.checks_permission() || changes_owner || is_written {
            let (attr, _) = self.attr(s, cx, node)?;
            if self.checks_permission() {
                may_change(cx, &attr, &change)?;
                // Only a member gives a file its group's rights.
                let is_privileged = cx.cred.is_privileged_over(attr.uid, attr.gid);
                if !is_privileged && !cx.cred.in_group(change.gid.unwrap_or(attr.gid)) {
                    change.mode = change.mode.map(|mode| mode & !0o2000);
                }
            }
            // Neither a new owner nor who writes gets the old one's set-id bits.
            if changes_owner || is_written {
                change.mode = change.mode.or(mode_without_set_id(cx, &attr));
            }
        }
        self.send_attr(s, cx, node, &change)
    }

    fn readlink(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        let mut target = [0u8; PATH_MAX];
        let key = self.key(s, cx, node)?;
        let len = self.ask(cx, READLINK, key, [b"", b"", b""], UserSlice::from_mut(&mut target))?;
        if len == 0 || len >= PATH_MAX || target[..len].contains(&0) {
            return posix(Errno::EIO);
        }
        Ok(pm::user::copy(UserSlice::from_ref(&target[..len]), out)?)
    }

    fn create(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.may_change_names(s, cx, dir)?;
        let key = self.key(s, cx, dir)?;
        let masks = self.ring.header()?.agreed.load(Relaxed) & DONT_MASK == 0;
        let mode = new.kind.type_bits() | u32::from(if masks { new.mode & !cx.umask } else { new.mode });
        let umask = u32::from(cx.umask);
        let mut message = Message::new();
        match new.kind {
            Kind::Directory => {
                message.word32(mode).word32(umask);
                self.ask_entry(cx, MKDIR, key, [message.bytes(), name, b"\0"])
            }
            Kind::Symlink => {
                let mut target = [0u8; PATH_MAX + 1];
                let len = new.target.len().min(PATH_MAX);
                target[..len].copy_from_slice(&new.target[..len]);
                self.ask_entry(cx, SYMLINK, key, [name, b"\0", &target[..len + 1]])
            }
            Kind::Regular if !self.ring.is_unknown(CREATE) => {
                message.word32(abi::O_RDWR | abi::O_CREAT | abi::O_EXCL | LARGEFILE).word32(mode).word32(umask).word32(0);
                let mut reply = [0u8; ENTRY_BYTES + 16];
                match self.ask_exact(cx, CREATE, key, [message.bytes(), name, b"\0"], &mut reply) {
                    Err(Error::Posix(Errno::ENOSYS)) => self.make_node(cx, key, name, mode, 0),
                    Err(error) => Err(error),
                    Ok(()) => {
                        let mut entry = parse_entry(&reply[..ENTRY_BYTES], key.incarnation)?;
                        // Open for its maker, whatever its mode says.
                        entry.handle = Some(word64(&reply, ENTRY_BYTES));
                        entry.caching = caching_of(word32(&reply, ENTRY_BYTES + 8));
                        if entry.attr.kind == Kind::Regular { Ok(entry) } else { posix(Errno::EIO) }
                    }
                }
            }
            _ => self.make_node(cx, key, name, mode, new.rdev),
        }
    }

    fn link(&self, s: &SessionCache, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        self.may_change_names(s, cx, dir)?;
        let mut message = Message::new();
        let (node, dir) = self.keys(s, cx, node, dir)?;
        message.word64(node.id);
        let entry = self.ask_entry(cx, LINK, dir, [message.bytes(), name, b"\0"])?;
        // The name will be looked up when it is wanted.
        self.forget(s, entry.key, 1, entry.incarnation);
        Ok(())
    }

    fn remove(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8], directory: bool) -> Result<()> {
        self.may_remove(s, cx, dir, name)?;
        let operation = if directory { RMDIR } else { UNLINK };
        self.ask_nothing(cx, operation, self.key(s, cx, dir)?, [name, b"\0", b""])
    }

    fn may_remove(&self, s: &SessionCache, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        self.may_change_names(s, cx, dir)?;
        self.sticky_allows(s, cx, dir, name)
    }

    fn rename(&self, s: &SessionCache, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8]), mode: RenameMode) -> Result<()> {
        for dir in [from.0, to.0] {
            self.may_change_names(s, cx, dir)?;
        }
        self.sticky_allows(s, cx, from.0, from.1)?;
        if let Err(error) = self.sticky_allows(s, cx, to.0, to.1)
            && error.errno() != Errno::ENOENT
        {
            return Err(error);
        }
        if from.0 != to.0 {
            self.may_move(s, cx, from)?;
            if mode == RenameMode::Exchange {
                self.may_move(s, cx, to)?;
            }
        }
        let flags = match mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1u32,
            RenameMode::Exchange => 2,
        };
        // Both are at most 255 bytes long.
        let mut names = [0u8; 512];
        let second = from.1.len() + 1;
        let Some(room) = names.get_mut(..from.1.len()) else { return posix(Errno::ENAMETOOLONG) };
        room.copy_from_slice(from.1);
        let Some(room) = names.get_mut(second..second + to.1.len()) else { return posix(Errno::ENAMETOOLONG) };
        room.copy_from_slice(to.1);
        let names = &names[..second + to.1.len() + 1];
        let (source, target) = self.keys(s, cx, from.0, to.0)?;
        let mut message = Message::new();
        message.word64(target.id);
        if flags == 0 {
            return self.ask_nothing(cx, RENAME, source, [message.bytes(), names, b""]);
        }
        message.word32(flags).word32(0);
        match self.ask_nothing(cx, RENAME2, source, [message.bytes(), names, b""]) {
            Err(Error::Posix(Errno::ENOSYS)) => posix(Errno::EINVAL),
            other => other,
        }
    }

    fn readdir(&self, s: &SessionCache, cx: &Cx, dir: Node, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        s.alone(dir, || self.scan(s, cx, (dir, cookie), false, &mut |entry, _| each(entry)))
    }

    fn list(&self, s: &SessionCache, cx: &Cx, dir: Node, each: &mut dyn FnMut(DirEntry, Option<&Attr>) -> bool) -> Result<()> {
        s.alone(dir, || self.scan(s, cx, (dir, 0), true, each))
    }

    fn statfs(&self, _l: &SessionCache) -> Result<StatFs> {
        let mut reply = [0u8; 80];
        with_own_context(|cx| self.ask_exact(cx, STATFS, self.root(), [b"", b"", b""], &mut reply))?;
        let block_bytes = match u64::from(word32(&reply, 48)) {
            0 => u64::from(word32(&reply, 40)),
            fragment => fragment,
        };
        Ok(StatFs {
            magic: 0x6573_5546,
            block_bytes,
            blocks: word64(&reply, 0),
            blocks_free: word64(&reply, 8),
            files: word64(&reply, 24),
            files_free: word64(&reply, 32),
            id: self.device,
            name_max: u64::from(word32(&reply, 44)),
            read_only: self.writable().is_err(),
        })
    }

    fn open(&self, s: &SessionCache, cx: &Cx, node: Node, flags: u32) -> Result<()> {
        if flags & abi::O_PATH != 0 || s.get(node)?.kind() != Kind::Regular {
            return Ok(());
        }
        let to_write = if flags & abi::O_APPEND != 0 { FOR_APPEND } else { FOR_WRITE };
        let wanted = match flags & abi::O_ACCMODE {
            abi::O_RDONLY => FOR_READ,
            abi::O_WRONLY => to_write,
            _ => FOR_READ | to_write,
        };
        let key = self.key(s, cx, node)?;
        let (asks, bits) = (self.opens_ask(), self.open_bits(s, node, key.incarnation)?);
        let missing = wanted & !bits;
        if flags & base::CREATED == 0 {
            self.may_share(cx, key, wanted, bits)?;
        }
        match missing & (FOR_READ | FOR_WRITE) {
            0 if asks && missing == 0 => self.ask_open(s, cx, node, key)?,
            0 => {}
            FOR_READ => self.open_handle(s, cx, node, key, abi::O_RDONLY)?,
            FOR_WRITE => self.open_handle(s, cx, node, key, abi::O_WRONLY)?,
            _ => self.open_handle(s, cx, node, key, abi::O_RDWR)?,
        }
        if missing & FOR_APPEND != 0 {
            let opened = self.open_handle(s, cx, node, key, abi::O_WRONLY | abi::O_APPEND);
            // Its maker may write to it, whatever its mode says.
            opened.or_else(|error| if bits & FOR_WRITE != 0 { Ok(()) } else { Err(error) })?;
        }
        if asks {
            s.forget_attr(node);
        }
        // As the kernel does: what others wrote is seen by whoever opens the file after.
        if s.get(node)?.caching.load(Relaxed) == Caching::WhileOpen as u32 {
            s.contents_changed(node);
        }
        Ok(())
    }

    fn page_key(&self, s: &SessionCache, node: Node) -> Option<PageKey> {
        let record = s.get(node).ok()?;
        let is_kept = record.caching.load(Relaxed) != Caching::None as u32;
        let incarnation = self.ring.incarnation();
        if !is_kept || self.open_bits(s, node, incarnation).ok()? & FOR_READ == 0 {
            return None;
        }
        Some(PageKey { key: record.key.load(Relaxed), version: self.version(incarnation).ok()? })
    }

    fn flush(&self, s: &SessionCache, cx: &Cx, node: Node) -> Result<()> {
        self.settle(s, node);
        let incarnation = self.ring.incarnation();
        let bits = self.open_bits(s, node, incarnation).unwrap_or(0);
        if bits & (FOR_WRITE | FOR_APPEND) == 0 {
            return Ok(());
        }
        let record = s.get(node)?;
        let key = Key { id: record.key.load(Relaxed), incarnation };
        let mut flushed = Ok(());
        for (_, index) in [(FOR_WRITE, WRITE), (FOR_APPEND, APPEND)].into_iter().filter(|(bit, _)| bits & bit != 0) {
            let mut message = Message::new();
            message.word64(record.handles[index].load(Relaxed)).word64(0).word64(0);
            flushed = flushed.and(needless(self.ask_nothing(cx, FLUSH, key, [message.bytes(), b"", b""])));
        }
        flushed
    }

    fn keeps_locks(&self, flock: bool) -> bool {
        self.passes_locks(flock)
    }

    fn lock(&self, s: &SessionCache, cx: &Cx, file: (Node, DescriptionId), owner: u64, lock: &Lock) -> Result<()> {
        self.set_lock(s, cx, file, owner, lock)
    }

    fn conflicting_lock(
        &self,
        s: &SessionCache,
        cx: &Cx,
        file: (Node, DescriptionId),
        owner: u64,
        lock: &Lock,
    ) -> Result<Option<Lock>> {
        self.get_lock(s, cx, file, owner, lock)
    }

    fn unlock_records(&self, s: &SessionCache, cx: &Cx, file: (Node, DescriptionId), owner: u64) {
        self.flush_owner(s, cx, file, owner);
    }

    fn end_locks(&self, s: &SessionCache, cx: &Cx, file: (Node, DescriptionId)) {
        self.release_lock_handle(s, cx, file);
    }

    fn leases(&self) -> Option<&dyn LowerLeases> {
        Some(self)
    }

    fn closed(&self, s: &SessionCache, cx: &Cx, node: Node) {
        if s.is_leased(node) {
            return;
        }
        self.release_handles(s, cx, node, 1);
    }

    fn release(&self, _l: &SessionCache, cx: &Cx, key: u64, handle: u64, incarnation: u32) {
        self.release_handle(cx, Key { id: key, incarnation }, handle, false);
    }

    fn forget(&self, _l: &SessionCache, key: u64, count: u64, incarnation: u32) {
        if incarnation != self.ring.incarnation() || key == ROOT_ID {
            return;
        }
        let mut message = Message::new();
        message.word64(count);
        let request = request(FORGET, Key { id: key, incarnation }, [message.bytes(), b"", b""], NOTHING);
        // Without a daemon there is nobody to forget.
        let _ = with_own_context(|cx| self.ring.send(cx, &request));
    }

    fn read(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, into: UserSlice) -> Result<usize> {
        let key = self.key(s, cx, node)?;
        let handle = self.handle(s, cx, node, key, READ)?;
        if let Some(len) = self.expected(s, key, handle, offset, into) {
            return Ok(len);
        }
        in_pieces(into, DATA_MAX, |done, part| {
            let ask = |part: UserSlice| {
                let message = piece(handle, offset + done as u64, part.len);
                self.ask(cx, READ_FILE, key, [message.bytes(), b"", b""], part)
            };
            match ask(part) {
                // It ends before it says.
                Err(Error::Posix(Errno::EFAULT)) if part.writable() > 0 => ask(part.part(0, part.writable())),
                read => read,
            }
        })
    }

    fn read_ahead(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64) {
        let _ = self.expect(s, cx, node, offset);
    }

    fn told(&self) -> u64 {
        self.ring.header().map_or(0, |header| u64::from(self.ring.incarnation()) << 32 | u64::from(header.notices.load(Relaxed)))
    }

    fn settle_all(&self) {
        self.withdraw(|_| true);
    }

    fn write(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        self.drop_set_id(s, cx, node)?;
        let key = self.key(s, cx, node)?;
        self.write_by(cx, key, (self.handle(s, cx, node, key, WRITE)?, 0), offset, from)
    }

    fn append(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, from: UserSlice) -> Result<usize> {
        self.drop_set_id(s, cx, node)?;
        let key = self.key(s, cx, node)?;
        let (handle, flags) = match self.handle(s, cx, node, key, APPEND) {
            Ok(handle) => (handle, abi::O_WRONLY | abi::O_APPEND),
            // Its maker may write to it, whatever its mode says.
            Err(_) => (self.handle(s, cx, node, key, WRITE)?, 0),
        };
        self.write_by(cx, key, (handle, flags), offset, from)
    }

    fn fallocate(&self, s: &SessionCache, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.drop_set_id(s, cx, node)?;
        let mut message = Message::new();
        let key = self.key(s, cx, node)?;
        let index = Self::for_change(self.open_bits(s, node, key.incarnation)?);
        message.word64(self.handle(s, cx, node, key, index)?).word64(offset).word64(len).word32(how.flags()).word32(0);
        unsupported(self.ask_nothing(cx, FALLOCATE, key, [message.bytes(), b"", b""]))
    }

    fn seek(&self, s: &SessionCache, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<Option<u64>> {
        if self.ring.header()?.minor.load(Relaxed) < 24 {
            return Ok(None);
        }
        let key = self.key(s, cx, node)?;
        let bits = self.open_bits(s, node, key.incarnation)?;
        let index = if bits & FOR_READ != 0 { READ } else { Self::for_change(bits) };
        let mut message = Message::new();
        message
            .word64(self.handle(s, cx, node, key, index)?)
            .word64(offset)
            .word32(if data { abi::SEEK_DATA } else { abi::SEEK_HOLE })
            .word32(0);
        let mut reply = [0u8; 8];
        match self.ask_exact(cx, LSEEK, key, [message.bytes(), b"", b""], &mut reply) {
            Err(Error::Posix(Errno::ENOSYS)) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => match word64(&reply, 0) {
                found if found >= offset && found <= i64::MAX as u64 => Ok(Some(found)),
                _ => posix(Errno::EIO),
            },
        }
    }

    fn copy_range(&self, s: &SessionCache, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<u64> {
        self.copy_within(s, cx, from, to, len)
    }

    fn lacks(&self) -> u32 {
        let said = self.mount_flags() >> crate::LACKS_SHIFT;
        if self.ring.is_unknown(LISTXATTR) { said | session::lacks::XATTRS } else { said }
    }

    fn syncs_whole(&self) -> bool {
        FuseClient::syncs_whole(self)
    }

    fn sync(&self, s: &SessionCache, cx: &Cx, node: Option<Node>, data_only: bool) -> Result<()> {
        let Some(node) = node else {
            return match self.syncs_whole() {
                true => self.ask_nothing(cx, SYNCFS, self.root(), [&[0; 8], b"", b""]),
                false => Ok(()),
            };
        };
        let key = self.key(s, cx, node)?;
        let index = match self.open_bits(s, node, key.incarnation)? {
            0 => return Ok(()),
            bits if bits & (FOR_WRITE | FOR_APPEND) != 0 => Self::for_change(bits),
            _ => READ,
        };
        let operation = if s.get(node)?.kind() == Kind::Directory { FSYNCDIR } else { FSYNC };
        let mut message = Message::new();
        message.word64(self.handle(s, cx, node, key, index)?).word32(u32::from(data_only)).word32(0);
        needless(self.ask_nothing(cx, operation, key, [message.bytes(), b"", b""]))
    }

    fn get_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.may_xattr(s, cx, node, name, false)?;
        let mut message = Message::new();
        message.word32(out.len.min(XATTR_MAX) as u32).word32(0);
        self.xattr(cx, GETXATTR, self.key(s, cx, node)?, [message.bytes(), name, b"\0"], out)
    }

    fn set_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.may_xattr(s, cx, node, name, true)?;
        if self.ring.is_unknown(SETXATTR) {
            return posix(Errno::EOPNOTSUPP);
        }
        let mut message = Message::new();
        message.word32(value.len as u32).word32(flags);
        let node = self.key(s, cx, node)?;
        let request = request(SETXATTR, node, [message.bytes(), name, b"\0"], value);
        unsupported(self.ring.call(cx, &request, NOTHING).map(drop).map_err(Error::Posix))
    }

    fn list_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        let mut message = Message::new();
        message.word32(out.len.min(XATTR_MAX) as u32).word32(0);
        self.xattr(cx, LISTXATTR, self.key(s, cx, node)?, [message.bytes(), b"", b""], out)
    }

    fn remove_xattr(&self, s: &SessionCache, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.may_xattr(s, cx, node, name, true)?;
        unsupported(self.ask_nothing(cx, REMOVEXATTR, self.key(s, cx, node)?, [name, b"\0", b""]))
    }
}

impl FuseClient {
    /// Sends a change of attributes as it is.
    pub(super) fn send_attr(&self, s: &SessionCache, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        let key = self.key(s, cx, node)?;
        let mode = change.mode;
        let mut times = *change;
        if change.atime.is_some() != change.mtime.is_some() {
            // Older daemons know only both together.
            let (attr, _) = self.attr(s, cx, node)?;
            times.atime = change.atime.or(Some(SetTime::At(attr.atime)));
            times.mtime = change.mtime.or(Some(SetTime::At(attr.mtime)));
        }
        let mut valid = 0;
        let (seconds, parts) = times_of(&times, &mut valid);
        let mut handle = 0;
        if change.size.is_some() {
            valid |= FATTR_SIZE;
            let bits = self.open_bits(s, node, key.incarnation)?;
            if bits & UNOPENED == 0 && bits & (FOR_WRITE | FOR_APPEND) != 0 {
                handle = self.handle(s, cx, node, key, Self::for_change(bits))?;
                valid |= FATTR_FH;
            }
        }
        valid |= if mode.is_some() { FATTR_MODE } else { 0 };
        valid |= if change.uid.is_some() { FATTR_UID } else { 0 };
        valid |= if change.gid.is_some() { FATTR_GID } else { 0 };
        let mut message = Message::new();
        message.word32(valid).word32(0).word64(handle).word64(change.size.unwrap_or(0)).word64(0);
        message.word64(seconds[0] as u64).word64(seconds[1] as u64).word64(0);
        message.word32(parts[0]).word32(parts[1]).word32(0);
        message.word32(s.get(node)?.kind().type_bits() | u32::from(mode.unwrap_or(0))).word32(0);
        message.word32(change.uid.unwrap_or(0)).word32(change.gid.unwrap_or(0)).word32(0);
        let mut reply = [0u8; ATTR_OUT_BYTES];
        self.ask_exact(cx, SETATTR, key, [message.bytes(), b"", b""], &mut reply)
    }

    /// Writes by a handle of an open file with these flags.
    fn write_by(&self, cx: &Cx, key: Key, (handle, flags): (u64, u32), offset: u64, from: UserSlice) -> Result<usize> {
        let agreed = self.ring.header()?.max_write.load(Relaxed) as usize;
        in_pieces(from, agreed.clamp(4096, DATA_MAX), |done, part| {
            let message = flagged_piece(handle, offset + done as u64, part.len, flags);
            let request = request(WRITE_FILE, key, [message.bytes(), b"", b""], part);
            let mut reply = [0u8; 8];
            let len = self.ring.call(cx, &request, UserSlice::from_mut(&mut reply))?;
            let written = word32(&reply, 0) as usize;
            if len == reply.len() && written <= part.len { Ok(written) } else { posix(Errno::EIO) }
        })
    }

    fn make_node(&self, cx: &Cx, dir: Key, name: &[u8], mode: u32, rdev: u64) -> Result<Entry> {
        let mut message = Message::new();
        message.word32(mode).word32(rdev as u32).word32(u32::from(cx.umask)).word32(0);
        self.ask_entry(cx, MKNOD, dir, [message.bytes(), name, b"\0"])
    }

    /// A value (its length, if `out` is empty), or a list of names.
    fn xattr(&self, cx: &Cx, operation: u32, node: Key, parts: [&[u8]; 3], out: UserSlice) -> Result<usize> {
        if out.len != 0 {
            return unsupported(self.ask(cx, operation, node, parts, out.part(0, XATTR_MAX)));
        }
        let mut reply = [0u8; 8];
        unsupported(self.ask_exact(cx, operation, node, parts, &mut reply))?;
        let len = word32(&reply, 0) as usize;
        if len > XATTR_MAX { posix(Errno::EIO) } else { Ok(len) }
    }
}

//! Extended attributes (`format::xattr`): all of an inode's in one run of
//! blocks. A change writes a new run aside; the record puts it in the place of
//! the old one. What is added and fits into the old run's last block goes there,
//! where nothing is until the record says so. Readers hold the inode.
//!
//! Who makes them fewer or smaller needs a run all the same; where the image is
//! full, it comes from what is kept back for that (`alloc::spare`), and the
//! attributes move once more, to where they were.

use crate::fs::{Fs, corrupt};
use crate::lane::Tx;
use crate::segment::{Cachelet, Snapshot, cachelet};
use base::{Cx, Error, Kind, Node, R, Result, W};
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use format::inode::{self, node_offset, word};
use format::xattr::{ALL_MAX, HEAD, LIST_MAX, NAME_MAX, SIZE_MAX, entry_bytes, pack_head, unpack_head};
use format::{BLOCK, Cold, lane};
use pm::{Errno, UserSlice};

/// The attribute that gives a program capabilities.
const CAPABILITY: &[u8] = b"security.capability";
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Where an inode's attributes are.
#[derive(Clone, Copy, Default)]
struct Run {
    /// First block; 0: none.
    block: u64,
    /// Bytes of all entries.
    len: u64,
}

/// One attribute, by offsets in the image.
#[derive(Clone, Copy)]
struct Entry {
    at: u64,
    name: u64,
    value: u64,
}

impl Entry {
    fn end(&self) -> u64 {
        self.at + entry_bytes(self.name, self.value)
    }
}

impl Fs {
    /// Copies the value of `name` to `out` and returns its length; an empty
    /// `out` asks only for that. `ENODATA`, `ERANGE`, `EOPNOTSUPP`, `EACCES`.
    pub fn get_xattr(&self, cx: &Cx, node: Node, name: &[u8], out: UserSlice) -> Result<usize> {
        self.may_xattr(cx, node, name, R)?;
        self.reading(cx, node, |fs, run| {
            let entry = fs.find_xattr(run, name)?.ok_or(Errno::ENODATA)?;
            let len = entry.value as usize;
            if out.len != 0 {
                if len > out.len {
                    return Err(Errno::ERANGE.into());
                }
                fs.image.copy_out(entry.at + HEAD + entry.name, out.part(0, len))?;
            }
            Ok(len)
        })
    }

    /// Copies the names, each with a NUL behind it; returns their length. `ERANGE`, `E2BIG`.
    pub fn list_xattr(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.reading(cx, node, |fs, run| {
            let mut len = 0;
            for write in [false, true] {
                if write && (out.len == 0 || len == 0) {
                    break;
                }
                if write && len > out.len.min(LIST_MAX) {
                    // As the kernel says it, of what no buffer can hold.
                    return Err(if out.len < LIST_MAX { Errno::ERANGE } else { Errno::E2BIG }.into());
                }
                len = 0;
                fs.each_xattr(run, |entry| {
                    if !cx.cred.privileged && fs.xattr_name(&entry)?.starts_with(b"trusted.") {
                        return Ok(true);
                    }
                    let name = entry.name as usize;
                    if write {
                        fs.image.copy_out(entry.at + HEAD, out.part(len, name))?;
                        out.part(len + name, 1).zero();
                    }
                    len += name + 1;
                    Ok(true)
                })?;
            }
            Ok(len)
        })
    }

    /// Sets the value of `name`. `EEXIST`, `ENODATA`, `ENOSPC`, `E2BIG`, `ERANGE`.
    pub fn set_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Errno::ERANGE.into());
        }
        if value.len as u64 > SIZE_MAX {
            return Err(Errno::E2BIG.into());
        }
        self.may_xattr(cx, node, name, W)?;
        self.change_xattr(cx, node, name, Some((value, flags)))
    }

    /// Removes `name`. `ENODATA`.
    pub fn remove_xattr(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.may_xattr(cx, node, name, W)?;
        self.change_xattr(cx, node, name, None)
    }

    /// The kernel's rules (`xattr_permission`), by the name's first part.
    fn may_xattr(&self, cx: &Cx, node: Node, name: &[u8], want: u16) -> Result<()> {
        let seen = self.with_cached(cx, node, |cachelet| self.snapshot(cx, cachelet, node.id))?;
        if want == W {
            self.writable()?;
            self.may_change(node)?;
        }
        may_prefix(cx, &seen, name, want)?;
        if matches!(name, b"user." | b"trusted." | b"security.") { Err(Errno::EINVAL.into()) } else { Ok(()) }
    }

    /// Calls `read` with an inode's attributes while nobody can change them.
    fn reading(&self, cx: &Cx, node: Node, read: impl FnOnce(&Fs, Run) -> Result<usize>) -> Result<usize> {
        let flags = |cachelet| self.consistent(cx, cachelet, node.id, |c| c.flags.load(Relaxed));
        if self.with_cached(cx, node, flags)? & cachelet::COLD == 0 {
            return read(self, Run::default());
        }
        if self.writable().is_err() {
            // Nobody can change anything.
            return read(self, self.xattr_run(node_offset(node.id))?);
        }
        let mut tx = self.begin(cx, lane::Kind::Xattr)?;
        self.lock_node(&mut tx, cx, node)?;
        read(self, self.xattr_run(node_offset(node.id))?)
    }

    /// Where the attributes of an inode are.
    fn xattr_run(&self, offset: u64) -> Result<Run> {
        let inode = self.inode(offset)?;
        if inode.head().flags & inode::COLD == 0 {
            return Ok(Run::default());
        }
        let at = inode.extra.load(Acquire);
        let cold: &Cold = self.at(at, "cold line")?;
        let word = cold.xattr.load(Acquire);
        let run = Run { block: word >> 32, len: word & 0xffff_ffff };
        if word == 0 {
            return Ok(run);
        }
        if run.len > ALL_MAX || run.len == 0 || !self.is_allocatable(run.block, run.len.div_ceil(BLOCK)) {
            return Err(corrupt("extended attributes", at));
        }
        self.present(run.block * BLOCK, run.len)?;
        Ok(run)
    }

    /// Calls `each` with every attribute until it says no.
    fn each_xattr(&self, run: Run, mut each: impl FnMut(Entry) -> Result<bool>) -> Result<()> {
        let (mut at, end) = (run.block * BLOCK, run.block * BLOCK + run.len);
        while at < end {
            let head = self.at::<AtomicU64>(at, "attribute")?.load(Relaxed);
            let (name, value) = unpack_head(head).ok_or(corrupt("attribute", at))?;
            let entry = Entry { at, name, value };
            if entry.end() > end {
                return Err(corrupt("attribute", at));
            }
            if !each(entry)? {
                return Ok(());
            }
            at = entry.end();
        }
        Ok(())
    }

    fn xattr_name(&self, entry: &Entry) -> Result<Name> {
        let mut name = Name { bytes: [0; NAME_MAX], len: entry.name as usize };
        let len = name.len.min(NAME_MAX);
        self.image.copy_out(entry.at + HEAD, UserSlice::from_mut(&mut name.bytes[..len]))?;
        Ok(name)
    }

    fn find_xattr(&self, run: Run, name: &[u8]) -> Result<Option<Entry>> {
        let mut found = None;
        self.each_xattr(run, |entry| {
            if entry.name as usize == name.len() && *self.xattr_name(&entry)? == *name {
                found = Some(entry);
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// Replaces, adds or (without a value) removes an attribute.
    fn change_xattr(&self, cx: &Cx, node: Node, name: &[u8], value: Option<(UserSlice, u32)>) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::Xattr)?;
        let cachelet = self.lock_node(&mut tx, cx, node)?;
        let offset = node_offset(node.id);
        let run = self.xattr_run(offset)?;
        let old = self.find_xattr(run, name)?;
        match (old, value) {
            (Some(_), Some((_, flags))) if flags & CREATE != 0 => return Err(Errno::EEXIST.into()),
            (None, Some((_, flags))) if flags & REPLACE != 0 => return Err(Errno::ENODATA.into()),
            (None, None) => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        if name == CAPABILITY {
            // Before it is there; that it may be there does no harm.
            cachelet.flags.fetch_or(cachelet::CAPABLE, SeqCst);
        }
        let new = value.map(|(value, _)| (name, value));
        let len = run.len - old.map_or(0, |e| e.end() - e.at) + new.map_or(0, |(name, value)| added_bytes(name, value));
        if len > ALL_MAX {
            return Err(Errno::ENOSPC.into());
        }
        if let (None, Some(new)) = (old, new)
            && len.div_ceil(BLOCK) == run.len.div_ceil(BLOCK)
        {
            self.write_entry(run.block * BLOCK + run.len, new)?;
            tx.order();
            return self.record_xattrs(&mut tx, cachelet, offset, Run { len, ..run });
        }
        self.rewrite(&mut tx, cachelet, offset, run, (old, new))
    }

    /// Takes away the capabilities that a locked inode gives, if it may give any; whether it did.
    pub(crate) fn drop_capabilities<'a>(&'a self, tx: &mut Tx<'a>, cachelet: &Cachelet, offset: u64) -> Result<bool> {
        if cachelet.flags.load(Relaxed) & cachelet::CAPABLE == 0 {
            return Ok(false);
        }
        // From damaged attributes nobody gets any.
        let found = self.xattr_run(offset).and_then(|run| Ok(self.find_xattr(run, CAPABILITY)?.map(|old| (run, old))));
        let gives = if let Ok(Some((run, old))) = found {
            self.rewrite(tx, cachelet, offset, run, (Some(old), None))?;
            true
        } else {
            false
        };
        cachelet.flags.fetch_and(!cachelet::CAPABLE, SeqCst);
        Ok(gives)
    }

    /// Writes all attributes but an old one, and a new one behind them, to another place.
    fn rewrite(
        &self,
        tx: &mut Tx,
        cachelet: &Cachelet,
        offset: u64,
        run: Run,
        (old, new): (Option<Entry>, Option<(&[u8], UserSlice)>),
    ) -> Result<()> {
        let len = run.len - old.map_or(0, |e| e.end() - e.at) + new.map_or(0, |(name, value)| added_bytes(name, value));
        let (block, is_spare) = place(tx, len, run)?;
        let at = Run { block, len };
        self.write_xattrs(tx, at, run, old, new)?;
        self.replace(tx, cachelet, offset, (run, at))?;
        if is_spare && let Ok(back) = tx.run(len.div_ceil(BLOCK), run.block) {
            // Out of what is kept back, so that it lies together again for the next one.
            let back = Run { block: back, len };
            self.write_xattrs(tx, back, at, None, None)?;
            self.replace(tx, cachelet, offset, (at, back))?;
        }
        Ok(())
    }

    /// Frees the old run and records the new one.
    fn replace(&self, tx: &mut Tx, cachelet: &Cachelet, offset: u64, (old, new): (Run, Run)) -> Result<()> {
        if old.block != 0 {
            tx.free_blocks(old.block, old.len.div_ceil(BLOCK))?;
        }
        self.record_xattrs(tx, cachelet, offset, new)
    }

    /// Writes all attributes of `from` but `old`, and `new` behind them, to the run `to`.
    fn write_xattrs(&self, tx: &mut Tx, to: Run, from: Run, old: Option<Entry>, new: Option<(&[u8], UserSlice)>) -> Result<()> {
        if to.len == 0 {
            return Ok(());
        }
        self.present(to.block * BLOCK, to.len)?;
        let (start, mut at) = (from.block * BLOCK, to.block * BLOCK);
        // What lies before the old value, and what behind it.
        let (head, tail) = old.map_or((from.len, from.len), |e| (e.at - start, e.end() - start));
        for (first, end) in [(0, head), (tail, from.len)] {
            self.image.copy_within(start + first, at, end - first)?;
            at += end - first;
        }
        if let Some(new) = new {
            self.write_entry(at, new)?;
        }
        tx.order();
        Ok(())
    }

    /// Writes an entry where nothing is.
    fn write_entry(&self, at: u64, (name, value): (&[u8], UserSlice)) -> Result<()> {
        let bytes = added_bytes(name, value);
        self.image.zero(at + bytes - 8, 8)?;
        self.image.store(self.at(at, "attribute")?, pack_head(name.len(), value.len));
        self.image.copy_in(at + HEAD, UserSlice::from_ref(name))?;
        self.image.copy_in(at + HEAD + name.len() as u64, value)?;
        self.image.flush(at, bytes);
        Ok(())
    }

    fn record_xattrs(&self, tx: &mut Tx, cachelet: &Cachelet, offset: u64, run: Run) -> Result<()> {
        let now = pm::clock::now();
        let packed = if run.block == 0 { 0 } else { run.block << 32 | run.len };
        let inode = self.inode(offset)?;
        let fresh = inode.head().flags & inode::COLD == 0;
        let line = self.cold_line(tx, offset)?;
        if fresh {
            self.image.store(&self.at::<Cold>(line, "cold line")?.xattr, packed);
            tx.object(line, 1)?;
        } else {
            tx.set(line + offset_of!(Cold, xattr) as u64, packed)?;
        }
        // Names in a directory may change meanwhile.
        tx.raise(offset + word::CTIME, now)?;
        // Odd while head and extra change: a directory's own edentry moves.
        let change = self.change(cachelet);
        tx.commit()?;
        change.flags.fetch_or(cachelet::COLD, SeqCst);
        if (change.mode.load(Relaxed) >> 16) as u8 != Kind::Directory as u8 {
            change.ctime.store(inode.ctime.load(Relaxed), Relaxed);
        }
        Ok(())
    }
}

/// Bytes of an entry to be.
fn added_bytes(name: &[u8], value: UserSlice) -> u64 {
    entry_bytes(name.len() as u64, value.len as u64)
}

/// A place for `len` bytes of attributes that come after those of `old`, and whether it is of what is kept back. `ENOSPC`.
fn place(tx: &mut Tx, len: u64, old: Run) -> Result<(u64, bool)> {
    let want = len.div_ceil(BLOCK);
    if want == 0 {
        return Ok((0, false));
    }
    match tx.run(want, 0) {
        Err(Error::Posix(Errno::ENOSPC)) if len <= old.len => Ok((tx.spare_run(want)?, true)),
        result => Ok((result?, false)),
    }
}

/// A name, copied out of the image.
struct Name {
    bytes: [u8; NAME_MAX],
    len: usize,
}

impl core::ops::Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len.min(NAME_MAX)]
    }
}

fn may_prefix(cx: &Cx, seen: &Snapshot, name: &[u8], want: u16) -> Result<()> {
    let cred = &cx.cred;
    let allowed = || match cred.may(seen.kind, seen.mode, seen.uid, seen.gid, want) {
        true => Ok(()),
        false => Err(Errno::EACCES.into()),
    };
    let denied = Err(if want == W { Errno::EPERM } else { Errno::ENODATA }.into());
    if name.starts_with(b"security.") {
        return if want == W && !cred.privileged { Err(Errno::EPERM.into()) } else { Ok(()) };
    }
    if name.starts_with(b"trusted.") {
        return if cred.privileged { Ok(()) } else { denied };
    }
    if !name.starts_with(b"user.") {
        // A namespace that the system knows asks for no permission.
        if !name.starts_with(b"system.") {
            allowed()?;
        }
        return Err(Errno::EOPNOTSUPP.into());
    }
    if !matches!(seen.kind, Kind::Regular | Kind::Directory) {
        return denied;
    }
    let owner = cred.uid == seen.uid || cred.is_privileged_over(seen.uid, seen.gid);
    if seen.kind == Kind::Directory && seen.mode & 0o1000 != 0 && want == W && !owner {
        return Err(Errno::EPERM.into());
    }
    allowed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::NewNode;
    use std::vec;
    use std::vec::Vec;

    fn get(test: &TestFs, node: Node, name: &[u8]) -> core::result::Result<Vec<u8>, Errno> {
        let len = test.get_xattr(&test.cx(), node, name, UserSlice::from_mut(&mut [])).map_err(|e| e.errno())?;
        let mut value = vec![0; len];
        assert_eq!(test.get_xattr(&test.cx(), node, name, UserSlice::from_mut(&mut value)).unwrap(), len);
        Ok(value)
    }

    fn set(test: &TestFs, node: Node, name: &[u8], value: &[u8], flags: u32) -> core::result::Result<(), Errno> {
        test.set_xattr(&test.cx(), node, name, UserSlice::from_ref(value), flags).map_err(|e| e.errno())
    }

    /// Goal: attributes are set, replaced, listed and removed, on files and
    /// directories, and survive a new attachment.
    #[test]
    fn set_replace_list_remove() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let before = test.statfs().unwrap().blocks_free;
        for (name, kind) in [(&b"file"[..], Kind::Regular), (b"dir", Kind::Directory)] {
            let node = test.create(&cx, root, name, &NewNode { kind, mode: 0o755, rdev: 0, target: b"" }).unwrap();
            assert_eq!(get(&test, node, b"user.a"), Err(Errno::ENODATA));
            assert_eq!(set(&test, node, b"user.a", b"1", REPLACE), Err(Errno::ENODATA));
            set(&test, node, b"user.a", b"1", CREATE).unwrap();
            assert_eq!(set(&test, node, b"user.a", b"2", CREATE), Err(Errno::EEXIST));
            for i in 0..50u8 {
                set(&test, node, &[b"user.", &[b'b' + i % 10; 3][..]].concat(), &vec![i; usize::from(i) * 17], 0).unwrap();
            }
            set(&test, node, b"trusted.x", b"", 0).unwrap();
            assert_eq!(get(&test, node, b"user.a"), Ok(b"1".to_vec()));
            assert_eq!(get(&test, node, b"trusted.x"), Ok(vec![]));
            for i in 40..50u8 {
                assert_eq!(get(&test, node, &[b"user.", &[b'b' + i % 10; 3][..]].concat()), Ok(vec![i; usize::from(i) * 17]));
            }
            let mut list = [0; 200];
            let len = test.list_xattr(&cx, node, UserSlice::from_mut(&mut list)).unwrap();
            assert_eq!(list[..len].split(|b| *b == 0).count(), 13);
            assert_eq!(
                test.list_xattr(&cx, node, UserSlice::from_mut(&mut list[..5])).map_err(|e| e.errno()),
                Err(Errno::ERANGE)
            );
            set(&test, node, b"user.big", &[1; 65_536], 0).unwrap();
            test.remove_xattr(&cx, node, b"user.big").unwrap();
            assert_eq!(set(&test, node, b"user.big", &[1; 65_537], 0), Err(Errno::E2BIG));
            assert_eq!(set(&test, node, b"system.x", b"", 0), Err(Errno::EOPNOTSUPP));
            test.remove_xattr(&cx, node, b"user.a").unwrap();
            assert_eq!(get(&test, node, b"user.a"), Err(Errno::ENODATA));
            // A directory with a cold line still knows its name.
            if kind == Kind::Directory {
                let mut name = [0; 255];
                assert_eq!(test.name_of(&cx, node, &mut name).unwrap(), 3);
            }
        }
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert_eq!(report.issues, []);
        let test = test.again();
        let node = test.lookup(&test.cx(), test.root_node(), b"file").unwrap();
        assert_eq!(get(&test, node, b"user.bbb"), Ok(vec![40; 680]));
        test.unlink(&test.cx(), test.root_node(), b"file").unwrap();
        test.rmdir(&test.cx(), test.root_node(), b"dir").unwrap();
        assert!(test.statfs().unwrap().blocks_free.abs_diff(before) <= 2);
    }

    fn file(test: &TestFs, name: &str) -> Node {
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        test.create(&test.cx(), test.root_node(), name.as_bytes(), &new).unwrap()
    }

    /// Goal: as many small attributes as documented; each can be made shorter, read and removed. Method: 3,000 of some
    /// 10 bytes, of one file; and names that no buffer can hold.
    #[test]
    fn many_small_ones() {
        let test = TestFs::new(64 << 20);
        let node = file(&test, "many");
        let name = |i: usize| std::format!("user.var_{i}").into_bytes();
        for i in 0..3000 {
            set(&test, node, &name(i), std::format!("original {i}").as_bytes(), CREATE).unwrap();
        }
        for i in 0..3000 {
            set(&test, node, &name(i), std::format!("new {i}").as_bytes(), REPLACE).unwrap();
        }
        for i in (0..3000).rev() {
            assert_eq!(get(&test, node, &name(i)), Ok(std::format!("new {i}").into_bytes()));
        }
        let mut list = vec![0; LIST_MAX];
        let len = test.list_xattr(&test.cx(), node, UserSlice::from_mut(&mut list)).unwrap();
        assert_eq!(list[..len].iter().filter(|byte| **byte == 0).count(), 3000);
        for i in 0..300 {
            set(&test, node, &[b"user.".to_vec(), vec![b'x'; 240], name(i)[5..].to_vec()].concat(), b"", 0).unwrap();
        }
        let mut listed = |len: usize| {
            let list = UserSlice::from_mut(&mut list[..len]);
            test.list_xattr(&test.cx(), node, list).map_err(|error| error.errno())
        };
        assert_eq!((listed(LIST_MAX), listed(LIST_MAX - 1)), (Err(Errno::E2BIG), Err(Errno::ERANGE)));
        for i in 0..3000 {
            test.remove_xattr(&test.cx(), node, &name(i)).unwrap();
        }
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert_eq!(report.issues, []);
    }

    /// Goal: attributes larger than a block find a place, however many files have some. Method: 9,000 bytes for each of
    /// many files, each made just before; all are read, replaced and removed.
    #[test]
    fn larger_than_a_block() {
        let test = TestFs::new(64 << 20);
        let files: Vec<Node> = (0..1500)
            .map(|i| {
                let node = file(&test, &std::format!("{i}"));
                set(&test, node, b"user.large", &[i as u8; 9000], 0).unwrap();
                node
            })
            .collect();
        for (i, node) in files.iter().enumerate() {
            assert_eq!(get(&test, *node, b"user.large"), Ok(vec![i as u8; 9000]));
            set(&test, *node, b"user.large", &vec![i as u8; 5000 + 8000 * (i & 1)], 0).unwrap();
            set(&test, *node, b"user.small", b"1", 0).unwrap();
        }
        for node in &files {
            test.remove_xattr(&test.cx(), *node, b"user.large").unwrap();
            assert_eq!(get(&test, *node, b"user.small"), Ok(b"1".to_vec()));
        }
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert_eq!(report.issues, []);
    }

    const CAPS: &[u8] = &[1, 0, 0, 2, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Goal: every change of contents and of owner takes capabilities away, root's too, and no other attribute; a store into a
    /// mapping does not, nor what changes neither. Method: each, with attributes before and behind the capabilities.
    #[test]
    fn capabilities_go() {
        use base::{Fallocate, SetAttr};
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let new = |name: &str| {
            let node =
                test.create(&cx, root, name.as_bytes(), &NewNode { kind: Kind::Regular, mode: 0o755, rdev: 0, target: b"" });
            let node = node.unwrap();
            test.write(&cx, node, Some(0), &[UserSlice::from_ref(&[1; 9000])]).unwrap();
            set(&test, node, b"user.before", &[2; 300], 0).unwrap();
            set(&test, node, CAPABILITY, CAPS, 0).unwrap();
            set(&test, node, b"user.behind", &[3; 300], 0).unwrap();
            node
        };
        let source = new("source");
        let change = |node, change: SetAttr| test.set_attr(&cx, node, &change).unwrap();
        let size = |size, size_checked| SetAttr { size: Some(size), size_checked, ..SetAttr::default() };
        type Change<'a> = &'a dyn Fn(Node);
        let takes: [(&str, Change); 11] = [
            ("write", &|n| _ = test.write(&cx, n, Some(5), &[UserSlice::from_ref(b"x")]).unwrap()),
            ("append", &|n| _ = test.write(&cx, n, None, &[UserSlice::from_ref(b"x")]).unwrap()),
            ("fill", &|n| _ = test.write_with(&cx, n, 0, 10, &mut |into| Ok(into.len)).unwrap()),
            ("copy", &|n| _ = test.copy_range(&cx, source, 0, n, 0, 10).unwrap()),
            ("allocate", &|n| test.fallocate(&cx, n, Fallocate::Allocate, 0, 10_000).unwrap()),
            ("punch", &|n| test.fallocate(&cx, n, Fallocate::PunchHole, 0, 10).unwrap()),
            ("truncate", &|n| change(n, size(7, false))),
            ("truncate to the same", &|n| change(n, size(9000, false))),
            ("ftruncate", &|n| change(n, size(9000, true))),
            ("chown", &|n| change(n, SetAttr { uid: Some(0), ..SetAttr::default() })),
            ("chown to nobody", &|n| change(n, SetAttr { drops_rights: true, ..SetAttr::default() })),
        ];
        let leaves: [(&str, Change); 5] = [
            ("nothing", &|n| _ = test.write(&cx, n, Some(5), &[UserSlice::from_ref(b"")]).unwrap()),
            ("store", &|n| _ = test.write_stored(&cx, n, 5, &[UserSlice::from_ref(b"x")]).unwrap()),
            ("chmod", &|n| change(n, SetAttr { mode: Some(0o700), ..SetAttr::default() })),
            ("utimes", &|n| change(n, SetAttr { mtime: Some(base::SetTime::Now), ..SetAttr::default() })),
            ("another attribute", &|n| set(&test, n, b"user.x", b"1", 0).unwrap()),
        ];
        let takes = takes.iter().map(|(name, change)| (name, change, Err(Errno::ENODATA)));
        for (name, change, wanted) in takes.chain(leaves.iter().map(|(name, change)| (name, change, Ok(CAPS.to_vec())))) {
            let node = new(name);
            change(node);
            assert_eq!(get(&test, node, CAPABILITY), wanted, "{name}");
            assert_eq!(get(&test, node, b"user.before"), Ok(vec![2; 300]), "{name}");
            assert_eq!(get(&test, node, b"user.behind"), Ok(vec![3; 300]), "{name}");
        }
        let report = crate::check::run(&test.image.path(), &mut |_| {}).unwrap();
        assert_eq!(report.issues, []);
    }

    /// Goal: a write looks for capabilities where there may be some, also after they were loaded from the image, and
    /// then no more: other attributes, and times, keep nobody from the fast path.
    #[test]
    fn looked_for_once() {
        let test = TestFs::new(64 << 20);
        let new = NewNode { kind: Kind::Regular, mode: 0o755, rdev: 0, target: b"" };
        let make = |name: &[u8], attribute: &[u8]| {
            let node = test.create(&test.cx(), test.root_node(), name, &new).unwrap();
            test.write(&test.cx(), node, Some(0), &[UserSlice::from_ref(&[1; 9000])]).unwrap();
            set(&test, node, attribute, CAPS, 0).unwrap();
        };
        make(b"capable", CAPABILITY);
        make(b"other", b"user.x");
        let is_fast =
            |test: &TestFs, node| test.write_fast(&test.thread, node, Some(5), UserSlice::from_ref(b"y")) != base::Fast::Slow;
        let slow = |test: &TestFs, node| test.write(&test.cx(), node, Some(5), &[UserSlice::from_ref(b"y")]).unwrap();
        let node = |test: &TestFs, name| test.lookup(&test.cx(), test.root_node(), name).unwrap();
        assert!(!is_fast(&test, node(&test, b"capable")) && is_fast(&test, node(&test, b"other")));
        let TestFs { thread, fs, image } = test;
        fs.detach(&Cx { cred: base::Cred::ROOT, umask: 0, thread: &thread });
        std::fs::remove_file(std::str::from_utf8(fs.segment_path()).unwrap()).unwrap();
        let test = TestFs::from_image(image).unwrap();
        for name in [b"capable".as_slice(), b"other"] {
            let node = node(&test, name);
            assert!(!is_fast(&test, node));
            slow(&test, node);
            assert!(is_fast(&test, node));
            assert_eq!(get(&test, node, CAPABILITY), Err(Errno::ENODATA));
        }
        assert_eq!(get(&test, node(&test, b"other"), b"user.x"), Ok(CAPS.to_vec()));
    }
}

//! The mount table: which path prefix leads to which file system.
//!
//! Fixed capacity, no allocation, read without a lock. Adding and removing are
//! rare and the caller's to serialise; a slot is written before the bit that
//! publishes it is set, and never rewritten while the bit is set.

use super::{Mount, NOWHERE, PREFIX_MAX};
use crate::{Backend, Cx, Errno, Exit, Last, MOUNTS_MAX, Node, Scratch, Walk};
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{self, Relaxed};
use pm::Text;

/// All mounts of one namespace. From byte 24 of a line on, as it lies in a
/// process, that line holds what calls read of the first mount.
#[repr(C)]
pub struct MountTable {
    /// Bit n: slot n is mounted. And [`UNNAMED`].
    active: AtomicU32,
    /// Bit n: what is in slot n covers a node of another mount. And [`TRANSLATED`].
    nested: AtomicU32,
    slots: [UnsafeCell<Option<Mount>>; MOUNTS_MAX],
}

/// In `active`: no path leads to the mounts.
const UNNAMED: u32 = 1 << 31;
/// In `nested`: owners are not shown as they are.
const TRANSLATED: u32 = 1 << 31;
const _: () = assert!(MOUNTS_MAX < 31);

/// Bytes from one slot to the next.
const SLOT: usize = size_of::<UnsafeCell<Option<Mount>>>();
const _: () = assert!(offset_of!(MountTable, slots) + MOUNTS_MAX * SLOT < 1 << 16 && offset_of!(MountTable, slots) != 0);

// SAFETY: a slot is only written while its bit in `active` is clear, and only
// read after that bit was seen set.
unsafe impl Sync for MountTable {}

impl MountTable {
    /// A table without mounts.
    pub const fn new() -> Self {
        MountTable { slots: [const { UnsafeCell::new(None) }; MOUNTS_MAX], active: AtomicU32::new(0), nested: AtomicU32::new(0) }
    }

    /// Mounts `backend` at `point` (absolute); returns the slot. `EINVAL` for a
    /// point that is not absolute or holds `.` or `..`, `ENAMETOOLONG`, `EBUSY`
    /// if it is taken or would hide a mount, `ENOENT`/`ENOTDIR` if it lies in
    /// another mount and is not a directory there, `ENOSPC` when full.
    pub fn add(&self, cx: &Cx, point: &[u8], backend: &'static dyn Backend, scratch: &mut Scratch) -> Result<usize, Errno> {
        let mut prefix = [0u8; PREFIX_MAX];
        let prefix_len = normalise(point, &mut prefix)?;
        for slot in self.iter() {
            let other = slot.1.prefix();
            if other.starts_with(&prefix[..prefix_len]) && matches!(other.get(prefix_len), None | Some(b'/')) {
                return Err(Errno::EBUSY);
            }
        }
        let parent = match self.find(&prefix[..prefix_len]) {
            None => None,
            Some((slot, mount, rest)) => Some((slot, mount, covered_node(cx, mount, rest, scratch)?)),
        };
        let free = !self.active.load(Relaxed);
        let slot = free.trailing_zeros() as usize;
        if slot >= MOUNTS_MAX {
            return Err(Errno::ENOSPC);
        }
        let mount = Mount {
            slot: slot as u8,
            prefix,
            prefix_len: prefix_len as u16,
            backend,
            descriptions: backend.descriptions(),
            #[cfg(feature = "native")]
            direct: backend.direct(),
            #[cfg(feature = "native")]
            changing: backend.direct_changes(),
            root: backend.root(),
            covered_by: AtomicU32::new(0),
            covers_in: parent.map_or(NOWHERE, |(slot, ..)| slot as u8),
            covers: parent.map_or(backend.root(), |(.., node)| node),
            is_kernels: backend.kernel_files().is_kernels(),
            is_direct: backend.is_direct(),
        };
        // SAFETY: the slot's bit is clear, so nobody reads it; callers are serialised.
        unsafe { *self.slots[slot].get() = Some(mount) };
        if let Some((_, outer, _)) = parent {
            outer.covered_by.fetch_or(1 << slot, Relaxed);
            self.nested.fetch_or(1 << slot, Relaxed);
        }
        self.active.fetch_or(1 << slot, Ordering::Release);
        Ok(slot)
    }

    /// Unmounts `slot`. The caller has closed every descriptor in it and stopped
    /// every call; the backend is detached by the caller.
    pub fn remove(&self, slot: usize) {
        self.active.fetch_and(!(1 << slot), Ordering::AcqRel);
        if let Some((parent, _)) = self.held(slot).and_then(Mount::parent)
            && let Some(outer) = self.get(parent)
        {
            outer.covered_by.fetch_and(!(1 << slot), Relaxed);
            self.nested.fetch_and(!(1 << slot), Relaxed);
        }
    }

    /// Whether paths lead to the mounts: not where another root directory has been taken. What is open stays open.
    pub fn set_named(&self, named: bool) {
        match named {
            true => self.active.fetch_and(!UNNAMED, Ordering::AcqRel),
            false => self.active.fetch_or(UNNAMED, Ordering::AcqRel),
        };
    }

    /// The mount in `slot`.
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&Mount> {
        if self.active.load(Ordering::Acquire) & (1u32.checked_shl(slot as u32)?) == 0 {
            return None;
        }
        // SAFETY: the bit is set, so the slot is written and stays as it is.
        unsafe { (*self.slots.get(slot)?.get()).as_ref() }
    }

    /// Whether nothing is mounted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.active.load(Relaxed) == 0
    }

    /// All mounts with their slots.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Mount)> {
        self.among(self.active.load(Ordering::Acquire))
    }

    /// Those that paths lead to, with their slots.
    #[inline]
    pub fn named(&self) -> impl Iterator<Item = (usize, &Mount)> {
        let active = self.active.load(Ordering::Acquire);
        self.among(if active & UNNAMED == 0 { active } else { 0 })
    }

    /// The mounts directly inside `outer`, with their slots.
    #[inline]
    pub fn inside(&self, outer: &Mount) -> impl Iterator<Item = (usize, &Mount)> {
        self.among(outer.covered_by.load(Relaxed) & self.active.load(Ordering::Acquire))
    }

    /// Those of `left` slots, which were seen to be mounted.
    #[inline]
    fn among(&self, mut left: u32) -> impl Iterator<Item = (usize, &Mount)> {
        core::iter::from_fn(move || {
            let slot = left.trailing_zeros() as usize;
            if slot >= MOUNTS_MAX {
                return None;
            }
            left &= left - 1;
            Some((slot, self.held(slot)?))
        })
    }

    /// The mount that an open descriptor leads to: as `get`, also while it is
    /// being unmounted. A slot once written stays readable.
    #[inline]
    pub fn held(&self, slot: usize) -> Option<&Mount> {
        // SAFETY: whoever has a descriptor has seen the slot written; it is not
        // written again before all descriptors are gone.
        unsafe { (*self.slots.get(slot)?.get()).as_ref() }
    }

    /// Where in this table the mount in `slot` lies, for [`MountTable::at`]: less than 2^16, and not 0.
    pub fn place(&self, slot: usize) -> Option<u32> {
        (slot < MOUNTS_MAX).then_some((offset_of!(MountTable, slots) + slot * SLOT) as u32)
    }

    /// The mount at a place.
    ///
    /// # Safety
    /// [`MountTable::place`] told of it, and [`MountTable::held`] would give it.
    #[inline]
    pub unsafe fn at(&self, place: u32) -> &Mount {
        // SAFETY: the place of one of the slots, which has been written, and is not written again now.
        unsafe { (*core::ptr::from_ref(self).byte_add(place as usize).cast::<Option<Mount>>()).as_ref().unwrap_unchecked() }
    }

    /// The mount that an absolute path leads into by its text alone: longest
    /// prefix on component borders. The rest has no leading slash.
    #[inline]
    pub fn find<'a>(&self, path: &'a [u8]) -> Option<(usize, &Mount, &'a [u8])> {
        let active = self.active.load(Ordering::Acquire);
        if active == 1 {
            let mount = self.held(0)?;
            return Some((0, mount, mount.rest(path)?));
        }
        self.find_among(active, path)
    }

    /// As `find`.
    #[inline]
    pub fn find_text<'a>(&self, path: Text<'a>) -> Option<(&Mount, Text<'a>)> {
        if self.active.load(Ordering::Acquire) != 1 {
            return self.find_text_among(path);
        }
        let mount = self.held(0)?;
        Some((mount, mount.rest_of_text(path)?))
    }

    #[inline(never)]
    fn find_text_among<'a>(&self, path: Text<'a>) -> Option<(&Mount, Text<'a>)> {
        let (mut outer, mut rest) = self.named().find_map(|(_, mount)| Some((mount, mount.rest_of_text(path)?)))?;
        while let Some(inner) = self.inside(outer).find_map(|(_, mount)| Some((mount, mount.rest_of_rest(outer, rest)?))) {
            (outer, rest) = inner;
        }
        Some((outer, rest))
    }

    /// Whether quick ways may do without the rare: nothing is mounted inside another mount, and owners are shown as they are.
    #[inline]
    pub fn is_flat(&self) -> bool {
        self.nested.load(Relaxed) == 0
    }

    /// Whether owners are shown as they are, for [`MountTable::is_flat`].
    pub fn show_owners(&self, as_they_are: bool) {
        match as_they_are {
            true => self.nested.fetch_and(!TRANSLATED, Relaxed),
            false => self.nested.fetch_or(TRANSLATED, Relaxed),
        };
    }

    /// As `find`, of a name that itself is meant, not what is mounted on it: a mount point inside another mount is a name there.
    #[inline]
    pub fn find_name<'a>(&self, path: &'a [u8]) -> Option<(usize, &Mount, &'a [u8])> {
        let found = self.find(path)?;
        match found {
            (_, mount, []) if mount.covers_in != NOWHERE => {
                let slot = usize::from(mount.covers_in);
                let outer = self.get(slot)?;
                Some((slot, outer, outer.rest(path)?))
            }
            _ => Some(found),
        }
    }

    fn find_among<'a>(&self, mut left: u32, path: &'a [u8]) -> Option<(usize, &Mount, &'a [u8])> {
        let mut best: Option<(usize, &Mount, &'a [u8])> = None;
        if left & UNNAMED != 0 {
            return None;
        }
        while left != 0 {
            let slot = left.trailing_zeros() as usize % MOUNTS_MAX;
            left &= left - 1;
            if let Some(mount) = self.held(slot)
                && let Some(rest) = mount.rest(path)
                && best.is_none_or(|b| b.1.prefix_len < mount.prefix_len)
            {
                best = Some((slot, mount, rest));
            }
        }
        best
    }

    /// What is mounted on node `id` of `outer`.
    #[inline]
    pub fn mounted_on(&self, outer: &Mount, id: u64) -> Option<(usize, &Mount)> {
        self.inside(outer).find(|(_, mount)| mount.covers.id == id)
    }
}

impl Default for MountTable {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes `point` without double and trailing slashes; `/` becomes empty.
fn normalise(point: &[u8], out: &mut [u8; PREFIX_MAX]) -> Result<usize, Errno> {
    if point.first() != Some(&b'/') || point.contains(&0) {
        return Err(Errno::EINVAL);
    }
    let mut len = 0;
    for part in point.split(|&b| b == b'/').filter(|p| !p.is_empty()) {
        if part == b"." || part == b".." {
            return Err(Errno::EINVAL);
        }
        let end = len + 1 + part.len();
        if end > PREFIX_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        out[len] = b'/';
        out[len + 1..end].copy_from_slice(part);
        len = end;
    }
    Ok(len)
}

/// The directory of `mount` on which something is to be mounted.
fn covered_node(cx: &Cx, mount: &Mount, rest: &[u8], scratch: &mut Scratch) -> Result<Node, Errno> {
    let walk = mount.backend.walk(cx, mount.root, rest, Last::NoFollow, &mut 0, None, scratch);
    match walk.map_err(|e| e.errno())? {
        Walk::Found(found) => {
            let node = found.node.ok_or(Errno::ENOENT)?;
            let attr = mount.backend.attr(cx, node).map_err(|e| e.errno())?;
            if attr.kind == crate::Kind::Directory { Ok(node) } else { Err(Errno::ENOTDIR) }
        }
        Walk::Exit(Exit::Above { .. } | Exit::Absolute { .. } | Exit::Mountpoint { .. }) => Err(Errno::EINVAL),
    }
}

#[cfg(all(test, feature = "mem"))]
mod tests {
    use super::*;
    use crate::mem::Mem;
    use crate::{Cred, Thread};
    use base::NewNode;
    use std::string::String;
    use std::vec;
    use std::vec::Vec;

    /// Which mount a text leads into: longest prefix, on component borders only.
    #[test]
    fn longest_prefix() {
        let (table, thread) = (MountTable::new(), Thread::new());
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let mut scratch = Scratch::new();
        let mem = Mem::leak(0, 0, 0o755, 1);
        let mut add = |point: &[u8]| table.add(&cx, point, mem, &mut scratch);
        assert_eq!(add(b"/bp"), Ok(0));
        assert_eq!(table.find(b"/bp//x/").map(|f| (f.0, f.2)), Some((0, &b"x/"[..])));
        assert_eq!(add(b"/bp/"), Err(Errno::EBUSY));
        assert_eq!(add(b"//a//bpx/"), Ok(1));
        assert_eq!(add(b"bp"), Err(Errno::EINVAL));
        assert_eq!(add(b"/a/../b"), Err(Errno::EINVAL));
        assert_eq!(add(b"/bp/missing"), Err(Errno::ENOENT));
        assert_eq!(add(b"/a"), Err(Errno::EBUSY), "it would hide /a/bpx");
        for (path, expected) in [
            (&b"/bp"[..], Some((0, &b""[..]))),
            (b"/bp/x/y", Some((0, b"x/y"))),
            (b"/bpx", None),
            (b"/b", None),
            (b"", None),
            (b"/a/bpx/z", Some((1, b"z"))),
            (b"/a", None),
        ] {
            assert_eq!(table.find(path).map(|f| (f.0, f.2)), expected);
            let mut bytes = [0u8; 16];
            bytes[..path.len()].copy_from_slice(path);
            // SAFETY: it ends with a NUL, and stays.
            let found = table.find_text(unsafe { Text::new(bytes.as_ptr()) });
            let place = |rest: &[u8]| path.len() - rest.len();
            assert_eq!(
                found.map(|(mount, rest)| (usize::from(mount.slot), rest.address() - bytes.as_ptr() as usize)),
                expected.map(|(slot, rest)| (slot, place(rest))),
                "by text"
            );
        }
        table.remove(1);
        assert!(table.find(b"/a/bpx/z").is_none());
    }

    /// Goal: of mounts inside mounts the innermost is found, the one around it where the name itself is meant, and who
    /// covers what is known until it is gone.
    #[test]
    fn nested() {
        let (table, thread) = (MountTable::new(), Thread::new());
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let mut scratch = Scratch::new();
        let directory = NewNode { kind: crate::Kind::Directory, mode: 0o755, rdev: 0, target: b"" };
        for point in [&b"/a"[..], b"/a/b", b"/a/b/c", b"/a/d"] {
            let mem = Mem::leak(0, 0, 0o755, 1);
            for name in [b"b", b"c", b"d"] {
                mem.create(&cx, mem.root(), name, &directory).unwrap();
            }
            table.add(&cx, point, mem, &mut scratch).unwrap();
        }
        let by_text = |path: &[u8]| {
            let mut bytes = [0u8; 16];
            bytes[..path.len()].copy_from_slice(path);
            // SAFETY: it ends with a NUL, and stays.
            let found = table.find_text(unsafe { Text::new(bytes.as_ptr()) });
            found.map(|(mount, rest)| (usize::from(mount.slot), path[rest.address() - bytes.as_ptr() as usize..].to_vec()))
        };
        for (path, slot, rest, around) in [
            (&b"/a/b/c/x"[..], 2, &b"x"[..], None),
            (b"/a/b/c//", 2, b"", Some((1, &b"c//"[..]))),
            (b"/a/b", 1, b"", Some((0, b"b"))),
            (b"/a/bc", 0, b"bc", None),
            (b"/a/d/e", 3, b"e", None),
            (b"/a", 0, b"", None),
        ] {
            let shown = String::from_utf8_lossy(path);
            let found = table.find(path).map(|f| (f.0, f.2));
            assert_eq!(found, Some((slot, rest)), "{shown}");
            assert_eq!(by_text(path), Some((slot, rest.to_vec())), "{shown} by text");
            assert_eq!(table.find_name(path).map(|f| (f.0, f.2)), around.or(found), "the name {shown}");
        }
        // The text is seen through slashes, where the walk comes to the covered directory.
        assert_eq!((table.find(b"/a/b//c").map(|f| (f.0, f.2)), by_text(b"/a/b//c")), (Some((1, &b"c"[..])), Some((2, vec![]))));
        let covered = |slot: usize| table.inside(table.get(slot).unwrap()).map(|inner| inner.0).collect::<Vec<_>>();
        assert_eq!((covered(0), covered(1), covered(2)), (vec![1, 3], vec![2], vec![]));
        table.remove(3);
        assert_eq!(covered(0), [1]);
        assert_eq!(by_text(b"/a/d/e"), Some((0, b"d/e".to_vec())));
    }
}

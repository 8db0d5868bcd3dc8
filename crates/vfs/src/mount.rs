//! A mounted file system. Which path leads to which says the [`table`].

mod fast;
mod table;

pub use table::MountTable;

use crate::{Backend, MOUNTS_MAX, Node};
use base::DescriptionId;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use openfiles::OpenFile;
use pm::{Table, Text};

/// Longest mount point, in bytes.
pub const PREFIX_MAX: usize = 1024;

/// One mounted file system. What every call reads comes first: see [`MountTable`].
#[repr(C)]
pub struct Mount {
    #[cfg(feature = "native")]
    direct: Option<&'static engine::Fs>,
    descriptions: Table<OpenFile>,
    /// Bit n: what is in slot n covers a node of it.
    covered_by: AtomicU32,
    /// Its place in the table.
    pub slot: u8,
    /// Its files are opened as the kernel's: [`KernelFiles::open_in_kernel`](crate::backend::KernelFiles::open_in_kernel).
    pub is_kernels: bool,
    /// [`Backend::is_direct`], known without asking it: reads and writes of one buffer go straight
    /// to the backend ([`Backend::read_one`], [`Backend::write_one`]).
    pub is_direct: bool,
    covers_in: u8,
    /// Its root directory.
    pub root: Node,
    /// [`Backend::direct_changes`].
    #[cfg(feature = "native")]
    changing: Option<&'static engine::Fs>,
    /// The file system.
    pub backend: &'static dyn Backend,
    covers: Node,
    prefix_len: u16,
    prefix: [u8; PREFIX_MAX],
}

/// In `covers_in`: the mount is in no other.
const NOWHERE: u8 = u8::MAX;

const _: () = assert!(MOUNTS_MAX <= NOWHERE as usize);

impl Mount {
    /// The mount point: absolute, normalised, empty for `/`.
    #[inline]
    pub fn prefix(&self) -> &[u8] {
        &self.prefix[..usize::from(self.prefix_len)]
    }

    /// For a mount inside another: that mount's slot and the node it covers.
    #[inline]
    pub fn parent(&self) -> Option<(usize, Node)> {
        (self.covers_in != NOWHERE).then_some((usize::from(self.covers_in), self.covers))
    }

    /// The description behind an index of an open descriptor.
    #[inline]
    pub fn description(&self, id: DescriptionId) -> &OpenFile {
        match self.descriptions.get(id) {
            Some(description) => description,
            None => self.backend.description(id),
        }
    }

    /// The same, if its place is known here: nobody is asked.
    #[inline]
    pub fn description_fast(&self, id: DescriptionId) -> Option<&OpenFile> {
        self.descriptions.get(id)
    }

    /// Whether something is mounted inside it.
    #[inline]
    pub fn is_covered(&self) -> bool {
        self.covered_by.load(Relaxed) != 0
    }

    /// Whether a kernel mount serves it too, by another process.
    #[inline]
    pub fn is_served(&self) -> bool {
        self.backend.kernel_mount().is_served()
    }

    /// Whether something may be mounted on the directory called `name` in `dir`.
    pub fn may_be_covered_at(&self, among: &MountTable, dir: Node, name: &[u8]) -> bool {
        among.inside(self).any(|(_, inner)| self.backend.is_called(inner.covers, dir, name) != Some(false))
    }

    /// What follows the mount point in the absolute path `path`, without leading slashes.
    #[inline]
    pub fn rest_of_text<'a>(&self, path: Text<'a>) -> Option<Text<'a>> {
        behind(path.after(self.prefix())?)
    }

    /// The same of what follows the mount point of `outer`, which this one is inside.
    #[inline]
    fn rest_of_rest<'a>(&self, outer: &Mount, rest: Text<'a>) -> Option<Text<'a>> {
        behind(rest.after(self.prefix().get(usize::from(outer.prefix_len) + 1..)?)?)
    }

    /// What follows the mount point in `path`, without leading slashes, if
    /// `path` starts with it on a component border. Not by `memcmp`: mount points
    /// are short, and the call would cost more.
    #[inline]
    fn rest<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let (prefix, mut rest) = (self.prefix.get(..usize::from(self.prefix_len))?, path.get(usize::from(self.prefix_len)..)?);
        if !prefix.iter().zip(path).all(|(a, b)| a == b) {
            return None;
        }
        match rest.first() {
            None => return Some(rest),
            Some(b'/') => rest = &rest[1..],
            Some(_) => return None,
        }
        while let [b'/', tail @ ..] = rest {
            rest = tail;
        }
        Some(rest)
    }
}

/// What lies behind a mount point in a path: nothing, or what follows the slashes.
#[inline]
fn behind(mut rest: Text) -> Option<Text> {
    if !rest.begins_with(b'/') {
        return rest.begins_with(0).then_some(rest);
    }
    while let Some(next) = rest.after(b"/") {
        rest = next;
    }
    Some(rest)
}

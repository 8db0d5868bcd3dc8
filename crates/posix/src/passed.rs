//! Descriptors of ours that are sent over a socket (`SCM_RIGHTS`) where no kernel mount has what they stand for.
//!
//! What is sent instead tells which file it is, and a program of the session opens that again: at the same offset, which is
//! its own from then on, and without a question of rights, which the sender had.

use crate::path::Spot;
use crate::{Process, ThreadState};
use base::{Found, Kind, Node};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::sys::abi;

/// Length of [`Process::tell`]'s text.
pub const TOLD: usize = 48;
const MAGIC: u64 = u64::from_le_bytes(*b"BypathFd");
/// What the one who opens it again takes over.
const KEPT: u32 = abi::O_ACCMODE | abi::O_APPEND | abi::O_NONBLOCK | abi::O_DIRECT | abi::O_SYNC | abi::O_NOATIME | abi::O_PATH;

impl Process {
    /// What to tell of descriptor `fd`; `None`: it is not ours.
    pub fn tell(&self, fd: u32) -> Option<[u8; TOLD]> {
        let file = self.descriptors.get(fd).and_then(|entry| self.open_file(entry))?;
        let path_only = if file.entry.path_only() { abi::O_PATH } else { 0 };
        let words = [
            MAGIC,
            file.mount.backend.identity(),
            file.node.id,
            file.description.parent.load(Relaxed),
            file.description.offset.load(Relaxed),
            u64::from(file.flags() & KEPT | path_only),
        ];
        let mut told = [0; TOLD];
        told.chunks_exact_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        Some(told)
    }

    /// Opens again what was told of; the number. `EINVAL`: that is no such text; `ENOENT`, `ESTALE`: the file is gone, or its
    /// file system is not mounted here.
    pub fn open_told(&self, thread: &ThreadState, told: &[u8; TOLD], cloexec: bool) -> base::Result<usize> {
        let mut words = [0u64; TOLD / 8];
        told.chunks_exact(8).zip(&mut words).for_each(|(bytes, word)| {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        });
        let [magic, identity, id, parent, offset, flags] = words;
        if magic != MAGIC {
            return Err(Errno::EINVAL.into());
        }
        let (slot, mount) = self.mounts.iter().find(|(_, mount)| mount.backend.identity() == identity).ok_or(Errno::ENOENT)?;
        let (cx, node) = (self.cx(thread), Node { id, hint: 0 });
        let kind = mount.backend.attr(&cx, node)?.kind;
        let flags = flags as u32 & KEPT;
        if !matches!(kind, Kind::Regular | Kind::Directory) && flags & abi::O_PATH == 0 {
            return Err(Errno::EINVAL.into());
        }
        let found = Found { parent: Node { id: parent, hint: 0 }, name: b"", node: Some(node), slash: false };
        let spot = Spot { slot, mount, found };
        let fd = self.install(&cx, &spot, node, kind, flags | if cloexec { abi::O_CLOEXEC } else { 0 })?;
        if let Some(file) = self.file(fd) {
            file.description.offset.store(offset, Relaxed);
        }
        Ok(fd)
    }
}

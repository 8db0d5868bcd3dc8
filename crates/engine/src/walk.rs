//! The direct way from a path to a node: one pass, no allocation, no lock.
//!
//! A component costs a hash, a bucket and a cachelet; permission comes from
//! what the lookup has read anyway. `vfs::walk` says what a walk means; this
//! gives the same answers. Where a symlink is met the rest is done by
//! [`Fs::walk_links`], on text in the caller's scratch.

use crate::dir::NameBuffer;
use crate::fs::{Fs, corrupt};
use crate::index::Seen;
use crate::names::{gone, proper};
use base::walk::{Exit, Found, Last, PATH_MAX, SYMLINKS_MAX, Scratch, Walk};
use base::{Cred, Cx, Kind, Node, Result, X};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::inode::{node_id, node_offset};
use pm::{Errno, UserSlice};

/// Where a pass over a text has stopped; positions are bytes from its start.
enum Stop {
    /// At the last component, `at..end`.
    Found { at: usize, end: usize, node: Option<Node>, slash: bool },
    /// `..` at the root.
    Above { rest: usize },
    /// A node that something is mounted on.
    Mountpoint { node: Node, rest: usize },
    /// A symlink to be followed.
    Link { node: Node, rest: usize },
}

impl Fs {
    /// The root directory.
    #[inline]
    pub fn root_node(&self) -> Node {
        self.node_at(self.root().root_inode.load(Relaxed)).unwrap_or(Node { id: 0, hint: u32::MAX })
    }

    /// The node whose inode is at an offset.
    #[inline]
    fn node_at(&self, offset: u64) -> Result<Node> {
        let inode = self.inode(offset)?;
        let reference = inode.cachelet.load(Acquire);
        Ok(Node { id: node_id(offset, inode.head().generation), hint: (reference as u32).wrapping_sub(1) })
    }

    /// Walks a path. See `vfs::Backend::walk`.
    #[allow(clippy::too_many_arguments)]
    pub fn walk<'a>(
        &self,
        cx: &Cx,
        base: Node,
        path: &'a [u8],
        last: Last,
        links: &mut u32,
        covered: Option<&dyn Fn(Node) -> bool>,
        scratch: &'a mut Scratch,
    ) -> Result<Walk<'a>> {
        let mut dir = self.see(cx, base).map_err(gone)?;
        match self.pass(cx, &mut dir, path, last, covered)? {
            Stop::Link { node, rest } => self.walk_links(cx, dir, node, &path[rest..], last, links, covered, scratch),
            stop => Ok(answer(stop, self.node_seen(&dir), path)),
        }
    }

    /// Goes through a text; `dir` is where it starts and, at the end, the directory of the last component.
    #[inline(always)]
    fn pass<'f>(
        &'f self,
        cx: &Cx,
        dir: &mut Seen<'f>,
        text: &[u8],
        last: Last,
        covered: Option<&dyn Fn(Node) -> bool>,
    ) -> Result<Stop> {
        let mut at = 0;
        loop {
            at = skip_slashes(text, at);
            let end = end_of_component(text, at);
            let next = skip_slashes(text, end);
            let (slash, is_last) = (next > end, next == text.len());
            let name = &text[at..end];
            if name.is_empty() {
                return Ok(Stop::Found { at, end, node: Some(self.node_seen(dir)), slash });
            }
            may_search(&cx.cred, dir)?;
            if name.len() <= 2 && name[0] == b'.' && name[name.len() - 1] == b'.' {
                if name.len() == 2 {
                    if node_offset(dir.id) == self.root().root_inode.load(Relaxed) {
                        return Ok(Stop::Above { rest: next });
                    }
                    *dir = self.step_up(cx, self.node_seen(dir))?;
                }
                if is_last {
                    return Ok(Stop::Found { at, end, node: Some(self.node_seen(dir)), slash });
                }
                at = next;
                continue;
            }
            if is_last && last == Last::Parent {
                return Ok(Stop::Found { at, end, node: None, slash });
            }
            let Some(child) = self.step(cx, dir, name)? else {
                if is_last {
                    return Ok(Stop::Found { at, end, node: None, slash });
                }
                return Err(Errno::ENOENT.into());
            };
            if child.is(Kind::Symlink) && (!is_last || slash || last == Last::Follow) {
                return Ok(Stop::Link { node: self.node_seen(&child), rest: end });
            }
            if covered.is_some_and(|is_covered| is_covered(self.node_seen(&child))) {
                return Ok(Stop::Mountpoint { node: self.node_seen(&child), rest: next });
            }
            if is_last {
                if dir.cachelet.told_device().is_none() {
                    self.learn_device(cx, dir);
                }
                return Ok(Stop::Found { at, end, node: Some(self.node_seen(&child)), slash });
            }
            if !child.is(Kind::Directory) {
                return Err(Errno::ENOTDIR.into());
            }
            *dir = child;
            at = next;
        }
    }

    /// One component down.
    #[inline(always)]
    fn step<'f>(&'f self, cx: &Cx, dir: &Seen, name: &[u8]) -> Result<Option<Seen<'f>>> {
        let found = self.find(cx, &self.sought(node_offset(dir.id), proper(name)?))?;
        // The place may have become another directory's while we looked.
        if dir.cachelet.node.load(Relaxed) != dir.id {
            self.still(dir.id)?;
        }
        Ok(found)
    }

    /// `ENOENT` if a directory that had lost its cachelet is gone.
    #[cold]
    #[inline(never)]
    fn still(&self, id: u64) -> Result<()> {
        match self.node_at(node_offset(id))?.id == id {
            true => Ok(()),
            false => Err(Errno::ENOENT.into()),
        }
    }

    /// One directory up.
    #[inline(never)]
    fn step_up(&self, cx: &Cx, dir: Node) -> Result<Seen<'_>> {
        let parent = self.parent_of(cx, dir)?;
        self.see(cx, parent).map_err(gone)
    }

    /// Goes on after symlink `node` in `dir`, with `rest` behind it.
    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    fn walk_links<'a, 'f>(
        &'f self,
        cx: &Cx,
        mut dir: Seen<'f>,
        mut node: Node,
        rest: &[u8],
        last: Last,
        links: &mut u32,
        covered: Option<&dyn Fn(Node) -> bool>,
        scratch: &'a mut Scratch,
    ) -> Result<Walk<'a>> {
        let (now, other) = scratch.text.split_at_mut(1);
        let (mut now, mut other) = (&mut now[0], &mut other[0]);
        let mut len = self.expand(cx, node, rest, links, now)?;
        loop {
            if now[0] == b'/' {
                return Ok(Walk::Exit(Exit::Absolute { path: &now[..len] }));
            }
            match self.pass(cx, &mut dir, &now[..len], last, covered)? {
                Stop::Link { node: next, rest } => {
                    node = next;
                    len = self.expand(cx, node, &now[rest..len], links, other)?;
                    (now, other) = (other, now);
                }
                stop => return Ok(answer(stop, self.node_seen(&dir), &now[..len])),
            }
        }
    }

    /// The target of a symlink with what follows it, into `into`; its length.
    fn expand(&self, cx: &Cx, node: Node, rest: &[u8], links: &mut u32, into: &mut [u8; PATH_MAX]) -> Result<usize> {
        *links += 1;
        if *links > SYMLINKS_MAX {
            return Err(Errno::ELOOP.into());
        }
        let len = self.readlink(cx, node, UserSlice::from_mut(into)).map_err(gone)?;
        if len == 0 {
            return Err(Errno::ENOENT.into());
        }
        let end = len + rest.len();
        if end >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        into[len..end].copy_from_slice(rest);
        Ok(end)
    }

    /// The node called `name` in `dir`. See `vfs::Backend::lookup`.
    pub fn lookup(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        let parent = self.searched(cx, dir)?;
        match self.step(cx, &parent, name)? {
            Some(child) => Ok(self.node_seen(&child)),
            None => Err(Errno::ENOENT.into()),
        }
    }

    /// A directory to look for names in: `ENOTDIR`, or `EACCES` if it may not be searched.
    pub(crate) fn searched(&self, cx: &Cx, dir: Node) -> Result<Seen<'_>> {
        let seen = self.see(cx, dir).map_err(gone)?;
        if !seen.is(Kind::Directory) {
            return Err(Errno::ENOTDIR.into());
        }
        may_search(&cx.cred, &seen)?;
        Ok(seen)
    }

    /// The directory that holds directory `dir`; the root's is the root.
    /// `ENOENT` for a directory that was removed.
    pub fn parent_of(&self, cx: &Cx, dir: Node) -> Result<Node> {
        self.directory(cx, dir)?;
        for _ in 0..1000 {
            let offset = self.parent_offset(node_offset(dir.id))?;
            let parent = self.node_at(offset)?;
            self.still(dir.id)?;
            // The parent was that directory only if it still is the parent.
            if self.parent_offset(node_offset(dir.id))? == offset {
                return Ok(parent);
            }
        }
        Err(Errno::ENOENT.into())
    }

    /// Offset of the inode of the directory that holds the one at `offset`.
    pub(crate) fn parent_offset(&self, offset: u64) -> Result<u64> {
        if offset == self.root().root_inode.load(Relaxed) {
            return Ok(offset);
        }
        for _ in 0..1000 {
            let own = self.own_edentry(offset)?;
            if own == 0 {
                return Err(Errno::ENOENT.into());
            }
            let edentry = self.edentry(own)?;
            let (parent, child) = (edentry.parent.load(Acquire), edentry.child.load(Acquire));
            fence(Acquire);
            // The child tells an edentry from a cold line just put in its place.
            if self.own_edentry(offset)? == own && node_offset(child) == offset {
                return Ok(parent);
            }
        }
        Err(corrupt("own edentry of a directory", offset))
    }

    /// The name of directory `dir` in its parent; its length. One step of `getcwd`.
    pub fn name_of(&self, cx: &Cx, dir: Node, name: &mut [u8; 255]) -> Result<usize> {
        self.directory(cx, dir)?;
        let offset = node_offset(dir.id);
        let mut buffer = NameBuffer::new();
        for _ in 0..1000 {
            let word = self.own_word(offset, self.inode(offset)?)?;
            let word = self.at::<AtomicU64>(word, "own edentry")?;
            let own = word.load(Acquire);
            if own == 0 {
                return Err(Errno::ENOENT.into());
            }
            let entry = self.read_edentry(own, &mut buffer);
            fence(Acquire);
            if word.load(Relaxed) != own {
                continue;
            }
            self.still(dir.id)?;
            let entry = entry?;
            if node_offset(entry.child) != offset {
                continue;
            }
            let found = buffer.bytes(entry.head.name_len);
            name[..found.len()].copy_from_slice(found);
            return Ok(found.len());
        }
        Err(Errno::ENOENT.into())
    }

    /// `ENOTDIR` if a node is no directory, `ENOENT` if it is gone.
    fn directory(&self, cx: &Cx, dir: Node) -> Result<Seen<'_>> {
        let seen = self.see(cx, dir).map_err(gone)?;
        if seen.is(Kind::Directory) { Ok(seen) } else { Err(Errno::ENOTDIR.into()) }
    }
}

/// Search permission on a directory; `ENOTDIR` if it is none.
#[inline(always)]
fn may_search(cred: &Cred, dir: &Seen) -> Result<()> {
    if !dir.is(Kind::Directory) {
        return Err(Errno::ENOTDIR.into());
    }
    if !cred.may(Kind::Directory, dir.mode(), dir.uid, dir.gid, X) {
        return Err(Errno::EACCES.into());
    }
    Ok(())
}

#[inline]
fn answer(stop: Stop, parent: Node, text: &[u8]) -> Walk<'_> {
    match stop {
        Stop::Found { at, end, node, slash } => Walk::Found(Found { parent, name: &text[at..end], node, slash }),
        Stop::Above { rest } => Walk::Exit(Exit::Above { rest: &text[rest..] }),
        Stop::Mountpoint { node, rest } => Walk::Exit(Exit::Mountpoint { node, rest: &text[rest..] }),
        // The callers follow links themselves.
        Stop::Link { node, rest } => Walk::Exit(Exit::Mountpoint { node, rest: &text[rest..] }),
    }
}

#[inline(always)]
fn skip_slashes(text: &[u8], mut at: usize) -> usize {
    while text.get(at) == Some(&b'/') {
        at += 1;
    }
    at
}

/// The end of the component that starts at `at`: eight bytes a step.
#[inline(always)]
fn end_of_component(text: &[u8], at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut rest = text.get(at..).unwrap_or(&[]);
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        // A zero byte where the slash is; the lowest mark is exact.
        let word = u64::from_le_bytes(*chunk) ^ (ONES * b'/' as u64);
        let marks = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if marks != 0 {
            return text.len() - rest.len() + (marks.trailing_zeros() / 8) as usize;
        }
        rest = tail;
    }
    while let Some((byte, tail)) = rest.split_first() {
        if *byte == b'/' {
            break;
        }
        rest = tail;
    }
    text.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Goal: components end where they do. Method: slashes at every place of texts of every length.
    #[test]
    fn components_end() {
        for len in 0..40usize {
            for slash in 0..=len {
                let mut text: Vec<u8> =
                    (0..len).map(|i| 0x30u8.wrapping_add((i as u8).wrapping_mul(7)) | (0x80 * (i as u8 & 1))).collect();
                text.iter_mut().for_each(|b| *b = if *b == b'/' { b'x' } else { *b });
                if slash < len {
                    text[slash] = b'/';
                }
                for at in 0..=slash.min(len) {
                    assert_eq!(end_of_component(&text, at), slash.min(len));
                }
            }
        }
    }
}

//! What happens to a node itself: told by its mirror, and by its name in that of its directory.

use super::as_root;
use super::mirror::{self, Mirrors, Place};
use crate::fs::Fs;
use base::{Cx, Kind, Node};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use openfiles::{OpenFile, TOLD};
use pm::sys::abi;
use pm::{Errno, names};

/// What has happened to a node. The kernel's events are told by calls that make the kernel tell just them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `IN_ACCESS`.
    Access,
    /// `IN_MODIFY`.
    Modify,
    /// `IN_ATTRIB`.
    Attributes,
    /// `IN_OPEN` and `IN_CLOSE_WRITE`.
    ClosedWritten,
    /// `IN_OPEN` and `IN_CLOSE_NOWRITE`.
    Closed,
}

impl Event {
    fn make(self, place: &Place) -> Result<(), Errno> {
        match self {
            Event::Access => names::touch(place.text(), true, false),
            Event::Modify => names::touch(place.text(), false, true),
            Event::Attributes => names::touch(place.text(), true, true),
            Event::ClosedWritten => names::visit(place.text(), true),
            Event::Closed => names::visit(place.text(), false),
        }
    }

    /// Has the kernel tell it of a name in the mirror of a node, or of that itself. What is not there nobody watches.
    pub(super) fn tell(self, mirrors: &Mirrors, id: u64, name: &[u8]) {
        let _ = mirrors.act(id, name, |place| self.make(place));
    }
}

impl Fs {
    /// Tells those who watch a node, or the directory that it is in, what has happened to it. Waits for nobody.
    #[cold]
    #[inline(never)]
    pub fn tell(&self, cx: &Cx, node: Node, event: Event) {
        self.tell_in(cx, node, 0, event);
    }

    /// As [`Fs::tell`], of a node that was opened in directory `parent`, where that is known.
    fn tell_in(&self, cx: &Cx, node: Node, parent: u64, event: Event) {
        let cx = &as_root(cx);
        let mut name = [0; 255];
        let called = self.called(cx, node, parent, &mut name).filter(|called| self.may_be_watched(called.0));
        let itself = self.may_be_watched(node.id);
        if called.is_none() && !itself {
            return;
        }
        let Some(mirrors) = Mirrors::of(self).filter(|mirrors| mirrors.usable()) else { return };
        // In the kernel's order.
        if let Some((parent, len)) = called {
            event.tell(&mirrors, parent, &name[..len]);
        }
        if itself {
            event.tell(&mirrors, node.id, b"");
        }
    }

    /// A description is about to end.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_closed(&self, cx: &Cx, description: &OpenFile) {
        let flags = description.flags.load(Relaxed);
        if !self.is_watched() {
            description.locks.fetch_and(!TOLD, SeqCst);
            return;
        }
        if flags & abi::O_PATH != 0 {
            return;
        }
        let node = Node { id: description.node.load(Relaxed), hint: description.hint.load(Relaxed) };
        let event = if flags & abi::O_ACCMODE == abi::O_RDONLY { Event::Closed } else { Event::ClosedWritten };
        self.tell_in(cx, node, description.parent.load(Relaxed), event);
    }

    /// A node that was open may be gone by now: `IN_DELETE_SELF`.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_if_gone(&self, cx: &Cx, id: u64) {
        if self.is_watched() && self.may_be_watched(id) && self.attr(&as_root(cx), Node { id, hint: u32::MAX }).is_err() {
            self.tell_gone(id);
        }
    }

    /// A node is gone; so is its mirror.
    pub(super) fn tell_gone(&self, id: u64) {
        if let Some(mirrors) = Mirrors::of(self).filter(|mirrors| mirrors.usable()) {
            let _ = mirrors.act(id, b"", mirror::remove);
        }
    }

    /// A directory that a node is in and its name there, into `name`: the length.
    fn called(&self, cx: &Cx, node: Node, parent: u64, name: &mut [u8; 255]) -> Option<(u64, usize)> {
        let cached = self.cached(cx, node).ok()?;
        let read = |cachelet: &crate::segment::Cachelet| {
            let words = core::array::from_fn::<_, 5, _>(|word| cachelet.name[word].load(Relaxed));
            (cachelet.parent.load(Relaxed), cachelet.mode.load(Relaxed), words)
        };
        let (place, mode, words) = self.consistent(cx, cached, node.id, read).ok()?;
        let len = (mode >> 24) as usize;
        if mode >> 16 & 0xff == Kind::Directory as u32 {
            return self.step_up(cx, node, name).ok().map(|(len, parent)| (parent.id, len));
        }
        if place != 0 && len != 0 && len <= size_of_val(&words) {
            for (bytes, word) in name.chunks_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            return self.node_at(place).ok().map(|parent| (parent.id, len));
        }
        self.search_name(cx, node, parent, name)
    }

    /// The same of a file whose name is not cached, being a long one or one of several: where it was opened.
    fn search_name(&self, cx: &Cx, node: Node, parent: u64, name: &mut [u8; 255]) -> Option<(u64, usize)> {
        let parent = if parent != 0 { parent } else { self.opened_in(node)? };
        if !self.may_be_watched(parent) {
            return None;
        }
        let mut found = None;
        let look = &mut |entry: base::DirEntry| {
            if entry.id == node.id {
                name[..entry.name.len()].copy_from_slice(entry.name);
                found = Some((parent, entry.name.len()));
            }
            found.is_none()
        };
        self.readdir(cx, Node { id: parent, hint: u32::MAX }, 0, look).ok()?;
        found
    }

    /// In which directory somebody who has a node open has opened it.
    fn opened_in(&self, node: Node) -> Option<u64> {
        let open = (0..self.header().descriptions_high.get()).map(|id| self.description(id));
        let parents = open.filter(|one| one.refs.load(Relaxed) != 0 && one.node.load(Relaxed) == node.id);
        parents.map(|one| one.parent.load(Relaxed)).find(|parent| *parent != 0)
    }
}

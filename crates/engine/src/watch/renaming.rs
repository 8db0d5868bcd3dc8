//! Changes of names: made in the image and then in the mirrors of the directories, under one lock.

use super::as_root;
use super::events::Event;
use super::mirror::{self, Mirrors, Place, remove_tree};
use crate::fs::Fs;
use base::{Cx, Kind, Node, Result};
use pm::{Errno, names};

/// A change of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renaming {
    /// A node was made, a directory or not.
    Made(bool),
    /// This node was given a name more.
    Linked(Node),
    /// A name was removed.
    Removed,
    /// The first name became the second.
    Moved,
    /// They changed places.
    Exchanged,
}

/// A directory and a name in it.
pub type Called<'a> = (Node, &'a [u8]);

/// What a name led to before.
type Child = Option<(Node, Kind)>;

impl Fs {
    /// Makes a change of one name or two, and tells those who watch.
    #[cold]
    #[inline(never)]
    pub fn change_names<T>(&self, cx: &Cx, called: &[Called], what: Renaming, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let root = &as_root(cx);
        let look = |(dir, name): &Called| self.lookup_kind(root, *dir, name).ok();
        let is_concerned =
            |one: &Called| self.may_be_watched(one.0.id) || look(one).is_some_and(|it| self.may_be_watched(it.0.id));
        let is_linked = matches!(what, Renaming::Linked(node) if self.may_be_watched(node.id));
        if !is_linked && !called.iter().any(is_concerned) {
            return change();
        }
        let Some(mirrors) = Mirrors::of(self).filter(|mirrors| mirrors.usable()) else { return change() };
        let lock = mirrors.lock();
        let mut children = [None; 2];
        for (child, one) in children.iter_mut().zip(called) {
            *child = look(one);
        }
        let done = change()?;
        match (what, called) {
            (Renaming::Made(directory), [one, ..]) => self.add_name(&mirrors, *one, directory),
            (Renaming::Linked(node), [one, ..]) => {
                self.tell_itself(&mirrors, node.id, Event::Attributes);
                self.add_name(&mirrors, *one, false);
            }
            (Renaming::Removed, [one, ..]) => {
                self.tell_removed(root, &mirrors, children[0]);
                self.remove_name(&mirrors, *one);
            }
            (_, [from, to, ..]) => self.tell_moved(root, &mirrors, [*from, *to], children, what == Renaming::Exchanged),
            _ => {}
        }
        drop(lock);
        Ok(done)
    }

    /// Somebody has begun to watch while a name was changed: the mirror shows it as it is.
    pub fn catch_up_name(&self, cx: &Cx, called: Called) {
        let Some(mirrors) = Mirrors::of(self).filter(|mirrors| mirrors.usable()) else { return };
        let lock = mirrors.lock();
        match (self.lookup_kind(&as_root(cx), called.0, called.1), self.place(&mirrors, called)) {
            (Ok((_, kind)), Some(place)) => drop(mirror::make(&place, kind == Kind::Directory)),
            (Err(_), Some(_)) => self.remove_name(&mirrors, called),
            _ => {}
        }
        drop(lock);
    }

    /// A name of a cached directory has come or gone because it did so below: the mirror shows that, and that `before`, to which
    /// it led, has gone with it.
    pub fn follow_name(&self, cx: &Cx, called: Called, before: Option<Node>) {
        if self.may_be_watched(called.0.id) {
            self.catch_up_name(cx, called);
        }
        let is_gone = |node: &Node| self.attr(&as_root(cx), Node { hint: u32::MAX, ..*node }).is_err();
        if let Some(node) = before.filter(|node| self.may_be_watched(node.id)).filter(is_gone) {
            self.tell_gone(node.id);
        }
    }

    /// A cached directory was listed anew: the mirror shows all its names.
    pub fn follow_names(&self, cx: &Cx, dir: Node) -> Result<()> {
        if !self.may_be_watched(dir.id) {
            return Ok(());
        }
        self.readdir(&as_root(cx), dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                self.catch_up_name(cx, (dir, entry.name));
            }
            true
        })
    }

    /// Where a name stands in the mirror of its directory, if there is one.
    fn place(&self, mirrors: &Mirrors, (dir, name): Called) -> Option<Place> {
        let mirror = self.may_be_watched(dir.id).then(|| mirrors.found(dir.id))??;
        Some(mirror.child(name))
    }

    fn add_name(&self, mirrors: &Mirrors, one: Called, directory: bool) {
        if self.may_be_watched(one.0.id) {
            let _ = mirrors.act(one.0.id, one.1, |place| match mirror::make(place, directory) {
                // Left by somebody who was killed before he had told that it is gone.
                Err(Errno::EEXIST) => mirror::remove(place).and_then(|()| mirror::make(place, directory)),
                done => done,
            });
        }
    }

    fn remove_name(&self, mirrors: &Mirrors, one: Called) {
        if self.may_be_watched(one.0.id) {
            let _ = mirrors.act(one.0.id, one.1, mirror::remove);
        }
    }

    fn tell_itself(&self, mirrors: &Mirrors, id: u64, event: Event) {
        if self.may_be_watched(id) {
            event.tell(mirrors, id, b"");
        }
    }

    /// A node has lost a name: it is gone, or has others, or is open.
    fn tell_removed(&self, cx: &Cx, mirrors: &Mirrors, child: Child) {
        let Some((node, kind)) = child.filter(|(node, _)| self.may_be_watched(node.id)) else { return };
        if self.attr(cx, Node { hint: u32::MAX, ..node }).is_err() {
            self.tell_gone(node.id);
        } else if kind != Kind::Directory {
            self.tell_itself(mirrors, node.id, Event::Attributes);
        }
    }

    fn tell_moved(&self, cx: &Cx, mirrors: &Mirrors, called: [Called; 2], children: [Child; 2], exchange: bool) {
        let [source, target] = children;
        let is_same = source.is_some_and(|source| target.is_some_and(|target| source.0.id == target.0.id));
        let (Some((node, kind)), false) = (source, is_same) else { return };
        let [from, to] = called.map(|one| self.place(mirrors, one));
        let aside = || self.own_process().ok().map(|process| mirrors.aside(process));
        match (from, to) {
            (Some(from), Some(to)) => {
                if !from.is_there() {
                    let _ = mirror::make(&from, kind == Kind::Directory);
                }
                let _ = names::rename(from.text(), to.text(), exchange);
            }
            // Both names are there after an exchange, and each is told as moved away and moved here.
            (Some(only), None) | (None, Some(only)) if exchange => {
                let is_first = self.place(mirrors, called[0]).is_some();
                let kind = if is_first { target.map_or(kind, |target| target.1) } else { kind };
                if let Some(aside) = aside() {
                    remove_tree(&aside);
                    let _ = mirror::make(&aside, kind == Kind::Directory);
                    let _ = names::rename(aside.text(), only.text(), true);
                    remove_tree(&aside);
                }
            }
            (Some(from), None) => {
                if let Some(aside) = aside() {
                    remove_tree(&aside);
                    let _ = names::rename(from.text(), aside.text(), false);
                    remove_tree(&aside);
                }
            }
            (None, Some(to)) => {
                if let Some(aside) = aside() {
                    remove_tree(&aside);
                    let _ = mirror::make(&aside, kind == Kind::Directory);
                    let _ = names::rename(aside.text(), to.text(), false);
                }
            }
            (None, None) => {}
        }
        if !exchange {
            self.tell_removed(cx, mirrors, target);
        }
        for moved in [Some(node), target.map(|target| target.0).filter(|_| exchange)].into_iter().flatten() {
            if self.may_be_watched(moved.id) {
                mirrors.turn(moved.id);
            }
        }
    }
}

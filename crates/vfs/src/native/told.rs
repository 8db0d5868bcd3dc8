//! Changes of an image, and word of them: to the kernel that keeps something of a kernel mount (`engine::process::served`),
//! and to programs that watch (`engine::watch`). Where there is neither, a change costs one look more.

use super::Native;
use base::{Cred, Cx, Node, Result, SetAttr};
use engine::watch::events::Event;
use engine::watch::renaming::{Called, Renaming};

impl Native {
    /// Makes a change of `node` and tells of it; `event` says what those who watch are to hear of what was done.
    #[inline]
    pub(super) fn change<T>(
        &self,
        cx: &Cx,
        node: Node,
        event: impl FnOnce(&T) -> Option<Event>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if !self.0.is_told() {
            return change();
        }
        let result = self.change_served(cx, node, change);
        if self.0.is_watched()
            && let Some(event) = result.as_ref().ok().and_then(event)
        {
            self.0.tell(cx, node, event);
        }
        result
    }

    /// As [`Native::change`], of a file's contents, if `changed` says so of what was done.
    #[inline]
    pub(super) fn change_data<T>(
        &self,
        cx: &Cx,
        node: Node,
        changed: impl FnOnce(&T) -> bool,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.change(cx, node, |done| changed(done).then_some(Event::Modify), change)
    }

    /// Changes attributes. The kernel tells by them what has happened: a time alone is that of a reader or writer.
    #[inline]
    pub(super) fn change_attr(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        let rights = change.mode.is_some() || change.uid.is_some() || change.gid.is_some() || change.drops_rights;
        let event = match (change.atime.is_some(), change.mtime.is_some()) {
            _ if rights => Some(Event::Attributes),
            (true, true) => Some(Event::Attributes),
            _ if change.size.is_some() => Some(Event::Modify),
            (true, false) => Some(Event::Access),
            (false, true) => Some(Event::Modify),
            (false, false) => None,
        };
        self.change(cx, node, |()| event, || self.0.set_attr(cx, node, change))
    }

    /// Makes a change of `node` that nobody who watches is told of.
    #[inline]
    pub(super) fn change_served<T>(&self, cx: &Cx, node: Node, change: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.0.is_told() || !self.0.is_served() {
            return change();
        }
        self.0.tell_ahead(cx, node);
        let result = change();
        self.0.tell_changed(cx, node, false);
        result
    }

    /// Makes a change of the name `name` in `dir`, and tells of it.
    #[inline]
    pub(super) fn change_name<T>(
        &self,
        cx: &Cx,
        dir: Node,
        name: &[u8],
        what: Renaming,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.0.is_told() {
            return self.change_names(cx, &[(dir, name)], what, change);
        }
        let result = change();
        if self.0.is_watched() {
            self.catch_up(cx, dir, name);
        }
        result
    }

    /// Makes a change of two names, and tells of it.
    #[inline]
    pub(super) fn change_both<T>(
        &self,
        cx: &Cx,
        from: Called,
        to: Called,
        what: Renaming,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if self.0.is_told() {
            return self.change_names(cx, &[from, to], what, change);
        }
        let result = change();
        if self.0.is_watched() {
            self.catch_up(cx, from.0, from.1);
            self.catch_up(cx, to.0, to.1);
        }
        result
    }

    /// Somebody has begun to watch meanwhile.
    #[cold]
    #[inline(never)]
    fn catch_up(&self, cx: &Cx, dir: Node, name: &[u8]) {
        self.0.catch_up_name(cx, (dir, name));
    }

    #[cold]
    fn change_names<T>(&self, cx: &Cx, names: &[Called], what: Renaming, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let change = || if self.0.is_served() { self.change_names_served(cx, names, change) } else { change() };
        if self.0.is_watched() { self.0.change_names(cx, names, what, change) } else { change() }
    }

    #[cold]
    fn change_names_served<T>(&self, cx: &Cx, names: &[Called], change: impl FnOnce() -> Result<T>) -> Result<T> {
        // An inode may be gone afterwards: what the kernel knows of it is asked before, too.
        let before = |(dir, name): &Called| {
            let child = self.0.lookup(&Cx { cred: Cred::ROOT, ..*cx }, *dir, name).ok()?;
            Some((child, self.0.is_known(cx, child)))
        };
        let mut children = [None; 2];
        for (child, name) in children.iter_mut().zip(names) {
            *child = before(name);
        }
        let result = change();
        for (dir, name) in names.iter().filter(|_| result.is_ok()) {
            self.0.tell_name_changed(cx, *dir, name);
        }
        for (child, known) in children.into_iter().flatten() {
            self.0.tell_changed(cx, child, known);
        }
        result
    }
}

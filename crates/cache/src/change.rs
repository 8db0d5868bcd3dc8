//! Changes: noted, then made by the engine in the image. What they need of the lower file system is brought first.

use crate::data::Brought;
use crate::mutant::{self, Mutant};
use crate::touch::{Range, Set};
use crate::{Cache, Changes, own};
use base::{Cx, DescriptionId, Errno, Error, Fallocate, Kind, MapFor, NewNode, Node, RenameMode, Result, SetAttr};
use pm::UserSlice;
use vfs::backend::{Backend, MapRange, Mappings, OpenFileTable, Xattrs};

/// Attempts of a change whose directory is not listed any more when it comes to it, or that waits for room in the log.
pub(crate) const ATTEMPTS: u32 = 20;
/// Rounds that one change waits for at most.
const ROUNDS: u32 = 3;
/// Bytes of a block of the image.
const BLOCK: u64 = 4096;

/// A note, and the change that it is of.
fn noted<T>(note: impl FnOnce() -> Result<()>, change: impl FnOnce() -> Result<T>) -> Result<T> {
    if mutant::is(Mutant::NoteAfterChange) {
        let made = change()?;
        note()?;
        return Ok(made);
    }
    note()?;
    change()
}

/// The bytes that a write changes of a file of `size` bytes.
pub(crate) fn written(from: u64, end: u64, size: u64, is_appended: bool) -> Range {
    // Behind the end there are only bytes that were written here.
    let to = if end > size { Range::END } else { end };
    Range { from, to: if from < end { to } else { from }, is_appended: is_appended && to == Range::END }
}

impl Cache {
    /// `EROFS` of a cache that is only to be read.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.changes == Changes::Refused { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// `EROFS` of a directory whose names can't be changed here: also one on another device than the root, since what a
    /// round moves and makes goes through the park, which is on that.
    pub(crate) fn may_change_names(&self, dir: Node) -> Result<()> {
        self.writable()?;
        if self.fs().other_device(dir).is_some() { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// `EXDEV` of a name that is to go from one of these directories to the other.
    fn must_be_on_one_device(&self, from: Node, to: Node) -> Result<()> {
        if self.fs().other_device(from) == self.fs().other_device(to) { Ok(()) } else { Err(Errno::EXDEV.into()) }
    }

    /// `EBUSY` of a file or directory on which something is mounted below; its directory's names may change.
    fn must_not_be_mounted_on(&self, node: Node) -> Result<()> {
        if self.fs().other_device(node).is_some() { Err(Errno::EBUSY.into()) } else { Ok(()) }
    }

    /// The directory of one of a node's names, as far as that is known.
    fn directory_of(&self, node: Node) -> Option<Node> {
        self.fs().named(node, &mut [0; 255]).ok().flatten().map(|(dir, _)| dir)
    }

    /// Makes a change once the names of these directories are here. It notes what it changes and makes it, both with the
    /// gate passed.
    pub(crate) fn change<T>(&self, cx: &Cx, dirs: &[Node], mut change: impl FnMut() -> Result<T>) -> Result<T> {
        self.writable()?;
        let mut waited = 0;
        for _ in 0..ATTEMPTS {
            for dir in dirs {
                self.list_settled(cx, *dir)?;
            }
            let inside = self.fs().begin_change(cx)?;
            let result = change();
            drop(inside);
            match result {
                Err(Error::Posix(Errno::EAGAIN)) if !dirs.is_empty() => {}
                // Perhaps the log has taken the room, which a round gives back, and what is below then may go here; or the
                // original lies elsewhere until then.
                Err(Error::Posix(errno @ (Errno::ENOSPC | Errno::ESTALE))) if waited < ROUNDS => {
                    waited += 1;
                    // A round that fails for other files may have given back room all the same.
                    if self.fs().ask_round().is_err() {
                        return result;
                    }
                    if errno == Errno::ENOSPC {
                        self.evict_contents(cx, self.tree)?;
                    }
                }
                result => return result,
            }
        }
        // Its names change below all the time.
        Err(Errno::EBUSY.into())
    }

    pub(crate) fn make(&self, cx: &Cx, dir: Node, name: &[u8], new: &NewNode) -> Result<Node> {
        // That there is such a name comes first.
        match self.lookup(cx, dir, name) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Errno::EEXIST.into()),
        }
        self.may_change_names(dir)?;
        let note = || self.touch_name(cx, dir, name).map(drop);
        self.change(cx, &[dir], || noted(note, || self.native.create(cx, dir, name, new)))
    }

    pub(crate) fn make_nameless(&self, cx: &Cx, dir: Node, mode: u16, flags: u32, fd: u32) -> Result<DescriptionId> {
        self.may_change_names(dir)?;
        self.native.tmpfile(cx, dir, mode, flags, fd)
    }

    pub(crate) fn add_name(&self, cx: &Cx, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        match self.lookup(cx, dir, name) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Errno::EEXIST.into()),
        }
        // One that has no name below was made here, on the root's device.
        self.must_be_on_one_device(self.directory_of(node).unwrap_or(self.tree), dir)?;
        self.may_change_names(dir)?;
        self.change(cx, &[dir], || {
            self.touch_name(cx, dir, name)?;
            self.touch_attributes(cx, node, Set::NONE)?;
            if self.goes_by_names() {
                self.fs().note_move()?;
            }
            let was_below = self.known_if(node)?.is_some();
            self.native.link(cx, node, dir, name)?;
            self.count_names(cx, node, was_below.then_some(1))
        })
    }

    pub(crate) fn remove_name_here(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let node = self.lookup(cx, dir, name)?;
        self.may_change_names(dir)?;
        self.must_not_be_mounted_on(node)?;
        self.keep_for_open(cx, node);
        self.change(cx, &[dir], || {
            let was_noted = self.touch_name(cx, dir, name)?;
            self.losing(cx, (node, was_noted), || self.native.unlink(cx, dir, name))
        })
    }

    /// A change by which a node loses a name; whether that name had been noted.
    fn losing(&self, cx: &Cx, (node, was_noted): (Node, bool), change: impl FnOnce() -> Result<()>) -> Result<()> {
        let own = own(cx);
        let attr = self.fs().attr(&own, node)?;
        let known = self.known_if(node)?;
        let has_others = known.is_some_and(|known| known.stamp.nlink > 1) || attr.nlink > 1;
        if attr.kind == Kind::Directory || has_others {
            self.touch_attributes(cx, node, Set::NONE)?;
        }
        if was_noted && (attr.kind == Kind::Directory || self.fs().names_here(node)? <= 1) {
            self.touch_gone(cx, node)?;
        }
        if attr.kind == Kind::Directory {
            return change();
        }
        if self.fs().is_open(&own, node) == Ok(true) {
            // A round may have been since: then holes were to be asked for below again.
            let _ = self.bring_bytes(cx, node, 0, u64::MAX);
            let _ = self.bring_attributes(cx, node);
        }
        change()?;
        match self.count_names(cx, node, known.map(|_| -1)) {
            // It went with its name.
            Err(Error::Posix(Errno::ESTALE)) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What `st_nlink` shows; a kernel mount beside must not keep what was shown before. `None`: the node was not below before
    /// its names changed, but a round may have made it there since.
    fn count_names(&self, cx: &Cx, node: Node, more: Option<i32>) -> Result<()> {
        self.fs().count_names(&own(cx), node, more)?;
        if self.fs().is_served() {
            self.fs().tell_changed(cx, node, false);
        }
        Ok(())
    }

    /// A file that somebody has open and that is to lose its name: what of it is not here can't be asked for any more.
    fn keep_for_open(&self, cx: &Cx, node: Node) {
        if self.fs().is_open(&own(cx), node) == Ok(true) {
            // Where that fails whoever has it open is told.
            let _ = self.bring_settled(cx, node, 0, u64::MAX);
            let _ = self.settled(cx, (node, b""), || self.bring_attributes(cx, node));
        }
    }

    pub(crate) fn remove_directory(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let node = self.lookup(cx, dir, name)?;
        self.may_change_names(dir)?;
        self.must_not_be_mounted_on(node)?;
        let is_directory = self.fs().attr(&own(cx), node)?.kind == Kind::Directory;
        let dirs = [dir, node];
        self.change(cx, &dirs[..1 + usize::from(is_directory)], || {
            let was_noted = self.touch_name(cx, dir, name)?;
            if is_directory {
                // Whoever has it open sees by its own figures that it has gone.
                self.touch_attributes(cx, node, Set::NONE)?;
                if was_noted {
                    self.touch_gone(cx, node)?;
                }
            }
            self.native.rmdir(cx, dir, name)
        })
    }

    pub(crate) fn move_name(
        &self,
        cx: &Cx,
        (from_dir, from): (Node, &[u8]),
        (to_dir, to): (Node, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        self.must_be_on_one_device(from_dir, to_dir)?;
        let node = self.lookup(cx, from_dir, from)?;
        self.may_change_names(from_dir)?;
        self.must_not_be_mounted_on(node)?;
        let other = match self.lookup(cx, to_dir, to) {
            Ok(other) => Some(other),
            Err(Error::Posix(Errno::ENOENT)) => None,
            Err(error) => return Err(error),
        };
        other.map_or(Ok(()), |other| self.must_not_be_mounted_on(other))?;
        let is_directory = |node| Ok::<_, Error>(self.fs().attr(&own(cx), node)?.kind == Kind::Directory);
        let moves = is_directory(node)? || other.is_some_and(|other| is_directory(other) == Ok(true));
        let replaced = other.filter(|other| mode == RenameMode::Replace && *other != node);
        if let Some(other) = replaced {
            self.keep_for_open(cx, other);
        }
        let mut dirs = [from_dir, to_dir, from_dir];
        if let Some(other) = replaced.filter(|other| is_directory(*other) == Ok(true)) {
            dirs[2] = other;
        }
        self.change(cx, &dirs, || {
            self.touch_name(cx, from_dir, from)?;
            let was_noted = self.touch_name(cx, to_dir, to)?;
            if moves || self.goes_by_names() {
                self.fs().note_move()?;
            }
            let rename = || self.native.rename(cx, from_dir, from, to_dir, to, mode);
            match replaced {
                Some(other) => self.losing(cx, (other, was_noted), rename),
                None => rename(),
            }
        })
    }

    /// Has the parts of blocks here that a change of the bytes `from..end` leaves as they are.
    fn bring_borders(&self, cx: &Cx, node: Node, from: u64, end: u64) -> Result<()> {
        for border in [from, end] {
            let inside = border % BLOCK;
            if inside != 0 && self.bring_bytes(cx, node, border - inside, BLOCK)? == Brought::NoRoom {
                return Err(Errno::ENOSPC.into());
            }
        }
        Ok(())
    }

    /// Has all bytes of a file here: its holes are its own from now on. The gate is passed.
    pub(crate) fn bring_whole(&self, cx: &Cx, node: Node) -> Result<()> {
        if self.known_if(node)?.is_none_or(|known| known.end == 0) {
            return Ok(());
        }
        match self.bring_bytes(cx, node, 0, u64::MAX)? {
            Brought::All => self.fs().all_is_here(&own(cx), node),
            Brought::NoRoom => Err(Errno::ENOSPC.into()),
        }
    }

    /// Writes, as much as there is room for: the room that ended in the middle may be had by a round.
    pub(crate) fn put(
        &self,
        cx: &Cx,
        node: Node,
        offset: Option<u64>,
        from: &[UserSlice],
        is_stored: bool,
    ) -> Result<(usize, u64)> {
        let once = || self.put_once(cx, node, offset, from, is_stored);
        let (done, end) = self.with_rights(cx, node, offset.unwrap_or(u64::MAX), once)?;
        let [one] = from else { return Ok((done, end)) };
        if done == 0 || done >= one.len {
            return Ok((done, end));
        }
        let rest = one.part(done, one.len - done);
        match self.put_once(cx, node, offset.map(|offset| offset + done as u64), &[rest], is_stored) {
            Ok((more, end)) => Ok((done + more, end)),
            Err(_) => Ok((done, end)),
        }
    }

    fn put_once(&self, cx: &Cx, node: Node, offset: Option<u64>, from: &[UserSlice], is_stored: bool) -> Result<(usize, u64)> {
        let len = UserSlice::total(from) as u64;
        self.locks_must_last(node)?;
        self.change(cx, &[], || {
            let size = self.fs().attr(&own(cx), node)?.size;
            let start = offset.unwrap_or(size);
            let end = start.saturating_add(len);
            let range = written(start, end, size, offset.is_none());
            let write = || {
                self.bring_borders(cx, node, start, end)?;
                match offset {
                    Some(offset) if is_stored => self.native.write_stored(cx, node, offset, from),
                    offset => self.native.write(cx, node, offset, from),
                }
            };
            noted(|| self.touch_bytes(cx, node, range), write)
        })
    }

    pub(crate) fn copy(&self, cx: &Cx, (from, from_at): (Node, u64), (to, to_at): (Node, u64), len: u64) -> Result<u64> {
        let size = self.fs().attr(&own(cx), from)?.size;
        let len = len.min(size.saturating_sub(from_at));
        if self.bring_settled(cx, from, from_at, len)? == Brought::NoRoom {
            return Err(Errno::ENOSPC.into());
        }
        self.locks_must_last(to)?;
        self.change(cx, &[], || {
            let end = to_at.saturating_add(len);
            let size = self.fs().attr(&own(cx), to)?.size;
            self.touch_bytes(cx, to, written(to_at, end, size, false))?;
            self.bring_borders(cx, to, to_at, end)?;
            self.native.copy_range(cx, from, from_at, to, to_at, len)
        })
    }

    pub(crate) fn manage(&self, cx: &Cx, node: Node, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.locks_must_last(node)?;
        self.change(cx, &[], || {
            let size = self.fs().attr(&own(cx), node)?.size;
            let extends = matches!(how, Fallocate::Allocate | Fallocate::Zero);
            let end = offset.saturating_add(len);
            let range = written(offset, if extends { end } else { end.min(size) }, size, false);
            if range.from >= range.to {
                self.touch_attributes(cx, node, Set::MTIME)?;
            }
            self.touch_bytes(cx, node, range)?;
            self.bring_whole(cx, node)?;
            self.native.fallocate(cx, node, how, offset, len)
        })
    }

    pub(crate) fn set(&self, cx: &Cx, node: Node, change: &SetAttr) -> Result<()> {
        if change.size.is_some() {
            self.locks_must_last(node)?;
        }
        self.change(cx, &[], || {
            match change.size {
                Some(size) => {
                    let before = self.fs().attr(&own(cx), node)?.size;
                    // Cut to the length that it has: the time of change is set all the same.
                    let set = if size == before { Set::MTIME } else { Set::SIZE };
                    self.touch_attributes(cx, node, Set::by(change).with(set))?;
                    if size < before {
                        // What is behind it from now on was written here.
                        self.touch_bytes(cx, node, Range { from: size, to: Range::END, is_appended: false })?;
                    }
                    self.bring_borders(cx, node, size.min(before), size.min(before))?;
                }
                None => self.touch_attributes(cx, node, Set::by(change))?,
            }
            self.native.set_attr(cx, node, change)
        })
    }

    pub(crate) fn set_attribute(&self, cx: &Cx, node: Node, name: &[u8], value: UserSlice, flags: u32) -> Result<()> {
        self.change_attributes(cx, node, name, || self.native.set_xattr(cx, node, name, value, flags))
    }

    pub(crate) fn remove_attribute(&self, cx: &Cx, node: Node, name: &[u8]) -> Result<()> {
        self.change_attributes(cx, node, name, || self.native.remove_xattr(cx, node, name))
    }

    fn change_attributes(&self, cx: &Cx, node: Node, name: &[u8], mut change: impl FnMut() -> Result<()>) -> Result<()> {
        self.change(cx, &[], || {
            self.touch_extended(cx, node, name)?;
            self.bring_attributes(cx, node)?;
            change()
        })
    }

    /// A mapping that may be stored into: nobody will tell when.
    pub(crate) fn map_to_store(
        &self,
        cx: &Cx,
        node: Node,
        (offset, len): (u64, u64),
        what: MapFor,
        each: &mut dyn FnMut(MapRange),
    ) -> Result<()> {
        self.locks_must_last(node)?;
        self.change(cx, &[], || {
            self.touch_attributes(cx, node, Set::NONE)?;
            self.touch_whole(cx, node)?;
            self.note_mapped(cx, node)?;
            self.bring_whole(cx, node)?;
            self.native.map(cx, node, offset, len, what, each)
        })
    }

    /// A mapping was stored into, which [`Cache::map_to_store`] has noted before: the file's times change.
    pub(crate) fn stored_by_mapping(&self, cx: &Cx, node: Node) -> Result<i64> {
        self.change(cx, &[], || {
            self.touch_attributes(cx, node, Set::NONE)?;
            self.native.stored(cx, node)
        })
    }

    /// Waits until what was changed is below, if that was promised: of this node, or all of it.
    pub(crate) fn make_durable(&self, cx: &Cx, node: Option<Node>) -> Result<()> {
        let answer = match self.changes {
            Changes::Backend => self.fs().ask_round()?,
            Changes::Journal => self.fs().ask_durable()?,
            Changes::Image | Changes::Refused => return Ok(()),
        };
        self.outcome(cx, node, answer)
    }
}

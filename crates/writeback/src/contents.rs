//! Bytes: those that programs wrote here are written below, and no others; a hole that is to be fetched is left alone, the
//! others are made. Bytes that `O_APPEND` wrote go behind those that are below by then.

use crate::attributes::Changed;
use crate::below::{Dir, File, PIECE, join};
use crate::outcome::Of;
use crate::plan::{Appends, Noted, if_there, image, node};
use crate::{Conflict, Failure, Id, Result, Work};
use base::{Attr, Cx, Error, Kind, Node};
use cache::Cache;
use cache::mutant::{self, Mutant};
use cache::touch::{Range, Set, size_as_blocks};
use pm::{Errno, UserSlice};

/// Bytes of a hole that are appended as zeros.
const HOLE_MAX: u64 = 1 << 20;
/// Its owner may read and write a file.
const OWNER_WRITES: u16 = 0o600;

/// The next byte of a node, from `from` on, that is data, or is none; `to` where there is none before.
pub(crate) fn seek_within(cache: &Cache, cx: &Cx, id: u64, (from, to): (u64, u64), is_data: bool) -> Result<u64> {
    match cache.fs().seek(cx, node(id), from, is_data) {
        Ok(at) => Ok(at.min(to)),
        Err(Error::Posix(Errno::ENXIO)) => Ok(to),
        Err(error) => Err(image(error)),
    }
}

/// A file after its bytes were written.
struct Wrote {
    /// Another program has changed it too, so that it is not below as it is here.
    is_merged: bool,
    /// Its size and time of change.
    looked: (u64, i64),
    /// The time of change that it is to have.
    mtime: i64,
}

impl Work<'_> {
    pub fn contents(&mut self) -> Result<()> {
        self.find_names()?;
        let nodes: Vec<(u64, Noted)> = self.plan.nodes.iter().map(|(id, noted)| (*id, noted.clone())).collect();
        for (id, noted) in nodes {
            let done = match self.with_room(|work| work.retried(|work| work.contents_of(id, &noted))) {
                Err(failure) if failure.errno == Errno::ESTALE && self.is_gone(node(id))? => Ok(()),
                done => done,
            };
            self.progress.done();
            self.settle(Of::Node(id), done)?;
        }
        Ok(())
    }

    /// Whether a node has gone from the image meanwhile, which is noted for the next round.
    pub fn is_gone(&self, at: Node) -> Result<bool> {
        Ok(if_there(self.cache.fs().attr(&self.cx, at))?.is_none())
    }

    fn contents_of(&mut self, id: u64, noted: &Noted) -> Result<()> {
        let fs = self.cache.fs();
        let Some(attr) = if_there(fs.attr(&self.cx, node(id)))? else { return Ok(()) };
        let Some(file) = self.plan.ids.get(&id).copied() else { return Ok(()) };
        if self.plan.made.contains(&id) && attr.kind != Kind::Directory {
            return Ok(());
        }
        if id == self.plan.root {
            let root = self.below.top()?;
            self.before("attributes")?;
            return self.set_attributes((&root, b"."), node(id), &Changed::by(noted)).map(drop);
        }
        let Some(found) = self.find(id, file)? else {
            return if self.may_stand_untouched(id)? { Err(self.later(id)) } else { self.make_again(id, noted, &attr) };
        };
        let done = self.change_found(id, noted, (file, &attr), (&found.dir, &found.name));
        if done.as_ref().is_err_and(|failure| failure.errno != crate::CUT) {
            // What is there is known to the next round as what this one has left.
            let _ = self.note_failed(id, (&found.dir, &found.name));
            if self.is_gone(node(id))? {
                self.note_half(id, file, (&found.dir, &found.name))?;
            }
        }
        done
    }

    /// A node has gone here while its file was written: the next round, which removes that, knows it as it is now.
    fn note_half(&mut self, id: u64, file: Id, (dir, name): (&Dir, &[u8])) -> Result<()> {
        let has_begun = self.plan.begun.get(&id).is_some_and(|begun| begun.is_now);
        match dir.stat(name)?.filter(|there| has_begun && there.id == file) {
            Some(there) => self.note_written(id, &there.stamp),
            None => Ok(()),
        }
    }

    /// Writes what was changed of a file where it is.
    pub fn change_found(&mut self, id: u64, noted: &Noted, (file, attr): (Id, &Attr), at: (&Dir, &[u8])) -> Result<()> {
        let (dir, name) = at;
        let Some(there) = dir.stat(name)? else { return Err(Failure::new(name, Errno::ESTALE)) };
        let mut changed = Changed::by(noted);
        let has_contents = attr.kind == Kind::Regular && noted.has_contents();
        let first = (there.stamp.size, there.stamp.mtime);
        let was_changed = attr.kind == Kind::Regular && self.has_changed(id, noted, first)?;
        if has_contents {
            if there.attr.mode & OWNER_WRITES != OWNER_WRITES {
                // To be opened it gets another mode, and its own again at the end of this, or of the next round.
                self.note_set(node(id), Set::MODE)?;
                changed.set = changed.set.with(Set::MODE);
            }
            changed.has_contents = true;
        } else if attr.kind == Kind::Regular && changed.set.has(Set::MTIME) {
            if !self.plan.begun.get(&id).is_some_and(|begun| begun.is_now) {
                self.note_begun(id, None, (there.stamp.size, attr.mtime))?;
            }
            changed.mtime = Some(attr.mtime);
        }
        let wrote = if has_contents { Some(self.write_contents(id, at, noted)?) } else { None };
        self.before("attributes")?;
        // Another program may have been there since.
        let Some(there) = dir.stat(name)?.filter(|there| there.id == file) else {
            // What it has moved away after the bytes were written has them.
            return if wrote.is_some() { Ok(()) } else { Err(Failure::new(name, Errno::ENOENT)) };
        };
        if let Some(wrote) = wrote {
            changed.mtime = Some(wrote.mtime);
            let is_as_written = (there.stamp.size, there.stamp.mtime) == wrote.looked || self.below.names().is_some();
            changed.is_merged = wrote.is_merged || !is_as_written;
        } else if attr.kind == Kind::Regular {
            changed.is_merged = was_changed || (there.stamp.size, there.stamp.mtime) != first;
        }
        self.set_attributes(at, node(id), &changed)?;
        if changed.is_merged {
            self.merged.insert(id);
        } else if let Some(there) = dir.stat(name)? {
            self.written.insert(id, (there.stamp.size, there.stamp.mtime, there.stamp.ctime));
        }
        Ok(())
    }

    /// Whether another program has changed the bytes of a file since it was looked at: its size and time of change are others.
    fn has_changed(&self, id: u64, noted: &Noted, there: (u64, i64)) -> Result<bool> {
        let known = if_there(self.cache.known_if(node(id)))?.flatten();
        let is_known = known.is_none_or(|known| (known.stamp.size, known.stamp.mtime) == there);
        // Of a round that was cut off it is not known how far it came: what differs from ours may be another program's.
        let is_ours = match self.plan.begun.get(&id) {
            Some(begun) if begun.is_before && !self.outlives => begun.left == (size_as_blocks(there.0), there.1),
            Some(_) => true,
            None => false,
        };
        Ok(!is_known && !is_ours && !self.plan.unsure.contains(&id) && !noted.is_new)
    }

    /// Writes the bytes of a file that were written here.
    fn write_contents(&mut self, id: u64, (dir, name): (&Dir, &[u8]), noted: &Noted) -> Result<Wrote> {
        let begun = self.plan.begun.get(&id).copied();
        self.before("begin")?;
        self.before("contents")?;
        let file = dir.open_file(name)?;
        if self.plan.ids.get(&id).is_some_and(|(_, number)| file.is_numbered(*number) == Ok(false)) {
            // Another program has put that there just now.
            return Err(Failure::new(name, Errno::ENOENT));
        }
        let there = file.looked()?;
        let is_theirs = self.has_changed(id, noted, there)? && !mutant::is(Mutant::TheirsOverwritten);
        let attr = self.cache.fs().attr(&self.cx, node(id)).map_err(image)?;
        let size = self.plan.size_of(id, attr.size);
        // What is before it is below, or noted as changed in place.
        let tail = noted.appended_from().filter(|tail| self.has_wide_hole(id, (*tail, size)) == Ok(false));
        let head = tail.unwrap_or(size);
        let runs: Vec<(u64, u64)> = noted.runs().iter().map(|(from, to)| (*from, (*to).min(head))).collect();
        let is_cut = noted.set.has(Set::SIZE);
        let overlaps = is_theirs && self.conflict != Conflict::Ours && self.overlaps(id, &file, &runs, (size, is_cut))?;
        // Where nothing differs, it is what the round before has written.
        let is_theirs = is_theirs && (overlaps || !begun.is_some_and(|begun| begun.is_before));
        if overlaps {
            if self.conflict == Conflict::Stop {
                return Err(Failure::new(join(&dir.path, name), Errno::ESTALE));
            }
            self.keep_theirs(dir, name)?;
        }
        let resumed = begun.and_then(|begun| begun.appends).zip(tail);
        // Where it is not known where they begin, as much is there as is the same.
        let appends =
            resumed.map(|(appends, tail)| appends.since(tail).unwrap_or(Appends { from: tail, at: appends.at, done: 0 }));
        let left = match tail {
            Some(tail) => there.0 + size.saturating_sub(tail),
            None if is_cut => size,
            None => there.0.max(size),
        };
        if !noted.is_new && !begun.is_some_and(|begun| begun.is_now) {
            let appends = appends.or(tail.map(|from| Appends { from, at: there.0, done: 0 }));
            self.note_begun(id, appends, (left, attr.mtime))?;
        }
        // A mapping may have been stored into at any byte, or at none.
        let is_compared = noted.from.is_some() && !noted.is_new;
        self.write_runs((&file, is_compared), node(id), &runs, size)?;
        if is_cut {
            if file.size()? != size {
                file.set_size(size)?;
            }
        } else if tail.is_none() && file.size()? < size && noted.runs().iter().any(|(_, to)| *to == Range::END) {
            // It ends with a hole.
            file.set_size(size)?;
        }
        let mut is_moved = false;
        if let Some(tail) = tail.filter(|tail| *tail < size) {
            // A byte that is appended twice is there twice.
            is_moved = match appends {
                Some(appends) => self.resume_appending(&file, id, (tail, size), appends)?,
                None => self.append_from(&file, id, (tail, size), tail)?,
            };
            let at = appends.map_or(there.0, |appends| appends.at);
            self.note_begun(id, Some(Appends { from: tail, at, done: size - tail }), (left, attr.mtime))?;
        } else if noted.has_appended() {
            self.note_begun(id, Some(Appends::in_place(size)), (left, attr.mtime))?;
        }
        Ok(Wrote { is_merged: is_theirs || is_moved, looked: file.looked()?, mtime: attr.mtime })
    }

    /// Whether some of these bytes are a hole that is too wide to be appended as zeros: then they are written at their place, where
    /// it stays one.
    fn has_wide_hole(&self, id: u64, (from, to): (u64, u64)) -> Result<bool> {
        let seek = |at, is_data| seek_within(self.cache, &self.cx, id, (at, to), is_data);
        let mut at = from;
        while at < to {
            let data = seek(at, true)?;
            if data - at > HOLE_MAX {
                return Ok(true);
            }
            at = seek(data, false)?.max(data + 1);
        }
        Ok(false)
    }

    /// Writes bytes of a node at the end of a file below; whether that end was not `expected`.
    fn append_from(&mut self, file: &File, id: u64, (from, to): (u64, u64), expected: u64) -> Result<bool> {
        let (mut from, mut expected, mut is_moved) = (from, expected, false);
        let mut buffer = vec![0u8; (to - from).min(PIECE) as usize];
        while from < to {
            let want = (to - from).min(PIECE) as usize;
            let part = UserSlice::from_mut(&mut buffer[..want]);
            let came = self.cache.fs().read(&self.cx, node(id), from, &[part]).map_err(image)?;
            if came == 0 {
                // Made shorter meanwhile: that is noted for the next round.
                break;
            }
            expected += came as u64;
            is_moved |= file.append(&buffer[..came])? != expected;
            self.bytes += came as u64;
            from += came as u64;
        }
        Ok(is_moved)
    }

    /// The same after a round that was cut off: what is there of it is not written again. Where that round has not come to note
    /// it, that is as much as is the same. Whether the bytes lie elsewhere below than here, or are not the last ones there.
    fn resume_appending(&mut self, file: &File, id: u64, (from, to): (u64, u64), appends: Appends) -> Result<bool> {
        let (below, at) = (file.size()?, appends.at);
        let done = match appends.done {
            // If the power failed, the image may know more than is below.
            done if done > 0 && !self.outlives => done.min(to - from),
            _ => self.appended(file, id, (from, to), (at, below))?,
        };
        let is_moved = at != from || below != at + done;
        Ok(self.append_from(file, id, (from + done, to), from + done)? || is_moved)
    }

    /// How many bytes of a node are below from `at` on. None if one is another: then they are another program's.
    fn appended(&mut self, file: &File, id: u64, (from, to): (u64, u64), (at, below): (u64, u64)) -> Result<u64> {
        let (mut ours, mut there) = (vec![0u8; PIECE as usize], vec![0u8; PIECE as usize]);
        let mut done = 0;
        while from + done < to && at + done < below {
            let want = (to - from - done).min(below - at - done).min(PIECE) as usize;
            let part = UserSlice::from_mut(&mut ours[..want]);
            let came = self.cache.fs().read(&self.cx, node(id), from + done, &[part]).map_err(image)?;
            let came = came.min(file.read(&mut there[..want], at + done)?);
            if came == 0 || ours[..came] != there[..came] {
                return Ok(0);
            }
            done += came as u64;
        }
        Ok(done)
    }

    /// All bytes of a node, into a new file; whether it is still here.
    pub fn write_all(&mut self, file: &File, at: Node) -> Result<bool> {
        let write = |work: &mut Self| {
            let now = work.cache.fs().attr(&work.cx, at).map_err(image)?.size;
            let size = work.plan.size_of(at.id, now);
            work.write_runs((file, false), at, &[(0, size)], size)?;
            if file.size()? != size { file.set_size(size) } else { Ok(()) }
        };
        match write(self) {
            Err(failure) if failure.errno == Errno::ESTALE => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Runs of bytes, in order, so that the size below says how far it has come. `is_compared`: blocks that are as they are
    /// here are left alone.
    fn write_runs(&mut self, (file, is_compared): (&File, bool), at: Node, runs: &[(u64, u64)], size: u64) -> Result<()> {
        let below = file.size()?;
        let end = self.cache.known_if(at).map_err(image)?.map_or(0, |known| known.end);
        let mut done = 0;
        for (from, to) in runs {
            let (from, to) = ((*from).max(done), (*to).min(size));
            if from < to {
                self.write_range((file, is_compared), at, (from, to), (end, below))?;
                done = to;
            }
        }
        Ok(())
    }

    /// One run of bytes. `end`: below it holes are to be fetched, and so they are there. `below`: bytes that are there.
    fn write_range(
        &mut self,
        (file, is_compared): (&File, bool),
        at: Node,
        (from, to): (u64, u64),
        (end, below): (u64, u64),
    ) -> Result<()> {
        let fs = self.cache.fs();
        let mut from = from;
        while from < to {
            let data = seek_within(self.cache, &self.cx, at.id, (from, to), true)?;
            file.zero(from.max(end), data.min(below))?;
            from = data;
            if from >= to {
                break;
            }
            let hole = match fs.seek(&self.cx, at, from, false) {
                Ok(hole) => hole.min(to),
                Err(Error::Posix(Errno::ENXIO)) => return Ok(()),
                Err(error) => return Err(image(error)),
            };
            self.write_bytes((file, is_compared), at, from, hole)?;
            from = hole;
        }
        Ok(())
    }

    fn write_bytes(&mut self, (file, is_compared): (&File, bool), at: Node, from: u64, to: u64) -> Result<()> {
        let fs = self.cache.fs();
        let mut buffer = vec![0u8; (to - from).min(PIECE) as usize];
        let mut there = vec![0u8; if is_compared { buffer.len() } else { 0 }];
        let mut from = from;
        while from < to {
            let want = (to - from).min(PIECE) as usize;
            let came = fs.read(&self.cx, at, from, &[UserSlice::from_mut(&mut buffer[..want])]).map_err(image)?;
            if came == 0 {
                // Made shorter meanwhile: that is noted for the next round.
                return Ok(());
            }
            let have = if is_compared { file.read(&mut there[..came], from)? } else { 0 };
            for (at, len) in differing(&buffer[..came], &there[..have]) {
                file.write(&buffer[at..at + len], from + at as u64)?;
                self.bytes += len as u64;
            }
            from += came as u64;
        }
        Ok(())
    }
}

/// Runs of `ours`, by whole blocks, that are not the same in `theirs`.
fn differing(ours: &[u8], theirs: &[u8]) -> Vec<(usize, usize)> {
    const BLOCK: usize = 4096;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    if theirs.is_empty() {
        runs.push((0, ours.len()));
        return runs;
    }
    for (at, block) in ours.chunks(BLOCK).enumerate().map(|(index, block)| (index * BLOCK, block)) {
        if theirs.get(at..at + block.len()) == Some(block) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.0 + last.1 == at => last.1 += block.len(),
            _ => runs.push((at, block.len())),
        }
    }
    runs
}

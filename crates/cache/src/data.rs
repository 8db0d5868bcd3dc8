//! Bringing bytes.

use crate::lower::{Handle, Original, Path};
use crate::settle::elsewhere;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use engine::lower::{Fetched, Known, bits};
use pm::UserSlice;

/// What is read at once where a file seems to be read in order, bytes.
const AHEAD: u64 = 1 << 20;
/// The same elsewhere.
pub(crate) const AROUND: u64 = 128 << 10;
/// How often a file may change, or another process be faster, before we give up.
const ATTEMPTS: u32 = 10_000;

/// What became of bytes that were to be brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Brought {
    /// They are here.
    All,
    /// There is no room for them.
    NoRoom,
}

impl Cache {
    /// Has the bytes of a file from `offset` on here, `len` of them, as far as it goes.
    pub(crate) fn bring_bytes(&self, cx: &Cx, node: Node, offset: u64, len: u64) -> Result<Brought> {
        let (who, cx) = (cx, own(cx));
        let end = offset.saturating_add(len);
        let mut lower: Option<(Handle, Known)> = None;
        let mut last = (u64::MAX, 0);
        for _ in 0..ATTEMPTS {
            let Some(hole) = self.fs().hole(&cx, node, offset, end)? else { return Ok(Brought::All) };
            // Nothing has come of it: the file has changed, or another is at it.
            if last.0 == hole.start && last.1 > 2 {
                lower = None;
            }
            last = (hole.start, if last.0 == hole.start { last.1 + 1 } else { 0 });
            let (file, known) = match &lower {
                Some(opened) => opened,
                None => match self.open_lower(who, node)? {
                    Some(opened) => lower.insert(opened),
                    None => continue,
                },
            };
            // How much at once.
            let len = (hole.end - hole.start).min(if hole.is_next { AHEAD } else { AROUND });
            // Behind the end are bytes that have been cut off here.
            let mut read =
                |at: u64, part: UserSlice| match part.part(0, known.end.saturating_sub(at).min(part.len as u64) as usize) {
                    part if part.len == 0 => Ok(0),
                    part => self.fetched(file.read(who, at, part)),
                };
            match self.fs().fetch(&cx, node, (hole.start, len), (&known.stamp, known.end), &mut read) {
                Ok(()) => {}
                Err(Error::Posix(Errno::ENOSPC)) if self.evict_contents(&cx, node)? => {}
                Err(Error::Posix(Errno::ENOSPC)) => return Ok(Brought::NoRoom),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// Counts bytes that have come.
    fn fetched<E>(&self, came: core::result::Result<usize, E>) -> core::result::Result<usize, E> {
        let bytes = came.as_ref().map_or(0, |came| *came as u64);
        self.fs().count_fetched(Fetched { questions: 1, names: 0, bytes });
        came
    }

    /// Opens the original. `None`: it was not what is known of it, and now that is known.
    pub(crate) fn open_lower(&self, cx: &Cx, node: Node) -> Result<Option<(Handle, Known)>> {
        let known = self.known(node)?;
        let before = self.names_lead(cx, (node, b""))?;
        let file =
            self.lower.open(cx, self.path_to(cx, &mut Path::room(), node).map_err(elsewhere)?, false).map_err(elsewhere)?;
        let original = file.original(cx)?;
        self.names_led(cx, before, (node, b""))?;
        if known.stamp.has_same_contents(&original.stamp) {
            return Ok(Some((file, known)));
        }
        let is_same = known.stamp.is_same_file(&original.stamp);
        // Newer here: its times below may have changed by our own writing.
        if known.is_dirty() {
            return if is_same { Ok(Some((file, known))) } else { Err(Errno::ESTALE.into()) };
        }
        if is_same {
            self.follow(cx, node, &known.stamp, &original)?;
        } else {
            self.adopt(cx, node, &known, &original)?;
        }
        Ok(None)
    }

    /// Another file has taken the place of a file's original: `ESTALE` if the file is open, or
    /// one of the two has other names.
    pub(crate) fn adopt(&self, cx: &Cx, node: Node, known: &Known, original: &Original) -> Result<()> {
        // Known with none: it was being replaced while it was looked at.
        let is_simple = original.attr.kind == Kind::Regular && original.stamp.nlink == 1 && known.stamp.nlink <= 1;
        // Those that are here would be taken for those of the other file.
        let is_simple = is_simple && known.state & bits::XATTRS == 0 && self.fs().names_here(node)? <= 1;
        // A name that has moved here leads to something else below until the next round.
        let mut name = [0; 255];
        let is_moving = match self.fs().named(node, &mut name)? {
            Some((dir, len)) => self.is_name_newer(cx, dir, &name[..len])?,
            None => true,
        };
        if !is_simple || is_moving || self.is_newer(node)? {
            return Err(Errno::ESTALE.into());
        }
        self.fs().mark(&own(cx), node, 0, bits::NO_XATTRS | bits::XATTRS)?;
        self.fs().restamp_as_another(&own(cx), node, &original.change_from(&known.stamp))?;
        self.doubt_noted(&own(cx), &known.stamp);
        self.tell_followers(cx, node, true);
        Ok(())
    }

    /// Reads past the cache, for which there is no room.
    pub(crate) fn read_through(&self, cx: &Cx, node: Node, offset: u64, into: &[UserSlice]) -> Result<usize> {
        for _ in 0..ATTEMPTS {
            let Some((file, _)) = self.open_lower(cx, node)? else { continue };
            let mut done = 0;
            for part in into {
                let came = self.fetched(file.read(cx, offset + done as u64, *part))?;
                done += came;
                if came < part.len {
                    break;
                }
            }
            return Ok(done);
        }
        Err(Errno::ESTALE.into())
    }

    /// `SEEK_DATA` and `SEEK_HOLE` of a file that is not all here: the original's.
    pub(crate) fn seek_lower(&self, cx: &Cx, node: Node, offset: u64, data: bool) -> Result<u64> {
        for _ in 0..ATTEMPTS {
            if let Some((file, _)) = self.open_lower(cx, node)? {
                return file.find(cx, offset, data);
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// Whether some of these bytes are missing here.
    pub(crate) fn is_missing(&self, cx: &Cx, node: Node, offset: u64, len: u64) -> Result<bool> {
        Ok(self.fs().hole(&own(cx), node, offset, offset.saturating_add(len))?.is_some())
    }

    /// Whether a part of a file is missing here.
    pub(crate) fn has_holes(&self, cx: &Cx, node: Node) -> Result<bool> {
        Ok(self.fs().hole(&own(cx), node, 0, u64::MAX)?.is_some())
    }
}

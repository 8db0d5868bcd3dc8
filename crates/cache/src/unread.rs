//! Names that are listed below, and of which no more can be read: they fail alone.
//!
//! A symlink whose text can't be read has [`bits::UNREAD`]: whoever wants the text asks below. A name of which nothing can
//! be read but its type is here all the same, since its directory may have all its names only then, as a symlink that has
//! the bit and no original ([`UNKNOWN`]): so no fast path says anything of it but that it is listed, and whoever looks for
//! it asks below, and is told why, or finds it.

use crate::lower::Path;
use crate::settle::elsewhere;
use crate::{Cache, own};
use base::{Cx, DirEntry, Errno, Error, Kind, Node, Result};
use engine::lower::{Fetched, Known, Stamp, Whole, bits};
use pm::UserSlice;

/// Device number of an original of which nothing is known; its inode number is its type.
const UNKNOWN: u64 = u64::MAX;

impl Cache {
    /// Makes a name of which nothing is known but its type.
    pub(crate) fn bring_unread(&self, cx: &Cx, dir: Node, name: &[u8], kind: Kind) -> Result<()> {
        // A symlink's space is not shown by any fast path.
        let stamp = Stamp { number: kind as u64, device: UNKNOWN, nlink: 1, blocks: 1, ..Stamp::default() };
        let target = &[1];
        let whole = Whole {
            kind: Kind::Symlink,
            mode: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            target,
            stamp,
            state: bits::UNREAD,
            unless: bits::LISTED,
        };
        loop {
            match self.fs().create_whole(cx, dir, name, &whole) {
                Err(Error::Posix(Errno::EEXIST | Errno::EAGAIN)) => return Ok(()),
                Err(Error::Posix(Errno::ENOSPC)) if self.evict(cx, dir)? => {}
                made => {
                    made?;
                    self.fs().count_fetched(Fetched { names: 1, ..Fetched::default() });
                    return Ok(());
                }
            }
        }
    }

    fn unread(&self, node: Node) -> Result<Option<Known>> {
        Ok(self.known_if(node)?.filter(|known| known.state & bits::UNREAD != 0))
    }

    /// Whether the text of a symlink is not here.
    pub(crate) fn is_unread(&self, node: Node) -> Result<bool> {
        Ok(self.unread(node)?.is_some())
    }

    /// Whether nothing is known of a symlink, which it need not be.
    pub(crate) fn is_unknown(&self, node: Node) -> Result<bool> {
        Ok(self.unread(node)?.is_some_and(|known| known.stamp.device == UNKNOWN))
    }

    /// What a listing says of a name.
    pub(crate) fn as_listed<'a>(&self, entry: DirEntry<'a>) -> DirEntry<'a> {
        if entry.kind != Kind::Symlink {
            return entry;
        }
        match self.unread(Node { id: entry.id, hint: 0 }) {
            Ok(Some(Known { stamp: Stamp { device: UNKNOWN, number, .. }, .. })) => {
                DirEntry { kind: Kind::from_dt(number as u8).unwrap_or(Kind::Regular), ..entry }
            }
            _ => entry,
        }
    }

    /// Looks below for a name of which nothing was known, and brings it.
    pub(crate) fn ask_anew(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        let before = self.names_lead(cx, (dir, name))?;
        self.fs().count_fetched(Fetched { questions: 1, ..Fetched::default() });
        self.lower.at(cx, self.path(&mut Path::room(), dir, name)?)?;
        self.names_led(cx, before, (dir, name))?;
        match self.fs().lookup(&own(cx), dir, name) {
            Ok(node) => match self.unread(node)? {
                Some(known) if known.stamp.device == UNKNOWN => self.drop_name(cx, dir, name, (node, &known.stamp), 0)?,
                _ => return Ok(node),
            },
            Err(Error::Posix(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
        }
        self.ask(cx, dir, name, bits::LISTED)
    }

    /// The text of a symlink's original, which is not kept.
    pub(crate) fn ask_text(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        self.settled(cx, (node, b""), || {
            let before = self.names_lead(cx, (node, b""))?;
            self.fs().count_fetched(Fetched { questions: 1, ..Fetched::default() });
            let (handle, original) =
                self.path_to(cx, &mut Path::room(), node).and_then(|path| self.lower.at(cx, path)).map_err(elsewhere)?;
            let text = if original.attr.kind == Kind::Symlink { handle.target(cx, out) } else { Err(Errno::ESTALE.into()) };
            self.names_led(cx, before, (node, b""))?;
            text
        })
    }

    /// The text of a symlink, if it is here: `EIO`.
    pub fn text_here(&self, cx: &Cx, node: Node, out: UserSlice) -> Result<usize> {
        if self.is_unread(node)? { Err(Errno::EIO.into()) } else { self.fs().readlink(cx, node, out) }
    }
}

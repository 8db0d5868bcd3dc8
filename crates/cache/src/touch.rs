//! The log of what has been changed here: it is made of names and files of the image.
//!
//! ```text
//! touched/ROUND/nDIR/NAME   the name NAME of the directory DIR leads elsewhere, or nowhere, or will in a moment
//! touched/ROUND/dNODE       the node NODE has other contents or attributes; byte k: so have its bytes from k * CHUNK on
//! touched/ROUND/cNODE       byte k: all bytes of the node from k * CHUNK on
//! touched/ROUND/mNODE       the node NODE was made below, as which file
//! mapped/NODE               somebody may store into it by a mapping
//! ```
//! ROUND, DIR and NODE are numbers of 16 hexadecimal digits. `n…`, `NAME` and `m…` are empty nodes whose lower line says
//! which file below the directory, what the name led to, or the node is; and, as the size, their number here (0: nothing).
//!
//! A note is made before the change that it is of, and each is a record of the engine: so it is there if the change is.
//! One without a change is harmless: a round finds that there is nothing to do. What has a note under the number of the
//! moment needs no second one, so work that comes back to the same names and bytes costs two look-ups.

use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, NewNode, Node, Result};
use engine::lower::{Stamp, Whole, bits};
use pm::UserSlice;

/// Bytes of a file that have one byte in the log.
pub const CHUNK: u64 = 64 << 10;
/// Name of the directory of the log.
pub const TOUCHED: &[u8] = b"touched";
/// Name of the directory of files that are mapped to be stored into.
pub const MAPPED: &[u8] = b"mapped";

/// A name in the log: what it is of, and its number.
#[derive(Clone, Copy, Debug)]
pub struct Label([u8; 17]);

impl Label {
    /// `n`, `d` or `m` and a number.
    pub fn new(kind: u8, number: u64) -> Label {
        let mut text = [kind; 17];
        for (place, digit) in text[1..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(number >> (60 - 4 * place) & 15) as usize];
        }
        Label(text)
    }

    /// With what it is of before it.
    pub fn whole(&self) -> &[u8] {
        &self.0
    }

    /// The number alone.
    pub fn number(&self) -> &[u8] {
        &self.0[1..]
    }

    /// The number that a text of 16 digits says.
    pub fn parse(text: &[u8]) -> Option<u64> {
        let digit = |byte: &u8| (*byte as char).to_digit(16).map(u64::from);
        (text.len() == 16).then(|| text.iter().try_fold(0u64, |number, byte| Some(number << 4 | digit(byte)?)))?
    }
}

/// Nothing to say if it is there already.
pub(crate) fn there<T>(made: Result<T>) -> Result<()> {
    match made {
        Err(Error::Posix(Errno::EEXIST)) => Ok(()),
        made => made.map(drop),
    }
}

impl Cache {
    /// The directory of the log for a round, made if it is missing.
    pub fn log_of(&self, cx: &Cx, round: u64) -> Result<Node> {
        let (fs, label) = (self.fs(), Label::new(b'r', round));
        match fs.lookup(cx, self.touched, label.number()) {
            Err(Error::Posix(Errno::ENOENT)) => {
                let new = NewNode { kind: Kind::Directory, mode: 0o700, rdev: 0, target: b"" };
                there(fs.create(cx, self.touched, label.number(), &new))?;
                fs.lookup(cx, self.touched, label.number())
            }
            found => found,
        }
    }

    /// An empty node of the log that says which node and which file below something is.
    pub fn note(&self, cx: &Cx, dir: Node, name: &[u8], kind: Kind, node: Option<Node>) -> Result<()> {
        let stamp = match node {
            Some(node) => match self.known_if(node)? {
                Some(known) => Stamp { size: node.id, ..known.stamp },
                None => Stamp { size: node.id, ..Stamp::default() },
            },
            None => Stamp::default(),
        };
        self.note_as(cx, dir, name, kind, stamp)
    }

    /// The same with a stamp that is known: its size is the node's number here.
    pub fn note_as(&self, cx: &Cx, dir: Node, name: &[u8], kind: Kind, stamp: Stamp) -> Result<()> {
        let new = Whole { kind, mode: 0o700, uid: 0, gid: 0, rdev: 0, target: b"", stamp, state: 0, unless: 0 };
        there(self.fs().create_whole(cx, dir, name, &new))
    }

    /// Notes that a name is about to change. The gate is passed; `EAGAIN` if the directory has to be listed first.
    pub(crate) fn touch_name(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<()> {
        let cx = &own(cx);
        if dir == self.tree && crate::is_ours(name) {
            return Err(Errno::EPERM.into());
        }
        let names = self.touched_names(cx, dir)?;
        match self.fs().lookup(cx, names, name) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            found => return found.map(drop),
        }
        let child = match self.fs().lookup(cx, dir, name) {
            Ok(child) => Some(child),
            Err(Error::Posix(Errno::ENOENT)) => None,
            Err(error) => return Err(error),
        };
        self.note(cx, names, name, Kind::Fifo, child)
    }

    /// Whether a name has changed here, and no round that is over has made that below.
    pub(crate) fn is_name_touched(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<bool> {
        let (cx, fs, label, mut cookie) = (&own(cx), self.fs(), Label::new(b'n', dir.id), 0);
        let if_there = |found| match found {
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => Ok(None),
            found => found.map(Some),
        };
        while let Some((round, next)) = self.next_name(cx, self.touched, cookie, |kind| kind == Kind::Directory)? {
            cookie = next;
            if let Some(log) = if_there(fs.lookup(cx, self.touched, round.bytes()))?
                && let Some(names) = if_there(fs.lookup(cx, log, label.whole()))?
                && if_there(fs.lookup(cx, names, name))?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directory of the log for the names of a directory, which is newer here than below from now on.
    fn touched_names(&self, cx: &Cx, dir: Node) -> Result<Node> {
        let (fs, label) = (self.fs(), Label::new(b'n', dir.id));
        let log = self.log_of(cx, fs.round()?)?;
        match fs.lookup(cx, log, label.whole()) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            found => return found,
        }
        // While it is newer nobody takes away that it is listed.
        self.make_dirty(cx, dir)?;
        if self.known_if(dir)?.is_some_and(|known| !known.is_listed()) {
            return Err(Errno::EAGAIN.into());
        }
        self.note(cx, log, label.whole(), Kind::Directory, Some(dir))?;
        fs.lookup(cx, log, label.whole())
    }

    pub(crate) fn make_dirty(&self, cx: &Cx, node: Node) -> Result<()> {
        match self.known_if(node)? {
            Some(known) if !known.is_dirty() => self.fs().mark(cx, node, bits::DIRTY, 0),
            _ => Ok(()),
        }
    }

    /// Notes that attributes of a node are about to change, and its bytes from `from` to `end`. The gate is passed.
    pub(crate) fn touch_node(&self, cx: &Cx, node: Node, (from, end): (u64, u64)) -> Result<()> {
        self.touch_as(&own(cx), b'd', node, (from, end))
    }

    /// The same of all bytes from `from` on, however many there are below.
    pub(crate) fn touch_from(&self, cx: &Cx, node: Node, from: u64) -> Result<()> {
        self.touch_as(&own(cx), b'c', node, (from, from + 1))
    }

    fn touch_as(&self, cx: &Cx, kind: u8, node: Node, (from, end): (u64, u64)) -> Result<()> {
        let (fs, label) = (self.fs(), Label::new(kind, node.id));
        let log = self.log_of(cx, fs.round()?)?;
        let map = match fs.lookup(cx, log, label.whole()) {
            Err(Error::Posix(Errno::ENOENT)) => {
                self.make_dirty(cx, node)?;
                let new = NewNode { kind: Kind::Regular, mode: 0o700, rdev: 0, target: b"" };
                there(fs.create(cx, log, label.whole(), &new))?;
                fs.lookup(cx, log, label.whole())?
            }
            found => found?,
        };
        if from >= end {
            return Ok(());
        }
        let (mut at, last) = (from / CHUNK, (end - 1) / CHUNK + 1);
        let ones = [1u8; 512];
        while at < last {
            let len = (last - at).min(ones.len() as u64) as usize;
            let mut bytes = [0u8; 512];
            let came = fs.read(cx, map, at, &[UserSlice::from_mut(&mut bytes[..len])])?;
            if came < len || bytes[..len].contains(&0) {
                let (done, _) = fs.write(cx, map, Some(at), &[UserSlice::from_ref(&ones[..len])])?;
                if done < len {
                    return Err(Errno::ENOSPC.into());
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Notes that a file may be stored into without a call, until nobody has it open any more.
    pub(crate) fn note_mapped(&self, cx: &Cx, node: Node) -> Result<()> {
        let label = Label::new(b'd', node.id);
        match self.fs().lookup(&own(cx), self.mapped, label.number()) {
            Err(Error::Posix(Errno::ENOENT)) => self.note(&own(cx), self.mapped, label.number(), Kind::Fifo, Some(node)),
            found => found.map(drop),
        }
    }
}

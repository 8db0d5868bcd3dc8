//! The log of what has been changed here: it is made of names and files of the image.
//!
//! ```text
//! touched/ROUND/nDIR/NAME   the name NAME of the directory DIR leads elsewhere, or nowhere, or will in a moment
//! touched/ROUND/bNODE       ranges of bytes that were written: records of 16 bytes, see `Range`
//! touched/ROUND/kNODE       byte k: some of the bytes of the node from k * CHUNK on, where bNODE is full
//! touched/ROUND/cNODE       byte k: all bytes of the node from k * CHUNK on
//! touched/ROUND/aNODE       byte k: attribute k of the node was set, see `Set`
//! touched/ROUND/eNODE/NAME  the extended attribute NAME of the node was set or removed
//! touched/ROUND/mNODE       the node NODE was made below, as which file
//! touched/ROUND/wNODE       a round has begun to write the file of the node below; the stamp's number: one more than the
//!                           offset at which it appends there, or 0; its device: one more than where those bytes begin here
//! touched/ROUND/vNODE       a round has written the file of the node below and the node has gone here since: as which stamp
//! touched/ROUND/gNODE       the node has gone here, and its name was noted earlier: as which file it was known by then
//! touched/ROUND/pROUND      a round is under way that has taken all logs up to this one, or was cut off
//! touched/ROUND/tNODE       an mNODE or wNODE that is being written anew
//! touched/ROUND/dNODE       all attributes; byte k as of kNODE (older versions noted contents so)
//! mapped/NODE               a program may store into it by a mapping
//! ```
//! ROUND, DIR and NODE are numbers of 16 hexadecimal digits. `n…`, `NAME`, `m…`, `w…`, `v…` and `g…` are empty nodes whose lower
//! line says which file below the directory, what the name led to, or the node is; and, as the size, their number here (0:
//! nothing). The size of that file is in their `st_blocks`.
//!
//! A note is made before the change that it is of, and each is a record of the engine: so it is there if the change is.
//! One without a change is harmless: a round finds that there is nothing to do. What has a note under the number of the
//! moment needs no second one, so work that comes back to the same names and bytes costs two look-ups.
//!
//! A round writes below what the notes say and nothing else, because other programs change the same files there.

use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, NewNode, Node, Result, SetAttr};
use engine::lower::{Stamp, Whole, bits};
use pm::UserSlice;

/// Bytes of a file that have one byte in the log.
pub const CHUNK: u64 = 64 << 10;
/// Records of a `bNODE`, at most.
const RANGES_MAX: u64 = 512;
/// Those at its end that are compared with a new one.
const RANGES_COMPARED: u64 = 16;
/// Kinds of notes of a node: what was changed of it.
pub const OF_NODES: [u8; 6] = *b"abcdek";
/// Name of the directory of the log.
pub const TOUCHED: &[u8] = b"touched";
/// Name of the directory of files that are mapped to be stored into.
pub const MAPPED: &[u8] = b"mapped";

/// A range of bytes of a file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub from: u64,
    /// The byte behind its last. [`Range::END`]: it goes as far as the file, which it has extended.
    pub to: u64,
    /// It was written at the end of the file by `O_APPEND`, wherever that is below.
    pub is_appended: bool,
}

impl Range {
    /// As `to`: up to the end of the file.
    pub const END: u64 = u64::MAX;
    /// Bytes of a record.
    pub const LEN: usize = 16;
    /// Of the first word of a record.
    const APPENDED: u64 = 1 << 63;

    fn pack(&self) -> [u8; Range::LEN] {
        let mut bytes = [0; Range::LEN];
        let appended = if self.is_appended { Range::APPENDED } else { 0 };
        bytes[..8].copy_from_slice(&(self.from | appended).to_le_bytes());
        bytes[8..].copy_from_slice(&self.to.to_le_bytes());
        bytes
    }

    /// What a record says; `None`: it is none.
    pub fn parse(bytes: &[u8]) -> Option<Range> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (from, to) = (word(0)?, word(8)?);
        let range = Range { from: from & !Range::APPENDED, to, is_appended: from & Range::APPENDED != 0 };
        (range.from < range.to).then_some(range)
    }

    fn covers(&self, other: &Range) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// Attributes of a node, of each whether a program has set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(u8);

impl Set {
    /// None: only `st_ctime` or `st_nlink` has changed.
    pub const NONE: Set = Set(0);
    /// Permissions.
    pub const MODE: Set = Set(1);
    /// The user who owns it.
    pub const UID: Set = Set(1 << 1);
    /// The group that owns it.
    pub const GID: Set = Set(1 << 2);
    /// Time of access.
    pub const ATIME: Set = Set(1 << 3);
    /// Time of change.
    pub const MTIME: Set = Set(1 << 4);
    /// The size, by truncating or extending.
    pub const SIZE: Set = Set(1 << 5);
    /// None, by a call that takes set-id bits away all the same.
    pub const RIGHTS: Set = Set(1 << 6);
    /// All of them.
    pub const ALL: Set = Set((1 << Set::COUNT) - 1);
    /// How many there are.
    pub const COUNT: usize = 7;

    /// Those that a call sets.
    pub fn by(change: &SetAttr) -> Set {
        let all = [
            (change.mode.is_some(), Set::MODE),
            (change.uid.is_some(), Set::UID),
            (change.gid.is_some(), Set::GID),
            (change.atime.is_some(), Set::ATIME),
            (change.mtime.is_some(), Set::MTIME),
            (change.drops_rights || change.size.is_some(), Set::RIGHTS),
        ];
        all.into_iter().filter(|(is_set, _)| *is_set).fold(Set::NONE, |set, (_, one)| set.with(one))
    }

    /// These and others.
    #[must_use]
    pub const fn with(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    /// Whether one of the others is among these.
    pub const fn has(self, other: Set) -> bool {
        self.0 & other.0 != 0
    }

    /// As `aNODE` says it.
    pub fn parse(bytes: &[u8]) -> Set {
        Set(bytes.iter().take(Set::COUNT).enumerate().fold(0, |set, (index, byte)| set | u8::from(*byte != 0) << index))
    }
}

/// A name in the log: what it is of, and its number.
#[derive(Clone, Copy, Debug)]
pub struct Label([u8; 17]);

impl Label {
    /// What it is of, as a letter, and a number.
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

/// The size of a file as a note keeps it, whose own size is a number. Longer files than 4 GiB by the rest of a division:
/// it is only compared.
pub fn size_as_blocks(size: u64) -> u32 {
    size as u32
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
                Some(known) => Stamp { size: node.id, blocks: size_as_blocks(known.stamp.size), ..known.stamp },
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

    /// Notes that a name is about to change; whether that had been noted. The gate is passed; `EAGAIN` if the directory has to
    /// be listed first.
    pub(crate) fn touch_name(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<bool> {
        let cx = &own(cx);
        if dir == self.tree && crate::is_ours(name) {
            return Err(Errno::EPERM.into());
        }
        let names = self.touched_names(cx, dir)?;
        match self.fs().lookup(cx, names, name) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            found => return found.map(|_| true),
        }
        let child = match self.fs().lookup(cx, dir, name) {
            Ok(child) => Some(child),
            Err(Error::Posix(Errno::ENOENT)) => None,
            Err(error) => return Err(error),
        };
        self.note(cx, names, name, Kind::Fifo, child).map(|()| false)
    }

    /// Notes that a node is about to go whose name was noted before: a round that began then may have made or written its file
    /// below since. The gate is passed.
    pub(crate) fn touch_gone(&self, cx: &Cx, node: Node) -> Result<()> {
        let cx = &own(cx);
        if self.known_if(node)?.is_none() {
            return Ok(());
        }
        self.note(cx, self.log_of(cx, self.fs().round()?)?, Label::new(b'g', node.id).whole(), Kind::Fifo, Some(node))
    }

    /// Whether a name has changed here, and no round that is over has made that below.
    pub(crate) fn is_name_touched(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<bool> {
        let (cx, mut cookie) = (&own(cx), 0);
        while let Some((round, next)) = self.next_name(cx, self.touched, cookie, |kind| kind == Kind::Directory)? {
            cookie = next;
            if let Some(log) = self.find_note(cx, self.touched, round.bytes())?
                && self.is_name_noted(cx, log, dir, name)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a name is noted in one log.
    pub fn is_name_noted(&self, cx: &Cx, log: Node, dir: Node, name: &[u8]) -> Result<bool> {
        let Some(names) = self.find_note(cx, log, Label::new(b'n', dir.id).whole())? else { return Ok(false) };
        Ok(self.find_note(cx, names, name)?.is_some())
    }

    /// A note, or a directory of notes; a round that is over removes them.
    pub(crate) fn find_note(&self, cx: &Cx, at: Node, name: &[u8]) -> Result<Option<Node>> {
        match self.fs().lookup(&own(cx), at, name) {
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => Ok(None),
            found => found.map(Some),
        }
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

    /// Notes which attributes of a node are about to be set. The gate is passed.
    pub(crate) fn touch_attributes(&self, cx: &Cx, node: Node, set: Set) -> Result<()> {
        let cx = &own(cx);
        self.note_attributes(cx, self.log_of(cx, self.fs().round()?)?, node, set)
    }

    /// The same in a log.
    pub fn note_attributes(&self, cx: &Cx, log: Node, node: Node, set: Set) -> Result<()> {
        let map = self.map_of(cx, log, b'a', node)?;
        let mut there = [0u8; Set::COUNT];
        if set != Set::NONE {
            self.fs().read(cx, map, 0, &[UserSlice::from_mut(&mut there)])?;
        }
        // One byte at a time: those that another process notes meanwhile stay.
        for index in (0..Set::COUNT).filter(|index| set.0 >> index & 1 != 0 && there[*index] == 0) {
            self.write_note(cx, map, Some(index as u64), &[1])?;
        }
        Ok(())
    }

    /// Notes that an extended attribute of a node is about to change. The gate is passed.
    pub(crate) fn touch_extended(&self, cx: &Cx, node: Node, attribute: &[u8]) -> Result<()> {
        let (fs, label, cx) = (self.fs(), Label::new(b'e', node.id), &own(cx));
        let log = self.log_of(cx, fs.round()?)?;
        let names = match fs.lookup(cx, log, label.whole()) {
            Err(Error::Posix(Errno::ENOENT)) => {
                self.make_dirty(cx, node)?;
                self.note(cx, log, label.whole(), Kind::Directory, None)?;
                fs.lookup(cx, log, label.whole())?
            }
            found => found?,
        };
        match fs.lookup(cx, names, attribute) {
            Err(Error::Posix(Errno::ENOENT)) => self.note(cx, names, attribute, Kind::Fifo, None),
            found => found.map(drop),
        }
    }

    /// Notes that bytes of a file are about to be written. The gate is passed.
    pub(crate) fn touch_bytes(&self, cx: &Cx, node: Node, range: Range) -> Result<()> {
        if range.from >= range.to {
            return Ok(());
        }
        let (fs, cx) = (self.fs(), &own(cx));
        let log = self.log_of(cx, fs.round()?)?;
        let map = self.map_of(cx, log, b'b', node)?;
        let (len, count) = (Range::LEN as u64, fs.attr(cx, map)?.size / Range::LEN as u64);
        let first = count.saturating_sub(RANGES_COMPARED);
        let mut records = [0u8; Range::LEN * RANGES_COMPARED as usize];
        let came = if count == 0 { 0 } else { fs.read(cx, map, first * len, &[UserSlice::from_mut(&mut records)])? };
        if records[..came].chunks(Range::LEN).filter_map(Range::parse).any(|noted| noted.covers(&range)) {
            return Ok(());
        }
        // What extends the file is always noted so, because nothing else says which bytes these are.
        if count < RANGES_MAX || range.to == Range::END {
            return self.write_note(cx, map, None, &range.pack());
        }
        self.touch_chunks(cx, (log, b'k'), node, (range.from, range.to))
    }

    /// Notes that any byte of a file may change, however many there are. The gate is passed.
    pub(crate) fn touch_whole(&self, cx: &Cx, node: Node) -> Result<()> {
        let cx = &own(cx);
        self.touch_chunks(cx, (self.log_of(cx, self.fs().round()?)?, b'c'), node, (0, 1))
    }

    /// The file of the log for one kind of notes of a node, which is newer here than below from now on.
    fn map_of(&self, cx: &Cx, log: Node, kind: u8, node: Node) -> Result<Node> {
        let (fs, label) = (self.fs(), Label::new(kind, node.id));
        match fs.lookup(cx, log, label.whole()) {
            Err(Error::Posix(Errno::ENOENT)) => {
                self.make_dirty(cx, node)?;
                let new = NewNode { kind: Kind::Regular, mode: 0o700, rdev: 0, target: b"" };
                there(fs.create(cx, log, label.whole(), &new))?;
                fs.lookup(cx, log, label.whole())
            }
            found => found,
        }
    }

    /// All of it, at its end if there is no offset.
    fn write_note(&self, cx: &Cx, map: Node, at: Option<u64>, bytes: &[u8]) -> Result<()> {
        let (done, _) = self.fs().write(cx, map, at, &[UserSlice::from_ref(bytes)])?;
        if done < bytes.len() { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }

    fn touch_chunks(&self, cx: &Cx, (log, kind): (Node, u8), node: Node, (from, end): (u64, u64)) -> Result<()> {
        let map = self.map_of(cx, log, kind, node)?;
        let (mut at, last) = (from / CHUNK, (end - 1) / CHUNK + 1);
        let ones = [1u8; 512];
        while at < last {
            let len = (last - at).min(ones.len() as u64) as usize;
            let mut bytes = [0u8; 512];
            let came = self.fs().read(cx, map, at, &[UserSlice::from_mut(&mut bytes[..len])])?;
            if came < len || bytes[..len].contains(&0) {
                self.write_note(cx, map, Some(at), &ones[..len])?;
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

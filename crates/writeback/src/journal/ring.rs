//! The journal's file: two headers, a ring of groups, and behind it bodies that are too large for the ring.
//!
//! ```text
//! 0        header, even generation     whose journal; where the first group is that is not below yet
//! 4096     header, odd generation      the one with a checksum and the higher generation counts
//! 8192     ring                        groups on blocks of 4096 bytes: head of 64 bytes, body
//! end      bodies that did not fit     the ring has the head, which says where
//! ```
//! A group is there when its checksum says so and its number is the next: so a torn one is none, and neither is one of an
//! earlier time around. Every write is durable when it returns, and they are made one after another, so that at most the
//! last group is torn. Room is used again only once a header that no longer wants it is durable.
//!
//! **A torn end is told from damage** ([`End`]): numbers only grow, so a whole head anywhere in the ring with a later number
//! than the one that is missing was written after that one had become durable. When nobody has called for a while an *end
//! mark* with the next number is written behind the last group ([`Ring::confirm`]), where the next group will be: so what
//! was acknowledged before is known to have been whole. All else that does not fit is damage too: a file that is shorter than
//! its header says, headers that are neither whole nor zeros.

use crate::{Failure, Result};
use format::checksum::Sum;
use pm::Errno;
use std::collections::VecDeque;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Where the ring begins.
pub const START: u64 = 2 * BLOCK;
/// Kept for heads of groups whose body is elsewhere.
const KEPT: u64 = 16 * BLOCK;
/// Bytes that are looked through at once.
const PIECE: usize = 1 << 20;
/// Bytes of a group's head.
const HEAD: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"BPjournl");
const GROUP: u64 = u64::from_le_bytes(*b"BPjgroup");
/// All groups with lower numbers were whole.
const END: u64 = u64::from_le_bytes(*b"BPjndend");
/// The next group is at the start of the ring.
const AROUND: u64 = u64::from_le_bytes(*b"BPjround");
const VERSION: u64 = 1;
/// Longest path in a header.
const PATH: usize = 1800;

/// Where it lies: what was written is durable when a call returns.
pub trait Medium {
    fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<usize, Errno>;
    fn write(&mut self, at: u64, bytes: &[u8]) -> std::result::Result<(), Errno>;
    fn cut(&mut self, len: u64) -> std::result::Result<(), Errno>;
}

/// Whose journal it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub generation: u64,
    /// Number of the image whose changes it holds.
    pub image: u64,
    /// Start of the machine in which it was last written.
    pub boot: [u64; 2],
    /// When it was first tried to replay it in that one, nanoseconds since the epoch; 0: not yet.
    pub replayed_since: u64,
    /// Inode number of the directory's root.
    pub root: u64,
    /// Bytes of the ring.
    pub room: u64,
    /// Offset and number of the first group that counts.
    pub tail: (u64, u64),
    /// The directory.
    pub directory: Vec<u8>,
    /// The image's path.
    pub image_path: Vec<u8>,
}

impl Header {
    fn words(&self) -> [u64; 11] {
        let (tail, next) = self.tail;
        let [a, b] = self.boot;
        [MAGIC, VERSION, self.generation, self.image, a, b, self.replayed_since, self.root, self.room, tail, next]
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK as usize);
        self.words().iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        for text in [&self.directory, &self.image_path] {
            let text = &text[..text.len().min(PATH)];
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        bytes.resize(BLOCK as usize - 8, 0);
        let sum = format::checksum::bytes(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header that counts. `None`: there is none, but zeros or nothing.
    pub fn read(medium: &impl Medium) -> Result<Option<Header>> {
        let mut found: Option<Header> = None;
        let mut is_empty = true;
        for at in [0, BLOCK] {
            let mut bytes = vec![0; BLOCK as usize];
            let len = medium.read(at, &mut bytes).map_err(failed)?;
            is_empty &= bytes[..len].iter().all(|byte| *byte == 0);
            if let Some(header) = Header::decode(&bytes[..len])
                && found.as_ref().is_none_or(|other| other.generation < header.generation)
            {
                found = Some(header);
            }
        }
        if found.is_none() && !is_empty {
            let what = "neither header is whole, so it is damaged, or no journal; move it away";
            return Err(Failure::new(what, Errno::EUCLEAN));
        }
        Ok(found)
    }

    fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; BLOCK as usize] = bytes.try_into().ok()?;
        let (said, sum) = bytes.split_at(BLOCK as usize - 8);
        if format::checksum::bytes(said) != word(sum, 0) || word(said, 0) != MAGIC || word(said, 1) != VERSION {
            return None;
        }
        let mut at = 11 * 8;
        let mut text = || {
            let len = u64::from_le_bytes(said.get(at..at + 8)?.try_into().ok()?) as usize;
            let text = said.get(at + 8..(at + 8).checked_add(len)?)?.to_vec();
            at += 8 + len;
            Some(text)
        };
        let (directory, image_path) = (text()?, text()?);
        let w = |index| word(said, index);
        let header = Header {
            generation: w(2),
            image: w(3),
            boot: [w(4), w(5)],
            replayed_since: w(6),
            root: w(7),
            room: w(8),
            tail: (w(9), w(10)),
            directory,
            image_path,
        };
        let holds = header.room.is_multiple_of(BLOCK)
            && header.room >= 2 * KEPT
            && header.tail.0 >= START
            && header.tail.0 <= START.checked_add(header.room)?
            && header.tail.0.is_multiple_of(BLOCK);
        holds.then_some(header)
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().unwrap_or_default())
}

fn blocks(len: u64) -> u64 {
    len.next_multiple_of(BLOCK)
}

/// Bodies of groups.
pub type Groups = Vec<Vec<u8>>;

/// What comes behind the last group that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing.
    Clean,
    /// A group that was being written when the machine stopped: nobody has been promised anything of it.
    Torn,
    /// Groups that were whole once.
    Damaged(Damage),
}

/// What is wrong with a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Number of the first group that is missing.
    pub group: u64,
    /// Where it should be.
    pub at: u64,
    /// What shows that it was there.
    pub why: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "group {} at offset {} is damaged ({})", self.group, self.at, self.why)
    }
}

/// A group that counts.
#[derive(Clone, Copy, Debug)]
struct Live {
    number: u64,
    /// Where the next one is.
    next: u64,
    /// Bytes of the ring, with what was left before it.
    room: u64,
    /// Where its body ends behind the ring.
    spilled: u64,
}

/// The head of a group, or of nothing.
struct Head {
    kind: u64,
    number: u64,
    len: u64,
    place: u64,
    time: u64,
    sum: u64,
}

impl Head {
    /// In the first bytes of a block; `None`: of no kind.
    fn of(bytes: &[u8]) -> Option<Head> {
        let bytes = bytes.get(..HEAD)?;
        let w = |index| word(bytes, index);
        let head = Head { kind: w(0), number: w(1), len: w(2), place: w(3), time: w(4), sum: w(5) };
        matches!(head.kind, GROUP | AROUND | END).then_some(head)
    }

    /// Whether it says so; its checksum may say otherwise.
    fn is_named(&self, kind: u64, number: u64) -> bool {
        (self.kind, self.number) == (kind, number)
    }

    /// Whether it is that one, without a body.
    fn is(&self, kind: u64, number: u64) -> bool {
        self.is_named(kind, number) && self.sum == alone(kind, number, self.time)
    }
}

/// A journal.
#[derive(Debug)]
pub struct Ring<M> {
    pub medium: M,
    pub header: Header,
    head: u64,
    next: u64,
    live: VecDeque<Live>,
    /// An end mark is behind the last group.
    is_confirmed: bool,
}

fn failed(errno: Errno) -> Failure {
    Failure::new("the journal", errno)
}

fn sum(number: u64, place: u64, time: u64, body: &[u8]) -> u64 {
    let mut sum = Sum::new(number);
    for word in [body.len() as u64, place, time, format::checksum::bytes(body)] {
        sum.word(word);
    }
    sum.finish()
}

/// The checksum of a head without a body. That of an end mark is no group's: a group will be written over it.
fn alone(kind: u64, number: u64, time: u64) -> u64 {
    sum(if kind == END { !number } else { number }, 0, time, &[])
}

fn head(kind: u64, number: u64, place: u64, time: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    for word in [kind, number, body.len() as u64, place, time, sum(number, place, time, body), 0, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl<M: Medium> Ring<M> {
    /// A new one, empty. The medium is as large as the header says, and zeros.
    pub fn make(mut medium: M, header: Header) -> Result<Ring<M>> {
        let header = Header { generation: 2, tail: (START, 1), ..header };
        // Both, so that a header of an earlier journal in the same file does not count.
        for generation in [2, 3] {
            let header = Header { generation, ..header.clone() };
            medium.write(generation % 2 * BLOCK, &header.encode()).map_err(failed)?;
        }
        let header = Header { generation: 3, ..header };
        Ok(Ring { medium, header, head: START, next: 1, live: VecDeque::new(), is_confirmed: false })
    }

    /// One that is there, its groups, and what comes behind them. `None`: there is none, but zeros or nothing.
    pub fn open(medium: M) -> Result<Option<(Ring<M>, Groups, End)>> {
        let Some(header) = Header::read(&medium)? else { return Ok(None) };
        let (head, next) = header.tail;
        let mut ring = Ring { medium, header, head, next, live: VecDeque::new(), is_confirmed: false };
        let mut bodies = Vec::new();
        while let Some(body) = ring.read_next()? {
            bodies.push(body);
        }
        let end = ring.look_behind()?;
        Ok(Some((ring, bodies, end)))
    }

    /// Where the next group is, or would be.
    fn next_place(&self) -> Result<u64> {
        if self.head == self.end() || self.head_at(self.head)?.is_some_and(|head| head.is(AROUND, self.next)) {
            return Ok(START);
        }
        Ok(self.head)
    }

    /// What comes behind the last group.
    fn look_behind(&mut self) -> Result<End> {
        let (at, next) = (self.next_place()?, self.next);
        let damage = |why: &str| Ok(End::Damaged(Damage { group: next, at, why: why.to_owned() }));
        if self.medium.read(self.end() - 1, &mut [0]).map_err(failed)? != 1 {
            return damage("the file is shorter than its header says");
        }
        let there = self.head_at(at)?;
        if there.as_ref().is_some_and(|head| head.is(END, next)) {
            self.is_confirmed = true;
            return Ok(End::Clean);
        }
        if let Some(kind) = self.later(at)? {
            return damage(if kind == END { "an end mark behind it is whole" } else { "a later group is whole" });
        }
        match there {
            Some(head) if head.is_named(GROUP, next) => Ok(End::Torn),
            _ => Ok(End::Clean),
        }
    }

    /// The kind of a whole head that was written later than the group that is missing at `at`; or of that group elsewhere.
    fn later(&self, at: u64) -> Result<Option<u64>> {
        let (mut piece, mut from) = (vec![0; PIECE], START);
        while from < self.end() {
            let len = self.medium.read(from, &mut piece).map_err(failed)?;
            for (index, block) in piece[..len].chunks(BLOCK as usize).enumerate() {
                let place = from + index as u64 * BLOCK;
                let Some(head) = Head::of(block).filter(|_| place < self.end()) else { continue };
                let is_next = head.is_named(GROUP, self.next) && place != at;
                let is_later = head.number > self.next && head.number - self.next <= self.header.room / BLOCK;
                // One whose body was cut off behind the ring tells as much.
                let is_cut = is_later && head.kind == GROUP && head.place >= self.end();
                if is_cut || (is_next || is_later) && self.is_whole(place, &head)? {
                    return Ok(Some(head.kind));
                }
            }
            from += PIECE as u64;
        }
        Ok(None)
    }

    /// The head in a block, whole or not; `None`: of no kind.
    fn head_at(&self, at: u64) -> Result<Option<Head>> {
        let mut bytes = vec![0; HEAD];
        let len = self.medium.read(at, &mut bytes).map_err(failed)?;
        Ok(Head::of(&bytes[..len]))
    }

    /// Whether a head and what it says of are as they were written.
    fn is_whole(&self, at: u64, head: &Head) -> Result<bool> {
        if head.kind != GROUP {
            return Ok(head.is(head.kind, head.number));
        }
        Ok(self.body(at, head)?.is_some())
    }

    /// The body of a group, if it is as it was written.
    fn body(&self, at: u64, head: &Head) -> Result<Option<Vec<u8>>> {
        let (len, place) = (head.len, head.place);
        // A length that was never written is none.
        let Some(end) = (if place == 0 { at + HEAD as u64 } else { place }).checked_add(len) else { return Ok(None) };
        if place == 0 && end > self.end() || place != 0 && place < self.end() {
            return Ok(None);
        }
        if len != 0 && self.medium.read(end - 1, &mut [0]).map_err(failed)? != 1 {
            return Ok(None);
        }
        let mut body = vec![0; len as usize];
        let came = self.medium.read(end - len, &mut body).map_err(failed)?;
        let is_whole = came as u64 == len && sum(head.number, place, head.time, &body) == head.sum;
        Ok(is_whole.then_some(body))
    }

    /// Says, durably, that all groups so far were whole. Nobody waits for it, and without room it is left.
    pub fn confirm(&mut self) -> Result<()> {
        let (at, left_out) = self.place(BLOCK);
        if self.is_confirmed || self.live.is_empty() || self.used() + left_out + BLOCK > self.header.room {
            return Ok(());
        }
        self.is_confirmed = true;
        let mut bytes = head(END, self.next, 0, 0, &[]);
        bytes[5 * 8..6 * 8].copy_from_slice(&alone(END, self.next, 0).to_le_bytes());
        self.write_block(at, bytes)
    }

    fn end(&self) -> u64 {
        START + self.header.room
    }

    fn used(&self) -> u64 {
        self.live.iter().map(|live| live.room).sum()
    }

    /// Part of the ring that is used, percent.
    pub fn fullness(&self) -> u64 {
        let spilled = self.live.iter().any(|live| live.spilled != 0);
        if spilled { 100 } else { self.used() * 100 / self.header.room }
    }

    /// Whether nothing in it is missing below.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The number of the first group that counts, and where each is, or the rest of the ring before it.
    pub fn places(&self) -> (u64, Vec<u64>) {
        let (at, number) = self.header.tail;
        (number, std::iter::once(at).chain(self.live.iter().map(|live| live.next)).collect())
    }

    /// The number of the group that was written last.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// The group at the head, if there is one.
    fn read_next(&mut self) -> Result<Option<Vec<u8>>> {
        let at = self.next_place()?;
        let before = if at == self.head { 0 } else { self.end() - self.head };
        let Some(head) = self.head_at(at)?.filter(|head| head.is_named(GROUP, self.next)) else { return Ok(None) };
        let room = if head.place == 0 { blocks(head.len.saturating_add(HEAD as u64)) } else { BLOCK };
        if self.used() + before + room > self.header.room || at + room > self.end() {
            return Ok(None);
        }
        let Some(body) = self.body(at, &head)? else { return Ok(None) };
        let spilled = if head.place == 0 { 0 } else { head.place + blocks(head.len) };
        self.note(at + room, before + room, spilled);
        Ok(Some(body))
    }

    fn note(&mut self, next: u64, room: u64, spilled: u64) {
        self.live.push_back(Live { number: self.next, next, room, spilled });
        (self.head, self.next, self.is_confirmed) = (next, self.next + 1, false);
    }

    /// Writes a group; it is durable when this returns. Its number.
    pub fn append(&mut self, body: &[u8], time: u64) -> Result<u64> {
        let room = blocks((HEAD + body.len()) as u64);
        let (at, left_out) = self.place(room);
        if self.used() + left_out + room + KEPT <= self.header.room {
            if left_out != 0 {
                self.write_block(self.head, head(AROUND, self.next, 0, time, &[]))?;
            }
            let mut bytes = head(GROUP, self.next, 0, time, body);
            bytes.extend_from_slice(body);
            bytes.resize(room as usize, 0);
            self.medium.write(at, &bytes).map_err(failed)?;
            self.note(at + room, left_out + room, 0);
            return Ok(self.next - 1);
        }
        let (at, _) = self.place(BLOCK);
        if self.used() + BLOCK > self.header.room {
            return Err(failed(Errno::ENOSPC));
        }
        let place = self.live.iter().map(|live| live.spilled).max().unwrap_or(0).max(self.end());
        let mut bytes = body.to_vec();
        bytes.resize(blocks(body.len() as u64) as usize, 0);
        self.medium.write(place, &bytes).map_err(failed)?;
        self.write_block(at, head(GROUP, self.next, place, time, body))?;
        self.note(at + BLOCK, BLOCK, place + blocks(body.len() as u64));
        Ok(self.next - 1)
    }

    fn write_block(&mut self, at: u64, mut bytes: Vec<u8>) -> Result<()> {
        bytes.resize(BLOCK as usize, 0);
        self.medium.write(at, &bytes).map_err(failed)
    }

    /// Where a group goes that takes so many bytes, and how many are left out at the end of the ring.
    fn place(&self, room: u64) -> (u64, u64) {
        let left = self.end() - self.head;
        if left >= room { (self.head, 0) } else { (START, left) }
    }

    /// All groups up to this number are below, and synced there.
    pub fn free(&mut self, number: u64) -> Result<()> {
        let Some(last) = self.live.iter().take_while(|live| live.number <= number).last().copied() else { return Ok(()) };
        let mut header = self.header.clone();
        header.tail = (last.next, last.number + 1);
        self.write_header(header)?;
        while self.live.front().is_some_and(|live| live.number <= number) {
            self.live.pop_front();
        }
        if self.live.iter().all(|live| live.spilled == 0) {
            // Room alone: it matters to nothing if it stays.
            let _ = self.medium.cut(self.end());
        }
        Ok(())
    }

    /// Writes another header.
    pub fn write_header(&mut self, header: Header) -> Result<()> {
        let header = Header { generation: self.header.generation + 1, ..header };
        self.medium.write(header.generation % 2 * BLOCK, &header.encode()).map_err(failed)?;
        self.header = header;
        Ok(())
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;

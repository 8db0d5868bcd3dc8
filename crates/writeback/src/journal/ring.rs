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
/// Bytes of a group's head.
const HEAD: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"BPjournl");
const GROUP: u64 = u64::from_le_bytes(*b"BPjgroup");
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

    fn decode(bytes: &[u8]) -> Option<Header> {
        let (said, sum) = bytes.split_at_checked(BLOCK as usize - 8)?;
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

/// A journal.
#[derive(Debug)]
pub struct Ring<M> {
    pub medium: M,
    pub header: Header,
    head: u64,
    next: u64,
    live: VecDeque<Live>,
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
        Ok(Ring { medium, header, head: START, next: 1, live: VecDeque::new() })
    }

    /// One that is there, and its groups. `None`: there is none.
    pub fn open(medium: M) -> Result<Option<(Ring<M>, Groups)>> {
        let mut found: Option<Header> = None;
        for at in [0, BLOCK] {
            let mut bytes = vec![0; BLOCK as usize];
            let len = medium.read(at, &mut bytes).map_err(failed)?;
            if let Some(header) = Header::decode(&bytes[..len])
                && found.as_ref().is_none_or(|other| other.generation < header.generation)
            {
                found = Some(header);
            }
        }
        let Some(header) = found else { return Ok(None) };
        let (head, next) = header.tail;
        let mut ring = Ring { medium, header, head, next, live: VecDeque::new() };
        let mut bodies = Vec::new();
        while let Some(body) = ring.read_next()? {
            bodies.push(body);
        }
        Ok(Some((ring, bodies)))
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

    /// The number of the group that was written last.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// The group at the head, if there is one.
    fn read_next(&mut self) -> Result<Option<Vec<u8>>> {
        let before = self.end() - self.head;
        if before == 0 {
            return self.read_at(START, before);
        }
        let mut bytes = vec![0; HEAD];
        let len = self.medium.read(self.head, &mut bytes).map_err(failed)?;
        let is_around = len == HEAD && word(&bytes, 0) == AROUND && word(&bytes, 1) == self.next;
        if is_around && word(&bytes, 5) == sum(self.next, 0, word(&bytes, 4), &[]) {
            return self.read_at(START, before);
        }
        self.read_at(self.head, 0)
    }

    fn read_at(&mut self, at: u64, before: u64) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; HEAD];
        let came = self.medium.read(at, &mut bytes).map_err(failed)?;
        if came < HEAD || word(&bytes, 0) != GROUP || word(&bytes, 1) != self.next {
            return Ok(None);
        }
        let [len, place, time, said] = [2, 3, 4, 5].map(|index| word(&bytes, index));
        let room = if place == 0 { blocks(len.saturating_add(HEAD as u64)) } else { BLOCK };
        if self.used() + before + room > self.header.room || at + room > self.end() {
            return Ok(None);
        }
        // A length that was never written is none.
        let Some(end) = (if place == 0 { at + HEAD as u64 } else { place }).checked_add(len) else { return Ok(None) };
        if place != 0 && (place < self.end() || self.medium.read(end - 1, &mut [0]).map_err(failed)? != 1) {
            return Ok(None);
        }
        let mut body = vec![0; len as usize];
        let came = self.medium.read(end - len, &mut body).map_err(failed)?;
        if (came as u64) < len || sum(self.next, place, time, &body) != said {
            return Ok(None);
        }
        let spilled = if place == 0 { 0 } else { place + blocks(len) };
        self.note(at + room, before + room, spilled);
        Ok(Some(body))
    }

    fn note(&mut self, next: u64, room: u64, spilled: u64) {
        self.live.push_back(Live { number: self.next, next, room, spilled });
        (self.head, self.next) = (next, self.next + 1);
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

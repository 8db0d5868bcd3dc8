//! Names and attributes of an image, cached above it in a file that programs map.
//!
//! Names (with what is known not to be there) and attributes lie in tables of
//! fixed size; what comes later takes the place of what lay there.
//!
//! ```text
//! header | words of names | words of nodes | names, 128 bytes each | attributes, 128 bytes each
//! ```
//!
//! Invariants
//! - No locks. A word, chosen by a hash, stands for all names or nodes that share
//!   it: changes under way in its low bits, changes made above them. Whoever
//!   changes something counts itself in before it asks the engine, and out after.
//! - An answer is cached with the word as it was before the engine was asked, and
//!   is believed only while the word is the same and no change is under way. So an
//!   entry that has grown old costs a comparison, and nothing is searched for.
//! - A program that dies in a change leaves it under way: what shares the word is
//!   asked of the engine from then on. One that dies while it fills a slot leaves
//!   the slot unused.
//! - Changes past this file, by other programs, are seen once an entry has reached its age.
//! - Nothing read from here is an index or a length that was not checked; a node is
//!   checked by the engine, as any other.

use base::{Attr, Errno, Kind, Node};
use core::sync::atomic::{AtomicU64, Ordering::*, fence};
use pm::{Region, clock, file};
use zerocopy::{FromBytes, KnownLayout};

/// How many names are cached, and of how many nodes the attributes, unless more are asked for.
pub const SLOTS: u64 = 16384;
/// Slots for which there is one word of a kind.
const SHARE: u64 = 4;
/// Longest name that is cached, bytes.
const NAME_BYTES: usize = 72;

/// In a word: one change made. Below it: changes under way.
const MADE: u64 = 1 << 24;
/// In a slot of names: there is no such name.
const ABSENT: u64 = u64::MAX;

/// How long anything is believed, nanoseconds.
pub const AGE_NS: u64 = 1_000_000_000;

const MAGIC: u64 = u64::from_le_bytes(*b"bypathK1");
const ALL_AT: u64 = 64;
const DROPPED_AT: u64 = 128;
const NAME_WORDS_AT: u64 = 4096;

/// An entry, 128 bytes.
#[derive(FromBytes, KnownLayout)]
#[repr(C, align(64))]
struct Slot {
    /// Odd while it is written.
    turn: AtomicU64,
    /// The words as they were when the engine was asked.
    version: AtomicU64,
    all: AtomicU64,
    /// When that was.
    since: AtomicU64,
    /// The node, or the directory that the name is in.
    key: AtomicU64,
    words: [AtomicU64; 11],
}

const _: () = assert!(size_of::<Slot>() == 128);

/// A word that is not there: always under change.
static NEVER: AtomicU64 = AtomicU64::new(1);

/// The cache of one image.
#[derive(Debug)]
pub struct Cache {
    region: Region,
    age_ns: u64,
    slots: u64,
    names: Asks,
    attrs: Asks,
}

/// How often this program has asked, and how often what was cached could be believed.
#[derive(Debug, Default)]
struct Asks {
    asked: AtomicU64,
    hits: AtomicU64,
}

impl Asks {
    /// Not exact with several threads, but no atomic addition, which would be a good part of what a hit costs.
    fn count(&self, hit: bool) {
        self.asked.store(self.asked.load(Relaxed) + 1, Relaxed);
        self.hits.store(self.hits.load(Relaxed) + u64::from(hit), Relaxed);
    }

    fn take(&self) -> (u64, u64) {
        (self.hits.swap(0, Relaxed), self.asked.swap(0, Relaxed))
    }
}

/// A place where an answer may be cached, as it was before the engine was asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    at: u64,
    key: u64,
    version: u64,
    all: u64,
    now: u64,
}

fn word_of(part: &[u8]) -> u64 {
    part.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 29
}

impl Cache {
    /// How large the file is that [`Cache::open`] wants.
    pub const fn bytes() -> u64 {
        Self::bytes_of(SLOTS)
    }

    /// The same with so many slots of each kind.
    pub const fn bytes_of(slots: u64) -> u64 {
        Self::names_at(slots) + 2 * slots * size_of::<Slot>() as u64
    }

    const fn names_at(slots: u64) -> u64 {
        NAME_WORDS_AT + 2 * (slots / SHARE) * 8
    }

    /// Maps the file at `path` (NUL-terminated), a sparse file of zeroes at first.
    /// What lies in it is believed for `age_ns`.
    pub fn open(path: &[u8], age_ns: u64) -> Result<Cache, Errno> {
        Self::open_of(path, age_ns, SLOTS)
    }

    /// The same with so many slots of each kind, a multiple of four.
    pub fn open_of(path: &[u8], age_ns: u64, slots: u64) -> Result<Cache, Errno> {
        let region = file::share(path, Self::bytes_of(slots))?;
        let magic = region.word(0).ok_or(Errno::EINVAL)?;
        match magic.compare_exchange(0, MAGIC, AcqRel, Acquire) {
            Ok(_) | Err(MAGIC) => Ok(Cache { region, age_ns, slots, names: Asks::default(), attrs: Asks::default() }),
            Err(_) => Err(Errno::EINVAL),
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        self.region.at(at).unwrap_or(&NEVER)
    }

    fn all(&self) -> &AtomicU64 {
        self.word(ALL_AT)
    }

    fn dropped(&self) -> &AtomicU64 {
        self.word(DROPPED_AT)
    }

    /// Forgets everything, for all programs. The memory stays.
    pub fn drop_all(&self) {
        self.dropped().fetch_add(1, AcqRel);
    }

    /// Hits and questions of this program since the last time: of names, and of attributes.
    pub fn take_asks(&self) -> [(u64, u64); 2] {
        [self.names.take(), self.attrs.take()]
    }

    fn words(&self) -> u64 {
        self.slots / SHARE
    }

    fn node_word(&self, node: Node) -> &AtomicU64 {
        self.word(NAME_WORDS_AT + (self.words() + mix(0, node.id) % self.words()) * 8)
    }

    fn name_word(&self, hash: u64) -> &AtomicU64 {
        self.word(NAME_WORDS_AT + hash % self.words() * 8)
    }

    fn slot(&self, number: u64) -> u64 {
        Self::names_at(self.slots) + number * size_of::<Slot>() as u64
    }

    /// Names that are too long to be cached have a word all the same.
    fn hash(dir: Node, name: &[u8]) -> u64 {
        name.chunks(8).fold(mix(name.len() as u64, dir.id), |hash, part| mix(hash, word_of(part)))
    }

    fn read(&self, asked: &Asked) -> Option<[u64; 11]> {
        let slot: &Slot = self.region.at(asked.at)?;
        let turn = slot.turn.load(Acquire);
        let fits = slot.key.load(Relaxed) == asked.key
            && slot.version.load(Relaxed) == asked.version
            && slot.all.load(Relaxed) == asked.all
            && asked.now.wrapping_sub(slot.since.load(Relaxed)) < self.age_ns;
        let words = core::array::from_fn(|index| slot.words[index].load(Relaxed));
        fence(Acquire);
        // A slot that was never written has turn 0.
        let whole = turn != 0 && turn & 1 == 0 && slot.turn.load(Relaxed) == turn;
        (fits && whole && asked.version.is_multiple_of(MADE)).then_some(words)
    }

    fn write(&self, asked: &Asked, words: &[u64; 11]) {
        let Some(slot) = self.region.at::<Slot>(asked.at).filter(|_| asked.version.is_multiple_of(MADE)) else { return };
        let turn = slot.turn.load(Relaxed);
        if turn & 1 != 0 || slot.turn.compare_exchange(turn, turn | 1, Acquire, Relaxed).is_err() {
            return;
        }
        fence(Release);
        slot.key.store(asked.key, Relaxed);
        slot.version.store(asked.version, Relaxed);
        slot.all.store(asked.all, Relaxed);
        slot.since.store(asked.now, Relaxed);
        slot.words.iter().zip(words).for_each(|(word, &value)| word.store(value, Relaxed));
        slot.turn.store(turn.wrapping_add(2), Release);
    }

    /// Where the attributes of `node` are cached, if they are.
    pub fn attr_of(&self, node: Node) -> Asked {
        Asked {
            at: self.slot(self.slots + mix(1, node.id) % self.slots),
            key: node.id,
            version: self.node_word(node).load(Acquire),
            all: self.all().load(Acquire).wrapping_add(self.dropped().load(Acquire) << 32),
            now: clock::coarse() as u64,
        }
    }

    /// The attributes, if they may be believed.
    pub fn attr(&self, asked: &Asked) -> Option<Attr> {
        let read = self.read(asked);
        self.attrs.count(read.is_some());
        let [ino, kind, owner, rdev, size, blocks, atime, mtime, ctime, btime, has_btime] = read?;
        Some(Attr {
            ino,
            kind: Kind::from_dt((kind >> 48) as u8)?,
            mode: (kind >> 32) as u16 & 0o7777,
            nlink: kind as u32,
            uid: (owner >> 32) as u32,
            gid: owner as u32,
            rdev,
            size,
            blocks,
            atime: atime as i64,
            mtime: mtime as i64,
            ctime: ctime as i64,
            btime: (has_btime != 0).then_some(btime as i64),
        })
    }

    /// Caches what the engine answered after `asked`.
    pub fn put_attr(&self, asked: &Asked, attr: &Attr) {
        let kind = u64::from(attr.kind.type_bits() >> 12) << 48 | u64::from(attr.mode) << 32 | u64::from(attr.nlink);
        let owner = u64::from(attr.uid) << 32 | u64::from(attr.gid);
        let (btime, has_btime) = (attr.btime.unwrap_or(0) as u64, u64::from(attr.btime.is_some()));
        let times = [attr.atime, attr.mtime, attr.ctime].map(|time| time as u64);
        let [atime, mtime, ctime] = times;
        self.write(asked, &[attr.ino, kind, owner, attr.rdev, attr.size, attr.blocks, atime, mtime, ctime, btime, has_btime]);
    }
}

/// A name's place, and the words that a slot compares.
#[derive(Clone, Copy, Debug)]
pub struct AskedName {
    asked: Asked,
    len: u64,
    text: [u64; NAME_BYTES / 8],
}

impl Cache {
    /// Where `name` in `dir` is cached, if it is; `None`: it never is.
    pub fn name_of(&self, dir: Node, name: &[u8]) -> Option<AskedName> {
        if name.len() > NAME_BYTES {
            return None;
        }
        let mut text = [0; NAME_BYTES / 8];
        text.iter_mut().zip(name.chunks(8)).for_each(|(word, part)| *word = word_of(part));
        let hash = Self::hash(dir, name);
        let asked = Asked {
            at: self.slot((hash >> 32) % self.slots),
            key: dir.id,
            version: self.name_word(hash).load(Acquire),
            all: self.dropped().load(Acquire),
            now: clock::coarse() as u64,
        };
        Some(AskedName { asked, len: name.len() as u64, text })
    }

    /// The node of that name, or that there is none (`Some(None)`), if it may be believed.
    pub fn name(&self, name: &AskedName) -> Option<Option<Node>> {
        let known = self.read(&name.asked).filter(|[_, len, text @ ..]| len >> 32 == name.len && *text == name.text);
        self.names.count(known.is_some());
        let [id, len, ..] = known?;
        Some((id != ABSENT).then_some(Node { id, hint: len as u32 }))
    }

    /// Caches what the engine answered after `name` was asked for.
    pub fn put_name(&self, name: &AskedName, node: Option<Node>) {
        let (id, hint) = node.map_or((ABSENT, 0), |node| (node.id, node.hint));
        let mut words = [0; 11];
        (words[0], words[1]) = (id, name.len << 32 | u64::from(hint));
        words[2..].copy_from_slice(&name.text);
        self.write(&name.asked, &words);
    }

    /// A change that is about to be made.
    pub fn change(&self) -> Change<'_> {
        Change { cache: self, words: [None; 6] }
    }
}

/// A change under way. What it is about is not believed until it is [ended](Change::end).
#[derive(Debug)]
pub struct Change<'a> {
    cache: &'a Cache,
    /// Each word once, as it was before, and whether it matters who else counts there.
    words: [Option<(&'a AtomicU64, u64, bool)>; 6],
}

impl<'a> Change<'a> {
    fn add(&mut self, word: &'a AtomicU64, notices: bool) {
        for place in &mut self.words {
            match place {
                Some((other, ..)) if core::ptr::eq(*other, word) => return,
                Some(_) => {}
                None => {
                    *place = Some((word, word.fetch_add(1, AcqRel), notices));
                    return;
                }
            }
        }
    }

    /// It is about the attributes of `node`.
    pub fn node(&mut self, node: Node) {
        self.add(self.cache.node_word(node), false);
    }

    /// It is about `name` in `dir`, and so about the attributes of `dir`.
    pub fn name(&mut self, dir: Node, name: &[u8]) {
        self.add(self.cache.name_word(Cache::hash(dir, name)), true);
        self.node(dir);
    }

    /// It is made. If other names that share a word changed meanwhile, the nodes
    /// that were behind them may not be those that were seen: no attributes are
    /// believed that were cached before.
    pub fn end(self) {
        let mut alone = true;
        for (word, before, notices) in self.words.into_iter().flatten() {
            let at_end = word.fetch_add(MADE - 1, AcqRel);
            alone &= !notices || at_end == before + 1;
        }
        if !alone {
            self.cache.all().fetch_add(1, AcqRel);
        }
    }
}

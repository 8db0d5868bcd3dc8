//! The page cache: parts of files of a slow lower file system, shared by all programs of the
//! session.
//!
//! ```text
//! … nodes | 4096 heads of 64 bytes | 4096 frames of 64 KiB (sparse)
//! ```
//!
//! A frame holds pages of one 64 KiB part of one file, which its key and the
//! part's number say; it lies in one of the eight places that a hash of the two
//! chooses. Memory is taken a page at a time, up to a limit; what was not used for
//! a minute, or longest when there is too much, goes back to the kernel.
//!
//! Invariants
//! - A frame's word holds the PID of whoever fills it, else 0, and a number that
//!   rises with each filling. Readers copy, then look whether the word is as it
//!   was. A frame whose filler died is anybody's.
//! - What a frame holds counts if it was asked for after the last change of its
//!   part of the file, of the whole, and (if it knows the file's end) of anything
//!   in it: see the session's `changes`. Changes never touch frames.
//! - No frame is filled that was not populated first: a full file system under
//!   the session means no cache, never a signal.

use super::changes::Of;
use super::{PAGES_AT, SessionCache};
use base::{Node, Result};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, fence};
use pm::{UserSlice, host};
use zerocopy::{FromBytes, KnownLayout};

/// How many frames there are.
pub const FRAMES: u32 = 4096;
/// Length of a frame.
pub const FRAME_BYTES: u64 = 65536;
const PAGE: u64 = 4096;
const WAYS: u32 = 8;
const FRAMES_AT: u64 = PAGES_AT + FRAMES as u64 * size_of::<Head>() as u64;
pub(super) const END: u64 = FRAMES_AT + FRAMES as u64 * FRAME_BYTES;

/// A time of use is written down only if it is that much later, nanoseconds.
const USE_STEP_NS: u64 = 1 << 24;
/// How long a frame is kept that nobody uses.
const IDLE_NS: u64 = 60_000_000_000;
/// How many frames are looked at when one must go.
const SAMPLE: u32 = 16;

/// Head of a frame, a line of its own.
#[derive(FromBytes, KnownLayout)]
#[repr(C, align(64))]
struct Head {
    /// PID of the filler `<< 32`, number of the filling.
    state: AtomicU64,
    key: AtomicU64,
    /// Incarnation of the daemon, and what it has told of changes.
    version: AtomicU64,
    /// Which 64 KiB of the file.
    part: AtomicU64,
    /// The number of the last change when it was asked for.
    asked: AtomicU64,
    used_at: AtomicU64,
    /// Bit n: page n is there (low half), has memory (high half).
    pages: AtomicU32,
    /// Where in the frame the file ends; [`NO_END`] if it does not.
    end: AtomicU32,
    reserved: AtomicU64,
}

const _: () = assert!(size_of::<Head>() == 64);
const NO_END: u32 = u32::MAX;

/// What a file is called in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageKey {
    /// The node's key.
    pub key: u64,
    /// Incarnation of the daemon, and what it has told of changes: another one's pages are not seen.
    pub version: u64,
}

/// Figures for people.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageFigures {
    /// Bytes in use.
    pub bytes: u64,
    /// Most bytes that may be in use.
    pub limit_bytes: u64,
    /// Parts of reads that were found, and that were asked for.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
}

/// Asks the lower file system for parts of a file.
pub trait Fetch {
    /// What is at `offset`, now; fewer bytes only at the file's end.
    fn read(&mut self, offset: u64, into: UserSlice) -> Result<usize>;

    /// A frame's length at `offset` will be wanted, it seems.
    fn read_ahead(&mut self, offset: u64);
}

/// Bits of the pages that `from..to` of a frame touches.
fn bits(from: u64, to: u64) -> u32 {
    let (first, last) = (from / PAGE, to.div_ceil(PAGE).max(from / PAGE + 1));
    ((1u32 << last) - 1) & !((1u32 << first) - 1)
}

impl SessionCache {
    /// How large the file is that has room for a page cache too.
    pub const fn bytes_with_pages() -> u64 {
        END
    }

    /// Sets the most memory that the page cache may take (0: there is none).
    pub fn limit_pages(&self, bytes: u64) {
        let has_heads = || self.space(PAGES_AT, FRAMES_AT - PAGES_AT).is_ok();
        let most =
            if bytes == 0 || self.region.len() < END || !has_heads() { 0 } else { bytes.min(u64::from(FRAMES) * FRAME_BYTES) };
        self.header().pages_max.store((most / PAGE) as u32, Relaxed);
    }

    /// Whether there is a page cache.
    #[inline]
    pub fn has_pages(&self) -> bool {
        self.header().pages_max.load(Relaxed) != 0 && self.region.len() >= END
    }

    /// How it does.
    pub fn page_figures(&self) -> PageFigures {
        let header = self.header();
        PageFigures {
            bytes: u64::from(header.pages_used.load(Relaxed)) * PAGE,
            limit_bytes: u64::from(header.pages_max.load(Relaxed)) * PAGE,
            hits: header.page_hits.load(Relaxed),
            misses: header.page_misses.load(Relaxed),
        }
    }

    /// All of a file may have changed: it was truncated, or others may have written it.
    pub fn contents_changed(&self, node: Node) {
        if let Ok(record) = self.get(node) {
            self.note_change(Of::Contents, record.key.load(Relaxed));
        }
    }

    /// `len` bytes at `offset` were written, or perhaps were.
    pub fn written(&self, node: Node, offset: u64, len: u64) {
        if !self.has_pages() {
            return;
        }
        let Ok(record) = self.get(node) else { return };
        let key = record.key.load(Relaxed);
        let (first, last) = (offset / FRAME_BYTES, offset.saturating_add(len.saturating_sub(1)) / FRAME_BYTES);
        if last - first >= 16 {
            return self.note_change(Of::Contents, key);
        }
        self.note_change(Of::End, key);
        // A frame that is not to be seen yet will be asked for after the write.
        fence(SeqCst);
        for part in (first..=last).filter(|&part| self.has_frame(key, part)) {
            self.note_change(Of::Part, part_key(key, part));
        }
    }

    /// The frames that a part of a file may have.
    fn frames_of(&self, key: u64, part: u64) -> impl Iterator<Item = &Head> {
        let set = Self::set_of(key, part);
        let is_of = move |head: &&Head| head.key.load(Relaxed) == key && head.part.load(Relaxed) == part;
        (set..set + WAYS).filter_map(|index| self.head(index)).filter(is_of)
    }

    fn has_frame(&self, key: u64, part: u64) -> bool {
        self.frames_of(key, part).next().is_some()
    }

    /// Whether a part of a file is there, all of it perhaps.
    fn may_hold(&self, file: PageKey, part: u64) -> bool {
        self.frames_of(file.key, part).any(|head| {
            head.version.load(Relaxed) == file.version && self.holds_still(file.key, part, head.asked.load(Relaxed), true)
        })
    }

    fn head(&self, index: u32) -> Option<&Head> {
        if index >= FRAMES { None } else { self.region.at(PAGES_AT + u64::from(index) * size_of::<Head>() as u64) }
    }

    fn set_of(key: u64, part: u64) -> u32 {
        (part_key(key, part) >> 32) as u32 % (FRAMES / WAYS) * WAYS
    }

    /// Whether what was asked for at `asked` still holds.
    fn holds_still(&self, key: u64, part: u64, asked: u64, knows_end: bool) -> bool {
        asked >= self.last_change(Of::Contents, key)
            && asked >= self.last_change(Of::Part, part_key(key, part))
            && !(knows_end && asked < self.last_change(Of::End, key))
    }

    /// Whether the frame's length at `offset` of file `key`, and where it ends, is what it was at `asked`.
    pub fn is_as_it_was(&self, key: u64, offset: u64, asked: u64) -> bool {
        self.holds_still(key, offset / FRAME_BYTES, asked, true)
    }

    fn is_frame_of(head: &Head, file: PageKey, part: u64) -> bool {
        head.key.load(Relaxed) == file.key && head.part.load(Relaxed) == part && head.version.load(Relaxed) == file.version
    }

    /// Reads at `offset`, from the cache or by `fetch`, which is asked for more than
    /// is wanted where a file is read in order. Fewer bytes only at the file's end.
    pub fn read_pages(&self, node: Node, file: PageKey, offset: u64, into: UserSlice, fetch: &mut dyn Fetch) -> Result<usize> {
        let mut done = 0;
        while done < into.len {
            let Some(at) = offset.checked_add(done as u64) else { break };
            let (part, within) = (at / FRAME_BYTES, at % FRAME_BYTES);
            let rest = into.len - done;
            let want = rest.min((FRAME_BYTES - within) as usize);
            let piece = into.part(done, want);
            let (result, want) = match self.copy_page(file, part, within, piece) {
                Some(got) => (Ok(got), want),
                // So much at once gains nothing from a copy aside.
                None if within == 0 && rest >= FRAME_BYTES as usize => (fetch.read(at, into.part(done, rest)), rest),
                None => (self.fetch_page(node, file, offset, (part, within), piece, fetch), want),
            };
            let got = match result {
                Ok(got) => got,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += got.min(want);
            if got < want {
                break;
            }
        }
        if let Ok(record) = self.get(node) {
            record.read_on.store(offset.saturating_add(done as u64), Relaxed);
        }
        Ok(done)
    }

    fn copy_page(&self, file: PageKey, part: u64, within: u64, into: UserSlice) -> Option<usize> {
        let set = Self::set_of(file.key, part);
        for index in set..set + WAYS {
            let head = self.head(index)?;
            let state = head.state.load(Acquire);
            if state >> 32 != 0 || !Self::is_frame_of(head, file, part) {
                continue;
            }
            let (pages, end) = (head.pages.load(Relaxed), head.end.load(Relaxed));
            if !self.holds_still(file.key, part, head.asked.load(Relaxed), end != NO_END) {
                return None;
            }
            let to = (within + into.len as u64).min(u64::from(end)).min(FRAME_BYTES);
            let len = to.saturating_sub(within);
            if len > 0 && bits(within, to) & !pages != 0 {
                return None;
            }
            self.region.copy_out(FRAMES_AT + u64::from(index) * FRAME_BYTES + within, into.part(0, len as usize)).ok()?;
            fence(Acquire);
            if head.state.load(Relaxed) != state {
                return None;
            }
            let now = Self::now();
            if now > head.used_at.load(Relaxed).saturating_add(USE_STEP_NS) {
                head.used_at.store(now, Relaxed);
            }
            self.header().page_hits.fetch_add(1, Relaxed);
            return Some(len as usize);
        }
        None
    }

    /// Fills pages of a frame and copies from there; straight to the program if there is no frame to be had. `begun`: where
    /// in the file the program's call began.
    fn fetch_page(
        &self,
        node: Node,
        file: PageKey,
        begun: u64,
        (part, within): (u64, u64),
        into: UserSlice,
        fetch: &mut dyn Fetch,
    ) -> Result<usize> {
        self.header().page_misses.fetch_add(1, Relaxed);
        let at = part * FRAME_BYTES;
        let Some((index, head, number)) = self.take_frame(file, part) else { return fetch.read(at + within, into) };
        let follows = self.get(node)?.read_on.load(Relaxed) == begun;
        let in_order = within == 0 || follows;
        let from = within / PAGE * PAGE;
        let wanted = (within + into.len as u64).next_multiple_of(PAGE);
        let to = match in_order {
            false => wanted,
            // What was asked for ahead is a whole frame.
            true if at != 0 => FRAME_BYTES,
            true => self.first_pages(node).max(wanted).min(FRAME_BYTES),
        };
        let is_same = Self::is_frame_of(head, file, part)
            && self.holds_still(file.key, part, head.asked.load(Relaxed), true)
            && head.end.load(Relaxed) == NO_END;
        if !is_same {
            head.pages.fetch_and(0xffff_0000, Relaxed);
            head.key.store(file.key, Relaxed);
            head.version.store(file.version, Relaxed);
            head.part.store(part, Relaxed);
            head.end.store(NO_END, Relaxed);
            // Writers see whose the frame is, or are seen: `written`.
            fence(SeqCst);
            head.asked.store(self.moment().nodes, Relaxed);
        }
        head.used_at.store(Self::now(), Relaxed);
        if !self.populate(index, head, bits(from, to)) {
            head.state.store(number, Release);
            return fetch.read(at + within, into);
        }
        let place = FRAMES_AT + u64::from(index) * FRAME_BYTES;
        let mut failure = None;
        let got = self.region.fill(place + from, to - from, &mut |room| {
            fetch.read(at + from, room).or_else(|error| {
                failure = Some(error);
                Ok(0)
            })
        });
        let result = match (failure, got) {
            (Some(error), _) => Err(error),
            (None, Err(errno)) => Err(errno.into()),
            (None, Ok(got)) => {
                let filled = from + got;
                if got < to - from {
                    head.end.store(filled as u32, Relaxed);
                }
                if got > 0 {
                    head.pages.fetch_or(bits(from, filled), Relaxed);
                }
                let len = filled.saturating_sub(within).min(into.len as u64) as usize;
                self.region.copy_out_some(place + within, into.part(0, len)).map_err(Into::into)
            }
        };
        if result.is_err() {
            head.pages.fetch_and(0xffff_0000, Relaxed);
        }
        head.state.store(number, Release);
        // From the second part on: most files are short, and of many only the beginning is read.
        let goes_on = follows && part > 0 && head.end.load(Relaxed) == NO_END && result.is_ok();
        if goes_on && !self.may_hold(file, part + 1) {
            fetch.read_ahead(at + FRAME_BYTES);
        }
        result
    }

    /// How much of its first frame a file fills, it seems, up to the page in which it ends: memory costs as much as a request.
    /// A file that has grown since it was looked at is asked for twice.
    fn first_pages(&self, node: Node) -> u64 {
        // One more byte: that it ends there is to be known.
        self.last_size(node).unwrap_or(u64::MAX).saturating_add(1).min(FRAME_BYTES).next_multiple_of(PAGE)
    }

    /// Takes a frame for a part of a file: the one it has, an empty one, or the one
    /// that was not used for longest. What is to be stored in its word at the end.
    fn take_frame(&self, file: PageKey, part: u64) -> Option<(u32, &Head, u64)> {
        let set = Self::set_of(file.key, part);
        let mut best: Option<(u64, u32, u64)> = None;
        for index in set..set + WAYS {
            let head = self.head(index)?;
            let state = head.state.load(Acquire);
            if state >> 32 != 0 {
                if Self::is_frame_of(head, file, part) && host::is_alive_by_mark((state >> 32) as u32) != Some(false) {
                    return None;
                }
                if host::is_alive_by_mark((state >> 32) as u32) != Some(false) {
                    continue;
                }
                // What a dead filler left is not known.
                head.pages.fetch_and(0xffff_0000, Relaxed);
            }
            let age = match Self::is_frame_of(head, file, part) {
                true => 0,
                false if head.pages.load(Relaxed) & 0xffff == 0 => 1,
                false => head.used_at.load(Relaxed).max(2),
            };
            if best.is_none_or(|(other, ..)| age < other) {
                best = Some((age, index, state));
            }
        }
        let (_, index, state) = best?;
        let (head, number) = self.own_frame(index, state)?;
        Some((index, head, number))
    }

    /// Makes a frame ours, if it is as it was.
    fn own_frame(&self, index: u32, state: u64) -> Option<(&Head, u64)> {
        let head = self.head(index)?;
        let number = u64::from((state as u32).wrapping_add(1));
        let own = u64::from(host::own_mark()) << 32 | number;
        head.state.compare_exchange(state, own, AcqRel, Relaxed).ok()?;
        Some((head, number))
    }

    /// Gets memory for pages of a frame that we have taken; false if there is none.
    fn populate(&self, index: u32, head: &Head, wanted: u32) -> bool {
        let missing = wanted & !(head.pages.load(Relaxed) >> 16);
        if missing == 0 {
            return true;
        }
        let header = self.header();
        let (used, max) = (header.pages_used.load(Relaxed) + missing.count_ones(), header.pages_max.load(Relaxed));
        if used > max && !self.evict(index, used - max) {
            return false;
        }
        // `wanted` is one run of pages.
        let (first, last) = (u64::from(wanted.trailing_zeros()), u64::from(32 - wanted.leading_zeros()));
        let place = FRAMES_AT + u64::from(index) * FRAME_BYTES + first * PAGE;
        if self.region.populate(place, (last - first) * PAGE).is_err() {
            return false;
        }
        head.pages.fetch_or(missing << 16, Relaxed);
        header.pages_used.fetch_add(missing.count_ones(), Relaxed);
        true
    }

    /// Gives memory of other frames back until `excess` pages are gone; false if that can't be.
    fn evict(&self, except: u32, excess: u32) -> bool {
        let mut freed = 0;
        let mut looked = 0;
        while freed < excess && looked < FRAMES {
            let mut oldest: Option<(u64, u32)> = None;
            for _ in 0..SAMPLE {
                let index = self.header().page_hand.fetch_add(1, Relaxed) % FRAMES;
                let Some(head) = self.head(index) else { return false };
                let is_candidate = index != except && head.pages.load(Relaxed) >> 16 != 0;
                let used_at = head.used_at.load(Relaxed);
                if is_candidate && oldest.is_none_or(|(at, _)| used_at < at) {
                    oldest = Some((used_at, index));
                }
            }
            looked += SAMPLE;
            freed += oldest.map_or(0, |(_, index)| self.empty(index));
        }
        freed >= excess
    }

    /// Gives a frame's memory back; how many pages.
    fn empty(&self, index: u32) -> u32 {
        let Some(state) = self.head(index).map(|head| head.state.load(Acquire)) else { return 0 };
        if state >> 32 != 0 && host::is_alive_by_mark((state >> 32) as u32) != Some(false) {
            return 0;
        }
        let Some((head, number)) = self.own_frame(index, state) else { return 0 };
        head.pages.fetch_and(0xffff_0000, Relaxed);
        let mut freed = 0;
        if self.region.give_back(FRAMES_AT + u64::from(index) * FRAME_BYTES, FRAME_BYTES).is_ok() {
            freed = (head.pages.swap(0, Relaxed) >> 16).count_ones();
            let used = &self.header().pages_used;
            let _ = used.fetch_update(AcqRel, Relaxed, |pages| Some(pages.saturating_sub(freed)));
        }
        head.state.store(number, Release);
        freed
    }

    /// Once in a while: what nobody uses goes back. `now` is later than the last time.
    pub fn shrink_pages(&self, now: u64) {
        let last = self.header().pages_swept.load(Relaxed);
        let is_due = self.has_pages() && now.saturating_sub(last) >= IDLE_NS / 4;
        if !is_due || self.header().pages_swept.compare_exchange(last, now, AcqRel, Relaxed).is_err() {
            return;
        }
        self.empty_unused(now.saturating_sub(IDLE_NS));
    }

    /// Gives back what was not used since `since`.
    pub fn empty_unused(&self, since: u64) {
        for index in 0..FRAMES {
            let Some(head) = self.head(index) else { return };
            if head.pages.load(Relaxed) >> 16 != 0 && head.used_at.load(Relaxed) <= since {
                self.empty(index);
            }
        }
    }
}

/// What a part of a file is called where its changes are numbered.
fn part_key(key: u64, part: u64) -> u64 {
    let mixed = (key ^ part.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

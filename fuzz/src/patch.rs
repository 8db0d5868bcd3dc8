//! Inputs as damage: each patch changes a word or a line that means something.
//!
//! ```text
//! how 1 | area 4 bits, word 3 bits | line 2 | value 8
//! ```
//! Checksums are put right afterwards, so that damage is not found at the door.

use crate::input::Input;
use crate::place::Place;
use format::checksum::{Sum, bytes};
use format::lane::State;
use format::layout::{LANE_AREA, LANE_BYTES, LINE, SUPERBLOCK_COPY};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Patches that an input may hold.
const PATCHES_MAX: usize = 24;

/// A change of one word, by its number in the image or segment.
#[derive(Clone, Copy, Debug)]
pub struct Patch {
    how: u8,
    /// Number of the word.
    at: usize,
    value: u64,
    /// Offset of another line that exists.
    other: u64,
}

impl Patch {
    /// The next patch of an image.
    pub fn of_image(place: &Place, input: &mut Input) -> Patch {
        let (how, spot, line, value) = (input.byte(), input.byte(), input.short(), input.word());
        let lines = place.lines(spot >> 3);
        let line = lines[usize::from(line) % lines.len()];
        let all = place.lines(15);
        let other = all[value as usize % all.len()];
        Patch { how, at: (line / 8) as usize + usize::from(spot & 7), value, other }
    }

    /// The next patch of a segment: `areas` are offsets and lengths of its parts.
    pub fn of_segment(areas: &[(u64, u64)], input: &mut Input) -> Patch {
        let (how, spot, line, value) = (input.byte(), input.byte(), input.short(), input.word());
        let (first, len) = areas[usize::from(spot >> 3) % areas.len()];
        let at = first + u64::from(line) * LINE % len + u64::from(spot & 7) * 8;
        Patch { how, at: (at / 8) as usize, value, other: first }
    }

    /// Makes the change; `word` finds a word by its number.
    pub fn apply<'w>(&self, words: impl Fn(usize) -> Option<&'w AtomicU64>) {
        let Some(word) = words(self.at) else { return };
        let old = word.load(Relaxed);
        let new = match self.how % 9 {
            0 => self.value,
            1 => old ^ 1 << (self.value % 64),
            2 => old.wrapping_add(self.value as i8 as u64),
            3 => self.other | self.value >> 58,
            4 => old & !0xffff_ffff | self.value & 0xffff_ffff,
            5 => old & 0xffff_ffff | self.value << 32,
            6 => words((self.other / 8) as usize + self.at % 8).map_or(0, |w| w.load(Relaxed)),
            7 => old & !(0xff << (self.value % 8 * 8)) | (self.value >> 8 & 0xff) << (self.value % 8 * 8),
            _ => 0,
        };
        word.store(new, Relaxed);
    }
}

/// Damages the image as the front of the input says. The first byte tells how
/// many patches there are, and which checksums stay wrong.
pub fn image(place: &mut Place, input: &mut Input) {
    let first = input.byte();
    for _ in 0..usize::from(first & 0x1f).min(PATCHES_MAX) {
        let patch = Patch::of_image(place, input);
        patch.apply(|at| place.words().get(at));
    }
    if first & 0x40 != 0 {
        revive(place, input.short());
    }
    if first & 0x80 == 0 {
        seal(place);
    }
}

/// Brings a record back that was retired, as if its lane had died before that.
fn revive(place: &Place, which: u16) {
    let words = place.words();
    let lane = (LANE_AREA + u64::from(which & 3) * LANE_BYTES) as usize / 8;
    let state = State { sequence: State::next(words[lane].load(Relaxed)), kind: 1, objects: 0, ops: (which >> 8) as u8 % 56 + 1 };
    words[lane].store(state.pack(), Relaxed);
}

/// Makes checksums right again: of the superblocks, and of the lanes' records.
fn seal(place: &mut Place) {
    for at in [0, SUPERBLOCK_COPY as usize] {
        let sum = bytes(&place.bytes()[at..at + 120]);
        place.bytes()[at + 120..at + 128].copy_from_slice(&sum.to_le_bytes());
    }
    let words = place.words();
    for lane in 0..4 {
        let at = (LANE_AREA + lane * LANE_BYTES) as usize / 8;
        if let Some(state) = State::unpack(words[at].load(Relaxed)) {
            words[at + 1].store(Sum::new(!state.pack()).finish(), Relaxed);
        }
    }
}

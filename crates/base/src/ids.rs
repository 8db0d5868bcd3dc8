//! Users and groups as the user namespace numbers them that this process is in.
//!
//! A file system keeps the numbers of the initial namespace, and so do all layers: in another one
//! a front end translates what a program says, and what it is shown. Capabilities count there only over what belongs to
//! users and groups that the namespace maps ([`crate::Cred::is_privileged_over`]).
//!
//! A process is in one namespace, so this is the process's. Of a namespace inside another one the kernel shows the
//! outer one's numbers only, which are taken for the initial one's.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Most ranges of a map that the kernel takes.
const RANGES: usize = 340;

/// In the initial namespace, in another one, and in one that has no map yet.
const INITIAL: u32 = 0;
const OTHER: u32 = 1;
const UNMAPPED: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(INITIAL);
static USERS: Map = Map::empty();
static GROUPS: Map = Map::empty();

/// Ranges of numbers: the first one inside, the first one outside, how many.
struct Map {
    ranges: [[AtomicU32; 3]; RANGES],
    count: AtomicU32,
    /// What those are shown as that are not mapped.
    overflow: AtomicU32,
}

impl Map {
    /// Of nobody.
    const fn empty() -> Map {
        Map {
            ranges: [const { [const { AtomicU32::new(0) }; 3] }; RANGES],
            count: AtomicU32::new(0),
            overflow: AtomicU32::new(0),
        }
    }

    /// Takes over what the kernel shows of a map (`/proc/self/uid_map`).
    fn learn(&self, text: &[u8], overflow: u32) {
        self.count.store(0, Release);
        let mut count = 0;
        for (range, place) in text.split(|&byte| byte == b'\n').filter_map(range_of).zip(&self.ranges) {
            for (word, value) in place.iter().zip(range) {
                word.store(value, Relaxed);
            }
            count += 1;
        }
        self.overflow.store(overflow, Relaxed);
        self.count.store(count, Release);
    }

    /// The number that `id` is in the numbering `to`, if it is mapped: 0 is inside, 1 outside.
    fn translate(&self, id: u32, to: usize) -> Option<u32> {
        let count = self.count.load(Acquire) as usize;
        self.ranges.iter().take(count).find_map(|range| {
            let [ends, len] = [&range[1 - to], &range[2]].map(|word| word.load(Relaxed));
            let at = id.wrapping_sub(ends);
            (at < len).then(|| range[to].load(Relaxed).wrapping_add(at))
        })
    }

    /// Whether every number is itself.
    fn is_identity(&self) -> bool {
        self.count.load(Relaxed) == 1 && self.translate(0, 1) == Some(0) && self.translate(u32::MAX - 1, 1) == Some(u32::MAX - 1)
    }
}

/// The three numbers of a line.
fn range_of(line: &[u8]) -> Option<[u32; 3]> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let mut next = || number(words.next()?);
    Some([next()?, next()?, next()?])
}

/// A decimal number, as the kernel writes them.
pub fn number(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The process is in the initial namespace.
pub fn leave() {
    STATE.store(INITIAL, Release);
}

/// The process is in another namespace: its maps as the kernel shows them, and what unmapped users and groups are shown as.
pub fn enter(users: &[u8], groups: &[u8], overflow: [u32; 2]) {
    USERS.learn(users, overflow[0]);
    GROUPS.learn(groups, overflow[1]);
    let is_mapped = USERS.count.load(Relaxed) != 0 && GROUPS.count.load(Relaxed) != 0;
    let state = match is_mapped {
        true if USERS.is_identity() && GROUPS.is_identity() => INITIAL,
        true => OTHER,
        false => UNMAPPED,
    };
    STATE.store(state, Release);
}

/// Whether numbers are what they seem.
#[inline(always)]
pub fn is_initial() -> bool {
    STATE.load(Relaxed) == INITIAL
}

/// Whether the maps may still come: they are to be asked for again.
#[inline(always)]
pub fn is_unmapped() -> bool {
    STATE.load(Relaxed) == UNMAPPED
}

/// The user whom the process calls `id`, if there is one.
pub fn user(id: u32) -> Option<u32> {
    if is_initial() { Some(id) } else { USERS.translate(id, 1) }
}

/// The group that the process calls `id`, if there is one.
pub fn group(id: u32) -> Option<u32> {
    if is_initial() { Some(id) } else { GROUPS.translate(id, 1) }
}

/// What the process is shown of a user.
#[inline]
pub fn shown_user(id: u32) -> u32 {
    if is_initial() { id } else { USERS.translate(id, 0).unwrap_or(USERS.overflow.load(Relaxed)) }
}

/// What the process is shown of a group.
#[inline]
pub fn shown_group(id: u32) -> u32 {
    if is_initial() { id } else { GROUPS.translate(id, 0).unwrap_or(GROUPS.overflow.load(Relaxed)) }
}

/// Whether the namespace has a number for both.
pub fn are_mapped(user: u32, group: u32) -> bool {
    is_initial() || USERS.translate(user, 0).is_some() && GROUPS.translate(group, 0).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &[u8]) -> Map {
        let map = Map::empty();
        map.learn(text, 65534);
        map
    }

    /// Goal: numbers are translated both ways, by the range that they lie in, and those in none are nobody's.
    #[test]
    fn translates() {
        let map = map(b"         0       1000          1\n         1     100000      65536\n");
        for (inside, outside) in [(0, 1000), (1, 100_000), (65_536, 165_535)] {
            assert_eq!((map.translate(inside, 1), map.translate(outside, 0)), (Some(outside), Some(inside)));
        }
        for nobody in [0, 1, 999, 1001, 99_999, 165_536, u32::MAX] {
            assert_eq!(map.translate(nobody, 0), None, "{nobody}");
        }
        assert_eq!(map.translate(65_537, 1), None);
        assert!(!map.is_identity());
    }

    /// Goal: what is no map maps nothing, and the initial namespace's is itself.
    #[test]
    fn other_texts() {
        for text in [&b""[..], b"\n", b"0 0", b"a b c\n", b"-1 0 5\n"] {
            assert_eq!(map(text).translate(0, 1), None);
        }
        assert!(map(b"         0          0 4294967295\n").is_identity());
        assert!(!map(b"         0          0      65536\n").is_identity());
        assert_eq!((number(b"65534\n"), number(b"x")), (Some(65534), None));
    }
}

//! The name hash of the global index, (parent, name) → 64 bits, and inode numbers.
//!
//! Folded multiplication in the manner of wyhash: sixteen bytes a step, keyed by a
//! random seed of the image so that nobody can choose names that collide.

use crate::layout::LINE;

/// 64 × 64 → 128-bit product, folded to 64 bits.
#[inline(always)]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    product as u64 ^ (product >> 64) as u64
}

const K0: u64 = 0xa076_1d64_78bd_642f;
const K1: u64 = 0xe703_7ed1_a0b4_28db;

/// Key of the name hash, made of the image's seed.
#[derive(Clone, Copy, Debug)]
pub struct NameKey {
    low: u64,
    high: u64,
}

impl NameKey {
    /// The key of an image with this seed.
    pub const fn new(seed: u64) -> NameKey {
        let low = seed ^ K0;
        NameKey { low, high: fold(low, K1) ^ seed }
    }

    /// The next sixteen bytes, as two little-endian words. Both are keyed, so that
    /// nobody knows which word makes a product of 0.
    #[inline(always)]
    const fn step(self, state: u64, low: u64, high: u64) -> u64 {
        fold(state ^ low, self.high ^ high)
    }

    /// The state before a name in this directory. Spread over all bits, so that no
    /// difference between two names makes up for one between two directories.
    #[inline(always)]
    const fn start(self, parent: u64) -> u64 {
        self.low ^ parent.wrapping_mul(K1)
    }

    #[inline(always)]
    const fn finish(state: u64, len: usize) -> u64 {
        fold(state ^ len as u64, K1)
    }
}

/// Hash of `name` in the directory whose inode lies at `parent`: a step for each
/// sixteen bytes, the last one over the last sixteen, or over a name that is
/// shorter, zero-filled.
#[inline(always)]
pub fn name(key: NameKey, parent: u64, name: &[u8]) -> u64 {
    let mut state = key.start(parent);
    let mut rest = name;
    while let Some((chunk, tail)) = rest.split_first_chunk::<16>() {
        let (low, high) = halves(chunk);
        state = key.step(state, low, high);
        rest = tail;
    }
    match name.last_chunk::<16>() {
        Some(last) if !rest.is_empty() => {
            let (low, high) = halves(last);
            state = key.step(state, low, high);
        }
        Some(_) => {}
        None => {
            let (low, high) = short_words(rest);
            state = key.step(state, low, high);
        }
    }
    NameKey::finish(state, name.len())
}

/// As [`name`], of at most 16 bytes given as two zero-filled little-endian words.
#[inline(always)]
pub const fn name_short(key: NameKey, parent: u64, low: u64, high: u64, len: u32) -> u64 {
    NameKey::finish(key.step(key.start(parent), low, high), len as usize)
}

#[inline(always)]
const fn halves(chunk: &[u8; 16]) -> (u64, u64) {
    let all = u128::from_le_bytes(*chunk);
    (all as u64, (all >> 64) as u64)
}

/// At most 16 bytes as two zero-filled little-endian words, without a loop:
/// where the parts overlap, they agree. Longer ones are a mistake: words of no meaning.
#[inline(always)]
pub fn short_words(name: &[u8]) -> (u64, u64) {
    let len = name.len();
    if let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        let last = u64::from_le_bytes(*last);
        return (u64::from_le_bytes(*first), if len <= 8 || len > 16 { 0 } else { last >> (8 * (16 - len)) });
    }
    if let (Some(first), Some(last)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        let last = u64::from(u32::from_le_bytes(*last));
        return (u64::from(u32::from_le_bytes(*first)) | last << (8 * (len - 4)), 0);
    }
    match *name {
        [] => (0, 0),
        [a] => (u64::from(a), 0),
        [a, b] => (u64::from(a) | u64::from(b) << 8, 0),
        [a, b, .., c] => (u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16, 0),
    }
}

/// The 16 bits of a hash that a bucket keeps beside the reference; never 0.
#[inline(always)]
pub const fn fingerprint(hash: u64) -> u64 {
    let bits = hash >> 48;
    if bits == 0 { 1 } else { bits }
}

/// How inode numbers are made, as the superblock says it: of so many bits of the line's number.
/// [`LONG`], or at most [`SHORT_MAX`], with the low bits of the node's generation above them in 32 bits.
pub const LONG: u64 = 48;
/// Fewest bits of a line's number in a short inode number: what remains is the generation's, and an image of up to
/// 16 GiB can become that large without a number that is longer.
pub const SHORT_MIN: u64 = 28;
/// Most: lines of an image of 256 GiB.
pub const SHORT_MAX: u64 = 32;

/// How the numbers of a new image of this size are made.
pub const fn numbers_for(limit: u64) -> u64 {
    let bits = (limit / LINE).next_power_of_two().trailing_zeros() as u64;
    if bits > SHORT_MAX {
        LONG
    } else if bits < SHORT_MIN {
        SHORT_MIN
    } else {
        bits
    }
}

/// Key of inode numbers.
///
/// Long ones: two odd factors of 48 bits, each shifted to the upper end of its word, so that a product is cut by one
/// shift. Short ones: two odd factors of 32 bits in the first word, the bits of a line's number in the second.
#[derive(Clone, Copy, Debug)]
pub struct NumberKey {
    first: u64,
    second: u64,
}

/// Bits of a long inode number that are not used.
const SPARE: u32 = 16;
/// Where the generation stands in a node's id.
const GENERATION: u32 = 40;

impl NumberKey {
    /// The key of an image with this key word whose numbers are made so (see [`LONG`]).
    pub const fn new(key: u64, numbers: u64) -> NumberKey {
        let (first, second) = (fold(key ^ K1, K0) | 1, fold(key ^ K0, K1) | 1);
        if numbers <= SHORT_MAX {
            NumberKey { first: first << 32 | second & 0xffff_ffff, second: numbers }
        } else {
            NumberKey { first: first << SPARE, second: second << SPARE }
        }
    }

    /// Both words, for who keeps them where it reads them.
    pub const fn words(self) -> (u64, u64) {
        (self.first, self.second)
    }

    /// The key of these words.
    #[inline(always)]
    pub const fn of_words(first: u64, second: u64) -> NumberKey {
        NumberKey { first, second }
    }

    /// Whether the numbers are short.
    #[inline(always)]
    pub const fn is_short(self) -> bool {
        self.second <= SHORT_MAX
    }

    /// Bits of the line's number in a short inode number; `None`: the numbers are long.
    #[inline(always)]
    const fn short(self) -> Option<u32> {
        if self.second <= SHORT_MAX { Some(self.second as u32) } else { None }
    }
}

/// The inode number of a node (generation 24 | line 40) under the image's key; never 0 but for line 0, which is no
/// node's. Numbers tell nothing about places (DenseFS §3): product, the upper half over the lower one, product.
///
/// Long: a bijection of line numbers below 2^48, 1 to 2^48. Short: a bijection of 32 bits, the line's and above them
/// the generation's lowest; what of the line does not fit (an image that has become larger) stands above all.
#[inline(always)]
pub const fn inode_number(key: NumberKey, id: u64) -> u64 {
    let line = id << (64 - GENERATION) >> (64 - GENERATION);
    let Some(bits) = key.short() else {
        let product = line.wrapping_mul(key.first);
        let mixed = product >> SPARE ^ product >> 40;
        return (mixed.wrapping_mul(key.second) >> SPARE) + 1;
    };
    let product = (id as u32 ^ (id >> GENERATION << bits) as u32).wrapping_mul((key.first >> 32) as u32);
    let number = (product ^ product >> 16).wrapping_mul(key.first as u32);
    line >> bits << 32 | number as u64
}

/// The node of this generation (24 bits) behind an inode number; `None` if the number is not one of that generation's.
pub const fn inode_node(key: NumberKey, number: u64, generation: u32) -> Option<u64> {
    let line = match key.short() {
        None => {
            let mixed = number.wrapping_sub(1).wrapping_mul(inverse(key.second >> SPARE)) << SPARE >> SPARE;
            let product = mixed ^ mixed >> 24;
            product.wrapping_mul(inverse(key.first >> SPARE)) << SPARE >> SPARE
        }
        Some(bits) => {
            let mixed = (number as u32).wrapping_mul(inverse(key.first) as u32);
            let product = mixed ^ mixed >> 16;
            let low = product.wrapping_mul(inverse(key.first >> 32) as u32) as u64;
            number >> 32 << bits | low & ((1 << bits) - 1)
        }
    };
    if line >> GENERATION != 0 {
        return None;
    }
    let id = (generation as u64 & 0xff_ffff) << GENERATION | line;
    if inode_number(key, id) == number { Some(id) } else { None }
}

/// The number whose product with `odd` is 1 modulo 2^64.
const fn inverse(odd: u64) -> u64 {
    // Right in the lowest 3 bits; each step doubles them.
    let mut x = odd;
    let mut bits = 3;
    while bits < 64 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        bits *= 2;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;
    use std::{format, vec};

    const KEYS: [u64; 5] = [0, 1, 3, 0xdead_beef_cafe_f00d, u64::MAX];

    /// Goal: a number leads back to its node, of whatever size the image is or has become; short ones have 32 bits.
    /// Method: there and back for many lines, generations and keys, and for the last ones.
    #[test]
    fn inode_numbers_go_back() {
        for key in KEYS {
            for numbers in [SHORT_MIN, 30, SHORT_MAX, LONG] {
                let key = NumberKey::new(key, numbers);
                let last = 1 << numbers.min(40);
                let far = (1 << 38)..(1 << 38) + 1000;
                for line in (1..50_000).chain(last - 1000..last).chain(far) {
                    for generation in [1, 2, 0xff_ffff] {
                        let number = inode_number(key, crate::inode::node_id(line * LINE, generation));
                        assert!(number != 0 && number <= 1 << 48);
                        assert!(numbers == LONG || line >= last || number < 1 << 32);
                        let node = inode_node(key, number, generation);
                        assert_eq!(node, Some(crate::inode::node_id(line * LINE, generation)));
                    }
                }
                assert_eq!(inode_node(key, 0, 1).filter(|id| *id << 24 != 0), None);
            }
            assert_eq!(inode_node(NumberKey::new(key, LONG), (1 << 48) + 1, 1), None);
            assert_eq!(inode_node(NumberKey::new(key, SHORT_MIN), 1 << 50, 1), None);
        }
    }

    /// Goal: no two nodes have one number; a line that is used again has another number than before, and what a number
    /// was of before is not found by it. Method: all lines of a small part, all low generations.
    #[test]
    fn short_numbers_differ() {
        for key in KEYS.map(|key| NumberKey::new(key, SHORT_MIN)) {
            let id = |line: u64, generation| crate::inode::node_id(line * LINE, generation);
            let lines = (5_000..15_000).chain((1 << 28) + 5_000..(1 << 28) + 10_000);
            let ids: Vec<u64> = lines.flat_map(|line| (0..16).map(move |generation| id(line, generation))).collect();
            let numbers: BTreeSet<u64> = ids.iter().map(|id| inode_number(key, *id)).collect();
            assert_eq!(numbers.len(), ids.len());
            let number = inode_number(key, id(77, 3));
            assert_eq!((inode_node(key, number, 4), inode_node(key, number, 3)), (None, Some(id(77, 3))));
        }
    }

    /// Goal: new images of up to 256 GiB have short numbers, and can grow to 16 GiB with them.
    #[test]
    fn sizes() {
        let gib = 1 << 30;
        let sizes = [16 << 20, gib, 16 * gib, 16 * gib + 4096, 64 * gib, 256 * gib, 256 * gib + 4096, 16 << 40];
        assert_eq!(sizes.map(numbers_for), [28, 28, 28, 29, 30, 32, LONG, LONG]);
    }

    /// Goal: numbers of neighbouring lines tell nothing about places, and are
    /// others under another key. Method: the differences of neighbours' numbers are
    /// nearly all different; of short ones, whose halves have 16 bits, many.
    #[test]
    fn inode_numbers_scatter() {
        const KEYS: [u64; 3] = [3, 0x0123_4567_89ab_cdef, 0xdead_beef_cafe_f00d];
        for (numbers, least) in [(SHORT_MIN, 2_000), (LONG, 5_000)] {
            let keys = KEYS.map(|key| NumberKey::new(key, numbers));
            for key in keys {
                let number = |line| inode_number(key, line);
                let steps: BTreeSet<u64> = (10_000..20_000).map(|line| number(line + 1).wrapping_sub(number(line))).collect();
                assert!(steps.len() > least, "{}", steps.len());
            }
            let [a, b, _] = keys;
            assert!((10_000..20_000).all(|line| inode_number(a, line) != inode_number(b, line)));
        }
    }

    /// Goal: both forms of the hash agree.
    #[test]
    fn short_names_hash_alike() {
        let text = *b"\xffbcdefghijkl\xfenop";
        let key = NameKey::new(7);
        for len in 0..=16 {
            let mut words = [0; 16];
            words[..len].copy_from_slice(&text[..len]);
            let all = u128::from_le_bytes(words);
            assert_eq!(name_short(key, 4096, all as u64, (all >> 64) as u64, len as u32), name(key, 4096, &text[..len]), "{len}");
        }
    }

    /// Goal: names of every length, and names that differ in one byte, differ.
    #[test]
    fn names_differ() {
        let text = [b'a'; 255];
        let key = NameKey::new(7);
        for len in 1..255 {
            let base = name(key, 4096, &text[..len]);
            assert_ne!(base, name(key, 4096, &text[..len + 1]));
            assert_ne!(base, name(key, 4160, &text[..len]));
            assert_ne!(base, name(NameKey::new(8), 4096, &text[..len]));
            for at in 0..len {
                let mut other = text;
                other[at] = b'b';
                assert_ne!(base, name(key, 4096, &other[..len]), "len {len} at {at}");
            }
        }
    }

    /// How unevenly `values` fall on `cells`, in standard deviations: about 0 if by chance, less if more evenly.
    fn unevenness(values: &[u64], cells: usize, cell: impl Fn(u64) -> u64) -> f64 {
        let mut counts = vec![0u32; cells];
        for value in values {
            counts[cell(*value) as usize] += 1;
        }
        let mean = values.len() as f64 / cells as f64;
        let squares: f64 = counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum();
        (squares / mean / (cells - 1) as f64 - 1.0) / (2.0 / (cells - 1) as f64).sqrt()
    }

    /// Goal: names fall on buckets and fingerprints as if by chance, or more evenly. Method: the
    /// names of `/usr`, each in its directory, and names that a program counts out,
    /// in one directory and in many, under several seeds: loads of buckets, of
    /// fingerprints, and of both together.
    #[test]
    fn names_scatter() {
        let counted =
            |prefix: &str, suffix: &str| (0..20_000).map(|i| (4096, format!("{prefix}{i}{suffix}").into_bytes())).collect();
        let mut sets: Vec<Vec<(u64, Vec<u8>)>> = vec![
            counted("", ""),
            counted("file", ".txt"),
            counted("a-rather-long-name-with-a-number-", ""),
            counted("0123456789abcdef", "-and-the-same-end"),
            (0..20_000).map(|i| (i * 64, b"Makefile".to_vec())).collect(),
            (0..20_000).map(|i| (i * 4096, b"a".to_vec())).collect(),
            (0..20_000).map(|i| (i * 193 * 64, b"package.json".to_vec())).collect(),
            (0..40_000).map(|i: u64| (i % 200 * 64, format!("{:x}", i / 200).into_bytes())).collect(),
        ];
        let (mut usr, mut dirs, mut parent) = (Vec::new(), vec![std::path::PathBuf::from("/usr")], 0);
        while let Some(dir) = dirs.pop().filter(|_| usr.len() < 50_000) {
            parent += 192;
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                usr.push((parent, entry.file_name().into_encoded_bytes()));
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    dirs.push(entry.path());
                }
            }
        }
        assert!(usr.len() > 1000, "too few names in /usr");
        sets.push(usr);
        for (set, names) in sets.iter().enumerate() {
            for seed in [0, 1, 0xfeed_beef, 0xdead_beef_cafe_f00d] {
                let key = NameKey::new(seed);
                let hashes: Vec<u64> = names.iter().map(|(parent, text)| name(key, *parent, text)).collect();
                let distinct: BTreeSet<u64> = hashes.iter().copied().collect();
                assert_eq!(distinct.len(), hashes.len());
                for (what, odd) in [
                    ("buckets", unevenness(&hashes, 1 << 12, |hash| hash & 0xfff)),
                    ("many buckets", unevenness(&hashes, 1 << 16, |hash| hash & 0xffff)),
                    ("fingerprints", unevenness(&hashes, 1 << 16, |hash| hash >> 48)),
                    ("both", unevenness(&hashes, 1 << 16, |hash| hash & 0xff | hash >> 48 & 0xff00)),
                ] {
                    assert!(odd < 6.0, "set {set}, seed {seed:#x}: {what} off by {odd:.1}");
                }
            }
        }
    }
}

//! The name hash of the global index: (parent, name) → 64 bits.
//!
//! Folded multiplication in the manner of wyhash: eight bytes a step, keyed by a
//! random seed of the image so that nobody can choose names that collide.

/// 64 × 64 → 128-bit product, folded to 64 bits.
#[inline(always)]
pub const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    product as u64 ^ (product >> 64) as u64
}

const K0: u64 = 0xa076_1d64_78bd_642f;
const K1: u64 = 0xe703_7ed1_a0b4_28db;

/// Hash of `name` in the directory whose inode lies at `parent`.
#[inline]
pub fn name(seed: u64, parent: u64, name: &[u8]) -> u64 {
    let mut state = seed ^ fold(parent ^ K0, K1);
    let mut rest = name;
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        state = fold(state ^ u64::from_le_bytes(*chunk), K0);
        rest = tail;
    }
    if !rest.is_empty() {
        state = fold(state ^ tail_word(rest), K1);
    }
    fold(state ^ name.len() as u64, K1 ^ seed)
}

/// As [`name`], of at most 15 bytes given as two zero-filled little-endian words.
#[inline(always)]
pub const fn name_short(seed: u64, parent: u64, low: u64, high: u64, len: u32) -> u64 {
    let mut state = seed ^ fold(parent ^ K0, K1);
    let (mut rest, mut left) = (low, len);
    if len >= 8 {
        state = fold(state ^ low, K0);
        (rest, left) = (high, len - 8);
    }
    if left >= 4 {
        state = fold(state ^ ((rest & 0xffff_ffff) << 32 | rest >> (8 * (left - 4))), K1);
    } else if left > 0 {
        let (first, middle, last) = (rest & 0xff, rest >> (left / 2 * 8) & 0xff, rest >> (left * 8 - 8));
        state = fold(state ^ (first << 16 | middle << 8 | last | 1 << 63), K1);
    }
    fold(state ^ len as u64, K1 ^ seed)
}

/// The last 1–7 bytes as a word, without a loop.
#[inline(always)]
fn tail_word(rest: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        return u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
    }
    let (first, middle, last) = (rest[0], rest[rest.len() / 2], rest[rest.len() - 1]);
    u64::from(first) << 16 | u64::from(middle) << 8 | u64::from(last) | 1 << 63
}

/// The 16 bits of a hash that a bucket keeps beside the reference; never 0.
#[inline(always)]
pub const fn fingerprint(hash: u64) -> u64 {
    let bits = hash >> 48;
    if bits == 0 { 1 } else { bits }
}

/// An inode number under the image's key: a bijection of line numbers (Feistel
/// network over 2 × 24 bits), so that numbers tell nothing about places
/// (DenseFS §3). Never 0.
pub const fn inode_number(key: u64, line: u64) -> u64 {
    let (mut left, mut right) = (line >> 24 & 0xff_ffff, line & 0xff_ffff);
    let mut round = 0;
    while round < 3 {
        let mixed = fold(right ^ key.rotate_left(round * 21), K0) & 0xff_ffff;
        (left, right) = (right, left ^ mixed);
        round += 1;
    }
    (left << 24 | right) + 1
}

/// The line number behind an inode number; `None` if it is not one.
pub const fn inode_line(key: u64, number: u64) -> Option<u64> {
    if number == 0 || number > 1 << 48 {
        return None;
    }
    let number = number - 1;
    let (mut left, mut right) = (number >> 24, number & 0xff_ffff);
    let mut round = 3;
    while round > 0 {
        round -= 1;
        let mixed = fold(left ^ key.rotate_left(round * 21), K0) & 0xff_ffff;
        (left, right) = (right ^ mixed, left);
    }
    Some(left << 24 | right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: inode numbers are a bijection. Method: there and back for many lines and keys.
    #[test]
    fn inode_numbers_go_back() {
        for key in [0, 1, 0xdead_beef_cafe_f00d] {
            for line in (0..100_000).chain((1 << 38)..(1 << 38) + 1000) {
                assert_eq!(inode_line(key, inode_number(key, line)), Some(line));
            }
        }
    }

    /// Goal: both forms of the hash agree.
    #[test]
    fn short_names_hash_alike() {
        let text = *b"\xffbcdefghijkl\xfeno";
        for len in 0..16 {
            let mut words = [0; 16];
            words[..len].copy_from_slice(&text[..len]);
            let all = u128::from_le_bytes(words);
            assert_eq!(name_short(7, 4096, all as u64, (all >> 64) as u64, len as u32), name(7, 4096, &text[..len]), "{len}");
        }
    }

    /// Goal: names of every length, and names that differ in one byte, differ.
    #[test]
    fn names_differ() {
        let text = [b'a'; 255];
        for len in 1..255 {
            let base = name(7, 4096, &text[..len]);
            assert_ne!(base, name(7, 4096, &text[..len + 1]));
            assert_ne!(base, name(7, 4160, &text[..len]));
            assert_ne!(base, name(8, 4096, &text[..len]));
            for at in 0..len {
                let mut other = text;
                other[at] = b'b';
                assert_ne!(base, name(7, 4096, &other[..len]), "len {len} at {at}");
            }
        }
    }
}

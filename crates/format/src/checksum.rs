//! Checksum of records and superblocks: 64 bits, one multiplication a word.
//!
//! It tells a torn record from a whole one; it is no defence against an attacker.

use crate::hash::fold;

const START: u64 = 0x243f_6a88_85a3_08d3;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A checksum in the making.
#[derive(Clone, Copy, Debug)]
pub struct Sum(u64);

impl Sum {
    /// Starts one; `salt` tells records of different use apart (a lane's sequence number).
    #[inline]
    pub const fn new(salt: u64) -> Sum {
        Sum(START ^ salt)
    }

    /// Adds a word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, STEP).wrapping_add(word.rotate_left(32));
    }

    /// The result, never 0 (0 marks a record that is not there).
    #[inline]
    pub fn finish(self) -> u64 {
        let sum = fold(self.0, STEP);
        if sum == 0 { 1 } else { sum }
    }
}

/// Checksum of bytes, taken as little-endian words (the last one zero-filled).
pub fn bytes(bytes: &[u8]) -> u64 {
    let mut sum = Sum::new(bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.word(u64::from_le_bytes(word));
    }
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every single-bit change is seen. Method: flip each bit of a small record.
    #[test]
    fn sees_every_flip() {
        let mut record = [0u8; 96];
        for (i, byte) in record.iter_mut().enumerate() {
            *byte = i as u8;
        }
        let whole = bytes(&record);
        for bit in 0..record.len() * 8 {
            record[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(bytes(&record), whole, "bit {bit}");
            record[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

//! The fingerprints of a bucket's entries, asked all at once.

use core::num::NonZeroU32;
use core::sync::atomic::AtomicU64;

/// What the upper 16 bits of four words are: two bits a word from bit 0 on where they are the ones asked for, and from
/// bit 8 on where they are 0.
#[derive(Debug, Clone, Copy)]
pub struct Prints(u32);

impl Prints {
    /// Asks four words for an upper end. Each of them is read once, and none before what has been read so far.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn of(words: &[AtomicU64; 4], fingerprint: u16) -> Self {
        crate::touched();
        let mask: u32;
        // The upper halves of all words; of these the upper halves, and those again; beside that the fingerprint four
        // times, and four zeros.
        // SAFETY: reads the 32 bytes of `words`. The processor reads each aligned word at once and in order, whoever writes
        // meanwhile; every x86-64 has SSE2.
        unsafe {
            core::arch::asm!(
                "movdqu {all}, [{words}]",
                "movdqu {rest}, [{words} + 16]",
                "shufps {all}, {rest}, 0xdd",
                "psrad {all}, 16",
                "packssdw {all}, {all}",
                "movd {asked}, {fingerprint:e}",
                "pshuflw {asked}, {asked}, 0",
                "pcmpeqw {asked}, {all}",
                "pmovmskb {mask:e}, {asked}",
                words = in(reg) words,
                fingerprint = in(reg) u32::from(fingerprint),
                all = out(xmm_reg) _,
                rest = out(xmm_reg) _,
                asked = out(xmm_reg) _,
                mask = lateout(reg) mask,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        Prints(mask)
    }

    /// As above, a word at a time.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub fn of(words: &[AtomicU64; 4], fingerprint: u16) -> Self {
        crate::touched();
        let mut mask = 0;
        for (i, word) in words.iter().enumerate() {
            let print = (word.load(core::sync::atomic::Ordering::Acquire) >> 48) as u16;
            mask |= if print == fingerprint { 3 << (2 * i) } else { 0 } | if print == 0 { 0x300 << (2 * i) } else { 0 };
        }
        Prints(mask)
    }

    /// Two bits for each word that has the upper end asked for.
    #[inline(always)]
    pub fn matching(self) -> u8 {
        self.0 as u8
    }

    /// Whether a word has the upper end asked for.
    #[inline(always)]
    pub fn have(self) -> bool {
        self.matching() != 0
    }

    /// The first word whose upper end is 0.
    #[inline(always)]
    pub fn first_free(self) -> Option<u32> {
        // Bits 8 and 9 are those of the first one, and so on: after them the numbers begin anew.
        Some(NonZeroU32::new(self.0 & 0xff00)?.trailing_zeros() / 2 % 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is asked of four fingerprints at once is what is true of each. Method: all
    /// buckets whose entries are free or have one of some telling fingerprints.
    #[test]
    fn prints_agree() {
        let telling = [0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xffff];
        let entry = |i: usize| telling[i % 7] << 48 | if telling[i % 7] == 0 { 0 } else { i as u64 | 0xffff << 32 };
        for i in 0..7usize.pow(4) {
            let entries = [entry(i), entry(i / 7), entry(i / 49), entry(i / 343)];
            let words = entries.map(AtomicU64::new);
            let free = entries.iter().position(|entry| *entry == 0);
            for print in 1..=0xffff {
                if telling.contains(&print) || print % 0x777 == 0 {
                    let prints = Prints::of(&words, print as u16);
                    let has = entries.iter().any(|entry| entry >> 48 == print);
                    assert_eq!(prints.have(), has, "{print:x} {entries:x?}");
                    assert_eq!(prints.first_free(), free.map(|index| index as u32), "{entries:x?}");
                }
            }
        }
    }
}

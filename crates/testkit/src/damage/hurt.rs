//! What can happen to an image: by seed.

use super::reader::Bytes;
use super::tree::Sample;
use crate::rng::Rng;
use format::layout::{BLOCK, LANE_AREA, LINE, VOLATILE};

/// Damages a copy of the sample; returns which bytes were hit, and a length if
/// the file is cut short.
pub fn hurt(sample: &Sample, image: &mut [u8], rng: &mut Rng) -> (Vec<Bytes>, Option<u64>) {
    let mut hit = Vec::new();
    for _ in 0..1 + rng.below(4) {
        let at = line(sample, rng);
        let here = at as usize..(at + LINE) as usize;
        match rng.below(12) {
            // Bits.
            0..6 => {
                for _ in 0..1 + rng.below(3) {
                    let byte = at + rng.below(LINE);
                    image[byte as usize] ^= 1 << rng.below(8);
                }
            }
            // A line is gone.
            6 | 7 => image[here].fill(0),
            // Lines have changed places.
            8 => {
                let other = line(sample, rng) as usize;
                for i in 0..LINE as usize {
                    image.swap(here.start + i, other + i);
                }
                hit.push(other as u64..other as u64 + LINE);
            }
            // A line, or a whole block, is what it was a while ago.
            9 => image[here.clone()].copy_from_slice(&sample.before[here]),
            10 => {
                let block = at & !(BLOCK - 1);
                let whole = block as usize..(block + BLOCK) as usize;
                image[whole.clone()].copy_from_slice(&sample.before[whole]);
                hit.push(block..block + BLOCK);
            }
            // Noise.
            _ => image[here].iter_mut().for_each(|byte| *byte = rng.draw() as u8),
        }
        hit.push(at..at + LINE);
    }
    let cut = rng.one_in(50).then(|| rng.below(image.len() as u64));
    (hit, cut)
}

/// Mostly metadata in use; now and then anything.
fn line(sample: &Sample, rng: &mut Rng) -> u64 {
    loop {
        let at = match rng.below(8) {
            0 => rng.below(sample.now.len() as u64 / LINE) * LINE,
            _ => rng.pick(&sample.lines),
        };
        if !(VOLATILE..LANE_AREA).contains(&at) {
            return at;
        }
    }
}

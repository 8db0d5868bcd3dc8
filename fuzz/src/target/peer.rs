//! A peer writes into the segment, and into the image, between our calls.

use crate::input::Input;
use crate::operation::Caller;
use crate::patch::Patch;
use crate::place;
use engine::testing::{segment_areas, segment_word};

/// Rounds of a patch and a few calls.
const ROUNDS: usize = 16;

/// The target.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    place::with_place(|place| {
        let Ok(attached) = place.attach() else { return };
        let areas = segment_areas(attached.fs);
        let mut caller = Caller::new(attached.fs, attached.cx());
        for _ in 0..ROUNDS {
            if input.is_empty() {
                break;
            }
            let how = input.byte();
            for _ in 0..how & 3 {
                Patch::of_segment(&areas, &mut input).apply(|at| segment_word(attached.fs, at));
            }
            if how & 0x80 != 0 {
                Patch::of_image(place, &mut input).apply(|at| place.words().get(at));
            }
            for _ in 0..how >> 2 & 7 {
                caller.call(&mut input);
            }
        }
    });
}

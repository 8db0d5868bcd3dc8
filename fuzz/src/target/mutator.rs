//! A thread writes into image and segment without a pause while calls are made:
//! what was looked at once may be another the next time.

use crate::input::Input;
use crate::operation::{CALLS_MAX, Caller};
use crate::patch::Patch;
use crate::place;
use engine::testing::{segment_areas, segment_word};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How often the thread makes its changes, at most: some 100 ms. Waits for a word that never rests do end
/// (docs/decisions/0125), but each after tenths of a second, while this thread's own processor time counts as
/// the input's.
const ROUNDS: u32 = 1_000_000;

/// The target.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    place::with_place(|place| {
        let Ok(attached) = place.attach() else { return };
        let (fs, areas) = (attached.fs, segment_areas(attached.fs));
        let count = usize::from(input.byte() % 12) + 1;
        let patches: Vec<(bool, Patch)> = (0..count)
            .map(|i| match i % 3 {
                0 => (true, Patch::of_segment(&areas, &mut input)),
                _ => (false, Patch::of_image(place, &mut input)),
            })
            .collect();
        let (done, words) = (AtomicBool::new(false), place.words());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    if done.load(Relaxed) {
                        break;
                    }
                    for (in_segment, patch) in &patches {
                        patch.apply(|at| if *in_segment { segment_word(fs, at) } else { words.get(at) });
                    }
                }
            });
            let mut caller = Caller::new(attached.fs, attached.cx());
            for _ in 0..CALLS_MAX {
                if input.is_empty() {
                    break;
                }
                caller.call(&mut input);
            }
            done.store(true, Relaxed);
        });
    });
}

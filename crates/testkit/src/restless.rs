//! A restless schedule: where this process may be interrupted is drawn at random.
//!
//! Left alone, the kernel takes a processor away every few milliseconds, hence
//! nearly never between two stores that are nanoseconds apart. Here every access
//! to a table of the image or segment, and every store to the image, may be where
//! this process gives way or sleeps. So others are met, and death comes, in the
//! middle of things.

use crate::rng::Rng;
use std::cell::RefCell;

/// One in so many accesses gives way; one in so many sleeps.
const GIVES_WAY: u64 = 50;
const SLEEPS: u64 = 400;
/// Longest sleep, microseconds.
const LONGEST: u64 = 100;

thread_local! {
    static DRAWN: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

/// From now on this thread is interrupted so, as `seed` draws it.
pub fn begin(seed: u64) {
    DRAWN.set(Some(Rng::new(seed)));
    pm::record::on_touch(touched);
}

fn touched() {
    let draw = DRAWN.with_borrow_mut(|rng| rng.as_mut().map(Rng::draw));
    match draw {
        Some(draw) if draw.is_multiple_of(SLEEPS) => {
            std::thread::sleep(std::time::Duration::from_micros((draw >> 32) % LONGEST));
        }
        Some(draw) if draw.is_multiple_of(GIVES_WAY) => std::thread::yield_now(),
        _ => {}
    }
}

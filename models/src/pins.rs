//! Two adopters who settle doubts about pins on one cachelet.
//!
//! Follows `engine/src/process/descriptions.rs` (`settle_pin`, `try_recount`,
//! `count_pins`): what nobody's mark stands for is taken off once. The lock is a
//! mutex here; the adopter of a lane that died with it gives it back there.

use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Release, SeqCst};
use loom::sync::{Arc, Mutex};
use loom::thread;

const PINNED: u32 = 1;
const SETTLING: u32 = 3;

struct Pins {
    opens: AtomicU32,
    /// `pin` of the descriptions.
    marks: [AtomicU32; 3],
    generations: [AtomicU32; 3],
    lock: Mutex<()>,
}

impl Pins {
    /// `count_pins`, where nobody is in doubt.
    fn count(&self) -> (u32, u32) {
        let certain = self.marks.iter().filter(|mark| mark.load(SeqCst) == PINNED).count();
        (certain as u32, self.generations.iter().map(|generation| generation.load(SeqCst)).sum())
    }

    /// `try_recount`.
    fn try_recount(&self) -> bool {
        let _guard = self.lock.lock().unwrap();
        let before = self.count();
        let opens = self.opens.load(SeqCst);
        let is_certain = before == self.count();
        if is_certain {
            self.opens.fetch_sub(opens.saturating_sub(before.0), SeqCst);
        }
        is_certain
    }

    /// `settle_pin` of a description whose process died in doubt.
    fn settle(&self, number: usize) {
        while !self.try_recount() {
            thread::yield_now();
        }
        self.generations[number].fetch_add(1, Release);
        self.marks[number].store(0, Release);
    }
}

/// Goal: two who died after they had counted are taken off, and nobody else.
#[test]
fn a_surplus_is_taken_off_once() {
    loom::model(|| {
        let marks = [SETTLING, SETTLING, PINNED].map(AtomicU32::new);
        let generations = [0; 3].map(AtomicU32::new);
        let pins = Arc::new(Pins { opens: AtomicU32::new(3), marks, generations, lock: Mutex::new(()) });
        let other = Arc::clone(&pins);
        let adopter = thread::spawn(move || other.settle(0));
        pins.settle(1);
        adopter.join().unwrap();
        assert_eq!(pins.opens.load(SeqCst), 1);
    });
}

//! What no call to another process can go below without that one's own work: a line of
//! memory goes to the other processor and back.
//!
//! How long that takes depends on where the host has the processors, and may change from
//! second to second; so it is measured again and again, beside the calls.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::{Duration, Instant};

/// There and back, this often at once.
const TIMES: u32 = 200;
/// So many turns, of which the median counts: in some of them one of the two does not run.
const TURNS: usize = 50;
/// With one processor alone it would never end.
const LONGEST: Duration = Duration::from_millis(200);

#[repr(align(64))]
struct Line(AtomicU32);

/// Nanoseconds there and back; `None` where two don't run at once.
pub fn there_and_back() -> Option<f64> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let (line, ends) = (Line(AtomicU32::new(0)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Odd numbers are ours to write, even ones the other's.
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                match line.0.load(Acquire) {
                    number if number % 2 == 1 => line.0.store(number + 1, Release),
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let begun = Instant::now();
        let mut turns = Vec::with_capacity(TURNS);
        let mut number = 0;
        'all: while turns.len() < TURNS {
            let turn = Instant::now();
            for _ in 0..TIMES {
                line.0.store(number + 1, Release);
                number += 2;
                let mut looks = 0u32;
                while line.0.load(Acquire) != number {
                    looks += 1;
                    if looks.is_multiple_of(1024) && begun.elapsed() > LONGEST {
                        break 'all;
                    }
                    std::hint::spin_loop();
                }
            }
            turns.push(turn.elapsed().as_nanos() as f64 / f64::from(TIMES));
        }
        ends.store(true, Relaxed);
        (!turns.is_empty()).then(|| crate::run::median(&mut turns))
    })
}

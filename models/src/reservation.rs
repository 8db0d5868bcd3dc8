//! Reservations in the reservation bitmap: two lanes, and one that dies.
//!
//! Follows `engine/src/alloc/reservation.rs` (`try_reserve`, `settle_reservations`,
//! `release_own`).

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

#[derive(Default)]
struct Lane {
    run: AtomicU64,
    bits: AtomicU64,
    count: AtomicU32,
}

/// `try_reserve` of bit 0 of block 1, which dies after `steps` stores.
fn reserve(bitmap: &AtomicU64, lane: &Lane, bits: u64, steps: u32) -> bool {
    if steps == 0 {
        return false;
    }
    lane.bits.store(bits, Relaxed);
    lane.run.store(1 | 1 << 40, Release);
    if steps == 1 {
        return false;
    }
    let seen = bitmap.load(Relaxed);
    if seen & bits != 0 || bitmap.compare_exchange(seen, seen | bits, AcqRel, Relaxed).is_err() {
        return false;
    }
    if steps > 2 {
        lane.count.store(1, Release);
    }
    true
}

/// What the adopter of a dead lane does, the others' lists before him.
fn adopt(bitmap: &AtomicU64, dead: &Lane, other: &Lane) {
    let covered = dead.count.swap(0, AcqRel) == 1;
    let (run, bits) = (dead.run.swap(0, AcqRel), dead.bits.load(Relaxed));
    if covered {
        bitmap.fetch_and(!bits, AcqRel);
    } else if run != 0 {
        // `release_own`: read before the other's list, released only as it was read.
        let seen = bitmap.load(Acquire);
        if seen & bits == bits && other.run.load(Acquire) == 0 {
            let _ = bitmap.compare_exchange(seen, seen & !bits, AcqRel, Relaxed);
        }
    }
}

/// Goal: of two lanes that want the same lines one gets them.
#[test]
fn one_of_two() {
    loom::model(|| {
        let bitmap = Arc::new(AtomicU64::new(0));
        let (a, b) = (Arc::new(Lane::default()), Lane::default());
        let (s, l) = (bitmap.clone(), a.clone());
        let first = thread::spawn(move || reserve(&s, &l, 3, 3));
        let second = reserve(&bitmap, &b, 6, 3);
        let first = first.join().unwrap();
        assert!(!(first && second), "both have line 1");
        let expected = if first { 3 } else { 0 } | if second { 6 } else { 0 };
        assert_eq!(bitmap.load(Relaxed), expected);
    });
}

/// Goal: wherever a lane dies, its adopter gives its lines back and takes away
/// nobody else's. Method: death after each step, while another lane reserves the same.
#[test]
fn death_at_every_step() {
    for steps in 0..=3 {
        loom::model(move || {
            let bitmap = Arc::new(AtomicU64::new(0));
            let (dead, other) = (Lane::default(), Arc::new(Lane::default()));
            reserve(&bitmap, &dead, 1, steps);
            let (s, l) = (bitmap.clone(), other.clone());
            let living = thread::spawn(move || reserve(&s, &l, 1, 3));
            adopt(&bitmap, &dead, &other);
            if living.join().unwrap() {
                assert_eq!(bitmap.load(Relaxed) & 1, 1, "taken away from the living, dead after {steps}");
            }
        });
    }
}

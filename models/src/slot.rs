//! Directory slots: reserved by compare-and-swap, given their value by a record,
//! returned by whoever reserved them or adopts him.
//!
//! Follows `engine/src/lane/slot.rs` (`reserve_slot`, `return_slot`).

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use loom::thread;

/// An odd word that names the lane.
fn reservation(lane: u64) -> u64 {
    lane << 1 | 1
}

fn reserve(slot: &AtomicU64, listed: &AtomicU64, lane: u64) -> bool {
    if slot.load(Acquire) != 0 {
        return false;
    }
    listed.store(1, Release);
    let taken = slot.compare_exchange(0, reservation(lane), AcqRel, Acquire).is_ok();
    if !taken {
        listed.store(0, Release);
    }
    taken
}

fn give_back(slot: &AtomicU64, lane: u64) {
    let _ = slot.compare_exchange(reservation(lane), 0, AcqRel, Relaxed);
}

/// Goal: a slot has one name, and a lane that dies with it reserved loses it
/// without taking another's.
#[test]
fn a_slot_has_one_name() {
    for dies in [false, true] {
        loom::model(move || {
            let (slot, listed) = (Arc::new(AtomicU64::new(0)), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
            let (s, l) = (slot.clone(), listed.clone());
            let first = thread::spawn(move || {
                let got = reserve(&s, &l[0], 1);
                if got && !dies {
                    s.store(0x1000, Release);
                }
                got
            });
            let second = reserve(&slot, &listed[1], 2);
            if second {
                slot.store(0x2000, Release);
            }
            let first = first.join().unwrap();
            if listed[0].load(Acquire) != 0 {
                give_back(&slot, 1);
            }
            let expected = match (first && !dies, second) {
                (true, true) => panic!("two names in a slot"),
                (true, false) => 0x1000,
                (false, true) => 0x2000,
                (false, false) => 0,
            };
            assert_eq!(slot.load(Acquire), expected);
        });
    }
}

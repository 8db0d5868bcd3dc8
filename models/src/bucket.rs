//! A reader of a bucket's entry, without a lock, against who removes the name and makes
//! another one in the same lines.
//!
//! Follows `engine/src/index/change.rs` (`insert`, `remove`, `lead`), `engine/src/fast/long.rs`
//! (`cachelet_by_edentry`) and `engine/src/fast/lookup.rs` (attributes between two looks at the sequence). Stores
//! to the image are releases, as `pm::Region::store` makes them.

use crate::cachelet::{Cachelet, fresh, reuse};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

struct Shared {
    /// Of the bucket: the edentry's place under a fingerprint of the name, and the number of a cachelet.
    entry: AtomicU64,
    number: AtomicU32,
    /// The edentry's lines: half of the name's hash, child, name.
    head: AtomicU64,
    child: AtomicU64,
    name: AtomicU64,
    cachelet: Arc<Cachelet>,
}

/// The entry that leads to the line, for a name: `a` and `b` have the same fingerprint in one case of two.
fn entry(name: u64, alike: bool) -> u64 {
    0x1000 | if alike { 1 } else { name } << 48
}

/// The name 1 of the node 1.
fn one_name(alike: bool) -> Arc<Shared> {
    Arc::new(Shared {
        entry: AtomicU64::new(entry(1, alike)),
        number: AtomicU32::new(1),
        head: AtomicU64::new(1),
        child: AtomicU64::new(1),
        name: AtomicU64::new(1),
        cachelet: fresh(),
    })
}

/// A lockless look-up of `name`: the node that it is said to lead to, by its attributes.
fn look(shared: &Shared, name: u64, alike: bool) -> Option<(u64, u64)> {
    let seen = shared.entry.load(Acquire);
    if seen != entry(name, alike) || shared.number.load(Relaxed) != 1 {
        return None;
    }
    let cachelet = &shared.cachelet;
    let sequence = cachelet.sequence.load(Acquire);
    let node = cachelet.node.load(Relaxed);
    let named =
        node != 0 && shared.child.load(Acquire) == node && shared.head.load(Acquire) == name && shared.name.load(Relaxed) == name;
    fence(Acquire);
    if !named || shared.entry.load(Relaxed) != seen || sequence & 1 != 0 {
        return None;
    }
    let attributes = (cachelet.size.load(Relaxed), cachelet.mode.load(Relaxed));
    fence(Acquire);
    (cachelet.sequence.load(Relaxed) == sequence).then_some(attributes)
}

/// Removes the name 1 and its node; makes `name` of the node 2 in the same lines. Under the bucket's lock.
fn replace(shared: &Shared, name: u64, alike: bool) {
    shared.entry.store(0, Release);
    reuse(&shared.cachelet, 2);
    shared.head.store(name, Release);
    shared.child.store(2, Release);
    shared.name.store(name, Release);
    shared.number.store(1, Release);
    shared.entry.store(entry(name, alike), Release);
}

/// Goal: whoever looks for a name gets the attributes of a node that has had it. Method: another name, with another
/// fingerprint and with the same, and the same name of another node, in the lines of the first; schedules with
/// up to three changes of the thread that runs.
#[test]
fn a_name_leads_to_its_node() {
    for (made, alike, sought) in [(2, false, 1), (2, true, 1), (2, true, 2), (1, true, 1)] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let shared = one_name(alike);
            let other = shared.clone();
            let writer = thread::spawn(move || replace(&other, made, alike));
            let seen = look(&shared, sought, alike);
            let fits = |seen, node: u64| seen == Some((node * 10, node * 100));
            let may_be = |node, name| sought == name && fits(seen, node);
            assert!(seen.is_none() || may_be(1, 1) || may_be(2, made), "{seen:?} under {sought}, {made} made");
            writer.join().unwrap();
            assert!(fits(look(&shared, made, alike), 2));
        });
    }
}

//! A reader of a cachelet against its reuse for another inode.
//!
//! Follows `engine/src/segment/cache.rs` (`consistent`, `load`, `fill`) and
//! `evict.rs` (`empty`): what a reader takes for consistent is all of one inode.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

pub struct Cachelet {
    pub sequence: AtomicU32,
    pub node: AtomicU64,
    pub size: AtomicU64,
    pub mode: AtomicU64,
}

/// `consistent`, once.
fn read(c: &Cachelet, id: u64) -> Option<(u64, u64)> {
    let before = c.sequence.load(Acquire);
    if before & 1 == 0 && c.node.load(Relaxed) == id {
        let value = (c.size.load(Relaxed), c.mode.load(Relaxed));
        fence(Acquire);
        if c.sequence.load(Relaxed) == before {
            return Some(value);
        }
    }
    None
}

/// The cachelet of inode 1.
pub fn fresh() -> Arc<Cachelet> {
    Arc::new(Cachelet {
        sequence: AtomicU32::new(0),
        node: AtomicU64::new(1),
        size: AtomicU64::new(10),
        mode: AtomicU64::new(100),
    })
}

/// Stores the attributes that `id` marks, by the holder of `owner` while the sequence is odd.
fn fill(c: &Cachelet, id: u64) {
    c.size.store(id * 10, Relaxed);
    c.mode.store(id * 100, Relaxed);
    c.sequence.store(c.sequence.load(Relaxed).wrapping_add(1) & !1, Release);
}

/// `empty`, then `load` and `fill`, by the holder of `owner`.
pub fn reuse(c: &Cachelet, id: u64) {
    c.sequence.fetch_add(2, SeqCst);
    c.node.store(0, SeqCst);
    c.sequence.store(c.sequence.load(Relaxed) | 1, SeqCst);
    fence(Release);
    c.node.store(id, SeqCst);
    fill(c, id);
}

/// Goal: no reader sees attributes of two inodes as one's.
#[test]
fn what_is_read_is_of_one_inode() {
    loom::model(|| {
        let c = fresh();
        let other = c.clone();
        let writer = thread::spawn(move || reuse(&other, 2));
        for id in [1, 2] {
            if let Some(seen) = read(&c, id) {
                assert_eq!(seen, (id * 10, id * 100));
            }
        }
        writer.join().unwrap();
        assert_eq!(read(&c, 2), Some((20, 200)));
    });
}

/// `change` … drop of `Change`, by the holder of `owner`: an update in place.
fn change(c: &Cachelet, to: u64) {
    c.sequence.store(c.sequence.load(Relaxed) | 1, Relaxed);
    fence(Release);
    fill(c, to);
}

/// Goal: an update in place is seen whole or not at all.
#[test]
fn a_change_is_seen_whole() {
    loom::model(|| {
        let c = fresh();
        let other = c.clone();
        let writer = thread::spawn(move || change(&other, 2));
        if let Some((size, mode)) = read(&c, 1) {
            assert_eq!(size * 10, mode);
        }
        writer.join().unwrap();
    });
}

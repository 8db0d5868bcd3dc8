//! A reader of a cachelet against its reuse for another inode; one who loads an inode against one who loads and
//! frees it.
//!
//! Follows `engine/src/segment/cache.rs` (`consistent`, `load`, `publish`, `wait_for_loaders`, `fill`) and
//! `evict.rs` (`empty`): what a reader takes for consistent is all of one inode, and nobody writes into what is
//! no inode any more.

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
    c.sequence.store(c.sequence.load(Relaxed) | 1, Relaxed);
    fence(Release);
    c.node.store(0, SeqCst);
    c.sequence.store(c.sequence.load(Relaxed).wrapping_add(1) & !1, Release);
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

/// An inode without a cachelet, and which lanes are loading it.
struct Unloaded {
    /// 0: it is gone.
    head: AtomicU64,
    /// Its cachelet, 0: none; any file's contents once it is gone.
    reference: AtomicU64,
    loading: [AtomicU32; 2],
}

impl Unloaded {
    /// `load`, once; whether lane `own` has published its cachelet.
    fn load(&self, own: usize) -> bool {
        self.loading[own].store(1, SeqCst);
        fence(SeqCst);
        let seen = self.reference.load(Acquire);
        let published = seen == 0
            && self.head.load(Acquire) != 0
            && self.reference.compare_exchange(seen, own as u64 + 1, SeqCst, Relaxed).is_ok();
        if published {
            fence(SeqCst);
            while self.loading[1 - own].load(SeqCst) != 0 {
                thread::yield_now();
            }
        }
        self.loading[own].store(0, SeqCst);
        published
    }
}

/// Goal: a loader writes nothing into the line of an inode that is gone. Method: another loads the inode, frees it, and
/// puts a file's contents there, which look like an inode's that has no cachelet.
#[test]
fn what_is_gone_is_not_published() {
    loom::model(|| {
        let inode = Arc::new(Unloaded {
            head: AtomicU64::new(1),
            reference: AtomicU64::new(0),
            loading: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        let other = inode.clone();
        let remover = thread::spawn(move || {
            let loaded = other.load(0);
            if loaded {
                other.head.store(0, Release);
                other.reference.store(0, Release);
            }
            loaded
        });
        let published = inode.load(1);
        let gone = remover.join().unwrap();
        assert!(!gone || !published, "both");
        assert_eq!(inode.reference.load(Acquire), if published { 2 } else { 0 });
    });
}

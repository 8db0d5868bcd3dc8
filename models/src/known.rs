//! How many items of an array are known (`pm::counted`), and where its steps begin (`pm::steps`): finding one by its hash
//! while others learn of more; and that a split, which marks what it splits, hides no name (`format::bucket`, `engine::index`).

use crate::counted::Counted;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::thread;

/// `Steps`, with a first step of one item. 0: an origin that is not known.
struct Steps {
    counted: Counted,
    origins: [AtomicU64; 4],
    /// How many there really are: the root block's word.
    truth: AtomicU64,
}

fn step(number: u64) -> usize {
    (64 - number.leading_zeros()) as usize
}

impl Steps {
    fn new(count: u64) -> Arc<Steps> {
        let zero = |_| AtomicU64::new(0);
        let steps = Steps {
            counted: Counted::none(AtomicU32::new(0), AtomicU32::new(0)),
            origins: [0; 4].map(zero),
            truth: AtomicU64::new(count),
        };
        steps.learn();
        Arc::new(steps)
    }

    /// `Steps::learn`.
    fn learn(&self) {
        let count = self.truth.load(Acquire);
        let known = self.counted.get().checked_sub(1).map_or(0, |last| step(last.into()) + 1);
        for step in known..=step(count - 1) {
            self.origins[step].store(step as u64 + 1, Release);
        }
        self.counted.learn(count as u32);
    }

    /// `Steps::of_hash`: number, count; the item must be known.
    fn of_hash(&self, hash: u64) -> (u64, u64) {
        let (number, count) = self.counted.number(hash);
        let (number, count) = (u64::from(number), u64::from(count));
        let step = step(number);
        assert_eq!(self.origins[step].load(Acquire), step as u64 + 1, "hash {hash}, count {count}: item {number} is not known");
        (number, count)
    }
}

/// Goal: what is found is known, and if there are as many as was said, it is where the hash belongs. Method: one learns
/// as the number rises across two steps, another learns too and looks.
#[test]
fn what_is_found_is_known() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let steps = Steps::new(2);
        let other = steps.clone();
        let grows = thread::spawn(move || {
            for count in [3, 5] {
                other.truth.store(count, Release);
                other.learn();
            }
        });
        for hash in [7, 6] {
            let (number, count) = steps.of_hash(hash);
            if steps.truth.load(Acquire) == count {
                let wide = hash % count.next_power_of_two();
                assert_eq!(number, if wide < count { wide } else { hash % (count.next_power_of_two() / 2) });
            }
            steps.learn();
        }
        grows.join().unwrap();
        steps.learn();
        assert_eq!([7, 6, 4].map(|hash| steps.of_hash(hash)), [(3, 5), (2, 5), (4, 5)]);
    });
}

/// An index of which each bucket has room for one name's hash.
struct Index {
    steps: Arc<Steps>,
    entries: [AtomicU64; 5],
    /// Of how many buckets each was split last: `Bucket::split`.
    marks: [AtomicU64; 5],
}

impl Index {
    /// `Fs::split_into`, by the holder of the bucket's lock: bucket `number` of `home`. The mark comes before the number, and that before
    /// anything moves.
    fn split(&self, number: u64) {
        let home = number ^ 1 << number.ilog2();
        let entry = &self.entries[home as usize];
        let wide = (number + 1).next_power_of_two();
        let goes = entry.load(Relaxed) != 0 && entry.load(Relaxed) % wide == number;
        if goes {
            self.entries[number as usize].store(entry.load(Relaxed), Relaxed);
        }
        self.marks[home as usize].store(number + 1, Release);
        self.steps.truth.store(number + 1, Release);
        if goes {
            entry.store(0, Release);
        }
    }

    /// `Fs::look`: whether the name is there; `None` if that cannot be said.
    fn look(&self, hash: u64) -> Option<bool> {
        let (number, count) = self.steps.of_hash(hash);
        if self.entries[number as usize].load(Acquire) == hash {
            return Some(true);
        }
        fence(Acquire);
        if self.marks[number as usize].load(Acquire) > count { None } else { Some(false) }
    }
}

/// Goal: a name that is there all the time is never said to be missing. Method: one splits its bucket, and others, another
/// one learns of them, a third looks by what is known.
#[test]
fn no_name_is_hidden_by_a_split() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let zero = |_| AtomicU64::new(0);
        let index = Index { steps: Steps::new(2), entries: [0; 5].map(zero), marks: [0; 5].map(zero) };
        index.entries[1].store(7, Release);
        let index = Arc::new(index);
        let (splits, learns) = (index.clone(), index.clone());
        let splits = thread::spawn(move || (2..5).for_each(|number| splits.split(number)));
        let learns = thread::spawn(move || learns.steps.learn());
        assert_ne!(index.look(7), Some(false));
        splits.join().unwrap();
        learns.join().unwrap();
        index.steps.learn();
        assert_eq!(index.look(7), Some(true));
    });
}

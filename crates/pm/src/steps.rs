//! An array that grows in steps, whose items are found by hash (linear hashing).
//!
//! How many items there are may be older than the truth: whoever looks by it learns when it was. What is known,
//! is known whole, so that finding an item by its hash asks nothing but the hash.
//!
//! Invariant: where all steps of counted items begin is known, in the valid part of their region (see [`crate::table`]):
//! the origins come before the count.

use crate::Region;
use crate::counted::Counted;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use zerocopy::{FromBytes, KnownLayout};

/// The array: its first step has `FIRST` items, each other one as many as all before it.
/// `FIRST` is a power of two. There is a step for every number below 2^32.
#[derive(Debug)]
#[repr(C)]
pub struct Steps<T, const FIRST: u64, const STEPS: usize> {
    /// Items that are known: none, or at least `FIRST`.
    counted: Counted,
    /// Where item 0 would be if the step went on downwards.
    origins: [AtomicPtr<T>; STEPS],
}

impl<T, const FIRST: u64, const STEPS: usize> Steps<T, FIRST, STEPS> {
    /// Step of an item.
    #[inline]
    const fn step(number: u32) -> usize {
        const { assert!(FIRST.is_power_of_two() && FIRST > 1 && FIRST < 1 << 32) }
        // As an index from the start: what is subtracted becomes part of an address.
        let top = (31 - (number | FIRST as u32 >> 1).leading_zeros()) as usize;
        top.wrapping_sub(FIRST.trailing_zeros() as usize - 1)
    }

    /// First item of a step, and how many there are.
    const fn extent(step: usize) -> (u64, u64) {
        if step == 0 { (0, FIRST) } else { (FIRST << (step - 1), FIRST << (step - 1)) }
    }

    /// An item of a step whose origin is known.
    #[inline]
    fn item(&self, number: u32) -> &T {
        const { assert!(Self::step(u32::MAX) < STEPS) }
        // SAFETY: steps rise with numbers, and the greatest number's is one of them.
        let origin = unsafe { self.origins.get_unchecked(Self::step(number)) }.load(Acquire);
        // SAFETY: the origin is known, and every number of this step is within the step, which was checked in `set`.
        unsafe { &*origin.wrapping_add(number as usize) }
    }

    /// The item with this number, if it is known.
    #[cfg(test)]
    fn get(&self, number: u32) -> Option<&T> {
        // What is below the count has a known origin.
        (number < self.counted.get()).then(|| self.item(number))
    }

    /// The item that a hash falls on, and how many there are for all that is known. If that is none, one of ones:
    /// whatever it says of others leads nowhere.
    #[inline]
    pub fn of_hash(&self, hash: u64) -> (&T, u64) {
        let (number, count) = self.counted.number(hash);
        // It was counted; or nothing was, and it is item 0, which is `UNKNOWN`.
        (self.item(number), u64::from(count))
    }
}

impl<T: FromBytes + KnownLayout, const FIRST: u64, const STEPS: usize> Steps<T, FIRST, STEPS> {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        let origins = [const { AtomicPtr::new(unknown::<T>().cast_mut()) }; STEPS];
        Steps { counted: Counted::none(AtomicU32::new(0), AtomicU32::new(0)), origins }
    }

    /// Learns that there are `count` items, at least `FIRST`. Where a step starts that was not known, `start` tells. False,
    /// and nothing learnt, if they are 2^32 or more, or one of them is not whole in the valid part, or unaligned.
    pub fn learn(&self, region: &Region, count: u64, start: impl Fn(usize) -> Option<u64>) -> bool {
        let Some(count) = u32::try_from(count).ok().filter(|count| u64::from(*count) >= FIRST) else { return false };
        let known = self.counted.get().checked_sub(1).map_or(0, |last| Self::step(last) + 1);
        let learnt = (known..=Self::step(count - 1)).all(|step| start(step).is_some_and(|offset| self.set(region, step, offset)));
        if learnt {
            self.counted.learn(count);
        }
        learnt
    }

    fn set(&self, region: &Region, step: usize, offset: u64) -> bool {
        let (first, count) = Self::extent(step);
        let whole = count.checked_mul(size_of::<T>() as u64).is_some_and(|bytes| region.holds(offset, bytes));
        match (self.origins.get(step), region.at::<T>(offset)) {
            (Some(origin), Some(item)) if whole => {
                origin.store(ptr::from_ref(item).wrapping_sub(first as usize).cast_mut(), Release);
                true
            }
            _ => false,
        }
    }
}

impl<T: FromBytes + KnownLayout, const FIRST: u64, const STEPS: usize> Default for Steps<T, FIRST, STEPS> {
    fn default() -> Self {
        Self::new()
    }
}

/// What is found before anything is known. Of atomics, so that whoever writes to it does no harm.
#[repr(C, align(64))]
struct Unknown([AtomicU64; 8]);

const fn unknown<T: FromBytes>() -> *const T {
    const { assert!(size_of::<T>() <= size_of::<Unknown>() && align_of::<T>() <= align_of::<Unknown>()) }
    static UNKNOWN: Unknown = Unknown([const { AtomicU64::new(u64::MAX) }; 8]);
    ptr::from_ref(&UNKNOWN).cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Domain;
    use core::sync::atomic::Ordering::Relaxed;
    use std::vec;

    type Words = Steps<AtomicU64, 8, 30>;

    /// Where three steps start, out of order.
    const STARTS: [u64; 3] = [40 * 8, 0, 16 * 8];

    fn region(words: &mut [u64]) -> Region {
        words.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
        let bytes = words.len() as u64 * 8;
        // SAFETY: the buffer outlives the region in each test.
        unsafe { Region::new(words.as_mut_ptr().cast(), bytes, bytes, Domain::Process) }
    }

    fn start(step: usize) -> Option<u64> {
        STARTS.get(step).copied()
    }

    /// Goal: steps that lie anywhere are one array, of which nothing is to be had before it is known, nor beyond.
    #[test]
    fn steps_are_one_array() {
        let mut words = vec![0; 64];
        let region = region(&mut words);
        let steps = Words::new();
        assert!(steps.get(0).is_none());
        let (item, count) = steps.of_hash(u64::MAX);
        assert_eq!((item.load(Relaxed), count), (u64::MAX, 0));
        assert!(steps.learn(&region, 32, start));
        for number in 0..32 {
            let expected = if number < 8 { 40 + number } else { number - 8 + if number < 16 { 0 } else { 8 } };
            assert_eq!(steps.get(number).unwrap().load(Relaxed), u64::from(expected), "{number}");
        }
        assert!(steps.get(32).is_none() && steps.get(1 << 31).is_none() && steps.get(u32::MAX).is_none());
    }

    /// Goal: nothing is learnt of a step that is not there, of too few items or of more than there can be.
    #[test]
    fn what_is_not_whole_is_not_learnt() {
        let mut words = vec![0; 64];
        let region = region(&mut words);
        let steps = Words::new();
        let outside = |step| if step == 2 { Some(49 * 8) } else { start(step) };
        let unaligned = |step| Some(start(step)? + 4);
        assert!(!steps.learn(&region, 32, outside) && !steps.learn(&region, 8, unaligned));
        assert!(!steps.learn(&region, 33, start) && !steps.learn(&region, 7, start) && !steps.learn(&region, u64::MAX, start));
        assert!(!steps.learn(&region, (1 << 32) + 32, start));
        assert!(steps.get(0).is_none());
        assert!(steps.learn(&region, 16, outside) && steps.get(15).is_some() && steps.get(16).is_none());
    }

    /// Goal: a hash falls on the item of the greatest count learnt, whatever came in between.
    #[test]
    fn learns_the_greatest() {
        let mut words = vec![0; 64];
        let region = region(&mut words);
        let steps = Words::new();
        let mut greatest = 0;
        for learnt in [8, 9, 15, 8, 16, 17, 12, 31, 32, 20] {
            assert!(steps.learn(&region, learnt, start));
            greatest = greatest.max(learnt);
            for hash in (0..300u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                // By the definition: the bits of the next power of two, unless there is no such item yet.
                let wide = hash % greatest.next_power_of_two();
                let number = if wide < greatest { wide } else { hash % (greatest.next_power_of_two() / 2) };
                let (item, count) = steps.of_hash(hash);
                assert_eq!((item.load(Relaxed), count), (steps.get(number as u32).unwrap().load(Relaxed), greatest));
            }
        }
    }
}

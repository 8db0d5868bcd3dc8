//! Arrays and structures of a region that were checked once, so that what every
//! call reads costs no bounds check but its number's.
//!
//! Invariant: what is referred to lies in the valid part of its region, which
//! only grows, and is aligned. As with [`Region::at`], the mapping must stay for
//! as long as the region is used; whoever replaces a region replaces these too.

use crate::Region;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use zerocopy::{FromBytes, KnownLayout};

/// A structure of atomics at a fixed place of a region.
#[derive(Debug)]
pub struct Pinned<T>(*const T);

// SAFETY: what it refers to is shared by nature and made of atomics.
unsafe impl<T> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pinned<T> {}

/// A page of atomics, so that whoever writes to a structure in it does no harm.
#[repr(C, align(4096))]
struct Zero([AtomicU64; 512]);

impl<T: FromBytes + KnownLayout> Pinned<T> {
    /// The structure at `offset`; `None` as for [`Region::at`].
    pub fn new(region: &Region, offset: u64) -> Option<Pinned<T>> {
        region.at::<T>(offset).map(|item| Pinned(item))
    }

    /// A structure of zeros, in memory of its own, to stand where there is no region.
    pub fn zero() -> Pinned<T> {
        const { assert!(size_of::<T>() <= size_of::<Zero>() && align_of::<T>() <= align_of::<Zero>()) }
        static ZERO: Zero = Zero([const { AtomicU64::new(0) }; 512]);
        Pinned(ptr::from_ref(&ZERO).cast())
    }
}

impl<T> core::ops::Deref for Pinned<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: checked when it was made; the mapping stays.
        unsafe { &*self.0 }
    }
}

/// An array of structures of atomics in a region.
#[derive(Debug)]
pub struct Table<T> {
    first: NonNull<T>,
    count: u32,
}

// SAFETY: as for `Pinned`.
unsafe impl<T> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Table<T> {}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Table<T> {}

impl<T> Table<T> {
    /// An array of nothing.
    pub const EMPTY: Table<T> = Table { first: NonNull::dangling(), count: 0 };

    /// The item with this number.
    #[inline(always)]
    pub fn get(&self, number: u32) -> Option<&T> {
        crate::touched();
        if number >= self.count {
            return None;
        }
        // SAFETY: all `count` items were checked when the table was made; the mapping stays.
        Some(unsafe { self.first.add(number as usize).as_ref() })
    }

    /// Number of an item that is in the table.
    #[inline(always)]
    pub fn number(&self, item: &T) -> u32 {
        const { assert!(size_of::<T>().is_power_of_two()) }
        ((ptr::from_ref(item) as usize).wrapping_sub(self.first.as_ptr() as usize) / size_of::<T>()) as u32
    }
}

impl<T: FromBytes + KnownLayout> Table<T> {
    /// The `count` items from `offset` on; `None` if one of them is not in the valid part, or unaligned.
    pub fn new(region: &Region, offset: u64, count: u32) -> Option<Table<T>> {
        let bytes = u64::from(count).checked_mul(size_of::<T>() as u64)?;
        if count == 0 || !region.holds(offset, bytes) {
            return None;
        }
        Some(Table { first: NonNull::from(region.at::<T>(offset)?), count })
    }
}

/// An array in steps that lie apart: the first has `FIRST` items, each other one
/// as many as all before it. `FIRST` is a power of two. There is a step for every number.
#[derive(Debug)]
pub struct Steps<T, const FIRST: u64, const STEPS: usize> {
    /// Where item 0 would be if the step went on downwards; null: not known yet.
    origins: [AtomicPtr<T>; STEPS],
}

impl<T, const FIRST: u64, const STEPS: usize> Steps<T, FIRST, STEPS> {
    /// No step is known yet.
    pub const fn new() -> Self {
        Steps { origins: [const { AtomicPtr::new(ptr::null_mut()) }; STEPS] }
    }

    /// Step of an item.
    #[inline(always)]
    const fn step(number: u64) -> usize {
        const { assert!(FIRST.is_power_of_two() && FIRST > 1) }
        // As an index from the start: what is subtracted becomes part of an address.
        let top = (63 - (number | FIRST >> 1).leading_zeros()) as usize;
        top.wrapping_sub(FIRST.trailing_zeros() as usize - 1)
    }

    /// The item with this number, if its step is known.
    #[inline(always)]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.find(number).map(Known::item)
    }

    /// The same for the hottest way: what is asked about is the step, not once more the item.
    #[inline(always)]
    pub fn find(&self, number: u64) -> Option<Known<'_, T>> {
        const { assert!(Self::step(u64::MAX) < STEPS) }
        // SAFETY: steps rise with numbers, and the greatest number's is one of them.
        let origin = unsafe { self.origins.get_unchecked(Self::step(number)) }.load(Ordering::Acquire);
        NonNull::new(origin).map(|origin| Known { origin, number, life: PhantomData })
    }
}

/// An item of [`Steps`] whose step is known.
#[derive(Debug)]
pub struct Known<'a, T> {
    /// Of its step, and not null.
    origin: NonNull<T>,
    number: u64,
    life: PhantomData<&'a T>,
}

impl<'a, T> Known<'a, T> {
    /// The item.
    #[inline(always)]
    pub fn item(self) -> &'a T {
        // SAFETY: every number of this step is within the step, which was checked in `set`.
        unsafe { &*self.origin.as_ptr().wrapping_add(self.number as usize) }
    }
}

impl<T, const FIRST: u64, const STEPS: usize> Default for Steps<T, FIRST, STEPS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: FromBytes + KnownLayout, const FIRST: u64, const STEPS: usize> Steps<T, FIRST, STEPS> {
    /// Makes known that a step starts at `offset`. False if it is not whole in the valid part, or unaligned.
    pub fn set(&self, region: &Region, step: usize, offset: u64) -> bool {
        let start = if step == 0 { 0 } else { FIRST << (step - 1) };
        let count = if step == 0 { FIRST } else { start };
        let whole = count.checked_mul(size_of::<T>() as u64).is_some_and(|bytes| region.holds(offset, bytes));
        match (self.origins.get(step), region.at::<T>(offset)) {
            (Some(origin), Some(first)) if whole => {
                origin.store(ptr::from_ref(first).wrapping_sub(start as usize).cast_mut(), Ordering::Release);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Domain;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::vec;
    use std::vec::Vec;

    fn numbered(words: &mut Vec<u64>) -> Region {
        words.iter_mut().enumerate().for_each(|(i, word)| *word = i as u64);
        let bytes = words.len() as u64 * 8;
        // SAFETY: the buffer outlives the region in each test.
        unsafe { Region::new(words.as_mut_ptr().cast(), bytes, bytes, Domain::Process) }
    }

    /// Goal: a table ends where it ends, and is not made beyond the valid part.
    #[test]
    fn tables_have_bounds() {
        let mut words = vec![0; 64];
        let region = numbered(&mut words);
        let table = Table::<AtomicU64>::new(&region, 80, 54).unwrap();
        assert_eq!(table.get(0).unwrap().load(Relaxed), 10);
        assert_eq!(table.number(table.get(53).unwrap()), 53);
        assert!(table.get(54).is_none() && table.get(u32::MAX).is_none());
        assert!(Table::<AtomicU64>::new(&region, 80, 55).is_none());
        assert!(Table::<AtomicU64>::new(&region, 84, 1).is_none());
        assert!(Pinned::<AtomicU64>::new(&region, 512).is_none());
        assert_eq!(Pinned::<AtomicU64>::new(&region, 504).unwrap().load(Relaxed), 63);
    }

    /// Goal: steps that lie anywhere are one array. Method: three, out of order.
    #[test]
    fn steps_are_one_array() {
        let mut words = vec![0; 64];
        let region = numbered(&mut words);
        let steps = Steps::<AtomicU64, 8, 62>::new();
        assert!(steps.set(&region, 0, 40 * 8) && steps.set(&region, 1, 0) && steps.set(&region, 2, 16 * 8));
        for number in 0..32 {
            let expected = if number < 8 { 40 + number } else { number - 8 + if number < 16 { 0 } else { 8 } };
            assert_eq!(steps.get(number).unwrap().load(Relaxed), expected, "{number}");
        }
        assert!(steps.get(32).is_none() && steps.get(1 << 40).is_none() && steps.get(u64::MAX).is_none());
        assert!(!steps.set(&region, 2, 56 * 8) && !steps.set(&region, 62, 0), "out of bounds");
    }
}

//! Arrays and structures of a region that were checked once, so that what every
//! call reads costs no bounds check but its number's.
//!
//! Invariant: what is referred to lies in the valid part of its region, which
//! only grows, and is aligned. As with [`Region::at`], the mapping must stay for
//! as long as the region is used; whoever replaces a region replaces these too.

use crate::Region;
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
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

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: checked when it was made; the mapping stays.
        unsafe { &*self.0 }
    }
}

/// An array of structures of atomics in a region. Twelve bytes, so that a word fits beside it.
#[repr(C, packed(4))]
pub struct Table<T> {
    first: NonNull<T>,
    count: u32,
}

// SAFETY: as for `Pinned`.
unsafe impl<T> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Table<T> {}

impl<T> core::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        f.debug_struct("Table").field("first", &{ self.first }).field("count", &{ self.count }).finish()
    }
}

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
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        crate::touched();
        if number >= self.count {
            return None;
        }
        let first = self.first;
        // SAFETY: all `count` items were checked when the table was made; the mapping stays.
        Some(unsafe { first.add(number as usize).as_ref() })
    }

    /// Number of an item that is in the table.
    #[inline]
    pub fn number(&self, item: &T) -> u32 {
        const { assert!(size_of::<T>().is_power_of_two()) }
        let first = self.first;
        ((ptr::from_ref(item) as usize).wrapping_sub(first.as_ptr() as usize) / size_of::<T>()) as u32
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

/// An array whose length is a power of two, and whose numbers wrap around: to ask for an item costs no comparison, and
/// there is always one. Twelve bytes, as of [`Table`].
#[repr(C, packed(4))]
pub struct Ring<T> {
    first: *const T,
    /// The length − 1.
    mask: u32,
}

// SAFETY: as for `Pinned`.
unsafe impl<T> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ring<T> {}

impl<T> core::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        f.debug_struct("Ring").field("first", &{ self.first }).field("mask", &{ self.mask }).finish()
    }
}

impl<T: FromBytes + KnownLayout> Ring<T> {
    /// The items of a table; `None` if their number is no power of two.
    pub fn of(table: Table<T>) -> Option<Ring<T>> {
        let Table { first, count } = table;
        count.is_power_of_two().then(|| Ring { first: first.as_ptr(), mask: count - 1 })
    }

    /// One item of zeros, to stand where there is no region: see [`Pinned::zero`].
    pub fn zero() -> Ring<T> {
        Ring { first: Pinned::zero().0, mask: 0 }
    }
}

impl<T> Ring<T> {
    /// The item with this number, or with what is left of it.
    #[inline]
    pub fn get(&self, number: u32) -> &T {
        crate::touched();
        let first = self.first;
        // SAFETY: an item of the table, which is as it was when it was made, or the one item of zeros.
        unsafe { &*first.add((number & self.mask) as usize) }
    }
}

/// The first items of a [`Table`], as many as have memory; more with time. Twelve bytes too.
#[repr(C, packed(4))]
pub struct Growing<T> {
    first: NonNull<T>,
    /// An atomic, which may not stand in what is packed.
    count: UnsafeCell<u32>,
}

// SAFETY: as for `Pinned`.
unsafe impl<T> Send for Growing<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Growing<T> {}

impl<T> core::fmt::Debug for Growing<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
        f.debug_struct("Growing").field("first", &{ self.first }).field("count", &self.count().load(Relaxed)).finish()
    }
}

impl<T> Growing<T> {
    #[inline]
    fn count(&self) -> &AtomicU32 {
        // SAFETY: aligned to four bytes, as the whole is; only touched as an atomic.
        unsafe { AtomicU32::from_ptr(UnsafeCell::raw_get(&raw const self.count)) }
    }

    /// None of the items of a table.
    pub const fn of(table: Table<T>) -> Growing<T> {
        Growing { first: table.first, count: UnsafeCell::new(0) }
    }

    /// The first `count` items of the table that it was made of have memory; no others are believed.
    pub fn grow(&self, table: Table<T>, count: u32) {
        let (first, its) = (self.first, table.first);
        if first == its {
            self.count().fetch_max(count.min(table.count), Relaxed);
        }
    }

    /// The item with this number, if it is known to have memory.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&T> {
        crate::touched();
        if number >= self.count().load(Relaxed) {
            return None;
        }
        let first = self.first;
        // SAFETY: as of a table.
        Some(unsafe { first.add(number as usize).as_ref() })
    }

    /// Number of an item that is in the table.
    #[inline]
    pub fn number(&self, item: &T) -> u32 {
        const { assert!(size_of::<T>().is_power_of_two()) }
        let first = self.first;
        ((ptr::from_ref(item) as usize).wrapping_sub(first.as_ptr() as usize) / size_of::<T>()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Domain;
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
        let growing = Growing::of(table);
        assert!(growing.get(0).is_none());
        growing.grow(Table::new(&region, 88, 53).unwrap(), 53);
        assert!(growing.get(0).is_none(), "another table's");
        growing.grow(table, 3);
        assert!(ptr::eq(growing.get(2).unwrap(), table.get(2).unwrap()) && growing.get(3).is_none());
        assert_eq!(growing.number(table.get(2).unwrap()), 2);
        growing.grow(table, u32::MAX);
        assert!(growing.get(53).is_some() && growing.get(54).is_none());
        assert!(Table::<AtomicU64>::new(&region, 80, 55).is_none());
        assert!(Table::<AtomicU64>::new(&region, 84, 1).is_none());
        assert!(Pinned::<AtomicU64>::new(&region, 512).is_none());
        assert_eq!(Pinned::<AtomicU64>::new(&region, 504).unwrap().load(Relaxed), 63);
    }
}

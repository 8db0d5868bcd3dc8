//! A shared mapping, and the only ways to read and write it.
//!
//! Invariants
//! - A reference handed out by [`Region::at`] lies within the valid part of the
//!   mapping, is aligned, and its type consists of atomics only.
//! - Every store that must survive a crash goes through a method here, so that
//!   the recorder sees it. There is no `&mut` and no `&[u8]` over the mapping.

#[cfg(feature = "sim")]
use crate::record::Stored;
use crate::{Domain, Errno, UserSlice, domain, faults};
#[cfg(feature = "sim")]
use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zerocopy::{FromBytes, KnownLayout};

/// A mapping of an image or a segment. Offsets are bytes from its start.
#[derive(Debug)]
#[repr(C)]
pub struct Region {
    base: NonNull<u8>,
    /// Bytes of address space.
    len: u64,
    /// Bytes that have real space behind them, in whole lines.
    valid: AtomicU64,
    domain: Domain,
    #[cfg(feature = "sim")]
    recorder: Option<&'static dyn crate::record::Recorder>,
}

// SAFETY: the mapping is shared by nature; all access is atomic or by copies
// that tolerate races.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Wraps a mapping of `len` bytes at `base`, the first `valid` of which have
    /// real space.
    ///
    /// # Safety
    /// The mapping must be readable and writable (or, for a read-only image,
    /// never stored to), page-aligned, shared, and must stay for as long as the
    /// region is used.
    pub const unsafe fn new(base: *mut u8, len: u64, valid: u64, domain: Domain) -> Region {
        Region {
            // Nothing of an empty region is touched, wherever it is.
            base: match NonNull::new(base) {
                Some(base) => base,
                None => NonNull::dangling(),
            },
            len,
            valid: AtomicU64::new(valid & !63),
            domain,
            #[cfg(feature = "sim")]
            recorder: None,
        }
    }

    /// Sends every store, flush and fence to `recorder` too.
    #[cfg(feature = "sim")]
    pub fn record(&mut self, recorder: &'static dyn crate::record::Recorder) {
        self.recorder = Some(recorder);
    }

    /// The persistence domain.
    #[inline]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Bytes that may be touched.
    #[inline]
    pub fn valid(&self) -> u64 {
        self.valid.load(Ordering::Acquire)
    }

    /// Bytes of address space.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the mapping has no address space.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// More of the mapping has got real space.
    pub fn set_valid(&self, bytes: u64) {
        self.valid.fetch_max(bytes.min(self.len) & !63, Ordering::AcqRel);
    }

    /// Brings the page of the line at `offset`, whose last word is changed by atomic operations only, by a store that
    /// changes nothing: it comes alone. A look would bring the fifteen around it as well, in twice the time.
    pub fn fetch_alone(&self, offset: u64) {
        if let Some(word) = self.word(offset + 56) {
            word.fetch_or(0, Ordering::Relaxed);
        }
    }

    /// Whether `address` lies in the mapping.
    pub fn covers(&self, address: usize) -> bool {
        (address.wrapping_sub(self.base() as usize) as u64) < self.len
    }

    /// First byte of the mapping.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The structure of atomics at `offset`; `None` outside the valid part or unaligned.
    #[inline]
    pub fn at<T: FromBytes + KnownLayout>(&self, offset: u64) -> Option<&T> {
        crate::touched();
        self.at_within(self.valid.load(Ordering::Relaxed), offset)
    }

    /// Two of them.
    #[inline]
    pub fn at_both<A: FromBytes + KnownLayout, B: FromBytes + KnownLayout>(&self, a: u64, b: u64) -> Option<(&A, &B)> {
        crate::touched();
        // Asked once for both.
        let valid = self.valid.load(Ordering::Relaxed);
        Some((self.at_within(valid, a)?, self.at_within(valid, b)?))
    }

    /// As [`Region::at`], where so many bytes are valid, or were.
    #[inline]
    fn at_within<T: FromBytes + KnownLayout>(&self, valid: u64, offset: u64) -> Option<&T> {
        const { assert!(size_of::<T>() > 0) }
        // Whole lines are valid: what is aligned to its size is inside if it begins there.
        let within = const { size_of::<T>() == align_of::<T>() && size_of::<T>() <= 64 };
        if offset >= valid || (!within && valid - offset < size_of::<T>() as u64) || offset & (align_of::<T>() as u64 - 1) != 0 {
            return None;
        }
        // SAFETY: in bounds, checked above: the valid part only grows.
        let item = unsafe { self.base.add(offset as usize) }.cast::<T>();
        // SAFETY: in bounds and aligned, checked above; any bytes are a valid
        // `T` (FromBytes); the mapping outlives the region; `T` is made of
        // atomics, so races are defined.
        Some(unsafe { item.as_ref() })
    }

    /// The word at `offset`.
    #[inline]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.at(offset)
    }

    /// `count` words from `offset` on, all in the valid part; else `None`.
    #[inline]
    pub fn words(&self, offset: u64, count: usize) -> Option<&[AtomicU64]> {
        let first = self.word(offset)?;
        if count as u64 > (self.valid() - offset) / 8 {
            return None;
        }
        // SAFETY: as many are in bounds; as of `at`.
        Some(unsafe { core::slice::from_raw_parts(first, count) })
    }

    /// Offset of a word or structure of this region.
    #[inline]
    pub fn offset_of<T>(&self, item: &T) -> u64 {
        (core::ptr::from_ref(item) as usize).wrapping_sub(self.base.as_ptr() as usize) as u64
    }

    /// Whether `offset..offset + len` may be touched.
    #[inline]
    pub fn holds(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.valid.load(Ordering::Relaxed))
    }

    /// Whether a range is known to hold zeros and need not be read. Only a
    /// recorder knows such a thing: elsewhere it is never so.
    #[inline]
    pub fn known_zero(&self, _offset: u64, _len: u64) -> bool {
        #[cfg(feature = "sim")]
        if let Some(recorder) = self.recorder {
            return recorder.known_zero(_offset, _len);
        }
        false
    }

    // ---- stores ----

    /// Stores a word (release).
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn store(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        self.note(word, value);
    }

    /// Sets bits; returns the word before.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn or(&self, word: &AtomicU64, bits: u64) -> u64 {
        let before = word.fetch_or(bits, Ordering::AcqRel);
        self.note(word, before | bits);
        before
    }

    /// Keeps only these bits; returns the word before.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn and(&self, word: &AtomicU64, bits: u64) -> u64 {
        let before = word.fetch_and(bits, Ordering::AcqRel);
        self.note(word, before & bits);
        before
    }

    /// Raises a signed word to at least `value`.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn raise(&self, word: &AtomicU64, value: i64) {
        let mut seen = word.load(Ordering::Relaxed);
        while (seen as i64) < value {
            match word.compare_exchange_weak(seen, value as u64, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return self.note(word, value as u64),
                Err(now) => seen = now,
            }
        }
    }

    /// Adds (wrapping); returns the word before.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn add(&self, word: &AtomicU64, value: u64) -> u64 {
        let before = word.fetch_add(value, Ordering::AcqRel);
        self.note(word, before.wrapping_add(value));
        before
    }

    /// Compare and swap; `Ok` with the old value or `Err` with the one found.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn swap_if(&self, word: &AtomicU64, old: u64, new: u64) -> Result<u64, u64> {
        let result = word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        if result.is_ok() {
            self.note(word, new);
        }
        result
    }

    /// Stores a word that nothing depends on after a crash.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn store_volatile(&self, word: &AtomicU64, value: u64) {
        word.store(value, Ordering::Release);
        crate::touched();
        #[cfg(feature = "sim")]
        if let Some(recorder) = self.recorder {
            recorder.store(self.offset_of(word), &value.to_le_bytes(), Stored::Volatile, Location::caller());
        }
    }

    /// Half-word form of [`Region::store_volatile`].
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn store_volatile32(&self, word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
        crate::touched();
        #[cfg(feature = "sim")]
        if let Some(recorder) = self.recorder {
            recorder.store(self.offset_of(word), &value.to_le_bytes(), Stored::Volatile, Location::caller());
        }
    }

    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    fn note(&self, _word: &AtomicU64, _value: u64) {
        crate::touched();
        #[cfg(feature = "sim")]
        if let Some(recorder) = self.recorder {
            recorder.store(self.offset_of(_word), &_value.to_le_bytes(), Stored::Word, Location::caller());
        }
    }

    // ---- copies; callers have checked the range with `holds` ----

    /// Copies a program's buffer to `offset` and starts its write-back.
    /// `EFAULT` outside the valid part, and where the buffer is not all there: what comes
    /// before that has been copied, and its write-back not begun.
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn copy_in(&self, offset: u64, from: UserSlice) -> Result<(), Errno> {
        if !self.holds(offset, from.len as u64) {
            return Err(Errno::EFAULT);
        }
        self.touch(offset, from.len as u64);
        // SAFETY: in bounds.
        let to = unsafe { self.base().add(offset as usize) };
        // SAFETY: the target is in bounds; the source was vouched for when the slice was made.
        if unsafe { faults::transfer(from.ptr, to, from.len) } != from.len {
            return Err(Errno::EFAULT);
        }
        self.note_bytes(offset, from.len as u64);
        self.flush(offset, from.len as u64);
        Ok(())
    }

    /// Has `fill` fill a part of the mapping (a `read` into it, say) and starts
    /// its write-back; returns how many bytes came.
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn fill(&self, offset: u64, len: u64, fill: &mut dyn FnMut(UserSlice) -> Result<usize, Errno>) -> Result<u64, Errno> {
        if !self.holds(offset, len) {
            return Err(Errno::EFAULT);
        }
        self.touch(offset, len);
        // SAFETY: in bounds.
        let start = unsafe { self.base().add(offset as usize) };
        // SAFETY: in bounds and writable; other processes may race on it as on any shared mapping.
        let part = unsafe { UserSlice::new(start, len as usize) };
        let done = (fill(part)? as u64).min(len);
        self.note_bytes(offset, done);
        self.flush(offset, done);
        Ok(done)
    }

    /// Gets memory for a range of whole pages, so that no fault can fail later.
    /// `ENOMEM`, `EFAULT` or `ENOSPC` if there is none.
    pub fn populate(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if !self.holds(offset, len) {
            return Err(Errno::EFAULT);
        }
        // SAFETY: in bounds.
        let start = unsafe { self.base().add(offset as usize) };
        crate::file::advise(start, len, crate::sys::abi::MADV_POPULATE_WRITE)
    }

    /// Gives the memory of a range of whole pages back; it is zeroes then.
    pub fn give_back(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if !self.holds(offset, len) {
            return Err(Errno::EFAULT);
        }
        // SAFETY: in bounds.
        let start = unsafe { self.base().add(offset as usize) };
        // SAFETY: the range is this region's; that others see zeroes there is as if somebody had written them.
        unsafe { crate::file::remove(start, len) }
    }

    /// Copies from `offset` into a program's buffer; how many bytes: fewer than it has if it is not all there, `EFAULT` if
    /// nothing of it is.
    pub fn copy_out_some(&self, offset: u64, into: UserSlice) -> Result<usize, Errno> {
        if !self.holds(offset, into.len as u64) {
            return Err(Errno::EFAULT);
        }
        // SAFETY: in bounds.
        let from = unsafe { self.base().add(offset as usize) };
        // SAFETY: the source is in bounds; the target was vouched for when the slice was made.
        match unsafe { faults::transfer(from, into.ptr, into.len) } {
            0 if into.len != 0 => Err(Errno::EFAULT),
            done => Ok(done),
        }
    }

    /// Copies from `offset` into a program's buffer, all of which must be there.
    #[inline]
    pub fn copy_out(&self, offset: u64, into: UserSlice) -> Result<(), Errno> {
        if !self.holds(offset, into.len as u64) {
            return Err(Errno::EFAULT);
        }
        // SAFETY: in bounds.
        let from = unsafe { self.base().add(offset as usize) };
        // SAFETY: the source is in bounds; the target was vouched for when the
        // slice was made.
        if unsafe { copy(from, into.ptr, into.len) } { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// Copies within the region and starts the write-back.
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn copy_within(&self, from: u64, to: u64, len: u64) -> Result<(), Errno> {
        if !self.holds(from, len) || !self.holds(to, len) {
            return Err(Errno::EFAULT);
        }
        self.touch(to, len);
        // SAFETY: both ranges are in bounds; `copy` allows overlap.
        unsafe { core::ptr::copy(self.base().add(from as usize), self.base().add(to as usize), len as usize) };
        self.note_bytes(to, len);
        self.flush(to, len);
        Ok(())
    }

    /// Zeroes `offset..offset + len` and starts the write-back.
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn zero(&self, offset: u64, len: u64) -> Result<(), Errno> {
        if !self.holds(offset, len) {
            return Err(Errno::EFAULT);
        }
        self.touch(offset, len);
        // SAFETY: in bounds.
        unsafe { core::ptr::write_bytes(self.base().add(offset as usize), 0, len as usize) };
        self.note_bytes(offset, len);
        self.flush(offset, len);
        Ok(())
    }

    /// Reads a byte of each 64 KiB before they are written. A read fault maps
    /// all pages of such a window that are in memory, writable in a shared
    /// mapping; a write fault maps one (1 GiB into a fresh mapping: 0.11 s
    /// against 0.33 s). The range is in bounds.
    #[inline]
    fn touch(&self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        // SAFETY: in bounds, as the caller has checked.
        unsafe { core::ptr::read_volatile(self.base().add(offset as usize)) };
        if (offset ^ (offset + len)) > 0xffff {
            self.touch_on(offset, offset + len);
        }
    }

    /// As [`Region::touch`], of the windows after the first one.
    #[inline(never)]
    fn touch_on(&self, offset: u64, end: u64) {
        let mut at = (offset | 0xffff) + 1;
        while at < end {
            // SAFETY: in bounds, as the caller has checked.
            unsafe { core::ptr::read_volatile(self.base().add(at as usize)) };
            at += 0x1_0000;
        }
    }

    /// Has the line at `offset` brought to this processor, to be changed here soon; nothing for an offset outside.
    #[inline]
    pub fn bring(&self, offset: u64) {
        #[cfg(target_arch = "x86_64")]
        if self.holds(offset, 1) {
            // SAFETY: in bounds, just checked.
            let line = unsafe { self.base().add(offset as usize) };
            // Not by `_mm_prefetch`, of which a compiler for all processors makes one to read.
            // SAFETY: it changes nothing, whatever the address; what does not know it ignores it.
            unsafe { core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    fn note_bytes(&self, _offset: u64, _len: u64) {
        #[cfg(feature = "sim")]
        if let Some(recorder) = self.recorder
            && !recorder.copied(_offset, _len)
        {
            let mut at = _offset;
            while at < _offset + _len {
                let step = (8 - at % 8).min(_offset + _len - at) as usize;
                let mut bytes = [0; 8];
                // SAFETY: in bounds, as the caller has checked.
                unsafe { core::ptr::copy_nonoverlapping(self.base().add(at as usize), bytes.as_mut_ptr(), step) };
                recorder.store(at, &bytes[..step], Stored::Bulk, Location::caller());
                at += step as u64;
            }
        }
    }

    // ---- order ----

    /// Starts the write-back of the lines that hold `offset..offset + len`.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn flush(&self, offset: u64, len: u64) {
        #[cfg(feature = "sim")]
        if let Some(recorder) = self.recorder {
            recorder.flush(offset, len, Location::caller());
        }
        if self.domain != Domain::Process {
            self.flush_slow(offset, len);
        }
    }

    #[cold]
    #[inline(never)]
    fn flush_slow(&self, offset: u64, len: u64) {
        if self.domain == Domain::Power && self.holds(offset, len) {
            // SAFETY: in bounds, just checked.
            domain::write_back(unsafe { self.base().add(offset as usize) }, len as usize);
        }
    }

    /// Orders what was stored (and written back) before what is stored after.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn fence(&self) {
        core::sync::atomic::fence(Ordering::Release);
        #[cfg(feature = "sim")]
        if let Some(recorder) = self.recorder {
            recorder.fence(Location::caller());
        }
        if self.domain != Domain::Process {
            self.fence_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn fence_slow(&self) {
        if self.domain != Domain::Sim {
            domain::store_fence();
        }
    }
}

/// Copies, a piece of 32 to 64 bytes without a call, which it is too short for; false if it is not all there.
///
/// # Safety
/// As of [`faults::transfer`].
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    match len {
        // SAFETY: the caller's.
        32..=64 => unsafe { faults::short(from, to, len) },
        // SAFETY: the caller's.
        _ => unsafe { transfer(from, to, len) },
    }
}

/// # Safety
/// As of [`faults::transfer`].
#[inline(never)]
unsafe fn transfer(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { faults::transfer(from, to, len) == len }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn region(bytes: &mut [u64]) -> Region {
        // SAFETY: the buffer outlives the region in each test.
        unsafe { Region::new(bytes.as_mut_ptr().cast(), bytes.len() as u64 * 8, bytes.len() as u64 * 8, Domain::Process) }
    }

    /// Goal: nothing outside the valid part is handed out. Method: offsets around every border.
    #[test]
    fn refuses_what_lies_outside() {
        let mut bytes = vec![0u64; 64];
        let r = region(&mut bytes);
        assert!(r.word(0).is_some() && r.word(504).is_some());
        for bad in [1, 4, 505, 512, 1 << 40, u64::MAX - 7, u64::MAX, i64::MAX as u64 - 7] {
            assert!(r.word(bad).is_none(), "{bad}");
        }
        assert!(r.holds(0, 512) && !r.holds(1, 512) && !r.holds(u64::MAX, 2));
        assert_eq!(r.zero(500, 13), Err(Errno::EFAULT));
    }

    /// Goal: `raise` is a signed maximum.
    #[test]
    fn raises_signed() {
        let mut bytes = vec![0u64; 8];
        let r = region(&mut bytes);
        let word = r.word(0).unwrap();
        r.store(word, -5i64 as u64);
        r.raise(word, -9);
        assert_eq!(word.load(Ordering::Relaxed) as i64, -5);
        r.raise(word, 3);
        assert_eq!(word.load(Ordering::Relaxed), 3);
    }

    /// Goal: none of several threads' values is lost if it is the greatest. Method: each raises by steps of its own.
    #[test]
    fn raises_at_once() {
        let mut bytes = vec![0u64; 8];
        let r = &region(&mut bytes);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let word = r.word(0).unwrap();
                    for step in 0..20_000 {
                        let value = step * 4 + thread;
                        r.raise(word, value);
                        assert!(word.load(Ordering::Relaxed) as i64 >= value);
                    }
                });
            }
        });
        assert_eq!(r.word(0).unwrap().load(Ordering::Relaxed), 79_999);
    }

    /// Goal: every length is copied as it is, where both overlap too.
    #[test]
    fn copies_of_all_lengths() {
        let from: [u8; 256] = core::array::from_fn(|i| i as u8);
        for len in 0..=80 {
            for to in [0, 1, 7, 16, 33, 100] {
                let mut bytes = from;
                let start = bytes.as_mut_ptr();
                // SAFETY: both within the array.
                unsafe { copy(start.add(20), start.add(to), len) };
                let expected = |i: usize| if (to..to + len).contains(&i) { from[i - to + 20] } else { from[i] };
                assert!((0..256).all(|i| bytes[i] == expected(i)), "{len} bytes to {to}");
            }
        }
    }
}

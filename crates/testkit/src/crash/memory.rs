//! Memory that plays an image or a segment, and a machine made of both.

use super::record::Log;
use base::{Cred, Cx, Thread};
use engine::Fs;
use engine::process::attach::{AttachError, Options};
use engine::process::memory::{VOLATILE_AREA, segment_bytes, segment_parts};
use format::layout::BLOCK;
use pm::record::{Recorder, Stored};
use pm::{Domain, Region};
use std::mem::MaybeUninit;
use std::panic::Location;

/// Size limit of the explorer's images: the smallest there is.
pub const LIMIT: u64 = format::layout::SIZE_MIN;
/// Users of an image at a time, processes or threads.
pub const USERS: usize = 2;

/// Zeroed memory.
pub struct Memory {
    at: *mut u8,
    len: usize,
}

impl Memory {
    /// Maps `len` bytes.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(len: u64) -> Memory {
        let at = pm::file::map_private(len).expect("memory");
        Memory { at, len: len as usize }
    }

    /// As `new`, in large pages where there are any: what is looked at lies far apart.
    pub fn large(len: u64) -> Memory {
        let memory = Memory::new(len);
        let _ = pm::file::advise(memory.at, len, pm::sys::abi::MADV_HUGEPAGE);
        memory
    }

    /// Zero again, the part `offset..offset + len`, quickly.
    pub fn zero(&self, offset: u64, len: u64) {
        assert!(offset as usize + len as usize <= self.len);
        // SAFETY: in bounds, just checked.
        unsafe { std::ptr::write_bytes(self.at.add(offset as usize), 0, len as usize) };
    }

    /// Whether pages outside `parts` (offset, length) have been touched.
    pub fn touched_outside(&self, parts: &[(u64, u64)]) -> bool {
        let mut resident = vec![0u8; self.len / BLOCK as usize];
        // SAFETY: the mapping is whole pages, with a byte for each in the vector.
        unsafe { libc::mincore(self.at.cast(), self.len, resident.as_mut_ptr()) };
        let inside = |page: u64| parts.iter().any(|(at, len)| (at / BLOCK..(at + len).div_ceil(BLOCK)).contains(&page));
        resident.iter().enumerate().any(|(page, resident)| resident & 1 != 0 && !inside(page as u64))
    }

    /// First byte.
    pub fn base(&self) -> *mut u8 {
        self.at
    }

    /// Contents of `offset..offset + N`.
    pub fn get<const N: usize>(&self, offset: u64) -> [u8; N] {
        assert!(offset as usize + N <= self.len);
        // SAFETY: in bounds, just checked; plain bytes.
        unsafe { self.at.add(offset as usize).cast::<[u8; N]>().read_unaligned() }
    }

    /// Puts bytes at `offset`.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        assert!(offset as usize + bytes.len() <= self.len);
        // SAFETY: in bounds, just checked; the source is no part of the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(offset as usize), bytes.len()) };
    }

    /// All of it. Nobody may store to it meanwhile.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is `len` bytes and stays until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it any more.
        unsafe { pm::file::unmap(self.at, self.len as u64) };
    }
}

/// An image, its segment, and the processes that use it.
pub struct Machine {
    /// The image.
    pub image: Memory,
    segment: Memory,
    /// What is stored to the image.
    pub log: &'static Log,
    places: [*mut MaybeUninit<Fs>; USERS],
    threads: [Thread; USERS],
    domain: Domain,
    /// Parts of the segment that are used.
    parts: [(u64, u64); 8],
}

// SAFETY: the image and the segment are made for being shared; the state of a
// user is touched by the one thread that plays this user.
unsafe impl Sync for Machine {}

impl Machine {
    /// A machine whose medium promises `domain`, with an image of zeros. Its log stays for good.
    ///
    /// # Panics
    /// If there is no memory.
    pub fn new(domain: Domain) -> Machine {
        Machine {
            image: Memory::large(LIMIT),
            segment: Memory::new(segment_bytes(LIMIT).expect("a possible image")),
            log: Box::leak(Box::default()),
            places: [(); USERS].map(|()| Box::into_raw(Box::new(MaybeUninit::uninit()))),
            threads: [const { Thread::new() }; USERS],
            domain,
            parts: segment_parts(LIMIT, USERS as u64).expect("a possible image"),
        }
    }

    /// Whether the segment has been used where [`Machine::cut`] does not look.
    pub fn outgrown(&self) -> bool {
        self.segment.touched_outside(&self.parts)
    }

    /// The image as a region, recorded.
    pub fn region(&self) -> Region {
        // SAFETY: a mapping of `LIMIT` bytes that stays for as long as the machine.
        let mut region = unsafe { Region::new(self.image.base(), LIMIT, LIMIT, self.domain) };
        region.record(self.log);
        region
    }

    /// A program stores eight bytes into a mapping of a file at image offset `at`.
    pub fn poke(&self, at: u64, bytes: &[u8]) {
        self.image.put(at, bytes);
        self.log.store(at, bytes, Stored::Word, Location::caller());
    }

    /// Power is off: nobody uses the image, the segment is gone.
    pub fn cut(&self) {
        for (at, len) in self.parts {
            self.segment.zero(at, len);
        }
        for thread in &self.threads {
            thread.lanes.iter().for_each(|lane| lane.set(0));
        }
        // Mutexes that are in use are the first ones.
        let zero = [0u8; 64 * (USERS + 2)];
        self.image.put(format::layout::LANE_MUTEXES, &zero);
        self.image.put(format::layout::PROCESS_MUTEXES, &zero);
        self.image.put(VOLATILE_AREA.0, &[0; 64]);
    }

    /// Attaches user `user`; the first one recovers. What was attached before as this user is gone.
    pub fn attach(&self, user: usize) -> Result<&Fs, AttachError> {
        let segment_len = segment_bytes(LIMIT).unwrap_or(0);
        // SAFETY: a mapping of that many bytes that stays for as long as the machine.
        let segment = unsafe { Region::new(self.segment.base(), segment_len, segment_len, Domain::Process) };
        // SAFETY: from a box that is freed with the machine; a reference handed
        // out before is not used any more (`cut` comes before the next `attach`).
        let place = unsafe { &mut *self.places[user] };
        Fs::attach_memory(place, &self.cx(user), self.image_region(), segment, user > 0, &Options::default())
    }

    /// As [`Machine::region`], with only the tables taken for granted.
    fn image_region(&self) -> Region {
        // SAFETY: as in `region`.
        let mut region =
            unsafe { Region::new(self.image.base(), LIMIT, format::layout::BITMAP.next_multiple_of(BLOCK), self.domain) };
        region.record(self.log);
        region
    }

    /// The superuser's context as this user.
    pub fn cx(&self, user: usize) -> Cx<'_> {
        Cx { cred: Cred::ROOT, umask: 0o022, thread: &self.threads[user] }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for place in self.places {
            // SAFETY: from `Box::into_raw`; `Fs` needs no drop.
            drop(unsafe { Box::from_raw(place) });
        }
    }
}

//! Stubs, and the bytes of a site.
//!
//! The program's code is written through `/proc/self/mem`, so that no page is ever writable and executable at once, and others run in it
//! meanwhile. A site changes so, with all processors made to look anew (`membarrier`) after each step:
//!
//! ```text
//! 0f 05 48 89 c7   f4 05 48 89 c7   f4 05 f4 89 c7   f4 D0 f4 D2 D3   e9 D0 f4 D2 D3      D: distance
//! ```

use super::decode::{self, CALL, JUMP_BYTES, LONGEST, Moved, has_room_before, moved};
use super::{Place, TRAP};
use crate::runtime::dispatch::code_from;
use core::sync::atomic::{AtomicUsize, Ordering::*};
use pm::file::File;
use pm::sys::abi::*;

/// A jump with a distance of 32 bits.
pub const JUMP: u8 = 0xe9;
/// Stubs that lie together; some 250 sites share 64 KiB, as each can have one of 256 bytes in them only.
const POOL_BYTES: usize = 64 << 10;
const POOLS: usize = 8;
const UNIT: usize = 16;
const UNITS: usize = POOL_BYTES / UNIT;
/// A stub in units: what was in front of the call, [`BEFORE`], the copy, the jump back.
const STUB_UNITS: usize = 3;
const STUB_BYTES: usize = STUB_UNITS * UNIT;
/// From a stub's call to where the program goes on.
pub const BEFORE: usize = 13;
const _: () = assert!(BEFORE + LONGEST + JUMP_BYTES <= STUB_BYTES && JUMP_BYTES + BEFORE + JUMP_BYTES <= STUB_BYTES);
/// How far stubs may be from a site.
const REACH: usize = 0x7ff0_0000;
const STEP: usize = 16 << 20;
/// Below a site there may be so much, and above it more: data grow there.
const BELOW: core::ops::Range<usize> = 4..64;
const ABOVE: core::ops::Range<usize> = 64..120;
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE`, and to ask for it.
const SYNC: usize = 1 << 5;
const ASK: usize = 1 << 6;

/// Where stubs lie, and which units are in use; changed by whoever is alone.
struct Pool {
    begin: AtomicUsize,
    used: [AtomicUsize; UNITS / usize::BITS as usize],
}

static STUBS: [Pool; POOLS] =
    [const { Pool { begin: AtomicUsize::new(0), used: [const { AtomicUsize::new(0) }; UNITS / usize::BITS as usize] } }; POOLS];

/// Whether an address is in a stub.
pub fn is_stub(address: usize) -> bool {
    STUBS.iter().map(|pool| pool.begin.load(Acquire)).any(|begin| begin != 0 && address.wrapping_sub(begin) < POOL_BYTES)
}

/// The program's memory, as the kernel writes it.
struct Memory(File);

impl Memory {
    fn open() -> Option<Memory> {
        File::open(b"/proc/self/mem\0", O_RDWR, 0).ok().map(Memory)
    }

    #[must_use]
    fn put(&self, at: usize, bytes: &[u8]) -> bool {
        // SAFETY: our stubs, or the bytes of a site, by the order above.
        let written = unsafe { pm::call!(__NR_pwrite64, self.0.number(), bytes.as_ptr(), bytes.len(), at) };
        written == Ok(bytes.len())
    }
}

/// All processors look anew at what they run, and this one.
fn synchronize() {
    // SAFETY: changes nothing.
    let _ = unsafe { pm::call!(__NR_membarrier, SYNC, 0, 0) };
}

/// Whether that can be had.
fn can_synchronize() -> bool {
    // SAFETY: as above.
    unsafe { pm::call!(__NR_membarrier, ASK, 0, 0) }.is_ok()
}

/// Puts a jump in the place of a site; where the program goes on after the call that came from it.
pub fn redirect(place: &Place, site: usize, entry: usize) -> Option<usize> {
    let code = code_from(site, CALL.len() + LONGEST + UNIT)?;
    let before = code_from(site - decode::BEFORE, decode::BEFORE).filter(|code| has_room_before(code));
    let what = match before {
        Some(_) => Moved { len: 0, returns: false },
        None => moved(code)?,
    };
    let front = before.map_or(&[][..], |before| &before[before.len() - JUMP_BYTES..]);
    let memory = can_synchronize().then(Memory::open)??;
    let stub = room(&memory, site, entry)?;
    let mut text = Text { bytes: [0; STUB_BYTES], len: 0, at: stub };
    text.push(front);
    // lea rcx, [rip + …]
    text.push(&[0x48, 0x8d, 0x0d]);
    text.distance(stub + front.len() + BEFORE);
    text.push(&[JUMP]);
    text.distance(pool_of(stub)?);
    text.push(&[TRAP]);
    text.push(&code[CALL.len()..CALL.len() + what.len]);
    if !what.returns {
        text.push(&[JUMP]);
        text.distance(site + CALL.len() + what.len);
    }
    if !memory.put(stub, &text.bytes) {
        return None;
    }
    place.is_before.store(before.is_some(), Release);
    let jump = site - front.len();
    let distance = (stub.wrapping_sub(jump + JUMP_BYTES) as u32).to_le_bytes();
    synchronize();
    place.stub.store(stub, Release);
    if !memory.put(jump, &[TRAP]) {
        place.stub.store(0, Release);
        return None;
    }
    synchronize();
    if before.is_some() {
        let _ = memory.put(jump + 1, &distance);
    } else {
        let _ = memory.put(jump + 2, &[TRAP]);
        synchronize();
        let _ = memory.put(jump + 1, &distance[..1]) && memory.put(jump + 3, &distance[2..]);
    }
    synchronize();
    let _ = memory.put(jump, &[JUMP]);
    synchronize();
    place.next()
}

/// Puts back what was there.
pub fn restore(place: &Place) {
    let (Some(stub), Some(next), jump, Some(memory)) = (place.stub(), place.next(), place.jump(), Memory::open()) else { return };
    // SAFETY: the stub stays.
    let [front, copy] = [stub, next].map(|at| unsafe { (at as *const [u8; JUMP_BYTES]).read_unaligned() });
    let _ = memory.put(jump, &[TRAP]);
    synchronize();
    if place.is_before.load(Relaxed) {
        let _ = memory.put(jump + 1, &front[1..]);
        synchronize();
        let _ = memory.put(jump, &front[..1]);
    } else {
        // Behind a return nothing is run: what filled the room there is not known any more.
        let is_return = copy[0] == 0xc3;
        let _ = memory.put(jump + 1, &CALL[1..]) && (is_return || memory.put(jump + 3, &copy[1..3]));
        synchronize();
        let _ = memory.put(jump + 2, &copy[..1]);
        synchronize();
        let _ = memory.put(jump, &CALL[..1]);
    }
    synchronize();
}

/// The beginning of the pool of a stub, where the way to the entry is.
fn pool_of(stub: usize) -> Option<usize> {
    STUBS.iter().map(|pool| pool.begin.load(Acquire)).find(|begin| *begin != 0 && stub.wrapping_sub(*begin) < POOL_BYTES)
}

/// Room for a stub to which the distance from a site has the right byte.
fn room(memory: &Memory, site: usize, entry: usize) -> Option<usize> {
    STUBS.iter().find_map(|pool| {
        if pool.begin.load(Acquire) == 0 {
            let begin = map_near(site)?;
            // jmp [rip + 0]
            let way = [&[0xff, 0x25, 0, 0, 0, 0][..], &entry.to_le_bytes()];
            if !(memory.put(begin, way[0]) && memory.put(begin + way[0].len(), way[1])) {
                return None;
            }
            pool.used[0].store(1, Relaxed);
            pool.begin.store(begin, Release);
        }
        pool.room(site)
    })
}

impl Pool {
    fn room(&self, site: usize) -> Option<usize> {
        const BLOCK: usize = 256;
        let begin = self.begin.load(Acquire);
        if begin.abs_diff(site) > REACH {
            return None;
        }
        // A jump in front of the site needs no such byte.
        let next = site + JUMP_BYTES;
        // The first of the addresses with that byte, and what of the ones before is in the pool.
        let skip = (usize::from(TRAP) << 8).wrapping_sub(begin.wrapping_sub(next) & 0xffff) & 0xffff;
        let blocks = [begin + skip, (begin + skip).wrapping_sub(1 << 16)];
        let fits = |at: &usize| *at >= begin && *at + STUB_BYTES <= begin + POOL_BYTES;
        let places = blocks.iter().flat_map(|block| (block.next_multiple_of(UNIT)..block + BLOCK).step_by(UNIT)).filter(fits);
        let unit =
            places.map(|at| (at - begin) / UNIT).find(|unit| (*unit..unit + STUB_UNITS).all(|unit| !self.is_used(unit)))?;
        (unit..unit + STUB_UNITS).for_each(|unit| {
            let (word, bit) = (unit / usize::BITS as usize, unit % usize::BITS as usize);
            self.used[word].fetch_or(1 << bit, Relaxed);
        });
        Some(begin + unit * UNIT)
    }

    fn is_used(&self, unit: usize) -> bool {
        self.used[unit / usize::BITS as usize].load(Relaxed) & 1 << (unit % usize::BITS as usize) != 0
    }
}

/// Fresh memory for code within reach of a jump.
fn map_near(site: usize) -> Option<usize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    let base = site & !(STEP - 1);
    let places = BELOW.filter_map(|n| base.checked_sub(n * STEP)).chain(ABOVE.map(|n| base + n * STEP));
    places.filter(|at| *at >= STEP).find(|at| {
        // SAFETY: new memory where there was none.
        match unsafe { pm::call!(__NR_mmap, *at, POOL_BYTES, PROT_READ | PROT_EXEC, flags, -1isize, 0) } {
            Ok(got) if got == *at => true,
            Ok(elsewhere) => {
                // A kernel that does not know the flag.
                // SAFETY: mapped just now.
                let _ = unsafe { pm::call!(__NR_munmap, elsewhere, POOL_BYTES) };
                false
            }
            Err(_) => false,
        }
    })
}

/// A stub being written.
struct Text {
    bytes: [u8; STUB_BYTES],
    len: usize,
    at: usize,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The distance from behind it to an address.
    fn distance(&mut self, to: usize) {
        let from = self.at + self.len + 4;
        self.push(&(to.wrapping_sub(from) as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stubs of sites at any place lie apart, and where the jump to them has the byte that faults. Method: sites all over a
    /// text, until the pool has no room.
    #[test]
    fn places() {
        let pool = Pool { begin: AtomicUsize::new(0x1_0000_0000), used: [const { AtomicUsize::new(0) }; UNITS / 64] };
        let mut stubs = std::vec::Vec::new();
        for site in (0x1_1000_0000usize..).step_by(37).take(4000) {
            if let Some(stub) = pool.room(site) {
                let distance = (stub.wrapping_sub(site + JUMP_BYTES) as u32).to_le_bytes();
                assert_eq!(distance[1], TRAP);
                assert!(stub >= 0x1_0000_0000 && stub + STUB_BYTES <= 0x1_0000_0000 + POOL_BYTES);
                stubs.push(stub);
            }
        }
        stubs.sort_unstable();
        assert!(stubs.windows(2).all(|pair| pair[0] + STUB_BYTES <= pair[1]));
        assert!(stubs.len() > 1000, "{}", stubs.len());
        assert_eq!(pool.room(0x2_0000_0000), None, "too far");
    }
}

//! Stubs, and the bytes of a site.
//!
//! The program's code is written through `/proc/self/mem`, so that no page is ever writable and executable at once, and others run in it
//! meanwhile. A site changes so, with all processors made to look anew (`membarrier`) after each step:
//!
//! ```text
//! 0f 05 48 89 c7   f4 05 48 89 c7   f4 05 f4 89 c7   f4 D0 f4 D2 D3   e9 D0 f4 D2 D3      D: distance
//! ```

use super::Place;
use crate::runtime::dispatch::code_from;
use core::sync::atomic::Ordering::*;
use pm::file::File;
use pm::sys::abi::*;
use posix::call_sites::{self, CALL, JUMP_BYTES, LONGEST, Moved, POOL_BYTES, Pool, STUB_BYTES, TRAP, has_room_before, moved};

/// A jump with a distance of 32 bits.
pub const JUMP: u8 = 0xe9;
const POOLS: usize = 8;
/// As much behind a return as is looked at.
const FILLING: usize = 16;
/// From a stub's call to where the program goes on.
pub const BEFORE: usize = 13;
const _: () = assert!(BEFORE + LONGEST + JUMP_BYTES <= STUB_BYTES && JUMP_BYTES + BEFORE + JUMP_BYTES <= STUB_BYTES);
const STEP: usize = 16 << 20;
/// Below a site there may be so much, and above it more: data grow there.
const BELOW: core::ops::Range<usize> = 4..64;
const ABOVE: core::ops::Range<usize> = 64..120;
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE`, and to ask for it.
const SYNC: usize = 1 << 5;
const ASK: usize = 1 << 6;

static STUBS: [Pool; POOLS] = [const { Pool::new() }; POOLS];

/// Whether an address is in a stub.
pub fn is_stub(address: usize) -> bool {
    STUBS.iter().any(|pool| pool.has(address))
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
    let code = code_from(site, CALL.len() + LONGEST + FILLING)?;
    let before = code_from(site - call_sites::BEFORE, call_sites::BEFORE).filter(|code| has_room_before(code));
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
    STUBS.iter().find(|pool| pool.has(stub)).and_then(Pool::begin)
}

/// Room for a stub to which the distance from a site has the right byte.
fn room(memory: &Memory, site: usize, entry: usize) -> Option<usize> {
    STUBS.iter().find_map(|pool| {
        if pool.begin().is_none() {
            let begin = map_near(site)?;
            // jmp [rip + 0]
            let way = [&[0xff, 0x25, 0, 0, 0, 0][..], &entry.to_le_bytes()];
            if !(memory.put(begin, way[0]) && memory.put(begin + way[0].len(), way[1])) {
                return None;
            }
            pool.start(begin);
        }
        pool.room(site)
    })
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

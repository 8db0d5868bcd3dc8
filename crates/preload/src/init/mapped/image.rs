//! A program's or loader's segments in memory, as the kernel puts them there.
//!
//! What may lie anywhere comes into the lower half of the addresses, where nothing is: the kernel's own place for programs has
//! the data of our libc.

use core::ffi::CStr;
use core::ops::Range;
use pm::sys::abi::*;
use posix::own_calls::{find, is_go};

/// Where programs that may lie anywhere begin, and their loaders, and how far apart they may be from there.
pub const PROGRAM: usize = 0x2aaa_aaa0_0000;
pub const LOADER: usize = PROGRAM + (1 << 40);
const SPREAD: usize = 1 << 17;
/// Somebody may be there where the kernel gives addresses from below (`ulimit -s unlimited`).
const ATTEMPTS: usize = 16;
/// The largest pages that segments may be aligned to.
const ALIGN: usize = 2 << 20;
const PAGE: usize = 4096;
const HEAD_BYTES: usize = 4096;
const SEGMENT_BYTES: usize = 56;
const ANYWHERE: u16 = 3;
const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
const HEADERS: u32 = 6;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;
/// Where data of a program made by Go's compiler say so: within so many bytes from their beginning.
const GO_BYTES: usize = 1 << 20;
/// What Go's linker calls a section that its programs can't do without; and what UPX leaves in a program's head.
const GO_SECTION: &[u8] = b".gopclntab";
const PACKED: &[u8] = b"UPX!";
const NAMES_BYTES: usize = 2048;

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_bytes: usize,
    bytes: usize,
    align: usize,
}

const _: () = assert!(size_of::<Segment>() == SEGMENT_BYTES);

/// A program or a loader that is mapped.
pub struct Image {
    head: [u8; HEAD_BYTES],
    len: usize,
    base: usize,
    end: usize,
}

impl Image {
    /// Maps the file open at `fd`; from `place` on, if it may lie anywhere.
    pub fn map(fd: i32, place: usize) -> Result<Image, &'static CStr> {
        let mut image = Image { head: [0; HEAD_BYTES], len: 0, base: 0, end: 0 };
        // SAFETY: the buffer outlives the call.
        let len = unsafe { crate::serve!(__NR_pread64, fd, image.head.as_mut_ptr(), HEAD_BYTES, 0) };
        image.len = usize::try_from(len).map_err(|_| c"it can't be read")?;
        if !posix::own_calls::can_be_mapped(&image.head[..image.len]) {
            return Err(c"it is no program of this machine's");
        }
        let loads = || image.segments().filter(|segment| segment.kind == LOAD);
        let bad = |segment: Segment| {
            segment.file_bytes > segment.bytes
                || segment.address.checked_add(segment.bytes).is_none_or(|end| end >= 1 << 47)
                || segment.address % PAGE != segment.offset % PAGE
        };
        if loads().next().is_none() || loads().any(bad) {
            return Err(c"its segments can't be mapped");
        }
        let begin = loads().map(|segment| segment.address & !(PAGE - 1)).min().unwrap_or(0);
        let end = loads().map(|segment| segment.address + segment.bytes).max().unwrap_or(0).next_multiple_of(PAGE);
        let is_anywhere = image.half(16) == ANYWHERE;
        let place = |_| if is_anywhere { place + random() % SPREAD * ALIGN } else { begin };
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        let target = (0..ATTEMPTS).map(place).find(|&target| {
            // SAFETY: new memory where there was none.
            let reserved = unsafe { pm::call!(__NR_mmap, target, end - begin, PROT_NONE, flags, -1isize, 0) };
            reserved == Ok(target)
        });
        let target = target.ok_or(c"there is no room at its addresses")?;
        let base = target - begin;
        for segment in loads() {
            // SAFETY: inside what is reserved.
            unsafe { put(fd, base, &segment) }.map_err(|_| c"a segment of it can't be mapped")?;
        }
        (image.base, image.end) = (base, base + end);
        Ok(image)
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.head[at], self.head[at + 1]])
    }

    fn word(&self, at: usize) -> usize {
        self.head[at..].first_chunk().map_or(0, |bytes| usize::from_le_bytes(*bytes))
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + Clone {
        let table = self.word(32);
        // SAFETY: the table is in the head, and any bytes are a segment.
        (0..self.header_count())
            .map(move |index| unsafe { self.head.as_ptr().add(table + index * SEGMENT_BYTES).cast::<Segment>().read_unaligned() })
    }

    /// What is added to its addresses.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Behind its last page.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Its code, unless what is packed comes in its place.
    pub fn code(&self) -> impl Iterator<Item = Range<usize>> {
        let is_code = |segment: &Segment| segment.kind == LOAD && segment.flags & (EXECUTE | WRITE) == EXECUTE;
        let stays = !self.is_packed();
        self.segments().filter(move |segment| stays && is_code(segment)).map(|segment| {
            let begin = self.base + segment.address;
            begin..begin + segment.file_bytes
        })
    }

    fn is_packed(&self) -> bool {
        find(&self.head, PACKED).is_some()
    }

    /// Where it begins to run.
    pub fn entry(&self) -> usize {
        self.base + self.word(24)
    }

    /// How many segments it has.
    pub fn header_count(&self) -> usize {
        usize::from(self.half(56))
    }

    /// Where its table of segments is.
    pub fn headers(&self) -> usize {
        let table = self.word(32);
        let own = self.segments().find(|segment| segment.kind == HEADERS).map(|segment| segment.address);
        let holds = |segment: &Segment| segment.kind == LOAD && table.wrapping_sub(segment.offset) < segment.file_bytes;
        let within = || self.segments().find(holds).map(|segment| segment.address + (table - segment.offset));
        own.or_else(within).map_or(0, |address| self.base + address)
    }

    /// The path of its loader.
    pub fn loader(&self) -> Option<&CStr> {
        let segment = self.segments().find(|segment| segment.kind == INTERPRETER)?;
        let text = self.head.get(segment.offset..segment.offset.checked_add(segment.file_bytes)?)?;
        CStr::from_bytes_until_nul(text).ok()
    }

    /// Whether it may call on stacks that have no room for us, as what Go's compiler makes: its data say so, or the names of its
    /// sections; what is packed may be anything.
    pub fn calls_on_small_stacks(&self, fd: i32) -> bool {
        const DATA: u32 = READ | WRITE;
        let says_so = self.segments().filter(|segment| segment.kind == LOAD && segment.flags & DATA == DATA).any(|segment| {
            let len = segment.file_bytes.min(GO_BYTES);
            // SAFETY: mapped readable, and nobody writes it yet.
            is_go(unsafe { core::slice::from_raw_parts((self.base + segment.address) as *const u8, len) })
        });
        says_so || self.is_packed() || self.has_section(fd, GO_SECTION).unwrap_or(false)
    }

    /// Whether a section has that name, as far as there are names.
    fn has_section(&self, fd: i32, name: &[u8]) -> Option<bool> {
        let (table, bytes, index) = (self.word(40), usize::from(self.half(58)), usize::from(self.half(62)));
        let mut section = [0usize; 8];
        let mut names = [0u8; NAMES_BYTES];
        let at = table.checked_add(bytes * index)?;
        // SAFETY: the buffer outlives the call.
        let len = unsafe { crate::serve!(__NR_pread64, fd, section.as_mut_ptr(), size_of_val(&section), at) };
        if table == 0 || len != size_of_val(&section) as isize {
            return None;
        }
        // Offset and size of what has the names.
        let room = section[4].min(NAMES_BYTES);
        // SAFETY: as above.
        let len = unsafe { crate::serve!(__NR_pread64, fd, names.as_mut_ptr(), room, section[3]) };
        Some(find(names.get(..usize::try_from(len).ok()?)?, name).is_some())
    }
}

/// Maps a segment.
///
/// # Safety
/// Its place is reserved for it.
unsafe fn put(fd: i32, base: usize, segment: &Segment) -> Result<(), isize> {
    let begin = base + segment.address;
    let (page, before) = (begin & !(PAGE - 1), begin % PAGE);
    let (file_end, end) = (begin + segment.file_bytes, begin + segment.bytes);
    let bit = |flag: u32, protection: u32| if segment.flags & flag != 0 { protection } else { 0 };
    let protection = bit(READ, PROT_READ) | bit(WRITE, PROT_WRITE) | bit(EXECUTE, PROT_EXEC);
    let made = |at: isize| if at < 0 { Err(at) } else { Ok(()) };
    let file_pages_end = file_end.next_multiple_of(PAGE);
    if segment.file_bytes > 0 {
        let (len, flags) = (file_end - page, MAP_PRIVATE | MAP_FIXED);
        // SAFETY: by contract.
        made(unsafe { crate::serve!(__NR_mmap, page, len, protection, flags, fd, segment.offset - before) })?;
        if end > file_end && segment.flags & WRITE != 0 {
            // SAFETY: the rest of the last page, which is private and writable.
            unsafe { core::ptr::write_bytes(file_end as *mut u8, 0, file_pages_end.min(end.next_multiple_of(PAGE)) - file_end) };
        }
    }
    let rest = if segment.file_bytes > 0 { file_pages_end } else { page };
    if end > rest {
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        // SAFETY: by contract.
        made(unsafe { crate::serve!(__NR_mmap, rest, end - rest, protection, flags, -1isize, 0) })?;
    }
    Ok(())
}

fn random() -> usize {
    let mut word = 0usize;
    // SAFETY: as many bytes as the word has.
    let _ = unsafe { pm::call!(__NR_getrandom, &raw mut word, size_of::<usize>(), 1) };
    word
}

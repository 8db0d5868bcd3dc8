//! The program and the libraries that the loader has put into memory.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ops::Range;

/// The head of glibc's `struct dl_phdr_info`.
#[derive(Clone)]
#[repr(C)]
pub struct Object {
    base: usize,
    name: *const c_char,
    headers: *const Header,
    count: u16,
    loads: u64,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_bytes: u64,
    bytes: u64,
    align: u64,
}

/// Longest build id that is known.
pub const ID_BYTES: usize = 20;
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const DYNAMIC: u32 = 2;
const READ_ONLY: u32 = 0x6474_e552;
const EXECUTE: u32 = 1;
const READ: u32 = 4;
/// Words that hold a symbol's address: of data, of functions, and in the object's own data.
const BOUND: [u32; 3] = if cfg!(target_arch = "aarch64") { [1025, 1026, 257] } else { [6, 7, 1] };

/// A word that the loader binds to a symbol of another object.
pub struct Relocation<'a> {
    /// Where it is.
    pub word: usize,
    /// The symbol's name.
    pub name: &'a CStr,
}

type Each = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;

#[link(name = "c")]
unsafe extern "C" {
    fn dl_iterate_phdr(each: Each, data: *mut c_void) -> c_int;
}

/// Shows `look` each object, the program first, until it says that it has seen enough.
pub fn each(mut look: impl FnMut(&Object) -> bool) {
    unsafe extern "C" fn one<F: FnMut(&Object) -> bool>(object: *const Object, _bytes: usize, look: *mut c_void) -> c_int {
        // SAFETY: the loader's own structure, and the closure that `each` hands over.
        let (object, look) = unsafe { (&*object, &mut *look.cast::<F>()) };
        c_int::from(look(object))
    }
    fn shaped<F: FnMut(&Object) -> bool>(_: &F) -> Each {
        one::<F>
    }
    let each = shaped(&look);
    // SAFETY: `each` has the right shape, and gets the closure.
    unsafe { dl_iterate_phdr(each, (&raw mut look).cast()) };
}

/// How many objects there are.
pub fn count() -> usize {
    let mut count = 0;
    each(|_| {
        count += 1;
        false
    });
    count
}

/// How many have been loaded ever.
pub fn loads() -> usize {
    let mut loads = 0;
    each(|object| {
        loads = object.loads as usize;
        true
    });
    loads
}

impl Object {
    fn headers(&self) -> &[Header] {
        // SAFETY: the loader's array of so many headers.
        unsafe { core::slice::from_raw_parts(self.headers, usize::from(self.count)) }
    }

    fn range(&self, header: &Header) -> Range<usize> {
        let begin = self.base.wrapping_add(header.address as usize);
        begin..begin + header.bytes as usize
    }

    /// Where it was loaded.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Its path; empty for the program.
    pub fn name(&self) -> &CStr {
        // SAFETY: the loader's text, or null.
        if self.name.is_null() { c"" } else { unsafe { CStr::from_ptr(self.name) } }
    }

    /// Its build id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.notes().filter_map(build_id).last()
    }

    /// What its code takes, from the first to the last.
    pub fn text(&self) -> Option<Range<usize>> {
        let code = self.headers().iter().filter(|header| header.kind == LOAD && header.flags & EXECUTE != 0);
        code.map(|header| self.range(header)).reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
    }

    /// What the loader has made read-only when it was done.
    pub fn made_read_only(&self) -> Option<Range<usize>> {
        self.headers().iter().find(|header| header.kind == READ_ONLY).map(|header| self.range(header))
    }

    /// The value of an entry of its dynamic section; addresses are as the loader uses them.
    fn entry(&self, tag: u64) -> Option<usize> {
        let section = self.headers().iter().find(|header| header.kind == DYNAMIC)?;
        let (pairs, _) = self.bytes(section).as_chunks::<16>();
        let split = |pair: &[u8; 16]| {
            let word = |at: usize| pair[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            (word(0), word(8) as usize)
        };
        pairs.iter().map(split).take_while(|(kind, _)| *kind != 0).find(|(kind, _)| *kind == tag).map(|(_, value)| value)
    }

    /// The words bound to symbols that it does not have itself.
    pub fn relocations(&self) -> impl Iterator<Item = Relocation<'_>> {
        const STRINGS: u64 = 5;
        const SYMBOLS: u64 = 6;
        /// Place and size of each table.
        const TABLES: [(u64, u64); 2] = [(7, 8), (23, 2)];
        /// `Elf64_Sym`, `Elf64_Rela`.
        const SYMBOL_BYTES: usize = 24;
        const ENTRY_BYTES: usize = 24;
        // glibc has put addresses in their place, but in what it keeps read-only.
        let address = |value: usize| if value < self.base { self.base + value } else { value };
        let strings = self.entry(STRINGS).map(address);
        let symbols = self.entry(SYMBOLS).map(address);
        let entries = TABLES.into_iter().flat_map(move |(place, size)| {
            let (place, bytes) = (self.entry(place).map(address), self.entry(size).unwrap_or(0));
            place.into_iter().flat_map(move |place| (0..bytes / ENTRY_BYTES).map(move |index| place + index * ENTRY_BYTES))
        });
        entries.filter_map(move |entry| {
            // SAFETY: an entry of the object's table, which the loader has gone through.
            let [offset, info, added] = unsafe { (entry as *const [usize; 3]).read_unaligned() };
            let symbol = symbols? + (info >> 32) * SYMBOL_BYTES;
            if !BOUND.contains(&(info as u32)) || added != 0 {
                return None;
            }
            // SAFETY: the symbol that it is about: its name, and in which section it is.
            let (name, section) = unsafe { ((symbol as *const u32).read(), (symbol as *const u16).add(3).read()) };
            // SAFETY: a NUL-terminated text among the object's.
            let name = unsafe { CStr::from_ptr((strings? + name as usize) as *const c_char) };
            (section == 0).then_some(Relocation { word: self.base + offset, name })
        })
    }

    /// The bytes of each segment that can be read: of code, or of all.
    pub fn segments(&self, is_code: bool) -> impl Iterator<Item = &[u8]> {
        let wanted = if is_code { READ | EXECUTE } else { READ };
        let headers = self.headers().iter().filter(move |header| header.kind == LOAD && header.flags & wanted == wanted);
        headers.map(|header| self.bytes(header))
    }

    fn bytes(&self, header: &Header) -> &[u8] {
        let range = self.range(header);
        // SAFETY: mapped readable for as long as the object is; what the program writes there meanwhile is only looked at.
        unsafe { core::slice::from_raw_parts(range.start as *const u8, range.len()) }
    }

    /// The bytes of each of its segments of notes.
    fn notes(&self) -> impl Iterator<Item = &[u8]> {
        self.headers().iter().filter(|header| header.kind == NOTE).map(|header| self.bytes(header))
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The build id among the notes of a library.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const BUILD_ID: u32 = 3;
    loop {
        let (name_len, len) = (word(notes)? as usize, word(notes.get(4..)?)? as usize);
        let kind = word(notes.get(8..)?)?;
        let name_end = name_len.checked_next_multiple_of(4)?.checked_add(12)?;
        let end = name_end.checked_add(len)?;
        let (name, description) = (notes.get(12..12 + name_len.min(4))?, notes.get(name_end..end)?);
        if kind == BUILD_ID && name == b"GNU\0" && len <= ID_BYTES {
            return Some(description);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

//! Which of the objects that the loader has put into memory make system calls of their own.
//!
//! The verdict on all that a program starts with is kept as one, by their build ids; where an object has none, by its file.

use super::known::{self, Entry, TEXT_MAX};
use super::{Calls, of_file, of_object};
use crate::runtime::objects::{self, Object};
use crate::runtime::{dispatch, imports};
use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use pm::sys::abi::*;
use posix::own_calls::is_of_libc;

#[link(name = "c")]
unsafe extern "C" {
    safe fn getpid() -> c_int;
    safe fn getauxval(kind: usize) -> usize;
    /// What the program was started as.
    static program_invocation_name: *const c_char;
}

/// Where the loader is, 0 if it was started by its name; and the vDSO.
const AT_BASE: usize = 7;
const AT_SYSINFO_EHDR: usize = 33;
/// Objects that one verdict is about; further ones are not looked at.
const OBJECTS_MAX: usize = 256;
/// What makes such calls, and where it lies.
#[derive(Clone, Default)]
pub struct Found {
    /// From the first of its code to the last; empty: there is nothing.
    pub code: Range<usize>,
    /// Code that must not be in that ([`outside`]).
    pub outside: [Range<usize>; 4],
    /// There are others that can't be brought to us.
    pub past: bool,
    /// Go's runtime is among them.
    pub is_go: bool,
}

/// How many objects the loader had put into memory when they were looked at last, those that are gone included.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Looks at the objects that are there when the program starts.
pub fn loaded() -> Found {
    // Not within a walk, during which the loader has a lock.
    function_of_loader();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut count = 0;
    each_own(0, |object| {
        count += 1;
        hash = mix(hash, object);
    });
    let mut verdicts = [Calls::None as u8; OBJECTS_MAX];
    let Some(entry) = Entry::new(hash, format_args!("{hash:x}.{count}.")) else {
        // No session: the program alone.
        verdicts[0] = of_file(file_of(c"")).unwrap_or(Calls::None) as u8;
        return find(0, &verdicts);
    };
    let mut room = [0; TEXT_MAX];
    match entry.known(&mut room) {
        Some(known) if known.len() <= OBJECTS_MAX => verdicts[..known.len()].copy_from_slice(known),
        _ => {
            judge(0, &mut verdicts);
            entry.keep(&verdicts[..count.min(OBJECTS_MAX)]);
        }
    }
    find(0, &verdicts)
}

/// Looks at the objects that have come since.
pub fn opened() -> Found {
    let before = SEEN.load(Relaxed);
    let mut verdicts = [Calls::None as u8; OBJECTS_MAX];
    if objects::loads() == before || !judge(before, &mut verdicts) {
        SEEN.store(objects::loads(), Relaxed);
        return Found::default();
    }
    find(before, &verdicts)
}

/// Looks at each object's file; whether any makes such calls.
#[cold]
fn judge(before: usize, verdicts: &mut [u8; OBJECTS_MAX]) -> bool {
    // Whose verdicts are not kept would look at all libraries with each program.
    let all = known::is_kept();
    let (mut index, mut any) = (0, false);
    each_own(before, |object| {
        let Some(verdict) = verdicts.get_mut(index) else { return };
        index += 1;
        if all || object.name().is_empty() {
            // What was opened by a descriptor has no path any more.
            *verdict = of_file(file_of(object.name())).unwrap_or_else(|| of_object(object)) as u8;
            any |= *verdict != Calls::None as u8;
        }
    });
    any
}

/// Where those are that make such calls.
fn find(before: usize, verdicts: &[u8; OBJECTS_MAX]) -> Found {
    let mut found = Found::default();
    SEEN.store(objects::loads(), Relaxed);
    let has = |calls: Calls| verdicts.contains(&(calls as u8));
    (found.past, found.is_go) = (has(Calls::Aside), has(Calls::Go));
    if !has(Calls::Own) && !found.is_go {
        return found;
    }
    let mut index = 0;
    each_own(before, |object| {
        let is_one = verdicts.get(index).is_some_and(|&verdict| Calls::from_text(verdict).can_be_served());
        index += 1;
        if let Some(code) = object.text().filter(|_| is_one) {
            dispatch::note_code(&code);
            found.code = hull(&found.code, &code);
        }
    });
    found.outside = outside();
    found
}

/// Code of libc, the loader, the vDSO, this library.
pub fn outside() -> [Range<usize>; 4] {
    let mut outside = [const { 0..0 }; 4];
    let mut places = outside.iter_mut();
    objects::each(|object| {
        if let Some(code) = object.text().filter(|code| is_outside(object, code))
            && let Some(place) = places.next()
        {
            *place = code;
        }
        false
    });
    outside
}

/// From the first code of libc, the loader and this library to the last.
pub fn own() -> Range<usize> {
    let mut own = 0..0;
    objects::each(|object| {
        if let Some(code) = object.text().filter(|code| is_outside(object, code) && !is_kernels(object)) {
            own = hull(&own, &code);
        }
        false
    });
    own
}

/// Writes the loader's path, NUL-terminated, into `room`; `None`: not known.
pub fn loader(room: &mut [u8]) -> Option<()> {
    if getauxval(AT_BASE) == 0 {
        // Started by its name, it is the program.
        let end = room.len() - 1;
        // SAFETY: a NUL-terminated path, and as much room as we say.
        let len = unsafe { pm::call!(__NR_readlinkat, AT_FDCWD, c"/proc/self/exe".as_ptr(), room.as_mut_ptr(), end) }.ok()?;
        *room.get_mut(len)? = 0;
        return (room.first() == Some(&b'/')).then_some(());
    }
    let mut found = None;
    objects::each(|object| {
        let name = object.name().to_bytes_with_nul();
        let is_it = object.base() == getauxval(AT_BASE) && name.first() == Some(&b'/');
        if is_it && let Some(place) = room.get_mut(..name.len()) {
            place.copy_from_slice(name);
            found = Some(());
        }
        is_it
    });
    found
}

/// The vDSO.
fn is_kernels(object: &Object) -> bool {
    object.base() == getauxval(AT_SYSINFO_EHDR)
}

/// From the first to the last of both, of which one may be empty.
pub fn hull(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    match (one.is_empty(), other.is_empty()) {
        (true, _) => other.clone(),
        (_, true) => one.clone(),
        _ => one.start.min(other.start)..one.end.max(other.end),
    }
}

/// Shows `look` the objects that may make such calls: of those that came after the first `before` ever.
fn each_own(before: usize, mut look: impl FnMut(&Object)) {
    let mut skip = objects::count().saturating_sub(objects::loads() - before.min(objects::loads()));
    objects::each(|object| {
        if skip > 0 {
            skip -= 1;
        } else if !object.text().is_some_and(|code| is_outside(object, &code)) && !is_of_libc(object.name().to_bytes()) {
            look(object);
        }
        false
    });
}

/// Whether calls made by this object must go to the kernel.
fn is_outside(object: &Object, code: &Range<usize>) -> bool {
    code.contains(&(getpid as *const () as usize))
        || code.contains(&(loaded as *const () as usize))
        || code.contains(&function_of_loader())
        || is_kernels(object)
}

/// Where a function is that the loader has, and nobody else.
fn function_of_loader() -> usize {
    static AT: AtomicUsize = AtomicUsize::new(0);
    let mut at = AT.load(Relaxed);
    if at == 0 {
        // SAFETY: null is `RTLD_DEFAULT`; the name is NUL-terminated.
        at = unsafe { imports::dlsym(core::ptr::null_mut(), c"__tls_get_addr".as_ptr()) } as usize;
        AT.store(at, Relaxed);
    }
    at
}

/// The file of an object of this name.
fn file_of(name: &CStr) -> &CStr {
    match name.is_empty() {
        false => name,
        true if getauxval(AT_BASE) != 0 => c"/proc/self/exe",
        // SAFETY: libc's text: the path that the loader was told, as the program's first argument.
        true => unsafe { CStr::from_ptr(program_invocation_name) },
    }
}

/// A number of all objects before, and of this one.
fn mix(hash: u64, object: &Object) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    if let Some(id) = object.build_id() {
        return id.iter().fold(hash, step);
    }
    pm::file::stat(file_of(object.name()).to_bytes_with_nul()).map_or(hash, |stat| {
        let words = [stat.dev, stat.ino, stat.size, stat.changed[0] as u64, stat.changed[1] as u64];
        words.iter().flat_map(|word| word.to_le_bytes()).fold(hash, |hash, byte| step(hash, &byte))
    })
}

//! The kernel's own functions, which it maps into every program (vdso(7)).

use crate::sys::abi::__kernel_timespec;
use core::ffi::{CStr, c_char};
use linux_raw_sys::auxvec::AT_SYSINFO_EHDR;
use linux_raw_sys::elf::{DT_NULL, DT_STRTAB, DT_SYMTAB, Elf_Dyn, Elf_Ehdr, Elf_Phdr, Elf_Sym, PT_DYNAMIC, PT_LOAD, SHN_UNDEF};

/// `clock_gettime`: 0, or less.
pub type ClockGettime = unsafe extern "C" fn(clock: i32, time: *mut __kernel_timespec) -> i32;

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: &CStr = c"__vdso_clock_gettime";
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: &CStr = c"__kernel_clock_gettime";

unsafe extern "C" {
    fn getauxval(kind: u64) -> u64;
}

/// The kernel's `clock_gettime`; `None` where it has mapped none (valgrind hides it).
pub fn clock_gettime() -> Option<ClockGettime> {
    // SAFETY: it looks the number up, and knows that 0 means none.
    let image = unsafe { getauxval(AT_SYSINFO_EHDR.into()) } as *const u8;
    if image.is_null() {
        return None;
    }
    // SAFETY: there the kernel has mapped a whole ELF image, for as long as the program lives.
    let at = unsafe { symbol(image, CLOCK_GETTIME) }?;
    // SAFETY: of that name, the function has this type.
    Some(unsafe { core::mem::transmute::<*const u8, ClockGettime>(at) })
}

/// Where a symbol of an image is.
///
/// # Safety
/// `image` is a whole ELF image of this machine's kind, as it is mapped.
unsafe fn symbol(image: *const u8, name: &CStr) -> Option<*const u8> {
    // SAFETY: an image begins so.
    let head = unsafe { &*image.cast::<Elf_Ehdr>() };
    // SAFETY: there is its table of segments.
    let segments = unsafe { core::slice::from_raw_parts(image.add(head.e_phoff).cast::<Elf_Phdr>(), head.e_phnum.into()) };
    let first = segments.iter().find(|segment| segment.p_type == PT_LOAD)?;
    // Addresses in it are meant for another place.
    let place = |address: usize| image.wrapping_add(first.p_offset).wrapping_add(address.wrapping_sub(first.p_vaddr));
    let dynamic = segments.iter().find(|segment| segment.p_type == PT_DYNAMIC)?;
    let (mut names, mut symbols) = (None, None);
    let mut entry = place(dynamic.p_vaddr).cast::<Elf_Dyn>();
    loop {
        // SAFETY: the list, which ends in `DT_NULL`.
        let Elf_Dyn { d_tag, d_un } = unsafe { *entry };
        // SAFETY: a number either way.
        let value = unsafe { d_un.d_val } as usize;
        match d_tag {
            DT_NULL => break,
            DT_STRTAB => names = Some(place(value)),
            DT_SYMTAB => symbols = Some(place(value)),
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    let (names, symbols) = (names?, symbols?);
    // How many symbols there are no tag says: the names lie behind them.
    let count = (names as usize).checked_sub(symbols as usize)? / size_of::<Elf_Sym>();
    // SAFETY: as many as fit before the names.
    let symbols = unsafe { core::slice::from_raw_parts(symbols.cast::<Elf_Sym>(), count) };
    // SAFETY: a name in the table of names, which ends in NUL.
    let is_it = |symbol: &&Elf_Sym| unsafe { CStr::from_ptr(names.add(symbol.st_name as usize).cast::<c_char>()) } == name;
    let found = symbols.iter().filter(|symbol| symbol.st_shndx != SHN_UNDEF).find(is_it)?;
    Some(place(found.st_value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kernel's function is found, and tells the time. Method: what it says lies between two answers of libc's.
    #[test]
    fn tells_the_time() {
        let get = clock_gettime().expect("every kernel that tests run on maps one");
        let by = |get: &dyn Fn(*mut __kernel_timespec)| {
            let mut time = __kernel_timespec { tv_sec: 0, tv_nsec: 0 };
            get(&mut time);
            (time.tv_sec, time.tv_nsec)
        };
        let monotonic = crate::sys::abi::CLOCK_MONOTONIC as i32;
        let before = crate::clock::monotonic();
        // SAFETY: a valid timespec.
        let (seconds, nanoseconds) = by(&|time| assert_eq!(unsafe { get(monotonic, time) }, 0));
        let between = seconds * 1_000_000_000 + nanoseconds;
        assert!((before..=crate::clock::monotonic()).contains(&between));
    }
}

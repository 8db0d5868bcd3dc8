//! Libraries inside a mount for the loader, where the kernel has nothing at their path.
//!
//! The loader makes raw system calls. Where an image is mounted through the kernel too it finds everything; else it gets a
//! copy in memory of what only we can read:
//!
//! - of a library that is opened ([`open`]), and of those it needs, first those;
//! - of the libraries that a program of ours needs ([`Copies::needs_of`], from `exec`), as further ones of `LD_PRELOAD`,
//!   which [`inherit`] takes out again.
//!
//! A library that is needed is one of those there if its name (`DT_SONAME`) is: so the loader looks for none of them itself.
//!
//! | file | |
//! |---|---|
//! | `dynamic.rs` | what a library needs, and where it is looked for |
//! | `gather.rs` | copies of it |
//! | `names.rs` | what the loader knows copies by |
//! | `preloaded.rs` | those of `LD_PRELOAD` |

mod dynamic;
mod gather;
mod names;
pub mod preloaded;

pub use gather::{Copies, Paths};
pub use names::name_of;

use crate::next;
use crate::runtime::front_end::PROCESS;
use crate::runtime::imports;
use core::ffi::{CStr, c_char, c_int, c_void};
use gather::{Text, Who};
use names::Name;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
type Iterate = unsafe extern "C" fn(extern "C" fn(*mut Loaded, usize, *mut Name) -> c_int, *mut Name) -> c_int;

const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

/// The start of a `struct dl_phdr_info`.
#[repr(C)]
struct Loaded {
    _address: usize,
    name: *const c_char,
}

/// `LD_LIBRARY_PATH` of an environment.
///
/// # Safety
/// As for [`imports::get_variable`].
pub unsafe fn library_path<'a>(environment: *const *mut c_char) -> &'a [u8] {
    // SAFETY: by contract.
    unsafe { imports::get_variable(environment, b"LD_LIBRARY_PATH") }.map_or(&b""[..], CStr::to_bytes)
}

/// Whether a whole file is the loader, whatever it is called.
pub fn is_loader(file: &[u8]) -> bool {
    dynamic::Dynamic::of(file).and_then(|dynamic| dynamic.name()).is_some_and(|name| name.starts_with(b"ld-linux"))
}

/// Whether a library of that name is there.
fn is_there(name: *const c_char) -> bool {
    load(name, RTLD_LAZY | RTLD_NOLOAD).is_some_and(|handle| {
        unload(handle);
        true
    })
}

fn load(name: *const c_char, flags: c_int) -> Option<*mut c_void> {
    let dlopen = next!(Dlopen, "dlopen")?;
    // SAFETY: a NUL-terminated name; what the library does when it is loaded is the program's wish.
    let handle = unsafe { dlopen(name, flags) };
    (!handle.is_null()).then_some(handle)
}

fn unload(handle: *mut c_void) {
    if let Some(dlclose) = next!(Dlclose, "dlclose") {
        // SAFETY: a handle that was given to us.
        unsafe { dlclose(handle) };
    }
}

/// Whether the loader has a library by exactly this name: to ask itself might have it open what has the number now.
fn has(name: &mut Name) -> bool {
    extern "C" fn is_same(loaded: *mut Loaded, _len: usize, name: *mut Name) -> c_int {
        // SAFETY: the loader's, and ours: both NUL-terminated.
        let (theirs, ours) = unsafe { (CStr::from_ptr((*loaded).name), CStr::from_ptr(name.cast())) };
        c_int::from(theirs == ours)
    }
    let Some(iterate) = next!(Iterate, "dl_iterate_phdr") else { return false };
    // SAFETY: the function gets what it expects, and the name outlives the call.
    unsafe { iterate(is_same, name) != 0 }
}

/// What became of opening a library.
pub enum Opened {
    /// The loader's answer: a handle, or null.
    Answer(*mut c_void),
    /// It is for the loader alone.
    Loaders,
    /// Only we have it, and it can't be copied: the negated error number.
    Failed(isize),
}

/// `dlopen` of a library that only we may have: by a path, or a bare name in `LD_LIBRARY_PATH`.
///
/// # Safety
/// `path` is a NUL-terminated string; the caller may not be in an operation.
pub unsafe fn open(path: *const c_char, flags: c_int) -> Opened {
    // SAFETY: by contract.
    let name = unsafe { imports::bytes(path) };
    // SAFETY: libc's environment.
    let given = unsafe { library_path(imports::environ) };
    let is_bare = !name.contains(&b'/');
    if is_bare && (given.is_empty() || is_there(path)) {
        return Opened::Loaders;
    }
    let Some(mut text) = Text::new() else { return Opened::Loaders };
    let file = if is_bare {
        (Paths { given, wants: &|_| true }).find(None, name, &mut text)
    } else {
        (gather::who_has(path as usize) == Who::Us).then(|| gather::open(path as usize)).flatten()
    };
    let Some(file) = file else { return Opened::Loaders };
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let opened = if PROCESS.descriptors.is_ours(file as usize) {
        open_ours(file, name, flags, &Paths { given, wants: &|name| !is_there(name) })
    } else {
        // A directory of the kernel's: the loader can have it by its other path.
        match text.path_of(file) {
            Some(_) => Opened::Answer(load(text.address() as *const c_char, flags).unwrap_or(core::ptr::null_mut())),
            None => Opened::Loaders,
        }
    };
    gather::close(file);
    opened
}

fn open_ours(file: i32, name: &[u8], flags: c_int, paths: &Paths) -> Opened {
    let Some(key) = gather::key_of(file) else { return Opened::Loaders };
    let again = |key, flags| {
        let mut known = names::known(key)?;
        if has(&mut known) { load(known.as_ptr().cast(), flags) } else { None }
    };
    if let Some(handle) = again(key, flags) {
        return Opened::Answer(handle);
    }
    if flags & RTLD_NOLOAD != 0 {
        return Opened::Loaders;
    }
    let Some(mut copies) = Copies::new() else { return Opened::Failed(-12) };
    if let Err(error) = copies.add(file, name, paths) {
        return Opened::Failed(error);
    }
    let count = copies.count();
    let mut handles = [None; gather::COPIES_MAX];
    for (turn, answer) in handles.iter_mut().enumerate().take(count) {
        let Some((key, copy)) = copies.iter().nth(turn) else { break };
        let flags = if turn + 1 == count { flags } else { RTLD_LAZY };
        *answer = again(key, flags).or_else(|| {
            let name = names::enter(key, copy)?;
            copies.taken(copy);
            let handle = load(name.as_ptr().cast(), flags);
            names::leave(key);
            handle
        });
    }
    let (answer, needed) = (handles[count - 1], &handles[..count - 1]);
    // Who needs them has them now. After a failure `dlerror` is to tell of that.
    if answer.is_some() {
        needed.iter().flatten().for_each(|&handle| unload(handle));
    }
    Opened::Answer(answer.unwrap_or(core::ptr::null_mut()))
}

/// Takes the copies that `exec` has put into `LD_PRELOAD` out of it, and keeps their names.
///
/// # Safety
/// `environment` is null or an array of NUL-terminated strings that ends with null, which nobody else uses meanwhile.
pub unsafe fn inherit(environment: *const *mut c_char) {
    // SAFETY: by contract.
    if unsafe { preloaded::take_back(environment) } {
        return;
    }
    // SAFETY: by contract.
    let Some(list) = (unsafe { imports::get_variable(environment, b"LD_PRELOAD") }) else { return };
    let text = list.to_bytes();
    let Some(at) = text.windows(names::PREFIX.len()).position(|part| part == names::PREFIX) else { return };
    text[at..].split(|&byte| byte == b':').for_each(names::inherit);
    let end = if at > 0 { at - 1 } else { 0 };
    // SAFETY: inside the string, which is the process's own.
    unsafe { *list.as_ptr().cast_mut().add(end) = 0 };
}

//! Libraries of `LD_PRELOAD` that lie in a mount: a new program gets copies of those that only we have, in their place.
//!
//! The list itself goes along in a variable, from which [`take_back`] makes it what it was, for the program and its children.

use super::gather::{self, Who};
use super::{Copies, Paths, library_path, name_of, names};
use crate::runtime::environ::{Environment, own_name};
use crate::runtime::front_end::PROCESS;
use crate::runtime::{alloc, imports};
use core::ffi::{CStr, c_char};
use posix::{CWD_FD, environment};

/// Room for the names of the libraries.
const FRONT_MAX: usize = 16384;

type Strings = *const *mut c_char;

/// The names in `LD_PRELOAD` that might lead into a mount.
///
/// # Safety
/// `source` is null or an array of NUL-terminated strings that ends with null, which outlives the result.
unsafe fn suspects<'a>(source: Strings) -> impl Iterator<Item = &'a [u8]> {
    // SAFETY: by contract.
    let list = unsafe { imports::get_variable(source, b"LD_PRELOAD") }.map_or(&b""[..], CStr::to_bytes);
    let own = own_name();
    list.split(|&byte| matches!(byte, b':' | b' ')).filter(move |&name| name != own && is_suspect(name))
}

fn is_suspect(name: &[u8]) -> bool {
    let here = || PROCESS.descriptors.get(CWD_FD).is_some();
    name.contains(&b'/') && (PROCESS.mounts.find(name).is_some() || name[0] != b'/' && here())
}

/// Whether the environment of a new program names libraries that may lie in a mount.
///
/// # Safety
/// As for an environment.
pub unsafe fn has_suspects(source: Strings) -> bool {
    // SAFETY: by contract.
    unsafe { suspects(source) }.next().is_some()
}

/// Puts copies of those that only we have into the place of `LD_PRELOAD`'s own; they are the program's once it runs.
///
/// # Safety
/// `source` is the environment that `environment` was made of; not within an operation.
#[cold]
pub unsafe fn replace(source: Strings, environment: &mut Environment) -> Option<Copies> {
    let (mut copies, mut front) = (Copies::new()?, Front::new()?);
    // SAFETY: by contract.
    let given = unsafe { library_path(source) };
    let paths = Paths { given, wants: &|_| true };
    // SAFETY: by contract.
    for name in unsafe { suspects(source) } {
        let Some(text) = Text::of(name).filter(|text| gather::who_has(text.0 as usize) == Who::Us) else { continue };
        let Some(file) = gather::open(text.0 as usize) else { continue };
        if !PROCESS.descriptors.is_ours(file as usize) {
            // A directory of the kernel's: the loader can have it by its other path.
            let other = gather::Text::new().and_then(|mut other| Some((other.path_of(file)?, other)));
            if let Some((len, other)) = other {
                // SAFETY: a text of that length.
                front.push(unsafe { core::slice::from_raw_parts(other.address() as *const u8, len) });
            }
            gather::close(file);
            continue;
        }
        let short = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        // The loader says of what can't be copied that it is not there.
        let _ = copies.add(file, short, &paths);
        gather::close(file);
    }
    let is_ours =
        |name: &[u8]| is_suspect(name) && Text::of(name).is_some_and(|text| gather::who_has(text.0 as usize) == Who::Us);
    for (key, copy) in copies.iter() {
        front.push(name_of(key, copy).split(|&byte| byte == 0).next().unwrap_or(b""));
    }
    if front.len == 0 || !environment.with_preloaded(front.bytes(), is_ours) {
        return None;
    }
    for (_, copy) in copies.iter() {
        let _ = crate::runtime::kernel::fcntl(copy, pm::sys::abi::F_SETFD, 0);
    }
    Some(copies)
}

/// In the new program: keeps the names of the copies, and gives `LD_PRELOAD` back; whether there were any.
///
/// # Safety
/// As for [`super::inherit`].
pub unsafe fn take_back(environ: Strings) -> bool {
    // SAFETY: by contract.
    let Some(before) = (unsafe { imports::get_variable(environ, environment::PRELOADED) }) else { return false };
    // SAFETY: by contract.
    if let Some(list) = unsafe { imports::get_variable(environ, b"LD_PRELOAD") } {
        list.to_bytes().split(|&byte| byte == b':').for_each(names::inherit);
        // SAFETY: by contract, each is a NUL-terminated string.
        let is_it = |entry: *mut c_char| unsafe { CStr::from_ptr(entry) }.to_bytes().starts_with(b"LD_PRELOAD=");
        // SAFETY: by contract.
        if let Some(at) = unsafe { imports::strings(environ) }.position(is_it) {
            // The value is the whole of the other variable.
            // SAFETY: inside the array, which is the process's own.
            unsafe { environ.cast_mut().add(at).write(before.as_ptr().cast_mut()) };
        }
    }
    // SAFETY: by contract.
    unsafe { imports::remove_variable(environ.cast_mut(), environment::PRELOADED) };
    true
}

/// Names, each with a `:` behind it.
struct Front {
    room: *mut u8,
    len: usize,
}

impl Front {
    fn new() -> Option<Front> {
        let room = alloc::alloc_zeroed(FRONT_MAX);
        (!room.is_null()).then_some(Front { room, len: 0 })
    }

    /// What does not fit the loader will not find.
    fn push(&mut self, name: &[u8]) {
        if name.is_empty() || self.len + name.len() + 1 > FRONT_MAX {
            return;
        }
        // SAFETY: inside the block, which is ours alone.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), self.room.add(self.len), name.len()) };
        self.len += name.len() + 1;
        // SAFETY: as above.
        unsafe { self.room.add(self.len - 1).write(b':') };
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: so much of the block has been written.
        unsafe { core::slice::from_raw_parts(self.room, self.len) }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // SAFETY: made by `new`, not used any more.
        unsafe { alloc::free(self.room) };
    }
}

/// A NUL-terminated copy of a name.
struct Text(*mut u8);

impl Text {
    fn of(name: &[u8]) -> Option<Text> {
        let block = alloc::alloc_zeroed(name.len() + 1);
        if block.is_null() {
            return None;
        }
        // SAFETY: a block with room for the name and a NUL, ours alone.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), block, name.len()) };
        Some(Text(block))
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: made by `of`, not used any more.
        unsafe { alloc::free(self.0) };
    }
}

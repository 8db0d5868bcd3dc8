//! The environment of a new program: the program's own, with `LD_PRELOAD` and
//! our variables put back if it was scrubbed.

use crate::runtime::front_end::PROCESS;
use crate::runtime::saved::{DOMAIN, SAVED, SEGMENT_DIR, SITES, Value, WAYS};
use crate::runtime::{alloc, imports};
use core::ffi::{CStr, c_char};
use pm::faults;
use posix::environment;

/// Room for the state of a new program.
pub const STATE_MAX: usize = 8192;

/// Variables that the new environment gets from us, not from the program.
const OURS: [&[u8]; 12] = [
    b"LD_PRELOAD",
    environment::MOUNTS,
    environment::STATE,
    SEGMENT_DIR,
    DOMAIN,
    WAYS,
    SITES,
    environment::SESSION,
    environment::IDS,
    environment::PASSIVE,
    environment::HIDDEN,
    environment::PRELOADED,
];

/// What stands before `LD_PRELOAD` where the loader is to start this library, not to load it into something.
pub const LATER: &[u8] = b"BYPATH_";

/// Strings and pointers of a rebuilt environment; freed on drop.
pub struct Environment {
    pointers: *mut *mut c_char,
    own: [*mut u8; OURS.len()],
}

/// Whether a list of strings can be read to its end.
///
/// # Safety
/// `list` is null, or leads to strings up to a null, or to what is not there.
pub unsafe fn is_there(list: *const *mut c_char) -> bool {
    let mut at = list;
    while !at.is_null() {
        // SAFETY: by contract.
        match unsafe { faults::read(at) } {
            Ok(text) if text.is_null() => break,
            Ok(text) if faults::text_len(text.cast()).is_some() => at = at.wrapping_add(1),
            _ => return false,
        }
    }
    true
}

impl Environment {
    /// What `execve` gets.
    pub fn as_ptr(&self) -> *const *mut c_char {
        self.pointers
    }

    /// How many variables it has.
    fn len(&self) -> usize {
        // SAFETY: our own array, which ends with null.
        unsafe { imports::strings(self.pointers) }.count()
    }

    /// The state, to be completed.
    pub fn state_mut(&mut self) -> &mut [u8] {
        let at = self.own[2];
        if at.is_null() {
            return &mut [];
        }
        // SAFETY: a NUL-terminated string of our own.
        let len = unsafe { CStr::from_ptr(at.cast()) }.count_bytes();
        let name = environment::STATE.len() + 1;
        // SAFETY: inside that string, which nobody else has while we are borrowed.
        unsafe { core::slice::from_raw_parts_mut(at.add(name), len - name) }
    }

    /// Runs `exec` with an environment that does not hand descriptors on; it returns only if exec failed.
    pub fn without_state(&self, exec: impl FnOnce() -> isize) -> isize {
        let state = self.own[2].cast::<c_char>();
        if state.is_null() {
            return exec();
        }
        // SAFETY: our own array and variable.
        unsafe { imports::remove_variable(self.pointers, environment::STATE) };
        let result = exec();
        let len = self.len();
        // SAFETY: the place that was freed above.
        unsafe { self.pointers.add(len).write(state) };
        // SAFETY: as above; the end of the array was one further on.
        unsafe { self.pointers.add(len + 1).write(core::ptr::null_mut()) };
        result
    }

    /// Runs `exec` with an environment for a program that leaves everything to the kernel; it returns only if exec failed.
    pub fn passively(&self, exec: impl FnOnce() -> isize) -> isize {
        self.without_state(|| {
            let len = self.len();
            // SAFETY: the array has room for one each of ours, and this one is in no other place.
            unsafe { self.pointers.add(len).write(c"BYPATH_PASSIVE=1".as_ptr().cast_mut()) };
            // SAFETY: as above, and for the end.
            unsafe { self.pointers.add(len + 1).write(core::ptr::null_mut()) };
            let result = exec();
            // SAFETY: as above.
            unsafe { self.pointers.add(len).write(core::ptr::null_mut()) };
            result
        })
    }

    /// Runs `exec` with an environment in which the loader does not look for us; it returns only if exec failed.
    pub fn without_library(&self, exec: impl FnOnce() -> isize) -> isize {
        let own = own_name();
        // SAFETY: a NUL-terminated string of our own, which nobody else has.
        let text = unsafe { core::slice::from_raw_parts_mut(self.own[0], CStr::from_ptr(self.own[0].cast()).count_bytes()) };
        let begin = text.split(|&b| matches!(b, b':' | b' ' | b'=')).find(|part| *part == own);
        let Some(begin) = begin.map(|part| part.as_ptr() as usize - text.as_ptr() as usize) else { return exec() };
        // Names that are empty are passed over.
        text[begin..begin + own.len()].fill(b' ');
        let result = exec();
        text[begin..begin + own.len()].copy_from_slice(own);
        result
    }

    /// Runs `exec` with an environment in which [`LATER`] stands for `LD_PRELOAD`; it returns only if exec failed.
    pub fn with_library_later(&self, exec: impl FnOnce() -> isize) -> isize {
        const ENOMEM: isize = -12;
        // SAFETY: our own array.
        let at = unsafe { imports::strings(self.pointers) }.position(|entry| entry.cast() == self.own[0]);
        let Some(at) = at else { return exec() };
        // SAFETY: a NUL-terminated string of our own.
        let Some(later) = join(&[LATER, unsafe { CStr::from_ptr(self.own[0].cast()) }.to_bytes()]) else { return ENOMEM };
        // SAFETY: inside our own array.
        let place = unsafe { self.pointers.add(at) };
        // SAFETY: as above.
        unsafe { place.write(later.cast()) };
        let result = exec();
        // SAFETY: as above.
        unsafe { place.write(self.own[0].cast()) };
        // SAFETY: exec failed; nobody uses it.
        unsafe { alloc::free(later) };
        result
    }

    /// Puts `front` (names that each end in `:`) before the others of `LD_PRELOAD`, in the place of what is `replaced`; the list
    /// goes along as it was. Whether there was memory for it.
    pub fn with_preloaded(&mut self, front: &[u8], replaced: impl Fn(&[u8]) -> bool) -> bool {
        // SAFETY: a NUL-terminated string of our own.
        let before = unsafe { CStr::from_ptr(self.own[0].cast()) }.to_bytes();
        let room = alloc::alloc_zeroed(before.len() + front.len() + 2);
        let Some(kept) = join(&[environment::PRELOADED, b"=", before]).filter(|_| !room.is_null()) else { return false };
        let mut len = 0;
        let mut push = |part: &[u8]| {
            // SAFETY: the block has room for the front, what was there, a separator and a NUL.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), room.add(len), part.len()) };
            len += part.len();
        };
        push(b"LD_PRELOAD=");
        push(front);
        let given = before.strip_prefix(b"LD_PRELOAD=").unwrap_or(before);
        for name in given.split(|&b| b == b':' || b == b' ').filter(|name| !name.is_empty() && !replaced(name)) {
            push(name);
            push(b":");
        }
        let len = self.len();
        // SAFETY: our own array.
        let at = unsafe { imports::strings(self.pointers) }.position(|entry| entry.cast::<u8>() == self.own[0]);
        if let Some(at) = at {
            // SAFETY: inside our own array, which has room for one each of ours and the end.
            unsafe {
                self.pointers.add(at).write(room.cast());
                self.pointers.add(len).write(kept.cast());
                self.pointers.add(len + 1).write(core::ptr::null_mut());
            }
        }
        // SAFETY: from our allocator; nobody has it any more.
        unsafe { alloc::free(self.own[0]) };
        (self.own[0], self.own[11]) = (room, kept);
        true
    }

    /// Runs `exec` with libraries of these names behind those of `LD_PRELOAD`; it returns only if exec failed.
    pub fn with_libraries<const N: usize>(
        &self,
        names: impl Iterator<Item = [u8; N]> + Clone,
        exec: impl FnOnce() -> isize,
    ) -> isize {
        const ENOMEM: isize = -12;
        // SAFETY: a NUL-terminated string of our own.
        let before = unsafe { CStr::from_ptr(self.own[0].cast()) }.to_bytes();
        let room = alloc::alloc(before.len() + names.clone().count() * (N + 1) + 1);
        if room.is_null() {
            return ENOMEM;
        }
        let mut len = 0;
        let mut push = |part: &[u8]| {
            // SAFETY: the block has room for what was there, and for each library a separator and a name without its NUL.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), room.add(len), part.len()) };
            len += part.len();
        };
        push(before);
        for name in names {
            push(b":");
            push(name.split(|&byte| byte == 0).next().unwrap_or(b""));
        }
        push(b"\0");
        // SAFETY: our own array.
        let at = unsafe { imports::strings(self.pointers) }.position(|entry| {
            // SAFETY: each is a NUL-terminated string.
            is(unsafe { CStr::from_ptr(entry) }.to_bytes(), b"LD_PRELOAD")
        });
        let place = |text: *mut u8| {
            if let Some(at) = at {
                // SAFETY: inside our own array.
                unsafe { self.pointers.add(at).write(text.cast()) };
            }
        };
        place(room);
        let result = exec();
        place(self.own[0]);
        // SAFETY: exec failed; nobody uses it.
        unsafe { alloc::free(room) };
        result
    }

    /// `source` with `LD_PRELOAD` holding us, the mounts, and `state` (empty: none).
    /// `None` when there is no memory.
    ///
    /// # Safety
    /// `source` is null or an array of NUL-terminated strings that ends with
    /// null, which outlives the result.
    pub unsafe fn new(source: *const *mut c_char, state: &[u8]) -> Option<Environment> {
        // SAFETY: by contract.
        let entries = unsafe { imports::strings(source) };
        let count = entries.clone().count();
        let mut environment = Environment {
            pointers: alloc::alloc((count + OURS.len() + 1) * size_of::<usize>()).cast(),
            own: [core::ptr::null_mut(); OURS.len()],
        };
        if environment.pointers.is_null() {
            return None;
        }
        let mut len = 0;
        for entry in entries {
            // SAFETY: by contract.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            if OURS.iter().any(|name| is(text, name)) {
                continue;
            }
            // SAFETY: at most `count` and one each of ours, and the end.
            unsafe { environment.pointers.add(len).write(entry) };
            len += 1;
        }
        // SAFETY: by contract.
        let theirs = unsafe { imports::get_variable(source, b"LD_PRELOAD") };
        environment.own[0] = preload(theirs)?;
        // What the program set itself counts (`bypath run` in a session of `bypath run`).
        let value = |name: &[u8], saved: &Value| {
            // SAFETY: by contract.
            unsafe { imports::get_variable(source, name) }.map_or_else(|| saved.bytes(), CStr::to_bytes)
        };
        environment.own[1] = join(&[environment::MOUNTS, b"=", value(environment::MOUNTS, &SAVED.mounts)])?;
        environment.own[2] = if state.is_empty() { core::ptr::null_mut() } else { join(&[environment::STATE, b"=", state])? };
        let others = [
            (3, SEGMENT_DIR, &SAVED.segment_dir),
            (4, DOMAIN, &SAVED.domain),
            (5, WAYS, &SAVED.ways),
            (6, SITES, &SAVED.sites),
            (7, environment::SESSION, &SAVED.session),
        ];
        for (index, name, at) in others {
            let value = value(name, at);
            if !value.is_empty() {
                environment.own[index] = join(&[name, b"=", value])?;
            }
        }
        let mut ids = [0; 512];
        let ids_len = PROCESS.carry_ids(&mut ids);
        if ids_len > 0 {
            environment.own[8] = join(&[environment::IDS, b"=", &ids[..ids_len]])?;
        }
        // SAFETY: by contract.
        let knows = theirs.is_some() || unsafe { imports::get_variable(source, environment::MOUNTS) }.is_some();
        if !knows {
            // SAFETY: as above.
            unsafe { environment.pointers.add(len).write(c"BYPATH_HIDDEN=1".as_ptr().cast_mut()) };
            len += 1;
        }
        for text in environment.own {
            if !text.is_null() {
                // SAFETY: as above.
                unsafe { environment.pointers.add(len).write(text.cast()) };
                len += 1;
            }
        }
        // SAFETY: as above.
        unsafe { environment.pointers.add(len).write(core::ptr::null_mut()) };
        Some(environment)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for text in self.own {
            // SAFETY: from our allocator, or null.
            unsafe { alloc::free(text) };
        }
        // SAFETY: as above.
        unsafe { alloc::free(self.pointers.cast()) };
    }
}

/// Takes our variables out of this program's environment.
///
/// # Safety
/// Nobody else changes or reads it meanwhile.
pub unsafe fn hide() {
    for name in OURS {
        // SAFETY: libc's array, by contract.
        unsafe { imports::remove_variable(imports::environ, name) };
    }
}

fn is(entry: &[u8], name: &[u8]) -> bool {
    matches!(entry.strip_prefix(name), Some([b'=', ..]))
}

/// The name under which the loader found us.
pub fn own_name() -> &'static [u8] {
    SAVED
        .preload
        .bytes()
        .split(|&b| b == b':' || b == b' ')
        .find(|part| part.windows(14).any(|w| w == b"bypath_preload"))
        .unwrap_or(b"")
}

/// `LD_PRELOAD=…` with us in it, behind the program's own: those wrap what we serve, as they would wrap libc (fakeroot, faketime).
fn preload(theirs: Option<&CStr>) -> Option<*mut u8> {
    let own = own_name();
    let theirs = theirs.map_or(&b""[..], CStr::to_bytes);
    if theirs.is_empty() || own.is_empty() {
        return join(&[b"LD_PRELOAD=", if theirs.is_empty() { SAVED.preload.bytes() } else { theirs }]);
    }
    match theirs.split(|&b| b == b':' || b == b' ').find(|part| *part == own) {
        None => join(&[b"LD_PRELOAD=", theirs, b":", own]),
        Some(there) => {
            let (before, at) = theirs.split_at(there.as_ptr() as usize - theirs.as_ptr() as usize);
            match &at[own.len()..] {
                [] => join(&[b"LD_PRELOAD=", theirs]),
                [_, behind @ ..] => join(&[b"LD_PRELOAD=", before, behind, b":", own]),
            }
        }
    }
}

/// The parts in one NUL-terminated string from our allocator.
fn join(parts: &[&[u8]]) -> Option<*mut u8> {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    let at = alloc::alloc(len + 1);
    if at.is_null() {
        return None;
    }
    let mut end = at;
    for part in parts {
        // SAFETY: the block holds all parts and a NUL.
        unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), end, part.len()) };
        // SAFETY: as above.
        end = unsafe { end.add(part.len()) };
    }
    // SAFETY: as above.
    unsafe { *end = 0 };
    Some(at)
}

//! Copies of what a library or program needs and only we can read.

use super::dynamic::{self, Dynamic};
use super::names::Key;
use crate::process::copy::copy_out;
use crate::process::shared_copies::{Use, Wanted};
use crate::runtime::call::Served;
use crate::runtime::{alloc, call, kernel, placeholders};
use crate::serve;
use core::ffi::c_char;
use core::mem::MaybeUninit;
use pm::sys::abi::*;

/// Libraries that one program or library may need of ours, directly or not.
pub const COPIES_MAX: usize = 128;
const NEEDED_MAX: usize = 256;
/// Libraries that need each other in a chain.
const LEVELS_MAX: usize = 16;
const PATH_MAX: usize = 4096;
const HERE: usize = AT_FDCWD as usize;
const ENOMEM: isize = -12;
const EACCES: isize = -13;
const E2BIG: isize = -7;
const MEMORY_FLAGS: usize = (MFD_CLOEXEC | MFD_ALLOW_SEALING) as usize;

/// One copy. All zeroes are a valid value.
struct Copy {
    key: Key,
    descriptor: i32,
    /// Its turn: after all that it needs.
    turn: usize,
    needed_len: usize,
    needed: [u8; NEEDED_MAX],
}

struct List {
    len: usize,
    turns: usize,
    copies: [Copy; COPIES_MAX],
}

/// Copies in memory (`memfd_create`), each after what it needs. Those that nobody has taken are closed on drop.
pub struct Copies(&'static mut List);

impl Copies {
    /// None yet; `None`: no memory.
    pub fn new() -> Option<Copies> {
        let room = alloc::alloc_zeroed(size_of::<List>()).cast::<List>();
        // SAFETY: a block of that size, ours alone until `drop`; zeroes are a valid value.
        unsafe { room.as_mut() }.map(Copies)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.turns
    }

    /// Key and descriptor of each, in turn.
    pub fn iter(&self) -> impl Iterator<Item = (Key, i32)> + Clone {
        (0..self.0.turns).filter_map(|turn| {
            let copy = self.0.copies[..self.0.len].iter().find(|copy| copy.turn == turn)?;
            Some((copy.key, copy.descriptor))
        })
    }

    /// This descriptor is somebody else's now.
    pub fn taken(&mut self, descriptor: i32) {
        let taken = self.0.copies[..self.0.len].iter_mut().filter(|copy| copy.descriptor == descriptor);
        taken.for_each(|copy| copy.descriptor = -1);
    }

    /// Copies `file` of ours, which is called `name`, and before it what it needs.
    pub fn add(&mut self, file: i32, name: &[u8], paths: &Paths) -> Result<(), isize> {
        self.add_at(0, file, name, paths)
    }

    fn add_at(&mut self, level: usize, file: i32, name: &[u8], paths: &Paths) -> Result<(), isize> {
        if self.0.len == COPIES_MAX || level == LEVELS_MAX || name.len() >= NEEDED_MAX {
            return Err(E2BIG);
        }
        let (key, descriptor) = (key_of(file).ok_or(EACCES)?, copy_of(file, name, level > 0)?);
        let at = self.0.len;
        let entry = &mut self.0.copies[at];
        // No turn yet, so that what needs it in turn does not wait for it.
        (entry.key, entry.descriptor, entry.turn, entry.needed_len) = (key, descriptor, usize::MAX, name.len());
        entry.needed[..name.len()].copy_from_slice(name);
        self.0.len += 1;
        self.needs(level, file, descriptor, paths)?;
        self.0.copies[at].turn = self.0.turns;
        self.0.turns += 1;
        Ok(())
    }

    /// Copies what the program or library in `copy`, which is `file` of ours, needs.
    pub fn needs_of(&mut self, file: i32, copy: i32, paths: &Paths) -> Result<(), isize> {
        self.needs(0, file, copy, paths)
    }

    fn needs(&mut self, level: usize, file: i32, copy: i32, paths: &Paths) -> Result<(), isize> {
        let Some(view) = View::of(copy) else { return Err(ENOMEM) };
        let Some(dynamic) = Dynamic::of(view.bytes()) else { return Ok(()) };
        let mut text = Text::new().ok_or(ENOMEM)?;
        for name in dynamic.needed() {
            let has = self.0.copies[..self.0.len].iter().any(|copy| &copy.needed[..copy.needed_len] == name);
            if has || name.is_empty() || name.contains(&b'/') || name.len() >= NEEDED_MAX {
                continue;
            }
            if let Some(found) = paths.find(Some((file, &dynamic)), name, &mut text) {
                let result = self.add_at(level + 1, found, name, paths);
                close(found);
                result?;
            }
        }
        Ok(())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for copy in self.0.copies[..self.0.len].iter().filter(|copy| copy.descriptor >= 0) {
            kernel::close(copy.descriptor);
        }
        // SAFETY: made by `new`, not used any more.
        unsafe { alloc::free((&raw mut *self.0).cast()) };
    }
}

/// Where libraries are looked for.
pub struct Paths<'a> {
    /// `LD_LIBRARY_PATH`.
    pub given: &'a [u8],
    /// Whether a library of this name (NUL-terminated) is to be found at all.
    pub wants: &'a dyn Fn(*const c_char) -> bool,
}

impl Paths<'_> {
    /// Opens the library `name` if the loader, with the folders of whoever needs it, would come to one that only we have.
    pub fn find(&self, needs: Option<(i32, &Dynamic)>, name: &[u8], text: &mut Text) -> Option<i32> {
        let (before, after) = needs.map_or((&b""[..], &b""[..]), |(_, dynamic)| dynamic.folders());
        let origin = needs.map(|(file, _)| file);
        let lists = [before, self.given, after].into_iter().filter(|list| !list.is_empty());
        for folder in lists.flat_map(|list| list.split(|&byte| byte == b':' || byte == b';')) {
            let Some(at) = text.join(folder, origin, name) else { continue };
            match who_has(text.address()) {
                Who::Nobody => {}
                Who::Kernel => return None,
                Who::Us if !(self.wants)((text.address() + at) as *const c_char) => return None,
                Who::Us => return open(text.address()),
            }
        }
        None
    }
}

/// Where a file is to be had.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Nowhere.
    Nobody,
    /// By the kernel, and so by the loader.
    Kernel,
    /// By us alone.
    Us,
}

/// Who has a readable file at the NUL-terminated path with this address; what the kernel has there may be another file.
pub fn who_has(path: usize) -> Who {
    let readable = [HERE, path, R_OK as usize, 0, 0, 0];
    // SAFETY: the caller's NUL-terminated text.
    let Served { result, ours } = unsafe { call::serve(__NR_faccessat as usize, readable) };
    if result != 0 {
        return Who::Nobody;
    }
    if !ours {
        return Who::Kernel;
    }
    let (mut here, mut theirs) = (MaybeUninit::<stat>::zeroed(), MaybeUninit::<stat>::zeroed());
    // SAFETY: as above, and room for the answer.
    let known = unsafe { serve!(__NR_newfstatat, HERE, path, here.as_mut_ptr(), 0) };
    // SAFETY: as above.
    let has = unsafe { pm::call!(__NR_newfstatat, HERE, path, theirs.as_mut_ptr(), 0) };
    // SAFETY: zeroed, and filled if it succeeded.
    let (here, theirs) = unsafe { (here.assume_init(), theirs.assume_init()) };
    let same = (here.st_dev, here.st_ino) == (theirs.st_dev, theirs.st_ino);
    if known == 0 && has.is_ok() && same { Who::Kernel } else { Who::Us }
}

/// Opens a regular file, by the address of its path.
pub fn open(path: usize) -> Option<i32> {
    // SAFETY: the caller's NUL-terminated text.
    let file = unsafe { serve!(__NR_openat, HERE, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0) };
    (file >= 0).then_some(file as i32)
}

/// Closes what `open` has opened.
pub fn close(file: i32) {
    call::close(file);
}

/// Which file that is; `None` if it is no regular one.
pub fn key_of(file: i32) -> Option<Key> {
    let mut stat = MaybeUninit::<stat>::zeroed();
    // SAFETY: room for the answer.
    let result = unsafe { serve!(__NR_fstat, file, stat.as_mut_ptr()) };
    // SAFETY: zeroed, and filled if it succeeded.
    let stat = unsafe { stat.assume_init() };
    // With a sign on some machines, without on others.
    let (seconds, ns) = (i128::from(stat.st_mtime) as u64, i128::from(stat.st_mtime_nsec) as u64);
    (result == 0 && stat.st_mode & S_IFMT == S_IFREG).then(|| Key::of([stat.st_dev, stat.st_ino, seconds, ns]))
}

/// A copy of `file` in memory: the session's, or a new one, which becomes the session's. One that others need has its name.
fn copy_of(file: i32, name: &[u8], is_needed: bool) -> Result<i32, isize> {
    let purpose = if is_needed { Use::Needed } else { Use::Opened };
    let mut wanted = Wanted::of(file, purpose, name);
    if let Some(copy) = wanted.as_mut().and_then(Wanted::ask) {
        return Ok(copy);
    }
    let copy = copied(file, name)?;
    if is_needed && let Some(mut view) = View::to_change(copy) {
        dynamic::give_name(view.bytes_mut(), name);
    }
    Ok(wanted.map_or(copy, |wanted| wanted.offer(copy)))
}

/// A new copy of `file` in memory.
fn copied(file: i32, name: &[u8]) -> Result<i32, isize> {
    let mut short = [0u8; 64];
    let len = name.len().min(short.len() - 1);
    short[..len].copy_from_slice(&name[..len]);
    // SAFETY: the name is NUL-terminated.
    let copy = unsafe { placeholders::creating(__NR_memfd_create, [short.as_ptr() as usize, MEMORY_FLAGS, 0, 0, 0, 0]) };
    if copy < 0 {
        return Err(copy);
    }
    match copy_out(file, copy as i32) {
        Ok(()) => Ok(copy as i32),
        Err(error) => {
            kernel::close(copy);
            Err(error)
        }
    }
}

/// A copy as it lies in memory. Nobody else has it, or nobody can change it any more: so it stays as it is.
struct View {
    at: usize,
    len: usize,
}

impl View {
    /// Before Linux 6.7, and in gVisor, a sealed copy can't be mapped shared, not even to be read.
    fn of(copy: i32) -> Option<View> {
        View::so(copy, PROT_READ, MAP_PRIVATE)
    }

    fn to_change(copy: i32) -> Option<View> {
        View::so(copy, PROT_READ | PROT_WRITE, MAP_SHARED)
    }

    fn so(copy: i32, protection: u32, kind: u32) -> Option<View> {
        // SAFETY: no pointers.
        let len = unsafe { pm::call!(__NR_lseek, copy, 0, SEEK_END) }.ok().filter(|&len| len > 0)?;
        // SAFETY: a new mapping.
        let at = unsafe { pm::call!(__NR_mmap, 0, len, protection, kind, copy, 0) }.ok()?;
        Some(View { at, len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as this lives, as long as the file is.
        unsafe { core::slice::from_raw_parts(self.at as *const u8, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and made to be changed; this is the only view.
        unsafe { core::slice::from_raw_parts_mut(self.at as *mut u8, self.len) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`.
        let _ = unsafe { pm::call!(__NR_munmap, self.at, self.len) };
    }
}

/// Room for a path.
pub struct Text(*mut u8);

impl Text {
    /// `None`: no memory.
    pub fn new() -> Option<Text> {
        let room = alloc::alloc(PATH_MAX);
        (!room.is_null()).then_some(Text(room))
    }

    /// Where it is.
    pub fn address(&self) -> usize {
        self.0 as usize
    }

    fn room(&mut self) -> &mut [u8] {
        // SAFETY: a block of that size, ours alone; filled before it is read.
        unsafe { core::slice::from_raw_parts_mut(self.0, PATH_MAX) }
    }

    /// `folder/name`, with a NUL; where the name begins. `$ORIGIN` is the folder of `origin`. `None`: it does not fit, or
    /// the folder has a word that we don't know.
    fn join(&mut self, folder: &[u8], origin: Option<i32>, name: &[u8]) -> Option<usize> {
        let behind = folder.strip_prefix(b"$ORIGIN").or_else(|| folder.strip_prefix(b"${ORIGIN}"));
        let (mut len, rest) = match behind {
            Some(behind) => (self.folder_of(origin?)?, behind),
            None => (0, if folder.is_empty() { &b"."[..] } else { folder }),
        };
        if rest.contains(&b'$') {
            return None;
        }
        for part in [rest, b"/", name, b"\0"] {
            self.room().get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        Some(len - 1 - name.len())
    }

    /// Puts the absolute path of an open file here; its length.
    pub fn path_of(&mut self, file: i32) -> Option<usize> {
        let mut link = [0; 32];
        posix::proc_fd(file.unsigned_abs(), &mut link);
        // SAFETY: a NUL-terminated path, and room for the answer.
        let len = unsafe { serve!(__NR_readlinkat, HERE, link.as_ptr(), self.0, PATH_MAX - 1) };
        let len = usize::try_from(len).ok().filter(|&len| len > 0 && len < PATH_MAX - 1)?;
        let room = self.room();
        room[len] = 0;
        (room[0] == b'/').then_some(len)
    }

    fn folder_of(&mut self, file: i32) -> Option<usize> {
        let len = self.path_of(file)?;
        self.room()[..len].iter().rposition(|&byte| byte == b'/')
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: made by `new`, not used any more.
        unsafe { alloc::free(self.0) };
    }
}

//! Tree walks: `ftw` and `nftw`, step by step as libc does them, on our own
//! directory streams and calls.
//!
//! ```text
//! path: [ /start/dir/sub/name NUL … ]     base = where the last component begins
//! levels: [ 0 | 1 | 2 … ]                 one a directory entered; `open` of them have a stream
//! ```
//!
//! Invariants
//! - At most `limit` levels hold a descriptor; when one more is needed, the outermost
//!   open one keeps its remaining names in memory instead.
//! - Without `FTW_PHYS` no directory is entered twice (`seen`).

use crate::runtime::imports::{free, malloc, realloc};
use crate::runtime::{call, errno, imports};
use core::ffi::{c_char, c_int};

use pm::Errno;
use pm::sys::abi;

use super::dir::{self, Dir};
use crate::serve;

mod seen;
use seen::Seen;

const PHYS: c_int = 1;
const MOUNT: c_int = 2;
const CHDIR: c_int = 4;
const DEPTH: c_int = 8;
const ACTIONS: c_int = 16;

const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;
const STOP: c_int = 1;

/// What an object is to the callback: `FTW_F` ….
#[derive(Clone, Copy)]
#[repr(i32)]
enum Flag {
    File = 0,
    Directory = 1,
    Unreadable = 2,
    NoStat = 3,
    Symlink = 4,
    DirectoryAfter = 5,
    Dangling = 6,
}

/// `struct FTW`.
#[repr(C)]
pub struct Position {
    base: c_int,
    level: c_int,
}

/// The callback; `ftw`'s takes the first three arguments only, which the calling
/// conventions allow to be called so.
type Callback = unsafe extern "C" fn(*const c_char, *const abi::stat, c_int, *mut Position) -> c_int;

/// A directory that is being read.
struct Level {
    /// Null when its names are in memory.
    stream: *mut Dir,
    /// `name NUL name NUL … NUL`; malloc's.
    names: *mut u8,
    next_name: *mut u8,
    outer: *mut Level,
}

struct Walker {
    path: *mut u8,
    path_room: usize,
    position: Position,
    flags: c_int,
    old: bool,
    callback: Callback,
    device: u64,
    /// Descriptors that may be held.
    limit: usize,
    open: usize,
    /// Innermost level.
    levels: *mut Level,
    seen: Seen,
}

fn stat_at(dirfd: c_int, name: *const u8, flags: u32) -> Result<abi::stat, c_int> {
    let mut stat = core::mem::MaybeUninit::<abi::stat>::zeroed();
    // SAFETY: a string and room for the answer.
    let code = unsafe { serve!(abi::__NR_newfstatat, dirfd, name, stat.as_mut_ptr(), flags) };
    if code < 0 {
        return Err(-code as c_int);
    }
    // SAFETY: zeroed, and plain numbers.
    Ok(unsafe { stat.assume_init() })
}

fn no_stat() -> abi::stat {
    // SAFETY: plain numbers.
    unsafe { core::mem::zeroed() }
}

fn is_kind(stat: &abi::stat, kind: u32) -> bool {
    stat.st_mode & abi::S_IFMT == kind
}

impl Walker {
    /// The path from byte `from` on.
    fn tail(&self, from: usize) -> *mut u8 {
        // SAFETY: `from` lies in the path.
        unsafe { self.path.add(from) }
    }

    fn path_len(&self) -> usize {
        // SAFETY: the path is NUL-terminated.
        unsafe { imports::strlen(self.path.cast()) }
    }

    /// Puts `name` where the last component begins.
    fn set_name(&mut self, name: &[u8]) -> Result<(), c_int> {
        let base = self.position.base as usize;
        let need = base + name.len() + 2;
        if need > self.path_room {
            // SAFETY: malloc's block.
            let grown = unsafe { realloc(self.path.cast(), need * 2) };
            if grown.is_null() {
                return Err(Errno::ENOMEM.0);
            }
            self.path = grown.cast();
            self.path_room = need * 2;
        }
        // SAFETY: there is room.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), self.tail(base), name.len()) };
        // SAFETY: as above.
        unsafe { self.tail(base + name.len()).write(0) };
        Ok(())
    }

    /// Calls the program's function.
    fn report(&mut self, stat: &abi::stat, flag: Flag) -> c_int {
        let flag = match flag {
            Flag::Symlink if self.old => Flag::File,
            Flag::DirectoryAfter if self.old => Flag::Directory,
            Flag::Dangling if self.old => Flag::NoStat,
            flag => flag,
        };
        // SAFETY: the program's function, with what it was promised.
        unsafe { (self.callback)(self.path.cast(), stat, flag as c_int, &raw mut self.position) }
    }

    /// The name of the current object, as seen from the working directory.
    fn name_from_here(&self) -> *const u8 {
        if self.flags & CHDIR == 0 {
            return self.path;
        }
        let name = self.tail(self.position.base as usize);
        // SAFETY: NUL-terminated.
        if unsafe { *name } == 0 { c".".as_ptr().cast() } else { name }
    }

    /// Where the current object is to be looked up: directory and name.
    fn place(&self) -> (c_int, *const u8) {
        if !self.levels.is_null() {
            // SAFETY: a live level.
            let stream = unsafe { (*self.levels).stream };
            if !stream.is_null() {
                // SAFETY: a live stream.
                return (unsafe { dir::dirfd(stream) }, self.tail(self.position.base as usize));
            }
        }
        (abi::AT_FDCWD, self.name_from_here())
    }

    /// Gives up the descriptor of the outermost level that has one.
    fn spill(&mut self) -> Result<(), c_int> {
        let mut outermost = core::ptr::null_mut::<Level>();
        let mut level = self.levels;
        while !level.is_null() {
            // SAFETY: a live level.
            if !unsafe { (*level).stream }.is_null() {
                outermost = level;
            }
            // SAFETY: as above.
            level = unsafe { (*level).outer };
        }
        if outermost.is_null() {
            return Ok(());
        }
        // SAFETY: live: some inner call's frame holds it.
        let level = unsafe { &mut *outermost };
        let (names, failed) = read_names(level.stream);
        if failed != 0 {
            return Err(failed);
        }
        (level.names, level.next_name) = (names, names);
        // SAFETY: the level owned it.
        unsafe { dir::closedir(level.stream) };
        level.stream = core::ptr::null_mut();
        self.open -= 1;
        Ok(())
    }

    /// The name that `level` gives next, without `.` and `..`, put in place: `false` at the end.
    fn advance(&mut self, level: *mut Level) -> Result<bool, c_int> {
        loop {
            // SAFETY: a live level.
            let (stream, next_name) = unsafe { ((*level).stream, (*level).next_name) };
            let name = if stream.is_null() {
                next_name
            } else {
                errno::set(0);
                // SAFETY: a live stream.
                let entry = unsafe { dir::readdir64(stream) };
                if entry.is_null() {
                    // As libc: an error of reading ends the directory quietly.
                    return Ok(false);
                }
                // SAFETY: a whole record.
                unsafe { (&raw mut (*entry).name).cast::<u8>() }
            };
            // SAFETY: a string of a record or of the list.
            let text = unsafe { imports::bytes(name.cast()) };
            if stream.is_null() {
                if text.is_empty() {
                    return Ok(false);
                }
                // SAFETY: past the NUL there is the next name or the final NUL.
                unsafe { (*level).next_name = name.add(text.len() + 1) };
            }
            if text != b"." && text != b".." {
                self.set_name(text)?;
                return Ok(true);
            }
        }
    }

    /// One object of the directory being read.
    fn entry(&mut self) -> c_int {
        let follow = if self.flags & PHYS != 0 { abi::AT_SYMLINK_NOFOLLOW } else { 0 };
        let (dirfd, name) = self.place();
        let (stat, flag) = match stat_at(dirfd, name, follow) {
            Ok(stat) if is_kind(&stat, abi::S_IFDIR) => (stat, Flag::Directory),
            Ok(stat) if is_kind(&stat, abi::S_IFLNK) => (stat, Flag::Symlink),
            Ok(stat) => (stat, Flag::File),
            Err(code) if code != Errno::EACCES.0 && code != Errno::ENOENT.0 => {
                errno::set(code);
                return -1;
            }
            Err(_) if self.flags & PHYS != 0 => (no_stat(), Flag::NoStat),
            Err(_) => match stat_at(dirfd, name, abi::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) if is_kind(&stat, abi::S_IFLNK) => (stat, Flag::Dangling),
                _ => (no_stat(), Flag::NoStat),
            },
        };
        if self.flags & MOUNT != 0 && !matches!(flag, Flag::NoStat) && stat.st_dev != self.device {
            return 0;
        }
        let result = if !matches!(flag, Flag::Directory) {
            self.report(&stat, flag)
        } else if self.flags & PHYS != 0 {
            self.directory(&stat)
        } else {
            match self.seen.insert(stat.st_dev, stat.st_ino) {
                Ok(true) => self.directory(&stat),
                Ok(false) => 0,
                Err(code) => {
                    errno::set(code);
                    -1
                }
            }
        };
        if self.flags & ACTIONS != 0 && result == SKIP_SUBTREE { 0 } else { result }
    }

    /// Opens the current object as a directory, with a descriptor to spare.
    fn open_directory(&mut self) -> *mut Dir {
        if self.open >= self.limit
            && let Err(code) = self.spill()
        {
            errno::set(code);
            return core::ptr::null_mut();
        }
        let (dirfd, name) = self.place();
        // SAFETY: a string.
        unsafe { dir::open_at(dirfd, name.cast()) }
    }

    /// A directory, and all below it.
    fn directory(&mut self, stat: &abi::stat) -> c_int {
        let stream = self.open_directory();
        if stream.is_null() {
            return if errno::get() == Errno::EACCES.0 { self.report(stat, Flag::Unreadable) } else { -1 };
        }
        let outer = self.levels;
        let mut level = Level { stream, names: core::ptr::null_mut(), next_name: core::ptr::null_mut(), outer };
        if self.flags & DEPTH == 0 {
            // The callback sees the directory while the level is not yet the innermost.
            let result = self.report(stat, Flag::Directory);
            if result != 0 {
                close_keeping_errno(stream);
                return result;
            }
        }
        if self.flags & CHDIR != 0 {
            // SAFETY: a live stream.
            let moved = errno::ret(call::fchdir(unsafe { dir::dirfd(stream) }));
            if moved < 0 {
                close_keeping_errno(stream);
                return -1;
            }
        }
        let level = &raw mut level;
        self.levels = level;
        self.open += 1;
        let mut result = self.inside(level);
        // SAFETY: the level in this frame.
        let (stream, names) = unsafe { ((*level).stream, (*level).names) };
        if stream.is_null() {
            // SAFETY: malloc's.
            unsafe { free(names.cast()) };
        } else {
            close_keeping_errno(stream);
            self.open -= 1;
        }
        self.levels = outer;
        if result == 0 && self.flags & DEPTH != 0 {
            result = self.report(stat, Flag::DirectoryAfter);
        }
        self.climb(result)
    }

    /// All objects of `level`, with the path made ready for their names.
    fn inside(&mut self, level: *mut Level) -> c_int {
        let previous = self.position.base;
        let mut base = self.path_len();
        // SAFETY: in the path.
        let slash = base == 0 || unsafe { *self.tail(base - 1) } != b'/';
        if slash {
            // SAFETY: `set_name` always leaves room for a slash and a NUL.
            unsafe { self.tail(base).write(b'/') };
            base += 1;
        }
        self.position.base = base as c_int;
        self.position.level += 1;
        let mut result = 0;
        while result == 0 {
            match self.advance(level) {
                Ok(true) => result = self.entry(),
                Ok(false) => break,
                Err(code) => {
                    errno::set(code);
                    result = -1;
                }
            }
        }
        if self.flags & ACTIONS != 0 && result == SKIP_SIBLINGS {
            result = 0;
        }
        // SAFETY: the path has `base` bytes at least.
        unsafe { self.tail(if slash { base - 1 } else { base }).write(0) };
        self.position.level -= 1;
        self.position.base = previous;
        result
    }

    /// With `FTW_CHDIR`: back to the parent directory after `result`.
    fn climb(&mut self, result: c_int) -> c_int {
        let goes_on = result == 0 || (self.flags & ACTIONS != 0 && result != -1 && result != STOP);
        if self.flags & CHDIR == 0 || self.levels.is_null() || !goes_on {
            return result;
        }
        // SAFETY: a live level.
        let stream = unsafe { (*self.levels).stream };
        // SAFETY: a live stream.
        if !stream.is_null() && call::fchdir(unsafe { dir::dirfd(stream) }) == 0 {
            return result;
        }
        let up = if self.position.base == 1 { c"/" } else { c".." };
        // SAFETY: a string.
        if errno::ret(unsafe { serve!(abi::__NR_chdir, up.as_ptr()) }) < 0 { -1 } else { result }
    }

    /// The object the walk begins at.
    fn start(&mut self) -> c_int {
        let name = self.name_from_here();
        let follow = if self.flags & PHYS != 0 { abi::AT_SYMLINK_NOFOLLOW } else { 0 };
        let result = match stat_at(abi::AT_FDCWD, name, follow) {
            Ok(stat) if is_kind(&stat, abi::S_IFDIR) => {
                self.device = stat.st_dev;
                let new = if self.flags & PHYS != 0 { Ok(true) } else { self.seen.insert(stat.st_dev, stat.st_ino) };
                match new {
                    Ok(_) => self.directory(&stat),
                    Err(code) => {
                        errno::set(code);
                        -1
                    }
                }
            }
            Ok(stat) if is_kind(&stat, abi::S_IFLNK) => self.report(&stat, Flag::Symlink),
            Ok(stat) => self.report(&stat, Flag::File),
            Err(code) => match stat_at(abi::AT_FDCWD, name, abi::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) if self.flags & PHYS == 0 && code == Errno::ENOENT.0 && is_kind(&stat, abi::S_IFLNK) => {
                    self.report(&stat, Flag::Dangling)
                }
                _ => {
                    errno::set(code);
                    -1
                }
            },
        };
        let skipped = result == SKIP_SUBTREE || result == SKIP_SIBLINGS;
        if self.flags & ACTIONS != 0 && skipped { 0 } else { result }
    }

    /// With `FTW_CHDIR`: into the directory that holds the start; a descriptor to come back.
    fn leave_home(&mut self) -> Result<c_int, ()> {
        let flags = abi::O_RDONLY | abi::O_DIRECTORY | abi::O_CLOEXEC;
        // SAFETY: a string.
        let home = errno::ret_int(unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, c".".as_ptr(), flags, 0) });
        if home < 0 {
            return Err(());
        }
        self.limit = (self.limit - 1).max(1);
        let base = self.position.base as usize;
        if base == 0 {
            return Ok(home);
        }
        let end = if base == 1 { 1 } else { base - 1 };
        // SAFETY: in the path.
        let kept = unsafe { *self.tail(end) };
        // SAFETY: as above.
        unsafe { self.tail(end).write(0) };
        // SAFETY: a string.
        let moved = errno::ret(unsafe { serve!(abi::__NR_chdir, self.path) });
        // SAFETY: as above.
        unsafe { self.tail(end).write(kept) };
        if moved < 0 {
            come_home(home);
            return Err(());
        }
        Ok(home)
    }
}

/// Back to where the walk began.
fn come_home(home: c_int) {
    let saved = errno::get();
    call::fchdir(home);
    call::close(home);
    errno::set(saved);
}

fn close_keeping_errno(stream: *mut Dir) {
    let saved = errno::get();
    // SAFETY: the caller owns it.
    unsafe { dir::closedir(stream) };
    errno::set(saved);
}

/// What is left in `stream`, as a list of names; and an error number.
fn read_names(stream: *mut Dir) -> (*mut u8, c_int) {
    let (mut room, mut len) = (1024, 0);
    // SAFETY: plain allocation.
    let mut names = unsafe { malloc(room) }.cast::<u8>();
    if names.is_null() {
        return (names, Errno::ENOMEM.0);
    }
    loop {
        // SAFETY: a live stream.
        let entry = unsafe { dir::readdir64(stream) };
        if entry.is_null() {
            break;
        }
        // SAFETY: a whole record.
        let name = unsafe { imports::bytes((&raw const (*entry).name).cast()) };
        if len + name.len() + 2 > room {
            room *= 2;
            // SAFETY: malloc's block.
            let grown = unsafe { realloc(names.cast(), room) }.cast::<u8>();
            if grown.is_null() {
                // SAFETY: still malloc's.
                unsafe { free(names.cast()) };
                return (grown, Errno::ENOMEM.0);
            }
            names = grown;
        }
        // SAFETY: there is room.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), names.add(len), name.len()) };
        // SAFETY: as above.
        unsafe { names.add(len + name.len()).write(0) };
        len += name.len() + 1;
    }
    // SAFETY: as above.
    unsafe { names.add(len).write(0) };
    (names, 0)
}

/// `ftw` (`old`) and `nftw`.
unsafe fn walk(path: *const c_char, callback: Callback, descriptors: c_int, flags: c_int, old: bool) -> c_int {
    // SAFETY: the program's string.
    let text = unsafe { imports::bytes(path) };
    if text.is_empty() {
        errno::set(Errno::ENOENT.0);
        return -1;
    }
    let len = text.iter().rposition(|&byte| byte != b'/').map_or(1, |last| last + 1);
    let base = text[..len].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let room = (len + 256).max(4096);
    // SAFETY: plain allocation.
    let buffer = unsafe { malloc(room) }.cast::<u8>();
    if buffer.is_null() {
        errno::set(Errno::ENOMEM.0);
        return -1;
    }
    let mut walker = Walker {
        path: buffer,
        path_room: room,
        position: Position { base: 0, level: 0 },
        flags,
        old,
        callback,
        device: 0,
        limit: descriptors.max(1) as usize,
        open: 0,
        levels: core::ptr::null_mut(),
        seen: Seen { slots: core::ptr::null_mut(), room: 0, len: 0 },
    };
    let _ = walker.set_name(&text[..len]);
    walker.position.base = base as c_int;
    let result = if flags & CHDIR == 0 {
        walker.start()
    } else {
        match walker.leave_home() {
            Ok(home) => {
                let result = walker.start();
                come_home(home);
                result
            }
            Err(()) => -1,
        }
    };
    let saved = errno::get();
    // SAFETY: null or malloc's.
    unsafe { free(walker.seen.slots.cast()) };
    // SAFETY: malloc's.
    unsafe { free(walker.path.cast()) };
    errno::set(saved);
    result
}

/// `nftw(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nftw64(path: *const c_char, callback: Callback, descriptors: c_int, flags: c_int) -> c_int {
    if flags & !(PHYS | MOUNT | CHDIR | DEPTH | ACTIONS) != 0 {
        errno::set(Errno::EINVAL.0);
        return -1;
    }
    // SAFETY: by contract.
    unsafe { walk(path, callback, descriptors, flags, false) }
}

export! {
    fn nftw(path: *const c_char, callback: Callback, descriptors: c_int, flags: c_int) -> c_int {
        nftw64(path, callback, descriptors, flags)
    }
    fn ftw64(path: *const c_char, callback: Callback, descriptors: c_int) -> c_int {
        walk(path, callback, descriptors, 0, true)
    }
    fn ftw(path: *const c_char, callback: Callback, descriptors: c_int) -> c_int {
        ftw64(path, callback, descriptors)
    }
}

//! `fts_open` … `fts_close`: the BSD way to walk a tree, as libc does it.
//!
//! `Fts` and `Entry` are libc's structures: programs read their fields. All memory
//! is the program's `malloc`'s. Levels: −1 the parent of the roots, 0 the roots.
//!
//! Invariants
//! - `path` has room for every path an entry can have (its length is 16 bits).
//! - Without `NOCHDIR` the working directory is the one that holds `current`, but
//!   for roots, which are named from where the walk began.

use core::ffi::{c_char, c_int, c_long, c_void};

use pm::Errno;
use pm::sys::abi;

use super::dir::{self, Dirent};
use super::plain::{self, free, malloc, qsort};
use crate::{errno, serve};

const FOLLOW_ROOTS: c_int = 1;
const LOGICAL: c_int = 2;
const NOCHDIR: c_int = 4;
const NOSTAT: c_int = 8;
const PHYSICAL: c_int = 16;
const SEE_DOTS: c_int = 32;
const ONE_DEVICE: c_int = 64;
const OPTIONS: c_int = 0xff;
const NAMES_ONLY: c_int = 0x100;
const STOP: c_int = 0x200;

const D: u16 = 1;
const DC: u16 = 2;
const DEFAULT: u16 = 3;
const DNR: u16 = 4;
const DOT: u16 = 5;
const DP: u16 = 6;
const ERR: u16 = 7;
const F: u16 = 8;
const INIT: u16 = 9;
const NS: u16 = 10;
const NSOK: u16 = 11;
const SL: u16 = 12;
const SLNONE: u16 = 13;

const DONT_CHDIR: u16 = 1;
const SYMLINK_FOLLOWED: u16 = 2;

const AGAIN: u16 = 1;
const FOLLOW: u16 = 2;
const NOTHING: u16 = 3;
const SKIP: u16 = 4;

/// Longest path an entry can have.
const PATH_BYTES: usize = u16::MAX as usize;

type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// `FTS`.
#[repr(C)]
pub struct Fts {
    current: *mut Entry,
    children: *mut Entry,
    sorted: *mut *mut Entry,
    device: u64,
    path: *mut u8,
    home: c_int,
    path_bytes: c_int,
    items: c_int,
    compare: Option<Compare>,
    options: c_int,
}

/// `FTSENT`.
#[repr(C)]
pub struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    access: *mut u8,
    path: *mut u8,
    errno: c_int,
    symlink_fd: c_int,
    path_len: u16,
    name_len: u16,
    ino: u64,
    device: u64,
    links: u64,
    level: i16,
    info: u16,
    flags: u16,
    instruction: u16,
    stat: *mut abi::stat,
    name: [u8; 1],
}

const _: () = assert!(core::mem::offset_of!(Entry, name) == 112);
const _: () = assert!(core::mem::offset_of!(Fts, options) == 64);

/// Which part of a directory is read, and for whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    /// For `fts_read`.
    Read,
    /// For `fts_children`.
    Children,
    /// For `fts_children(FTS_NAMEONLY)`.
    Names,
}

/// A new entry with a name and room for its attributes; null with `ENOMEM`.
fn new_entry(name: &[u8], path: *mut u8) -> *mut Entry {
    let head = (core::mem::offset_of!(Entry, name) + name.len() + 1).next_multiple_of(16);
    // SAFETY: plain allocation.
    let at = unsafe { malloc(head + size_of::<abi::stat>()) }.cast::<u8>();
    if at.is_null() {
        errno::set(Errno::ENOMEM.0);
        return core::ptr::null_mut();
    }
    // SAFETY: the whole block.
    unsafe { core::ptr::write_bytes(at, 0, head + size_of::<abi::stat>()) };
    let entry = at.cast::<Entry>();
    // SAFETY: zeroed, which is a valid entry; nobody else has it.
    let fields = unsafe { &mut *entry };
    fields.path = path;
    fields.name_len = name.len() as u16;
    fields.instruction = NOTHING;
    fields.symlink_fd = -1;
    // SAFETY: `head` bytes lie before the attributes.
    fields.stat = unsafe { at.add(head) }.cast();
    // SAFETY: room for the name and a NUL (zero already).
    unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), name_of(entry), name.len()) };
    entry
}

fn name_of(entry: *mut Entry) -> *mut u8 {
    // SAFETY: an address inside the block.
    unsafe { (&raw mut (*entry).name).cast() }
}

/// Frees a list of entries.
fn free_list(mut entry: *mut Entry) {
    while !entry.is_null() {
        // SAFETY: a live entry of a list.
        let next = unsafe { (*entry).link };
        // SAFETY: malloc's.
        unsafe { free(entry.cast()) };
        entry = next;
    }
}

fn open_here() -> c_int {
    let flags = abi::O_RDONLY | abi::O_CLOEXEC;
    // SAFETY: a string.
    errno::ret_int(unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, c".".as_ptr(), flags, 0) })
}

fn close(fd: c_int) {
    // SAFETY: no pointers; the caller owns it.
    unsafe { serve!(abi::__NR_close, fd) };
}

/// Where the `/` after an entry's path goes.
fn append_at(entry: &Entry) -> usize {
    let len = entry.path_len as usize;
    // SAFETY: the path holds `path_len` bytes.
    if len > 0 && unsafe { *entry.path.add(len - 1) } == b'/' { len - 1 } else { len }
}

impl Fts {
    fn has(&self, option: c_int) -> bool {
        self.options & option != 0
    }

    fn stop(&mut self) -> *mut Entry {
        self.options |= STOP;
        core::ptr::null_mut()
    }

    /// To a directory by descriptor, unless paths are used.
    fn chdir_to(&self, fd: c_int) -> bool {
        // SAFETY: no pointers.
        self.has(NOCHDIR) || errno::ret(unsafe { serve!(abi::__NR_fchdir, fd) }) == 0
    }

    /// To the directory of `entry`, by descriptor or path, if it is still that directory.
    fn chdir_checked(&self, entry: &Entry, fd: Option<c_int>, path: *const u8) -> bool {
        if self.has(NOCHDIR) {
            return true;
        }
        let flags = abi::O_RDONLY | abi::O_DIRECTORY | abi::O_CLOEXEC;
        let opened = match fd {
            Some(fd) => fd,
            // SAFETY: a string.
            None => errno::ret_int(unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, path, flags, 0) }),
        };
        if opened < 0 {
            return false;
        }
        let mut stat = core::mem::MaybeUninit::<abi::stat>::zeroed();
        // SAFETY: room for the answer.
        let mut ok = errno::ret(unsafe { serve!(abi::__NR_fstat, opened, stat.as_mut_ptr()) }) == 0;
        // SAFETY: zeroed, and plain numbers.
        let stat = unsafe { stat.assume_init_ref() };
        if ok && (entry.device != stat.st_dev as u64 || entry.ino != stat.st_ino as u64) {
            errno::set(Errno::ENOENT.0);
            ok = false;
        }
        ok = ok && self.chdir_to(opened);
        if fd.is_none() {
            let saved = errno::get();
            close(opened);
            errno::set(saved);
        }
        ok
    }

    /// Fills in what an entry is.
    fn look(&self, entry: *mut Entry, follow: bool) -> u16 {
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        let by = |flags: u32| {
            // SAFETY: a string, and room in the entry's block.
            -unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, fields.access, fields.stat, flags) } as c_int
        };
        if self.has(LOGICAL) || follow {
            let code = by(0);
            if code != 0 {
                if by(abi::AT_SYMLINK_NOFOLLOW) == 0 {
                    errno::set(0);
                    return SLNONE;
                }
                return Self::no_stat(fields, code);
            }
        } else {
            let code = by(abi::AT_SYMLINK_NOFOLLOW);
            if code != 0 {
                return Self::no_stat(fields, code);
            }
        }
        // SAFETY: just filled in.
        let stat = unsafe { &*fields.stat };
        match stat.st_mode & abi::S_IFMT {
            abi::S_IFDIR => {
                fields.device = stat.st_dev as u64;
                fields.ino = stat.st_ino as u64;
                fields.links = stat.st_nlink as u64;
                // SAFETY: the entry's name.
                if matches!(unsafe { plain::bytes(name_of(entry).cast()) }, b"." | b"..") {
                    return DOT;
                }
                let mut above = fields.parent;
                // SAFETY: parents live as long as their children.
                while let Some(up) = unsafe { above.as_ref() }.filter(|up| up.level >= 0) {
                    if up.ino == fields.ino && up.device == fields.device {
                        fields.cycle = above;
                        return DC;
                    }
                    above = up.parent;
                }
                D
            }
            abi::S_IFLNK => SL,
            abi::S_IFREG => F,
            _ => DEFAULT,
        }
    }

    fn no_stat(entry: &mut Entry, code: c_int) -> u16 {
        entry.errno = code;
        // SAFETY: room in the entry's block.
        unsafe { core::ptr::write_bytes(entry.stat, 0, 1) };
        NS
    }

    /// Sorts a list of `len` entries as the program wishes.
    fn sort(&mut self, list: *mut Entry, len: usize) -> *mut Entry {
        let Some(compare) = self.compare.filter(|_| len > 1) else { return list };
        // SAFETY: plain allocation.
        let array = unsafe { malloc(len * size_of::<*mut Entry>()) }.cast::<*mut Entry>();
        if array.is_null() {
            return list;
        }
        let mut entry = list;
        for i in 0..len {
            // SAFETY: `array` has `len` places.
            unsafe { *array.add(i) = entry };
            // SAFETY: the list has `len` entries.
            entry = unsafe { (*entry).link };
        }
        // SAFETY: the program's comparison on pointers to entries.
        unsafe { qsort(array.cast(), len, size_of::<*mut Entry>(), compare) };
        for i in 0..len {
            // SAFETY: as above.
            let next = if i + 1 < len { unsafe { *array.add(i + 1) } } else { core::ptr::null_mut() };
            // SAFETY: as above.
            unsafe { (**array.add(i)).link = next };
        }
        // SAFETY: as above.
        let first = unsafe { *array };
        // SAFETY: malloc's.
        unsafe { free(array.cast()) };
        first
    }

    /// Reads the directory `current`: its entries as a list; null if none, or on failure.
    fn build(&mut self, kind: Build) -> *mut Entry {
        let current = self.current;
        // SAFETY: a live entry.
        let now = unsafe { &mut *current };
        // SAFETY: a string.
        let stream = unsafe { dir::opendir(now.access.cast()) };
        if stream.is_null() {
            if kind == Build::Read {
                now.info = DNR;
                now.errno = errno::get();
            }
            return core::ptr::null_mut();
        }
        let mut failed = 0;
        let mut inside = false;
        if kind != Build::Names {
            // SAFETY: a live stream.
            inside = self.chdir_checked(now, Some(unsafe { dir::dirfd(stream) }), core::ptr::null());
            if !inside {
                failed = errno::get();
                if kind == Build::Read {
                    now.errno = failed;
                }
                now.flags |= DONT_CHDIR;
            }
        }
        let base = append_at(now) + 1;
        let mut list: (*mut Entry, *mut Entry, usize) = (core::ptr::null_mut(), core::ptr::null_mut(), 0);
        loop {
            // SAFETY: a live stream.
            let found = unsafe { dir::readdir64(stream) };
            if found.is_null() {
                break;
            }
            let entry = self.take(found, base, kind, failed);
            match entry {
                Ok(entry) if entry.is_null() => continue,
                Ok(entry) => {
                    if list.1.is_null() {
                        list.0 = entry;
                    } else {
                        // SAFETY: the last entry of the list.
                        unsafe { (*list.1).link = entry };
                    }
                    list.1 = entry;
                    list.2 += 1;
                }
                Err(code) => {
                    free_list(list.0);
                    // SAFETY: the stream is ours.
                    unsafe { dir::closedir(stream) };
                    now.info = ERR;
                    errno::set(code);
                    return self.stop();
                }
            }
        }
        // SAFETY: the stream is ours.
        unsafe { dir::closedir(stream) };
        // SAFETY: the path holds that many bytes.
        unsafe { self.path.add(now.path_len as usize).write(0) };
        if inside && (kind == Build::Children || list.2 == 0) && !self.back_out(now) {
            now.info = ERR;
            free_list(list.0);
            return self.stop();
        }
        if list.2 == 0 {
            if kind == Build::Read {
                now.info = DP;
            }
            return core::ptr::null_mut();
        }
        self.sort(list.0, list.2)
    }

    /// Out of the directory `entry` again.
    fn back_out(&self, entry: &Entry) -> bool {
        if entry.level == 0 {
            return self.chdir_to(self.home);
        }
        // SAFETY: an entry below a root has a parent.
        self.chdir_checked(unsafe { &*entry.parent }, None, c"..".as_ptr().cast())
    }

    /// An entry for what `readdir` found; null if it is to be left out.
    fn take(&mut self, found: *mut Dirent, base: usize, kind: Build, failed: c_int) -> Result<*mut Entry, c_int> {
        // SAFETY: a whole record.
        let (name, d_type) = unsafe { (plain::bytes((&raw const (*found).name).cast()), (*found).kind) };
        if !self.has(SEE_DOTS) && (name == b"." || name == b"..") {
            return Ok(core::ptr::null_mut());
        }
        if base + name.len() >= PATH_BYTES {
            return Err(Errno::ENAMETOOLONG.0);
        }
        let entry = new_entry(name, self.path);
        // SAFETY: null, or a fresh entry.
        let Some(fields) = (unsafe { entry.as_mut() }) else { return Err(Errno::ENOMEM.0) };
        // SAFETY: the live entry that is being read.
        let now = unsafe { &*self.current };
        fields.level = now.level + 1;
        fields.parent = self.current;
        fields.path_len = (base + name.len()) as u16;
        if failed != 0 {
            fields.info = NS;
            fields.errno = failed;
            fields.access = now.access;
            return Ok(entry);
        }
        if self.has(NOCHDIR) {
            fields.access = self.path;
            // SAFETY: `base` is at least 1, and the path has room (checked above).
            unsafe { self.path.add(base - 1).write(b'/') };
            // SAFETY: as above; the name ends with a NUL.
            unsafe { core::ptr::copy_nonoverlapping(name_of(entry), self.path.add(base), name.len() + 1) };
        } else {
            fields.access = name_of(entry);
        }
        let known = self.has(NOSTAT) && self.has(PHYSICAL) && d_type != abi::DT_DIR as u8 && d_type != abi::DT_UNKNOWN as u8;
        fields.info = if kind == Build::Names || known { NSOK } else { self.look(entry, false) };
        Ok(entry)
    }

    /// Makes a root the current one: its path is the name it was given with.
    fn load(&mut self, entry: *mut Entry) {
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        let len = fields.name_len as usize;
        fields.path_len = fields.name_len;
        // SAFETY: the path has room for every name that `fts_open` took.
        unsafe { core::ptr::copy(name_of(entry), self.path, len + 1) };
        // SAFETY: the entry's name.
        let name = unsafe { plain::bytes(name_of(entry).cast()) };
        if let Some(slash) = name.iter().rposition(|&byte| byte == b'/')
            && (slash != 0 || len > 1)
        {
            let tail = len - slash - 1;
            // SAFETY: inside the name, with its NUL.
            unsafe { core::ptr::copy(name_of(entry).add(slash + 1), name_of(entry), tail + 1) };
            fields.name_len = tail as u16;
        }
        fields.access = self.path;
        fields.path = self.path;
        self.device = fields.device;
    }

    /// A symlink that is to be followed: what is behind it, and a way back.
    fn follow(&mut self, entry: *mut Entry) {
        let info = self.look(entry, true);
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        fields.info = info;
        if info == D && !self.has(NOCHDIR) {
            fields.symlink_fd = open_here();
            if fields.symlink_fd < 0 {
                fields.errno = errno::get();
                fields.info = ERR;
            } else {
                fields.flags |= SYMLINK_FOLLOWED;
            }
        }
    }

    /// Puts the path of a non-root entry together and makes it current.
    fn enter(&mut self, entry: *mut Entry) -> *mut Entry {
        // SAFETY: a live entry, whose parent lives too.
        let base = append_at(unsafe { &*(*entry).parent });
        // SAFETY: a live entry.
        let len = unsafe { (*entry).name_len } as usize;
        // SAFETY: the path has room (checked when the entry was made).
        unsafe { self.path.add(base).write(b'/') };
        // SAFETY: as above.
        unsafe { core::ptr::copy(name_of(entry), self.path.add(base + 1), len + 1) };
        self.current = entry;
        entry
    }

    /// Down into the directory `entry`: its first child, or itself if there is none; null to stop.
    fn descend(&mut self, entry: *mut Entry) -> *mut Entry {
        if !self.children.is_null() && self.has(NAMES_ONLY) {
            self.options &= !NAMES_ONLY;
            free_list(core::mem::replace(&mut self.children, core::ptr::null_mut()));
        }
        // SAFETY: a live entry.
        let fields = unsafe { &mut *entry };
        if self.children.is_null() {
            self.children = self.build(Build::Read);
            if self.children.is_null() {
                return if self.has(STOP) { core::ptr::null_mut() } else { entry };
            }
        } else if !self.chdir_checked(fields, None, fields.access) {
            fields.errno = errno::get();
            fields.flags |= DONT_CHDIR;
            let mut child = self.children;
            // SAFETY: entries of the list.
            while let Some(at) = unsafe { child.as_mut() } {
                at.access = fields.access;
                child = at.link;
            }
        }
        let first = core::mem::replace(&mut self.children, core::ptr::null_mut());
        self.enter(first)
    }

    /// The next entry after `done` at its level, or its parent once more.
    fn advance(&mut self, mut done: *mut Entry) -> *mut Entry {
        loop {
            // SAFETY: a live entry.
            let (next, parent) = unsafe { ((*done).link, (*done).parent) };
            self.current = if next.is_null() { parent } else { next };
            // SAFETY: malloc's, and nobody refers to it any more.
            unsafe { free(done.cast()) };
            // SAFETY: null or a live entry.
            let Some(fields) = (unsafe { next.as_mut() }) else { return self.ascend(parent) };
            if fields.level == 0 {
                if !self.chdir_to(self.home) {
                    return self.stop();
                }
                self.load(next);
                return next;
            }
            if fields.instruction == SKIP {
                done = next;
                continue;
            }
            if fields.instruction == FOLLOW {
                self.follow(next);
                fields.instruction = NOTHING;
            }
            return self.enter(next);
        }
    }

    /// All children of `parent` are done.
    fn ascend(&mut self, parent: *mut Entry) -> *mut Entry {
        // SAFETY: parents live until here.
        let fields = unsafe { &mut *parent };
        if fields.level < 0 {
            // SAFETY: malloc's.
            unsafe { free(parent.cast()) };
            errno::set(0);
            self.current = core::ptr::null_mut();
            return self.current;
        }
        // SAFETY: the path holds that many bytes.
        unsafe { self.path.add(fields.path_len as usize).write(0) };
        let back = if fields.level == 0 {
            self.chdir_to(self.home)
        } else if fields.flags & SYMLINK_FOLLOWED != 0 {
            let done = self.chdir_to(fields.symlink_fd);
            close(fields.symlink_fd);
            done
        } else {
            fields.flags & DONT_CHDIR != 0 || self.back_out(fields)
        };
        if !back {
            return self.stop();
        }
        fields.info = if fields.errno != 0 { ERR } else { DP };
        self.current = parent;
        parent
    }
}

/// `fts_open(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_open(roots: *const *mut c_char, options: c_int, compare: Option<Compare>) -> *mut Fts {
    if options & !OPTIONS != 0 {
        errno::set(Errno::EINVAL.0);
        return core::ptr::null_mut();
    }
    // SAFETY: plain allocation.
    let stream = unsafe { malloc(size_of::<Fts>()) }.cast::<Fts>();
    // SAFETY: plain allocation; pages that no path reaches are never touched.
    let path = unsafe { malloc(PATH_BYTES + 1) }.cast::<u8>();
    if stream.is_null() || path.is_null() {
        // SAFETY: null or malloc's.
        unsafe { free(stream.cast()) };
        // SAFETY: null or malloc's.
        unsafe { free(path.cast()) };
        errno::set(Errno::ENOMEM.0);
        return core::ptr::null_mut();
    }
    let fts = Fts {
        current: core::ptr::null_mut(),
        children: core::ptr::null_mut(),
        sorted: core::ptr::null_mut(),
        device: 0,
        path,
        home: -1,
        path_bytes: PATH_BYTES as c_int,
        items: 0,
        compare,
        options: if options & LOGICAL != 0 { options | NOCHDIR } else { options },
    };
    // SAFETY: a fresh block.
    unsafe { stream.write(fts) };
    // SAFETY: as above.
    let fts = unsafe { &mut *stream };
    // SAFETY: the program's list.
    if !unsafe { open_roots(fts, roots) } {
        let saved = errno::get();
        // SAFETY: malloc's.
        unsafe { free(path.cast()) };
        // SAFETY: malloc's.
        unsafe { free(stream.cast()) };
        errno::set(saved);
        return core::ptr::null_mut();
    }
    if !fts.has(NOCHDIR) {
        fts.home = open_here();
        if fts.home < 0 {
            fts.options |= NOCHDIR;
        }
    }
    stream
}

/// Makes the roots and the entry before them; `false` with `errno`.
unsafe fn open_roots(fts: &mut Fts, roots: *const *mut c_char) -> bool {
    let parent = new_entry(b"", fts.path);
    let before = new_entry(b"", fts.path);
    let mut list = core::ptr::null_mut::<Entry>();
    let mut last = list;
    let mut failed = if parent.is_null() || before.is_null() { Errno::ENOMEM.0 } else { 0 };
    let mut len = 0;
    while failed == 0 {
        // SAFETY: the program's list ends with null.
        let root = unsafe { *roots.add(len) };
        if root.is_null() {
            break;
        }
        // SAFETY: the program's string.
        let name = unsafe { plain::bytes(root) };
        let entry = if name.is_empty() || name.len() >= PATH_BYTES { core::ptr::null_mut() } else { new_entry(name, fts.path) };
        // SAFETY: null or a fresh entry.
        let Some(fields) = (unsafe { entry.as_mut() }) else {
            failed = if name.is_empty() { Errno::ENOENT.0 } else { Errno::ENAMETOOLONG.0 };
            break;
        };
        fields.level = 0;
        fields.parent = parent;
        fields.access = name_of(entry);
        fields.info = fts.look(entry, fts.has(FOLLOW_ROOTS));
        if fields.info == DOT {
            fields.info = D;
        }
        if last.is_null() {
            list = entry;
        } else {
            // SAFETY: the last of the list.
            unsafe { (*last).link = entry };
        }
        last = entry;
        len += 1;
    }
    if failed != 0 {
        free_list(list);
        // SAFETY: null or malloc's.
        unsafe { free(parent.cast()) };
        // SAFETY: null or malloc's.
        unsafe { free(before.cast()) };
        errno::set(failed);
        return false;
    }
    // SAFETY: a fresh entry.
    unsafe { (*parent).level = -1 };
    // SAFETY: as above.
    let first = unsafe { &mut *before };
    first.link = fts.sort(list, len);
    first.parent = parent;
    first.info = INIT;
    fts.current = before;
    true
}

/// `fts_read(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_read(stream: *mut Fts) -> *mut Entry {
    // SAFETY: a live stream.
    let fts = unsafe { &mut *stream };
    let entry = fts.current;
    if entry.is_null() || fts.has(STOP) {
        return core::ptr::null_mut();
    }
    // SAFETY: the live current entry.
    let fields = unsafe { &mut *entry };
    let instruction = core::mem::replace(&mut fields.instruction, NOTHING);
    if instruction == AGAIN {
        fields.info = fts.look(entry, false);
        return entry;
    }
    if instruction == FOLLOW && matches!(fields.info, SL | SLNONE) {
        fts.follow(entry);
        return entry;
    }
    if fields.info == D {
        let elsewhere = fts.has(ONE_DEVICE) && fields.device != fts.device;
        if instruction != SKIP && !elsewhere {
            return fts.descend(entry);
        }
        if fields.flags & SYMLINK_FOLLOWED != 0 {
            close(fields.symlink_fd);
        }
        free_list(core::mem::replace(&mut fts.children, core::ptr::null_mut()));
        fields.info = DP;
        return entry;
    }
    fts.advance(entry)
}

/// `fts_children(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_children(stream: *mut Fts, instruction: c_int) -> *mut Entry {
    // SAFETY: a live stream.
    let fts = unsafe { &mut *stream };
    if instruction != 0 && instruction != NAMES_ONLY {
        errno::set(Errno::EINVAL.0);
        return core::ptr::null_mut();
    }
    errno::set(0);
    // SAFETY: null or the live current entry.
    let Some(fields) = (unsafe { fts.current.as_ref() }) else { return core::ptr::null_mut() };
    if fts.has(STOP) {
        return core::ptr::null_mut();
    }
    if fields.info == INIT {
        return fields.link;
    }
    if fields.info != D {
        return core::ptr::null_mut();
    }
    free_list(core::mem::replace(&mut fts.children, core::ptr::null_mut()));
    let kind = if instruction == NAMES_ONLY {
        fts.options |= NAMES_ONLY;
        Build::Names
    } else {
        Build::Children
    };
    // A root with a relative path: its parent is not where the walk began.
    // SAFETY: a string.
    let relative_root = fields.level == 0 && unsafe { *fields.access } != b'/' && !fts.has(NOCHDIR);
    let here = if relative_root { open_here() } else { -1 };
    if relative_root && here < 0 {
        return core::ptr::null_mut();
    }
    fts.children = fts.build(kind);
    if here >= 0 {
        let back = fts.chdir_to(here);
        close(here);
        if !back {
            return core::ptr::null_mut();
        }
    }
    fts.children
}

/// `fts_set(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_set(_stream: *mut Fts, entry: *mut Entry, instruction: c_int) -> c_int {
    if !(0..=SKIP as c_int).contains(&instruction) {
        errno::set(Errno::EINVAL.0);
        return 1;
    }
    // SAFETY: a live entry.
    unsafe { (*entry).instruction = instruction as u16 };
    0
}

/// `fts_close(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fts_close(stream: *mut Fts) -> c_int {
    // SAFETY: a live stream.
    let fts = unsafe { &mut *stream };
    let mut entry = fts.current;
    // SAFETY: entries from the current one along links, then up to the roots' parent.
    while let Some(fields) = unsafe { entry.as_ref() } {
        let next = match fields.level {
            -1 => core::ptr::null_mut(),
            _ if fields.link.is_null() => fields.parent,
            _ => fields.link,
        };
        // SAFETY: malloc's, each met once.
        unsafe { free(entry.cast()) };
        entry = next;
    }
    free_list(fts.children);
    let mut result = 0;
    if !fts.has(NOCHDIR) {
        // SAFETY: no pointers.
        result = errno::ret_int(unsafe { serve!(abi::__NR_fchdir, fts.home) });
        let saved = errno::get();
        close(fts.home);
        errno::set(saved);
    }
    // SAFETY: malloc's.
    unsafe { free(fts.path.cast()) };
    // SAFETY: malloc's.
    unsafe { free(stream.cast()) };
    result
}

macro_rules! alias {
    ($($name:ident = $target:ident ($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        /// The same with 64-bit offsets, which is no other here.
        ///
        /// # Safety
        /// As in C.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: by contract.
            unsafe { $target($($argument),*) }
        }
    )*};
}

alias! {
    fts64_open = fts_open(roots: *const *mut c_char, options: c_int, compare: Option<Compare>) -> *mut Fts;
    fts64_read = fts_read(stream: *mut Fts) -> *mut Entry;
    fts64_children = fts_children(stream: *mut Fts, instruction: c_int) -> *mut Entry;
    fts64_set = fts_set(stream: *mut Fts, entry: *mut Entry, instruction: c_int) -> c_int;
    fts64_close = fts_close(stream: *mut Fts) -> c_int;
}

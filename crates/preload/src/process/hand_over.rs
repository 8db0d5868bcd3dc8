//! Programs that the library can't be loaded into, started with descriptors of ours.
//!
//! A static or set-uid program knows the kernel's descriptors only. If the file
//! system is also mounted through the kernel at the same path, each number of
//! ours that it inherits becomes a kernel descriptor of the same file at the
//! same offset, just before `exec`, and the working directory becomes the
//! kernel's. From then on the kernel owns the offset; the server of the mount
//! lets the one of the open file follow, for whoever else has it
//! (decision 0078).
//!
//! Without such a mount the placeholders stay: `EBADF`, as documented.

use crate::process::libraries;
use crate::process::own_calls;
use crate::process::own_calls::Calls;
use crate::runtime::dispatch;
use crate::runtime::front_end::PROCESS;
use crate::runtime::kernel::Who;
use crate::runtime::{alloc, environ, imports, kernel, kernel_root, operation, placeholders, session, thread, tls};
use core::ffi::c_char;
use pm::sys::abi::*;
use posix::own_calls::{is_elf, segments};
use posix::{CWD_FD, FD_MAX};

const HERE: i32 = -100;
/// As much of a program as its headers need.
const HEAD_BYTES: usize = 4096;
const INTERPRETERS_MAX: u32 = 4;

/// Whether the loader would find us, and we what the session's programs share: not from a root directory without them. Among
/// other mounts than the session's only the kernel's mounts can take our place.
pub fn can_be_loaded() -> bool {
    if kernel_root::is_kept() && PROCESS.hidden().next().is_none() && !session::is_reachable() {
        return false;
    }
    let name = environ::own_name();
    // By a name alone it is looked for in several places.
    if name.first() != Some(&b'/') {
        return true;
    }
    // Not on the stack: those of programs that start others are small, too.
    let block = alloc::alloc_zeroed(name.len() + 1);
    if block.is_null() {
        return true;
    }
    // SAFETY: a block of that size, ours alone.
    unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), block, name.len()) };
    // SAFETY: a NUL-terminated path.
    let can = unsafe { pm::call!(__NR_faccessat, HERE, block, 0) }.is_ok();
    // SAFETY: not used any more.
    unsafe { alloc::free(block) };
    can
}

/// How a program gets at the mounts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The loader loads us into it.
    Loads,
    /// So it does, but the program makes system calls of its own that can't be brought to us.
    OwnCalls,
    /// No loader loads us into it, but we can map it ourselves.
    Mapped(Alone),
    /// By the kernel only: set-uid, another architecture's; where calls can't be handed back, static and musl's too.
    Past(Alone),
}

/// Why no loader loads us into a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// It has none that would.
    Static,
    /// It is musl's, which would end for want of what it can't load.
    Musl,
}

/// Whether the loader would load us into the program at this kernel path, and all its calls come by us.
///
/// # Safety
/// `path` is a NUL-terminated string.
pub unsafe fn loads_us(dirfd: i32, path: *const c_char, flags: i32) -> bool {
    // SAFETY: by contract.
    can_be_loaded() && unsafe { kind(dirfd, path, flags) } == Kind::Loads
}

/// What the program at this kernel path is, where we can be loaded. Whatever can't be read loads us: its exec will show.
///
/// # Safety
/// As for [`loads_us`].
pub unsafe fn kind(dirfd: i32, path: *const c_char, flags: i32) -> Kind {
    let head = alloc::alloc(HEAD_BYTES);
    if head.is_null() {
        return Kind::Loads;
    }
    // SAFETY: a block of that size, ours alone.
    let room = unsafe { core::slice::from_raw_parts_mut(head, HEAD_BYTES) };
    // SAFETY: by contract.
    let kind = unsafe { kind_by_head(dirfd, path, flags, room) };
    // SAFETY: not used any more.
    unsafe { alloc::free(head) };
    kind
}

/// # Safety
/// As for [`loads_us`].
unsafe fn kind_by_head(dirfd: i32, path: *const c_char, flags: i32, head: &mut [u8]) -> Kind {
    // SAFETY: by contract.
    let Some(mut program) = (unsafe { read_head(dirfd, path, flags, head) }) else { return Kind::Loads };
    // SAFETY: by contract.
    let mut is_loader = is_loaders_name(unsafe { imports::bytes(path) });
    for _ in 0..INTERPRETERS_MAX {
        let len = program.len;
        if !head[..len].starts_with(b"#!") {
            break;
        }
        // The kernel takes the interpreter's own mode.
        let line = head[2..len].iter().position(|&b| b == b'\n').map_or(len, |at| at + 2);
        let start = head[..line].iter().skip(2).position(|&b| b != b' ' && b != b'\t').map_or(line, |at| at + 2);
        let end = head[start..line].iter().position(|&b| b == b' ' || b == b'\t').map_or(line, |at| at + start);
        if end >= head.len() {
            return Kind::Loads;
        }
        head[end] = 0;
        let mut name = [0u8; 256];
        let Some(room) = name.get_mut(..end + 1 - start) else { return Kind::Loads };
        room.copy_from_slice(&head[start..end + 1]);
        is_loader = is_loaders_name(&head[start..end]);
        // SAFETY: a NUL-terminated copy.
        match unsafe { read_head(HERE, name.as_ptr().cast(), 0, head) } {
            Some(interpreter) => program = interpreter,
            None => return Kind::Loads,
        }
    }
    is_loader |= program.is_loader;
    let head = &head[..program.len];
    if is_secure(&program.stat) {
        // The loader heeds no library then, whichever it is.
        return Kind::Past(Alone::Static);
    }
    if !is_loader && (!has_loader(head) || own_calls::is_musls(head)) {
        let alone = if own_calls::is_musls(head) { Alone::Musl } else { Alone::Static };
        return if own_calls::can_be_mapped(head) { Kind::Mapped(alone) } else { Kind::Past(alone) };
    }
    let goes_past = program.calls.can_be_served() && !is_loader && !dispatch::is_possible();
    if goes_past { Kind::OwnCalls } else { Kind::Loads }
}

/// What is known of a program by its first bytes.
struct Head {
    len: usize,
    stat: stat,
    calls: Calls,
    is_loader: bool,
}

/// Whether the program runs in the loader's secure mode: with other ids than those of whoever starts it.
fn is_secure(program: &stat) -> bool {
    let (uid, gid) = (kernel::own(Who::User), kernel::own(Who::Gid));
    let sets = |bit: u32| program.st_mode & bit != 0 && program.st_mode & 0o111 != 0;
    let becomes = if sets(S_ISUID) { program.st_uid } else { kernel::own(Who::EffectiveUser) };
    let joins = if sets(S_ISGID) { program.st_gid } else { kernel::own(Who::EffectiveGid) };
    (becomes, joins) != (uid, gid)
}

/// Whether a path is that of a loader, started by its name to load a program: it heeds `LD_PRELOAD`, and names no loader.
fn is_loaders_name(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(b"");
    [&b"ld-linux"[..], b"ld.so", b"ld64.so", b"ld-2."].iter().any(|begin| name.starts_with(begin))
}

/// The first bytes of a program and its attributes; `None` if it can't be read.
///
/// # Safety
/// As for [`loads_us`].
unsafe fn read_head(dirfd: i32, path: *const c_char, flags: i32, head: &mut [u8]) -> Option<Head> {
    let own = if flags as u32 & AT_EMPTY_PATH != 0 { dirfd } else { -1 };
    let fd = if own >= 0 {
        own as usize
    } else {
        // SAFETY: by contract.
        let fd = unsafe {
            placeholders::creating(__NR_openat, [dirfd as usize, path as usize, (O_RDONLY | O_CLOEXEC) as usize, 0, 0, 0])
        };
        usize::try_from(fd).ok()?
    };
    // SAFETY: the buffer outlives the call.
    let len = unsafe { pm::call!(__NR_pread64, fd, head.as_mut_ptr(), head.len(), 0) };
    let mut stat = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: room for a `struct stat`.
    let known = unsafe { pm::call!(__NR_fstat, fd, stat.as_mut_ptr()) };
    // SAFETY: zeroed: a valid value, whether or not the kernel has filled it.
    let stat = unsafe { stat.assume_init() };
    let head = len.ok().and_then(|len| head.get(..len));
    // A descriptor may be a copy in memory, made for this one exec.
    let program = head.filter(|head| own < 0 && known.is_ok() && is_elf(head));
    let calls = program.map_or(Calls::None, |head| own_calls::makes(fd, &stat, head));
    let is_loader = known.is_ok() && head.is_some_and(|head| is_loader(fd, stat.st_size as usize, head));
    if own < 0 {
        kernel::close(fd);
    }
    known.ok()?;
    Some(Head { len: head?.len(), stat, calls, is_loader })
}

/// Whether a program of so many bytes is a loader by another name: it can lie anywhere, and names no loader itself.
fn is_loader(fd: usize, bytes: usize, head: &[u8]) -> bool {
    const SHARED: u8 = 3;
    const LOADER_MAX: usize = 1 << 20;
    if !is_elf(head) || head.get(16) != Some(&SHARED) || has_loader(head) || bytes > LOADER_MAX {
        return false;
    }
    let room = alloc::alloc_pages(LOADER_MAX);
    if room.is_null() {
        return false;
    }
    // SAFETY: the block has that many bytes.
    let len = unsafe { pm::call!(__NR_pread64, fd, room, bytes, 0) }.unwrap_or(0);
    // SAFETY: so many have been read, and nobody else has the block.
    let is_one = libraries::is_loader(unsafe { core::slice::from_raw_parts(room, len) });
    // SAFETY: not used any more.
    unsafe { alloc::free(room) };
    is_one
}

/// Whether an ELF program names a loader. What is no ELF file is not ours to judge.
fn has_loader(head: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    // The loader of another architecture would not load us either.
    if !is_elf(head) {
        return !is_program(head);
    }
    segments(head).any(|(kind, ..)| kind == INTERPRETER)
}

/// Whether these are the first bytes of an ELF program of any architecture; the kernel executes nothing else that begins so.
fn is_program(head: &[u8]) -> bool {
    const SHORTEST: usize = 52;
    const BIG_ENDIAN: u8 = 2;
    if head.len() < SHORTEST || !head.starts_with(b"\x7fELF") || !matches!(head[4], 1 | 2) {
        return false;
    }
    let kind = [head[16], head[17]];
    let kind = if head[5] == BIG_ENDIAN { u16::from_be_bytes(kind) } else { u16::from_le_bytes(kind) };
    matches!(kind, 2 | 3)
}

/// Before this process, or a child that it makes, takes another root directory or other mounts; whether nothing was kept before.
pub fn keep_root() -> bool {
    PROCESS.hands_on() && kernel_root::keep()
}

/// What was given to the kernel; dropping it takes everything back (`exec` failed).
pub struct HandedOver {
    /// Numbers that carry a kernel descriptor now.
    numbers: [u64; FD_MAX as usize / 64 + 1],
    /// The kernel's working directory as it was; negative: not changed.
    before: isize,
    /// All that is inherited is among it.
    pub is_all: bool,
}

impl HandedOver {
    /// Hands over all that a new program inherits, as far as the kernel has it.
    pub fn all() -> HandedOver {
        let mut handed = HandedOver { numbers: [0; FD_MAX as usize / 64 + 1], before: -1, is_all: true };
        let tls = tls::get();
        for fd in PROCESS.kept_over_exec() {
            operation::enter(tls);
            let file = open_in_kernel(tls, fd, true);
            operation::leave(tls);
            let Some(file) = file else {
                handed.is_all = false;
                continue;
            };
            if kernel::dup3(file, fd, 0).is_ok() {
                handed.numbers[fd as usize / 64] |= 1 << (fd % 64);
            }
            kernel::close(file);
        }
        operation::enter(tls);
        let directory = open_in_kernel(tls, CWD_FD, false);
        operation::leave(tls);
        if let Some(directory) = directory {
            // SAFETY: the path is NUL-terminated.
            handed.before = unsafe {
                placeholders::creating(
                    __NR_openat,
                    [HERE as usize, c".".as_ptr() as usize, (O_PATH | O_CLOEXEC) as usize, 0, 0, 0],
                )
            };
            let _ = kernel::fchdir(directory);
            kernel::close(directory);
        } else if PROCESS.descriptors.get(CWD_FD).is_some() {
            handed.is_all = false;
        }
        handed
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        for (index, word) in self.numbers.iter().enumerate() {
            for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
                placeholders::renew(index as u32 * 64 + bit);
            }
        }
        if self.before >= 0 {
            let _ = kernel::fchdir(self.before);
            kernel::close(self.before);
        }
    }
}

/// A kernel descriptor (close-on-exec) of what `fd` of ours stands for, at its
/// offset; `None` if the kernel hasn't got it. With `share` the open file's
/// offset follows. Within an operation (`tls::enter`).
pub fn open_in_kernel(tls: &tls::Tls, fd: u32, share: bool) -> Option<usize> {
    use openfiles::{EACH_READ, SHARE};
    let wanted = PROCESS.in_kernel(thread::state(tls), fd).ok()?;
    // Only what is opened to be read might be kept, and then neither be asked for nor move the offset.
    let each_read = if share && wanted.flags & (O_PATH | O_ACCMODE) == 0 { EACH_READ } else { 0 };
    let file = kernel_root::open_number(wanted.path, wanted.flags | O_CLOEXEC | O_LARGEFILE | each_read, wanted.ino)?;
    if wanted.flags & O_PATH == 0 {
        // SAFETY: no pointers.
        let _ = unsafe { pm::call!(__NR_lseek, file, wanted.offset, SEEK_SET) };
        if share {
            // A server that does not know of it leaves the offsets apart.
            // SAFETY: a word that outlives the call.
            let _ = unsafe { pm::call!(__NR_ioctl, file, SHARE, &raw const wanted.description) };
        }
        if each_read != 0 {
            let _ = kernel::fcntl(file, F_SETFL, wanted.flags);
        }
    }
    Some(file)
}

//! Names that are not taken yet: `mkstemp`, `mkdtemp`, `mktemp`, `tempnam`,
//! `tmpnam` and their variants (`tmpfile`: `stdio`). libc tries names by calls inside itself.

use core::ffi::{CStr, c_char, c_int};

use pm::Errno;
use pm::sys::abi;

use crate::runtime::{errno, imports};
use crate::serve;

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// How many names are tried (as glibc: 62 × 62 × 62).
const TRIES: u32 = 238_328;
/// Where temporary files go when nobody says otherwise (`P_tmpdir`).
const TMP: &CStr = c"/tmp";
/// `L_tmpnam`.
const TMPNAM_BYTES: usize = 20;

/// What becomes of a name that is free.
enum Make {
    File(u32),
    Directory,
    Nothing,
}

impl Make {
    /// Takes `path`: a descriptor or 0, or a negative errno (`EEXIST`: try another).
    unsafe fn attempt(&self, path: *const c_char) -> isize {
        match self {
            Make::File(flags) => {
                let flags = (flags & !abi::O_ACCMODE) | abi::O_RDWR | abi::O_CREAT | abi::O_EXCL | abi::O_LARGEFILE;
                // SAFETY: a string.
                unsafe { serve!(abi::__NR_openat, abi::AT_FDCWD, path, flags, 0o600) }
            }
            // SAFETY: a string.
            Make::Directory => unsafe { serve!(abi::__NR_mkdirat, abi::AT_FDCWD, path, 0o700) },
            Make::Nothing => {
                let mut stat = core::mem::MaybeUninit::<abi::stat>::uninit();
                let how = abi::AT_SYMLINK_NOFOLLOW;
                // SAFETY: a string and room for the answer.
                match unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, path, stat.as_mut_ptr(), how) } {
                    0 => -(Errno::EEXIST.0 as isize),
                    code if code == -(Errno::ENOENT.0 as isize) => 0,
                    code => code,
                }
            }
        }
    }
}

/// 64 bits that nobody can guess, or at least nobody else has.
fn random() -> u64 {
    let mut bits = 0u64;
    // SAFETY: room for eight bytes.
    let got = unsafe { pm::call!(abi::__NR_getrandom, &raw mut bits, 8, abi::GRND_NONBLOCK) };
    if got == Ok(8) {
        return bits;
    }
    let mut now = [0u64; 2];
    // SAFETY: a `struct timespec` is two words.
    let _ = unsafe { pm::call!(abi::__NR_clock_gettime, abi::CLOCK_MONOTONIC, now.as_mut_ptr()) };
    (now[0] ^ now[1].rotate_left(32) ^ (now.as_ptr() as u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Fills in the last six `X` before `suffix` bytes until a name can be taken:
/// the result of [`Make::attempt`], or a negative errno.
unsafe fn fill_in(template: *mut c_char, suffix: c_int, make: &Make) -> isize {
    let invalid = -(Errno::EINVAL.0 as isize);
    // SAFETY: the program's string.
    let text = unsafe { imports::bytes(template) };
    let Some(at) = usize::try_from(suffix).ok().and_then(|suffix| text.len().checked_sub(6 + suffix)) else {
        return invalid;
    };
    if !text[at..at + 6].iter().all(|&letter| letter == b'X') {
        return invalid;
    }
    let mut bits = random();
    for _ in 0..TRIES {
        let mut rest = bits;
        for k in 0..6 {
            // SAFETY: the six X of the program's writable string.
            unsafe { template.cast::<u8>().add(at + k).write(LETTERS[(rest % 62) as usize]) };
            rest /= 62;
        }
        // SAFETY: a string.
        let taken = unsafe { make.attempt(template) };
        if taken != -(Errno::EEXIST.0 as isize) {
            return taken;
        }
        bits = random();
    }
    -(Errno::EEXIST.0 as isize)
}

/// `mkostemps(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's string.
    errno::ret_int(unsafe { fill_in(template, suffix, &Make::File(flags as u32)) })
}

/// `mkdtemp(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the program's string.
    if errno::ret(unsafe { fill_in(template, 0, &Make::Directory) }) < 0 {
        return core::ptr::null_mut();
    }
    template
}

/// `mktemp(3)`: the empty string when it fails.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mktemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the program's string.
    if errno::ret(unsafe { fill_in(template, 0, &Make::Nothing) }) < 0 {
        // SAFETY: as above; even the empty string has one byte.
        unsafe { template.write(0) };
    }
    template
}

/// Whether a directory of that name exists.
unsafe fn is_directory(path: *const c_char) -> bool {
    let mut stat = core::mem::MaybeUninit::<abi::stat>::uninit();
    // SAFETY: a string and room for the answer.
    let code = unsafe { serve!(abi::__NR_newfstatat, abi::AT_FDCWD, path, stat.as_mut_ptr(), 0) };
    // SAFETY: filled in when the call succeeds.
    code == 0 && unsafe { stat.assume_init_ref() }.st_mode & abi::S_IFMT == abi::S_IFDIR
}

/// `tempnam(3)`: `$TMPDIR`, else `dir`, else `/tmp`; the name is the program's to free.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tempnam(dir: *const c_char, prefix: *const c_char) -> *mut c_char {
    // SAFETY: a string.
    let from_environment = unsafe { imports::secure_getenv(c"TMPDIR".as_ptr()) }.cast_const();
    let chosen = [from_environment, dir, TMP.as_ptr()]
        .into_iter()
        // SAFETY: strings, where not null.
        .find(|&dir| !dir.is_null() && unsafe { is_directory(dir) });
    let Some(dir) = chosen else {
        errno::set(Errno::ENOENT.0);
        return core::ptr::null_mut();
    };
    // SAFETY: strings.
    let dir = unsafe { imports::bytes(dir) };
    // SAFETY: a string, where not null.
    let prefix = if prefix.is_null() { b"".as_slice() } else { unsafe { imports::bytes(prefix) } };
    let prefix = if prefix.is_empty() { b"file".as_slice() } else { &prefix[..prefix.len().min(5)] };
    let dir_len = dir.iter().rposition(|&byte| byte != b'/').map_or(1, |last| last + 1).min(dir.len());
    let mut name = [0u8; 4096];
    let parts = [&dir[..dir_len], b"/", prefix, b"XXXXXX"];
    if parts.iter().map(|part| part.len()).sum::<usize>() >= name.len() {
        errno::set(Errno::EINVAL.0);
        return core::ptr::null_mut();
    }
    let mut len = 0;
    for part in parts {
        name[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    // SAFETY: a writable string.
    if errno::ret(unsafe { fill_in(name.as_mut_ptr().cast(), 0, &Make::Nothing) }) < 0 {
        return core::ptr::null_mut();
    }
    imports::duplicate(&name[..len])
}

static mut TMPNAM: [u8; TMPNAM_BYTES] = [0; TMPNAM_BYTES];

/// `tmpnam(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpnam(out: *mut c_char) -> *mut c_char {
    let mut name = *b"/tmp/fileXXXXXX\0\0\0\0\0";
    // SAFETY: a writable string.
    if errno::ret(unsafe { fill_in(name.as_mut_ptr().cast(), 0, &Make::Nothing) }) < 0 {
        return core::ptr::null_mut();
    }
    // Without a buffer of the program it is libc's static one, not thread-safe by its definition.
    let out = if out.is_null() { (&raw mut TMPNAM).cast::<c_char>() } else { out };
    // SAFETY: both have L_tmpnam bytes.
    unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), out.cast::<u8>(), TMPNAM_BYTES) };
    out
}

/// `tmpnam_r(3)`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpnam_r(out: *mut c_char) -> *mut c_char {
    if out.is_null() {
        return out;
    }
    // SAFETY: by contract.
    unsafe { tmpnam(out) }
}

export! {
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        mkostemps64(template, suffix, flags)
    }
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int {
        mkostemps64(template, suffix, 0)
    }
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
        mkostemps64(template, suffix, 0)
    }
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
        mkostemps64(template, 0, flags)
    }
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
        mkostemps64(template, 0, flags)
    }
    fn mkstemp(template: *mut c_char) -> c_int {
        mkostemps64(template, 0, 0)
    }
    fn mkstemp64(template: *mut c_char) -> c_int {
        mkostemps64(template, 0, 0)
    }
}

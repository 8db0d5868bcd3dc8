//! This library as a program: it maps the one that it is told of, and goes on in that.
//!
//! Programs that no loader loads us into (static ones, those for musl) are started so by
//! [`crate::process::exec`]. The loader has put us and our libc into memory; nothing of either has run yet.
//!
//! ```text
//! bypath_mapped_start ─ room for what the program begins with, on the stack ─▶ begin:
//!     environment as it was meant · mounts, as in every program · the program's segments · calls are handed back
//! ─▶ the program's entry, or that of its loader, with the registers and the stack that the kernel would give it
//! ```
//! The program's calls come to us from here on ([`crate::libc::dispatch`]).

mod image;
mod stack;

use crate::process::own_calls;
use crate::runtime::environ::LATER;
use crate::runtime::{alloc, dispatch, environ, imports, kernel, phase, swap, tls};
use crate::{complain, libc, serve, set_fs};
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering::Relaxed;
use image::Image;
use pm::sys::{self, abi::*};
use stack::Given;

const PR_SET_NAME: usize = 15;
const PATH_MAX: usize = 4096;
/// The exit code of a shell that can't start a program.
const NOT_STARTED: usize = 126;
/// How the kernel names what has its contents in memory.
const MEMORY: &[u8] = b"/memfd:";
const GONE: &[u8] = b" (deleted)";

core::arch::global_asm!(
    ".pushsection .text.bypath_mapped, \"ax\", @progbits",
    ".balign 16",
    ".globl bypath_mapped_start",
    ".hidden bypath_mapped_start",
    "bypath_mapped_start:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "mov rbp, rsp",
    "mov rdi, rsp",
    "call {measure}",
    "mov rdi, rbp",
    "sub rsp, rax",
    "and rsp, -16",
    "mov rbx, rsp",
    "mov rsi, rsp",
    "call {begin}",
    "mov rsp, rbx",
    "mov r11, rax",
    "xor eax, eax",
    set_fs!("rax"),
    "xor ebx, ebx",
    "xor ecx, ecx",
    "xor edx, edx",
    "xor esi, esi",
    "xor edi, edi",
    "xor ebp, ebp",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r12d, r12d",
    "xor r13d, r13d",
    "xor r14d, r14d",
    "xor r15d, r15d",
    "jmp r11",
    ".cfi_endproc",
    ".popsection",
    measure = sym measure,
    begin = sym begin,
);

/// Room that the program's block needs.
unsafe extern "C" fn measure(at: *const usize) -> usize {
    // SAFETY: the kernel's block, which the loader has made shorter.
    unsafe { Given::at(at) }.bytes()
}

/// Readies all, and writes the program's block; where to go on.
unsafe extern "C" fn begin(at: *const usize, block: *mut usize) -> usize {
    // SAFETY: as above.
    let given = unsafe { Given::at(at) };
    swap::start();
    // SAFETY: this thread is alone.
    unsafe { name_library() };
    super::start(tls::get());
    if super::HIDES.load(Relaxed) && phase::is_mounted() {
        // SAFETY: as above.
        unsafe { environ::hide() };
    }
    // musl's loader would look for what is for glibc; the programs after this one get it from us.
    // SAFETY: as above.
    unsafe { imports::remove_variable(imports::environ, b"LD_PRELOAD") };
    let Some((fd, name)) = described(given.argument(1)) else { refuse(c"a program", c"this library is no program by itself") };
    let program = match Image::map(fd, image::PROGRAM) {
        Ok(image) => image,
        Err(why) => refuse(name, why),
    };
    let loader = program.loader().map(|path| match load(path) {
        Ok(image) => image,
        Err(why) => refuse(path, why),
    });
    set_name(fd, name);
    let small_stacks = program.calls_on_small_stacks(fd);
    kernel::close(fd);
    libc::dispatch::set_data(program.end());
    [Some(&program), loader.as_ref()].into_iter().flatten().flat_map(Image::code).for_each(|code| dispatch::note_code(&code));
    if phase::is_mounted() && !libc::dispatch::start_mapped(&own_calls::own(), small_stacks) {
        refuse(name, c"the kernel does not hand its system calls back");
    }
    // SAFETY: as much room as `bytes` has said, and the environment as it is now.
    unsafe { given.write(block, imports::environ, &program, loader.as_ref(), name) };
    loader.as_ref().unwrap_or(&program).entry()
}

/// The program is not started.
fn refuse(name: &CStr, why: &CStr) -> ! {
    complain!("{} is not run: {}", name.to_str().unwrap_or("a program"), why.to_str().unwrap_or("?"));
    loop {
        // SAFETY: ends this process.
        unsafe { sys::raw(__NR_exit_group as usize, [NOT_STARTED, 0, 0, 0, 0, 0]) };
    }
}

/// `LD_PRELOAD` is called so again.
///
/// # Safety
/// Nobody else changes or reads the environment meanwhile.
unsafe fn name_library() {
    // SAFETY: libc's array, by contract.
    let entries = unsafe { imports::environ };
    let mut at = entries;
    // SAFETY: inside the array, which ends with null.
    while !entries.is_null() && unsafe { !(*at).is_null() } {
        // SAFETY: a NUL-terminated text.
        let text = unsafe { CStr::from_ptr(*at) }.to_bytes();
        if text.strip_prefix(LATER).is_some_and(|rest| rest.starts_with(b"LD_PRELOAD=")) {
            // SAFETY: inside that text.
            unsafe { *at = (*at).add(LATER.len()) };
        }
        at = at.wrapping_add(1);
    }
}

/// What `FD:NAME` is about.
fn described(text: Option<&'static CStr>) -> Option<(i32, &'static CStr)> {
    let text = text?;
    let colon = text.to_bytes().iter().position(|&byte| byte == b':')?;
    let fd = core::str::from_utf8(&text.to_bytes()[..colon]).ok()?.parse().ok()?;
    Some((fd, CStr::from_bytes_with_nul(&text.to_bytes_with_nul()[colon + 1..]).ok()?))
}

/// Maps the program's loader, which may lie in a mount.
fn load(path: &CStr) -> Result<Image, &'static CStr> {
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { serve!(__NR_openat, AT_FDCWD, path.as_ptr(), O_RDONLY | O_CLOEXEC, 0) };
    if fd < 0 {
        return Err(c"there is no such loader");
    }
    let image = Image::map(fd as i32, image::LOADER);
    crate::runtime::call::close(fd);
    image
}

/// Where the program is, for `/proc/self/exe`, and what the kernel calls it.
fn set_name(fd: i32, name: &CStr) {
    let last = |path: &CStr| path.to_bytes().rsplit(|&byte| byte == b'/').next().map_or(0, <[u8]>::len);
    let room = alloc::alloc(PATH_MAX);
    let mut link = [0u8; 32];
    posix::proc_fd(fd as u32, &mut link);
    let told = if room.is_null() {
        0
    } else {
        // SAFETY: a NUL-terminated name and a block of that size, ours alone.
        unsafe { pm::call!(__NR_readlinkat, AT_FDCWD, link.as_ptr(), room, PATH_MAX - 1) }.unwrap_or(0)
    };
    let mut path = name;
    if told > 0 {
        // SAFETY: as above, and so many bytes were written; it is kept for good.
        let text: &'static mut [u8] = unsafe { core::slice::from_raw_parts_mut(room, PATH_MAX) };
        // What is ours runs as a copy in memory that has its path for a name.
        let copy = text[..told].strip_prefix(MEMORY).and_then(|rest| rest.strip_suffix(GONE)).map(<[u8]>::len);
        let (from, end) = copy.map_or((0, told), |len| (MEMORY.len(), MEMORY.len() + len));
        text[end] = 0;
        let text: &'static [u8] = text;
        if let Ok(found) = CStr::from_bytes_with_nul(&text[from..=end]) {
            libc::dispatch::set_program(found);
            if name.is_empty() {
                path = found;
            }
        }
    }
    let begin: *const c_char = path.as_ptr().wrapping_add(path.count_bytes() - last(path));
    // SAFETY: a NUL-terminated text.
    let _ = unsafe { pm::call!(__NR_prctl, PR_SET_NAME, begin, 0, 0, 0) };
}

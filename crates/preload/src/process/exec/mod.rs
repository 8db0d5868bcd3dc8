//! exec*: descriptors, working directory and mounts reach the next program.
//!
//! ```text
//! prepare: environment rebuilt · descriptors that stay: placeholder without FD_CLOEXEC · backends told
//! try:     a kernel path → execveat · a script of ours → its interpreter
//!          a program of ours → the same through the kernel's mount, or a memfd copy
//! failed:  everything put back
//! ```

mod arguments;
mod mapped;
mod search;
mod whose;

pub use arguments::Arguments;
pub use search::search;
pub use whose::{Whose, leads_in, whose};

use crate::process::hand_over::{Alone, Kind};
use crate::process::libraries::{Copies, Paths, name_of as name_of_copy, preloaded};
use crate::process::{hand_over, in_mount, libraries, not_loaded, program, vfork};
use crate::runtime::environ::{Environment, STATE_MAX};
use crate::runtime::front_end::PROCESS;
use crate::runtime::{
    alloc, call, count, environ, errno, imports, kernel, operation, phase, placeholders, signals, stores, tls, vfork_child,
};
use crate::serve;
use core::ffi::{CStr, c_char, c_int};
use pm::sys::{self, abi::*};

const HERE: i32 = -100;
const ENOEXEC: isize = -8;
const ENOMEM: isize = -12;
const EACCES: isize = -13;
const ETXTBSY: isize = -26;
const ELOOP: isize = -40;
/// How often one script may be the interpreter of another.
const INTERPRETERS_MAX: u32 = 4;

type Strings = *const *mut c_char;

/// A process ready to be replaced; dropping it takes everything back.
pub struct Ready {
    environment: Option<Environment>,
    source: Strings,
    /// Made by a child of `vfork`, which readies itself at each path.
    vfork_child: bool,
    /// What stands in `LD_PRELOAD` in the place of what only we have.
    _preloaded: Option<Copies>,
}

impl Ready {
    /// Readies this process.
    ///
    /// # Safety
    /// `source` is the environment of the new program, valid while this lives.
    pub unsafe fn new(source: Strings) -> Result<Ready, isize> {
        let tls = tls::get();
        if !phase::is_active(tls) {
            return Ok(Ready { environment: None, source, vfork_child: tls::get().is_vfork_child(), _preloaded: None });
        }
        count::add(tls);
        stores::at_end(tls);
        let state = alloc::alloc(STATE_MAX);
        if state.is_null() {
            return Err(ENOMEM);
        }
        operation::enter(tls);
        // SAFETY: a block of that size, ours alone, until it is freed below.
        let room = unsafe { core::slice::from_raw_parts_mut(state, STATE_MAX) };
        room.fill(0);
        let result = match PROCESS.exec_prepare(room) {
            // SAFETY: by contract.
            Ok(len) => match unsafe { Environment::new(source, &room[..len]) } {
                Some(environment) => {
                    PROCESS.kept_over_exec().for_each(|fd| placeholders::set_cloexec(fd, false));
                    Ok(Ready { environment: Some(environment), source, vfork_child: false, _preloaded: None })
                }
                None => {
                    PROCESS.exec_failed();
                    Err(ENOMEM)
                }
            },
            Err(errno) => Err(-(errno.0 as isize)),
        };
        // SAFETY: not used any more.
        unsafe { alloc::free(state) };
        operation::leave(tls);
        // SAFETY: by contract.
        result.map(|ready| if unsafe { preloaded::has_suspects(source) } { ready.with_preloaded() } else { ready })
    }

    #[cold]
    fn with_preloaded(mut self) -> Ready {
        if let Some(environment) = &mut self.environment {
            // SAFETY: it was made of that, outside of an operation.
            self._preloaded = unsafe { preloaded::replace(self.source, environment) };
        }
        self
    }

    fn environ(&self) -> Strings {
        self.environment.as_ref().map_or(self.source, Environment::as_ptr)
    }

    /// Tries one path; returns only on failure, with the negated error number.
    ///
    /// # Safety
    /// `path` and the strings of `argv` are the program's.
    pub unsafe fn try_path(&self, dirfd: i32, path: *const c_char, argv: Strings, flags: i32) -> isize {
        if self.vfork_child {
            // SAFETY: by contract.
            return unsafe { self.try_as_vfork_child(dirfd, path, argv, flags) };
        }
        if self.environment.is_none() {
            // SAFETY: by contract.
            return unsafe { kernel_exec(dirfd, path, argv, self.source, flags) };
        }
        // SAFETY: by contract.
        unsafe { self.try_ours(dirfd, path, argv, flags, 0) }
    }

    /// As `try_path`, in a child of `vfork`, or in what has become of it.
    ///
    /// # Safety
    /// As for `try_path`.
    unsafe fn try_as_vfork_child(&self, dirfd: i32, path: *const c_char, argv: Strings, flags: i32) -> isize {
        // SAFETY: by contract.
        if let Some(result) = unsafe { vfork::exec(dirfd, path, argv, self.source, flags) } {
            return result;
        }
        if let Err(errno) = vfork_child::settle(tls::get()) {
            return -(errno as isize);
        }
        // SAFETY: by contract.
        match unsafe { Ready::new(self.source) } {
            // SAFETY: by contract.
            Ok(ready) => unsafe { ready.try_path(dirfd, path, argv, flags) },
            Err(error) => error,
        }
    }

    /// As `try_path`, at interpreter depth `level`.
    ///
    /// # Safety
    /// As for `try_path`.
    unsafe fn try_ours(&self, dirfd: i32, path: *const c_char, argv: Strings, flags: i32, level: u32) -> isize {
        // SAFETY: by contract.
        match unsafe { whose(dirfd, path, flags) } {
            Whose::Kernel => {
                // SAFETY: by contract.
                let result = unsafe { self.start(dirfd, path, argv, flags) };
                if !matches!(result, -2 | -20 | -13) {
                    return result;
                }
                // SAFETY: by contract.
                match unsafe { leads_in(dirfd, path, flags) } {
                    Some(error) if error != 0 => error,
                    // SAFETY: by contract.
                    None if !unsafe { is_for_ours(dirfd, path, flags) } => result,
                    // SAFETY: by contract.
                    _ => unsafe { self.exec_file(dirfd, path, argv, flags, level) },
                }
            }
            // SAFETY: `posix` made these arguments.
            Whose::KernelAt(dirfd, path) => unsafe { self.start(dirfd, path, argv, flags) },
            // SAFETY: by contract.
            Whose::Ours(0) => unsafe { self.exec_file(dirfd, path, argv, flags, level) },
            Whose::Ours(error) => error,
        }
    }

    /// Executes a kernel file; what it inherits of ours becomes the kernel's if it can't be preloaded.
    ///
    /// # Safety
    /// As for `try_path`.
    unsafe fn start(&self, dirfd: i32, path: *const c_char, argv: Strings, flags: i32) -> isize {
        // SAFETY: by contract.
        let exec = || unsafe { kernel_exec(dirfd, path, argv, self.environ(), flags) };
        if !hand_over::can_be_loaded() {
            // From another root directory: the mounts do not belong there, but what is open goes along.
            return self.environment.as_ref().map_or_else(exec, |environment| {
                let _handed = hand_over::HandedOver::all();
                environment.without_state(|| environment.without_library(exec))
            });
        }
        // SAFETY: by contract.
        let kind = unsafe { hand_over::kind(dirfd, path, flags) };
        match &self.environment {
            Some(environment) if kind == Kind::OwnCalls => {
                if PROCESS.hidden().next().is_some() {
                    // Better by us, where only those calls of its own find nothing.
                    // SAFETY: by contract.
                    not_loaded::note_own_calls(unsafe { name_of(path, argv) });
                    return exec();
                }
                let _handed = hand_over::HandedOver::all();
                environment.passively(exec)
            }
            Some(environment) if let Kind::Mapped(alone) | Kind::Past(alone) = kind => {
                if kind == Kind::Mapped(alone) && PROCESS.hidden().next().is_some() {
                    // SAFETY: by contract.
                    if let Some(error) = unsafe { self.start_mapped(environment, (dirfd, path, flags), argv) } {
                        return error;
                    }
                }
                // SAFETY: by contract.
                if unsafe { not_loaded::is_refused(name_of(path, argv), argv) } {
                    return EACCES;
                }
                let handed = hand_over::HandedOver::all();
                if !handed.is_all {
                    // SAFETY: by contract.
                    let name = core::str::from_utf8(unsafe { name_of(path, argv) }).unwrap_or("a program");
                    crate::complain!(
                        "{name} cannot be preloaded (static, set-uid or another architecture's), and without a kernel mount its \
                         open files and working directory in the mount are gone (EBADF); bypath run --help says how to have one"
                    );
                }
                environment.without_state(|| match alone {
                    Alone::Static => exec(),
                    Alone::Musl => environment.without_library(exec),
                })
            }
            _ => exec(),
        }
    }

    /// Executes a file of ours.
    ///
    /// # Safety
    /// As for `try_path`.
    unsafe fn exec_file(&self, dirfd: i32, path: *const c_char, argv: Strings, flags: i32, level: u32) -> isize {
        // SAFETY: by contract.
        let file = match unsafe { open_executable(dirfd, path, flags) } {
            Ok(file) => file,
            Err(error) => return error,
        };
        let mut head = [0u8; 256];
        // SAFETY: the buffer outlives the call.
        let len = unsafe { serve!(__NR_pread64, file, head.as_mut_ptr(), head.len() - 1, 0) };
        let result = if len < 0 {
            len
        } else if head.starts_with(b"#!") {
            // SAFETY: by contract.
            unsafe { self.exec_script(&mut head, path, argv, level) }
        } else if head.starts_with(b"\x7fELF") && !PROCESS.descriptors.is_ours(file as usize) {
            // A directory of the kernel's: the kernel executes its own file, and sees to `ETXTBSY`.
            // SAFETY: by contract; the descriptor is the program.
            unsafe { self.start(file, c"".as_ptr(), argv, AT_EMPTY_PATH as i32) }
        } else if head.starts_with(b"\x7fELF") {
            // SAFETY: by contract.
            match unsafe { in_mount::path(file, dirfd, path) } {
                // SAFETY: by contract; a text of ours.
                Some(text) => match unsafe { self.start(HERE, text.as_ptr(), argv, 0) } {
                    ETXTBSY => ETXTBSY,
                    // What the kernel can't do through its mount is done without.
                    // SAFETY: by contract.
                    _ => unsafe { self.exec_copy(file, path, argv) },
                },
                // SAFETY: by contract.
                None => unsafe { self.exec_copy(file, path, argv) },
            }
        } else {
            ENOEXEC
        };
        call::close(file);
        result
    }

    /// `#! interpreter argument`: the interpreter with the script's path.
    ///
    /// # Safety
    /// As for `try_path`; `head` is the start of the script and ends with NUL.
    unsafe fn exec_script(&self, head: &mut [u8; 256], path: *const c_char, argv: Strings, level: u32) -> isize {
        if level >= INTERPRETERS_MAX {
            return ELOOP;
        }
        let Some((interpreter, argument)) = split_interpreter(head) else { return ENOEXEC };
        // SAFETY: by contract.
        let given = unsafe { imports::strings(argv) };
        let Some(mut list) = Arguments::new(given.clone().count() + 3) else { return ENOMEM };
        list.extend([Some(interpreter), argument, Some(path)].into_iter().flatten());
        list.extend(given.skip(1).map(|text| text.cast_const()));
        // SAFETY: the list and its strings are valid.
        unsafe { self.try_ours(HERE, interpreter, list.as_ptr(), 0, level + 1) }
    }

    /// A program of ours: the kernel needs a file, so it gets a copy in memory.
    ///
    /// # Safety
    /// As for `try_path`.
    unsafe fn exec_copy(&self, file: i32, path: *const c_char, argv: Strings) -> isize {
        // SAFETY: a NUL-terminated path.
        let copy = program::copy_of(file, unsafe { CStr::from_ptr(path) }.to_bytes());
        if copy < 0 {
            return copy;
        }
        // A static one inherits the kernel's descriptors, as any of the kernel's.
        let result = self.with_libraries(file, copy as i32, || {
            // SAFETY: by contract; the descriptor is the program.
            unsafe { self.start(copy as i32, c"".as_ptr(), argv, AT_EMPTY_PATH as i32) }
        });
        kernel::close(copy);
        result
    }
}

impl Ready {
    /// Runs `exec`, which executes `copy`, a copy of `file` of ours, with those of the libraries it needs that only we have.
    fn with_libraries(&self, file: i32, copy: i32, exec: impl FnOnce() -> isize) -> isize {
        let Some(environment) = &self.environment else { return exec() };
        // SAFETY: the environment of the new program.
        let libraries = match unsafe { libraries_of_ours(file, copy, self.source) } {
            Ok(libraries) => libraries,
            Err(error) => return error,
        };
        if libraries.count() == 0 {
            return exec();
        }
        for (_, library) in libraries.iter() {
            let _ = kernel::fcntl(library, F_SETFD, 0);
        }
        environment.with_libraries(libraries.iter().map(|(key, copy)| name_of_copy(key, copy)), exec)
    }
}

/// A program of ours as the kernel has it.
pub enum InKernel {
    /// A descriptor: a copy, or the kernel's own file where a directory of the kernel's is shown.
    Open(i32),
    /// A path in a kernel mount.
    Path(in_mount::Text),
}

/// A program of ours that a child may execute which works with nothing of ours. `None`: only a process of its own can, as with
/// scripts, programs that need libraries of ours, or those that the loader does not load us into.
///
/// # Safety
/// `path` is NUL-terminated, and `envp` the environment of the new program.
pub unsafe fn in_kernel(path: *const c_char, envp: Strings) -> Option<InKernel> {
    // SAFETY: by contract.
    let file = unsafe { open_executable(HERE, path, 0) }.ok()?;
    // SAFETY: by contract.
    let program = unsafe { opened_in_kernel(file, path, envp) };
    if !matches!(program, Some(InKernel::Open(it)) if it == file) {
        call::close(file);
    }
    program
}

/// The same of an open file.
///
/// # Safety
/// As for [`in_kernel`].
unsafe fn opened_in_kernel(file: i32, path: *const c_char, envp: Strings) -> Option<InKernel> {
    let mut head = [0u8; 4];
    // SAFETY: the buffer outlives the call.
    let len = unsafe { serve!(__NR_pread64, file, head.as_mut_ptr(), head.len(), 0) };
    if len < 0 || head != *b"\x7fELF" {
        return None;
    }
    // SAFETY: a descriptor of the kernel's.
    let loads = |program: i32| unsafe { hand_over::loads_us(program, c"".as_ptr(), AT_EMPTY_PATH as i32) };
    if !PROCESS.descriptors.is_ours(file as usize) {
        return loads(file).then_some(InKernel::Open(file));
    }
    // SAFETY: by contract.
    if let Some(text) = unsafe { in_mount::path(file, HERE, path) } {
        // SAFETY: a NUL-terminated path.
        return unsafe { hand_over::loads_us(HERE, text.as_ptr(), 0) }.then_some(InKernel::Path(text));
    }
    // SAFETY: by contract.
    let copy =
        i32::try_from(program::copy_of(file, unsafe { CStr::from_ptr(path) }.to_bytes())).ok().filter(|copy| *copy >= 0)?;
    // SAFETY: by contract.
    if loads(copy) && unsafe { libraries_of_ours(file, copy, envp) }.is_ok_and(|libraries| libraries.count() == 0) {
        return Some(InKernel::Open(copy));
    }
    kernel::close(copy as isize);
    None
}

/// Copies of the libraries that a program, `file` of ours, of which `copy` is one, needs and only we have.
///
/// # Safety
/// `envp` is the environment of the new program.
unsafe fn libraries_of_ours(file: i32, copy: i32, envp: Strings) -> Result<Copies, isize> {
    let mut libraries = Copies::new().ok_or(ENOMEM)?;
    // SAFETY: by contract.
    let given = unsafe { libraries::library_path(envp) };
    libraries.needs_of(file, copy, &Paths { given, wants: &|_| true })?;
    Ok(libraries)
}

/// What a person knows a program by: its path, or, where a descriptor is executed, the name that it is told.
///
/// # Safety
/// `path` and the strings of `argv` are NUL-terminated.
unsafe fn name_of<'a>(path: *const c_char, argv: Strings) -> &'a [u8] {
    // SAFETY: by contract.
    let name = unsafe { imports::bytes(path) };
    // SAFETY: by contract.
    if !name.is_empty() || argv.is_null() || unsafe { *argv }.is_null() {
        return name;
    }
    // SAFETY: by contract.
    unsafe { imports::bytes(*argv) }
}

impl Drop for Ready {
    fn drop(&mut self) {
        if self.environment.is_some() {
            let tls = tls::get();
            operation::enter(tls);
            PROCESS.kept_over_exec().for_each(|fd| placeholders::set_cloexec(fd, true));
            PROCESS.exec_failed();
            operation::leave(tls);
        }
    }
}

/// Opens a file of ours to execute it: a regular file only.
///
/// # Safety
/// `path` is the program's.
unsafe fn open_executable(dirfd: i32, path: *const c_char, flags: i32) -> Result<i32, isize> {
    let mut stat = [0u8; 256];
    // SAFETY: the buffer is larger than a `struct stat`.
    let result = unsafe { serve!(__NR_newfstatat, dirfd, path, stat.as_mut_ptr(), flags) };
    if result < 0 {
        return Err(result);
    }
    #[cfg(target_arch = "x86_64")]
    const MODE_OFFSET: usize = 24;
    #[cfg(not(target_arch = "x86_64"))]
    const MODE_OFFSET: usize = 16;
    let mode = u32::from_ne_bytes([stat[MODE_OFFSET], stat[MODE_OFFSET + 1], stat[MODE_OFFSET + 2], stat[MODE_OFFSET + 3]]);
    match mode & 0o170000 {
        0o100000 => {}
        0o120000 => return Err(ELOOP),
        _ => return Err(EACCES),
    }
    // SAFETY: by contract.
    let empty = unsafe { *path } == 0;
    let file = if empty {
        // Through its link, since it may be open as a path only.
        let mut link = [0u8; 32];
        posix::proc_fd(dirfd as u32, &mut link);
        // SAFETY: a NUL-terminated name.
        unsafe { serve!(__NR_openat, HERE, link.as_ptr(), O_RDONLY | O_CLOEXEC, 0) }
    } else {
        // SAFETY: by contract.
        unsafe { serve!(__NR_openat, dirfd, path, O_RDONLY | O_CLOEXEC, 0) }
    };
    if file < 0 { Err(file) } else { Ok(file as i32) }
}

/// Whether a file of the kernel's, which it could not execute, is a script whose interpreter only we have.
///
/// # Safety
/// `path` is the program's.
#[cold]
pub unsafe fn is_for_ours(dirfd: i32, path: *const c_char, flags: i32) -> bool {
    if PROCESS.hidden().next().is_none() {
        return false;
    }
    // SAFETY: by contract.
    let Ok(file) = (unsafe { open_executable(dirfd, path, flags) }) else { return false };
    let mut head = [0u8; 256];
    // SAFETY: the buffer outlives the call.
    let len = unsafe { serve!(__NR_pread64, file, head.as_mut_ptr(), head.len() - 1, 0) };
    call::close(file);
    if len < 0 || !head.starts_with(b"#!") {
        return false;
    }
    let Some((interpreter, _)) = split_interpreter(&mut head) else { return false };
    // SAFETY: NUL-terminated in place.
    matches!(unsafe { whose(HERE, interpreter, 0) }, Whose::Ours(0))
}

/// The kernel's exec, by the call that fits.
///
/// # Safety
/// As for `execveat`.
unsafe fn kernel_exec(dirfd: i32, path: *const c_char, argv: Strings, envp: Strings, flags: i32) -> isize {
    signals::pass_on(false);
    // SAFETY: by contract.
    let error = unsafe { bare_exec(dirfd, path, argv, envp, flags) };
    signals::pass_on(true);
    error
}

/// # Safety
/// As for `execveat`.
unsafe fn bare_exec(dirfd: i32, path: *const c_char, argv: Strings, envp: Strings, flags: i32) -> isize {
    if dirfd == HERE && flags == 0 {
        // SAFETY: by contract.
        return unsafe { sys::raw(__NR_execve as usize, [path as usize, argv as usize, envp as usize, 0, 0, 0]) };
    }
    let args = [dirfd as usize, path as usize, argv as usize, envp as usize, flags as usize, 0];
    // SAFETY: by contract.
    unsafe { sys::raw(__NR_execveat as usize, args) }
}

/// `execveat`, libc-style result.
///
/// # Safety
/// As for `execveat`.
pub unsafe fn execveat_call(dirfd: i32, path: *const c_char, argv: Strings, envp: Strings, flags: i32) -> c_int {
    // SAFETY: by contract.
    if posix::bad_pointer(path as usize) || !unsafe { environ::is_there(argv) && environ::is_there(envp) } {
        errno::set(pm::Errno::EFAULT.0);
        return -1;
    }
    if dirfd != HERE {
        // Numbers that only the pool holds are not open.
        placeholders::flush();
    }
    // SAFETY: by contract.
    let error = match unsafe { Ready::new(envp) } {
        // SAFETY: by contract.
        Ok(ready) => unsafe { ready.try_path(dirfd, path, argv, flags) },
        Err(error) => error,
    };
    errno::ret_int(error)
}

/// Cuts the first line of a script, NUL-terminating its parts in place.
fn split_interpreter(head: &mut [u8; 256]) -> Option<(*const c_char, Option<*const c_char>)> {
    let blank = |b: u8| b == b' ' || b == b'\t';
    let end = head.iter().position(|&b| b == b'\n' || b == 0)?;
    let mut end = end.max(2);
    while end > 2 && blank(head[end - 1]) {
        end -= 1;
    }
    head[end] = 0;
    let start = (2..end).find(|&i| !blank(head[i]))?;
    let stop = (start..end).find(|&i| blank(head[i])).unwrap_or(end);
    let argument = (stop..end).find(|&i| !blank(head[i]));
    head[stop] = 0;
    let at = |i: usize| head[i..].as_ptr().cast::<c_char>();
    Some((at(start), argument.map(at)))
}

//! Namespaces: several in a process, each with its own mounts, descriptors,
//! working directory and umask.
//!
//! A process slot of an image is held by the thread that attached it, so a
//! thread of the library's own does that, which lives as long as the process.

use crate::{Namespace, daemons, fail, sources};
use libc::{c_char, c_int};
use posix::environment;
use posix::{Door, Process, Room, ThreadState};
use std::cell::Cell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vfs::Backend;

/// The door of a namespace: no kernel behind.
struct Alone;

impl Door for Alone {
    fn has_kernel(&self) -> bool {
        false
    }
}

/// When a thread ends, its lanes go back, and its room.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        OWN.with(|own| {
            own.at.set(std::ptr::null());
            #[cfg(feature = "native")]
            native::thread_ends(&own.state);
            if let Some(room) = own.state.end() {
                // SAFETY: leaked in `begin`, and nobody's any more.
                drop(unsafe { Box::from_raw(room) });
            }
        });
    }
}

/// This thread's state, and where that is, which is quicker to ask; null: it has not begun. On one line, as far as the lane
/// of the first image.
#[repr(C, align(32))]
struct Own {
    at: Cell<*const ThreadState>,
    state: ThreadState,
}

thread_local! {
    // Nothing is left to do when it goes: so it can be used until its memory goes.
    static OWN: Own = const { Own { at: Cell::new(std::ptr::null()), state: ThreadState::new() } };
    static END: End = const { End };
}

/// Calls `serve` with this thread's state.
#[inline]
pub(crate) fn with_thread<T>(serve: impl FnOnce(&ThreadState) -> T) -> T {
    // SAFETY: it is not used after the call.
    serve(unsafe { thread() })
}

/// This thread's state.
///
/// # Safety
/// For use within one call by this thread, which it outlives.
#[inline]
pub(crate) unsafe fn thread<'a>() -> &'a ThreadState {
    let mut state = OWN.with(|own| own.at.get());
    if state.is_null() {
        state = begin();
    }
    // SAFETY: it lives until this thread has ended.
    unsafe { &*state }
}

#[cold]
#[inline(never)]
fn begin() -> *const ThreadState {
    // In a destructor of this thread that runs after ours that is too late: its room stays, and its lanes go back when
    // others find this thread dead.
    let _ = END.try_with(|_| ());
    OWN.with(|own| {
        own.state.begin(Box::leak(Box::new(Room::new())));
        own.at.set(&raw const own.state);
        own.at.get()
    })
}

/// All namespaces, for what must be done in a forked child.
static ALL: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static HOOKED: AtomicBool = AtomicBool::new(false);

/// In a forked child: the parent's namespaces are the parent's. Calls in them
/// fail; the child opens its own.
extern "C" fn in_child() {
    // What it opens from here on is its own, not its parent's.
    pm::host::forget_pid();
    daemons::in_child();
    // Its lanes are the parent's.
    OWN.with(|own| own.at.set(std::ptr::null()));
    let all = ALL.try_lock().map(|all| all.clone()).unwrap_or_default();
    for at in all {
        // SAFETY: namespaces are taken off the list before they end.
        let ns = unsafe { &*(at as *const Namespace) };
        for slot in 0..base::MOUNTS_MAX {
            // Whoever held a lock of the process is not here: none is taken.
            ns.process.mounts.remove(slot);
        }
        for fd in 0..=posix::FD_MAX {
            ns.process.descriptors.take(fd);
        }
    }
    #[cfg(feature = "native")]
    native::in_child();
}

/// Opens an empty namespace.
#[unsafe(no_mangle)]
pub extern "C" fn bp_open_namespace() -> *mut Namespace {
    if !HOOKED.swap(true, Relaxed) {
        // SAFETY: a function of this library, which is never unloaded while namespaces live.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    let ns = Box::new(Namespace { process: Process::with_numbers(&Alone) });
    for fd in 0..3 {
        // As in any program; 0 is nobody's idea of a fresh descriptor.
        let _ = ns.process.numbers().take_exact(fd, false);
    }
    let ns = Box::into_raw(ns);
    if let Ok(mut all) = ALL.lock() {
        all.push(ns as usize);
    }
    ns
}

/// Closes a namespace: its descriptors, then its mounts.
///
/// # Safety
/// `ns` is null or came from `bp_open_namespace`, and no call in it is going on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_close_namespace(ns: *mut Namespace) -> c_int {
    if ns.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    if let Ok(mut all) = ALL.lock() {
        all.retain(|&at| at != ns as usize);
    }
    // SAFETY: the caller's promise: it is ours again.
    let ns = unsafe { Box::from_raw(ns) };
    with_thread(|thread| {
        for fd in 0..=posix::FD_MAX {
            if let Some(entry) = ns.process.descriptors.take(fd)
                && let Some(mount) = ns.process.mounts.get(entry.slot())
            {
                mount.backend.close(&ns.process.cx(thread), fd);
            }
        }
        for slot in 0..base::MOUNTS_MAX {
            if let Some(mount) = ns.process.mounts.get(slot) {
                let backend = mount.backend;
                ns.process.unmount(slot);
                end(&ns.process, thread, backend);
            }
        }
    });
    0
}

/// A backend that is no longer mounted.
fn end(process: &Process, thread: &ThreadState, backend: &'static dyn Backend) {
    #[cfg(feature = "native")]
    if native::end(process, thread, backend) {
        return;
    }
    backend.detach(&process.cx(thread));
    daemons::detached(backend);
}

/// Mounts what `source` names on `point` (`/` for everything): an image's path, `mem:` (a private file system
/// in memory), `host:/dir`, `fuse:COMMAND ARG… @` or `plugin:LIB.so,args`. The first mount becomes the working directory.
///
/// # Safety
/// Texts are NUL-terminated, or null where that is allowed; not at once with other calls in `ns`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_mount(
    ns: *mut Namespace,
    source: *const c_char,
    point: *const c_char,
    options: *const c_char,
) -> c_int {
    if ns.is_null() || source.is_null() || point.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    // SAFETY: the caller's promise.
    let (ns, source, point) = unsafe { (&*ns, CStr::from_ptr(source), CStr::from_ptr(point)) };
    let options = if options.is_null() {
        b"".as_slice()
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(options) }.to_bytes()
    };
    let result = sources::of_caller(source, options).and_then(|backend| add(ns, point, backend));
    result.map_or_else(|errno| fail(errno) as c_int, |_| 0)
}

/// Mounts all that the session of `bypath run` around this process has, where it has it; `ENOENT` if
/// there is no session. All or nothing.
///
/// # Safety
/// `ns` is null or a namespace; not at once with other calls in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_mount_session(ns: *mut Namespace) -> c_int {
    // SAFETY: the caller's promise.
    let Some(ns) = (unsafe { ns.as_ref() }) else { return fail(libc::EFAULT) as c_int };
    let list = std::env::var_os(OsStr::from_bytes(environment::MOUNTS)).unwrap_or_default();
    match add_all(ns, list.as_bytes()) {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    }
}

/// Mounts what a session's list says, or nothing of it.
fn add_all(ns: &Namespace, list: &[u8]) -> Result<(), i32> {
    let mut slots = Vec::new();
    let mut result = Err(libc::ENOENT);
    for spec in environment::parse(list) {
        result = sources::of_session(&spec).and_then(|(backend, point)| add(ns, &point, backend));
        match result {
            Ok(slot) => slots.push(slot),
            Err(_) => break,
        }
    }
    if result.is_err() {
        // One inside another goes first.
        slots.iter().rev().for_each(|&slot| remove(ns, slot));
    }
    result.map(|_| ())
}

/// Mounts a backend; its slot.
fn add(ns: &Namespace, point: &CStr, backend: &'static dyn Backend) -> Result<usize, i32> {
    with_thread(|thread| match ns.process.mount(thread, point.to_bytes(), backend) {
        Ok(slot) => {
            let has_cwd = ns.process.descriptors.get(posix::CWD_FD).is_some();
            if !has_cwd {
                // SAFETY: a NUL-terminated text.
                unsafe { ns.process.chdir(thread, [point.as_ptr() as usize, 0, 0, 0, 0, 0]) };
            }
            Ok(slot)
        }
        Err(errno) => {
            end(&ns.process, thread, backend);
            Err(errno.0)
        }
    })
}

/// Takes away a mount that nothing but the working directory leads into.
fn remove(ns: &Namespace, slot: usize) {
    let Some(backend) = ns.process.mounts.get(slot).map(|mount| mount.backend) else { return };
    with_thread(|thread| {
        if ns.process.descriptors.get(posix::CWD_FD).is_some_and(|entry| entry.slot() == slot) {
            ns.process.descriptors.take(posix::CWD_FD);
            backend.close(&ns.process.cx(thread), posix::CWD_FD);
        }
        ns.process.unmount(slot);
        end(&ns.process, thread, backend);
    });
}

/// Unmounts `point`; `EBUSY` while descriptors or the working directory lead into it.
///
/// # Safety
/// `point` is NUL-terminated; not at once with other calls in `ns`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_umount(ns: *mut Namespace, point: *const c_char) -> c_int {
    if ns.is_null() || point.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    // SAFETY: the caller's promise.
    let (ns, point) = unsafe { (&*ns, CStr::from_ptr(point)) };
    let wanted = point.to_bytes();
    let wanted = wanted.strip_suffix(b"/").unwrap_or(wanted);
    let found = ns.process.mounts.iter().find(|(_, mount)| mount.prefix() == wanted).map(|(slot, _)| slot);
    let Some(slot) = found else { return fail(libc::EINVAL) as c_int };
    let used = ns.process.descriptors.range(0, posix::FD_MAX).any(|(_, entry)| entry.slot() == slot);
    let entered = ns.process.descriptors.get(posix::CWD_FD).is_some_and(|entry| entry.slot() == slot);
    let covered = ns.process.mounts.iter().any(|(_, mount)| mount.parent().is_some_and(|(parent, _)| parent == slot));
    if used || covered || entered && ns.process.mounts.iter().count() > 1 {
        return fail(libc::EBUSY) as c_int;
    }
    remove(ns, slot);
    0
}

/// Asks the kernel again who this process is; needed after `setuid` and its kin.
///
/// # Safety
/// `ns` is null or a namespace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bp_credentials_changed(ns: *mut Namespace) {
    // SAFETY: the caller's promise.
    if let Some(ns) = unsafe { ns.as_ref() } {
        ns.process.credentials_changed();
    }
}

#[cfg(feature = "native")]
pub(crate) mod native {
    //! Images: attached by the keeper, a thread that outlives all others.

    use base::{Atomic, Cred, Cx, MOUNTS_MAX};
    use engine::Fs;
    use engine::process::attach::Options;
    use posix::{Process, ThreadState};
    use std::ffi::{CStr, CString, OsStr, OsString};
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Mutex, PoisonError};
    use vfs::Backend;
    use vfs::native::Native;

    type Answer = Result<&'static Fs, i32>;
    type Request = (CString, Vec<u8>, usize, Sender<Answer>);

    /// The keeper of this process, and the images in use (with the address of
    /// the backend) by slot.
    struct Images {
        keeper: Option<Sender<Request>>,
        slots: [Option<(&'static Fs, usize)>; MOUNTS_MAX],
        /// Slots that are being attached, a bit each.
        reserved: u32,
    }

    static IMAGES: Mutex<Images> = Mutex::new(Images { keeper: None, slots: [None; MOUNTS_MAX], reserved: 0 });

    fn images() -> std::sync::MutexGuard<'static, Images> {
        IMAGES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach_here(image: &CStr, options: &[u8], slot: usize) -> Answer {
        let words = || options.split(|&b| b == b',');
        let value = |name: &[u8]| words().find_map(|word| word.strip_prefix(name));
        let segment_dir = segment_directory();
        let atomic = match value(b"atomic=") {
            Some(name) => Some(Atomic::from_name(name).ok_or(libc::EINVAL)?),
            None => None,
        };
        let options = Options {
            domain: value(b"domain=").and_then(|name| pm::Domain::from_name(std::str::from_utf8(name).ok()?)),
            read_only: crate::sources::is_read_only(options),
            segment_dir: segment_dir.as_deref(),
            slot,
            cachelets: None,
            atomic,
            in_place: false,
        };
        let place: &'static mut MaybeUninit<Fs> = Box::leak(Box::new(MaybeUninit::uninit()));
        let at: *mut MaybeUninit<Fs> = place;
        let thread = base::Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let attached = Fs::attach_at(place, &cx, image.to_bytes_with_nul(), &options);
        let result = attached.inspect(|fs| fs.give_lane_back(&thread));
        if let Ok(fs) = &result
            && fs.is_cache()
        {
            // What it holds are copies of another directory's files, which nobody would bring or write back.
            fs.leave();
            return Err(libc::EINVAL);
        }
        result.map_err(|error| {
            // SAFETY: leaked above; nothing is in it after an error.
            drop(unsafe { Box::from_raw(at) });
            error.errno().0
        })
    }

    /// Where segments are, if not in `/dev/shm`: as `bypath` chooses.
    fn segment_directory() -> Option<Vec<u8>> {
        let chosen = std::env::var_os("BYPATH_SEGMENT_DIR").map(OsString::into_vec).filter(|chosen| !chosen.is_empty());
        if chosen.is_some() || can_make_files_in(b"/dev/shm") {
            return chosen;
        }
        let named = ["XDG_RUNTIME_DIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(OsString::into_vec);
        named.chain([b"/tmp".to_vec()]).find(|directory| can_make_files_in(directory))
    }

    fn can_make_files_in(directory: &[u8]) -> bool {
        let is_plain = directory.starts_with(b"/") && !directory.contains(&b':');
        let is_directory = || std::fs::metadata(OsStr::from_bytes(directory)).is_ok_and(|meta| meta.is_dir());
        let Ok(path) = CString::new(directory) else { return false };
        // SAFETY: a NUL-terminated text.
        is_plain && is_directory() && unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } == 0
    }

    fn keeper() -> std::io::Result<Sender<Request>> {
        let (sender, receiver) = channel::<Request>();
        std::thread::Builder::new().name("bypath".into()).spawn(move || {
            for (image, options, slot, answer) in receiver {
                let _ = answer.send(attach_here(&image, &options, slot));
            }
            // It holds the process's places: it must not end.
            loop {
                std::thread::park();
            }
        })?;
        Ok(sender)
    }

    /// Attaches an image.
    pub fn attach(image: &CStr, options: &[u8]) -> Result<&'static dyn Backend, i32> {
        let (slot, sender) = {
            let mut images = images();
            let free = (0..MOUNTS_MAX).find(|&s| images.slots[s].is_none() && images.reserved & 1 << s == 0);
            let slot = free.ok_or(libc::EMFILE)?;
            if images.keeper.is_none() {
                images.keeper = Some(keeper().map_err(|e| e.raw_os_error().unwrap_or(libc::EAGAIN))?);
            }
            images.reserved |= 1 << slot;
            (slot, images.keeper.clone())
        };
        let (answer, answers) = channel();
        let asked = sender.is_some_and(|keeper| keeper.send((image.to_owned(), options.to_vec(), slot, answer)).is_ok());
        let result = if asked { answers.recv().unwrap_or(Err(libc::EIO)) } else { Err(libc::EIO) };
        let mut images = images();
        images.reserved &= !(1 << slot);
        let fs = result?;
        let backend: &'static dyn Backend = Box::leak(Box::new(Native(fs)));
        images.slots[slot] = Some((fs, std::ptr::from_ref(backend).cast::<()>() as usize));
        Ok(backend)
    }

    /// Ends the use of an image; false if the backend is none.
    pub fn end(process: &Process, thread: &ThreadState, backend: &'static dyn Backend) -> bool {
        let mut images = images();
        // By address: the backend was leaked by `attach` and is nobody else's.
        let slot = images
            .slots
            .iter()
            .position(|used| used.is_some_and(|(_, at)| at == std::ptr::from_ref(backend).cast::<()>() as usize));
        let Some(slot) = slot else { return false };
        backend.detach(&process.cx(thread));
        images.slots[slot] = None;
        true
    }

    /// A thread's lanes go back.
    pub fn thread_ends(state: &ThreadState) {
        for (fs, _) in images().slots.iter().flatten() {
            fs.give_lane_back(&state.thread);
        }
    }

    /// In a forked child there is no keeper, and the images are the parent's.
    pub fn in_child() {
        if let Ok(mut images) = IMAGES.try_lock() {
            // The channel's other end is in the parent.
            std::mem::forget(images.keeper.take());
            images.slots = [None; MOUNTS_MAX];
            images.reserved = 0;
        }
    }
}

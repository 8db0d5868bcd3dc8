//! Start: read the environment, attach the images, take over what `exec` left.
//!
//! The constructor does it, or the first call of anybody, whichever comes
//! first. A call made by another thread or by ourselves while it is going on
//! goes straight to the kernel.

mod attach;
#[cfg(target_arch = "x86_64")]
mod mapped;
mod mem_test;
mod refused;

use crate::process::{libraries, program};
use crate::runtime::contents::Contents;
use crate::runtime::front_end::PROCESS;
use crate::runtime::saved::{DOMAIN, SAVED, SEGMENT_DIR, SITES, WAYS};
use crate::runtime::tls::Tls;
use crate::runtime::{environ, imports, kernel_path, operation, panic, phase, placeholders, signals, thread, tls};
use crate::{patch, stdio};
use attach::{Wishes, attach, refuse};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use pm::sys::abi::*;
use posix::environment::{self, MountSpec};

/// Whether this program was given none of our variables by the one before it.
static HIDES: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    // Without a look first, which would bring a page that the first store must bring again.
    start(tls::get());
    // Here and not at the first call, which may come from anywhere: this thread is alone now.
    if SAVED.ways.bytes() == b"patched" {
        patch::start(SAVED.sites.get());
    }
    if phase::is_mounted() {
        // Where all its children are started by us, it need not see what they inherit.
        if crate::libc::dispatch::start() && HIDES.load(Relaxed) {
            // SAFETY: this thread is alone.
            unsafe { environ::hide() };
        }
    }
}

/// Starts up, unless somebody has; whether anything is mounted.
// Not cold, though it comes once: it lies beside what it calls then.
#[inline(never)]
pub fn start(tls: &Tls) -> bool {
    let mut begins = false;
    let active = phase::start_once(|| {
        begins = true;
        operation::enter(tls);
        // SAFETY: libc's array; programs change it themselves only later.
        unsafe { libraries::inherit(imports::environ) };
        let active = with_environment(|get| {
            HIDES.store(get(environment::HIDDEN).is_some(), Relaxed);
            mount_all(tls, get)
        });
        // SAFETY: libc's array; programs change it themselves only later.
        unsafe {
            imports::remove_variable(imports::environ, environment::STATE);
            imports::remove_variable(imports::environ, environment::PASSIVE);
            imports::remove_variable(imports::environ, environment::HIDDEN);
        }
        active
    });
    if begins {
        operation::leave(tls);
    }
    if begins && active {
        program::settle();
        signals::start(tls::get());
        pm::signal::on_look(|| tls::get().pending.get() != 0);
    }
    active
}

/// Calls `run` with a look-up for environment variables (values end with NUL).
fn with_environment(run: impl FnOnce(&dyn Fn(&[u8]) -> Option<&'static CStr>) -> bool) -> bool {
    // SAFETY: a plain read of libc's pointer.
    let environ = unsafe { imports::environ };
    if !environ.is_null() {
        // SAFETY: `environ` is an array of strings that ends with null.
        return run(&|name| unsafe { imports::get_variable(environ, name) });
    }
    // Before libc is ready: the kernel's copy.
    let Some(text) = Contents::of(c"/proc/self/environ").map(Contents::leak) else { return false };
    run(&|name| {
        text.split_inclusive(|&b| b == 0).find_map(|entry| {
            let value = entry.strip_prefix(name)?.strip_prefix(b"=")?;
            CStr::from_bytes_with_nul(value).ok()
        })
    })
}

fn mount_all(tls: &Tls, get: &dyn Fn(&[u8]) -> Option<&'static CStr>) -> bool {
    if get(environment::PASSIVE).is_some() {
        return false;
    }
    stdio::table::start();
    // Before anything of ours is held: the keys of a terminal stop this process between two operations.
    signals::watch_stops();
    let state = thread::state(tls);
    let mounts = get(environment::MOUNTS);
    let given = |name| get(name).filter(|value| !value.is_empty());
    let (segment_dir, domain) = (given(SEGMENT_DIR), given(DOMAIN));
    let wishes = Wishes { segment_dir: segment_dir.map(CStr::to_bytes), domain: domain.map(CStr::to_bytes) };
    if let Some(text) = given(environment::IDS) {
        PROCESS.take_ids_over(text.to_bytes());
    }
    let mut any = mem_test::mount(state);
    // Before the mounts: what can't be served is judged by it.
    SAVED.session.set(given(environment::SESSION));
    if let Some(value) = mounts {
        for (slot, spec) in environment::parse(value.to_bytes()).take(base::MOUNTS_MAX).enumerate() {
            any |= mount(state, slot, &spec, &wishes);
        }
    }
    if !any {
        return false;
    }
    SAVED.segment_dir.set(segment_dir);
    SAVED.domain.set(domain);
    SAVED.ways.set(given(WAYS));
    SAVED.sites.set(given(SITES));
    kernel_path::learn(PROCESS.mounts.iter().map(|(_, mount)| mount.prefix()));
    SAVED.mounts.set(mounts);
    SAVED.preload.set(get(b"LD_PRELOAD"));
    SAVED.runtime_dir.set(get(b"XDG_RUNTIME_DIR"));
    if let Some(text) = get(environment::STATE) {
        claim(state, text.to_bytes());
    }
    true
}

/// Mounts one file system, or what stands in its place if it can't be served; whether there is any.
fn mount(state: &posix::ThreadState, slot: usize, spec: &MountSpec, wishes: &Wishes) -> bool {
    let mut image = [0u8; 4096];
    let mut point = [0u8; 1024];
    let Some(image_len) = environment::unescape(spec.image, &mut image[..4095]) else { return false };
    let Some(point_len) = environment::unescape(spec.point, &mut point[..1023]) else { return false };
    // One more byte each: the NUL.
    let (image, point) = (&image[..image_len + 1], &point[..point_len + 1]);
    let made = attach(state, image, slot, spec.options, wishes);
    let backend = made.map_or_else(|why| refused::instead(image, point, slot, spec.options, &why), Some);
    let mounted = backend.map(|backend| PROCESS.mount(state, &point[..point_len], backend));
    match mounted {
        Some(Ok(slot)) => {
            if environment::option(spec.options, b"same").is_some() {
                PROCESS.set_shown(slot);
            }
            return true;
        }
        // Inside one that is refused everything is.
        Some(Err(errno)) if !refused::holds(&point[..point_len]) => refuse(point, errno),
        _ => {}
    }
    refused::keep_slot(state, slot);
    false
}

/// Takes over the descriptors that the program before us left under the state
/// text. Without them, or in another directory, a program would read and write
/// the wrong files: it does not start then.
fn claim(state: &posix::ThreadState, text: &[u8]) {
    if let Err(errno) = PROCESS.exec_claim(state, text) {
        crate::complain!("what the program before exec had open is lost: {errno}; this program can't go on");
        panic::abort();
    }
    for (fd, _) in PROCESS.descriptors.range(0, posix::FD_MAX) {
        if !placeholders::adopt(fd) {
            // Somebody between closed it or put something else there.
            // SAFETY: no pointers.
            let _ = unsafe { PROCESS.handle(state, __NR_close as usize, [fd as usize, 0, 0, 0, 0, 0]) };
        }
    }
}

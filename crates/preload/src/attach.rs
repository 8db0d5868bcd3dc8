//! Images and other file systems become backends.

use plugin::Plugin;
use pm::Errno;
use posix::ThreadState;
use vfs::Backend;
use vfs::cached::Cached;
use vfs::host::Host;
use vfs::ledger::Ledger;
#[cfg(feature = "native")]
use vfs::native::Native;
#[cfg(feature = "native")]
use vfs::native::cached::{CachedNative, Way};
#[cfg(feature = "native")]
use vfs::native::kept::{AGE_NS, Kept};
use vfs::wire::Wire;

/// What the environment says about attaching.
#[derive(Clone, Copy, Default)]
pub struct Wishes<'a> {
    /// `BYPATH_SEGMENT_DIR`.
    pub segment_dir: Option<&'a [u8]>,
    /// `BYPATH_DOMAIN`.
    pub domain: Option<&'a [u8]>,
}

/// Attaches the image `source` as mount number `slot`, which will be at `point` (both NUL-terminated);
/// a line on stderr and `None` if that does not work. `conventional:KEPT:IMAGE` and `byvfs:KEPT:IMAGE`
/// are images too, with a file of what the session keeps of them.
///
/// A user who may not write the image has the kernel's mount at the same path: no line, if there is one.
#[cfg(feature = "native")]
pub fn attach(
    state: &ThreadState,
    source: &[u8],
    point: &[u8],
    slot: usize,
    options: &[u8],
    wishes: &Wishes,
) -> Option<&'static dyn Backend> {
    use engine::Fs;
    use engine::process::attach::{AttachError, Options};
    use pm::file::{FileSystem, file_system};

    let (path, cache) = match cached_image(source) {
        None if source.first() != Some(&b'/') => return attach_other(source, options),
        None => (source, None),
        Some((way, kept, path)) => (path, Some((way, kept))),
    };
    let Some(place) = place::take() else {
        crate::complain!("{}: no memory", Shown(path));
        return None;
    };
    let options = Options {
        domain: wishes.domain.and_then(|name| pm::Domain::from_name(core::str::from_utf8(name).ok()?)),
        read_only: options.split(|&b| b == b',').any(|word| word == b"ro"),
        segment_dir: wishes.segment_dir,
        slot,
        cachelets: None,
    };
    let cx = crate::door::PROCESS.cx(state);
    match Fs::attach_at(&mut place.fs, &cx, path, &options) {
        Ok(fs) => match cache {
            None => Some(place.native.write(Native(fs))),
            Some((way, kept)) => cached_native(Native(fs), kept, way),
        },
        Err(AttachError::NotWritable | AttachError::Open(Errno::EACCES)) if file_system(point) == Ok(FileSystem::Fuse) => None,
        Err(error) => {
            crate::complain!("{}: {error}", Shown(path));
            None
        }
    }
}

/// An image with a file of what is kept of it: which way, that file, the image (NUL-terminated).
#[cfg(feature = "native")]
fn cached_image(source: &[u8]) -> Option<(Way, &[u8], &[u8])> {
    let mut parts = source.splitn(3, |&b| b == b':');
    Some((Way::from_name(parts.next()?)?, parts.next()?, parts.next()?))
}

/// The image `fs` in a cached way, with a file of what is kept.
#[cfg(feature = "native")]
#[cold]
#[inline(never)]
fn cached_native(native: Native, kept: &[u8], way: Way) -> Option<&'static dyn Backend> {
    let made = open_kept(kept).and_then(|kept| keep(CachedNative::new(native, kept, way)));
    made.map_err(|errno| crate::complain!("{}: {errno}", Shown(kept))).ok()
}

#[cfg(feature = "native")]
fn open_kept(path: &[u8]) -> Result<Kept, Errno> {
    let mut text = [0u8; 4096];
    text.get_mut(..path.len()).filter(|_| path.len() < 4096).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
    Kept::open(&text[..path.len() + 1], AGE_NS)
}

/// Attaches what is not an image: `host:LEDGER:/dir`, `wire:LEDGER:CHANNEL` or `plugin:LEDGER:LIB,args`,
/// NUL-terminated; a line on stderr and `None` if that does not work.
///
/// Out of line, and so is the making of each kind: they are large, and where they become part of the start
/// of every program, it touches the stack that they would need.
#[cold]
#[inline(never)]
pub fn attach_other(source: &[u8], options: &[u8]) -> Option<&'static dyn Backend> {
    let refuse = |errno: Errno| -> Option<&'static dyn Backend> {
        crate::complain!("{}: {errno}", Shown(source));
        None
    };
    let read_only = options.split(|&b| b == b',').any(|word| word == b"ro");
    let text = source.strip_suffix(b"\0").unwrap_or(source);
    let mut parts = text.splitn(3, |&b| b == b':');
    let (kind, ledger, rest) = (parts.next().unwrap_or(b""), parts.next().unwrap_or(b""), parts.next().unwrap_or(b""));
    let mut path = [0u8; 4096];
    if ledger.len() >= path.len() {
        return refuse(Errno::ENAMETOOLONG);
    }
    path[..ledger.len()].copy_from_slice(ledger);
    let path = &path[..ledger.len() + 1];
    let made = match kind {
        b"host" => host(path, rest, read_only),
        b"wire" => wire(path, rest, read_only),
        b"plugin" => self::plugin(path, rest, read_only),
        _ => Err(Errno::EINVAL),
    };
    made.or_else(|errno| refuse(errno).ok_or(errno)).ok()
}

#[cold]
#[inline(never)]
fn host(ledger: &[u8], rest: &[u8], read_only: bool) -> Result<&'static dyn Backend, Errno> {
    let ledger = Ledger::open(ledger)?;
    keep(Cached::new(Host::new(rest, read_only)?, ledger))
}

#[cold]
#[inline(never)]
fn wire(ledger: &[u8], rest: &[u8], read_only: bool) -> Result<&'static dyn Backend, Errno> {
    let ledger = Ledger::open(ledger)?;
    let wire = Wire::open(rest, ledger.device(), read_only)?;
    keep(Cached::new(wire, ledger))
}

#[cold]
#[inline(never)]
fn plugin(ledger: &[u8], rest: &[u8], read_only: bool) -> Result<&'static dyn Backend, Errno> {
    let ledger = Ledger::open(ledger)?;
    let plugin = Plugin::new(rest, ledger.device(), read_only, crate::in_plugin::here)?;
    keep(Cached::new(plugin, ledger))
}

/// Puts a backend where it lives as long as the process.
fn keep<B: Backend + 'static>(backend: B) -> Result<&'static dyn Backend, Errno> {
    Ok(crate::alloc::room_for().ok_or(Errno::ENOMEM)?.write(backend))
}

/// Where attached images live, as long as the process.
#[cfg(feature = "native")]
mod place {
    use core::cell::UnsafeCell;
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicBool, Ordering::AcqRel};
    use engine::Fs;
    use vfs::native::Native;

    /// Room for an image and its backend.
    pub struct Place {
        pub fs: MaybeUninit<Fs>,
        pub native: MaybeUninit<Native>,
    }

    struct First(UnsafeCell<Place>);
    // SAFETY: only whoever finds `FIRST_TAKEN` unset uses it.
    unsafe impl Sync for First {}
    /// Most programs have one image: its place is there when they start, without asking the kernel for memory.
    static FIRST: First = First(UnsafeCell::new(Place { fs: MaybeUninit::uninit(), native: MaybeUninit::uninit() }));
    static FIRST_TAKEN: AtomicBool = AtomicBool::new(false);

    /// A place that nobody had and that is never given back; `None` if there is no memory.
    pub fn take() -> Option<&'static mut Place> {
        if !FIRST_TAKEN.swap(true, AcqRel) {
            // SAFETY: the first to come here, and the only one.
            return Some(unsafe { &mut *FIRST.0.get() });
        }
        let room = crate::alloc::room_for::<Place>()?;
        // SAFETY: no field needs to be initialised.
        Some(unsafe { room.assume_init_mut() })
    }
}

/// Attaches nothing: built without images.
#[cfg(not(feature = "native"))]
pub fn attach(_: &ThreadState, path: &[u8], _: &[u8], _: usize, _: &[u8], _: &Wishes) -> Option<&'static dyn Backend> {
    crate::complain!("{}: {}", Shown(path), Errno::ENOSYS);
    None
}

/// A path for a person.
struct Shown<'a>(&'a [u8]);

impl core::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = self.0.strip_suffix(b"\0").unwrap_or(self.0);
        f.write_str(core::str::from_utf8(text).unwrap_or("image"))
    }
}

/// Says why a mount point could not be used.
pub fn refuse(point: &[u8], errno: Errno) {
    crate::complain!("cannot mount at {}: {errno}", Shown(point));
}

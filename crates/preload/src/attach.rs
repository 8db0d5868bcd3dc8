//! Images and other file systems become backends.

use plugin::Plugin;
use pm::Errno;
use posix::ThreadState;
use vfs::Backend;
use vfs::cached::Cached;
use vfs::host::Host;
use vfs::ledger::Ledger;
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
    use core::mem::MaybeUninit;
    use engine::Fs;
    use engine::process::attach::{AttachError, Options};
    use pm::file::{FileSystem, file_system};
    use vfs::native::Native;

    let (path, cache) = match cached_image(source) {
        None if source.first() != Some(&b'/') => return attach_other(source, options),
        None => (source, None),
        Some((way, kept, path)) => (path, Some((way, kept))),
    };
    /// Both live as long as the process.
    struct Place {
        fs: MaybeUninit<Fs>,
        native: MaybeUninit<Native>,
    }
    let place = crate::alloc::alloc_pages(size_of::<Place>()).cast::<Place>();
    if place.is_null() {
        crate::complain!("{}: no memory", Shown(path));
        return None;
    }
    // SAFETY: zeroed memory of that size, 16-byte aligned, never given back; no
    // field needs to be initialised.
    let place: &'static mut Place = unsafe { &mut *place };
    let options = Options {
        domain: wishes.domain.and_then(|name| pm::Domain::from_name(core::str::from_utf8(name).ok()?)),
        read_only: options.split(|&b| b == b',').any(|word| word == b"ro"),
        segment_dir: wishes.segment_dir,
        slot,
    };
    let cx = crate::door::PROCESS.cx(state);
    match Fs::attach_at(&mut place.fs, &cx, path, &options) {
        Ok(fs) => match cache {
            None => Some(place.native.write(Native(fs))),
            Some((way, kept)) => {
                let made = open_kept(kept).and_then(|kept| keep(CachedNative::new(Native(fs), kept, way)));
                made.map_err(|errno| crate::complain!("{}: {errno}", Shown(kept))).ok()
            }
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

#[cfg(feature = "native")]
fn open_kept(path: &[u8]) -> Result<Kept, Errno> {
    let mut text = [0u8; 4096];
    text.get_mut(..path.len()).filter(|_| path.len() < 4096).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
    Kept::open(&text[..path.len() + 1], AGE_NS)
}

/// Attaches what is not an image: `host:LEDGER:/dir`, `wire:LEDGER:CHANNEL` or `plugin:LEDGER:LIB,args`,
/// NUL-terminated; a line on stderr and `None` if that does not work.
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
        b"host" => Ledger::open(path).and_then(|ledger| keep(Cached::new(Host::new(rest, read_only)?, ledger))),
        b"wire" => Ledger::open(path).and_then(|ledger| {
            let wire = Wire::open(rest, ledger.device(), read_only)?;
            keep(Cached::new(wire, ledger))
        }),
        b"plugin" => Ledger::open(path).and_then(|ledger| {
            let plugin = Plugin::new(rest, ledger.device(), read_only, crate::in_plugin::here)?;
            keep(Cached::new(plugin, ledger))
        }),
        _ => Err(Errno::EINVAL),
    };
    made.or_else(|errno| refuse(errno).ok_or(errno)).ok()
}

/// Puts a backend where it lives as long as the process.
fn keep<B: Backend + 'static>(backend: B) -> Result<&'static dyn Backend, Errno> {
    let place = crate::alloc::alloc_pages(size_of::<B>()).cast::<core::mem::MaybeUninit<B>>();
    if place.is_null() {
        return Err(Errno::ENOMEM);
    }
    // SAFETY: memory of that size, page-aligned, never given back.
    let place: &'static mut core::mem::MaybeUninit<B> = unsafe { &mut *place };
    Ok(place.write(backend))
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

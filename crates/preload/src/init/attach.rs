//! Images and other file systems become backends.

use fuse_client::FuseClient;
use plugin::Plugin;
use pm::Errno;
use posix::{ThreadState, environment};
use session::SessionCache;
use vfs::Backend;
use vfs::cached::Cached;
use vfs::host::Host;
#[cfg(feature = "native")]
use vfs::native::Native;

/// What the environment says about attaching.
#[derive(Clone, Copy, Default)]
pub struct Wishes<'a> {
    /// `BYPATH_SEGMENT_DIR`.
    pub segment_dir: Option<&'a [u8]>,
    /// `BYPATH_DOMAIN`.
    pub domain: Option<&'a [u8]>,
}

/// Why a mount can't be served.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// The image can't be attached.
    #[cfg(feature = "native")]
    Image(engine::process::attach::AttachError),
    /// The image is not there any more, or another file is.
    Gone,
    /// The directory of the image is not the one that the session has at that path.
    Hidden,
    /// What is shared with the session's other programs can't be used, or the file system itself.
    Other(Errno),
}

impl Why {
    /// What calls on it are answered.
    pub fn errno(&self) -> Errno {
        let errno = match self {
            #[cfg(feature = "native")]
            Why::Image(error) => error.errno(),
            Why::Gone | Why::Hidden => Errno::ESTALE,
            Why::Other(errno) => *errno,
        };
        match errno {
            Errno::ESTALE | Errno::EACCES => errno,
            Errno::EPERM => Errno::EACCES,
            _ => Errno::EIO,
        }
    }
}

impl core::fmt::Display for Why {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            #[cfg(feature = "native")]
            Why::Image(error) => error.fmt(f),
            Why::Gone => f.write_str("the image has been moved, removed or replaced"),
            Why::Hidden => f.write_str(
                "the image is out of reach: its directory is missing here, or another file system covers it, as in a sandbox \
                 with its own /dev; bind the directory into the sandbox (bwrap --bind /dev/shm /dev/shm)",
            ),
            Why::Other(Errno::EACCES) => f.write_str("the session is another user's, and was not made with allow_other"),
            Why::Other(errno) => errno.fmt(f),
        }
    }
}

/// Attaches the image `source` (NUL-terminated) as mount number `slot`.
#[cfg(feature = "native")]
pub fn attach(
    state: &ThreadState,
    source: &[u8],
    slot: usize,
    options: &[u8],
    wishes: &Wishes,
) -> Result<&'static dyn Backend, Why> {
    match environment::cached(source) {
        None if source.first() != Some(&b'/') => attach_other(source, options).map_err(Why::Other),
        None => attach_image(state, source, None, slot, options, wishes),
        Some(cached) => attach_cache(state, cached, slot, options, wishes),
    }
}

/// An image in front of a directory, NUL-terminated.
#[cfg(feature = "native")]
#[cold]
#[inline(never)]
fn attach_cache(
    state: &ThreadState,
    (image, lower): (&[u8], &[u8]),
    slot: usize,
    options: &[u8],
    wishes: &Wishes,
) -> Result<&'static dyn Backend, Why> {
    let mut path = [0u8; 4096];
    path[..4095].get_mut(..image.len()).ok_or(Why::Other(Errno::ENAMETOOLONG))?.copy_from_slice(image);
    let lower = lower.strip_suffix(b"\0").unwrap_or(lower);
    attach_image(state, &path[..image.len() + 1], Some(lower), slot, options, wishes)
}

/// An image, perhaps in front of a directory.
#[cfg(feature = "native")]
fn attach_image(
    state: &ThreadState,
    source: &[u8],
    lower: Option<&[u8]>,
    slot: usize,
    options: &[u8],
    wishes: &Wishes,
) -> Result<&'static dyn Backend, Why> {
    use engine::Fs;
    use engine::process::attach::{AttachError, Options};

    // A file that came later is none of the session's.
    if let Some(wanted) = environment::option(options, b"id").and_then(environment::identity) {
        match pm::file::stat(source) {
            Ok(stat) if (stat.dev, stat.ino) == wanted => {}
            Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => return Err(why_gone(source, wanted.0)),
            Err(errno) => return Err(Why::Image(AttachError::Open(errno))),
        }
    }
    let Some(place) = place::take() else { return Err(Why::Other(Errno::ENOMEM)) };
    let words = options;
    let options = Options {
        domain: wishes.domain.and_then(|name| pm::Domain::from_name(core::str::from_utf8(name).ok()?)),
        // A cache is filled all the same.
        read_only: lower.is_none() && environment::option(options, b"ro").is_some(),
        segment_dir: wishes.segment_dir,
        slot,
        cachelets: None,
        atomic: environment::option(options, b"atomic").and_then(base::Atomic::from_name),
        in_place: environment::option(options, b"in-place").is_some(),
    };
    let cx = crate::runtime::front_end::PROCESS.cx(state);
    match Fs::attach_at(&mut place.fs, &cx, source, &options) {
        Ok(fs) => match lower {
            None => Ok(place.native.write(Native(fs))),
            Some(lower) => cached(&cx, fs, lower, words).map_err(Why::Other),
        },
        Err(AttachError::Open(Errno::ENOENT | Errno::ENOTDIR)) => Err(Why::Gone),
        Err(error) => Err(Why::Image(error)),
    }
}

/// Why the image `source`, a file of `device`, is not found: a sandbox may show another directory at the same path.
#[cfg(feature = "native")]
#[cold]
fn why_gone(source: &[u8], device: u64) -> Why {
    let mut directory = [0u8; 4096];
    let len = source.iter().rposition(|&byte| byte == b'/').unwrap_or(0).max(1);
    let (Some(room), Some(text)) = (directory[..4095].get_mut(..len), source.get(..len)) else { return Why::Gone };
    room.copy_from_slice(text);
    match pm::file::stat(&directory[..len + 1]) {
        Ok(stat) if stat.dev == device => Why::Gone,
        Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => Why::Hidden,
        Err(_) => Why::Gone,
    }
}

#[cfg(feature = "native")]
#[cold]
#[inline(never)]
fn cached(cx: &base::Cx, fs: &'static engine::Fs, lower: &[u8], options: &[u8]) -> Result<&'static dyn Backend, Errno> {
    let origin = match environment::parts(lower) {
        Some((b"wire", session, rest)) => {
            let mut path = [0u8; 4096];
            path[..4095].get_mut(..session.len()).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(session);
            let read_only = environment::option(options, b"ro").is_some();
            cache::Origin::Daemon(daemon(&path[..session.len() + 1], rest, read_only)?, b"")
        }
        _ => cache::Origin::Directory(lower),
    };
    let changes = match (environment::option(options, b"ro"), environment::option(options, b"sync")) {
        (Some(_), _) => cache::Changes::Refused,
        (None, Some(b"image")) => cache::Changes::Image,
        (None, Some(b"journal")) => cache::Changes::Journal,
        _ => cache::Changes::Backend,
    };
    keep(cache::Cache::new(cx, fs, &origin, changes).map_err(|error| error.errno())?)
}

/// Attaches what is not an image: `host:LEDGER:/dir`, `wire:LEDGER:CHANNEL` or `plugin:LEDGER:LIB,args`,
/// NUL-terminated.
///
/// Out of line, and so is the making of each kind: they are large, and where they become part of the start
/// of every program, it touches the stack that they would need.
#[cold]
#[inline(never)]
pub fn attach_other(source: &[u8], options: &[u8]) -> Result<&'static dyn Backend, Errno> {
    let read_only = environment::option(options, b"ro").is_some();
    let text = source.strip_suffix(b"\0").unwrap_or(source);
    let (kind, session, rest) = environment::parts(text).ok_or(Errno::EINVAL)?;
    let mut path = [0u8; 4096];
    if session.len() >= path.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    path[..session.len()].copy_from_slice(session);
    let path = &path[..session.len() + 1];
    match kind {
        b"host" => host(path, rest, options),
        b"wire" => wire(path, rest, read_only),
        b"plugin" => self::plugin(path, rest, read_only),
        _ => Err(Errno::EINVAL),
    }
}

#[cold]
#[inline(never)]
fn host(session: &[u8], rest: &[u8], options: &[u8]) -> Result<&'static dyn Backend, Errno> {
    let session = SessionCache::open(session)?;
    let read_only = environment::option(options, b"ro").is_some();
    let unsynced = environment::option(options, b"sync") == Some(b"none");
    keep(Cached::new(Host::new(rest, read_only)?.unsynced_if(unsynced), session))
}

#[cold]
#[inline(never)]
fn wire(session: &[u8], rest: &[u8], read_only: bool) -> Result<&'static dyn Backend, Errno> {
    Ok(daemon(session, rest, read_only)?)
}

fn daemon(session: &[u8], rest: &[u8], read_only: bool) -> Result<&'static Cached<FuseClient>, Errno> {
    let session = SessionCache::open(session)?;
    let wire = FuseClient::open(rest, session.device(), read_only)?;
    Ok(crate::runtime::alloc::room_for().ok_or(Errno::ENOMEM)?.write(Cached::new(wire, session)))
}

#[cold]
#[inline(never)]
fn plugin(session: &[u8], rest: &[u8], read_only: bool) -> Result<&'static dyn Backend, Errno> {
    crate::runtime::dispatch::serve_with_libraries();
    let session = SessionCache::open(session)?;
    let plugin = Plugin::new(rest, session.device(), read_only, crate::libc::plugin::here)?;
    keep(Cached::new(plugin, session))
}

/// Puts a backend where it lives as long as the process.
fn keep<B: Backend + 'static>(backend: B) -> Result<&'static dyn Backend, Errno> {
    Ok(crate::runtime::alloc::room_for().ok_or(Errno::ENOMEM)?.write(backend))
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
        let room = crate::runtime::alloc::room_for::<Place>()?;
        // SAFETY: no field needs to be initialised.
        Some(unsafe { room.assume_init_mut() })
    }
}

/// Attaches nothing: built without images.
#[cfg(not(feature = "native"))]
pub fn attach(_: &ThreadState, _: &[u8], _: usize, _: &[u8], _: &Wishes) -> Result<&'static dyn Backend, Why> {
    Err(Why::Other(Errno::ENOSYS))
}

/// A path for a person.
pub struct Shown<'a>(pub &'a [u8]);

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

//! Images become backends.

use pm::Errno;
use posix::ThreadState;
use vfs::Backend;

/// What the environment says about attaching.
#[derive(Clone, Copy, Default)]
pub struct Wishes<'a> {
    /// `BYPATH_SEGMENT_DIR`.
    pub segment_dir: Option<&'a [u8]>,
    /// `BYPATH_DOMAIN`.
    pub domain: Option<&'a [u8]>,
}

/// Attaches the image at `path` (NUL-terminated) as mount number `slot`; a line
/// on stderr and `None` if that does not work.
#[cfg(feature = "native")]
pub fn attach(state: &ThreadState, path: &[u8], slot: usize, options: &[u8], wishes: &Wishes) -> Option<&'static dyn Backend> {
    use core::mem::MaybeUninit;
    use engine::Fs;
    use engine::process::attach::Options;
    use vfs::native::Native;

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
        Ok(fs) => Some(place.native.write(Native(fs))),
        Err(error) => {
            crate::complain!("{}: {error}", Shown(path));
            None
        }
    }
}

/// Attaches nothing: built without images.
#[cfg(not(feature = "native"))]
pub fn attach(_: &ThreadState, path: &[u8], _: usize, _: &[u8], _: &Wishes) -> Option<&'static dyn Backend> {
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

//! A mount that can't be served: what lies underneath must not be taken for it.
//!
//! ```text
//! the kernel has the image mounted there ──▶ the program goes on with that, nothing is said
//! another root directory than the session's ──▶ the mount does not belong there: undisturbed
//! else ──▶ every path of it is an error, and one line a session says why
//! ```
//! Invariant: mounts have the slots that they have in the session's other programs, whatever became of those before.

use super::attach::{Shown, Why};
use crate::runtime::front_end::PROCESS;
use crate::runtime::{mount_table, session};
use pm::Errno;
use pm::file::stat;
use posix::{ThreadState, environment};
use vfs::Backend;
use vfs::refused::Refused;

static EIO: Refused = Refused::new(Errno::EIO);
static EACCES: Refused = Refused::new(Errno::EACCES);
static ESTALE: Refused = Refused::new(Errno::ESTALE);
static KERNELS: Refused = Refused::new(Errno::ENOENT);

/// What stands in the place of a mount that is not served because of `why`; `None`: the kernel's own.
/// `image` and `point` are NUL-terminated.
#[cold]
#[inline(never)]
pub fn instead(image: &[u8], point: &[u8], slot: usize, options: &[u8], why: &Why) -> Option<&'static dyn Backend> {
    if environment::option(options, b"same").is_some() || kernel_serves(image, point) || !session::belongs_here() {
        return None;
    }
    let errno = why.errno();
    if session::is_first_of(format_args!("{slot}.{}", errno.0)) {
        crate::complain!(
            "{} can't be used at {}: {why}; every path there is refused ({errno})",
            Shown(source(image)),
            Shown(point)
        );
    }
    Some(match errno {
        Errno::EACCES => &EACCES,
        Errno::ESTALE => &ESTALE,
        _ => &EIO,
    })
}

/// The part of a mount's source that a person knows.
fn source(image: &[u8]) -> &[u8] {
    if image.first() == Some(&b'/') { image } else { image.splitn(3, |&b| b == b':').nth(2).unwrap_or(image) }
}

/// Whether the kernel shows the image at its mount point, and not something else that is mounted there.
fn kernel_serves(image: &[u8], point: &[u8]) -> bool {
    let mut text = [0u8; 4096];
    let image = match environment::cached(image) {
        None => image,
        Some((cache, _)) if cache.len() < text.len() => {
            text[..cache.len()].copy_from_slice(cache);
            &text[..cache.len() + 1]
        }
        Some(_) => return false,
    };
    if image.first() != Some(&b'/') {
        return false;
    }
    // Mounted there, and not a directory of something that is mounted above it.
    let mut above = [0u8; 1100];
    let len = point.len() - 1;
    let Some(room) = above.get_mut(..len + 4) else { return false };
    room[..len].copy_from_slice(&point[..len]);
    room[len..].copy_from_slice(b"/..\0");
    let (Ok(here), Ok(above)) = (stat(point), stat(room)) else { return false };
    here.dev != above.dev
        && mount_table::source_of(here.dev, |kind, source| kind == b"fuse.bypath" && is_same_path(source, image))
}

/// Whether two absolute paths, NUL-terminated, lead to the same name: whatever has become of the file, and whatever
/// symlinks lead to its directory.
fn is_same_path(one: &[u8], other: &[u8]) -> bool {
    let is_same_file = |one: &[u8], other: &[u8]| matches!((stat(one), stat(other)), (Ok(one), Ok(other)) if (one.dev, one.ino) == (other.dev, other.ino));
    if one == other || is_same_file(one, other) {
        return true;
    }
    let name = |path: &[u8]| path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let directory = |path: &[u8]| {
        let mut text = [0u8; 4096];
        text.get_mut(..name(path))?.copy_from_slice(&path[..name(path)]);
        (name(path) < text.len()).then_some(text)
    };
    one[name(one)..] == other[name(other)..]
        && directory(one).zip(directory(other)).is_some_and(|(one, other)| is_same_file(&one, &other))
}

/// Whether `point` lies in a mount that is refused.
pub fn holds(point: &[u8]) -> bool {
    PROCESS.mounts.find(point).is_some_and(|(_, mount, _)| mount.backend.refuses().is_some())
}

/// Takes the slot of a mount that is the kernel's: at a path that no program can name.
#[cold]
pub fn keep_slot(state: &ThreadState, slot: usize) {
    let mut name = *b"/\0.0";
    name[3] = b'0' + slot as u8;
    if let Ok(slot) = PROCESS.mount(state, &name, &KERNELS) {
        PROCESS.set_shown(slot);
    }
}

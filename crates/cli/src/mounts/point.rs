//! What programs that go past the library find at a mount point: static and set-uid ones, other users', calls that are
//! not seen. It must never be files of somebody else's that they take for those of the mount.

use super::over;
use super::said::is_same_file;
use super::spec::{Mount, Source};
use crate::attach::Attached;
use crate::cmd::mount::is_mounted;
use crate::failure::{Failure, Result};
use server::device;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// Nothing, or what nobody can use.
    Nothing,
    /// The same files.
    Same,
    /// An empty directory.
    Empty,
    /// The same cache, which another session shows there.
    Shared,
    /// A mount whose server has died.
    Stale,
}

/// Looks at the point of `mount`, which is of `image` if it is that of one. What is neither empty nor the same is refused.
/// A mount of the same image whose server is just beginning, or just dying, gets a second to become one or the other;
/// and what is refused is so twice, as it may begin between two questions.
pub fn look(mount: &Mount, image: Option<&Attached>) -> Result<Under> {
    const LOOKS: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(10);
    let point = Path::new(OsStr::from_bytes(&mount.point));
    let mut was_refused = false;
    for _ in 0..LOOKS {
        match look_once(mount, image, point) {
            Ok(None) => {}
            Ok(Some(seen)) => return Ok(seen),
            Err(refused) if was_refused => return Err(refused),
            Err(_) => was_refused = true,
        }
        std::thread::sleep(PAUSE);
    }
    let shown = mount.shown_point();
    Err(Failure::new(format!(
        "{shown}: an image is mounted there that nobody serves, or that was at {} before this one; unmount it \
         (`bypath umount --lazy {shown}`), or take another directory",
        mount.source.shown()
    )))
}

/// What is there at this moment; nothing of it where a mount of the same image has no server yet, or no longer.
fn look_once(mount: &Mount, image: Option<&Attached>, point: &Path) -> Result<Option<Under>> {
    if device::is_stale(point) {
        return Ok(Some(Under::Stale));
    }
    let Ok(real) = std::fs::canonicalize(point) else { return Ok(Some(Under::Nothing)) };
    if image.is_some_and(|image| is_mounted(image, &real)) {
        return as_wanted(mount, &real).map(|()| Some(Under::Same));
    }
    if is_itself(mount, point) {
        return Ok(Some(Under::Same));
    }
    if is_its_cache(mount, &real) {
        return Ok(Some(Under::Shared));
    }
    if let Some(mounted) = device::mounted_at(&real)
        && (image.is_some() || mounted.kind == "fuse.bypath")
    {
        if image.is_some() && matches!(&mount.source, Source::Image(path) if over::shows(path, &real)) {
            return Ok(None);
        }
        return Err(Failure::new(format!(
            "{}: {mounted} is mounted there, which is not {}; unmount that, or take another directory",
            mount.shown_point(),
            mount.source.shown()
        )));
    }
    match std::fs::read_dir(&real).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(Some(Under::Empty)),
        Ok(false) => Err(Failure::new(format!(
            "{}: not empty, and programs that go past the library (static ones, other users') would take what is in it for files \
             of {}; take an empty directory, or a path that does not exist",
            mount.shown_point(),
            mount.source.shown()
        ))),
        Err(error) => Err(Failure::io(format!("{}: it must be empty, or not be there", mount.shown_point()), &error)),
    }
}

/// Whether a directory of the kernel's is to be seen where it is.
fn is_itself(mount: &Mount, point: &Path) -> bool {
    matches!(&mount.source, Source::Host(path) if is_same_file(path, point))
}

/// Whether the cache of the mount is there already, by another session.
fn is_its_cache(mount: &Mount, real: &Path) -> bool {
    mount.options.cache.as_ref().is_some_and(|image| over::shows(&image.path, real))
}

/// Whether the kernel's mount that is there lets do what this one is to let do.
fn as_wanted(mount: &Mount, real: &Path) -> Result<()> {
    let shown = mount.shown_point();
    match (device::mounted_at(real).is_some_and(|mounted| mounted.read_only), mount.options.read_only) {
        (false, true) => Err(Failure::new(format!(
            "{shown}: the image is mounted there for writing, so programs that go past the library could change it; \
             unmount that (`bypath umount {shown}`), or take another directory"
        ))),
        (true, false) => Err(Failure::new(format!(
            "{shown}: the image is mounted there read-only; say ro, or unmount that (`bypath umount {shown}`)"
        ))),
        _ => Ok(()),
    }
}

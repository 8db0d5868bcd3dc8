//! What programs that go past the library find at a mount point: static and set-uid ones, other users', calls that are
//! not seen. It must never be files of somebody else's that they take for those of the mount.

use super::over;
use super::spec::{Mount, Source};
use crate::attach::Attached;
use crate::cmd::mount::is_mounted;
use crate::failure::{Failure, Result};
use server::device;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
pub fn look(mount: &Mount, image: Option<&Attached>) -> Result<Under> {
    let point = Path::new(OsStr::from_bytes(&mount.point));
    if device::is_stale(point) {
        return Ok(Under::Stale);
    }
    let Ok(real) = std::fs::canonicalize(point) else { return Ok(Under::Nothing) };
    if image.is_some_and(|image| is_mounted(image, &real)) {
        return as_wanted(mount, &real).map(|()| Under::Same);
    }
    if is_itself(mount, point) {
        return Ok(Under::Same);
    }
    if is_its_cache(mount, &real) {
        return Ok(Under::Shared);
    }
    if let Some(mounted) = device::mounted_at(&real)
        && (image.is_some() || mounted.kind == "fuse.bypath")
    {
        return Err(Failure::new(format!(
            "{}: {mounted} is mounted there, which is not {}; unmount that, or take another directory",
            mount.shown_point(),
            mount.source.shown()
        )));
    }
    match std::fs::read_dir(&real).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(Under::Empty),
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
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    matches!(&mount.source, Source::Host(path) if identity(path).is_some_and(|it| identity(point) == Some(it)))
}

/// Whether the cache of the mount is there already, by another session.
fn is_its_cache(mount: &Mount, real: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let there = over::image_at(real).and_then(|there| identity(&there));
    there.is_some() && mount.options.cache.as_ref().is_some_and(|image| identity(&image.path) == there)
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

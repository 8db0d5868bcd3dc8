//! A place in an image by the path at which programs see it: in the session around this call, or in a kernel mount.

use crate::attach;
use crate::failure::{Failure, Result};
use crate::mounts::plain;
use crate::place::{Place, normalise};
use posix::environment;
use server::device;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// An image, and where it is seen.
struct Seen {
    image: Vec<u8>,
    point: Vec<u8>,
    read_only: bool,
    /// The image is a cache.
    is_cached: bool,
}

/// A place by `IMG:/path`, or by the path at which it is seen.
pub fn find(text: &OsString) -> Result<Place> {
    found(text).map(|(place, _)| place)
}

/// The same, for what is to be changed.
pub fn find_to_change(text: &OsString) -> Result<Place> {
    match found(text)? {
        (place, false) => Ok(place),
        _ => Err(Failure::errno(text.display(), pm::Errno::EROFS)),
    }
}

/// The place, and whether it is seen where nothing may be changed.
fn found(text: &OsString) -> Result<(Place, bool)> {
    // An image that lies in a mount itself.
    if let Ok(place) = Place::parse(text)
        && place.image.as_os_str() != text.as_os_str()
        && place.image.is_file()
        && Path::new(text).symlink_metadata().is_err()
    {
        return Ok((place, false));
    }
    let path = absolute(text);
    let mounts = session().into_iter().chain(kernel_mounts());
    // A later mount hides what is below it, a longer point what is above it.
    let seen = mounts.filter(|seen| path.as_ref().is_some_and(|path| is_below(path, &seen.point)));
    let Some((seen, path)) = seen.max_by_key(|seen| seen.point.len()).zip(path) else {
        return Place::parse(text).map(|place| (place, false));
    };
    if !seen.image.starts_with(b"/") {
        return Err(Failure::new(format!("{}: lies in no image, but in a mount of another kind", text.display())));
    }
    let rest = &path[seen.point.len()..];
    let path = if rest.is_empty() { b"/".to_vec() } else { rest.to_vec() };
    let place = Place::new(PathBuf::from(OsString::from_vec(seen.image)), path);
    Ok((Place { is_cached: seen.is_cached, ..place }, seen.read_only))
}

/// The path without `.` and `..`, from the root on.
fn absolute(text: &OsStr) -> Option<Vec<u8>> {
    let whole = std::path::absolute(text).ok()?;
    let mut path = PathBuf::new();
    for part in whole.components() {
        match part {
            std::path::Component::ParentDir => _ = path.pop(),
            part => path.push(part),
        }
    }
    normalise(path.as_os_str().as_bytes())
}

fn is_below(path: &[u8], point: &[u8]) -> bool {
    path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn session() -> Vec<Seen> {
    let value = std::env::var_os(OsStr::from_bytes(environment::MOUNTS)).unwrap_or_default().into_vec();
    let seen = |spec: environment::MountSpec| {
        let source = match environment::option(spec.options, b"in-place") {
            Some(_) => attach::path_behind(&plain(spec.image)),
            None => plain(spec.image),
        };
        let cached = environment::cached(&source).map(|(image, _)| image.to_vec());
        Seen {
            is_cached: cached.is_some(),
            image: cached.unwrap_or(source),
            point: plain(spec.point),
            read_only: environment::option(spec.options, b"ro").is_some(),
        }
    };
    environment::parse(&value).map(seen).collect()
}

/// Those whose image can be found at its path.
fn kernel_mounts() -> Vec<Seen> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    table
        .split(|byte| *byte == b'\n')
        .filter_map(kernel_mount)
        .filter(|seen| Path::new(OsStr::from_bytes(&seen.image)).is_file())
        .collect()
}

/// A line of the kernel's table, if it is of a whole image.
fn kernel_mount(line: &[u8]) -> Option<Seen> {
    let mut words = line.split(|byte| *byte == b' ');
    let (root, point, options) = (words.nth(3)?, words.next()?, words.next()?);
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (rest.next()?, rest.next()?);
    let read_only = options.split(|byte| *byte == b',').any(|option| option == b"ro");
    (kind == b"fuse.bypath" && root == b"/").then(|| Seen {
        image: device::unescape(source),
        point: device::unescape(point),
        read_only,
        is_cached: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line of the kernel's table gives image and point, whatever characters they have; of other file systems nothing.
    #[test]
    fn lines_of_the_table() {
        let line = br"41 28 0:35 / /mnt/a\040b rw,nosuid shared:3 - fuse.bypath /tmp/a\134b.img rw,user_id=0";
        let seen = kernel_mount(line).unwrap();
        assert_eq!((&seen.image[..], &seen.point[..], seen.read_only), (&br"/tmp/a\b.img"[..], &b"/mnt/a b"[..], false));
        assert!(kernel_mount(br"41 28 0:35 / /mnt ro - fuse.bypath /tmp/i rw").unwrap().read_only);
        for other in [&br"41 28 0:35 / /mnt rw - tmpfs t rw"[..], br"41 28 0:35 /sub /mnt rw - fuse.bypath /tmp/i rw", b""] {
            assert!(kernel_mount(other).is_none());
        }
    }

    /// Goal: a path is below a point if the point's name ends there.
    #[test]
    fn below() {
        assert!(is_below(b"/bp", b"/bp") && is_below(b"/bp/a", b"/bp"));
        assert!(!is_below(b"/bpa", b"/bp") && !is_below(b"/b", b"/bp"));
        assert_eq!(absolute(OsStr::new("/bp/./a/../b/")), Some(b"/bp/b".to_vec()));
    }
}

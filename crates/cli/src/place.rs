//! `IMG:/path`.

use crate::failure::{Failure, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path inside an image.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// The image file.
    pub image: PathBuf,
    /// Absolute path in it; bytes, as the kernel takes them.
    pub path: Vec<u8>,
    /// It is a cache, and the path is one of the directory behind it.
    pub is_cached: bool,
}

impl Place {
    /// A path inside an image of its own.
    pub fn new(image: PathBuf, path: Vec<u8>) -> Place {
        Place { image, path, is_cached: false }
    }

    /// Another path of the same.
    pub fn with(&self, path: Vec<u8>) -> Place {
        Place { image: self.image.clone(), path, is_cached: self.is_cached }
    }

    /// Parses `IMG:/path`. The first `:/` with an existing file before it
    /// separates; so image paths may hold one too. `IMG` and `IMG:` alone, of a file that is there, are its root.
    pub fn parse(text: &OsStr) -> Result<Place> {
        let (image, path) = whole(text).or_else(|| split(text)).ok_or_else(|| {
            let text = text.display();
            Failure::new(format!("'{text}' lies in no image; write IMG:/path, such as work.img:/src"))
        })?;
        Ok(Place::new(image, path))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}:{}", self.image.display(), String::from_utf8_lossy(&self.path))
    }
}

/// An image without a path.
fn whole(text: &OsStr) -> Option<(PathBuf, Vec<u8>)> {
    let bytes = text.as_bytes();
    let names = [bytes, bytes.strip_suffix(b":").unwrap_or(bytes)];
    let image = names.into_iter().map(|name| PathBuf::from(OsStr::from_bytes(name))).find(|path| is_image(path))?;
    Some((image, b"/".to_vec()))
}

/// What an image may lie in: a file, or a device.
fn is_image(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_dir())
}

pub fn split(text: &OsStr) -> Option<(PathBuf, Vec<u8>)> {
    let bytes = text.as_bytes();
    let cuts: Vec<usize> =
        bytes.windows(2).enumerate().filter(|(at, pair)| *at > 0 && *pair == b":/").map(|(at, _)| at).collect();
    let image = |cut: usize| PathBuf::from(OsString::from_vec(bytes[..cut].to_vec()));
    let cut = cuts.iter().copied().find(|&cut| image(cut).is_file()).or(cuts.first().copied())?;
    Some((image(cut), bytes[cut + 1..].to_vec()))
}

/// A mount point need not exist; if it does, it must be a directory.
pub fn check_point(point: &[u8]) -> Result<()> {
    let path = Path::new(OsStr::from_bytes(point));
    match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(Failure::new(format!(
            "mount point {} is a file; choose a directory, or a path that does not exist",
            path.display()
        ))),
        Err(error) if error.raw_os_error() == Some(pm::Errno::ENOTDIR.0) => Err(Failure::new(format!(
            "mount point {} lies below a file; choose a directory, or a path that does not exist",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// An absolute path without superfluous slashes; `None` if it holds `.` or `..`.
pub fn normalise(path: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    for part in path.split(|&b| b == b'/').filter(|part| !part.is_empty()) {
        if part == b"." || part == b".." {
            return None;
        }
        plain.push(b'/');
        plain.extend_from_slice(part);
    }
    if plain.is_empty() {
        plain.push(b'/');
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: places are split at the right colon; what is not one is refused.
    #[test]
    fn places() {
        let place = Place::parse(OsStr::new("a.img:/b/c")).unwrap();
        assert_eq!((place.image.to_str(), &place.path[..]), (Some("a.img"), &b"/b/c"[..]));
        assert_eq!(Place::parse(OsStr::new("/x/a.img:/b:/c")).unwrap().path, b"/b:/c");
        let own = std::env::current_exe().unwrap();
        let with_colon = OsString::from(format!("{}:", own.display()));
        for text in [own.as_os_str(), &with_colon] {
            assert_eq!(Place::parse(text).unwrap(), Place::new(own.clone(), b"/".to_vec()));
        }
        for wrong in ["a.img", "/bp/file", ":/a", "a.img:b", ""] {
            assert!(Place::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}

//! Which keys are paths, and which paths can be keys.
//!
//! A path relative to the mount's root, without a slash at either end, is a key as it is; with a slash behind it is the
//! marker of a directory. The root is the empty path.

use base::Name;
use pm::Errno;

/// Longest key of S3's, bytes.
const KEY_MAX: usize = 1024;

/// The path of `name` in `directory`.
pub fn join(directory: &str, name: &[u8]) -> Result<String, Errno> {
    if name.len() > Name::MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    // Keys are text.
    let name = std::str::from_utf8(name).map_err(|_| Errno::EILSEQ)?;
    let path = if directory.is_empty() { name.to_string() } else { format!("{directory}/{name}") };
    match path.len() {
        len if len > KEY_MAX => Err(Errno::ENAMETOOLONG),
        // OpenDAL cuts blanks off both ends: it would be another object.
        len if len != path.trim().len() => Err(Errno::EINVAL),
        _ => Ok(path),
    }
}

/// The key of the marker of a directory, which is what its listing is asked by.
pub fn marker(directory: &str) -> String {
    if directory.is_empty() { "/".to_string() } else { format!("{directory}/") }
}

/// The directory of a path.
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The last name of a path.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// What a listed key is in `directory`.
#[derive(Debug, PartialEq, Eq)]
pub enum Listed<'k> {
    /// The directory itself.
    Marker,
    /// A file or a directory.
    Name(&'k str),
    /// No path leads to it: why.
    Refused(&'static str),
}

/// Takes a key apart that was listed in `directory`.
pub fn listed<'k>(directory: &str, key: &'k str) -> Listed<'k> {
    let rest = match directory.is_empty() {
        true => Some(key),
        false => key.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')),
    };
    let Some(rest) = rest else { return Listed::Refused("not in the directory that was listed") };
    if rest.is_empty() || directory.is_empty() && rest == "/" {
        return Listed::Marker;
    }
    let name = rest.strip_suffix('/').unwrap_or(rest);
    match name {
        "" => Listed::Refused("two slashes in a row"),
        "." | ".." => Listed::Refused("a step of it is . or .."),
        _ if name.contains('/') => Listed::Refused("two slashes in a row"),
        _ if name.len() > Name::MAX => Listed::Refused("a name of more than 255 bytes"),
        _ if Name::new(name.as_bytes()).is_none() => Listed::Refused("a NUL in it"),
        _ if key.trim().len() != key.len() || rest.len() != name.len() && name.trim_end().len() != name.len() => {
            Listed::Refused("a blank at its end")
        }
        _ => Listed::Name(name),
    }
}

/// Whether every step of a key that was listed with all below it is a name.
pub fn is_path(key: &str) -> bool {
    let path = key.strip_suffix('/').unwrap_or(key);
    path.split('/').all(|name| Name::new(name.as_bytes()).is_some()) && path.trim().len() == path.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is a path and what is not.
    #[test]
    fn keys() {
        assert_eq!(listed("", "a"), Listed::Name("a"));
        assert_eq!(listed("", "a/"), Listed::Name("a"));
        assert_eq!(listed("a", "a/"), Listed::Marker);
        assert_eq!(listed("a", "a/b c"), Listed::Name("b c"));
        let long = format!("a/{}", "n".repeat(256));
        for refused in ["a//", "a//b", "a/./", "a/..", "a/b ", &long] {
            assert!(matches!(listed("a", refused), Listed::Refused(_)), "{refused}");
        }
        assert!(matches!(listed("", "/"), Listed::Marker));
        assert!(matches!(listed("", "//"), Listed::Refused(_)));
        assert!(is_path("a/b/") && is_path("a") && !is_path("a//b") && !is_path("a/../b") && !is_path(&long));
    }

    /// Goal: a path that OpenDAL would take for another is refused.
    #[test]
    fn paths() {
        assert_eq!(join("", b"a"), Ok("a".to_string()));
        assert_eq!(join("a/b", b"c"), Ok("a/b/c".to_string()));
        assert_eq!(join("a", b"c "), Err(Errno::EINVAL));
        assert_eq!(join("", b" c"), Err(Errno::EINVAL));
        assert_eq!(join("a", b" c"), Ok("a/ c".to_string()));
        assert_eq!(join("a", b"\xff"), Err(Errno::EILSEQ));
        assert_eq!(join("a", &[b'n'; 256]), Err(Errno::ENAMETOOLONG));
        assert_eq!((parent("a/b"), name("a/b"), parent("a"), name("a")), ("a", "b", "", "a"));
    }
}

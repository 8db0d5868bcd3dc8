//! The session that this program belongs to: what its programs keep together, and what is said once in it.

use crate::runtime::saved::SAVED;
use core::fmt::Write;
use pm::Errno;
use pm::file::stat;
use pm::sys::abi::*;
use posix::environment;

fn session() -> &'static [u8] {
    SAVED.session.bytes()
}

/// Whether this program's root directory is the session's.
pub fn belongs_here() -> bool {
    let root = session().split(|&b| b == b';').next().and_then(environment::identity);
    root.is_none_or(|root| stat(b"/\0").is_ok_and(|here| (here.dev, here.ino) == root))
}

/// The session's directory for names.
pub fn place() -> Option<&'static str> {
    let cut = session().iter().position(|&b| b == b';')?;
    core::str::from_utf8(&session()[cut + 1..]).ok().filter(|place| !place.is_empty())
}

/// Whether images, directories, and what the session's programs share, are to be had among the mounts that this process has.
#[cold]
pub fn is_reachable() -> bool {
    let is_there = |path: &str| {
        let mut text = Path { text: [0; 300], len: 0 };
        text.write_str(path).is_ok() && stat(&text.text).is_ok()
    };
    let mut image = [0u8; 4096];
    place().is_none_or(is_there)
        && environment::parse(SAVED.mounts.bytes()).all(|spec| {
            let Some(len) = environment::unescape(spec.image, &mut image[..4095]) else { return true };
            image[len] = 0;
            let path = match environment::parts(&image[..len + 1]) {
                Some((b"host", _, directory)) => directory,
                _ => &image[..len + 1],
            };
            path.first() != Some(&b'/') || stat(path).is_ok()
        })
}

/// Whether nobody in the session has said what has this short name yet. A name is made where all its users may make one,
/// which takes no descriptor; where there is no such place each program says it.
pub fn is_first_of(name: core::fmt::Arguments<'_>) -> bool {
    let mut path = Path { text: [0; 300], len: 0 };
    if place().is_none_or(|place| write!(path, "{place}/{name}").is_err()) {
        return true;
    }
    // SAFETY: a NUL-terminated path: there is always a zero behind what was written.
    let made = unsafe { pm::call!(__NR_mkdirat, AT_FDCWD, path.text.as_ptr(), 0o700) };
    made != Err(Errno::EEXIST)
}

/// A path being put together.
struct Path {
    text: [u8; 300],
    len: usize,
}

impl Write for Path {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let end = self.len + part.len();
        let last = self.text.len() - 1;
        self.text[..last].get_mut(self.len..end).ok_or(core::fmt::Error)?.copy_from_slice(part.as_bytes());
        self.len = end;
        Ok(())
    }
}

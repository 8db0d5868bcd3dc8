//! What a person is told when something can't be done.

use crate::attach::segment_directory;
use pm::Errno;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One line: what happened, to what, what to do. And the exit code.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// Exit code of the program.
    pub code: u8,
}

/// Result of a verb or a part of one.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An ordinary failure: exit code 1.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: 1 }
    }

    /// The same with another exit code.
    pub fn code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    /// A failed operation on `what`.
    pub fn errno(what: impl fmt::Display, errno: Errno) -> Failure {
        Failure::new(format!("{what}: {}{}", describe(errno), advice(errno)))
    }

    /// A failed operation of the engine on `what`.
    pub fn engine(what: impl fmt::Display, error: base::Error) -> Failure {
        match error {
            base::Error::Posix(errno) => Failure::errno(what, errno),
            base::Error::Corrupt { what: part, at } => {
                Failure::new(format!("{what}: damaged {part} at byte {at:#x} of the image; run `bypath check` on it"))
            }
        }
    }

    /// A failed operation of the kernel on `what`.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Failure {
        match error.raw_os_error() {
            Some(number) => Failure::errno(what, Errno(number)),
            None => Failure::new(format!("{what}: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The system's words for an error, without the number.
pub fn describe(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.0).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    let mut text = text[..end].to_string();
    if let Some(first) = text.get(..1) {
        let lower = first.to_lowercase();
        text.replace_range(..1, &lower);
    }
    text
}

/// Of the directory of the shared caches: with less than that, it is what is full.
const ROOM: u64 = 1 << 20;

fn advice(errno: Errno) -> String {
    match errno {
        Errno::ENOSPC | Errno::ENFILE | Errno::ENOMEM => full_cache().unwrap_or_else(|| match errno {
            Errno::ENOSPC => "; make room, or make a larger image (`bypath mkfs --size`)".to_string(),
            _ => String::new(),
        }),
        Errno::EACCES | Errno::EPERM => "; ask its owner, or run as a user who may".to_string(),
        Errno::EROFS => "; it can only be read".to_string(),
        _ => String::new(),
    }
}

/// What to do if the directory of the shared caches is full, and the image may not be.
fn full_cache() -> Option<String> {
    let directory = segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let (free, all) = pm::file::room(&[directory.as_os_str().as_bytes(), b"\0"].concat()).ok()?;
    let shown = directory.display();
    (all > 0 && free < ROOM).then(|| {
        format!("; {shown}, where the shared cache lies, is full: make room there, or choose another BYPATH_SEGMENT_DIR")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a message names the thing, says what happened without a number, and what to do.
    #[test]
    fn messages() {
        let text = Failure::errno("/a", Errno::ENOSPC).to_string();
        assert!(text.starts_with("/a: no space left on device; make"), "{text}");
        let text = Failure::engine("/a", base::Error::Corrupt { what: "inode", at: 64 }).to_string();
        assert!(text.contains("damaged inode at byte 0x40"), "{text}");
    }
}

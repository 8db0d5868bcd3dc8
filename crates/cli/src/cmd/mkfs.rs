//! `bypath mkfs IMG`

use crate::cmd::print;
use crate::failure::{Failure, Result};
use crate::size;
use base::ids;
use engine::mkfs::{self, MkfsError, Options};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Makes an image, and says how to go on.
pub fn mkfs(image: &Path, limit: u64, force: bool) -> Result<u8> {
    make(image, limit, force)?;
    let shown = image.display();
    let word = quoted(&format!("{shown}:/bp"));
    print(format!("{shown}: made, up to {}; try: bypath run --mount {word} -- bash\n", size::show(limit)).as_bytes())?;
    if let Some(text) = beyond_memory(image, limit) {
        eprintln!("bypath: {shown}: {text}");
    }
    Ok(0)
}

/// Where an image in memory may become larger than the memory that a container leaves it, and what happens then.
fn beyond_memory(image: &Path, limit: u64) -> Option<String> {
    let path = [image.as_os_str().as_bytes(), b"\0"].concat();
    if pm::file::file_system(&path) != Ok(pm::file::FileSystem::Memory) {
        return None;
    }
    let found = pm::memory_limit::look().filter(|found| found.limit < limit)?;
    Some(format!(
        "it is in memory, of which this container or job may use {}, programs included: writes fail with ENOSPC before that is full",
        size::show(found.limit)
    ))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-:+@%,=".contains(letter);
    if word.chars().all(is_plain) { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Makes an image whose root belongs to the user.
pub fn make(image: &Path, limit: u64, force: bool) -> Result<()> {
    let mut path = image.as_os_str().as_bytes().to_vec();
    path.push(0);
    posix::namespace::look();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (uid, gid) = (ids::user(uid).unwrap_or(uid), ids::group(gid).unwrap_or(gid));
    let options = Options { limit, force, uid, gid, ..Options::default() };
    let shown = &image.display();
    mkfs::make(&path, &options).map_err(|error| match error {
        MkfsError::NotAFile => Failure::new(format!("{shown}: not a regular file; an image is made in one")),
        MkfsError::File(pm::Errno::ENOSPC) => Failure::new(format!(
            "{shown}: no space on the file system underneath; make room, or choose another folder or a smaller --size"
        )),
        MkfsError::File(pm::Errno::EISDIR) => Failure::new(format!("{shown}: is a directory; name a file in it")),
        MkfsError::File(errno) => Failure::errno(shown, errno),
        other => Failure::new(format!("{shown}: {other}")),
    })
}

#[cfg(test)]
mod tests {
    use super::quoted;

    /// Goal: what is printed to be typed can be typed.
    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("/dev/shm/work.img:/bp"), "/dev/shm/work.img:/bp");
        assert_eq!(quoted("with space"), "'with space'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}

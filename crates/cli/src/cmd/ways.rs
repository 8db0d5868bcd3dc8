//! The ways into the library: `BYPATH_WAYS=symbols|patched`.
//!
//! The patched way needs a table of the C library's system-call sites. For a
//! library that none is shipped for it is made here, for as long as the session
//! lasts.

use crate::failure::{Failure, Result};
use crate::library::c_library;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Tells the library where the table is.
pub const SITES: &str = "BYPATH_SITES";
const WAYS: &str = "BYPATH_WAYS";

/// A table in a file; removed on drop.
pub struct Table(PathBuf);

impl Table {
    /// In a file of its own: what somebody has laid there by a name that could be guessed is neither
    /// followed nor believed, since libc is changed by this table.
    fn of(text: &[u8], directory: &Path) -> Result<Table> {
        for count in 0..1000u32 {
            let path = directory.join(format!("bypath-{}-{count}.sites", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path) {
                Ok(mut file) => {
                    let table = Table(path);
                    file.write_all(text).map_err(|error| Failure::io(table.0.display(), &error))?;
                    return Ok(table);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(path.display(), &error)),
            }
        }
        Err(Failure::new(format!(
            "{}: cannot create a unique name for a table of the C library's system calls",
            directory.display()
        )))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The table that the session needs and the library has not got.
///
/// # Errors
/// `BYPATH_WAYS` says something else; the C library can't be read, the file can't be written.
pub fn sites() -> Result<Option<Table>> {
    let ways = std::env::var_os(WAYS).unwrap_or_default();
    match ways.to_str() {
        Some("" | "symbols") => return Ok(None),
        Some("patched") => {}
        _ => return Err(Failure::new(format!("{WAYS}={}: it can be symbols or patched", ways.display()))),
    }
    if std::env::var_os(SITES).is_some_and(|value| !value.is_empty()) {
        return Ok(None);
    }
    let Some(library) = c_library() else { return Ok(None) };
    let file = std::fs::read(&library).map_err(|error| Failure::io(library.display(), &error))?;
    let wrong = |what| Failure::new(format!("{}: {what}; without BYPATH_WAYS=patched it is not needed", library.display()));
    if sites::is_shipped(&sites::build_id(&file).map_err(wrong)?) {
        return Ok(None);
    }
    let found = sites::find(&file, |_| true).map_err(wrong)?;
    Ok(Some(Table::of(&found.encode(), &std::env::temp_dir())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a table is never written into, or read out of, what somebody else has laid in its place. Method: a link
    /// and a file under the first names.
    #[test]
    fn a_file_of_its_own() {
        let pid = std::process::id();
        let place = std::env::temp_dir().join(format!("bypath-table-{pid}"));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place).unwrap();
        let names = [0, 1].map(|count| place.join(format!("bypath-{pid}-{count}.sites")));
        std::os::unix::fs::symlink(place.join("target"), &names[0]).unwrap();
        std::fs::write(&names[1], "somebody's").unwrap();
        let table = Table::of(b"ours", &place).unwrap();
        assert!(!names.iter().any(|name| name == table.path()));
        assert_eq!(std::fs::read(table.path()).unwrap(), b"ours");
        let path = table.path().to_path_buf();
        drop(table);
        assert!(!path.exists() && !place.join("target").exists());
        assert_eq!(std::fs::read(&names[1]).unwrap(), b"somebody's");
        std::fs::remove_dir_all(&place).unwrap();
    }
}

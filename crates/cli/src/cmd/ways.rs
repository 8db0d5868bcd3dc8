//! The ways into the library: `BYPATH_WAYS=symbols|patched`.
//!
//! The patched way needs a table of the C library's system-call sites. For a
//! library that none is shipped for it is made here, for as long as the session
//! lasts.

use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};

/// Tells the library where the table is.
pub const SITES: &str = "BYPATH_SITES";
const WAYS: &str = "BYPATH_WAYS";
const C_LIBRARY: &str = "libc.so.6";

/// A table in a file; removed on drop.
pub struct Table(PathBuf);

impl Table {
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
    let path = std::env::temp_dir().join(format!("bypath-{}.sites", std::process::id()));
    std::fs::write(&path, found.encode()).map_err(|error| Failure::io(path.display(), &error))?;
    Ok(Some(Table(path)))
}

/// The C library that this program, and so its children, run with.
fn c_library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| line.split_once('/'))
        .map(|(_, path)| PathBuf::from(format!("/{path}")))
        .find(|path| path.ends_with(C_LIBRARY))
}

//! The engine's checker and dump, as the commands use them.

use crate::attach::refused;
use crate::failure::Result;
use engine::check::Report;
use indicatif::ProgressBar;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn text(path: &Path) -> Vec<u8> {
    let mut text = path.as_os_str().as_bytes().to_vec();
    text.push(0);
    text
}

/// Checks the image at `path`; the bar has 1,000 steps.
pub fn verify(path: &Path, bar: &ProgressBar) -> Result<Report> {
    let mut progress = |step: u32| bar.set_position(step.into());
    engine::check::run(&text(path), &mut progress).map_err(|error| refused(path, error))
}

/// Prints the image at `path`, as it stands; what is damaged is said where it is met.
pub fn dump(path: &Path, out: &mut dyn std::fmt::Write) -> Result<()> {
    let image = engine::inspect::Inspected::open(&text(path)).map_err(|error| refused(path, error))?;
    // Only the writer fails, and it remembers why.
    let _ = engine::dump::print(&image, &engine::dump::Options::default(), out);
    Ok(())
}

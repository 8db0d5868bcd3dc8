//! The engine's checker and dump, as the commands use them.

use crate::attach::refused;
use crate::failure::{Failure, Result};
use engine::check::Report;
use engine::repair::{Repair, RepairError};
use engine::shrink::ShrinkError;
use engine::upgrade::{Done, Options, UpgradeError};
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

/// Where the contents of the files of the image at `path` lie; `None` if it is damaged, or if something is half done in it.
pub fn contents(path: &Path) -> Result<Option<engine::check::Contents>> {
    engine::check::contents(&text(path)).map_err(|error| refused(path, error))
}

/// Decides how the image at `path` can be fixed; the bar has 1,000 steps. Nothing is written yet.
pub fn plan(path: &Path, bar: &ProgressBar) -> Result<Repair> {
    let mut progress = |step: u32| bar.set_position(step.into());
    Repair::plan(&text(path), &mut progress).map_err(|error| not_repaired(path, error))
}

/// Makes the image at `path` one of today's format; the bar has 1,000 steps.
pub fn upgrade(path: &Path, renumber: bool, bar: &ProgressBar) -> Result<Done> {
    let mut progress = |step: u32| bar.set_position(step.into());
    engine::upgrade::run(&text(path), Options { renumber }, &mut progress).map_err(|error| match error {
        UpgradeError::Open(RepairError::Open(error)) => refused(path, error),
        other => Failure::new(format!("{}: {other}", path.display())),
    })
}

/// Gives the end of the image at `path` back to the file system; the bar has 1,000 steps.
pub fn shrink(path: &Path, bar: &ProgressBar) -> Result<engine::shrink::Done> {
    let mut progress = |step: u32| bar.set_position(step.into());
    engine::shrink::run(&text(path), &mut progress).map_err(|error| match error {
        ShrinkError::Open(RepairError::Open(error)) => refused(path, error),
        other => Failure::new(format!("{}: {other}", path.display())),
    })
}

/// Why an image was not repaired, for people: damage that is left is 1, all else 2.
pub fn not_repaired(path: &Path, error: RepairError) -> Failure {
    match error {
        RepairError::Open(error) => refused(path, error).code(2),
        RepairError::Left(_) | RepairError::NoSpace => Failure::new(format!("{}: {error}", path.display())),
        other => Failure::new(format!("{}: {other}", path.display())).code(2),
    }
}

/// Prints the image at `path`, as it stands; what is damaged is said where it is met.
pub fn dump(path: &Path, out: &mut dyn std::fmt::Write) -> Result<()> {
    let image = engine::inspect::Inspected::open(&text(path)).map_err(|error| refused(path, error))?;
    // Only the writer fails, and it remembers why.
    let _ = engine::dump::print(&image, &engine::dump::Options::default(), out);
    Ok(())
}

//! `bypath import DIR IMG:/path` and `bypath export IMG:/path DIR`

use crate::attach;
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::place::Place;
use crate::progress::{self, Tally};
use crate::seen_as::find;
use crate::size;
use crate::transfer::{export, import, unpack};
use indicatif::ProgressBar;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

/// Copies into an image: a tree, or what is in an archive.
pub fn import(source: &Path, target: &OsStr, unpack: bool, force: bool, quiet: bool) -> Result<u8> {
    let target = Place::parse(target)?;
    if unpack || source == Path::new("-") {
        if force {
            attach::take_over(&target.image)?;
        }
        let mut tree = Tree::attach(&target.image)?;
        let bar = progress::bar(quiet, "unpacking", 0);
        let begun = Instant::now();
        let tally = unpack::unpack(&mut tree, source, &target, &bar);
        bar.finish_and_clear();
        report(quiet, "unpacked", &tally?, begun);
        return Ok(0);
    }
    std::fs::symlink_metadata(source).map_err(|error| Failure::io(source.display(), &error))?;
    if import::is_image(source, &target.image) {
        return Err(Failure::new(format!("{}: an image can't be copied into itself", source.display())));
    }
    if force {
        attach::take_over(&target.image)?;
    }
    let mut tree = Tree::attach(&target.image)?;
    let bar = bar(quiet, "importing", || import::measure(source));
    let begun = Instant::now();
    let tally = import::import(&mut tree, source, &target, &bar);
    bar.finish_and_clear();
    let tally = tally?;
    report(quiet, "imported", &tally, begun);
    match tally.unread {
        0 => Ok(0),
        1 => Err(Failure::new(format!("{}: 1 name could not be read and was left out", source.display()))),
        unread => Err(Failure::new(format!("{}: {unread} names could not be read and were left out", source.display()))),
    }
}

/// Copies out of an image.
pub fn export(source: &OsStr, target: &Path, quiet: bool) -> Result<u8> {
    let source = find(&source.to_os_string())?;
    let mut tree = Tree::attach_to_read_at(&source)?;
    let node = tree.find(&source, false)?;
    let bar = bar(quiet, "exporting", || export::measure(&tree, node));
    let begun = Instant::now();
    let tally = export::export(&mut tree, &source, target, &bar);
    bar.finish_and_clear();
    report(quiet, "exported", &tally?, begun);
    Ok(0)
}

/// Counting beforehand is only worth it if somebody looks on.
fn bar(quiet: bool, what: &'static str, measure: impl FnOnce() -> Tally) -> ProgressBar {
    let total = if progress::is_seen(quiet) { measure() } else { Tally::default() };
    progress::bar(quiet, what, total.bytes + total.names * 4096)
}

fn report(quiet: bool, what: &str, tally: &Tally, begun: Instant) {
    if quiet {
        return;
    }
    eprintln!("{what} {} names, {} in {:.2} s", tally.names, size::show(tally.bytes), begun.elapsed().as_secs_f64());
    if tally.dropped > 0 {
        eprintln!("bypath: {} owners or extended attributes could not be kept, for lack of rights", tally.dropped);
    }
}

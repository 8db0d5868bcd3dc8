//! The image of a directory's cache is gone, and its journal is not: what `fsync` had promised is made in the directory.

use crate::attach;
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use writeback::journal::{Damage, Left, Replayed, Whose, set_aside};
use writeback::marker::{self, Claim, Marker};

/// Added to the name of an image that is not trusted after a stop of the machine.
const ASIDE: &str = ".before-crash";

fn failure(shown: &Path, failure: &writeback::Failure) -> Failure {
    Failure::new(format!("{}: {failure}", shown.display()))
}

/// Whether the image with this number is there, and is as its users left it.
fn is_alive(image: &Path, whose: &Whose) -> Result<bool> {
    if !image.exists() {
        return Ok(false);
    }
    let attached = attach::attach(image)?;
    let is_it = attached.fs.is_cache() && attached.fs.identity() == whose.image;
    let outlives = attached.fs.domain() != pm::Domain::Process;
    attached.leave();
    if is_it && !whose.is_of_this_boot && !outlives {
        // Parts of it may never have reached the disk.
        let aside = PathBuf::from(format!("{}{ASIDE}", image.display()));
        std::fs::rename(image, &aside).map_err(|error| Failure::io(image.display(), &error))?;
        eprintln!("bypath: {}: the machine has stopped since it was written; kept as {}", image.display(), aside.display());
        return Ok(false);
    }
    Ok(is_it)
}

/// Replays the journal of a directory if its image is gone.
pub fn if_lost(directory: &Path) -> Result<Option<Replayed>> {
    replay(directory, false)
}

/// The same; `skip`: what is missing in the directory is left out. `None`: there was nothing to replay.
pub fn replay(directory: &Path, skip: bool) -> Result<Option<Replayed>> {
    let said = |error: writeback::Failure| Failure::new(error.to_string());
    let (image, path) = (marker::of(directory).map_err(said)?, marker::journal_of(directory).map_err(said)?);
    let (Some(image), Some(path)) = (image, path) else { return Ok(None) };
    let image = PathBuf::from(image);
    let shown = directory.display();
    let whose = Whose::of(&path).map_err(|error| failure(&path, &error))?;
    let Some(whose) = whose else {
        if image.exists() {
            return Ok(None);
        }
        return Err(Failure::new(format!(
            "{shown}: the cache {} is gone, and its journal {} too: what had been changed is lost; `bypath cache discard \
             {shown} --yes` accepts that",
            image.display(),
            path.display()
        )));
    };
    if is_alive(&image, &whose)? {
        return Ok(None);
    }
    match Marker::claim(&directory.join(marker::NAME), &image, whose.image).map_err(said)? {
        Claim::Ours(marker) => finish(directory, &path, marker, skip).map(Some),
        Claim::Served => Err(Failure::new(format!("{shown}: another process replays its journal, or writes back"))),
        Claim::Another(_) => Err(Failure::new(format!(
            "{}: the journal of another cache than {} names",
            path.display(),
            directory.join(marker::NAME).display()
        ))),
    }
}

fn finish(directory: &Path, path: &Path, marker: Marker, skip: bool) -> Result<Replayed> {
    // Read again, now that nobody else writes it.
    let left = Left::open(path).map_err(|error| failure(path, &error))?;
    let mut left = left.ok_or_else(|| Failure::new(format!("{}: not a journal any more", path.display())))?;
    if left.groups() > 0 {
        eprintln!("bypath: {}: replaying the journal {}", directory.display(), path.display());
    }
    if left.is_torn() {
        eprintln!(
            "bypath: {}: what was written last is not whole; no fsync had returned for it when the machine stopped",
            path.display()
        );
    }
    let done = left.replay(directory, skip).map_err(|error| {
        let missing = error.errno == pm::Errno::ESTALE;
        let help = if missing { "; `bypath cache replay --skip-missing` leaves out what is missing there" } else { "" };
        Failure::new(format!("{}: the journal can't be replayed: {error}; it is kept{help}", directory.display()))
    })?;
    drop(left);
    if let Some(damage) = &done.damage {
        return Err(damaged(directory, path, &done, damage, marker));
    }
    marker.remove_with(path);
    Ok(done)
}

/// The journal was replayed up to damage in it: it is set aside, and the directory is free.
fn damaged(directory: &Path, path: &Path, done: &Replayed, damage: &Damage, marker: Marker) -> Failure {
    let aside = match set_aside(path) {
        Ok(aside) => aside,
        // Then the marker stays too.
        Err(error) => return Failure::new(format!("{}: {damage}; it can't be set aside: {error}", path.display())),
    };
    marker.remove();
    let kept = done.kept.as_ref().map_or_else(String::new, |kept| format!(", files on their way are in {kept}"));
    Failure::new(format!(
        "{}: {damage}; {} is as it was before that group ({} names, {} bytes replayed), changes after it, if any, are lost{kept}; \
         the journal is kept as {}",
        path.display(),
        directory.display(),
        done.names,
        done.bytes,
        aside.display()
    ))
}

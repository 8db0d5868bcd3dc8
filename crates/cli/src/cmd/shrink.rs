//! `bypath shrink IMG`: space that the image does not need any more goes back to the file system below.

use crate::cmd::{print, print_json};
use crate::failure::Result;
use crate::{attach, check, progress, size};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Report {
    image: String,
    /// Bytes of the file system below that the file had, and has now.
    before: u64,
    now: u64,
    /// Free bytes between blocks in use, which stay.
    between: u64,
}

/// Shrinks an image that nobody uses, and says by how much.
pub fn shrink(image: &Path, force: bool, json: bool) -> Result<u8> {
    if force {
        attach::take_over(image)?;
    }
    // Whatever a killed program has left half done is finished.
    attach::attach(image)?.leave();
    let bar = progress::bar(json, "checking", 1000);
    let done = check::shrink(image, &bar);
    bar.finish_and_clear();
    let engine::shrink::Done { before, now, between } = done?;
    let shown = image.display().to_string();
    if json {
        print_json(&Report { image: shown, before, now, between })?;
    } else {
        let back = size::show(before.saturating_sub(now));
        let (now, between) = (size::show(now), size::show(between));
        print(format!("{shown}: {back} given back, {now} kept, of which {between} are free between files\n").as_bytes())?;
    }
    Ok(0)
}

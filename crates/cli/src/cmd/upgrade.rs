//! `bypath upgrade IMG`: exit code 0 if the image is of today's format now, or was already.

use crate::attach::take_over;
use crate::check;
use crate::cmd::{print, print_json};
use crate::failure::Result;
use crate::progress;
use engine::upgrade::Done;
use serde::Serialize;
use std::path::Path;

/// What the command line asks of an upgrade.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// New inode numbers, of 32 bits.
    pub inode32: bool,
    /// Whatever other machine uses it.
    pub force: bool,
    /// As JSON.
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    image: String,
    /// Format version before and now.
    from: u32,
    to: u32,
    /// Whether anything was written.
    changed: bool,
    /// How long inode numbers can be.
    inode_bits: u32,
}

/// Upgrades an image, and says what has been done.
pub fn upgrade(image: &Path, options: Options) -> Result<u8> {
    if options.force {
        take_over(image)?;
    }
    let bar = progress::bar(options.json, "checking", 1000);
    let done = check::upgrade(image, options.inode32, &bar);
    bar.finish_and_clear();
    let done = done?;
    let shown = image.display().to_string();
    if options.json {
        let inode_bits = if done.short_numbers { 32 } else { 48 };
        print_json(&Report { image: shown, from: done.from, to: done.to, changed: done.changed, inode_bits })?;
    } else {
        print(format!("{shown}: {}\n", said(done, options.inode32)).as_bytes())?;
    }
    Ok(0)
}

fn said(done: Done, inode32: bool) -> String {
    let Done { from, to, changed, short_numbers, files } = done;
    let numbers = match (inode32, short_numbers) {
        (true, true) => "; inode numbers fit 32 bits",
        (true, false) => "; inode numbers keep their 48 bits: the image may grow beyond 256 GiB",
        (false, _) => "",
    };
    match changed {
        false => format!("is of format {to} already{numbers}"),
        true if from == to => format!("format {to}, {files} files{numbers}"),
        true => format!("format {to} now, {from} before; all {files} files are where they were{numbers}"),
    }
}

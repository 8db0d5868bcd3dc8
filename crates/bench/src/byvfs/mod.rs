//! `bypath bench byvfs`: what ByVFS compares. One image, by the engine's own
//! look-up, behind an inode cache (`byvfs`), and behind a dentry and inode cache
//! as the kernel has them (`conventional`).
//!
//! | file | |
//! |---|---|
//! | `cache.rs` | names and attributes in a file that programs map |
//! | `image.rs` | an image as a backend behind them |
//! | `place.rs` | the ways to it, and directories of the kernel's, called by number |
//! | `tree.rs` | the five programs, by the calls that they make |
//! | `real.rs` | the programs themselves, on an image and in directories |
//! | `rounds.rs` | the figures: calls and programs, by each way in turn |

mod cache;
mod image;
mod place;
mod real;
mod rounds;
mod tree;

pub use cache::{AGE_NS, Cache, SLOTS};
pub use image::{CachedImage, Caching};

use crate::figure::{Output, Places};
use std::ffi::OsString;
use std::path::PathBuf;

/// The figures that there are.
const FIGURES: [&str; 6] = ["1", "3", "4", "table1", "programs", "getcwd"];

/// `bypath bench byvfs`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench byvfs",
    about = "ByVFS's figures 1, 3, 4, table1, programs and getcwd: an image by the engine alone, behind an inode cache, behind a dentry and inode cache, beside the kernel's file systems",
    disable_version_flag = true
)]
struct Options {
    #[command(flatten)]
    places: Places,
    /// Files of the directory in which calls are timed
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    files: usize,
    /// The programs' tree is made like this one
    #[arg(long, value_name = "DIR", default_value = "/usr/include")]
    tree: PathBuf,
    /// Up to so many entries of it
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    entries: usize,
    #[command(flatten)]
    output: Output,
}

/// Runs the benchmark with its command-line arguments; returns the exit code.
pub fn byvfs(args: &[OsString]) -> Result<u8, String> {
    let all = std::iter::once(OsString::from("bypath bench byvfs")).chain(args.iter().cloned());
    match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => rounds::run(&options)?.deliver(&options.output).map(|()| 0),
        Err(error) => {
            let _ = error.print();
            Ok(error.exit_code() as u8)
        }
    }
}

//! `bypath bench byvfs`: what ByVFS compares. One image, by the engine's own
//! look-up, behind an inode cache (`byvfs`), and behind a dentry and inode cache
//! as the kernel has them (`conventional`).
//!
//! | file | |
//! |---|---|
//! | `cache.rs` | names and attributes in a file that programs map |
//! | `image.rs` | an image as a backend behind them |
//! | `rounds.rs` | the calls, by each way in turn |

mod cache;
mod image;
mod rounds;

pub use cache::{AGE_NS, Cache};
pub use image::{CachedImage, Caching};

use std::ffi::OsString;
use std::path::PathBuf;

/// `bypath bench byvfs`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench byvfs",
    about = "Times look-ups in an image: by the engine alone, behind an inode cache, behind a dentry and inode cache",
    disable_version_flag = true
)]
struct Options {
    /// Directory for the image
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    image_dir: PathBuf,
    /// Few rounds
    #[arg(long)]
    quick: bool,
}

/// Runs the benchmark with its command-line arguments; returns the exit code.
pub fn byvfs(args: &[OsString]) -> Result<u8, String> {
    let all = std::iter::once(OsString::from("bypath bench byvfs")).chain(args.iter().cloned());
    match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => rounds::run(&options).map(|table| {
            print!("{table}");
            0
        }),
        Err(error) => {
            let _ = error.print();
            Ok(error.exit_code() as u8)
        }
    }
}

//! `cache …`.

use clap::Subcommand;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum CacheWhat {
    /// Show what is not in the directory yet, who writes it back, and what failed
    Status {
        /// The cache image, or the directory
        place: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write everything back that is not in the directory yet
    Drain {
        /// The cache image, or the directory
        place: PathBuf,
    },
    /// Give up the changes of one name, which the directory refuses: it is seen there as the directory has it, and kept in
    /// the image below /lost
    Skip {
        /// The cache image, or the directory
        place: PathBuf,
        /// Its path in the directory
        path: PathBuf,
    },
    /// Copy what is not in the directory yet to another one, by its path; what was removed is listed
    Export {
        /// The cache image, or the directory
        place: PathBuf,
        /// Where to
        target: PathBuf,
    },
    /// Make what a journal holds in its directory, when the cache image is gone (a stop of the machine)
    Replay {
        /// The directory
        directory: PathBuf,
        /// Leave out what is missing in the directory
        #[arg(long)]
        skip_missing: bool,
    },
    /// Give up what is not in the directory yet, and remove the cache image
    Discard {
        /// The cache image, or the directory
        place: PathBuf,
        /// Also if changes are lost
        #[arg(long)]
        yes: bool,
    },
}

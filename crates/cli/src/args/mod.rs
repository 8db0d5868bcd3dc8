//! What can be written on the command line.

mod bench;
mod cache;
mod help;
mod session;

pub use bench::{Bench, BenchWhat};
pub use cache::CacheWhat;
pub use session::{Enter, Mount, Run};

use crate::size;
use clap::{Parser, Subcommand};
use help::{
    CLONE_HELP, COMPLETIONS_HELP, COPY_HELP, DIFF_HELP, DOCTOR_HELP, DROP_HELP, ENTER_HELP, EXAMPLES, IMPORT_HELP, MAN_HELP,
    MOUNT_HELP, PACK_HELP, RESIZE_HELP, SHRINK_HELP, SNAP_HELP, STATS_HELP,
};
use std::ffi::OsString;
use std::path::PathBuf;

/// A time between two looks.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_string())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0.1 to 3600 seconds".to_string()) }
}

/// A file system that programs use without system calls.
#[derive(Parser)]
#[command(name = "bypath", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Args {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Make a file system in a file
    Mkfs {
        /// The image: a file that does not exist yet, or is empty
        image: PathBuf,
        /// How large it may grow (16M to 16T); space is taken as it is needed
        #[arg(long, default_value = "1G", value_parser = size::parse_image)]
        size: u64,
        /// Overwrite the image if it exists
        #[arg(long)]
        force: bool,
    },
    /// Run a program that sees images (and other file systems) as directories
    Run(Run),
    /// List the mounts of the session around this call, with their state, and caches that are kept fresh (linger=)
    Mounts {
        /// As JSON: an array
        #[arg(long)]
        json: bool,
    },
    /// Start another program in a session that runs, from anywhere
    #[command(after_help = ENTER_HELP)]
    Enter(Enter),
    /// Mount an image through the kernel, for every program and user
    #[command(after_help = MOUNT_HELP)]
    Mount(Mount),
    /// Take a kernel mount away, or end what keeps the cache of a directory fresh (linger=)
    Umount {
        /// The directory; or the cache image
        directory: PathBuf,
        /// Also if it is in use: it vanishes now, and ends with its last user
        #[arg(long, short)]
        lazy: bool,
    },
    /// Copy a directory (or file) into an image, with owners, modes, times, links and extended attributes
    #[command(after_help = IMPORT_HELP)]
    Import {
        /// What to copy; - is an archive on standard input
        source: PathBuf,
        /// Where to: IMG:/path; parents are made, existing files replaced
        #[arg(value_name = "IMG:/PATH")]
        target: OsString,
        /// It is an archive: copy what is in it (tar, tar.gz, tar.zst, zip, wheel, squashfs: found out)
        #[arg(long)]
        unpack: bool,
        /// Use the image although another machine is recorded as its user: only if that machine is down
        #[arg(long)]
        force: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Copy a directory (or file) out of an image
    Export {
        /// What to copy: IMG:/path
        #[arg(value_name = "IMG:/PATH")]
        source: OsString,
        /// Where to; parents are made, existing files replaced
        target: PathBuf,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make a second tree (or file) of one in the same image, which shares its data: at once, and in next to no space
    #[command(after_help = CLONE_HELP)]
    Clone {
        /// What to clone: IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/PATH")]
        source: OsString,
        /// Its path: nothing exists there yet, but its parent directory does
        #[arg(value_name = "IMG:/PATH")]
        target: OsString,
        /// As JSON: an object
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Keep a directory of an image as it is now: a clone in its .snap that nobody can change
    #[command(after_help = SNAP_HELP)]
    Snap {
        /// The directory: IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/PATH")]
        source: OsString,
        /// Name of the snapshot, which becomes PATH/.snap/NAME
        name: OsString,
        /// As JSON: an object
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Copy an image as it is at one instant, while it is in use
    #[command(after_help = COPY_HELP)]
    Copy {
        /// The image
        image: PathBuf,
        /// The copy: a file that is not there yet
        #[arg(value_name = "NEW")]
        target: PathBuf,
        /// Replace the file that is there
        #[arg(long)]
        force: bool,
        /// How many seconds to wait for the image to be at rest
        #[arg(long, value_name = "SECONDS", default_value_t = 10)]
        wait: u64,
        /// As JSON: an object
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Print what changes from one tree (or file) to another, of one image or two: exit code 0 nothing, 1 something, 2 trouble
    #[command(after_help = DIFF_HELP)]
    Diff {
        /// The first: IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/A")]
        first: OsString,
        /// The second
        #[arg(value_name = "IMG:/B")]
        second: OsString,
        /// As JSON: an array of changes
        #[arg(long)]
        json: bool,
    },
    /// Remove trees (or files) of an image: their names at once, then all that is in them
    #[command(after_help = DROP_HELP)]
    Drop {
        /// IMG:/path, or its path in the session around this call, or in a kernel mount
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
        /// As JSON: an array of objects
        #[arg(long)]
        json: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Make one compressed file of an image that nobody uses, for a cache
    #[command(after_help = PACK_HELP)]
    Pack {
        /// The image
        image: PathBuf,
        /// The file; - is standard output
        #[arg(value_name = "FILE")]
        target: PathBuf,
        /// How hard to compress: 1 (fast) to 19 (small)
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=19))]
        level: i32,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// Recreate an image from a file written by `bypath pack`
    #[command(after_help = PACK_HELP)]
    Restore {
        /// The file; - is standard input
        #[arg(value_name = "FILE")]
        source: PathBuf,
        /// The image
        image: PathBuf,
        /// Replace the image if it exists
        #[arg(long)]
        force: bool,
        /// Say nothing
        #[arg(long, short)]
        quiet: bool,
    },
    /// List directories of images
    #[command(disable_help_flag = true)]
    Ls {
        /// IMG:/path; IMG alone is its root
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
        /// Modes, owners, sizes and times as well
        #[arg(short)]
        long: bool,
        /// Sizes for people: 1.5K, 20M
        #[arg(short = 'h')]
        human: bool,
        /// Names that start with a dot as well
        #[arg(short)]
        all: bool,
        /// Everything below as well
        #[arg(short = 'R')]
        recursive: bool,
        /// As JSON: an array of entries
        #[arg(long)]
        json: bool,
        /// Print help
        #[arg(long, action = clap::ArgAction::Help)]
        help: Option<bool>,
    },
    /// Print files of an image
    Cat {
        /// IMG:/path
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
    },
    /// Show all that is known about files of an image
    Stat {
        /// IMG:/path; IMG alone is its root
        #[arg(value_name = "IMG:/PATH", required = true)]
        places: Vec<OsString>,
        /// If it is a symlink, show what it points to
        #[arg(short = 'L')]
        follow: bool,
        /// As JSON: an object, of several an array
        #[arg(long)]
        json: bool,
    },
    /// Verify an image: exit code 0 clean, 1 damaged, 2 could not be checked
    Check {
        /// The image
        image: PathBuf,
        /// Fix it. What would be given up is said first, and asked about on a terminal; what has lost
        /// its name goes to /lost+found. Nobody may use the image meanwhile
        #[arg(long)]
        repair: bool,
        /// Do not ask: give up what cannot be kept
        #[arg(long, requires = "repair")]
        yes: bool,
        /// Use the image although another machine is recorded as its user: only if that machine is down
        #[arg(long, requires = "repair")]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Give space behind the last file of an image that nobody uses back to the file system below
    #[command(after_help = SHRINK_HELP)]
    Shrink {
        /// The image
        image: PathBuf,
        /// Use the image although another machine is recorded as its user: only if that machine is down
        #[arg(long)]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Let an image that nobody uses grow larger, or less, than it was made for: by copying it
    #[command(after_help = RESIZE_HELP)]
    Resize {
        /// The image
        image: PathBuf,
        /// How large it may grow (16M to 16T)
        #[arg(value_parser = size::parse_image)]
        size: u64,
        /// Use the image although another machine is recorded as its user: only if that machine is down
        #[arg(long)]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Say nothing but errors
        #[arg(long, short)]
        quiet: bool,
    },
    /// Upgrade an image of the previous format version to the current one, in place; it must not be in use
    Upgrade {
        /// The image
        image: PathBuf,
        /// Give its files new inode numbers, which fit 32 bits (images of up to 256G; new ones have them)
        #[arg(long)]
        inode32: bool,
        /// Use the image although another machine is recorded as its user: only if that machine is down
        #[arg(long)]
        force: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show size, use, promises and users of an image
    Info {
        /// The image; IMG:/PATH, or a path where it is mounted: what the files there take
        #[arg(value_name = "IMG[:/PATH]")]
        image: OsString,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print who uses images and mounts, and what for: the figures of one moment
    #[command(after_help = STATS_HELP)]
    Stats {
        /// Images; without any, what the session around this call has, or else all sessions of this user
        #[arg(value_name = "IMG")]
        images: Vec<PathBuf>,
        /// As JSON: an object
        #[arg(long, conflicts_with = "prometheus")]
        json: bool,
        /// As Prometheus reads it: for the textfile collector of its node exporter
        #[arg(long)]
        prometheus: bool,
    },
    /// Show the same on the terminal, with calls and changes a second, until q is pressed
    #[command(after_help = STATS_HELP)]
    Top {
        /// Images; without any, what the session around this call has, or else all sessions of this user
        #[arg(value_name = "IMG")]
        images: Vec<PathBuf>,
        /// Seconds between two looks
        #[arg(long, short = 'd', default_value = "1", value_parser = seconds)]
        interval: f64,
    },
    /// Print the structures of an image
    Dump {
        /// The image
        image: PathBuf,
    },
    /// Measure
    Bench(Bench),
    /// Look after a cache image (--mount host:DIR:/dir,cache=IMG): what it holds that its directory has not got yet
    Cache {
        #[command(subcommand)]
        what: CacheWhat,
    },
    /// Take away what sessions that were killed have left: shared files, mounts without a server; end what keeps caches fresh
    Clean {
        /// As JSON: an array
        #[arg(long)]
        json: bool,
    },
    /// Say what this machine allows, and which way a program will be served
    #[command(after_help = DOCTOR_HELP)]
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// A program, as for `run`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Print what makes a shell complete verbs, options and file names
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual, or put a page for each verb into a directory
    #[command(after_help = MAN_HELP)]
    Man {
        /// Where the pages go: bypath.1, bypath-run.1 …; made if it is not there
        directory: Option<PathBuf>,
    },
    /// Free those who wait for a server that was killed (for `mount`)
    #[command(hide = true, name = "guard-mount")]
    GuardMount {
        /// The server, and the thread of it that has started this
        server: i32,
        thread: i32,
        directory: PathBuf,
        /// The mount is over something that is to be seen again without it
        #[arg(long)]
        covers: bool,
    },
    /// Keep a cache fresh when the session is killed (for `run`)
    #[command(hide = true, name = "cache-spare")]
    CacheSpare {
        /// Between two looks at all of it; 0: as the kernel tells
        seconds: u32,
        image: PathBuf,
        directory: PathBuf,
        /// Others reach the directory through this process
        #[arg(long)]
        holds: bool,
        /// Whether it writes back
        #[arg(long)]
        writes: bool,
    },
    /// Mounts for as long as standard input lasts (for the C library)
    #[command(hide = true)]
    Session {
        #[arg(long = "mount", value_name = "SPEC:/DIR[,OPTION…]", required = true)]
        mounts: Vec<OsString>,
        /// Be the one that keeps them
        #[arg(long)]
        keep: bool,
    },
    /// Start a program that lies in a mount (for `run`)
    #[command(hide = true, name = "exec-inside")]
    ExecInside {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

//! `run`, `enter` and `mount`.

use crate::attach::How;
use crate::mounts::spec::known;
use base::Atomic;
use clap::builder::PossibleValuesParser;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Mount {
    /// The image
    pub image: PathBuf,
    /// A directory
    pub directory: PathBuf,
    /// ro: nobody can change anything through it; atomic=undo, atomic=replay: an overwrite happens whole or not at all
    #[arg(
        short, long = "options", value_name = "OPTION", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(known::of_images()),
    )]
    pub options: Vec<String>,
    /// Serve from this process, until the mount is taken away
    #[arg(long, short)]
    pub foreground: bool,
    /// Where the server reports what went wrong, and when it began and ended
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Use the image although another machine is recorded as its user: only if that machine is down
    #[arg(long)]
    pub force: bool,
    /// Threads that answer the kernel
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=64))]
    pub threads: u8,
    /// Say on standard output when the mount answers, then keep quiet
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Take the mount away when standard input has ended and nobody uses the image
    #[arg(long, hide = true)]
    pub while_used: bool,
    /// It is a cache, of the directory that is reached there
    #[arg(long, hide = true, value_name = "DIR")]
    pub below: Option<PathBuf>,
    /// When fsync returns: backend, image, journal
    #[arg(long, hide = true, default_value = "backend")]
    pub sync: String,
    /// Who has started this, and is no user of the image
    #[arg(long, hide = true)]
    pub session: Option<u32>,
}

impl Mount {
    /// The last word on whether anything can be changed.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().rfind(|option| ["ro", "rw"].contains(&option.as_str())).is_some_and(|option| option == "ro")
    }

    /// How the image is attached.
    pub fn how(&self) -> How {
        let atomic = self.options.iter().rev().find_map(|option| option.strip_prefix("atomic="));
        How {
            // A cache is filled all the same.
            read_only: self.is_read_only() && self.below.is_none(),
            atomic: atomic.and_then(|name| Atomic::from_name(name.as_bytes())),
            ..How::default()
        }
    }
}

#[derive(clap::Args)]
pub struct Run {
    /// What is seen where; may be given several times, and one inside another
    #[arg(long = "mount", short = 'm', value_name = "SPEC:/DIR[,OPTION…]", long_help = known::help())]
    pub mounts: Vec<OsString>,
    /// A file that lists mounts: [[mount]] with source = "SPEC", at = "/DIR", options = ["ro", …]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Use the image although another machine is recorded as its user: only if that machine is down
    #[arg(long)]
    pub force: bool,
    /// Do not create a FUSE mount
    #[arg(long)]
    pub no_fuse: bool,
    /// Leave what is not written back yet in the caches (cache=IMG): the next session, or bypath cache drain, writes it back
    #[arg(long)]
    pub leave: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(clap::Args)]
pub struct Enter {
    /// The number of its `bypath run` or of one of its programs, its image, or its mount point
    pub session: Option<OsString>,
    /// Show the sessions there are
    #[arg(long)]
    pub list: bool,
    /// As JSON: an array
    #[arg(long, requires = "list")]
    pub json: bool,
    /// The program and its arguments; a shell
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

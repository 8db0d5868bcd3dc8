//! `bench …`.

use clap::Subcommand;
use std::ffi::OsString;

#[derive(clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    pub what: BenchWhat,
}

#[derive(Subcommand)]
pub enum BenchWhat {
    /// Time single calls, beside the kernel's file systems
    #[command(disable_help_flag = true)]
    Micro {
        /// Options: see `bypath bench micro --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// A FUSE file system by the kernel, by our channel and in process
    #[command(disable_help_flag = true)]
    Directfuse {
        /// Options: see `bypath bench directfuse --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Filebench's loads, as MeLo@V compares them: with syncs and without, on images with undo and replay
    #[command(disable_help_flag = true)]
    Melo {
        /// Options: see `bypath bench melo --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Calls one by one and at once, small files, filebench: an image beside the kernel's file systems, as DirectFS compares them
    #[command(disable_help_flag = true)]
    Directfs {
        /// Options: see `bypath bench directfs --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Lines of memory that calls touch, and by which functions; code between calls; inodes; `grep`: as DenseFS looks at them
    #[command(disable_help_flag = true)]
    Densefs {
        /// Options: see `bypath bench densefs --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// All figures of the five papers, beside the papers' numbers: tables and one page
    #[command(disable_help_flag = true)]
    Figures {
        /// Options: see `bypath bench figures --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
    /// Calls and programs on an image behind the caches that ByVFS compares, beside the kernel's file systems
    #[command(disable_help_flag = true)]
    Byvfs {
        /// Options: see `bypath bench byvfs --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<OsString>,
    },
}

//! What may be asked of `testkit`.

use base::Atomic;
use bypath_testkit::crash::sequences::Share;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Tests of the whole: what each must show is in crates/testkit/README.md
#[derive(Parser, Debug)]
#[command(name = "testkit", disable_version_flag = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub test: Test,
}

#[derive(Subcommand, Debug)]
pub enum Test {
    /// Random calls, beside the kernel's on tmpfs
    Differential(Differential),
    /// Several processes at random in one tree
    Random {
        #[arg(long, default_value_t = 4)]
        processes: u64,
        #[arg(long, default_value_t = 200_000)]
        ops: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Records appended by several processes
    Append {
        #[arg(long, default_value_t = 4)]
        processes: u64,
        #[arg(long, default_value_t = 100_000)]
        records: u64,
    },
    /// What one process does, another sees with its next call
    Visible {
        #[arg(long, default_value_t = 2000)]
        rounds: u64,
    },
    /// Processes stopped at random instants
    Stops {
        #[arg(long, default_value_t = 1000)]
        stops: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Processes killed at random instants
    Storm(Storm),
    /// Programs and FUSE daemons killed at random
    Daemons(Daemons),
    /// Random damage, repaired
    Damage {
        #[arg(long, default_value_t = 10_000)]
        images: u64,
        /// The first one's number
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Ends after so many; 0: when all is done
        #[arg(long, default_value_t = 0)]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Single bits of metadata turned
    Flips {
        #[arg(long, default_value_t = 1_000_000)]
        count: u64,
        /// Ends after so many; 0: when all is done
        #[arg(long, default_value_t = 0)]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// A directory of very many entries
    Flat {
        #[arg(long, default_value_t = 1_000_000)]
        entries: u64,
    },
    /// All users of an image killed at once
    Deaths {
        #[arg(long, default_value_t = 2000)]
        rounds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// What the dead held comes back
    Held {
        #[arg(long, default_value_t = 1000)]
        rounds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Attaching an image after all its users were killed
    Recover {
        #[arg(long, default_value_t = 1_000_000)]
        files: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// What crashes leave of sequences of operations
    Crash(Crash),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Backend {
    Mem,
    Native,
    Host,
    /// A cache image in front of a directory, with rounds between the calls
    Cached,
    /// The same, with rounds all the time: what fails may not fail again
    CachedBusy,
    /// The daemon of the `bypath run` around this call
    Wire,
    /// A kernel mount of an image, at --directory
    Mount,
}

#[derive(Args, Debug)]
pub struct Differential {
    #[arg(long, value_enum, default_value_t = Backend::Mem)]
    pub backend: Backend,
    /// Another one like it is mounted inside it
    #[arg(long)]
    pub nested: bool,
    /// Where the image is mounted; it is emptied
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Calls in all
    #[arg(long, default_value_t = 20_000)]
    pub ops: u64,
    /// Calls of one sequence
    #[arg(long, default_value_t = 400)]
    pub len: usize,
    /// The first sequence
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Processes at a time
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
}

#[derive(Args, Debug)]
pub struct Storm {
    #[arg(long, default_value_t = 10_000)]
    pub kills: u64,
    /// Where processes are interrupted is drawn at random
    #[arg(long)]
    pub restless: bool,
    /// Cachelets of the segment; 0: as many as ever
    #[arg(long, default_value_t = 0)]
    pub cachelets: u32,
    /// Overwrites too, whole or not at all
    #[arg(long, value_name = "undo|replay", value_parser = atomic)]
    pub atomic: Option<Atomic>,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args, Debug)]
pub struct Daemons {
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Default: beside this program
    #[arg(long, value_name = "PROGRAM")]
    pub bypath: Option<PathBuf>,
    /// In the session: it starts so many programs
    #[arg(long, hide = true)]
    pub clients: Option<u64>,
    /// It is the one with this number, ...
    #[arg(long, hide = true)]
    pub client: Option<u64>,
    /// ... for so long
    #[arg(long, hide = true, default_value_t = 1000)]
    pub millis: u64,
}

#[derive(Args, Debug)]
pub struct Crash {
    /// Longest sequence
    #[arg(long, default_value_t = 2)]
    pub depth: usize,
    /// Shortest sequence; single operations are always tried
    #[arg(long, default_value_t = 1)]
    pub shortest: usize,
    /// Of the longest sequences, or of the mutants, one in how many
    #[arg(long, default_value_t = 1)]
    pub every: u64,
    /// Runs of two threads or processes
    #[arg(long, default_value_t = 400)]
    pub pairs: u64,
    /// Processes
    #[arg(long, default_value_t = 2)]
    pub jobs: u64,
    /// Begins nothing more after so many; 0: goes on to the end
    #[arg(long, default_value_t = 0)]
    pub seconds: u64,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Of states alike to one found right, one in how many is tried all the same; 0: each
    #[arg(long, default_value_t = 0)]
    pub alike: u64,
    /// A part: 3/40 is the third of forty
    #[arg(long, value_name = "K/N", default_value = "1/1", value_parser = share)]
    pub part: Share,
    /// With --journal: in so many parts
    #[arg(long, default_value_t = 40)]
    pub parts: u64,
    /// All parts that this file does not have yet; each is put there when it is done
    #[arg(long, value_name = "FILE")]
    pub journal: Option<String>,
    /// Instead: ordered persists per operation
    #[arg(long)]
    pub persists: bool,
    /// Instead: flushes, fences and orders left out in turn, each of which must be noticed
    #[arg(long)]
    pub mutants: bool,
    /// With --mutants: of ordered pairs one in how many (default: --every)
    #[arg(long)]
    pub every_pair: Option<u64>,
    /// With --mutants: of one medium alone (power, whole, kill)
    #[arg(long)]
    pub media: Option<String>,
    /// Instead: crashes of the system, the image in the page cache
    #[arg(long)]
    pub pages: bool,
    /// With --pages: states at one crash point
    #[arg(long, default_value_t = 200)]
    pub cap: usize,
    /// Instead: one state again
    #[arg(long, value_name = "STATE")]
    pub replay: Option<String>,
    /// Instead: all states of a file
    #[arg(long, value_name = "FILE")]
    pub regressions: Option<String>,
    /// A process of the explorer's own
    #[arg(long, hide = true, num_args = 9)]
    pub worker: Vec<u64>,
}

fn atomic(text: &str) -> Result<Atomic, String> {
    Atomic::from_name(text.as_bytes()).ok_or_else(|| "there are undo and replay".into())
}

fn share(text: &str) -> Result<Share, String> {
    Share::parse(text).ok_or_else(|| "not a part; 3/40 is the third of forty".into())
}

//! `bypath bench directfuse`: the figures of Direct-FUSE on today's machine. One
//! file system, `passing.c`, by every way that leads to it: through the kernel's
//! FUSE, through our channel to the same daemon, as a library in process; and the
//! directory behind it, by the kernel alone.
//!
//! | file | |
//! |---|---|
//! | `passing.c` | the file system: daemon and library from one source |
//! | `way.rs` | the ways to it: started, mounted, taken away |
//! | `worker.rs` | a process that does the work, on command |
//! | `rounds.rs` | every job by every way in turn |
//! | `leavings.rs` | nothing is left in directories for everybody |
//! | `line.rs` | a line of memory there and back: the floor |
//! | `report.rs`, `plot.rs` | Markdown, CSV, SVG |
//! | `distributed/` | the figure over a cluster |

mod distributed;
mod leavings;
mod line;
mod plot;
mod report;
mod rounds;
mod way;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;

/// `bypath bench directfuse`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench directfuse",
    about = "A FUSE file system by the kernel, by our channel and in process: bandwidth, latency, context switches (needs cc and libfuse3-dev)",
    disable_version_flag = true
)]
struct Options {
    /// Directories to put files in, each a medium (default: /dev/shm and the directory for temporary files)
    #[arg(long = "in", value_name = "DIR")]
    media: Vec<PathBuf>,
    /// Writes all results as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draws the bandwidths
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Rounds that count; of bandwidth three times as many
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// One round of little work
    #[arg(long)]
    quick: bool,
    /// Another figure than the paper's single machine: `distributed`, many clients of a CephFS cluster (needs ceph)
    #[arg(long, value_name = "NAME", value_parser = ["distributed"])]
    figure: Option<String>,
}

/// Runs the benchmark with its command-line arguments; returns the exit code. Starts the
/// program itself again (`bypath run`, `bypath bench directfuse --worker …`).
pub fn directfuse(args: &[OsString]) -> Result<u8, String> {
    if let [worker, node, point] = args
        && worker == "--worker"
        && node == "node"
    {
        return distributed::node::serve(point).map(|()| 0);
    }
    if args.first().is_some_and(|a| a == "--worker") {
        return worker::serve(&args[1..]).map(|()| 0);
    }
    let all = std::iter::once(OsString::from("bypath bench directfuse")).chain(args.iter().cloned());
    let mut options = match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return Ok(error.exit_code() as u8);
        }
    };
    if options.media.is_empty() {
        options.media = vec!["/dev/shm".into(), std::env::temp_dir()];
    }
    leavings::watch_signals();
    if options.figure.is_some() {
        return distributed::run(&options);
    }
    let results = rounds::run(&options)?;
    report::print(&results);
    if let Some(path) = &options.csv {
        std::fs::write(path, report::csv(&results)).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if let Some(path) = &options.plot {
        plot::draw(&results, path)?;
    }
    if results.same_work() { Ok(0) } else { Err("the ways did not do the same work: see the checksums".into()) }
}

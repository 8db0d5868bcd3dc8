//! What single calls cost: in time, beside the kernel ([`micro`], [`directfuse()`], [`byvfs`], [`directfs`], [`densefs`], [`melo`]); in
//! instructions and cache lines, against budgets ([`budget`]).
//!
//! | file | |
//! |---|---|
//! | `calls.rs` | the calls, through libc and through the C API |
//! | `work.rs` | what is timed |
//! | `worker.rs` | a process that does it, on command |
//! | `run.rs` | the rounds |
//! | `report.rs`, `plot.rs` | table, JSON, SVG |
//! | `figure.rs`, `stage.rs` | a paper's figures as tables, CSV, JSON, SVG; directories of the kernel's |
//! | `directfuse/` | FUSE file systems by every way |
//! | `byvfs/` | an image behind the caches that ByVFS compares |
//! | `directfs/` | an image beside the kernel's file systems, as DirectFS compares them |
//! | `densefs/` | lines that calls touch, by whom; code between calls; inodes; misses of `grep` |
//! | `figures/` | all papers' figures, and the page beside their numbers |
//! | `melo/` | filebench's loads, and overwrites that are whole, as MeLo@V compares them |

pub mod budget;
pub mod byvfs;
mod calls;
pub mod densefs;
pub mod directfs;
mod directfuse;
mod figure;
pub mod figures;
pub mod melo;
mod picture;
mod plot;
mod report;
mod run;
mod stage;
mod work;
mod worker;

pub use directfuse::directfuse;

use std::ffi::OsString;
use std::path::PathBuf;

/// `bypath bench micro`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench micro",
    about = "Times single calls: Bypath beside directories of the kernel's",
    disable_version_flag = true
)]
struct Options {
    /// A directory of the kernel's to compare with (default: a fresh one on /dev/shm)
    #[arg(long, value_name = "DIR")]
    against: Vec<PathBuf>,
    /// Writes all results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws the ratios
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Few rounds and small directories
    #[arg(long)]
    quick: bool,
    /// Directory for the image
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    image_dir: PathBuf,
    /// Only calls whose name holds this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Entries of the directory that is listed
    #[arg(long, value_name = "N")]
    entries: Option<usize>,
}

/// Runs the micro benchmark with its command-line arguments (without the
/// program's name); returns the exit code. Starts itself again as worker
/// processes (`--worker …`), so the program must pass these arguments on
/// unchanged: `words` are what led here, such as `["bench", "micro"]`.
pub fn micro(words: &[&str], args: &[OsString]) -> Result<u8, String> {
    if args.first().is_some_and(|a| a == "--worker") {
        return worker::serve(&args[1..]).map(|()| 0);
    }
    let all = std::iter::once(OsString::from("bypath bench micro")).chain(args.iter().cloned());
    let options = match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return Ok(error.exit_code() as u8);
        }
    };
    let results = run::run(words, &options)?;
    report::print(&results);
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&results).map_err(|e| e.to_string())?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if let Some(path) = &options.plot {
        plot::draw(&results, path)?;
    }
    if results.same_work() { Ok(0) } else { Err("the targets did not do the same work: see the checksums".into()) }
}

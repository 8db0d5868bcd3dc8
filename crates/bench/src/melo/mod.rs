//! `bypath bench melo`: what MeLo@V compares, on today's machine. Filebench's loads on a file system of the kernel's, on the
//! same without syncs, and on an image whose overwrites are in place, can be undone, or are made again; and overwrites alone.
//!
//! | file | |
//! |---|---|
//! | `load.rs` | the loads, by their published definitions |
//! | `media.rs` | directory, loop devices, images |
//! | `way.rs` | how files there are called |
//! | `rounds.rs` | every load by every way in turn |
//! | `report.rs`, `plot.rs` | Markdown, CSV, SVG |

mod load;
mod media;
mod plot;
mod report;
mod rounds;
mod way;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use rounds::speeds;

/// `bypath bench melo`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench melo",
    about = "Filebench's loads on the kernel's file systems, with syncs and without, and on images with undo and replay",
    disable_version_flag = true
)]
struct Options {
    /// Directory on the kernel's file system to compare with
    #[arg(long = "in", value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// Directory for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    image_dir: PathBuf,
    /// Writes all results as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draws the loads
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Of the files of fileserver and webproxy one in how many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    scale: u16,
    /// Threads of each load, in place of as many as it is defined with
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Rounds that count
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only loads whose name holds this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// One short round
    #[arg(long)]
    quick: bool,
}

/// Runs the benchmark with its command-line arguments; returns the exit code.
pub fn melo(args: &[OsString]) -> Result<u8, String> {
    let all = std::iter::once(OsString::from("bypath bench melo")).chain(args.iter().cloned());
    let options = match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return Ok(error.exit_code() as u8);
        }
    };
    let results = rounds::run(&options)?;
    print!("{}", report::table(&results));
    if let Some(path) = &options.csv {
        std::fs::write(path, report::csv(&results)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &options.plot {
        plot::draw(&results, path)?;
    }
    Ok(0)
}

//! `bypath bench densefs`: what DenseFS looks at, on today's machine. Which lines of code and data a call touches, by which functions;
//! what calls do to a program's own code between them; how large inodes are; what `grep` misses in the first-level cache.
//!
//! | file | |
//! |---|---|
//! | `trace.rs` | single calls: an image's under lackey, the kernel's from a virtual machine (`demo/vm/run.sh`) |
//! | `stacks.rs` | the calls that led to each access |
//! | `names.rs` | functions by address |
//! | `map.rs` | cachemaps: a row a line, a cell a byte |
//! | `flame.rs` | flame graphs of the code's lines by function and by part |
//! | `think.rs` | made code of a chosen size between calls, and how much slower calls make it |
//! | `inode.rs` | inodes' bytes |
//! | `pictures.rs` | pictures and a page of them that answers clicks |

mod flame;
mod grep;
mod inode;
mod map;
mod names;
mod pictures;
mod stacks;
mod think;
mod trace;

use crate::figure::{Figure, Output, Places, Report};
use std::ffi::OsString;
use std::path::PathBuf;
use trace::{Traced, median};

/// The figures that there are.
const FIGURES: [&str; 6] = ["lines", "1", "2", "4", "inode", "grep"];

/// `bypath bench densefs`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench densefs",
    about = "DenseFS's figures: lines a call, cachemaps (1, 3), cgstack flame graphs (2), think time (4), inode, grep",
    disable_version_flag = true
)]
struct Options {
    #[command(flatten)]
    places: Places,
    /// What `demo/vm/run.sh DIR` has written: calls of the kernel's file systems
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Writes cachemaps and flame graphs into a page that answers clicks
    #[arg(long, value_name = "FILE.html")]
    page: Option<PathBuf>,
    /// Writes cachemaps and flame graphs as pictures
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// What single calls cost: distinct lines of code and of data, and instructions.
fn tables(traced: &[Traced]) -> [Figure; 2] {
    let mut places: Vec<&str> = Vec::new();
    let mut calls: Vec<&str> = Vec::new();
    for one in traced {
        if !places.contains(&one.place.as_str()) {
            places.push(&one.place);
        }
        if !calls.contains(&one.call.as_str()) {
            calls.push(&one.call);
        }
    }
    let columns: Vec<String> = places.iter().flat_map(|place| [format!("{place}, code"), format!("{place}, data")]).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut lines = Figure::new("lines", "distinct lines of 64 bytes that one warm call touches", "lines", &columns).paper(
        "creat touches 70 lines of code and 55 of data in DenseFS after compaction (figure 3); xfs, ext4, btrfs, f2fs, tmpfs several \
         hundred of code, half as many of data.",
    );
    let mut instructions = Figure::new("lines", "instructions of one warm call", "instructions", &places)
        .paper("not given by DenseFS; DirectFS's table of ext4-dax is in time, which a translated machine cannot tell.");
    for call in calls {
        let of = |place: &str| median(traced, place, call);
        let both = places.iter().flat_map(|place| of(place).map_or([None, None], |cost| cost.lines.map(|n| Some(n as f64))));
        lines.row(call, both.collect());
        instructions.row(call, places.iter().map(|place| of(place).map(|cost| cost.instructions as f64)).collect());
    }
    [lines, instructions]
}

/// DirectFS's calls beside ext4-dax: instructions and lines of an image's calls and of the kernel's.
pub(crate) fn dax(words: &[&str], traces: &std::path::Path) -> Result<Figure, String> {
    let traced: Vec<Traced> = trace::of_image(words)?.into_iter().chain(trace::read(traces)?.calls).collect();
    let columns = ["image", "ext4-dax", "tmpfs", "image, lines", "ext4-dax, lines", "tmpfs, lines"];
    let mut figure = Figure::new(
        "dax",
        "one warm call beside ext4-dax, in a virtual machine",
        "instructions; lines of code and data",
        &columns,
    )
    .paper("stat as fast as ext4-dax with warm caches; create, rename, delete 47 % less time.");
    for call in ["stat", "create+close", "rename", "unlink", "pread 4 KiB", "overwrite 4 KiB", "append 4 KiB"] {
        let costs = ["image", "ext4-dax", "tmpfs"].map(|place| median(&traced, place, call));
        let instructions = costs.iter().map(|cost| cost.map(|cost| cost.instructions as f64));
        let lines = costs.iter().map(|cost| cost.map(|cost| (cost.lines[0] + cost.lines[1]) as f64));
        figure.row(call, instructions.chain(lines).collect());
    }
    Ok(figure)
}

fn run(words: &[&str], options: &Options) -> Result<Report, String> {
    options.output.check(&FIGURES)?;
    let mut report = Report::new("DenseFS");
    let wants = |figure: &str| options.output.wants(figure);
    let kernel = match &options.traces {
        Some(dir) => Some(trace::read(dir)?),
        None => {
            report.left_out.push(
                "calls and `grep` of tmpfs, ext4, xfs, btrfs, f2fs, ext4-dax: --traces names none; `demo/vm/run.sh` makes them"
                    .into(),
            );
            None
        }
    };
    let pictures = options.page.is_some() || options.pictures.is_some();
    if wants("lines") || (pictures && (wants("1") || wants("2"))) {
        let mut traced = match trace::of_image(words) {
            Ok(traced) => traced,
            Err(why) => {
                report.left_out.push(format!("calls of an image: {why}"));
                Vec::new()
            }
        };
        traced.extend(kernel.iter().flat_map(|kernel| kernel.calls.iter().cloned()));
        if wants("lines") {
            report.figures.extend(tables(&traced));
        }
        pictures::write(&traced, kernel.as_ref().map(|kernel| &kernel.names), options)?;
    }
    if wants("4") {
        match think::figure(options) {
            Ok(figures) => report.figures.extend(figures),
            Err(why) => report.left_out.push(format!("think time: {why}")),
        }
    }
    if wants("inode") {
        report.figures.push(inode::figure());
    }
    if wants("grep") {
        grep::figures(kernel.as_ref(), options.output.quick, &mut report);
    }
    Ok(report)
}

/// Runs the benchmark with its command-line arguments; returns the exit code. Starts the program itself again with `words`, which
/// have led here, and `--worker`.
pub fn densefs(words: &[&str], args: &[OsString]) -> Result<u8, String> {
    if args.first().is_some_and(|a| a == "--worker") {
        let args: Vec<String> = args[1..].iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        return crate::budget::serve(&args).map(|()| 0);
    }
    let all = std::iter::once(OsString::from("bypath bench densefs")).chain(args.iter().cloned());
    match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => run(words, &options)?.deliver(&options.output).map(|()| 0),
        Err(error) => {
            let _ = error.print();
            Ok(error.exit_code() as u8)
        }
    }
}

//! `bypath bench directfs`: the figures of DirectFS on today's machine: an image by the C API beside the kernel's file systems.
//!
//! | file | |
//! |---|---|
//! | `single.rs` | stat, create, rename, delete, cold and warm; small files |
//! | `scaling.rs` | threads and processes, in one directory and in many; filebench's loads |
//! | `shared.rs` | lines of memory that calls of two threads both write |
//! | `caches.rs` | what these lines cost n processors, simulated |

mod caches;
mod scaling;
mod shared;
mod single;

use crate::calls::{Api, Calls, Libc, text};
use crate::figure::{Output, Places, Report};
use crate::stage::{Directory, drop_dentries, kind_of, make_image};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The figures that there are.
const FIGURES: [&str; 7] = ["78", "dax", "scaling", "shared", "caches", "small", "filebench"];

/// `bypath bench directfs`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench directfs",
    about = "DirectFS's figures 78 (single calls), dax, scaling, shared, caches, small and filebench: an image beside the kernel's file systems",
    disable_version_flag = true
)]
struct Options {
    #[command(flatten)]
    places: Places,
    /// Rounds that count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// What `demo/vm/run.sh DIR` has written, for ext4-dax
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// A file system, and where on it files are put.
enum Way {
    /// An image, by the C API; mounted when it is [opened](Way::open).
    Image(PathBuf),
    /// A directory of the kernel's.
    Kernel(PathBuf),
}

impl Way {
    /// Calls on it, with relative paths.
    fn open(&self) -> Result<Box<dyn Calls>, String> {
        match self {
            Way::Image(image) => Ok(Box::new(Api::open(&text(image.display().to_string()))?)),
            Way::Kernel(dir) => {
                std::env::set_current_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
                Ok(Box::new(Libc))
            }
        }
    }

    /// As the words of a worker's command line.
    fn words(&self) -> [String; 2] {
        match self {
            Way::Image(path) => ["image".into(), path.display().to_string()],
            Way::Kernel(path) => ["kernel".into(), path.display().to_string()],
        }
    }

    fn of_words(kind: &str, path: &str) -> Way {
        if kind == "image" { Way::Image(path.into()) } else { Way::Kernel(path.into()) }
    }
}

/// Where everything is.
struct Stage {
    names: Vec<String>,
    ways: Vec<Way>,
    directories: Vec<Directory>,
    drops: bool,
    home: PathBuf,
}

impl Stage {
    fn new(options: &Options, report: &mut Report) -> Result<Stage, String> {
        let home = std::env::current_dir().map_err(|e| e.to_string())?;
        let directories = [&options.places.image_dir, &options.places.image_dir, &options.places.directory];
        let directories = directories.iter().zip(["directfs-image", "directfs", "directfs-2"]);
        let made: Vec<Directory> = directories.map(|(dir, name)| Directory::new(dir, name)).collect::<Result<_, _>>()?;
        let image = made[0].0.join("image");
        make_image(&image, 8 << 30)?;
        let ways = vec![Way::Image(image), Way::Kernel(made[1].0.clone()), Way::Kernel(made[2].0.clone())];
        let names = vec!["image".into(), kind_of(&made[1].0), kind_of(&made[2].0)];
        let drops = !options.output.quick && drop_dentries().is_ok();
        if !drops && options.output.wants("78") {
            let why = if options.output.quick { "not with --quick" } else { "only root may drop the kernel's caches" };
            report.left_out.push(format!("cold calls on {}: {why}", names[2]));
        }
        Ok(Stage { names, ways, directories: made, drops, home })
    }

    fn columns(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn image(&self) -> &Path {
        let (Way::Image(path) | Way::Kernel(path)) = &self.ways[0];
        path
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::env::set_current_dir(&self.home);
    }
}

/// How much is done.
#[derive(Clone, Copy)]
enum Rounds {
    /// One round of little work.
    Quick,
    /// So many.
    Whole(usize),
}

impl Rounds {
    /// Work of a round, of the two that are given, and how many rounds.
    fn of<T>(self, quick: T, whole: T) -> (T, usize) {
        match self {
            Rounds::Quick => (quick, 1),
            Rounds::Whole(rounds) => (whole, rounds),
        }
    }
}

fn good(result: i32) -> i32 {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

fn done(result: i32) {
    good(result);
}

fn run(words: &[&str], options: &Options) -> Result<Report, String> {
    options.output.check(&FIGURES)?;
    let mut report = Report::new("DirectFS");
    let stage = Stage::new(options, &mut report)?;
    let rounds = if options.output.quick { Rounds::Quick } else { Rounds::Whole(options.rounds.into()) };
    let wants = |figure: &str| options.output.wants(figure);
    if wants("78") {
        report.figures.push(single::calls(&stage, rounds)?);
    }
    if wants("small") {
        report.figures.extend(single::small(&stage, rounds)?);
    }
    if wants("scaling") {
        report.figures.push(scaling::calls(&stage, words, rounds)?);
    }
    if wants("shared") || wants("caches") {
        match shared::lines(&stage, words) {
            Ok(figures) => report.figures.extend(figures.into_iter().filter(|figure| wants(figure.figure))),
            Err(why) => report.left_out.push(format!("lines that two threads write: {why}")),
        }
    }
    if wants("filebench") {
        report.figures.push(scaling::filebench(&stage, rounds)?);
    }
    if wants("dax") {
        match &options.traces {
            Some(dir) => report.figures.push(crate::densefs::dax(words, dir)?),
            None => report.left_out.push("ext4-dax: --traces names no directory; `demo/vm/run.sh` makes one".into()),
        }
    }
    report.left_out.push("NOVA: no kernel of today has it".into());
    Ok(report)
}

/// Runs the benchmark with its command-line arguments; returns the exit code. Starts the program itself again with `words`, which
/// have led here, and `--worker`.
pub fn directfs(words: &[&str], args: &[OsString]) -> Result<u8, String> {
    if args.first().is_some_and(|a| a == "--worker") {
        let args: Vec<String> = args[1..].iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        return match words[..] {
            ["lines", image] => shared::serve(image),
            ["lackey", "few", _] => crate::budget::serve(&args),
            ["scaling", kind, path, who, n, many] => scaling::serve(&Way::of_words(kind, path), who, n, many == "many"),
            _ => Err(format!("worker: {args:?}")),
        }
        .map(|()| 0);
    }
    let all = std::iter::once(OsString::from("bypath bench directfs")).chain(args.iter().cloned());
    match <Options as clap::Parser>::try_parse_from(all) {
        Ok(mut options) => {
            let here = std::env::current_dir().map_err(|e| format!("the working directory: {e}"))?;
            options.traces = options.traces.map(|traces| here.join(traces));
            let report = run(words, &options)?;
            // Calls of the kernel's ways were made in directories of their own.
            std::env::set_current_dir(&here).map_err(|e| format!("{}: {e}", here.display()))?;
            report.deliver(&options.output).map(|()| 0)
        }
        Err(error) => {
            let _ = error.print();
            Ok(error.exit_code() as u8)
        }
    }
}

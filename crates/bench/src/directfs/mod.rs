//! `bypath bench directfs`: the figures of DirectFS on today's machine: an image by the C API beside the kernel's file systems.
//!
//! | file | |
//! |---|---|
//! | `single.rs` | stat, create, rename, delete, cold and warm; small files |
//! | `scaling.rs` | threads and processes, in one directory and in many; filebench's loads |
//! | `shared.rs` | lines of memory that calls of two threads both write |

mod scaling;
mod shared;
mod single;

use crate::calls::{Api, Calls, Libc, text};
use crate::figure::{Output, Report};
use crate::stage::{Directory, drop_dentries, kind_of};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The figures that there are.
const FIGURES: [&str; 5] = ["78", "scaling", "shared", "small", "filebench"];

/// `bypath bench directfs`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench directfs",
    about = "DirectFS's figures 78 (single calls), scaling, shared, small and filebench: an image beside the kernel's file systems",
    disable_version_flag = true
)]
struct Options {
    /// Directory for the image, and of the first file system to compare with
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    image_dir: PathBuf,
    /// Directory of the second one
    #[arg(long = "in", value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
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
        let directories = [&options.image_dir, &options.image_dir, &options.directory];
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

fn make_image(path: &Path, limit: u64) -> Result<(), String> {
    let text = format!("{}\0", path.display());
    let options = engine::mkfs::Options { limit, force: true, ..Default::default() };
    engine::mkfs::make(text.as_bytes(), &options).map_err(|error| format!("{}: {error}", path.display()))
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
    let quick = options.output.quick;
    let wants = |figure: &str| options.output.wants(figure);
    if wants("78") {
        report.figures.push(single::calls(&stage, quick)?);
    }
    if wants("small") {
        report.figures.extend(single::small(&stage, quick)?);
    }
    if wants("scaling") {
        report.figures.push(scaling::calls(&stage, words, quick)?);
    }
    if wants("shared") {
        match shared::lines(&stage, words) {
            Ok(figure) => report.figures.push(figure),
            Err(why) => report.left_out.push(format!("lines that two threads write: {why}")),
        }
    }
    if wants("filebench") {
        report.figures.push(scaling::filebench(&stage, quick)?);
    }
    report.left_out.push("ext4-dax and NOVA: they need a kernel with memory for them (a virtual machine)".into());
    Ok(report)
}

/// Runs the benchmark with its command-line arguments; returns the exit code. Starts the program itself again with `words`, which
/// have led here, and `--worker`.
pub fn directfs(words: &[&str], args: &[OsString]) -> Result<u8, String> {
    if args.first().is_some_and(|a| a == "--worker") {
        let args: Vec<String> = args[1..].iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        return match args[..] {
            ["lines", image] => shared::serve(image),
            ["scaling", kind, path, who, n, many] => scaling::serve(&Way::of_words(kind, path), who, n, many == "many"),
            _ => Err(format!("worker: {args:?}")),
        }
        .map(|()| 0);
    }
    let all = std::iter::once(OsString::from("bypath bench directfs")).chain(args.iter().cloned());
    match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => run(words, &options)?.deliver(&options.output).map(|()| 0),
        Err(error) => {
            let _ = error.print();
            Ok(error.exit_code() as u8)
        }
    }
}

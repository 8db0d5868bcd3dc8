//! The five programs themselves, warm, on an image by the preload library and in directories of the kernel's. Behind the caches that
//! ByVFS compares no program can run: they are no mounts.

use super::place::Place;
use super::tree::{PROGRAMS, Tree};
use crate::figure::Figure;
use crate::stage::{Directory, kind_of, make_image};
use std::path::Path;
use std::process::Command;

/// Runs in the directory `$1` on a copy of the tree `$2`; says the nanoseconds of each program.
const SCRIPT: &str = r#"
t() { a=$(date +%s%N); "$@" >/dev/null || exit 1; b=$(date +%s%N); echo "$1 $((b - a))"; }
cd "$1" && cp -r "$2" tree && du -s tree >/dev/null || exit 1
i=0
while [ $i -lt "$3" ]; do
    t find tree -name nothing; t du -s tree; t ls -lR tree; t cp -r tree copy; t rm -rf copy
    i=$((i + 1))
done
rm -rf tree
"#;

/// The least milliseconds of each program, in the order of [`PROGRAMS`].
fn run(mut command: Command, dir: &Path, tree: &Path, rounds: usize) -> Result<Vec<Option<f64>>, String> {
    command.args(["sh", "-c", SCRIPT, "sh"]).arg(dir).arg(tree).arg(rounds.to_string());
    let output = command.output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    if !output.status.success() {
        return Err(format!("programs in {}: {}", dir.display(), String::from_utf8_lossy(&output.stderr)));
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |program: &&str| {
        let lines = printed.lines().filter_map(|line| line.strip_prefix(*program)?.trim().parse::<f64>().ok());
        lines.reduce(f64::min).map(|ns| ns / 1e6)
    };
    Ok(PROGRAMS.iter().map(of).collect())
}

/// The figure.
pub fn programs(places: &crate::figure::Places, tree: &Tree, rounds: usize) -> Result<Figure, String> {
    let first = Directory::new(&places.image_dir, "programs")?;
    let second = Directory::new(&places.directory, "programs-2")?;
    let (image, point, source) = (first.0.join("image"), first.0.join("point"), first.0.join("source"));
    make_image(&image, 4 << 30)?;
    for dir in [&point, &first.0.join("inner")] {
        std::fs::create_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let here = std::env::current_dir().map_err(|e| e.to_string())?;
    let kernel = Place::Kernel(first.0.clone());
    kernel.enter()?;
    tree.run(&kernel, "cp", c"source");
    std::env::set_current_dir(here).map_err(|e| e.to_string())?;
    let mut ours = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    let mount = [image.as_os_str(), ":".as_ref(), point.as_os_str()].join("".as_ref());
    ours.args(["run", "--mount"]).arg(mount).arg("--");
    let columns = ["image".to_string(), kind_of(&first.0), kind_of(&second.0)];
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let all = [
        run(ours, &point, &source, rounds)?,
        run(Command::new("env"), &first.0.join("inner"), &source, rounds)?,
        run(Command::new("env"), &second.0, &source, rounds)?,
    ];
    let title = format!("the programs themselves, warm, on a tree of {} entries, the least of {rounds} rounds", tree.len());
    let mut figure = Figure::new("programs", title, "ms", &columns)
        .paper("ByVFS takes 26.9/11.6/21.4 % less for du/find/rm, for ls and cp 6.4 and 3.8 % more.");
    for (row, program) in PROGRAMS.iter().enumerate() {
        figure.row(*program, all.iter().map(|times| times[row]).collect());
    }
    Ok(figure)
}

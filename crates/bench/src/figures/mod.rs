//! `bypath bench figures`: all figures of the five papers, one after the other, and one page that shows them beside the papers' numbers.
//!
//! | file | |
//! |---|---|
//! | `papers.toml` | each figure: what the paper says, what is the same here, what differs, why |
//! | `page.rs` | the page |

mod page;

use crate::figure::Places;
use serde::Deserialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `bypath bench figures`.
#[derive(clap::Parser, Debug)]
#[command(
    name = "bypath bench figures",
    about = "All figures of the five papers, beside the papers' numbers: tables, CSV, SVG and one page",
    disable_version_flag = true
)]
struct Options {
    #[command(flatten)]
    places: Places,
    /// Where tables and the page go
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    out: PathBuf,
    /// What `demo/vm/run.sh DIR` has written: calls of the kernel's file systems
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// One round of little work: shows that all of it runs
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// The papers' sizes, all rounds
    #[arg(long)]
    full: bool,
    /// Only this paper
    #[arg(long, value_name = "PAPER")]
    only: Vec<String>,
}

/// A paper's benchmark: what it is told, and about how many minutes it takes.
struct Paper {
    name: &'static str,
    title: &'static str,
    usual: &'static [&'static str],
    full: &'static [&'static str],
    minutes: [f64; 2],
    memory_mib: u64,
}

const PAPERS: [Paper; 5] = [
    Paper {
        name: "byvfs",
        title: "ByVFS: Caching or Not",
        usual: &["--files", "10000", "--entries", "3000"],
        full: &[],
        minutes: [2.0, 15.0],
        memory_mib: 1500,
    },
    Paper { name: "directfs", title: "DirectFS", usual: &["--rounds", "1"], full: &[], minutes: [4.0, 20.0], memory_mib: 2500 },
    Paper { name: "densefs", title: "DenseFS", usual: &[], full: &[], minutes: [1.5, 1.5], memory_mib: 2000 },
    Paper {
        name: "melo",
        title: "MeLo@V",
        usual: &["--threads", "1", "--rounds", "2", "--scale", "50"],
        full: &["--threads", "1", "--rounds", "15"],
        minutes: [1.5, 10.0],
        memory_mib: 2000,
    },
    Paper {
        name: "directfuse",
        title: "Direct-FUSE",
        usual: &["--rounds", "2"],
        full: &[],
        minutes: [1.5, 4.0],
        memory_mib: 500,
    },
];

/// A figure, as `papers.toml` has it.
#[derive(Deserialize)]
struct Said {
    paper: String,
    id: String,
    says: String,
    why: String,
    #[serde(default)]
    compare: Vec<String>,
    /// Shown as pictures.
    #[serde(default)]
    pictures: bool,
    /// Why it is not made here.
    elsewhere: Option<String>,
}

#[derive(Deserialize)]
struct File {
    figure: Vec<Said>,
}

fn said() -> Result<Vec<Said>, String> {
    toml::from_str::<File>(include_str!("papers.toml")).map(|file| file.figure).map_err(|e| format!("papers.toml: {e}"))
}

/// What a paper's benchmark has given.
struct Made {
    paper: &'static Paper,
    /// What it printed, Markdown.
    text: String,
    json: Option<serde_json::Value>,
    svg: Option<String>,
    /// Pictures that answer clicks.
    pictures: Option<String>,
    /// Why it did not come to its end.
    failure: Option<String>,
    seconds: u64,
}

fn is_reported(name: &str) -> bool {
    !matches!(name, "melo" | "directfuse")
}

/// How a paper's benchmark is called.
fn arguments(paper: &Paper, options: &Options, files: &dyn Fn(&str) -> PathBuf) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["bench".into(), paper.name.into()];
    let mut add = |words: &[&str], path: Option<&Path>| {
        args.extend(words.iter().map(OsString::from));
        args.extend(path.map(OsString::from));
    };
    if options.quick {
        add(&["--quick"], None);
    } else {
        add(if options.full { paper.full } else { paper.usual }, None);
    }
    add(&["--csv"], Some(&files("csv")));
    add(&["--plot"], Some(&files("svg")));
    if is_reported(paper.name) {
        add(&["--json"], Some(&files("json")));
        add(&["--image-dir"], Some(&options.places.image_dir));
    }
    if paper.name != "directfuse" {
        add(&["--in"], Some(&options.places.directory));
    }
    if let (Some(traces), "densefs" | "directfs") = (&options.traces, paper.name) {
        add(&["--traces"], Some(traces));
    }
    if paper.name == "densefs" {
        add(&["--page"], Some(&files("pictures.html")));
        add(&["--pictures"], Some(&options.out.join("densefs")));
    }
    args
}

/// Runs one, which may take four times as long as it should.
fn make(paper: &'static Paper, options: &Options, scratch: &Path) -> Result<Made, String> {
    let out = |kind: &str| match kind {
        "csv" | "svg" => options.out.join(format!("{}.{kind}", paper.name)),
        _ => scratch.join(format!("{}.{kind}", paper.name)),
    };
    let printed = out("md");
    let file = std::fs::File::create(&printed).map_err(|e| format!("{}: {e}", printed.display()))?;
    let begun = Instant::now();
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.args(arguments(paper, options, &out)).stdout(file).stdin(Stdio::null());
    let mut child = command.spawn().map_err(|e| e.to_string())?;
    let most = Duration::from_secs_f64(paper.minutes[usize::from(options.full)] * 240.0);
    let failure = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break (!status.success()).then(|| status.to_string()),
            None if begun.elapsed() > most => {
                let _ = child.kill();
                let _ = child.wait();
                break Some(format!("stopped after {} s", most.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let read = |kind: &str| std::fs::read_to_string(out(kind)).ok();
    Ok(Made {
        paper,
        text: read("md").unwrap_or_default(),
        json: read("json").and_then(|text| serde_json::from_str(&text).ok()),
        svg: failure.is_none().then(|| read("svg")).flatten(),
        pictures: read("pictures.html"),
        failure,
        seconds: begun.elapsed().as_secs(),
    })
}

/// Time and memory, before anything is begun; what the machine lacks.
fn announce(chosen: &[&Paper], options: &Options) {
    let minutes: f64 =
        chosen.iter().map(|paper| if options.quick { 0.2 } else { paper.minutes[usize::from(options.full)] }).sum();
    let memory = chosen.iter().map(|paper| paper.memory_mib).max().unwrap_or(0);
    let memory = if options.quick { memory / 5 } else { memory };
    let has = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let has = has.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse::<u64>().ok());
    eprintln!(
        "bench figures: about {minutes:.0} minutes on a quiet machine of two processors, {memory} MiB of memory (there are {} MiB)",
        has.unwrap_or(0) >> 10
    );
    for paper in chosen {
        eprintln!("  {:<12} {}", paper.name, paper.title);
    }
    // SAFETY: asks for a number.
    let root = unsafe { libc::geteuid() } == 0;
    let lacks = [
        (
            options.traces.is_none(),
            "no --traces: the kernel's file systems by instructions and lines are left out (`demo/vm/run.sh DIR` makes them)",
        ),
        (!crate::budget::have_valgrind(), "no valgrind: lines of an image's calls are left out"),
        (!Path::new("/usr/include/fuse3/fuse.h").exists(), "no libfuse3-dev: Direct-FUSE's figures are left out"),
        (!root, "not root: no cold figures of the kernel's file systems, no loop devices for xfs and btrfs"),
    ];
    lacks.iter().filter(|(lacks, _)| *lacks).for_each(|(_, what)| eprintln!("  {what}"));
}

fn run(options: &Options) -> Result<bool, String> {
    if let Some(other) = options.only.iter().find(|name| PAPERS.iter().all(|paper| paper.name != name.as_str())) {
        return Err(format!("no paper {other}: there are {}", PAPERS.map(|paper| paper.name).join(", ")));
    }
    let wanted = |paper: &&Paper| options.only.is_empty() || options.only.iter().any(|name| name == paper.name);
    let chosen: Vec<&'static Paper> = PAPERS.iter().filter(wanted).collect();
    announce(&chosen, options);
    let scratch = options.places.image_dir.join(format!("bypath-bench-figures-{}", std::process::id()));
    let fail = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    std::fs::create_dir_all(&options.out).map_err(|e| fail(&options.out, e))?;
    std::fs::create_dir(&scratch).map_err(|e| fail(&scratch, e))?;
    let made = chosen.iter().map(|paper| {
        eprintln!("bench figures: {} …", paper.name);
        let made = make(paper, options, &scratch)?;
        eprintln!(
            "bench figures: {} took {} s{}",
            paper.name,
            made.seconds,
            made.failure.as_ref().map_or(String::new(), |why| format!(": {why}"))
        );
        Ok(made)
    });
    let made: Result<Vec<Made>, String> = made.collect();
    let _ = std::fs::remove_dir_all(&scratch);
    let made = made?;
    for one in made.iter().filter(|one| is_reported(one.paper.name)) {
        let path = options.out.join(format!("{}.md", one.paper.name));
        std::fs::write(&path, markdown(one)).map_err(|e| fail(&path, e))?;
    }
    let path = options.out.join("figures.html");
    std::fs::write(&path, page::page(&made, &said()?)).map_err(|e| fail(&path, e))?;
    eprintln!("bench figures: {}", path.display());
    Ok(made.iter().all(|one| one.failure.is_none()))
}

/// A paper's page among the results.
fn markdown(made: &Made) -> String {
    let name = made.paper.name;
    format!(
        "# {}\n\n    make figures            # FULL=1: the papers' sizes\n\nWritten by that command, with [all figures and what they say](figures.html); \
         every number: [`{name}.csv`]({name}.csv), as a picture: [`{name}.svg`]({name}.svg).\n\n{}",
        made.paper.title, made.text
    )
}

/// Runs the benchmark with its command-line arguments; returns the exit code.
pub fn figures(args: &[OsString]) -> Result<u8, String> {
    let all = std::iter::once(OsString::from("bypath bench figures")).chain(args.iter().cloned());
    match <Options as clap::Parser>::try_parse_from(all) {
        Ok(options) => run(&options).map(|all| u8::from(!all)),
        Err(error) => {
            let _ = error.print();
            Ok(error.exit_code() as u8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each figure stands once, with words. Method: the file.
    #[test]
    fn each_figure_is_said() {
        let said = said().unwrap_or_else(|why| panic!("{why}"));
        assert!(said.len() >= 25, "{}", said.len());
        for one in &said {
            assert!(PAPERS.iter().any(|paper| paper.name == one.paper), "{}", one.paper);
            assert!(!one.says.is_empty() && !one.why.is_empty() && matches!(one.compare.len(), 0 | 2), "{}", one.id);
            let same = said.iter().filter(|other| other.paper == one.paper && other.id == one.id).count();
            assert_eq!(same, 1, "{} {}", one.paper, one.id);
        }
    }
}

//! The rounds: every call and program by every way in turn, so that a slow minute of the machine hits all of them.

use super::place::{HERE, Image, Place};
use super::tree::{PROGRAMS, Tree};
use super::{FIGURES, Options};
use crate::figure::{Figure, Report};
use crate::stage::{Directory, drop_dentries, kind_of};
use libc::{AT_REMOVEDIR, O_CREAT, O_RDONLY, O_WRONLY};
use pm::sys::abi;
use std::ffi::{CStr, CString};
use std::time::Instant;

/// The ways to the image, as [`Image::ways`] has them.
const WAYS: [&str; 3] = ["direct", "byvfs", "conventional"];
/// The calls of figure 3.
const CALLS: [&str; 6] = ["open", "stat", "access", "unlink", "mkdir", "rmdir"];

fn ns(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64
}

/// Everything that is called.
struct Stage {
    image: Image,
    kernel: Vec<Place>,
    names: Vec<String>,
    _directories: Vec<Directory>,
    /// Whether the kernel drops what it has cached when it is told to.
    drops: bool,
}

impl Stage {
    fn new(options: &Options, report: &mut Report) -> Result<Stage, String> {
        let directories = [(&options.places.image_dir, "byvfs"), (&options.places.directory, "byvfs-2")]
            .map(|(dir, name)| Directory::new(dir, name));
        let directories = directories.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<String> = WAYS.iter().map(|way| way.to_string()).collect();
        names.extend(directories.iter().map(|dir| kind_of(&dir.0)));
        let drops = !options.output.quick && drop_dentries().is_ok();
        if !drops {
            let why = if options.output.quick { "not with --quick" } else { "only root may drop the kernel's caches" };
            report.left_out.push(format!("cold calls on {}: {why}", names[4]));
        }
        report.left_out.push(format!("cold calls on {}: its names are in the kernel's dentry cache only", names[3]));
        let kernel = directories.iter().map(|dir| Place::Kernel(dir.0.clone())).collect();
        Ok(Stage { image: Image::new(&options.places.image_dir)?, kernel, names, _directories: directories, drops })
    }

    fn place(&self, way: usize) -> &Place {
        self.image.ways.get(way).unwrap_or_else(|| &self.kernel[way - WAYS.len()])
    }

    fn columns(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// Forgets what is cached; whether this way can.
    fn cool(&mut self, way: usize) -> Result<bool, String> {
        match way {
            0..3 => self.image.cool().map(|()| true),
            3 => Ok(false),
            _ => Ok(self.drops && drop_dentries().is_ok()),
        }
    }

    /// Each way has a directory to itself: no cache above the image hears of what others do.
    fn enter(&self, way: usize) -> Result<&Place, String> {
        let place = self.place(way);
        place.enter()?;
        if way < WAYS.len() {
            place.go(c"/");
            let name = CString::new(WAYS[way]).unwrap_or_default();
            if place.stat(HERE, &name) != 0 {
                place.mkdir(&name);
            }
            place.go(&name);
        }
        Ok(place)
    }
}

/// The least that was measured, by row and way.
struct Least(Vec<Vec<Option<f64>>>);

impl Least {
    fn new(rows: usize, ways: usize) -> Least {
        Least(vec![vec![None; ways]; rows])
    }

    fn put(&mut self, row: usize, way: usize, value: f64) {
        let place = &mut self.0[row][way];
        *place = Some(place.map_or(value, |least| least.min(value)));
    }
}

/// Figure 3: calls in a directory of many files.
fn calls(stage: &mut Stage, options: &Options) -> Result<Figure, String> {
    let (files, rounds) = if options.output.quick { (1000, 1) } else { (options.files, 3) };
    let text = |kind: &str, n: usize| (0..n).map(|i| CString::new(format!("{kind}{i:07}")).unwrap_or_default()).collect();
    let (names, fresh): (Vec<CString>, Vec<CString>) = (text("f", files), text("d", files / 10));
    let make = |place: &Place| names.iter().for_each(|name| place.close(place.open(HERE, name, O_CREAT | O_WRONLY)));
    let mut least = [Least::new(CALLS.len(), stage.names.len()), Least::new(CALLS.len(), stage.names.len())];
    for way in 0..stage.names.len() {
        make(stage.enter(way)?);
    }
    for _ in 0..rounds {
        for way in 0..stage.names.len() {
            for (row, call) in CALLS.iter().enumerate() {
                let count = if row < 4 { files } else { files / 10 } as f64;
                if *call == "rmdir" {
                    let place = stage.enter(way)?;
                    fresh.iter().for_each(|name| place.mkdir(name));
                }
                let cooled = stage.cool(way)?;
                let place = stage.enter(way)?;
                // What was removed or made is put back before the second time.
                if cooled {
                    least[0].put(row, way, one(place, call, &names, &fresh) / count);
                    put_back(place, call, &fresh, &make);
                }
                if row < 4 {
                    names.iter().for_each(|name| assert_eq!(place.stat(HERE, name), 0));
                } else if *call == "rmdir" {
                    fresh.iter().for_each(|name| assert_eq!(place.stat(HERE, name), 0));
                }
                least[1].put(row, way, one(place, call, &names, &fresh) / count);
                if *call != "rmdir" {
                    put_back(place, call, &fresh, &make);
                }
            }
        }
    }
    for way in 0..stage.names.len() {
        let place = stage.enter(way)?;
        names.iter().for_each(|name| place.unlink(HERE, name, 0));
    }
    let title = format!("calls in a directory of {files} files, the least of {rounds} rounds");
    let mut figure = Figure::new("3", title, "ns a call", &stage.columns());
    for (row, call) in CALLS.iter().enumerate() {
        figure.row(format!("{call}, cold"), least[0].0[row].clone());
        figure.row(format!("{call}, warm"), least[1].0[row].clone());
    }
    Ok(figure.paper(
        "against the conventional VFS with cold caches ByVFS takes 12.7/48.1/28.4/50.8/7.4/18.4 % less for \
         open/stat/access/unlink/mkdir/rmdir; with warm ones unlink 38.1 % less, access slightly more.",
    ))
}

/// One of the calls on all files: nanoseconds of all.
fn one(place: &Place, call: &str, names: &[CString], fresh: &[CString]) -> f64 {
    let all = |call: &dyn Fn(&CStr) -> isize| ns(|| names.iter().for_each(|name| assert_eq!(call(name), 0, "{name:?}")));
    match call {
        // Closed outside the clock.
        "open" => names
            .chunks(256)
            .map(|names| {
                let mut fds = Vec::with_capacity(names.len());
                let spent = ns(|| fds.extend(names.iter().map(|name| place.open(HERE, name, O_RDONLY))));
                fds.into_iter().for_each(|fd| place.close(fd));
                spent
            })
            .sum(),
        "stat" => all(&|name| place.stat(HERE, name)),
        "access" => all(&|name| place.access(HERE, name)),
        "unlink" => ns(|| names.iter().for_each(|name| place.unlink(HERE, name, 0))),
        "mkdir" => ns(|| fresh.iter().for_each(|name| place.mkdir(name))),
        _ => ns(|| fresh.iter().for_each(|name| place.unlink(HERE, name, AT_REMOVEDIR))),
    }
}

/// As it was before the call; for `rmdir` that is with the directories.
fn put_back(place: &Place, call: &str, fresh: &[CString], make: &dyn Fn(&Place)) {
    match call {
        "unlink" => make(place),
        "mkdir" => fresh.iter().for_each(|name| place.unlink(HERE, name, AT_REMOVEDIR)),
        "rmdir" => fresh.iter().for_each(|name| place.mkdir(name)),
        _ => {}
    }
}

/// Figures 1 and 4, table 1: the programs.
fn programs(stage: &mut Stage, options: &Options) -> Result<Vec<Figure>, String> {
    let (entries, rounds) = if options.output.quick { (200, 1) } else { (options.entries, 3) };
    let tree = Tree::like(&options.tree, entries)?;
    let ways = stage.names.len();
    let new = || Least::new(PROGRAMS.len(), ways);
    let (mut whole, mut look_ups) = ([new(), new()], [new(), new()]);
    let mut hits = vec![[(0, 0); 2]; PROGRAMS.len()];
    for way in 0..ways {
        tree.run(stage.enter(way)?, "cp", c"tree");
    }
    for _ in 0..rounds {
        for way in 0..ways {
            for (row, program) in PROGRAMS.iter().enumerate() {
                let top = if matches!(*program, "cp" | "rm") { c"copy" } else { c"tree" };
                for (at, cold) in [(0, true), (1, false)] {
                    let place = stage.enter(way)?;
                    if *program == "rm" {
                        tree.run(place, "cp", top);
                    }
                    if cold && !stage.cool(way)? {
                        if *program == "rm" {
                            tree.run(stage.enter(way)?, "rm", top);
                        }
                        continue;
                    }
                    let place = stage.enter(way)?;
                    if !cold && *program != "cp" {
                        tree.run(place, "du", top);
                    }
                    stage.image.take_asks();
                    let place = stage.place(way);
                    let mut seen = 0;
                    let spent = ns(|| seen = tree.run(place, program, top));
                    assert_eq!(seen, tree.len() as u64, "{program} has seen all");
                    whole[at].put(row, way, spent / 1e6);
                    if cold && way == 2 {
                        hits[row] = stage.image.take_asks();
                    }
                    if *program == "cp" {
                        tree.run(place, "rm", top);
                    }
                    if cold {
                        stage.cool(way)?;
                    }
                    let (place, mut spent) = (stage.enter(way)?, 0.0);
                    tree.look_up(place, program, "tree", &mut |portion| spent += ns(portion));
                    look_ups[at].put(row, way, spent / 1e6);
                }
            }
        }
    }
    for way in 0..ways {
        tree.run(stage.enter(way)?, "rm", c"tree");
    }
    Ok(shares_and_times(stage, &tree, [whole, look_ups], &hits))
}

fn shares_and_times(stage: &Stage, tree: &Tree, times: [[Least; 2]; 2], hits: &[[(u64, u64); 2]]) -> Vec<Figure> {
    let [whole, look_ups] = &times;
    let of = format!("of a tree of {} entries", tree.len());
    let mut shares = Figure::new("1", format!("share of path look-up in programs' time {of}"), "%", &stage.columns()).paper(
        "from ext4 on a disk to NOVA in memory the share of path look-up in the VFS grows by 16.5 to 459.6 %, \
         the whole time shrinks by 28.4 to 73.4 %.",
    );
    let mut programs = Figure::new("4", format!("the calls of programs, {of}"), "ms", &stage.columns())
        .paper("ByVFS takes 26.9/11.6/21.4 % less for du/find/rm, for ls and cp 6.4 and 3.8 % more.");
    for (row, program) in PROGRAMS.iter().enumerate() {
        for (at, when) in ["cold", "warm"].into_iter().enumerate() {
            let pairs = look_ups[at].0[row].iter().zip(&whole[at].0[row]);
            let share = pairs.map(|(look_up, whole)| Some((look_up.as_ref()? / whole.as_ref()? * 100.0).min(100.0)));
            shares.row(format!("{program}, {when}"), share.collect());
            programs.row(format!("{program}, {when}"), whole[at].0[row].clone());
        }
    }
    let mut ratios = Figure::new("table1", format!("hits of the conventional caches, cold, {of}"), "%", &["names", "inodes"])
        .paper("the hit ratios of ls and cp reach 95 %.");
    let percent = |(hits, asked): (u64, u64)| (asked > 0).then(|| hits as f64 / asked as f64 * 100.0);
    PROGRAMS.iter().zip(hits).for_each(|(program, hits)| ratios.row(*program, hits.map(percent).to_vec()));
    vec![shares, programs, ratios]
}

/// What the paper leaves open: the path of the current directory, without a dentry cache.
fn getcwd(stage: &Stage, options: &Options) -> Result<Figure, String> {
    let (calls, rounds) = if options.output.quick { (200, 1) } else { (5000, 10) };
    const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
    let mut least = Least::new(DEPTHS.len(), stage.names.len());
    let path = |depth: usize| CString::new(vec!["below"; depth].join("/")).unwrap_or_default();
    for way in 0..stage.names.len() {
        let place = stage.enter(way)?;
        (1..=32).for_each(|depth| place.mkdir(&path(depth)));
    }
    for _ in 0..rounds {
        for way in 0..stage.names.len() {
            for (row, depth) in DEPTHS.into_iter().enumerate() {
                let place = stage.enter(way)?;
                place.go(&path(depth));
                let mut buffer = [0u8; 4096];
                let args = [buffer.as_mut_ptr() as usize, buffer.len(), 0, 0];
                let spent = ns(|| (0..calls).for_each(|_| assert!(place.call(abi::__NR_getcwd, args) > 0)));
                least.put(row, way, spent / f64::from(calls));
            }
        }
    }
    for way in 0..stage.names.len() {
        let place = stage.enter(way)?;
        (1..=32).rev().for_each(|depth| place.unlink(HERE, &path(depth), AT_REMOVEDIR));
    }
    let mut figure = Figure::new("getcwd", "getcwd, by depth", "ns a call", &stage.columns());
    DEPTHS.iter().zip(least.0).for_each(|(depth, values)| figure.row(format!("{depth} directories down"), values));
    Ok(figure.paper("a look-up of each component in its parent directory; its efficiency is left as future work."))
}

/// Runs what is asked for.
pub(super) fn run(options: &Options) -> Result<Report, String> {
    options.output.check(&FIGURES)?;
    let mut report = Report::new("ByVFS");
    let before = std::env::current_dir().map_err(|e| e.to_string())?;
    let mut stage = Stage::new(options, &mut report)?;
    let wants = |figure: &str| options.output.wants(figure);
    if wants("3") {
        report.figures.push(calls(&mut stage, options)?);
    }
    if ["1", "4", "table1"].into_iter().any(wants) {
        let figures = programs(&mut stage, options)?;
        report.figures.extend(figures.into_iter().filter(|figure| wants(figure.figure)));
    }
    if wants("programs") {
        let (entries, rounds) = if options.output.quick { (200, 1) } else { (options.entries, 5) };
        match super::real::programs(&options.places, &Tree::like(&options.tree, entries)?, rounds) {
            Ok(figure) => report.figures.push(figure),
            Err(why) => report.left_out.push(format!("programs themselves: {why}")),
        }
    }
    if wants("getcwd") {
        report.figures.push(getcwd(&stage, options)?);
    }
    std::env::set_current_dir(before).map_err(|e| e.to_string())?;
    Ok(report)
}

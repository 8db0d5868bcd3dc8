//! `bypath clone IMG:/a IMG:/b` and `bypath drop IMG:/b`

use super::crew::Pair;
use super::{print, print_json};
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::place::Place;
use crate::seen_as::{find, find_to_change};
use crate::{progress, size};
use base::Node;
use engine::Fs;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use pm::Errno;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use vfs::tree::clone::SNAPS;
use vfs::tree::crew::Crew;
use vfs::tree::{Failed, Tally, Trees};

/// How it is said what was done.
#[derive(Clone, Copy)]
pub struct Options {
    /// As JSON.
    pub json: bool,
    /// Not at all.
    pub quiet: bool,
}

#[derive(Serialize)]
struct Cloned {
    source: String,
    target: String,
    names: u64,
    /// Bytes of files that share their contents with the originals, and of those that were copied.
    shared: u64,
    copied: u64,
    /// Owners and extended attributes that could not be kept.
    dropped: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Dropped {
    path: String,
    names: u64,
    seconds: f64,
}

/// Progress is shown each so many names.
const SHOWN: u64 = 1024;

/// Clones a tree.
pub fn clone(source: &OsString, target: &OsString, options: Options) -> Result<u8> {
    let (source, target) = (find(source)?, find_to_change(target)?);
    if !same_image(&source, &target) {
        return Err(Failure::new(format!(
            "{target}: lies in another image than {source}; only files of one image share their data (`bypath export` and \
             `bypath import` copy)"
        )));
    }
    let mut tree = Tree::attach_at(&source)?;
    let node = tree.find(&source, false)?;
    let (dir, name) = parent(&mut tree, &target)?;
    let stop = stopped()?;
    let bar = progress::bar(options.quiet || options.json, "cloning", 0);
    let begun = Instant::now();
    let cloned = match tree.image().filter(|_| !source.is_cached) {
        Some(fs) => together((&tree, fs), &bar, &stop, |trees, pair| trees.clone_with(pair, node, dir, &name)),
        None => with_trees(&tree, &bar, &stop, None, |trees| trees.clone(node, dir, &name)),
    };
    bar.finish_and_clear();
    let tally = cloned.map_err(|failed| refused(&source, &target, &failed))?;
    said((&source, &target), &tally, begun, options)
}

/// Makes a snapshot of a directory.
pub fn snap(source: &OsString, name: &OsString, options: Options) -> Result<u8> {
    let source = find_to_change(source)?;
    let name = name.as_bytes();
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
        return Err(Failure::new(format!("'{}': no name for a snapshot; write a word, such as monday", name.escape_ascii())));
    }
    let target = source.with([source.path.strip_suffix(b"/").unwrap_or(&source.path), b"/", SNAPS, b"/", name].concat());
    let mut tree = Tree::attach_at(&source)?;
    if !tree.is_directory(&source)? {
        return Err(Failure::errno(&source, Errno::ENOTDIR));
    }
    let node = tree.find(&source, true)?;
    let stop = stopped()?;
    let bar = progress::bar(options.quiet || options.json, "keeping", 0);
    let begun = Instant::now();
    let kept = with_trees(&tree, &bar, &stop, None, |trees| trees.snap(node, name));
    bar.finish_and_clear();
    let tally = kept.map_err(|failed| refused(&source, &target, &failed))?;
    said((&source, &target), &tally, begun, options)
}

/// Says what was made.
fn said((source, target): (&Place, &Place), tally: &Tally, begun: Instant, options: Options) -> Result<u8> {
    let seconds = begun.elapsed().as_secs_f64();
    if options.json {
        let Tally { names, shared, copied, dropped } = *tally;
        let (source, target) = (source.to_string(), target.to_string());
        print_json(&Cloned { source, target, names, shared, copied, dropped, seconds })?;
    } else if !options.quiet {
        let copied = if tally.copied > 0 { format!(", {} copied", size::show(tally.copied)) } else { String::new() };
        eprintln!("cloned {} names, {} shared{copied} in {seconds:.2} s", tally.names, size::show(tally.shared));
        if tally.dropped > 0 {
            eprintln!("bypath: {} owners or extended attributes could not be kept, for lack of rights", tally.dropped);
        }
    }
    Ok(0)
}

/// Removes trees.
pub fn drop(places: &[OsString], options: Options) -> Result<u8> {
    let places = places.iter().map(find_to_change).collect::<Result<Vec<_>>>()?;
    let stop = stopped()?;
    let mut done = Vec::new();
    for place in &places {
        let mut tree = Tree::attach_at(place)?;
        let (dir, name) = parent(&mut tree, place)?;
        let bar = progress::bar(options.quiet || options.json, "removing", 0);
        let begun = Instant::now();
        let removed = with_trees(&tree, &bar, &stop, None, |trees| trees.remove(dir, &name));
        bar.finish_and_clear();
        let names = removed.map_err(|failed| failure(place, &failed))?.names;
        let seconds = begun.elapsed().as_secs_f64();
        if !options.json && !options.quiet {
            eprintln!("removed {names} names in {seconds:.2} s");
        }
        done.push(Dropped { path: place.to_string(), names, seconds });
    }
    if options.json { print_json(&done).map(|()| 0) } else { print(b"").map(|()| 0) }
}

/// With a second thread that helps.
fn together<T>(
    (tree, fs): (&Tree, &'static Fs),
    bar: &ProgressBar,
    stop: &AtomicBool,
    what: impl FnOnce(&mut Trees, &Pair) -> T,
) -> T {
    let (pair, backend, cx) = (Pair::default(), tree.backend, tree.cx());
    let cred = cx.cred;
    std::thread::scope(|scope| {
        if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
            scope.spawn(|| pair.work((backend, fs), cred, stop));
        }
        let done = with_trees(tree, bar, stop, Some(&pair), |trees| what(trees, &pair));
        // Where it was not begun the other one waits.
        let _ = pair.end();
        done
    })
}

fn with_trees<T>(
    tree: &Tree,
    bar: &ProgressBar,
    stop: &AtomicBool,
    pair: Option<&Pair>,
    what: impl FnOnce(&mut Trees) -> T,
) -> T {
    let mut each = |tally: &Tally| {
        if tally.names.is_multiple_of(SHOWN) && !bar.is_hidden() {
            let (names, bytes) = pair.map_or((0, 0), |pair| (pair.names.load(Relaxed), pair.bytes.load(Relaxed)));
            let (names, bytes) = (names + tally.names, bytes + tally.shared + tally.copied);
            bar.set_message(format!("{} names, {}", HumanCount(names), HumanBytes(bytes)));
        }
        !stop.load(Relaxed)
    };
    what(&mut Trees { backend: tree.backend, cx: &tree.cx(), each: &mut each })
}

/// Set by the signals that ask a program to end: what it has begun is taken back first.
fn stopped() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| Failure::io("signals", &error))?;
    }
    Ok(stop)
}

/// The directory that a place lies in, and its name there.
fn parent(tree: &mut Tree, place: &Place) -> Result<(Node, Vec<u8>)> {
    let end = place.path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = &place.path[..end];
    let cut = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = path[cut..].to_vec();
    if matches!(&name[..], b"" | b"." | b"..") {
        return Err(Failure::new(format!("{place}: write the path of something that lies in a directory of the image")));
    }
    let dir = place.with(path[..cut].to_vec());
    Ok((tree.find(&dir, true)?, name))
}

pub fn same_image(a: &Place, b: &Place) -> bool {
    a.image == b.image || crate::transfer::import::is_image(&a.image, &b.image)
}

fn refused(source: &Place, target: &Place, failed: &Failed) -> Failure {
    match failed.error.errno() {
        Errno::EEXIST => Failure::new(format!("{target}: is there already; choose another name, or `bypath drop` it first")),
        Errno::EINVAL if failed.path.is_empty() => {
            Failure::new(format!("{target}: lies in {source}, which can't be cloned into itself"))
        }
        Errno::EOPNOTSUPP => {
            Failure::new(format!("{source}: files of an image of format 3 share nothing; copy with `cp -a`, or `bypath upgrade`"))
        }
        _ => failure(source, failed),
    }
}

/// What could not be done with a tree, at the path in it.
pub fn failure(place: &Place, failed: &Failed) -> Failure {
    if failed.error.errno() == Errno::EINTR {
        return Failure::new(format!("{place}: stopped; nothing has changed")).code(130);
    }
    let mut path = place.path.clone();
    if !failed.path.is_empty() {
        path.push(b'/');
        path.extend_from_slice(&failed.path);
    }
    Failure::engine(place.with(path), failed.error)
}

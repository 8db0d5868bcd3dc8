//! Lines of memory that calls of two threads both write: what grows dear with each processor, where two of them cannot show it
//! in time. Two threads take turns, each on files of its own, under lackey; of one call of each the lines are compared.

use super::caches::transfers;
use super::{Stage, done, good};
use crate::budget::lackey::{Kind, Look, looks};
use crate::budget::{Scratch, call::mark, have_valgrind};
use crate::calls::{Api, Calls, text};
use crate::figure::Figure;
use libc::{O_CREAT, O_EXCL, O_RDONLY, O_WRONLY};
use std::ffi::CString;
use std::sync::mpsc;

/// Calls that are looked at, in one directory and in one of each thread's own.
const CALLS: [&str; 5] = ["stat", "open+close", "create+close", "rename", "unlink"];
const PLACES: [&str; 2] = ["one directory", "a directory each"];
/// Pairs of calls; the first are a warm-up that nobody looks at.
const PAIRS: usize = 5;
const WARM: usize = 64;

fn call(api: &Api, call: &str, old: &CString, new: &CString) {
    match call {
        "stat" => assert_eq!(api.stat(old), 0),
        "open+close" => done(api.close(good(api.open(old, O_RDONLY)))),
        "create+close" => done(api.close(good(api.open(new, O_WRONLY | O_CREAT | O_EXCL)))),
        "rename" => done(api.rename(old, new)),
        _ => done(api.unlink(old)),
    }
}

/// The worker: for each place and call, pairs of looks, of the first and of the second thread.
pub fn serve(image: &str) -> Result<(), String> {
    let api = &Api::open(&text(image.into()))?;
    ["/all", "/own0", "/own1"].into_iter().for_each(|dir| done(api.mkdir(&text(dir.into()))));
    std::thread::scope(|scope| {
        let ask = |who: usize| {
            let (asks, asked) = mpsc::channel::<(String, &str, bool)>();
            let (answers, answered) = mpsc::channel::<()>();
            scope.spawn(move || {
                for (stem, name, looked) in asked {
                    let (old, new) = (text(format!("{stem}{who}old")), text(format!("{stem}{who}new")));
                    if name != "create+close" {
                        call(api, "create+close", &new, &old);
                    }
                    if looked {
                        mark();
                        call(api, name, &old, &new);
                        mark();
                    } else {
                        call(api, name, &old, &new);
                    }
                    if answers.send(()).is_err() {
                        return;
                    }
                }
            });
            (asks, answered)
        };
        let threads = [ask(0), ask(1)];
        for (place, dir) in ["/all", "/own"].into_iter().enumerate() {
            for name in CALLS {
                for i in 0..WARM + PAIRS {
                    for (who, (asks, answered)) in threads.iter().enumerate() {
                        let own = if place == 0 { String::new() } else { who.to_string() };
                        let stem = format!("{dir}{own}/{}{i:03}-", name.replace('+', "-"));
                        asks.send((stem, name, i >= WARM)).map_err(|e| e.to_string())?;
                        answered.recv().map_err(|e| e.to_string())?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// Lines that calls of two threads both write.
pub fn lines(stage: &Stage, words: &[&str]) -> Result<[Figure; 2], String> {
    if !have_valgrind() {
        return Err("valgrind is not installed".into());
    }
    let scratch = Scratch::new(words)?;
    let (image, mut found) = (scratch.image("shared.image", 1 << 30)?, Vec::new());
    looks(&scratch, &["lines"], &image, &mut |look: Look| found.push(look))?;
    if found.len() != PLACES.len() * CALLS.len() * PAIRS * 2 {
        return Err(format!("lackey: {} looks", found.len()));
    }
    let written: Vec<_> = found.iter().map(|look| look.lines(|kind| kind == Kind::Store)).collect();
    let columns = ["written by both, one directory", "written by both, a directory each", "written by one, one directory"];
    let mut figure = Figure::new("shared", "lines of memory that a call writes, two threads in turn", "lines", &columns);
    let median = |mut values: Vec<usize>| {
        values.sort_unstable();
        Some(values[values.len() / 2] as f64)
    };
    for (row, name) in CALLS.iter().enumerate() {
        let pairs = |place: usize| written[(place * CALLS.len() + row) * PAIRS * 2..][..PAIRS * 2].chunks(2);
        let both = |place| median(pairs(place).map(|pair| pair[0].intersection(&pair[1]).count()).collect());
        let one = median(pairs(0).map(|pair| pair[0].len()).collect());
        figure.row(format!("{name} ({} only)", stage.names[0]), vec![both(0), both(1), one]);
    }
    // The word that marks a look is one of the lines, of both.
    for row in &mut figure.rows {
        row.values.iter_mut().flatten().for_each(|value| *value -= 1.0);
    }
    let figure =
        figure.paper("a lock of the directory and counters that all share keep ext4-dax and NOVA from growing with the threads.");
    Ok([figure, simulated(&found)])
}

/// The word that marks a look, which both threads write last.
fn marked(look: &Look) -> u64 {
    look.0.iter().rfind(|access| access.kind == Kind::Store).map_or(0, |access| access.address >> 6)
}

/// Transfers of lines between caches, by the number of processors.
fn simulated(found: &[Look]) -> Figure {
    let counts = [1, 2, 4, 8, 16, 24];
    let columns = counts.map(|n| format!("{n} threads"));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = "lines that a call must fetch from another processor's cache, simulated from what calls touch";
    let mut figure = Figure::new("caches", title, "lines a call", &columns)
        .paper("24 threads on 24 cores: look-up and delete grow with the threads.");
    let mark = found.first().map_or(0, marked);
    for (place, place_name) in PLACES.into_iter().enumerate() {
        for (row, name) in CALLS.into_iter().enumerate() {
            let pairs: Vec<&[Look]> = found[(place * CALLS.len() + row) * PAIRS * 2..][..PAIRS * 2].chunks(2).collect();
            figure.row(format!("{name}, {place_name}"), counts.map(|n| Some(transfers(&pairs, mark, n))).to_vec());
        }
    }
    figure
}

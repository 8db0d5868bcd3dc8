//! Single calls by one thread, each way in turn.

use super::{Rounds, Stage, Way, done, good};
use crate::calls::{Calls, text};
use crate::figure::Figure;
use crate::stage::drop_dentries;
use libc::{O_CREAT, O_EXCL, O_RDONLY, O_WRONLY};
use std::ffi::CString;
use std::time::Instant;

const CALLS: [&str; 4] = ["stat", "create", "rename", "delete"];

fn ns(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_nanos() as f64
}

fn put(place: &mut Option<f64>, value: f64) {
    *place = Some(place.map_or(value, |least| least.min(value)));
}

/// Slide 78: in a directory of its own, on `files` files.
pub fn calls(stage: &Stage, rounds: Rounds) -> Result<Figure, String> {
    let (files, rounds) = rounds.of(100, 10_000);
    let names = |kind: &str| (0..files).map(|i| text(format!("{kind}{i:06}"))).collect::<Vec<_>>();
    let (names, moved) = (names("f"), names("m"));
    let mut least = [[[None; 3]; 4]; 2];
    for _ in 0..rounds {
        for (at, way) in stage.ways.iter().enumerate() {
            for (row, call) in CALLS.iter().enumerate() {
                // Cold: opened anew, and the image's shared cache goes with its last user; the kernel's is dropped.
                for (when, cold) in [(0, true), (1, false)] {
                    if cold && at > 0 && !(at == 2 && stage.drops) {
                        continue;
                    }
                    prepare(way, call, &names)?;
                    if cold && at > 0 {
                        drop_dentries().map_err(|e| format!("drop_caches: {e}"))?;
                    }
                    let calls = way.open()?;
                    good(calls.chdir(c"calls"));
                    if !cold {
                        names.iter().for_each(|name| _ = calls.stat(name));
                    }
                    let spent = ns(|| one(&*calls, call, &names, &moved));
                    put(&mut least[when][row][at], spent / files as f64);
                    drop(calls);
                    clear(way, &names, &moved)?;
                }
            }
        }
    }
    let title = format!("single calls in a directory of {files} files, the least of {rounds} rounds");
    let mut figure = Figure::new("78", title, "ns a call", &stage.columns());
    for (when, word) in ["cold", "warm"].into_iter().enumerate() {
        CALLS.iter().enumerate().for_each(|(row, call)| figure.row(format!("{call}, {word}"), least[when][row].to_vec()));
    }
    Ok(figure.paper(
        "against ext4-dax and NOVA stat takes 56 % less with cold caches and as much with warm ones; \
         create, rename and delete take 47 % less (5 to 20 µs a call there).",
    ))
}

/// A directory with the files, except for `create`.
fn prepare(way: &Way, call: &str, names: &[CString]) -> Result<(), String> {
    let calls = way.open()?;
    good(calls.mkdir(c"calls"));
    good(calls.chdir(c"calls"));
    if call != "create" {
        names.iter().for_each(|name| make(&*calls, name));
    }
    Ok(())
}

fn clear(way: &Way, names: &[CString], moved: &[CString]) -> Result<(), String> {
    let calls = way.open()?;
    good(calls.chdir(c"calls"));
    names.iter().chain(moved).for_each(|name| _ = calls.unlink(name));
    good(calls.chdir(c".."));
    good(calls.rmdir(c"calls"));
    Ok(())
}

fn make(calls: &dyn Calls, name: &CString) {
    let fd = good(calls.open(name, O_WRONLY | O_CREAT | O_EXCL));
    calls.close(fd);
}

fn one(calls: &dyn Calls, call: &str, names: &[CString], moved: &[CString]) {
    match call {
        "stat" => names.iter().for_each(|name| assert_eq!(calls.stat(name), 0)),
        "create" => names.iter().for_each(|name| make(calls, name)),
        "rename" => names.iter().zip(moved).for_each(|(name, moved)| done(calls.rename(name, moved))),
        _ => names.iter().for_each(|name| done(calls.unlink(name))),
    }
}

/// Small files: written (made, written, closed) and read (opened, read, closed).
pub fn small(stage: &Stage, rounds: Rounds) -> Result<Vec<Figure>, String> {
    let (files, rounds) = rounds.of(10, 2000);
    let names: Vec<CString> = (0..files).map(|i| text(format!("small{i:06}"))).collect();
    let title = |what| format!("small files, {what}, {files} of each size, the least of {rounds} rounds");
    let mut figures = [
        Figure::new("small", title("made, written, closed"), "ns a file", &stage.columns())
            .paper("throughput of small files is 35.6 and 38.3 % above ext4-dax and NOVA; on ext4-dax metadata takes 49.1 % of the time."),
        Figure::new("small", title("opened, read, closed"), "ns a file", &stage.columns()),
    ];
    let mut buffer = vec![0x61; 32 << 10];
    for kib in [1usize, 2, 4, 8, 16, 32] {
        let mut least = [vec![None; 3], vec![None; 3]];
        for _ in 0..rounds {
            for (at, way) in stage.ways.iter().enumerate() {
                let calls = way.open()?;
                let part = &mut buffer[..kib << 10];
                let write = |name: &CString| {
                    let fd = good(calls.open(name, O_WRONLY | O_CREAT | O_EXCL));
                    assert_eq!(calls.write(fd, part), part.len() as isize);
                    calls.close(fd);
                };
                put(&mut least[0][at], ns(|| names.iter().for_each(write)) / f64::from(files));
                let read = ns(|| {
                    for name in &names {
                        let fd = good(calls.open(name, O_RDONLY));
                        assert_eq!(calls.pread(fd, part, 0), part.len() as isize);
                        calls.close(fd);
                    }
                });
                put(&mut least[1][at], read / f64::from(files));
                names.iter().for_each(|name| done(calls.unlink(name)));
            }
        }
        figures.iter_mut().zip(least).for_each(|(figure, least)| figure.row(format!("{kib} KiB"), least));
    }
    Ok(figures.into())
}

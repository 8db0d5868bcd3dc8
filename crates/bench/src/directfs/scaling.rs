//! Many at once: threads of one process, processes of one thread each.

use super::{Rounds, Stage, Way, done, good};
use crate::calls::{Calls, text};
use crate::figure::Figure;
use crate::melo;
use libc::{O_CREAT, O_EXCL, O_WRONLY};
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Barrier;

/// What is done, one after the other.
const CALLS: [&str; 3] = ["create", "look up", "delete"];
/// Threads and processes.
const MANY: [(usize, usize); 5] = [(1, 1), (2, 1), (4, 1), (1, 2), (1, 4)];

/// When a phase has begun and ended, by a clock that all processes share.
type Times = (u64, u64);

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The files of one thread or process: in a directory that all share, or in one of its own.
fn names(who: usize, n: usize, many: bool) -> Vec<CString> {
    let dir = if many { format!("own{who}") } else { "all".into() };
    (0..n).map(|i| text(format!("{dir}/{who:02}{i:06}"))).collect()
}

fn phase(calls: &dyn Calls, call: &str, names: &[CString]) -> Times {
    let begun = now();
    match call {
        "create" => names.iter().for_each(|name| done(calls.close(good(calls.open(name, O_WRONLY | O_CREAT | O_EXCL))))),
        "delete" => names.iter().for_each(|name| done(calls.unlink(name))),
        _ => names.iter().for_each(|name| assert_eq!(calls.stat(name), 0)),
    }
    (begun, now())
}

/// Millions of calls a second by all.
fn speed(calls: usize, times: &[Times]) -> f64 {
    let begun = times.iter().map(|(begun, _)| *begun).min().unwrap_or(0);
    let ended = times.iter().map(|(_, ended)| *ended).max().unwrap_or(1);
    calls as f64 * 1e3 / (ended - begun).max(1) as f64
}

fn threads(way: &Way, threads: usize, n: usize, many: bool) -> Result<[f64; 3], String> {
    let calls = way.open()?;
    let barrier = Barrier::new(threads);
    let all: Vec<[Times; 3]> = std::thread::scope(|scope| {
        let (calls, barrier) = (&*calls, &barrier);
        let work = |who: usize| {
            let names = names(who, n, many);
            CALLS.map(|call| {
                barrier.wait();
                phase(calls, call, &names)
            })
        };
        let started: Vec<_> = (0..threads).map(|who| scope.spawn(move || work(who))).collect();
        started.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked".to_string())).collect::<Result<_, _>>()
    })?;
    Ok([0, 1, 2].map(|at| speed(threads * n, &all.iter().map(|times| times[at]).collect::<Vec<_>>())))
}

/// A worker: a phase for each line.
pub fn serve(way: &Way, who: &str, n: &str, many: bool) -> Result<(), String> {
    let number = |text: &str| text.parse::<usize>().map_err(|e| format!("{text}: {e}"));
    let (calls, names) = (way.open()?, names(number(who)?, number(n)?, many));
    println!("ready");
    for (line, call) in std::io::stdin().lock().lines().zip(CALLS) {
        line.map_err(|e| e.to_string())?;
        let (begun, ended) = phase(&*calls, call, &names);
        println!("{begun} {ended}");
    }
    Ok(())
}

fn processes(way: &Way, words: &[&str], processes: usize, n: usize, many: bool) -> Result<[f64; 3], String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut workers = Vec::new();
    for who in 0..processes {
        let mut command = Command::new(&program);
        command.args(words).args(["--worker", "scaling"]).args(way.words());
        command.args([who.to_string().as_str(), n.to_string().as_str(), if many { "many" } else { "one" }]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Err("no pipes".into()) };
        workers.push((child, input, BufReader::new(output)));
    }
    let read = |output: &mut BufReader<_>| {
        let mut line = String::new();
        output.read_line(&mut line).map_err(|e| e.to_string()).map(|_| line)
    };
    for (_, _, output) in &mut workers {
        if read(output)?.trim() != "ready" {
            return Err("a worker has died".into());
        }
    }
    let mut speeds = [0.0; 3];
    for speed_of in &mut speeds {
        workers.iter_mut().try_for_each(|(_, input, _)| input.write_all(b"go\n")).map_err(|e| e.to_string())?;
        let mut times = Vec::new();
        for (_, _, output) in &mut workers {
            let line = read(output)?;
            let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
            times.push(numbers.next().zip(numbers.next()).ok_or("a worker has died")?);
        }
        *speed_of = speed(processes * n, &times);
    }
    for (mut child, input, _) in workers {
        drop(input);
        child.wait().map_err(|e| e.to_string())?;
    }
    Ok(speeds)
}

/// Throughput of create, look-up and delete.
pub fn calls(stage: &Stage, words: &[&str], rounds: Rounds) -> Result<Figure, String> {
    let (n, rounds) = rounds.of(50, 10_000);
    let title = format!("calls at once, {n} by each, the best of {rounds} rounds");
    let mut figure = Figure::new("scaling", title, "million calls a second", &stage.columns());
    for many in [false, true] {
        let mut best = vec![vec![[0f64; 3]; 3]; MANY.len()];
        for way in &stage.ways {
            let calls = way.open()?;
            good(calls.mkdir(c"all"));
            (0..4).for_each(|who| done(calls.mkdir(&text(format!("own{who}")))));
        }
        for _ in 0..rounds {
            for (row, (thread_count, process_count)) in MANY.into_iter().enumerate() {
                for (at, way) in stage.ways.iter().enumerate() {
                    let speeds = match process_count {
                        1 => threads(way, thread_count, n, many)?,
                        _ => processes(way, words, process_count, n, many)?,
                    };
                    speeds.iter().enumerate().for_each(|(call, speed)| best[row][call][at] = best[row][call][at].max(*speed));
                }
            }
        }
        for way in &stage.ways {
            let calls = way.open()?;
            good(calls.rmdir(c"all"));
            (0..4).for_each(|who| done(calls.rmdir(&text(format!("own{who}")))));
        }
        for (call, name) in CALLS.iter().enumerate() {
            for (row, (threads, processes)) in MANY.into_iter().enumerate() {
                let who = match processes {
                    1 => format!("{threads} threads"),
                    _ => format!("{processes} processes"),
                };
                let place = if many { "a directory each" } else { "one directory" };
                figure.row(format!("{name}, {place}, {who}"), best[row][call].iter().copied().map(Some).collect());
            }
        }
    }
    Ok(figure
        .paper("1 to 24 threads on 24 cores; fine-grained flags and atomic writes let look-up and delete grow with the threads."))
}

/// Filebench's varmail and fileserver.
pub fn filebench(stage: &Stage, rounds: Rounds) -> Result<Figure, String> {
    let directories = [&stage.directories[1].0, &stage.directories[2].0];
    let (counts, rounds): (&[usize], _) = rounds.of(&[1], &[1, 2, 4, 8, 16]);
    let quick = counts.len() == 1;
    let image = stage.image().with_file_name("filebench");
    crate::stage::make_image(&image, 8 << 30)?;
    let mut figure = Figure::new("filebench", "filebench's loads by threads", "thousand operations a second", &stage.columns());
    for load in ["varmail", "fileserver"] {
        for (threads, speeds) in counts.iter().zip(melo::speeds(
            load,
            &image,
            directories.map(|dir| dir.as_path()),
            counts,
            (!quick).then_some(rounds.min(3)),
        )?) {
            figure.row(format!("{load}, {threads} threads"), speeds.into_iter().map(|speed| Some(speed / 1e3)).collect());
        }
    }
    Ok(figure.paper("varmail +27 % with one thread and +66.9 % with several, against ext4-dax and NOVA."))
}

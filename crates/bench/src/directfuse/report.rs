//! The tables, as Markdown for `docs/results/directfuse.md`, and the CSV.

use super::rounds::{Measured, Results};
use super::way::{How, On};
use crate::run::median;
use std::fmt::Write;

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn mib_per_second(row: &Measured) -> f64 {
    row.job.bytes as f64 / (1 << 20) as f64 / (row.ns / 1e9)
}

/// A line of a table, with `-` for what was not measured.
fn line(head: &str, cells: impl IntoIterator<Item = Option<String>>) {
    let cells: Vec<String> = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".into())).collect();
    println!("| {head} | {} |", cells.join(" | "));
}

fn head(first: &str, columns: &[&str]) {
    println!("| {first} | {} |", columns.join(" | "));
    println!("|---|{}", "---|".repeat(columns.len()));
}

/// Prints everything.
pub fn print(results: &Results) {
    println!("{}\n", results.machine);
    let names: Vec<&str> = How::ALL.iter().map(|how| how.name()).collect();
    for medium in &results.media {
        for job in ["write", "read"] {
            println!("**{medium}, sequential {job}: MiB/s**\n");
            head("a call", &names);
            for bytes in sizes(results, job) {
                let cell = |how| Some(format!("{:.0}", mib_per_second(results.find(medium, how, On::Any, job, bytes)?)));
                line(&size(bytes), How::ALL.map(cell));
            }
            println!();
        }
    }
    let first = results.media[0].as_str();
    latencies(results);
    println!("**Backend that answers at once, and warm `stat`: ns a call**\n");
    let ways: Vec<(How, On)> = vec![
        (How::Native, On::Any),
        (How::Kernel, On::Any),
        (How::Channel, On::Any),
        (How::Plugin, On::Any),
        (How::PluginApi, On::Any),
        (How::Kernel, On::One),
        (How::Channel, On::One),
        (How::Channel, On::Apart),
        (How::Socket, On::Any),
    ];
    let mut columns = names.clone();
    columns.extend(["kernel FUSE, one processor", "channel, one processor", "channel, a processor each", "socket"]);
    head("call", &columns);
    for job in ["dummy write", "dummy read", "create+close", "stat"] {
        for bytes in sizes(results, job) {
            let cell = |&(how, on): &(How, On)| Some(format!("{:.0}", results.find(first, how, on, job, bytes)?.ns));
            let name = if bytes == 0 { job.to_string() } else { format!("{job}, {}", size(bytes)) };
            line(&name, ways.iter().map(cell));
        }
    }
    println!();
    asked(results, first);
    let sum = results.rows.iter().fold(0u64, |sum, row| sum.rotate_left(7) ^ row.sum);
    let same = if results.same_work() { "the same" } else { "NOT the same" };
    println!("\nchecksum of the work {sum:016x}, {same} by all ways");
}

fn sizes(results: &Results, job: &str) -> Vec<usize> {
    let mut sizes: Vec<usize> = results.rows.iter().filter(|row| row.job.name == job).map(|row| row.job.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// What a call takes beside the operation itself, and how often it changes the process.
fn latencies(results: &Results) {
    println!("**Latency: µs a call = inside the operation + the way to it (context switches of both sides)**\n");
    let names: Vec<&str> = How::ALL.iter().map(|how| how.name()).collect();
    head("call", &names);
    for medium in &results.media {
        for job in ["create+close", "write"] {
            for bytes in sizes(results, job).into_iter().filter(|&bytes| bytes <= 1 << 20) {
                let cell = |how| {
                    let row = results.find(medium, how, On::Any, job, bytes)?;
                    // All that the kernel does for the directory itself is the operation.
                    let real = if how == How::Native { row.ns } else { row.real_ns };
                    let rest = (row.ns - real).max(0.0);
                    Some(format!("{:.2} + {:.2} ({:.2})", real / 1e3, rest / 1e3, row.switches))
                };
                let name = if bytes == 0 { job.to_string() } else { format!("{job} {}", size(bytes)) };
                line(&format!("{medium}, {name}"), How::ALL.map(cell));
            }
        }
    }
    println!();
}

/// A time with what its rounds took: the least is what the code can do, the rest what the machine did besides.
fn with_spread(row: &Measured) -> String {
    let (least, most) = row.round_ns.iter().fold((f64::INFINITY, 0.0f64), |(least, most), &ns| (least.min(ns), most.max(ns)));
    format!("{:.0} ns (rounds {least:.0} to {most:.0})", row.ns)
}

/// How often as fast as `native` a way is: the median of the rounds, each by itself, since the machine's speed changes
/// from round to round.
fn round_by_round(native: &Measured, row: &Measured) -> f64 {
    median(&mut native.round_ns.iter().zip(&row.round_ns).map(|(native, ns)| native / ns).collect::<Vec<_>>())
}

/// What is asked of the ways, and what they do.
fn asked(results: &Results, first: &str) {
    println!("| asked | measured |\n|---|---|");
    let say = |what: &str, value: Option<String>| println!("| {what} | {} |", value.unwrap_or_else(|| "not measured".into()));
    let dummy = |how, on, job, bytes| results.find(first, how, on, job, bytes);
    let ns = |row: Option<&Measured>| row.map(with_spread);
    say("dummy write of 1 B in process ≤ 38 ns (C API)", ns(dummy(How::PluginApi, On::Any, "dummy write", 1)));
    say("dummy read of 1 B in process ≤ 38 ns (C API)", ns(dummy(How::PluginApi, On::Any, "dummy read", 1)));
    say(
        "dummy write of 1 B by the channel ≤ 1 µs with a free processor, where the kernel puts them",
        ns(dummy(How::Channel, On::Any, "dummy write", 1)),
    );
    say("… with a processor for each side", ns(dummy(How::Channel, On::Apart, "dummy write", 1)));
    say("… ≤ 6 µs on a busy one", ns(dummy(How::Channel, On::One, "dummy write", 1)));
    let line = |ns: &[f64]| Some(format!("{:.0} ns (median; {:.0} to {:.0})", ns.get(ns.len() / 2)?, ns.first()?, ns.last()?));
    say("a line of memory to the other processor and back, beside these calls: what they can't go below", line(&results.line_ns));
    let ratio = |on, over: How| Some(dummy(over, on, "dummy write", 1)?.ns / dummy(How::Kernel, on, "dummy write", 1)?.ns);
    let shown = |value: Option<f64>| value.map(|value| format!("{value:.2}"));
    say("dummy write by the channel against kernel FUSE ≤ 1", shown(ratio(On::Any, How::Channel)));
    say("… on one processor ≤ 1", shown(ratio(On::One, How::Channel)));
    let socket = dummy(How::Socket, On::Any, "dummy write", 1).zip(dummy(How::Channel, On::Any, "dummy write", 1));
    say("dummy write over a socket against the channel", shown(socket.map(|(socket, channel)| socket.ns / channel.ns)));
    let mut least = f64::INFINITY;
    for row in results.rows.iter().filter(|row| row.job.bytes >= 64 << 10 && row.how == How::Plugin) {
        let native = results.find(&row.medium, How::Native, On::Any, row.job.name, row.job.bytes);
        least = native.map_or(least, |native| least.min(round_by_round(native, row)));
    }
    say("in-process bandwidth against native, round by round, the least at ≥ 64 KiB: ≥ 0.9", shown(Some(least)));
    let inside = |row: &&Measured| matches!(row.how, How::Plugin | How::PluginApi) && row.medium == first;
    let most = results.rows.iter().filter(inside).map(|row| row.switches).fold(0.0, f64::max);
    say("context switches a call in process, the most: 0", shown(Some(most)));
    let stat = |how| results.find(first, how, On::Any, "stat", 0).map(|row| row.ns);
    let stat = stat(How::Channel).zip(stat(How::Kernel)).map(|(ours, theirs)| ours / theirs);
    say("warm `stat` through our cache against kernel FUSE's ≤ 0.17", shown(stat));
}

/// A line for each row.
pub fn csv(results: &Results) -> String {
    let mut text = format!("# {}\nmedium,way,processors,call,bytes,calls,ns,real_ns,switches,checksum\n", results.machine);
    for row in &results.rows {
        let (job, how) = (&row.job, row.how.name().replace(',', ""));
        let _ = writeln!(
            text,
            "{},{how},{},{},{},{},{:.1},{:.1},{:.3},{:x}",
            row.medium,
            row.on.name(),
            job.name,
            job.bytes,
            job.n,
            row.ns,
            row.real_ns,
            row.switches,
            row.sum
        );
    }
    text
}

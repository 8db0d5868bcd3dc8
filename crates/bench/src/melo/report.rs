//! Tables as Markdown, CSV.

use super::load::LOADS;
use super::rounds::{LENGTHS, Results, Row, size};
use std::fmt::Write;

/// What the paper says, beside which the figures stand.
const PAPER: &str = "\
MeLo@V (figure 2, filebench on DRAM, Linux 4.3): with undo and replay legacy file systems are only slightly below \
themselves with asynchronous I/O and no persistence; replay is 2 to 6 % slower than undo; undo is on a par with NOVA, PMFS and ext4-DAX.";

fn header(text: &mut String, first: &str, results: &Results) {
    let _ = writeln!(text, "| {first} | {} |", results.ways.join(" | "));
    let _ = writeln!(text, "|---{}|", "|---".repeat(results.ways.len()));
}

/// A row of figures; where the way is an atomic one, how many per cent more or less than the image without.
fn line(text: &mut String, what: &str, (rows, is_time): (&[Row], bool), results: &Results) {
    let figure = |way: &str| Results::find(rows, what, way).map(|row| row.figure(is_time));
    let plain = figure("image");
    let cells = results.ways.iter().map(|way| match (figure(way), plain) {
        (Some(value), Some(plain)) if way.starts_with("image,") => {
            format!("{value:.0} ({:+.1} %)", (value / plain - 1.0) * 100.0)
        }
        (Some(value), _) => format!("{value:.0}"),
        (None, _) => "–".into(),
    });
    let _ = writeln!(text, "| {what} | {} |", cells.collect::<Vec<_>>().join(" | "));
}

/// For people.
pub fn table(results: &Results) -> String {
    let mut text = format!("{}\n", results.machine);
    for why in &results.left_out {
        let _ = writeln!(text, "left out: {why}");
    }
    for (title, rows) in [
        ("operations a second", &results.loads),
        ("nanoseconds of processor time an operation, which other work on the machine disturbs less", &results.processor),
    ] {
        let _ = writeln!(text, "\nFilebench's loads, {title}\n");
        header(&mut text, "load", results);
        for load in LOADS.iter().filter(|load| rows.iter().any(|row| row.what == load.name)) {
            line(&mut text, load.name, (rows, false), results);
        }
    }
    if !results.overwrites.is_empty() {
        let _ = writeln!(
            text,
            "\nOverwriting in place at random, one thread, nothing synced, ns a call, the best of many short rounds\n"
        );
        header(&mut text, "bytes", results);
        LENGTHS.iter().for_each(|len| line(&mut text, &size(*len), (&results.overwrites, true), results));
    }
    let _ = writeln!(text, "\n{PAPER}");
    text
}

/// All rounds.
pub fn csv(results: &Results) -> String {
    let mut text = format!("# {}\nwhat,way,unit,figure,rounds\n", results.machine);
    for (rows, unit, is_time) in [
        (&results.loads, "operations/s", false),
        (&results.processor, "ns of processor time", false),
        (&results.overwrites, "ns", true),
    ] {
        for row in rows {
            let rounds: Vec<String> = row.rounds.iter().map(|value| format!("{value:.0}")).collect();
            let _ = writeln!(text, "{},\"{}\",{unit},{:.0},{}", row.what, row.way, row.figure(is_time), rounds.join(" "));
        }
    }
    text
}

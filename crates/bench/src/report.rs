//! The table.

use crate::run::Results;

fn ratio(value: f64) -> String {
    if value >= 1.0 { format!("{value:.2}") } else { format!("1/{:.1}", 1.0 / value.max(1e-9)) }
}

/// Prints a table a mode: medians in nanoseconds a call, and ratios to the first target.
pub fn print(results: &Results) {
    let e = &results.environment;
    println!(
        "{} ({} processors), Linux {}; medians of {} rounds of {} calls, ns a call",
        e.cpu, e.processors, e.kernel, e.rounds, e.calls
    );
    let mut modes: Vec<&str> = results.rows.iter().map(|r| r.mode.as_str()).collect();
    modes.dedup();
    for mode in modes {
        println!("\n{mode}");
        print!("  {:<18}", "call");
        for (at, target) in results.targets.iter().enumerate() {
            print!("{:>12}", target.chars().rev().take(11).collect::<Vec<_>>().iter().rev().collect::<String>());
            if at > 0 {
                print!("{:>8}", "ratio");
            }
        }
        println!("{:>9}", "target");
        for row in results.rows.iter().filter(|r| r.mode == mode) {
            print!("  {:<18}", row.call);
            for (at, ns) in row.ns.iter().enumerate() {
                print!("{ns:>12.0}");
                if at > 0 {
                    print!("{:>8}", ratio(ns / row.ns[0]));
                }
            }
            println!("{:>9}", row.target.map_or(String::from("-"), ratio));
        }
    }
    let sum = results.rows.iter().fold(0u64, |sum, row| sum.rotate_left(7) ^ row.checksum[0]);
    println!(
        "\nchecksum of the work {sum:016x}, {} on all targets",
        if results.same_work() { "the same" } else { "NOT the same" }
    );
    for row in results.rows.iter().filter(|row| row.checksum.iter().any(|s| *s != row.checksum[0])) {
        println!("  {} ({}): {:x?}", row.call, row.mode, row.checksum);
    }
}

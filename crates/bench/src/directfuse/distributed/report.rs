//! The tables, the CSV and the picture.

use super::node::Way;
use super::{JOBS, Results};
use crate::picture::Picture;
use plotters::style::RGBColor;
use std::fmt::Write;
use std::path::Path;

const COLOURS: [RGBColor; 3] = [RGBColor(214, 39, 40), RGBColor(31, 119, 180), RGBColor(44, 160, 44)];
const WIDTH: i32 = 320;
const HEIGHT: i32 = 240;

fn job_name(job: &str) -> &'static str {
    match job {
        "write" => "sequential write, synced",
        "read" => "sequential read of another's file",
        _ => "the same once more",
    }
}

/// Prints everything.
pub fn print(results: &Results) {
    println!("{}; {} MiB a client, in calls of 1 MiB\n", results.machine, results.mib);
    for job in JOBS {
        println!("**{}: MiB/s of all clients (the cluster's share of busy processors)**\n", job_name(job));
        println!("| object servers, clients | {} |", Way::ALL.map(Way::name).join(" | "));
        println!("|---|{}", "---|".repeat(Way::ALL.len()));
        for servers in results.all(|row| row.servers) {
            for clients in results.all(|row| row.clients) {
                let cell = |way| match results.find(servers, way, clients, job) {
                    Some(row) => format!("{:.0} ({:.0} %)", row.mib_per_second, row.servers_share * 100.0),
                    None => "-".into(),
                };
                println!("| {servers}, {clients} | {} |", Way::ALL.map(cell).join(" | "));
            }
        }
        println!();
    }
    let sum = results.rows.iter().fold(0u64, |sum, row| sum.rotate_left(7) ^ row.sum);
    let same = if results.same_work() { "what was read is what was written" } else { "what was read is NOT what was written" };
    println!("checksum of the work {sum:016x}: {same}");
}

/// A line for each row.
pub fn csv(results: &Results) -> String {
    let mut text = format!("# {}; {} MiB a client\n", results.machine, results.mib);
    text.push_str("object_servers,way,clients,job,mib_per_second,cluster_share,checksum\n");
    for row in &results.rows {
        let (servers, way, clients, job) = (row.servers, row.way.name(), row.clients, row.job);
        let _ =
            writeln!(text, "{servers},{way},{clients},{job},{:.1},{:.3},{:x}", row.mib_per_second, row.servers_share, row.sum);
    }
    text
}

/// Draws it as SVG: a row for each number of object servers, a column for each job.
pub fn draw(results: &Results, path: &Path) -> Result<(), String> {
    let servers = results.all(|row| row.servers);
    let picture = Picture::new(path, (JOBS.len() as i32 * WIDTH, 40 + servers.len() as i32 * HEIGHT))?;
    picture.put("MiB/s by clients", (20, 8), 14)?;
    for (at, way) in Way::ALL.iter().enumerate() {
        let left = 200 + at as i32 * 150;
        picture.line(vec![(left, 16), (left + 18, 16)], COLOURS[at], 3)?;
        picture.put(way.name(), (left + 23, 9), 12)?;
    }
    let most = results.rows.iter().map(|row| row.mib_per_second).fold(64.0, f64::max).log2().ceil();
    for (line, &servers) in servers.iter().enumerate() {
        for (column, job) in JOBS.into_iter().enumerate() {
            let (left, top) = (column as i32 * WIDTH + 60, line as i32 * HEIGHT + 60);
            let (width, height) = (WIDTH - 80, HEIGHT - 60);
            // 1 to 16 clients, 4 MiB/s and more.
            let x = |clients: usize| left + ((clients as f64).log2() / 4.0 * f64::from(width)) as i32;
            let y = |speed: f64| top + height - ((speed.max(4.0).log2() - 2.0) / (most - 2.0) * f64::from(height)) as i32;
            picture.put(format!("{servers} object servers, {}", job_name(job)), (left, top - 18), 12)?;
            for power in (2..=most as i32).step_by(2) {
                let speed = 2f64.powi(power);
                picture.line(vec![(left, y(speed)), (left + width, y(speed))], RGBColor(220, 220, 220), 1)?;
                picture.put(format!("{speed}"), (left - 42, y(speed) - 7), 11)?;
            }
            for clients in [1usize, 2, 4, 8, 16] {
                picture.put(format!("{clients}"), (x(clients) - 4, top + height + 4), 11)?;
            }
            for (at, way) in Way::ALL.into_iter().enumerate() {
                let rows = results.rows.iter().filter(|row| (row.servers, row.way, row.job) == (servers, way, job));
                picture.line(rows.map(|row| (x(row.clients), y(row.mib_per_second))).collect(), COLOURS[at], 2)?;
            }
        }
    }
    picture.finish()
}

//! The picture: bandwidth by size, a panel for each medium and direction.

use super::rounds::Results;
use super::way::How;
use crate::picture::Picture;
use plotters::style::{BLACK, RGBColor};
use std::path::Path;

const COLOURS: [RGBColor; 5] =
    [BLACK, RGBColor(214, 39, 40), RGBColor(31, 119, 180), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];
const WIDTH: i32 = 460;
const HEIGHT: i32 = 300;

/// Draws it as SVG, both axes logarithmic.
pub fn draw(results: &Results, path: &Path) -> Result<(), String> {
    let picture = Picture::new(path, (2 * WIDTH, 50 + results.media.len() as i32 * HEIGHT))?;
    picture.put("MiB/s by size of a call", (20, 8), 14)?;
    for (at, how) in How::ALL.iter().enumerate() {
        let left = 200 + at as i32 * 135;
        picture.line(vec![(left, 16), (left + 18, 16)], COLOURS[at], 3)?;
        picture.put(how.name(), (left + 23, 9), 12)?;
    }
    for (row, medium) in results.media.iter().enumerate() {
        for (column, job) in ["write", "read"].into_iter().enumerate() {
            let (left, top) = (column as i32 * WIDTH + 60, row as i32 * HEIGHT + 60);
            let (width, height) = (WIDTH - 90, HEIGHT - 70);
            // 4 KiB to 16 MiB, 16 MiB/s to 32 GiB/s.
            let x = |bytes: usize| left + ((bytes as f64).log2().mul_add(1.0 / 12.0, -1.0) * f64::from(width)) as i32;
            let y = |speed: f64| top + height - ((speed.max(16.0).log2() - 4.0) / 11.0 * f64::from(height)) as i32;
            picture.put(format!("{medium}, {job}"), (left, top - 18), 13)?;
            for power in (4..=15).step_by(2) {
                let speed = f64::from(1 << power);
                picture.line(vec![(left, y(speed)), (left + width, y(speed))], RGBColor(220, 220, 220), 1)?;
                picture.put(format!("{}", 1 << power), (left - 42, y(speed) - 7), 11)?;
            }
            for power in (12..=24).step_by(4) {
                picture.put(
                    ["4 KiB", "64 KiB", "1 MiB", "16 MiB"][(power - 12) / 4],
                    (x(1 << power) - 16, top + height + 6),
                    11,
                )?;
            }
            for (at, how) in How::ALL.iter().enumerate() {
                let rows = results.rows.iter().filter(|r| (r.medium == *medium, r.how, r.job.name) == (true, *how, job));
                let points = rows.map(|r| (x(r.job.bytes), y(r.job.bytes as f64 / 1.048_576e6 / (r.ns / 1e9)))).collect();
                picture.line(points, COLOURS[at], 2)?;
            }
        }
    }
    picture.finish()
}

//! The picture: time a call against the first target, one thread.

use crate::picture::Picture;
use crate::run::Results;
use plotters::style::{BLACK, RED, RGBColor};
use std::path::Path;

const COLOURS: [RGBColor; 4] = [RGBColor(31, 119, 180), RGBColor(255, 127, 14), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

/// Draws it as SVG: bars by call, logarithmic.
pub fn draw(results: &Results, path: &Path) -> Result<(), String> {
    let rows: Vec<_> = results.rows.iter().filter(|row| row.mode == "1 thread").collect();
    let others = results.targets.len().saturating_sub(1);
    let height = 90 + rows.len() as i32 * 34;
    let picture = Picture::new(path, (900, height))?;
    picture.put(format!("time a call against {} (= 1), {}", results.targets[0], results.environment.cpu), (20, 14), 16)?;
    // 1/64 at the left edge, 4 at the right one.
    let x = |ratio: f64| 170 + ((ratio.clamp(1.0 / 64.0, 4.0).log2() + 6.0) / 8.0 * 700.0) as i32;
    for power in -6..=2 {
        let ratio = 2f64.powi(power);
        let (colour, width) = if power == 0 { (BLACK, 2) } else { (RGBColor(210, 210, 210), 1) };
        picture.line(vec![(x(ratio), 56), (x(ratio), height - 20)], colour, width)?;
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{}", 1 << power) };
        picture.put(label, (x(ratio) - 8, 40), 12)?;
    }
    for (at, row) in rows.iter().enumerate() {
        let top = 62 + at as i32 * 34;
        picture.put(&row.call, (20, top + 6), 13)?;
        for other in 0..others {
            let width = 26 / others.max(1) as i32;
            let y = top + other as i32 * width;
            let end = x(row.ns[other + 1] / row.ns[0]);
            picture.bar((x(0.0), y), (end, y + width - 1), COLOURS[other % COLOURS.len()])?;
        }
        if let Some(target) = row.target {
            picture.line(vec![(x(target), top - 2), (x(target), top + 28)], RED, 2)?;
        }
    }
    for other in 0..others {
        let at = 420 + other as i32 * 150;
        picture.bar((at, 16), (at + 14, 28), COLOURS[other % COLOURS.len()])?;
        picture.put(&results.targets[other + 1], (at + 20, 15), 13)?;
    }
    picture.finish()
}

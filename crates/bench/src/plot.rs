//! The picture: time a call against the first target, one thread.

use crate::run::Results;
use plotters::prelude::*;
use std::path::Path;

const COLOURS: [RGBColor; 4] = [RGBColor(31, 119, 180), RGBColor(255, 127, 14), RGBColor(44, 160, 44), RGBColor(148, 103, 189)];

/// Draws it as SVG: bars by call, logarithmic.
pub fn draw(results: &Results, path: &Path) -> Result<(), String> {
    let rows: Vec<_> = results.rows.iter().filter(|row| row.mode == "1 thread").collect();
    let others = results.targets.len().saturating_sub(1);
    let height = 90 + rows.len() as u32 * 34;
    let root = SVGBackend::new(path, (900, height)).into_drawing_area();
    let fail = |e: String| format!("{}: {e}", path.display());
    root.fill(&WHITE).map_err(|e| fail(e.to_string()))?;
    let text = |size: u32| ("sans-serif", size).into_font();
    let put = |words: &str, at: (i32, i32), size: u32| {
        root.draw(&Text::new(words.to_string(), at, text(size))).map_err(|e| fail(e.to_string()))
    };
    put(&format!("time a call against {} (= 1), {}", results.targets[0], results.environment.cpu), (20, 14), 16)?;
    // 1/64 at the left edge, 4 at the right one.
    let x = |ratio: f64| 170 + ((ratio.clamp(1.0 / 64.0, 4.0).log2() + 6.0) / 8.0 * 700.0) as i32;
    for power in -6..=2 {
        let ratio = 2f64.powi(power);
        let style = if power == 0 { BLACK.stroke_width(2) } else { RGBColor(210, 210, 210).stroke_width(1) };
        let line = PathElement::new(vec![(x(ratio), 56), (x(ratio), height as i32 - 20)], style);
        root.draw(&line).map_err(|e| fail(e.to_string()))?;
        let label = if power < 0 { format!("1/{}", 1 << -power) } else { format!("{}", 1 << power) };
        put(&label, (x(ratio) - 8, 40), 12)?;
    }
    for (at, row) in rows.iter().enumerate() {
        let top = 62 + at as i32 * 34;
        put(&row.call, (20, top + 6), 13)?;
        for other in 0..others {
            let width = 26 / others.max(1) as i32;
            let y = top + other as i32 * width;
            let bar = Rectangle::new(
                [(x(0.0), y), (x(row.ns[other + 1] / row.ns[0]), y + width - 1)],
                COLOURS[other % COLOURS.len()].filled(),
            );
            root.draw(&bar).map_err(|e| fail(e.to_string()))?;
        }
        if let Some(target) = row.target {
            let mark = PathElement::new(vec![(x(target), top - 2), (x(target), top + 28)], RED.stroke_width(2));
            root.draw(&mark).map_err(|e| fail(e.to_string()))?;
        }
    }
    for other in 0..others {
        let at = 420 + other as i32 * 150;
        let key = Rectangle::new([(at, 16), (at + 14, 28)], COLOURS[other % COLOURS.len()].filled());
        root.draw(&key).map_err(|e| fail(e.to_string()))?;
        put(&results.targets[other + 1], (at + 20, 15), 13)?;
    }
    root.present().map_err(|e| fail(e.to_string()))
}

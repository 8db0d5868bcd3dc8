//! The picture: a panel for each load, a bar for each way.

use super::load::LOADS;
use super::rounds::Results;
use crate::picture::Picture;
use plotters::style::RGBColor;
use std::path::Path;

const COLOURS: [RGBColor; 3] = [RGBColor(120, 120, 120), RGBColor(190, 190, 190), RGBColor(31, 119, 180)];
const BAR: i32 = 22;
const LEFT: i32 = 150;
const WIDTH: i32 = 560;

/// Draws it as SVG, the fastest of each load as long as the panel.
pub fn draw(results: &Results, path: &Path) -> Result<(), String> {
    let loads: Vec<_> = LOADS.iter().filter(|load| results.loads.iter().any(|row| row.what == load.name)).collect();
    let panel = results.ways.len() as i32 * BAR + 36;
    let picture = Picture::new(path, (LEFT + WIDTH + 120, 40 + loads.len() as i32 * panel))?;
    picture.put(format!("filebench, operations a second; {}", results.machine), (12, 8), 13)?;
    for (row, load) in loads.iter().enumerate() {
        let top = 40 + row as i32 * panel;
        let speed = |way: &str| Results::find(&results.loads, load.name, way).map_or(0.0, |row| row.figure(false));
        let most = results.ways.iter().map(|way| speed(way)).fold(1.0, f64::max);
        picture.put(load.name, (12, top), 14)?;
        for (at, way) in results.ways.iter().enumerate() {
            let y = top + 20 + at as i32 * BAR;
            let width = (speed(way) / most * f64::from(WIDTH)) as i32;
            let colour = if way.starts_with("image") { COLOURS[2] } else { COLOURS[usize::from(way.contains("no syncs"))] };
            picture.bar((LEFT, y), (LEFT + width.max(1), y + BAR - 5), colour)?;
            picture.put(way.clone(), (20, y + 2), 12)?;
            picture.put(format!("{:.0}", speed(way)), (LEFT + width + 6, y + 2), 12)?;
        }
    }
    picture.finish()
}

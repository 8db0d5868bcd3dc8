//! A cachemap: a row a line of 64 bytes that was touched, by address; a cell a byte; the colour says how often, on a log scale.
//! Code is on the left, data on the right.

use super::stacks::Stacks;
use crate::budget::lackey::Kind;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Rows of a column of the picture.
const ROWS: usize = 128;
/// Size of a cell, and what lies between columns.
const CELL: usize = 2;
const GAP: usize = 10;
const TOP: usize = 20;
/// Once, up to 3, 10, 30, 100 times, more often.
const COLOURS: [&str; 6] = ["#2c3a93", "#2f86c1", "#35bf9b", "#a4d84c", "#fbc02d", "#e53935"];

fn colour(times: u32) -> Option<usize> {
    match times {
        0 => None,
        1 => Some(0),
        _ => Some((f64::from(times).log10() * 2.0).ceil().clamp(1.0, 5.0) as usize),
    }
}

/// A line.
#[derive(Clone)]
struct Line {
    times: [u32; 64],
    stacks: BTreeMap<usize, u32>,
}

/// A cachemap of a call.
pub struct Map {
    /// Lines by address: of code, of data.
    lines: [BTreeMap<u64, Line>; 2],
    stacks: Vec<String>,
}

/// A line's address, and how often by which stack.
type Touched = (String, Vec<(usize, u32)>);

/// What a click is answered from.
#[derive(Serialize)]
pub struct Answers<'a> {
    rows: usize,
    cell: usize,
    gap: usize,
    top: usize,
    /// Columns of code.
    columns: usize,
    stacks: &'a [String],
    /// Of code, of data.
    lines: [Vec<Touched>; 2],
}

impl Map {
    /// Of a call.
    pub fn of(stacks: &Stacks) -> Map {
        let mut lines = [BTreeMap::new(), BTreeMap::new()];
        for placed in &stacks.placed {
            let which = usize::from(placed.access.kind != Kind::Code);
            let mut last = None;
            for byte in placed.access.address..placed.access.address + u64::from(placed.access.size) {
                let new = || Line { times: [0; 64], stacks: BTreeMap::new() };
                let line: &mut Line = lines[which].entry(byte >> 6).or_insert_with(new);
                line.times[(byte & 63) as usize] += 1;
                if last != Some(byte >> 6) {
                    *line.stacks.entry(placed.stack).or_default() += 1;
                    last = Some(byte >> 6);
                }
            }
        }
        let stacks = stacks.all.iter().map(|names| names.join(";")).collect();
        Map { lines, stacks }
    }

    /// Lines of code and of data.
    pub fn counts(&self) -> [usize; 2] {
        [self.lines[0].len(), self.lines[1].len()]
    }

    fn columns(&self, which: usize) -> usize {
        self.lines[which].len().div_ceil(ROWS)
    }

    /// Width and height.
    pub fn size(&self) -> (usize, usize) {
        let columns = self.columns(0) + self.columns(1);
        let rows = self.lines.iter().map(|lines| lines.len().min(ROWS)).max().unwrap_or(0);
        ((columns * (64 * CELL + GAP) + 2 * GAP).max(200), TOP + rows * CELL + GAP)
    }

    /// As SVG, with a title.
    pub fn svg(&self, title: &str) -> String {
        let (width, height) = self.size();
        let mut runs: HashMap<(usize, usize), String> = HashMap::new();
        let mut frames = String::new();
        for which in 0..2 {
            let first = if which == 0 { 0 } else { self.columns(0) };
            let left = |column: usize| (first + column) * (64 * CELL + GAP) + which * GAP;
            for column in 0..self.columns(which) {
                let rows = (self.lines[which].len() - column * ROWS).min(ROWS);
                let _ = write!(
                    frames,
                    "<rect x='{}' y='{TOP}' width='{}' height='{}' fill='#fff' stroke='{}'/>",
                    left(column),
                    64 * CELL,
                    rows * CELL,
                    if which == 0 { "#9ab" } else { "#ca9" }
                );
            }
            for (at, line) in self.lines[which].values().enumerate() {
                let (x, y) = (left(at / ROWS), TOP + at % ROWS * CELL + CELL / 2);
                let mut byte = 0;
                while byte < 64 {
                    let shade = colour(line.times[byte]);
                    let end = (byte..64).find(|next| colour(line.times[*next]) != shade).unwrap_or(64);
                    if let Some(shade) = shade {
                        let path = runs.entry((which, shade)).or_default();
                        let _ = write!(path, "M{} {y}h{}", x + byte * CELL, (end - byte) * CELL);
                    }
                    byte = end;
                }
            }
        }
        let mut paths: Vec<_> = runs.into_iter().collect();
        paths.sort();
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}'>\
             <rect width='100%' height='100%' fill='#fff'/><text x='2' y='14' font-family='sans-serif' font-size='12'>{title}</text>{frames}"
        );
        for ((_, shade), path) in paths {
            let _ = write!(svg, "<path d='{path}' stroke='{}' stroke-width='{CELL}'/>", COLOURS[shade]);
        }
        svg + "</svg>"
    }

    /// What the page needs to answer a click.
    pub fn answers(&self) -> Answers<'_> {
        let lines = self.lines.each_ref().map(|lines| {
            let each = |(line, of): (&u64, &Line)| {
                (format!("{:x}", line << 6), of.stacks.iter().map(|(stack, times)| (*stack, *times)).collect())
            };
            lines.iter().map(each).collect()
        });
        Answers { rows: ROWS, cell: CELL, gap: GAP, top: TOP, columns: self.columns(0), stacks: &self.stacks, lines }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stacks::Placed;
    use super::*;
    use crate::budget::lackey::Access;

    /// Goal: a byte is as dark as it was often touched, on its line. Method: an instruction over a line's border, twice, a load once.
    #[test]
    fn bytes_are_counted_on_their_lines() {
        let placed = |kind, address, size| Placed { access: Access { kind, address, size }, stack: 0 };
        let (code, load) = (placed(Kind::Code, 126, 4), placed(Kind::Load, 0x1000, 8));
        let stacks = Stacks { placed: vec![code, placed(Kind::Code, 126, 4), load], all: vec![vec!["f".into(), "g".into()]] };
        let map = Map::of(&stacks);
        assert_eq!(map.counts(), [2, 1]);
        assert_eq!((map.lines[0][&1].times[62], map.lines[0][&2].times[1], map.lines[0][&2].times[2]), (2, 2, 0));
        assert_eq!(map.lines[0][&1].stacks[&0], 2);
        let svg = map.svg("t");
        assert!(svg.contains(COLOURS[1]) && svg.contains(COLOURS[0]) && svg.ends_with("</svg>"), "{svg}");
        let answers = serde_json::to_string(&map.answers()).unwrap_or_default();
        assert!(answers.contains("\"f;g\"") && answers.contains("[\"40\",[[0,2]]]"), "{answers}");
        assert_eq!([0, 1, 2, 3, 4, 1000].map(colour), [None, Some(0), Some(1), Some(1), Some(2), Some(5)]);
    }
}

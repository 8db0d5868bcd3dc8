//! A figure of a paper's, made again: rows and columns of numbers, beside what the paper says. Printed as Markdown, written
//! as CSV and JSON, drawn as SVG.

use crate::picture::Picture;
use crate::run::processor;
use plotters::style::RGBColor;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where the image and the kernel's file systems beside it are.
#[derive(clap::Args, Debug)]
pub struct Places {
    /// Directory for the image, and of the first file system to compare with
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub image_dir: PathBuf,
    /// Directory of the second one
    #[arg(long = "in", value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub directory: PathBuf,
}

/// What every paper's benchmark takes.
#[derive(clap::Args, Debug, Default)]
pub struct Output {
    /// Writes all results as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes all results as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draws the figures
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// One round of little work
    #[arg(long)]
    pub quick: bool,
    /// Only this figure, by its number or name in the table's title
    #[arg(long, value_name = "N")]
    pub figure: Vec<String>,
}

impl Output {
    /// Whether a figure is asked for.
    pub fn wants(&self, figure: &str) -> bool {
        self.figure.is_empty() || self.figure.iter().any(|wanted| wanted == figure)
    }

    /// That only figures are asked for that there are.
    pub fn check(&self, known: &[&str]) -> Result<(), String> {
        match self.figure.iter().find(|wanted| !known.contains(&wanted.as_str())) {
            Some(other) => Err(format!("no figure {other}: there are {}", known.join(", "))),
            None => Ok(()),
        }
    }
}

/// A figure.
#[derive(Serialize)]
pub struct Figure {
    /// Its number in the paper, or a name.
    pub figure: &'static str,
    /// What is shown.
    pub title: String,
    /// Of what.
    pub unit: &'static str,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows; `None`: not measured.
    pub rows: Vec<Row>,
    /// What the paper says.
    pub paper: &'static str,
}

/// A row of a figure.
#[derive(Serialize)]
pub struct Row {
    /// What.
    pub name: String,
    /// By column.
    pub values: Vec<Option<f64>>,
}

impl Figure {
    /// A figure without rows yet.
    pub fn new(figure: &'static str, title: impl Into<String>, unit: &'static str, columns: &[&str]) -> Figure {
        let columns = columns.iter().map(|column| column.to_string()).collect();
        Figure { figure, title: title.into(), unit, columns, rows: Vec::new(), paper: "" }
    }

    /// One more row.
    pub fn row(&mut self, name: impl Into<String>, values: Vec<Option<f64>>) {
        self.rows.push(Row { name: name.into(), values });
    }

    /// The same with what the paper says.
    pub fn paper(mut self, says: &'static str) -> Figure {
        self.paper = says;
        self
    }
}

/// All figures of a paper.
#[derive(Serialize)]
pub struct Report {
    /// Which.
    pub paper: &'static str,
    /// Processor and kernel.
    pub machine: String,
    /// What else ran, as the kernel says it, at the beginning and at the end.
    pub load: [String; 2],
    /// What could not be done here, and why.
    pub left_out: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// The machine's load of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_string()
}

/// A number as people read it.
pub fn shown(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value == 0.0 || value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

impl Report {
    /// Begins one.
    pub fn new(paper: &'static str) -> Report {
        Report { paper, machine: processor(), load: [load(), String::new()], left_out: Vec::new(), figures: Vec::new() }
    }

    /// Prints it, and writes what else is asked for.
    pub fn deliver(mut self, output: &Output) -> Result<(), String> {
        self.load[1] = load();
        print!("{}", self.markdown());
        let write = |path: &PathBuf, text: String| std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()));
        if let Some(path) = &output.json {
            write(path, serde_json::to_string_pretty(&self).map_err(|e| e.to_string())? + "\n")?;
        }
        if let Some(path) = &output.csv {
            write(path, self.csv())?;
        }
        output.plot.as_ref().map_or(Ok(()), |path| self.draw(path))
    }

    fn markdown(&self) -> String {
        let mut text = format!("{}; load {} at the beginning, {} at the end\n", self.machine, self.load[0], self.load[1]);
        self.left_out.iter().for_each(|why| text += &format!("\nleft out: {why}\n"));
        for figure in &self.figures {
            let _ = writeln!(text, "\n**{}: {}, {}**\n", figure.figure, figure.title, figure.unit);
            let _ = writeln!(text, "| | {} |\n|---{}|", figure.columns.join(" | "), "|---".repeat(figure.columns.len()));
            for row in &figure.rows {
                let cells: Vec<String> = row.values.iter().map(|value| shown(*value)).collect();
                let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
            }
            if !figure.paper.is_empty() {
                let _ = writeln!(text, "\nThe paper: {}", figure.paper);
            }
        }
        text
    }

    fn csv(&self) -> String {
        let mut text = format!("# {}; load {} to {}\n", self.machine, self.load[0], self.load[1]);
        self.left_out.iter().for_each(|why| text += &format!("# left out: {why}\n"));
        text += "figure,row,column,unit,value\n";
        for figure in &self.figures {
            for row in &figure.rows {
                for (column, value) in figure.columns.iter().zip(&row.values) {
                    let value = value.map_or(String::new(), |value| format!("{value:.3}"));
                    let _ = writeln!(text, "{},\"{}\",\"{column}\",\"{}\",{value}", figure.figure, row.name, figure.unit);
                }
            }
        }
        text
    }
}

const COLOURS: [RGBColor; 6] = [
    RGBColor(127, 127, 127),
    RGBColor(255, 127, 14),
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(214, 39, 40),
];
const LEFT: i32 = 230;
const WIDTH: i32 = 560;
const BAR: i32 = 11;

impl Report {
    /// One picture: a panel for each figure, a bar for each number, logarithmic where they differ a hundredfold.
    fn draw(&self, path: &Path) -> Result<(), String> {
        let group = |figure: &Figure| figure.columns.len() as i32 * BAR + 10;
        let panel = |figure: &Figure| 60 + figure.rows.len() as i32 * group(figure);
        let height = 50 + self.figures.iter().map(panel).sum::<i32>();
        let picture = Picture::new(path, (LEFT + WIDTH + 110, height))?;
        picture.put(format!("{}; {}; load {} to {}", self.paper, self.machine, self.load[0], self.load[1]), (12, 10), 13)?;
        let mut top = 40;
        for figure in &self.figures {
            picture.put(format!("{}: {}, {}", figure.figure, figure.title, figure.unit), (12, top), 14)?;
            for (at, column) in figure.columns.iter().enumerate() {
                let left = 20 + at as i32 * 150;
                picture.bar((left, top + 22), (left + 12, top + 34), COLOURS[at % 6])?;
                picture.put(column.clone(), (left + 17, top + 22), 12)?;
            }
            let scale = Scale::of(figure);
            for (at, row) in figure.rows.iter().enumerate() {
                let y = top + 44 + at as i32 * group(figure);
                picture.put(row.name.clone(), (20, y + 2), 12)?;
                for (column, value) in row.values.iter().enumerate() {
                    let (Some(value), y) = (*value, y + column as i32 * BAR) else { continue };
                    let end = LEFT + scale.length(value);
                    picture.bar((LEFT, y), (end, y + BAR - 2), COLOURS[column % 6])?;
                    picture.put(shown(Some(value)), (end + 5, y - 1), 10)?;
                }
            }
            top += panel(figure);
        }
        picture.finish()
    }
}

/// How long the bars of a figure are.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn of(figure: &Figure) -> Scale {
        let all = || figure.rows.iter().flat_map(|row| &row.values).flatten().copied().filter(|value| *value > 0.0);
        Scale { least: all().fold(f64::INFINITY, f64::min), most: all().fold(f64::MIN_POSITIVE, f64::max) }
    }

    fn length(&self, value: f64) -> i32 {
        let part = if self.most > self.least * 100.0 {
            let least = self.least / 2.0;
            (value.max(least) / least).ln() / (self.most / least).ln()
        } else {
            value / self.most
        };
        ((part * f64::from(WIDTH)) as i32).clamp(1, WIDTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what was not measured is seen as such, and bars are as long as their numbers say.
    /// Method: a figure of three numbers, by each way out.
    #[test]
    fn what_is_missing_is_not_a_number() {
        let mut report = Report::new("paper");
        let mut figure = Figure::new("3", "calls", "ns", &["a", "b"]).paper("less");
        figure.row("stat", vec![Some(1234.5), None]);
        figure.row("open", vec![Some(12.34), Some(1.0)]);
        report.left_out.push("the moon".into());
        report.figures.push(figure);
        let text = report.markdown();
        assert!(text.contains("| stat | 1234 | – |") && text.contains("| open | 12.3 | 1.00 |"), "{text}");
        assert!(text.contains("left out: the moon") && text.contains("The paper: less"), "{text}");
        let csv = report.csv();
        assert!(csv.contains("3,\"stat\",\"b\",\"ns\",\n") && csv.contains("3,\"open\",\"b\",\"ns\",1.000\n"), "{csv}");
        let scale = Scale::of(&report.figures[0]);
        assert_eq!((scale.length(1234.5), scale.length(0.0)), (WIDTH, 1));
        assert!(scale.length(12.34) > scale.length(1.0));
    }

    /// Goal: a figure that is not there is not silently none. Method: ask for one.
    #[test]
    fn unknown_figures_are_refused() {
        let output = Output { figure: vec!["7".into()], ..Output::default() };
        assert!(output.check(&["1", "3"]).is_err() && !output.wants("1") && output.wants("7"));
        assert!(Output::default().check(&["1"]).is_ok() && Output::default().wants("1"));
    }
}

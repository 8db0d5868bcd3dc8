//! A picture as SVG: what all figures are drawn with.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// A place in it: right, down.
pub(crate) type Place = (i32, i32);

/// One that is being drawn.
pub(crate) struct Picture<'a> {
    root: DrawingArea<SVGBackend<'a>, Shift>,
    path: &'a Path,
}

impl<'a> Picture<'a> {
    /// An empty one, white.
    pub(crate) fn new(path: &'a Path, (width, height): (i32, i32)) -> Result<Picture<'a>, String> {
        let root = SVGBackend::new(path, (width.unsigned_abs(), height.unsigned_abs())).into_drawing_area();
        let picture = Picture { root, path };
        picture.or_why(picture.root.fill(&WHITE))?;
        Ok(picture)
    }

    /// Words, from `at` on.
    pub(crate) fn put(&self, words: impl Into<String>, at: Place, size: u32) -> Result<(), String> {
        self.or_why(self.root.draw(&Text::new(words.into(), at, ("sans-serif", size).into_font())))
    }

    /// A line through points.
    pub(crate) fn line(&self, points: Vec<Place>, colour: RGBColor, width: u32) -> Result<(), String> {
        self.or_why(self.root.draw(&PathElement::new(points, colour.stroke_width(width))))
    }

    /// A filled bar between two corners.
    pub(crate) fn bar(&self, from: Place, to: Place, colour: RGBColor) -> Result<(), String> {
        self.or_why(self.root.draw(&Rectangle::new([from, to], colour.filled())))
    }

    /// Writes it.
    pub(crate) fn finish(self) -> Result<(), String> {
        self.or_why(self.root.present())
    }

    fn or_why<T, E: std::fmt::Display>(&self, done: Result<T, E>) -> Result<T, String> {
        done.map_err(|why| format!("{}: {why}", self.path.display()))
    }
}

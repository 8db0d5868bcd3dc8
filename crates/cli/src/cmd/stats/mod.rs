//! `bypath stats` and `bypath top`: what images and mounts are used for, by whom.
//!
//! | file | what |
//! |---|---|
//! | `sample.rs` | the figures of one moment |
//! | `text.rs` | as text, and for Prometheus |
//! | `top.rs` | on a terminal, again and again |
//! | `rates.rs` | what two moments differ by |

mod rates;
mod sample;
mod text;
mod top;

use super::{print, print_json};
use crate::failure::Result;
use sample::Watch;
use std::path::PathBuf;
use std::time::Duration;

/// How figures are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// An object.
    Json,
    /// Prometheus's text format.
    Prometheus,
}

/// Prints the figures of one moment.
pub fn stats(images: &[PathBuf], form: Form) -> Result<u8> {
    let mut watch = Watch::of(images)?;
    let sample = watch.sample();
    watch.leave();
    match form {
        Form::Json => print_json(&sample)?,
        Form::Text => print(text::people(&sample).as_bytes())?,
        Form::Prometheus => print(text::prometheus(&sample).as_bytes())?,
    }
    Ok(0)
}

/// Shows them on the terminal until `q` is pressed.
pub fn top(images: &[PathBuf], interval: f64) -> Result<u8> {
    let mut watch = Watch::of(images)?;
    let result = top::run(&mut watch, Duration::from_secs_f64(interval));
    watch.leave();
    result.map(|()| 0)
}

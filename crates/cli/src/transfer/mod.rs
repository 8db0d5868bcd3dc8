//! Copying whole trees into and out of an image.
//!
//! Kept: contents with their holes, modes with set-id bits, owners (as far as
//! the user may set them), modification times to the nanosecond, symlinks,
//! hard links, extended attributes, FIFOs, sockets and devices. Access times
//! are not: an image keeps none unless a program sets one.

pub mod export;
pub mod import;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// Seconds and nanoseconds of a time in nanoseconds.
fn split_time(ns: i64) -> (i64, i64) {
    (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
}

/// The names in a NUL-separated list.
fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&b| b == 0).filter(|name| !name.is_empty())
}

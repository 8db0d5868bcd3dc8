//! tar archives.

use super::sink::Sink;
use super::{Member, What};
use crate::failure::{Failure, Result};
use base::Kind;
use std::io::{BufRead, Read};
use tar::{Archive, Entry, EntryType};

/// What stands before the name of an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// Puts all members into the image.
pub fn read(sink: &mut Sink, mut input: impl BufRead) -> Result<()> {
    let shown = sink.shown.clone();
    let failed = |error: std::io::Error| {
        // What it quotes may have several lines.
        let why = error.to_string().lines().next().unwrap_or_default().to_string();
        Failure::new(format!("{shown}: not an archive (tar, tar.gz, tar.zst, zip), or broken off: {why}"))
    };
    // An archive without members ends with blocks of zeros: one without bytes is what a failed download leaves in a pipe.
    if input.fill_buf().map_err(failed)?.is_empty() {
        return Err(Failure::new(format!("{shown}: not an archive, as it is empty; did the program that should write it fail?")));
    }
    let mut archive = Archive::new(input);
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let (xattrs, exact) = extended(&mut entry).map_err(failed)?;
        let (path, link) = (entry.path_bytes().into_owned(), entry.link_name_bytes().unwrap_or_default().into_owned());
        let header = entry.header();
        let number = |part: std::io::Result<Option<u32>>| part.ok().flatten().unwrap_or(0);
        let rdev = rustix::fs::makedev(number(header.device_major()), number(header.device_minor())) as u32;
        let what = match header.entry_type() {
            EntryType::Directory => What::Directory,
            EntryType::Symlink => What::Symlink(&link),
            EntryType::Link => What::Link(&link),
            EntryType::Fifo => What::Special(Kind::Fifo, 0),
            EntryType::Char => What::Special(Kind::CharDevice, rdev),
            EntryType::Block => What::Special(Kind::BlockDevice, rdev),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => What::Regular,
            // Headers about others.
            _ => continue,
        };
        let seconds = header.mtime().ok().and_then(|seconds| i64::try_from(seconds).ok());
        let owner = header
            .uid()
            .ok()
            .zip(header.gid().ok())
            .and_then(|(uid, gid)| Some((u32::try_from(uid).ok()?, u32::try_from(gid).ok()?)));
        let member = Member {
            path: &path,
            what,
            mode: header.mode().map_err(failed)? as u16 & 0o7777,
            owner,
            mtime: exact.or_else(|| seconds?.checked_mul(1_000_000_000)),
            xattrs,
        };
        sink.add(&member, &mut entry)?;
    }
    Ok(())
}

/// Extended attributes, and the time where it is given with fractions.
type Extended = (Vec<(Vec<u8>, Vec<u8>)>, Option<i64>);

fn extended(entry: &mut Entry<impl Read>) -> std::io::Result<Extended> {
    let (mut xattrs, mut mtime) = (Vec::new(), None);
    for part in entry.pax_extensions()?.into_iter().flatten() {
        let part = part?;
        if let Some(name) = part.key_bytes().strip_prefix(XATTR) {
            xattrs.push((name.to_vec(), part.value_bytes().to_vec()));
        } else if part.key_bytes() == b"mtime" {
            mtime = part.value().ok().and_then(nanoseconds);
        }
    }
    Ok((xattrs, mtime))
}

/// Of a decimal number of seconds.
fn nanoseconds(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = part.chars().chain(std::iter::repeat('0')).take(9).collect();
    let part: i64 = digits.parse().ok()?;
    let part = if whole.starts_with('-') { -part } else { part };
    seconds.checked_mul(1_000_000_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times keep their fractions.
    #[test]
    fn times() {
        let all = ["12", "12.5", "-0.5", "-3.25", "12.0000000019"].map(nanoseconds);
        assert_eq!(
            all,
            [Some(12_000_000_000), Some(12_500_000_000), Some(-500_000_000), Some(-3_250_000_000), Some(12_000_000_001)]
        );
        assert!(["", "x", "1.x", "99999999999999999999"].iter().all(|text| nanoseconds(text).is_none()));
    }
}

//! zip archives, which wheels are.

use super::sink::Sink;
use super::{Member, What};
use crate::failure::{Failure, Result};
use std::io::{Read, Seek};
use zip::{DateTime, ZipArchive};

/// Puts all members into the image.
pub fn read(sink: &mut Sink, input: impl Read + Seek) -> Result<()> {
    let shown = sink.shown.clone();
    let failed = |error: zip::result::ZipError| Failure::new(format!("{shown}: not a zip file that can be read: {error}"));
    let mut archive = ZipArchive::new(input).map_err(failed)?;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(failed)?;
        let path = entry.name_raw().to_vec();
        let mut target = Vec::new();
        let what = if entry.is_symlink() {
            entry.read_to_end(&mut target).map_err(|error| Failure::io(&shown, &error))?;
            What::Symlink(&target)
        } else if entry.is_dir() {
            What::Directory
        } else {
            What::Regular
        };
        let usual = if matches!(what, What::Directory) { 0o755 } else { 0o644 };
        let mode = entry.unix_mode().map_or(usual, |mode| mode as u16 & 0o7777);
        // Tools that keep no modes write 0.
        let mode = if mode == 0 { usual } else { mode };
        let mtime = entry.last_modified().map(seconds).and_then(|seconds| seconds.checked_mul(1_000_000_000));
        let member = Member { path: &path, what, mode, owner: None, mtime, xattrs: Vec::new() };
        sink.add(&member, &mut entry)?;
    }
    Ok(())
}

/// Seconds since the epoch; zip files do not say in which time zone, and UTC is taken.
fn seconds(time: DateTime) -> i64 {
    let (year, month, day) = (i64::from(time.year()), i64::from(time.month()), i64::from(time.day()));
    // Years that begin in March have their leap day last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    ((days * 24 + i64::from(time.hour())) * 60 + i64::from(time.minute())) * 60 + i64::from(time.second())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: days are counted as calendars do.
    #[test]
    fn dates() {
        let at = |year, month, day, hour| seconds(DateTime::from_date_and_time(year, month, day, hour, 0, 0).unwrap());
        assert_eq!(at(1980, 1, 1, 0), 315_532_800);
        assert_eq!(at(2000, 2, 29, 12), 951_825_600);
        assert_eq!(at(2026, 12, 31, 23), 1_798_758_000);
    }
}

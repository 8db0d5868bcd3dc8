//! Attributes as people and programs read them.

use base::{Attr, Kind};
use serde::Serialize;
use std::collections::HashMap;

/// One file, as JSON shows it.
#[derive(Serialize)]
pub struct Entry {
    /// Name or path; bytes that are no UTF-8 are replaced.
    pub name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Octal, with set-id and sticky bits.
    mode: String,
    nlink: u32,
    uid: u32,
    gid: u32,
    size: u64,
    /// In units of 512 bytes.
    blocks: u64,
    ino: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Nanoseconds since 1970.
    mtime_ns: i64,
    ctime_ns: i64,
    atime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    btime_ns: Option<i64>,
    /// Bytes of its blocks that no other file has, and that others have too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<u64>,
}

impl Entry {
    /// Name, attributes, and for a symlink its target.
    pub fn new(name: &[u8], attr: &Attr, target: Option<&[u8]>) -> Entry {
        let is_device = matches!(attr.kind, Kind::CharDevice | Kind::BlockDevice);
        Entry {
            name: String::from_utf8_lossy(name).into_owned(),
            kind: kind_name(attr.kind),
            mode: format!("{:04o}", attr.mode),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            ino: attr.ino,
            rdev: is_device.then(|| device(attr.rdev)),
            target: target.map(|text| String::from_utf8_lossy(text).into_owned()),
            mtime_ns: attr.mtime,
            ctime_ns: attr.ctime,
            atime_ns: attr.atime,
            btime_ns: attr.btime,
            own: None,
            shared: None,
        }
    }
}

/// Major and minor number.
pub fn device(rdev: u64) -> [u32; 2] {
    [rustix::fs::major(rdev), rustix::fs::minor(rdev)]
}

/// The word for a type.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Fifo => "fifo",
        Kind::CharDevice => "character device",
        Kind::Directory => "directory",
        Kind::BlockDevice => "block device",
        Kind::Regular => "regular file",
        Kind::Symlink => "symbolic link",
        Kind::Socket => "socket",
    }
}

/// `drwxr-sr-x`.
pub fn mode_text(kind: Kind, mode: u16) -> String {
    let letter = match kind {
        Kind::Fifo => 'p',
        Kind::CharDevice => 'c',
        Kind::Directory => 'd',
        Kind::BlockDevice => 'b',
        Kind::Regular => '-',
        Kind::Symlink => 'l',
        Kind::Socket => 's',
    };
    let mut text = String::from(letter);
    for (shift, special, letters) in [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letters[0],
            (true, false) => letters[1],
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2026-11-20 11:40:52.123456789` in UTC; without fraction if `short`.
pub fn time_text(ns: i64, short: bool) -> String {
    let (seconds, fraction) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let date = format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60);
    if short { date } else { format!("{date}:{:02}.{fraction:09}", second % 60) }
}

/// Year, month and day of a day counted from 1970-01-01 (proleptic Gregorian).
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

/// A name for a terminal: control characters and what is no UTF-8 are escaped.
pub fn name_text(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|c| if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) });
        chunk.invalid().iter().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
    }
    text
}

/// Names of users or groups by number, from `/etc/passwd` or `/etc/group`.
pub fn account_names(file: &str) -> HashMap<u32, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_string();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: dates agree with `date -u -d @N`, before 1970 and on leap days too.
    #[test]
    fn times() {
        assert_eq!(time_text(0, false), "1970-01-01 00:00:00.000000000");
        assert_eq!(time_text(951_782_400_000_000_001, false), "2000-02-29 00:00:00.000000001");
        assert_eq!(time_text(-1, false), "1969-12-31 23:59:59.999999999");
        assert_eq!(time_text(4_102_444_799_000_000_000, true), "2099-12-31 23:59");
    }

    /// Goal: modes read as `ls` writes them.
    #[test]
    fn modes() {
        assert_eq!(mode_text(Kind::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_text(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(Kind::Fifo, 0o2640), "prw-r-S---");
        assert_eq!(name_text(b"a\n\xff\xc3\xa9"), "a\\n\\xffé");
    }
}

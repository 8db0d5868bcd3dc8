//! Mutants that are not caught because they change nothing: each with the reason,
//! in `crash-equivalent.txt`.
//!
//! A place in the code is named there by its file and its line, and by which of
//! them it is where a file has that line more than once.

use super::explore::Media;
use super::mutate::{Change, Mutant};
use pm::record::Site;
use std::collections::{BTreeMap, BTreeSet};

const TEXT: &str = include_str!("../../crash-equivalent.txt");

/// The list.
pub struct Arguments {
    /// What is argued to be the same, and by which reason.
    list: BTreeMap<String, &'static str>,
}

impl Arguments {
    /// Reads the list.
    ///
    /// # Errors
    /// A line of it that cannot be read, or says what another one says.
    pub fn read() -> Result<Arguments, String> {
        let mut list = BTreeMap::new();
        let mut reason = "";
        for line in TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(text) = line.strip_prefix("because ") {
                reason = text;
                continue;
            }
            let Some((media, what)) = line.split_once('\t') else { return Err(format!("not an argument: {line}")) };
            for medium in media.split(' ') {
                if reason.is_empty() || list.insert(format!("{medium}\t{what}"), reason).is_some() {
                    return Err(format!("without a reason, or argued twice: {medium} {what}"));
                }
            }
        }
        Ok(Arguments { list })
    }

    /// Why this mutant is as good as the code; `None` if nobody has argued so.
    pub fn of(&self, media: Media, mutant: &Mutant) -> Option<&'static str> {
        self.list.get(&named(media, mutant)).copied()
    }

    /// What is argued of mutants of a medium that are not among `all`.
    pub fn stale(&self, media: Media, all: &[Mutant]) -> Vec<&str> {
        let there: BTreeSet<String> = all.iter().map(|mutant| named(media, mutant)).collect();
        let ours = |name: &&String| name.split('\t').next() == Some(media.name());
        self.list.keys().filter(ours).filter(|name| !there.contains(*name)).map(String::as_str).collect()
    }
}

/// The name of a mutant in the list.
pub fn named(media: Media, mutant: &Mutant) -> String {
    let (medium, here) = (media.name(), place(mutant.site));
    match mutant.change {
        Change::NoFlush => format!("{medium}\tno flush\t{here}"),
        Change::NoFence => format!("{medium}\tno fence\t{here}"),
        Change::Hastened => format!("{medium}\thastened\t{here}"),
        Change::Swapped(later, _) => format!("{medium}\t{here}\t{}", place(later)),
    }
}

/// File and line of code of a site.
fn place(site: Site) -> String {
    let text = std::fs::read_to_string(site.file()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let file = site.file().split_once("src/").map_or(site.file(), |(_, file)| file);
    let number = site.line() as usize;
    let code = number.checked_sub(1).and_then(|at| lines.get(at)).copied().unwrap_or_default();
    let same = |lines: &[&str]| lines.iter().filter(|line| **line == code).count();
    match (same(&lines), lines.get(..number).map(same)) {
        (2.., Some(which)) => format!("{file}: {code} ({which})"),
        _ => format!("{file}: {code}"),
    }
}

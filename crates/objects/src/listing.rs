//! A directory as the store lists it, and for how long that is believed.
//!
//! One page of names answers for all look-ups in a directory for a second: those that are there and, if it was the whole
//! directory, those that are not. What this session changes itself is entered at once. A directory of more names is asked
//! name by name, or, once that has cost more requests than its pages would, listed whole.

use crate::keys::{self, Listed};
use crate::store::{Meta, Store};
use pm::Errno;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long what the store says is believed.
pub const BELIEVED: Duration = Duration::from_secs(1);
/// Names that a look-up asks for.
const PAGE: usize = 1000;
/// So many look-ups of single names cost as much as a page, each being two requests.
const AS_A_PAGE: usize = 4;
/// A directory of more names is never listed for a look-up.
const MOST: usize = 100_000;
/// So many keys that are no paths are named after one listing; of more, how many there are.
const NAMED: usize = 20;

/// What is in a directory.
#[derive(Debug)]
pub struct Listing {
    at: Instant,
    /// By name.
    pub names: HashMap<String, Meta>,
    /// Nothing else is in it.
    pub is_whole: bool,
    /// It has a marker, and is there when it is empty.
    pub is_marked: bool,
    /// Look-ups since.
    pub asked: usize,
    /// It has too many names for a look-up.
    is_huge: bool,
}

/// How a name is looked for that no fresh listing tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// By a page of its directory.
    Page,
    /// By all of it.
    Whole,
    /// By itself.
    Name,
}

impl Listing {
    /// A directory that was just made.
    pub fn empty() -> Listing {
        let names = HashMap::new();
        Listing { at: Instant::now(), names, is_whole: true, is_marked: true, asked: 0, is_huge: false }
    }

    /// Whether it may still be believed.
    pub fn is_fresh(&self) -> bool {
        self.at.elapsed() < BELIEVED
    }

    /// See [`Search`]. Counts as a look-up.
    pub fn search(&mut self) -> Search {
        self.asked += 1;
        if self.is_whole && self.names.len() < PAGE {
            return Search::Page;
        }
        let pages = self.names.len() / PAGE + 1;
        if self.is_huge || self.asked <= pages * AS_A_PAGE { Search::Name } else { Search::Whole }
    }

    /// Whether there is anything that says that the directory exists.
    pub fn is_there(&self) -> bool {
        self.is_marked || !self.names.is_empty()
    }
}

/// Keys that are no paths, and were named to a person.
#[derive(Debug, Default)]
pub struct Refused(HashSet<String>);

impl Refused {
    fn say(&mut self, store: &Store, directory: &str, refused: Vec<(String, &'static str)>) {
        let new: Vec<_> = refused.into_iter().filter(|(key, _)| self.0.insert(key.clone())).collect();
        for (key, why) in new.iter().take(NAMED) {
            store.say(&format!("key {key:?} is no path and not shown: {why}"));
        }
        if new.len() > NAMED {
            store.say(&format!("{} more keys in {directory:?} are no paths and not shown", new.len() - NAMED));
        }
    }
}

/// Lists a directory: one page for a look-up, or more; all of it for a program.
pub fn list(store: &Store, directory: &str, how: Option<Search>, refused: &std::sync::Mutex<Refused>) -> Result<Listing, Errno> {
    let at = Instant::now();
    let most = match how {
        None => usize::MAX,
        Some(Search::Whole) => MOST,
        Some(_) => PAGE,
    };
    let (entries, is_whole) = store.list(directory, most, false)?;
    let (mut listing, odd) = sort(directory, at, entries, is_whole);
    listing.is_huge = !is_whole && most == MOST;
    if !odd.is_empty()
        && let Ok(mut refused) = refused.lock()
    {
        refused.say(store, directory, odd);
    }
    Ok(listing)
}

type Odd = Vec<(String, &'static str)>;

fn sort(directory: &str, at: Instant, entries: Vec<(String, Meta)>, is_whole: bool) -> (Listing, Odd) {
    let names = HashMap::with_capacity(entries.len());
    let mut listing = Listing { at, names, is_whole, is_marked: false, asked: 0, is_huge: false };
    let mut odd = Vec::new();
    for (key, meta) in entries {
        match keys::listed(directory, &key) {
            Listed::Marker => listing.is_marked = true,
            Listed::Refused(why) => odd.push((key, why)),
            Listed::Name(name) => {
                let is_dir = meta.is_dir || key.ends_with('/');
                let meta = if is_dir { Meta::DIR } else { meta };
                let before = listing.names.insert(name.to_string(), meta);
                if before.is_some_and(|before| before.is_dir != is_dir) {
                    // All below the directory would be out of reach otherwise.
                    listing.names.insert(name.to_string(), Meta::DIR);
                    odd.push((key.trim_end_matches('/').to_string(), "there is a directory of that name"));
                }
            }
        }
    }
    (listing, odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: names are kept, keys that are no paths are named, and of a file and a directory of one name the directory is
    /// shown, in whichever order the store lists them.
    #[test]
    fn sorted() {
        let file = || Meta { is_dir: false, size: 1, mtime: 0, etag: None };
        let entry = |key: &str| (key.to_string(), if key.ends_with('/') { Meta::DIR } else { file() });
        for keys in [["d/", "d/a", "d/a/", "d/b", "d//"], ["d/a/", "d//", "d/b", "d/a", "d/"]] {
            let (listing, odd) = sort("d", Instant::now(), keys.map(entry).to_vec(), true);
            assert!(listing.is_marked && listing.is_whole && listing.is_there());
            assert_eq!((listing.names.len(), listing.names["a"].is_dir, listing.names["b"].is_dir), (2, true, false));
            let mut odd: Vec<_> = odd.into_iter().map(|(key, _)| key).collect();
            odd.sort();
            assert_eq!(odd, ["d//", "d/a"]);
        }
    }
}

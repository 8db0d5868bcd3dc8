//! What can't be written back, for people: each file with the reason, and what to do.

use cache::Cache;
use std::path::Path;
use writeback::failures::{self, Unwritten};

/// Files named at most.
const SHOWN_MAX: usize = 10;

/// What the last round could not write.
pub fn of(cache: &Cache) -> Vec<Unwritten> {
    let thread = base::Thread::new();
    let cx = base::Cx { cred: base::Cred::ROOT, umask: 0, thread: &thread };
    let all = failures::of(cache, &cx).unwrap_or_default();
    cache.give_lane_back(&thread);
    all
}

/// A line for each of them, indented; nothing if there are none.
pub fn lines(all: &[Unwritten]) -> String {
    let mut text: String = all.iter().take(SHOWN_MAX).map(|one| format!("\n  {one}")).collect();
    if all.len() > SHOWN_MAX {
        text += &format!("\n  and {} more", all.len() - SHOWN_MAX);
    }
    text
}

/// The same, and which commands help.
pub fn advice(cache: &Cache, image: &Path) -> String {
    let (lines, image) = (lines(&of(cache)), image.display());
    format!(
        "{lines}\n  it is kept in the cache: `bypath cache drain {image}` tries again, `bypath cache skip {image} PATH` gives one up"
    )
}

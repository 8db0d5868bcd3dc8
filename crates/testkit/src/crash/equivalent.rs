//! Mutants that are not caught because they change nothing: each with the reason.

use super::command::kind;
use super::explore::Media;
use super::mutate::Change;

const SAME_LINES: &str = "the flush of head, name and value together, before the fence, writes back the same lines";
const HINTS: &str = "a reference or suggestion of an older run is a hint: the cachelet it names is asked for its identity, \
    and one of a new segment has none or the right one. The generation spares that question; it is the first of two defences";
const LAST: &str = "it ends the operation: what is stored next is the first word of another's record, \
    which means nothing before that record's state word, and that stays behind its own objects";
const RECORD: &str = "what is stored next is the first word of the record or of an object of it, \
    which means nothing before the record's state word, and that is not moved";
const RETIRED: &str = "what is stored next retires the record once more, or is the first word of the next record, \
    which means nothing before its state word";

/// Where the order of stores is kept, or else power may fail.
const POWER: bool = true;
const ORDERED: bool = false;

/// What is changed, where power may fail or not, in which file, at which line of
/// code (with the one before), and why that makes no difference.
const EQUIVALENT: [(&str, bool, &str, &str, &str); 11] = [
    ("flush", POWER, "src/xattr.rs", "if let Some((name, value)) = new { self.image.zero(to + added - 8, 8)?;", SAME_LINES),
    (
        "flush",
        POWER,
        "src/xattr.rs",
        "self.image.store(self.at(to, \"attribute\")?, pack_head(name.len(), value.len)); \
         self.image.copy_in(to + HEAD, UserSlice::from_ref(name))?;",
        SAME_LINES,
    ),
    (
        "flush",
        POWER,
        "src/xattr.rs",
        "self.image.copy_in(to + HEAD, UserSlice::from_ref(name))?; self.image.copy_in(to + HEAD + name.len() as u64, value)?;",
        SAME_LINES,
    ),
    (
        "flush",
        POWER,
        "process/join.rs",
        "self.image.store(generation, u64::from(next)); self.image.flush(self.image.offset_of(generation), 8);",
        HINTS,
    ),
    ("fence", POWER, "process/join.rs", "self.image.flush(self.image.offset_of(generation), 8); self.image.fence();", HINTS),
    ("swap", ORDERED, "process/join.rs", "self.image.flush(self.image.offset_of(generation), 8); self.image.fence();", HINTS),
    ("swap", ORDERED, "file/allocate.rs", "self.zero_allocated(from, to.min(before.max(from)))?; self.fs.image.fence();", LAST),
    ("swap", ORDERED, "file/job.rs", "} image.fence();", LAST),
    ("swap", ORDERED, "lane/mod.rs", "pub(crate) fn order(&self) { self.fs.image.fence();", RECORD),
    ("swap", ORDERED, "lane/mod.rs", "image.flush(lane, 8); image.fence();", RETIRED),
    ("swap", ORDERED, "src/permission.rs", "self.image.flush(self.image.offset_of(entry), 16); self.image.fence();", RECORD),
];

/// `fsync` in its forms: stores nothing itself.
const SYNC: &str = "src/file/sync.rs";

/// Why this mutant is as good as the code; `None` if nobody has argued so.
pub fn argument(media: Media, change: Change, file: &str, code: &str) -> Option<&'static str> {
    if kind(change) == "swap" && file.ends_with(SYNC) {
        return Some(LAST);
    }
    let power = media == Media::Power;
    let found = EQUIVALENT
        .iter()
        .find(|(what, domain, at, line, _)| *what == kind(change) && *domain == power && file.ends_with(at) && code == *line);
    found.map(|(.., why)| *why)
}

//! The checker: is everything as it must be?
//!
//! Works on a private copy in which pending records have been applied, so it
//! says of an image that nobody uses, or whose users are quiet, what the next
//! one to attach it would find. Memory is a few words a block and one for each
//! directory and hard link that waits, never something for every file.
//!
//! 1. superblocks, root, permission table (`tables`)
//! 2. from the root directory down: slots, edentries, inodes, extents (`walk`),
//!    each line claimed once (`space`); every name in its bucket (`index`)
//! 3. orphans
//! 4. the index back to the edentries: nothing else is in it
//! 5. how many extents have what is shared; link counts; the bitmap against what was claimed; the lanes' counters

mod contents;
mod files;
#[cfg(test)]
pub(crate) mod golden;
mod index;
#[cfg(test)]
mod planted;
pub(crate) mod shares;
mod space;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
mod walk;

pub use contents::{Contents, contents};
pub(crate) use tables::superblock_at;

use crate::fs::Fs;
use crate::inspect::Inspected;
use crate::process::AttachError;
use crate::process::in_place::Run;
use core::fmt;
use heap::collections::BTreeMap;
use heap::string::String;
use heap::vec::Vec;

/// Findings that are kept.
pub const ISSUES_MAX: usize = 1000;

/// What sort of thing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IssueKind {
    /// A copy of the superblock is damaged.
    Superblock,
    /// A word of the root makes no sense.
    Root,
    /// A record in a lane cannot be applied.
    Record,
    /// An entry of the permission table, or a reference to one.
    Permission,
    /// An inode that makes no sense.
    Inode,
    /// An inode's link count is not the number of its names.
    LinkCount,
    /// A directory's counts are not those of its entries.
    EntryCount,
    /// An edentry that makes no sense, or is not where it says.
    Edentry,
    /// A name that may not be.
    Name,
    /// A directory does not know its own name, or has two.
    Own,
    /// The index does not have a name, or has what is no name.
    Index,
    /// A file's map: order, bounds, depth.
    Extent,
    /// Blocks that an inode counts are not those it has.
    BlockCount,
    /// Two things use the same space.
    DoubleUse,
    /// Something uses space that the bitmap calls free.
    UsedButFree,
    /// The bitmap calls space used that nothing uses.
    Leaked,
    /// An entry of the orphan table.
    Orphan,
    /// The lanes' counters do not add up.
    Counter,
    /// How many extents have a block is not what the table of what is shared says.
    ShareCount,
}

impl IssueKind {
    /// A short name, as `--json` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            IssueKind::Superblock => "superblock",
            IssueKind::Root => "root",
            IssueKind::Record => "record",
            IssueKind::Permission => "permission",
            IssueKind::Inode => "inode",
            IssueKind::LinkCount => "link-count",
            IssueKind::EntryCount => "entry-count",
            IssueKind::Edentry => "edentry",
            IssueKind::Name => "name",
            IssueKind::Own => "own",
            IssueKind::Index => "index",
            IssueKind::Extent => "extent",
            IssueKind::BlockCount => "block-count",
            IssueKind::DoubleUse => "double-use",
            IssueKind::UsedButFree => "used-but-free",
            IssueKind::Leaked => "leaked",
            IssueKind::Orphan => "orphan",
            IssueKind::Counter => "counter",
            IssueKind::ShareCount => "share-count",
        }
    }
}

/// Something that is not as it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    /// What sort of thing.
    pub kind: IssueKind,
    /// Byte offset in the image.
    pub at: u64,
    /// In words.
    pub detail: String,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}: {}", self.kind.name(), self.at, self.detail)
    }
}

/// What the checker found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The first [`ISSUES_MAX`] findings.
    pub issues: Vec<Issue>,
    /// There are more.
    pub more: bool,
    /// Inodes in use, directories and orphans among them.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Names.
    pub names: u64,
    /// Inodes without a name: open somewhere, or, where nobody uses the image, to be freed by whoever does next.
    pub orphans: u64,
    /// Lines that they use.
    pub orphan_lines: u64,
    /// Blocks of which at least a line is in use.
    pub blocks_used: u64,
    /// Lines in use.
    pub lines_used: u64,
    /// Operations that a crash interrupted; whoever attaches finishes them.
    pub pending: u32,
}

/// A check in progress.
struct Checker<'a> {
    fs: &'a Fs,
    report: Report,
    /// Lines claimed, a word a block, from the first allocatable block on.
    used: Vec<u64>,
    /// Extents that have a block and say that it is shared, for each block; nothing in an image that shares nothing.
    shared: Vec<u32>,
    /// Inodes met, likewise.
    inodes: Vec<u64>,
    /// Edentries met whose index entry has not been, likewise.
    edentries: Vec<u64>,
    /// Directories whose entries are still to be looked at.
    waiting: Vec<u64>,
    /// Inodes with other than one link: names found, names said.
    links: BTreeMap<u64, (u64, u64)>,
    /// Where the contents of files lie, if anybody asks.
    contents: Option<Vec<Run>>,
    progress: &'a mut dyn FnMut(u32),
    /// Lines that there should be, and the last step told.
    expected: u64,
    told: u32,
}

/// Checks the image at `path` (NUL-terminated). `progress` is called with 0 to 1,000.
pub fn run(path: &[u8], progress: &mut dyn FnMut(u32)) -> Result<Report, AttachError> {
    let image = Inspected::open(path)?;
    let pending = image.recover();
    let mut report = whole(&image.fs, progress);
    match pending {
        Ok(pending) => report.pending = pending,
        Err(error) => report.issues.insert(0, damaged(IssueKind::Record, error)),
    }
    Ok(report)
}

/// Checks a copy in which there are no records any more.
pub(crate) fn whole(fs: &Fs, progress: &mut dyn FnMut(u32)) -> Report {
    let mut checker = Checker::new(fs, progress);
    checker.superblocks();
    checker.everything()
}

/// Checks an image in memory that has been recovered and is quiet; all but the superblocks.
#[cfg(feature = "sim")]
pub fn examine(fs: &Fs) -> Report {
    Checker::new(fs, &mut |_| {}).everything()
}

/// Lines and inodes in use, as the lanes of such an image count them.
#[cfg(feature = "sim")]
pub fn counted(fs: &Fs) -> (u64, u64) {
    Checker::new(fs, &mut |_| {}).totals()
}

impl<'a> Checker<'a> {
    fn new(fs: &'a Fs, progress: &'a mut dyn FnMut(u32)) -> Checker<'a> {
        let blocks = (fs.root().grown.load(core::sync::atomic::Ordering::Relaxed).min(fs.layout.block_count()))
            .saturating_sub(fs.layout.first_block()) as usize;
        Checker {
            fs,
            report: Report::default(),
            used: heap::vec![0; blocks],
            shared: if fs.may_have_shares() { heap::vec![0; blocks] } else { Vec::new() },
            inodes: heap::vec![0; blocks],
            edentries: heap::vec![0; blocks],
            waiting: Vec::new(),
            links: BTreeMap::new(),
            contents: None,
            progress,
            expected: 1,
            told: 0,
        }
    }

    /// All that is not in the superblocks.
    fn everything(mut self) -> Report {
        self.look();
        self.report
    }

    fn look(&mut self) {
        self.root();
        self.permissions();
        self.tree();
        self.orphans();
        self.counts();
        self.whole_index();
        self.link_counts();
        self.bitmap();
        self.counters();
        self.intents();
        (self.progress)(1000);
    }
}

/// An error of the engine as a finding.
fn damaged(kind: IssueKind, error: base::Error) -> Issue {
    match error {
        base::Error::Corrupt { what, at } => Issue { kind, at, detail: heap::format!("damaged {what}") },
        base::Error::Posix(errno) => Issue { kind, at: 0, detail: heap::format!("{errno}") },
    }
}

impl Checker<'_> {
    /// Notes a finding.
    fn issue(&mut self, kind: IssueKind, at: u64, detail: String) {
        if self.report.issues.len() < ISSUES_MAX {
            self.report.issues.push(Issue { kind, at, detail });
        } else {
            self.report.more = true;
        }
    }

    /// Notes an error of the engine as a finding.
    fn damaged(&mut self, kind: IssueKind, error: base::Error) {
        let Issue { kind, at, detail } = damaged(kind, error);
        self.issue(kind, at, detail);
    }
}

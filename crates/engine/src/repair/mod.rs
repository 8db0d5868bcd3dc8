//! The repair: from any image that opens to a clean one, losing nothing that
//! can still be reached.
//!
//! Everything happens in a private copy first, so what will be done is known,
//! and checked, before the file is touched:
//!
//! 1. **collect**: apply pending records; root, permission table (`tables`);
//!    from the root directory down claim what belongs together without doubt,
//!    then what can be fixed (`names`, `doubtful`); then data (`inodes`, `map`)
//! 2. **salvage**: names and inodes that nothing leads to any more, back to
//!    where they were, or into `lost+found` (`salvage`)
//! 3. **derive** what follows from the rest: maps, counts, index (`derive`), bitmap, counters
//! 4. **check** the copy; once more from 1 if it is not clean yet
//! 5. **apply**: the lines that differ go into the file, in an order in which
//!    whatever a kill leaves can be repaired again (`apply`)
//!
//! Invariants
//! - Lines that the bitmap calls used are not given out before salvage is done.
//! - An inode or an edentry never moves: what else claims its lines gives way.

mod apply;
mod claim;
mod derive;
mod doubtful;
mod inodes;
mod map;
mod names;
mod salvage;
mod shares;
mod space;
mod tables;
#[cfg(test)]
mod tests;

use crate::check::{self, IssueKind, Report};
use crate::fs::Fs;
use crate::inspect::Inspected;
use crate::process::{AttachError, machine, volatile};
use core::fmt;

use heap::collections::{BTreeMap, BTreeSet};
use heap::string::String;
use heap::vec::Vec;
use pm::Errno;
use pm::file::File;
use pm::sys::abi;

/// Actions that are kept.
pub const ACTIONS_MAX: usize = 10_000;
/// How often the copy is gone through before giving up.
const ROUNDS_MAX: usize = 4;

/// One thing that a repair does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Action {
    /// What was wrong.
    pub kind: IssueKind,
    /// Byte offset in the image.
    pub at: u64,
    /// What is done, in words.
    pub detail: String,
    /// Something is given up: a name, contents, attributes.
    pub drops: bool,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:#x}: {}", self.kind.name(), self.at, self.detail)
    }
}

/// Why an image was not repaired. Nothing has been written, but for [`RepairError::Write`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RepairError {
    /// It cannot even be looked at.
    Open(AttachError),
    /// The file may not be written.
    NotWritable,
    /// Somebody uses it.
    InUse,
    /// It is a cache, whose files are another file system's.
    Cache,
    /// New directories, maps or index buckets do not fit into it.
    NoSpace,
    /// Damage is left that no rule fixes; what the check still finds.
    Left(Vec<check::Issue>),
    /// The file could not be written to the end; running again goes on.
    Write(Errno),
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepairError::Open(error) => error.fmt(f),
            RepairError::NotWritable => f.write_str("the file is not writable; write permission on it is needed"),
            RepairError::Cache => {
                f.write_str("it is a cache, which is not repaired: its files are another file system's; remove it")
            }
            RepairError::InUse => f.write_str(
                "processes use it; end them first (if there are none, its locks are damaged: repair a copy made with cp)",
            ),
            RepairError::NoSpace => f.write_str("the image is full, and what must be made new does not fit into it"),
            RepairError::Left(issues) => {
                write!(f, "not repaired: {} findings would be left", issues.len())?;
                issues.first().map_or(Ok(()), |first| write!(f, ", the first of them {first}"))
            }
            RepairError::Write(errno) => write!(f, "the file could not be written: {errno}; run the repair again"),
        }
    }
}

/// A repair that has been thought through, and not been applied yet. Until it
/// is dropped nobody can attach the image.
#[derive(Debug)]
pub struct Repair {
    file: File,
    image: Inspected,
    /// What was found.
    pub before: Report,
    /// What will be done, and whether there is more than is listed.
    pub actions: Vec<Action>,
    /// Actions beyond [`ACTIONS_MAX`].
    pub more: u64,
    /// Number of actions that give something up.
    pub drops: u64,
    /// What a check will say afterwards.
    pub after: Report,
    changes: Changes,
}

/// Lines that differ from the file.
#[derive(Debug, Default)]
struct Changes {
    /// New objects: nothing refers to them yet.
    fresh: BTreeSet<u64>,
    lines: BTreeSet<u64>,
    /// Blocks from which records copy: until these have ended on the medium nothing may be put there.
    aside: BTreeSet<u64>,
}

impl Drop for Repair {
    fn drop(&mut self) {
        self.file.unlock();
    }
}

/// The file of an image that nobody uses; nobody can attach it until it is unlocked.
pub(crate) fn open_alone(path: &[u8]) -> Result<File, RepairError> {
    let file = File::open(path, abi::O_RDWR | abi::O_NONBLOCK, 0).map_err(|errno| match errno {
        Errno::EACCES | Errno::EROFS | Errno::EPERM => RepairError::NotWritable,
        other => RepairError::Open(AttachError::Open(other)),
    })?;
    let stat = file.stat().map_err(|errno| RepairError::Open(AttachError::Open(errno)))?;
    if !stat.is_regular() {
        return Err(RepairError::Open(AttachError::NotAnImage));
    }
    file.lock().map_err(|errno| RepairError::Open(AttachError::locked(errno)))?;
    let refused = match machine::refuse_unattached(&file, &stat) {
        Err(error) => Some(RepairError::Open(error)),
        Ok(()) => volatile::is_used(&file, &stat).then_some(RepairError::InUse),
    };
    match refused {
        None => Ok(file),
        Some(error) => {
            file.unlock();
            Err(error)
        }
    }
}

impl Repair {
    /// Checks the image at `path` (NUL-terminated) and decides what is to be
    /// done. `progress` is called with 0 to 1,000.
    pub fn plan(path: &[u8], progress: &mut dyn FnMut(u32)) -> Result<Repair, RepairError> {
        let file = open_alone(path)?;
        match Repair::think(path, progress) {
            Ok((image, before, after, plan)) => {
                let Plan { actions, more, drops, changes } = plan;
                Ok(Repair { file, image, before, actions, more, drops, after, changes })
            }
            Err(error) => {
                file.unlock();
                Err(error)
            }
        }
    }

    fn think(path: &[u8], progress: &mut dyn FnMut(u32)) -> Result<(Inspected, Report, Report, Plan), RepairError> {
        let (image, grown) = Inspected::open_to_repair(path).map_err(RepairError::Open)?;
        if image.fs.is_cache() {
            return Err(RepairError::Cache);
        }
        let mut plan = Plan::default();
        let pending = plan.records(&image.fs);
        let mut before = check::whole(&image.fs, &mut |step| progress(step / 4));
        before.pending = pending;
        plan.grown(&image.fs, &mut before, grown);
        if before.issues.is_empty() && before.orphans == 0 {
            progress(1000);
            return Ok((image, before.clone(), before, plan));
        }
        let mut after = before.clone();
        for round in 0..ROUNDS_MAX {
            let mut fixer = Fixer::new(&image.fs, &mut plan);
            fixer.fix(&mut |step| progress(250 + step / 2))?;
            if fixer.no_space {
                return Err(RepairError::NoSpace);
            }
            after = check::whole(&image.fs, &mut |step| progress(750 + step / 4));
            if after.issues.is_empty() {
                plan.new_epoch(&image.fs);
                return Ok((image, before, after, plan));
            }
            progress(250 + round as u32);
        }
        Err(RepairError::Left(after.issues))
    }

    /// Whether there is anything to do: damage, or removed files whose space nobody has given back.
    pub fn is_needed(&self) -> bool {
        !self.before.issues.is_empty() || self.before.orphans != 0
    }
}

/// What has been decided so far.
#[derive(Debug, Default)]
struct Plan {
    actions: Vec<Action>,
    more: u64,
    drops: u64,
    changes: Changes,
}

/// A directory that has been met.
struct Directory {
    /// Its slot blocks, in order.
    blocks: Vec<u64>,
    entries: u64,
    directories: u64,
}

/// One going-through.
struct Fixer<'a> {
    fs: &'a Fs,
    plan: &'a mut Plan,
    /// Lines that something uses, a word a block, from the first allocatable block on.
    used: Vec<u64>,
    /// Those of them that are metadata, likewise.
    meta: Vec<u64>,
    /// Extents that have a block and say that it is shared, for each block; nothing in an image that shares nothing.
    shared: Vec<u32>,
    /// Leaves of the table of what is shared that can stay where they are, and blocks of the table that were claimed.
    table: shares::Table,
    /// Inodes met, likewise.
    inodes: Vec<u64>,
    directories: BTreeMap<u64, Directory>,
    /// Directories whose slots are still to be looked at.
    waiting: Vec<u64>,
    /// Slots (directory, offset) that are not right as they stand.
    doubtful: Vec<(u64, u64)>,
    /// Names found of inodes with other than one.
    links: BTreeMap<u64, u64>,
    /// Places of permissions that have moved.
    permissions: BTreeMap<u16, u16>,
    /// Symlinks whose text is not what the inode says.
    symlinks: Vec<u64>,
    /// Texts of symlinks that have been claimed, and their lengths.
    texts: BTreeMap<u64, u64>,
    /// Symlinks whose text is another's too: they are to get copies.
    text_copies: Vec<u64>,
    /// Maps that must be written anew.
    maps: BTreeMap<u64, Vec<map::Piece>>,
    /// Hashes of the names of one directory.
    names: Option<(u64, BTreeSet<u64>)>,
    /// The bitmap is not to be heeded any more: salvage is done.
    salvaged: bool,
    no_space: bool,
    /// Where the last search for space ended.
    hint: usize,
    /// How many blocks and texts that several inodes have may still be copied: an image at most doubles.
    copies: usize,
}

impl<'a> Fixer<'a> {
    fn new(fs: &'a Fs, plan: &'a mut Plan) -> Fixer<'a> {
        let grown = fs.root().grown.load(core::sync::atomic::Ordering::Relaxed).min(fs.layout.block_count());
        let blocks = grown.saturating_sub(fs.layout.first_block()) as usize;
        Fixer {
            fs,
            plan,
            used: heap::vec![0; blocks],
            meta: heap::vec![0; blocks],
            shared: if fs.may_have_shares() { heap::vec![0; blocks] } else { Vec::new() },
            table: shares::Table::default(),
            inodes: heap::vec![0; blocks],
            directories: BTreeMap::new(),
            waiting: Vec::new(),
            doubtful: Vec::new(),
            links: BTreeMap::new(),
            permissions: BTreeMap::new(),
            symlinks: Vec::new(),
            texts: BTreeMap::new(),
            text_copies: Vec::new(),
            maps: BTreeMap::new(),
            names: None,
            salvaged: false,
            no_space: false,
            hint: 0,
            copies: blocks,
        }
    }

    fn fix(&mut self, progress: &mut dyn FnMut(u32)) -> Result<(), RepairError> {
        self.superblocks();
        self.root_words();
        self.permission_table();
        let root = self.root_directory();
        self.walk(root);
        self.orphans();
        let index = self.claim_index();
        self.claim_table();
        progress(300);
        self.all_inodes();
        progress(500);
        self.salvage(root);
        self.salvaged = true;
        progress(700);
        self.write_maps();
        self.copy_texts();
        self.write_shares();
        self.write_counts();
        self.write_index(index);
        progress(900);
        self.write_bitmap();
        self.write_lanes();
        Ok(())
    }

    /// Notes what is done about something.
    fn act(&mut self, kind: IssueKind, at: u64, drops: bool, detail: String) {
        self.plan.act(kind, at, drops, detail);
    }
}

impl Plan {
    fn act(&mut self, kind: IssueKind, at: u64, drops: bool, detail: String) {
        self.drops += u64::from(drops);
        if self.actions.len() < ACTIONS_MAX {
            self.actions.push(Action { kind, at, detail, drops });
        } else {
            self.more += 1;
        }
    }

    /// Changes a word of the copy.
    fn set(&mut self, fs: &Fs, at: u64, value: u64) {
        let Ok(word) = fs.at::<core::sync::atomic::AtomicU64>(at, "word to be fixed") else { return };
        if word.load(core::sync::atomic::Ordering::Relaxed) != value {
            fs.image.store(word, value);
            self.changes.lines.insert(at & !(format::LINE - 1));
        }
    }
}

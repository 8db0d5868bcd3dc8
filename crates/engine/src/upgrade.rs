//! From the format version before to the present one, in place.
//!
//! The two differ in the superblock alone: what the new one has room for is 0 in the old one. So the image is checked,
//! and then the two copies of the superblock are written anew, the second one first, each durable before the next:
//!
//! ```text
//! first  second    a program of before    this one
//! old    old       uses it                uses it
//! old    torn      uses it                uses it
//! old    new       uses it                uses it as an old one
//! torn   new       says that it is damaged    uses it
//! new    new       refuses it             uses it
//! ```
//! Whatever a kill or a power failure leaves, all files are there, and running again finishes.

use crate::check::{self, Issue, IssueKind, Report};
use crate::process::{AttachError, attach};
use crate::repair::{self, RepairError};
use core::fmt;
use core::mem::size_of;
use format::layout::{BLOCK, SUPERBLOCK_COPY};
use format::{LINE, Superblock};
use heap::vec::Vec;
use pm::file::{self, File};
use pm::{Domain, Errno, Region};
use zerocopy::IntoBytes;

/// What is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// New inode numbers, which fit 32 bits if the image has at most 256 GiB.
    pub renumber: bool,
}

/// What has been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Version before.
    pub from: u32,
    /// Version now.
    pub to: u32,
    /// Whether anything was written.
    pub changed: bool,
    /// Whether all inode numbers fit 32 bits now.
    pub short_numbers: bool,
    /// Files of the image; 0 if nothing was to be done.
    pub files: u64,
}

/// Why an image was not upgraded. Nothing has been written, but for [`UpgradeError::Write`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UpgradeError {
    /// It cannot be had alone.
    Open(RepairError),
    /// It is damaged: the number of findings, and the first.
    Damaged(usize, Issue),
    /// The file could not be written to the end; running again goes on.
    Write(Errno),
}

impl From<AttachError> for UpgradeError {
    fn from(error: AttachError) -> Self {
        UpgradeError::Open(RepairError::Open(error))
    }
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpgradeError::Open(error) => error.fmt(f),
            UpgradeError::Damaged(1, issue) => write!(f, "damaged: {issue}; fix it with `bypath check --repair` first"),
            UpgradeError::Damaged(count, issue) => {
                write!(f, "damaged: {count} findings, the first of them {issue}; fix it with `bypath check --repair` first")
            }
            UpgradeError::Write(errno) => write!(f, "the file could not be written: {errno}; run the upgrade again"),
        }
    }
}

/// Makes the image at `path` (NUL-terminated) one of the present version. `progress` is called with 0 to 1,000.
pub fn run(path: &[u8], options: Options, progress: &mut dyn FnMut(u32)) -> Result<Done, UpgradeError> {
    let file = repair::open_alone(path).map_err(UpgradeError::Open)?;
    let done = upgrade(path, &file, options, progress);
    file.unlock();
    done
}

fn upgrade(path: &[u8], file: &File, options: Options, progress: &mut dyn FnMut(u32)) -> Result<Done, UpgradeError> {
    let (old, _) = attach::superblock(file)?;
    let new = old.upgraded(options.renumber);
    let mut done = Done { from: old.version, to: new.version, changed: false, short_numbers: new.has_short_numbers(), files: 0 };
    let copies = copies(file)?;
    if copies.iter().all(|copy| copy.as_bytes() == new.as_bytes()) {
        return Ok(done);
    }
    done.files = refuse_damaged(check::run(path, progress)?)?;
    write(file, &new).map_err(UpgradeError::Write)?;
    done.changed = true;
    Ok(done)
}

/// Both copies of the superblock, whatever is in them.
fn copies(file: &File) -> Result<[Superblock; 2], AttachError> {
    let mut copies = [[0u8; size_of::<Superblock>()]; 2];
    for (copy, at) in copies.iter_mut().zip([0, SUPERBLOCK_COPY]) {
        file.read_at(copy, at).map_err(AttachError::Open)?;
    }
    Ok(copies.map(|copy| zerocopy::transmute!(copy)))
}

/// The number of files, if nothing but a copy of the superblock, which is written anew, is damaged.
fn refuse_damaged(report: Report) -> Result<u64, UpgradeError> {
    let files = report.files;
    let mut issues: Vec<Issue> = report.issues;
    issues.retain(|issue| issue.kind != IssueKind::Superblock);
    let count = issues.len();
    match issues.into_iter().next() {
        None => Ok(files),
        Some(first) => Err(UpgradeError::Damaged(count, first)),
    }
}

fn write(file: &File, new: &Superblock) -> Result<(), Errno> {
    let len = SUPERBLOCK_COPY + BLOCK;
    let address = file.map(len, true, false)?;
    // SAFETY: just mapped, shared and writable; unmapped below, when nothing refers to it any more.
    let image = unsafe { Region::new(address, len, len, Domain::Process) };
    let written = steps(new).try_for_each(|step| match step {
        Step::Store { at, value } => {
            let word = image.word(at).ok_or(Errno::EFAULT)?;
            image.store(word, value);
            Ok(())
        }
        Step::Persist { at } => {
            image.flush(at, size_of::<Superblock>() as u64);
            image.fence();
            file::sync(address.wrapping_add(at as usize), BLOCK)
        }
    });
    // SAFETY: `image` is not used after this.
    unsafe { file::unmap(address, len) };
    written
}

/// What writing a superblock consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// A word of the image.
    Store { at: u64, value: u64 },
    /// What was stored of the copy there is durable before anything that follows.
    Persist { at: u64 },
}

/// The steps, in order: the second copy is whole before the first is touched.
fn steps(new: &Superblock) -> impl Iterator<Item = Step> {
    const { assert!(size_of::<Superblock>() == 2 * LINE as usize) };
    let words: [u64; size_of::<Superblock>() / 8] = zerocopy::transmute!(*new);
    [SUPERBLOCK_COPY, 0].into_iter().flat_map(move |at| {
        let stores = (0..).step_by(8).zip(words).map(move |(word, value)| Step::Store { at: at + word, value });
        stores.chain([Step::Persist { at }])
    })
}

#[cfg(test)]
mod tests;

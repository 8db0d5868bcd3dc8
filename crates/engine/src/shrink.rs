//! Giving the end of an image back to the file system below: what lies behind its last block in use.
//!
//! An image's blocks below `grown` have real space, and it grows again by itself. So `grown` goes down to the block after
//! the last one in use, and then the space behind it is given back. Only where nobody uses the image, in this order, each
//! durable before the next:
//!
//! 1. the next generation: no shared cache that knows the old end is joined any more;
//! 2. the new end;
//! 3. the space goes.
//!
//! After a crash in between the image is whole: space behind the end is found there as after any growth that was cut off,
//! and space that is missing below an end which did not go down comes back at the next attaching, as in a copy with holes.
//! Free space between blocks in use stays.

use crate::check::{self, Issue};
use crate::process::{AttachError, attach};
use crate::repair::{self, RepairError};
use core::fmt;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::Root;
use format::layout::{self, BLOCK, Layout};
use pm::file::{self, File};
use pm::{Domain, Errno, Region};

/// What has been done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Bytes of the file system below that the file had before.
    pub before: u64,
    /// And now.
    pub now: u64,
    /// Free bytes between blocks in use, which stay.
    pub between: u64,
}

/// Why nothing was given back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShrinkError {
    /// It cannot be had alone.
    Open(RepairError),
    /// It is damaged: the number of findings, and the first.
    Damaged(usize, Issue),
    /// A killed program has left something half done: whoever attaches the image finishes it.
    Pending,
    /// The file could not be written, or the file system below takes nothing back.
    Write(Errno),
}

impl From<AttachError> for ShrinkError {
    fn from(error: AttachError) -> Self {
        ShrinkError::Open(RepairError::Open(error))
    }
}

impl fmt::Display for ShrinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShrinkError::Open(error) => error.fmt(f),
            ShrinkError::Damaged(count, issue) => {
                write!(f, "damaged: {count} findings, the first of them {issue}; fix it with `bypath check --repair` first")
            }
            ShrinkError::Pending => f.write_str("something is half done in it; run again"),
            ShrinkError::Write(Errno::EOPNOTSUPP) => f.write_str("the file system below cannot take space back from a file"),
            ShrinkError::Write(errno) => write!(f, "the file could not be written: {errno}; run again"),
        }
    }
}

/// Gives the end of the image at `path` (NUL-terminated) back. `progress` is called with 0 to 1,000.
pub fn run(path: &[u8], progress: &mut dyn FnMut(u32)) -> Result<Done, ShrinkError> {
    let file = repair::open_alone(path).map_err(ShrinkError::Open)?;
    let done = shrink(path, &file, progress);
    file.unlock();
    done
}

fn shrink(path: &[u8], file: &File, progress: &mut dyn FnMut(u32)) -> Result<Done, ShrinkError> {
    let (_, layout) = attach::superblock(file)?;
    let report = check::run(path, progress)?;
    if report.pending != 0 {
        return Err(ShrinkError::Pending);
    }
    let count = report.issues.len();
    if let Some(first) = report.issues.into_iter().next() {
        return Err(ShrinkError::Damaged(count, first));
    }
    let allocated = || file.stat().map(|stat| stat.allocated).map_err(ShrinkError::Write);
    let before = allocated()?;
    let between = with_image(file, &layout, |image| lower(image, file, &layout)).map_err(ShrinkError::Write)?;
    Ok(Done { before, now: allocated()?, between })
}

/// Maps the image for `work`.
fn with_image<T>(file: &File, layout: &Layout, work: impl FnOnce(&Region) -> Result<T, Errno>) -> Result<T, Errno> {
    let len = file.stat()?.size.min(layout.limit) & !(BLOCK - 1);
    let address = file.map(len, true, false)?;
    // SAFETY: just mapped, shared and writable; unmapped below, when nothing refers to it any more.
    let image = unsafe { Region::new(address, len, len, Domain::Process) };
    let result = work(&image);
    // SAFETY: `image` is not used after this.
    unsafe { file::unmap(address, len) };
    result
}

/// The steps; free bytes below the new end.
fn lower(image: &Region, file: &File, layout: &Layout) -> Result<u64, Errno> {
    let root: &Root = image.at(layout::ROOT).ok_or(Errno::EFAULT)?;
    let persist = || {
        image.flush(layout::ROOT, BLOCK);
        image.fence();
        file::sync(image.base().wrapping_add(layout::ROOT as usize), BLOCK)
    };
    let grown = root.grown.load(Acquire).min(layout.block_count());
    let (end, free) = last_used(image, layout, grown)?;
    if end < grown {
        let generation = (root.generation.load(Relaxed) as u32).wrapping_add(1).max(1);
        image.store(&root.generation, u64::from(generation));
        persist()?;
        image.store(&root.grown, end);
        persist()?;
    }
    // Also what a run before this one has not come to.
    let bitmap = Layout::bitmap_word(end).next_multiple_of(BLOCK);
    give_back(file, bitmap, layout.blocks)?;
    give_back(file, end * BLOCK, layout.limit)?;
    Ok(free * BLOCK)
}

/// The block after the last one in use, one at least; and how many before it are free.
fn last_used(image: &Region, layout: &Layout, grown: u64) -> Result<(u64, u64), Errno> {
    let first = layout.first_block();
    let (mut end, mut free, mut free_in_all) = (first + 1, 0, 0);
    for block in first..grown {
        let used = image.word(Layout::bitmap_word(block)).ok_or(Errno::EFAULT)?.load(Acquire);
        if used == 0 {
            free_in_all += 1;
        } else {
            (end, free) = (block + 1, free_in_all);
        }
    }
    Ok((end, free))
}

fn give_back(file: &File, from: u64, to: u64) -> Result<(), Errno> {
    if from < to { file.punch(from, to - from) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestFs, TestImage};
    use base::{Kind, NewNode, Node};
    use pm::UserSlice;
    use std::os::unix::fs::MetadataExt;
    use std::vec;

    const NEW: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
    const PART: usize = 1 << 20;

    fn fill(test: &TestFs, name: &str, megabytes: u64) -> Node {
        let node = test.create(&test.cx(), test.root_node(), name.as_bytes(), &NEW).unwrap();
        let part = vec![name.as_bytes()[0]; PART];
        for at in 0..megabytes {
            test.write(&test.cx(), node, Some(at * PART as u64), &[UserSlice::from_ref(&part)]).unwrap();
        }
        node
    }

    fn allocated(image: &TestImage) -> u64 {
        std::fs::metadata(image.file()).unwrap().blocks() * 512
    }

    fn shrunk(image: &TestImage) -> Result<Done, ShrinkError> {
        run(&image.path(), &mut |_| {})
    }

    /// Goal: the space of what was removed at the end comes back, what was before it is there, and the image grows again.
    /// Method: two files, the second one removed; then shrunk twice, read, and filled again as far as before.
    #[test]
    fn the_end_is_given_back() {
        let test = TestFs::new(96 << 20);
        fill(&test, "a", 8);
        fill(&test, "b", 48);
        test.unlink(&test.cx(), test.root_node(), b"b").unwrap();
        test.fs.detach(&test.cx());
        let full = allocated(&test.image);
        let done = shrunk(&test.image).unwrap();
        assert_eq!((done.before, done.now), (full, allocated(&test.image)));
        assert!(full - done.now >= 40 << 20, "{done:?}");
        assert_eq!(shrunk(&test.image).unwrap(), Done { before: done.now, ..done });
        assert!(check::run(&test.image.path(), &mut |_| {}).unwrap().issues.is_empty());

        let test = test.again();
        let node = test.lookup(&test.cx(), test.root_node(), b"a").unwrap();
        let mut part = vec![0u8; PART];
        for at in 0..8 {
            test.read(&test.cx(), node, at * PART as u64, &[UserSlice::from_mut(&mut part)]).unwrap();
            assert!(part.iter().all(|byte| *byte == b'a'));
        }
        fill(&test, "c", 48);
        test.fs.detach(&test.cx());
        assert!(check::run(&test.image.path(), &mut |_| {}).unwrap().issues.is_empty());
    }

    /// Goal: whatever step a crash comes after, the image is whole, and shrinking again finishes. Method: the root as it is
    /// after each step, and space missing below the old end.
    #[test]
    fn cut_off_after_each_step() {
        for step in 0..3 {
            let test = TestFs::new(96 << 20);
            fill(&test, "a", 4);
            fill(&test, "b", 32);
            test.unlink(&test.cx(), test.root_node(), b"b").unwrap();
            test.fs.detach(&test.cx());
            let file = File::open(&test.image.path(), pm::sys::abi::O_RDWR, 0).unwrap();
            let (_, layout) = attach::superblock(&file).unwrap();
            with_image(&file, &layout, |image| {
                let root: &Root = image.at(layout::ROOT).unwrap();
                let (end, _) = last_used(image, &layout, root.grown.load(Relaxed))?;
                image.store(&root.generation, root.generation.load(Relaxed) + 1);
                match step {
                    0 => {}
                    1 => image.store(&root.grown, end),
                    _ => file.punch(end * BLOCK, layout.limit - end * BLOCK)?,
                }
                Ok(())
            })
            .unwrap();
            let issues = |test: &TestFs| check::run(&test.image.path(), &mut |_| {}).unwrap().issues;
            assert_eq!(issues(&test), [], "{step}");
            let done = shrunk(&test.image).unwrap();
            assert!(done.now < 16 << 20, "{step}: {done:?}");
            let test = test.again();
            fill(&test, "c", 32);
            test.fs.detach(&test.cx());
            assert_eq!(issues(&test), [], "{step}");
        }
    }

    /// Goal: an image in use is left alone. Method: one attached.
    #[test]
    fn not_while_it_is_used() {
        let test = TestFs::new(32 << 20);
        assert_eq!(shrunk(&test.image), Err(ShrinkError::Open(RepairError::InUse)));
    }
}

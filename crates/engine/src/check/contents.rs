//! Where the contents of files lie, for a session that reads an image in place ([`crate::process::in_place`]).

use super::Checker;
use crate::inspect::Inspected;
use crate::process::AttachError;
use crate::process::in_place::{RUNS_MAX, Run};
use format::Layout;
use heap::vec::Vec;

/// What an image has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Where its areas lie.
    pub layout: Layout,
    /// Blocks that it has grown to.
    pub grown: u64,
    /// Nothing but contents, and free blocks between; the longest, in order.
    pub runs: Vec<Run>,
    /// All other blocks in use, contents among them that lie between other things; in order.
    pub others: Vec<Run>,
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Contents,
    Other,
}

/// Looks where the contents of the image at `path` (NUL-terminated) lie; `None` if it is damaged, or if something is
/// half done in it.
pub fn contents(path: &[u8]) -> Result<Option<Contents>, AttachError> {
    let image = Inspected::open(path)?;
    if !matches!(image.recover(), Ok(0)) {
        return Ok(None);
    }
    let mut progress = |_: u32| {};
    let mut checker = Checker::new(&image.fs, &mut progress);
    checker.contents = Some(Vec::new());
    checker.superblocks();
    checker.look();
    if !checker.report.issues.is_empty() || checker.report.orphans != 0 {
        return Ok(None);
    }
    let layout = image.fs.layout;
    let first = layout.first_block();
    let mut holds: Vec<Holds> = checker.used.iter().map(|used| if *used == 0 { Holds::Nothing } else { Holds::Other }).collect();
    for run in checker.contents.iter().flatten() {
        let begin = (run.block - first) as usize;
        holds[begin..begin + run.len as usize].fill(Holds::Contents);
    }
    let runs = longest(&holds);
    for run in &runs {
        holds[run.block as usize..(run.block + run.len) as usize].fill(Holds::Nothing);
    }
    let shifted = |run: Run| Run { block: run.block + first, len: run.len };
    let others = stretches(&holds, |block| block != Holds::Nothing).map(shifted).collect();
    let grown = first + holds.len() as u64;
    Ok(Some(Contents { layout, grown, runs: runs.into_iter().map(shifted).collect(), others }))
}

/// Maximal stretches of blocks that are all so, by their places.
fn stretches(holds: &[Holds], is_so: impl Fn(Holds) -> bool + Copy) -> impl Iterator<Item = Run> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let begin = at + holds[at..].iter().position(|block| is_so(*block))?;
        let len = holds[begin..].iter().take_while(|block| is_so(**block)).count();
        at = begin + len;
        Some(Run { block: begin as u64, len: len as u64 })
    })
}

/// The longest stretches of contents with nothing but free blocks between, without those at their ends.
fn longest(holds: &[Holds]) -> Vec<Run> {
    let is_contents = |block: &Holds| *block == Holds::Contents;
    let trimmed = stretches(holds, |block| block != Holds::Other).filter_map(|run| {
        let part = &holds[run.block as usize..(run.block + run.len) as usize];
        let (first, last) = (part.iter().position(is_contents)?, part.iter().rposition(is_contents)?);
        Some(Run { block: run.block + first as u64, len: (last - first + 1) as u64 })
    });
    let mut runs: Vec<Run> = trimmed.collect();
    runs.sort_unstable_by_key(|run| core::cmp::Reverse(run.len));
    runs.truncate(RUNS_MAX);
    runs.sort_unstable_by_key(|run| run.block);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Holds> {
        let kind = |letter| match letter {
            'c' => Holds::Contents,
            'o' => Holds::Other,
            _ => Holds::Nothing,
        };
        text.chars().map(kind).collect()
    }

    /// Goal: runs hold contents from end to end, nothing else that is in use, and of many the longest are taken.
    #[test]
    fn what_is_laid_over() {
        let runs = |text: &str| -> Vec<(u64, u64)> { longest(&parsed(text)).iter().map(|run| (run.block, run.len)).collect() };
        assert_eq!(runs("  cc c oc o  o"), [(2, 4), (8, 1)]);
        assert_eq!(runs("ooo   "), []);
        let many = "co".repeat(RUNS_MAX) + "ccc";
        let taken = runs(&many);
        assert_eq!((taken.len(), taken.last()), (RUNS_MAX, Some(&(2 * RUNS_MAX as u64, 3))));
    }
}

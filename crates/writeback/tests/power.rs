//! Two media at once: the power fails below a real file system, in the middle of a round, and the image is kept, or is lost.
//!
//! Method: the directory lies on ext4 (or `BYPATH_POWER_FS`) on a loop device over a file in memory. What that file holds at
//! a moment is what a disk would hold if the power failed then: all that was synced, and of the rest what the file system
//! had written by itself, which a `syncfs` before any step stands for, or one after the other all the time. A copy of it is mounted afterwards, so that its journal
//! is replayed, as after a crash. Of the image a copy is made at the same moment (what a kill leaves, and what DAX or a
//! battery keep), and the round runs again from that; the second run is cut off too. Or the image is gone, and the journal,
//! which lies on the same disk, is replayed; the power fails in the replay too.
//!
//! `BYPATH_CASES` runs so many, from `BYPATH_SEED` on. Skipped without root, a loop device or `mkfs`.

mod bench;

use bench::power::{Start, number};
use bench::{How, may_run};
use std::sync::{Mutex, PoisonError};

/// Cases, where nothing else is said. The third has found a number that was given twice.
const CASES: u64 = 4;
const SEED: u64 = 133;

/// One at a time: a program that another starts has, for a moment, open what this one has, and what is open is not unmounted.
static ALONE: Mutex<()> = Mutex::new(());

/// Cases of a directory that is cached so.
fn cases(how: How) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, cases) = (number("BYPATH_SEED", SEED), number("BYPATH_CASES", CASES));
    let start = if may_run() { Start::make(how) } else { None };
    let Some(mut start) = start else {
        println!("skip: no root, loop device or mkfs here: power failures below a real file system are NOT tested");
        return;
    };
    (first..first + cases).for_each(|seed| start.drawn(seed));
    start.end();
}

/// Goal: nothing that was done by the cache is lost, and nothing that was acknowledged, whenever the power fails.
#[test]
fn power_fails() {
    cases(How::Outlived);
}

/// Goal: what a journal on the same disk has said is there without the image, whenever the power fails, in a round and in the
/// replay.
#[test]
fn power_fails_and_the_image_is_gone() {
    cases(How::JournalBeside);
}

//! Goal: a directory of a million entries costs what one of a thousand does.
//! Method: count the page faults of attaching with a thousand files and with so
//! many, which must not differ. Times of creation, `stat` and removal in both, and
//! of attaching, are shown and no more: they vary with the caches and the other
//! programs; their instructions are counted by `budgets --flat` in the bench crate.

use super::recover::faults;
use super::{Image, expect, wait_all};
use crate::differential::sandbox::spawn;
use crate::image::check;
use crate::rng::Rng;
use crate::shared::Words;
use crate::world::World;
use std::time::Instant;

/// Calls that are timed.
const CALLS: u64 = 5000;
/// How many page faults more attaching may cost with many files than with few:
/// the kernel maps neighbouring pages with a fault or does not, as it likes.
const FAULTS_MORE: u64 = 32;
const STEPS: [&str; 3] = ["create", "stat", "unlink"];

/// Fills `dir` up to `entries`, then times calls in it; nanoseconds a call.
fn measure(world: &World, dir: &str, entries: u64, words: Words, first: usize) -> Result<(), String> {
    expect(world.mkdir(dir), || format!("mkdir {dir}"))?;
    for at in 0..entries {
        expect(world.create(&format!("{dir}/entry{at:07}")), || format!("create {at}"))?;
    }
    let mut rng = Rng::new(entries);
    // The same few files in both, so that what differs is the directory.
    let looked: Vec<String> = (0..1000).map(|_| format!("{dir}/entry{:07}", rng.below(entries))).collect();
    let made: Vec<String> = (0..CALLS).map(|at| format!("{dir}/new{at:07}")).collect();
    let time = |calls: u64, each: &mut dyn FnMut(usize) -> isize| {
        let start = Instant::now();
        for at in 0..calls {
            expect(each(at as usize), || format!("{dir}: call {at}"))?;
        }
        Ok::<u64, String>(start.elapsed().as_nanos() as u64 / calls)
    };
    words.set(first, time(CALLS, &mut |at| world.create(&made[at]))?);
    let stat = |at: usize| world.stat(&looked[at % looked.len()]).map_or_else(|e| e, |_| 0);
    time(CALLS, &mut |at| stat(at))?;
    words.set(first + 1, time(CALLS, &mut |at| stat(at))?);
    words.set(first + 2, time(CALLS, &mut |at| world.unlink(&made[at]))?);
    Ok(())
}

/// Compares `many` entries with a thousand.
pub fn flat(many: u64) -> Result<String, String> {
    let image = Image::new("flat", 4 << 30);
    let words = Words::new();
    let attach = || {
        let child = spawn(|_| {
            let (before, start) = (faults(), Instant::now());
            let _world = image.world();
            words.set(0, start.elapsed().as_micros() as u64);
            words.set(1, faults() - before);
            Ok(())
        });
        wait_all(vec![child], 60).map(|()| (words.get(0), words.get(1)))
    };
    attach()?;
    let (few_us, few_faults) = attach()?;
    wait_all(vec![spawn(|_| measure(&image.world(), "/few", 1000, words, 8))], 60)?;
    let filler = spawn(|watch| {
        watch.step(1);
        measure(&image.world(), "/many", many, words, 16)
    });
    wait_all(vec![filler], 600)?;
    let (many_us, many_faults) = attach()?;
    let start = Instant::now();
    let report = check(image.path())?;
    let check_s = start.elapsed().as_secs_f64();
    let mut text = format!(
        "{} files; attach {few_us} us and {few_faults} page faults with few files, {many_us} us and {many_faults} with many; check {check_s:.1} s",
        report.files
    );
    for (at, step) in STEPS.iter().enumerate() {
        let (few, lots) = (words.get(8 + at), words.get(16 + at));
        text += &format!(
            "\n  {step:<7} {few:>6} ns at 1000 entries, {lots:>6} ns at {many}: {:.2} ×",
            lots as f64 / few.max(1) as f64
        );
    }
    if few_faults == 0 || many_faults > few_faults + FAULTS_MORE {
        return Err(format!("attaching depends on the number of files\n{text}"));
    }
    Ok(text)
}

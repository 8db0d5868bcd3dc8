//! A damaged journal is never taken for a whole one.
//!
//! Method: lives of a cache with a journal, as in `journal.rs`; the image is removed, and the journal damaged: a bit, a
//! block of zeros, a cut. Either the replay comes to the state of the last cut, or it says what is wrong. What it makes is
//! the state of some cut: no mixture. All of it from a seed, which is printed.

mod bench;

use bench::{Bench, Dice, How, OPS, may_run};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use writeback::CUT;
use writeback::journal::{Left, set_aside};

const BLOCK: usize = 4096;

/// Damages a file where something is in it; what was done.
fn damage(path: &Path, dice: &mut Dice) -> String {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let used: Vec<usize> =
        (0..bytes.len() / BLOCK).filter(|at| bytes[at * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0)).collect();
    let block = used[dice.roll(used.len())] * BLOCK;
    match dice.roll(4) {
        0 => {
            let len = dice.roll(bytes.len());
            file.set_len(len as u64).unwrap();
            format!("cut at {len}")
        }
        1 => {
            file.write_all_at(&[0; BLOCK], block as u64).unwrap();
            format!("zeros at {block}")
        }
        // Somewhere in what the block holds.
        _ => {
            let end = bytes[block..][..BLOCK].iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            let (at, bit) = (block + dice.roll(end), dice.roll(8));
            file.write_all_at(&[bytes[at] ^ 1 << bit], at as u64).unwrap();
            format!("bit {bit} of byte {at}")
        }
    }
}

/// What a life ended with.
#[derive(Default)]
struct Count {
    whole: u32,
    said: u32,
    changed: u32,
}

fn life(seed: u64, count: &mut Count) {
    let mut dice = Dice(seed);
    let bench = Bench::new(&format!("damage-{seed}"), 8, How::Journal);
    let mut states = vec![bench.trees_of_twins()];
    let committer = bench.committer.as_ref().unwrap();
    for _ in 0..2 + dice.roll(5) {
        for _ in 0..1 + dice.roll(6) {
            bench.both(dice.roll(bench.runs), OPS[dice.roll(OPS.len())]);
        }
        assert!(committer.lock().unwrap().commit().unwrap());
        states.push(bench.trees_of_twins());
    }
    // Nobody has called for a while.
    committer.lock().unwrap().confirm().unwrap();
    // Every other time in the middle of a round, which moves things to places that only the journal knows.
    let (mut steps, at) = (0, dice.roll(40));
    let in_round = dice.roll(2) == 0;
    if in_round {
        let mut hook = |_: &str| {
            steps += 1;
            if steps > at { Err(CUT) } else { Ok(()) }
        };
        let _ = bench.writer.lock().unwrap().round_with(false, &mut hook);
    }
    std::fs::remove_file(&bench.image).unwrap();
    let what = format!("seed {seed}: {}", damage(&bench.journal, &mut dice));
    let before = std::fs::read(&bench.journal).unwrap();
    let replayed = match Left::open(&bench.journal) {
        Err(error) => Err(error.to_string()),
        Ok(None) => Err("no journal".to_owned()),
        Ok(Some(mut left)) => match left.replay(&bench.low, false) {
            Err(error) => Err(error.to_string()),
            Ok(done) => done.damage.map_or(Ok(()), |damage| Err(damage.to_string())),
        },
    };
    let there = bench.trees_below();
    // Whoever needed something from below has waited for a round, which has cut at another moment.
    let in_round = in_round || bench.helped.load(SeqCst) != 0;
    let is_last = states.last() == Some(&there);
    match replayed {
        Ok(()) => {
            assert!(is_last, "{what}: silent");
            count.whole += 1;
        }
        Err(said) => {
            // All but the headers, which say when it was replayed first.
            let after = std::fs::read(&bench.journal).unwrap();
            assert_eq!(before.get(2 * BLOCK..), after.get(2 * BLOCK..), "{what}: the journal is not kept: {said}");
            assert!(in_round || states.contains(&there), "{what}: a mixture: {said}");
            let aside = set_aside(&bench.journal).unwrap();
            assert!(aside.exists() && !bench.journal.exists());
            count.said += 1;
            count.changed += u32::from(!is_last);
        }
    }
    let _ = std::fs::remove_dir_all(bench.low.parent().unwrap());
}

/// Goal: of 100 damages none is silent, and most of them cost something.
#[test]
fn no_damage_is_silent() {
    if !may_run() {
        return;
    }
    let lives = std::env::var("BYPATH_LIVES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let first = std::env::var("BYPATH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut count = Count::default();
    (first..first + lives).for_each(|seed| life(seed, &mut count));
    println!("{lives} damages: {} whole all the same, {} said, {} with a loss", count.whole, count.said, count.changed);
    assert!(u64::from(count.said) * 2 > lives, "{} of {lives} said", count.said);
}

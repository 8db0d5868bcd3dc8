//! Goal: any calls by several processes at once leave a whole image.
//! Method: each runs its own random sequences in the same tree; then the
//! checker looks, everything is removed, and the checker looks again.

use super::{Image, wait_all};
use crate::differential::compare::clear;
use crate::differential::generate::sequence;
use crate::differential::op::Step;
use crate::differential::sandbox::spawn;
use crate::differential::side::Side;
use crate::image::check;
use pm::sys::abi as nr;

/// Steps of one sequence; after each, descriptors are closed.
const LEN: usize = 500;

/// `processes` make `ops` calls in all.
pub fn random(processes: u64, ops: u64, seed: u64) -> Result<String, String> {
    let image = Image::new("random", 1 << 30);
    let sequences = (ops / processes).div_ceil(LEN as u64);
    let children = (0..processes).map(|number| {
        let image = &image;
        spawn(move |watch| {
            let world = image.world();
            for at in 0..sequences {
                watch.sequence(at);
                for (step, op) in sequence(seed + number * 1_000_000 + at, LEN).iter().enumerate() {
                    watch.step(step);
                    match &op.step {
                        Step::Call(number, args) => drop(world.call(*number, args)),
                        Step::ReadDir(fd) => drop(crate::differential::compare::read_dir(&world, *fd)),
                        Step::User(_) | Step::Map { .. } => {}
                    }
                }
                world.plain(nr::__NR_close_range, &[3, 800, 0]);
            }
            Ok(())
        })
    });
    wait_all(children.collect(), 60)?;
    let report = check(image.path())?;
    wait_all(vec![spawn(|_| clear(&image.world(), &[]))], 60)?;
    let empty = check(image.path()).map_err(|e| format!("after removing everything: {e}"))?;
    if (empty.names, empty.files) != (0, 1) {
        return Err(format!("after removing everything: {} names, {} files", empty.names, empty.files));
    }
    Ok(format!("{processes} processes, {} calls, {} files left by them: whole", sequences * processes * LEN as u64, report.files))
}

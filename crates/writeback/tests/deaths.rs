//! A process dies at any access to the image: in the middle of a change, or of a round.
//!
//! Method: this program runs again as another user of the image, makes one change or one round, and kills itself before a
//! certain access. Who is left adopts it and makes rounds. The directory below must be what the cache shows, and that is the
//! tree before the change or the one after it.
//!
//! `BYPATH_POINTS` tries so many accesses of each.

mod bench;

use bench::deaths::{Part, die_if_told, points};
use bench::power::number;
use bench::{Bench, How, OPS, may_run};

/// Accesses that are tried of each, where nothing else is said.
const POINTS: u64 = 5;

/// Goal: a change that is there has been noted, whenever its program dies.
#[test]
fn who_changes() {
    if may_run() {
        points(Part::Change, OPS, number("BYPATH_POINTS", POINTS));
    }
}

/// Goal: the round of a writer that has died is done by the next one, wherever in its own records it was.
#[test]
fn who_writes_back() {
    if may_run() {
        points(Part::Round, OPS, number("BYPATH_POINTS", POINTS));
    }
}

/// The other user of the image, where one is wanted.
#[test]
fn the_one_that_dies() {
    die_if_told();
}

/// Goal: who lives through it is counted as alive. Method: an access that is never reached.
#[test]
fn nobody_dies() {
    if may_run() {
        let bench = Bench::new("alive", 1, How::Directory);
        assert!(bench::deaths::one(&bench, 0, Part::Change, OPS[0], (u64::MAX, false)).is_some());
        bench::by_kernel(&bench.twins.join("0"), OPS[0]);
        bench.check(0, "alive");
        bench.end();
    }
}

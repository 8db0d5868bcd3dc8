//! `bypath bench micro …`: handed to the bench crate.

use crate::args::BenchWhat;
use crate::failure::{Failure, Result};

/// Runs a benchmark with its own options.
pub fn bench(what: BenchWhat) -> Result<u8> {
    match what {
        BenchWhat::Micro { .. } => Err(Failure::new("bench micro: not linked in yet").code(2)),
    }
}

//! `bypath bench micro …` and one verb a paper: handed to the bench crate.

use crate::args::BenchWhat;
use crate::failure::{Failure, Result};

/// Runs a benchmark with its own options.
pub fn run(what: BenchWhat) -> Result<u8> {
    match what {
        BenchWhat::Micro { options } => {
            ::bench::micro(&["bench", "micro"], &options).map_err(|what| Failure::new(format!("bench micro: {what}")))
        }
        BenchWhat::Directfuse { options } => {
            ::bench::directfuse(&options).map_err(|what| Failure::new(format!("bench directfuse: {what}")))
        }
        BenchWhat::Melo { options } => ::bench::melo::melo(&options).map_err(|what| Failure::new(format!("bench melo: {what}"))),
        BenchWhat::Directfs { options } => ::bench::directfs::directfs(&["bench", "directfs"], &options)
            .map_err(|what| Failure::new(format!("bench directfs: {what}"))),
        BenchWhat::Densefs { options } => ::bench::densefs::densefs(&["bench", "densefs"], &options)
            .map_err(|what| Failure::new(format!("bench densefs: {what}"))),
        BenchWhat::Figures { options } => {
            ::bench::figures::figures(&options).map_err(|what| Failure::new(format!("bench figures: {what}")))
        }
        BenchWhat::Byvfs { options } => {
            ::bench::byvfs::byvfs(&options).map_err(|what| Failure::new(format!("bench byvfs: {what}")))
        }
    }
}

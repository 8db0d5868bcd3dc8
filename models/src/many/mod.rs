//! Schedules drawn by shuttle: half of them evenly, half by probabilistic concurrency testing, which
//! changes the thread that runs seldom, at points of its choice.
//!
//! All is drawn from one seed, which is printed: the same one draws the same. What fails prints its
//! schedule; that alone is run again with `SCHEDULE=… cargo test --features many NAME`. `SEED` and
//! `ROUNDS` in the environment draw others, and more.

mod channel;
mod enter;
mod gate;
mod holders;
mod index;
mod lanes;
pub mod mortal;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};

const SEED: u64 = 0x0b79_7061_7468;
/// Changes of the thread that runs, in a schedule of the second kind.
const CHANGES: usize = 4;
/// Accesses in one schedule: a loop that does not end takes more.
const STEPS_MAX: usize = 300_000;

/// Runs a model: half of `rounds` schedules of each kind.
fn schedules(rounds: usize, model: impl Fn() + Send + Sync + 'static) {
    let number = |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    if let Ok(schedule) = std::env::var("SCHEDULE") {
        return shuttle::replay(model, &schedule);
    }
    let (seed, rounds) = (number("SEED", SEED), number("ROUNDS", rounds as u64) as usize / 2);
    println!("{rounds} even ones and {rounds} with {CHANGES} changes, SEED={seed}");
    let model = std::sync::Arc::new(model);
    let (evenly, seldom) = (model.clone(), model);
    Runner::new(RandomScheduler::new_from_seed(seed, rounds), config()).run(move || evenly());
    Runner::new(PctScheduler::new_from_seed(seed, CHANGES + 1, rounds), config()).run(move || seldom());
}

fn config() -> Config {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config
}

/// A number below `end`, part of the schedule.
fn any(end: u32) -> u32 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..end)
}

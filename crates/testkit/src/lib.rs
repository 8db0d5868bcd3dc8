//! What the tests of the whole are made of: random sequences against the
//! kernel ([`differential`]), many processes on one image, processes that are
//! killed. The binary `testkit` runs them; `README.md` says how.

pub mod crash;
pub mod daemons;
pub mod damage;
pub mod differential;
pub mod image;
mod leavings;
pub mod many;
mod restless;
pub mod rng;
pub mod shared;
pub mod world;

//! The gate before changes of a cached directory.

mod atomic;
#[path = "../../../crates/engine/src/lower/gate.rs"]
mod passage;
mod schedules;
mod weak;

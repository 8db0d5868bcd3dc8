//! Two writers of one directory: what `tests/others.rs` and `tests/mutants.rs` share.
#![allow(dead_code, reason = "each test uses a part")]

pub mod contents;
pub mod explorer;
pub mod operations;
pub mod oracle;
pub mod twin;

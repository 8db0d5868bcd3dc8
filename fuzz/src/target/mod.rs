//! The targets.

pub mod cached;
pub mod checker;
pub mod daemon;
pub mod journal;
pub mod mutator;
pub mod open;
pub mod operations;
pub mod peer;
pub mod requests;
pub mod resolver;

/// All of them by name, for `replay`.
pub const ALL: [(&str, fn(&[u8])); 10] = [
    ("open", open::run),
    ("operations", operations::run),
    ("checker", checker::run),
    ("resolver", resolver::run),
    ("peer", peer::run),
    ("mutator", mutator::run),
    ("daemon", daemon::run),
    ("requests", requests::run),
    ("journal", journal::run),
    ("cached", cached::run),
];

//! The crash-state explorer: after a crash at any point of an operation, in any
//! state that the medium may have been left in, is the image whole, is the tree
//! that before or that after, and is nothing lost or leaked?
//!
//! | file | what |
//! |---|---|
//! | [`memory`] | memory that plays image and segment |
//! | [`record`] | every store, flush and fence of a run |
//! | [`model`] | what a medium may hold, given these |
//! | [`enumerate`] | which of its states are tried |
//! | [`alike`] | which of them have the same answer |
//! | [`check`] | what is asked of each |
//! | [`tree`] | a tree as its users see it |
//! | [`workload`] | operations and where they start |
//! | [`explore`] | a workload from its run to its last state |
//! | [`counts`] | what it has done |
//! | [`pairs`] | two threads or processes at a time |
//! | [`page`] | a crash of the system over a page cache |
//! | [`equivalent`] | mutants that change nothing |
//! | [`mutate`] | the explorer's own test |
//! | [`order`] | ordered pairs of stores |
//! | [`known`] | states that a mutant need not be tried with |
//! | [`persists`] | what operations cost in ordered persists |
//! | [`sequences`] | which sequences of operations, and whose share they are |
//! | [`journal`] | a long run in parts |
//! | [`command`] | `testkit crash` |

pub mod alike;
pub mod check;
pub mod command;
pub mod counts;
pub mod enumerate;
pub mod equivalent;
pub mod explore;
pub mod journal;
pub mod known;
pub mod memory;
pub mod model;
pub mod mutate;
pub mod order;
pub mod page;
pub mod pairs;
pub mod persists;
pub mod record;
pub mod sequences;
pub mod tree;
pub mod workload;

/// Held by tests that explore: the made-up clock is the whole program's, and times are part of what they meet.
#[cfg(test)]
fn clock_is_ours() -> std::sync::MutexGuard<'static, ()> {
    static CLOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    CLOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

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
//! | [`check`] | what is asked of each |
//! | [`tree`] | a tree as its users see it |
//! | [`workload`] | operations and where they start |
//! | [`persists`] | what operations cost in ordered persists |
//! | [`explore`] | a workload from its run to its last state |

pub mod check;
pub mod enumerate;
pub mod explore;
pub mod memory;
pub mod model;
pub mod persists;
pub mod record;
pub mod tree;
pub mod workload;

use explore::{Effort, Explorer, Media};
use std::rc::Rc;
use std::time::Instant;
use tree::Tree;
use workload::{Op, Start};

/// Explores all sequences of operations up to a length.
pub fn run(media: Media, start: Start, depth: usize, effort: Effort, every: usize, first: usize) -> Explorer {
    let begun = Instant::now();
    let mut explorer = Explorer::new(media, start, effort);
    let ops = workload::all();
    let tree = explorer.first_tree();
    let mut number = 0;
    let mut share = |_: usize| {
        number += 1;
        number <= first && number % every == 0
    };
    sequences(&mut explorer, &ops, &mut Vec::new(), &tree, depth, &mut share);
    println!("{} {}: {:?} in {:.1?}", media.name(), start.name(), explorer.counts, begun.elapsed());
    explorer
}

fn sequences(
    explorer: &mut Explorer,
    all: &[Op],
    ops: &mut Vec<Op>,
    before: &Rc<Tree>,
    depth: usize,
    share: &mut dyn FnMut(usize) -> bool,
) {
    for op in all {
        ops.push(*op);
        match explorer.run(ops, before) {
            Ok(recorded) => {
                if share(ops.len()) {
                    let (begun, before) = (Instant::now(), explorer.counts.tried);
                    explorer.explore(ops, &recorded);
                    if std::env::var_os("CRASH_VERBOSE").is_some() {
                        println!("{} {} {:?}", explore::shown(ops), explorer.counts.tried - before, begun.elapsed());
                    }
                }
                if recorded.done
                    && ops.len() < depth
                    && let Some(after) = recorded.expect.trees.last()
                {
                    sequences(explorer, all, ops, after, depth, share);
                }
            }
            Err(problem) => explorer.failures.push(explore::Failure { replay: explore::shown(ops), problem }),
        }
        ops.pop();
    }
}

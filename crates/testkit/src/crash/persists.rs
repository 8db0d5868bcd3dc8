//! How many ordered persists an operation costs where power can fail.
//!
//! A persist is a fence that waits for at least one write-back of its thread.

use super::explore::{Effort, Explorer, Media};
use super::record::{Event, What};
use super::workload::{Op, Start, parse};
use std::fmt::Write;

/// What an operation cost.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Cost {
    /// Fences that wait for a write-back.
    pub persists: usize,
    /// Lines written back; a line counts again after each fence.
    pub lines: usize,
    /// Stores.
    pub stores: usize,
}

/// What these events cost.
pub fn cost(events: &[Event]) -> Cost {
    let mut cost = Cost::default();
    let mut waiting = std::collections::BTreeSet::new();
    for event in events {
        match event.what {
            What::Store { .. } => cost.stores += 1,
            What::Flush { offset, len } if len > 0 => waiting.extend(offset / 64..=(offset + len - 1) / 64),
            What::Flush { .. } => {}
            What::Fence if waiting.is_empty() => {}
            What::Fence => {
                cost.persists += 1;
                cost.lines += waiting.len();
                waiting.clear();
            }
        }
    }
    cost
}

/// What is measured: its name, what is done before (so that tables and
/// directories have grown), the operation, and how many persists it may cost.
const MEASURED: [(&str, &str, &str, Option<usize>); 16] = [
    ("create", "create(bar) unlink(bar)", "create(bar)", Some(3)),
    ("unlink", "create(bar)", "unlink(bar)", Some(3)),
    ("unlink, with data", "append(foo,100)", "unlink(foo)", Some(3)),
    ("mkdir", "mkdir(bar) rmdir(bar)", "mkdir(bar)", Some(3)),
    ("rmdir", "mkdir(bar)", "rmdir(bar)", None),
    ("rename", "create(bar)", "rename(bar,A/bar)", Some(3)),
    ("rename over a file", "create(bar)", "rename(bar,A/foo)", Some(3)),
    ("link", "create(bar)", "link(bar,A/bar)", None),
    ("symlink", "symlink(bar,3) unlink(bar)", "symlink(bar,3)", None),
    ("append into a block", "append(foo,100)", "append(foo,100)", Some(2)),
    ("append with new blocks", "create(bar)", "write(bar,4096,8192)", None),
    ("overwrite", "append(foo,100)", "write(foo,0,24)", Some(1)),
    ("truncate to 0", "append(foo,100)", "truncate(foo,0)", None),
    ("chmod", "chmod(A/foo)", "chmod(foo)", None),
    ("setxattr", "setxattr(A,5)", "setxattr(foo,5)", None),
    ("fsync", "append(foo,100)", "fsync(foo)", None),
];

/// A table of all of them; false if one costs more than it may.
///
/// # Errors
/// An operation fails.
pub fn table() -> Result<(String, bool), String> {
    let mut explorer = Explorer::new(Media::Power, Start::Some, Effort::default());
    let tree = explorer.first_tree();
    let mut text = String::from("| operation | persists | at most | lines | stores |\n|---|---|---|---|---|\n");
    let mut fine = true;
    for (name, before, op, most) in MEASURED {
        let ops: Vec<Op> =
            before.split(' ').chain([op]).map(|op| parse(op).ok_or(format!("no operation {op}"))).collect::<Result<_, _>>()?;
        let recorded = explorer.run(&ops, &tree)?;
        if !recorded.done {
            return Err(format!("{name}: {op} fails"));
        }
        let cost = cost(&recorded.events[recorded.window..recorded.end]);
        let over = most.is_some_and(|most| cost.persists > most);
        fine &= !over;
        let most = most.map_or_else(String::new, |most| most.to_string());
        let mark = if over { " too many" } else { "" };
        _ = writeln!(text, "| {name} | {}{mark} | {most} | {} | {} |", cost.persists, cost.lines, cost.stores);
    }
    Ok((text, fine))
}

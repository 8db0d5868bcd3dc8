//! The calls that led to each access, from nothing but the accesses: an instruction that stores a word of eight bytes and whose
//! follower is elsewhere is a call; one whose follower is where a call returns to is a return.

use super::names::Known;
use crate::budget::lackey::{Access, Kind, Look};
use std::collections::HashMap;
use std::rc::Rc;

/// One access, and by which functions, outermost first.
pub struct Placed {
    /// The access.
    pub access: Access,
    /// Index of the functions in [`Stacks::all`].
    pub stack: usize,
}

/// All accesses of a call, with the functions that made them.
#[derive(Default)]
pub struct Stacks {
    /// Each access.
    pub placed: Vec<Placed>,
    /// Distinct stacks.
    pub all: Vec<Vec<Rc<str>>>,
}

/// A call that has not returned: where it was made, and the instruction after it.
struct Pending {
    site: u64,
    back: u64,
}

/// Functions of the benchmark's own, and small pieces that stand between caller and called.
fn is_between(name: &str) -> bool {
    name.starts_with("bench::") || name.starts_with("__x86_") || name.starts_with("core::hint::") || name == "outside the program"
}

impl Stacks {
    /// Of a call. What the benchmark itself does is left out.
    pub fn of(look: &Look, known: &mut Known) -> Stacks {
        let mut stacks = Stacks::default();
        let mut by_sites: HashMap<Vec<u64>, Option<usize>> = HashMap::new();
        let mut by_names: HashMap<Vec<Rc<str>>, usize> = HashMap::new();
        let (mut pending, mut here): (Vec<Pending>, Option<Access>) = (Vec::new(), None);
        let mut stored = false;
        for access in &look.0 {
            if access.kind == Kind::Code {
                if let Some(before) = here {
                    follow(&mut pending, before, access.address, stored);
                }
                (here, stored) = (Some(*access), false);
            } else {
                stored |= access.kind == Kind::Store && access.size == 8;
            }
            let at = here.map_or(0, |here| here.address);
            let sites: Vec<u64> = pending.iter().map(|call| call.site).chain([at]).collect();
            let stack = *by_sites.entry(sites).or_insert_with_key(|sites| {
                let mut names: Vec<Rc<str>> = Vec::new();
                sites.iter().for_each(|site| names.extend(known.frames(*site).iter().cloned()));
                let own = names.iter().rposition(|name| name.starts_with("bench::")).map_or(0, |last| last + 1);
                let mut names: Vec<Rc<str>> = names.split_off(own).into_iter().filter(|name| !is_between(name)).collect();
                names.dedup();
                let next = by_names.len();
                (!names.is_empty()).then(|| *by_names.entry(names).or_insert(next))
            });
            if let Some(stack) = stack {
                stacks.placed.push(Placed { access: *access, stack });
            }
        }
        let mut all: Vec<_> = by_names.into_iter().collect();
        all.sort_by_key(|(_, at)| *at);
        stacks.all = all.into_iter().map(|(names, _)| names).collect();
        stacks
    }
}

/// What going from an instruction to the next one has done to the pending calls.
fn follow(pending: &mut Vec<Pending>, before: Access, next: u64, stored: bool) {
    let after = before.address + u64::from(before.size);
    if next == after || next == before.address {
        return;
    }
    if stored {
        pending.push(Pending { site: before.address, back: after });
    } else if let Some(at) = pending.iter().rposition(|call| call.back == next) {
        pending.truncate(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: calls and returns are told from jumps. Method: a call, a jump in the called function, a return.
    #[test]
    fn calls_and_returns() {
        let code = |address| Access { kind: Kind::Code, address, size: 5 };
        let mut pending = Vec::new();
        follow(&mut pending, code(100), 200, true);
        assert_eq!((pending[0].site, pending[0].back), (100, 105));
        follow(&mut pending, code(200), 205, true);
        follow(&mut pending, code(205), 300, false);
        assert_eq!(pending.len(), 1);
        follow(&mut pending, code(300), 105, false);
        assert!(pending.is_empty());
    }
}

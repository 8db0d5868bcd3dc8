//! All groups as one: what each file, and each name that was touched, is after the last.

use super::record::{Fact, NodeFact, read};
use crate::Id;
use base::Kind;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What is to be done to the bytes of a file, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bytes of a group's body.
    Data {
        offset: u64,
        group: usize,
        at: usize,
        len: usize,
    },
    Zeros {
        offset: u64,
        len: u64,
    },
    Size(u64),
}

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// As the last group says that changes it, or else the last.
    pub fact: NodeFact,
    /// Which file below it was when the first group was made, or the round made it of which the journal says so.
    pub lower: Option<Id>,
    pub steps: Vec<Step>,
    pub hints: Vec<Vec<u8>>,
    /// The steps make all of it.
    pub is_whole: bool,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Fold {
    pub files: HashMap<u64, File>,
    pub names: BTreeMap<(u64, Vec<u8>), u64>,
    /// Files below that are known to be ours.
    pub known: HashSet<Id>,
    /// Those that have lost a name.
    pub lost: HashSet<Id>,
}

impl Fold {
    /// Of the groups before the first that is none, and how many those are. `device`: that of the root below.
    ///
    /// A group counts whole or not at all, and none behind one that does not: each says only how it differs from those before.
    pub fn of(groups: &[Vec<u8>], device: u64) -> (Fold, usize) {
        let (mut fold, mut made) = (Fold::default(), HashMap::new());
        let mut count = 0;
        for body in groups {
            let Some(facts) = read(body, device).filter(|facts| fold.holds(facts)) else { break };
            fold.group(count, facts, &mut made);
            count += 1;
        }
        for (node, id) in made {
            fold.known.insert(id);
            // It is below, and was synced before that was said.
            if let Some(file) = fold.files.get_mut(&node).filter(|file| file.lower.is_none()) {
                file.lower = Some(id);
            }
        }
        (fold, count)
    }

    /// Whether all files are known that these facts speak of.
    fn holds(&self, facts: &[Fact]) -> bool {
        let mut new = HashSet::new();
        facts.iter().all(|fact| match fact {
            Fact::Node(node) => {
                new.insert(node.id);
                true
            }
            Fact::Data { node, .. } | Fact::Zeros { node, .. } => new.contains(node) || self.files.contains_key(node),
            Fact::Name { .. } | Fact::Made { .. } => true,
        })
    }

    fn group(&mut self, number: usize, facts: Vec<Fact>, made: &mut HashMap<u64, Id>) {
        let mut sizes = Vec::new();
        for fact in facts {
            match fact {
                Fact::Node(node) => {
                    if node.kind == Kind::Regular && node.is_changed {
                        sizes.push((node.id, node.size));
                    }
                    self.node(node);
                }
                Fact::Name { dir, name, node, was } => {
                    self.known.extend(was);
                    self.lost.extend(was);
                    self.names.insert((dir, name), node);
                }
                Fact::Data { node, offset, at, len } => self.step(node, Step::Data { offset, group: number, at, len }),
                Fact::Zeros { node, offset, len } => self.step(node, Step::Zeros { offset, len }),
                Fact::Made { node, id } => drop(made.insert(node, id)),
            }
        }
        for (node, size) in sizes {
            self.step(node, Step::Size(size));
        }
    }

    fn step(&mut self, node: u64, step: Step) {
        if let Some(file) = self.files.get_mut(&node) {
            file.steps.push(step);
        }
    }

    fn node(&mut self, node: NodeFact) {
        self.known.extend(node.lower);
        let lower = node.lower;
        let file = self.files.entry(node.id).or_insert_with(|| File {
            fact: node.clone(),
            lower,
            steps: Vec::new(),
            hints: Vec::new(),
            is_whole: false,
        });
        for hint in node.hint.split(|byte| *byte == 0).filter(|hint| !hint.is_empty()) {
            if !file.hints.iter().any(|known| known == hint) {
                file.hints.push(hint.to_vec());
            }
        }
        if node.is_whole {
            file.steps.clear();
            file.is_whole = true;
        }
        if node.is_changed {
            let xattrs = node.xattrs.clone().or(file.fact.xattrs.take());
            file.fact = NodeFact { xattrs, ..node };
        }
    }
}

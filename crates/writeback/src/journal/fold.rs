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
    /// Of these groups; `None`: one of them is none. `device`: that of the root below.
    pub fn of(groups: &[Vec<u8>], device: u64) -> Option<Fold> {
        let (mut fold, mut made) = (Fold::default(), HashMap::new());
        for (number, body) in groups.iter().enumerate() {
            let mut sizes = Vec::new();
            for fact in read(body, device)? {
                match fact {
                    Fact::Node(node) => {
                        if node.kind == Kind::Regular && node.is_changed {
                            sizes.push((node.id, node.size));
                        }
                        fold.node(node);
                    }
                    Fact::Name { dir, name, node, was } => {
                        fold.known.extend(was);
                        fold.lost.extend(was);
                        fold.names.insert((dir, name), node);
                    }
                    Fact::Data { node, offset, at, len } => {
                        fold.files.get_mut(&node)?.steps.push(Step::Data { offset, group: number, at, len });
                    }
                    Fact::Zeros { node, offset, len } => {
                        fold.files.get_mut(&node)?.steps.push(Step::Zeros { offset, len });
                    }
                    Fact::Made { node, id } => drop(made.insert(node, id)),
                }
            }
            for (node, size) in sizes {
                fold.files.get_mut(&node)?.steps.push(Step::Size(size));
            }
        }
        for (node, id) in made {
            fold.known.insert(id);
            // It is below, and was synced before that was said.
            if let Some(file) = fold.files.get_mut(&node).filter(|file| file.lower.is_none()) {
                file.lower = Some(id);
            }
        }
        Some(fold)
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

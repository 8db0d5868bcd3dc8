//! The outcome of each name and each file of a round: what fails costs only what depends on it.
//!
//! A name or file fails for a reason, which whoever waits for it gets, or is left for the next round ([`LATER`]) because a
//! program has moved or removed something on its way since the round began. Notes of both stay; those of the rest go.

use crate::failures::Unwritten;
use crate::names::PARK_ID;
use crate::plan::Spot;
use crate::{Failure, Result, Work};
use cache::failures::Failed;
use pm::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The reason of what is left for the next round; no file system has it.
pub const LATER: Errno = Errno(i32::MAX);

/// What fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// A name of a directory.
    Name(Spot),
    /// Bytes or attributes of a node.
    Node(u64),
}

/// All that has failed in a round.
#[derive(Debug, Default)]
pub struct Outcomes {
    names: BTreeMap<Spot, Failure>,
    nodes: BTreeMap<u64, Failure>,
    /// Nodes of which a name has failed.
    led: HashSet<u64>,
    /// Nodes whose files stood at a name that has failed.
    left: HashSet<u64>,
    /// Nodes whose files stood at names when these were touched; made with the first failure.
    stood: Option<HashMap<Spot, Vec<u64>>>,
    first: Option<Failure>,
}

impl Outcomes {
    /// Whether all is below.
    pub fn is_good(&self) -> bool {
        self.names.is_empty() && self.nodes.is_empty()
    }

    /// What failed first.
    pub fn first(&self) -> Option<&Failure> {
        self.first.as_ref()
    }

    /// How much is left for the next round.
    pub fn later(&self) -> u64 {
        let all = self.names.values().chain(self.nodes.values());
        all.filter(|failure| failure.errno == LATER).count() as u64
    }

    /// Why a name failed.
    pub fn of_name(&self, spot: &Spot) -> Option<&Failure> {
        self.names.get(spot)
    }

    /// Whether a name of a directory failed.
    pub fn has_names_in(&self, dir: u64) -> bool {
        self.names.range((dir, Vec::new())..(dir + 1, Vec::new())).next().is_some()
    }

    /// Whether a name failed at all.
    pub fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether the notes of a node stay: it failed, or a name that leads to it.
    pub fn keeps(&self, node: u64) -> bool {
        self.nodes.contains_key(&node) || self.led.contains(&node)
    }

    /// Whether notes of a node stay though it is below: its links are counted when the name that it has lost is gone there.
    pub fn keeps_notes(&self, node: u64) -> bool {
        self.keeps(node) || self.left.contains(&node)
    }

    fn add(&mut self, of: Of, failure: Failure, leads_to: Option<u64>) {
        if failure.errno != LATER {
            self.first.get_or_insert_with(|| failure.clone());
        }
        self.led.extend(leads_to);
        match of {
            Of::Name(spot) => self.names.entry(spot).or_insert(failure),
            Of::Node(node) => self.nodes.entry(node).or_insert(failure),
        };
    }
}

impl Work<'_> {
    /// Goes on with the rest when one thing has failed; not when a test has cut the round off.
    pub fn settle(&mut self, of: Of, result: Result<()>) -> Result<()> {
        match result {
            Err(failure) if failure.errno == crate::CUT => Err(failure),
            Err(failure) => {
                let target = |spot: &Spot| self.plan.names.get(spot).copied().flatten().map(|target| target.node.id);
                let leads_to = if let Of::Name(spot) = &of { target(spot) } else { None };
                if let Of::Name(spot) = &of {
                    let left = self.nodes_at(spot);
                    self.outcomes.left.extend(left);
                }
                if let Of::Node(id) = &of
                    && self.plan.nodes.get(id).is_some_and(|noted| noted.is_new)
                {
                    // Of what was made there is no note of attributes: the next round sets them all.
                    self.note_new(*id)?;
                }
                let what = if failure.is_of_image() { failure.what } else { self.shown_of(&of) };
                self.outcomes.add(of, Failure { what, ..failure }, leads_to);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Nodes whose files stood at a name when it was touched: what is shown of them is not over while the name is not.
    fn nodes_at(&mut self, spot: &Spot) -> Vec<u64> {
        let plan = &self.plan;
        let stood = self.outcomes.stood.get_or_insert_with(|| {
            let mut stood: HashMap<Spot, Vec<u64>> = HashMap::new();
            for (node, file) in &plan.ids {
                for spot in plan.was.get(file).into_iter().flatten() {
                    stood.entry(spot.clone()).or_default().push(*node);
                }
            }
            stood
        });
        stood.get(spot).cloned().unwrap_or_default()
    }

    /// For people.
    fn shown_of(&self, of: &Of) -> String {
        let path = match of {
            Of::Name((PARK_ID, name)) => [self.below.park_name(), b"/", name].concat(),
            Of::Name((dir, name)) => self.shown((*dir, name)),
            Of::Node(id) => self.shown_node(*id),
        };
        String::from_utf8_lossy(&path).into_owned()
    }

    fn shown_node(&self, id: u64) -> Vec<u8> {
        if id == self.plan.root {
            return b".".to_vec();
        }
        let spot = self.plan.nodes.get(&id).and_then(|noted| noted.spot.as_ref());
        let target = self.plan.targets.get(&id).and_then(|spots| spots.first());
        let spot = spot.or(target).or(self.plan.dirs.get(&id));
        spot.map_or_else(|| format!("file {id:x}").into_bytes(), |(dir, name)| self.shown((*dir, name)))
    }

    /// What has failed, for those who wait. What was left for the next round has failed, too, when no round comes.
    pub fn failed(&self) -> Vec<Unwritten> {
        let of = |failure: &Failure, dir, node| Unwritten {
            failed: Failed { errno: if failure.errno == LATER { Errno::EBUSY } else { failure.errno }, dir, node },
            path: failure.what.clone().into_bytes(),
        };
        let names = self.outcomes.names.iter().map(|(spot, failure)| {
            let target = self.plan.names.get(spot).copied().flatten();
            of(failure, spot.0, target.map_or(0, |target| target.node.id))
        });
        let nodes = self.outcomes.nodes.iter().map(|(node, failure)| of(failure, 0, *node));
        names.chain(nodes).collect()
    }
}

//! What was found right in the code as it is: a mutant that leaves the same state need not be tried with it again.

use super::explore::Media;
use super::memory::Memory;
use super::model::{Line, Numbers};
use super::mutate::{self, Found, Mutant};
use super::record::Event;
use std::collections::{BTreeSet, HashMap};

/// What is known.
#[derive(Default)]
pub struct Known {
    /// States, by their numbers.
    right: Numbers,
    /// Of those with crashes inside their recovery, which set of mutants that recovery is changed by.
    recoveries: HashMap<u64, usize>,
    sets: Vec<BTreeSet<Mutant>>,
    /// What can be changed in recoveries.
    pub found: Found,
    /// The same, since it was last taken out.
    pub lately: BTreeSet<Mutant>,
}

impl Known {
    /// These states are right.
    pub fn settle(&mut self, states: Numbers) {
        self.right.extend(states);
    }

    /// The recovery from a state, that of a medium with these lines over it.
    pub fn recovery(&mut self, state: u64, certain: &Memory, overlay: &[(u32, Line)], media: Media, recovery: &[Event]) {
        let before = |offset: u64| {
            let line = overlay.iter().find(|(number, _)| u64::from(*number) == offset / 64);
            let within = (offset % 64) as usize;
            line.map_or_else(|| u64::from_le_bytes(certain.get(offset)), |(_, line)| mutate::word_of(&line[within..]))
        };
        let found = mutate::found(media, recovery, &before);
        let set: BTreeSet<Mutant> = found.keys().copied().collect();
        mutate::add(&mut self.found, found);
        self.lately.extend(&set);
        let number = self.sets.iter().position(|other| *other == set).unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        });
        self.recoveries.insert(state, number);
    }

    /// Whether a mutant need not be tried with this state.
    pub fn spares(&self, state: u64, mutant: &Option<Mutant>) -> bool {
        let Some(mutant) = mutant else { return false };
        self.right.contains(&state) && !self.recoveries.get(&state).is_some_and(|set| self.sets[*set].contains(mutant))
    }
}

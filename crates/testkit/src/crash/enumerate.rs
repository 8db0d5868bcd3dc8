//! Which of the states that a crash may leave are tried.

use super::model::Choices;
use crate::rng::Rng;

/// A state: for each line that is not certain, which of its contents.
pub type State = Vec<u8>;

/// The states to be tried, `cap` at most: all of them if that is not too many;
/// else none, all, single deviations from these two, pairs of deviations, and
/// then some at random.
pub fn states(choices: &[Choices], cap: usize, seed: u64) -> Vec<State> {
    let product = choices.iter().try_fold(1usize, |product, c| product.checked_mul(c.of.len()).filter(|p| *p <= cap));
    if product.is_some() {
        return every(choices);
    }
    let none: State = vec![0; choices.len()];
    let all: State = choices.iter().map(|c| (c.of.len() - 1) as u8).collect();
    let mut rng = Rng::new(seed);
    let mut states = vec![none.clone(), all.clone()];
    let with = |base: &State, changes: &[(usize, u8)]| {
        let mut state = base.clone();
        changes.iter().for_each(|(i, choice)| state[*i] = *choice);
        state
    };
    // Where even these are too many (large copies), half of the cap goes to some of them.
    let mut singles: Vec<(usize, u8)> =
        choices.iter().enumerate().flat_map(|(i, c)| (0..c.of.len() as u8).map(move |choice| (i, choice))).collect();
    for i in (1..singles.len()).rev() {
        singles.swap(i, rng.below(i as u64 + 1) as usize);
    }
    states.extend(singles.iter().take(cap / 4).flat_map(|single| [with(&none, &[*single]), with(&all, &[*single])]));
    // Half of what is left for pairs, half for chance.
    let room = cap.saturating_sub(states.len());
    for _ in 0..room / 4 {
        let (a, b) = (rng.pick(&singles), rng.pick(&singles));
        if a.0 != b.0 {
            states.extend([with(&none, &[a, b]), with(&all, &[a, b])]);
        }
    }
    let room = cap.saturating_sub(states.len());
    states.extend((0..room).map(|_| choices.iter().map(|c| rng.below(c.of.len() as u64) as u8).collect()));
    states
}

fn every(choices: &[Choices]) -> Vec<State> {
    let mut states = vec![Vec::with_capacity(choices.len())];
    for c in choices {
        states = states
            .into_iter()
            .flat_map(|state| {
                (0..c.of.len() as u8).map(move |choice| {
                    let mut state = state.clone();
                    state.push(choice);
                    state
                })
            })
            .collect();
    }
    states
}

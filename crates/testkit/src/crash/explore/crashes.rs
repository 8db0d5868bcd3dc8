//! Every crash in what was recorded, and inside the recovery from it: which states it may leave, and whether each is right.

use super::{Explorer, Failure, Media, Recorded};
use crate::crash::check::{Expect, Given};
use crate::crash::command;
use crate::crash::enumerate::{State, states};
use crate::crash::model::{self, Choices, Line};
use crate::crash::record::{Event, What};
use std::borrow::Cow;
use std::time::Instant;

/// Failures that are kept.
const FAILURES_MAX: usize = 20;
/// Of how many states one is checked as a whole again after use.
const WHOLE_EVERY: u64 = 8;
/// After how many workloads it is looked whether the segment is used where it is not reset.
const OUTGROWN_EVERY: u64 = 64;

impl Explorer {
    /// Tries every crash in the window of a recorded workload called `name`.
    ///
    /// # Panics
    /// If more of the segment is in use than is reset.
    pub fn explore(&mut self, name: &str, recorded: &Recorded) {
        self.counts.workloads += 1;
        self.bench.machine.log.uses(&recorded.events);
        let outer = self.medium.nest();
        let mut window = self.mutated(&recorded.events[recorded.window..recorded.end]);
        for event in self.mutated(&recorded.events[..recorded.window]).iter() {
            self.take_in(event);
        }
        let name = format!("{} {} {name}", self.media.name(), self.start.name());
        command::now(&name);
        let mut phases = recorded.phases.clone();
        if let Some(mutant) = &self.mutant {
            phases.iter_mut().for_each(|phase| phase.0 -= mutant.gone(&recorded.events[recorded.window..][..phase.0]));
        }
        self.crashes(&name, window.to_mut(), &phases, true);
        self.medium.unnest(outer, &self.bench.machine.image);
        // What has been touched once remains so.
        if self.counts.workloads.is_multiple_of(OUTGROWN_EVERY) {
            self.must_fit();
        }
    }

    /// # Panics
    /// If more of the segment is in use than is reset.
    pub fn must_fit(&self) {
        let outgrown = self.live.outgrown() || self.bench.machine.outgrown();
        assert!(!outgrown, "by now a larger part of the segment is in use");
    }

    fn mutated<'a>(&self, events: &'a [Event]) -> Cow<'a, [Event]> {
        self.mutant.as_ref().map_or(Cow::Borrowed(events), |mutant| Cow::Owned(mutant.applied(events)))
    }

    fn take_in(&mut self, event: &Event) -> bool {
        let mirror = &self.bench.machine.image;
        match self.media {
            Media::Power => {
                self.medium.event(event, mirror);
                false
            }
            Media::Whole | Media::Kill => self.medium.store_now(event, mirror),
        }
    }

    /// Crashes at every point of `events`. `outside`: of a workload, and inside
    /// the recovery from which they are tried too; else they are those of a recovery.
    fn crashes(&mut self, name: &str, events: &[Event], phases: &[(usize, Expect)], outside: bool) {
        let ids: Vec<u64> = phases.iter().map(|(_, expect)| expect.id()).collect();
        let phase_at = |point: usize| phases.iter().rposition(|(from, _)| *from <= point).unwrap_or(0);
        for (point, event) in events.iter().enumerate() {
            if self.enough() {
                return;
            }
            let phase = phase_at(point);
            let (expect, id) = (&phases[phase].1, ids[phase]);
            if self.media == Media::Power {
                if matches!(event.what, What::Fence) {
                    self.point(name, point, expect, id, outside);
                }
                self.take_in(event);
            } else if self.take_in(event) {
                self.point(name, point, expect, id, outside);
            }
        }
        let phase = phase_at(events.len());
        self.point(name, events.len(), &phases[phase].1, ids[phase], outside);
    }

    /// Whether time is up.
    pub fn late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether something was found.
    pub fn caught(&self) -> bool {
        self.counts.violations > 0
    }

    /// A mutant is caught by one failure.
    fn enough(&self) -> bool {
        self.mutant.is_some() && self.caught()
    }

    /// A crash here.
    fn point(&mut self, name: &str, point: usize, expect: &Expect, id: u64, outside: bool) {
        self.counts.points += 1;
        let choices = if self.media == Media::Power { self.medium.choices() } else { Vec::new() };
        let place = Place { name, point, expect, id, outside };
        if let Some(target) = &self.target {
            let wanted = target.strip_prefix(&format!("{name} @{point} ")).and_then(|rest| rest.split(' ').next());
            if let Some(state) = wanted.map(|text| parsed(text, &choices)) {
                self.state(&place, &choices, &state);
            }
            return;
        }
        let cap = if outside { self.effort.cap } else { self.effort.cap_inside };
        for state in states(&choices, cap, id) {
            self.state(&place, &choices, &state);
        }
    }

    /// The number of a state: the same for the same bytes.
    fn hash_of(&self, choices: &[Choices], state: &State) -> u64 {
        let change = |(c, chosen): (&Choices, &u8)| c.of[0].hash ^ c.of[usize::from(*chosen)].hash;
        choices.iter().zip(state).map(change).fold(self.medium.hash, |hash, change| hash ^ change)
    }

    fn state(&mut self, place: &Place, choices: &[Choices], state: &State) {
        self.counts.met += 1;
        let hash = self.hash_of(choices, state);
        let key = model::mix(hash ^ place.id.rotate_left(7));
        if self.enough() || !self.seen.insert(key) || self.known.as_ref().is_some_and(|known| known.spares(key, &self.mutant)) {
            return;
        }
        self.counts.tried += 1;
        self.counts.inside += u64::from(!place.outside);
        let overlay = overlay(choices, state);
        // Not of the same states as `inside_every`.
        let whole = (key >> 32).is_multiple_of(WHOLE_EVERY) || self.target.is_some();
        let inside = place.outside && key.is_multiple_of(self.effort.inside_every) || self.target.is_some();
        let afresh = self.effort.alike_every > 0 && (key >> 16).is_multiple_of(self.effort.alike_every);
        let alike = (self.effort.alike_every > 0).then_some(&self.medium.changed);
        let given = Given { certain: &self.medium.certain, overlay: &overlay, hash, alike };
        if !inside && !afresh && self.bench.answer(&given, place.expect, whole).is_some_and(|tree| place.expect.accepts(tree)) {
            self.counts.alike += 1;
            return;
        }
        let soiled = (afresh && !inside && key >> 48 & 1 != 0).then(|| given.soiled(key)).flatten();
        let given = soiled.as_ref().map_or(given, |(overlay, hash)| Given { overlay, hash: *hash, ..given });
        let tried = self.bench.attempt(&given, place.expect, whole, afresh);
        self.counts.used += u64::from(tried.used);
        if let Some(mut problem) = tried.problem {
            if soiled.is_some() {
                problem += " (with rubbish where nothing is referred to, which no replay has)";
            }
            self.counts.violations += 1;
            // One of each workload tells enough.
            let new = self.failures.last().is_none_or(|last| workload_of(&last.replay) != workload_of(place.name));
            if new && self.failures.len() < FAILURES_MAX && self.mutant.is_none() {
                let failure = self.shrunk(place, choices, state, problem);
                self.failures.push(failure);
            }
        } else if inside {
            if let (Some(known), None) = (&mut self.known, &self.mutant) {
                known.recovery(key, &self.medium.certain, &overlay, self.media, &tried.recovery);
            }
            self.inside(place, choices, state, &tried.recovery);
        }
    }

    /// The failure with the fewest lines that are not as new as they can be (or as old).
    fn shrunk(&mut self, place: &Place, choices: &[Choices], state: &State, mut problem: String) -> Failure {
        let all: State = choices.iter().map(|c| (c.of.len() - 1) as u8).collect();
        let none: State = vec![0; choices.len()];
        let deviations = |state: &State, base: &State| state.iter().zip(base).filter(|(a, b)| a != b).count();
        let base = if deviations(state, &all) <= deviations(state, &none) { &all } else { &none };
        let mut small = state.clone();
        for i in 0..small.len() {
            let kept = std::mem::replace(&mut small[i], base[i]);
            if kept != base[i] {
                let hash = self.hash_of(choices, &small);
                let given = Given { certain: &self.medium.certain, overlay: &overlay(choices, &small), hash, alike: None };
                match self.bench.attempt(&given, place.expect, true, true).problem {
                    Some(now) => problem = now,
                    None => small[i] = kept,
                }
            }
        }
        for (c, chosen) in choices.iter().zip(&small) {
            if let Some(site) = c.of[usize::from(*chosen)].missing {
                problem += &format!("\n    not on the medium: line {:#x}, from {site} on", c.line * 64);
            }
        }
        Failure { replay: place.shown(choices, &small), problem }
    }

    /// Crashes inside the recovery from a state.
    fn inside(&mut self, place: &Place, choices: &[Choices], state: &State, recovery: &[Event]) {
        let outer = self.medium.nest();
        for (number, line) in overlay(choices, state) {
            self.medium.set_line(number, &line, &self.bench.machine.image);
        }
        let recovery = self.mutated(recovery).into_owned();
        let name = format!("{} inside", place.shown(choices, state));
        self.crashes(&name, &recovery, &[(0, place.expect.clone())], false);
        self.must_be_certain(place, choices, state);
        self.medium.unnest(outer, &self.bench.machine.image);
    }
}

impl Explorer {
    /// What a recovery has stored is on the medium when it ends: else an older record would be found again,
    /// over what is done by then.
    fn must_be_certain(&mut self, place: &Place, choices: &[Choices], state: &State) {
        let loose = self.medium.choices().first().and_then(|line| line.of.first()).and_then(|choice| choice.missing);
        if let (Media::Power, true, false, Some(site)) = (self.media, self.strict, self.enough(), loose) {
            self.counts.violations += 1;
            let problem = format!("recovery ends, and what it has stored at {site} may not be on the medium");
            self.failures.push(Failure { replay: place.shown(choices, state), problem });
        }
    }
}

/// A replay text up to its crash point.
fn workload_of(replay: &str) -> &str {
    replay.split(" @").next().unwrap_or(replay)
}

/// A crash point.
struct Place<'a> {
    name: &'a str,
    point: usize,
    expect: &'a Expect,
    id: u64,
    outside: bool,
}

impl Place<'_> {
    /// What replays a state here.
    fn shown(&self, choices: &[Choices], state: &State) -> String {
        let of: Vec<String> = choices.iter().zip(state).map(|(c, chosen)| format!("{:x}:{chosen}", c.line)).collect();
        format!("{} @{} {}", self.name, self.point, if of.is_empty() { "-".into() } else { of.join(",") })
    }
}

/// The state with this text.
fn parsed(text: &str, choices: &[Choices]) -> State {
    let of = |c: &Choices| {
        let chosen = text.split(',').find_map(|part| part.strip_prefix(&format!("{:x}:", c.line)))?.parse::<u8>().ok()?;
        Some(chosen.min((c.of.len() - 1) as u8))
    };
    choices.iter().map(|c| of(c).unwrap_or(0)).collect()
}

/// The lines in which a state differs from what is certain.
fn overlay(choices: &[Choices], state: &State) -> Vec<(u32, Line)> {
    let changed = choices.iter().zip(state).filter(|(_, chosen)| **chosen != 0);
    changed.map(|(c, chosen)| (c.line, c.of[usize::from(*chosen)].line)).collect()
}

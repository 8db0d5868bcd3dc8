//! Ordered pairs of stores.
//!
//! A thread's stores fall into stretches: a fence ends one, or ([`By::Record`]) what makes a record count. An
//! ordered pair is a place in the code that stores in one and a place that stores in the next, in the same
//! operation or recovery: one fence, or one such word, no less and no more, keeps the second behind
//! the first. Wherever the two meet is an instance of the pair.

use super::record::{Event, What};
use format::Layout;
use format::lane::{State, word};
use format::layout::{BITMAP, BLOCK, LANE_AREA, LANE_BYTES, LINE, PERMISSION_TABLE};
use pm::record::{Site, Stored};
use std::collections::{BTreeMap, BTreeSet};

/// Two places that store, the second behind the first.
pub type Pair = (Site, Site);

/// What ends a stretch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum By {
    /// A fence.
    Fence,
    /// The words that make a record count, or end it: its state and what stands for its checksum. They are a stretch
    /// of their own. Where processes die, stores become visible in order: these words, and no fence, keep what belongs
    /// to a record before what it does, and that before what comes next.
    Record,
}

/// Thread, and number of the stretch.
type Stretch = (u8, usize);

/// In a lane, where what makes its record count ends, and the counters begin.
const LANE_COUNTERS: u64 = word::LINES;

/// Of each store that a crash may show: its place among the events, and its stretch.
fn stores(events: &[Event], by: By) -> impl Iterator<Item = (usize, Stretch)> {
    let mut threads = BTreeMap::new();
    events.iter().enumerate().filter_map(move |(at, event)| {
        let (stretch, ended, settles) = threads.entry(event.thread).or_insert((0usize, false, false));
        match event.what {
            What::Store { how, offset, .. } if how != Stored::Volatile => {
                let does = by == By::Record && lane_word(u64::from(offset)).is_some_and(|at| at < LANE_COUNTERS);
                let changes = std::mem::replace(settles, does) != does;
                *stretch += usize::from(std::mem::take(ended) || changes);
                Some((at, (event.thread, *stretch)))
            }
            What::Fence => {
                *ended |= by == By::Fence;
                None
            }
            _ => None,
        }
    })
}

/// The ordered pairs here, and whether the second one's stores are aside wherever they meet: nothing
/// refers to what they store to. `before` is what the words of the image held before these events.
pub fn pairs(events: &[Event], by: By, before: &dyn Fn(u64) -> u64) -> BTreeMap<Pair, bool> {
    let guards = Guards::new(events, before);
    let mut pairs = BTreeMap::new();
    let stretches = stretches(events, by);
    for (&(thread, number), later) in &stretches {
        let first = number.checked_sub(1).and_then(|number| stretches.get(&(thread, number)));
        let Some((first, from)) = first.and_then(|first| Some((first, *first.first()?))) else { continue };
        let sites: BTreeSet<Site> = first.iter().map(|at| events[*at].site).collect();
        for (place, at) in later.iter().enumerate() {
            let aside = moved(events, later, place).all(|store| guards.aside(from, store));
            for site in &sites {
                *pairs.entry((*site, events[*at].site)).or_insert(true) &= aside;
            }
        }
    }
    pairs
}

/// The stores of each stretch.
fn stretches(events: &[Event], by: By) -> BTreeMap<Stretch, Vec<usize>> {
    let mut stretches: BTreeMap<Stretch, Vec<usize>> = BTreeMap::new();
    stores(events, by).for_each(|(at, stretch)| stretches.entry(stretch).or_default().push(at));
    stretches
}

/// What goes with a store of a stretch where that is made earlier: what is stored before it to the same line.
/// No fence makes that order, and none is needed.
fn moved<'a>(events: &'a [Event], stretch: &'a [usize], place: usize) -> impl Iterator<Item = usize> + 'a {
    let line = move |at: usize| match events[at].what {
        What::Store { offset, .. } => u64::from(offset) / LINE,
        _ => u64::MAX,
    };
    stretch[..=place].iter().copied().filter(move |at| line(*at) == line(stretch[place]))
}

/// What is stored at `later` in the stretch after one of `first` comes before that.
pub fn swapped(events: &[Event], (first, later): Pair, by: By) -> Vec<Event> {
    let mut order: Vec<(usize, bool, usize)> = (0..events.len()).map(|at| (at, true, at)).collect();
    let stretches = stretches(events, by);
    for (&(thread, number), after) in &stretches {
        let before = number.checked_sub(1).and_then(|number| stretches.get(&(thread, number)));
        let Some(to) = before.and_then(|before| before.iter().find(|at| events[**at].site == first)) else { continue };
        for place in (0..after.len()).filter(|place| events[after[*place]].site == later) {
            moved(events, after, place).for_each(|store| order[store] = (*to, false, store));
        }
    }
    order.sort_unstable();
    order.into_iter().map(|(.., at)| events[at]).collect()
}

/// What is stored first behind each fence of `site` comes before all that the fence is behind.
pub fn hastened(events: &[Event], site: Site) -> Vec<Event> {
    let mut events = events.to_vec();
    let mut fence = 0;
    while fence < events.len() {
        let (thread, is) = (events[fence].thread, matches!(events[fence].what, What::Fence) && events[fence].site == site);
        let same = |e: &Event| e.thread == thread;
        let is_fence = |e: &Event| same(e) && matches!(e.what, What::Fence);
        let first = events[fence + 1..]
            .iter()
            .take_while(|e| !is_fence(e))
            .position(|e| same(e) && matches!(e.what, What::Store { how, .. } if how != Stored::Volatile));
        if let (true, Some(first)) = (is, first) {
            let from = events[..fence].iter().rposition(is_fence).map_or(0, |at| at + 1);
            let moved = events.remove(fence + 1 + first);
            events.insert(from, moved);
            fence += 1;
        }
        fence += 1;
    }
    events
}

/// Which byte of a lane this is, if it is one.
fn lane_word(offset: u64) -> Option<u64> {
    (LANE_AREA..PERMISSION_TABLE).contains(&offset).then(|| (offset - LANE_AREA) % LANE_BYTES)
}

/// What a word says about what it guards.
#[derive(Clone, Copy)]
enum Bits {
    /// Something refers to it while one of these is set.
    Of(u64),
    /// It is the state word of a lane.
    Record,
}

impl Bits {
    fn refer(self, value: u64) -> bool {
        match self {
            Bits::Of(bits) => value & bits != 0,
            Bits::Record => State::counts(value),
        }
    }
}

/// The word that says whether anything refers to the store at `offset`, and how.
fn guard(offset: u64) -> Option<(u64, Bits)> {
    if let Some(at) = lane_word(offset) {
        // A record means nothing before its state word, nor when that says that it has ended; the lane's own words are
        // no part of it.
        return (at > 0 && !(LANE_COUNTERS..word::OPS).contains(&at) && at < word::INTENT).then_some((offset - at, Bits::Record));
    }
    let block = offset / BLOCK;
    let layout = Layout::new(super::memory::LIMIT)?;
    (offset >= BITMAP && block >= layout.first_block())
        .then(|| (Layout::bitmap_word(block), Bits::Of(1 << (offset % BLOCK / LINE))))
}

/// What the words that tell what is in use hold, over the events.
struct Guards<'a> {
    events: &'a [Event],
    before: &'a dyn Fn(u64) -> u64,
    stores: BTreeMap<u64, Vec<(usize, u64)>>,
}

impl<'a> Guards<'a> {
    fn new(events: &'a [Event], before: &'a dyn Fn(u64) -> u64) -> Guards<'a> {
        let mut stores: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
        for (at, event) in events.iter().enumerate() {
            if let What::Store { offset, len: 8, value, .. } = event.what {
                stores.entry(u64::from(offset)).or_default().push((at, value));
            }
        }
        Guards { events, before, stores }
    }

    /// Whether from event `from` to `at`, a store, nothing refers to what that stores to.
    fn aside(&self, from: usize, at: usize) -> bool {
        let What::Store { offset, .. } = self.events[at].what else { return false };
        let Some((word, bits)) = guard(u64::from(offset)) else { return false };
        let none = Vec::new();
        let stores = self.stores.get(&word).unwrap_or(&none);
        let first = stores.iter().rev().find(|(event, _)| *event < from).map_or_else(|| (self.before)(word), |(_, value)| *value);
        let meanwhile = stores.iter().filter(|(event, _)| (from..at).contains(event)).map(|(_, value)| *value);
        std::iter::once(first).chain(meanwhile).all(|value| !bits.refer(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    /// Goal: what orders stores where no fence does. Method: a record, what it does, its end, and the next record's
    /// first word, with fences where they mean nothing: its stretches, and what goes with its state word.
    #[test]
    fn a_record_is_ordered_by_its_own_words() {
        let sites = [Location::caller(), Location::caller(), Location::caller(), Location::caller(), Location::caller()];
        let [listed, marked, counts, made, ended] = sites;
        let store = |at: u64, value: u64, site: Site| Event {
            what: What::Store { offset: at as u32, len: 8, value, how: Stored::Word },
            thread: 0,
            site,
        };
        let fence = Event { what: What::Fence, thread: 0, site: listed };
        let elsewhere = BITMAP - BLOCK;
        let events = [
            store(LANE_AREA + word::OPS, 1, listed),
            fence,
            store(LANE_AREA + 8, 2, marked),
            store(LANE_AREA, 3, counts),
            store(elsewhere, 4, made),
            fence,
            store(elsewhere + 8, 5, made),
            store(LANE_AREA, 0, ended),
            store(LANE_AREA + word::OPS, 6, listed),
        ];
        let of: Vec<usize> = stores(&events, By::Record).map(|(_, (_, number))| number).collect();
        assert_eq!(of, [0, 1, 1, 2, 2, 3, 4]);
        let found = pairs(&events, By::Record, &|_| 0);
        let all = [((listed, marked), true), ((listed, counts), false), ((marked, made), false), ((counts, made), false)];
        let all = all.into_iter().chain([((made, ended), false), ((ended, listed), false)]);
        assert_eq!(found, all.collect());
        // The mark goes with the state word.
        let values = |events: &[Event]| -> Vec<u64> {
            let value = |event: &Event| match event.what {
                What::Store { value, .. } => Some(value),
                _ => None,
            };
            events.iter().filter_map(value).collect()
        };
        assert_eq!(values(&swapped(&events, (listed, counts), By::Record)), [2, 3, 1, 4, 5, 0, 6]);
        assert_eq!(values(&swapped(&events, (listed, marked), By::Fence)), [2, 1, 3, 4, 5, 0, 6]);
    }
}

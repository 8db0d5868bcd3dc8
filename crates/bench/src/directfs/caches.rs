//! What n processors would do to each other: a cache for each, with lines that are modified, shared or not there, and the accesses of
//! real calls of two threads, of which each simulated thread gets its own copy. Lines that both threads' calls touch are everybody's; others are
//! a thread's own. Threads take turns access by access, drawn at random, with all caches large enough.

use crate::budget::lackey::{Kind, Look};
use std::collections::{HashMap, HashSet};

/// Simulated calls of each thread.
const CALLS: usize = 200;

/// An access: everybody's line or one's own, and whether it is written.
type Step = (u64, bool);

/// The steps of one call, on lines that others have too: one's own stay where they are.
fn steps(look: &Look, everybodys: &HashSet<u64>) -> Vec<Step> {
    let data = look.0.iter().filter(|access| access.kind != Kind::Code);
    data.map(|access| (access.address >> 6, access.kind == Kind::Store)).filter(|(line, _)| everybodys.contains(line)).collect()
}

/// Who has a line: the writer alone, or those who have read it since.
#[derive(Default)]
struct Holders {
    writer: Option<usize>,
    readers: HashSet<usize>,
}

impl Holders {
    /// Whether an access has to fetch the line from another cache, or take it away there.
    fn access(&mut self, who: usize, writes: bool) -> bool {
        let alone = self.writer == Some(who);
        if writes {
            let moves = !alone && (self.writer.is_some() || self.readers.iter().any(|reader| *reader != who));
            (self.writer, self.readers) = (Some(who), HashSet::new());
            return moves;
        }
        if alone {
            return false;
        }
        let moves = self.writer.take().is_some_and(|writer| self.readers.insert(writer));
        self.readers.insert(who) && moves
    }
}

/// Transfers a call with so many threads, each of which makes these calls in turn.
pub fn transfers(pairs: &[&[Look]], mark: u64, threads: usize) -> f64 {
    let calls: Vec<Vec<Step>> = pairs
        .iter()
        .flat_map(|pair| {
            let [one, other] = [&pair[0], &pair[1]].map(|look| look.lines(|kind| kind != Kind::Code));
            let mut everybodys: HashSet<u64> = one.intersection(&other).copied().collect();
            everybodys.remove(&mark);
            [steps(&pair[0], &everybodys), steps(&pair[1], &everybodys)]
        })
        .collect();
    let (mut lines, mut moved) = (HashMap::<u64, Holders>::new(), 0u64);
    let mut at = vec![(0usize, 0usize); threads];
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut running: Vec<usize> = (0..threads).collect();
    while !running.is_empty() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let turn = (random % running.len() as u64) as usize;
        let who = running[turn];
        let (call, step) = at[who];
        match calls[(call + who) % calls.len()].get(step) {
            Some((line, writes)) => {
                moved += u64::from(lines.entry(*line).or_default().access(who, *writes));
                at[who].1 += 1;
            }
            None if call + 1 < CALLS => at[who] = (call + 1, 0),
            None => _ = running.swap_remove(turn),
        }
    }
    moved as f64 / (threads * CALLS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::lackey::Access;

    /// Goal: lines travel when another wrote them, not when all read. Method: two threads, one shared line, read or written.
    #[test]
    fn only_written_lines_travel() {
        let look = |kind, own| Look([0x1000, own].map(|address| Access { kind, address, size: 8 }).to_vec());
        let read = [look(Kind::Load, 0x2000), look(Kind::Load, 0x3000)];
        let written = [look(Kind::Store, 0x2000), look(Kind::Store, 0x3000)];
        assert_eq!(transfers(&[&read], 0, 8), 0.0);
        assert_eq!(transfers(&[&written], 0, 1), 0.0);
        let two = transfers(&[&written], 0, 2);
        let many = transfers(&[&written], 0, 24);
        assert!(two > 0.3 && two < 0.7 && many > 0.85 && many <= 1.0, "{two} {many}");
        assert_eq!(transfers(&[&written], 0x1000 >> 6, 24), 0.0);
    }
}

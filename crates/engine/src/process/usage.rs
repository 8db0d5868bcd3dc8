//! What an image's users do, for `bypath stats` and `top`.
//!
//! Nothing is counted for it on the way of a call: changes are the numbers of journal records, which lie in the lanes that
//! make them; calls are what programs add now and then ([`calls`](super::calls)); all else is there for other reasons.
//! Others go on meanwhile: the figures are those of no instant.

use crate::fs::Fs;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::lane::State;
use format::layout::LANES;
use openfiles::{Locks, Processes};

/// An image's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Open files.
    pub open_files: u32,
    /// Advisory locks.
    pub locks: u32,
    /// Files whose attributes are cached, or were before others took their places.
    pub cached: u32,
    /// How many can be.
    pub cached_max: u32,
    /// Changes that were made since the image exists, but for what was made before it was upgraded or repaired; it wraps.
    pub changes: u64,
    /// Threads that have waited for somebody else for some time.
    pub waiting: u32,
}

/// One process that uses an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserUsage {
    /// Its slot, which is its own as long as it lives.
    pub slot: u32,
    /// Its PID, as its own namespace has it.
    pub pid: u32,
    /// The kernel's letter for its state, where it can be asked.
    pub state: Option<u8>,
    /// Calls that it has added, a few thousand at a time.
    pub calls: u64,
    /// Fds, the working directory and mappings.
    pub fds: u32,
}

/// One journal lane: a thread's, as long as that makes changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneUsage {
    /// Its number.
    pub lane: u32,
    /// Slot of the process that has it, or had it last; none after a new shared cache.
    pub slot: Option<u32>,
    /// How many changes were made in it; it wraps.
    pub changes: u32,
    /// What its thread has waited for for some time.
    pub waits_for: Option<&'static str>,
}

impl Fs {
    /// The image's figures.
    pub fn usage(&self) -> Usage {
        let header = self.header();
        let open = |id: &u32| self.description(*id).refs.load(Relaxed) != 0;
        Usage {
            open_files: (0..header.descriptions_high.get()).filter(open).count() as u32,
            locks: self.count_locks(),
            cached: header.cachelet_next.load(Acquire).min(self.areas.cachelet_count),
            cached_max: self.areas.cachelet_count,
            changes: (0..LANES).map(|lane| u64::from(self.changes_of(lane))).sum(),
            waiting: self.lanes_usage().filter(|lane| lane.waits_for.is_some()).count() as u32,
        }
    }

    /// Who uses it.
    pub fn users_usage(&self) -> impl Iterator<Item = UserUsage> {
        (0..self.header().processes_high.get()).filter_map(|slot| {
            let process = self.process_slot(slot).filter(|process| process.is_used())?;
            let who = process.who();
            Some(UserUsage {
                slot,
                pid: who.pid,
                state: who.state(),
                calls: process.calls.load(Relaxed).into(),
                fds: self.descriptors_of(slot).count() as u32,
            })
        })
    }

    /// Its journal lanes that were ever used by this shared cache's users.
    pub fn lanes_usage(&self) -> impl Iterator<Item = LaneUsage> {
        (0..self.header().lanes_high.get()).map(|lane| LaneUsage {
            lane,
            slot: self.lane_state(lane).process.load(Relaxed).checked_sub(1),
            changes: self.changes_of(lane),
            waits_for: self.waits_for(lane),
        })
    }

    /// The number of a lane's last record.
    fn changes_of(&self, lane: u32) -> u32 {
        State::next(self.lane(lane).state.load(Relaxed)).wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {

    use crate::testing::TestFs;
    use base::{Calls, Kind, NewNode};

    /// Goal: figures tell of what was done. Method: files made, opened, and calls added, by the one user there is.
    #[test]
    fn figures_of_what_was_done() {
        let test = TestFs::new(32 << 20);
        let cx = test.cx();
        let before = test.usage();
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        for name in [b"a", b"b", b"c", b"d", b"e"] {
            test.create(&cx, test.root_node(), name, &new).unwrap();
        }
        let after = test.usage();
        assert!((5..15).contains(&(after.changes - before.changes)), "{} changes", after.changes - before.changes);
        assert!(after.cached >= before.cached + 5 && after.cached <= after.cached_max);
        assert_eq!((after.waiting, after.locks), (0, 0));
        test.count_calls(&Calls { symbols: 4096, patched: 4, ..Calls::default() });
        let user = test.users_usage().next().unwrap();
        assert_eq!((test.users_usage().count(), user.pid, user.calls), (1, std::process::id(), 4100));
        let own = test.lanes_usage().find(|lane| lane.slot == Some(user.slot)).unwrap();
        assert!(own.changes >= 5 && own.waits_for.is_none());
    }
}

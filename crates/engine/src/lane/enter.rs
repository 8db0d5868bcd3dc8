//! Changing the names in a directory without locking it (DirectFS: flags and
//! atomic writes in place of directory locks).
//!
//! A lane that makes or removes a name first publishes the directory in its
//! state and then looks at the directory's flags. Whoever wants the directory
//! for himself (to remove it, to recount it, to evict its cachelet) first sets a
//! flag and then looks at what the lanes have published. One of the two sees the
//! other; sequential consistency of the two stores and loads is what it takes.
//! Nobody who has entered waits for somebody who closes, so there is no deadlock.

use super::{Tx, lock::Waiter};
use crate::fs::{Fs, corrupt};
use crate::index::Seen;
use crate::segment::{Cachelet, cachelet};
use base::{Kind, Node, Result};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::fence;
use format::inode::node_offset;
use pm::Errno;

/// Flags that keep others out of a directory.
const CLOSED: u32 = cachelet::UNREADABLE | cachelet::DELETING | cachelet::EVICTING;

/// Flags of a directory's cachelet that is not to be entered without further ado.
const ODD: u32 = CLOSED | cachelet::DEAD | cachelet::REMOVED | cachelet::INVALID | cachelet::EXECUTED;

impl<'a> Tx<'a> {
    /// Enters two directories (which may be the same) where their nodes say that their cachelets are; `None` if there is
    /// anything about one that [`Fs::enter_two`] must look into.
    #[inline(always)]
    pub(crate) fn enter_fast(&mut self, [a, b]: [Node; 2]) -> Option<[Seen<'a>; 2]> {
        self.state.entered[0].store(node_offset(a.id), SeqCst);
        if a.id != b.id {
            self.state.entered[1].store(node_offset(b.id), SeqCst);
        }
        let first = self.open_to_entry(a);
        let second = if a.id == b.id { first } else { self.open_to_entry(b) };
        if first.is_none() || second.is_none() {
            self.leave_directories();
        }
        Some([first?, second?])
    }

    /// What a directory that this lane has published is like, if it is open to entry.
    #[inline(always)]
    fn open_to_entry(&self, node: Node) -> Option<Seen<'a>> {
        let directory = self.fs.cachelet(node.hint)?;
        let before = directory.sequence.load(SeqCst);
        let odd = directory.flags.load(SeqCst) & ODD;
        let seen = Seen {
            id: node.id,
            cachelet: directory,
            word: directory.mode.load(Relaxed),
            uid: directory.uid.load(Relaxed),
            gid: directory.gid.load(Relaxed),
        };
        let is_its = directory.node.load(SeqCst) == node.id;
        fence(Acquire);
        let is_still = before & 1 == 0 && directory.sequence.load(Relaxed) == before;
        (is_its && odd == 0 && is_still && seen.is(Kind::Directory)).then_some(seen)
    }

    /// Enters up to two directories (their cachelet and node id), to change
    /// their names. Waits while one is closed; `ENOENT` if one is removed, `EROFS` if one is frozen,
    /// `ESTALE` if a cachelet is no longer that node's.
    pub(crate) fn enter(&mut self, directories: &[(&Cachelet, u64)]) -> Result<()> {
        let mut wait = Waiter::of(self.number);
        'again: loop {
            for (i, (_, node)) in directories.iter().enumerate() {
                self.state.entered[i].store(node_offset(*node), SeqCst);
            }
            for (directory, node) in directories {
                // Before and after: the flags are those of the node, and nobody is taking its cachelet away.
                let was_its = directory.node.load(SeqCst) == *node;
                let flags = directory.flags.load(SeqCst);
                if !was_its || directory.node.load(SeqCst) != *node {
                    self.leave_directories();
                    return Err(Errno::ESTALE.into());
                }
                if flags & (cachelet::DEAD | cachelet::REMOVED) != 0 {
                    self.leave_directories();
                    return Err(Errno::ENOENT.into());
                }
                if flags & cachelet::EXECUTED != 0 {
                    self.leave_directories();
                    return Err(Errno::EROFS.into());
                }
                if flags & CLOSED != 0 {
                    self.leave_directories();
                    if !wait.once(self.fs, cachelet::closer(flags)) {
                        self.fs.reopen_forgotten(directory, flags);
                    }
                    wait.check(self.fs)?;
                    if wait.is_nonsense() {
                        return Err(corrupt("flags of a directory", node_offset(*node)));
                    }
                    continue 'again;
                }
            }
            return Ok(());
        }
    }

    /// Leaves the directories entered.
    pub(crate) fn leave_directories(&mut self) {
        for entered in &self.state.entered {
            entered.store(0, Release);
        }
        if let Some(directory) = self.closed.take() {
            self.fs.reopen(directory, self.number);
            self.state.closed.store(0, SeqCst);
        }
    }

    /// Closes a directory to entry with `flag` (`DELETING` or `UNREADABLE`) and
    /// waits until nobody is inside. `EBUSY` if somebody else is closing it;
    /// `EIO` if this operation has closed one already. It opens again when the
    /// operation ends.
    ///
    /// Must not be called with a bucket or inode lock held: whoever is inside may want it.
    pub(crate) fn close_directory(&mut self, directory: &'a Cachelet, node: u64, flag: u32) -> Result<()> {
        if self.closed.is_some() {
            return Err(Errno::EIO.into());
        }
        if self.close_to_others(directory, flag).is_err() {
            return Err(Errno::EBUSY.into());
        }
        let (fs, number) = (self.fs, self.number);
        fs.wait_until_left(number, node_offset(node));
        if directory.node.load(SeqCst) != node {
            return Err(Errno::ESTALE.into());
        }
        Ok(())
    }

    /// As [`Tx::close_directory`], but it waits for nobody: so the locks may be held, that of the directory among
    /// them. Else the lane + 1 that is inside, or has closed it; then it opens again when the operation ends.
    pub(crate) fn close_if_left(&mut self, directory: &'a Cachelet, node: u64, flag: u32) -> core::result::Result<(), u32> {
        self.close_to_others(directory, flag)?;
        match self.fs.lane_inside(0, self.number, node_offset(node)) {
            Some(lane) => Err(lane + 1),
            None => Ok(()),
        }
    }

    /// Closes a directory to entry; tells the lane + 1 that has done so already.
    fn close_to_others(&mut self, directory: &'a Cachelet, flag: u32) -> core::result::Result<(), u32> {
        let listed = &self.state.closed;
        listed.store(self.fs.segment.offset_of(directory), SeqCst);
        let mine = flag | cachelet::closed_by(self.number);
        let closed = directory.flags.fetch_update(SeqCst, SeqCst, |flags| (flags & CLOSED == 0).then_some(flags | mine));
        if let Err(flags) = closed {
            listed.store(0, SeqCst);
            return Err(cachelet::closer(flags));
        }
        self.closed = Some(directory);
        Ok(())
    }
}

impl Fs {
    /// Waits until no lane but `own` has the directory at `offset` entered.
    pub(crate) fn wait_until_left(&self, own: u32, offset: u64) {
        let mut next = 0;
        while let Some(number) = self.lane_inside(next, own, offset) {
            self.wait_until_lane_left(number, offset);
            next = number + 1;
        }
    }

    /// The first lane from `next` on, other than `own`, that has the directory at `offset` entered.
    #[inline(never)]
    fn lane_inside(&self, next: u32, own: u32, offset: u64) -> Option<u32> {
        (next..self.header().lanes_high.get()).find(|&number| {
            let [first, second] = &self.lane_state(number).entered;
            number != own && (first.load(SeqCst) == offset || second.load(SeqCst) == offset)
        })
    }

    /// Waits until a lane has left the directory at `offset`.
    #[cold]
    #[inline(never)]
    fn wait_until_lane_left(&self, number: u32, offset: u64) {
        let state = self.lane_state(number);
        let mut wait = Waiter::new();
        while state.entered.iter().any(|e| e.load(SeqCst) == offset) {
            if !wait.once(self, number + 1) {
                break;
            }
        }
    }

    /// The lane + 1 that has closed a directory (from the upper half of its flags), or 0.
    pub(crate) fn closer_of(&self, directory: &Cachelet) -> u32 {
        cachelet::closer(directory.flags.load(Relaxed))
    }

    /// Opens a directory whose flags, last seen as `flags`, name nobody who could open it.
    #[cold]
    pub(crate) fn reopen_forgotten(&self, directory: &Cachelet, flags: u32) {
        let open = flags & !(CLOSED | cachelet::CLOSER);
        let _ = directory.flags.compare_exchange(flags, open, SeqCst, SeqCst);
    }

    /// Opens a directory that lane `number` has closed.
    pub(crate) fn reopen(&self, directory: &Cachelet, number: u32) {
        let flags = directory.flags.load(SeqCst);
        if cachelet::closer(flags) == number + 1 {
            directory.flags.fetch_and(!(CLOSED | cachelet::CLOSER), SeqCst);
        }
    }
}

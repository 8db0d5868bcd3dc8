//! Locks: a word that names its holder, so that the dead can be told from the slow.

use super::{LOCKS, Tx};
use crate::fs::{Fs, corrupt};
use crate::names::ATTEMPTS;
use crate::segment::{Cachelet, LockWord, cachelet};
use base::{Cx, Error, Result};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use format::layout::LANES;
use pm::Errno;

/// Spins before a waiter gives way to other threads.
const SPINS: u32 = 200;
/// Turns given up before a waiter sleeps. Few: where others want the processor,
/// each may last as long as the scheduler gives them.
const TURNS: u32 = 4;
/// Each so many turns it looks into `/proc` whether the holder is dead.
const THOROUGH: u32 = 256;
/// How long it sleeps at a time, nanoseconds; after so many times twice as long, up to 16 times: who has not
/// let go by then is stopped, or at something long.
const NAP: i64 = 50_000;
const NAPS: u32 = 64;
const DOUBLED_MAX: u32 = 4;
/// Turns until a waiter is known to wait, and until one that holds the locks of names lets go of them ([`LATER`]).
const LONG: u32 = SPINS + TURNS + 8;
/// Turns in a row in which nobody was there to be waited for, until a waiter gives up.
const VAIN: u32 = 64;
/// Such turns in all, until a word that never comes to rest is given up as damage.
const NONSENSE: u32 = 1024;

/// An operation on names waits for an inode whose holder may be stopped: it gives back all that it holds, since others
/// want that, waits with nothing in its hands ([`Fs::wait_aside`]), and begins anew. Never seen outside the engine.
pub(crate) const LATER: Error = Error::Posix(Errno::ECANCELED);

impl<'a> Tx<'a> {
    /// Takes a lock, waiting; the holder's lane is adopted if it has died.
    /// `EIO` if this operation holds too many locks; [`LATER`]; `EINTR` ([`Fs::call_off`]).
    #[inline]
    pub(crate) fn lock(&mut self, word: &'a LockWord) -> Result<()> {
        let held = usize::from(self.held);
        if held >= LOCKS {
            return Err(Errno::EIO.into());
        }
        let listed = &self.state.held[held];
        // Listed before it is taken: see the module's parent.
        listed.store(self.fs.segment.offset_of(word), Release);
        if word.compare_exchange(0, self.number + 1, Acquire, Relaxed).is_err() {
            self.fs.wait_for_lock(word, listed, self.number, held > 0)?;
        }
        self.held += 1;
        Ok(())
    }

    /// Takes the lock of the counts of what is shared, once in an operation; the last of its locks, but for that of the
    /// orphan table. One who finishes what a dead one has begun does not wait for it long: it may be its own. [`LATER`].
    pub(crate) fn lock_shares(&mut self) -> Result<()> {
        let word = &self.fs.header().shares.0;
        if word.load(Relaxed) == self.number + 1 {
            return Ok(());
        }
        if !self.over {
            return self.lock(word);
        }
        let listed = self.state.held.get(usize::from(self.held)).ok_or(Errno::EIO)?;
        listed.store(self.fs.segment.offset_of(word), Release);
        let mut wait = Waiter::of(self.number);
        wait.patience = LONG;
        if !wait.take(self.fs, word, self.number + 1) {
            listed.store(0, Release);
            return Err(LATER);
        }
        self.held += 1;
        Ok(())
    }

    /// Gives it back, if it is the one taken last. What was listed has been committed, or abandoned.
    #[inline]
    pub(crate) fn unlock_shares(&mut self) {
        let word = &self.fs.header().shares.0;
        let last = self.held.checked_sub(1).and_then(|last| self.state.held.get(usize::from(last)));
        if last.is_some_and(|last| last.load(Relaxed) == self.fs.segment.offset_of(word)) {
            self.unlock_to(self.held - 1);
        }
    }

    /// Gives back the lock taken last but `keep` locks.
    #[inline]
    pub(crate) fn unlock_to(&mut self, keep: u8) {
        while self.held > keep {
            self.held -= 1;
            self.give_back(&self.state.held[usize::from(self.held) % LOCKS]);
        }
    }

    /// Gives back the lock that is listed there.
    #[inline]
    fn give_back(&self, listed: &AtomicU64) {
        if let Some(word) = self.fs.segment.at::<LockWord>(listed.load(Relaxed))
            && word.load(Relaxed) == self.number + 1
        {
            word.store(0, Release);
        }
        listed.store(0, Release);
    }

    /// Gives back all locks.
    pub(crate) fn unlock_all(&mut self) {
        self.unlock_to(0);
    }

    /// Takes the bucket lock of a hash.
    pub(crate) fn lock_bucket(&mut self, hash: u64) -> Result<()> {
        self.lock(self.fs.bucket_lock(hash))
    }

    /// Takes the bucket locks of two hashes, in order; they may be the same.
    pub(crate) fn lock_buckets(&mut self, a: u64, b: u64) -> Result<()> {
        let (a, b) = (a % crate::segment::BUCKET_LOCKS, b % crate::segment::BUCKET_LOCKS);
        self.lock_bucket(a.min(b))?;
        if a != b { self.lock_bucket(a.max(b)) } else { Ok(()) }
    }

    /// Takes the inode of a cachelet, and makes sure that it still is `node`:
    /// `ESTALE` if the cachelet was given to another inode meanwhile, or the
    /// inode is gone. The caller looks the cachelet up again.
    #[inline]
    pub(crate) fn lock_inode(&mut self, cachelet: &'a Cachelet, node: u64) -> Result<()> {
        let keep = self.held;
        self.lock(&cachelet.owner)?;
        if cachelet.is_sound(node) { Ok(()) } else { self.mend_inode(cachelet, node, keep) }
    }

    /// The cachelet locked last, before which `keep` locks were held, is another
    /// node's (`ESTALE`), or is to be loaded again.
    #[cold]
    #[inline(never)]
    fn mend_inode(&mut self, cachelet: &Cachelet, node: u64, keep: u8) -> Result<()> {
        if cachelet.node.load(Acquire) != node || cachelet.flags.load(Acquire) & cachelet::DEAD != 0 {
            self.unlock_to(keep);
            return Err(Errno::ESTALE.into());
        }
        if cachelet.flags.load(Relaxed) & cachelet::INVALID != 0 {
            let loaded = self.fs.reload(self.number, cachelet, node);
            if loaded.is_err() {
                self.unlock_to(keep);
            }
            return loaded;
        }
        Ok(())
    }
}

impl Fs {
    /// Waits for a lock that lane `number` wants and has listed; it is listed no more if that is in vain. `holds`:
    /// the lane has other locks.
    #[cold]
    #[inline(never)]
    fn wait_for_lock(&self, word: &LockWord, listed: &AtomicU64, number: u32, holds: bool) -> Result<()> {
        let (mut wait, state) = (Waiter::of(number), self.lane_state(number));
        let at = self.segment.offset_of(word);
        // Buckets of names, and an inode in use by one who may be stopped.
        wait.patience = if holds && at >= self.areas.cachelets && state.entered[0].load(Relaxed) != 0 { LONG } else { u32::MAX };
        if wait.take(self, word, number + 1) {
            return Ok(());
        }
        listed.store(0, Release);
        if wait.rounds >= wait.patience {
            state.waits_for.store(at, Relaxed);
            return Err(LATER);
        }
        wait.has_ended(self);
        wait.check(self)?;
        Err(corrupt("lock", at))
    }

    /// After [`LATER`], with nothing held: waits until the lock that was wanted changes hands. `EINTR`.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_aside(&self, cx: &Cx) -> Result<()> {
        let Some(number) = self.own_lane(cx.thread).get().checked_sub(1) else { return Ok(()) };
        let waits_for = &self.lane_state(number).waits_for;
        let Some(word) = self.segment.at::<LockWord>(waits_for.load(Relaxed)) else { return Ok(()) };
        let (mut wait, first) = (Waiter::of(number), word.load(Acquire));
        let mut result = Ok(());
        while first != 0 && word.load(Acquire) == first && result.is_ok() {
            if !wait.once(self, first) {
                // Nobody who is there has it.
                let _ = word.compare_exchange(first, 0, Acquire, Relaxed);
            }
            result = wait.check(self);
        }
        waits_for.store(0, Relaxed);
        result
    }

    /// Makes a call that ends with [`LATER`] where it would hold others up, until it does not.
    pub(crate) fn until_free<T>(&self, cx: &Cx, call: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS {
            match call() {
                Err(LATER) => self.wait_aside(cx)?,
                result => return result,
            }
        }
        Err(Errno::EIO.into())
    }

    /// Whoever uses lane `number` need not wait any longer, whatever for: the call ends with `EINTR`. Or (`over`) what
    /// was meant by that has ended.
    pub fn call_off(&self, number: u32, over: bool) {
        self.lane_state(number).called_off.store(u64::from(!over), Release);
    }

    /// The lock of the bucket that `hash` belongs to, now and after splits.
    #[inline]
    pub(crate) fn bucket_lock(&self, hash: u64) -> &LockWord {
        &self.bucket_locks.get(hash as u32).word
    }
}

/// Waits in a loop: spins, gives way, sleeps; asks each time whether the holder is dead.
///
/// What is waited for is a word that a peer may have written by mistake or by
/// malice. So nobody waits for a lane that nobody has, for no lane, or for himself;
/// nor for ever, if it says another such thing each time ([`Waiter::is_nonsense`]).
pub(crate) struct Waiter {
    rounds: u32,
    /// Turns in a row in which nobody was there to be waited for.
    vain: u32,
    /// And in all.
    nobody: u32,
    /// Own lane + 1, or 0.
    own: u32,
    /// Turns after which [`Waiter::take`] gives up.
    patience: u32,
}

impl Waiter {
    pub(crate) fn new() -> Waiter {
        Waiter { rounds: 0, vain: 0, nobody: 0, own: 0, patience: u32::MAX }
    }

    /// For the user of lane `own`.
    pub(crate) fn of(own: u32) -> Waiter {
        Waiter { rounds: 0, vain: 0, nobody: 0, own: own.wrapping_add(1), patience: u32::MAX }
    }

    /// For the thread of a call, with a lane or without one.
    pub(crate) fn by(fs: &Fs, cx: &Cx) -> Waiter {
        Waiter { rounds: 0, vain: 0, nobody: 0, own: fs.own_lane(cx.thread).get(), patience: u32::MAX }
    }

    /// Waits a little for the lane `holder - 1` to let go of something. False if
    /// that is in vain: nobody has had that lane, time after time.
    pub(crate) fn once(&mut self, fs: &Fs, holder: u32) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < SPINS {
            core::hint::spin_loop();
            return true;
        }
        let is_lane = (1..=LANES).contains(&holder) && holder != self.own;
        let is_proven = self.rounds.is_multiple_of(THOROUGH) && is_lane && fs.adopt_if_proven(holder - 1);
        let is_free = is_proven || is_lane && fs.adopt_if_dead(holder - 1);
        let is_there = is_lane && !is_free;
        self.vain = if is_there { 0 } else { self.vain + 1 };
        self.nobody += u32::from(!is_there);
        match self.rounds - SPINS {
            ..TURNS if is_free => {}
            ..TURNS => pm::file::give_way(),
            turns => pm::file::nap(NAP << ((turns - TURNS) / NAPS).min(DOUBLED_MAX)),
        }
        self.vain < VAIN
    }

    /// It has become long: who asks is told what is waited for; whether the wait has been called off.
    #[cold]
    fn is_over(&self, fs: &Fs, word: &LockWord) -> bool {
        if let Some(state) = fs.state_of(self.own) {
            state.waits_for.store(fs.segment.offset_of(word), Relaxed);
        }
        self.check(fs).is_err()
    }

    /// Nothing is waited for any more.
    fn has_ended(&self, fs: &Fs) {
        if let Some(state) = fs.state_of(self.own).filter(|_| self.rounds >= LONG) {
            state.waits_for.store(0, Relaxed);
        }
    }

    /// `EINTR` if this wait has been called off ([`Fs::call_off`]).
    pub(crate) fn check(&self, fs: &Fs) -> Result<()> {
        let called_off = fs.state_of(self.own).is_some_and(|state| state.called_off.load(Acquire) != 0);
        if called_off { Err(Errno::EINTR.into()) } else { Ok(()) }
    }

    /// Whether the word waited for has named nobody so often that it never will
    /// come to rest: the caller gives up with an error.
    pub(crate) fn is_nonsense(&self) -> bool {
        self.nobody >= NONSENSE
    }

    /// Takes a lock for `owner` (a lane + 1), from nobody if it names nobody who
    /// is there. False if it names `owner` already, or is nonsense, or there is no more patience.
    pub(crate) fn take(&mut self, fs: &Fs, word: &LockWord, owner: u32) -> bool {
        loop {
            match word.compare_exchange(0, owner, Acquire, Relaxed) {
                Ok(_) => {
                    self.has_ended(fs);
                    return true;
                }
                Err(_) if self.rounds >= LONG && (self.rounds >= self.patience || self.is_over(fs, word)) => return false,
                Err(holder) if self.once(fs, holder) && !self.is_nonsense() => {}
                Err(holder) if holder == owner || self.is_nonsense() => return false,
                Err(holder) => {
                    if word.compare_exchange(holder, owner, Acquire, Relaxed).is_ok() {
                        self.has_ended(fs);
                        return true;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NONSENSE, SPINS, Waiter};
    use crate::alloc::loading_by;
    use crate::segment::lane_state::ARENAS;
    use crate::segment::{BUCKET_LOCKS, LockWord, cachelet};
    use crate::testing::TestFs;
    use crate::{Error, Kind, NewNode, SetAttr};
    use core::sync::atomic::Ordering::SeqCst;
    use core::sync::atomic::{AtomicBool, AtomicU32};
    use format::layout::LANES;
    use pm::UserSlice;
    use std::format;

    /// Something else is written to a word each time, until this goes.
    struct Scribe<'a>(&'a AtomicBool);

    impl Drop for Scribe<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }

    /// Makes a call while a thread of a peer writes nonsense to `word` without a pause.
    fn beside_a_scribe<T>(word: &AtomicU32, nonsense: impl Fn(u32) -> u32 + Sync, call: impl FnOnce() -> T) -> T {
        let (done, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0u32.. {
                    if done.load(SeqCst) {
                        break;
                    }
                    word.store(nonsense(turn), SeqCst);
                    begun.store(true, SeqCst);
                }
            });
            let _scribe = Scribe(&done);
            while !begun.load(SeqCst) {
                std::thread::yield_now();
            }
            call()
        })
    }

    const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

    /// Goal: a word that never comes to rest is given up, also if it names somebody who lives now and then.
    #[test]
    fn nonsense_is_given_up() {
        let test = TestFs::new(16 << 20);
        test.create(&test.cx(), test.root_node(), b"file", &FILE).unwrap();
        let living = test.thread.lanes[0].get();
        let mut wait = Waiter::new();
        let mut turn = 0;
        while !wait.is_nonsense() {
            wait.once(test.fs, if turn % 8 == 0 { living } else { LANES + turn });
            turn += 1;
            assert!(turn < SPINS + NONSENSE * 2);
        }
        let mut wait = Waiter::new();
        for _ in 0..SPINS + NONSENSE {
            assert!(wait.once(test.fs, living) && !wait.is_nonsense(), "who lives is waited for");
        }
    }

    /// Goal: nobody waits for himself, whatever word names him. Method: each call that might; without it, one never returns.
    #[test]
    fn nobody_waits_for_himself() {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let node = test.create(&cx, root, b"file", &FILE).unwrap();
        let id = test.open(&cx, node, 2, 5).unwrap();
        let own = test.thread.lanes[0].get();
        let is_fair = |result: Result<u32, Error>| matches!(result, Ok(_) | Err(Error::Corrupt { .. }));
        test.fs.description(id).offset_owner.store(own, SeqCst);
        test.offset_lock(&cx, id);
        test.offset_unlock(&cx, id);
        let flags = &test.fs.cachelet(node.hint).unwrap().flags;
        flags.store(cachelet::EVICTING | own << 16, SeqCst);
        assert!(is_fair(test.open(&cx, node, 2, 6)));
        flags.store(0, SeqCst);
        // What is left in a magazine goes back to a chunk that we seem to be loading.
        let state = test.fs.lane_state(own - 1);
        assert!((0..ARENAS).any(|place| state.magazine(place).lines.load(SeqCst) != 0));
        (0..).map_while(|at| test.fs.chunk(at)).for_each(|chunk| chunk.ready.store(loading_by(own - 1), SeqCst));
        test.fs.return_stocks(own - 1, state);
        assert!((0..ARENAS).all(|place| state.magazine(place).lines.load(SeqCst) == 0));
    }

    /// Goal: whoever writes a word for ever keeps nobody for ever. Method: a thread that writes, beside calls that
    /// wait for just that word. Whether they get through is a matter of luck; each returns, with nothing but `EIO`.
    #[test]
    fn whoever_writes_for_ever() {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let node = test.create(&cx, root, b"file", &FILE).unwrap();
        let id = test.open(&cx, node, 2, 5).unwrap();
        let fair = |what: &str, result: Result<(), Error>| {
            assert!(matches!(result, Ok(()) | Err(Error::Corrupt { .. })), "{what}: {result:?}");
        };
        let nobody = |turn: u32| LANES + 1 + turn % 1000;
        for round in 0..2 {
            let name = format!("name {round}");
            let hash = test.entry_key(root.id, crate::names::proper(name.as_bytes()).unwrap()).hash;
            let lock = || fair("lock", test.create(&cx, root, name.as_bytes(), &FILE).map(drop));
            beside_a_scribe(test.bucket_lock(hash), nobody, lock);
            let directory = test.fs.cached(&cx, root).unwrap();
            let closed = |turn| cachelet::DELETING | nobody(turn) << 16;
            let enter =
                || fair("flags", test.create(&cx, root, b"beside", &FILE).and_then(|_| test.unlink(&cx, root, b"beside")));
            beside_a_scribe(&directory.flags, closed, enter);
            directory.flags.store(0, SeqCst);
            let cachelet = test.fs.cachelet(node.hint).unwrap();
            beside_a_scribe(&cachelet.sequence, |turn| turn << 1 | 1, || fair("sequence", test.attr(&cx, node).map(drop)));
            let read = || fair("map", test.read(&cx, node, 0, &[UserSlice::from_mut(&mut [0; 9])]).map(drop));
            beside_a_scribe(&cachelet.map_sequence, |turn| turn << 1 | 1, read);
            let mode = || fair("owner", test.set_attr(&cx, node, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).map(drop));
            beside_a_scribe(&cachelet.owner, nobody, mode);
            cachelet.owner.store(0, SeqCst);
            let (number, chunk) = (test.thread.lanes[0].get() - 1, test.fs.chunk(0).unwrap());
            let load = || fair("chunk", test.fs.ready_chunk(number, test.fs.lane_state(number), 0).map(drop));
            beside_a_scribe(&chunk.ready, |turn| nobody(turn) << 8 | 2, load);
            chunk.ready.store(0, SeqCst);
            let offset = &test.fs.description(id).offset_owner;
            beside_a_scribe(offset, nobody, || test.offset_lock(&cx, id));
            test.offset_unlock(&cx, id);
        }
    }

    /// Goal: words that a peer has written at random keep nobody waiting. Method:
    /// locks that name lanes without a user, no lane, and our own; a sequence left
    /// odd; a cachelet about to be taken by nobody.
    #[test]
    fn nobody_is_waited_for() {
        let test = TestFs::new(16 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let node = test.create(&cx, root, b"file", &FILE).unwrap();
        let own = test.thread.lanes[0].get();
        for holder in [77, LANES, LANES + 1, u32::MAX, own] {
            for number in 0..BUCKET_LOCKS {
                let word: &LockWord = test.fs.segment.at(test.fs.areas.bucket_locks + number * 16).unwrap();
                word.store(holder, SeqCst);
            }
            let made = test.create(&cx, root, format!("of {holder}").as_bytes(), &FILE);
            assert_eq!(matches!(made, Err(Error::Corrupt { what: "lock", .. })), holder == own, "{holder}: {made:?}");
            assert_eq!(made.is_ok(), holder != own, "{holder}: {made:?}");
        }
        let cachelet = test.fs.cachelet(node.hint).unwrap();
        cachelet.sequence.fetch_or(1, SeqCst);
        test.attr(&cx, node).unwrap();
        cachelet.map_sequence.fetch_or(1, SeqCst);
        assert_eq!(test.read(&cx, node, 0, &[UserSlice::from_mut(&mut [0; 9])]), Ok(0));
        for closer in [0, 600] {
            cachelet.flags.fetch_or(cachelet::EVICTING | closer << 16, SeqCst);
            test.open(&cx, node, 2, 5).unwrap();
            test.close(&cx, 5);
        }
        // Nor does a flag above those that name a lane hide which one that is.
        let kept = cachelet::UNCOMPARED | cachelet::REFERENCED;
        cachelet.flags.store(kept | cachelet::EVICTING | cachelet::closed_by(own - 1), SeqCst);
        test.settle_victim(own - 1, cachelet, false);
        assert_eq!(cachelet.flags.load(SeqCst), kept);
        cachelet.flags.store(kept | cachelet::EVICTING | cachelet::closed_by(600), SeqCst);
        test.open(&cx, node, 2, 5).unwrap();
        assert_eq!(cachelet.flags.load(SeqCst), kept);
        test.close(&cx, 5);
    }
}

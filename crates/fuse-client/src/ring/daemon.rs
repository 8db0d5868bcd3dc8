//! The daemon's side: what its replaced `read` and `writev` do.

use super::*;

/// Parts of a notification that are looked at: header, what is fixed, name, its end.
const NOTICE_PARTS: usize = 4;

impl Ring {
    /// The next request, into `into`; its length. Waits. `ENODEV` when the daemon
    /// is to end, `EINVAL` if there is no room for it.
    pub fn receive(&self, into: &[UserSlice]) -> Result<usize, Errno> {
        let header = self.header()?;
        loop {
            if let Some(index) = self.next(header)? {
                let slot = self.slot(index)?;
                let incarnation = header.incarnation.load(SeqCst);
                if slot.is_past(incarnation) {
                    slot.free_left(incarnation);
                    continue;
                }
                if !slot.step(REQUEST, TAKEN) {
                    // Its client has gone.
                    slot.step(ABANDONED, FREE);
                    continue;
                }
                let len = slot.len.load(Acquire) as usize;
                let mut done = 0;
                for part in into {
                    let piece = part.part(0, len - done.min(len));
                    self.region.copy_out(Self::room(index) + done as u64, piece)?;
                    done += piece.len;
                }
                if slot.one_way.load(Relaxed) != 0 {
                    slot.state.store(FREE, Release);
                }
                return if done < len { Err(Errno::EINVAL) } else { Ok(len) };
            }
            if matches!(header.daemon_state.load(SeqCst), daemon_state::CLOSING | daemon_state::DEAD) {
                return Err(Errno::ENODEV);
            }
        }
    }

    /// Takes a pending slot; `None` if it is time to look around.
    fn next(&self, header: &Header) -> Result<Option<u32>, Errno> {
        let take = || {
            let mut seen = header.pending.load(SeqCst);
            while seen != 0 {
                let index = seen.trailing_zeros();
                self.bring(index);
                let before = header.pending.fetch_and(!(1 << index), SeqCst);
                if before & (1 << index) != 0 {
                    return Some(index);
                }
                seen = before & !(1 << index);
            }
            None
        };
        let ends = || matches!(header.daemon_state.load(SeqCst), daemon_state::CLOSING | daemon_state::DEAD);
        let leads = header.leader.compare_exchange(NOBODY, LOOKS, SeqCst, Relaxed).is_ok();
        // Not before: between the two a client would find that nobody looks and nobody is coming.
        if header.returning.load(Relaxed) != 0 {
            header.returning.store(0, SeqCst);
        }
        if header.leaving.load(Relaxed) != 0 {
            header.leaving.store(0, Relaxed);
        }
        if !leads {
            let rung = header.bench.load(SeqCst);
            header.followers.fetch_add(1, SeqCst);
            let is_needed = header.leader.load(SeqCst) == NOBODY;
            let result = if is_needed || ends() { Ok(()) } else { self.sleep(header, &header.bench, rung) };
            header.followers.fetch_sub(1, SeqCst);
            return result.map(|()| None);
        }
        // Who sleeps must be woken first, on this processor perhaps.
        let spun = if self.roused.load(Relaxed) != 0 { take() } else { self.spin.spin(take) };
        let mut found = spun.inspect(|_| self.co_location.met_apart()).or_else(|| self.yield_until(header, take));
        let mut result = Ok(());
        if found.is_none() {
            if header.daemon.load(Relaxed) == 0 {
                header.daemon.store(host::own_mark(), Relaxed);
            }
            let rung = header.bell.load(SeqCst);
            header.leader.store(SLEEPS, SeqCst);
            found = take();
            if found.is_none() && !ends() {
                result = self.sleep(header, &header.bell, rung);
                found = take();
            }
        }
        header.leader.store(NOBODY, SeqCst);
        // Whose clients relied on our looking.
        if header.pending.load(SeqCst) != 0 {
            self.call_follower(header);
        }
        match found {
            Some(index) => Ok(Some(index)),
            None => result.map(|()| None),
        }
    }

    /// Gives way to a client who has just been answered, if he does so himself, and was not asleep. The daemon can't
    /// tell a third program's turn from the client's own work; he can, who waits for an answer.
    fn yield_until(&self, header: &Header, take: impl FnMut() -> Option<u32>) -> Option<u32> {
        let place = self.met_at.load(Relaxed);
        if place == NOWHERE {
            return None;
        }
        let found = self.yielding.yield_until(false, take);
        match found {
            Some(_) if self.co_location.asked(place, &header.leaving) => self.spin.begin_anew(),
            Some(_) => {}
            None => self.met_at.store(NOWHERE, Relaxed),
        }
        found
    }

    /// `ENODEV` if it was a long sleep, and meanwhile whoever watches over us has gone.
    fn sleep(&self, header: &Header, word: &AtomicU32, value: u32) -> Result<(), Errno> {
        let begun = clock::monotonic();
        file::wait(word, value, LOOK_NS);
        let is_long = clock::monotonic() - begun >= LOOK_NS;
        if is_long && host::is_alive_by_mark(header.supervisor.load(Relaxed)) == Some(false) {
            Err(Errno::ENODEV)
        } else {
            Ok(())
        }
    }

    /// A reply, in parts; `returns`: by a thread that will ask for the next request when this is done. `ENOENT` if nobody asked (any more), `EINVAL` if it is
    /// not one. What is longer than any reply is cut off as `EIO` at the client.
    pub fn reply(&self, parts: &[UserSlice], returns: bool) -> Result<usize, Errno> {
        let total = UserSlice::total(parts);
        let mut head = [0u8; OUT_HEADER];
        let mut filled = 0;
        for part in parts {
            let piece = part.part(0, OUT_HEADER - filled);
            // Through the region's copies only: the parts are the daemon's.
            gather(piece, &mut head[filled..])?;
            filled += piece.len;
        }
        if filled < OUT_HEADER || total > MESSAGE_MAX {
            return Err(Errno::EINVAL);
        }
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        let unique = word(8);
        if unique == 0 {
            let code = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
            let mut skipped = 0;
            let mut rest = [UserSlice::from_ref(&[]); NOTICE_PARTS];
            for (part, rest) in parts.iter().zip(&mut rest) {
                let head = (OUT_HEADER - skipped).min(part.len);
                (*rest, skipped) = (part.part(head, part.len - head), skipped + head);
            }
            return self.notify_of(code, &rest).map(|()| total);
        }
        let index = (unique & 0xff) as u32 >> 1;
        let slot = self.slot(index).map_err(|_| Errno::ENOENT)?;
        if slot.unique.load(Acquire) != unique {
            return Err(Errno::ENOENT);
        }
        if !slot.step(TAKEN, REPLYING) {
            slot.step(ABANDONED, FREE);
            return Err(Errno::ENOENT);
        }
        let mut at = Self::room(index);
        let mut copied = Ok(());
        for &part in parts {
            copied = copied.and_then(|()| self.region.copy_in(at, part));
            at += part.len as u64;
        }
        // What can't be copied is `EIO` to who asked, as the kernel has it: no length that a reply may have.
        let len = if copied.is_ok() { total } else { 0 };
        slot.len.store(len as u32, Release);
        if returns {
            self.header()?.returning.store(1, SeqCst);
        }
        let place = slot.yields.load(Relaxed);
        if !slot.step(REPLYING, REPLIED) {
            slot.step(LEFT, FREE);
            return Err(Errno::ENOENT);
        }
        // Not before: who sees it frees the slot without a look at its state.
        slot.answered.store(answered(unique, len), Release);
        let (sleeps, slept_at) = (slot.sleeps.load(SeqCst) != 0, slot.slept_at.load(Relaxed));
        let met_at = if sleeps { NOWHERE } else { place };
        if self.met_at.load(Relaxed) != met_at {
            self.met_at.store(met_at, Relaxed);
        }
        if self.roused.load(Relaxed) != u32::from(sleeps) {
            self.roused.store(u32::from(sleeps), Relaxed);
        }
        if sleeps {
            file::wake_one(&slot.state);
            self.co_location.woke(slept_at);
        }
        copied.map(|()| total)
    }
}

/// Copies a program's buffer into one of ours, which is at least as long.
fn gather(from: UserSlice, into: &mut [u8]) -> Result<usize, Errno> {
    pm::user::copy(from, UserSlice::from_mut(into))
}

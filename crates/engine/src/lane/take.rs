//! Taking a lane: a thread keeps it for its life, and its death gives it back.

use crate::fs::Fs;
use base::{Result, Thread};
use core::sync::atomic::Ordering::Relaxed;
use format::layout;
use pm::Errno;
use pm::mutex::{Attempt, RobustMutex};

impl Fs {
    /// Takes a lane for this thread; returns its number. `ENOLCK` if all are taken.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_lane(&self, thread: &Thread) -> Result<u32> {
        for number in 0..layout::LANES {
            let Some(mutex) = self.lane_mutex(number) else { continue };
            let attempt = mutex.try_take();
            if matches!(attempt, Attempt::Busy | Attempt::Broken) {
                continue;
            }
            let prepared = self.prepare_lane(number);
            if prepared != Ok(true) {
                mutex.give_back();
                prepared?;
                continue;
            }
            self.lane_state(number).process.store(self.process.load(Relaxed), Relaxed);
            self.own_lane(thread).set(number + 1);
            return Ok(number);
        }
        Err(Errno::ENOLCK.into())
    }

    /// Makes a lane usable whose mutex this thread has just got: space for its
    /// state, and whatever its last user left undone. False if a truncation is left
    /// that takes longer: then another lane will do.
    fn prepare_lane(&self, number: u32) -> Result<bool> {
        self.lane_space(number)?;
        // Noted before the segment was made: nobody has it for the lane yet (`lock_noted`).
        let is_unlocked = self.lane_state(number).held[0].load(Relaxed) == 0;
        if is_unlocked && self.lane(number).intent.load(Relaxed) != 0 {
            return Ok(false);
        }
        self.adopt_lane(number)
    }

    /// Gives the states of all lanes up to `number` space.
    pub(crate) fn lane_space(&self, number: u32) -> Result<()> {
        let bytes = size_of::<crate::segment::LaneState>() as u64;
        let high = &self.header().lanes_high;
        if !high.has(number) {
            let first = high.get();
            let len = u64::from(number + 1 - first.min(number)) * bytes;
            // Who only reads may need one, too.
            self.segment_space(self.areas.lanes + u64::from(first) * bytes, len).map_err(|_| Errno::ENOMEM)?;
            high.raise(number + 1);
        }
        Ok(())
    }

    /// Gives this thread's lane back, at the orderly end of the thread or of its use of the image.
    pub fn give_lane_back(&self, thread: &Thread) {
        let taken = self.own_lane(thread).replace(0);
        if let (1.., Some(mutex)) = (taken, self.lane_mutex(taken.wrapping_sub(1))) {
            self.return_stocks(taken - 1, self.lane_state(taken - 1));
            mutex.give_back();
        }
    }

    /// The calling thread's operation was broken off at some instruction: its lane is left as if the thread had
    /// died there, and is its own again, or anybody's.
    #[cold]
    pub fn break_off(&self, thread: &Thread) {
        let own = self.own_lane(thread);
        let number = own.get().wrapping_sub(1);
        let Some(mutex) = (own.get() != 0).then(|| self.lane_mutex(number)).flatten() else { return };
        if self.adopt_lane(number) != Ok(true) {
            // A truncation is left to do, or a record is damaged: whoever takes the lane next goes on.
            own.set(0);
            mutex.give_back();
        }
    }

    /// Whether the image or its segment is mapped at `address`.
    pub fn is_mapped(&self, address: usize) -> bool {
        [&self.image, &self.segment].into_iter().any(|region| region.covers(address))
    }

    /// The mutex whose holder uses lane `number`.
    pub(crate) fn lane_mutex(&self, number: u32) -> Option<&RobustMutex> {
        RobustMutex::at(&self.image, layout::LANE_MUTEXES + u64::from(number % layout::LANES) * layout::LINE)
    }
}

impl Fs {
    /// The number of this thread's lane, taken if it has none yet.
    #[inline]
    pub(crate) fn lane_of(&self, cx: &base::Cx) -> Result<u32> {
        match self.own_lane(cx.thread).get() {
            0 => self.take_lane(cx.thread),
            taken => Ok(taken - 1),
        }
    }
}

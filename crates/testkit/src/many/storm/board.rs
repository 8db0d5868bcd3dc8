//! What the processes of a storm share: it outlives each of them.
//!
//! A seat is a place for one worker at a time. Before a call on names of its
//! own, a worker writes down what the call will change (`Intent`); after the
//! call has returned, that it did; then it changes its model. Death may come
//! between any two of these: whoever takes the seat next knows which call is
//! acknowledged, and which is not.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Workers at a time.
pub const SEATS: usize = 8;
/// Words of a worker's model of its own files.
pub const WORDS: usize = 64;
/// Words that one call may change.
pub const CHANGES: usize = 8;
/// Samples of how long a survivor's next call took.
const SAMPLES: usize = 1 << 20;
/// Workers that may append to the log, one after another.
pub const LIVES: usize = 1 << 16;

/// Phases of an intent.
pub const NOTHING: u32 = 0;
/// The call is under way: acknowledged by nobody.
pub const UNDER_WAY: u32 = 1;
/// The call has returned: what it changed must be there.
pub const RETURNED: u32 = 2;

/// What a call will change in a model: absolute values, so that applying twice does no harm.
pub struct Intent {
    pub phase: AtomicU32,
    pub count: AtomicU32,
    pub what: AtomicU32,
    pub index: [AtomicU32; CHANGES],
    pub value: [AtomicU64; CHANGES],
}

/// One worker's part.
pub struct Seat {
    pub model: [AtomicU64; WORDS],
    pub intent: Intent,
    pub calls: AtomicU64,
    /// When the call under way began, nanoseconds + 1; 0: none is.
    pub began: AtomicU64,
    pub longest: AtomicU64,
    /// Kills that this seat's worker has already measured.
    seen: AtomicU64,
    /// PID of the worker that sits here, or sat here last; 0: nobody yet.
    pub pid: AtomicU32,
    /// A message of a worker that failed; its length first.
    pub failed: AtomicU32,
    text: [AtomicU32; 100],
}

/// Everything that is shared.
pub struct Board {
    pub kills: AtomicU64,
    pub seats: [Seat; SEATS],
    taken: AtomicU64,
    samples: [AtomicU32; SAMPLES],
    /// Records of each life that are acknowledged.
    pub logged: [AtomicU32; LIVES],
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    pm::clock::monotonic() as u64
}

impl Board {
    /// All zero; stays for as long as the process.
    pub fn new() -> &'static Board {
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Board>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(at != libc::MAP_FAILED, "no memory");
        // SAFETY: zeroed, and all its fields are atomic words, for which zero is a value; never unmapped.
        unsafe { &*at.cast() }
    }

    /// How long each survivor's next call after each kill took, nanoseconds.
    pub fn samples(&self) -> impl Iterator<Item = u64> {
        let count = (self.taken.load(SeqCst) as usize).min(SAMPLES);
        self.samples[..count].iter().map(|sample| u64::from(sample.load(Relaxed)))
    }
}

impl Seat {
    /// Makes a call, and measures it if somebody was killed since the last one that was measured.
    pub fn timed(&self, board: &Board, call: impl FnOnce() -> isize) -> isize {
        let start = now();
        self.began.store(start + 1, SeqCst);
        let result = call();
        self.began.store(0, SeqCst);
        let spent = now() - start;
        self.calls.fetch_add(1, Relaxed);
        self.longest.fetch_max(spent, Relaxed);
        let kills = board.kills.load(SeqCst);
        if self.seen.swap(kills, Relaxed) != kills
            && let Some(sample) = board.samples.get(board.taken.fetch_add(1, SeqCst) as usize)
        {
            sample.store(spent.try_into().unwrap_or(u32::MAX), Relaxed);
        }
        result
    }

    /// A new worker sits down: what it sees first is no kill to be measured.
    pub fn sit(&self, board: &Board) {
        self.began.store(0, SeqCst);
        self.seen.store(board.kills.load(SeqCst), Relaxed);
    }

    /// Leaves a message for the parent.
    pub fn fail(&self, message: &str) {
        let len = message.len().min(self.text.len() * 4);
        for (word, bytes) in self.text.iter().zip(message.as_bytes()[..len].chunks(4)) {
            let mut four = [0; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            word.store(u32::from_ne_bytes(four), Relaxed);
        }
        self.failed.store(len as u32 + 1, SeqCst);
    }

    /// The message of a worker that failed.
    pub fn failure(&self) -> Option<String> {
        let len = self.failed.load(SeqCst).checked_sub(1)? as usize;
        let bytes: Vec<u8> = self.text.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).take(len).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Makes a call that changes the model, as it says; the call must succeed.
    pub fn change(
        &self,
        board: &Board,
        what: (u32, &str),
        changes: &[(usize, u64)],
        call: impl FnOnce() -> isize,
    ) -> Result<isize, String> {
        let intent = &self.intent;
        for (slot, (index, value)) in changes.iter().enumerate() {
            intent.index[slot].store(*index as u32, Relaxed);
            intent.value[slot].store(*value, Relaxed);
        }
        intent.what.store(what.0, Relaxed);
        intent.count.store(changes.len() as u32, Relaxed);
        intent.phase.store(UNDER_WAY, SeqCst);
        let result = self.timed(board, call);
        if result < 0 {
            return Err(format!("{}: {}", what.1, crate::differential::compare::error(result)));
        }
        intent.phase.store(RETURNED, SeqCst);
        self.apply();
        Ok(result)
    }

    /// The model takes over what the intent says.
    pub fn apply(&self) {
        for (index, value) in self.changes() {
            self.model[index].store(value, Relaxed);
        }
        self.intent.phase.store(NOTHING, SeqCst);
    }

    /// What the intent says.
    pub fn changes(&self) -> impl Iterator<Item = (usize, u64)> {
        let count = (self.intent.count.load(Relaxed) as usize).min(CHANGES);
        (0..count).map(|slot| (self.intent.index[slot].load(Relaxed) as usize % WORDS, self.intent.value[slot].load(Relaxed)))
    }

    /// The model as it is, and as it would be with the call that was under way.
    pub fn models(&self) -> ([u64; WORDS], [u64; WORDS]) {
        let before: [u64; WORDS] = std::array::from_fn(|at| self.model[at].load(SeqCst));
        let mut after = before;
        for (index, value) in self.changes() {
            after[index] = value;
        }
        (before, after)
    }
}

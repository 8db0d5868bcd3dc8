//! What a cache has had to ask for below, since its shared cache was made.
//!
//! Counted where something is fetched, beside a call to the lower file system: what is found here counts nothing, for that
//! would be a store into a line that all share. How many calls there were programs say by thousands ([`Fs::calls`]).

use crate::fs::Fs;
use core::sync::atomic::Ordering::Relaxed;

/// Words of the line of requests that are for these counts.
const FIRST: usize = 2;

/// What was fetched.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// Questions: a name, a listing, a run of bytes.
    pub questions: u64,
    /// Names that have come.
    pub names: u64,
    /// Bytes that have come.
    pub bytes: u64,
}

impl Fs {
    /// Counts so much more.
    pub fn count_fetched(&self, more: Fetched) {
        let words = &self.header().requests.0[FIRST..];
        for (word, more) in words.iter().zip([more.questions, more.names, more.bytes]).filter(|(_, more)| *more != 0) {
            word.fetch_add(more, Relaxed);
        }
    }

    /// What all have counted.
    pub fn fetched(&self) -> Fetched {
        let word = |number: usize| self.header().requests.0[FIRST + number].load(Relaxed);
        Fetched { questions: word(0), names: word(1), bytes: word(2) }
    }
}

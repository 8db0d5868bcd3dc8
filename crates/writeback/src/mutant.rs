//! Faults that a test plants in rounds, to see that the other tests notice them: only with the feature `mutants`, which only
//! this crate's tests ask for, and no release has.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// A note of contents is not read.
    NoteLeftOut = 1,
    /// Nor is one of a name.
    NameLeftOut,
    /// Something new gets its name before it has its contents.
    DataAfterName,
    /// Something new gets its name before it is noted which file it is.
    NumberAfterName,
    /// Notes go before what they say is durable.
    FreedBeforeSync,
    /// What is replaced is gone before all has been made.
    NumberGivenTwice,
    /// What a round that was cut off has made is believed to be whole.
    BelievedWhole,
}

#[cfg(feature = "mutants")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants one, or none.
#[cfg(feature = "mutants")]
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.store(mutant.map_or(0, |mutant| mutant as u8), std::sync::atomic::Ordering::SeqCst);
}

/// Whether this is the one that is planted.
#[cfg(feature = "mutants")]
pub(crate) fn is(mutant: Mutant) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::SeqCst) == mutant as u8
}

/// None is.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) fn is(_: Mutant) -> bool {
    false
}

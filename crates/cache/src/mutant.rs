//! Faults that a test plants in changes and in rounds, to see that the other tests notice them: only with the feature
//! `mutants`, which only the tests of `bypath-writeback` ask for, and no release has.

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
    /// A change is noted when it has been made.
    NoteAfterChange,
    /// The gate is opened before notes and names have been read.
    OpenedBeforeCopy,
    /// The tail of the journal moves before what it covers is synced.
    TailBeforeSync,
    /// A file is removed or replaced below though another program has written to it.
    TheirsRemoved,
    /// A file is overwritten below though another program has written to it.
    TheirsOverwritten,
}

#[cfg(feature = "mutants")]
static PLANTED: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Plants one, or none.
#[cfg(feature = "mutants")]
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.store(mutant.map_or(0, |mutant| mutant as u8), core::sync::atomic::Ordering::SeqCst);
}

/// Whether this is the one that is planted.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    PLANTED.load(core::sync::atomic::Ordering::SeqCst) == mutant as u8
}

/// None is.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub fn is(_: Mutant) -> bool {
    false
}

//! What of an operation is rare, and out of line: it works on a copy of the operation's words.
//!
//! What somebody has the address of can be in no register. So nobody gets that of an operation: not who is called where
//! something is unusual, nor who ends it on the way out.

use super::Tx;
use base::Result;
use core::ops::{Deref, DerefMut};

/// An [operation](Tx) that gives back what it holds when it is dropped.
pub(crate) struct Begun<'a>(pub(super) Tx<'a>);

impl<'a> Deref for Begun<'a> {
    type Target = Tx<'a>;

    #[inline(always)]
    fn deref(&self) -> &Tx<'a> {
        &self.0
    }
}

impl DerefMut for Begun<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for Begun<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // No more than a copy and a call, so that it is always in line: else the operation itself had an address.
        if !self.over {
            let mut rest = self.0;
            rest.end_late();
        }
    }
}

impl<'a> Tx<'a> {
    /// Makes a call that is rare, and out of line, with a copy: so the address of the operation
    /// itself goes nowhere, and its usual way has its fields in registers or as constants. Locks
    /// that the call still holds are given back; what it has listed must be committed.
    #[inline(always)]
    pub(crate) fn aside<R>(&self, call: impl FnOnce(&mut Tx<'a>) -> R) -> R {
        let mut copy = *self;
        let result = call(&mut copy);
        copy.unlock_to(self.held);
        result
    }

    /// As [`Tx::aside`], of a call that allocates and lists stores.
    #[inline(always)]
    pub(crate) fn aside_listing<R>(&mut self, call: impl FnOnce(&mut Tx<'a>) -> R) -> R {
        let mut copy = *self;
        let result = call(&mut copy);
        copy.unlock_to(self.held);
        (self.objects, self.ops, self.lines) = (copy.objects, copy.ops, copy.lines);
        result
    }

    /// As [`Tx::aside`], of a call that takes one lock to keep, unless it fails.
    #[inline(always)]
    pub(crate) fn aside_locking<R>(&mut self, call: impl FnOnce(&mut Tx<'a>) -> Result<R>) -> Result<R> {
        let mut copy = *self;
        let result = call(&mut copy)?;
        self.held += 1;
        Ok(result)
    }

    /// As [`Tx::aside_listing`], of a call that may free something, or take locks to keep.
    #[inline(always)]
    pub(crate) fn aside_taking<R>(&mut self, call: impl FnOnce(&mut Tx<'a>) -> R) -> R {
        let mut copy = *self;
        let result = call(&mut copy);
        (self.objects, self.ops, self.lines) = (copy.objects, copy.ops, copy.lines);
        (self.held, self.frees) = (copy.held, copy.frees);
        result
    }

    /// An [aside](Tx::aside) that commits.
    #[inline(always)]
    pub(crate) fn commit_aside<R: Copy>(&mut self, commit: impl FnOnce(&mut Tx<'a>) -> Result<R>) -> Result<R> {
        let committed = self.aside(commit);
        self.start_afresh();
        let result = committed?;
        Ok(result)
    }

    /// The operation as it is, for who ends it out of line: nothing is left to be done here.
    #[inline(always)]
    pub(crate) fn pass_on(&mut self) -> Begun<'a> {
        let passed = Begun(*self);
        self.over = true;
        passed
    }
}

//! What tells a thread inside the library from one outside.

use crate::abi::Context;
use core::cell::Cell;
use core::ptr::null_mut;

/// A thread's. All zeroes is one outside.
#[derive(Debug)]
#[repr(C)]
pub struct Aside {
    /// For `fuse_get_context`: of the call that the library serves, null outside.
    pub context: Cell<*mut Context>,
    /// Not 0: the thread's file calls are the kernel's. Others may count here too.
    pub raw: Cell<u32>,
}

/// The calling thread's, found once a call of the library: it is used in that call alone.
pub type Here = fn() -> &'static Aside;

/// While it lives, the thread is inside.
pub(crate) struct Inside<'a> {
    aside: &'a Aside,
    before: *mut Context,
}

impl Aside {
    /// Outside.
    pub const fn new() -> Aside {
        Aside { context: Cell::new(null_mut()), raw: Cell::new(0) }
    }

    /// Runs `f` while every file call of this thread, and of a child that borrows its memory, is the kernel's.
    pub fn raw_during<R>(&self, f: impl FnOnce() -> R) -> R {
        self.raw.set(self.raw.get() + 1);
        let result = f();
        self.raw.set(self.raw.get() - 1);
        result
    }

    /// Enters the library in the name of `context`, from outside or from inside.
    #[inline(always)]
    pub(crate) fn enter(&self, context: *mut Context) -> Inside<'_> {
        let before = self.context.replace(context);
        if before.is_null() {
            self.raw.set(self.raw.get() + 1);
        }
        Inside { aside: self, before }
    }
}

impl Default for Aside {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.aside.context.set(self.before);
        if self.before.is_null() {
            self.aside.raw.set(self.aside.raw.get() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a call within a call of the library (it uses a mount of its own) counts once, and gives back what was.
    #[test]
    fn inside_is_counted_once() {
        let (aside, mut contexts) = (Aside::new(), [const { Context::nobody() }; 2]);
        let [outer, inner] = contexts.each_mut().map(|context| &raw mut *context);
        let state = || (aside.context.get(), aside.raw.get());
        aside.raw.set(3);
        let first = aside.enter(outer);
        assert_eq!(state(), (outer, 4));
        let second = aside.enter(inner);
        assert_eq!(state(), (inner, 4));
        drop(second);
        assert_eq!(state(), (outer, 4));
        drop(first);
        assert_eq!(state(), (null_mut(), 3));
    }
}

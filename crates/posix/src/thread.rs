//! What a door keeps for each thread.

use base::{PATH_MAX, Scratch, Thread};
use core::cell::{Cell, UnsafeCell};

/// State of one thread of the program: lanes, and where its [`Room`] is. A forked child and a new thread start with a
/// fresh one. Small, so that a door may keep it where a thread finds its own at once.
#[repr(C)]
pub struct ThreadState {
    /// Lanes held; handed down to the backends. First, so that it is where this is.
    pub thread: Thread,
    room: Cell<Option<&'static Room>>,
    /// Second attempt at a call that failed in the kernel.
    pub(crate) retry: Cell<bool>,
}

/// Room of one thread for symlink texts, and for path names that are rewritten for the kernel: about 36 KiB; all zeroes
/// is a valid fresh one.
#[repr(C)]
pub struct Room {
    /// Symlink expansions, one for each of the (at most two) paths of a call.
    pub(crate) scratch: [UnsafeCell<Scratch>; 2],
    /// Texts that outlive a walk: paths to start again with, or for the kernel
    /// (referred to by [`Outcome::KernelWith`](crate::Outcome) until the next call).
    pub(crate) text: [UnsafeCell<[u8; PATH_MAX]>; 2],
    /// For walks through the kernel's namespace.
    pub(crate) outside: UnsafeCell<[[u8; PATH_MAX]; 3]>,
}

impl ThreadState {
    /// A fresh one, which makes no calls before it has a [room](ThreadState::begin).
    pub const fn new() -> Self {
        ThreadState { room: Cell::new(None), thread: Thread::new(), retry: Cell::new(false) }
    }

    /// A fresh one with a room.
    pub fn with_room(room: &'static mut Room) -> Self {
        let state = ThreadState::new();
        state.begin(room);
        state
    }

    /// From now on it is a fresh one with this room.
    pub fn begin(&self, room: &'static mut Room) {
        self.thread.lanes.iter().for_each(|lane| lane.set(0));
        self.thread.looked_up.set(None);
        self.retry.set(false);
        self.room.set(Some(room));
    }

    /// Takes its room away, if it has one: no call is being made.
    pub fn end(&self) -> Option<*mut Room> {
        self.room.take().map(|room| core::ptr::from_ref(room).cast_mut())
    }

    /// Its room.
    ///
    /// # Panics
    /// If the door has given it none.
    #[inline]
    pub(crate) fn room(&self) -> &'static Room {
        self.room.get().expect("a thread's room")
    }
}

impl Room {
    /// A fresh one.
    pub const fn new() -> Self {
        Room {
            scratch: [const { UnsafeCell::new(Scratch::new()) }; 2],
            text: [const { UnsafeCell::new([0; PATH_MAX]) }; 2],
            outside: UnsafeCell::new([[0; PATH_MAX]; 3]),
        }
    }
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a path often lies in the text that it is written to, at any place.
    #[test]
    fn a_text_is_composed_from_itself() {
        let thread = ThreadState::with_room(std::boxed::Box::leak(std::boxed::Box::new(Room::new())));
        let names: Vec<u8> = (0..2000u32).map(|i| b'a' + (i % 23) as u8).collect();
        for head in [&b""[..], b"/", b"/a/mount/point/"] {
            for at in [0, 1, 7, 64, 1990] {
                for len in [1, 2, 8, 9, names.len() - at].into_iter().filter(|len| at + len <= names.len()) {
                    // SAFETY: the test's own bytes, then this text's, which nobody uses afterwards.
                    let composed = unsafe {
                        let whole = thread.compose(0, b"", &raw const names[..]).expect("fits");
                        thread.compose(0, head, &raw const whole[at..at + len]).expect("fits")
                    };
                    assert_eq!(composed, [head, &names[at..at + len]].concat());
                }
            }
        }
    }
}

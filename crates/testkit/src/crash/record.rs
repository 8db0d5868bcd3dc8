//! What is stored, flushed and fenced, in order.

use engine::process::memory::VOLATILE_AREA;
use format::layout::BLOCK;
use pm::record::{Recorder, Site, Stored};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    static THREAD: Cell<u8> = const { Cell::new(0) };
}

/// Which thread of a workload the calling thread is.
pub fn i_am(thread: u8) {
    THREAD.set(thread);
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// `len` bytes of `value` were stored at `offset`.
    #[allow(missing_docs)]
    Store { offset: u32, len: u8, value: u64, how: Stored },
    /// Write-back of lines was started.
    #[allow(missing_docs)]
    Flush { offset: u32, len: u32 },
    /// A fence.
    Fence,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What happened.
    pub what: What,
    /// Thread of the workload.
    pub thread: u8,
    /// Where in the code.
    pub site: Site,
}

const PAGES: usize = (super::memory::LIMIT / BLOCK) as usize;

/// Pages of an image, a bit each.
#[derive(Clone)]
pub struct Pages([u64; PAGES / 64]);

impl Pages {
    /// None.
    pub const fn none() -> Pages {
        Pages([0; PAGES / 64])
    }

    /// Adds the page of this byte.
    pub fn add(&mut self, offset: u64) {
        let page = (offset / BLOCK) as usize;
        self.0[page / 64] |= 1 << (page % 64);
    }

    fn has(&self, page: u64) -> bool {
        self.0.get(page as usize / 64).is_none_or(|word| word >> (page % 64) & 1 != 0)
    }

    /// Their numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        (0..PAGES as u64).filter(|page| self.has(*page))
    }
}

/// What a [`Log`] holds.
pub struct Held {
    /// Events so far.
    pub events: Vec<Event>,
    /// Pages that may hold something.
    pub used: Pages,
    /// Called before each event, with the lock given up.
    turn: Option<fn()>,
}

/// The log of one image. Its volatile area is left out.
pub struct Log(Mutex<Held>);

impl Default for Log {
    fn default() -> Self {
        Log(Mutex::new(Held { events: Vec::new(), used: Pages::none(), turn: None }))
    }
}

impl Log {
    /// What it holds.
    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events so far.
    pub fn len(&self) -> usize {
        self.held().events.len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the events out.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.held().events)
    }

    /// Has `turn` called before each event (schedules of threads).
    pub fn before_each(&self, turn: Option<fn()>) {
        self.held().turn = turn;
    }

    fn note(&self, what: What, site: Site) {
        let turn = self.held().turn;
        if let Some(turn) = turn {
            turn();
        }
        let mut held = self.held();
        if let What::Store { offset, .. } = what {
            held.used.add(u64::from(offset));
        }
        held.events.push(Event { what, thread: THREAD.get(), site });
    }
}

fn is_volatile(offset: u64) -> bool {
    (VOLATILE_AREA.0..VOLATILE_AREA.1).contains(&offset)
}

impl Recorder for Log {
    fn store(&self, offset: u64, bytes: &[u8], how: Stored, site: Site) {
        if is_volatile(offset) {
            return;
        }
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        let what = What::Store { offset: offset as u32, len: bytes.len() as u8, value: u64::from_le_bytes(value), how };
        self.note(what, site);
    }

    fn flush(&self, offset: u64, len: u64, site: Site) {
        if !is_volatile(offset) {
            self.note(What::Flush { offset: offset as u32, len: len as u32 }, site);
        }
    }

    fn fence(&self, site: Site) {
        self.note(What::Fence, site);
    }

    fn known_zero(&self, offset: u64, len: u64) -> bool {
        let held = self.held();
        (offset / BLOCK..(offset + len).div_ceil(BLOCK)).all(|page| !held.used.has(page))
    }
}

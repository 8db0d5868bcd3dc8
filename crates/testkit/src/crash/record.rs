//! What is stored, flushed and fenced, in order.

use super::memory::Memory;
use engine::process::memory::VOLATILE_AREA;
use format::layout::BLOCK;
use pm::record::{Recorder, Site, Stored};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, Ordering};
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
    /// Not events, but only the lines stored to are noted.
    brief: bool,
    /// These lines.
    pub touched: Vec<u32>,
    watch: Option<Watch>,
}

/// Compares the image with what the events explain.
struct Watch {
    /// The image as the events so far explain it.
    explained: Memory,
    /// Events taken into account.
    upto: usize,
    image: *const Memory,
    /// The first byte that nothing explains.
    found: Option<u64>,
}

// SAFETY: `image` is only read while the watch is on, under the log's lock and
// by the one thread whose turn it is.
unsafe impl Send for Watch {}

impl Watch {
    fn look(&mut self, events: &[Event], pages: impl Iterator<Item = u64>) {
        // SAFETY: whoever watches vouches for it (`Log::watch`).
        let image = unsafe { &*self.image };
        for event in &events[self.upto..] {
            if let What::Store { offset, len, value, .. } = event.what {
                self.explained.put(u64::from(offset), &value.to_le_bytes()[..usize::from(len)]);
            }
        }
        self.upto = events.len();
        for page in pages.filter(|page| !is_volatile(page * BLOCK)) {
            let at = page * BLOCK;
            let (is, should) = (image.get::<{ BLOCK as usize }>(at), self.explained.get::<{ BLOCK as usize }>(at));
            if self.found.is_none()
                && let Some(byte) = is.iter().zip(&should).position(|(a, b)| a != b)
            {
                self.found = Some(at + byte as u64);
            }
        }
    }
}

/// The log of one image. Its volatile area is left out.
pub struct Log(Mutex<Held>);

static TURN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Has `turn` called after each event of every log (schedules of threads).
pub fn after_each(turn: Option<fn()>) {
    TURN.store(turn.map_or(std::ptr::null_mut(), |turn| turn as *mut ()), Ordering::Release);
}

impl Default for Log {
    fn default() -> Self {
        let held = Held { events: Vec::new(), used: Pages::none(), brief: false, touched: Vec::new(), watch: None };
        Log(Mutex::new(held))
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

    /// From now on only the lines stored to are noted, or everything again.
    pub fn brief(&self, brief: bool) {
        self.held().brief = brief;
    }

    /// At every fence from now on `image`, which is `base` now, must be what the
    /// events since explain.
    ///
    /// # Safety
    /// Until [`Log::watched`], `image` must stay, and be stored to only by the
    /// thread whose turn it is.
    pub unsafe fn watch(&self, image: &Memory, base: &Memory) {
        let explained = Memory::new(super::memory::LIMIT);
        explained.put(0, base.bytes());
        let mut held = self.held();
        held.watch = Some(Watch { explained, upto: held.events.len(), image, found: None });
    }

    /// Looks at the whole image, ends the watch, and tells the first byte that no recorded store explains.
    pub fn watched(&self) -> Option<u64> {
        let mut held = self.held();
        let mut watch = held.watch.take()?;
        watch.look(&held.events, 0..PAGES as u64);
        watch.found
    }

    fn note(&self, what: What, site: Site) {
        let mut held = self.held();
        if held.brief {
            if let What::Store { offset, .. } = what
                && held.touched.last() != Some(&(offset / 64))
            {
                held.used.add(u64::from(offset));
                held.touched.push(offset / 64);
            }
            return;
        }
        if let What::Store { offset, .. } = what {
            held.used.add(u64::from(offset));
        }
        held.events.push(Event { what, thread: THREAD.get(), site });
        if matches!(what, What::Fence)
            && let Some(mut watch) = held.watch.take()
        {
            watch.look(&held.events, held.used.numbers());
            held.watch = Some(watch);
        }
        drop(held);
        let turn = TURN.load(Ordering::Relaxed);
        if !turn.is_null() {
            // SAFETY: the only other value ever stored is a `fn()`.
            unsafe { std::mem::transmute::<*mut (), fn()>(turn)() };
        }
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

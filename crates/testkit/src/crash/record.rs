//! What is stored, flushed and fenced, in order.

use super::memory::Memory;
use super::model::Line;
use engine::process::memory::VOLATILE_AREA;
use format::layout::BLOCK;
use pm::record::{Recorder, Site, Stored};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
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
struct Pages([AtomicU64; PAGES / 64]);

impl Pages {
    const fn none() -> Pages {
        Pages([const { AtomicU64::new(0) }; PAGES / 64])
    }

    /// Adds one.
    fn add(&self, page: usize) {
        let (word, bit) = (&self.0[page / 64], 1 << (page % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether it has any of these.
    fn has_any(&self, pages: Range<u64>) -> bool {
        let (mut page, end) = (pages.start as usize, pages.end as usize);
        while page < end {
            let to = end.min((page | 63) + 1);
            let bits = (u64::MAX >> (64 - (to - page))) << (page % 64);
            if self.0.get(page / 64).is_none_or(|word| word.load(Ordering::Relaxed) & bits != 0) {
                return true;
            }
            page = to;
        }
        false
    }

    /// Their numbers.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        (0..PAGES as u64).filter(|page| self.has_any(*page..page + 1))
    }
}

/// What a [`Log`] holds.
pub struct Held {
    /// Events so far.
    pub events: Vec<Event>,
    watch: Option<Watch>,
}

/// Compares the image with what the events explain.
struct Watch {
    /// The image before the events, ...
    base: *const Memory,
    /// ... and the lines they have changed since, as they explain them.
    explained: BTreeMap<u32, Line>,
    /// Events taken into account.
    upto: usize,
    image: *const Memory,
    /// The first byte that nothing explains.
    found: Option<u64>,
}

// SAFETY: `image` and `base` are only read while the watch is on, under the
// log's lock and by the one thread whose turn it is.
unsafe impl Send for Watch {}

impl Watch {
    fn look(&mut self, events: &[Event], pages: impl Iterator<Item = u64>) {
        // SAFETY: whoever watches vouches for both (`Log::watch`).
        let (image, base) = unsafe { (&*self.image, &*self.base) };
        for event in &events[self.upto..] {
            if let What::Store { offset, len, value, .. } = event.what {
                let line = self.explained.entry(offset / 64).or_insert_with(|| base.get(u64::from(offset & !63)));
                let (at, len) = ((offset % 64) as usize, usize::from(len));
                line[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
        }
        self.upto = events.len();
        for at in pages.map(|page| page * BLOCK).filter(|at| !is_volatile(*at)) {
            let page = at as usize..(at + BLOCK) as usize;
            if self.found.is_some() || image.bytes()[page.clone()] == base.bytes()[page.clone()] && !self.explains(page.clone()) {
                continue;
            }
            for start in page.step_by(64) {
                let line: Line = image.get(start as u64);
                let should = self.explained.get(&(start as u32 / 64)).copied().unwrap_or_else(|| base.get(start as u64));
                let other = line.iter().zip(&should).position(|(a, b)| a != b);
                self.found = self.found.or(other.map(|byte| (start + byte) as u64));
            }
        }
    }

    /// Whether a line here was stored to.
    fn explains(&self, bytes: Range<usize>) -> bool {
        self.explained.range(bytes.start as u32 / 64..bytes.end as u32 / 64).next().is_some()
    }
}

/// The log of one image. Its volatile area is left out.
pub struct Log {
    held: Mutex<Held>,
    /// Pages that may hold something.
    used: Pages,
    /// Not events, but only the lines stored to are noted, and no lock is taken.
    brief: AtomicBool,
    /// These lines, a word a page, ...
    touched: Box<[AtomicU64]>,
    /// ... and the pages that have some.
    touched_pages: Pages,
}

/// A page is as many lines as a word has bits.
const _: () = assert!(BLOCK == 64 * 64);

static TURN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Has `turn` called after each event of every log (schedules of threads).
pub fn after_each(turn: Option<fn()>) {
    TURN.store(turn.map_or(std::ptr::null_mut(), |turn| turn as *mut ()), Ordering::Release);
}

impl Default for Log {
    fn default() -> Self {
        let held = Held { events: Vec::new(), watch: None };
        let touched = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        Log { held: Mutex::new(held), used: Pages::none(), brief: AtomicBool::new(false), touched, touched_pages: Pages::none() }
    }
}

impl Log {
    /// What it holds.
    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events so far.
    pub fn len(&self) -> usize {
        self.held().events.len()
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pages that these events store to may hold something.
    pub fn uses(&self, events: &[Event]) {
        for event in events {
            if let What::Store { offset, .. } = event.what {
                self.used.add((u64::from(offset) / BLOCK) as usize);
            }
        }
    }

    /// Takes the events out.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.held().events)
    }

    /// From now on only the lines stored to are noted, or everything again.
    pub fn brief(&self, brief: bool) {
        self.brief.store(brief, Ordering::Relaxed);
    }

    /// Takes out the lines stored to while that was so.
    pub fn touched(&self, mut line: impl FnMut(u32)) {
        let pages = self.touched_pages.0.iter().enumerate().flat_map(|(word, pages)| {
            let pages = pages.swap(0, Ordering::Relaxed);
            (0..64).filter(move |bit| pages >> bit & 1 != 0).map(move |bit| word * 64 + bit)
        });
        for page in pages {
            self.used.add(page);
            let lines = self.touched[page].swap(0, Ordering::Relaxed);
            (0..64).filter(|bit| lines >> bit & 1 != 0).for_each(|bit| line(page as u32 * 64 + bit));
        }
    }

    /// At every fence from now on `image`, which is `base` now, must be what the
    /// events since explain.
    ///
    /// # Safety
    /// Until [`Log::watched`], both must stay, `base` must not be stored to, and
    /// `image` only by the thread whose turn it is.
    pub unsafe fn watch(&self, image: &Memory, base: &Memory) {
        let mut held = self.held();
        held.watch = Some(Watch { base, explained: BTreeMap::new(), upto: held.events.len(), image, found: None });
    }

    /// Looks at the whole image, ends the watch, and tells the first byte that no recorded store explains.
    pub fn watched(&self) -> Option<u64> {
        let mut held = self.held();
        let mut watch = held.watch.take()?;
        watch.look(&held.events, 0..PAGES as u64);
        watch.found
    }

    /// Notes the lines of `offset..offset + len`, if that is all that is wanted.
    fn noted_briefly(&self, offset: u64, len: u64) -> bool {
        let brief = self.brief.load(Ordering::Relaxed);
        for line in (offset / 64..(offset + len).div_ceil(64)).filter(|_| brief) {
            let (page, bit) = ((line / 64) as usize, 1 << (line % 64));
            if self.touched[page].load(Ordering::Relaxed) & bit == 0 {
                self.touched[page].fetch_or(bit, Ordering::Relaxed);
                self.touched_pages.add(page);
            }
        }
        brief
    }

    fn note(&self, what: What, site: Site) {
        if self.brief.load(Ordering::Relaxed) {
            return;
        }
        let mut held = self.held();
        if let What::Store { offset, .. } = what {
            self.used.add((u64::from(offset) / BLOCK) as usize);
        }
        held.events.push(Event { what, thread: THREAD.get(), site });
        if matches!(what, What::Fence)
            && let Some(mut watch) = held.watch.take()
        {
            watch.look(&held.events, self.used.numbers());
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
        if is_volatile(offset) || self.noted_briefly(offset, bytes.len() as u64) {
            return;
        }
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        let what = What::Store { offset: offset as u32, len: bytes.len() as u8, value: u64::from_le_bytes(value), how };
        self.note(what, site);
    }

    fn copied(&self, offset: u64, len: u64) -> bool {
        self.noted_briefly(offset, len)
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
        let pages = offset / BLOCK..(offset + len).div_ceil(BLOCK);
        !self.used.has_any(pages.clone()) && !self.touched_pages.has_any(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::Location;

    /// Goal: no store goes unseen. Method: a store without its record, a record
    /// without its store, and both together, in a page with others and in one without.
    #[test]
    fn what_no_record_explains_is_found() {
        let (image, base) = (Memory::new(super::super::memory::LIMIT), Memory::new(super::super::memory::LIMIT));
        let log = Log::default();
        let far = 300 * BLOCK;
        let watched = |work: &dyn Fn()| {
            // SAFETY: both stay, and only this thread stores to `image`.
            unsafe { log.watch(&image, &base) };
            work();
            let found = log.watched();
            log.take();
            image.put(0, base.bytes());
            found
        };
        let both = |at: u64| {
            image.put(at, &[7; 8]);
            log.store(at, &[7; 8], Stored::Word, Location::caller());
        };
        assert_eq!(watched(&|| both(far)), None);
        assert_eq!(watched(&|| image.put(far + 17, &[1])), Some(far + 17));
        assert_eq!(
            watched(&|| {
                both(far);
                image.put(far + 129, &[1]);
                log.fence(Location::caller());
            }),
            Some(far + 129)
        );
        assert_eq!(watched(&|| log.store(far + 64, &[0, 9], Stored::Word, Location::caller())), Some(far + 65));
    }
}

//! Stores into pages that are mapped through the mount, beside writes to the same pages.
//!
//! The kernel sends a page that was stored into back whole. Before the request for a write it drops the pages of its
//! range, but a page that is read in while that request is under way has the bytes of before the write; stored
//! into, it comes back after the write, and would undo it. So what has been written since a page was read in is left
//! out of the page.
//!
//! ```text
//! writer    drops page ── WRITE ─────────────────┐ done
//! mapper         READ: old bytes ── store ── WRITE of the page, without the written bytes
//! ```
//!
//! Known of a file from the first `READ` for a page while a handle can write it, to the close of the last such handle:
//!
//! - A write is noted before it is made, so that no page comes back in between; and once more after it, if the file
//!   became known meanwhile.
//! - A page that was read in after the write had ended has its bytes: the write is forgotten there.
//! - The kernel lets one write into a file at a time, and drops the pages again when it has ended (from Linux 6.18 on;
//!   before that it is told to): of writes that ended long ago no old page is left, and they can be forgotten.

use super::Fuse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many writes are remembered of a file; those that follow one another count as one.
const WRITES_MAX: usize = 256;
/// The end of a write that is under way.
const UNDER_WAY: u64 = u64::MAX;
const PAGE: u64 = 4096;

/// Bytes that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    start: u64,
    end: u64,
    /// When the write ended.
    ended: u64,
}

/// What was written to a file that is read by pages.
#[derive(Debug, Default)]
pub(super) struct Written {
    writes: VecDeque<Write>,
    /// How many writes have ended.
    now: u64,
    /// That number when pages were last begun to be read: what had ended by then is in them.
    begun: u64,
}

impl Written {
    fn begin(&mut self, start: u64, end: u64) {
        if self.writes.len() >= WRITES_MAX {
            self.writes.pop_front();
        }
        self.writes.push_back(Write { start, end, ended: UNDER_WAY });
    }

    /// A write that was to be of `range` has written `start..reached`.
    fn end(&mut self, range: (u64, u64), (start, reached): (u64, u64)) {
        self.now += 1;
        let under_way = Write { start: range.0, end: range.1, ended: UNDER_WAY };
        if let Some(at) = self.writes.iter().rposition(|write| *write == under_way) {
            self.writes.remove(at);
        }
        let ended = self.now;
        // One that pages being read in may have is not made to look younger.
        let begun = self.begun;
        if let Some(last) =
            self.writes.back_mut().filter(|last| last.ended != UNDER_WAY && last.ended > begun && last.end == start)
        {
            (last.end, last.ended) = (reached, ended);
        } else if start < reached {
            self.writes.push_back(Write { start, end: reached, ended });
        }
    }

    /// Pages `start..end` have been read in, beginning at `begun`: what had ended by then is in them.
    fn read(&mut self, start: u64, end: u64, begun: u64) {
        let (start, end) = (start / PAGE * PAGE, end.next_multiple_of(PAGE));
        for index in (0..self.writes.len()).rev() {
            let write = self.writes[index];
            if write.ended > begun || write.end <= start || end <= write.start {
                continue;
            }
            self.writes.remove(index);
            for (from, to) in [(end, write.end), (write.start, start)] {
                if from < to {
                    self.writes.insert(index, Write { start: from, end: to, ..write });
                }
            }
        }
    }

    /// The parts of `start..end` that nobody has written.
    fn unwritten(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = vec![(start, end)];
        for write in &self.writes {
            let cut = |(from, to): (u64, u64)| [(from, to.min(write.start)), (from.max(write.end), to)];
            parts = parts.into_iter().flat_map(cut).filter(|(from, to)| from < to).collect();
        }
        parts
    }
}

/// The files that are read by pages while they can be written.
#[derive(Debug, Default)]
pub(super) struct Stores(Mutex<HashMap<u64, Arc<Mutex<Written>>>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stores {
    fn find(&self, number: u64) -> Option<Arc<Mutex<Written>>> {
        locked(&self.0).get(&number).cloned()
    }

    /// Whether pages of a file may have been stored into.
    pub(super) fn knows(&self, number: u64) -> bool {
        locked(&self.0).contains_key(&number)
    }

    /// Nobody can write the file any more: no page of it is stored into. Whether it was known.
    pub(super) fn forget(&self, number: u64) -> bool {
        locked(&self.0).remove(&number).is_some()
    }

    /// Reads the pages of `len` bytes at `start` of a file by `read`; `begins` is called where it was not known.
    pub(super) fn read<E>(
        &self,
        number: u64,
        (start, len): (u64, u64),
        begins: impl FnOnce(),
        read: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        // Known before it is read.
        let written = match locked(&self.0).entry(number) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                begins();
                unknown.insert(Arc::default()).clone()
            }
        };
        let begun = {
            let mut written = locked(&written);
            written.begun = written.now;
            written.now
        };
        read()?;
        locked(&written).read(start, start.saturating_add(len), begun);
        Ok(())
    }

    /// Makes a write within `range` that is not of pages; `write` returns how many bytes it wrote, and where they end.
    pub(super) fn write<E>(
        &self,
        number: u64,
        range: (u64, u64),
        write: impl FnOnce() -> Result<(usize, u64), E>,
    ) -> Result<(usize, u64), E> {
        let noted = self.find(number);
        if let Some(written) = &noted {
            locked(written).begin(range.0, range.1);
        }
        let result = write();
        // One that became known meanwhile may have been read while the write was made.
        if let Some(written) = self.find(number).or(noted) {
            let part = result.as_ref().map_or((0, 0), |(len, end)| (end.saturating_sub(*len as u64), *end));
            locked(&written).end(range, part);
        }
        result
    }

    /// Takes a page back: `write` is given its parts that nobody else has written.
    pub(super) fn take_back<E>(
        &self,
        number: u64,
        start: u64,
        end: u64,
        mut write: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(written) = self.find(number) else { return write(start, end) };
        // Held meanwhile: a write that begins now is made after the page is.
        let written = locked(&written);
        written.unwritten(start, end).into_iter().try_for_each(|(from, to)| write(from, to))
    }
}

impl Fuse {
    /// Whether a `READ` for a page makes the file one whose pages may be stored into.
    pub(super) fn may_store(&self, number: u64) -> bool {
        self.contents.is_written(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Result = std::result::Result<(), ()>;

    fn parts(stores: &Stores, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = vec![];
        let result: Result = stores.take_back(7, start, end, |from, to| {
            parts.push((from, to));
            Ok(())
        });
        result.unwrap();
        parts
    }

    fn write(stores: &Stores, start: u64, end: u64, beside: impl FnOnce()) {
        let made = stores.write(7, (start, end), || -> std::result::Result<(usize, u64), ()> {
            beside();
            Ok(((end - start) as usize, end))
        });
        made.unwrap();
    }

    fn read(stores: &Stores, start: u64, beside: impl FnOnce()) {
        let read = || -> Result {
            beside();
            Ok(())
        };
        stores.read(7, (start, PAGE), || (), read).unwrap();
    }

    /// Goal: a page comes back without what was written since it was read in, and whole if it was read in afterwards.
    #[test]
    fn pages_come_back_without_what_was_written() {
        let stores = Stores::default();
        write(&stores, 100, 108, || ());
        assert!(!stores.knows(7));
        assert_eq!(parts(&stores, 0, PAGE), [(0, PAGE)]);
        read(&stores, 0, || ());
        read(&stores, PAGE, || ());
        write(&stores, 100, 108, || assert_eq!(parts(&stores, 0, PAGE), [(0, 100), (108, PAGE)], "under way"));
        write(&stores, 108, PAGE + 8, || ());
        assert_eq!(parts(&stores, 0, PAGE), [(0, 100)]);
        assert_eq!(parts(&stores, PAGE, 2 * PAGE), [(PAGE + 8, 2 * PAGE)]);
        read(&stores, 0, || ());
        assert_eq!(parts(&stores, 0, PAGE), [(0, PAGE)]);
        assert_eq!(parts(&stores, PAGE, 2 * PAGE), [(PAGE + 8, 2 * PAGE)], "not read in again");
        stores.forget(7);
        assert_eq!(parts(&stores, PAGE, 2 * PAGE), [(PAGE, 2 * PAGE)]);
    }

    /// Goal: who reads beside a write may have what was before it, whoever of them began first.
    #[test]
    fn reads_beside_a_write() {
        let stores = Stores::default();
        read(&stores, 0, || ());
        let rest = [(0, 16), (24, PAGE)];
        write(&stores, 16, 24, || read(&stores, 0, || ()));
        assert_eq!(parts(&stores, 0, PAGE), rest);
        read(&stores, 0, || write(&stores, 16, 24, || ()));
        assert_eq!(parts(&stores, 0, PAGE), rest);
        // Known only since then.
        stores.forget(7);
        write(&stores, 16, 24, || read(&stores, 0, || ()));
        assert_eq!(parts(&stores, 0, PAGE), rest);
    }

    /// Goal: what is remembered is bounded, and the latest is.
    #[test]
    fn old_writes_are_forgotten() {
        let stores = Stores::default();
        read(&stores, 0, || ());
        (0..2000).for_each(|page| write(&stores, page * PAGE + 1, page * PAGE + 2, || ()));
        assert_eq!(parts(&stores, 0, PAGE), [(0, PAGE)]);
        assert_eq!(parts(&stores, 1999 * PAGE, 2000 * PAGE).len(), 2);
        assert_eq!(locked(&stores.find(7).unwrap()).writes.len(), WRITES_MAX);
    }

    /// Goal: an append under way covers what lies behind the end only, and a write that pages being read in have is not
    /// joined to one that they have not.
    #[test]
    fn beside_what_is_under_way() {
        let mut written = Written::default();
        written.begin(PAGE, u64::MAX);
        assert_eq!(written.unwritten(0, 2 * PAGE), [(0, PAGE)]);
        let mut written = Written::default();
        written.begin(0, 100);
        written.end((0, 100), (0, 100));
        written.begun = written.now;
        let begun = written.now;
        written.begin(100, 200);
        written.end((100, 200), (100, 200));
        written.read(0, PAGE, begun);
        assert_eq!(written.unwritten(0, PAGE), [(0, 100), (200, PAGE)]);
    }
}

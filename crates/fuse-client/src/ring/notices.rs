//! What the daemon tells without being asked: that names, attributes or contents are not what it said any more.
//!
//! The session's cache is nothing that a daemon can write to. So it leaves a notice in the ring's first page, rings, and
//! waits until whoever watches over it ([`Ring::obey_notices`]) has made the cache forget: as with the kernel, all
//! that is looked up after its notification has returned is asked of it. Where nobody takes the notice in time, or it is none
//! that is known, all pages begin anew, and what else is cached lasts as long as the daemon has said.

use super::*;

/// Notices that can be under way.
const NOTICES: u64 = 8;
/// Where they lie in the first page.
const NOTICES_AT: u64 = 1024;
/// Most bytes of one: what is fixed, a name and its end.
pub const NOTICE_MAX: usize = 288;
/// So long a daemon waits for one to be taken; then no more until its watcher is seen to live.
const WAIT_NS: i64 = 10_000_000_000;

// What is known of the watcher.
const ABSENT: u32 = 0;
const WATCHES: u32 = 1;
/// It has not come in time: it is stopped, perhaps.
const LATE: u32 = 2;

const EMPTY: u32 = 0;
const FILLING: u32 = 1;
const FILLED: u32 = 2;

/// One notice.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
struct Place {
    state: AtomicU32,
    /// `FUSE_NOTIFY_*`.
    code: AtomicU32,
    len: AtomicU32,
    reserved: AtomicU32,
    bytes: [u8; NOTICE_MAX],
}

const _: () = assert!(size_of::<Header>() as u64 <= NOTICES_AT && NOTICES_AT + NOTICES * size_of::<Place>() as u64 <= 4096);

impl Ring {
    fn notice(&self, number: u64) -> Option<&Place> {
        self.region.at(Self::notice_at(number))
    }

    fn notice_at(number: u64) -> u64 {
        NOTICES_AT + number * size_of::<Place>() as u64
    }

    // ---- the daemon's side ----

    /// A message that answers no request, its header taken off; returns when it has been obeyed.
    pub(super) fn notify_of(&self, code: u32, parts: &[UserSlice]) -> Result<(), Errno> {
        let header = self.header()?;
        let left = self.leave_notice(header, code, parts);
        if !left.is_some_and(|place| self.is_obeyed(header, place)) {
            header.unheeded.fetch_add(1, AcqRel);
        }
        Ok(())
    }

    /// Puts it where it is looked for; `None` without room, and where nobody looks.
    fn leave_notice(&self, header: &Header, code: u32, parts: &[UserSlice]) -> Option<&Place> {
        let is_watched = header.watcher.load(SeqCst) == WATCHES;
        // Who rings before it is there has told of a change all the same.
        header.notices.fetch_add(1, AcqRel);
        if !is_watched {
            return None;
        }
        let free = |number: &u64| {
            let place = self.notice(*number)?;
            place.state.compare_exchange(EMPTY, FILLING, AcqRel, Relaxed).ok().map(|_| place)
        };
        let (number, place) = (0..NOTICES).find_map(|number| Some((number, free(&number)?)))?;
        let (mut at, mut len) = (Self::notice_at(number) + core::mem::offset_of!(Place, bytes) as u64, 0);
        let mut copied = Ok(());
        for part in parts {
            // Contents that it sends along are not taken.
            let piece = part.part(0, NOTICE_MAX - len);
            copied = copied.and_then(|()| self.region.copy_in(at, piece));
            (at, len) = (at + piece.len as u64, len + piece.len);
        }
        if copied.is_err() {
            place.state.store(EMPTY, Release);
            return None;
        }
        place.code.store(code, Relaxed);
        place.len.store(len as u32, Relaxed);
        place.state.store(FILLED, SeqCst);
        header.told.fetch_add(1, SeqCst);
        file::wake(&header.told);
        Some(place)
    }

    /// Waits until it has been taken and obeyed.
    fn is_obeyed(&self, header: &Header, place: &Place) -> bool {
        let begun = clock::monotonic();
        while place.state.load(SeqCst) == FILLED {
            let waited = clock::monotonic() - begun;
            if waited > WAIT_NS || host::is_alive_by_mark(header.supervisor.load(Relaxed)) == Some(false) {
                let _ = header.watcher.compare_exchange(WATCHES, LATE, AcqRel, Relaxed);
            }
            if header.watcher.load(SeqCst) != WATCHES {
                // Taken at the last moment, perhaps.
                return place.state.compare_exchange(FILLED, EMPTY, AcqRel, Relaxed).is_err();
            }
            file::wait(&place.state, FILLED, NAP_NS);
        }
        true
    }

    // ---- the watcher's side ----

    /// Somebody takes notices from now on, or nobody any more.
    pub fn watch_notices(&self, watched: bool) {
        if let Ok(header) = self.header() {
            header.watcher.store(if watched { WATCHES } else { ABSENT }, SeqCst);
            header.told.fetch_add(1, SeqCst);
            file::wake(&header.told);
        }
    }

    /// Has `obey` do what notices say that are there now, or come within `nap_ns`: their code and bytes.
    pub fn obey_notices(&self, nap_ns: i64, mut obey: impl FnMut(u32, &[u8])) -> Result<(), Errno> {
        let header = self.header()?;
        let _ = header.watcher.compare_exchange(LATE, WATCHES, AcqRel, Relaxed);
        let told = header.told.load(SeqCst);
        if !self.obey_those_here(&mut obey) && header.watcher.load(SeqCst) != ABSENT {
            file::wait(&header.told, told, nap_ns);
            self.obey_those_here(&mut obey);
        }
        Ok(())
    }

    fn obey_those_here(&self, obey: &mut dyn FnMut(u32, &[u8])) -> bool {
        let mut any = false;
        for number in 0..NOTICES {
            let Some(place) = self.notice(number).filter(|place| place.state.load(SeqCst) == FILLED) else { continue };
            let mut bytes = [0u8; NOTICE_MAX];
            let len = (place.len.load(Relaxed) as usize).min(NOTICE_MAX);
            let from = Self::notice_at(number) + core::mem::offset_of!(Place, bytes) as u64;
            if self.region.copy_out(from, UserSlice::from_mut(&mut bytes[..len])).is_ok() {
                obey(place.code.load(Relaxed), &bytes[..len]);
            }
            place.state.store(EMPTY, SeqCst);
            file::wake(&place.state);
            any = true;
        }
        any
    }

    /// Nothing that an earlier daemon has told is obeyed any more, nor waited for.
    pub(super) fn clear_notices(&self) {
        (0..NOTICES).filter_map(|number| self.notice(number)).for_each(|place| place.state.store(EMPTY, SeqCst));
    }
}

//! Files whose contents the kernel keeps.
//!
//! A file that is opened to be read only, and that nobody has changed for [`REST`], is read from the
//! kernel's pages; all others by direct I/O. That what is read is never older than a finished call:
//!
//! | who changes the file | what happens |
//! |---|---|
//! | a call by the direct path | the invalidation that it waits for drops the pages ([`Call::keep_attr`] sets the flag before a page is read), waiting for those that are being read in. Before it the kernel is told of the last byte ([`Fuse::tell_end`]), and with it of the length: an answer with attributes that an invalidation has overtaken is not taken in, and a read would end where the file did before |
//! | a `WRITE` through the mount | the kernel drops the pages before it asks, and whoever reads beside it may fetch the old ones again (before Linux 6.18): they are dropped once more before the answer ([`Turn`]) |
//! | other calls through the mount | the kernel drops the pages when it has the answer |
//! | stores into a mapping of the direct path | nobody tells. Once there is such a mapping attributes are not cached, so that the kernel asks for them before each read (`AUTO_INVAL_DATA`), and each answer has another time of change, for which it drops the pages. A file that was ever mapped so is opened for direct I/O |
//!
//! Nobody stores a last byte into pages that a program has mapped through the mount to write into them: it is sent
//! only while no handle can write, and the answer to who opens one waits for it.
//!
//! No worker waits for the kernel here: dropping a page may take the answer to a request that a worker
//! has to read. [`Fuse::answer_in_turn`] has a thread of its own.
//!
//! [`Call::keep_attr`]: super::Call::keep_attr

use super::notify::{forget_node, store};
use super::{Call, Fuse, Worker};
use base::{Attr, Cred, Cx, Node};
use openfiles::EACH_READ;
use pm::UserSlice;
use pm::sys::abi as sys;
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For so long nobody has changed a file whose contents are cached.
pub const REST: Duration = Duration::from_millis(100);
/// Times of change differ by less than so many nanoseconds from the true one.
const OTHER_TIMES: u32 = 1000;
/// How often the thread for answers in turn looks whether it is to stop.
const NAP: Duration = Duration::from_millis(200);

/// How a file is opened: neither is for reading by direct I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Opening {
    /// It is read from the kernel's pages.
    pub cached: bool,
    /// It may be written.
    pub writes: bool,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct Users {
    /// Handles that read from the kernel's pages.
    cached: u32,
    /// Handles that can write.
    writing: u32,
    /// How often it was written through the mount while nobody read it from pages: some that are mapped may be old.
    written: u32,
}

/// An answer that is sent by a thread of its own.
#[derive(Debug)]
struct Turn {
    /// The file's number.
    number: u64,
    sent: Sent,
    answer: Vec<u8>,
}

/// How an answer is to be sent: at once, or by [`Fuse::answer_in_turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// At once.
    Now,
    /// After who stores a last byte now.
    InTurn,
    /// After the kernel has dropped the file's pages, which sees to so many writes.
    Dropped(u32),
}

/// The files that are open, by number, and the answers that wait.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// For so long nobody has changed what is cached.
    rest: Duration,
    users: Mutex<HashMap<u64, Users>>,
    /// Handles that read from pages, of all files.
    cached: AtomicU32,
    times: AtomicU32,
    turns: Mutex<Vec<Turn>>,
    changed: Condvar,
    /// Held by who stores a last byte, and by who sends answers in turn.
    turn: Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Contents {
    /// Nothing is open.
    pub(super) fn new(rest: Duration) -> Contents {
        Contents { rest, ..Contents::default() }
    }

    /// Looks at or changes what is known of a file.
    fn with<T>(&self, number: u64, look: impl FnOnce(&mut Users) -> T) -> T {
        let mut all = locked(&self.users);
        let users = all.entry(number).or_default();
        let result = look(users);
        if users.cached == 0 && users.writing == 0 && users.written == 0 {
            all.remove(&number);
        }
        result
    }

    /// Counts a handle. What can be written is not cached: `cached` is taken back then.
    fn open(&self, number: u64, opening: &mut Opening) -> Sent {
        if *opening == Opening::default() {
            return Sent::Now;
        }
        self.with(number, |users| {
            opening.cached &= users.writing == 0;
            users.writing += u32::from(opening.writes);
            users.cached += u32::from(opening.cached);
            self.cached.fetch_add(u32::from(opening.cached), SeqCst);
            match opening {
                Opening { cached: true, .. } if users.written != 0 => Sent::Dropped(users.written),
                Opening { writes: true, .. } if users.cached != 0 => Sent::InTurn,
                _ => Sent::Now,
            }
        })
    }

    /// A handle is closed; whether nobody can write the file now.
    pub(super) fn close(&self, number: u64, opening: Opening) -> bool {
        if opening == Opening::default() {
            return false;
        }
        self.with(number, |users| {
            users.writing = users.writing.saturating_sub(u32::from(opening.writes));
            users.cached = users.cached.saturating_sub(u32::from(opening.cached));
            self.cached.fetch_sub(u32::from(opening.cached), SeqCst);
            users.writing == 0
        })
    }

    /// Whether a handle is open that can write the file.
    pub(super) fn is_written(&self, number: u64) -> bool {
        self.with(number, |users| users.writing != 0)
    }

    /// Whether a file is read from the kernel's pages.
    pub(super) fn is_cached(&self, number: u64) -> bool {
        self.cached.load(SeqCst) != 0 && self.with(number, |users| users.cached != 0)
    }

    /// A file has been written through the mount.
    fn write(&self, number: u64) -> Sent {
        // Who opens it and reads what it was is counted before.
        fence(SeqCst);
        self.with(number, |users| match users.cached {
            0 => {
                users.written = users.written.saturating_add(1);
                Sent::Now
            }
            _ => Sent::Dropped(0),
        })
    }

    /// The kernel has dropped all pages of a file since so many writes, or forgotten it.
    pub(super) fn dropped(&self, number: u64, writes: u32) {
        self.with(number, |users| users.written = users.written.saturating_sub(writes));
    }

    /// Another time of change than in the answers before.
    pub(super) fn other_time(&self, ns: u32) -> u32 {
        ns - ns % OTHER_TIMES + self.times.fetch_add(1, Relaxed) % OTHER_TIMES
    }
}

impl Fuse {
    /// Has the kernel know how long a file is that it reads from pages, by its last byte: before an invalidation about it.
    /// Not where somebody can write it through the mount: what he stores into a mapping would be overwritten.
    pub fn tell_end(&self, cx: &Cx, number: u64, send: &dyn Fn(&[u8])) {
        if self.contents.is_cached(number) {
            let _turn = locked(&self.contents.turn);
            self.store_end(cx, number, send);
        }
    }

    fn store_end(&self, cx: &Cx, number: u64, send: &dyn Fn(&[u8])) {
        let nobody_writes = self.contents.with(number, |users| users.cached != 0 && users.writing == 0);
        let node = self.node(number);
        let mut last = [0];
        if nobody_writes
            && let Ok(attr) = self.backend.attr(cx, node)
            && let Some(at) = attr.size.checked_sub(1)
            && self.backend.read(cx, node, at, &[UserSlice::from_mut(&mut last)]).is_ok_and(|len| len == 1)
        {
            send(&store(number, at, &last));
        }
    }

    /// Sends answers that wait for pages to be dropped, as they come; ends with `stop`.
    pub fn answer_in_turn(&self, worker: &Worker, stop: &AtomicBool, send: &dyn Fn(&[u8])) {
        while !stop.load(Relaxed) {
            let waiting = locked(&self.contents.turns);
            let waits = |turns: &mut Vec<Turn>| turns.is_empty() && !stop.load(Relaxed);
            drop(self.contents.changed.wait_timeout_while(waiting, NAP, waits));
            self.answer_waiting(worker, send);
        }
    }

    /// Sends the answers that wait now.
    pub fn answer_waiting(&self, worker: &Worker, send: &dyn Fn(&[u8])) {
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: worker.thread() };
        let turns = std::mem::take(&mut *locked(&self.contents.turns));
        for Turn { number, sent, answer } in turns {
            let _turn = locked(&self.contents.turn);
            if let Sent::Dropped(writes) = sent {
                self.store_end(&cx, number, send);
                send(&forget_node(number));
                self.contents.dropped(number, writes);
            }
            send(&answer);
        }
    }

    /// Lets [`Fuse::answer_in_turn`] look whether it is to stop.
    pub fn wake_answers(&self) {
        drop(locked(&self.contents.turns));
        self.contents.changed.notify_all();
    }

    /// Hands an answer to [`Fuse::answer_in_turn`].
    pub(super) fn in_turn(&self, number: u64, sent: Sent, answer: &[u8]) {
        locked(&self.contents.turns).push(Turn { number, sent, answer: answer.to_vec() });
        self.contents.changed.notify_one();
    }
}

impl Call<'_> {
    /// Counts a file that is being opened with these flags: how it is, and how that is to be answered.
    pub(super) fn count_open(&self, node: Node, flags: u32) -> (Opening, Sent) {
        let writes = flags & sys::O_ACCMODE != sys::O_RDONLY;
        let cached = !writes && flags & EACH_READ == 0 && self.fuse.direct() && self.may_be_cached(node);
        let mut opening = Opening { cached, writes };
        let sent = self.fuse.contents.open(self.fuse.number(node), &mut opening);
        (opening, sent)
    }

    /// Whether the kernel may keep a file's contents, as far as the direct path is concerned.
    fn may_be_cached(&self, node: Node) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
        let rests = |attr: Attr| now.saturating_sub(attr.ctime) >= self.fuse.contents.rest.as_nanos() as i64;
        self.backend().attr(&self.cx, node).is_ok_and(rests) && !self.backend().kernel_mount().may_be_stored(&self.cx, node)
    }

    /// How a `WRITE` that was made is to be answered.
    pub(super) fn count_write(&self, from_pages: bool) -> Sent {
        // What comes from the kernel's pages is in them; and who drops a page may be waiting for it.
        if from_pages {
            return Sent::Now;
        }
        match self.fuse.contents.write(self.header.node) {
            // A page that was read in meanwhile is old, and stays.
            Sent::Now if !self.fuse.drops_after.load(Relaxed) && self.fuse.stores.knows(self.header.node) => Sent::Dropped(0),
            sent => sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READS: Opening = Opening { cached: true, writes: false };
    const WRITES: Opening = Opening { cached: false, writes: true };

    /// Goal: what somebody can write is not cached, and who comes to write what is cached waits for his turn.
    #[test]
    fn readers_and_writers() {
        let contents = Contents::default();
        let open = |opening: Opening| {
            let mut opening = opening;
            (contents.open(7, &mut opening), opening.cached)
        };
        assert_eq!(open(READS), (Sent::Now, true));
        assert!(contents.is_cached(7) && !contents.is_cached(8));
        assert_eq!(open(WRITES), (Sent::InTurn, false));
        assert_eq!(open(READS), (Sent::Now, false), "somebody can write it");
        contents.close(7, WRITES);
        assert_eq!(open(READS), (Sent::Now, true));
        contents.close(7, READS);
        contents.close(7, READS);
        assert!(!contents.is_cached(7));
        assert!(locked(&contents.users).is_empty());
    }

    /// Goal: pages that may be old because of a write are dropped once, by the next who reads from pages.
    #[test]
    fn writes() {
        let contents = Contents::default();
        let open = || contents.open(7, &mut READS.clone());
        assert_eq!(contents.write(7), Sent::Now);
        assert_eq!(contents.write(7), Sent::Now);
        assert_eq!(open(), Sent::Dropped(2));
        assert_eq!(open(), Sent::Dropped(2), "not dropped yet");
        assert_eq!(contents.write(7), Sent::Dropped(0), "seen to by itself");
        contents.dropped(7, 2);
        contents.dropped(7, 2);
        assert_eq!(open(), Sent::Now);
        assert_eq!([READS; 3].map(|opening| contents.close(7, opening)), [true; 3]);
        assert!(locked(&contents.users).is_empty());
    }

    /// Goal: of a thousand answers in a row no two have the same time, and none another second.
    #[test]
    fn times() {
        let contents = Contents::default();
        for ns in [0, 999_999_999] {
            let times: std::collections::HashSet<_> = (0..OTHER_TIMES).map(|_| contents.other_time(ns)).collect();
            assert_eq!(times.len(), OTHER_TIMES as usize);
            assert!(times.iter().all(|time| *time < 1_000_000_000));
        }
    }
}

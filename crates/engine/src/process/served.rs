//! The server of the kernel mount: at most one process at a time; and how the
//! kernel's caches are kept true.
//!
//! Before the server tells the kernel what it may keep (attributes of a node,
//! names in a directory) it sets a flag in the cachelet ([`KNOWN`],
//! [`NAMES_KNOWN`]), then reads what it tells. Whoever else changes something
//! makes the change, then looks at the flag. If it is set, he begins a notice,
//! takes the flag away, posts the notice and waits until the server has passed
//! it on to the kernel; if not, but a notice about the same node is under way, he waits for that. So a
//! change to what the kernel does not know costs a load, and when a call
//! returns the kernel keeps nothing older than it.
//!
//! Nobody holds a lock while he waits, because passing a notice on may have to
//! wait for a request that needs the lock. A server that is dead is noticed, one
//! that is stuck is waited for for [`PATIENCE`] at most.
//!
//! Where nobody may wait, a notice is posted and left ([`Fs::tell_later`]): when a
//! cachelet that the kernel knows is given to another inode, and when the last close gives
//! blocks back. Where there is no room for it the kernel is made to forget the attributes of
//! all that it was told of, and whoever changes something waits for that. A process killed between change and notice is noticed within
//! [`LOOK_S`]; then the kernel is made to forget the attributes of all that it knows.
//!
//! [`KNOWN`]: cachelet::KNOWN
//! [`NAMES_KNOWN`]: cachelet::NAMES_KNOWN

use crate::fs::Fs;
use crate::names::chunk_word;
use crate::segment::{Cachelet, NOTICES, Notice, cachelet};
use base::{Cx, Node, Result, Stale};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, fence};
use openfiles::Processes;
use pm::life::Look;
use pm::{Errno, clock, file};

/// How long a change waits for a server that lives and does not answer, nanoseconds.
const PATIENCE: i64 = 1_000_000_000;
/// How often it looks whether the server lives.
const LOOK: i64 = 20_000_000;
/// How often the server looks for processes that died, seconds.
const LOOK_S: u32 = 1;
const _: () = assert!(NOTICES <= u64::BITS);
/// States of a notice.
const FREE: u32 = 0;
const WRITING: u32 = 1;
const POSTED: u32 = 2;
/// In the state, above it: process + 1 that writes.
const WRITER_AT: u32 = 2;

/// State of a notice that process `number` is writing: noted with the taking, so that death leaves none behind.
const fn written_by(number: u32) -> u32 {
    (number + 1) << WRITER_AT | WRITING
}

impl Fs {
    /// Makes this process the server of the image's kernel mount. `EBUSY` if
    /// another one is and lives.
    pub fn start_serving(&self, cx: &Cx) -> Result<()> {
        let own = self.own_process()? + 1;
        let header = self.header();
        loop {
            let before = header.server();
            if before == own {
                return Ok(());
            }
            if before != 0 && self.server_lives(cx, before) && header.server() == before {
                return Err(Errno::EBUSY.into());
            }
            if header.change_server(before, own) {
                let served = &self.header().served;
                served.deaths_told.store(served.deaths.load(Acquire), Relaxed);
                served.missed_told.store(served.missed.load(Acquire), Relaxed);
                served.executed.store(0, Relaxed);
                served.stored.store(0, Relaxed);
                self.uncover_all();
                // What was meant for the server before: its mount is gone.
                for notice in self.notices().filter(|notice| notice.state.load(Acquire) == POSTED) {
                    self.end_notice(notice);
                }
                return Ok(());
            }
        }
    }

    /// Ends what `start_serving` began; another process may begin.
    pub fn stop_serving(&self) {
        if let Ok(own) = self.own_process() {
            self.server_ends(own);
        }
    }

    /// If the process of slot `number` was the server, there is none now.
    pub(super) fn server_ends(&self, number: u32) {
        self.header().change_server(number + 1, 0);
    }

    /// PID of the server as its own namespace knows it, if there is one that lives.
    pub fn server(&self, cx: &Cx) -> Option<u32> {
        let server = self.header().server();
        if server == 0 || (server != self.process.load(Relaxed) && !self.server_lives(cx, server)) {
            return None;
        }
        self.process_slot(server - 1).map(|slot| slot.pid.load(Relaxed))
    }

    /// Whether any other process uses the image.
    pub fn others(&self, cx: &Cx) -> bool {
        self.adopt_dead_processes(cx) != 0
    }

    /// Whether the process of slot `server - 1` lives; if not, it is adopted.
    fn server_lives(&self, cx: &Cx, server: u32) -> bool {
        self.adopt_process_if_dead(cx, server - 1, Look::Thorough)
    }

    // ---- what the kernel keeps ----

    /// The kernel may from now on keep attributes of `node`, or the names in it.
    /// To be called before they are read. Whether it might already.
    pub fn kernel_keeps(&self, cx: &Cx, node: Node, names: bool) -> Result<bool> {
        let flag = if names { cachelet::NAMES_KNOWN } else { cachelet::KNOWN };
        self.with_cached(cx, node, |cachelet| {
            let mut before = cachelet.flags.load(SeqCst);
            if before & flag == 0 {
                before = cachelet.flags.fetch_or(flag, SeqCst);
            }
            fence(SeqCst);
            // Whoever takes the cachelet away says so first, and looks at the flag then.
            if before & cachelet::EVICTING != 0 && !self.pin_slow(cx, cachelet, node.id)? || cachelet.node.load(SeqCst) != node.id
            {
                return Err(Errno::ESTALE.into());
            }
            Ok(before & flag != 0)
        })
    }

    /// Whether changes by this process must be told to the kernel.
    #[inline]
    pub fn is_served(&self) -> bool {
        let server = self.header().server();
        server != 0 && server != self.process.load(Relaxed)
    }

    /// Whether changes by this process must be told to anybody: to the kernel, or to those who watch.
    #[inline]
    pub fn is_told(&self) -> bool {
        let server = self.header().server.load(Relaxed);
        server != 0 && server != self.process.load(Relaxed)
    }

    /// A node of a cache shows something else than before, which nobody has asked for here: the kernel hears of it a moment
    /// later. Waits for nobody, so that whoever holds a lock may do it.
    pub(crate) fn tell_shown(&self, cx: &Cx, node: Node) {
        if self.header().server() != 0 && self.is_known(cx, node) {
            self.tell_later(node.id);
        }
    }

    /// Whether the kernel may keep a node's attributes.
    pub fn is_known(&self, cx: &Cx, node: Node) -> bool {
        self.has_flag(cx, node, cachelet::KNOWN)
    }

    /// Whether programs may have stored into a file's own pages, of which nobody is told.
    pub fn may_be_stored(&self, cx: &Cx, node: Node) -> bool {
        self.has_flag(cx, node, cachelet::STORED)
    }

    /// Programs may store into pages of one file more through the mount, or of one less.
    pub fn count_stored(&self, begins: bool) {
        let change = |count: u32| if begins { count.checked_add(1) } else { count.checked_sub(1) };
        let _ = self.header().served.stored.fetch_update(AcqRel, Relaxed, change);
    }

    /// A node is about to be changed: where programs may have stored into pages of files through the mount, the kernel
    /// sends those of this one back before, and not over the change.
    #[inline]
    pub fn tell_ahead(&self, cx: &Cx, node: Node) {
        if self.header().served.stored.load(Relaxed) != 0 {
            self.tell_changed(cx, node, false);
            // Inside a change too: it is not made before.
            self.wait_for_owed(cx, cx.thread.owed.take());
        }
    }

    /// Whether the kernel may keep names in a directory.
    pub fn knows_names(&self, cx: &Cx, dir: Node) -> bool {
        self.has_flag(cx, dir, cachelet::NAMES_KNOWN)
    }

    fn has_flag(&self, cx: &Cx, node: Node, flag: u32) -> bool {
        fence(SeqCst);
        self.cached(cx, node).is_ok_and(|cachelet| cachelet.flags.load(SeqCst) & flag != 0)
    }

    /// A node has changed; `owed`: the kernel is to be told in any case.
    pub fn tell_changed(&self, cx: &Cx, node: Node, owed: bool) {
        if !owed && !self.is_known(cx, node) {
            return self.wait_for_others(cx, node);
        }
        // The notice comes before the flag goes, so that whoever no longer finds
        // the flag finds the notice.
        let Some(notice) = self.begin_notice(node.id) else { return };
        // Not another's, should the cachelet be taken away just now.
        let known = |cachelet: &Cachelet, flags: u32| flags & cachelet::KNOWN != 0 && cachelet.node.load(SeqCst) == node.id;
        let take = |cachelet: &Cachelet| {
            let taken = |flags| known(cachelet, flags).then_some(flags & !cachelet::KNOWN);
            cachelet.flags.fetch_update(SeqCst, SeqCst, taken).is_ok()
        };
        if self.cached(cx, node).is_ok_and(take) || owed {
            self.post(cx, notice, b"");
        } else {
            self.end_notice(notice);
            self.wait_for_others(cx, node);
        }
    }

    /// A name in a directory has changed, and with it the directory.
    pub fn tell_name_changed(&self, cx: &Cx, dir: Node, name: &[u8]) {
        // The flag stays: other names are known too.
        if self.knows_names(cx, dir)
            && let Some(notice) = self.begin_notice(dir.id)
        {
            self.post(cx, notice, name);
        }
        self.tell_changed(cx, dir, false);
    }

    /// Waits for the notices about a node that are under way, also those for which there was no room.
    fn wait_for_others(&self, cx: &Cx, node: Node) {
        let served = &self.header().served;
        let missed = served.missed.load(SeqCst);
        if served.missed_told.load(SeqCst) != missed {
            self.wait_until(cx, &served.missed_told, |told| told.wrapping_sub(missed) as i32 >= 0);
        }
        if served.pending.load(SeqCst) == 0 {
            return;
        }
        for notice in self.notices() {
            let before = notice.ended.load(Acquire);
            if notice.state.load(Acquire) != FREE && notice.node.load(Relaxed) == node.id && !self.owes(cx, notice) {
                self.wait_until(cx, &notice.ended, |ended| ended != before);
            }
        }
    }

    /// Notes that this thread is to wait for a notice when it has left the change of a cached directory that it is in; false
    /// if it is in none.
    fn owes(&self, cx: &Cx, notice: &Notice) -> bool {
        if !self.is_inside(cx) {
            return false;
        }
        let number = self.notices().position(|other| core::ptr::eq(other, notice)).unwrap_or(0);
        cx.thread.owed.set(cx.thread.owed.get() | 1 << number);
        true
    }

    /// Waits for these notices, or for others that have taken their places by now.
    pub(crate) fn wait_for_owed(&self, cx: &Cx, owed: u64) {
        for notice in self.notices().enumerate().filter_map(|(number, notice)| (owed >> number & 1 != 0).then_some(notice)) {
            let before = notice.ended.load(Acquire);
            if notice.state.load(Acquire) != FREE {
                self.wait_until(cx, &notice.ended, |ended| ended != before);
            }
        }
    }

    fn notices(&self) -> impl Iterator<Item = &Notice> {
        let size = size_of::<Notice>() as u64;
        (0..u64::from(NOTICES)).filter_map(move |number| self.segment.at(self.areas.notices + number * size))
    }

    /// Takes a notice about `node`. `None` if there is no room for longer than anybody waits.
    fn begin_notice(&self, node: u64) -> Option<&Notice> {
        let begun = clock::monotonic();
        loop {
            match self.take_notice(node) {
                Some(notice) => return Some(notice),
                None if clock::monotonic() - begun > PATIENCE => return None,
                None => file::nap(50_000),
            }
        }
    }

    /// Takes a notice about `node`, if there is one free now.
    fn take_notice(&self, node: u64) -> Option<&Notice> {
        let own = written_by(self.own_process().ok()?);
        let pending = &self.header().served.pending;
        // Counted too often after a death in between, never too seldom: that costs a look at the notices.
        pending.fetch_add(1, SeqCst);
        let notice = self.notices().find(|notice| notice.state.compare_exchange(FREE, own, AcqRel, Relaxed).is_ok());
        match notice {
            Some(notice) => notice.node.store(node, SeqCst),
            None => self.count_ended(),
        }
        notice
    }

    /// Has the kernel forget a node's attributes a moment later: waits for nobody, so
    /// that the server may do it too, and whoever holds a lock. Where 64 wait already
    /// the kernel is to forget everything.
    #[cold]
    pub(crate) fn tell_later(&self, node: u64) {
        if self.header().server() == 0 {
            return;
        }
        if let Some(notice) = self.take_notice(node) {
            notice.name_len.store(0, Relaxed);
            notice.state.store(POSTED, Release);
        } else {
            self.header().served.missed.fetch_add(1, SeqCst);
        }
        self.wake_server();
    }

    /// Posts a notice that was begun, and waits until it has been passed on.
    fn post(&self, cx: &Cx, notice: &Notice, name: &[u8]) {
        notice.name_len.store(name.len() as u32, Relaxed);
        for (word, chunk) in notice.name.iter().zip(name.chunks(8)) {
            word.store(chunk_word(chunk), Relaxed);
        }
        let before = notice.ended.load(Relaxed);
        notice.state.store(POSTED, Release);
        self.wake_server();
        if !self.owes(cx, notice) {
            self.wait_until(cx, &notice.ended, |ended| ended != before);
        }
    }

    /// Waits until the server has set `word` to what is enough.
    fn wait_until(&self, cx: &Cx, word: &AtomicU32, is_enough: impl Fn(u32) -> bool) {
        let begun = clock::monotonic();
        while clock::monotonic() - begun < PATIENCE {
            let before = word.load(Acquire);
            if is_enough(before) {
                return;
            }
            file::wait(word, before, LOOK);
            let server = self.header().server();
            if word.load(Acquire) == before && (server == 0 || !self.server_lives(cx, server)) {
                // Its mount is dead, and nothing that is kept for it is seen.
                return;
            }
        }
    }

    /// The server passes on what is posted, then sleeps until there may be more, at most `timeout_ns`.
    pub fn pass_notices(&self, cx: &Cx, timeout_ns: i64, pass: &mut dyn FnMut(Stale)) {
        let served = &self.header().served;
        let bell = served.bell.load(SeqCst);
        for notice in self.notices() {
            if notice.state.load(Acquire) == POSTED {
                let mut name = [0u8; 256];
                for (word, chunk) in notice.name.iter().zip(name.chunks_mut(8)) {
                    chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes());
                }
                let node = Node { id: notice.node.load(Relaxed), hint: u32::MAX };
                let len = (notice.name_len.load(Relaxed) as usize).min(255);
                pass(if len == 0 { Stale::Node(node) } else { Stale::Name(node, &name[..len]) });
                self.end_notice(notice);
            }
        }
        let missed = served.missed.load(SeqCst);
        if served.missed_told.load(Relaxed) != missed {
            pass(Stale::Everything);
            served.missed_told.store(missed, SeqCst);
            file::wake(&served.missed_told);
        }
        self.look_for_deaths(cx, pass);
        file::wait(&served.bell, bell, timeout_ns);
        if served.bell.load(SeqCst) == bell {
            self.sweep_notices(cx);
        }
    }

    /// After a death: what the dead one has changed last may not have been told. The
    /// flags stay, so that whoever changes something meanwhile tells of it himself.
    fn look_for_deaths(&self, cx: &Cx, pass: &mut dyn FnMut(Stale)) {
        let served = &self.header().served;
        let now = (clock::monotonic() / 1_000_000_000) as u32;
        if now.wrapping_sub(served.looked_s.load(Relaxed)) >= LOOK_S {
            served.looked_s.store(now, Relaxed);
            self.adopt_dead_processes(cx);
        }
        let deaths = served.deaths.load(Acquire);
        if served.deaths_told.swap(deaths, Relaxed) == deaths {
            return;
        }
        for number in 0..self.header().cachelet_next.load(Acquire).min(self.areas.cachelet_count) {
            let Some(cachelet) = self.cachelet(number) else { continue };
            let id = cachelet.node.load(Acquire);
            if id != 0 && cachelet.flags.load(Relaxed) & cachelet::KNOWN != 0 {
                pass(Stale::Node(Node { id, hint: u32::MAX }));
            }
        }
    }

    /// Ends the sleep of [`Fs::pass_notices`].
    pub fn wake_server(&self) {
        let bell = &self.header().served.bell;
        bell.fetch_add(1, SeqCst);
        file::wake(bell);
    }

    fn end_notice(&self, notice: &Notice) {
        notice.state.store(FREE, SeqCst);
        self.count_ended();
        notice.ended.fetch_add(1, AcqRel);
        file::wake(&notice.ended);
    }

    fn count_ended(&self) {
        let pending = &self.header().served.pending;
        let _ = pending.fetch_update(SeqCst, Relaxed, |pending| pending.checked_sub(1));
    }

    /// Process `number` is dead: the notices that it was writing are free again, before the number is another's.
    pub(super) fn end_notices_of(&self, number: u32) {
        for notice in self.notices().filter(|notice| notice.state.load(Acquire) == written_by(number)) {
            self.end_notice(notice);
        }
    }

    /// Whoever died over a notice is adopted, and it is free again.
    fn sweep_notices(&self, cx: &Cx) {
        for notice in self.notices() {
            let state = notice.state.load(Acquire);
            let writer = (state >> WRITER_AT).checked_sub(1).filter(|writer| state == written_by(*writer));
            if let Some(writer) = writer.filter(|writer| self.own_process() != Ok(*writer))
                && !self.adopt_process_if_dead(cx, writer, Look::Thorough)
            {
                self.end_notices_of(writer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::{Cred, Kind, NewNode, Thread};
    use pm::UserSlice;
    use pm::sys::abi;
    use std::format;

    const FILE: NewNode = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };

    /// A served image with a file whose attributes the kernel keeps.
    fn served() -> (TestFs, Node) {
        let test = TestFs::new(64 << 20);
        test.start_serving(&test.cx()).unwrap();
        let node = test.create(&test.cx(), test.root_node(), b"known", &FILE).unwrap();
        assert!(!test.kernel_keeps(&test.cx(), node, false).unwrap());
        (test, node)
    }

    /// Whether the kernel is told of `node` now, by the server that `test` is.
    fn is_told(test: &TestFs, node: Node) -> bool {
        let mut told = false;
        test.pass_notices(&test.cx(), 0, &mut |stale| told |= matches!(stale, Stale::Node(other) if other.id == node.id));
        told
    }

    /// Goal: the kernel forgets a node before its cachelet, with the flag in it, is another's.
    /// Method: files are made until the CLOCK has taken it.
    #[test]
    fn cachelets_given_away_are_told() {
        let (test, node) = served();
        let mut told = false;
        for number in 0..test.areas.cachelet_count * 3 {
            test.create(&test.cx(), test.root_node(), format!("{number}").as_bytes(), &FILE).unwrap();
            told |= number % 32 == 0 && is_told(&test, node);
            if told {
                break;
            }
        }
        let gone = test.cachelet(node.hint).is_none_or(|cachelet| cachelet.node.load(Relaxed) != node.id);
        assert_eq!(told, gone);
        assert!(told);
    }

    /// Goal: the last close, which gives blocks back, is told; one that gives none back is not.
    #[test]
    fn blocks_given_back_are_told() {
        let (test, node) = served();
        test.open(&test.cx(), node, abi::O_RDWR, 3).unwrap();
        for _ in 0..40 {
            test.write(&test.cx(), node, None, &[UserSlice::from_ref(&[1; 1000])]).unwrap();
        }
        assert!(!is_told(&test, node));
        test.close(&test.cx(), 3);
        assert!(is_told(&test, node));
        test.open(&test.cx(), node, abi::O_RDWR, 3).unwrap();
        test.close(&test.cx(), 3);
        assert!(!is_told(&test, node));
    }

    /// Goal: after a death all that the kernel knows is told, once.
    #[test]
    fn deaths_are_told() {
        let (test, node) = served();
        assert!(!is_told(&test, node));
        test.header().served.deaths.fetch_add(1, Release);
        assert!(is_told(&test, node));
        assert!(!is_told(&test, node));
    }

    /// Goal: a notice for which there is no room has the kernel forget everything, once, and who changes
    /// something then waits for it. Method: one more than there is room for; another thread is the changer.
    #[test]
    fn what_finds_no_room_is_told() {
        let (test, node) = served();
        for number in 0..u64::from(NOTICES) + 1 {
            test.tell_later(number);
        }
        let all_told = |test: &TestFs| {
            let mut times = 0;
            test.pass_notices(&test.cx(), 0, &mut |stale| times += u32::from(stale == Stale::Everything));
            times
        };
        let fs = test.fs;
        let told = || fs.header().served.missed_told.load(SeqCst);
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                let thread = Thread::new();
                let begun = clock::monotonic();
                fs.wait_for_others(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread }, node);
                (told(), clock::monotonic() - begun)
            });
            let before = told();
            assert_eq!(all_told(&test), 1);
            let (after, waited) = changer.join().unwrap();
            assert!(after == before + 1 || waited >= PATIENCE);
        });
        assert_eq!(all_told(&test), 0);
    }

    /// Goal: whoever dies over a notice leaves none behind. Method: others have taken all but one of them, at the
    /// moment of their death, and are adopted, or found by the server.
    #[test]
    fn notices_of_the_dead_are_free() {
        let (test, node) = served();
        let states = || test.notices().filter(|notice| notice.state.load(Relaxed) != FREE).count();
        for (process, notice) in [70, 71].iter().cycle().zip(test.notices().skip(1)) {
            notice.state.store(written_by(*process), Relaxed);
        }
        test.header().served.pending.fetch_add(NOTICES - 1, Relaxed);
        test.end_notices_of(70);
        assert_eq!(states(), (NOTICES as usize - 1) / 2);
        test.tell_later(node.id);
        assert!(is_told(&test, node));
        assert!(!is_told(&test, node));
        assert_eq!((states(), test.header().served.pending.load(Relaxed)), (0, 0));
    }
}

//! The way to a FUSE daemon: slots in shared memory in place of `/dev/fuse`.
//!
//! ```text
//! header | slot 0 | slot 1 | …            a slot: a page of words, then room for one message
//!
//!          client                                  daemon (its reads and writes are replaced)
//! FREE ──────────► CLAIMED ──fill──► REQUEST ──────────► TAKEN ──reply──► REPLIED ──► FREE
//!                                                  client gave up: ABANDONED ──reply──► FREE
//! ```
//!
//! Every client process has as many slots as it has calls under way; the daemon's
//! threads drain them all through one bitmap. Both sides spin for a while that
//! adapts to how often that was worth it, then sleep on a futex. There is nobody
//! in between.
//!
//! Of the daemon's threads that have nothing to do one leads: it looks for requests,
//! and sleeps on the bell. The others follow, asleep. Who takes a request leads no
//! more, and is back before anybody else was needed, as a rule: a follower is woken
//! only if a request lies there that nobody is coming for. So a program that makes one
//! call after the other has to do with one thread, and wakes it once each at most.
//!
//! The daemon is not trusted: it maps this file and nothing else of ours, and what
//! it writes is copied out once and checked then. Whether it lives, a supervisor
//! says (and its PID, should the supervisor be gone); a call never outlasts either
//! the daemon or its time-out.

use super::patience::Patience;
use crate::{Cx, Errno};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use pm::{Region, UserSlice, clock, file, host};
use zerocopy::{FromBytes, KnownLayout};

/// How many requests can be under way.
pub const SLOTS: u32 = 32;
/// Largest piece of a file in one request, bytes.
pub const DATA_MAX: usize = 128 * 1024;
/// Largest message, bytes.
pub const MESSAGE_MAX: usize = DATA_MAX + 4096 + 512;
const SLOT_BYTES: u64 = 4096 + (MESSAGE_MAX as u64).next_multiple_of(4096);
/// Length of the file.
pub const CHANNEL_BYTES: u64 = 4096 + SLOTS as u64 * SLOT_BYTES;

/// Bytes of `struct fuse_in_header` and `struct fuse_out_header`.
pub const IN_HEADER: usize = 40;
/// See [`IN_HEADER`].
pub const OUT_HEADER: usize = 16;

/// States of the daemon.
pub mod life {
    /// Nobody is there yet.
    pub const STARTING: u32 = 0;
    /// It serves.
    pub const SERVING: u32 = 1;
    /// It ended.
    pub const DEAD: u32 = 2;
    /// It is to end.
    pub const CLOSING: u32 = 3;
}

const NOBODY: u32 = 0;
const LOOKS: u32 = 1;
const SLEEPS: u32 = 2;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const REQUEST: u32 = 2;
const TAKEN: u32 = 3;
const REPLYING: u32 = 4;
const REPLIED: u32 = 5;
const ABANDONED: u32 = 6;

/// First page.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// See [`life`].
    pub life: AtomicU32,
    /// Rises with each start of the daemon.
    pub epoch: AtomicU32,
    /// Of the daemon, as it last said.
    pub daemon: AtomicU32,
    /// Of whoever started it.
    pub supervisor: AtomicU32,
    /// Milliseconds that a request may take.
    pub timeout_ms: AtomicU32,
    /// Minor version of the protocol that was agreed.
    pub minor: AtomicU32,
    /// Largest piece of a write, bytes.
    pub max_write: AtomicU32,
    /// `mount` was told `default_permissions` (1), read-only (2).
    pub mount_flags: AtomicU32,
    /// Bit n: the daemon does not know operation n.
    pub unknown: AtomicU64,
    /// Slots with a request that nobody has taken.
    pending: AtomicU64,
    /// Requests so far.
    pub requests: AtomicU64,
    /// Rings (a futex) for the thread that leads.
    bell: AtomicU32,
    /// Whether a thread leads: [`NOBODY`], [`LOOKS`], [`SLEEPS`].
    leader: AtomicU32,
    /// Rings for one that follows.
    bench: AtomicU32,
    /// Threads that follow.
    followers: AtomicU32,
    /// How often it was started again.
    pub restarts: AtomicU32,
    /// Flags of `INIT` that both want.
    pub agreed: AtomicU32,
    /// Notifications so far.
    pub notices: AtomicU32,
    /// A daemon's thread has replied and is coming back for more: no need to ring.
    returning: AtomicU32,
}

/// Head of a slot.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
struct Slot {
    state: AtomicU32,
    /// PID of the client.
    owner: AtomicU32,
    unique: AtomicU64,
    /// Length of the message.
    len: AtomicU32,
    /// The client sleeps on `state`.
    sleeps: AtomicU32,
    /// No reply is awaited.
    one_way: AtomicU32,
    /// The daemon's life for which the request is meant.
    epoch: AtomicU32,
}

/// A mapped channel.
#[derive(Debug)]
pub struct Channel {
    region: Region,
    /// Of this process, client or daemon.
    patience: Patience,
    hint: AtomicU32,
}

/// How long a client sleeps before it looks at the daemon's life.
const NAP_NS: i64 = 100_000_000;
/// How long it sleeps at first while nobody has taken its request.
const UNTAKEN_NS: i64 = 1_000_000;
/// How long a daemon's thread sleeps before it looks at the supervisor's.
const LOOK_NS: i64 = 1_000_000_000;

/// A request: operation, node, and what follows the header.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `FUSE_*`.
    pub operation: u32,
    /// Node of the daemon's.
    pub node: u64,
    /// The daemon's life in which that node and all else in the request mean something.
    pub epoch: u32,
    /// Parts of the message, one after the other.
    pub parts: [&'a [u8]; 3],
    /// File contents behind them.
    pub data: UserSlice,
}

impl Channel {
    /// Maps the channel at `path` (NUL-terminated).
    pub fn open(path: &[u8]) -> Result<Channel, Errno> {
        let region = file::share(path, CHANNEL_BYTES)?;
        Ok(Channel { region, patience: Patience::new(), hint: AtomicU32::new(0) })
    }

    /// The first page. `EIO` can't be: the length was checked.
    pub fn header(&self) -> Result<&Header, Errno> {
        self.region.at(0).ok_or(Errno::EIO)
    }

    fn slot(&self, index: u32) -> Result<&Slot, Errno> {
        if index >= SLOTS {
            return Err(Errno::EIO);
        }
        self.region.at(4096 + u64::from(index) * SLOT_BYTES).ok_or(Errno::EIO)
    }

    fn room(index: u32) -> u64 {
        4096 + u64::from(index) * SLOT_BYTES + 4096
    }

    // ---- the client's side ----

    /// Life of the daemon, in which its node ids and handles hold.
    pub fn epoch(&self) -> u32 {
        self.header().map_or(0, |header| header.epoch.load(Acquire))
    }

    /// Whether the daemon said that it does not know this operation.
    pub fn is_unknown(&self, operation: u32) -> bool {
        operation < 64 && self.header().is_ok_and(|header| header.unknown.load(Relaxed) & (1 << operation) != 0)
    }

    /// Sends a request and copies what follows the reply's header into `into`;
    /// its length. `ENOTCONN` without a daemon, `ETIMEDOUT`, `EIO` for a reply
    /// that is too long, or the daemon's error. A request for an earlier life is
    /// answered `ENOTCONN`, whatever has been started since.
    pub fn call(&self, cx: &Cx, request: &Request, into: UserSlice) -> Result<usize, Errno> {
        let header = self.header()?;
        let index = self.begin(cx, request, false, true)?;
        let slot = self.slot(index)?;
        let waited = self.wait(slot, request.epoch);
        if waited.is_err() {
            return waited.map(|()| 0);
        }
        let result = self.take_reply(index, slot, into);
        slot.state.store(FREE, Release);
        if result == Err(Errno::ENOSYS) && request.operation < 64 && header.epoch.load(Acquire) == request.epoch {
            header.unknown.fetch_or(1 << request.operation, Relaxed);
        }
        result
    }

    /// The first request of a daemon's life, while it is not serving yet.
    pub fn first_call(&self, cx: &Cx, request: &Request, into: UserSlice) -> Result<usize, Errno> {
        let index = self.begin(cx, request, false, false)?;
        let slot = self.slot(index)?;
        self.wait(slot, request.epoch)?;
        let result = self.take_reply(index, slot, into);
        slot.state.store(FREE, Release);
        result
    }

    /// Sends a request that has no reply.
    pub fn send(&self, cx: &Cx, request: &Request) -> Result<(), Errno> {
        self.begin(cx, request, true, true).map(drop)
    }

    fn begin(&self, cx: &Cx, request: &Request, one_way: bool, serving: bool) -> Result<u32, Errno> {
        let header = self.header()?;
        let len = IN_HEADER + request.parts.iter().map(|part| part.len()).sum::<usize>() + request.data.len;
        if len > MESSAGE_MAX {
            return Err(Errno::EIO);
        }
        // What has no answer is not worth waiting for, least of all with the ledger's lock held.
        if one_way && header.life.load(SeqCst) != life::SERVING {
            return Err(Errno::ENOTCONN);
        }
        if serving {
            self.until_serving(header)?;
        }
        // Should it end from here on, `receive` sees that the slot is of another life.
        if header.epoch.load(SeqCst) != request.epoch {
            return Err(Errno::ENOTCONN);
        }
        let index = self.claim(header)?;
        let slot = self.slot(index)?;
        // A slot's own count makes it unlike all earlier ones; the kernel's are even.
        let unique = (slot.unique.load(Relaxed) >> 8).wrapping_add(1) << 8 | u64::from(index) << 1;
        let mut head = [0u8; IN_HEADER];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(len as u32).to_ne_bytes());
        put(4, &request.operation.to_ne_bytes());
        put(8, &unique.to_ne_bytes());
        put(16, &request.node.to_ne_bytes());
        put(24, &cx.cred.uid.to_ne_bytes());
        put(28, &cx.cred.gid.to_ne_bytes());
        put(32, &host::own_pid_cached().to_ne_bytes());
        let mut at = Self::room(index);
        let mut copied = Ok(());
        for part in [&head[..], request.parts[0], request.parts[1], request.parts[2]] {
            copied = copied.and(self.region.copy_in(at, UserSlice::from_ref(part)));
            at += part.len() as u64;
        }
        copied = copied.and(self.region.copy_in(at, request.data));
        if let Err(errno) = copied {
            slot.state.store(FREE, Release);
            return Err(errno);
        }
        slot.unique.store(unique, Relaxed);
        slot.len.store(len as u32, Relaxed);
        slot.one_way.store(u32::from(one_way), Relaxed);
        slot.sleeps.store(0, Relaxed);
        slot.epoch.store(request.epoch, Relaxed);
        slot.state.store(REQUEST, SeqCst);
        header.requests.fetch_add(1, Relaxed);
        header.pending.fetch_or(1 << index, SeqCst);
        self.ring(header);
        Ok(index)
    }

    /// Tells the daemon that there is a request.
    fn ring(&self, header: &Header) {
        match header.leader.load(SeqCst) {
            // One ring for each time that it falls asleep.
            SLEEPS if header.leader.compare_exchange(SLEEPS, LOOKS, SeqCst, Relaxed).is_ok() => {
                header.bell.fetch_add(1, SeqCst);
                file::wake_one(&header.bell);
            }
            // Who has replied comes back at once and looks, or else `wait` calls another.
            NOBODY if header.returning.load(SeqCst) == 0 => self.call_follower(header),
            _ => {}
        }
    }

    fn call_follower(&self, header: &Header) {
        if header.followers.load(SeqCst) != 0 {
            header.bench.fetch_add(1, SeqCst);
            file::wake_one(&header.bench);
        }
    }

    /// Wakes whoever sleeps, for a request that lies there untaken: who was to ring for
    /// it, or to look, may have died or be busy.
    fn alarm(&self, header: &Header) {
        header.bell.fetch_add(1, SeqCst);
        file::wake_one(&header.bell);
        self.call_follower(header);
    }

    /// A daemon that is being started (again) is waited for.
    fn until_serving(&self, header: &Header) -> Result<(), Errno> {
        let begun = clock::monotonic();
        loop {
            match header.life.load(SeqCst) {
                life::SERVING => return Ok(()),
                life::STARTING if host::is_alive(header.supervisor.load(Relaxed)) => {
                    if clock::monotonic() - begun > self.timeout_ns(header) {
                        return Err(Errno::ETIMEDOUT);
                    }
                    file::wait(&header.life, life::STARTING, NAP_NS);
                }
                _ => return Err(Errno::ENOTCONN),
            }
        }
    }

    fn timeout_ns(&self, header: &Header) -> i64 {
        i64::from(header.timeout_ms.load(Relaxed)).max(1) * 1_000_000
    }

    fn claim(&self, header: &Header) -> Result<u32, Errno> {
        let begun = clock::monotonic();
        let mut rounds = 0u32;
        loop {
            let hint = self.hint.load(Relaxed);
            for step in 0..SLOTS {
                let index = hint.wrapping_add(step) % SLOTS;
                let slot = self.slot(index)?;
                if slot.state.load(Relaxed) == FREE && slot.state.compare_exchange(FREE, CLAIMED, AcqRel, Relaxed).is_ok() {
                    slot.owner.store(host::own_pid_cached(), Release);
                    self.hint.store(index, Relaxed);
                    return Ok(index);
                }
            }
            rounds += 1;
            file::give_way();
            if rounds.is_multiple_of(256) {
                self.reclaim()?;
                if clock::monotonic() - begun > self.timeout_ns(header) {
                    return Err(Errno::ETIMEDOUT);
                }
            }
        }
    }

    /// Frees what dead clients have left, and what dead daemons have.
    pub fn reclaim(&self) -> Result<(), Errno> {
        let header = self.header()?;
        for index in 0..SLOTS {
            let slot = self.slot(index)?;
            let state = slot.state.load(Acquire);
            let owner = slot.owner.load(Acquire);
            let is_past = state != CLAIMED && slot.epoch.load(Relaxed) != header.epoch.load(SeqCst);
            // A given-up slot has no owner any more.
            let is_left = state == ABANDONED && is_past;
            if state == FREE || !is_left && (owner == 0 || host::is_alive(owner)) {
                continue;
            }
            let next = match state {
                CLAIMED | REPLIED => FREE,
                _ if is_past => FREE,
                REQUEST | TAKEN => ABANDONED,
                _ => continue,
            };
            let is_done = slot.state.compare_exchange(state, next, AcqRel, Relaxed).is_ok();
            if is_done && state == REQUEST {
                // Its client may have died before it told the daemon, who is to free it.
                header.pending.fetch_or(1 << index, SeqCst);
                self.ring(header);
            }
        }
        Ok(())
    }

    /// Waits for the reply; on failure the slot is given up.
    fn wait(&self, slot: &Slot, epoch: u32) -> Result<(), Errno> {
        let header = self.header()?;
        if self.patience.spin(|| (slot.state.load(Acquire) == REPLIED).then_some(())).is_some() {
            return Ok(());
        }
        let begun = clock::monotonic();
        let mut untaken_ns = UNTAKEN_NS;
        loop {
            slot.sleeps.store(1, SeqCst);
            let state = slot.state.load(SeqCst);
            if state == REPLIED {
                return Ok(());
            }
            let life = header.life.load(SeqCst);
            let daemon = header.daemon.load(Relaxed);
            let gone = matches!(life, life::DEAD | life::CLOSING) || header.epoch.load(Acquire) != epoch;
            let now = clock::monotonic();
            if !gone && now - begun <= self.timeout_ns(header) {
                let nap_ns = if state == REQUEST { untaken_ns } else { NAP_NS };
                file::wait(&slot.state, state, nap_ns);
                if slot.state.load(SeqCst) == REQUEST && untaken_ns < NAP_NS {
                    self.alarm(header);
                    untaken_ns *= 2;
                }
                // Should the supervisor not see it.
                if clock::monotonic() - now < NAP_NS || daemon == 0 || host::is_alive(daemon) {
                    continue;
                }
            }
            let errno = if gone || now - begun <= self.timeout_ns(header) { Errno::ENOTCONN } else { Errno::ETIMEDOUT };
            return self.give_up(slot, errno);
        }
    }

    /// Leaves a request to itself. It may have been answered meanwhile.
    fn give_up(&self, slot: &Slot, errno: Errno) -> Result<(), Errno> {
        loop {
            let state = slot.state.load(SeqCst);
            let next = match state {
                REPLIED => return Ok(()),
                // Copying the reply takes no time, unless its writer has died.
                REPLYING if errno == Errno::ETIMEDOUT => {
                    file::give_way();
                    continue;
                }
                _ if errno == Errno::ENOTCONN => FREE,
                _ => ABANDONED,
            };
            if slot.state.compare_exchange(state, next, AcqRel, Relaxed).is_ok() {
                return Err(errno);
            }
        }
    }

    fn take_reply(&self, index: u32, slot: &Slot, into: UserSlice) -> Result<usize, Errno> {
        let len = slot.len.load(Acquire) as usize;
        if !(OUT_HEADER..=MESSAGE_MAX).contains(&len) {
            return Err(Errno::EIO);
        }
        let mut head = [0u8; OUT_HEADER];
        self.region.copy_out(Self::room(index), UserSlice::from_mut(&mut head))?;
        let error = i32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
        let payload = len - OUT_HEADER;
        match error {
            0 if payload > into.len => Err(Errno::EIO),
            0 => {
                self.region.copy_out(Self::room(index) + OUT_HEADER as u64, into.part(0, payload))?;
                Ok(payload)
            }
            -511..=-1 => Err(Errno(-error)),
            _ => Err(Errno::EIO),
        }
    }

    // ---- the supervisor's side ----

    /// The daemon's life changes; all who wait are woken.
    pub fn set_life(&self, life: u32) -> Result<(), Errno> {
        let header = self.header()?;
        header.life.store(life, SeqCst);
        file::wake(&header.life);
        header.bell.fetch_add(1, SeqCst);
        file::wake(&header.bell);
        header.bench.fetch_add(1, SeqCst);
        file::wake(&header.bench);
        for index in 0..SLOTS {
            file::wake(&self.slot(index)?.state);
        }
        Ok(())
    }

    /// Before a daemon is started: nothing of its predecessor's counts any more.
    pub fn renew(&self) -> Result<(), Errno> {
        let header = self.header()?;
        header.epoch.fetch_add(1, SeqCst);
        header.daemon.store(0, SeqCst);
        header.unknown.store(0, SeqCst);
        header.pending.store(0, SeqCst);
        for word in [&header.leader, &header.followers, &header.returning] {
            word.store(0, SeqCst);
        }
        header.mount_flags.store(0, SeqCst);
        for index in 0..SLOTS {
            let slot = self.slot(index)?;
            // Clients of the old life give their slots up themselves; nobody does it for these.
            for stuck in [ABANDONED, REPLYING] {
                let _ = slot.state.compare_exchange(stuck, FREE, AcqRel, Relaxed);
            }
        }
        self.set_life(life::STARTING)
    }

    // ---- the daemon's side ----

    /// The next request, into `into`; its length. Waits. `ENODEV` when the daemon
    /// is to end, `EINVAL` if there is no room for it.
    pub fn receive(&self, into: &[UserSlice]) -> Result<usize, Errno> {
        let header = self.header()?;
        header.returning.store(0, SeqCst);
        loop {
            if let Some(index) = self.next(header)? {
                let slot = self.slot(index)?;
                if slot.state.load(Acquire) == REQUEST && slot.epoch.load(Relaxed) != header.epoch.load(SeqCst) {
                    // For our predecessor; its client sees that itself.
                    continue;
                }
                if slot.state.compare_exchange(REQUEST, TAKEN, AcqRel, Acquire).is_err() {
                    // Its client has gone.
                    let _ = slot.state.compare_exchange(ABANDONED, FREE, AcqRel, Relaxed);
                    continue;
                }
                let len = slot.len.load(Acquire) as usize;
                let mut done = 0;
                for part in into {
                    let piece = part.part(0, len - done.min(len));
                    self.region.copy_out(Self::room(index) + done as u64, piece)?;
                    done += piece.len;
                }
                if slot.one_way.load(Relaxed) != 0 {
                    slot.state.store(FREE, Release);
                }
                return if done < len { Err(Errno::EINVAL) } else { Ok(len) };
            }
            if matches!(header.life.load(SeqCst), life::CLOSING | life::DEAD) {
                return Err(Errno::ENODEV);
            }
        }
    }

    /// Takes a pending slot; `None` if it is time to look around.
    fn next(&self, header: &Header) -> Result<Option<u32>, Errno> {
        let take = || {
            let mut seen = header.pending.load(SeqCst);
            while seen != 0 {
                let index = seen.trailing_zeros();
                let before = header.pending.fetch_and(!(1 << index), SeqCst);
                if before & (1 << index) != 0 {
                    return Some(index);
                }
                seen = before & !(1 << index);
            }
            None
        };
        let ends = || matches!(header.life.load(SeqCst), life::CLOSING | life::DEAD);
        if header.leader.compare_exchange(NOBODY, LOOKS, SeqCst, Relaxed).is_err() {
            let rung = header.bench.load(SeqCst);
            header.followers.fetch_add(1, SeqCst);
            let is_needed = header.leader.load(SeqCst) == NOBODY;
            let result = if is_needed || ends() { Ok(()) } else { self.sleep(header, &header.bench, rung) };
            header.followers.fetch_sub(1, SeqCst);
            return result.map(|()| None);
        }
        let mut found = self.patience.spin(take);
        let mut result = Ok(());
        if found.is_none() {
            if header.daemon.load(Relaxed) == 0 {
                header.daemon.store(host::own_pid(), Relaxed);
            }
            let rung = header.bell.load(SeqCst);
            header.leader.store(SLEEPS, SeqCst);
            found = take();
            if found.is_none() && !ends() {
                result = self.sleep(header, &header.bell, rung);
                found = take();
            }
        }
        header.leader.store(NOBODY, SeqCst);
        // Whose clients relied on our looking.
        if header.pending.load(SeqCst) != 0 {
            self.call_follower(header);
        }
        match found {
            Some(index) => Ok(Some(index)),
            None => result.map(|()| None),
        }
    }

    /// `ENODEV` if it was a long sleep, and meanwhile whoever watches over us has gone.
    fn sleep(&self, header: &Header, word: &AtomicU32, value: u32) -> Result<(), Errno> {
        let begun = clock::monotonic();
        file::wait(word, value, LOOK_NS);
        let is_long = clock::monotonic() - begun >= LOOK_NS;
        if is_long && !host::is_alive(header.supervisor.load(Relaxed)) { Err(Errno::ENODEV) } else { Ok(()) }
    }

    /// A reply, in parts; `returns`: by a thread that will ask for the next request when this is done. `ENOENT` if nobody asked (any more), `EINVAL` if it is
    /// not one. What is longer than any reply is cut off as `EIO` at the client.
    pub fn reply(&self, parts: &[UserSlice], returns: bool) -> Result<usize, Errno> {
        let total = UserSlice::total(parts);
        let mut head = [0u8; OUT_HEADER];
        let mut filled = 0;
        for part in parts {
            let piece = part.part(0, OUT_HEADER - filled);
            // Through the region's copies only: the parts are the daemon's.
            gather(piece, &mut head[filled..]);
            filled += piece.len;
        }
        if filled < OUT_HEADER || total > MESSAGE_MAX {
            return Err(Errno::EINVAL);
        }
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        let unique = word(8);
        if unique == 0 {
            // A notification: entries live no longer than the daemon said anyway, but pages do.
            self.header()?.notices.fetch_add(1, AcqRel);
            return Ok(total);
        }
        let index = (unique & 0xff) as u32 >> 1;
        let slot = self.slot(index).map_err(|_| Errno::ENOENT)?;
        if slot.unique.load(Acquire) != unique {
            return Err(Errno::ENOENT);
        }
        if slot.state.compare_exchange(TAKEN, REPLYING, AcqRel, Acquire).is_err() {
            let _ = slot.state.compare_exchange(ABANDONED, FREE, AcqRel, Relaxed);
            return Err(Errno::ENOENT);
        }
        let mut at = Self::room(index);
        for &part in parts {
            self.region.copy_in(at, part)?;
            at += part.len as u64;
        }
        slot.len.store(total as u32, Release);
        if returns {
            self.header()?.returning.store(1, SeqCst);
        }
        slot.state.store(REPLIED, SeqCst);
        if slot.sleeps.load(SeqCst) != 0 {
            file::wake_one(&slot.state);
        }
        Ok(total)
    }
}

/// Copies a program's buffer into one of ours, which is at least as long.
fn gather(from: UserSlice, into: &mut [u8]) {
    pm::user::copy(from, UserSlice::from_mut(into));
}

//! The client's side: a request goes out, its reply is waited for.

use super::*;

impl Ring {
    /// Incarnation of the daemon in which its node ids and handles hold.
    pub fn incarnation(&self) -> u32 {
        self.header().map_or(0, |header| header.incarnation.load(Acquire))
    }

    /// Whether the daemon said that it does not know this operation.
    pub fn is_unknown(&self, operation: u32) -> bool {
        operation < 64 && self.header().is_ok_and(|header| header.unknown.load(Relaxed) & (1 << operation) != 0)
    }

    /// Sends a request and copies what follows the reply's header into `into`;
    /// its length. `ENOTCONN` without a daemon, `ETIMEDOUT`, `EIO` for a reply
    /// that is too long, or the daemon's error. A request for an earlier incarnation is
    /// answered `ENOTCONN`, whatever has been started since.
    pub fn call(&self, cx: &Cx, request: &Request, into: UserSlice) -> Result<usize, Errno> {
        let header = self.header()?;
        let posted = self.begin(cx, request, false, true)?;
        let result = self.finish(&posted, into);
        if result == Err(Errno::ENOSYS) && request.operation < 64 && header.incarnation.load(Acquire) == request.incarnation {
            header.unknown.fetch_or(1 << request.operation, Relaxed);
        }
        result
    }

    /// The first request of a daemon's incarnation, while it is not serving yet.
    pub fn first_call(&self, cx: &Cx, request: &Request, into: UserSlice) -> Result<usize, Errno> {
        let posted = self.begin(cx, request, false, false)?;
        self.finish(&posted, into)
    }

    /// Sends a request whose reply is fetched later ([`Self::fetch`]) or never ([`Self::withdraw`]); `None` if there is nobody
    /// to answer it, or if the slots are wanted for those who wait.
    pub fn post(&self, cx: &Cx, request: &Request) -> Option<Posted> {
        let header = self.header().ok()?;
        if header.daemon_state.load(SeqCst) != daemon_state::SERVING || self.posted() >= POSTED_MAX {
            return None;
        }
        let posted = self.begin(cx, request, false, true).ok()?;
        header.posted.fetch_or(1 << posted.index, Relaxed);
        Some(posted)
    }

    /// The reply to what was posted, as [`Self::call`] gives it.
    pub fn fetch(&self, posted: &Posted, into: UserSlice) -> Result<usize, Errno> {
        self.must_be_ours(posted)?;
        self.not_posted(self.header()?, posted.index);
        self.finish(posted, into)
    }

    /// What was posted is not wanted any more. When this returns the daemon is not at it, unless it has exceeded its time.
    pub fn withdraw(&self, posted: &Posted) {
        let (Ok(header), Ok(slot), Ok(())) = (self.header(), self.slot(posted.index), self.must_be_ours(posted)) else { return };
        self.not_posted(header, posted.index);
        if !slot.step(REQUEST, ABANDONED) && self.wait(slot, posted.unique, posted.incarnation).is_ok() {
            slot.state.store(FREE, Release);
        }
    }

    /// A slot that does not hold what was posted is somebody else's: a process has another one's memory, or the daemon writes
    /// where it pleases.
    fn must_be_ours(&self, posted: &Posted) -> Result<(), Errno> {
        let slot = self.slot(posted.index)?;
        let is_ours = owner(slot.state.load(Acquire)) == own_owner() && slot.unique.load(Relaxed) == posted.unique;
        if is_ours { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Waits for the reply.
    fn finish(&self, posted: &Posted, into: UserSlice) -> Result<usize, Errno> {
        let slot = self.slot(posted.index)?;
        let len = self.wait(slot, posted.unique, posted.incarnation)?;
        let result = self.take_reply(posted.index, len, into);
        slot.state.store(FREE, Release);
        result
    }

    /// A slot is not (any more) one whose reply is fetched later.
    fn not_posted(&self, header: &Header, index: u32) {
        if header.posted.load(Relaxed) & 1 << index != 0 {
            header.posted.fetch_and(!(1 << index), Relaxed);
        }
    }

    /// Sends a request that has no reply.
    pub fn send(&self, cx: &Cx, request: &Request) -> Result<(), Errno> {
        self.begin(cx, request, true, true).map(drop)
    }

    /// Puts a request into a slot.
    pub(super) fn begin(&self, cx: &Cx, request: &Request, one_way: bool, serving: bool) -> Result<Posted, Errno> {
        let header = self.header()?;
        self.bring(self.hint.load(Relaxed) % SLOTS);
        let len = IN_HEADER + request.parts.iter().map(|part| part.len()).sum::<usize>() + request.data.len;
        if len > MESSAGE_MAX {
            return Err(Errno::EIO);
        }
        // What has no answer is not worth waiting for, least of all with the session's lock held.
        if one_way && header.daemon_state.load(SeqCst) != daemon_state::SERVING {
            return Err(Errno::ENOTCONN);
        }
        if serving {
            self.until_serving(header)?;
        }
        // Should it end from here on, `receive` sees that the slot is of another incarnation.
        if header.incarnation.load(SeqCst) != request.incarnation {
            return Err(Errno::ENOTCONN);
        }
        let index = self.claim(header)?;
        // As one that died may have left it.
        self.not_posted(header, index);
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
        let [first, second, third] = request.parts.map(UserSlice::from_ref);
        for part in [UserSlice::from_ref(&head), first, second, third, request.data] {
            if part.len != 0 {
                copied = copied.and(self.region.copy_in(at, part));
                at += part.len as u64;
            }
        }
        if let Err(errno) = copied {
            slot.state.store(FREE, Release);
            return Err(errno);
        }
        slot.unique.store(unique, Relaxed);
        slot.len.store(len as u32, Relaxed);
        slot.one_way.store(u32::from(one_way), Relaxed);
        slot.sleeps.store(0, Relaxed);
        slot.yields.store(self.co_location.place(self.yielding.is_worth_it()), Relaxed);
        slot.incarnation.store(request.incarnation, Relaxed);
        slot.state.store(word(own_owner(), REQUEST), Release);
        header.pending.fetch_or(1 << index, SeqCst);
        self.notify(header);
        Ok(Posted { index, unique, incarnation: request.incarnation })
    }

    /// A daemon that is being started (again) is waited for.
    fn until_serving(&self, header: &Header) -> Result<(), Errno> {
        if header.daemon_state.load(SeqCst) == daemon_state::SERVING {
            return Ok(());
        }
        let begun = clock::monotonic();
        loop {
            match header.daemon_state.load(SeqCst) {
                daemon_state::SERVING => return Ok(()),
                daemon_state::STARTING if host::is_alive_by_mark(header.supervisor.load(Relaxed)) != Some(false) => {
                    if clock::monotonic() - begun > self.timeout_ns(header) {
                        return Err(Errno::ETIMEDOUT);
                    }
                    file::wait(&header.daemon_state, daemon_state::STARTING, NAP_NS);
                }
                _ => return Err(Errno::ENOTCONN),
            }
        }
    }

    fn timeout_ns(&self, header: &Header) -> i64 {
        i64::from(header.timeout_ms.load(Relaxed)).max(1) * 1_000_000
    }

    fn claim(&self, header: &Header) -> Result<u32, Errno> {
        if let Some(index) = self.claim_free()? {
            return Ok(index);
        }
        let begun = clock::monotonic();
        let mut rounds = 0u32;
        loop {
            rounds += 1;
            file::give_way();
            if rounds.is_multiple_of(256) {
                self.reclaim()?;
                if clock::monotonic() - begun > self.timeout_ns(header) {
                    return Err(Errno::ETIMEDOUT);
                }
            }
            if let Some(index) = self.claim_free()? {
                return Ok(index);
            }
        }
    }

    /// Takes a free slot, the last one again if it can be had.
    pub(super) fn claim_free(&self) -> Result<Option<u32>, Errno> {
        let hint = self.hint.load(Relaxed);
        for step in 0..SLOTS {
            let index = hint.wrapping_add(step) % SLOTS;
            let slot = self.slot(index)?;
            let own = word(own_owner(), CLAIMED);
            if slot.state.load(Relaxed) == FREE && slot.state.compare_exchange(FREE, own, AcqRel, Relaxed).is_ok() {
                if step != 0 {
                    self.hint.store(index, Relaxed);
                }
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Frees what dead clients have left, and what dead daemons have.
    pub fn reclaim(&self) -> Result<(), Errno> {
        let header = self.header()?;
        let incarnation = header.incarnation.load(SeqCst);
        for index in 0..SLOTS {
            let slot = self.slot(index)?;
            let state = slot.state.load(Acquire);
            let is_past = slot.is_past(incarnation);
            if state == FREE || slot.free_left(incarnation) || host::is_alive_by_bits(owner(state), OWNER_BITS) != Some(false) {
                continue;
            }
            let next = match stage(state) {
                CLAIMED | REPLIED => FREE,
                _ if is_past => FREE,
                // The daemon gets it all the same: it would keep a node or a handle for ever.
                REQUEST if slot.one_way.load(Relaxed) != 0 => state,
                REQUEST | TAKEN => word(owner(state), ABANDONED),
                _ => continue,
            };
            if stage(state) == REQUEST {
                // The daemon is to take or free it: its client may have died before it told him. Told first, as we may die too.
                header.pending.fetch_or(1 << index, SeqCst);
            }
            let _ = slot.state.compare_exchange(state, next, AcqRel, Relaxed);
            if stage(state) == REQUEST {
                self.notify(header);
            }
        }
        Ok(())
    }

    /// Waits for the reply; its length. On failure the slot is given up.
    fn wait(&self, slot: &Slot, unique: u64, incarnation: u32) -> Result<usize, Errno> {
        let header = self.header()?;
        let replied = || {
            let said = slot.answered.load(Acquire);
            let len = said as u32 as usize;
            (said == answered(unique, len)).then_some(len)
        };
        if let Some(len) = self.spin.spin(replied) {
            return Ok(len);
        }
        if let Some(len) = self.yielding.yield_until(true, replied) {
            self.co_location.answered();
            return Ok(len);
        }
        if header.leaving.load(Relaxed) != 0
            && let Some(len) = co_location::stay_awake(replied)
        {
            self.spin.begin_anew();
            return Ok(len);
        }
        let begun = clock::monotonic();
        slot.slept_at.store(co_location::here(), Relaxed);
        let mut untaken_ns = UNTAKEN_NS;
        loop {
            slot.sleeps.store(1, SeqCst);
            let state = slot.state.load(SeqCst);
            if stage(state) == REPLIED {
                return Ok(slot.len.load(Acquire) as usize);
            }
            let daemon_is = header.daemon_state.load(SeqCst);
            let daemon = header.daemon.load(Relaxed);
            let gone = matches!(daemon_is, daemon_state::DEAD | daemon_state::CLOSING)
                || header.incarnation.load(Acquire) != incarnation;
            let now = clock::monotonic();
            if !gone && now - begun <= self.timeout_ns(header) {
                let nap_ns = if stage(state) == REQUEST { untaken_ns } else { NAP_NS };
                file::wait(&slot.state, state, nap_ns);
                if stage(slot.state.load(SeqCst)) == REQUEST && untaken_ns < NAP_NS {
                    self.alarm(header);
                    untaken_ns *= 2;
                }
                // Should the supervisor not see it.
                if clock::monotonic() - now < NAP_NS || daemon == 0 || host::is_alive_by_mark(daemon) != Some(false) {
                    continue;
                }
            }
            let errno = if gone || now - begun <= self.timeout_ns(header) { Errno::ENOTCONN } else { Errno::ETIMEDOUT };
            return self.give_up(header, slot, incarnation, errno);
        }
    }

    /// Leaves a request to itself. It may have been answered meanwhile.
    fn give_up(&self, header: &Header, slot: &Slot, incarnation: u32, errno: Errno) -> Result<usize, Errno> {
        loop {
            let state = slot.state.load(SeqCst);
            let next = match stage(state) {
                REPLIED => return Ok(slot.len.load(Acquire) as usize),
                // A daemon that lives may go on copying whenever it likes; it is not waited for.
                REPLYING if errno == Errno::ETIMEDOUT && header.incarnation.load(Acquire) == incarnation => {
                    word(owner(state), LEFT)
                }
                REPLYING => FREE,
                _ if errno == Errno::ENOTCONN => FREE,
                _ => word(owner(state), ABANDONED),
            };
            if slot.state.compare_exchange(state, next, AcqRel, Relaxed).is_ok() {
                return Err(errno);
            }
        }
    }

    fn take_reply(&self, index: u32, len: usize, into: UserSlice) -> Result<usize, Errno> {
        if !(OUT_HEADER..=MESSAGE_MAX).contains(&len) {
            return Err(Errno::EIO);
        }
        let place = Self::room(index);
        let mut head = [0u8; OUT_HEADER];
        self.region.copy_out(place, UserSlice::from_mut(&mut head))?;
        let error = i32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
        let payload = len - OUT_HEADER;
        match error {
            0 if payload > into.len => Err(Errno::EIO),
            0 => {
                self.region.copy_out(place + OUT_HEADER as u64, into.part(0, payload))?;
                Ok(payload)
            }
            -511..=-1 => Err(Errno(-error)),
            _ => Err(Errno::EIO),
        }
    }
}

//! Whose cache an image is.

use crate::fs::{Fs, corrupt};
use base::{Cx, Result};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use format::cache::{PLACE, State};
use format::layout::{BLOCK, ROOT};
use format::{Root, lane};
use pm::Errno;

/// One more directory that a round has made, and one more round, in the word of news. They wrap, and carry into one another,
/// which is harmless: they are only compared with what they were.
const MADE: u64 = 1 << 32;
const ROUND: u64 = 1 << 48;

/// Counters that rise when there is something to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// Directories that were brought.
    pub brought: u32,
    /// Directories that rounds have made below.
    pub made: u16,
    /// Rounds that are over.
    pub rounds: u16,
}

/// Longest text of a place.
pub const PLACE_MAX: usize = PLACE - 1;

/// What a lower file system is known again by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Of what sort it is, as whoever mounts it numbers them; never 0.
    pub kind: u64,
    /// Device and inode number of its root.
    pub root: [u64; 2],
    /// What its file system is known by whatever number its device has; 0: nothing.
    pub own: u64,
    /// Where it is, and how many bytes that has.
    pub place: ([u8; PLACE_MAX], usize),
}

impl Identity {
    /// Of sort `kind`, with this root, at this place; `None` if that has too long a name.
    pub fn new(kind: u64, root: [u64; 2], place: &[u8]) -> Option<Identity> {
        let mut text = [0; PLACE_MAX];
        text.get_mut(..place.len())?.copy_from_slice(place);
        Some(Identity { kind, root, own: 0, place: (text, place.len()) })
    }

    /// The same with what its file system is known by.
    pub fn with_own(self, own: u64) -> Identity {
        Identity { own, ..self }
    }

    /// Whether that is the same lower file system. Where both know what it is known by, the device's number may be another.
    pub fn is_same(&self, now: &Identity) -> bool {
        let is_one = match (self.own, now.own) {
            (0, _) | (_, 0) => self.root[0] == now.root[0],
            (known, own) => known == own,
        };
        is_one && (self.kind, self.root[1], self.place()) == (now.kind, now.root[1], now.place())
    }

    /// Where it is.
    pub fn place(&self) -> &[u8] {
        &self.place.0[..self.place.1]
    }
}

impl Fs {
    pub(super) fn cache_state(&self) -> Result<&State> {
        match self.root().cache.load(Acquire) {
            0 => Err(Errno::ENODATA.into()),
            at => self.at(at, "state of a cache"),
        }
    }

    /// Rises with every directory that is brought.
    pub fn brought(&self) -> u64 {
        self.news().brought.into()
    }

    /// What there is to look at for the process that watches the lower file system.
    pub fn news(&self) -> News {
        let word = self.cache_state().map_or(0, |state| state.brought.load(Acquire));
        News { brought: word as u32, made: (word / MADE) as u16, rounds: (word / ROUND) as u16 }
    }

    /// A directory has been brought.
    pub fn count_brought(&self) {
        self.count_news(1);
    }

    /// A round of writing back is over, also one that failed: names and files may have become clean.
    pub fn count_round_over(&self) {
        self.count_news(ROUND);
    }

    /// A round has made a directory below.
    pub(super) fn count_made(&self) {
        self.count_news(MADE);
    }

    fn count_news(&self, more: u64) {
        if let Ok(state) = self.cache_state() {
            state.brought.fetch_add(more, AcqRel);
        }
    }

    /// Whether process `pid` keeps the cache fresh, or becomes the one that does, since no other lives that did.
    pub fn serve_cache(&self, pid: u32) -> bool {
        let Ok(state) = self.cache_state() else { return false };
        let holder = state.server.load(Acquire);
        let is_free = holder == u64::from(pid) || !self.keeps_cache(holder);
        is_free && state.server.compare_exchange(holder, pid.into(), AcqRel, Relaxed).is_ok()
    }

    /// Whether a process is there to keep it fresh.
    fn keeps_cache(&self, holder: u64) -> bool {
        let pid = holder as u32;
        self.users().any(|user| u64::from(user) == holder) && pm::host::is_alive(pid) && !pm::life::is_ending(pid)
    }

    /// Whether the process that keeps it fresh is there.
    pub fn is_cache_kept(&self) -> bool {
        self.keeps_cache(self.cache_keeper())
    }

    /// The process that keeps it fresh, as far as it is known; 0: none.
    pub fn cache_keeper(&self) -> u64 {
        self.cache_state().map_or(0, |state| state.server.load(Acquire))
    }

    /// Process `pid` keeps it fresh no longer.
    pub fn end_cache_service(&self, pid: u32) {
        if let Ok(state) = self.cache_state() {
            let _ = state.server.compare_exchange(pid.into(), 0, AcqRel, Relaxed);
        }
    }

    /// Whose cache it is; `ENODATA` if it is none, or none yet.
    pub fn cache_of(&self) -> Result<Identity> {
        let state = self.cache_state()?;
        let mut place = [0; PLACE];
        for (bytes, word) in place.chunks_mut(8).zip(&state.place) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        let len = place.iter().position(|&byte| byte == 0).ok_or(corrupt("place of a lower file system", 0))?;
        let root = [&state.root[0], &state.root[1]].map(|word| word.load(Relaxed));
        let identity = Identity::new(state.kind.load(Relaxed), root, &place[..len]).ok_or(Errno::ENAMETOOLONG)?;
        Ok(identity.with_own(state.identity[0].load(Relaxed)))
    }

    /// The number that the device of the lower file system had when this became its cache, by which files are known, and
    /// what that file system is known by.
    pub fn file_system_below(&self) -> Result<(u64, u64)> {
        let state = self.cache_state()?;
        Ok((state.root[0].load(Relaxed), state.identity[0].load(Relaxed)))
    }

    /// Notes what the lower file system is known by, where that was not known.
    pub fn note_own_identity(&self, own: u64) -> Result<()> {
        let state = self.cache_state()?;
        self.image.store(&state.identity[0], own);
        self.image.flush(self.image.offset_of(&state.identity[0]), 8);
        self.image.fence();
        Ok(())
    }

    /// Makes an image that is to be a cache that of a lower file system. `EEXIST` if it is one's.
    pub fn become_cache(&self, cx: &Cx, identity: &Identity) -> Result<()> {
        let mut tx = self.begin(cx, lane::Kind::Create)?;
        // One at a time: whoever holds the root directory.
        self.lock_node(&mut tx, cx, self.root_node())?;
        if self.root().cache.load(Acquire) != 0 {
            return Err(Errno::EEXIST.into());
        }
        let (block, _) = tx.blocks(1, 0)?;
        let at = block * BLOCK;
        self.present(at, BLOCK)?;
        self.image.zero(at, BLOCK)?;
        let state: &State = self.at(at, "state of a cache")?;
        self.image.store(&state.kind, identity.kind);
        for (word, value) in state.root.iter().zip(identity.root) {
            self.image.store(word, value);
        }
        self.image.store(&state.identity[0], identity.own);
        for (word, bytes) in state.place.iter().zip(identity.place().chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            self.image.store(word, u64::from_le_bytes(padded));
        }
        self.image.flush(at, BLOCK);
        tx.order();
        tx.set(ROOT + offset_of!(Root, cache) as u64, at)?;
        tx.commit()
    }
}

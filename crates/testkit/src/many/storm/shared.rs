//! What all workers change at once.
//!
//! - *Tokens*: files that are moved about among names and never made or
//!   removed; in the end each is there, once, with its own contents.
//! - *The log*: records appended by everybody; of each life, those that were
//!   acknowledged are there in order, and at most one more.
//! - *Anything*: every kind of call on the same few names; any of the results
//!   that POSIX gives for them is right, and the checker looks at what is left.

use super::board::LIVES;
use super::calls::Worker;
use crate::rng::Rng;
use pm::sys::abi as nr;
use std::sync::atomic::Ordering::SeqCst;

/// Files that are moved about, and the names they may have.
const TOKENS: u64 = 24;
const TOKEN_NAMES: u64 = 64;
const RECORD: usize = 32;
/// Names that everything happens to.
const ANY: u64 = 40;
/// Descriptors that a worker keeps open.
pub const KEPT: usize = 6;

fn token_path(number: u64) -> String {
    format!("/t{}/x{}", number % 2, number / 2)
}

fn record(life: u32, number: u32) -> [u8; RECORD] {
    let words = [u64::from(life) << 32 | u64::from(number), u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15), 1, 2];
    let mut record = [0; RECORD];
    for (part, word) in record.chunks_mut(8).zip(words) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    record
}

/// What a worker keeps between calls.
pub struct Kept {
    pub life: u32,
    pub log: isize,
    pub open: [isize; KEPT],
}

impl Worker {
    /// Makes the directories and tokens, before the storm.
    pub fn prepare(&self) -> Result<(), String> {
        let directories = ["/both", "/t0", "/t1", "/any", "/any/d"].map(String::from);
        let own = (0..super::board::SEATS).map(|seat| format!("/own{seat}"));
        for path in directories.into_iter().chain(own) {
            super::super::expect(self.mkdir(&path), || format!("mkdir {path}"))?;
        }
        super::super::expect(self.create("/log"), || "create /log".into())?;
        for token in 0..TOKENS {
            let fd = self.open(&token_path(token), libc::O_CREAT | libc::O_WRONLY);
            super::super::expect(fd, || format!("token {token}"))?;
            super::super::expect(self.write(fd, &token.to_ne_bytes()), || format!("token {token}"))?;
            self.close(fd);
        }
        Ok(())
    }

    /// Whether every token is there, once.
    pub fn all_tokens(&self) -> Result<(), String> {
        let mut places: Vec<Vec<String>> = vec![Vec::new(); TOKENS as usize];
        for path in (0..TOKEN_NAMES).map(token_path) {
            match self.read_all(&path) {
                Err(-2) => {}
                Ok(data) => match data.try_into().map(u64::from_ne_bytes) {
                    Ok(token @ 0..TOKENS) => places[token as usize].push(path),
                    other => return Err(format!("{path}: {other:?}")),
                },
                Err(error) => return Err(format!("{path}: error {error}")),
            }
        }
        match places.iter().enumerate().find(|(_, places)| places.len() != 1) {
            Some((token, places)) => Err(format!("token {token} is at {places:?}")),
            None => Ok(()),
        }
    }

    /// Whether the log holds what was acknowledged; how many records it has.
    pub fn whole_log(&self) -> Result<u64, String> {
        let data = self.read_all("/log").map_err(|error| format!("the log: error {error}"))?;
        let mut next = vec![0u32; LIVES];
        for (at, bytes) in data.chunks(RECORD).enumerate() {
            let head = bytes.first_chunk::<8>().map_or(u64::MAX, |word| u64::from_ne_bytes(*word));
            let (life, number) = ((head >> 32) as u32, head as u32);
            let Some(slot) = next.get_mut(life as usize).filter(|slot| **slot == number && bytes == record(life, number)) else {
                return Err(format!("the log: record {at} is torn or out of order: {bytes:02x?}"));
            };
            *slot += 1;
        }
        for (life, found) in next.iter().enumerate() {
            let acknowledged = self.board.logged[life].load(SeqCst);
            if *found != acknowledged && *found != acknowledged + 1 {
                return Err(format!("the log: {found} records of life {life}, {acknowledged} acknowledged"));
            }
        }
        Ok((data.len() / RECORD) as u64)
    }

    /// One call at random on what all share.
    pub fn shared_step(&self, rng: &mut Rng, kept: &mut Kept) -> Result<(), String> {
        match rng.below(12) {
            0 => {
                let logged = &self.board.logged[kept.life as usize % LIVES];
                let record = record(kept.life, logged.load(SeqCst));
                let written = self.seat().timed(self.board, || self.write(kept.log, &record));
                if written != RECORD as isize {
                    return Err(format!("append to the log: {written}"));
                }
                logged.fetch_add(1, SeqCst);
                Ok(())
            }
            1..4 => {
                let (from, to) = (token_path(rng.below(TOKEN_NAMES)), token_path(rng.below(TOKEN_NAMES)));
                let flags = rng.pick(&[libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE]);
                let result = self.seat().timed(self.board, || self.rename(&from, &to, flags));
                allowed("moving a token", result, &[libc::ENOENT, libc::EEXIST])
            }
            _ => self.any_step(rng, kept),
        }
    }

    fn any_step(&self, rng: &mut Rng, kept: &mut Kept) -> Result<(), String> {
        let mut path = || match rng.below(ANY) {
            name @ 0..30 => format!("/any/n{name}"),
            name => format!("/any/d/n{}", name - 20),
        };
        let (a, b) = (path(), path());
        let slot = &mut kept.open[rng.below(KEPT as u64) as usize];
        let (what, draw) = (rng.below(19), rng.below(60_000));
        let result = self.seat().timed(self.board, || match what {
            0 | 1 => self.create(&a),
            2 => self.mkdir(&a),
            3 => self.symlink(&b, &a),
            4 => self.link(&a, &b),
            5 | 6 => self.unlink(&a, 0),
            7 => self.unlink(&a, libc::AT_REMOVEDIR),
            8 => self.rename(&a, &b, 0),
            9 => self.rename(&a, &b, libc::RENAME_EXCHANGE),
            10 => self.truncate(&a, draw),
            11 => self.chmod(&a, 0o600 | draw as u32 & 0o177),
            12 => self.set_xattr(&a, draw),
            13 => {
                let old = std::mem::replace(slot, self.open(&a, libc::O_RDWR));
                if old >= 0 { self.close(old) } else { (*slot).min(0) }
            }
            14 => self.write(*slot, &[7; 9000][..1 + draw as usize % 9000]),
            15 => self.raw(nr::__NR_fallocate, [*slot as usize, draw as usize % 4, draw as usize, 5000, 0, 0]),
            16 => self.raw(nr::__NR_flock, [*slot as usize, [1, 2, 8][draw as usize % 3] | 4, 0, 0, 0, 0]),
            17 => self.read_all(&a).map_or_else(|error| error, |data| data.len() as isize),
            _ => self.stat(&a).map_or_else(|error| error, |_| 0),
        });
        let fine = [
            libc::ENOENT,
            libc::EEXIST,
            libc::ENOTDIR,
            libc::EISDIR,
            libc::ENOTEMPTY,
            libc::ELOOP,
            libc::EINVAL,
            libc::EPERM,
            libc::EBADF,
            libc::EAGAIN,
            libc::EBUSY,
            libc::EOPNOTSUPP,
            -crate::world::NOBODYS as i32,
        ];
        allowed(&format!("call {what} on {a} and {b}"), result, &fine)
    }
}

fn allowed(what: &str, result: isize, errors: &[i32]) -> Result<(), String> {
    if result >= 0 || errors.iter().any(|error| result == -(*error as isize)) {
        return Ok(());
    }
    Err(format!("{what}: {}", crate::differential::compare::error(result)))
}

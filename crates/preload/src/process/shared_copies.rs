//! One copy of a library or program for all programs of a session.
//!
//! The kernel can map our files by a copy only. `bypath run` keeps copies (`mounts/copies.rs` of the command): whoever needs
//! one asks it by a socket in the session's directory, and whoever has made one offers it. So 8 programs that load a library
//! have its pages once.
//!
//! - What is handed over is sealed: nobody changes it any more.
//! - It is known by the file's identity, length and times to the nanosecond, so a library that is built anew is another one.
//!   What was changed just now is not offered: times go on in steps of the clock, within which it may change again.
//! - A copy is taken from root or from this user only, and the keeper gives it on to the same ones.
//! - Nobody waits long for the keeper. Where it does not answer (stopped, killed, out of sight), each program has its own copy.

use crate::runtime::kernel::Who;
use crate::runtime::{kernel, placeholders, session};
use crate::serve;
use core::mem::MaybeUninit;
use pm::handover;
use pm::sys::abi::*;

/// What follows the session's directory in the socket's path.
const NAME: &[u8] = b"/copies";
const SEALS: u32 = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
/// How old a change must be, nanoseconds.
const SETTLED: i64 = 100_000_000;
const AF_UNIX: u16 = 1;
const SOCK_SEQPACKET: usize = 5;
const SOL_SOCKET: usize = 1;
const SO_PEERCRED: usize = 17;
const SO_RCVTIMEO: usize = 20;
const SO_SNDTIMEO: usize = 21;
/// How long is waited for the keeper, microseconds.
const PATIENCE: i64 = 200_000;
/// The first byte of what is asked, and of an answer that has a copy.
const ASK: u8 = b'?';
const OFFER: u8 = b'!';
const GIVEN: u8 = b'g';

const WORDS: usize = 7;
const TEXT_AT: usize = 8 + 8 * WORDS;
const TEXT_MAX: usize = 255;

/// What a copy is made for.
#[derive(Clone, Copy)]
pub enum Use {
    /// A library that is opened.
    Opened = 1,
    /// A library that others need, which has a name put into it where it had none.
    Needed = 2,
    /// A program.
    Program = 3,
}

/// A file that is to be copied, as the keeper knows it.
pub struct Wanted {
    file: i32,
    bytes: [u8; TEXT_AT + TEXT_MAX],
    len: usize,
}

impl Wanted {
    /// `file` of ours, of which a copy is to be called `name`; `None` where copies are not shared.
    pub fn of(file: i32, purpose: Use, name: &[u8]) -> Option<Wanted> {
        session::place()?;
        let words = words_of(file)?;
        let changed = (words[5] as i64).saturating_mul(1_000_000_000).saturating_add(words[6] as i64);
        if name.len() > TEXT_MAX || pm::clock::now().saturating_sub(changed) < SETTLED {
            return None;
        }
        let mut bytes = [0; TEXT_AT + TEXT_MAX];
        bytes[1] = purpose as u8;
        for (at, word) in bytes[8..TEXT_AT].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes[TEXT_AT..TEXT_AT + name.len()].copy_from_slice(name);
        Some(Wanted { file, bytes, len: TEXT_AT + name.len() })
    }

    /// The session's copy, if it has one.
    pub fn ask(&mut self) -> Option<i32> {
        let (answer, copy) = self.say(ASK, None)?;
        if answer == GIVEN { copy } else { drop_copy(copy) }
    }

    /// Seals `copy`, which has just been made, and gives it to the session; the one to use, which may be one that another
    /// program has made meanwhile.
    pub fn offer(mut self, copy: i32) -> i32 {
        // SAFETY: no pointers.
        let sealed = unsafe { pm::call!(__NR_fcntl, copy, F_ADD_SEALS, SEALS) };
        let mut before = [0u64; WORDS];
        for (word, bytes) in before.iter_mut().zip(self.bytes[8..TEXT_AT].chunks_exact(8)) {
            *word = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        }
        // Changed while it was copied: it is of no version.
        if sealed.is_err() || words_of(self.file) != Some(before) {
            return copy;
        }
        match self.say(OFFER, Some(copy)) {
            Some((GIVEN, Some(other))) => {
                kernel::close(copy);
                other
            }
            Some((_, other)) => {
                drop_copy(other);
                copy
            }
            None => copy,
        }
    }

    /// One question and its answer: the first byte, and a descriptor.
    fn say(&mut self, what: u8, copy: Option<i32>) -> Option<(u8, Option<i32>)> {
        let socket = connected()?;
        self.bytes[0] = what;
        let mut answer = [0u8; 8];
        let answered = handover::send_text(socket, &self.bytes[..self.len], copy).and_then(|()| {
            placeholders::flush();
            handover::receive(socket, &mut answer)
        });
        kernel::close(socket);
        answered.ok().filter(|(len, _)| *len > 0).map(|(_, copy)| (answer[0], copy))
    }
}

fn drop_copy(copy: Option<i32>) -> Option<i32> {
    if let Some(copy) = copy {
        kernel::close(copy);
    }
    None
}

/// Device, inode, length, time of change of contents and of anything; of a regular file.
fn words_of(file: i32) -> Option<[u64; WORDS]> {
    let mut stat = MaybeUninit::<stat>::zeroed();
    // SAFETY: room for the answer.
    let result = unsafe { serve!(__NR_fstat, file, stat.as_mut_ptr()) };
    // SAFETY: zeroed, and filled if it succeeded.
    let stat = unsafe { stat.assume_init() };
    (result == 0 && stat.st_mode & S_IFMT == S_IFREG).then_some([
        stat.st_dev,
        stat.st_ino,
        stat.st_size as u64,
        stat.st_mtime as u64,
        stat.st_mtime_nsec as u64,
        stat.st_ctime as u64,
        stat.st_ctime_nsec as u64,
    ])
}

/// A socket to the keeper, if it is root's or this user's.
fn connected() -> Option<i32> {
    let place = session::place()?.as_bytes();
    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
    address[2..109].get_mut(..place.len())?.copy_from_slice(place);
    address[2 + place.len()..109].get_mut(..NAME.len())?.copy_from_slice(NAME);
    let kind = SOCK_SEQPACKET | O_CLOEXEC as usize;
    // SAFETY: no pointers.
    let socket = i32::try_from(unsafe { placeholders::creating(__NR_socket, [AF_UNIX as usize, kind, 0, 0, 0, 0]) }).ok()?;
    if socket < 0 {
        return None;
    }
    let patience = [0i64, PATIENCE];
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
        // SAFETY: a `struct timeval`.
        let _ = unsafe { pm::call!(__NR_setsockopt, socket, SOL_SOCKET, option, patience.as_ptr(), size_of_val(&patience)) };
    }
    // SAFETY: an address of that length.
    let connected = unsafe { pm::call!(__NR_connect, socket, address.as_ptr(), 2 + place.len() + NAME.len() + 1) };
    if connected.is_ok() && is_trusted(socket) {
        return Some(socket);
    }
    kernel::close(socket);
    None
}

/// Whether root or this user is behind a socket.
fn is_trusted(socket: i32) -> bool {
    // `struct ucred`: process, user, group.
    let mut peer = [u32::MAX; 3];
    let mut len = size_of_val(&peer) as u32;
    // SAFETY: room for the answer, and its length.
    let told = unsafe { pm::call!(__NR_getsockopt, socket, SOL_SOCKET, SO_PEERCRED, peer.as_mut_ptr(), &raw mut len) };
    told.is_ok() && (peer[1] == 0 || peer[1] == kernel::own(Who::EffectiveUser))
}

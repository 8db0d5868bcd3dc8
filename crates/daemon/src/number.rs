//! Which descriptors stand for the ring.

use super::{LIFE, RING};
use fuse_client::ring::Ring;
use pm::Errno;
use pm::sys::abi;
use std::sync::atomic::{AtomicU64, Ordering::*};

const WORDS: usize = 1024;
static NUMBERS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

fn word(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((NUMBERS.get(fd / 64)?, 1 << (fd % 64)))
}

/// The ring, if `fd` stands for it.
#[inline]
pub fn ring(fd: i32) -> Option<&'static Ring> {
    let (word, bit) = word(fd)?;
    if word.load(Relaxed) & bit == 0 { None } else { RING.get() }
}

/// A new descriptor for the ring.
pub fn open(close_on_exec: bool) -> Result<i32, Errno> {
    let how = if close_on_exec { abi::F_DUPFD_CLOEXEC } else { abi::F_DUPFD };
    // SAFETY: no pointers.
    let fd = unsafe { pm::call!(abi::__NR_fcntl, LIFE.load(Acquire), how, 3) }? as i32;
    let (word, bit) = word(fd).ok_or(Errno::EMFILE)?;
    word.fetch_or(bit, AcqRel);
    Ok(fd)
}

/// `fd` is being closed.
pub fn closed(fd: i32) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_and(!bit, AcqRel);
    }
}

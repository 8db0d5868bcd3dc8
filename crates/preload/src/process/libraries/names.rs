//! Names by which the loader knows copies, so that it takes what is one file for one library.
//!
//! The loader compares names first, and keeps them for as long as a library is there; the number of a descriptor is
//! another file's by then. So a name has both, the file's [`Key`] bit by bit (`./` and `/`) and the number of the copy's
//! descriptor: `/proc/self/fd/././/./…/7`. What a new program is given before it starts ([`inherit`]) has the same names.

use crate::runtime::{alloc, kernel};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// Where the loader finds a descriptor.
const LINK: &[u8] = b"/proc/self/fd/";
/// How the name of a copy begins.
pub const PREFIX: &[u8] = b"/proc/self/fd/./";
/// Room for a name, with its NUL.
pub const NAME_MAX: usize = 112;
/// As much of a file's identity as names have.
const KEY_BITS: u32 = 40;

/// Which file, in [`KEY_BITS`] bits: of its device, inode, and when it was written, since an inode's number is another
/// file's when it is removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// Of these numbers.
    pub fn of(numbers: [u64; 4]) -> Key {
        // The multiplier of the generators of L'Ecuyer 1999, table 4.
        let mixed = numbers.into_iter().fold(0u64, |mixed, number| {
            let mixed = (mixed ^ number).wrapping_mul(3_935_559_000_370_003_845);
            mixed ^ mixed >> 29
        });
        Key(mixed >> (u64::BITS - KEY_BITS))
    }
}

/// A NUL-terminated name.
pub type Name = [u8; NAME_MAX];

struct Known {
    next: *mut Known,
    key: Key,
    name: Name,
    /// The copy's descriptor, while anybody opens it.
    copy: i32,
    users: u32,
}

// Read and changed under the allocator's lock, which a fork takes care of.
static FIRST: AtomicPtr<Known> = AtomicPtr::new(core::ptr::null_mut());

/// The name of the copy of `key`, as it was opened last.
pub fn known(key: Key) -> Option<Name> {
    locked(key, |known| known.map(|known| known.name))
}

/// Somebody opens `copy`, which is closed by [`leave`]. If another thread opens the same file at this moment, `copy` is
/// closed, and the name is of that one's. `None`: no memory; the descriptor stays the caller's.
pub fn enter(key: Key, copy: i32) -> Option<Name> {
    let mut fresh = Some(Fresh::new()?);
    let name = name_of(key, copy);
    let mut other = -1;
    let name = locked(key, |known| match known {
        Some(known) if known.users > 0 => {
            known.users += 1;
            other = copy;
            known.name
        }
        Some(known) => {
            (known.name, known.copy, known.users) = (name, copy, 1);
            name
        }
        None => {
            publish(&mut fresh, Known { next: FIRST.load(Relaxed), key, name, copy, users: 1 });
            name
        }
    });
    close(other);
    Some(name)
}

/// Whoever entered has opened it, or failed to.
pub fn leave(key: Key) {
    let copy = locked(key, |known| {
        let known = known?;
        known.users -= 1;
        (known.users == 0).then(|| core::mem::replace(&mut known.copy, -1))
    });
    close(copy.unwrap_or(-1));
}

/// The loader has opened what `name` leads to before we were there: keeps the name, and closes the copy.
pub fn inherit(text: &[u8]) {
    let (Some((key, copy)), mut fresh) = (parsed(text), Fresh::new()) else { return };
    let name = name_of(key, copy);
    locked(key, |known| {
        if known.is_none() {
            publish(&mut fresh, Known { next: FIRST.load(Relaxed), key, name, copy: -1, users: 0 });
        }
    });
    close(copy);
}

/// Room for an entry; given back unless it is published.
struct Fresh(*mut Known);

impl Fresh {
    fn new() -> Option<Fresh> {
        let room = alloc::alloc(size_of::<Known>()).cast::<Known>();
        (!room.is_null()).then_some(Fresh(room))
    }
}

/// Puts an entry into the list. The lock is held: nothing may be given back to the allocator.
fn publish(fresh: &mut Option<Fresh>, known: Known) {
    if let Some(fresh) = fresh.take() {
        // SAFETY: a block of that size, ours alone until now.
        unsafe { fresh.0.write(known) };
        FIRST.store(fresh.0, Relaxed);
        core::mem::forget(fresh);
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: ours, and not used.
        unsafe { alloc::free(self.0.cast()) };
    }
}

fn close(copy: i32) {
    if copy >= 0 {
        kernel::close(copy);
    }
}

fn locked<R>(key: Key, run: impl FnOnce(Option<&mut Known>) -> R) -> R {
    alloc::lock();
    let mut at = FIRST.load(Relaxed);
    // SAFETY: entries are published whole and never freed; the lock is held.
    while let Some(known) = unsafe { at.as_mut() } {
        if known.key == key {
            break;
        }
        at = known.next;
    }
    // SAFETY: as above.
    let result = run(unsafe { at.as_mut() });
    alloc::unlock();
    result
}

/// The name of a copy.
pub fn name_of(key: Key, copy: i32) -> Name {
    let mut name = [0; NAME_MAX];
    let mut len = 0;
    let mut push = |part: &[u8]| {
        name[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    };
    push(PREFIX);
    (0..KEY_BITS).for_each(|bit| push(if key.0 >> bit & 1 == 0 { b"/" } else { b"./" }));
    let mut link = [0; 32];
    posix::proc_fd(copy.unsigned_abs(), &mut link);
    push(link[LINK.len()..].split(|&byte| byte == 0).next().unwrap_or(b""));
    name
}

/// File and descriptor of a name.
fn parsed(text: &[u8]) -> Option<(Key, i32)> {
    let mut rest = text.strip_prefix(PREFIX)?;
    let mut key = 0;
    for bit in 0..KEY_BITS {
        if let Some(behind) = rest.strip_prefix(b"./") {
            key |= 1 << bit;
            rest = behind;
        } else {
            rest = rest.strip_prefix(b"/")?;
        }
    }
    let copy = rest.iter().try_fold(0i32, |number, digit| {
        let digit = digit.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })?;
    (!rest.is_empty()).then_some((Key(key), copy))
}

//! Which thread of ours has a thread pointer in its register, where no other register tells: a table, without locks.
//!
//! A slot is a key, which is a base of `fs`, and a value, our base for the thread that has it. Who looks may be a signal handler, in
//! any thread at any moment, so nobody waits: a slot is taken by its value, and read by that first.
//!
//! Invariants
//! - A key is set and removed by the thread whose base it is, before that is in the register and after.
//! - A chain ends at a slot that never had a value; one that has lost it is passed, and may be taken again.

use core::sync::atomic::{AtomicUsize, Ordering::*};
use pm::sys::{self, abi::__NR_exit_group};

/// Threads: half of it, as each has two keys.
const SLOTS: usize = 1 << 14;
/// Values that are none: never had one; somebody is writing the key; it has gone.
const EMPTY: usize = 0;
const TAKEN: usize = 1;
const GONE: usize = 2;
/// Spreads addresses, whose lowest bits are the same.
const SPREAD: u32 = 0x9e37_79b1;
const SHIFT: u32 = 32 - SLOTS.ilog2();
/// The exit code of a shell that can't go on with a program.
const NO_ROOM: usize = 126;

#[repr(C)]
struct Slot {
    key: AtomicUsize,
    value: AtomicUsize,
}

static TABLE: [Slot; SLOTS] = [const { Slot { key: AtomicUsize::new(0), value: AtomicUsize::new(EMPTY) } }; SLOTS];

fn first(key: usize) -> usize {
    (((key >> 4) as u32).wrapping_mul(SPREAD) >> SHIFT) as usize
}

/// The slots of a key's chain.
fn chain(key: usize) -> impl Iterator<Item = &'static Slot> {
    (0..SLOTS).map(move |step| &TABLE[(first(key) + step) % SLOTS])
}

/// The slot that has a key.
fn find(key: usize) -> Option<&'static Slot> {
    let mut known = chain(key).map(|slot| (slot, slot.value.load(Acquire))).take_while(|(_, value)| *value != EMPTY);
    known.find(|(slot, value)| *value > GONE && slot.key.load(Relaxed) == key).map(|(slot, _)| slot)
}

/// The thread with this base is that one of ours.
pub fn set(key: usize, own: usize) {
    if let Some(slot) = find(key) {
        return slot.value.store(own, Release);
    }
    for slot in chain(key) {
        let value = slot.value.load(Relaxed);
        if matches!(value, EMPTY | GONE) && slot.value.compare_exchange(value, TAKEN, Acquire, Relaxed).is_ok() {
            slot.key.store(key, Relaxed);
            return slot.value.store(own, Release);
        }
    }
    crate::complain!("this program has more than {} threads, which cannot be told apart here: it ends", SLOTS / 2);
    loop {
        // SAFETY: ends this process.
        unsafe { sys::raw(__NR_exit_group as usize, [NO_ROOM, 0, 0, 0, 0, 0]) };
    }
}

/// No thread has this base any more; not if it is another's by now.
pub fn remove(key: usize, own: usize) {
    if let Some(slot) = find(key) {
        let _ = slot.value.compare_exchange(own, GONE, Release, Relaxed);
    }
}

// `bypath_own_base`: rcx becomes the value of the key in rax, or that key where there is none. All other registers stay.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.bypath_own_base, \"ax\", @progbits",
    ".balign 16",
    ".globl bypath_own_base",
    ".hidden bypath_own_base",
    "bypath_own_base:",
    "push rdx",
    "push rsi",
    "push rdi",
    "mov edi, {slots}",
    "mov rdx, rax",
    "shr rdx, 4",
    "imul edx, edx, {spread}",
    "shr edx, {shift}",
    "1:",
    "mov esi, edx",
    "shl rsi, 4",
    "lea rcx, [rip + {table}]",
    "add rsi, rcx",
    "mov rcx, [rsi + 8]",
    "test rcx, rcx",
    "jz 3f",
    "cmp rcx, {gone}",
    "jbe 2f",
    "cmp [rsi], rax",
    "je 4f",
    "2:",
    "inc edx",
    "and edx, {mask}",
    "dec edi",
    "jnz 1b",
    "3:",
    "mov rcx, rax",
    "4:",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "ret",
    ".popsection",
    spread = const SPREAD as i32,
    shift = const SHIFT,
    table = sym TABLE,
    gone = const GONE,
    mask = const SLOTS - 1,
    slots = const SLOTS,
);

//! A directory's slots: 8-byte words in blocks mapped like a file's data.
//!
//! A slot is 0 (free), the offset of an edentry, or a reservation: an odd word
//! that a lane puts there while it makes an entry. Readers skip reservations;
//! one of an older generation is as good as free. The slot's number is the
//! `readdir` cookie (§4 of the design: stable while others create and delete).

use crate::layout::BLOCK;

/// Slots in a block.
pub const SLOTS_PER_BLOCK: u64 = BLOCK / 8;

/// The reservation of `lane` under `generation`.
#[inline]
pub const fn reservation(lane: u32, generation: u32) -> u64 {
    (generation as u64) << 32 | (lane as u64) << 1 | 1
}

/// Who reserved a slot: (lane, generation); `None` if it is no reservation.
#[inline]
pub const fn reserved_by(slot: u64) -> Option<(u32, u32)> {
    if slot & 1 == 1 { Some((slot as u32 >> 1, (slot >> 32) as u32)) } else { None }
}

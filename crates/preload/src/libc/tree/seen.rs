//! The directories that a walk has been in.

use core::ffi::c_int;

use pm::Errno;

use crate::runtime::imports::{free, malloc};

/// Directories seen: an open-addressed table of device and inode; inode 0 is free.
pub(super) struct Seen {
    pub(super) slots: *mut (u64, u64),
    pub(super) room: usize,
    pub(super) len: usize,
}

impl Seen {
    fn place(&self, key: (u64, u64)) -> *mut (u64, u64) {
        let mut at = (key.0 ^ key.1.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as usize >> 3;
        loop {
            // SAFETY: masked to the table, which is never full.
            let slot = unsafe { self.slots.add(at & (self.room - 1)) };
            // SAFETY: a slot of the table.
            let found = unsafe { *slot };
            if found == key || found.1 == 0 {
                return slot;
            }
            at += 1;
        }
    }

    /// `Ok(true)` if it was new.
    pub(super) fn insert(&mut self, device: u64, ino: u64) -> Result<bool, c_int> {
        if self.len * 2 >= self.room {
            self.grow()?;
        }
        let slot = self.place((device, ino));
        // SAFETY: a slot of the table.
        if unsafe { *slot }.1 != 0 {
            return Ok(false);
        }
        // SAFETY: as above.
        unsafe { *slot = (device, ino) };
        self.len += 1;
        Ok(true)
    }

    fn grow(&mut self) -> Result<(), c_int> {
        let room = (self.room * 2).max(64);
        // SAFETY: plain allocation.
        let slots = unsafe { malloc(room * size_of::<(u64, u64)>()) }.cast::<(u64, u64)>();
        if slots.is_null() {
            return Err(Errno::ENOMEM.0);
        }
        // SAFETY: the block holds `room` slots.
        unsafe { core::ptr::write_bytes(slots, 0, room) };
        let old = core::mem::replace(self, Seen { slots, room, len: self.len });
        for i in 0..old.room {
            // SAFETY: a slot of the old table.
            let key = unsafe { *old.slots.add(i) };
            if key.1 != 0 {
                // SAFETY: a slot of the new table.
                unsafe { *self.place(key) = key };
            }
        }
        // SAFETY: null or malloc's.
        unsafe { free(old.slots.cast()) };
        Ok(())
    }
}

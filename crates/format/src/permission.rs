//! The permission table: `<uid, gid, mode>`, so that an inode names its owner
//! and mode in 16 bits (DenseFS §3.1).
//!
//! Open addressing; an entry is written once (`owner`, then `mode` with the
//! valid bit) and never changed or removed, so readers need no lock.

use core::mem::size_of;
use core::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, KnownLayout};

/// An entry on the medium.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Permission {
    /// gid 32 | uid 32.
    pub owner: AtomicU64,
    /// Valid bit (63) | mode 12.
    pub mode: AtomicU64,
}

const _: () = assert!(size_of::<Permission>() == 16);

/// Set in `mode` of an entry that is in use.
pub const VALID: u64 = 1 << 63;

/// Where the search for a triple starts.
#[inline]
pub const fn start(uid: u32, gid: u32, mode: u16) -> u16 {
    let owner = (gid as u64) << 32 | uid as u64;
    crate::hash::fold(owner ^ 0x9e37_79b9_7f4a_7c15, (mode as u64) << 17 | 0x5851_f42d_4c95_7f2d) as u16
}

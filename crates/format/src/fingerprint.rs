//! One number that changes when the format does.

use crate::{bucket, cache, edentry, extent, hash, inode, lane, layout, permission, shares, superblock};
use core::mem::size_of;

/// Fingerprint of sizes, places and of the hash functions. A test holds it, so
/// that no change of the format goes unnoticed: a new value needs a new
/// [`crate::VERSION`], a new golden image and a line in the change log.
pub fn format() -> u64 {
    let mut sum = crate::checksum::Sum::new(u64::from(crate::VERSION));
    for word in [
        layout::ROOT,
        layout::VOLATILE,
        layout::LANE_MUTEXES,
        layout::PROCESS_MUTEXES,
        layout::LANE_AREA,
        layout::PERMISSION_TABLE,
        layout::ORPHAN_TABLE,
        layout::BITMAP,
        size_of::<superblock::Superblock>() as u64,
        size_of::<superblock::Root>() as u64,
        size_of::<superblock::Volatile>() as u64,
        size_of::<inode::Inode>() as u64,
        size_of::<inode::Cold>() as u64,
        size_of::<edentry::Edentry>() as u64,
        edentry::NAME,
        size_of::<bucket::Bucket>() as u64,
        bucket::BUCKETS_MIN,
        size_of::<lane::Lane>() as u64,
        lane::word::OPS,
        lane::word::OBJECTS,
        lane::word::INTENT,
        lane::Op::Touch { at: 64, now: 1, entries: 2, directories: -3 }.pack().0,
        lane::Op::Counters { lines: 1, files: 2 }.pack().0,
        lane::Op::Copy { to: 64, block: 1, len: 2 }.pack().0,
        lane::Op::Copy { to: 64, block: 1, len: 2 }.pack().1,
        lane::Op::Counts { at: 64, count: 1, value: 2 }.pack().0,
        lane::Op::Counts { at: 64, count: 1, value: 2 }.pack().1,
        superblock::Features::ATOMIC.0,
        superblock::Features::SHARED.0,
        shares::WORDS,
        size_of::<extent::Node>() as u64,
        size_of::<permission::Permission>() as u64,
        inode::Head { generation: 1, flags: 2, kind: 3, permission: 4 }.pack(),
        edentry::Head { hash: 1, kind: 2, name_len: 3 }.pack(),
        extent::Root::One { block: 1, len: 2, shared: false }.pack(),
        extent::Root::Tree { node: 1, depth: 2 }.pack(),
        lane::State::ended(lane::State { sequence: 1, kind: 2, objects: 3, ops: 4 }.pack()),
        hash::name(hash::NameKey::new(1), 2, b"fingerprint"),
        hash::name(hash::NameKey::new(1), 2, b"fingerprint of a long name"),
        hash::inode_number(hash::NumberKey::new(1, hash::LONG), 2),
        hash::inode_number(hash::NumberKey::new(1, hash::SHORT_MIN), 3 << 40 | 2),
        hash::numbers_for(64 << 30),
        size_of::<cache::State>() as u64,
        size_of::<cache::Lower>() as u64,
        extent::SHARED | extent::ENTRY_SHARED,
        crate::xattr::ALL_MAX,
        u64::from(permission::start(1, 2, 3)),
        bucket::pack_entry(1 << 60, 64),
    ] {
        sum.word(word);
    }
    sum.finish()
}

#[cfg(test)]
mod tests {
    /// Goal: the format does not change by accident. See [`super::format`] before you change the number.
    #[test]
    fn has_not_changed() {
        assert_eq!(super::format(), 6_438_966_505_897_183_021, "the format changed");
    }
}

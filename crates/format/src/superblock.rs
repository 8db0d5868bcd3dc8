//! Superblock (constant), root (changes) and volatile header.

use crate::{
    VERSION, checksum,
    layout::{BLOCK, Layout},
};
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of every image: "BYPATH\0\1".
pub const MAGIC: u64 = u64::from_le_bytes(*b"BYPATH\0\x01");

/// What never changes after `mkfs`. Stands twice; either copy will do.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Bytes in this structure.
    pub length: u32,
    /// Random identity of the image.
    pub uuid: [u64; 2],
    /// Key under which offsets become inode numbers.
    pub ino_key: u64,
    /// Seed of the name hash.
    pub hash_seed: u64,
    /// Size limit in bytes.
    pub limit: u64,
    /// Time of `mkfs`, nanoseconds since the epoch.
    pub made: i64,
    /// Room for later versions.
    pub reserved: [u64; 7],
    /// [`checksum::bytes`] of the words before it.
    pub checksum: u64,
}

const _: () = assert!(size_of::<Superblock>() == 128);

/// Why an image was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperblockError {
    /// The magic number is missing in both copies.
    NotAnImage,
    /// Made by another version of the format.
    Version(u32),
    /// Both copies are damaged.
    Damaged,
    /// The file is shorter than what the image has grown to.
    Truncated,
}

impl Superblock {
    /// A sealed superblock.
    pub fn new(limit: u64, uuid: [u64; 2], ino_key: u64, hash_seed: u64, made: i64) -> Superblock {
        let mut new = Superblock {
            magic: MAGIC,
            version: VERSION,
            length: size_of::<Superblock>() as u32,
            uuid,
            ino_key,
            hash_seed,
            limit,
            made,
            reserved: [0; 7],
            checksum: 0,
        };
        new.checksum = new.sum();
        new
    }

    fn sum(&self) -> u64 {
        let bytes = self.as_bytes();
        checksum::bytes(&bytes[..offset_of!(Superblock, checksum)])
    }

    /// Checks one copy and yields the layout it describes.
    pub fn validate(&self) -> Result<Layout, SuperblockError> {
        if self.magic != MAGIC {
            return Err(SuperblockError::NotAnImage);
        }
        if self.version != VERSION {
            return Err(SuperblockError::Version(self.version));
        }
        if self.length as usize != size_of::<Superblock>() || self.checksum != self.sum() {
            return Err(SuperblockError::Damaged);
        }
        Layout::new(self.limit).ok_or(SuperblockError::Damaged)
    }

    /// The usable one of the two copies.
    pub fn choose(first: Superblock, second: Superblock) -> Result<(Superblock, Layout), SuperblockError> {
        match first.validate() {
            Ok(layout) => Ok((first, layout)),
            Err(reason) => match second.validate() {
                Ok(layout) => Ok((second, layout)),
                Err(_) if reason == SuperblockError::NotAnImage && second.magic == MAGIC => Err(SuperblockError::Damaged),
                Err(_) => Err(reason),
            },
        }
    }
}

/// Largest number of index segments; segment `i > 0` doubles the index.
pub const INDEX_SEGMENTS: usize = 32;

/// The changing heart of an image, one block at [`crate::layout::ROOT`].
///
/// Written only through lane records, except `generation` (attach, alone).
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Root {
    /// Rises with every new segment; volatile references carry it.
    pub generation: AtomicU64,
    /// Blocks that have real space, counted from the start of the image.
    pub grown: AtomicU64,
    /// Offset of the root directory's inode.
    pub root_inode: AtomicU64,
    /// Number of buckets in use (linear hashing: says both level and split pointer).
    pub buckets: AtomicU64,
    /// Bit 0: a persist failed, the image is read-only.
    pub flags: AtomicU64,
    /// Room.
    pub reserved: [AtomicU64; 3],
    /// Offsets of the index segments.
    pub index: [AtomicU64; INDEX_SEGMENTS],
}

const _: () = assert!(offset_of!(Root, index) == 64 && size_of::<Root>() == 320);

/// Who uses the image now, one block at [`crate::layout::VOLATILE`].
///
/// Valid only under this boot and for this very file; nothing in it is needed
/// for recovery.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Volatile {
    /// The kernel's boot id under which this was written.
    pub boot: [AtomicU64; 2],
    /// Device and inode number of the image file (a copy of the image has others).
    pub file: [AtomicU64; 2],
    /// Random name of the segment; 0 if there is none.
    pub token: AtomicU64,
    /// Generation of that segment.
    pub generation: AtomicU64,
    /// Inode number of the segment's file: another file of that name is not it.
    pub segment: AtomicU64,
    /// Room.
    pub reserved: AtomicU64,
}

const _: () = assert!(size_of::<Volatile>() == 64 && BLOCK == 4096);

/// Bytes of a host name.
pub const HOST_NAME: usize = 64;

/// On which machine the image is used, or was last: behind the volatile header, at [`crate::layout::MACHINE`].
///
/// For whoever finds there a boot id that is not its own.
#[derive(Debug, FromBytes, KnownLayout)]
#[repr(C)]
pub struct Machine {
    /// The boot id under which this was written: it belongs to a volatile header with the same.
    pub boot: [AtomicU64; 2],
    /// That of `/etc/machine-id`; 0 where there is none.
    pub id: [AtomicU64; 2],
    /// When the image was last attached or left, nanoseconds since the epoch.
    pub used: AtomicU64,
    /// Room.
    pub reserved: [AtomicU64; 3],
    /// The host's name, filled up with zeros.
    pub name: [AtomicU64; HOST_NAME / 8],
}

const _: () = assert!(size_of::<Machine>() == 128);

//! Superblock (constant), root (changes) and volatile header.

use crate::layout::{BLOCK, Layout};
use crate::{VERSION, VERSION_OLD, checksum, hash};
use core::fmt;
use core::mem::{offset_of, size_of};
use core::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of every image: "BYPATH\0\1".
pub const MAGIC: u64 = u64::from_le_bytes(*b"BYPATH\0\x01");

/// What never changes after `mkfs`, but by `bypath upgrade`. Stands twice; either copy will do.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`], or [`VERSION_OLD`].
    pub version: u32,
    /// Bytes in this structure.
    pub length: u32,
    /// Random identity of the image.
    pub uuid: [u64; 2],
    /// Key under which nodes get their inode numbers.
    pub ino_key: u64,
    /// Seed of the name hash.
    pub hash_seed: u64,
    /// Size limit in bytes.
    pub limit: u64,
    /// Time of `mkfs`, nanoseconds since the epoch.
    pub made: i64,
    /// What of the following the image has; [`Features`].
    pub features: u64,
    /// How inode numbers are made ([`hash::LONG`]); 0 in the version before, which has long ones.
    pub numbers: u64,
    /// Room, 0.
    pub reserved: [u64; 5],
    /// [`checksum::bytes`] of the words before it.
    pub checksum: u64,
}

const _: () = assert!(size_of::<Superblock>() == 128 && offset_of!(Superblock, features) == 64);

/// What an image may have that not every program of its version knows. Who does not know one leaves the image alone:
/// so what has a bit here needs no new version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features(pub u64);

impl Features {
    /// It is a cache of another file system ([`crate::cache`]).
    pub const CACHE: Features = Features(1);
    /// Files may share extents: [`Root::shares`], [`crate::extent::SHARED`].
    pub const SHARED: Features = Features(2);
    /// Blocks within the grown part may have no space: [`Root::returned`].
    pub const RETURNED: Features = Features(4);
    /// Records may copy bytes ([`crate::lane::Op::Copy`]): files have been overwritten whole or not at all.
    pub const ATOMIC: Features = Features(8);
    /// Inodes may say that nobody changes them ([`crate::inode::FROZEN`]): there are snapshots, or were.
    pub const FROZEN: Features = Features(16);
    /// The notes of a cache say which bytes and attributes were changed: a program that knows only notes of chunks would take
    /// its changes for written.
    pub const NOTES: Features = Features(32);
    /// Those that this program knows.
    pub const KNOWN: Features =
        Features(Features::CACHE.0 | Features::SHARED.0 | Features::ATOMIC.0 | Features::FROZEN.0 | Features::NOTES.0);
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::CACHE, "a cache of another file system"),
            (Self::SHARED, "shared data"),
            (Self::RETURNED, "returned space"),
            (Self::ATOMIC, "atomic overwrites"),
            (Self::FROZEN, "snapshots"),
            (Self::NOTES, "exact notes of a cache"),
        ];
        let mut rest = self.0;
        let mut before = "";
        for (feature, name) in names.iter().filter(|(feature, _)| self.0 & feature.0 != 0) {
            rest &= !feature.0;
            write!(f, "{before}{name}")?;
            before = ", ";
        }
        if rest == 0 { Ok(()) } else { write!(f, "{before}feature {rest:#x}") }
    }
}

/// Why an image was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuperblockError {
    /// The magic number is missing in both copies.
    NotAnImage,
    /// Made by another version of the format.
    Version(u32),
    /// It has what this program does not know.
    Features(Features),
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
            features: 0,
            numbers: hash::numbers_for(limit),
            reserved: [0; 5],
            checksum: 0,
        };
        new.checksum = new.sum();
        new
    }

    /// The same with these features, sealed.
    pub fn with(self, features: Features) -> Superblock {
        let mut new = Superblock { features: features.0, ..self };
        new.checksum = new.sum();
        new
    }

    /// The same image's in the present version, sealed: with the inode numbers it has, or (`renumber`) with those that a
    /// new image of its size gets.
    pub fn upgraded(&self, renumber: bool) -> Superblock {
        let numbers = if renumber { hash::numbers_for(self.limit) } else { self.numbers() };
        let mut new = Superblock { version: VERSION, numbers, ..*self };
        new.checksum = new.sum();
        new
    }

    /// Whether all inode numbers fit 32 bits.
    pub const fn has_short_numbers(&self) -> bool {
        self.numbers() != hash::LONG
    }

    /// How inode numbers are made.
    pub const fn numbers(&self) -> u64 {
        if self.version == VERSION_OLD { hash::LONG } else { self.numbers }
    }

    fn sum(&self) -> u64 {
        let bytes = self.as_bytes();
        checksum::bytes(&bytes[..offset_of!(Superblock, checksum)])
    }

    fn is_whole(&self) -> bool {
        self.length as usize == size_of::<Superblock>() && self.checksum == self.sum()
    }

    /// Checks one copy and yields the layout it describes.
    pub fn validate(&self) -> Result<Layout, SuperblockError> {
        if self.magic != MAGIC {
            return Err(SuperblockError::NotAnImage);
        }
        if self.version != VERSION && self.version != VERSION_OLD {
            return Err(SuperblockError::Version(self.version));
        }
        if !self.is_whole() {
            return Err(SuperblockError::Damaged);
        }
        let unknown = self.features & !Features::KNOWN.0;
        if unknown != 0 {
            return Err(SuperblockError::Features(Features(unknown)));
        }
        let is_right = matches!(self.numbers(), hash::SHORT_MIN..=hash::SHORT_MAX | hash::LONG);
        if !is_right || self.reserved != [0; 5] {
            return Err(SuperblockError::Damaged);
        }
        Layout::new(self.limit).ok_or(SuperblockError::Damaged)
    }

    /// The usable one of the two copies: the first unless it is damaged. Whoever changes both begins with the second.
    pub fn choose(first: Superblock, second: Superblock) -> Result<(Superblock, Layout), SuperblockError> {
        match first.validate() {
            Ok(layout) => Ok((first, layout)),
            Err(reason @ (SuperblockError::Version(_) | SuperblockError::Features(_))) if first.is_whole() => Err(reason),
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
    /// Rises with every new shared cache; volatile references carry it.
    pub generation: AtomicU64,
    /// Blocks that have real space, counted from the start of the image.
    pub grown: AtomicU64,
    /// Offset of the root directory's inode.
    pub root_inode: AtomicU64,
    /// Number of buckets in use (linear hashing: says both level and split pointer).
    pub buckets: AtomicU64,
    /// Bit 0: a persist failed, the image is read-only.
    pub flags: AtomicU64,
    /// Offset of the [`State`](crate::cache::State) of a cache image; 0.
    pub cache: AtomicU64,
    /// Offset of the top of the table of what files share ([`crate::shares`]); 0.
    pub shares: AtomicU64,
    /// Offset of the table of free runs that have no space; 0.
    pub returned: AtomicU64,
    /// Offsets of the index segments.
    pub index: [AtomicU64; INDEX_SEGMENTS],
}

const _: () = assert!(offset_of!(Root, index) == 64 && size_of::<Root>() == 320);

impl Root {
    /// Words that are 0 in an image without the feature that uses them.
    pub fn unused(&self) -> [&AtomicU64; 3] {
        [&self.cache, &self.shares, &self.returned]
    }
}

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
    /// Random name of the shared cache; 0 if there is none.
    pub token: AtomicU64,
    /// Generation of that shared cache.
    pub generation: AtomicU64,
    /// Inode number of its file: another file of that name is not it.
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

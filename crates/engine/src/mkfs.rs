//! Making an image.
//!
//! The file is as long as the image may ever become, but sparse: real space is
//! given to the tables and to the first blocks only. What a fresh image holds:
//!
//! ```text
//! superblock ×2 · root block · volatile header (zero) · lanes (zero) · permission table (one entry)
//! first blocks: segment 0 of the index (zeroed), then the block with the root directory's inode
//! ```
//! The superblocks are written last: until then the file is not an image.

use crate::process::{AttachError, machine};
use core::fmt;
use format::lane::word;
use format::layout::{self, BLOCK, LINE, LINES_PER_BLOCK, Layout};
use format::{Features, Inode, Lane, Root, Superblock, bucket, inode, permission};
use pm::file::{self, File};
use pm::sys::abi;
use pm::{Domain, Errno, Region, UserSlice};
use zerocopy::IntoBytes;

/// Blocks that get real space at once.
const FIRST_BLOCKS: u64 = (4 << 20) / BLOCK;

/// How an image is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Limit in bytes; rounded down to whole blocks.
    pub limit: u64,
    /// Replace whatever the file holds.
    pub force: bool,
    /// Mode of the image file, before the umask.
    pub file_mode: u32,
    /// Owner of the root directory.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its mode, 12 bits.
    pub mode: u16,
    /// Random numbers and time; `None`: the kernel's.
    pub seeds: Option<Seeds>,
    /// What it is to have that not every program knows.
    pub features: Features,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            limit: 1 << 30,
            force: false,
            file_mode: 0o600,
            uid: 0,
            gid: 0,
            mode: 0o755,
            seeds: None,
            features: Features(0),
        }
    }
}

/// What makes an image differ from another.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// Identity.
    pub uuid: [u64; 2],
    /// Key of inode numbers.
    pub ino_key: u64,
    /// Seed of the name hash.
    pub hash_seed: u64,
    /// Nanoseconds since the epoch.
    pub made: i64,
}

impl Seeds {
    /// Fresh ones.
    fn random() -> Result<Seeds, Errno> {
        let mut bytes = [0u8; 32];
        file::random(&mut bytes)?;
        let word = |i: usize| bytes.iter().skip(i * 8).take(8).fold(0, |word, byte| word << 8 | u64::from(*byte));
        Ok(Seeds { uuid: [word(0), word(1)], ino_key: word(2), hash_seed: word(3), made: pm::clock::now() })
    }
}

/// Why no image was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MkfsError {
    /// The limit is out of range.
    Size {
        /// What was asked for, bytes.
        limit: u64,
    },
    /// The file holds something, and `force` was not given.
    NotEmpty,
    /// Not a regular file.
    NotAFile,
    /// Somebody uses the image that the file holds.
    InUse,
    /// Another machine uses it, or did when it crashed.
    Elsewhere(machine::Host),
    /// The file could not be made or written.
    File(Errno),
}

impl From<Errno> for MkfsError {
    fn from(errno: Errno) -> Self {
        MkfsError::File(errno)
    }
}

impl fmt::Display for MkfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MkfsError::Size { limit } => {
                write!(f, "a size of {limit} bytes is out of range: an image has 16 MiB to 16 TiB")
            }
            MkfsError::NotEmpty => {
                f.write_str("the file exists and is not empty; remove it, or say --force to lose what it holds")
            }
            MkfsError::NotAFile => f.write_str("not a regular file"),
            MkfsError::InUse => f.write_str("it is an image that a process is using; end that process first"),
            MkfsError::Elsewhere(host) => {
                write!(f, "it is an image that {host} uses, or did when it crashed; end its use there, or remove the file")
            }
            MkfsError::File(Errno::ENOSPC) => f.write_str("no space for it on the file system underneath"),
            MkfsError::File(Errno::EACCES) => f.write_str("permission denied"),
            MkfsError::File(Errno::ENOENT) => f.write_str("no such directory"),
            MkfsError::File(errno) => write!(f, "the file cannot be made: {errno}"),
        }
    }
}

/// Makes an image at `path` (NUL-terminated).
pub fn make(path: &[u8], options: &Options) -> Result<(), MkfsError> {
    let layout = Layout::new(options.limit).ok_or(MkfsError::Size { limit: options.limit })?;
    let (file, new) = open(path, options)?;
    let made = fill(&file, layout, options);
    if made.is_err() {
        // Nothing half-made stays behind.
        if new {
            let _ = file::unlink(path);
        } else {
            let _ = file.truncate(0);
        }
    }
    made
}

/// Makes an image in zeroed memory of at least `limit` bytes; returns how many
/// blocks of it are in use (crash explorer).
#[cfg(feature = "sim")]
pub fn make_in_memory(image: &Region, options: &Options) -> Result<u64, MkfsError> {
    let layout = Layout::new(options.limit).ok_or(MkfsError::Size { limit: options.limit })?;
    let seeds = options.seeds.map_or_else(Seeds::random, Ok)?;
    let grown = (layout.first_block() + FIRST_BLOCKS).min(layout.block_count());
    write(image, layout, grown, options, &seeds)?;
    Ok(grown)
}

/// The file, locked and empty, and whether it was made just now.
fn open(path: &[u8], options: &Options) -> Result<(File, bool), MkfsError> {
    let (file, new) = match File::open(path, abi::O_RDWR | abi::O_CREAT | abi::O_EXCL, options.file_mode) {
        Ok(file) => (file, true),
        Err(Errno::EEXIST) => (File::open(path, abi::O_RDWR | abi::O_NONBLOCK, 0)?, false),
        Err(errno) => return Err(errno.into()),
    };
    let stat = file.stat()?;
    if !stat.is_regular() {
        return Err(MkfsError::NotAFile);
    }
    file.lock().map_err(|errno| if errno == Errno::EAGAIN { MkfsError::InUse } else { errno.into() })?;
    let stat = file.stat()?;
    if stat.size != 0 {
        if !options.force {
            return Err(MkfsError::NotEmpty);
        }
        if crate::process::volatile::is_used(&file, &stat) {
            return Err(MkfsError::InUse);
        }
        if let Err(AttachError::Elsewhere(host)) = machine::refuse_unattached(&file, &stat) {
            return Err(MkfsError::Elsewhere(host));
        }
        file.truncate(0)?;
    }
    Ok((file, new))
}

fn fill(file: &File, layout: Layout, options: &Options) -> Result<(), MkfsError> {
    let seeds = match options.seeds {
        Some(seeds) => seeds,
        None => Seeds::random()?,
    };
    let first = layout.first_block();
    let grown = (first + FIRST_BLOCKS).min(layout.block_count());
    file.truncate(layout.limit)?;
    file.allocate(0, layout::BITMAP)?;
    // The bitmap words of the blocks before the first are never looked at.
    file.allocate(Layout::bitmap_word(first), (grown - first) * 8)?;
    file.allocate(layout.blocks, (grown - first) * BLOCK)?;
    let len = grown * BLOCK;
    let address = file.map(len, true, false)?;
    // SAFETY: just mapped shared and writable, unmapped below when nothing uses it any more.
    let image = unsafe { Region::new(address, len, len, Domain::Process) };
    let written = write(&image, layout, grown, options, &seeds).and_then(|()| file::sync(address, len));
    // SAFETY: `image` is not used after this.
    unsafe { file::unmap(address, len) };
    Ok(written?)
}

/// Writes what a fresh image holds; the rest of it is zero.
fn write(image: &Region, layout: Layout, grown: u64, options: &Options, seeds: &Seeds) -> Result<(), Errno> {
    let first = layout.first_block();
    let index_blocks = bucket::BUCKETS_MIN * LINE / BLOCK;
    let inode_block = first + index_blocks;
    let store = |at: u64, value: u64| image.word(at).map(|word| image.store(word, value)).ok_or(Errno::EFAULT);
    for block in first..inode_block {
        store(Layout::bitmap_word(block), u64::MAX)?;
    }
    store(Layout::bitmap_word(inode_block), 1)?;

    let entry = u64::from(permission::start(options.uid, options.gid, options.mode));
    let at = layout::PERMISSION_TABLE + entry * 16;
    store(at, u64::from(options.gid) << 32 | u64::from(options.uid))?;
    store(at + 8, permission::VALID | u64::from(options.mode & 0o7777))?;

    let node: &Inode = image.at(inode_block * BLOCK).ok_or(Errno::EFAULT)?;
    let head = inode::Head { generation: 1, flags: 0, kind: base::Kind::Directory as u8, permission: entry as u16 };
    image.store(&node.head, head.pack());
    image.store(&node.mtime, seeds.made as u64);
    image.store(&node.ctime, seeds.made as u64);

    // The first lane's counters know of these allocations.
    let lane: &Lane = image.at(layout::LANE_AREA).ok_or(Errno::EFAULT)?;
    let lane = image.offset_of(lane);
    store(lane + word::LINES, index_blocks * LINES_PER_BLOCK + 1)?;
    store(lane + word::FILES, 1)?;

    let root: &Root = image.at(layout::ROOT).ok_or(Errno::EFAULT)?;
    image.store(&root.grown, grown);
    image.store(&root.root_inode, inode_block * BLOCK);
    image.store(&root.buckets, bucket::BUCKETS_MIN);
    image.store(&root.index[0], first * BLOCK);

    let superblock = Superblock::new(layout.limit, seeds.uuid, seeds.ino_key, seeds.hash_seed, seeds.made).with(options.features);
    for at in [0, layout::SUPERBLOCK_COPY] {
        image.copy_in(at, UserSlice::from_ref(superblock.as_bytes()))?;
    }
    Ok(())
}

//! The FUSE protocol as far as it is spoken here, 7.19 and later (7.12 over a socket): numbers,
//! layouts, and the checks of what comes back.

use base::{Attr, DirEntry, Errno, Error, Kind, Name, Result};
use pm::UserSlice;
use session::{Caching, Entry};

macro_rules! operations {
    ($($name:ident $number:literal)*) => { $(pub(super) const $name: u32 = $number;)* };
}

operations! {
    LOOKUP 1 FORGET 2 GETATTR 3 SETATTR 4 READLINK 5 SYMLINK 6 MKNOD 8 MKDIR 9 UNLINK 10 RMDIR 11 RENAME 12 LINK 13
    OPEN 14 READ_FILE 15 WRITE_FILE 16 STATFS 17 RELEASE 18 FSYNC 20 SETXATTR 21 GETXATTR 22 LISTXATTR 23 REMOVEXATTR 24
    FLUSH 25 INIT 26 OPENDIR 27 READDIR 28 RELEASEDIR 29 FSYNCDIR 30 GETLK 31 SETLK 32 ACCESS 34 CREATE 35 INTERRUPT 36 FALLOCATE 43 READDIRPLUS 44 RENAME2 45 LSEEK 46
    COPY_FILE_RANGE 47 SYNCFS 50
}

/// Most bytes that a copy is asked for: its answer has 32 bits, and a daemon a minute.
pub(super) const COPY_MAX: u64 = 1 << 30;
/// The root's node id.
pub(super) const ROOT_ID: u64 = 1;
/// `O_LARGEFILE` of 64-bit kernels, which the kernel adds to every open.
pub(super) const LARGEFILE: u32 = 0x8000;
/// Longest extended attribute.
pub(super) const XATTR_MAX: usize = 65536;

pub(super) const FATTR_MODE: u32 = 1;
pub(super) const FATTR_UID: u32 = 2;
pub(super) const FATTR_GID: u32 = 4;
pub(super) const FATTR_SIZE: u32 = 8;
pub(super) const FATTR_ATIME: u32 = 16;
pub(super) const FATTR_MTIME: u32 = 32;
pub(super) const FATTR_FH: u32 = 64;
pub(super) const FATTR_ATIME_NOW: u32 = 128;
pub(super) const FATTR_MTIME_NOW: u32 = 256;

pub(super) const ATTR_BYTES: usize = 88;
pub(super) const ENTRY_BYTES: usize = 40 + ATTR_BYTES;
pub(super) const ATTR_OUT_BYTES: usize = 16 + ATTR_BYTES;
pub(super) const NSEC: i64 = 1_000_000_000;

/// No file contents.
pub(super) const NOTHING: UserSlice = UserSlice { ptr: core::ptr::null_mut(), len: 0 };

/// The word at a byte offset (0 past the end).
pub(super) fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// The half-word at a byte offset (0 past the end).
pub(super) fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn nanoseconds(seconds: u64, parts: u32) -> u64 {
    seconds.saturating_mul(NSEC as u64).saturating_add(u64::from(parts).min(NSEC as u64 - 1))
}

/// Attributes; `EIO` if they can't be.
pub(super) fn parse_attr(bytes: &[u8]) -> Result<Attr> {
    let mode = word32(bytes, 60);
    let kind = Kind::from_dt((mode >> 12 & 15) as u8).filter(|_| mode >> 16 == 0).ok_or(Error::Posix(Errno::EIO))?;
    let size = word64(bytes, 8);
    if size > i64::MAX as u64 {
        return Err(Error::Posix(Errno::EIO));
    }
    let time = |seconds: usize, parts: usize| {
        (word64(bytes, seconds) as i64).saturating_mul(NSEC).saturating_add(i64::from(word32(bytes, parts)).min(NSEC - 1))
    };
    Ok(Attr {
        ino: word64(bytes, 0),
        kind,
        mode: mode as u16 & 0o7777,
        nlink: word32(bytes, 64),
        uid: word32(bytes, 68),
        gid: word32(bytes, 72),
        rdev: u64::from(word32(bytes, 76)),
        size,
        blocks: word64(bytes, 16),
        atime: time(24, 48),
        mtime: time(32, 52),
        ctime: time(40, 56),
        btime: None,
    })
}

/// How long an entry's name may be believed.
pub(super) fn entry_ns(bytes: &[u8]) -> u64 {
    nanoseconds(word64(bytes, 16), word32(bytes, 32))
}

/// `struct fuse_entry_out`, by a daemon in `incarnation`; `ENOENT` if it says that there is no such name.
pub(super) fn parse_entry(bytes: &[u8], incarnation: u32) -> Result<Entry> {
    let key = word64(bytes, 0);
    match key {
        0 => return Err(Error::Posix(Errno::ENOENT)),
        // The root has no name: a directory that leads back to it would be its own child.
        ROOT_ID => return Err(Error::Posix(Errno::EIO)),
        _ => {}
    }
    Ok(Entry {
        key,
        device: 0,
        attr: parse_attr(&bytes[40..])?,
        entry_ns: entry_ns(bytes),
        attr_ns: nanoseconds(word64(bytes, 24), word32(bytes, 36)),
        incarnation,
        handle: None,
        caching: Caching::None,
    })
}

/// `struct fuse_attr_out`.
pub(super) fn parse_attr_out(bytes: &[u8]) -> Result<(Attr, u64)> {
    Ok((parse_attr(&bytes[16..])?, nanoseconds(word64(bytes, 0), word32(bytes, 8))))
}

/// Whether a list ends before its first `struct fuse_dirent` does.
pub(super) fn is_cut(bytes: &[u8]) -> bool {
    bytes.len() < DIRENT || bytes.len() < DIRENT + word32(bytes, 16) as usize
}

/// Bytes of a `struct fuse_dirent` before the name.
const DIRENT: usize = 24;

/// The first `struct fuse_dirent` of a list, whether its type is known, and how long it is.
pub(super) fn parse_dirent(bytes: &[u8]) -> Result<(DirEntry<'_>, bool, usize)> {
    let broken = Error::Posix(Errno::EIO);
    if bytes.len() < DIRENT {
        return Err(broken);
    }
    let len = word32(bytes, 16) as usize;
    let name = bytes.get(DIRENT..DIRENT + len).ok_or(broken)?;
    if Name::new(name).is_none() && !matches!(name, b"." | b"..") {
        return Err(broken);
    }
    // The last record need not be filled up.
    let size = (DIRENT + len).next_multiple_of(8).min(bytes.len());
    let known = if matches!(name, b"." | b"..") { Some(Kind::Directory) } else { Kind::from_dt(word32(bytes, 20) as u8) };
    let kind = known.unwrap_or(Kind::Regular);
    Ok((DirEntry { name, ino: word64(bytes, 0), kind, next: word64(bytes, 8), id: 0 }, known.is_some(), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirent(len: u32, name: &[u8]) -> std::vec::Vec<u8> {
        let mut bytes = std::vec![0u8; 24];
        bytes[16..20].copy_from_slice(&len.to_ne_bytes());
        bytes.extend_from_slice(name);
        bytes
    }

    /// Goal: names that a daemon may not give are refused, as are lengths that lead out of the reply.
    #[test]
    fn directory_entries() {
        assert_eq!(parse_dirent(&dirent(3, b"abc")).unwrap().0.name, b"abc");
        let long = [b'a'; 300];
        let cases = [(0, &b""[..]), (4, b"abc"), (3, b"a/b"), (3, b"a\0b"), (u32::MAX, b"abc"), (300, &long)];
        for (len, name) in cases {
            assert!(parse_dirent(&dirent(len, name)).is_err(), "{len}");
        }
        assert!(parse_dirent(&[0; 23]).is_err());
        let whole = dirent(3, b"abc");
        assert!(!is_cut(&whole) && is_cut(&whole[..26]) && is_cut(&whole[..20]));
    }

    /// Goal: impossible attributes and a root below the root are refused.
    #[test]
    fn attributes() {
        let mut entry = [0u8; ENTRY_BYTES];
        entry[0] = 2;
        assert!(parse_entry(&entry, 0).is_err(), "no type");
        entry[100..104].copy_from_slice(&0o100644u32.to_ne_bytes());
        assert_eq!(parse_entry(&entry, 0).unwrap().attr.mode, 0o644);
        entry[0] = 1;
        assert!(parse_entry(&entry, 0).is_err(), "the root");
        entry[0] = 2;
        entry[48..56].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(parse_entry(&entry, 0).is_err(), "the size");
    }
}

//! What the kernel is told to forget.
//!
//! It may keep attributes for [`KEEP_S`], names for [`KEEP_NAMES_S`], and pages. What
//! changes is told before the call that changes it returns. The times are the bounds on what
//! no invalidation tells of (`engine::process::served`): of names that is more.

use super::abi::{ForgetEntry, ForgetInode, OutHeader, StoreData};
use zerocopy::IntoBytes;

/// How long the kernel keeps attributes, seconds.
pub const KEEP_S: u64 = 60;
/// How long it keeps those of a file that was just made, nanoseconds; the kernel takes a tick (1 to 10 ms).
pub const KEEP_MADE_NS: u32 = 1_000_000;
/// How long it keeps names, and that there is none, seconds.
pub const KEEP_NAMES_S: u64 = 1;

const INODE: i32 = 2;
const ENTRY: i32 = 3;
const STORE: i32 = 4;

/// The message that makes the kernel forget a node's attributes and pages.
pub(crate) fn forget_node(number: u64) -> Vec<u8> {
    // From byte 0, to the end.
    invalidation(INODE, ForgetInode { node: number, offset: 0, len: 0 }.as_bytes(), b"")
}

/// The message that makes the kernel forget a node's attributes alone: passing it on waits for no page.
pub(super) fn forget_attr(number: u64) -> Vec<u8> {
    invalidation(INODE, ForgetInode { node: number, offset: -1, len: 0 }.as_bytes(), b"")
}

/// The message that makes the kernel forget a name in a directory.
pub(crate) fn forget_name(dir: u64, name: &[u8]) -> Vec<u8> {
    let head = ForgetEntry { node: dir, name_len: name.len() as u32, flags: 0 };
    invalidation(ENTRY, head.as_bytes(), &[name, b"\0"].concat())
}

/// The message that makes the kernel wait until everybody has taken in what was answered about a directory: it takes
/// the directory's lock, and finds no such name.
pub(super) fn forget_no_name(dir: u64) -> Vec<u8> {
    forget_name(dir, b"/")
}

/// The message that gives the kernel bytes of a file, which is at least as long as that then.
pub(super) fn store(number: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
    invalidation(STORE, StoreData { node: number, offset, size: bytes.len() as u32, padding: 0 }.as_bytes(), bytes)
}

fn invalidation(code: i32, head: &[u8], tail: &[u8]) -> Vec<u8> {
    let len = size_of::<OutHeader>() + head.len() + tail.len();
    let header = OutHeader { len: len as u32, error: code, unique: 0 };
    [header.as_bytes(), head, tail].concat()
}

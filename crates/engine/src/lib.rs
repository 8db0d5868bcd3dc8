//! The native file system: a data structure in memory that all its users map.
//!
//! | module | what | from |
//! |---|---|---|
//! | [`fs`] | an attached image | |
//! | `index` | the one hash index over names, for cache and medium | DirectFS's mindex |
//! | `segment` | what is shared but volatile: cachelets, lane states, processes, descriptions | DirectFS, ByVFS |
//! | `lane` | an operation: locks, reservations, one record as the commit point; adoption of the dead | DirectFS |
//! | `alloc` | lines and blocks | |
//! | `fast` | the fast path of what reads | |
//! | `names`, `dir`, [`walk`] | create, link, unlink, rename; slots; steps of a walk | |
//! | `rights` | who may do what | |
//! | `attr`, `permission` | attributes; the `<uid, gid, mode>` table | DenseFS |
//! | `file` | extents, reading, writing, mapping | |
//! | `process` | attach, recover, processes, open file descriptions | |
//! | [`watch`] | programs that watch files are told of changes | |
//! | `check`, `repair`, `upgrade` | the checker; what fixes; from the format before to today's | |
//!
//! Order of locks, first to last: a directory entered or closed to entry
//! (`lane::enter`), the rename lock, bucket locks (ascending), inode locks
//! (ascending cachelet number), then one of the leaf locks (a directory's inode
//! for growing it, split, grow, permission, orphan, reservation), which never wait
//! for any of the others.
#![no_std]

#[cfg(any(test, feature = "check"))]
extern crate alloc as heap;
#[cfg(any(test, feature = "testing"))]
extern crate std;

pub mod advisory;
pub mod attr;
#[cfg(any(test, feature = "check"))]
pub mod check;
#[cfg(any(test, feature = "check"))]
pub mod dump;
pub(crate) mod fast;
pub mod file;
mod frozen;
pub mod fs;
#[cfg(test)]
mod full;
pub mod inspect;
pub mod lane;
pub mod lower;
pub mod mkfs;
pub mod permission;
pub mod process;
#[cfg(any(test, feature = "check"))]
pub mod repair;
pub(crate) mod rights;
pub mod segment;
#[cfg(any(test, feature = "check"))]
pub mod shrink;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(any(test, feature = "check"))]
pub mod upgrade;
pub mod walk;
pub mod watch;
pub mod xattr;

pub(crate) mod alloc;
pub(crate) mod cold;
pub(crate) mod dir;
pub(crate) mod index;
pub(crate) mod names;

pub use base::*;
pub use fs::Fs;

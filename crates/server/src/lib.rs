//! The kernel's way in: an image as a mounted file system, through FUSE.
//!
//! | module | what |
//! |---|---|
//! | [`device`] | `/dev/fuse`, mounting and unmounting, as root or through `fusermount3` |
//! | [`fuse`] | the protocol: a request of bytes in, an answer of bytes out |
//! | [`inside`] | what the kernel has mounted inside the mount |
//! | [`pool`] | how many threads, and what keeps them waiting |
//! | [`serve`] | threads that carry requests and answers between the two |
//!
//! The protocol is spoken here and not by a library, because what is asked of
//! this front end needs requests that none of the kept ones knows: `TMPFILE`,
//! `INTERRUPT` of a lock that waits, the flags of `HANDLE_KILLPRIV_V2`
//! (`docs/decisions/`). It is a few structures and one function per request.
//!
//! The server keeps nothing that cannot be lost. A node's number is its
//! identity in the image, what is open is listed in the segment under this
//! process, and a change is whole before it is answered: a server that dies
//! loses the mount and nothing else.
#![forbid(unsafe_code)]

pub mod device;
pub mod fuse;
pub mod inside;
pub mod pool;
pub mod serve;

//! Handing a descriptor to another process.

use crate::{Errno, call, sys::abi};

const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const MSG_NOSIGNAL: u32 = 0x4000;

/// The kernel's `struct iovec`, `struct cmsghdr` with one descriptor, and `struct msghdr`.
#[repr(C)]
struct Piece {
    at: *const u8,
    len: usize,
}

#[repr(C)]
struct Rights {
    len: usize,
    level: i32,
    kind: i32,
    descriptor: i32,
    padding: i32,
}

#[repr(C)]
struct Message {
    name: *const u8,
    name_len: u32,
    pieces: *const Piece,
    piece_count: usize,
    control: *const Rights,
    control_len: usize,
    flags: i32,
}

const _: () = assert!(size_of::<Rights>() == 24 && size_of::<Message>() == 56);

/// Sends the descriptor numbered `descriptor`, and a byte that is 0, over the Unix socket numbered `socket`.
pub fn send(socket: i32, descriptor: i32) -> Result<(), Errno> {
    // To the end of the number, not of the padding.
    let rights = Rights { len: 20, level: SOL_SOCKET, kind: SCM_RIGHTS, descriptor, padding: 0 };
    let byte = 0u8;
    let piece = Piece { at: &raw const byte, len: 1 };
    let message = Message {
        name: core::ptr::null(),
        name_len: 0,
        pieces: &raw const piece,
        piece_count: 1,
        control: &raw const rights,
        control_len: size_of::<Rights>(),
        flags: 0,
    };
    // SAFETY: the message and all that it points to live until the call is over; the kernel only reads them.
    unsafe { call!(abi::__NR_sendmsg, socket, &raw const message, MSG_NOSIGNAL) }.map(drop)
}

//! Messages between processes, with a descriptor where there is one to hand over.

use crate::{Errno, call, sys::abi};

const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const MSG_NOSIGNAL: u32 = 0x4000;
const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;
/// `len` of a [`Rights`]: to the end of the number, not of the padding.
const RIGHTS_LEN: usize = 20;

/// The kernel's `struct iovec`, `struct cmsghdr` with one descriptor, and `struct msghdr`.
#[repr(C)]
struct Piece {
    at: *mut u8,
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
    pieces: *mut Piece,
    piece_count: usize,
    control: *mut Rights,
    control_len: usize,
    flags: i32,
}

const _: () = assert!(size_of::<Rights>() == 24 && size_of::<Message>() == 56);

fn message(piece: &mut Piece, rights: Option<&mut Rights>) -> Message {
    let (control, control_len) = rights.map_or((core::ptr::null_mut(), 0), |rights| (&raw mut *rights, size_of::<Rights>()));
    Message { name: core::ptr::null(), name_len: 0, pieces: piece, piece_count: 1, control, control_len, flags: 0 }
}

/// Sends the descriptor numbered `descriptor`, and a byte that is 0, over the Unix socket numbered `socket`.
pub fn send(socket: i32, descriptor: i32) -> Result<(), Errno> {
    send_text(socket, &[0], Some(descriptor))
}

/// Sends a text, with a descriptor or without, over the Unix socket numbered `socket`.
pub fn send_text(socket: i32, text: &[u8], descriptor: Option<i32>) -> Result<(), Errno> {
    let mut rights =
        descriptor.map(|descriptor| Rights { len: RIGHTS_LEN, level: SOL_SOCKET, kind: SCM_RIGHTS, descriptor, padding: 0 });
    let mut piece = Piece { at: text.as_ptr().cast_mut(), len: text.len() };
    let message = message(&mut piece, rights.as_mut());
    // SAFETY: the message and all that it points to live until the call is over; the kernel only reads them.
    unsafe { call!(abi::__NR_sendmsg, socket, &raw const message, MSG_NOSIGNAL) }.map(drop)
}

/// Receives a text, and the descriptor that comes with it, which is close-on-exec; length and descriptor.
///
/// Who keeps account of descriptors has to know that one may be made.
pub fn receive(socket: i32, into: &mut [u8]) -> Result<(usize, Option<i32>), Errno> {
    let mut rights = Rights { len: 0, level: 0, kind: 0, descriptor: -1, padding: 0 };
    let mut piece = Piece { at: into.as_mut_ptr(), len: into.len() };
    let mut message = message(&mut piece, Some(&mut rights));
    // SAFETY: the message and all that it points to live until the call is over; the kernel writes as much as they hold.
    let len = unsafe { call!(abi::__NR_recvmsg, socket, &raw mut message, MSG_CMSG_CLOEXEC) }?;
    let came = message.control_len >= RIGHTS_LEN;
    let is_one = came && (rights.len, rights.level, rights.kind) == (RIGHTS_LEN, SOL_SOCKET, SCM_RIGHTS);
    Ok((len, is_one.then_some(rights.descriptor)))
}

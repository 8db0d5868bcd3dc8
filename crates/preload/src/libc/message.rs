//! `sendmsg`: names of sockets in a mount, and descriptors of ours that are sent
//! to somebody else (`SCM_RIGHTS`).
//!
//! Whoever gets a descriptor may not have the library: it is sent as a kernel
//! descriptor of the same file at the same offset, through the kernel's mount at
//! the same path. The offset is that descriptor's own. Without a mount what is sent
//! tells a program of the session which file it is ([`passed`]); for others it is `EBADF`.

use crate::libc::passed;
use crate::process::hand_over;
use crate::runtime::front_end::PROCESS;
use crate::runtime::{alloc, call, kernel, operation, phase, placeholders, thread, tls, vfork_child};
use core::ffi::c_int;
use pm::faults;
use pm::sys::{self, abi::*};

const ENOTSOCK: isize = -88;
const ENOMEM: isize = -12;
const EFAULT: isize = -14;
const SOL_SOCKET: c_int = 1;
const SCM_RIGHTS: c_int = 1;
/// `struct cmsghdr`.
const CONTROL_HEAD: usize = 16;
/// More than the descriptors of one message (253) and the other things there are need.
const CONTROL_MAX: usize = 4096;
/// `struct sockaddr_un`.
const NAME_MAX: usize = 112;

/// `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    name: usize,
    name_len: u32,
    parts: usize,
    part_count: usize,
    control: usize,
    control_len: usize,
    flags: c_int,
}

/// `struct mmsghdr`.
#[repr(C)]
pub struct Sent {
    header: Header,
    len: u32,
}

const _: () = assert!(size_of::<Header>() == 56 && size_of::<Sent>() == 64);

/// Sends a message that concerns us, kernel-style result; `None`: it does not.
///
/// # Safety
/// As for `sendmsg`.
pub unsafe fn send(socket: c_int, message: *const Header, flags: c_int) -> Option<isize> {
    let tls = tls::get();
    if !vfork_child::serves(tls) || posix::bad_pointer(message as usize) {
        return None;
    }
    if call::is_ours(socket) {
        return Some(ENOTSOCK);
    }
    // SAFETY: by contract.
    let Ok(mut header) = (unsafe { faults::read(message) }) else { return None };
    if header.control_len >= CONTROL_HEAD {
        // Numbers that only the pool holds are not open.
        placeholders::flush();
    }
    let mut name = [0u8; NAME_MAX];
    // SAFETY: by contract.
    let renamed = match unsafe { peer(tls, &header, &mut name) } {
        Ok(None) => false,
        Ok(Some(len)) => {
            (header.name, header.name_len) = (name.as_ptr() as usize, len as u32);
            true
        }
        Err(error) => return Some(error),
    };
    // SAFETY: by contract.
    let control = match unsafe { Control::of(tls, &header) } {
        Ok(control) => control,
        Err(error) => return Some(error),
    };
    match &control {
        Some(control) => header.control = control.sent().as_ptr() as usize,
        None if !renamed => return None,
        None => {}
    }
    // SAFETY: the program's message, but for what was copied above.
    Some(unsafe { sys::raw(__NR_sendmsg as usize, [socket as usize, &raw const header as usize, flags as usize, 0, 0, 0]) })
}

/// `sendmmsg`, one by one, if any of the messages could concern us.
///
/// # Safety
/// As for `sendmmsg`.
pub unsafe fn send_all(socket: c_int, messages: *mut Sent, count: u32, flags: c_int) -> Option<isize> {
    if !vfork_child::serves(tls::get()) || posix::bad_pointer(messages as usize) {
        return None;
    }
    let bytes = count as usize * size_of::<Sent>();
    if faults::readable(messages.cast(), bytes) < bytes {
        return None;
    }
    // SAFETY: by contract.
    let at = |index: u32| unsafe { &mut *messages.add(index as usize) };
    if !(0..count).any(|index| at(index).header.name_len != 0 || at(index).header.control_len >= CONTROL_HEAD) {
        return None;
    }
    for index in 0..count {
        let one = at(index);
        // SAFETY: by contract.
        let result = unsafe { send(socket, &one.header, flags) }.unwrap_or_else(|| {
            let args = [socket as usize, &raw const one.header as usize, flags as usize, 0, 0, 0];
            // SAFETY: the program's own message.
            unsafe { sys::raw(__NR_sendmsg as usize, args) }
        });
        if result < 0 {
            return Some(if index > 0 { index as isize } else { result });
        }
        one.len = result as u32;
    }
    Some(count as isize)
}

/// How long an address is that the kernel has written, of `len` bytes, once it is the name that was bound: see
/// [`posix::Process::show_bound`].
///
/// # Safety
/// `address` is the program's, with room for `room` bytes.
pub unsafe fn shown(address: *mut u8, room: u32, len: u32) -> u32 {
    let tls = tls::get();
    if !phase::is_active(tls) {
        return len;
    }
    operation::enter(tls);
    // SAFETY: by contract.
    let len = unsafe { PROCESS.show_bound(thread::state(tls), address as usize, room as usize, len as usize) };
    operation::leave(tls);
    len as u32
}

/// What room a message has for an address.
///
/// # Safety
/// `message` is the program's.
pub unsafe fn room(message: *const Header) -> u32 {
    // SAFETY: by contract.
    unsafe { faults::read(message) }.map_or(0, |header| if header.name == 0 { 0 } else { header.name_len })
}

/// As [`shown`], of a message that was received, with the descriptors in it.
///
/// # Safety
/// As for [`room`]; the kernel has written it.
pub unsafe fn received(result: isize, message: *mut Header, room: u32) -> isize {
    if result >= 0 && phase::is_mounted() {
        // SAFETY: by contract.
        let header = unsafe { &*message };
        if header.control_len > CONTROL_HEAD {
            // SAFETY: by contract: control data of that length.
            let control = unsafe { core::slice::from_raw_parts_mut(header.control as *mut u8, header.control_len) };
            each_descriptor(control, |fd| passed::received(*fd));
        }
    }
    if result >= 0 && room > 0 {
        // SAFETY: by contract.
        let header = unsafe { &mut *message };
        // SAFETY: by contract.
        header.name_len = unsafe { shown(header.name as *mut u8, room, header.name_len) };
    }
    result
}

/// The kernel's name of the socket that the message goes to, if it lies in a
/// mount: its length in `out`; or a negated error number.
///
/// # Safety
/// As for [`send`].
unsafe fn peer(tls: &tls::Tls, header: &Header, out: &mut [u8; NAME_MAX]) -> Result<Option<usize>, isize> {
    if header.name == 0 || header.name_len == 0 {
        return Ok(None);
    }
    operation::enter(tls);
    // SAFETY: by contract.
    let found = unsafe { PROCESS.kernel_peer(thread::state(tls), header.name, header.name_len as usize) };
    let copied = found.map(|address| {
        address.map(|(pointer, len)| {
            let len = len.min(out.len());
            // SAFETY: an address of that length in this thread's room.
            unsafe { core::ptr::copy_nonoverlapping(pointer as *const u8, out.as_mut_ptr(), len) };
            len
        })
    });
    operation::leave(tls);
    copied.map_err(|error| -(error.errno().0 as isize))
}

/// A copy of a message's control data in which the kernel's descriptors stand
/// for ours; dropping it closes them.
struct Control {
    /// What the program wrote, then what is sent; each `len` bytes.
    block: *mut u8,
    len: usize,
}

impl Control {
    /// `None` if there are no descriptors of ours in it.
    ///
    /// # Safety
    /// As for [`send`].
    unsafe fn of(tls: &tls::Tls, header: &Header) -> Result<Option<Control>, isize> {
        let len = header.control_len;
        if !(CONTROL_HEAD..=CONTROL_MAX).contains(&len) || posix::bad_pointer(header.control) || placeholders::in_use() == 0 {
            return Ok(None);
        }
        let block = alloc::alloc(2 * len);
        if block.is_null() {
            return Err(ENOMEM);
        }
        let mut control = Control { block, len };
        for copy in 0..2 {
            // SAFETY: the program's data, into a block of twice that length. The
            // second copy is made of the first, in case somebody changes it meanwhile.
            let copied = unsafe {
                let from = if copy == 0 { header.control as *const u8 } else { block };
                faults::transfer(from, block.add(copy * len), len)
            };
            if copied < len {
                return Err(EFAULT);
            }
        }
        let mut any = false;
        each_descriptor(control.sent_mut(), |fd| {
            if !call::is_ours(*fd) {
                return;
            }
            operation::enter(tls);
            if let Some(file) = hand_over::open_in_kernel(tls, *fd as u32, false).or_else(|| passed::carrier(*fd as u32)) {
                *fd = file as c_int;
                any = true;
            }
            operation::leave(tls);
        });
        Ok(any.then_some(control))
    }

    fn sent(&self) -> &[u8] {
        // SAFETY: the second half of the block.
        unsafe { core::slice::from_raw_parts(self.block.add(self.len), self.len) }
    }

    fn sent_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nobody else refers to it.
        unsafe { core::slice::from_raw_parts_mut(self.block.add(self.len), self.len) }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: the first half of the block.
        let written = unsafe { core::slice::from_raw_parts_mut(self.block, self.len) };
        let mut numbers = [0 as c_int; CONTROL_MAX / 4];
        let mut count = 0;
        each_descriptor(written, |fd| {
            numbers[count] = *fd;
            count += 1;
        });
        let mut index = 0;
        each_descriptor(self.sent_mut(), |fd| {
            if numbers[index] != *fd {
                kernel::close(*fd);
            }
            index += 1;
        });
        // SAFETY: not used any more.
        unsafe { alloc::free(self.block) };
    }
}

/// Each descriptor that control data hold, as the kernel walks them.
fn each_descriptor(control: &mut [u8], mut each: impl FnMut(&mut c_int)) {
    let mut at = 0;
    while at + CONTROL_HEAD <= control.len() {
        let word = |at: usize| c_int::from_ne_bytes([control[at], control[at + 1], control[at + 2], control[at + 3]]);
        let mut len = [0u8; 8];
        len.copy_from_slice(&control[at..at + 8]);
        let len = usize::from_ne_bytes(len);
        // The kernel refuses the whole message.
        if len < CONTROL_HEAD || len > control.len() - at {
            return;
        }
        if (word(at + 8), word(at + 12)) == (SOL_SOCKET, SCM_RIGHTS) {
            for place in control[at + CONTROL_HEAD..at + len].chunks_exact_mut(4) {
                let mut fd = c_int::from_ne_bytes([place[0], place[1], place[2], place[3]]);
                each(&mut fd);
                place.copy_from_slice(&fd.to_ne_bytes());
            }
        }
        at += len.next_multiple_of(8);
    }
}

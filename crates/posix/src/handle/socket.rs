//! AF_UNIX socket names of ours: a socket node in the image, the kernel's
//! socket in the private directory, the address rewritten on the way.

use super::{err, fail};
use crate::path::{CWD, Place};
use crate::text::bad;
use crate::{Outcome, Process, ThreadState};
use base::{Cx, Error, Kind, Last, NewNode, W};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::sys::abi;

const AF_UNIX: u16 = 1;
/// Length of `sun_path`.
const NAME_MAX: usize = 108;
const ENOTSOCK: Errno = Errno(88);
const EADDRINUSE: Errno = Errno(98);
const ECONNREFUSED: Errno = Errno(111);

/// The path in an address, if it is AF_UNIX and not abstract.
///
/// # Safety
/// `address` is [bad](crate::bad_pointer) or good for `len` bytes.
unsafe fn name_in<'a>(address: usize, len: usize) -> Option<&'a [u8]> {
    if bad(address) || len <= 2 || len > 2 + NAME_MAX {
        return None;
    }
    if pm::faults::readable(address as *const u8, len) < len {
        return None;
    }
    // SAFETY: the caller's promise, and just seen to be there.
    let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, len) };
    if u16::from_ne_bytes([bytes[0], bytes[1]]) != AF_UNIX || bytes[2] == 0 {
        return None;
    }
    let name = &bytes[2..];
    Some(&name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())])
}

#[allow(clippy::missing_safety_doc)]
impl Process {
    /// Resolves an address, `None` where it is not ours. The path is copied, as
    /// it need not end in a NUL.
    unsafe fn address<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        address: usize,
        len: usize,
        last: Last,
    ) -> base::Result<Option<Place<'a>>> {
        // SAFETY: the caller's promise.
        let Some(name) = (unsafe { name_in(address, len) }) else { return Ok(None) };
        // SAFETY: the name is the program's; the second text is not in use by a call with one path.
        let text = unsafe { thread.compose(1, b"", name) }?;
        // SAFETY: the composed text ends in a NUL.
        let place = unsafe { self.resolve(cx, thread, 0, CWD, text.as_ptr() as usize, last) }?;
        Ok(match place {
            Place::Kernel => None,
            place => Some(place),
        })
    }

    /// An address for the kernel, in this thread's spare room: pointer and length.
    fn kernel_address(&self, thread: &ThreadState, path: &[u8]) -> base::Result<(usize, usize)> {
        let path = path.strip_suffix(&[0]).unwrap_or(path);
        if path.len() >= NAME_MAX {
            return err(Errno::ENAMETOOLONG);
        }
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let room = unsafe { &mut *thread.room().outside.get() }.as_flattened_mut();
        room[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
        room[2..2 + path.len()].copy_from_slice(path);
        room[2 + path.len()] = 0;
        Ok((room.as_ptr() as usize, 3 + path.len()))
    }

    /// Whether the kernel finds by itself, through its own mount, what the path in an address leads to.
    ///
    /// # Safety
    /// `address` is [bad](crate::bad_pointer) or good for `len` bytes.
    unsafe fn kernel_finds(&self, thread: &ThreadState, slot: usize, address: usize, len: usize) -> bool {
        // SAFETY: the caller's promise.
        let Some(name) = (unsafe { name_in(address, len as u32 as usize) }) else { return false };
        let is_relative = name.first() != Some(&b'/');
        self.is_kernels_too(slot) && !thread.retry.get() && !(is_relative && self.cwd_is_virtual.load(Relaxed))
    }

    /// Whether there is anything at a path of the kernel's, with its NUL.
    fn is_there(&self, path: &[u8]) -> bool {
        // SAFETY: a NUL-terminated path.
        unsafe { self.door.kernel(abi::__NR_faccessat as usize, [CWD, path.as_ptr() as usize, 0, 0, 0, 0]) == 0 }
    }

    /// The kernel has written an address, of `len` bytes, where there is room for `room`: if it is that of a socket inside an
    /// image, the name that was bound is put there instead. How long it is.
    ///
    /// # Safety
    /// `address` is [bad](crate::bad_pointer) or writable for `room` bytes.
    pub unsafe fn show_bound(&self, thread: &ThreadState, address: usize, room: usize, len: usize) -> usize {
        // SAFETY: the caller's promise.
        let Some(path) = (unsafe { name_in(address, len.min(room)) }) else { return len };
        let mut name = [0u8; NAME_MAX + 1];
        let Some(bytes) = self.bound_name(thread, path, &mut name[..NAME_MAX]) else { return len };
        let part = (bytes + 1).min(room.saturating_sub(2));
        // SAFETY: the caller's promise; no more than there is room for.
        let written = unsafe { pm::faults::transfer(name.as_ptr(), (address + 2) as *mut u8, part) };
        if written < part { len } else { 2 + bytes + 1 }
    }

    /// `bind(socket, address, len)`.
    pub unsafe fn bind(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        if self.file(args[0]).is_some() {
            return fail(ENOTSOCK);
        }
        let cx = self.cx(thread);
        // SAFETY: the caller's promise.
        match unsafe { self.address(&cx, thread, args[1], args[2] as u32 as usize, Last::Parent) } {
            Ok(None) => Outcome::Kernel,
            // SAFETY: the caller's promise.
            Ok(Some(Place::Ours(spot))) if unsafe { self.kernel_finds(thread, spot.slot, args[1], args[2]) } => Outcome::Kernel,
            Ok(Some(Place::Ours(spot))) => {
                let made = if !spot.is_name() || spot.found.slash {
                    err(EADDRINUSE)
                } else {
                    let new = NewNode { kind: Kind::Socket, mode: 0o777, rdev: 0, target: b"" };
                    spot.mount.backend.create(&cx, spot.found.parent, spot.found.name, &new)
                };
                let node = match made {
                    Ok(node) => node,
                    Err(Error::Posix(Errno::EEXIST)) => return fail(EADDRINUSE),
                    Err(error) => return fail(error.errno()),
                };
                let bound = self.private_path(thread, spot.mount.backend.identity(), node, Kind::Socket).and_then(|path| {
                    // The node is new: whatever lies there belonged to another one, long ago.
                    let stale = [crate::path::CWD, path.as_ptr() as usize, 0, 0, 0, 0];
                    // SAFETY: a NUL-terminated path.
                    unsafe { self.door.kernel(abi::__NR_unlinkat as usize, stale) };
                    let (address, len) = self.kernel_address(thread, path)?;
                    // SAFETY: an address of ours.
                    let result = unsafe { self.door.kernel(abi::__NR_bind as usize, [args[0], address, len, 0, 0, 0]) };
                    pm::sys::check(result)?;
                    // SAFETY: the caller's promise.
                    if let Some(name) = unsafe { name_in(args[1], args[2] as u32 as usize) } {
                        self.name_object(thread, path, name);
                    }
                    Ok(())
                });
                if let Err(error) = bound {
                    let _ = spot.mount.backend.unlink(&cx, spot.found.parent, spot.found.name);
                    return fail(error.errno());
                }
                Outcome::Done(0)
            }
            Ok(Some(Place::Text(text))) => match self.text_address(thread, text) {
                Ok((address, len)) => Outcome::KernelWith { nr: abi::__NR_bind as usize, args: [args[0], address, len, 0, 0, 0] },
                Err(error) => fail(error.errno()),
            },
            Ok(Some(Place::Kernel)) => Outcome::Kernel,
            Err(error) => fail(error.errno()),
        }
    }

    /// `connect(socket, address, len)`.
    pub unsafe fn connect(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.toward(thread, abi::__NR_connect, args, 1, 2) }
    }

    /// `sendto(socket, buffer, len, flags, address, len)`.
    pub unsafe fn sendto(&self, thread: &ThreadState, args: [usize; 6]) -> Outcome {
        // SAFETY: the caller's promise.
        unsafe { self.toward(thread, abi::__NR_sendto, args, 4, 5) }
    }

    /// A call on a socket: none of our descriptors is one.
    pub fn no_socket(&self, args: [usize; 6]) -> Outcome {
        if self.file(args[0]).is_some() { fail(ENOTSOCK) } else { Outcome::Kernel }
    }

    unsafe fn toward(&self, thread: &ThreadState, nr: u32, mut args: [usize; 6], address: usize, len: usize) -> Outcome {
        if self.file(args[0]).is_some() {
            return fail(ENOTSOCK);
        }
        // SAFETY: the caller's promise.
        match unsafe { self.kernel_peer(thread, args[address], args[len] as u32 as usize) } {
            Ok(None) => Outcome::Kernel,
            Ok(Some((pointer, bytes))) => {
                (args[address], args[len]) = (pointer, bytes);
                Outcome::KernelWith { nr: nr as usize, args }
            }
            Err(error) => fail(error.errno()),
        }
    }

    /// What the kernel calls the socket at an address: pointer and length of
    /// another address, which holds until this thread's next call. `None`: what
    /// the program calls it.
    ///
    /// # Safety
    /// `address` is [bad](crate::bad_pointer) or good for `len` bytes.
    pub unsafe fn kernel_peer(&self, thread: &ThreadState, address: usize, len: usize) -> base::Result<Option<(usize, usize)>> {
        let cx = self.cx(thread);
        // SAFETY: the caller's promise.
        match unsafe { self.address(&cx, thread, address, len, Last::Follow) }? {
            Some(Place::Ours(spot)) => {
                let node = spot.node(&cx)?;
                let backend = spot.mount.backend;
                backend.access(&cx, node, W)?;
                if backend.attr(&cx, node)?.kind != Kind::Socket {
                    return err(ECONNREFUSED);
                }
                let path = self.private_path(thread, backend.identity(), node, Kind::Socket)?;
                // SAFETY: the caller's promise.
                if unsafe { self.kernel_finds(thread, spot.slot, address, len) } && !self.is_there(path) {
                    return Ok(None);
                }
                self.kernel_address(thread, path).map(Some)
            }
            Some(Place::Text(text)) => self.text_address(thread, text).map(Some),
            Some(Place::Kernel) | None => Ok(None),
        }
    }

    /// The address of a text that leads out of a mount, to the kernel.
    fn text_address(&self, thread: &ThreadState, text: usize) -> base::Result<(usize, usize)> {
        // SAFETY: a NUL-terminated text of this thread.
        let path = unsafe { crate::text::path(text) }.map_err(Error::Posix)?;
        self.kernel_address(thread, path.bytes)
    }
}

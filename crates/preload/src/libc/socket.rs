//! Calls that make descriptors of the kernel, and AF_UNIX addresses.
//!
//! They are here so that a pooled placeholder never takes a number that POSIX
//! promises to them (`call` empties the pool first), and so that the address of
//! a socket inside an image is found.

use crate::libc::message::{self, Header, Sent};
use crate::runtime::call;
use crate::runtime::errno::{self, ret, ret_int};
use crate::runtime::stores::{ahead, ahead_of};
use crate::{next, serve};
use pm::sys::abi::*;

type Address = unsafe extern "C" fn(i32, *mut u8, *mut u32) -> i32;
type Address4 = unsafe extern "C" fn(i32, *mut u8, *mut u32, i32) -> i32;
type SendMessage = unsafe extern "C" fn(i32, *const Header, i32) -> isize;
type SendMessages = unsafe extern "C" fn(i32, *mut Sent, u32, i32) -> i32;
type ReceiveFrom = unsafe extern "C" fn(i32, *mut u8, usize, i32, *mut u8, *mut u32) -> isize;
type ReceiveMessages = unsafe extern "C" fn(i32, *mut Sent, u32, i32, *mut u8) -> i32;
/// How many messages of one call have their addresses shown as they were bound.
const MESSAGES: u32 = 64;
const EBADF: i32 = 9;
const ENOTSOCK: i32 = 88;
type Message = unsafe extern "C" fn(i32, *mut u8, i32) -> isize;

/// The kernel may have written the address of a socket of its own that stands behind one in a mount: shows the name that
/// was bound. `room` is what the program said there was room for.
///
/// # Safety
/// `address` and `len` are the program's, written by the kernel.
unsafe fn named(result: isize, address: *mut u8, len: *mut u32, room: u32) -> isize {
    if result >= 0 && !address.is_null() && !len.is_null() {
        // SAFETY: by contract.
        unsafe { *len = message::shown(address, room, *len) };
    }
    result
}

/// What libc's function gave: of one of ours the kernel only knows that it is open as a path.
fn socket_only(result: isize, fd: i32) -> isize {
    if result < 0 && errno::get() == EBADF && call::is_ours(fd) {
        errno::set(ENOTSOCK);
    }
    result
}

/// # Safety
/// `len` is the program's.
unsafe fn room(len: *const u32) -> u32 {
    if len.is_null() {
        return 0;
    }
    // SAFETY: by contract.
    unsafe { pm::faults::read(len) }.unwrap_or(0)
}

export! {
    fn [socket, __socket](domain: i32, kind: i32, protocol: i32) -> i32 {
        ret_int(serve!(__NR_socket, domain, kind, protocol))
    }
    fn socketpair(domain: i32, kind: i32, protocol: i32, out: *mut i32) -> i32 {
        ret_int(serve!(__NR_socketpair, domain, kind, protocol, out))
    }
    fn accept(fd: i32, address: *mut u8, len: *mut u32) -> i32 {
        crate::runtime::placeholders::flush();
        let room = room(len);
        match next!(Address, "accept") {
            Some(next) => named(socket_only(next(fd, address, len) as isize, fd), address, len, room) as i32,
            None => ret_int(serve!(__NR_accept, fd, address, len)),
        }
    }
    fn accept4(fd: i32, address: *mut u8, len: *mut u32, flags: i32) -> i32 {
        crate::runtime::placeholders::flush();
        let room = room(len);
        match next!(Address4, "accept4") {
            Some(next) => named(socket_only(next(fd, address, len, flags) as isize, fd), address, len, room) as i32,
            None => ret_int(serve!(__NR_accept4, fd, address, len, flags)),
        }
    }
    fn [recvmsg, __recvmsg](fd: i32, message: *mut u8, flags: i32) -> isize {
        crate::runtime::placeholders::flush();
        ahead_of(__NR_recvmsg, [0, message as usize, 0, 0, 0, 0]);
        let room = message::room(message.cast());
        match next!(Message, "recvmsg") {
            Some(next) => message::received(socket_only(next(fd, message, flags), fd), message.cast(), room),
            None => ret(serve!(__NR_recvmsg, fd, message, flags)),
        }
    }
    fn recvmmsg(fd: i32, messages: *mut Sent, count: u32, flags: i32, timeout: *mut u8) -> i32 {
        crate::runtime::placeholders::flush();
        ahead_of(__NR_recvmmsg, [0, messages as usize, count as usize, 0, 0, 0]);
        match next!(ReceiveMessages, "recvmmsg") {
            Some(next) => {
                let rooms = (0..count.min(MESSAGES)).map(|index| message::room(messages.wrapping_add(index as usize).cast()));
                let mut known = [0u32; MESSAGES as usize];
                known.iter_mut().zip(rooms).for_each(|(place, room)| *place = room);
                let result = socket_only(next(fd, messages, count, flags, timeout) as isize, fd) as i32;
                for index in 0..result.max(0) as usize {
                    let room = known.get(index).copied().unwrap_or(0);
                    message::received(0, messages.wrapping_add(index).cast(), room);
                }
                result
            }
            None => ret_int(serve!(__NR_recvmmsg, fd, messages, count, flags, timeout)),
        }
    }
    fn [getsockopt, __getsockopt](fd: i32, level: i32, option: i32, value: *mut u8, len: *mut u32) -> i32 {
        ret_int(serve!(__NR_getsockopt, fd, level, option, value, len))
    }
    fn [setsockopt, __setsockopt](fd: i32, level: i32, option: i32, value: *const u8, len: u32) -> i32 {
        ret_int(serve!(__NR_setsockopt, fd, level, option, value, len))
    }
    fn listen(fd: i32, backlog: i32) -> i32 {
        ret_int(serve!(__NR_listen, fd, backlog))
    }
    fn shutdown(fd: i32, how: i32) -> i32 {
        ret_int(serve!(__NR_shutdown, fd, how))
    }
    fn [getsockname, __getsockname](fd: i32, address: *mut u8, len: *mut u32) -> i32 {
        let room = room(len);
        ret_int(named(serve!(__NR_getsockname, fd, address, len), address, len, room))
    }
    fn getpeername(fd: i32, address: *mut u8, len: *mut u32) -> i32 {
        let room = room(len);
        ret_int(named(serve!(__NR_getpeername, fd, address, len), address, len, room))
    }
    fn recvfrom(fd: i32, data: *mut u8, bytes: usize, flags: i32, address: *mut u8, len: *mut u32) -> isize {
        ahead(data as usize, bytes);
        let room = room(len);
        match next!(ReceiveFrom, "recvfrom") {
            Some(next) => named(socket_only(next(fd, data, bytes, flags, address, len), fd), address, len, room),
            None => ret(named(serve!(__NR_recvfrom, fd, data, bytes, flags, address, len), address, len, room)),
        }
    }
    fn [sendmsg, __sendmsg](fd: i32, message: *const Header, flags: i32) -> isize {
        match (message::send(fd, message, flags), next!(SendMessage, "sendmsg")) {
            (Some(result), _) => ret(result),
            (None, Some(next)) => next(fd, message, flags),
            (None, None) => ret(serve!(__NR_sendmsg, fd, message, flags)),
        }
    }
    fn [sendmmsg, __sendmmsg](fd: i32, messages: *mut Sent, count: u32, flags: i32) -> i32 {
        match (message::send_all(fd, messages, count, flags), next!(SendMessages, "sendmmsg")) {
            (Some(result), _) => ret_int(result),
            (None, Some(next)) => next(fd, messages, count, flags),
            (None, None) => ret_int(serve!(__NR_sendmmsg, fd, messages, count, flags)),
        }
    }
    fn bind(fd: i32, address: *const u8, len: u32) -> i32 {
        ret_int(serve!(__NR_bind, fd, address, len))
    }
    fn [connect, __connect](fd: i32, address: *const u8, len: u32) -> i32 {
        ret_int(serve!(__NR_connect, fd, address, len))
    }
    fn sendto(fd: i32, data: *const u8, bytes: usize, flags: i32, address: *const u8, len: u32) -> isize {
        ret(serve!(__NR_sendto, fd, data, bytes, flags, address, len))
    }
    fn [pipe, __pipe](out: *mut i32) -> i32 {
        ret_int(serve!(__NR_pipe2, out, 0))
    }
    fn pipe2(out: *mut i32, flags: i32) -> i32 {
        ret_int(serve!(__NR_pipe2, out, flags))
    }
    fn eventfd(value: u32, flags: i32) -> i32 {
        ret_int(serve!(__NR_eventfd2, value, flags))
    }
    fn memfd_create(name: super::Text, flags: u32) -> i32 {
        ret_int(serve!(__NR_memfd_create, name, flags))
    }
    fn timerfd_create(clock: i32, flags: i32) -> i32 {
        ret_int(serve!(__NR_timerfd_create, clock, flags))
    }
    fn signalfd(fd: i32, mask: *const u8, flags: i32) -> i32 {
        ret_int(serve!(__NR_signalfd4, fd, mask, 8, flags))
    }
    fn inotify_init() -> i32 {
        ret_int(serve!(__NR_inotify_init1, 0))
    }
    fn inotify_init1(flags: i32) -> i32 {
        ret_int(serve!(__NR_inotify_init1, flags))
    }
    fn inotify_add_watch(fd: i32, path: super::Text, mask: u32) -> i32 {
        ret_int(serve!(__NR_inotify_add_watch, fd, path, mask))
    }
    fn fanotify_init(flags: u32, event_flags: u32) -> i32 {
        ret_int(serve!(__NR_fanotify_init, flags, event_flags))
    }
    fn fanotify_mark(fd: i32, flags: u32, mask: u64, dirfd: i32, path: super::Text) -> i32 {
        ret_int(serve!(__NR_fanotify_mark, fd, flags, mask, dirfd, path))
    }
    fn epoll_create(size: i32) -> i32 {
        if size <= 0 {
            crate::runtime::errno::set(22);
            return -1;
        }
        ret_int(serve!(__NR_epoll_create1, 0))
    }
    fn epoll_create1(flags: i32) -> i32 {
        ret_int(serve!(__NR_epoll_create1, flags))
    }
    fn epoll_ctl(epoll: i32, operation: i32, fd: i32, event: *mut u8) -> i32 {
        ret_int(serve!(__NR_epoll_ctl, epoll, operation, fd, event))
    }
}

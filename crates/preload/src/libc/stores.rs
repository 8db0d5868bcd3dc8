//! Functions by which the kernel stores into the program's memory, and which have no other business here.
//!
//! Libc makes their calls inside itself. What they store into may be a mapped file ([`crate::runtime::stores`]).

use crate::runtime::errno::{ret, ret_int};
use crate::runtime::stores::{ahead, ahead_of};
use crate::{next, serve};
use core::ffi::{c_int, c_uint, c_void};
use pm::sys::abi::*;

type Receive = unsafe extern "C" fn(c_int, *mut u8, usize, c_int) -> isize;
type ReceiveChecked = unsafe extern "C" fn(c_int, *mut u8, usize, usize, c_int) -> isize;
type Random = unsafe extern "C" fn(*mut u8, usize, c_uint) -> isize;
type Entropy = unsafe extern "C" fn(*mut u8, usize) -> c_int;
type Wait = unsafe extern "C" fn(*mut c_int) -> c_int;
type WaitFor = unsafe extern "C" fn(c_int, *mut c_int, c_int) -> c_int;
type WaitUsed = unsafe extern "C" fn(c_int, *mut c_int, c_int, *mut u8) -> c_int;
type Message = unsafe extern "C" fn(c_int, *mut u8, usize, isize, c_int) -> isize;
type Queued = unsafe extern "C" fn(c_int, *mut u8, usize, *mut c_uint) -> isize;
type QueuedTimed = unsafe extern "C" fn(c_int, *mut u8, usize, *mut c_uint, *const c_void) -> isize;

/// Bytes of a `struct rusage`, and of the type before a System V message.
const USAGE: usize = 144;
const MESSAGE_HEAD: usize = 8;

export! {
    fn recv(fd: c_int, at: *mut u8, len: usize, flags: c_int) -> isize {
        ahead(at as usize, len);
        next!(Receive, "recv").map_or_else(|| ret(serve!(__NR_recvfrom, fd, at, len, flags, 0, 0)), |next| next(fd, at, len, flags))
    }
    fn __recv_chk(fd: c_int, at: *mut u8, len: usize, room: usize, flags: c_int) -> isize {
        ahead(at as usize, len);
        next!(ReceiveChecked, "__recv_chk").map_or_else(|| recv(fd, at, len, flags), |next| next(fd, at, len, room, flags))
    }
    fn getrandom(at: *mut u8, len: usize, flags: c_uint) -> isize {
        ahead(at as usize, len);
        next!(Random, "getrandom").map_or_else(|| ret(serve!(__NR_getrandom, at, len, flags)), |next| next(at, len, flags))
    }
    fn getentropy(at: *mut u8, len: usize) -> c_int {
        ahead(at as usize, len);
        next!(Entropy, "getentropy").map_or(-1, |next| next(at, len))
    }
    fn [wait, __wait](status: *mut c_int) -> c_int {
        ahead(status as usize, 4);
        next!(Wait, "wait").map_or(-1, |next| next(status))
    }
    fn [waitpid, __waitpid](pid: c_int, status: *mut c_int, options: c_int) -> c_int {
        ahead(status as usize, 4);
        next!(WaitFor, "waitpid").map_or(-1, |next| next(pid, status, options))
    }
    fn wait4(pid: c_int, status: *mut c_int, options: c_int, usage: *mut u8) -> c_int {
        ahead(status as usize, 4);
        ahead(usage as usize, USAGE);
        next!(WaitUsed, "wait4").map_or(-1, |next| next(pid, status, options, usage))
    }
    fn getrusage(who: c_int, usage: *mut u8) -> c_int {
        ahead(usage as usize, USAGE);
        ret_int(serve!(__NR_getrusage, who, usage))
    }
    fn msgrcv(queue: c_int, at: *mut u8, len: usize, kind: isize, flags: c_int) -> isize {
        ahead(at as usize, len.saturating_add(MESSAGE_HEAD));
        next!(Message, "msgrcv").map_or(-1, |next| next(queue, at, len, kind, flags))
    }
    fn mq_receive(queue: c_int, at: *mut u8, len: usize, priority: *mut c_uint) -> isize {
        ahead(at as usize, len);
        ahead(priority as usize, 4);
        next!(Queued, "mq_receive").map_or(-1, |next| next(queue, at, len, priority))
    }
    fn mq_timedreceive(queue: c_int, at: *mut u8, len: usize, priority: *mut c_uint, until: *const c_void) -> isize {
        ahead(at as usize, len);
        ahead(priority as usize, 4);
        next!(QueuedTimed, "mq_timedreceive").map_or(-1, |next| next(queue, at, len, priority, until))
    }
    fn process_vm_readv(pid: c_int, own: usize, count: usize, theirs: usize, their_count: usize, flags: usize) -> isize {
        ahead_of(__NR_readv, [0, own, count, 0, 0, 0]);
        ret(serve!(__NR_process_vm_readv, pid, own, count, theirs, their_count, flags))
    }
}

//! poll and select. A file is always ready.
//!
//! What is not ours goes to libc's own function: they are cancellation points
//! that wait.

use crate::runtime::call::any_ours;
use crate::runtime::errno::ret_int;
use crate::runtime::masks::waiting;
use crate::{next, serve};
use pm::sys::abi::*;

/// Seconds and nanoseconds; `None` for a null pointer. The kernel writes the
/// remaining time back, libc's functions don't: hence a copy.
///
/// # Safety
/// `time` is null or points to a `timespec`.
unsafe fn copy(time: *const [i64; 2]) -> Option<[i64; 2]> {
    // SAFETY: by contract.
    if time.is_null() { None } else { Some(unsafe { *time }) }
}

fn address(time: &mut Option<[i64; 2]>) -> *mut i64 {
    time.as_mut().map_or(core::ptr::null_mut(), |t| t.as_mut_ptr())
}

export! {
    fn [poll, __poll](set: *mut u8, count: usize, timeout: i32) -> i32 {
        if !any_ours() && let Some(next) = next!(unsafe extern "C" fn(*mut u8, usize, i32) -> i32, "poll") {
            return next(set, count, timeout);
        }
        let mut time = (timeout >= 0).then_some([timeout as i64 / 1000, timeout as i64 % 1000 * 1_000_000]);
        ret_int(serve!(__NR_ppoll, set, count, address(&mut time), 0, 8))
    }
    fn __poll_chk(set: *mut u8, count: usize, timeout: i32, room: usize) -> i32 {
        if count > room / 8 { crate::runtime::panic::overflow() }
        poll(set, count, timeout)
    }
    fn ppoll(set: *mut u8, count: usize, timeout: *const [i64; 2], mask: *const u64) -> i32 {
        let own = waiting(mask);
        let mask = own.as_ref().map_or(mask, |own| own);
        type Own = unsafe extern "C" fn(*mut u8, usize, *const [i64; 2], *const u64) -> i32;
        if !any_ours() && let Some(next) = next!(Own, "ppoll") {
            return next(set, count, timeout, mask);
        }
        let mut time = copy(timeout);
        ret_int(serve!(__NR_ppoll, set, count, address(&mut time), mask, 8))
    }
    fn __ppoll_chk(set: *mut u8, count: usize, timeout: *const [i64; 2], mask: *const u64, room: usize) -> i32 {
        if count > room / 8 { crate::runtime::panic::overflow() }
        ppoll(set, count, timeout, mask)
    }
    fn [select, __select](count: i32, read: *mut u8, write: *mut u8, except: *mut u8, timeout: *mut [i64; 2]) -> i32 {
        type Own = unsafe extern "C" fn(i32, *mut u8, *mut u8, *mut u8, *mut [i64; 2]) -> i32;
        if !any_ours() && let Some(next) = next!(Own, "select") {
            return next(count, read, write, except, timeout);
        }
        // Microseconds in, nanoseconds for the kernel, and the rest back.
        let mut time = match copy(timeout) {
            Some([seconds, micros]) if seconds < 0 || micros < 0 => {
                crate::runtime::errno::set(22);
                return -1;
            }
            other => other.map(|[seconds, micros]| [seconds + micros / 1_000_000, micros % 1_000_000 * 1000]),
        };
        let result = serve!(__NR_pselect6, count, read, write, except, address(&mut time), 0);
        if let Some([seconds, nanos]) = time {
            *timeout = [seconds, nanos / 1000];
        }
        ret_int(result)
    }
    fn [pselect, __pselect](count: i32, read: *mut u8, write: *mut u8, except: *mut u8, timeout: *const [i64; 2], mask: *const u64) -> i32 {
        let own = waiting(mask);
        let mask = own.as_ref().map_or(mask, |own| own);
        type Own = unsafe extern "C" fn(i32, *mut u8, *mut u8, *mut u8, *const [i64; 2], *const u64) -> i32;
        if !any_ours() && let Some(next) = next!(Own, "pselect") {
            return next(count, read, write, except, timeout, mask);
        }
        let mut time = copy(timeout);
        let sixth = [mask as usize, 8];
        ret_int(serve!(__NR_pselect6, count, read, write, except, address(&mut time), sixth.as_ptr()))
    }
}

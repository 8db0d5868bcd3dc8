//! What the kernel tells of processes and of itself, from `/proc`.

use crate::segment::ProcessSlot;
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::file::File;
use pm::sys::abi;

/// The kernel's boot id; `None` where there is no `/proc`.
pub(super) fn boot_id() -> Option<[u64; 2]> {
    let mut text = [0u8; 64];
    let len = read(b"/proc/sys/kernel/random/boot_id\0", &mut text)?;
    hexadecimal(&text[..len])
}

/// The first 32 hexadecimal digits of a text; `None` if they are all 0.
fn hexadecimal(text: &[u8]) -> Option<[u64; 2]> {
    let mut words = [0u64; 2];
    let digits = text.iter().filter_map(|byte| char::from(*byte).to_digit(16));
    for (i, digit) in digits.take(32).enumerate() {
        words[i / 16] = words[i / 16] << 4 | u64::from(digit);
    }
    (words != [0; 2]).then_some(words)
}

/// The id of `/etc/machine-id`; 0 where there is none.
pub(super) fn machine_id() -> [u64; 2] {
    let mut text = [0u8; 33];
    let len = read(b"/etc/machine-id\0", &mut text).unwrap_or(0);
    hexadecimal(&text[..len]).unwrap_or([0; 2])
}

/// The host's name, filled up with zeros; of the UTS namespace that we are in.
pub(super) fn host_name() -> [u8; 64] {
    // Six texts of 65 bytes; the second is the name.
    const TEXT: usize = 65;
    let mut names = [0u8; 6 * TEXT];
    let mut name = [0u8; 64];
    // SAFETY: the buffer is a `struct utsname`.
    if unsafe { pm::call!(abi::__NR_uname, names.as_mut_ptr()) }.is_ok() {
        name.copy_from_slice(&names[TEXT..TEXT + 64]);
    }
    name
}

/// Our PID in our own namespace.
pub(super) fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { pm::call!(abi::__NR_getpid) }.unwrap_or(0) as u32
}

/// Our parent's PID; 0 if it is in another namespace.
pub(super) fn parent_pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { pm::call!(abi::__NR_getppid) }.unwrap_or(0) as u32
}

/// Ends this process, by `SIGABRT` where nobody catches it, after one line on stderr.
#[cold]
pub(super) fn abort(line: &str) -> ! {
    // SAFETY: the text outlives the call.
    let _ = unsafe { pm::call!(abi::__NR_write, 2, line.as_ptr(), line.len()) };
    // SAFETY: no pointers; a signal to ourselves.
    let _ = unsafe { pm::call!(abi::__NR_kill, pid(), abi::SIGABRT) };
    loop {
        // SAFETY: ends the process.
        let _ = unsafe { pm::call!(abi::__NR_exit_group, 134) };
    }
}

/// Identity of our PID namespace; 0 where it is not known.
///
/// The inode's number, as the link tells it (`pid:[4026531836]`): half the time of following it.
pub(super) fn pid_namespace() -> u64 {
    let mut text = [0u8; 32];
    // SAFETY: the path is NUL-terminated, the buffer writable for its length.
    let len =
        unsafe { pm::call!(abi::__NR_readlinkat, abi::AT_FDCWD, c"/proc/self/ns/pid".as_ptr(), text.as_mut_ptr(), text.len()) };
    len.ok().and_then(|len| bracketed(text.get(..len)?)).unwrap_or(0)
}

/// The number in `pid:[number]`.
fn bracketed(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"pid:[")?.strip_suffix(b"]")?;
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Start time of a process, clock ticks since boot; 0 where it is not known.
pub(super) fn start_time(pid: u32) -> u64 {
    status(pid).map_or(0, |status| status.started)
}

/// Whether the process of a slot lives, as far as PIDs tell.
pub(super) fn slot_lives(slot: &ProcessSlot) -> Option<bool> {
    lives(slot.pid.load(Relaxed), slot.pid_namespace.load(Relaxed), slot.started.load(Relaxed))
}

/// Whether a process lives, as far as its PID tells; `None` when it does not (it
/// is of another PID namespace). `started`: its start time, 0 if unknown.
pub(super) fn lives(pid: u32, namespace: u64, started: u64) -> Option<bool> {
    if pid == 0 || namespace == 0 || namespace != pid_namespace() {
        return None;
    }
    // SAFETY: no pointers; signal 0 only asks.
    if unsafe { pm::call!(abi::__NR_kill, pid, 0) } == Err(Errno::ESRCH) {
        return Some(false);
    }
    let Some(status) = status(pid) else { return Some(true) };
    // The first thread may have ended before the others.
    let ended = matches!(status.state, b'Z' | b'X') && status.threads <= 1;
    Some(!ended && (started == 0 || started == status.started))
}

/// Whether a process of our namespace is stopped, by a signal or a debugger.
pub(super) fn is_stopped(pid: u32) -> bool {
    status(pid).is_some_and(|status| matches!(status.state, b'T' | b't'))
}

struct Status {
    state: u8,
    threads: u64,
    started: u64,
}

/// From `/proc/<pid>/stat`: the fields after the command, which ends with the last parenthesis.
fn status(pid: u32) -> Option<Status> {
    let mut path = *b"/proc/__________/stat\0";
    let mut digits = [b'0'; 10];
    let mut rest = pid;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let skip = digits.iter().take_while(|digit| **digit == b'0').count().min(9);
    let mut len = 6;
    for byte in digits[skip..].iter().chain(b"/stat\0") {
        path[len] = *byte;
        len += 1;
    }
    let mut text = [0u8; 1024];
    let got = read(&path[..len], &mut text)?;
    let after = text[..got].iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = text[after..got].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let mut number = |skip: usize| -> Option<u64> {
        let field = fields.nth(skip)?;
        Some(field.iter().fold(0u64, |value, byte| value.wrapping_mul(10).wrapping_add(u64::from(byte.wrapping_sub(b'0')))))
    };
    // Field 20 counted from the PID, and field 22.
    let threads = number(16)?;
    let started = number(1)?;
    Some(Status { state, threads, started })
}

/// Reads a small file of the kernel's.
fn read(path: &[u8], into: &mut [u8]) -> Option<usize> {
    let file = File::open(path, abi::O_RDONLY, 0).ok()?;
    file.read_at(into, 0).ok().filter(|len| *len > 0)
}

/// The kernel's working directory, without a NUL; its length. `None` if it is
/// unreachable or too long.
pub(super) fn working_directory(into: &mut [u8; 4096]) -> Option<usize> {
    // SAFETY: the buffer is writable for its length.
    let len = unsafe { pm::call!(abi::__NR_getcwd, into.as_mut_ptr(), into.len()) }.ok()?;
    (into[0] == b'/').then_some(len.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the number that the link tells is the inode's; anything else is no number.
    #[test]
    fn namespaces() {
        assert_eq!(pid_namespace(), pm::file::stat(b"/proc/self/ns/pid\0").unwrap().ino);
        for text in [&b""[..], b"pid:[", b"pid:[]x", b"pid:[12", b"mnt:[12]", b"pid:[1 2]", b"pid:[99999999999999999999]"] {
            assert_eq!(bracketed(text), None, "{text:?}");
        }
    }
}

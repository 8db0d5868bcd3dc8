//! Whether a process or a thread lives, told without its help.
//!
//! A robust mutex proves a death as long as the dead one's robust list was whole: a program that dies with a wrecked
//! thread block, or that had set a list of its own, leaves the mutex held. So whoever takes one notes who it is
//! ([`Who`]), and whoever finds it held may ask the kernel. Nothing is believed that isn't proof:
//! - PIDs mean the same within one PID namespace; in another one only the mutex counts.
//! - no process has that PID, or one that has ended and waits for its parent; a first thread that has ended before
//!   the others is no dead process;
//! - or the process with that PID began after the holder was seen alive. The holder notes the time and nothing of its
//!   own beginning, which would cost a look into `/proc` at every start. Times are compared within one time namespace.
//! - `/proc` is asked where it shows our own namespace only.

use crate::file::File;
use crate::sys::abi;
use crate::{Errno, call};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Clock ticks of `/proc/PID/stat`, nanoseconds: `USER_HZ` is 100 wherever we run.
const TICK_NS: u64 = 10_000_000;

/// A process, and a time at which it lived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Who {
    /// As its own namespace knows it.
    pub pid: u32,
    /// Identity of its PID namespace; 0: not known.
    pub namespace: u64,
    /// A time at which it lived, nanoseconds since boot; 0: not known.
    pub since: u64,
}

/// How closely to look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// One system call if all is well; a zombie, or another process of that PID, passes for alive.
    Quick,
    /// Into `/proc`, too: some ten microseconds.
    Thorough,
}

/// What is kept of this process: PID, namespace and time.
static OWN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// The PID of the process that this one was forked from; 0: not known.
static PARENT: AtomicU64 = AtomicU64::new(0);

/// This process, and a time at which it lived: that of the first call.
///
/// A look into `/proc` costs a new process twenty microseconds, so a child takes its parent's word for the namespace: a parent in
/// another one would have no PID here.
pub fn own() -> Who {
    let pid = pid();
    let kept = |index: usize| OWN[index].load(Relaxed);
    if kept(0) != u64::from(pid) {
        let parent = u64::from(parent());
        if parent != 0 && parent == kept(0) {
            // On its parent's memory, perhaps: what is kept is the parent's.
            return Who { pid, namespace: kept(1), since: now() };
        }
        if parent == 0 || parent != PARENT.load(Relaxed) {
            OWN[1].store(namespace(), Relaxed);
        }
        OWN[2].store(now(), Relaxed);
        OWN[0].store(u64::from(pid), Relaxed);
    }
    Who { pid, namespace: kept(1), since: kept(2) }
}

/// In a forked child: it is another process, in another namespace perhaps.
pub fn forget() {
    PARENT.store(OWN[0].swap(0, Relaxed), Relaxed);
}

/// Nanoseconds since boot, of the clock by which the kernel notes when processes begin.
pub fn now() -> u64 {
    let mut time = abi::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for a timespec.
    let _ = unsafe { call!(abi::__NR_clock_gettime, abi::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(abi::__NR_getpid) }.unwrap_or(0) as u32
}

fn parent() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(abi::__NR_getppid) }.unwrap_or(0) as u32
}

impl Who {
    /// Whether it lives; `None` where that can't be told from here.
    pub fn lives(&self, look: Look) -> Option<bool> {
        self.is_near().then(|| self.lives_here(look))
    }

    fn lives_here(&self, look: Look) -> bool {
        // SAFETY: no pointers; signal 0 only asks.
        if unsafe { call!(abi::__NR_kill, self.pid, 0) } == Err(Errno::ESRCH) {
            return false;
        }
        let status = if look == Look::Thorough { Status::of(self.pid) } else { None };
        status.is_none_or(|status| !status.has_ended() && !self.began_later(status))
    }

    /// Whether it lives, where PIDs are all that is known: what can't be told lives.
    pub(crate) fn lives_by_number(&self) -> bool {
        self.pid != 0 && self.pid <= i32::MAX as u32 && Who { since: 0, ..*self }.lives_here(Look::Thorough)
    }

    /// Whether a thread of it lives; `None` as for [`Who::lives`].
    pub fn thread_lives(&self, thread: u32, look: Look) -> Option<bool> {
        if !self.is_near() {
            return None;
        }
        // SAFETY: no pointers; signal 0 only asks.
        if unsafe { call!(abi::__NR_tgkill, self.pid, thread, 0) } == Err(Errno::ESRCH) {
            return Some(false);
        }
        let status = if look == Look::Thorough { Status::of(self.pid) } else { None };
        // The first one, which has ended before the others.
        let has_ended = |status: Status| status.has_ended() || thread == self.pid && status.is_zombie();
        Some(status.is_none_or(|status| !has_ended(status) && !self.began_later(status)))
    }

    /// What the kernel says of its state, a letter as in `/proc/PID/stat`; `None` where that can't be told.
    pub fn state(&self) -> Option<u8> {
        Some(Status::of(self.pid).filter(|_| self.is_near())?.state)
    }

    /// Whether its PID means the same here.
    fn is_near(&self) -> bool {
        self.pid != 0 && self.pid <= i32::MAX as u32 && self.namespace != 0 && self.namespace == own().namespace
    }

    /// Whether a process of this PID is another one.
    fn began_later(&self, status: Status) -> bool {
        // The beginning is rounded down.
        self.since != 0 && status.started.saturating_mul(TICK_NS) > self.since && has_our_time(self.pid)
    }
}

/// Whether process `pid` counts time as we do.
fn has_our_time(pid: u32) -> bool {
    let theirs = Path::of(pid, b"/ns/time\0");
    match (link(&theirs.0), link(b"/proc/self/ns/time\0")) {
        (Ok(theirs), Ok(own)) => theirs == own,
        // A kernel without such namespaces.
        (Err(Errno::ENOENT), Err(Errno::ENOENT)) => true,
        _ => false,
    }
}

/// Identity of our PID namespace; 0 where it is not known.
///
/// The inode's number, as the link tells it (`pid:[4026531836]`): half the time of following it.
pub fn namespace() -> u64 {
    link(b"/proc/self/ns/pid\0").ok().and_then(|text| bracketed(text.split(|byte| *byte == 0).next()?)).unwrap_or(0)
}

/// The number in `pid:[number]`.
fn bracketed(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"pid:[")?.strip_suffix(b"]")?;
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// What a short link says, zeroes after it.
fn link(path: &[u8]) -> Result<[u8; 32], Errno> {
    let mut text = [0u8; 32];
    // SAFETY: the path is NUL-terminated, the buffer writable for its length.
    unsafe { call!(abi::__NR_readlinkat, abi::AT_FDCWD, path.as_ptr(), text.as_mut_ptr(), text.len()) }?;
    Ok(text)
}

/// A path below `/proc/PID`, NUL-terminated.
struct Path([u8; 32]);

impl Path {
    fn of(pid: u32, rest: &[u8]) -> Path {
        let mut path = [0; 32];
        let mut digits = [0u8; 10];
        let text = decimal(pid, &mut digits);
        let parts = b"/proc/".iter().chain(text).chain(rest);
        path.iter_mut().zip(parts).for_each(|(place, byte)| *place = *byte);
        Path(path)
    }
}

/// A number's digits.
fn decimal(mut number: u32, into: &mut [u8; 10]) -> &[u8] {
    let mut first = into.len();
    loop {
        first -= 1;
        into[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &into[first..];
        }
    }
}

/// What `/proc` tells of a process.
#[derive(Clone, Copy)]
struct Status {
    state: u8,
    /// The kernel's `PF_` flags.
    flags: u64,
    threads: u64,
    /// Ticks since boot.
    started: u64,
}

/// The first thread is ending (`PF_EXITING`).
const EXITING: u64 = 4;

/// Whether a process of our namespace is about to end: it does nothing any more for whoever relies on it, though its end may take
/// the kernel some time.
pub fn is_ending(pid: u32) -> bool {
    Status::of(pid).is_some_and(|status| status.flags & EXITING != 0)
}

impl Status {
    /// Of a process of our namespace; `None` where `/proc` does not show that.
    fn of(pid: u32) -> Option<Status> {
        let (mut digits, own) = ([0u8; 10], link(b"/proc/self\0").ok()?);
        let shown = own.split(|byte| *byte == 0).next()?;
        if shown != decimal(self::pid(), &mut digits) {
            return None;
        }
        let file = File::open(Path::of(pid, b"/stat\0").0.split_inclusive(|byte| *byte == 0).next()?, abi::O_RDONLY, 0).ok()?;
        let mut text = [0u8; 1024];
        let len = file.read_at(&mut text, 0).ok()?;
        Status::parse(text.get(..len)?)
    }

    /// From the fields after the command, which ends with the last parenthesis.
    fn parse(text: &[u8]) -> Option<Status> {
        let after = text.iter().rposition(|byte| *byte == b')')? + 1;
        let mut fields = text.get(after..)?.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let state = *fields.next()?.first()?;
        let mut number = |skip: usize| {
            let digits = fields.nth(skip)?;
            Some(
                digits.iter().fold(0u64, |value, digit| value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')))),
            )
        };
        // Fields 9, 20 and 22, counted from the PID.
        let flags = number(5)?;
        let threads = number(10)?;
        let started = number(1)?;
        Some(Status { state, flags, threads, started })
    }

    fn is_zombie(self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// The first thread may have ended before the others.
    fn has_ended(self) -> bool {
        self.is_zombie() && self.threads <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the number that the link tells is the inode's; anything else is no number.
    #[test]
    fn namespaces() {
        assert_eq!(namespace(), crate::file::stat(b"/proc/self/ns/pid\0").unwrap().ino);
        for text in [&b""[..], b"pid:[", b"pid:[]x", b"pid:[12", b"mnt:[12]", b"pid:[1 2]", b"pid:[99999999999999999999]"] {
            assert_eq!(bracketed(text), None, "{text:?}");
        }
    }

    /// Goal: a child knows its namespace, whether it is its parent's or another one. Method: children by fork, which note that
    /// they are, or do not; with a namespace of their own where that is allowed (root).
    #[test]
    fn children_know_their_namespace() {
        // The namespace for children stays this thread's, and ends with it.
        std::thread::spawn(|| {
            own();
            for unshares in [false, true] {
                // SAFETY: no pointers.
                if unshares && unsafe { call!(abi::__NR_unshare, abi::CLONE_NEWPID) }.is_err() {
                    std::println!("skip a namespace of its own: not allowed");
                    break;
                }
                for forgets in [false, true] {
                    // SAFETY: the child makes system calls and ends.
                    let child = unsafe { call!(abi::__NR_clone, abi::SIGCHLD, 0, 0, 0, 0) }.unwrap();
                    if child == 0 {
                        if forgets {
                            forget();
                        }
                        let (known, twice) = (own(), own());
                        let is_right = known.namespace == namespace() && known.namespace != 0 && known.pid == pid();
                        let code = u32::from(!(is_right && twice.namespace == known.namespace && twice.since >= known.since));
                        // SAFETY: ends the child.
                        let _ = unsafe { call!(abi::__NR_exit_group, code) };
                    }
                    let mut status = 0u32;
                    // SAFETY: room for the answer.
                    unsafe { call!(abi::__NR_wait4, child, &raw mut status, 0, 0) }.unwrap();
                    assert_eq!(status, 0, "unshares: {unshares}, forgets: {forgets}");
                    if unshares {
                        // Its first process has ended, and with it the namespace.
                        break;
                    }
                }
            }
        })
        .join()
        .unwrap();
    }

    /// Goal: only what is proven dead is told to be. Method: ourselves, and a child, as a zombie and gone, with times
    /// before and after its beginning, and in a namespace that isn't ours.
    #[test]
    fn proofs() {
        let own = own();
        assert_eq!(own.lives(Look::Thorough), Some(true));
        let thread = crate::mutex::thread_number();
        assert_eq!(own.thread_lives(thread, Look::Thorough), Some(true));
        assert_eq!(own.thread_lives(i32::MAX as u32, Look::Quick), Some(false));
        let before = now() - 2 * TICK_NS;
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let seen = |since| Who { pid: child.id(), since, ..own };
        let (earlier, later, unknown) = (seen(before - 1_000_000_000), seen(now()), seen(0));
        let other = Who { namespace: own.namespace + 1, ..later };
        assert_eq!(earlier.lives(Look::Quick), Some(true));
        assert_eq!(earlier.lives(Look::Thorough), Some(false), "another process of that number");
        assert_eq!((later.lives(Look::Thorough), unknown.lives(Look::Thorough)), (Some(true), Some(true)));
        assert!(matches!(later.state(), Some(b'S' | b'R' | b'D')) && other.state().is_none());
        child.kill().unwrap();
        while later.lives(Look::Thorough) == Some(true) {
            std::thread::yield_now();
        }
        assert_eq!(later.lives(Look::Quick), Some(true), "it waits for its parent");
        child.wait().unwrap();
        assert_eq!((later.lives(Look::Quick), unknown.lives(Look::Quick)), (Some(false), Some(false)));
        assert_eq!((other.lives(Look::Thorough), other.thread_lives(1, Look::Quick)), (None, None));
    }

    /// Goal: a first thread that has ended before the others is dead, its process isn't. Method: lines as the kernel writes them.
    #[test]
    fn first_threads() {
        let of = |text: &str| Status::parse(text.as_bytes()).map(|it| (it.is_zombie(), it.has_ended(), it.started));
        let line = |state: &str, threads: &str| {
            std::format!("12 (a) b) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 777 9")
        };
        assert_eq!(of(&line("Z", "2")), Some((true, false, 777)));
        assert_eq!(of(&line("Z", "1")), Some((true, true, 777)));
        assert_eq!(of(&line("T", "1")), Some((false, false, 777)));
        assert_eq!((of(""), of("1 (x) Z 1 2")), (None, None));
    }
}

//! Child processes with a root directory of their own, watched for crashes and hangs.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Words shared with a child: where it is.
pub struct Watch {
    words: *mut AtomicU64,
}

impl Watch {
    fn new() -> Watch {
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(at != libc::MAP_FAILED, "no memory");
        Watch { words: at.cast() }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the page holds 512 of them and stays mapped.
        unsafe { &*self.words.add(index) }
    }

    /// The child has begun a sequence.
    pub fn sequence(&self, sequence: u64) {
        self.word(0).store(sequence, Relaxed);
    }

    /// The child has begun a step.
    pub fn step(&self, step: usize) {
        self.word(1).store(step as u64, Relaxed);
    }
}

/// How a child ended.
pub enum Report {
    /// As it should.
    Fine,
    /// With a difference, a crash, or not at all.
    #[allow(missing_docs)]
    Failed { sequence: u64, step: usize, text: String },
}

/// A running child.
pub struct Child {
    pid: i32,
    pipe: fs::File,
    watch: Watch,
}

/// Starts `work` in a child.
pub fn spawn(work: impl FnOnce(&Watch) -> Result<(), String>) -> Child {
    let watch = Watch::new();
    let mut ends = [0i32; 2];
    // SAFETY: room for two descriptors.
    assert!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0, "no pipe");
    let _ = std::io::stdout().flush();
    // SAFETY: this program has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        // Out of the way of the small numbers that are compared.
        // SAFETY: our own descriptors.
        unsafe { libc::dup2(ends[1], 900) };
        // SAFETY: as above; the child needs nothing else.
        unsafe { libc::close_range(3, 899, 0) };
        // SAFETY: at the parent's death this child ends too.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // SAFETY: 900 was made above and nobody else owns it.
        let mut pipe = fs::File::from(unsafe { OwnedFd::from_raw_fd(900) });
        // Also below the end of `close_range` in sequences.
        let result = work(&watch);
        if let Err(text) = &result {
            let _ = pipe.write_all(text.as_bytes());
        }
        // SAFETY: ends this child without the parent's exit handlers.
        unsafe { libc::_exit(result.is_err() as i32) };
    }
    // SAFETY: the writing end is the child's.
    unsafe { libc::close(ends[1]) };
    // SAFETY: made above and nobody else owns it.
    let pipe = fs::File::from(unsafe { OwnedFd::from_raw_fd(ends[0]) });
    Child { pid, pipe, watch }
}

impl Child {
    /// Its PID.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Kills it, if it has not ended by itself.
    pub fn kill(&self) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// Waits for it; a child that takes no new step for `seconds` is killed.
    pub fn wait(mut self, seconds: u64) -> Report {
        let mut last = (u64::MAX, u64::MAX);
        let mut since = Instant::now();
        let mut status = 0;
        let mut hung = false;
        // SAFETY: our own child.
        while unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) } == 0 {
            let now = (self.watch.word(0).load(Relaxed), self.watch.word(1).load(Relaxed));
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(seconds) {
                hung = true;
                // SAFETY: our own child, not yet waited for.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        let (sequence, step) = (self.watch.word(0).load(Relaxed), self.watch.word(1).load(Relaxed) as usize);
        let failed = |text| Report::Failed { sequence, step, text };
        // SAFETY: mapped by `Watch::new`, and nobody else's.
        unsafe { libc::munmap(self.watch.words.cast(), 4096) };
        let _ = fs::remove_dir_all(root_of(self.pid));
        if hung {
            return failed("hangs".into());
        }
        if libc::WIFSIGNALED(status) {
            return failed(format!("died of signal {}", libc::WTERMSIG(status)));
        }
        if libc::WEXITSTATUS(status) == 0 {
            return Report::Fine;
        }
        let mut text = String::new();
        let _ = self.pipe.read_to_string(&mut text);
        failed(text)
    }
}

/// Where a child's files lie; removed when it has ended.
pub fn root_of(pid: i32) -> String {
    format!("/dev/shm/bypath-testkit-{pid}")
}

fn check(result: i32, what: &str) -> Result<(), String> {
    if result == 0 { Ok(()) } else { Err(format!("{what}: {}", std::io::Error::last_os_error())) }
}

/// Gives this process a fresh tmpfs as its root directory (in namespaces of
/// its own, so that nothing is left of it afterwards). Whoever is not root does
/// so in a user namespace and is an ordinary user afterwards.
///
/// # Errors
/// [`NO_ROOT`] where the machine doesn't let an ordinary user do that.
pub fn own_root(inside: Option<&CStr>) -> Result<(), String> {
    // SAFETY: takes no arguments.
    let (pid, user, group) = unsafe { (libc::getpid(), libc::geteuid(), libc::getegid()) };
    let root = root_of(pid);
    fs::create_dir_all(&root).map_err(|e| format!("{root}: {e}"))?;
    let path = CString::new(root.as_str()).map_err(|e| e.to_string())?;
    if user != 0 {
        own_user_namespace(user, group).map_err(|e| format!("{NO_ROOT}: {e}"))?;
    }
    // SAFETY: flags only.
    let mounts = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    if mounts {
        hide_mounts();
        // If it fails, the plain directory on `/dev/shm` serves.
        mount_tmpfs(&path);
    }
    // SAFETY: a NUL-terminated text.
    check(unsafe { libc::chroot(path.as_ptr()) }, "chroot")?;
    std::env::set_current_dir(Path::new("/")).map_err(|e| e.to_string())?;
    // SAFETY: a NUL-terminated text.
    check(unsafe { libc::chmod(c"/".as_ptr(), 0o777) }, "chmod")?;
    if let Some(inside) = inside {
        if !mounts {
            return Err(format!("{NO_ROOT}, nor mounts"));
        }
        // SAFETY: a NUL-terminated text.
        check(unsafe { libc::mkdir(inside.as_ptr(), 0o777) }, "mkdir")?;
        check(mount_tmpfs(inside), "mount")?;
    }
    // SAFETY: a mask.
    unsafe { libc::umask(0o22) };
    if user != 0 { drop_capabilities() } else { Ok(()) }
}

/// Makes an existing directory this thread's root.
///
/// # Errors
/// If there is none, or only root may do that.
pub fn enter_root(directory: &Path) -> Result<(), String> {
    let path = CString::new(directory.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: a NUL-terminated text.
    check(unsafe { libc::chroot(path.as_ptr()) }, "chroot")?;
    // SAFETY: a NUL-terminated text.
    check(unsafe { libc::chdir(c"/".as_ptr()) }, "chdir")?;
    // SAFETY: a mask.
    unsafe { libc::umask(0o22) };
    Ok(())
}

/// What an error begins with where nobody but root can have a root directory of his own.
pub const NO_ROOT: &str = "no root directory of our own (not root, and no user namespaces here)";

/// Enters a user namespace in which this user and group are the only ones.
fn own_user_namespace(user: u32, group: u32) -> Result<(), String> {
    // SAFETY: flags only.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }, "unshare")?;
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text).map_err(|e| format!("{file}: {e}"));
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

/// Lets nobody else see what this thread mounts.
fn hide_mounts() {
    // SAFETY: texts are NUL-terminated or null.
    unsafe { libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE, std::ptr::null()) };
}

/// Mounts a tmpfs; the call's result.
fn mount_tmpfs(path: &CStr) -> i32 {
    let options = c"size=2g,mode=777".as_ptr().cast();
    // SAFETY: texts are NUL-terminated.
    unsafe { libc::mount(c"tmpfs".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), libc::MS_NOATIME, options) }
}

/// Gives up what a new user namespace grants.
fn drop_capabilities() -> Result<(), String> {
    // `_LINUX_CAPABILITY_VERSION_3`, and this thread.
    let header = [0x2008_0522u32, 0];
    let none = [0u32; 6];
    // SAFETY: a header and the three masks, twice 32 bits each.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    check(result as i32, "capset")
}

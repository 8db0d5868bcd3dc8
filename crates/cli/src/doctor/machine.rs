//! What this machine, container or user is allowed.

use super::{Finding, State, program};
use crate::attach::segment_directory;
use crate::bundled;
use crate::library;

use crate::mounts::transport;
use crate::size;
use rustix::process::{Resource, getrlimit};
use std::fs::{OpenOptions, read_to_string};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// With less room for shared caches large images will not be served.
const ROOM: u64 = 64 << 20;
/// Descriptors of ours take the kernel's numbers.
const FILES: u64 = 256;

/// All findings.
pub fn look() -> Vec<Finding> {
    vec![kernel(), libraries(), shared_cache(), fuse(), user_namespaces(), dispatch(), files(), memory()]
}

fn kernel() -> Finding {
    let name = rustix::system::uname();
    let found = format!("Linux {}, {}", name.release().to_string_lossy(), name.machine().to_string_lossy());
    Finding::good("kernel", found)
}

/// The C library, and ours for it.
fn libraries() -> Finding {
    let libc = library::c_library().or_else(bundled::c_library);
    let libc = libc.and_then(|path| Some(path.canonicalize().ok()?.display().to_string()));
    let libc = libc.unwrap_or_else(|| "no glibc".to_string());
    match library::preload() {
        Ok(path) => Finding::good("library", format!("{} for {libc}", path.display())),
        Err(failure) => Finding::not_good("library", State::Bad, format!("none for {libc}"), failure.to_string()),
    }
}

fn shared_cache() -> Finding {
    let directory = segment_directory().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let (shown, name) = (directory.display(), "shared cache");
    let elsewhere = "make it larger (docker: --shm-size), or name another directory in BYPATH_SEGMENT_DIR";
    let Ok((free, all)) = pm::file::room(&[directory.as_os_str().as_bytes(), b"\0"].concat()) else {
        return Finding::not_good(name, State::Bad, format!("{shown} is not there"), elsewhere);
    };
    let found = format!("{shown}, {} free of {}", size::show(free), size::show(all));
    if rustix::fs::access(&directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_err() {
        return Finding::not_good(name, State::Bad, format!("{shown} may not be written"), elsewhere);
    }
    if free < ROOM && all > 0 {
        return Finding::not_good(name, State::Limited, found, elsewhere);
    }
    Finding::good(name, found)
}

/// The kernel's way, for programs that the library cannot be loaded into.
fn fuse() -> Finding {
    let name = "fuse";
    let without = format!("{} and other users do not see images", program::past_library());
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        let found = format!("/dev/fuse: {}", crate::failure::describe(pm::Errno(error.raw_os_error().unwrap_or(0))));
        return Finding::not_good(
            name,
            State::Limited,
            found,
            format!("{without}; docker: --device /dev/fuse --cap-add SYS_ADMIN"),
        );
    }
    if rustix::process::geteuid().is_root() {
        return Finding::good(name, "/dev/fuse, as root");
    }
    match transport::find("fusermount3".as_ref()) {
        Some(path) => Finding::good(name, format!("/dev/fuse, by {}", path.display())),
        None => Finding::not_good(name, State::Limited, "/dev/fuse, but no fusermount3", format!("{without}; install fuse3")),
    }
}

/// Why the kernel could not be given a mount.
pub fn no_kernel_mount() -> String {
    let found = fuse();
    match found.state {
        State::Good => "the kernel refused it (bypath mount says why)".to_string(),
        _ => found.found,
    }
}

/// They are tried: what the settings say is not all that forbids them.
fn user_namespaces() -> Finding {
    let name = "user namespaces";
    let setting = |path: &str| read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default();
    let forbidden = [
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ];
    let by = forbidden.iter().find(|(path, value)| setting(path) == *value).map(|(path, value)| format!("{path} is {value}"));
    let unimportant = "only tools that make containers need them";
    let mut command = Command::new("unshare");
    command.args(["--user", "true"]).env_remove("LD_PRELOAD").stdout(Stdio::null()).stderr(Stdio::null());
    match (command.status().map(|status| status.success()), by) {
        (Ok(true), _) => Finding::good(name, "allowed"),
        (Ok(false), Some(by)) => Finding::not_good(name, State::Limited, format!("refused: {by}"), unimportant),
        (Ok(false), None) => Finding::not_good(name, State::Limited, "refused, as in most containers", unimportant),
        (Err(_), Some(by)) => {
            Finding::not_good(name, State::Limited, format!("not tried, for lack of unshare; {by}"), unimportant)
        }
        (Err(_), None) => Finding::good(name, "not tried, for lack of unshare; nothing forbids them"),
    }
}

/// Linux 5.11's way to hand a program's system calls to the program itself.
fn dispatch() -> Finding {
    let name = "system call dispatch";
    if pm::host::has_dispatch() {
        return Finding::good(name, "there");
    }
    Finding::not_good(name, State::Limited, "not there", "Linux 5.11 has it, on x86-64, where no sandbox forbids it")
}

fn files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let found = limit.map_or("no limit".to_string(), |limit| format!("{limit} a program"));
    match limit {
        Some(limit) if limit < FILES => Finding::not_good("open files", State::Limited, found, "raise it: ulimit -n"),
        _ => Finding::good("open files", found),
    }
}

/// Pages of images in /dev/shm, and those of shared caches, count as the container's.
fn memory() -> Finding {
    let name = "memory";
    if let Some(limit) = getrlimit(Resource::As).current {
        let found = format!("address space limited to {}", size::show(limit));
        return Finding::not_good(name, State::Limited, found, "images are mapped whole: ulimit -v unlimited");
    }
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().find_map(|path| read_to_string(path).ok()?.trim().parse::<u64>().ok());
    match limit.filter(|&limit| limit < 1 << 60) {
        Some(limit) => Finding::good(
            name,
            format!("the container's limit is {}; images in /dev/shm and shared caches count", size::show(limit)),
        ),
        None => Finding::good(name, "no limit"),
    }
}

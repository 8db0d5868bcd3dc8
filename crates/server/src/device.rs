//! `/dev/fuse`, and the mount itself: as root by the system calls, else through `fusermount3`.

use crate::fuse::READ_AHEAD;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::collections::HashSet;
use std::fmt;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Why there is no mount. Shown as the end of a line that starts with what was to be mounted.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum MountError {
    /// No such directory.
    Missing,
    NotDirectory,
    /// Something is mounted there already: what.
    Busy(String),
    /// No `/dev/fuse`.
    NoDevice,
    /// Neither root nor `fusermount3`.
    NotAllowed,
    /// A system call failed: which.
    Failed(&'static str, Errno),
    /// `fusermount3` has said so.
    Helper(String),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            MountError::Missing => f.write_str("no such directory; make it first"),
            MountError::NotDirectory => f.write_str("not a directory"),
            MountError::Busy(what) => write!(f, "busy: {what} is mounted there; choose another directory, or unmount that"),
            MountError::NoDevice => {
                f.write_str("no /dev/fuse here, so nothing can be mounted; `bypath run --mount IMG:/dir -- CMD` does without")
            }
            MountError::NotAllowed => f.write_str(
                "not permitted; be root, or install fusermount3 (package fuse3), or use `bypath run`, which does without",
            ),
            MountError::Failed(what, errno) => write!(f, "{what} failed: {}", std::io::Error::from(*errno)),
            MountError::Helper(text) => f.write_str(text),
        }
    }
}

/// How an image is to be mounted.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// What `mount` and `df` show.
    pub source: &'a Path,
    /// Where.
    pub directory: &'a Path,
    /// Set-id programs and devices in it are honoured: only where nobody but
    /// root could have put them there.
    pub trusted: bool,
    /// The kernel refuses every change.
    pub read_only: bool,
}

/// Looks whether something can be mounted on a directory; what is left of a
/// mount whose server is gone is cleaned away.
pub fn prepare(directory: &Path) -> Result<PathBuf, MountError> {
    for _ in 0..8 {
        // `statfs` asks the server; attributes might be what the kernel keeps of a dead one.
        let asked = rustix::fs::statfs(directory).map_err(std::io::Error::from);
        match asked.and_then(|_| std::fs::metadata(directory)) {
            Ok(meta) if !meta.is_dir() => return Err(MountError::NotDirectory),
            Ok(_) => {}
            Err(error) => match Errno::from_io_error(&error) {
                // A mount without a server.
                Some(Errno::NOTCONN | Errno::CONNABORTED) => {
                    unmount(directory, true)?;
                    continue;
                }
                Some(Errno::NOENT) => return Err(MountError::Missing),
                Some(Errno::NOTDIR) => return Err(MountError::NotDirectory),
                Some(errno) => return Err(MountError::Failed("stat", errno)),
                None => return Err(MountError::Missing),
            },
        }
        let real = std::fs::canonicalize(directory).map_err(|error| failed("realpath", &error))?;
        return match mounted_at(&real) {
            Some(mounted) => Err(MountError::Busy(mounted.to_string())),
            None => Ok(real),
        };
    }
    Err(MountError::Busy("a mount whose server has died, again and again,".to_string()))
}

/// Whether set-id programs and devices in a directory of the kernel's are what they say.
pub fn honours_rights(directory: &Path) -> bool {
    let flags = rustix::fs::statvfs(directory).map(|stat| stat.f_flag);
    let refused = rustix::fs::StatVfsMountFlags::NOSUID | rustix::fs::StatVfsMountFlags::NODEV;
    flags.is_ok_and(|flags| !flags.intersects(refused))
}

/// Whether a directory carries a mount whose server is gone.
pub fn is_stale(directory: &Path) -> bool {
    matches!(rustix::fs::statfs(directory), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

fn failed(what: &'static str, error: &std::io::Error) -> MountError {
    MountError::Failed(what, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// What is mounted somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// What `mount` and `df` show.
    pub source: String,
    /// Kind of file system.
    pub kind: String,
    /// `st_dev` of what is in it.
    pub device: u64,
    /// The kernel refuses every change.
    pub read_only: bool,
}

impl fmt::Display for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({})", self.source, self.kind)
    }
}

/// What is mounted exactly at an absolute path, if anything. This asks the
/// kernel's table, not the mount, so that the server of a mount may ask.
pub fn mounted_at(directory: &Path) -> Option<Mounted> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    // The last one covers those before it.
    table.split(|byte| *byte == b'\n').rev().find_map(|line| mounted_in(line, directory))
}

/// Whether any mount that we can see is of this source and has this `st_dev`; a number alone may be another's by now.
pub fn is_mounted(source: &Path, device: u64) -> bool {
    std::fs::read("/proc/self/mountinfo").is_ok_and(|table| has_mount(&table, source, device))
}

/// Whether a process in another mount namespace has such a mount: a copy of ours from when that was made.
pub fn is_mounted_for_others(source: &Path, device: u64) -> bool {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let mut seen = HashSet::from([namespace(Path::new("/proc/self"))]);
    std::fs::read_dir("/proc").into_iter().flatten().flatten().any(|process| {
        let process = process.path();
        let is_new = namespace(&process).is_some_and(|namespace| seen.insert(Some(namespace)));
        is_new && std::fs::read(process.join("mountinfo")).is_ok_and(|table| has_mount(&table, source, device))
    })
}

fn has_mount(table: &[u8], source: &Path, device: u64) -> bool {
    let source = source.to_string_lossy();
    table.split(|byte| *byte == b'\n').filter_map(mount_in).any(|(_, it)| it.device == device && it.source == source)
}

/// `st_dev` as `mountinfo` writes it.
pub(crate) fn device_in(field: Option<&[u8]>) -> Option<u64> {
    let (major, minor) = std::str::from_utf8(field?).ok()?.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The same as [`mounted_at`], of one line of `mountinfo`.
fn mounted_in(line: &[u8], directory: &Path) -> Option<Mounted> {
    let (at, mounted) = mount_in(line)?;
    (at == std::os::unix::ffi::OsStrExt::as_bytes(directory.as_os_str())).then_some(mounted)
}

/// Where what is mounted, by a line of `mountinfo`.
fn mount_in(line: &[u8]) -> Option<(Vec<u8>, Mounted)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = device_in(fields.nth(2))?;
    let at = unescape(fields.nth(1)?);
    let read_only = fields.next()?.split(|byte| *byte == b',').any(|word| word == b"ro");
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let mut text = || String::from_utf8_lossy(&unescape(rest.next().unwrap_or_default())).into_owned();
    let (kind, source) = (text(), text());
    Some((at, Mounted { source, kind, device, read_only }))
}

/// Undoes the octal escapes of `mountinfo`.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// Mounts; the descriptor over which the kernel asks. `directory` comes from [`prepare`].
pub fn mount(wanted: &Wanted) -> Result<OwnedFd, MountError> {
    match std::fs::metadata(DEVICE) {
        Ok(meta) if meta.file_type().is_char_device() => {}
        _ => return Err(MountError::NoDevice),
    }
    match direct(wanted) {
        Err(MountError::Failed(_, Errno::PERM | Errno::ACCESS)) => helped(wanted),
        result => result,
    }
}

fn direct(wanted: &Wanted) -> Result<OwnedFd, MountError> {
    let open = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = open.map_err(|errno| match errno {
        Errno::NODEV | Errno::NXIO | Errno::NOENT => MountError::NoDevice,
        errno => MountError::Failed("opening /dev/fuse", errno),
    })?;
    let mode = std::fs::metadata(wanted.directory).map_or(0o40755, |meta| meta.mode());
    let options = format!(
        "fd={},rootmode={:o},user_id={},group_id={},allow_other,default_permissions",
        device.as_raw_fd(),
        mode & 0o170_000,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let options = std::ffi::CString::new(options).map_err(|_| MountError::Failed("mount", Errno::INVAL))?;
    let trust = if wanted.trusted { MountFlags::empty() } else { MountFlags::NOSUID | MountFlags::NODEV };
    let flags = if wanted.read_only { trust | MountFlags::RDONLY } else { trust };
    rustix::mount::mount(wanted.source, wanted.directory, "fuse.bypath", flags, Some(options.as_c_str()))
        .map_err(|errno| MountError::Failed("mount", errno))?;
    Ok(device)
}

/// Lets `fusermount3` mount; it hands the descriptor back over a socket.
fn helped(wanted: &Wanted) -> Result<OwnedFd, MountError> {
    // Whether others may come in is for /etc/fuse.conf to say.
    let source = wanted.source.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
    let access = if wanted.read_only { "ro," } else { "" };
    let common = format!("{access}default_permissions,fsname={source},subtype=bypath");
    match helper_mount(wanted.directory, &format!("allow_other,{common}")) {
        Err(MountError::Helper(_)) => helper_mount(wanted.directory, &common),
        result => result,
    }
}

fn helper_mount(directory: &Path, options: &str) -> Result<OwnedFd, MountError> {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None);
    let (ours, theirs) = pair.map_err(|errno| MountError::Failed("socketpair", errno))?;
    let started = Command::new(HELPER)
        .args(["-o", options, "--"])
        .arg(directory)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = started.map_err(|_| MountError::NotAllowed)?;
    drop(theirs);
    let device = receive(&ours);
    let mut said = String::new();
    let _ = child.stderr.take().map(|mut err| err.read_to_string(&mut said));
    let _ = child.wait();
    device.ok_or_else(|| {
        let said = said.lines().next().unwrap_or("fusermount3 failed").trim();
        MountError::Helper(said.strip_prefix("fusermount3: ").unwrap_or(said).to_string())
    })
}

/// The descriptor that comes over a socket, if one does.
fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Has the kernel read further ahead in the files of the mount with this `st_dev` than its usual 128 KiB: each
/// part is a request. Before `INIT` is answered. If we may not, it stays as it is.
pub fn read_ahead(device: u64) {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let _ = std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), (READ_AHEAD >> 10).to_string());
}

/// A file that ends the connection behind the mount with this `st_dev` when something
/// is written to it, and does nothing when that connection has ended, whatever has its
/// number then. `None` if we may not, or there is no such file system here.
pub fn abort_file(device: u64) -> Option<OwnedFd> {
    let name = format!("{}/abort", rustix::fs::minor(device));
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let usual = rustix::fs::open(Path::new(CONNECTIONS).join(&name), flags, Mode::empty());
    usual.or_else(|_| rustix::fs::openat(connections()?, &name, flags, Mode::empty())).ok()
}

/// The kernel's list of connections, mounted nowhere.
fn connections() -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// Gives the calling thread a copy of the mounts that it sees. What it or its children mount anywhere in the mount that
/// holds one of `points` is for themselves only; what others mount there is seen by them still. All other mounts are as
/// before, both ways.
pub fn set_apart(points: &[PathBuf]) -> Result<(), MountError> {
    pm::host::own_mounts().map_err(|errno| MountError::Failed("unshare", Errno::from_raw_os_error(errno.0)))?;
    for point in points {
        let real = std::fs::canonicalize(point).map_err(|error| failed("realpath", &error))?;
        let holder = real.ancestors().skip(1).find(|above| mounted_at(above).is_some()).unwrap_or(Path::new("/"));
        rustix::mount::mount_change(holder, MountPropagationFlags::DOWNSTREAM)
            .map_err(|errno| MountError::Failed("mount", errno))?;
    }
    Ok(())
}

/// Covers a directory by an empty one in which nothing can be made.
pub fn cover(directory: &Path) -> Result<(), MountError> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("bypath", directory, "tmpfs", flags, Some(c"size=4k,nr_inodes=1,mode=0555"))
        .map_err(|errno| MountError::Failed("mount", errno))
}

/// Takes a mount away; `lazily` also one that is in use: it ends with its last user.
pub fn unmount(directory: &Path, lazily: bool) -> Result<(), MountError> {
    let flags = UnmountFlags::NOFOLLOW | if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(directory, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let mut command = Command::new(HELPER);
            command.arg(if lazily { "-uzq" } else { "-u" }).arg("--").arg(directory);
            let output = command.output().map_err(|_| MountError::NotAllowed)?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().next().unwrap_or("fusermount3 failed").trim().to_string();
            Err(MountError::Helper(said.strip_prefix("fusermount3: ").unwrap_or(&said).to_string()))
        }
        Err(errno) => Err(MountError::Failed("umount", errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: mount points with spaces are found in `mountinfo`.
    #[test]
    fn escapes() {
        assert_eq!(unescape(br"/a\040b\134c"), b"/a b\\c");
        assert_eq!(unescape(br"/a\09"), br"/a\09");
    }

    /// Goal: a line of `mountinfo` is understood, with and without optional fields; what is mounted elsewhere is not it.
    #[test]
    fn lines() {
        let device = rustix::fs::makedev(0, 300);
        let wanted = Mounted { source: "/i mg".into(), kind: "fuse.bypath".into(), device, read_only: false };
        let at = Path::new("/a b");
        for line in [
            r"40 20 0:300 / /a\040b rw - fuse.bypath /i\040mg rw",
            r"40 20 0:300 / /a\040b rw shared:1 - fuse.bypath /i\040mg rw",
        ] {
            assert_eq!(mounted_in(line.as_bytes(), at).as_ref(), Some(&wanted), "{line}");
            assert_eq!(mounted_in(line.as_bytes(), Path::new("/a")), None);
        }
        let read_only = br"40 20 0:300 / /a\040b ro,nosuid - fuse.bypath /i\040mg ro";
        assert_eq!(mounted_in(read_only, at), Some(Mounted { read_only: true, ..wanted }));
        assert_eq!(mounted_in(b"", at), None);
        assert_eq!(mounted_in(br"40 20 x:y / /a\040b rw - a b rw", at), None);
    }

    /// Goal: what cannot carry a mount is refused for the right reason.
    #[test]
    fn places() {
        assert!(matches!(prepare(Path::new("/no/such")), Err(MountError::Missing)));
        assert!(matches!(prepare(Path::new("/dev/null")), Err(MountError::NotDirectory)));
        assert!(matches!(prepare(Path::new("/proc")), Err(MountError::Busy(_))));
    }
}

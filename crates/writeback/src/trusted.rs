//! Files that say what becomes of a directory, and lie where other users may put files too: markers and journals.
//!
//! A process that runs with more rights than the user who wrote such a file would do that user's work with its own rights.
//! So a file counts only under all of these conditions, and is refused by name otherwise:
//!
//! - It is a regular file. A symlink is not followed, and no open waits for a FIFO or a lease.
//! - It belongs to the effective user of this process, or to root.
//! - No other user may write to it. File systems without modes show the mode of the mount for each file; there the owner
//!   alone counts.
//!
//! The checks are made on the open file, so nobody can put another one there between check and use.

use crate::below::errno;
use crate::{Failure, Result};
use pm::Errno;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::path::Path;

/// Longest text that is read.
const TEXT_MAX: usize = 64 << 10;
/// Bits of users other than the owner.
const OTHERS_WRITE: u32 = 0o022;
/// File systems that have no modes: msdos and vfat, exfat, ntfs3, 9p, cifs, smb3.
const MODELESS: [u64; 6] = [0x4d44, 0x2011_bab0, 0x7366_746e, 0x0102_1997, 0xff53_4d42, 0xfe53_4d42];

/// The failure of a call on a path.
pub fn failed(path: &Path) -> impl Fn(rustix::io::Errno) -> Failure + use<> {
    let path = path.as_os_str().as_encoded_bytes().to_vec();
    move |error| Failure::new(&path, errno(error))
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(format!("{}: {why}", path.display()), Errno::EPERM)
}

/// Opens a file that is there, with these flags beside `O_CLOEXEC`, `O_NOFOLLOW` and `O_NONBLOCK`. `None`: nothing is there.
pub fn open(path: &Path, flags: OFlags) -> Result<Option<OwnedFd>> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let shown = failed(path);
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(None),
        // A symlink, a socket, a FIFO without a reader; or it belongs to another user, which is the better answer.
        Err(error) => {
            let there = match rustix::fs::lstat(path) {
                // A directory that this user may not enter: whatever is wanted of it is refused.
                Err(rustix::io::Errno::ACCESS) => return Ok(None),
                there => there.map_err(|_| shown(error))?,
            };
            check(path, &there, || true)?;
            return Err(shown(error));
        }
    };
    let stat = rustix::fs::fstat(&file).map_err(&shown)?;
    check(path, &stat, || rustix::fs::fstatfs(&file).is_ok_and(|kind| !MODELESS.contains(&(kind.f_type as u64))))?;
    Ok(Some(file))
}

fn check(path: &Path, stat: &Stat, has_modes: impl Fn() -> bool) -> Result<()> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refused(path, "not a regular file, so it says nothing of a cache; remove it"));
    }
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != own && stat.st_uid != 0 {
        return Err(refused(path, &belongs(stat.st_uid)));
    }
    if stat.st_mode & OTHERS_WRITE != 0 && has_modes() {
        return Err(refused(
            path,
            "other users may write to it, so it is not trusted; check it, then `chmod go-w`, or remove it",
        ));
    }
    Ok(())
}

fn belongs(uid: u32) -> String {
    format!("it belongs to user {uid}, and not to you or root, so it is not trusted; run as that user, or remove it")
}

/// The text of a file, of at most 64 KiB. `None`: nothing is there.
pub fn text(path: &Path) -> Result<Option<String>> {
    open(path, OFlags::RDONLY)?.map(|file| text_of(&file, path)).transpose()
}

/// The same of one that is open.
pub fn text_of(file: &OwnedFd, path: &Path) -> Result<String> {
    let (mut bytes, mut len) = (vec![0; TEXT_MAX + 1], 0);
    while len < bytes.len() {
        match rustix::io::pread(file, &mut bytes[len..], len as u64).map_err(failed(path))? {
            0 => break,
            more => len += more,
        }
    }
    if len > TEXT_MAX {
        return Err(refused(path, "longer than 64 KiB, so it says nothing of a cache; remove it"));
    }
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// Whether nobody but this user, or root, may have written an image.
pub fn is_image(fs: &engine::Fs) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let stat = fs.open_image().and_then(|file| file.stat().ok());
    stat.is_some_and(|stat| (stat.uid == own || stat.uid == 0) && stat.mode & OTHERS_WRITE == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let place = std::env::temp_dir().join(format!("bypath-trusted-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&place);
            std::fs::create_dir(&place).unwrap();
            Place(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(path: &Path) -> String {
        let failure = text(path).unwrap_err();
        assert!(failure.what.contains(&path.display().to_string()), "{failure}");
        failure.what
    }

    /// Goal: what is not a regular file of this user or root is refused by name, at once. Method: one of each kind; an open
    /// that waits for the FIFO's other end would never come back.
    #[test]
    fn untrusted_files_are_refused() {
        let place = Place::new("kinds");
        let at = |name: &str| place.0.join(name);
        assert_eq!(text(&at("nothing")).unwrap(), None);
        std::fs::write(at("own"), "image /x\n").unwrap();
        assert_eq!(text(&at("own")).unwrap().as_deref(), Some("image /x\n"));
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(refusal(&at("fifo")).contains("not a regular file"));
        symlink("own", at("link")).unwrap();
        assert!(refusal(&at("link")).contains("not a regular file"));
        std::fs::create_dir(at("directory")).unwrap();
        assert!(refusal(&at("directory")).contains("not a regular file"));
        std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(refusal(&at("socket")).contains("not a regular file"));
        std::fs::write(at("shared"), "image /x\n").unwrap();
        for mode in [0o620, 0o602] {
            std::fs::set_permissions(at("shared"), std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(refusal(&at("shared")).contains("other users may write"));
        }
        std::fs::write(at("long"), vec![b'x'; TEXT_MAX + 1]).unwrap();
        assert!(refusal(&at("long")).contains("64 KiB"));
    }

    /// Goal: root does not believe another user's file. Only root can make one.
    #[test]
    fn files_of_other_users_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = Place::new("owner");
        let path = place.0.join("file");
        std::fs::write(&path, "image /x\n").unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(refusal(&path).contains("user 12345"));
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        assert!(text(&path).unwrap().is_some());
    }
}

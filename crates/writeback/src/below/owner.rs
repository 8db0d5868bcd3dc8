//! With whose rights the directory below is changed.
//!
//! A session of root's on a directory of another user changes it as that user: so nothing is reached that this user could
//! not have changed, whatever the user puts there while it is changed. Root's programs may do more than that in the session
//! (give files away, write to root's own files there); the calls that the kernel refuses to the owner are made again as
//! root. That needs the word of root alone: where another user may have written the image that says so, they fail.
//!
//! On that word alone new things are made as root, in a park of root's own: they get their owner last, so nobody sees what
//! is in a file, or a directory, of root's before it is root's, and nobody exchanges it before its owner is set.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, Stat};
use rustix::io::{Errno, Result};

/// The identity for calls that change the directory.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// User and group; `None`: this process's own.
    ids: Option<(u32, u32)>,
    is_trusted: bool,
}

impl Owner {
    /// For a directory with these attributes.
    pub fn of(directory: &Stat, is_trusted: bool) -> Owner {
        let is_other = rustix::process::geteuid().is_root() && directory.st_uid != 0;
        Owner { ids: is_other.then_some((directory.st_uid, directory.st_gid)), is_trusted }
    }

    /// Whether set-id bits would give more than the owner of the directory has.
    pub fn is_above(&self, uid: u32) -> bool {
        self.ids.is_some_and(|(owner, _)| owner != uid)
    }

    /// Makes a call that makes something new.
    pub fn make<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        if self.is_trusted { call() } else { self.act(call) }
    }

    /// Makes the park root's own, if another user could change names in it.
    pub fn secure(&self, park: &OwnedFd) -> Result<()> {
        if self.ids.is_none() || !self.is_trusted {
            return Ok(());
        }
        rustix::fs::fchown(park, Some(rustix::process::geteuid()), Some(rustix::process::getegid()))?;
        rustix::fs::fchmod(park, Mode::RWXU)
    }

    /// Makes a call that changes something.
    pub fn act<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        let Some((uid, gid)) = self.ids else { return call() };
        let result = match Acting::begin(uid, gid) {
            Some(_acting) => call(),
            // A user that this namespace does not know: root has no privileges over what belongs to it either.
            None => return call(),
        };
        match result {
            Err(Errno::ACCESS | Errno::PERM) if self.is_trusted => call(),
            result => result,
        }
    }
}

/// For as long as it is there this thread acts as another user.
struct Acting;

impl Acting {
    fn begin(uid: u32, gid: u32) -> Option<Acting> {
        pm::acting::act_as(uid, gid).then_some(Acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        pm::acting::act_as(own.0, own.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    /// Goal: in a directory of another user root's calls make that user's files; what that user may not do is done as root,
    /// if root alone has said so, and fails otherwise. Then root is root again.
    #[test]
    fn root_acts_as_the_owner() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = std::env::temp_dir().join(format!("bypath-owner-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place).unwrap();
        let roots = place.join("roots");
        std::fs::write(&roots, "root's").unwrap();
        std::fs::set_permissions(&roots, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(&place, Some(12345), Some(12346)).unwrap();
        let stat = rustix::fs::stat(&place).unwrap();
        let write = |owner: Owner, path: &std::path::Path| {
            owner.act(|| std::fs::write(path, "x").map_err(|error| Errno::from_io_error(&error).unwrap()))
        };
        for is_trusted in [true, false] {
            let owner = Owner::of(&stat, is_trusted);
            let made = place.join(format!("made-{is_trusted}"));
            write(owner, &made).unwrap();
            let meta = std::fs::metadata(&made).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (12345, 12346));
            assert_eq!(write(owner, &roots), if is_trusted { Ok(()) } else { Err(Errno::ACCESS) });
            assert!(owner.is_above(0) && !owner.is_above(12345));
        }
        let own = place.join("own");
        std::fs::write(&own, "x").unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().uid(), 0);
        std::fs::remove_dir_all(&place).unwrap();
    }
}

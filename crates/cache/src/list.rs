//! Bringing all names of a directory.

use crate::lower::{Original, open};
use crate::{Cache, own};
use base::{Cx, Errno, Error, Node, Result};
use core::ffi::CStr;
use engine::lower::bits;
use pm::file::File;

/// How often a directory is listed again because its names changed meanwhile.
const ATTEMPTS: u32 = 10;

impl Cache {
    /// Has all names of a directory here, from now on.
    pub(crate) fn list(&self, cx: &Cx, dir: Node) -> Result<()> {
        let cx = own(cx);
        if self.known(dir)?.is_listed() {
            return Ok(());
        }
        let lower = open(&self.path(dir, b"")?, true)?;
        let mut before = Original::of(&lower.statx()?)?;
        if !before.stamp.is_same_file(&self.known(dir)?.stamp) {
            return Err(Errno::ESTALE.into());
        }
        for _ in 0..ATTEMPTS {
            self.bring_all(&cx, dir, &lower)?;
            let after = Original::of(&lower.statx()?)?;
            if after.stamp == before.stamp {
                self.fs().restamp(&cx, dir, &after.change())?;
                return self.fs().mark(&cx, dir, bits::LISTED, 0);
            }
            // Names came or went: once more, from the start.
            before = after;
            lower.seek(0)?;
        }
        // It changes all the time: what is here is what was there a moment ago; each look asks again.
        self.fs().restamp(&cx, dir, &before.change())
    }

    fn bring_all(&self, cx: &Cx, dir: Node, lower: &File) -> Result<()> {
        let mut buffer = [0u8; 8192];
        while let Some(listed) = lower.listed(&mut buffer)? {
            for entry in listed {
                let name = entry?.name;
                if !matches!(name.to_bytes(), b"." | b"..") && !(dir == self.tree && crate::is_ours(name.to_bytes())) {
                    self.bring_listed(cx, dir, lower, name)?;
                }
            }
        }
        Ok(())
    }

    fn bring_listed(&self, cx: &Cx, dir: Node, lower: &File, name: &CStr) -> Result<()> {
        match self.fs().lookup(cx, dir, name.to_bytes()) {
            Err(Error::Posix(Errno::ENOENT)) => {}
            found => return found.map(drop),
        }
        let stat = match pm::host::statx_at(lower.number(), name) {
            // Gone since it was listed.
            Err(Errno::ENOENT) => return Ok(()),
            stat => stat?,
        };
        let original = Original::of(&stat)?;
        if original.attr.kind == base::Kind::Symlink {
            return match self.ask(cx, dir, name.to_bytes()) {
                Err(Error::Posix(Errno::ENOENT)) => Ok(()),
                asked => asked.map(drop),
            };
        }
        self.bring(cx, dir, name.to_bytes(), &original, b"").map(drop)
    }
}

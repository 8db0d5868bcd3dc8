//! Directories whose last name went with a process that died before it had counted that.

use super::Native;
use base::{Cred, Cx, Errno, Error, Node, Result};

impl Native {
    /// Makes a change that is refused while the directory `name` in `dir` has names. If it has none that can be found, those who
    /// died are adopted, which finishes what they had begun, and the change is made again.
    #[inline]
    pub(super) fn counted(&self, cx: &Cx, (dir, name): (Node, &[u8]), change: impl Fn() -> Result<()>) -> Result<()> {
        match change() {
            Err(Error::Posix(Errno::ENOTEMPTY)) if !self.has_names(cx, dir, name).unwrap_or(true) => {
                self.0.adopt_those_gone(cx);
                change()
            }
            result => result,
        }
    }

    #[cold]
    #[inline(never)]
    fn has_names(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<bool> {
        let cx = Cx { cred: Cred::ROOT, ..*cx };
        let (directory, mut cookie, mut text) = (self.0.lookup(&cx, dir, name)?, 0, [0; 255]);
        loop {
            let mut found = None;
            self.0.readdir(&cx, directory, cookie, &mut |entry| {
                cookie = entry.next;
                if matches!(entry.name, b"." | b"..") {
                    return true;
                }
                text[..entry.name.len()].copy_from_slice(entry.name);
                found = Some(entry.name.len());
                false
            })?;
            let Some(len) = found else { return Ok(false) };
            if self.0.lookup(&cx, directory, &text[..len]).is_ok() {
                return Ok(true);
            }
        }
    }
}

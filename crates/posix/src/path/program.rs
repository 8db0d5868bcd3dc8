//! `/proc/PID/exe` of a program that was executed from a mount that the kernel has not.
//!
//! The kernel runs a copy in memory then, whose name is the program's path and whose times are the program's:
//!
//! ```text
//! /proc/7/exe ─ the kernel's link ─▶ /memfd:/bp/bin/prog (deleted) ─ the same file still there ─▶ /bp/bin/prog
//!                                                                   └ gone, or another file ─────▶ /bp/bin/prog (deleted)
//! ```

use super::{CWD, Course, Start};
use crate::text::Path;
use crate::{Process, ThreadState};
use base::{Cx, Last, Walk};
use pm::Errno;
use pm::sys::abi;

/// How the kernel names what has its contents in memory.
const COPY: &[u8] = b"/memfd:";
const GONE: &[u8] = b" (deleted)";
/// The longest name that the kernel gives such a thing.
pub const COPY_NAME_MAX: usize = 249;
/// Room for such a name, as the kernel's link has it.
const ROOM: usize = COPY.len() + COPY_NAME_MAX + GONE.len() + 1;
/// Room for the name of a link.
const LINK_MAX: usize = 64;

/// A program's path, and what it is like now.
pub(crate) struct Program {
    text: [u8; ROOM],
    /// Of the path, and of what the kernel would say: with [`GONE`] behind it.
    len: usize,
    told: usize,
}

impl Program {
    fn path(&self) -> &[u8] {
        &self.text[COPY.len()..COPY.len() + self.len]
    }

    /// As `readlink` has it.
    pub(crate) fn told(&self) -> &[u8] {
        &self.text[COPY.len()..COPY.len() + self.told]
    }
}

/// Whether a path is `/proc/PID/exe` or `/proc/PID/task/TID/exe`, with `self` and `thread-self` for numbers.
fn is_program_link(path: &[u8]) -> bool {
    let Some(whose) = path.strip_prefix(b"/proc/").and_then(|rest| rest.strip_suffix(b"/exe")) else { return false };
    match whose.iter().position(|&b| b == b'/') {
        None => true,
        Some(at) => whose[at..].strip_prefix(b"/task/").is_some_and(|tid| !tid.contains(&b'/')),
    }
}

impl Process {
    /// The program of ours that the link at a path leads to, if that is one.
    #[inline]
    pub(crate) fn program(&self, cx: &Cx, thread: &ThreadState, path: &[u8]) -> Option<Program> {
        if !path.ends_with(b"/exe") || !is_program_link(path) || !self.door.has_kernel() {
            None
        } else {
            self.program_at(cx, thread, path)
        }
    }

    #[cold]
    #[inline(never)]
    fn program_at(&self, cx: &Cx, thread: &ThreadState, path: &[u8]) -> Option<Program> {
        let mut link = [0u8; LINK_MAX];
        link[..LINK_MAX - 1].get_mut(..path.len())?.copy_from_slice(path);
        let mut text = [0u8; ROOM];
        let args = [CWD, link.as_ptr() as usize, text.as_mut_ptr() as usize, ROOM, 0, 0];
        // SAFETY: a NUL-terminated name and a buffer as long as we say.
        let got = usize::try_from(unsafe { self.door.kernel(abi::__NR_readlinkat as usize, args) }).ok()?;
        let name = text[..got].strip_prefix(COPY)?;
        let told = name.len();
        let len = name.strip_suffix(GONE)?.len();
        let mut program = Program { text, len, told };
        let (_, mount, rest) = self.mounts.find(program.path())?;
        // SAFETY: nobody looks at a path in this thread's second scratch here.
        let scratch = unsafe { &mut *thread.room().scratch[1].get() };
        let mut links = 0;
        let found = mount.backend.walk(cx, mount.root, rest, Last::NoFollow, &mut links, None, scratch);
        if let Ok(Walk::Found(found)) = found
            && let Some(node) = found.node
            && let Ok(attr) = mount.backend.attr(cx, node)
            && self.is_copy_of(&link, attr.size, attr.mtime)
        {
            program.told = program.len;
        }
        Some(program)
    }

    /// Whether what runs under a link has this size and was written then.
    fn is_copy_of(&self, link: &[u8; LINK_MAX], size: u64, mtime: i64) -> bool {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut stat: abi::stat = unsafe { core::mem::zeroed() };
        let args = [CWD, link.as_ptr() as usize, &raw mut stat as usize, 0, 0, 0];
        // SAFETY: a NUL-terminated name and a `struct stat`.
        let known = unsafe { self.door.kernel(abi::__NR_newfstatat as usize, args) } == 0;
        let written = (stat.st_mtime as i64).saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64);
        known && stat.st_size as u64 == size && written == mtime
    }

    /// Where the link leads: into a mount, if the program is still there. What is gone the kernel still has.
    pub(super) fn enter_program<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        path: Path,
    ) -> base::Result<Option<Start<'a>>> {
        let Some(program) = self.program(cx, thread, path.bytes) else { return Ok(None) };
        if program.told != program.len {
            return Ok(None);
        }
        // SAFETY: a buffer of its own; the link's own text is not needed any more.
        let text = unsafe { thread.compose(which, b"", program.path()) }?;
        let (slot, mount, rest) = self.mounts.find(text).ok_or(Errno::ENOENT)?;
        Ok(Some(Start::In(Course { slot, mount, base: mount.root, rest })))
    }
}

#[cfg(test)]
mod tests {
    use super::is_program_link;

    #[test]
    fn the_link_of_a_program_is_told_from_other_names() {
        for yes in ["/proc/self/exe", "/proc/17/exe", "/proc/thread-self/exe", "/proc/17/task/18/exe"] {
            assert!(is_program_link(yes.as_bytes()), "{yes}");
        }
        for no in
            ["/proc/self/exe/", "/proc/exe", "/proc/self/fd/exe", "/proc/self/root/bin/exe", "/dev/exe", "/proc/1/task/2/x/exe"]
        {
            assert!(!is_program_link(no.as_bytes()), "{no}");
        }
    }
}

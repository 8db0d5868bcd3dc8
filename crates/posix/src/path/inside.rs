//! What is mounted inside a kernel mount in the mount namespace of this process, if that is not the one of the mount's server,
//! who tells of its own: in a sandbox started with mounts of its own (`bwrap --tmpfs`). The kernel's table says it.

use crate::{Process, ThreadState};
use base::{Found, Last, Node, Walk};
use pm::file::File;
use pm::sys::abi;
use vfs::Mount;

impl Process {
    /// After a mount was found to be the kernel's too, there under this number: what is mounted in that is told, unless its
    /// server tells.
    pub(super) fn cover_as_here(&self, thread: &ThreadState, slot: usize, number: u32) {
        let Some((_, mount)) = self.mounts.iter().find(|(other, _)| *other == slot) else { return };
        let known = mount.backend.kernel_mount().mount_id();
        if known != 0 && known != number {
            self.read_mounts(thread, mount, number);
        }
    }

    #[cold]
    #[inline(never)]
    fn read_mounts(&self, thread: &ThreadState, mount: &Mount, number: u32) {
        let Ok(table) = File::open(b"/proc/self/mountinfo\0", abi::O_RDONLY, 0) else { return };
        // SAFETY: no walk through the kernel's namespace is going on in this thread.
        let room = unsafe { &mut *thread.room().outside.get() }.as_flattened_mut();
        let mut len = 0;
        while let Ok(got @ 1..) = table.read_on(&mut room[len..]) {
            len += got;
            let mut begin = 0;
            while let Some(end) = room[begin..len].iter().position(|&byte| byte == b'\n') {
                self.cover_by_line(thread, mount, number, &mut room[begin..begin + end]);
                begin += end + 1;
            }
            if begin == 0 && len == room.len() {
                // No path that anybody could name.
                return;
            }
            room.copy_within(begin..len, 0);
            len -= begin;
        }
    }

    /// What a line of the table says is mounted directly in a mount is told.
    fn cover_by_line(&self, thread: &ThreadState, mount: &Mount, number: u32, line: &mut [u8]) {
        let Some(at) = place_in(line, number) else { return };
        let at = unescape(at);
        let Some(path) = at.strip_prefix(mount.prefix()).and_then(|rest| rest.strip_prefix(b"/")) else { return };
        let (cx, backend) = (self.cx(thread), mount.backend);
        // SAFETY: the thread's scratch is in use by no other call of this thread.
        let scratch = unsafe { &mut *thread.room().scratch[0].get() };
        let walked = backend.walk(&cx, mount.root, path, Last::NoFollow, &mut 0, None, scratch);
        let Ok(Walk::Found(Found { node: Some(node), .. })) = walked else { return };
        let is_new = |node: Node| node != mount.root && !backend.kernel_mount().is_covered(node);
        if is_new(node) {
            // Where there is no room for it, who comes there finds what is below, as the page says.
            let _ = backend.kernel_mount().cover(&cx, node);
        }
    }
}

/// Where it is mounted, of a line about what is mounted in the mount of this number.
fn place_in(line: &mut [u8], number: u32) -> Option<&mut [u8]> {
    let mut fields = line.split_mut(|&byte| byte == b' ');
    let parent = core::str::from_utf8(fields.nth(1)?).ok()?.parse();
    if parent == Ok(number) { fields.nth(2) } else { None }
}

/// Undoes the octal escapes of the table, in place.
fn unescape(text: &mut [u8]) -> &[u8] {
    let (mut from, mut to) = (0, 0);
    while from < text.len() {
        let code = text.get(from + 1..from + 4).filter(|_| text[from] == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(core::str::from_utf8(digits).ok()?, 8).ok());
        text[to] = code.unwrap_or(text[from]);
        (from, to) = (from + if code.is_some() { 4 } else { 1 }, to + 1);
    }
    &text[..to]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of the table's lines those of what lies in the mount tell where, without escapes.
    #[test]
    fn lines() {
        let place = |line: &str| {
            let mut line = line.as_bytes().to_vec();
            place_in(&mut line, 30).map(|at| String::from_utf8(unescape(at).to_vec()).unwrap())
        };
        assert_eq!(place("31 30 0:51 / /bp/a\\040b\\134c rw - tmpfs t rw").as_deref(), Some("/bp/a b\\c"));
        assert_eq!(place("30 20 0:51 / /bp rw - fuse t rw"), None);
        assert_eq!((place("31 30"), place("")), (None, None));
    }
}

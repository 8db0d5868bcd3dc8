//! Paths of the kernel's that may lead into a mount: through symlinks, `.` and `..`, or from a directory above it.

use super::{CWD, Carry, Course, OpenFile, Place, Start, descriptor_name};
use crate::descriptors::CWD_FD;
use crate::handle::cwd::{put_before, put_directory_before};
use crate::text::{self, has_detours};
use crate::{Process, ThreadState};
use base::{Cx, Error, Last, Node, PATH_MAX};
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::file::File;
use pm::sys::abi;
use vfs::Mount;

impl Process {
    #[cold]
    pub(super) fn look_closely<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        dirfd: usize,
        path: &'a [u8],
        last: Last,
    ) -> base::Result<Place<'a>> {
        if !self.door.has_kernel() {
            return Err(Error::Posix(Errno::ENOENT));
        }
        let relative = path.first() != Some(&b'/');
        let whole = if relative {
            if path.is_empty() || !thread.retry.get() && dirfd as i32 != abi::AT_FDCWD {
                return Ok(Place::Kernel);
            }
            let mut dir = [0u8; 1024];
            let Some(len) = kernel_directory(dirfd, &mut dir) else { return Ok(Place::Kernel) };
            dir[len] = b'/';
            // SAFETY: the program's own path; this text is not in use yet.
            unsafe { thread.compose(which, &dir[..len + 1], path) }?
        } else {
            path
        };
        if let Some((slot, mount, rest)) = self.find(whole, last) {
            let course = Course { slot, mount, base: mount.root, rest };
            return self.go(cx, thread, which, course, last);
        }
        if !has_detours(whole) && !thread.retry.get() || !self.may_enter_mount(thread, whole) {
            return Ok(Place::Kernel);
        }
        match self.enter_outside_path(cx, thread, which, whole, last)? {
            Start::Outside => Ok(Place::Kernel),
            Start::In(course) => self.go(cx, thread, which, course, last),
        }
    }

    /// Whether paths in `mount` may come to something that the kernel has mounted there, where this process sees it.
    #[inline]
    pub(crate) fn kernel_covers(&self, mount: &Mount) -> bool {
        self.shown.load(Relaxed) >> mount.slot & 1 != 0 && mount.backend.kernel_mount().has_covered()
    }

    /// A path has come to a name in a directory on which the kernel has mounted something: there it goes on. If that is gone
    /// by now, or is not in this process's mount namespace, the kernel's mount of the image answers as we would.
    #[cold]
    #[inline(never)]
    pub(super) fn go_into_kernel_mount<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        mount: &Mount,
        (dir, name, rest): (Node, &[u8], &[u8]),
    ) -> base::Result<Carry<'a>> {
        // SAFETY: used by walks through the kernel's namespace alone, and none is going on.
        let [head, ..] = unsafe { &mut *thread.room().outside.get() };
        let mut at = PATH_MAX - 1;
        head[at] = b'/';
        put_before(head, &mut at, name)?;
        put_directory_before(head, &mut at, cx, mount, dir)?;
        let end = if rest.is_empty() { PATH_MAX - 1 } else { PATH_MAX };
        // SAFETY: of what this text holds only `rest` is needed, and not afterwards.
        let path = unsafe { thread.compose(which, &head[at..end], rest) }?;
        Ok(Carry::Kernel(path.as_ptr() as usize))
    }

    /// The open file of ours whose number is a name in a directory of the kernel's that lists this process's descriptors.
    #[cold]
    pub(crate) fn listed_descriptor(&self, dirfd: usize, path: &[u8]) -> Option<OpenFile<'_>> {
        let file = self.file(text::decimal(path)? as usize)?;
        let mut dir = [0u8; 1024];
        let len = kernel_directory(dirfd, &mut dir)?;
        let name = dir.get_mut(..len + 2)?;
        name[len..].copy_from_slice(b"/0");
        // Of the calling process, or of one of its threads.
        descriptor_name(name).is_some_and(|(fd, rest)| fd == 0 && rest.is_empty()).then_some(file)
    }

    /// Whether an absolute path of the kernel's may lead into a mount. Cheaper than walking it; after the kernel said that the
    /// path does not exist, or where it has detours.
    pub(super) fn may_enter_mount(&self, thread: &ThreadState, path: &[u8]) -> bool {
        let winds = has_detours(path);
        if (!winds || self.avoids_mounts(thread, path)) && meets_no_link(thread, path) {
            return false;
        }
        winds || self.points_exist.load(Relaxed) || may_hide_link(thread, path)
    }

    /// Whether a path, if it meets no symlink, comes neither to a mount point nor to a directory above one, which is there
    /// whatever the kernel says.
    fn avoids_mounts(&self, thread: &ThreadState, path: &[u8]) -> bool {
        // SAFETY: used by walks through the kernel's namespace alone, and none is going on.
        let [here, ..] = unsafe { &mut *thread.room().outside.get() };
        let mut len = 0;
        path.split(|&b| b == b'/').all(|name| match name {
            b"" | b"." => true,
            b".." => {
                len = here[..len].iter().rposition(|&b| b == b'/').unwrap_or(0);
                true
            }
            _ => {
                let end = len + 1 + name.len();
                let Some(place) = here.get_mut(len..end) else { return false };
                place[0] = b'/';
                place[1..].copy_from_slice(name);
                len = end;
                !self.mounts.named().any(|(_, mount)| under(mount.prefix(), &here[..end]))
            }
        })
    }

    /// Walks a path of the kernel's in user space, to see whether it enters a
    /// mount through symlinks, `.` or `..`.
    #[cold]
    pub(super) fn enter_outside_path<'a>(
        &'a self,
        _cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        path: &[u8],
        last: Last,
    ) -> base::Result<Start<'a>> {
        // SAFETY: used by this function alone, which does not call itself.
        let buffers = unsafe { &mut *thread.room().outside.get() };
        let [here, rest, spare] = buffers;
        let Some(mut outside) = Outside::new(here, rest, spare, path) else { return Ok(Start::Outside) };
        while let Some(step) = outside.step(last == Last::Follow, |at| self.mounts.named().any(|(_, m)| under(m.prefix(), at))) {
            if !step {
                return Ok(Start::Outside);
            }
            if let Some((slot, mount)) = self.mounts.named().find(|(_, m)| m.prefix() == outside.here()) {
                // SAFETY: a buffer of its own; the path was copied out of the text at the beginning.
                let rest = unsafe { thread.compose(which, b"", outside.rest()) }?;
                let lead = rest.iter().take_while(|&&b| b == b'/').count();
                return Ok(Start::In(Course { slot, mount, base: mount.root, rest: &rest[lead..] }));
            }
        }
        Ok(Start::Outside)
    }

    /// Notes whether a mount point exists in the kernel's namespace too: then
    /// the kernel does not stumble over it, and the absence of a name says less.
    /// And whether the kernel has the same file system mounted there.
    pub(crate) fn point_mounted(&self, thread: &ThreadState, slot: usize, point: &[u8]) {
        let mut path = [0u8; vfs::mount::PREFIX_MAX + 1];
        if !self.door.has_kernel() || point.len() >= path.len() {
            return;
        }
        path[..point.len()].copy_from_slice(point);
        // SAFETY: all fields are integers, for which zero is a value.
        let mut out: abi::statx = unsafe { core::mem::zeroed() };
        // What the kernel knows will do: the server of a mount is not asked.
        let args = [CWD, path.as_ptr() as usize, abi::AT_STATX_DONT_SYNC as usize, 0, &raw mut out as usize, 0];
        // SAFETY: a NUL-terminated path and a `struct statx`.
        if unsafe { pm::sys::raw(abi::__NR_statx as usize, args) } != 0 {
            return;
        }
        self.points_exist.store(true, Relaxed);
        let device = vfs::host::device(out.stx_dev_major, out.stx_dev_minor);
        if self.mounts.get(slot).is_some_and(|mount| mount.is_served() && mount.backend.device() == device) {
            self.set_shown(slot);
            self.mount_ids[slot].store(out.stx_mnt_id as u32, Relaxed);
            self.cover_as_here(thread, slot, out.stx_mnt_id as u32);
        }
    }

    /// The kernel has the same files at the mount point in `slot`.
    pub fn set_shown(&self, slot: usize) {
        self.shown.fetch_or(1 << slot, Relaxed);
    }

    /// The mounts that programs which pass us by don't find at their points.
    pub fn hidden(&self) -> impl Iterator<Item = &Mount> {
        let shown = self.shown.load(Relaxed);
        self.mounts.iter().filter(move |(slot, _)| shown >> slot & 1 == 0).map(|(_, mount)| mount)
    }

    /// Whether the working directory lies in one of those.
    pub fn is_in_hidden(&self) -> bool {
        let entry = self.descriptors.get(CWD_FD);
        entry.is_some_and(|entry| self.shown.load(Relaxed) >> entry.slot() & 1 == 0)
    }

    /// Computes whether relative paths of the kernel's may enter a mount: after
    /// mounting, at start, and after each `chdir` outside.
    pub fn kernel_cwd_changed(&self) {
        if !self.door.has_kernel() {
            return;
        }
        let mut dir = [0u8; 1024];
        let above = kernel_directory(CWD, &mut dir)
            .is_some_and(|len| self.mounts.named().any(|(_, m)| len <= 1 || under(m.prefix(), &dir[..len])));
        // Each thread its own: the calling one's is looked at each time.
        self.cwd_above_mount.store((above || self.is_parted()) && !self.mounts.is_empty(), Relaxed);
    }
}

/// Whether `path` is `dir` or below it.
fn under(path: &[u8], dir: &[u8]) -> bool {
    path.starts_with(dir) && matches!(path.get(dir.len()), None | Some(b'/'))
}

/// The kernel's path of `AT_FDCWD` or a kernel descriptor.
fn kernel_directory(dirfd: usize, out: &mut [u8; 1024]) -> Option<usize> {
    if dirfd as i32 == abi::AT_FDCWD {
        // SAFETY: the buffer is ours and as long as we say.
        let len = unsafe { pm::call!(abi::__NR_getcwd, out.as_mut_ptr(), out.len() - 1) }.ok()?;
        return (out[0] == b'/' && len > 0).then_some(len - 1).map(|l| if l == 1 { 0 } else { l });
    }
    let mut name = [0u8; 32];
    text::proc_fd(dirfd as u32, &mut name);
    // SAFETY: a NUL-terminated name and a buffer as long as we say.
    let len = unsafe { pm::call!(abi::__NR_readlinkat, CWD, name.as_ptr(), out.as_mut_ptr(), out.len() - 1) }.ok()?;
    (out[0] == b'/' && len < out.len() - 1).then_some(if len == 1 { 0 } else { len })
}

/// Whether the kernel, as far as it gets on an absolute path, meets no symlink. False where it does not say.
fn meets_no_link(thread: &ThreadState, path: &[u8]) -> bool {
    // SAFETY: used by walks through the kernel's namespace alone, and none is going on.
    let [name, ..] = unsafe { &mut *thread.room().outside.get() };
    let Some(text) = name.get_mut(..path.len() + 1) else { return false };
    text[..path.len()].copy_from_slice(path);
    text[path.len()] = 0;
    let Ok(text) = CStr::from_bytes_with_nul(text) else { return false };
    matches!(File::handle_followed(text), Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR))
}

/// After the kernel said that a path does not exist: whether a symlink may be
/// the reason. Cheaper than walking it: from the end on, the first name that
/// exists tells, because the kernel got that far.
fn may_hide_link(thread: &ThreadState, path: &[u8]) -> bool {
    // No walk through the kernel's namespace is going on in this thread yet: its room is free, and stacks are small.
    let name = thread.room().outside.get().cast::<u8>();
    let mut len = path.len().min(PATH_MAX - 1);
    // SAFETY: `len` bytes fit.
    unsafe { core::ptr::copy_nonoverlapping(path.as_ptr(), name, len) };
    while len > 1 {
        // SAFETY: below the buffer's length.
        unsafe { *name.add(len) = 0 };
        let mut byte = [0u8; 1];
        // SAFETY: a NUL-terminated name and a buffer as long as we say.
        match unsafe { pm::call!(abi::__NR_readlinkat, CWD, name, byte.as_mut_ptr(), 1) } {
            // It exists and is no symlink.
            Err(Errno::EINVAL) => return false,
            Err(Errno::ENOENT | Errno::ENOTDIR) => len = path[..len].iter().rposition(|&b| b == b'/').unwrap_or(0),
            _ => return true,
        }
    }
    false
}

/// A walk through the kernel's namespace, a component at a time.
struct Outside<'b> {
    /// Where it is: absolute, without links, no trailing slash; a NUL behind.
    here: &'b mut [u8; PATH_MAX],
    here_len: usize,
    /// What is left.
    rest: &'b mut [u8; PATH_MAX],
    rest_at: usize,
    rest_len: usize,
    spare: &'b mut [u8; PATH_MAX],
    links: u32,
}

impl<'b> Outside<'b> {
    fn new(
        here: &'b mut [u8; PATH_MAX],
        rest: &'b mut [u8; PATH_MAX],
        spare: &'b mut [u8; PATH_MAX],
        path: &[u8],
    ) -> Option<Self> {
        rest.get_mut(..path.len())?.copy_from_slice(path);
        Some(Outside { here, here_len: 0, rest, rest_at: 0, rest_len: path.len(), spare, links: 0 })
    }

    fn here(&self) -> &[u8] {
        &self.here[..self.here_len]
    }

    fn rest(&self) -> &[u8] {
        &self.rest[self.rest_at..self.rest_len]
    }

    /// One component on. `None` at the end, `Some(false)` where it cannot go
    /// on. `above` tells whether a mount point lies at or below a place, which
    /// therefore exists, whatever the kernel says.
    fn step(&mut self, follow_last: bool, above: impl Fn(&[u8]) -> bool) -> Option<bool> {
        let rest = &self.rest[self.rest_at..self.rest_len];
        let lead = rest.iter().take_while(|&&b| b == b'/').count();
        let name = &rest[lead..];
        let len = name.iter().take_while(|&&b| b != b'/').count();
        if len == 0 {
            return None;
        }
        let name = &name[..len];
        let after = self.rest_at + lead + len;
        match name {
            b"." | b".." if !self.is_in_directory(&above) => return Some(false),
            b"." => {}
            b".." => self.stand_at(self.here().iter().rposition(|&b| b == b'/').unwrap_or(0)),
            _ => {
                let before = self.here_len;
                let end = before + 1 + len;
                if end + 1 >= PATH_MAX {
                    return Some(false);
                }
                self.here[before] = b'/';
                self.here[before + 1..end].copy_from_slice(name);
                self.here[end] = 0;
                self.here_len = end;
                let last = after == self.rest_len;
                if above(&self.here[..end]) || last && !follow_last {
                    self.rest_at = after;
                    return Some(true);
                }
                // SAFETY: a NUL-terminated name and a buffer as long as we say.
                let target =
                    unsafe { pm::call!(abi::__NR_readlinkat, CWD, self.here.as_ptr(), self.spare.as_mut_ptr(), PATH_MAX) };
                match target {
                    Ok(target) => return Some(self.follow(before, target, after)),
                    // Not a symlink: on it goes.
                    Err(Errno::EINVAL) => {}
                    Err(_) => return Some(false),
                }
            }
        }
        self.rest_at = after;
        Some(true)
    }

    /// Goes back to the first `len` bytes of where it is.
    fn stand_at(&mut self, len: usize) {
        (self.here_len, self.here[len]) = (len, 0);
    }

    /// Whether it stands in a directory: of `.` and `..` the kernel asks that, as of any name.
    fn is_in_directory(&self, above: impl Fn(&[u8]) -> bool) -> bool {
        if self.here_len == 0 || above(self.here()) {
            return true;
        }
        // SAFETY: all fields are integers, for which zero is a value.
        let mut stat: abi::stat = unsafe { core::mem::zeroed() };
        // SAFETY: a NUL-terminated name, and room for the answer.
        let known = unsafe { pm::call!(abi::__NR_newfstatat, CWD, self.here.as_ptr(), &raw mut stat, abi::AT_SYMLINK_NOFOLLOW) };
        known.is_ok() && stat.st_mode & abi::S_IFMT == abi::S_IFDIR
    }

    /// Goes on with the link text in `spare`.
    fn follow(&mut self, before: usize, target: usize, after: usize) -> bool {
        self.links += 1;
        let end = target + (self.rest_len - after);
        if self.links > base::SYMLINKS_MAX || target == 0 || end >= PATH_MAX {
            return false;
        }
        self.spare[target..end].copy_from_slice(&self.rest[after..self.rest_len]);
        core::mem::swap(&mut self.rest, &mut self.spare);
        (self.rest_at, self.rest_len) = (0, end);
        self.stand_at(if self.rest[0] == b'/' { 0 } else { before });
        true
    }
}

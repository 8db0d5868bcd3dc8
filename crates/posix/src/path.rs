//! From (directory descriptor, path) to a node of ours, or to the kernel.
//!
//! An absolute path is matched against the mount table by its text; a relative
//! one starts at a descriptor or working directory of ours. The walk itself is
//! the backend's; here it is carried on where it leaves the backend: into a
//! mount below or above, back to the namespace's root (absolute symlinks), or
//! out to the kernel, with the remaining path rewritten. What lies outside and may
//! lead in is looked at in [`outside`].

mod inside;
mod outside;
pub(crate) mod program;

use crate::descriptors::{CWD_FD, Entry};
use crate::text::{self, decimal, has_detours};
use crate::{Process, ThreadState};
use base::{Cx, Error, Exit, Found, Kind, Last, Node, PATH_MAX, Walk};
use core::sync::atomic::Ordering::Relaxed;
use pm::Errno;
use pm::sys::abi;
use vfs::Mount;

/// A node, or a name in a directory, of ours.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub slot: usize,
    pub mount: &'a Mount,
    pub found: Found<'a>,
}

impl<'a> Spot<'a> {
    /// The node, which must exist; a trailing slash asks for a directory.
    #[inline]
    pub fn node(&self, cx: &Cx) -> base::Result<Node> {
        let node = self.found.node.ok_or(Error::Posix(Errno::ENOENT))?;
        if self.found.slash && self.mount.backend.attr(cx, node)?.kind != Kind::Directory {
            return Err(Error::Posix(Errno::ENOTDIR));
        }
        Ok(node)
    }

    /// Whether the path ends in a proper name (not `.`, `..`, or the base itself).
    #[inline]
    pub fn is_name(&self) -> bool {
        !matches!(self.found.name, b"" | b"." | b"..")
    }
}

/// Where a path leads.
pub(crate) enum Place<'a> {
    /// To something of ours.
    Ours(Spot<'a>),
    /// To the kernel, as it stands.
    Kernel,
    /// To the kernel, with this absolute, NUL-terminated text instead.
    Text(usize),
}

/// An open file of ours.
#[derive(Clone, Copy)]
pub(crate) struct OpenFile<'a> {
    pub slot: usize,
    pub entry: Entry,
    pub mount: &'a Mount,
    pub description: &'a openfiles::OpenFile,
    pub node: Node,
}

impl<'a> OpenFile<'a> {
    /// The calls that it is to be overwritten by, if it was opened so ([`ATOMIC`](crate::ATOMIC)).
    #[inline]
    pub(crate) fn whole(&self) -> Option<&'a dyn vfs::Whole> {
        if self.flags() & crate::ATOMIC == 0 { None } else { self.mount.backend.whole() }
    }

    /// `O_*` as `F_GETFL` reports them.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.description.flags.load(Relaxed)
    }
}

/// `AT_FDCWD`, as a descriptor argument.
pub(crate) const CWD: usize = abi::AT_FDCWD as usize;

/// A path being followed: where it is, and what is left.
struct Course<'a> {
    slot: usize,
    mount: &'a Mount,
    base: Node,
    rest: &'a [u8],
}

/// Where a text leads that has not been walked yet.
enum Start<'a> {
    In(Course<'a>),
    Outside,
}

impl Process {
    /// The open file behind a program's descriptor argument.
    #[inline]
    pub(crate) fn file(&self, fd: usize) -> Option<OpenFile<'_>> {
        let fd = fd as u32;
        if fd >= CWD_FD {
            return None;
        }
        self.open_file(self.descriptors.get(fd)?)
    }

    /// From here on the file open at `fd` is overwritten whole or not at all. `EOPNOTSUPP` where that cannot be, `EINVAL`
    /// for what is no regular file, `EROFS`.
    pub fn open_whole(&self, thread: &ThreadState, fd: usize) -> Result<(), Errno> {
        let file = self.file(fd).ok_or(Errno::EBADF)?;
        if file.entry.path_only() || file.entry.kind() != base::Kind::Regular {
            return Err(Errno::EINVAL);
        }
        let whole = file.mount.backend.whole().ok_or(Errno::EOPNOTSUPP)?;
        whole.allow(&self.cx(thread)).map_err(base::Error::errno)?;
        file.description.flags.fetch_or(crate::ATOMIC, Relaxed);
        Ok(())
    }

    /// The same for the fast path; `None` also where the file has to be asked for.
    #[inline]
    pub(crate) fn file_fast(&self, fd: usize) -> Option<OpenFile<'_>> {
        self.file_of(self.entry_fast(fd)?)
    }

    /// As [`Process::file_fast`], if it is open for writing.
    #[inline]
    pub(crate) fn writable_fast(&self, fd: usize) -> Option<OpenFile<'_>> {
        let entry = self.entry_fast(fd)?;
        // Before anything is looked up: one question with whether there is an entry.
        if !entry.writable() {
            return None;
        }
        self.file_of(entry)
    }

    #[inline]
    fn entry_fast(&self, fd: usize) -> Option<Entry> {
        let fd = fd as u32;
        if fd >= CWD_FD {
            return None;
        }
        self.descriptors.get(fd)
    }

    #[inline]
    fn file_of(&self, entry: Entry) -> Option<OpenFile<'_>> {
        let slot = entry.slot();
        let mount = self.mounts.held(slot)?;
        let description = mount.description_fast(entry.description())?;
        let node = Node { id: description.node.load(Relaxed), hint: description.hint.load(Relaxed) };
        Some(OpenFile { slot, entry, mount, description, node })
    }

    #[inline]
    pub(crate) fn open_file(&self, entry: Entry) -> Option<OpenFile<'_>> {
        let slot = entry.slot();
        let mount = self.mounts.held(slot)?;
        let description = mount.description(entry.description());
        let node = Node { id: description.node.load(Relaxed), hint: description.hint.load(Relaxed) };
        Some(OpenFile { slot, entry, mount, description, node })
    }

    /// What a directory argument (`AT_FDCWD` or a descriptor) is, if ours.
    #[inline]
    pub(crate) fn directory(&self, dirfd: usize) -> Option<OpenFile<'_>> {
        if dirfd as i32 == abi::AT_FDCWD {
            return self.open_file(self.descriptors.get(CWD_FD)?);
        }
        self.file(dirfd)
    }

    /// Resolves a path argument. `which` (0 or 1) tells the two paths of one
    /// call apart: each has its own scratch.
    ///
    /// # Safety
    /// `pointer` is null, low, or a NUL-terminated text.
    pub(crate) unsafe fn resolve<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        dirfd: usize,
        pointer: usize,
        last: Last,
    ) -> base::Result<Place<'a>> {
        if last == Last::Parent
            && !thread.retry.get()
            // SAFETY: the caller's promise.
            && let Some(spot) = unsafe { self.parent_fast(dirfd, pointer) }
        {
            return Ok(Place::Ours(spot));
        }
        // SAFETY: the caller's promise.
        let path = match unsafe { text::path(pointer) } {
            Ok(path) => path,
            Err(errno) => return self.not_ours(errno),
        };
        let course = if path.bytes.first() == Some(&b'/') {
            match self.find(path.bytes, last) {
                Some((slot, mount, rest)) => Course { slot, mount, base: mount.root, rest },
                None => match self.elsewhere(cx, thread, which, path, last)? {
                    Start::Outside => return self.left_to_kernel(cx, thread, which, dirfd, path.bytes, last),
                    Start::In(course) => return self.go(cx, thread, which, course, last),
                },
            }
        } else {
            let Some(dir) = self.directory(dirfd) else {
                return self.left_to_kernel(cx, thread, which, dirfd, path.bytes, last);
            };
            if path.bytes.is_empty() {
                return Err(Error::Posix(Errno::ENOENT));
            }
            if dir.entry.kind() != Kind::Directory {
                return Err(Error::Posix(Errno::ENOTDIR));
            }
            Course { slot: dir.slot, mount: dir.mount, base: dir.node, rest: path.bytes }
        };
        if course.mount.is_covered() || self.kernel_covers(course.mount) {
            return self.go(cx, thread, which, course, last);
        }
        // The way of nearly every call: one walk that stays inside.
        let mut links = 0;
        // SAFETY: no text in this scratch is in use yet.
        let scratch = unsafe { &mut *thread.room().scratch[which].get() };
        match course.mount.backend.walk(cx, course.base, course.rest, last, &mut links, None, scratch) {
            Ok(Walk::Found(found)) => Ok(Place::Ours(Spot { slot: course.slot, mount: course.mount, found })),
            Ok(Walk::Exit(exit)) => match self.carry_on(cx, thread, which, &course, exit, last)? {
                Carry::Walk(next) => self.go_on(cx, thread, which, next, last, links),
                Carry::Kernel(text) => Ok(Place::Text(text)),
            },
            Err(Error::Posix(Errno::ENOENT)) if course.rest.starts_with(b"..") => {
                // SAFETY: the caller's promise.
                unsafe { self.out_of_removed(cx, thread, which, dirfd, pointer, last) }
            }
            Err(error) => Err(error),
        }
    }

    /// As `resolve`, of a path that begins with `..`, which was not found: in a directory that was removed it is where that was.
    ///
    /// # Safety
    /// As for [`Process::resolve`].
    #[cold]
    #[inline(never)]
    unsafe fn out_of_removed<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        dirfd: usize,
        pointer: usize,
        last: Last,
    ) -> base::Result<Place<'a>> {
        let gone = Err(Error::Posix(Errno::ENOENT));
        // SAFETY: the caller's promise.
        let path = unsafe { text::path(pointer) }.map_err(Error::Posix)?.bytes;
        let Some(rest) = path.strip_prefix(b"..").filter(|rest| matches!(rest.first(), None | Some(b'/'))) else { return gone };
        let Some(dir) = self.directory(dirfd) else { return gone };
        if dir.mount.backend.attr(cx, dir.node)?.nlink != 0 {
            return gone;
        }
        let base = Node { id: dir.description.parent.load(Relaxed), hint: 0 };
        let rest = without_slashes(rest);
        if rest.is_empty() && last == Last::Parent {
            return gone;
        }
        self.go(cx, thread, which, Course { slot: dir.slot, mount: dir.mount, base, rest }, last)
    }

    /// The mount that an absolute path leads into by its text.
    #[inline]
    fn find<'a>(&self, path: &'a [u8], last: Last) -> Option<(usize, &Mount, &'a [u8])> {
        if last == Last::Parent { self.mounts.find_name(path) } else { self.mounts.find(path) }
    }

    /// Follows a course to its end, through as many mounts as it takes.
    fn go<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        course: Course<'a>,
        last: Last,
    ) -> base::Result<Place<'a>> {
        self.go_on(cx, thread, which, course, last, 0)
    }

    /// As `go`, when `links` symlinks were followed before.
    #[cold]
    fn go_on<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        mut course: Course<'a>,
        last: Last,
        mut links: u32,
    ) -> base::Result<Place<'a>> {
        loop {
            let slot = course.slot;
            let by_kernel = self.kernel_covers(course.mount);
            let covered = |node: Node| {
                self.mounts.mounted_on(course.mount, node.id).is_some()
                    || by_kernel && course.mount.backend.kernel_mount().is_covered(node)
            };
            let any = by_kernel || course.mount.is_covered();
            let covered: Option<&dyn Fn(Node) -> bool> = if any { Some(&covered) } else { None };
            // SAFETY: no text in this scratch is in use: `rest` is the program's
            // path or a copy in the thread's text.
            let scratch = unsafe { &mut *thread.room().scratch[which].get() };
            match course.mount.backend.walk(cx, course.base, course.rest, last, &mut links, covered, scratch)? {
                Walk::Found(found) => return Ok(Place::Ours(Spot { slot, mount: course.mount, found })),
                Walk::Exit(exit) => match self.carry_on(cx, thread, which, &course, exit, last)? {
                    Carry::Walk(next) => course = next,
                    Carry::Kernel(text) => return Ok(Place::Text(text)),
                },
            }
        }
    }

    /// A walk left its backend.
    #[cold]
    fn carry_on<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        from: &Course<'a>,
        exit: Exit,
        last: Last,
    ) -> base::Result<Carry<'a>> {
        let (head, rest): (&[u8], &[u8]) = match exit {
            Exit::Mountpoint { node, parent, name, rest } => {
                let Some((slot, mount)) = self.mounts.mounted_on(from.mount, node.id) else {
                    return self.go_into_kernel_mount(cx, thread, which, from.mount, (parent, name, rest));
                };
                // SAFETY: of what this text holds only `rest` is needed, and not afterwards.
                let rest = unsafe { thread.compose(which, b"", rest) }?;
                return Ok(Carry::Walk(Course { slot, mount, base: mount.root, rest }));
            }
            Exit::Above { rest } => match from.mount.parent() {
                Some((slot, covered)) => {
                    let mount = self.mounts.get(slot).ok_or(Error::Posix(Errno::ENOENT))?;
                    let base = mount.backend.parent(cx, covered)?;
                    // SAFETY: as above.
                    let rest = unsafe { thread.compose(which, b"", rest) }?;
                    return Ok(Carry::Walk(Course { slot, mount, base, rest }));
                }
                None if from.mount.prefix().is_empty() => {
                    // SAFETY: as above.
                    let rest = unsafe { thread.compose(which, b"", rest) }?;
                    return Ok(Carry::Walk(Course { base: from.mount.root, rest, ..*from }));
                }
                None => {
                    let prefix = from.mount.prefix();
                    let end = prefix.iter().rposition(|&b| b == b'/').unwrap_or(0);
                    (&prefix[..end + 1], rest)
                }
            },
            Exit::Absolute { path } => (b"", path),
        };
        // Above the mount point: the directory itself, then a slash, then the rest.
        let path = if head.len() > 1 && !rest.is_empty() {
            // SAFETY: as above; `head` is the mount's own.
            unsafe { thread.compose(which, head, rest) }?
        } else if head.len() > 1 {
            // SAFETY: as above.
            unsafe { thread.compose(which, &head[..head.len() - 1], b"") }?
        } else {
            // SAFETY: as above.
            unsafe { thread.compose(which, head, rest) }?
        };
        if let Some((slot, mount, rest)) = self.find(path, last) {
            return Ok(Carry::Walk(Course { slot, mount, base: mount.root, rest }));
        }
        let mut start = self.elsewhere(cx, thread, which, text::Path { bytes: path, dotted: true }, last)?;
        if matches!(start, Start::Outside) && thread.retry.get() && self.may_enter_mount(thread, path) {
            start = self.enter_outside_path(cx, thread, which, path, last)?;
        }
        match start {
            Start::In(course) => Ok(Carry::Walk(course)),
            Start::Outside if self.door.has_kernel() => Ok(Carry::Kernel(path.as_ptr() as usize)),
            Start::Outside => Err(Error::Posix(Errno::ENOENT)),
        }
    }

    /// An absolute path that no mount point begins: it may still lead to a
    /// descriptor of ours through `/proc` or `/dev`, or have detours before a
    /// mount point.
    #[inline]
    fn elsewhere<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        path: text::Path<'a>,
        last: Last,
    ) -> base::Result<Start<'a>> {
        if matches!(path.bytes.get(1), Some(b'p' | b'd'))
            && let Some((fd, rest)) = descriptor_name(path.bytes)
        {
            if let Some(file) = self.descriptors.get(fd).and_then(|entry| self.open_file(entry)) {
                if let Some(start) = Self::enter_descriptor(&file, path.bytes, rest, last) {
                    return start.map(Start::In);
                }
            } else if rest.is_empty()
                && last == Last::Follow
                && let Some((mount, node)) = self.behind_any(fd as usize)
                && mount.backend.attr(cx, node).is_ok()
            {
                return Ok(Start::In(Course { slot: mount.slot.into(), mount, base: node, rest }));
            }
        }
        if last == Last::Follow
            && let Some(start) = self.enter_program(cx, thread, which, path)?
        {
            return Ok(start);
        }
        if path.dotted && has_detours(path.bytes) && self.door.has_kernel() && self.may_enter_mount(thread, path.bytes) {
            return self.enter_outside_path(cx, thread, which, path.bytes, last);
        }
        Ok(Start::Outside)
    }

    /// Where a link to a descriptor of ours leads, with `rest` behind it; `None`: to the link itself.
    #[cold]
    fn enter_descriptor<'a>(file: &OpenFile<'a>, path: &[u8], rest: &'a [u8], last: Last) -> Option<base::Result<Course<'a>>> {
        let slash = path.ends_with(b"/");
        match (last, rest.is_empty()) {
            (Last::Follow, _) | (_, false) => {}
            (Last::NoFollow, true) if slash => {}
            _ => return None,
        }
        if (slash || !rest.is_empty()) && file.entry.kind() != Kind::Directory {
            return Some(Err(Error::Posix(Errno::ENOTDIR)));
        }
        Some(Ok(Course { slot: file.slot, mount: file.mount, base: file.node, rest }))
    }

    /// Not ours by its text. On the second attempt (after the kernel failed),
    /// and where the kernel's working directory lies above a mount point, it is
    /// looked at more closely.
    #[inline]
    fn left_to_kernel<'a>(
        &'a self,
        cx: &Cx,
        thread: &'a ThreadState,
        which: usize,
        dirfd: usize,
        path: &'a [u8],
        last: Last,
    ) -> base::Result<Place<'a>> {
        if path.first().is_some_and(u8::is_ascii_digit)
            && last == Last::Follow
            && let Some(file) = self.listed_descriptor(dirfd, path)
        {
            return Ok(Place::Ours(Spot {
                slot: file.slot,
                mount: file.mount,
                found: Found { parent: file.node, name: b"", node: Some(file.node), slash: false },
            }));
        }
        if thread.retry.get() || self.cwd_above_mount.load(Relaxed) {
            return self.look_closely(cx, thread, which, dirfd, path, last);
        }
        if !self.door.has_kernel() {
            let nobodys = path.first() != Some(&b'/') && !path.is_empty() && dirfd as i32 != abi::AT_FDCWD;
            return Err(Error::Posix(if nobodys { Errno::EBADF } else { Errno::ENOENT }));
        }
        // An absolute path of the kernel's, while the kernel is not where the
        // program thinks it is, is still the same path.
        Ok(Place::Kernel)
    }

    fn not_ours<'a>(&self, errno: Errno) -> base::Result<Place<'a>> {
        if self.door.has_kernel() { Ok(Place::Kernel) } else { Err(Error::Posix(errno)) }
    }
}

enum Carry<'a> {
    Walk(Course<'a>),
    Kernel(usize),
}

impl ThreadState {
    /// Writes `head` and `tail` one after the other, NUL-terminated, into this
    /// thread's text number `which`. `tail` may lie in that text itself: hence a
    /// pointer, as the compiler takes what a reference leads to for unchanging.
    ///
    /// # Safety
    /// `tail` can be read, `head` does not lie in that text, and nobody needs what
    /// was in it afterwards.
    pub(crate) unsafe fn compose<'a>(&'a self, which: usize, head: &[u8], tail: *const [u8]) -> base::Result<&'a [u8]> {
        let len = head.len() + tail.len();
        if len >= PATH_MAX {
            return Err(Error::Posix(Errno::ENAMETOOLONG));
        }
        let out = self.room().text[which].get().cast::<u8>();
        // SAFETY: within the text; a move, so the two may overlap.
        unsafe { core::ptr::copy(tail.cast::<u8>(), out.add(head.len()), tail.len()) };
        // SAFETY: within the text; the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(head.as_ptr(), out, head.len()) };
        // SAFETY: `len` is below the text's length.
        unsafe { *out.add(len) = 0 };
        // SAFETY: just written; the thread rewrites it only when this slice is used up.
        Ok(unsafe { core::slice::from_raw_parts(out, len) })
    }
}

/// `/proc/self/fd/N…`, `/proc/<own pid>/fd/N…`, `/proc/self/cwd…`, `/dev/fd/N…`, `/dev/stdin`…: the descriptor, and the rest
/// of the path.
pub(crate) fn descriptor_name(path: &[u8]) -> Option<(u32, &[u8])> {
    let tail = if let Some(tail) = path.strip_prefix(b"/dev/") {
        match tail {
            b"stdin" => return Some((0, b"")),
            b"stdout" => return Some((1, b"")),
            b"stderr" => return Some((2, b"")),
            _ => tail.strip_prefix(b"fd/")?,
        }
    } else {
        let tail = path.strip_prefix(b"/proc/")?;
        let end = tail.iter().position(|&b| b == b'/')?;
        let whose = &tail[..end];
        if whose != b"self" && whose != b"thread-self" {
            let pid = decimal(whose)?;
            // SAFETY: takes no arguments.
            let own = unsafe { pm::sys::raw(abi::__NR_getpid as usize, [0; 6]) };
            if pid as isize != own {
                return None;
            }
        }
        let mut tail = &tail[end..];
        if let Some(task) = tail.strip_prefix(b"/task/") {
            // Of whichever thread: they share one table.
            tail = &task[task.iter().position(|&b| b == b'/')?..];
        }
        if let Some(rest) = tail.strip_prefix(b"/cwd")
            && matches!(rest.first(), None | Some(b'/'))
        {
            return Some((CWD_FD, without_slashes(rest)));
        }
        tail.strip_prefix(b"/fd/")?
    };
    let end = tail.iter().position(|&b| b == b'/').unwrap_or(tail.len());
    Some((decimal(&tail[..end])?, without_slashes(&tail[end..])))
}

fn without_slashes(path: &[u8]) -> &[u8] {
    &path[path.iter().take_while(|&&b| b == b'/').count()..]
}

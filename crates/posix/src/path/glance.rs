//! What is known of a path at a glance, from where it starts: the quick way of
//! calls that take paths. What cannot be told so is resolved properly.

use super::Spot;
use crate::Process;
use crate::text;
use base::{Caller, Found, Glance, Name, Node, Sight};
use pm::Text;
use pm::sys::abi;
use vfs::Mount;
use vfs::mount::Native;

/// Where a glance at a path starts.
#[derive(Clone, Copy)]
pub(crate) struct Departure<'a> {
    pub(crate) mount: &'a Mount,
    pub(crate) base: Node,
    pub(crate) path: Text<'a>,
}

/// A proper name in a directory of ours, without a slash behind it. Nobody has looked whether there is such a thing.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) mount: &'a Mount,
    pub(crate) native: Native,
    pub(crate) dir: Node,
    pub(crate) name: Name<'a>,
}

impl<'a> Named<'a> {
    /// As a spot, for a call that is out of line: a copy, as [`base::Cx::copied`].
    #[inline(always)]
    pub(crate) fn spot(&self) -> Spot<'a> {
        let parent = Node { id: self.dir.id.rotate_left(0), hint: self.dir.hint };
        let found = Found { parent, name: self.name.bytes(), node: None, slash: false };
        Spot { slot: self.mount.slot.into(), mount: self.mount, found }
    }
}

impl Process {
    /// Where a glance at a path argument starts. `None`: resolve it properly.
    ///
    /// # Safety
    /// `pointer` is null, low, or of a text of the program's that stays as it is for `'a`, or is not there.
    #[inline(always)]
    pub(crate) unsafe fn start<'a>(&self, dirfd: usize, pointer: usize) -> Option<(&Mount, Node, Text<'a>)> {
        if text::bad(pointer) {
            return None;
        }
        // SAFETY: the caller's promise.
        let path = unsafe { Text::new(pointer as *const u8) };
        if path.is_absolute()? {
            let (mount, rest) = self.start_at_mount(path)?;
            return Some((mount, mount.root, rest));
        }
        if dirfd as i32 == abi::AT_FDCWD
            && let Some((place, id, hint)) = self.descriptors.here()
        {
            // SAFETY: told of the working directory's mount, and taken back before that may be unmounted.
            return Some((unsafe { self.mounts.at(place) }, Node { id, hint }, path));
        }
        let dir = self.directory(dirfd)?;
        Some((dir.mount, dir.node, path))
    }

    /// As [`Process::start`], for the two paths of one call; often they start at one place.
    ///
    /// # Safety
    /// As for [`Process::start`], of both.
    #[inline(always)]
    pub(crate) unsafe fn start_two<'a>(
        &'a self,
        from: (usize, usize),
        to: (usize, usize),
    ) -> Option<(Departure<'a>, Departure<'a>)> {
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(from.0, from.1) }?;
        let first = Departure { mount, base, path };
        if from.0 == to.0 && path.address() == from.1 && !text::bad(to.1) {
            // SAFETY: the caller's promise.
            let path = unsafe { Text::new(to.1 as *const u8) };
            // As the first one, it does not begin with a slash.
            if !path.is_absolute()? {
                return Some((first, Departure { path, ..first }));
            }
        }
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(to.0, to.1) }?;
        Some((first, Departure { mount, base, path }))
    }

    #[inline(never)]
    fn start_at_mount<'a>(&self, path: Text<'a>) -> Option<(&Mount, Text<'a>)> {
        let (mount, rest) = self.mounts.glance(path)?;
        if path.is_far_to(rest) { None } else { Some((mount, rest)) }
    }

    /// A glance at a path argument: the mount it lies in, and what there is. `who` is
    /// only asked where not everybody may search.
    ///
    /// # Safety
    /// As for [`Process::start`].
    #[inline(always)]
    pub(crate) unsafe fn glance<'c>(
        &self,
        who: impl Fn() -> &'c Caller,
        dirfd: usize,
        pointer: usize,
        follow: bool,
    ) -> Option<(&Mount, Glance, Sight)> {
        if !self.mounts.is_flat() {
            // SAFETY: the caller's promise.
            return unsafe { self.glance_between(who(), dirfd, pointer, follow) };
        }
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(dirfd, pointer) }?;
        let (glance, sight) = mount.glance::<false>(&self.mounts, who, base, path, follow);
        Some((mount, glance, sight))
    }

    /// As [`Process::glance`], from where a path starts.
    #[inline(always)]
    pub(crate) fn glance_from<'c>(&self, from: &Departure, who: impl Fn() -> &'c Caller, follow: bool) -> (Glance, Sight) {
        match self.mounts.is_flat() {
            true => from.mount.glance::<false>(&self.mounts, who, from.base, from.path, follow),
            false => self.glance_between_from(from, who(), follow),
        }
    }

    #[cold]
    #[inline(never)]
    fn glance_between_from(&self, from: &Departure, who: &Caller, follow: bool) -> (Glance, Sight) {
        from.mount.glance::<true>(&self.mounts, || who, from.base, from.path, follow)
    }

    /// As [`Process::glance`], where something is mounted inside another mount.
    ///
    /// # Safety
    /// As for [`Process::start`].
    #[cold]
    #[inline(never)]
    unsafe fn glance_between(&self, who: &Caller, dirfd: usize, pointer: usize, follow: bool) -> Option<(&Mount, Glance, Sight)> {
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(dirfd, pointer) }?;
        let (glance, sight) = self.glance_between_from(&Departure { mount, base, path }, who, follow);
        Some((mount, glance, sight))
    }

    /// A glance at the place of a name: its directory, and the name. `None`: resolve it properly.
    ///
    /// # Safety
    /// As for [`Process::start`].
    #[inline(always)]
    pub(crate) unsafe fn glance_parent<'a>(&'a self, dirfd: usize, pointer: usize) -> Option<Named<'a>> {
        // SAFETY: the caller's promise.
        let (mount, base, path) = unsafe { self.start(dirfd, pointer) }?;
        self.glance_parent_from(Departure { mount, base, path })
    }

    /// As [`Process::glance_parent`], from where a path starts.
    #[inline(always)]
    pub(crate) fn glance_parent_from<'a>(&'a self, Departure { mount, base, path }: Departure<'a>) -> Option<Named<'a>> {
        let (native, dir, name) = match self.mounts.is_flat() {
            true => mount.glance_parent::<false>(&self.mounts, || self.credentials.caller(), base, path)?,
            false => copied(self.glance_parent_between(mount, base, path)?),
        };
        Some(Named { mount, native, dir, name })
    }

    /// As [`Process::glance_parent_from`], of both paths of one call, which start in one mount.
    #[inline(always)]
    pub(crate) fn glance_parents<'a>(&'a self, from: Departure<'a>, to: Departure<'a>) -> Option<(Named<'a>, Named<'a>)> {
        let mount = from.mount;
        let glance = |Departure { base, path, .. }: Departure<'a>| {
            mount.glance_parent::<false>(&self.mounts, || self.credentials.caller(), base, path)
        };
        let between = |Departure { base, path, .. }: Departure<'a>| self.glance_parent_between(mount, base, path).map(copied);
        let [from, to] = match self.mounts.is_flat() {
            true => [glance(from)?, glance(to)?],
            false => [between(from)?, between(to)?],
        };
        let named = |(native, dir, name)| Named { mount, native, dir, name };
        Some((named(from), named(to)))
    }

    #[cold]
    #[inline(never)]
    fn glance_parent_between<'a>(&self, mount: &Mount, base: Node, path: Text<'a>) -> Option<(Native, Node, Name<'a>)> {
        mount.glance_parent::<true>(&self.mounts, || self.credentials.caller(), base, path)
    }
}

/// A copy of what a call out of line has told, as [`base::Cx::copied`].
#[inline(always)]
fn copied((native, Node { id, hint }, name): (Native, Node, Name)) -> (Native, Node, Name) {
    (native, Node { id: id.rotate_left(0), hint }, name.copied())
}

//! Reading an image whose file may not be written: on a read-only medium, or
//! somebody else's.
//!
//! The whole engine runs on a private copy of the image (`MAP_PRIVATE`) and a
//! segment of ordinary memory. What a crash interrupted is finished in the
//! copy; no store of ours reaches the file, whatever is damaged in it.
//!
//! The copy is made page by page as pages are written, so of an image that is
//! in use it would be a picture of no instant: it is refused. Whoever begins to
//! write later is not held up; what is read then may be old and new mixed, or
//! an error, as of a damaged image.

use super::attach::{self, AttachError, Opened, Options};
use super::{machine, volatile};
use crate::fs::Fs;
use crate::segment::{Areas, MAGIC, cachelet_budget};
use base::{Cx, Error};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Release};
use format::layout::BLOCK;
use pm::file::{self, File};
use pm::sys::abi;
use pm::{Domain, Errno, Region};

impl Fs {
    /// Attaches a private copy of the image at `path` (NUL-terminated), of which
    /// nothing can be changed (`EROFS`); read permission is enough. Otherwise
    /// as [`attach_at`](Fs::attach_at). `BeingWritten` if a living process uses the image, `Elsewhere` if another
    /// machine may do so; unless it is `beside` those, to look at roughly.
    ///
    /// It belongs to this process: a forked child has another copy.
    pub fn attach_copy_at<'p>(
        place: &'p mut MaybeUninit<Fs>,
        cx: &Cx,
        path: &[u8],
        slot: usize,
        beside: bool,
    ) -> Result<&'p Fs, AttachError> {
        let file = File::open(path, abi::O_RDONLY | abi::O_NONBLOCK, 0).map_err(AttachError::Open)?;
        // Nobody begins to use it while we look. On a medium without locks nobody does at all.
        if file.stat().is_ok_and(|stat| stat.is_regular()) && file.lock_shared() == Err(Errno::EAGAIN) {
            return Err(AttachError::Locked);
        }
        let opened = attach::examine(file)?;
        if !beside {
            machine::refuse_unattached(&opened.file, &opened.stat)?;
        }
        let len = opened.stat.size.min(opened.layout.limit) & !(BLOCK - 1);
        let address = opened.file.map_copy(len).map_err(AttachError::Map)?;
        // SAFETY: just mapped, private and writable, page-aligned; it is unmapped
        // only when attaching fails and the region is gone.
        let image = unsafe { Region::new(address, len, opened.grown * BLOCK, Domain::Process) };
        let options = Options { read_only: true, slot, ..Default::default() };
        let fs = place.write(attach::unjoined(&opened.superblock, opened.layout, image, path, &options)?);
        fs.files.image = opened.stat.identity();
        match fs.attach_copy(cx, &opened, beside) {
            Ok(()) => Ok(fs),
            Err(error) => {
                fs.abandon(cx);
                Err(error)
            }
        }
    }

    fn attach_copy(&mut self, cx: &Cx, opened: &Opened, beside: bool) -> Result<(), AttachError> {
        let identity = opened.identity;
        let header = self.volatile();
        if !beside && identity.matches(header) && header.token.load(Acquire) != 0 && volatile::anyone_lives(&self.image) {
            return Err(AttachError::BeingWritten);
        }
        identity.initialise(&self.image, self.volatile());
        self.recover_records().map_err(AttachError::Failed)?;
        self.new_generation();
        self.areas = Areas::new(&self.layout, cachelet_budget(&self.layout));
        let len = self.areas.len;
        let address = file::map_private(len).map_err(AttachError::Segment)?;
        // SAFETY: just mapped, writable; unmapped by `leave_segment` together with the region.
        let segment = unsafe { Region::new(address, len, len, Domain::Process) };
        self.use_segment(segment)?;
        self.begin_segment(1)?;
        self.header().magic.store(MAGIC, Release);
        self.take_process(cx).map_err(|error| match error {
            Error::Posix(Errno::ENOSPC) => AttachError::NoSpace,
            _ => AttachError::TooManyProcesses,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::{at, new, node, populated};
    use crate::testing::{TestFs, TestImage};
    use crate::{Kind, Node};
    use base::{Cred, SetAttr, Thread};
    use core::sync::atomic::Ordering::Relaxed;
    use format::inode::{node_offset, word};
    use format::lane::{self, Op, State};
    use pm::UserSlice;
    use std::boxed::Box;

    fn copy<'t>(image: &TestImage, thread: &'t Thread) -> Result<(&'static Fs, Cx<'t>), AttachError> {
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread };
        let fs = Fs::attach_copy_at(Box::leak(Box::new_uninit()), &cx, &image.path(), 0, false)?;
        Ok((fs, cx))
    }

    /// Leaves the image in mid-operation: a record says that the file's time is to change.
    fn interrupted(test: &TestFs, file: Node) {
        let lane = test.fs.lane(9);
        let (place, value) = Op::Set { at: node_offset(file.id) + word::MTIME, value: 123_456_789 }.pack();
        lane.ops[0].place.store(place, Relaxed);
        lane.ops[0].value.store(value, Relaxed);
        let state = State { sequence: 1, kind: lane::Kind::SetAttr as u16, objects: 0, ops: 1 };
        lane.checksum.store(crate::lane::apply::mark(state), Relaxed);
        lane.state.store(state.pack(), Relaxed);
    }

    /// Goal: all can be read, what a crash interrupted is finished, nothing can be changed, and not a
    /// byte of the file is another.
    #[test]
    fn reads_and_writes_nothing() {
        let test = populated();
        let file = node(&test, b"file-0-");
        test.write(&test.cx(), file, Some(0), &[UserSlice::from_ref(b"contents")]).unwrap();
        let closed = test.create(&test.cx(), test.root_node(), b"closed", &new(Kind::Directory)).unwrap();
        test.set_attr(&test.cx(), closed, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).unwrap();
        test.fs.detach(&test.cx());
        interrupted(&test, file);
        let before = std::fs::read(test.image.file()).unwrap();
        let names = || std::fs::read_dir(test.image.directory()).unwrap().count();
        let names_before = names();

        let thread = Thread::new();
        let (fs, cx) = copy(&test.image, &thread).unwrap();
        let root = fs.root_node();
        let found = fs.lookup(&cx, root, b"file-0-").unwrap();
        assert_eq!(fs.attr(&cx, found).unwrap().mtime, 123_456_789);
        let mut contents = [0u8; 20];
        assert_eq!(fs.read(&cx, found, 0, &[UserSlice::from_mut(&mut contents)]), Ok(8));
        assert_eq!(&contents[..8], b"contents");
        let mut entries = 0;
        let mut count = |_: base::DirEntry| {
            entries += 1;
            true
        };
        fs.readdir(&cx, root, 0, &mut count).unwrap();
        assert!(entries > 20);
        let refused = Err(Error::Posix(Errno::EROFS));
        assert_eq!(fs.create(&cx, root, b"new", &new(Kind::Regular)), refused);
        assert_eq!(fs.write(&cx, found, Some(0), &[UserSlice::from_ref(b"x")]).map(drop), refused.map(drop));
        assert_eq!(fs.unlink(&cx, root, b"file-0-").map(drop), refused.map(drop));
        // What may not even be searched is the first thing wrong.
        let user = Cx { cred: Cred { uid: 1000, gid: 1000, groups: &[], privileged: false, privileged_within: false }, ..cx };
        for (who, wrong) in [(&cx, Errno::EROFS), (&user, Errno::EACCES)] {
            let wrong = Err(Error::Posix(wrong));
            assert_eq!(fs.unlink(who, closed, b"x"), wrong);
            assert_eq!(fs.rmdir(who, closed, b"x"), wrong);
            assert_eq!(fs.rename(who, closed, b"x", root, b"y", base::RenameMode::Replace), wrong);
            assert_eq!(fs.create(who, closed, b"x", &new(Kind::Regular)).map(drop), wrong);
        }
        fs.end_session(&cx);

        assert!(std::fs::read(test.image.file()).unwrap() == before, "the file has changed");
        assert_eq!(names(), names_before);
        assert_ne!(at(&test, node_offset(file.id) + word::MTIME).load(Relaxed), 123_456_789);
    }

    /// Goal: an image that somebody uses is not copied; after his end it is.
    #[test]
    fn not_while_it_is_written() {
        let test = populated();
        let thread = Thread::new();
        assert_eq!(copy(&test.image, &thread).map(drop), Err(AttachError::BeingWritten));
        test.fs.detach(&test.cx());
        let (fs, cx) = copy(&test.image, &thread).unwrap();
        // The copy holds up nobody.
        let other = Thread::new();
        let again = test.image.attach(&other).unwrap();
        again.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &other });
        fs.end_session(&cx);
    }
}

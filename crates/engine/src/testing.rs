//! An image for tests: made in `/dev/shm`, attached, gone when the test ends.
//!
//! ```ignore
//! let test = TestFs::new(64 << 20);
//! let cx = test.cx();
//! let root = test.root();
//! test.create(&cx, root, b"name", …)
//! ```

use crate::fs::Fs;
use crate::mkfs;
use crate::process::{AttachError, Options};
use base::{Caller, Cred, Cx, Fast, Node, Thread};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use openfiles::Handover;
use std::boxed::Box;
use std::format;
use std::string::String;
use std::vec::Vec;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn raise(signal: i32) -> i32;
}

/// Fixed seeds, so that a test's image is the same at every run.
pub const SEEDS: mkfs::Seeds = mkfs::Seeds {
    uuid: [0x1111_2222_3333_4444, 0x5555_6666_7777_8888],
    ino_key: 0x0123_4567_89ab_cdef,
    hash_seed: 0xfeed_beef,
    made: 1_700_000_000_000_000_000,
};

/// An image in a directory of its own.
#[derive(Debug)]
pub struct TestImage {
    directory: String,
}

impl TestImage {
    /// Makes an image with this limit, bytes, and fixed seeds.
    pub fn new(limit: u64) -> TestImage {
        TestImage::with(limit, format::Features(0))
    }

    /// The same with these features.
    pub fn with(limit: u64, features: format::Features) -> TestImage {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let directory = format!("/dev/shm/bypath-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        // A killed run's, whose process had this number.
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a directory for the test");
        let image = TestImage { directory };
        let options = mkfs::Options { limit, seeds: Some(SEEDS), features, ..Default::default() };
        mkfs::make(&image.path(), &options).expect("mkfs");
        image
    }

    /// Path of the image, NUL-terminated.
    pub fn path(&self) -> Vec<u8> {
        format!("{}/image\0", self.directory).into_bytes()
    }

    /// Path of the image.
    pub fn file(&self) -> String {
        format!("{}/image", self.directory)
    }

    /// Directory that holds the image, and its segments.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Attaches it for this thread, whose lane goes into slot 0 of `thread`.
    pub fn attach(&self, thread: &Thread) -> Result<&'static Fs, AttachError> {
        let options = Options { segment_dir: Some(self.directory.as_bytes()), ..Default::default() };
        self.attach_with(thread, &options)
    }

    /// Attaches it with these options. Mapping and memory stay for good: mutexes
    /// in it may be held by any thread to its end.
    pub fn attach_with(&self, thread: &Thread, options: &Options) -> Result<&'static Fs, AttachError> {
        let place: &'static mut MaybeUninit<Fs> = Box::leak(Box::new_uninit());
        let cx = Cx { cred: Cred::ROOT, umask: 0o022, thread };
        Fs::attach_at(place, &cx, &self.path(), options)
    }
}

impl Drop for TestImage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// An attached image.
#[derive(Debug)]
pub struct TestFs {
    /// The thread whose lane is used.
    pub thread: Thread,
    /// The attached image.
    pub fs: &'static Fs,
    /// Its file.
    pub image: TestImage,
}

impl TestFs {
    /// Makes and attaches an image with this limit, bytes.
    pub fn new(limit: u64) -> TestFs {
        TestFs::from_image(TestImage::new(limit)).expect("attach")
    }

    /// Attaches an image.
    pub fn from_image(image: TestImage) -> Result<TestFs, AttachError> {
        let thread = Thread::new();
        let fs = image.attach(&thread)?;
        Ok(TestFs { thread, fs, image })
    }

    /// The superuser's context.
    pub fn cx(&self) -> Cx<'_> {
        Cx { cred: Cred::ROOT, umask: 0o022, thread: &self.thread }
    }

    /// The context of an ordinary user.
    pub fn cx_as(&self, uid: u32, gid: u32) -> Cx<'_> {
        Cx {
            cred: Cred { uid, gid, groups: &[], privileged: false, privileged_within: false },
            umask: 0o022,
            thread: &self.thread,
        }
    }

    /// Leaves in good order and attaches again.
    pub fn again(self) -> TestFs {
        let TestFs { thread, fs, image } = self;
        fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        TestFs::from_image(image).expect("attach again")
    }

    /// Runs `last` in a child, which then dies; it must return true.
    pub fn dying(&self, last: impl FnOnce(&Cx) -> bool) {
        self.dying_as(self.fork_prepare(&self.cx()).unwrap(), last);
    }

    /// As `dying`, with a token made before.
    pub fn dying_as(&self, token: u64, last: impl FnOnce(&Cx) -> bool) {
        // SAFETY: the child ends itself.
        let pid = unsafe { fork() };
        if pid == 0 {
            let thread = Thread::new();
            self.fork_child(token);
            let signal = if last(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread }) { 9 } else { 15 };
            // SAFETY: a signal to ourselves.
            unsafe { raise(signal) };
        }
        self.fork_done(token, pid as u32);
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status & 0x7f, 9);
    }
}

impl core::ops::Deref for TestFs {
    type Target = Fs;
    fn deref(&self) -> &Fs {
        self.fs
    }
}

/// What the fast path says of `path` from `base`; where there is a node, its number and permission bits too.
pub fn find_fast(fs: &Fs, base: Node, path: &[u8]) -> (Fast<()>, u64, u32) {
    let who = Caller { uid: 0, privileged: true };
    let text: Vec<u8> = path.iter().copied().chain([0]).collect();
    // SAFETY: the text ends in a NUL, and is dropped only afterwards.
    match fs.find_fast(&who, (base, unsafe { pm::Text::new(text.as_ptr()) }), true, |_| false) {
        Fast::Done(sight) => (Fast::Done(()), sight.node.id, sight.word & 0xfff),
        Fast::Absent => (Fast::Absent, 0, 0),
        Fast::Slow => (Fast::Slow, 0, 0),
    }
}

/// Address and length of the two mappings of an attached image, for who takes them away after `detach`.
pub fn mappings(fs: &Fs) -> [(usize, usize); 2] {
    [&fs.image, &fs.segment].map(|region| (region.base() as usize, region.len() as usize))
}

/// Word `number` of the segment, for a test that writes what no peer should.
pub fn segment_word(fs: &Fs, number: usize) -> Option<&AtomicU64> {
    fs.segment.word(number as u64 * 8)
}

/// The parts of a segment that a small image uses: offset and length, bytes.
pub fn segment_areas(fs: &Fs) -> Vec<(u64, u64)> {
    let areas = &fs.areas;
    let cachelets = u64::from(fs.header().cachelet_next.load(Relaxed)).max(64) * 128;
    [
        (0, size_of::<crate::segment::Header>() as u64),
        (areas.bucket_locks, 16 * crate::segment::BUCKET_LOCKS),
        (areas.lanes, 4096),
        (areas.processes, 256),
        (areas.descriptors, 192),
        (areas.descriptions, 2048),
        (areas.advisory, 1024),
        (areas.chunks, 192),
        (areas.reservations, fs.layout.block_count() * 8),
        (areas.cachelets, cachelets),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an image is made, attached, left and attached again, in the same
    /// generation while the segment is there and in the next when it is not.
    #[test]
    fn attaches_again() {
        let test = TestFs::new(64 << 20);
        let first = test.generation();
        assert_eq!(test.users().count(), 1);
        let test = test.again();
        assert_eq!(test.generation(), first);
        let segment = String::from_utf8(test.segment_path().to_vec()).unwrap();
        let TestFs { thread, fs, image } = test;
        fs.detach(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
        std::fs::remove_file(segment).unwrap();
        let test = TestFs::from_image(image).unwrap();
        assert_eq!(test.generation(), first + 1);
    }
}

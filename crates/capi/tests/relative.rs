//! Where relative paths start: between mounts, over one that covers a directory, and while other threads change it.
#![cfg(feature = "native")]

use bypath::*;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Pairs of changes that two threads make at once.
const CHANGES: usize = 20_000;

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

/// A fresh image, removed in the end.
struct Image(PathBuf);

impl Image {
    fn new(name: &str) -> Image {
        let path = PathBuf::from(format!("/dev/shm/bypath-relative-{name}-{}", std::process::id()));
        let options = engine::mkfs::Options { limit: 32 << 20, force: true, ..Default::default() };
        engine::mkfs::make(text(path.to_str().unwrap()).as_bytes_with_nul(), &options).unwrap();
        Image(path)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A namespace that threads share.
#[derive(Clone, Copy)]
struct Shared(*mut Namespace);
// SAFETY: its calls may be made by any thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn mount(self, image: &Image, point: &str) {
        let (source, point) = (text(image.0.to_str().unwrap()), text(point));
        // SAFETY: texts, and a namespace.
        assert_eq!(unsafe { bp_mount(self.0, source.as_ptr(), point.as_ptr(), null()) }, 0, "{point:?}");
    }

    fn call(self, call: unsafe extern "C" fn(*const Namespace, *const c_char) -> i32, path: &str) -> i32 {
        // SAFETY: a text, and a namespace.
        unsafe { call(self.0, text(path).as_ptr()) }
    }

    fn make(self, path: &str) {
        // SAFETY: a text, and a namespace.
        let fd = unsafe { bp_open(self.0, text(path).as_ptr(), libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644) };
        assert!(fd >= 0, "{path}");
        // SAFETY: a number of ours.
        assert_eq!(unsafe { bp_close(self.0, fd) }, 0);
    }

    /// Device and inode.
    fn node(self, path: &str) -> Option<(u64, u64)> {
        let mut out = MaybeUninit::uninit();
        // SAFETY: a text, a namespace, and room for the result.
        let result = unsafe { bp_stat(self.0, text(path).as_ptr(), out.as_mut_ptr()) };
        // SAFETY: filled in on success.
        (result == 0).then(|| unsafe { out.assume_init_ref() }).map(|stat| (stat.st_dev, stat.st_ino))
    }
}

#[test]
fn starts_where_the_working_directory_is() {
    let images = ["one", "two", "inner"].map(Image::new);
    let ns = Shared(bp_open_namespace());
    assert!(!ns.0.is_null());
    ns.mount(&images[0], "/one");
    ns.mount(&images[1], "/two");
    // SAFETY: a text, and a namespace.
    assert_eq!(unsafe { bp_mkdir(ns.0, c"/one/d".as_ptr(), 0o755) }, 0);
    for path in ["/one/name", "/two/pad", "/two/name", "/one/d/below"] {
        ns.make(path);
    }
    let (one, two) = (ns.node("/one/name").unwrap(), ns.node("/two/name").unwrap());
    assert_ne!(one, two);

    // There and back, and by a directory's own name.
    for (directory, expected) in [("/one", one), ("/two", two), ("../one", one), ("/two", two)] {
        if ns.call(bp_chdir, directory) != 0 {
            // Above a mount there is nothing here.
            assert_eq!(directory, "../one");
            continue;
        }
        assert_eq!(ns.node("name"), Some(expected), "in {directory}");
        assert_eq!(ns.node("missing"), None);
    }

    // What covers a directory is entered from where the path starts, and left again with the mount.
    assert_eq!(ns.call(bp_chdir, "/one"), 0);
    let outer = ns.node("d/below");
    assert!(outer.is_some());
    ns.mount(&images[2], "/one/d");
    assert_eq!(ns.node("d/below"), None, "covered");
    ns.make("d/inside");
    assert_eq!(ns.node("d/inside"), ns.node("/one/d/inside"));
    assert_eq!(ns.node("name"), Some(one));
    // SAFETY: a text, and a namespace that no other call uses.
    assert_eq!(unsafe { bp_umount(ns.0, c"/one/d".as_ptr()) }, 0);
    assert_eq!((ns.node("d/below"), ns.node("d/inside")), (outer, None));

    // Two threads change it at once, while others start there: always in one of both.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changers = ["/one", "/two"].map(|first| {
            scope.spawn(move || {
                let second = if first == "/one" { "/two" } else { "/one" };
                for _ in 0..CHANGES {
                    for directory in [first, second] {
                        assert_eq!(ns.call(bp_chdir, directory), 0);
                        let seen = ns.node("name").unwrap();
                        assert!(seen == one || seen == two);
                    }
                }
            })
        });
        let reader = scope.spawn(|| {
            let mut seen = [0u64; 2];
            while !done.load(Relaxed) {
                let node = ns.node("name").unwrap();
                assert!(node == one || node == two);
                seen[usize::from(node == two)] += 1;
            }
            seen
        });
        let ends = changers.map(|changer| changer.join());
        done.store(true, Relaxed);
        let seen = reader.join().unwrap();
        ends.into_iter().for_each(|end| end.unwrap());
        println!("seen in one and in the other: {seen:?}");
    });
    // SAFETY: no call is under way.
    assert_eq!(unsafe { bp_close_namespace(ns.0) }, 0);
}

//! Whole files in one call.
#![cfg(feature = "native")]

use bypath::*;
use std::ffi::{CStr, CString};
use std::ptr::null;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A namespace on a fresh image.
struct Fixture {
    ns: *mut Namespace,
    path: String,
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        let path = format!("/dev/shm/bypath-whole-{name}-{}", std::process::id());
        let image = CString::new(path.as_str()).unwrap();
        engine::mkfs::make(
            image.as_bytes_with_nul(),
            &engine::mkfs::Options { limit: 32 << 20, force: true, ..Default::default() },
        )
        .unwrap();
        let ns = bp_open_namespace();
        // SAFETY: texts, and a namespace.
        assert_eq!(unsafe { bp_mount(ns, image.as_ptr(), c"/".as_ptr(), null()) }, 0);
        Fixture { ns, path }
    }

    fn write(&self, name: &CStr, at: i64, data: &[u8]) {
        // SAFETY: texts, a namespace, and a buffer.
        unsafe {
            let fd = bp_open(self.ns, name.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600);
            assert_eq!(bp_pwrite(self.ns, fd, data.as_ptr().cast(), data.len(), at), data.len() as isize);
            bp_close(self.ns, fd);
        }
    }

    fn read(&self, name: &CStr, len: usize, offset: i64) -> Result<Vec<u8>, i32> {
        let mut out = vec![0; len];
        // SAFETY: a text, a namespace, and a buffer.
        let got = unsafe { bp_read_path(self.ns, name.as_ptr(), out.as_mut_ptr().cast(), len, offset) };
        out.truncate(usize::try_from(got).map_err(|_| errno())?);
        Ok(out)
    }

    /// The fd, and the bytes if they lie in one piece.
    fn view(&self, name: &CStr) -> Result<(i32, usize, Option<&[u8]>), i32> {
        let (mut start, mut len) = (null(), 0);
        // SAFETY: a text, a namespace, and two places.
        let fd = unsafe { bp_open_view(self.ns, name.as_ptr(), &raw mut start, &raw mut len) };
        if fd < 0 {
            return Err(errno());
        }
        // SAFETY: the library says so; tests close the fd when they have looked.
        Ok((fd, len, (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast(), len) })))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // SAFETY: nobody uses it.
        unsafe { bp_close_namespace(self.ns) };
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Goal: reads of a path are reads of an open file. Method: all of it, parts, past its end, and what can't be read; no fd stays.
#[test]
fn a_path_is_read_in_one_call() {
    let test = Fixture::new("read");
    test.write(c"/f", 0, b"some text");
    assert_eq!(test.read(c"/f", 100, 0).unwrap(), b"some text");
    assert_eq!(test.read(c"/f", 4, 0).unwrap(), b"some");
    assert_eq!(test.read(c"/f", 100, 5).unwrap(), b"text");
    assert_eq!(test.read(c"/f", 100, 50).unwrap(), b"");
    assert_eq!(test.read(c"/f", 0, 0).unwrap(), b"");
    assert_eq!(test.read(c"/f", 1, -1), Err(libc::EINVAL));
    assert_eq!(test.read(c"/none", 1, 0), Err(libc::ENOENT));
    assert_eq!(test.read(c"/", 1, 0), Err(libc::EISDIR));
    assert_eq!(test.view(c"/f").unwrap().0, 3);
}

/// Goal: a view is the file's own bytes. Method: bytes seen after another's write, after the name is gone and the file is cut;
/// files that have no such place; what is not a file.
#[test]
fn a_view_is_the_files_own_bytes() {
    let test = Fixture::new("view");
    let data: Vec<u8> = (0..3 << 20).map(|at| (at / 7) as u8).collect();
    test.write(c"/f", 0, &data);
    let (fd, len, bytes) = test.view(c"/f").unwrap();
    assert_eq!(len, data.len());
    let bytes = bytes.unwrap();
    assert!(bytes == data);
    test.write(c"/f", 5000, b"new");
    assert_eq!(&bytes[4999..5003], [data[4999], b'n', b'e', b'w']);
    // SAFETY: texts, and a namespace.
    unsafe {
        assert_eq!(bp_truncate(test.ns, c"/f".as_ptr(), 6000), 0);
        assert_eq!(bp_unlink(test.ns, c"/f".as_ptr()), 0);
    }
    test.write(c"/other", 0, &vec![0xaa; 4 << 20]);
    assert_eq!(&bytes[4999..5003], [data[4999], b'n', b'e', b'w']);
    assert!(bytes[6000..].iter().all(|byte| *byte == 0), "what was cut off is zeroes, and nobody else's");
    // SAFETY: a namespace.
    unsafe { bp_close(test.ns, fd) };

    test.write(c"/hole", 1 << 20, b"end");
    assert_eq!((test.view(c"/hole").unwrap().1, test.view(c"/hole").unwrap().2), ((1 << 20) + 3, None));
    test.write(c"/empty", 0, b"");
    assert_eq!((test.view(c"/empty").unwrap().1, test.view(c"/empty").unwrap().2), (0, None));
    assert_eq!(test.view(c"/none"), Err(libc::ENOENT));
    assert_eq!(test.view(c"/"), Err(libc::ENODEV));
}

/// Goal: a clone has what its original had, and goes as a whole; errors are those of the header. Method: a tree by the library's
/// own calls, an edit of the clone, paths that can't be.
#[test]
fn trees_are_cloned_and_dropped() {
    let test = Fixture::new("trees");
    // SAFETY: texts, and a namespace.
    let (clone, drop_tree) = unsafe {
        assert_eq!(bp_mkdir(test.ns, c"/t".as_ptr(), 0o750), 0);
        assert_eq!(bp_mkdir(test.ns, c"/t/d".as_ptr(), 0o700), 0);
        (
            |from: &CStr, to: &CStr| if bp_clone(test.ns, from.as_ptr(), to.as_ptr()) == 0 { 0 } else { errno() },
            |path: &CStr| if bp_drop(test.ns, path.as_ptr()) == 0 { 0 } else { errno() },
        )
    };
    let data = vec![7; 300_000];
    test.write(c"/t/d/f", 0, &data);
    assert_eq!(clone(c"/t", c"/u"), 0);
    test.write(c"/u/d/f", 5, b"edit");
    assert!(test.read(c"/t/d/f", 400_000, 0).unwrap() == data);
    assert_eq!(test.read(c"/u/d/f", 6, 4).unwrap(), b"\x07edit\x07");
    assert_eq!(clone(c"/u/d/f", c"/single"), 0);
    assert_eq!(test.read(c"/single", 4, 5).unwrap(), b"edit");
    for (from, to, wanted) in [
        (c"/t", c"/u", libc::EEXIST),
        (c"/t", c"/", libc::EEXIST),
        (c"/t", c"/t/d/x", libc::EINVAL),
        (c"/none", c"/x", libc::ENOENT),
        (c"/t", c"/none/x", libc::ENOENT),
    ] {
        assert_eq!(clone(from, to), wanted, "{from:?} {to:?}");
    }
    // SAFETY: texts, and a namespace.
    unsafe {
        assert_eq!(bp_mkdir(test.ns, c"/m".as_ptr(), 0o755), 0);
        assert_eq!(bp_mount(test.ns, c"mem:".as_ptr(), c"/m".as_ptr(), null()), 0);
    }
    assert_eq!(clone(c"/t", c"/m/t"), libc::EXDEV);
    assert_eq!((drop_tree(c"/u"), drop_tree(c"/u"), drop_tree(c"/single"), drop_tree(c"/")), (0, libc::ENOENT, 0, libc::EBUSY));
    assert_eq!(test.read(c"/u/d/f", 1, 0), Err(libc::ENOENT));
    assert!(test.read(c"/t/d/f", 400_000, 0).unwrap() == data);
}

/// Goal: a snapshot keeps what there was, nobody changes it, and it goes by `bp_drop`; errors are those of the header. Method: a
/// file that changes after it was kept.
#[test]
fn snapshots_stay_as_they_are() {
    let test = Fixture::new("snapshots");
    // SAFETY: texts, and a namespace.
    let (snap, open, drop_tree) = unsafe {
        assert_eq!(bp_mkdir(test.ns, c"/t".as_ptr(), 0o750), 0);
        (
            |path: &CStr, name: &CStr| if bp_snap(test.ns, path.as_ptr(), name.as_ptr()) == 0 { 0 } else { errno() },
            |path: &CStr| if bp_open(test.ns, path.as_ptr(), libc::O_WRONLY, 0) >= 0 { 0 } else { errno() },
            |path: &CStr| if bp_drop(test.ns, path.as_ptr()) == 0 { 0 } else { errno() },
        )
    };
    test.write(c"/t/f", 0, b"monday");
    assert_eq!(snap(c"/t", c"one"), 0);
    test.write(c"/t/f", 0, b"later!");
    assert_eq!(test.read(c"/t/.snap/one/f", 6, 0).unwrap(), b"monday");
    assert_eq!(open(c"/t/.snap/one/f"), libc::EROFS);
    for (path, name, wanted) in [
        (c"/t", c"one", libc::EEXIST),
        (c"/t", c"", libc::EINVAL),
        (c"/t", c"..", libc::EINVAL),
        (c"/t", c"a/b", libc::EINVAL),
        (c"/t/f", c"x", libc::ENOTDIR),
        (c"/none", c"x", libc::ENOENT),
    ] {
        assert_eq!(snap(path, name), wanted, "{path:?} {name:?}");
    }
    assert_eq!(drop_tree(c"/t/.snap/one"), 0);
    assert_eq!(test.read(c"/t/.snap/one/f", 1, 0), Err(libc::ENOENT));
    assert_eq!(test.read(c"/t/f", 6, 0).unwrap(), b"later!");
}

/// Goal: a word that is no option of the mount is `EINVAL`, and not a mount without it; those that there are still do.
#[test]
fn unknown_options_are_refused() {
    let test = Fixture::new("options");
    let image = CString::new(test.path.as_str()).unwrap();
    let mount = |source: &CStr, options: &CStr| {
        let ns = bp_open_namespace();
        // SAFETY: texts, and a namespace that nobody else uses.
        unsafe {
            let result = bp_mount(ns, source.as_ptr(), c"/".as_ptr(), options.as_ptr());
            let errno = if result == 0 { 0 } else { errno() };
            // `O_WRONLY` of a name that is new: whether it can be written.
            let writable = result == 0 && bp_open(ns, c"/probe".as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600) >= 0;
            bp_close_namespace(ns);
            (errno, writable)
        }
    };
    for wrong in [c"roo", c"ro,bogus", c"cahce=/x", c"atomic=undoo", c"atomic", c"domain=always", c"sync=none", c"RO"] {
        assert_eq!(mount(&image, wrong), (libc::EINVAL, false), "{wrong:?}");
    }
    for wrong in [c"roo", c"sync=never", c"atomic=undo"] {
        assert_eq!(mount(c"host:/tmp", wrong).0, libc::EINVAL, "{wrong:?}");
    }
    assert_eq!(mount(c"mem:", c"ro").0, libc::EINVAL);
    assert_eq!(mount(&image, c"ro,domain=process"), (0, false));
    assert_eq!(mount(&image, c"ro,,rw,atomic=undo"), (0, true));
}

/// Goal: many files in one call are what each is alone. Method: lengths about the room that is left, what can't be read, an empty
/// file, no file at all; no fd stays.
#[test]
fn many_files_are_read_in_one_call() {
    let test = Fixture::new("many");
    test.write(c"/a", 0, b"first");
    test.write(c"/b", 0, b"");
    test.write(c"/c", 0, b"the third one");
    let read = |names: &[&CStr], len: usize| {
        let paths: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let (mut out, mut lens) = (vec![0u8; len], vec![isize::MIN; names.len()]);
        // SAFETY: texts, a namespace, and room for so many bytes and numbers.
        let got = unsafe { bp_read_many(test.ns, paths.as_ptr(), paths.len(), out.as_mut_ptr().cast(), len, lens.as_mut_ptr()) };
        lens.truncate(got.max(0) as usize);
        out.truncate(lens.iter().map(|len| (*len).max(0) as usize).sum());
        (got, out, lens)
    };
    let missing = -(libc::ENOENT as isize);
    assert_eq!(read(&[c"/a", c"/b", c"/none", c"/c"], 100), (4, b"firstthe third one".to_vec(), vec![5, 0, missing, 13]));
    assert_eq!(read(&[c"/a", c"/b", c"/c"], 18), (3, b"firstthe third one".to_vec(), vec![5, 0, 13]));
    assert_eq!(read(&[c"/a", c"/b", c"/c"], 17), (2, b"first".to_vec(), vec![5, 0]));
    assert_eq!(read(&[c"/c", c"/a"], 12), (0, vec![], vec![]));
    assert_eq!(read(&[c"/b", c"/none"], 0), (2, vec![], vec![0, missing]));
    assert_eq!(read(&[], 10), (0, vec![], vec![]));
    // SAFETY: a namespace.
    let fd = unsafe { bp_open(test.ns, c"/a".as_ptr(), libc::O_RDONLY, 0) };
    let again = Fixture::new("many-again");
    again.write(c"/a", 0, b"");
    // SAFETY: a namespace.
    assert_eq!(fd, unsafe { bp_open(again.ns, c"/a".as_ptr(), libc::O_RDONLY, 0) }, "no fd has stayed open");
}

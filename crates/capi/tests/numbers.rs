//! Numbers of descriptors: the lowest free one, also where there are more than the fast path knows.
#![cfg(feature = "native")]

use bypath::*;
use std::ffi::CString;
use std::ptr::null;

/// More than are opened and closed on the fast path.
const MANY: i32 = base::NUMBERS_FAST as i32 + 100;

/// Goal: whatever number is closed is the next one opened, and no other file's. Method: more files than the fast path
/// have numbers for; numbers on both sides of each border are closed, opened again, and closed in the end.
#[test]
fn closed_numbers_come_again() {
    let path = format!("/dev/shm/bypath-numbers-{}", std::process::id());
    let image = CString::new(path.as_str()).unwrap();
    let options = engine::mkfs::Options { limit: 32 << 20, force: true, ..Default::default() };
    engine::mkfs::make(image.as_bytes_with_nul(), &options).unwrap();
    let ns = bp_open_namespace();
    // SAFETY: texts, and a namespace.
    assert_eq!(unsafe { bp_mount(ns, image.as_ptr(), c"/".as_ptr(), null()) }, 0);
    // SAFETY: texts, and a namespace.
    let open = |flags| unsafe { bp_open(ns, c"/file".as_ptr(), flags, 0o644) };
    // SAFETY: a namespace.
    let close = |fd| unsafe { bp_close(ns, fd) };
    let first = open(libc::O_CREAT | libc::O_RDWR);
    assert_eq!((first..first + MANY).skip(1).find(|fd| open(libc::O_RDONLY) != *fd), None);
    let last = first + MANY - 1;
    for fd in [first + 1, 62, 63, 64, 65, 1022, 1023, 1024, 1025, last] {
        assert_eq!(close(fd), 0, "{fd}");
        assert_eq!((close(fd), std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EBADF)), "{fd}");
        assert_eq!(open(libc::O_RDONLY), fd);
    }
    // SAFETY: a namespace, and a buffer.
    assert_eq!(unsafe { bp_write(ns, first, b"x".as_ptr().cast(), 1) }, 1);
    assert_eq!((first..=last).rev().find(|fd| close(*fd) != 0), None);
    assert_eq!(open(libc::O_RDONLY), first);
    // SAFETY: nobody uses it.
    unsafe { bp_close_namespace(ns) };
    std::fs::remove_file(path).unwrap();
}

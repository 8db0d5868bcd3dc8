//! Goal: the fast path of `open`, `write` and `close` answer as the kernel does,
//! for whoever asks. Method: the same calls in an image and on tmpfs, by the
//! superuser and by somebody else, on files of all sorts; all results equal.

use bypath_testkit::image;
use bypath_testkit::world::World;
use libc::*;
use pm::sys::{abi, raw};
use std::ffi::CString;
use vfs::Backend;

type Call<'a> = &'a dyn Fn(u32, [usize; 6]) -> isize;

const WHO: usize = 1000;
/// Name, mode, owner.
const FILES: [(&str, usize, usize); 7] = [
    ("own", 0o644, WHO),
    ("private", 0o600, 0),
    ("everybodys", 0o666, 0),
    ("for-reading", 0o444, WHO),
    ("for-writing", 0o222, 0),
    ("set-id", 0o6777, WHO),
    ("sticky/of-another", 0o666, 2000),
];
const FLAGS: [i32; 17] = [
    O_RDONLY,
    O_WRONLY,
    O_RDWR,
    O_ACCMODE,
    O_WRONLY | O_CREAT,
    O_RDONLY | O_CREAT,
    O_RDWR | O_CREAT | O_EXCL,
    O_RDWR | O_APPEND | O_CREAT,
    O_WRONLY | O_SYNC,
    O_RDWR | O_DSYNC | O_NONBLOCK,
    O_RDONLY | O_DIRECTORY,
    O_WRONLY | O_DIRECTORY,
    O_RDONLY | O_CREAT | O_DIRECTORY,
    O_RDWR | O_NOFOLLOW | O_CLOEXEC,
    O_WRONLY | O_CREAT | O_TRUNC,
    O_PATH,
    O_RDWR,
];

/// A path argument under `root`, kept until the call has been made.
fn text(root: &str, name: &str) -> CString {
    CString::new(format!("{root}/{name}")).unwrap()
}

fn set_up(call: Call, root: &str) {
    let path = |name: &str| text(root, name);
    for (name, mode) in [("sticky", 0o1777), ("dir", 0o755)] {
        let path = path(name);
        assert_eq!(call(abi::__NR_mkdir, [path.as_ptr() as usize, 0o700, 0, 0, 0, 0]), 0);
        assert_eq!(call(abi::__NR_chmod, [path.as_ptr() as usize, mode, 0, 0, 0, 0]), 0);
    }
    for (name, mode, owner) in FILES {
        let path = path(name);
        let at = path.as_ptr() as usize;
        let fd = call(abi::__NR_open, [at, (O_WRONLY | O_CREAT | O_EXCL) as usize, 0o600, 0, 0, 0]);
        assert_eq!(call(abi::__NR_write, [fd as usize, c"content".as_ptr() as usize, 7, 0, 0, 0]), 7);
        assert_eq!(call(abi::__NR_close, [fd as usize, 0, 0, 0, 0, 0]), 0);
        assert_eq!(call(abi::__NR_chown, [at, owner, owner, 0, 0, 0]), 0);
        assert_eq!(call(abi::__NR_chmod, [at, mode, 0, 0, 0, 0]), 0);
    }
    let link = path("link");
    assert_eq!(call(abi::__NR_symlink, [c"everybodys".as_ptr() as usize, link.as_ptr() as usize, 0, 0, 0, 0]), 0);
}

/// Opens `name` and does to it what can be done; all results.
fn tried(call: Call, root: &str, name: &str, flags: i32) -> Vec<isize> {
    let path = text(root, name);
    let fd = call(abi::__NR_open, [path.as_ptr() as usize, flags as usize, 0o600, 0, 0, 0]);
    if fd < 0 {
        return vec![fd];
    }
    let fd = fd as usize;
    let mut buffer = [0u8; 16];
    let mut stat = std::mem::MaybeUninit::<stat>::zeroed();
    let mut results = vec![call(abi::__NR_fcntl, [fd, F_GETFL as usize, 0, 0, 0, 0])];
    results.push(call(abi::__NR_write, [fd, c"abc".as_ptr() as usize, 3, 0, 0, 0]));
    for offset in [1, 100, i64::MAX - 1, i64::MAX, -1] {
        results.push(call(abi::__NR_pwrite64, [fd, c"de".as_ptr() as usize, 2, offset as usize, 0, 0]));
    }
    results.push(call(abi::__NR_pwrite64, [fd, c"".as_ptr() as usize, 0, 5, 0, 0]));
    results.push(call(abi::__NR_write, [fd, 16, 2, 0, 0, 0]));
    results.push(call(abi::__NR_read, [fd, buffer.as_mut_ptr() as usize, 16, 0, 0, 0]));
    results.push(call(abi::__NR_fstat, [fd, stat.as_mut_ptr() as usize, 0, 0, 0, 0]));
    // SAFETY: plain numbers, all of which were set before the call.
    let stat = unsafe { stat.assume_init() };
    results.extend([stat.st_mode as isize, if stat.st_mode & S_IFDIR != 0 { 0 } else { stat.st_size as isize }]);
    results.extend(buffer.map(|byte| byte as isize));
    results.push(call(abi::__NR_close, [fd, 0, 0, 0, 0, 0]));
    results
}

#[test]
fn agree_with_the_kernel() {
    // SAFETY: no arguments.
    if unsafe { geteuid() } != 0 {
        eprintln!("skip fast_path: only root can be somebody else");
        return;
    }
    let path = image::fresh_path("fast-path");
    image::make(&path, 64 << 20);
    let native = image::attach(&path);
    let world = World::new(native);
    std::fs::remove_file(path).unwrap();
    let kernels = format!("/dev/shm/bypath-fast-path-{}", std::process::id());
    // A killed run's, whose process had this number.
    let _ = std::fs::remove_dir_all(&kernels);
    std::fs::create_dir(&kernels).unwrap();
    // SAFETY: what the arguments point to is the test's, and outlives the call.
    let ours = |nr: u32, args| unsafe { world.serve(nr as usize, args) };
    // SAFETY: what the arguments point to is the test's, and outlives the call.
    let theirs = |nr: u32, args| unsafe { raw(nr as usize, args) };
    set_up(&ours, "");
    set_up(&theirs, &kernels);
    for path in [c"/".to_owned(), CString::new(kernels.clone()).unwrap()] {
        let call: Call = if path.as_bytes() == b"/" { &ours } else { &theirs };
        call(abi::__NR_chmod, [path.as_ptr() as usize, 0o755, 0, 0, 0, 0]);
    }
    let mut differ = Vec::new();
    let mut opened = 0;
    // The file-system identity is the thread's own.
    for who in [0, WHO] {
        theirs(abi::__NR_setfsgid, [who, 0, 0, 0, 0, 0]);
        theirs(abi::__NR_setfsuid, [who, 0, 0, 0, 0, 0]);
        world.process.credentials_changed();
        for name in FILES.map(|file| file.0).into_iter().chain(["dir", "link", "missing", "dir/missing", "own/below"]) {
            for flags in FLAGS {
                let (a, b) = (tried(&ours, "", name, flags), tried(&theirs, &kernels, name, flags));
                opened += u32::from(a.len() > 1);
                if a != b {
                    differ.push(format!("{name} {flags:#o} as {who}: {a:?}, the kernel {b:?}"));
                }
            }
        }
    }
    theirs(abi::__NR_setfsuid, [0, 0, 0, 0, 0, 0]);
    theirs(abi::__NR_setfsgid, [0, 0, 0, 0, 0, 0]);
    std::fs::remove_dir_all(kernels).unwrap();
    // The last to leave a removed image takes its segment away.
    native.detach(&world.process.cx(&world.thread));
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(opened > 100, "{opened}");
}

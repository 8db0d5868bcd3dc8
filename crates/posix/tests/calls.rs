//! Goal: the calls and paths that random sequences do not reach. Method: small
//! scripts through `handle`, compared with what the kernel is known to do.

mod common;
use bypath_posix::{CWD_FD, Outcome};
use common::World;
use pm::sys::abi::*;

const AT: usize = AT_FDCWD as usize;
const EPERM: isize = -1;
const ENOENT: isize = -2;
const EBUSY: isize = -16;
const EXDEV: isize = -18;

fn call(world: &World, nr: u32, args: &[usize]) -> isize {
    let mut six = [0; 6];
    six[..args.len()].copy_from_slice(args);
    world.call(nr, six)
}

/// Lets the kernel give numbers beyond 1,024, the usual limit of an ordinary user.
fn raise_limit(world: &World) {
    const RLIMIT_NOFILE: usize = 7;
    let mut limit = [0u64; 2];
    assert_eq!(call(world, __NR_prlimit64, &[0, RLIMIT_NOFILE, 0, limit.as_mut_ptr() as usize]), 0);
    limit[0] = limit[1];
    assert_eq!(call(world, __NR_prlimit64, &[0, RLIMIT_NOFILE, limit.as_ptr() as usize, 0]), 0);
}

fn text(path: &str) -> Vec<u8> {
    format!("{path}\0").into_bytes()
}

/// Opens an absolute path.
fn open(world: &World, path: &str, flags: u32) -> isize {
    call(world, __NR_openat, &[AT, text(path).as_ptr() as usize, flags as usize, 0o644])
}

fn close(world: &World, fd: isize) {
    assert_eq!(call(world, __NR_close, &[fd as usize]), 0);
}

fn write_file(world: &World, path: &str, content: &[u8]) {
    let fd = open(world, path, O_WRONLY | O_CREAT | O_TRUNC);
    assert!(fd >= 0, "{path}: {fd}");
    assert_eq!(call(world, __NR_write, &[fd as usize, content.as_ptr() as usize, content.len()]), content.len() as isize);
    close(world, fd);
}

fn read_file(world: &World, path: &str) -> Result<Vec<u8>, isize> {
    let fd = open(world, path, O_RDONLY);
    if fd < 0 {
        return Err(fd);
    }
    let mut buffer = vec![0; 4096];
    let got = call(world, __NR_read, &[fd as usize, buffer.as_mut_ptr() as usize, buffer.len()]);
    close(world, fd);
    if got < 0 {
        return Err(got);
    }
    buffer.truncate(got as usize);
    Ok(buffer)
}

fn at1(world: &World, nr: u32, path: &str, argument: usize) -> isize {
    call(world, nr, &[AT, text(path).as_ptr() as usize, argument])
}

/// Threads of this test binary share a working directory.
static CWD_LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn cwd(world: &World) -> String {
    let mut buffer = vec![0u8; 4096];
    let len = call(world, __NR_getcwd, &[buffer.as_mut_ptr() as usize, buffer.len()]);
    assert!(len > 0, "getcwd: {len}");
    String::from_utf8(buffer[..len as usize - 1].to_vec()).unwrap()
}

/// Paths that enter the mount by detours, and leave it again.
#[test]
fn detours() {
    let _guard = CWD_LOCK.lock();
    let world = World::ours();
    let root = world.root.clone();
    let above = root.strip_suffix("/r").unwrap().to_string();
    let top = above.strip_suffix("/w").unwrap().to_string();
    write_file(&world, &format!("{root}/f"), b"inside");
    assert_eq!(at1(&world, __NR_mkdirat, &format!("{root}/d"), 0o755), 0);
    std::fs::write(format!("{above}/out"), "outside").unwrap();
    std::os::unix::fs::symlink(format!("{root}/d/.."), format!("{top}/link")).unwrap();
    std::os::unix::fs::symlink("w/r/f", format!("{top}/file")).unwrap();

    let inside = Ok(b"inside".to_vec());
    for path in ["//f", "/./f", "/d/../f", "/../r/f", "/d/../../r//./f"] {
        assert_eq!(read_file(&world, &format!("{root}{path}")), inside, "{path}");
    }
    assert_eq!(read_file(&world, &format!("{top}//w/./r/f")), inside);
    assert_eq!(read_file(&world, &format!("{top}/w/../w/r/f")), inside);
    assert_eq!(read_file(&world, &format!("{top}/link/f")), inside);
    assert_eq!(read_file(&world, &format!("{top}/file")), inside);
    assert_eq!(read_file(&world, &format!("{root}/../out")), Ok(b"outside".to_vec()));
    assert_eq!(read_file(&world, &format!("{top}/link/nothing")), Err(ENOENT));
    assert_eq!(read_file(&world, &format!("{top}/nothing")), Err(ENOENT));

    // Symlinks inside that lead out, and out and in again.
    let out = text(&format!("{above}/out"));
    let link = text(&format!("{root}/leave"));
    assert_eq!(call(&world, __NR_symlinkat, &[out.as_ptr() as usize, AT, link.as_ptr() as usize]), 0);
    assert_eq!(read_file(&world, &format!("{root}/leave")), Ok(b"outside".to_vec()));
    let back = text(&format!("{top}/link/f"));
    let link = text(&format!("{root}/back"));
    assert_eq!(call(&world, __NR_symlinkat, &[back.as_ptr() as usize, AT, link.as_ptr() as usize]), 0);
    assert_eq!(read_file(&world, &format!("{root}/back")), inside);

    // Relative, from above the mount.
    assert_eq!(at1(&world, __NR_mkdirat, &format!("{root}/e"), 0o755), 0);
    assert_eq!(call(&world, __NR_chdir, &[text(&top).as_ptr() as usize]), 0);
    assert_eq!(read_file(&world, "w/r/f"), inside);
    assert_eq!(read_file(&world, "./w/../link/f"), inside);
    assert_eq!(at1(&world, __NR_mkdirat, "w/r/e/x", 0o755), 0);
    assert_eq!(call(&world, __NR_chdir, &[text("w/r/e").as_ptr() as usize]), 0);
    assert_eq!(cwd(&world), format!("{root}/e"));
    assert_eq!(read_file(&world, "../f"), inside);
    assert_eq!(read_file(&world, "../../out"), Ok(b"outside".to_vec()));
    assert_eq!(call(&world, __NR_chdir, &[text("../..").as_ptr() as usize]), 0);
    assert_eq!(cwd(&world), above);
    assert_eq!(read_file(&world, "out"), Ok(b"outside".to_vec()));
    // Into the mount by a link outside, and out by an absolute path.
    assert_eq!(call(&world, __NR_chdir, &[text(&format!("{top}/link")).as_ptr() as usize]), 0);
    assert_eq!(cwd(&world), root);
    assert_eq!(call(&world, __NR_chdir, &[text("/").as_ptr() as usize]), 0);
    assert_eq!(cwd(&world), "/");

    // From one to the other.
    let from = text(&format!("{above}/out"));
    let to = text(&format!("{root}/out"));
    let rename =
        |from: &[u8], to: &[u8]| call(&world, __NR_renameat2, &[AT, from.as_ptr() as usize, AT, to.as_ptr() as usize, 0]);
    assert_eq!(rename(&from, &to), EXDEV);
    assert_eq!(rename(&to, &from), EXDEV);
    // By a link outside it is the same mount.
    assert_eq!(rename(&text(&format!("{top}/link/f")), &text(&format!("{root}/g"))), 0);
    assert_eq!(read_file(&world, &format!("{root}/g")), inside);
    // The mount point is busy.
    assert_eq!(at1(&world, __NR_unlinkat, &root, AT_REMOVEDIR as usize), EBUSY);
}

/// A mount inside a mount: crossing in both directions.
#[test]
fn nested_mounts() {
    let world = World::ours();
    let root = world.root.clone();
    assert_eq!(at1(&world, __NR_mkdirat, &format!("{root}/d"), 0o755), 0);
    assert_eq!(at1(&world, __NR_mkdirat, &format!("{root}/d/m"), 0o755), 0);
    write_file(&world, &format!("{root}/d/m/hidden"), b"x");
    write_file(&world, &format!("{root}/d/f"), b"outer");
    world.mount_more(&format!("{root}/d/m"));
    write_file(&world, &format!("{root}/d/m/f"), b"inner");
    assert_eq!(read_file(&world, &format!("{root}/d/m/hidden")), Err(ENOENT));
    assert_eq!(read_file(&world, &format!("{root}/d/m/../f")), Ok(b"outer".to_vec()));
    assert_eq!(read_file(&world, &format!("{root}/d/../d/m/f")), Ok(b"inner".to_vec()));
    let dir = open(&world, &format!("{root}/d"), O_RDONLY | O_DIRECTORY);
    let fd = call(&world, __NR_openat, &[dir as usize, text("m/f").as_ptr() as usize, 0, 0]);
    assert!(fd >= 0);
    close(&world, fd);
    assert_eq!(call(&world, __NR_unlinkat, &[dir as usize, text("m").as_ptr() as usize, AT_REMOVEDIR as usize]), EBUSY);
    close(&world, dir);
    let (from, to) = (text(&format!("{root}/d/m/f")), text(&format!("{root}/f")));
    assert_eq!(call(&world, __NR_renameat2, &[AT, from.as_ptr() as usize, AT, to.as_ptr() as usize, 0]), EXDEV);
}

/// `/proc/self/fd`, the name of an open file, descriptors that change sides.
#[test]
fn descriptors() {
    let world = World::ours();
    raise_limit(&world);
    let root = world.root.clone();
    write_file(&world, &format!("{root}/f"), b"content");
    let fd = open(&world, &format!("{root}/f"), O_RDWR | O_CLOEXEC);
    let mut buffer = [0u8; 512];
    let by_proc = format!("/proc/self/fd/{fd}");
    let len = call(&world, __NR_readlinkat, &[AT, text(&by_proc).as_ptr() as usize, buffer.as_mut_ptr() as usize, 512]);
    assert_eq!(String::from_utf8_lossy(&buffer[..len as usize]), format!("{root}/f"));
    assert_eq!(read_file(&world, &by_proc), Ok(b"content".to_vec()));
    assert_eq!(read_file(&world, &format!("/dev/fd/{fd}")), Ok(b"content".to_vec()));

    assert_eq!(call(&world, __NR_fcntl, &[fd as usize, F_GETFD as usize]), 1);
    let copy = call(&world, __NR_fcntl, &[fd as usize, F_DUPFD as usize, 9000]);
    assert_eq!(copy, 9000);
    assert_eq!(call(&world, __NR_fcntl, &[copy as usize, F_GETFD as usize]), 0);
    assert_eq!(call(&world, __NR_lseek, &[fd as usize, 3, 0]), 3);
    assert_eq!(call(&world, __NR_lseek, &[copy as usize, 0, 1]), 3, "one position for both");

    // What an exec hands on: the working directory is outside, one number is kept.
    let mut state = [0u8; 100];
    let process = world.process();
    let len = process.exec_prepare(&mut state).unwrap();
    let umask = state[..len].rsplit(|&b| b == b';').next().unwrap().to_vec();
    let pid = std::process::id().to_string();
    assert_eq!(&state[..len], [b"2;", pid.as_bytes(), b";;9000;", &umask[..]].concat());

    let [low, high] = [7000usize, 9500];
    assert_eq!(call(&world, __NR_dup3, &[fd as usize, high, 0]), high as isize);
    assert_eq!(call(&world, __NR_close_range, &[9000, 10000, 4]), 0);
    assert_eq!(call(&world, __NR_fcntl, &[high, F_GETFD as usize]), 1);
    assert_eq!(call(&world, __NR_close_range, &[9000, 10000, 0]), 0);
    assert_eq!(call(&world, __NR_fcntl, &[high, F_GETFD as usize]), -9);
    // A kernel descriptor over one of ours.
    assert_eq!(call(&world, __NR_dup3, &[fd as usize, low, 0]), low as isize);
    let null = open(&world, "/dev/null", O_RDONLY);
    assert_eq!(call(&world, __NR_dup3, &[null as usize, low, 0]), low as isize);
    let mut byte = [0u8];
    assert_eq!(call(&world, __NR_read, &[low, byte.as_mut_ptr() as usize, 1]), 0, "it reads /dev/null now");
    close(&world, low as isize);
    close(&world, null);
    close(&world, fd);
    assert_eq!(process.descriptors.range(0, CWD_FD).count(), 0);
}

/// `poll` and `select` over files of ours and a pipe.
#[test]
fn waiting() {
    let world = World::ours();
    write_file(&world, &format!("{}/f", world.root), b"x");
    let fd = open(&world, &format!("{}/f", world.root), O_RDONLY);
    let mut pipe = [0i32; 2];
    assert_eq!(call(&world, __NR_pipe2, &[pipe.as_mut_ptr() as usize, 0]), 0);
    let entry = |fd: i32, events: u16| (fd as u32 as u64) | (events as u64) << 32;
    let mut list = [entry(fd as i32, 1 | 4), entry(pipe[0], 1), entry(-1, 1)];
    let far = [1000u64, 0];
    assert_eq!(call(&world, __NR_ppoll, &[list.as_mut_ptr() as usize, 3, far.as_ptr() as usize, 0, 8]), 1, "at once");
    assert_eq!(list, [entry(fd as i32, 5) | 5 << 48, entry(pipe[0], 1), entry(-1, 1)]);
    assert_eq!(call(&world, __NR_write, &[pipe[1] as usize, b"y".as_ptr() as usize, 1]), 1);
    assert_eq!(call(&world, __NR_ppoll, &[list.as_mut_ptr() as usize, 3, far.as_ptr() as usize, 0, 8]), 2);
    assert_eq!(list[1], entry(pipe[0], 1) | 1 << 48);

    let mut set = vec![0u64; 160];
    let bit = |fd: i32| (fd as usize / 64, 1u64 << (fd % 64));
    for fd in [fd as i32, pipe[0]] {
        set[bit(fd).0] |= bit(fd).1;
    }
    let expected = set.clone();
    let count = call(&world, __NR_pselect6, &[8192, set.as_mut_ptr() as usize, 0, 0, 0, 0]);
    assert_eq!(count, 2);
    assert_eq!(set, expected);
    assert_eq!(call(&world, __NR_epoll_ctl, &[pipe[0] as usize, 1, fd as usize, set.as_ptr() as usize]), -1);
    for fd in [fd, pipe[0] as isize, pipe[1] as isize] {
        close(&world, fd);
    }
}

/// FIFOs, sockets and devices in the image work through the kernel.
#[test]
fn special_files() {
    let world = World::ours();
    let root = world.root.clone();
    let fifo = format!("{root}/fifo");
    assert_eq!(at1(&world, __NR_mknodat, &fifo, 0o010644), 0);
    let reader = open(&world, &fifo, O_RDONLY | O_NONBLOCK);
    let writer = open(&world, &fifo, O_WRONLY);
    assert!(reader >= 0 && writer >= 0, "{reader} {writer}");
    let mut byte = [0u8];
    assert_eq!(call(&world, __NR_write, &[writer as usize, b"z".as_ptr() as usize, 1]), 1);
    assert_eq!(call(&world, __NR_read, &[reader as usize, byte.as_mut_ptr() as usize, 1]), 1);
    assert_eq!(byte, *b"z");
    close(&world, reader);
    close(&world, writer);

    const AF_UNIX: usize = 1;
    const SOCK_STREAM: usize = 1;
    let mut address = vec![AF_UNIX as u8, 0];
    address.extend_from_slice(text(&format!("{root}/socket")).as_slice());
    let server = call(&world, __NR_socket, &[AF_UNIX, SOCK_STREAM, 0]);
    let client = call(&world, __NR_socket, &[AF_UNIX, SOCK_STREAM, 0]);
    let toward = |nr, fd: isize| call(&world, nr, &[fd as usize, address.as_ptr() as usize, address.len()]);
    assert_eq!(toward(__NR_connect, client), ENOENT);
    assert_eq!(toward(__NR_bind, server), 0);
    assert_eq!(call(&world, __NR_listen, &[server as usize, 1]), 0);
    assert_eq!(toward(__NR_connect, client), 0);
    assert_eq!(toward(__NR_bind, client), -98, "the name is taken");
    // SAFETY: plain numbers: all zeros is a value of the type.
    let mut stat: stat = unsafe { std::mem::zeroed() };
    assert_eq!(call(&world, __NR_newfstatat, &[AT, address[2..].as_ptr() as usize, &raw mut stat as usize, 0]), 0);
    assert_eq!(stat.st_mode & 0o170000, 0o140000);
    close(&world, server);
    close(&world, client);

    let made = call(&world, __NR_mknodat, &[AT, text(&format!("{root}/null")).as_ptr() as usize, 0o020666, 0x103]);
    if common::is_root() {
        assert_eq!(made, 0);
        assert_eq!(read_file(&world, &format!("{root}/null")), Ok(vec![]));
    } else {
        assert_eq!(made, EPERM);
    }
}

/// Private mappings hold the file's bytes, errors are the kernel's.
#[test]
fn mappings() {
    let world = World::ours();
    let path = format!("{}/f", world.root);
    write_file(&world, &path, &[7u8; 5000]);
    let fd = open(&world, &path, O_RDWR);
    let map = |prot: usize, flags: usize, len: usize, fd: isize, offset: usize| {
        call(&world, __NR_mmap, &[0, len, prot, flags, fd as usize, offset])
    };
    let at = map(1 | 2, 2, 8192, fd, 0);
    assert!(at > 0);
    // SAFETY: the call above has mapped so many bytes there, and nothing else refers to them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 8192) };
    assert!(bytes[..5000].iter().all(|&b| b == 7) && bytes[5000..].iter().all(|&b| b == 0));
    bytes[0] = 9;
    assert_eq!(read_file(&world, &path).unwrap()[0], 7);
    assert_eq!(map(1, 2, 0, fd, 0), -22);
    assert_eq!(map(1, 2, 100, fd, 100), -22);
    assert_eq!(map(1, 0, 100, fd, 0), -22);
    let writer = open(&world, &path, O_WRONLY);
    assert_eq!(map(1, 2, 100, writer, 0), -13);
    let reader = open(&world, &path, O_RDONLY);
    assert_eq!(map(2, 1, 100, reader, 0), -13);
    let dir = open(&world, &world.root.clone(), O_RDONLY);
    assert_eq!(map(1, 2, 100, dir, 0), -19);
    // The mapping holds the file when name and descriptors are gone.
    assert_eq!(at1(&world, __NR_unlinkat, &path, 0), 0);
    for fd in [fd, writer, reader, dir] {
        close(&world, fd);
    }
    assert_eq!(bytes[4999], 7);
    assert_eq!(call(&world, __NR_munmap, &[at as usize, 4096]), 0);
    assert_eq!(call(&world, __NR_munmap, &[at as usize + 4096, 4096]), 0);
}

/// A limit on file sizes cuts writes short, then stops them.
#[test]
fn file_size_limit() {
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    // SAFETY: 25 is SIGXFSZ, 1 is SIG_IGN.
    unsafe { signal(25, 1) };
    let world = World::ours();
    let path = format!("{}/f", world.root);
    let fd = open(&world, &path, O_RDWR | O_CREAT);
    let mut old = [0u64; 2];
    const LIMIT: u64 = 3 << 20;
    let new = [LIMIT, u64::MAX];
    assert_eq!(call(&world, __NR_prlimit64, &[0, 1, new.as_ptr() as usize, old.as_mut_ptr() as usize]), 0);
    let data = vec![1u8; 1 << 20];
    let put = |at: u64| call(&world, __NR_pwrite64, &[fd as usize, data.as_ptr() as usize, data.len(), at as usize]);
    let results = [put(0), put(LIMIT - 10), put(LIMIT), call(&world, __NR_ftruncate, &[fd as usize, LIMIT as usize + 1])];
    assert_eq!(call(&world, __NR_prlimit64, &[0, 1, old.as_ptr() as usize, 0]), 0);
    assert_eq!(results, [1 << 20, 10, -27, -27]);
    assert_eq!(put(LIMIT), 1 << 20);
    close(&world, fd);
}

/// A call that is not ours is not touched.
#[test]
fn not_ours() {
    let world = World::ours();
    let process = world.process();
    let thread = common::thread_state();
    for (nr, args) in [
        (__NR_getpid, [0; 6]),
        (__NR_read, [0, 0, 0, 0, 0, 0]),
        (__NR_openat, [AT, c"/etc/hostname".as_ptr() as usize, 0, 0, 0, 0]),
        (__NR_openat, [AT, c"relative".as_ptr() as usize, 0, 0, 0, 0]),
        (__NR_newfstatat, [AT, 0, 0, 0, 0, 0]),
        (__NR_newfstatat, [5, c"".as_ptr() as usize, 0, AT_EMPTY_PATH as usize, 0, 0]),
        (__NR_mmap, [0, 4096, 3, 0x22, usize::MAX, 0]),
    ] {
        // SAFETY: what the arguments point to is the test's, and outlives the call.
        assert_eq!(unsafe { process.handle(&thread, nr as usize, args) }, Outcome::Kernel, "{nr}");
    }
}

/// Goal: a listing says that it has ended when nothing comes any more, and not
/// before. Method: entries in portions of two or three, and all at once; a file.
#[test]
fn listing_ends() {
    let world = World::ours();
    for name in ["one", "two", "three", "four"] {
        write_file(&world, &format!("{}/{name}", world.root), b"");
    }
    let thread = common::thread_state();
    let list = |fd: isize, room: usize| {
        let (mut buffer, mut ended) = ([0u64; 64], false);
        let args = [fd as usize, buffer.as_mut_ptr() as usize, room, 0, 0, 0];
        // SAFETY: the buffer has more than `room` bytes.
        let Outcome::Done(got) = (unsafe { world.process().list(&thread, args, &mut ended) }) else { panic!("not ours") };
        (got, ended)
    };
    let fd = open(&world, &world.root, O_RDONLY | O_DIRECTORY);
    let mut got = 0;
    let portions = loop {
        let (bytes, ended) = list(fd, 64);
        got += bytes;
        if ended {
            break got;
        }
        assert!(bytes > 0, "no end was told of");
    };
    assert_eq!(call(&world, __NR_lseek, &[fd as usize, 0, 0]), 0);
    assert_eq!(list(fd, 512), (portions, true));
    assert_eq!(list(fd, 512), (0, true));
    assert_eq!(call(&world, __NR_lseek, &[fd as usize, 0, 0]), 0);
    assert_eq!(list(fd, 8), (-22, false), "no room for an entry is not the end");
    close(&world, fd);
    let fd = open(&world, &format!("{}/one", world.root), O_RDONLY);
    assert_eq!(list(fd, 512), (-20, false));
    close(&world, fd);
}

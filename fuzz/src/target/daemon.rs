//! A FUSE daemon that answers anything: wrong lengths and numbers, node ids that lead
//! in circles, lists without an end, answers to nothing, twice, or none.
//!
//! The input is read from both ends of the channel: by us for the calls to make, by the
//! daemon (from its middle on) for what to answer.

use crate::input::Input;
use pm::UserSlice;
use pm::sys::abi;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use fuse_client::ring::{RING_BYTES, Ring, daemon_state};
use fuse_client::{DEFAULT_PERMISSIONS, FuseClient};
use session::SessionCache;
use vfs::backend::{AdvisoryLocks as _, Mappings as _, OpenFileTable as _, Xattrs as _};
use vfs::cached::Cached;
use vfs::{Backend, Cred, Cx, Kind, NewNode, Node, RenameMode, SetAttr, Thread};

/// Calls that an input makes at most.
const CALLS: usize = 24;
/// Milliseconds that a request may take: the daemon is a thread of ours.
const TIMEOUT_MS: u32 = 30;
/// More entries than this nobody here wants of a directory.
const ENTRIES: usize = 300;

/// The daemon, and the channel to it.
struct Server {
    _file: File,
    path: PathBuf,
    channel: Ring,
    script: Arc<Mutex<Vec<u8>>>,
}

/// A file in memory without a name; the path leads to it for as long as it is open.
fn file(bytes: u64) -> (File, PathBuf) {
    let path = PathBuf::from(format!("/dev/shm/bypath-fuzz-daemon-{}", std::process::id()));
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = made.and_then(|file| file.set_len(bytes).map(|()| file)).expect("a file on /dev/shm");
    let _ = std::fs::remove_file(&path);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

fn text(path: &std::path::Path) -> Vec<u8> {
    CString::new(path.to_str().expect("a plain path")).expect("no NUL").into_bytes_with_nul()
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let (file, path) = file(RING_BYTES);
        let (channel, daemon) = (Ring::open(&text(&path)).expect("mapped"), Ring::open(&text(&path)).expect("mapped"));
        let header = channel.header().expect("a page");
        header.supervisor.store(std::process::id(), SeqCst);
        header.timeout_ms.store(TIMEOUT_MS, SeqCst);
        let script = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&script);
        std::thread::spawn(move || {
            let mut request = vec![0u8; 1 << 18];
            while let Ok(len) = daemon.receive(&[UserSlice::from_mut(&mut request)]) {
                let mut script = read.lock().unwrap_or_else(PoisonError::into_inner);
                let mut input = Input(&script);
                let replies = answer(&mut input, &request[..len]);
                let left = input.0.len();
                let used = script.len() - left;
                script.drain(..used);
                drop(script);
                for reply in replies {
                    let _ = daemon.reply(&[UserSlice::from_ref(&reply)], true);
                }
            }
        });
        Server { _file: file, path, channel, script }
    })
}

fn word64(request: &[u8], at: usize) -> u64 {
    request.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn word32(request: &[u8], at: usize) -> u32 {
    word64(request, at) as u32
}

fn attr(input: &mut Input, out: &mut Vec<u8>) {
    const MODES: [u32; 8] = [0o040_755, 0o100_644, 0o120_777, 0o040_700, 0o100_755, 0, 0o170_000, 0o1_100_644];
    const SIZES: [u64; 8] = [0, 7, 4096, 1 << 20, i64::MAX as u64, u64::MAX, 1 << 62, 5000];
    let how = input.byte();
    let (mode, size) = (MODES[usize::from(how & 7)], SIZES[usize::from(how >> 3 & 7)]);
    for word in [u64::from(how), size, 8, 0, 1 << 40, u64::MAX] {
        out.extend(word.to_ne_bytes());
    }
    for word in [1, u32::MAX, 3, mode, 1, 0, 0, 0, 4096, 0] {
        out.extend(word.to_ne_bytes());
    }
}

fn entry(input: &mut Input, out: &mut Vec<u8>) {
    let id = match input.byte() {
        0xff => input.word(),
        byte => u64::from(byte & 7),
    };
    let seconds = u64::from(input.byte() & 1);
    for word in [id, 0, seconds, seconds, 0] {
        out.extend(word.to_ne_bytes());
    }
    attr(input, out);
}

fn dirents(input: &mut Input, request: &[u8], out: &mut Vec<u8>) {
    let (how, most) = (input.byte(), word32(request, 40 + 16) as usize);
    let mut cookie = word64(request, 40 + 8);
    for _ in 0..how & 63 {
        // Onwards, back to the front, or on the spot.
        cookie = match how >> 6 {
            0 | 1 => cookie.wrapping_add(1),
            2 => cookie.wrapping_add(1) % 5,
            _ => cookie,
        };
        let name: &[u8] =
            [&b"a"[..], b"b", b".", b"..", b"long name of a file", b"x/y", b"", b"c"][usize::from(input.byte() & 7)];
        let size = (24 + name.len()).next_multiple_of(8);
        if out.len() + size > most {
            break;
        }
        let end = out.len() + size;
        out.extend(9u64.to_ne_bytes());
        out.extend(cookie.to_ne_bytes());
        out.extend((name.len() as u32).to_ne_bytes());
        out.extend(u32::from(input.byte() & 15).to_ne_bytes());
        out.extend(name);
        out.resize(end, 0);
    }
}

/// What follows the header of an honest answer.
fn payload(input: &mut Input, request: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match word32(request, 4) {
        1 | 6 | 8 | 9 | 13 => entry(input, &mut out),
        3 | 4 => {
            out.extend([0u8; 16]);
            attr(input, &mut out);
        }
        5 => out.extend(input.bytes(5)),
        14 | 27 => {
            out.extend(u64::from(input.byte()).to_ne_bytes());
            out.extend(u64::from(input.byte() & 7).to_ne_bytes());
        }
        15 => out.resize(usize::from(input.short()).min(word32(request, 40 + 16) as usize), b'r'),
        16 => out.extend(u64::from(word32(request, 40 + 16)).to_ne_bytes()),
        17 => out.resize(80, input.byte()),
        22 | 23 if word32(request, 40) == 0 => out.extend(u64::from(input.short()).to_ne_bytes()),
        22 | 23 => out.extend(input.bytes(9)),
        28 => dirents(input, request, &mut out),
        35 => {
            entry(input, &mut out);
            out.extend(input.word().to_ne_bytes());
            out.extend(u64::from(input.byte() & 7).to_ne_bytes());
        }
        _ => {}
    }
    out
}

fn message(unique: u64, error: i32, payload: &[u8]) -> Vec<u8> {
    let mut out = ((16 + payload.len()) as u32).to_ne_bytes().to_vec();
    out.extend(error.to_ne_bytes());
    out.extend(unique.to_ne_bytes());
    out.extend(payload);
    out
}

/// The daemon's answers to a request: none, one or several.
fn answer(input: &mut Input, request: &[u8]) -> Vec<Vec<u8>> {
    let unique = word64(request, 8);
    let how = input.byte();
    let mut body = payload(input, request);
    let mut all = Vec::new();
    if how & 8 != 0 {
        all.push(message(0, i32::from(input.byte() & 7), &body));
        all.push(message(input.word(), 0, &body));
    }
    if how & 0x80 == 0 {
        all.push(message(unique, 0, &body));
        return all;
    }
    match how & 7 {
        0 => all.push(message(unique, -i32::from(input.byte()), b"")),
        1 => {
            let mut lies = message(unique, 0, &body);
            lies[..4].copy_from_slice(&input.word().to_ne_bytes()[..4]);
            all.push(lies);
        }
        2 => all.extend([message(unique ^ 0x100 << (input.byte() & 31), 0, &body), message(unique, 0, &body)]),
        3 => {
            for _ in 0..=input.byte() & 3 {
                let (at, value) = (usize::from(input.short()), input.byte());
                if !body.is_empty() {
                    let len = body.len();
                    body[at % len] = value;
                }
            }
            all.push(message(unique, 0, &body));
        }
        4 => {
            body.truncate(usize::from(input.byte()));
            all.push(message(unique, 0, &body));
        }
        5 => {
            body.resize(body.len() + usize::from(input.short()) * 4, 0xee);
            all.push(message(unique, 0, &body));
        }
        6 => all.extend([message(unique, 0, &body), message(unique, -2, b""), vec![1, 2, 3]]),
        // Nothing costs its time-out: seldom.
        _ if input.byte() < 24 => {}
        _ => all.push(message(unique, i32::from(input.byte()) << 8, &body)),
    }
    all
}

/// The target.
pub fn run(input: &[u8]) {
    let server = server();
    let (calls, script) = input.split_at(input.len() / 2);
    *server.script.lock().unwrap_or_else(PoisonError::into_inner) = script.to_vec();
    server.channel.renew().expect("renewed");
    let mut calls = Input(calls);
    if calls.byte() & 1 != 0
        && let Ok(header) = server.channel.header()
    {
        header.mount_flags.store(DEFAULT_PERMISSIONS, SeqCst);
    }
    server.channel.set_daemon_state(daemon_state::SERVING).expect("set");
    let (memory, ledger) = file(SessionCache::bytes_with_pages());
    let opened = SessionCache::open(&text(&ledger)).expect("mapped");
    let wire = FuseClient::open(server.path.to_str().expect("a plain path").as_bytes(), opened.device(), false).expect("mapped");
    let backend = Cached::new(wire, opened);
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0o22, thread: &thread };
    let mut nodes = vec![backend.root()];
    for _ in 0..CALLS {
        if calls.is_empty() {
            break;
        }
        call(&backend, &cx, &mut nodes, &mut calls);
    }
    for &node in &nodes {
        ends_at_root(&backend, &cx, node);
    }
    backend.detach(&cx);
    drop(backend);
    // A program maps a ledger for good: here there is one for each input.
    memory.set_len(0).expect("emptied");
    does_not_grow();
}

fn call(backend: &Cached<FuseClient>, cx: &Cx, nodes: &mut Vec<Node>, input: &mut Input) {
    const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"long name of a file", b"d", b"e"];
    let how = input.byte();
    let of = input.byte();
    let node = nodes[usize::from(of & 15) % nodes.len()];
    let other = nodes[usize::from(of >> 4) % nodes.len()];
    let name = NAMES[usize::from(input.byte()) % NAMES.len()];
    let mut room = [0u8; 5000];
    match how % 16 {
        0 | 1 => nodes.extend(backend.lookup(cx, node, name)),
        2 => {
            if let Ok(attr) = backend.attr(cx, node) {
                assert!(attr.size <= i64::MAX as u64, "size {}", attr.size);
            }
        }
        3 | 4 => {
            let mut count = 0;
            let _ = backend.readdir(cx, node, u64::from(how >> 4), &mut |entry| {
                let name = entry.name;
                assert!((1..=255).contains(&name.len()) && !name.contains(&0) && !name.contains(&b'/'), "{name:?}");
                count += 1;
                count < ENTRIES
            });
        }
        5 => assert!(backend.readlink(cx, node, UserSlice::from_mut(&mut room)).unwrap_or(0) <= room.len()),
        6 | 7 => {
            let fd = 10 + u32::from(how >> 4);
            if backend.open(cx, node, abi::O_RDWR, fd).is_ok() {
                let read = backend.read(cx, node, u64::from(of), &[UserSlice::from_mut(&mut room)]);
                assert!(read.unwrap_or(0) <= room.len());
                let offset = (how & 0x80 == 0).then_some(7);
                if let Ok((written, _)) = backend.write(cx, node, offset, &[UserSlice::from_ref(&room)]) {
                    assert!(written <= room.len());
                }
                let _ = backend.sync(cx, Some(node), false);
                backend.close(cx, fd);
            }
        }
        8 => {
            let kind = [Kind::Regular, Kind::Directory, Kind::Symlink, Kind::Regular][usize::from(how >> 4 & 3)];
            nodes.extend(backend.create(cx, node, name, &NewNode { kind, mode: 0o755, rdev: 0, target: b"a\0" }));
        }
        9 => drop(backend.unlink(cx, node, name)),
        10 => drop(backend.rmdir(cx, node, name)),
        11 => drop(backend.rename(cx, node, name, other, NAMES[usize::from(how >> 4) % NAMES.len()], RenameMode::Replace)),
        12 => drop(backend.link(cx, other, node, name)),
        13 => drop(backend.set_attr(cx, node, &SetAttr { mode: Some(0o600), size: Some(u64::from(of)), ..SetAttr::default() })),
        14 => {
            let out = UserSlice::from_mut(&mut room).part(0, usize::from(of));
            assert!(backend.get_xattr(cx, node, b"user.x", out).unwrap_or(0) <= out.len.max(65536));
            assert!(backend.list_xattr(cx, node, out).unwrap_or(0) <= out.len.max(65536));
        }
        _ => drop(backend.statfs()),
    }
    nodes.truncate(16);
}

/// Whatever ids the daemon has given, from every directory it goes up to the root.
fn ends_at_root(backend: &Cached<FuseClient>, cx: &Cx, mut node: Node) {
    for _ in 0..64 {
        match backend.parent(cx, node) {
            Ok(parent) if parent.id != node.id => node = parent,
            _ => return,
        }
    }
    panic!("a directory lies in itself");
}

/// What is mapped has its size; nothing else may grow with the answers.
fn does_not_grow() {
    static FIRST: AtomicU64 = AtomicU64::new(0);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The sanitizer keeps what was freed.
    if cfg!(feature = "libfuzzer") || COUNT.fetch_add(1, SeqCst) % 256 != 255 {
        return;
    }
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident: u64 = pages.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let first = FIRST.compare_exchange(0, resident, SeqCst, SeqCst).err().unwrap_or(resident);
    assert!(resident < first + 16384, "{first} pages have become {resident}");
}

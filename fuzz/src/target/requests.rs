//! FUSE requests as nobody's kernel would send them: any order, nodes and handles
//! that are gone or never were, names with anything in them, bodies cut short. Every
//! request is answered at once (or, a lock that waits, not at all), and an answer has the form of one.

use crate::input::Input;
use server::fuse::abi::op;
use server::fuse::message::Reply;
use server::fuse::{Fuse, Keepers, Worker};
use std::cell::RefCell;
use std::time::Duration;
use vfs::Backend;

/// Requests of one input.
const REQUESTS_MAX: usize = 40;
/// Most bytes of an answer: data, a header, and a structure.
const ANSWER_MAX: usize = (1 << 20) + 4096;

/// Names that requests use.
const NAMES: [&[u8]; 14] =
    [b"a", b"b", b"c", b"fifo", b"link", b".", b"..", b"", b".bypath", b"ino", b"a/b", b"user.a", b"12.3", &[b'n'; 256]];
/// Flags, modes and sizes that mean something.
const WORDS: [u32; 16] =
    [0, 1, 2, 3, 7, 0o100, 0o200, 0o1000, 0o2000, 0o10644, 0o40755, 0o100_644, 0o120_777, 4096, 1 << 20, u32::MAX];

/// What follows the header of a request: `w` a word of 32 bits, `q` one of 64,
/// `h` a handle, `i` a node, `n` a name, `b` bytes.
const SHAPES: [(u32, &str); 40] = [
    (op::LOOKUP, "n"),
    (op::FORGET, "q"),
    (op::GETATTR, "wwh"),
    (op::SETATTR, "wwhqqqqqwwwwwwww"),
    (op::READLINK, ""),
    (op::SYMLINK, "nn"),
    (op::MKNOD, "wwwwn"),
    (op::MKDIR, "wwn"),
    (op::UNLINK, "n"),
    (op::RMDIR, "n"),
    (op::RENAME, "inn"),
    (op::LINK, "in"),
    (op::OPEN, "ww"),
    (op::READ, "hqwwqww"),
    (op::WRITE, "hqwwqwwb"),
    (op::STATFS, ""),
    (op::RELEASE, "hwwq"),
    (op::FSYNC, "hww"),
    (op::SETXATTR, "wwnb"),
    (op::GETXATTR, "wwn"),
    (op::LISTXATTR, "ww"),
    (op::REMOVEXATTR, "n"),
    (op::FLUSH, "hwwq"),
    (op::INIT, "wwww"),
    (op::OPENDIR, "ww"),
    (op::READDIR, "hqwwqww"),
    (op::RELEASEDIR, "hwwq"),
    (op::FSYNCDIR, "hww"),
    (op::GETLK, "hqqqwwww"),
    (op::SETLK, "hqqqwwww"),
    (op::SETLKW, "hqqqwwww"),
    (op::CREATE, "wwwwn"),
    (op::INTERRUPT, "q"),
    (op::IOCTL, "hwwqqww"),
    (op::FALLOCATE, "hqqww"),
    (op::READDIRPLUS, "hqwwqww"),
    (op::RENAME2, "iwwnn"),
    (op::LSEEK, "hqww"),
    (op::COPY_FILE_RANGE, "hqihqqq"),
    (op::TMPFILE, "wwwwn"),
];

struct Door {
    backend: &'static dyn Backend,
    fuse: Fuse,
    worker: Worker,
    reply: Reply,
}

thread_local! {
    static DOOR: RefCell<Option<Door>> = const { RefCell::new(None) };
}

/// Numbers that answers have told.
#[derive(Default)]
struct Told {
    nodes: Vec<u64>,
    handles: Vec<u64>,
}

impl Door {
    fn new() -> Door {
        // It stays for as long as the process.
        std::mem::forget(testkit::image::Segments::new());
        let path = testkit::image::fresh_path("requests");
        testkit::image::make(&path, 16 << 20);
        let backend: &'static dyn Backend = testkit::image::attach(&path);
        let _ = std::fs::remove_file(path);
        let fuse = Fuse::new(backend, Keepers::of_file(0, 0, 0o600), Box::new(tells_right), Duration::ZERO);
        Door { backend, fuse, worker: Worker::default(), reply: Reply::new() }
    }

    /// Sends a request; the error of its answer and what follows, if there is one.
    fn ask(&mut self, opcode: u32, unique: u64, node: u64, uid: u32, body: &[u8]) -> Option<(i32, Vec<u8>)> {
        let mut request = Vec::with_capacity(40 + body.len());
        request.extend((40 + body.len() as u32).to_le_bytes());
        request.extend(opcode.to_le_bytes());
        request.extend(unique.to_le_bytes());
        request.extend(node.to_le_bytes());
        for word in [uid, uid, std::process::id(), 0] {
            request.extend(word.to_le_bytes());
        }
        request.extend(body);
        let answer = match self.fuse.answer(&self.worker, &request, &mut self.reply) {
            Some(answer) => answer.to_vec(),
            // It comes in turn, after notices, or not now.
            None => {
                let last = RefCell::new(Vec::new());
                self.fuse.answer_waiting(&self.worker, &|message| {
                    tells_right(message);
                    last.replace(message.to_vec());
                });
                last.into_inner()
            }
        };
        if answer.is_empty() {
            return None;
        }
        looks_right(&answer, Some(unique));
        Some((i32::from_le_bytes(answer[4..8].try_into().ok()?), answer[16..].to_vec()))
    }

    /// Removes all names below a directory, at most so deep.
    fn clear(&mut self, dir: base::Node, depth: u32) {
        let cx = base::Cx { cred: base::Cred::ROOT, umask: 0, thread: self.worker.thread() };
        let mut names = Vec::new();
        let _ = self.backend.readdir(&cx, dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        });
        for name in names.iter().filter(|name| !matches!(&name[..], b"." | b"..")) {
            let cx = base::Cx { cred: base::Cred::ROOT, umask: 0, thread: self.worker.thread() };
            if self.backend.unlink(&cx, dir, name).is_ok() || depth == 0 {
                continue;
            }
            if let Ok(child) = self.backend.lookup(&cx, dir, name) {
                self.clear(child, depth - 1);
                let cx = base::Cx { cred: base::Cred::ROOT, umask: 0, thread: self.worker.thread() };
                let _ = self.backend.rmdir(&cx, dir, name);
            }
        }
    }
}

/// What comes without being asked for at that moment: an answer that took its time, the notice about a directory
/// that has moved or a file whose pages go (`FUSE_NOTIFY_INVAL_INODE`: request number 0, its code, 24 bytes), or the
/// last byte of such a file (`FUSE_NOTIFY_STORE`: 24 bytes and that one).
fn tells_right(message: &[u8]) {
    if message.get(8..16) != Some(&[0; 8]) {
        return looks_right(message, None);
    }
    let len = message.len() as u32;
    assert!(matches!((len, message[4]), (40, 2) | (41, 4)), "{len} bytes");
    assert_eq!(message[..8], [len.to_le_bytes(), u32::from(message[4]).to_le_bytes()].concat());
}

fn looks_right(answer: &[u8], unique: Option<u64>) {
    assert!((16..=ANSWER_MAX).contains(&answer.len()), "{} bytes", answer.len());
    assert_eq!(answer[..4], (answer.len() as u32).to_le_bytes());
    let error = i32::from_le_bytes([answer[4], answer[5], answer[6], answer[7]]);
    assert!((-4095..=0).contains(&error), "{error}");
    assert!(error == 0 || answer.len() == 16, "an error with data");
    assert!(unique.is_none_or(|unique| answer[8..16] == unique.to_le_bytes()));
}

/// One of what has been told, or any number.
fn one(told: &[u64], input: &mut Input) -> u64 {
    match input.byte() {
        0xff => input.word(),
        which if told.is_empty() => u64::from(which % 4),
        which => told[usize::from(which) % told.len()],
    }
}

fn body(shape: &str, told: &Told, input: &mut Input) -> Vec<u8> {
    let mut body = Vec::new();
    for field in shape.bytes() {
        match field {
            b'w' => body.extend(WORDS[usize::from(input.byte()) % WORDS.len()].to_le_bytes()),
            b'q' => {
                let word = match input.byte() {
                    0xff => input.word(),
                    small => u64::from(small) << (small % 3 * 8),
                };
                body.extend(word.to_le_bytes());
            }
            b'h' => body.extend(one(&told.handles, input).to_le_bytes()),
            b'i' => body.extend(one(&told.nodes, input).to_le_bytes()),
            b'n' => {
                body.extend(NAMES[usize::from(input.byte()) % NAMES.len()]);
                body.push(0);
            }
            _ => {
                let len = usize::from(input.byte()) * 32;
                body.resize(body.len() + len, b'd');
            }
        }
    }
    match input.byte() {
        0xff => body.truncate(usize::from(input.byte())),
        0xfe => body.extend(input.bytes(20)),
        _ => {}
    }
    body
}

/// The target.
///
/// # Panics
/// If an answer does not look like one.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    DOOR.with(|cell| {
        let mut cell = cell.borrow_mut();
        let door = cell.get_or_insert_with(Door::new);
        let mut told = Told { nodes: vec![1], handles: Vec::new() };
        // Always there: what CREATE cannot open.
        door.ask(op::MKNOD, 1, 1, 0, &[&0o10644u32.to_le_bytes()[..], &[0; 12], b"fifo\0"].concat());
        door.ask(op::SYMLINK, 2, 1, 0, b"link\0a\0");
        for unique in 3..3 + REQUESTS_MAX as u64 {
            if input.is_empty() {
                break;
            }
            let which = input.byte();
            let (opcode, shape) = match which {
                0xff => (u32::from(input.short()), "wwqn"),
                _ => SHAPES[usize::from(which) % SHAPES.len()],
            };
            let node = one(&told.nodes, &mut input);
            let uid = u32::from(input.byte() % 3) * 1000;
            let body = body(shape, &told, &mut input);
            let Some((0, answer)) = door.ask(opcode, unique, node, uid, &body) else { continue };
            let word = |at: usize| answer.get(at..at + 8).and_then(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
            match opcode {
                op::LOOKUP | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK => told.nodes.extend(word(0)),
                op::CREATE | op::TMPFILE => {
                    told.nodes.extend(word(0));
                    told.handles.extend(word(128));
                }
                op::OPEN | op::OPENDIR => told.handles.extend(word(0)),
                _ => {}
            }
        }
        // As it was before, for the next input: nothing waits, nothing is open, no names.
        for unique in 3..3 + REQUESTS_MAX as u64 {
            door.ask(op::INTERRUPT, 99, 1, 0, &unique.to_le_bytes());
        }
        for handle in told.handles {
            door.ask(op::RELEASE, 99, 1, 0, &[&handle.to_le_bytes()[..], &[0; 16]].concat());
        }
        door.clear(door.backend.root(), 8);
    });
}

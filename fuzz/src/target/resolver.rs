//! Paths of any bytes, resolved in an image and in the plain model that hold the
//! same tree, each with another file system mounted inside: same results.

use crate::input::Input;
use pm::sys::abi;
use std::cell::RefCell;
use testkit::world::World;
use vfs::Backend;

/// Parts that paths are made of.
const PARTS: [&[u8]; 20] = [
    b"/", b"/", b"//", b"a", b"a/", b"b", b"c", b".", b"..", b"../", b"./", b"link", b"up", b"loop", b"abs", b"mnt", b"mnt/",
    b"file", b"missing", b"file/",
];

/// Calls with a path that change nothing: number, then what stands behind the path.
const CALLS: usize = 5;

struct Pair([World; 2]);

thread_local! {
    static PAIR: RefCell<Option<Pair>> = const { RefCell::new(None) };
}

fn native(name: &str) -> &'static dyn Backend {
    let path = testkit::image::fresh_path(name);
    testkit::image::make(&path, 16 << 20);
    let native = testkit::image::attach(&path);
    let _ = std::fs::remove_file(path);
    native
}

impl Pair {
    fn new() -> Pair {
        // They stay for as long as the process.
        std::mem::forget(testkit::image::Segments::new());
        let pair = Pair([
            Self::world(native("resolver"), native("inner")),
            Self::world(vfs::mem::Mem::leak(0, 0, 0o777, 1), vfs::mem::Mem::leak(0, 0, 0o777, 2)),
        ]);
        for world in &pair.0 {
            world.process.mount(&world.thread, b"/a/mnt", vfs::mem::Mem::leak(0, 0, 0o755, 3)).expect("mount");
            for (dir, file) in [(c"/a/mnt/a", c"/a/mnt/file"), (c"/b/c/b", c"/b/c/file")] {
                make(world, dir, file);
            }
            link(world, c"../../b", c"/a/mnt/up");
        }
        pair
    }

    fn world(outer: &'static dyn Backend, inner: &'static dyn Backend) -> World {
        let world = World::new(outer);
        for dir in [c"/a", c"/a/b", c"/a/b/c", c"/a/mnt", c"/b"] {
            let dir = padded(dir.to_bytes());
            // SAFETY: a NUL-terminated text.
            assert_eq!(unsafe { world.serve(abi::__NR_mkdir as usize, [dir.as_ptr() as usize, 0o755, 0, 0, 0, 0]) }, 0);
        }
        make(&world, c"/a/b/c/b", c"/a/b/file");
        world.process.mount(&world.thread, b"/b", inner).expect("mount");
        make(&world, c"/b/c", c"/b/file");
        for (text, at) in [(c"a/b", c"/link"), (c"../file", c"/a/b/up"), (c"loop", c"/a/loop"), (c"/a/b/c/", c"/a/b/abs")] {
            link(&world, text, at);
        }
        link(&world, c"..", c"/b/link");
        link(&world, c"/a//b/./up", c"/b/c/abs");
        world
    }
}

/// A text in words of 16 bytes with room behind it: paths are read so, which the
/// address sanitizer takes for an access too far.
fn padded(text: &[u8]) -> Vec<u128> {
    let mut words = vec![0u128; text.len() / 16 + 2];
    for (i, byte) in text.iter().enumerate() {
        words[i / 16] |= u128::from(*byte) << (i % 16 * 8);
    }
    words
}

fn make(world: &World, dir: &std::ffi::CStr, file: &std::ffi::CStr) {
    let (dir, file) = (padded(dir.to_bytes()), padded(file.to_bytes()));
    // SAFETY: NUL-terminated texts.
    assert_eq!(unsafe { world.serve(abi::__NR_mkdir as usize, [dir.as_ptr() as usize, 0o755, 0, 0, 0, 0]) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { world.serve(abi::__NR_mknod as usize, [file.as_ptr() as usize, 0o100_644, 0, 0, 0, 0]) }, 0);
}

fn link(world: &World, text: &std::ffi::CStr, at: &std::ffi::CStr) {
    let (text, at) = (padded(text.to_bytes()), padded(at.to_bytes()));
    let args = [text.as_ptr() as usize, at.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: NUL-terminated texts.
    assert_eq!(unsafe { world.serve(abi::__NR_symlink as usize, args) }, 0);
}

/// A path from the input: parts, or bytes as they come.
fn path(input: &mut Input) -> Vec<u8> {
    let mut path = Vec::new();
    for _ in 0..input.byte() % 40 {
        match input.byte() {
            0xff => path.extend(std::iter::repeat_n(b'n', 100 + usize::from(input.byte()))),
            0xfe => path.extend(input.bytes(8)),
            0xfd => path.extend(b"a/../".repeat(usize::from(input.byte()) * 4)),
            which => path.extend(PARTS[usize::from(which) % PARTS.len()]),
        }
    }
    path.retain(|byte| *byte != 0);
    path.push(0);
    path
}

/// What a call says of a path: its result, and what of the answer is the same in both worlds.
fn ask(world: &World, which: usize, path: &[u8]) -> (isize, Vec<u64>) {
    let path = padded(path);
    let at = path.as_ptr() as usize;
    let mut stat = [0u64; 18];
    let mut text = [0u8; 4200];
    let (nr, args) = match which {
        0 => (abi::__NR_stat, [at, stat.as_mut_ptr() as usize, 0, 0, 0, 0]),
        1 => (abi::__NR_lstat, [at, stat.as_mut_ptr() as usize, 0, 0, 0, 0]),
        2 => (abi::__NR_access, [at, 4, 0, 0, 0, 0]),
        3 => (abi::__NR_readlink, [at, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]),
        _ => (abi::__NR_chdir, [at, 0, 0, 0, 0, 0]),
    };
    // SAFETY: a NUL-terminated path, buffers as large as the calls ask for.
    let result = unsafe { world.serve(nr as usize, args) };
    let mut told = vec![stat[3]];
    if which == 4 {
        // SAFETY: a buffer of that length.
        let len = unsafe { world.serve(abi::__NR_getcwd as usize, [text.as_mut_ptr() as usize, text.len(), 0, 0, 0, 0]) };
        told.push(len as u64);
    }
    told.extend(text.iter().map(|byte| u64::from(*byte)));
    (result, told)
}

/// The target.
///
/// # Panics
/// If image and model disagree.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    PAIR.with(|cell| {
        let mut cell = cell.borrow_mut();
        let pair = cell.get_or_insert_with(Pair::new);
        for world in &pair.0 {
            ask(world, 4, b"/\0");
        }
        for _ in 0..8 {
            if input.is_empty() {
                return;
            }
            let (which, path) = (usize::from(input.byte()) % CALLS, path(&mut input));
            let [ours, model] = [&pair.0[0], &pair.0[1]].map(|world| ask(world, which, &path));
            assert!(ours == model, "call {which} of {:?}: {} and {}", String::from_utf8_lossy(&path), ours.0, model.0);
        }
    });
}

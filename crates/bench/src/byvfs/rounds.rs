//! The rounds: every call by every way in turn, so that a slow minute of the
//! machine hits all of them.

use super::{AGE_NS, Cache, CachedImage, Caching, Options};
use base::{Cred, Cx, Thread};
use engine::Fs;
use pm::sys::abi;
use posix::{Bitmap, Door, Numbers, Outcome, Process, Room, ThreadState};
use std::ffi::CStr;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::Instant;
use vfs::Backend;
use vfs::native::Native;

/// The ways, in the order of the table's columns.
const WAYS: [&str; 3] = ["engine", "byvfs", "conventional"];

/// A call that is timed.
struct Row {
    name: &'static str,
    call: fn(&World),
}

const ROWS: [Row; 4] = [
    Row { name: "stat of a file in the root directory", call: |world| world.stat(c"/file") },
    Row { name: "stat three directories down", call: |world| world.stat(c"/a/b/c/file") },
    Row { name: "stat of a name that is not there, three directories down", call: |world| world.stat(c"/a/b/c/none") },
    Row { name: "open with O_CREAT, close, unlink there", call: |world| world.create_and_unlink(c"/a/b/c/new") },
];

/// Numbers from a bitmap, no kernel beside.
struct Alone(Bitmap);

impl Door for Alone {
    fn numbers(&self) -> Option<&dyn Numbers> {
        Some(&self.0)
    }

    fn has_kernel(&self) -> bool {
        false
    }
}

/// A backend at `/`, called by number.
struct World {
    process: &'static Process,
    thread: ThreadState,
}

impl World {
    fn new(backend: &'static dyn Backend) -> Result<World, String> {
        let process: &'static Process = Box::leak(Box::new(Process::new(Box::leak(Box::new(Alone(Bitmap::new()))))));
        let thread = ThreadState::with_room(Box::leak(Box::new(Room::new())));
        process.mount(&thread, b"/", backend).map_err(|errno| format!("mount: {errno}"))?;
        Ok(World { process, thread })
    }

    fn call(&self, nr: u32, args: [usize; 3]) -> isize {
        let [first, second, third] = args;
        // SAFETY: the callers below give texts with a NUL, and a `struct stat` of their own where one is written.
        match unsafe { self.process.handle(&self.thread, nr as usize, [first, second, third, 0, 0, 0]) } {
            Outcome::Done(result) => result,
            _ => -(libc::ENOSYS as isize),
        }
    }

    fn stat(&self, path: &CStr) {
        let mut out = MaybeUninit::<libc::stat>::uninit();
        let result = self.call(abi::__NR_stat, [path.as_ptr() as usize, out.as_mut_ptr() as usize, 0]);
        assert!(result == 0 || result == -(libc::ENOENT as isize), "stat {path:?}: {result}");
    }

    fn create_and_unlink(&self, path: &CStr) {
        let path = path.as_ptr() as usize;
        let fd = self.call(abi::__NR_open, [path, (libc::O_CREAT | libc::O_WRONLY) as usize, 0o644]);
        assert!(fd >= 0, "open: {fd}");
        assert_eq!((self.call(abi::__NR_close, [fd as usize, 0, 0]), self.call(abi::__NR_unlink, [path, 0, 0])), (0, 0));
    }

    /// Makes the tree that the rows speak of.
    fn fill(&self) {
        for directory in [c"/a", c"/a/b", c"/a/b/c"] {
            assert_eq!(self.call(abi::__NR_mkdir, [directory.as_ptr() as usize, 0o755, 0]), 0);
        }
        for file in [c"/file", c"/a/b/c/file"] {
            let fd = self.call(abi::__NR_open, [file.as_ptr() as usize, (libc::O_CREAT | libc::O_WRONLY) as usize, 0o644]);
            assert_eq!(self.call(abi::__NR_close, [fd as usize, 0, 0]), 0);
        }
    }
}

/// The image and the caches' files, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Path) -> Result<Scratch, String> {
        let path = dir.join(format!("bypath-bench-byvfs-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }

    fn text(&self, name: &str) -> Vec<u8> {
        [self.0.join(name).as_os_str().as_encoded_bytes(), b"\0"].concat()
    }

    fn image(&self) -> Result<Native, String> {
        let path = self.text("image");
        let options = engine::mkfs::Options { limit: 64 << 20, ..Default::default() };
        engine::mkfs::make(&path, &options).map_err(|error| error.to_string())?;
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let dir = self.0.as_os_str().as_encoded_bytes();
        let options = engine::process::Options { segment_dir: Some(dir), ..Default::default() };
        let fs = Fs::attach_at(place, &cx, &path, &options).map_err(|error| error.to_string())?;
        fs.give_lane_back(&thread);
        Ok(Native(fs))
    }

    fn cached(&self, native: Native, caching: Caching, name: &str) -> Result<&'static dyn Backend, String> {
        let made = std::fs::File::create(self.0.join(name)).and_then(|file| file.set_len(Cache::bytes()));
        made.map_err(|error| format!("{name}: {error}"))?;
        let cache = Cache::open(&self.text(name), AGE_NS).map_err(|errno| format!("{name}: {errno}"))?;
        Ok(Box::leak(Box::new(CachedImage::new(native, cache, caching))))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs all; the table as Markdown.
pub(super) fn run(options: &Options) -> Result<String, String> {
    let (rounds, calls) = if options.quick { (3, 200) } else { (30, 5000) };
    let scratch = Scratch::new(&options.image_dir)?;
    let native = scratch.image()?;
    let backends: [&'static dyn Backend; 3] = [
        Box::leak(Box::new(native)),
        scratch.cached(native, Caching::Byvfs, "byvfs")?,
        scratch.cached(native, Caching::Conventional, "conventional")?,
    ];
    let worlds = backends.into_iter().map(World::new).collect::<Result<Vec<_>, _>>()?;
    worlds[0].fill();
    let mut best = [[f64::INFINITY; WAYS.len()]; ROWS.len()];
    for _ in 0..rounds {
        for (row, best) in ROWS.iter().zip(&mut best) {
            for (world, best) in worlds.iter().zip(best) {
                let begun = Instant::now();
                (0..calls).for_each(|_| (row.call)(world));
                *best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(calls));
            }
        }
    }
    worlds[0].process.detach(&worlds[0].thread);
    Ok(table(&best, rounds, calls))
}

fn table(best: &[[f64; WAYS.len()]; ROWS.len()], rounds: u32, calls: u32) -> String {
    let mut text = format!("Nanoseconds a call, the best of {rounds} rounds of {calls}\n\n| call |");
    WAYS.iter().for_each(|way| text += &format!(" {way} |"));
    text += "\n|---|---|---|---|\n";
    for (row, best) in ROWS.iter().zip(best) {
        let _ = write!(text, "| {} |", row.name);
        best.iter().for_each(|ns| text += &format!(" {ns:.0} |"));
        text.push('\n');
    }
    text
}

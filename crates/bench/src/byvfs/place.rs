//! Where calls go, all by their number: an image behind caches, an image alone, a directory of the kernel's.

use super::{Cache, CachedImage, Caching};
use base::{Cred, Cx, Thread};
use engine::Fs;
use pm::sys::abi;
use posix::{Bitmap, Door, Numbers, Outcome, Process, Room, ThreadState};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::Backend;
use vfs::native::Native;

/// Paths are relative to where the place has been [entered](Place::enter).
pub const HERE: usize = libc::AT_FDCWD as isize as usize;

/// Slots of the caches: a directory of 100,000 files has some room in them.
const SLOTS: u64 = 1 << 20;

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
pub struct World {
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
}

/// One of them.
pub enum Place {
    /// An image.
    Image(World),
    /// A directory.
    Kernel(PathBuf),
}

impl Place {
    /// A call: its result, or the negative error.
    pub fn call(&self, nr: u32, args: [usize; 4]) -> isize {
        let [a, b, c, d] = args;
        match self {
            // SAFETY: callers give texts with a NUL, and room for what is written.
            Place::Image(world) => match unsafe { world.process.handle(&world.thread, nr as usize, [a, b, c, d, 0, 0]) } {
                Outcome::Done(result) => result,
                _ => -(libc::ENOSYS as isize),
            },
            Place::Kernel(_) => {
                // SAFETY: the same.
                let result = unsafe { libc::syscall(i64::from(nr) as libc::c_long, a, b, c, d) };
                let error = || -(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) as isize);
                if result < 0 { error() } else { result as isize }
            }
        }
    }

    /// The same; failures end the program, since a benchmark of failures is worth nothing.
    pub fn good(&self, nr: u32, args: [usize; 4]) -> usize {
        let result = self.call(nr, args);
        assert!(result >= 0, "call {nr}: error {}", -result);
        result as usize
    }

    /// Relative paths begin here from now on.
    pub fn enter(&self) -> Result<(), String> {
        match self {
            Place::Image(_) => Ok(()),
            Place::Kernel(dir) => std::env::set_current_dir(dir).map_err(|e| format!("{}: {e}", dir.display())),
        }
    }

    /// And further down.
    pub fn go(&self, directory: &CStr) {
        self.good(abi::__NR_chdir, [directory.as_ptr() as usize, 0, 0, 0]);
    }

    /// Opens a path.
    pub fn open(&self, dir: usize, path: &CStr, flags: i32) -> usize {
        self.good(abi::__NR_openat, [dir, path.as_ptr() as usize, flags as usize, 0o644])
    }

    /// Closes.
    pub fn close(&self, fd: usize) {
        self.good(abi::__NR_close, [fd, 0, 0, 0]);
    }

    /// Asks for attributes, of a symbolic link those of its own.
    pub fn stat(&self, dir: usize, path: &CStr) -> isize {
        let mut out = MaybeUninit::<libc::stat>::uninit();
        let args = [dir, path.as_ptr() as usize, out.as_mut_ptr() as usize, libc::AT_SYMLINK_NOFOLLOW as usize];
        self.call(abi::__NR_newfstatat, args)
    }

    /// Asks whether it is there.
    pub fn access(&self, dir: usize, path: &CStr) -> isize {
        self.call(abi::__NR_faccessat, [dir, path.as_ptr() as usize, libc::F_OK as usize, 0])
    }

    /// Makes a directory.
    pub fn mkdir(&self, path: &CStr) {
        self.good(abi::__NR_mkdirat, [HERE, path.as_ptr() as usize, 0o755, 0]);
    }

    /// Removes a name.
    pub fn unlink(&self, dir: usize, path: &CStr, flags: i32) {
        self.good(abi::__NR_unlinkat, [dir, path.as_ptr() as usize, flags as usize, 0]);
    }

    /// Writes all of it.
    pub fn write(&self, fd: usize, from: &[u8]) {
        let done = self.good(abi::__NR_write, [fd, from.as_ptr() as usize, from.len(), 0]);
        assert_eq!(done, from.len(), "a short write");
    }
}

/// The ways to one image, and the caches above it.
pub struct Image {
    scratch: Scratch,
    caches: [Arc<Cache>; 2],
    /// By the engine alone, behind an inode cache, behind a dentry and inode cache.
    pub ways: Vec<Place>,
}

impl Image {
    /// A fresh one in `dir`.
    pub fn new(dir: &Path) -> Result<Image, String> {
        let scratch = Scratch::new(dir)?;
        let options = engine::mkfs::Options { limit: 4 << 30, ..Default::default() };
        engine::mkfs::make(&scratch.text("image"), &options).map_err(|error| error.to_string())?;
        let caches = [scratch.cache("byvfs")?, scratch.cache("conventional")?];
        let mut image = Image { scratch, caches, ways: Vec::new() };
        image.ways = image.attach()?;
        Ok(image)
    }

    fn attach(&self) -> Result<Vec<Place>, String> {
        let native = self.scratch.attach()?;
        let cached = |which: usize, caching| -> &'static dyn Backend {
            Box::leak(Box::new(CachedImage::new(native, self.caches[which].clone(), caching)))
        };
        let backends: [&'static dyn Backend; 3] =
            [Box::leak(Box::new(native)), cached(0, Caching::Byvfs), cached(1, Caching::Conventional)];
        backends.into_iter().map(|backend| World::new(backend).map(Place::Image)).collect()
    }

    /// Nothing is cached any more: neither above the engine, nor in its shared cache, which goes with its last user.
    pub fn cool(&mut self) -> Result<(), String> {
        self.leave();
        self.caches.iter().for_each(|cache| cache.drop_all());
        self.ways = self.attach()?;
        Ok(())
    }

    /// Hits and questions of the dentry and inode cache since the last time: of names, and of attributes.
    pub fn take_asks(&self) -> [(u64, u64); 2] {
        self.caches[1].take_asks()
    }

    fn leave(&mut self) {
        if let Some(Place::Image(world)) = self.ways.first() {
            world.process.detach(&world.thread);
        }
        self.ways.clear();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.leave();
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

    fn attach(&self) -> Result<Native, String> {
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let place = Box::leak(Box::new(MaybeUninit::uninit()));
        let dir = self.0.as_os_str().as_encoded_bytes();
        let options = engine::process::Options { segment_dir: Some(dir), ..Default::default() };
        let fs = Fs::attach_at(place, &cx, &self.text("image"), &options).map_err(|error| error.to_string())?;
        fs.give_lane_back(&thread);
        Ok(Native(fs))
    }

    /// What is cached stays so until it is changed or dropped, as in the kernel.
    fn cache(&self, name: &str) -> Result<Arc<Cache>, String> {
        let made = std::fs::File::create(self.0.join(name)).and_then(|file| file.set_len(Cache::bytes_of(SLOTS)));
        made.map_err(|error| format!("{name}: {error}"))?;
        let cache = Cache::open_of(&self.text(name), u64::MAX, SLOTS).map_err(|errno| format!("{name}: {errno}"))?;
        Ok(Arc::new(cache))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

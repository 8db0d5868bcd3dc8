//! Caches that tests make.

use base::{Cred, Cx, Thread};
use bypath_cache::{Cache, Changes, Origin, prepare};
use engine::Fs;
use engine::mkfs::{self, Options};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The cache of `low`, in a new image in `top`; until the test ends.
pub fn cache_of(top: &Path, low: &Path, changes: Changes) -> &'static Cache {
    let image = [top.join("c.img").as_os_str().as_bytes(), b"\0"].concat();
    let options = Options { limit: 256 << 20, features: format::Features::CACHE, mode: 0o700, ..Options::default() };
    mkfs::make(&image, &options).unwrap();
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let place: &'static mut MaybeUninit<Fs> = Box::leak(Box::new(MaybeUninit::uninit()));
    let options = engine::process::Options::default();
    let fs = Fs::attach_at(place, &cx, &image, &options).map_err(|error| error.to_string()).unwrap();
    let origin = Origin::Directory(low.as_os_str().as_bytes());
    prepare(&cx, fs, &origin).unwrap();
    Box::leak(Box::new(Cache::new(&cx, fs, &origin, changes).unwrap()))
}

//! Two sessions that begin at the same time may make one cache.

use base::{Cred, Cx, Thread};
use bypath_cache::{Origin, prepare};
use engine::Fs;
use engine::mkfs::{self, Options};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Barrier;

/// Goal: a new image that two make the cache of a directory at once is one, for both. Method: many new images, two threads.
#[test]
fn made_by_two() {
    let top = PathBuf::from(format!("/dev/shm/bypath-cache-together-{}", std::process::id()));
    let low = top.join("low");
    std::fs::create_dir_all(&low).unwrap();
    for number in 0..400u64 {
        let path = top.join(format!("{number}.img"));
        let image = [path.as_os_str().as_bytes(), b"\0"].concat();
        let options = Options { limit: 16 << 20, features: format::Features::CACHE, mode: 0o700, ..Options::default() };
        mkfs::make(&image, &options).unwrap();
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let mut place: MaybeUninit<Fs> = MaybeUninit::uninit();
        let options = engine::process::Options {
            domain: None,
            read_only: false,
            segment_dir: None,
            slot: 0,
            cachelets: None,
            atomic: None,
            in_place: false,
        };
        let fs = Fs::attach_at(&mut place, &cx, &image, &options).map_err(|error| error.to_string()).unwrap();
        let (barrier, origin) = (Barrier::new(2), Origin::Directory(low.as_os_str().as_bytes()));
        // One of them a little later, each time by another time.
        let make = &|later: u64| {
            let thread = Thread::new();
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            barrier.wait();
            (0..later).for_each(|_| std::hint::spin_loop());
            let made = prepare(&cx, fs, &origin);
            fs.give_lane_back(&thread);
            made.map_err(|mismatch| format!("{mismatch:?}"))
        };
        let both = std::thread::scope(|scope| {
            [0, number * 4].map(|later| scope.spawn(move || make(later))).map(|made| made.join().unwrap())
        });
        assert!(both.iter().all(Result::is_ok), "image {number}: {both:?}");
        fs.detach(&cx);
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::remove_dir_all(&top).unwrap();
}

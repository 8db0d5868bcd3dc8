//! Names that come and go below: a file that is replaced again and again is never missing here, and one that has moved with
//! its directory is what it was.

mod bench;

use base::{Cred, Cx, Kind, NewNode, Node, Thread};
use bench::cache_of;
use bypath_cache::{Cache, Changes};
use pm::{Errno, UserSlice};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use vfs::backend::{Backend, OpenFileTable};

/// How often it is replaced.
const TIMES: usize = 10_000;

/// Replaces `d/f` below, of which something is here, and has the cache look at it each time.
fn replace(cache: &Cache, low: &Path) -> Result<(), base::Error> {
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let dir = cache.lookup(&cx, cache.root(), b"d")?;
    cache.readdir(&cx, dir, 0, &mut |_| true)?;
    for time in 0..TIMES {
        let node = cache.lookup(&cx, dir, b"f")?;
        cache.read(&cx, node, 0, &[UserSlice::from_mut(&mut [0; 8])])?;
        // Open in every other round: else it becomes the other in place.
        let is_open = time % 2 == 0 && cache.open(&cx, node, 0, 7).is_ok();
        std::fs::write(low.join("d/next"), time.to_string()).unwrap();
        std::fs::rename(low.join("d/next"), low.join("d/f")).unwrap();
        match cache.refresh_entry(&cx, dir, b"f") {
            // Somebody was faster.
            Err(base::Error::Posix(Errno::ESTALE)) => {}
            result => drop(result?),
        }
        if is_open {
            cache.close(&cx, 7);
        }
    }
    cache.give_lane_back(&thread);
    Ok(())
}

/// Goal: who looks for a name while the one of the file that was there goes here, and the one of its successor comes,
/// finds the one or the other. Method: a thread replaces the file below, and has the cache look at it, as its
/// server does; two others look it up. Once more in a directory of which something is newer here.
#[test]
fn a_file_that_is_replaced_is_never_missing() {
    replaced_beside(false);
    replaced_beside(true);
}

fn replaced_beside(is_newer: bool) {
    let top = PathBuf::from(format!("/dev/shm/bypath-replaced-{is_newer}-{}", std::process::id()));
    let low = top.join("low");
    std::fs::create_dir_all(low.join("d")).unwrap();
    std::fs::write(low.join("d/f"), "first").unwrap();
    let cache = cache_of(&top, &low, if is_newer { Changes::Image } else { Changes::Refused });
    if is_newer {
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        let dir = cache.lookup(&cx, cache.root(), b"d").unwrap();
        let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
        cache.create(&cx, dir, b"newer", &new).unwrap();
        cache.give_lane_back(&thread);
    }
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        let readers = [0; 2].map(|_| {
            scope.spawn(|| {
                let thread = Thread::new();
                let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
                let dir = cache.lookup(&cx, cache.root(), b"d").unwrap();
                let (mut found, mut errors) = (0, Vec::new());
                while !is_over.load(Relaxed) {
                    match cache.lookup(&cx, dir, b"f") {
                        Ok(_) => found += 1,
                        Err(error) => errors.push(error),
                    }
                }
                cache.give_lane_back(&thread);
                (found, errors)
            })
        });
        let replaced = replace(cache, &low);
        is_over.store(true, Relaxed);
        replaced.unwrap();
        readers.map(|reader| reader.join().unwrap())
    });
    std::fs::remove_dir_all(&top).unwrap();
    for (found, errors) in found {
        assert!(found > 100, "{found} looks only");
        assert_eq!((errors.len(), errors.first()), (0, None));
    }
}

/// Goal: a file that has two names shows its original's times, whichever of them comes or goes here first. Method: the directory
/// of one is renamed below, which doesn't change the file; the new name is looked up before the old one goes.
#[test]
fn a_file_with_two_names_keeps_its_times_where_one_moves() {
    let top = PathBuf::from(format!("/dev/shm/bypath-moved-{}", std::process::id()));
    let low = top.join("low");
    std::fs::create_dir_all(low.join("d")).unwrap();
    std::fs::write(low.join("f"), "first").unwrap();
    std::fs::hard_link(low.join("f"), low.join("d/hard")).unwrap();
    let below = std::fs::metadata(low.join("f")).unwrap();
    let cache = cache_of(&top, &low, Changes::Refused);
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let root = cache.root();
    let node = cache.lookup(&cx, root, b"f").unwrap();
    let dir = cache.lookup(&cx, root, b"d").unwrap();
    assert_eq!(cache.lookup(&cx, dir, b"hard").unwrap(), node);
    // Times are as fine as the kernel's clock.
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::rename(low.join("d"), low.join("moved")).unwrap();
    let moved = cache.lookup(&cx, root, b"moved").unwrap();
    assert_eq!(cache.lookup(&cx, moved, b"hard").unwrap(), node);
    cache.refresh_entry(&cx, root, b"d").unwrap();
    assert_eq!(cache.lookup(&cx, root, b"d"), Err(Errno::ENOENT.into()));
    let attr = cache.attr(&cx, node).unwrap();
    assert_eq!(attr.ctime, below.ctime() * 1_000_000_000 + below.ctime_nsec(), "its time of change");
    cache.give_lane_back(&thread);
    std::fs::remove_dir_all(&top).unwrap();
}

/// Goal: a name that is removed here does not come back while others list its directory. Method: two list a directory at once; who is
/// through first removes all names.
#[test]
fn a_name_that_was_removed_here_is_not_brought_again() {
    const DIRECTORIES: usize = 100;
    const NAMES: usize = 100;
    let top = PathBuf::from(format!("/dev/shm/bypath-removed-{}", std::process::id()));
    let low = top.join("low");
    let name = |number: usize| format!("name-{number}").into_bytes();
    for number in 0..DIRECTORIES {
        std::fs::create_dir_all(low.join(number.to_string())).unwrap();
        for inner in 0..NAMES {
            std::fs::write(low.join(format!("{number}/name-{inner}")), "").unwrap();
        }
    }
    let cache = cache_of(&top, &low, Changes::Image);
    let left = (0..DIRECTORIES)
        .map(|number| {
            let begin = std::sync::Barrier::new(2);
            let with_directory = |act: &dyn Fn(&Cx, Node)| {
                let thread = Thread::new();
                let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
                let dir = cache.lookup(&cx, cache.root(), number.to_string().as_bytes()).unwrap();
                begin.wait();
                act(&cx, dir);
                cache.give_lane_back(&thread);
            };
            std::thread::scope(|scope| {
                scope.spawn(|| with_directory(&|cx, dir| cache.readdir(cx, dir, 0, &mut |_| true).unwrap()));
                with_directory(&|cx, dir| (0..NAMES).for_each(|inner| cache.unlink(cx, dir, &name(inner)).unwrap()));
            });
            let thread = Thread::new();
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            let dir = cache.lookup(&cx, cache.root(), number.to_string().as_bytes()).unwrap();
            let left = (0..NAMES).filter(|inner| cache.lookup(&cx, dir, &name(*inner)).is_ok()).count();
            cache.give_lane_back(&thread);
            left
        })
        .sum::<usize>();
    std::fs::remove_dir_all(&top).unwrap();
    assert_eq!(left, 0, "names are back");
}

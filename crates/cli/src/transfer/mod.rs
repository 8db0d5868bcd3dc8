//! Copying whole trees into and out of an image.
//!
//! Kept: contents with their holes, modes with set-id bits, owners (as far as
//! the user may set them), modification times to the nanosecond, symlinks,
//! hard links, extended attributes, FIFOs, sockets and devices. Access times
//! are not: an image keeps none unless a program sets one.

pub mod export;
pub mod import;
pub mod unpack;

use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// The descriptor under which the file being copied is open.
const FD: u32 = 0;

/// From this length on a directory's path gets a short cut: the kernel takes 4,095 bytes, and a name follows.
const DEEP: usize = 2048;

/// A short path to a directory, good while it is kept, if the one that it has is long.
fn shortcut(dir: &Path) -> std::io::Result<Option<Shortcut>> {
    if dir.as_os_str().len() < DEEP {
        return Ok(None);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = rustix::fs::open(dir, flags, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    Ok(Some(Shortcut { path, _open: open }))
}

struct Shortcut {
    path: PathBuf,
    _open: OwnedFd,
}

/// Seconds and nanoseconds of a time in nanoseconds.
fn split_time(ns: i64) -> (i64, i64) {
    (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
}

/// The names in a NUL-separated list.
fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&b| b == 0).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Tree;
    use crate::place::Place;
    use indicatif::ProgressBar;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

    fn scratch(name: &str) -> PathBuf {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let path = base.join(format!("bypath-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// All that a copy must keep, a line for each name.
    fn listing(root: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let mut left = vec![root.to_path_buf()];
        while let Some(path) = left.pop() {
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let contents = match () {
                () if meta.is_dir() => {
                    left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                    Vec::new()
                }
                () if meta.is_symlink() => std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                () if meta.is_file() => std::fs::read(&path).unwrap(),
                () => Vec::new(),
            };
            let sum =
                contents.iter().fold(contents.len() as u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            let mut value = [0; 16];
            let xattr = rustix::fs::lgetxattr(&path, c"user.kept", &mut value[..]).map(|len| value[..len].to_vec());
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            lines.push(format!(
                "{:?} {:o} {}:{} links {links} size {} mtime {}.{} rdev {} {sum} {:?}",
                path.strip_prefix(root).unwrap(),
                meta.mode(),
                meta.uid(),
                meta.gid(),
                if meta.is_dir() { 0 } else { meta.len() },
                meta.mtime(),
                meta.mtime_nsec(),
                meta.rdev(),
                xattr.ok()
            ));
        }
        lines.sort();
        lines
    }

    fn make_source(root: &Path) {
        let write = |name: &str, bytes: &[u8]| std::fs::write(root.join(name), bytes).unwrap();
        std::fs::create_dir_all(root.join("a/b/c")).unwrap();
        write("empty", b"");
        write("a/text", b"some text\n");
        write("a/b/large", &(0..3_000_000u32).map(|i| (i / 7) as u8).collect::<Vec<_>>());
        std::fs::hard_link(root.join("a/text"), root.join("a/b/again")).unwrap();
        std::os::unix::fs::symlink("../a/text", root.join("a/link")).unwrap();
        std::os::unix::fs::symlink("/nowhere", root.join("dangling")).unwrap();
        let hole = std::fs::File::create(root.join("hole")).unwrap();
        hole.write_all_at(b"middle", 5 << 20).unwrap();
        hole.set_len((9 << 20) + 5).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, root.join("fifo"), rustix::fs::FileType::Fifo, 0o640.into(), 0).unwrap();
        let _ = rustix::fs::lsetxattr(root.join("a/text"), c"user.kept", b"value", rustix::fs::XattrFlags::empty());
        for (name, mode) in [("empty", 0o4711), ("a/text", 0o600), ("a/b", 0o1777), ("a/b/c", 0o555)] {
            std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let old = rustix::fs::Timespec { tv_sec: 981_173_106, tv_nsec: 700_000_001 };
        let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
        for name in ["a/text", "a/link", "a/b", "fifo", "a", "."] {
            rustix::fs::utimensat(rustix::fs::CWD, root.join(name), &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }

    /// Goal: what goes in comes out the same: a tree with every kind of thing is
    /// imported into the plain model, twice (so that names are replaced), and exported again.
    #[test]
    fn round_trip() {
        let (source, target) = (scratch("in"), scratch("out"));
        make_source(&source);
        let backend: &'static vfs::mem::Mem = Box::leak(Box::new(vfs::mem::Mem::new(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
            0o755,
        )));
        let mut tree = Tree::new(backend);
        let place = Place::new(PathBuf::from("m"), b"/x/tree".to_vec());
        let bar = ProgressBar::hidden();
        let tally = import::import(&mut tree, &source, &place, &bar).unwrap();
        assert_eq!((tally.names, tally.dropped), (12, 0));
        import::import(&mut tree, &source, &place, &bar).unwrap();
        export::export(&mut tree, &place, &target.join("deep/tree"), &bar).unwrap();
        export::export(&mut tree, &place, &target.join("deep/tree"), &bar).unwrap();
        assert_eq!(listing(&source), listing(&target.join("deep/tree")));
        let blocks = std::fs::metadata(target.join("deep/tree/hole")).unwrap().blocks();
        assert!(blocks < 100, "the hole was filled: {blocks} blocks");
        let _ = std::fs::remove_dir_all(&source);
        let _ = std::fs::remove_dir_all(&target);
    }

    /// Goal: trees deeper than the longest path of the kernel's come out as they went in, with links from their depths to the top.
    #[test]
    fn deeper_than_a_path() {
        const STEPS: usize = 30;
        let step = "y".repeat(200);
        let down = |root: &Path, make: bool| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut at = rustix::fs::open(root, flags, Mode::empty()).unwrap();
            for _ in 0..STEPS {
                if make {
                    rustix::fs::mkdirat(&at, step.as_str(), Mode::RWXU).unwrap();
                }
                at = rustix::fs::openat(&at, step.as_str(), flags, Mode::empty()).unwrap();
            }
            at
        };
        let (source, target) = (scratch("deep-in"), scratch("deep-out"));
        let none = rustix::fs::AtFlags::empty();
        let deepest = down(&source, true);
        std::fs::write(source.join("top"), b"top").unwrap();
        rustix::fs::linkat(rustix::fs::CWD, source.join("top"), &deepest, "bottom", none).unwrap();
        rustix::fs::symlinkat("text", &deepest, "link").unwrap();
        // After the depths in the listing: the first path of its file lies there.
        rustix::fs::linkat(rustix::fs::CWD, source.join("top"), rustix::fs::CWD, source.join("z"), none).unwrap();
        let backend: &'static vfs::mem::Mem = Box::leak(Box::new(vfs::mem::Mem::new(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
            0o755,
        )));
        let mut tree = Tree::new(backend);
        let place = Place::new(PathBuf::from("m"), b"/tree".to_vec());
        let bar = ProgressBar::hidden();
        assert_eq!(import::import(&mut tree, &source, &place, &bar).unwrap().names as usize, STEPS + 5);
        assert_eq!(export::export(&mut tree, &place, &target.join("tree"), &bar).unwrap().names as usize, STEPS + 5);
        let deepest = down(&target.join("tree"), false);
        let bottom = rustix::fs::statat(&deepest, "bottom", none).unwrap();
        for name in ["top", "z"] {
            let meta = std::fs::metadata(target.join("tree").join(name)).unwrap();
            assert_eq!((meta.ino(), meta.nlink(), meta.len()), (bottom.st_ino, 3, 3));
        }
        assert_eq!(rustix::fs::readlinkat(&deepest, "link", Vec::new()).unwrap().to_bytes(), b"text");
        let _ = std::fs::remove_dir_all(&source);
        let _ = std::fs::remove_dir_all(&target);
    }

    /// Goal: what would overwrite something of another type is refused, and nothing is made.
    #[test]
    fn conflicts() {
        let source = scratch("conflict");
        std::fs::write(source.join("f"), b"x").unwrap();
        let backend: &'static vfs::mem::Mem = Box::leak(Box::new(vfs::mem::Mem::new(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
            0o755,
        )));
        let mut tree = Tree::new(backend);
        let bar = ProgressBar::hidden();
        let place = |path: &[u8]| Place::new(PathBuf::from("m"), path.to_vec());
        import::import(&mut tree, &source.join("f"), &place(b"/d/f"), &bar).unwrap();
        assert!(import::import(&mut tree, &source, &place(b"/d/f"), &bar).is_err());
        // A file goes into a directory that is there, unless it would take a directory's name there.
        for into in [&b"/d"[..], b"/d/"] {
            import::import(&mut tree, &source.join("f"), &place(into), &bar).unwrap();
        }
        import::import(&mut tree, &source, &place(b"/e/f"), &bar).unwrap();
        assert!(import::import(&mut tree, &source.join("f"), &place(b"/e"), &bar).is_err());
        assert!(export::export(&mut tree, &place(b"/none"), &source.join("g"), &bar).is_err());
        assert!(export::export(&mut tree, &place(b"/d/f"), &source.join("f/x"), &bar).is_err());
        let _ = std::fs::remove_dir_all(&source);
    }
}

//! A damaged image of a cache: its status is asked, what it holds is written back, and exported, each beside a canary. To
//! the end or with an error; nothing outside of the directory, or of the export's target, changes.

use crate::input::Input;
use crate::patch;
use crate::place::{Attached, LIMIT, Place};
use cache::{Cache, Changes, Origin, prepare};
use pm::{Errno, UserSlice};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use vfs::backend::Backend;
use vfs::{Kind, NewNode, RenameMode, SetAttr};
use writeback::{CUT, Waiting, Writer};

/// Steps of a round that an input may take.
const STEPS: usize = 400;

struct Beside(PathBuf);

impl Beside {
    /// A directory with something of each, a canary, and an image in front of the first with changes that it has not.
    fn new() -> Beside {
        let top = PathBuf::from(format!("/dev/shm/bypath-fuzz-{}-cached", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let beside = Beside(top);
        let make = || -> std::io::Result<()> {
            for path in ["low/dir/inner", "canary", "image"] {
                std::fs::create_dir_all(beside.at(path))?;
            }
            for path in ["low/file", "low/dir/file", "low/dir/inner/deep", "low/gone", "canary/file"] {
                std::fs::write(beside.at(path), path)?;
            }
            std::fs::hard_link(beside.at("low/file"), beside.at("low/dir/second"))?;
            std::os::unix::fs::symlink("../canary", beside.at("low/link"))
        };
        make().expect("directories");
        beside
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Attributes and contents of the canary and of what lies beside it.
    fn outside(&self) -> BTreeMap<PathBuf, (u32, u32, u64, Vec<u8>)> {
        let mut all = BTreeMap::new();
        let entries =
            |at: &Path| std::fs::read_dir(at).into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
        for path in [entries(&self.0), entries(&self.at("canary"))].concat() {
            let meta = std::fs::symlink_metadata(&path).expect("listed");
            let bytes = if meta.is_file() { std::fs::read(&path).expect("readable") } else { Vec::new() };
            // What is written back changes the directory's own times, mode and owner.
            let is_own = ["low", "image", "target"].iter().any(|name| path.ends_with(name));
            let (mode, uid) = if is_own { (0, 0) } else { (meta.permissions().mode(), meta.uid()) };
            all.insert(path, (mode, uid, meta.ino(), bytes));
        }
        all
    }

    fn cache(&self, attached: &Attached) -> Result<Cache, base::Error> {
        let low = self.at("low");
        let origin = Origin::Directory(low.as_os_str().as_bytes());
        prepare(&attached.cx(), attached.fs, &origin).map_err(|_| Errno::EINVAL)?;
        Cache::new(&attached.cx(), attached.fs, &origin, Changes::Image)
    }

    fn change(&self, attached: &Attached) -> Result<(), base::Error> {
        let cache = self.cache(attached)?;
        let cx = attached.cx();
        let (root, new) = (cache.root(), |kind, target| NewNode { kind, mode: 0o644, rdev: 0, target });
        let dir = cache.lookup(&cx, root, b"dir")?;
        let file = cache.lookup(&cx, root, b"file")?;
        let inner = cache.lookup(&cx, dir, b"inner")?;
        cache.lookup(&cx, inner, b"deep")?;
        let made = cache.create(&cx, root, b"made", &new(Kind::Regular, b""))?;
        cache.write(&cx, made, Some(0), &[UserSlice::from_ref(&[7; 5000])])?;
        cache.write(&cx, file, Some(2), &[UserSlice::from_ref(b"changed")])?;
        let below = cache.create(&cx, root, b"directory", &new(Kind::Directory, b""))?;
        cache.create(&cx, below, b"symlink", &new(Kind::Symlink, b"../../canary"))?;
        cache.rename(&cx, dir, b"inner", below, b"moved", RenameMode::Replace)?;
        cache.unlink(&cx, root, b"gone")?;
        cache.set_attr(&cx, dir, &SetAttr { mode: Some(0o711), ..SetAttr::default() })?;
        cache.give_lane_back(&attached.thread);
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks for everything that a cache image is asked for.
fn use_all(beside: &Beside, attached: &Attached, how: u8) {
    let Ok(cache) = beside.cache(attached) else { return };
    let cache: &'static Cache = Box::leak(Box::new(cache));
    {
        let cx = attached.cx();
        let _ = (writeback::Status::of(cache, &cx), Waiting::of(cache, &cx), writeback::removed(cache, &cx));
        if how & 1 == 0 {
            let _ = writeback::export(cache, &cx, &beside.at("target"));
        }
        cache.give_lane_back(&attached.thread);
    }
    if let Ok(writer) = Writer::new(cache) {
        for _ in 0..2 {
            let mut steps = 0;
            let mut hook = |_: &str| {
                steps += 1;
                if steps > STEPS { Err(CUT) } else { Ok(()) }
            };
            let _ = writer.round_with(false, &mut hook);
        }
        writer.rest();
    }
}

/// The target.
///
/// # Panics
/// If something outside has changed.
pub fn run(input: &[u8]) {
    let beside = Beside::new();
    let mut input = Input(input);
    let how = input.byte();
    let directory = beside.at("image").to_string_lossy().into_owned();
    let options = engine::mkfs::Options { limit: LIMIT, seeds: Some(engine::testing::SEEDS), mode: 0o600, ..Default::default() };
    engine::mkfs::make(format!("{directory}/image\0").as_bytes(), &options).expect("mkfs");
    let mut place = Place::over(directory);
    {
        let attached = place.attach().expect("attach");
        beside.change(&attached).expect("changes");
    }
    place.find_lines();
    patch::image(&mut place, &mut input);
    std::fs::create_dir(beside.at("target")).expect("a target");
    let before = beside.outside();
    if let Ok(attached) = place.attach() {
        use_all(&beside, &attached, how);
    }
    assert_eq!(beside.outside(), before, "something outside has changed");
}

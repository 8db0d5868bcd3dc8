//! A journal that somebody has written with intent: nothing outside of the directory changes, whatever it says.

use super::ring::Ring;
use super::*;
use crate::Id;
use base::Kind;
use record::NodeFact;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

/// A directory beside a canary, and a journal for it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let top = std::env::temp_dir().join(format!("bypath-hostile-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        std::fs::create_dir_all(top.join("dir/inner")).unwrap();
        std::fs::create_dir_all(top.join("canary")).unwrap();
        std::fs::write(top.join("canary/file"), "as it was").unwrap();
        std::fs::write(top.join("dir/file"), "below").unwrap();
        Place(top)
    }

    fn dir(&self) -> PathBuf {
        self.0.join("dir")
    }

    fn id(&self, path: &str) -> Id {
        let meta = std::fs::symlink_metadata(self.0.join(path)).unwrap();
        (meta.dev(), meta.ino())
    }

    /// Replays a journal of these groups.
    fn replay(&self, groups: &[Vec<u8>]) -> Result<Replayed> {
        let path = self.0.join("journal");
        let header = Header { image: 7, root: self.id("dir").1, room: 1 << 20, ..Header::default() };
        let mut ring = Ring::make(Disk::open(&path, header.room).unwrap(), header).unwrap();
        for body in groups {
            ring.append(body, 5).unwrap();
        }
        drop(ring);
        Left::open(&path).unwrap().unwrap().replay(&self.dir(), false)
    }

    /// All outside of the directory: path, mode, owner, number, contents.
    fn outside(&self) -> BTreeMap<PathBuf, (u32, u32, u64, Vec<u8>)> {
        let mut all = BTreeMap::new();
        let mut left = vec![self.0.clone()];
        while let Some(at) = left.pop() {
            for entry in std::fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let meta = std::fs::symlink_metadata(&path).unwrap();
                if path == self.dir() || path == self.0.join("journal") {
                    continue;
                }
                if meta.is_dir() {
                    left.push(path.clone());
                }
                let bytes = std::fs::read(&path).unwrap_or_default();
                all.insert(path, (meta.mode(), meta.uid(), meta.ino(), bytes));
            }
        }
        all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ROOT: u64 = 1;
const NEW: u64 = 2;
const OLD: u64 = 3;

fn node(id: u64, kind: Kind, lower: Option<Id>) -> NodeFact {
    NodeFact {
        id,
        kind,
        lower,
        mode: 0o4755,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        atime: 1,
        mtime: 1,
        size: 4,
        target: Vec::new(),
        hint: Vec::new(),
        xattrs: None,
        is_whole: lower.is_none(),
        is_changed: true,
    }
}

fn group(place: &Place, say: impl FnOnce(&mut Body)) -> Vec<u8> {
    let mut body = Body::new(place.id("dir").0);
    body.node(&NodeFact { is_changed: false, ..node(ROOT, Kind::Directory, Some(place.id("dir"))) });
    say(&mut body);
    body.bytes
}

/// A new file with this name.
fn named(place: &Place, name: &[u8]) -> Vec<u8> {
    group(place, |body| {
        body.node(&node(NEW, Kind::Regular, None));
        body.data(NEW, 0, b"evil");
        body.name(ROOT, name, NEW, None);
    })
}

/// Goal: names and hints that lead out are damage, told with the number of their group, and the groups before are made.
#[test]
fn names_that_lead_out_are_damage() {
    let absolute = std::env::temp_dir().join(format!("bypath-hostile-absolute-{}", std::process::id()));
    let absolute = absolute.as_os_str().as_encoded_bytes();
    for name in [&b"../canary/evil"[..], b"../canary", b"..", b".", b"inner/../../canary/evil", b"a\0b", b"", absolute] {
        let place = Place::new("names");
        let before = place.outside();
        let done = place.replay(&[named(&place, b"good"), named(&place, name)]).unwrap();
        assert_eq!(done.damage.map(|damage| damage.group), Some(2), "{}", String::from_utf8_lossy(name));
        assert_eq!(place.outside(), before, "{}", String::from_utf8_lossy(name));
        assert!(place.dir().join("good").exists());
    }
    assert!(!Path::new(std::ffi::OsStr::new(std::str::from_utf8(absolute).unwrap())).exists());
    for hint in [&b"../canary"[..], b"..", b"inner/../../canary/file", b"/etc"] {
        let place = Place::new("hints");
        let before = place.outside();
        let fact = NodeFact { hint: hint.to_vec(), ..node(OLD, Kind::Regular, Some(place.id("canary/file"))) };
        let done = place.replay(&[group(&place, |body| body.node(&fact))]).unwrap();
        assert_eq!(done.damage.map(|damage| damage.group), Some(1));
        assert_eq!(place.outside(), before, "{}", String::from_utf8_lossy(hint));
    }
}

/// Goal: files outside that are known by their number, and ways to them by symlinks, are not reached.
#[test]
fn files_outside_are_not_reached() {
    let place = Place::new("numbers");
    std::os::unix::fs::symlink("../canary", place.dir().join("link")).unwrap();
    std::os::unix::fs::symlink("../canary/file", place.dir().join("to-file")).unwrap();
    let before = place.outside();
    let outside = [place.id("canary"), place.id("canary/file"), place.id("dir/link"), place.id("dir/to-file")];
    for (lower, kind) in outside.into_iter().flat_map(|id| [(id, Kind::Regular), (id, Kind::Directory), (id, Kind::Symlink)]) {
        for hint in [&b"link/file"[..], b"link", b"to-file", b""] {
            let body = group(&place, |body| {
                body.node(&NodeFact { hint: hint.to_vec(), size: 2, ..node(OLD, kind, Some(lower)) });
                body.data(OLD, 0, b"evil");
                body.node(&node(NEW, Kind::Regular, None));
                body.name(OLD, b"evil", NEW, None);
                body.name(ROOT, b"taken", OLD, Some(lower));
            });
            let _ = place.replay(&[body]);
            assert_eq!(place.outside(), before, "{kind:?} {}", String::from_utf8_lossy(hint));
            let _ = std::fs::remove_file(place.0.join("journal"));
        }
    }
}

/// Goal: a journal does not touch marker and park by name.
#[test]
fn own_names_are_refused() {
    for name in [&b".bypath-cache"[..], b".bypath-park"] {
        let place = Place::new("own");
        std::fs::write(place.dir().join(".bypath-cache"), "marker").unwrap();
        assert!(place.replay(&[named(&place, name)]).is_err());
        assert_eq!(std::fs::read(place.dir().join(".bypath-cache")).unwrap(), b"marker");
    }
}

/// Goal: in another user's directory a journal makes no file of root's with set-id bits, and what is made is that user's.
#[test]
fn set_id_bits_are_the_owners_alone() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (uid, mode) in [(0, 0o755), (12345, 0o4755)] {
        let place = Place::new("set-id");
        std::os::unix::fs::chown(place.dir(), Some(12345), Some(12345)).unwrap();
        let body = group(&place, |body| {
            body.node(&NodeFact { uid, gid: uid, ..node(NEW, Kind::Regular, None) });
            body.name(ROOT, b"program", NEW, None);
        });
        assert_eq!(place.replay(&[body]).unwrap().damage, None);
        let made = std::fs::metadata(place.dir().join("program")).unwrap();
        assert_eq!((made.uid(), made.mode() & 0o7777), (uid, mode));
    }
}

/// Goal: where groups are missing nothing is removed, and what was on its way is kept.
#[test]
fn park_is_kept_where_groups_are_missing() {
    let place = Place::new("park");
    let park = place.dir().join(crate::PARK);
    std::fs::create_dir(&park).unwrap();
    std::fs::rename(place.dir().join("file"), park.join("1.2")).unwrap();
    let done = place.replay(&[named(&place, b"good"), vec![9]]).unwrap();
    let kept = place.dir().join(done.kept.unwrap());
    assert_eq!(std::fs::read(kept.join("1.2")).unwrap(), b"below");
    assert!(!park.exists() && place.dir().join("good").exists());
    assert!(place.0.join("journal").exists());
}

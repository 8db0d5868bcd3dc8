//! A name of which the file system below says nothing but that it is there fails alone.

mod bench;

use base::{Error, Kind, NewNode, Node};
use bench::{Bench, How};
use pm::{Errno, UserSlice};
use std::collections::BTreeMap;
use vfs::backend::Backend;

/// What may be said of a file that can't be looked at, or of a text that can't be read.
const SAID: [Errno; 7] =
    [Errno::EACCES, Errno::EPERM, Errno::EIO, Errno::ESTALE, Errno::EOPNOTSUPP, Errno::EUCLEAN, Errno::EOVERFLOW];

fn listed(bench: &Bench, dir: Node) -> BTreeMap<String, Kind> {
    let mut names = BTreeMap::new();
    bench.with(|cx| {
        let each = &mut |entry: base::DirEntry| {
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            assert_eq!(names.insert(name.clone(), entry.kind), None, "{name} twice");
            true
        };
        bench.cache.readdir(cx, dir, 0, each).unwrap();
    });
    names
}

/// Goal: a directory is listed though one of its names can't be looked up and the text of another can't be read; each of
/// the two says why, all else works in there, and both are found when they can be. Method: a daemon that refuses them, by
/// each error; the names by listing; a file made beside them and written below by a round.
#[test]
fn a_name_that_is_refused_fails_alone() {
    for errno in SAID {
        let bench = Bench::new(&format!("unread-{}", errno.0), 1, How::Daemon);
        let cache = bench.cache;
        bench.by.unwrap().lower().refuse(Some(("big", "f", errno)));
        let refused = Error::Posix(errno);
        let dir = bench.with(|cx| cache.lookup(cx, cache.root(), b"0")).unwrap();
        let names = listed(&bench, dir);
        assert_eq!((names["big"], names["s"], names["f"]), (Kind::Regular, Kind::Symlink, Kind::Regular), "{errno}");
        assert_eq!(names.len(), 9, "{names:?}");
        let text = |node| {
            bench.with(|cx| {
                let mut text = [0; 16];
                cache.readlink(cx, node, UserSlice::from_mut(&mut text)).map(|len| text[..len].to_vec())
            })
        };
        bench.with(|cx| {
            assert_eq!(cache.lookup(cx, dir, b"big").err(), Some(refused));
            assert_eq!(cache.unlink(cx, dir, b"big").err(), Some(refused));
            let link = cache.lookup(cx, dir, b"s").unwrap();
            let attr = cache.attr(cx, link).unwrap();
            assert_eq!((attr.kind, attr.size), (Kind::Symlink, 1));
            assert_eq!(text(link).err(), Some(refused));
            let new = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
            let made = cache.create(cx, dir, b"beside", &new).unwrap();
            cache.write(cx, made, Some(0), &[UserSlice::from_ref(b"text")]).unwrap();
            cache.rename(cx, dir, b"s", dir, b"moved", base::RenameMode::Replace).unwrap();
        });
        bench.writer.lock().unwrap().round(true).unwrap();
        assert_eq!(std::fs::read(bench.low.join("0/beside")).unwrap(), b"text");
        assert_eq!(std::fs::read_link(bench.low.join("0/moved")).unwrap().to_str(), Some("f"));
        // Who keeps it fresh goes on, too.
        std::fs::write(bench.low.join("0/f"), "changed").unwrap();
        bench.with(|cx| {
            cache.refresh(cx, &mut || true).unwrap();
            let file = cache.lookup(cx, dir, b"f").unwrap();
            assert_eq!(cache.attr(cx, file).unwrap().size, 7);
        });
        // One that comes later, of which it is told.
        bench.by.unwrap().lower().refuse(Some(("late", "f", errno)));
        std::fs::write(bench.low.join("0/late"), "late").unwrap();
        bench.with(|cx| {
            cache.refresh_entry(cx, dir, b"late").unwrap();
            assert_eq!(cache.lookup(cx, dir, b"late").err(), Some(refused), "not that it is missing");
        });
        assert_eq!(listed(&bench, dir)["late"], Kind::Regular);
        bench.by.unwrap().lower().refuse(None);
        bench.with(|cx| {
            let big = cache.lookup(cx, dir, b"big").unwrap();
            let attr = cache.attr(cx, big).unwrap();
            assert_eq!((attr.kind, attr.size), (Kind::Regular, 300_000), "{errno}");
            assert_eq!(text(cache.lookup(cx, dir, b"moved").unwrap()).unwrap(), b"f");
        });
        assert_eq!(listed(&bench, dir).len(), 11);
        bench.let_go();
    }
}

//! What another program changes below while something is newer here, and in directories that a round makes.

mod bench;

use base::{Error, Node};
use bench::Op::*;
use bench::{Bench, How, may_run};
use cache::watch::Look;
use pm::{Errno, UserSlice};
use vfs::backend::{Backend, OpenFileTable};

impl Bench {
    /// The directory at a path of run 0.
    fn dir(&self, path: &str) -> Node {
        self.with(|cx| {
            let names = path.split('/').filter(|name| !name.is_empty());
            let top = self.cache.lookup(cx, self.cache.root(), b"0").unwrap();
            names.fold(top, |dir, name| self.cache.lookup(cx, dir, name.as_bytes()).unwrap())
        })
    }

    /// As the server does when the kernel tells it of a name.
    fn look(&self, dir: Node, name: &str) -> Look {
        self.with(|cx| self.cache.refresh_entry(cx, dir, name.as_bytes())).unwrap()
    }

    fn has(&self, dir: Node, name: &str) -> bool {
        match self.with(|cx| self.cache.lookup(cx, dir, name.as_bytes())) {
            Err(Error::Posix(Errno::ENOENT)) => false,
            found => found.is_ok(),
        }
    }

    fn reads(&self, dir: Node, name: &str) -> String {
        let mut bytes = [0; 64];
        let came = self.with(|cx| {
            let node = self.cache.lookup(cx, dir, name.as_bytes()).unwrap();
            self.cache.read(cx, node, 0, &[UserSlice::from_mut(&mut bytes)]).unwrap()
        });
        String::from_utf8_lossy(&bytes[..came]).into_owned()
    }

    fn here(&self, op: bench::Op) {
        self.with(|cx| self.by_cache(cx, 0, op)).unwrap();
    }

    fn round(&self) {
        self.writer.lock().unwrap().round(false).unwrap();
    }
}

/// Goal: what another program does to names that the session has not touched is seen at once, also in a directory of which other
/// names are newer here. Method: names are made here in two directories; below a file moves from one to the other, another is
/// removed, one made. No round comes between.
#[test]
fn names_of_others_are_seen_beside_newer_ones() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-beside", 1, How::Directory);
    bench.warm();
    let (top, empty, low) = (bench.dir(""), bench.dir("empty"), bench.low.join("0"));
    bench.here(Create("new"));
    bench.here(Create("empty/new"));
    std::fs::rename(low.join("f"), low.join("empty/moved")).unwrap();
    std::fs::remove_file(low.join("big")).unwrap();
    std::fs::write(low.join("made"), "by another").unwrap();
    for (dir, name) in [(top, "f"), (empty, "moved"), (top, "big"), (top, "made")] {
        assert_eq!(bench.look(dir, name), Look::Done, "{name}");
    }
    assert!(!bench.has(top, "f") && !bench.has(top, "big"));
    assert_eq!((bench.reads(empty, "moved"), bench.reads(top, "made")), ("hello".into(), "by another".into()));
    let there = bench.drained(0, "beside newer names");
    assert!(there.contains_key("/new") && there.contains_key("/empty/moved") && !there.contains_key("/f"));
    bench.end();
}

/// Goal: a name that the session has changed, and a file that it has written, are left to the round, and looked at again when
/// that is over. Method: a name removed here, which is below yet; one made; a file that both have written to.
#[test]
fn what_is_newer_here_waits_for_its_round() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-waits", 1, How::Directory);
    bench.warm();
    let (top, low) = (bench.dir(""), bench.low.join("0"));
    bench.here(Unlink("big"));
    bench.here(Create("new"));
    bench.here(Write("f", 0, 1));
    std::fs::write(low.join("f"), "hello and more").unwrap();
    let names = ["big", "new", "f"];
    for name in names {
        assert_eq!(bench.look(top, name), Look::Later, "{name}");
    }
    assert!(!bench.has(top, "big") && bench.has(top, "new"));
    let before = bench.cache.news();
    bench.round();
    assert_ne!(bench.cache.news().rounds, before.rounds, "a round is over");
    for name in names {
        assert_eq!(bench.look(top, name), Look::Done, "{name}");
    }
    assert!(!bench.has(top, "big") && bench.has(top, "new"));
    assert_eq!(bench.reads(top, "f"), std::fs::read_to_string(low.join("f")).unwrap());
    bench.end();
}

/// Goal: a directory that was made here is known to the server as soon as a round has made it below, and what another program has
/// done in it until then is seen. Method: a name is made in it below just before the round notes what the directory is like, and
/// another one after.
#[test]
fn a_directory_that_a_round_makes_is_watched_and_compared() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-made", 1, How::Directory);
    let low = bench.low.join("0");
    bench.here(Mkdir("n"));
    bench.here(Create("n/own"));
    let (made, before) = (bench.dir("n"), bench.cache.news());
    assert!(bench.with(|cx| bench.cache.open_below(cx, made).is_err()), "there is nothing to be watched yet");
    let mut hook = |step: &str| {
        if step == "stamps" {
            std::fs::write(low.join("n/during"), "a").unwrap();
        }
        Ok(())
    };
    bench.writer.lock().unwrap().round_with(false, &mut hook).unwrap();
    assert_ne!(bench.cache.news().made, before.made);
    assert!(bench.with(|cx| bench.cache.open_below(cx, made).is_ok()));
    std::fs::write(low.join("n/after"), "b").unwrap();
    assert_eq!(bench.with(|cx| bench.cache.refresh_one(cx, made)), Ok(Look::Done));
    assert_eq!((bench.reads(made, "during"), bench.reads(made, "after")), ("a".into(), "b".into()));
    bench.drained(0, "in a new directory");
    bench.end();
}

/// Goal: where there are no events (another machine's changes), a look over all finds what came to a directory while a round
/// changed it. Method: a name is made below between the round's last call in the directory and its stamp.
#[test]
fn a_round_hides_no_name_from_a_look_over_all() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-hides", 1, How::Directory);
    bench.warm();
    let (empty, low) = (bench.dir("empty"), bench.low.join("0"));
    bench.here(Create("empty/new"));
    let mut hook = |step: &str| {
        if step == "times" && !low.join("empty/theirs").exists() {
            std::fs::write(low.join("empty/theirs"), "").unwrap();
        }
        if step == "stamps" {
            // Longer than a tick of the clock.
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        Ok(())
    };
    bench.writer.lock().unwrap().round_with(false, &mut hook).unwrap();
    bench.with(|cx| bench.cache.refresh(cx, &mut || true)).unwrap();
    assert!(bench.has(empty, "theirs"));
    bench.drained(0, "hides no name");
    bench.end();
}

/// Goal: a directory that another program has removed and a round has made again is another one to the server: the path leads to
/// it when the round is over. Method: as it says.
#[test]
fn a_directory_that_is_made_again_is_news() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-again", 1, How::Directory);
    bench.here(Mkdir("n"));
    bench.round();
    let (first, before) = (bench.dir("n"), bench.cache.news());
    bench.here(Rmdir("n"));
    bench.here(Mkdir("n"));
    bench.round();
    let second = bench.dir("n");
    assert_ne!(first.id, second.id);
    assert_ne!(bench.cache.news().made, before.made);
    assert!(bench.with(|cx| bench.cache.open_below(cx, second).is_ok()));
    bench.end();
}

/// Goal: a directory that another program moves is the same one here, so that what a program appends to a file that it has open in it
/// is not lost: between the cuts of a journal at once, and when the round is over that is under way. Method: nodes are compared.
#[test]
fn who_has_a_file_open_keeps_it_where_others_move_its_directory() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-moved", 1, How::Journal);
    bench.warm();
    let (top, low) = (bench.dir(""), bench.low.join("0"));
    let deep = bench.dir("d/e/deep");
    let append =
        |text: &str| bench.with(|cx| bench.cache.write(cx, deep, None, &[UserSlice::from_ref(text.as_bytes())])).unwrap();
    bench.here(Append("f", 9));
    assert!(bench.committer.as_ref().unwrap().lock().unwrap().commit().unwrap());
    std::fs::rename(low.join("d"), low.join("moved")).unwrap();
    assert_eq!(bench.look(top, "d"), Look::Done);
    assert!(!bench.has(top, "d") && bench.dir("moved/e/deep") == deep);
    append("between cuts");
    bench.round();

    bench.here(Append("f", 9));
    let mut is_moved = false;
    let mut hook = |step: &str| {
        if step == "contents" && !is_moved {
            is_moved = true;
            std::fs::rename(low.join("moved"), low.join("again")).unwrap();
            assert_ne!(bench.look(top, "moved"), Look::Done);
            assert_eq!(bench.dir("moved/e/deep"), deep);
        }
        Ok(())
    };
    let _ = bench.writer.lock().unwrap().round_with(false, &mut hook);
    assert!(is_moved);
    assert_eq!(bench.look(top, "moved"), Look::Done);
    assert_eq!(bench.dir("again/e/deep"), deep);
    append(" and after");
    bench.drained(0, "moved directories");
    assert!(std::fs::read_to_string(low.join("again/e/deep")).unwrap().ends_with("between cuts and after"));
    bench.end();
}

/// Goal: a directory that another program moves, of which nobody was notified, is the same one here, though names in it have changed
/// meanwhile; one that was made at the new name is not. Method: the names are only looked at.
#[test]
fn a_moved_directory_is_known_by_when_it_was_made() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-born", 1, How::Directory);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    bench.warm();
    let (top, low) = (bench.dir(""), bench.low.join("0"));
    let [d, empty] = [bench.dir("d"), bench.dir("empty")];
    // As after a change that was seen later than it was made.
    std::fs::write(low.join("empty/by another"), "").unwrap();
    assert_eq!(bench.with(|cx| bench.cache.refresh_one(cx, empty)), Ok(Look::Done));
    std::fs::write(low.join("d/by another"), "").unwrap();
    std::fs::rename(low.join("d"), low.join("moved")).unwrap();
    std::fs::remove_dir_all(low.join("empty")).unwrap();
    std::fs::create_dir(low.join("made")).unwrap();
    for name in ["d", "empty", "moved", "made"] {
        assert_eq!(bench.look(top, name), Look::Done, "{name}");
    }
    assert!(!bench.has(top, "d") && !bench.has(top, "empty"));
    assert_eq!(bench.dir("moved"), d);
    assert_ne!(bench.dir("made"), empty);
    assert_eq!(bench.with(|cx| bench.cache.refresh_one(cx, d)), Ok(Look::Done));
    assert!(bench.has(d, "by another"));
    bench.end();
}

/// Goal: a file that is open loses a name that another program removes, though it has another one beside.
#[test]
fn an_open_file_loses_one_of_its_names() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-names", 1, How::Directory);
    bench.warm();
    let (top, low) = (bench.dir(""), bench.low.join("0"));
    let hard = bench.dir("hard1");
    assert_eq!(bench.dir("hard2"), hard);
    bench.with(|cx| bench.cache.open(cx, hard, 1, 5)).unwrap();
    std::fs::remove_file(low.join("hard1")).unwrap();
    assert_eq!(bench.look(top, "hard1"), Look::Done);
    assert!(!bench.has(top, "hard1"));
    assert_eq!(bench.dir("hard2"), hard);
    bench.end();
}

/// Goal: a directory that another program moves stays the one that programs have files open in, though it was brought by its new name
/// before it was known to be the same.
#[test]
fn of_two_that_are_one_below_the_open_one_stays() {
    if !may_run() {
        return;
    }
    let bench = Bench::new("fresh-twin", 1, How::Directory);
    bench.warm();
    let (top, low) = (bench.dir(""), bench.low.join("0"));
    let [d, deep] = [bench.dir("d"), bench.dir("d/e/deep")];
    bench.with(|cx| bench.cache.open(cx, deep, 1, 5)).unwrap();
    std::fs::rename(low.join("d"), low.join("moved")).unwrap();
    assert_eq!(bench.look(top, "moved"), Look::Done);
    assert_ne!(bench.dir("moved"), d);
    assert_eq!(bench.look(top, "d"), Look::Done);
    assert_eq!((bench.dir("moved"), bench.dir("moved/e/deep")), (d, deep));
    bench.end();
}

//! What a descriptor means when the file below is replaced, removed or written by another program.

mod bench;

use base::{Cred, Cx, Node, Thread};
use bench::cache_of;
use bypath_cache::watch::Look;
use bypath_cache::{Cache, Changes};
use pm::{Errno, UserSlice};
use std::path::{Path, PathBuf};
use vfs::backend::{Backend, OpenFileTable};

/// The number under which a file is open.
const FD: u32 = 7;
/// `O_RDONLY`.
const READ: u32 = 0;
/// More bytes than are brought as a file is opened.
const LARGE: usize = 200_000;

struct Bench {
    top: PathBuf,
    low: PathBuf,
    cache: &'static Cache,
    thread: Thread,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let top = PathBuf::from(format!("/dev/shm/bypath-open-{name}-{}", std::process::id()));
        let low = top.join("low");
        std::fs::create_dir_all(&low).unwrap();
        std::fs::write(low.join("f"), "first").unwrap();
        let cache = cache_of(&top, &low, Changes::Image);
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        cache.readdir(&cx, cache.root(), 0, &mut |_| true).unwrap();
        Bench { top, low, cache, thread }
    }

    fn cx(&self) -> Cx<'_> {
        Cx { cred: Cred::ROOT, umask: 0, thread: &self.thread }
    }

    fn find(&self) -> Result<Node, base::Error> {
        self.cache.lookup(&self.cx(), self.cache.root(), b"f")
    }

    fn read(&self, node: Node) -> Result<String, Errno> {
        let mut bytes = [0; 64];
        let came = self.cache.read(&self.cx(), node, 0, &[UserSlice::from_mut(&mut bytes)]).map_err(|error| error.errno())?;
        Ok(String::from_utf8_lossy(&bytes[..came]).into_owned())
    }

    /// As another program does.
    fn replace(&self, text: &str) {
        put(&self.low, text);
    }

    fn look(&self) {
        assert_eq!(self.cache.refresh_entry(&self.cx(), self.cache.root(), b"f"), Ok(Look::Done));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.cache.give_lane_back(&self.thread);
        let _ = std::fs::remove_dir_all(&self.top);
    }
}

fn put(low: &Path, text: &str) {
    std::fs::write(low.join("next"), text).unwrap();
    std::fs::rename(low.join("next"), low.join("f")).unwrap();
}

/// Goal: no byte of a file is read through a descriptor of the file that it has replaced. Method: a file of which nothing has
/// been read is open while it is replaced; once with and once without a look of the server in between. A small file can be read
/// all the same.
#[test]
fn an_open_file_stays_the_one_that_was_opened() {
    for (is_looked_at, len) in [(false, 5), (true, 5), (false, LARGE), (true, LARGE)] {
        let bench = Bench::new(&format!("stays-{is_looked_at}-{len}"));
        bench.replace(&"first".repeat(len / 5));
        bench.look();
        let node = bench.find().unwrap();
        bench.cache.open(&bench.cx(), node, READ, FD).unwrap();
        bench.replace("the second one");
        if is_looked_at {
            bench.look();
        }
        let wanted = if len < LARGE { Ok("first") } else { Err(Errno::ESTALE) };
        assert_eq!(bench.read(node).as_deref(), wanted.as_ref().copied(), "looked at: {is_looked_at}, {len}");
        assert_eq!(bench.cache.attr(&bench.cx(), node).unwrap().size, len as u64);
        bench.cache.close(&bench.cx(), FD);
        bench.look();
        let node = bench.find().unwrap();
        assert_eq!(bench.read(node).as_deref(), Ok("the second one"));
    }
}

/// Goal: what has been read of a file is read again by its descriptor, whatever has its name.
#[test]
fn what_is_here_of_an_open_file_is_read() {
    let bench = Bench::new("here");
    let node = bench.find().unwrap();
    bench.cache.open(&bench.cx(), node, READ, FD).unwrap();
    assert_eq!(bench.read(node).as_deref(), Ok("first"));
    bench.replace("the second one");
    bench.look();
    assert_eq!(bench.read(node).as_deref(), Ok("first"));
    let other = bench.find().unwrap();
    assert_ne!(other, node);
    assert_eq!(bench.read(other).as_deref(), Ok("the second one"));
    bench.cache.close(&bench.cx(), FD);
}

/// Goal: a file that was replaced, rewritten or removed below a moment ago is opened as what it is now, before the server has
/// looked. Method: nothing of it has been read; it is opened, and looked up again where the open says so.
#[test]
fn a_file_is_opened_as_it_is_below() {
    let changes: [Case; 4] = [
        ("replaced", |low| put(low, "the second one"), Ok("the second one")),
        ("rewritten", |low| std::fs::write(low.join("f"), "written in place").unwrap(), Ok("written in place")),
        ("replaced by one with two names", linked, Ok("of two names")),
        ("removed", |low| std::fs::remove_file(low.join("f")).unwrap(), Err(Errno::ENOENT)),
    ];
    for (what, change, wanted) in changes {
        let bench = Bench::new(&what.replace(' ', "-"));
        let node = bench.find().unwrap();
        change(&bench.low);
        let opened = match bench.cache.open(&bench.cx(), node, READ, FD) {
            Ok(_) => Ok(node),
            Err(error) => {
                assert_eq!(error, Errno::ESTALE.into(), "{what}");
                let again = bench.find();
                again.inspect(|node| assert!(bench.cache.open(&bench.cx(), *node, READ, FD).is_ok()))
            }
        };
        let got = opened.map_err(|error| error.errno()).and_then(|node| bench.read(node));
        assert_eq!(got.as_deref(), wanted.as_ref().copied(), "{what}");
        bench.cache.close(&bench.cx(), FD);
    }
}

/// What another program does to the file, and what is read of it then.
type Case = (&'static str, fn(&Path), Result<&'static str, Errno>);

fn linked(low: &Path) {
    std::fs::write(low.join("one"), "of two names").unwrap();
    std::fs::hard_link(low.join("one"), low.join("two")).unwrap();
    std::fs::rename(low.join("two"), low.join("f")).unwrap();
}

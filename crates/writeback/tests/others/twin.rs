//! A tree by the kernel in which one side works alone, and what it looks like then: files go by labels, which a file that
//! the tree began with has in every twin.

use super::operations::{self, Edit, OTHER, Theirs};
use crate::bench::{How, Op, by_kernel, plant};
use rustix::fs as r;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// When files were last changed before all of it, seconds.
pub const LONG_AGO: i64 = 1_000_000_000;
/// Later than any time that an operation sets.
pub const LATELY: i64 = 1_500_000_000;

/// The directory at the top of a tree.
pub const TOP: &str = "/";

/// A name of a directory: the label of that, and the name.
pub type Key = (String, String);

/// What there is to be seen of a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Thing {
    pub is_directory: bool,
    pub kind: u32,
    pub mode: u32,
    /// Contents, or the text of a symlink.
    pub bytes: Vec<u8>,
    /// Values of `user.note` and `user.other`.
    pub notes: [Vec<u8>; 2],
    /// Seconds.
    pub mtime: i64,
}

impl std::fmt::Debug for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let theirs = self.bytes.iter().filter(|byte| **byte > 250).count();
        let notes = self.notes.each_ref().map(|note| String::from_utf8_lossy(note).into_owned());
        write!(f, "{:o} {:o} {} bytes ({theirs} theirs) {notes:?} {}", self.kind, self.mode, self.bytes.len(), self.mtime)
    }
}

/// A tree at one moment.
#[derive(Clone, Default)]
pub struct Snap {
    pub names: BTreeMap<Key, String>,
    pub things: BTreeMap<String, Thing>,
}

impl Snap {
    /// Names that lead to a file.
    pub fn names_of<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Key> {
        self.names.iter().filter(move |(_, to)| *to == label).map(|(key, _)| key)
    }

    /// All paths, and what is there.
    pub fn paths(&self) -> BTreeMap<String, Thing> {
        let mut all = BTreeMap::new();
        let mut todo = vec![(TOP.to_owned(), String::new())];
        while let Some((dir, path)) = todo.pop() {
            for ((_, name), label) in self.names.range((dir.clone(), String::new())..).take_while(|((at, _), _)| *at == dir) {
                let path = format!("{path}/{name}");
                if self.things[label].is_directory {
                    todo.push((label.clone(), path.clone()));
                }
                all.insert(path, self.things[label].clone());
            }
        }
        all
    }
}

fn c(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// The tree that the explorer begins with.
fn plant_old(at: &Path) {
    plant(at, How::Directory);
    age(at);
}

/// Makes files old, and gives one an attribute.
pub fn age(at: &Path) {
    r::setxattr(c(&at.join("f")), OTHER, b"old", r::XattrFlags::empty()).unwrap();
    for name in ["f", "big", "d/e/deep", "hard1"] {
        let time = r::Timespec { tv_sec: LONG_AGO, tv_nsec: 0 };
        r::utimensat(
            r::CWD,
            c(&at.join(name)),
            &r::Timestamps { last_access: time, last_modification: time },
            r::AtFlags::empty(),
        )
        .unwrap();
    }
}

fn thing(path: &Path, meta: &std::fs::Metadata) -> Thing {
    let kind = meta.mode() >> 12;
    let bytes = match meta.file_type() {
        kind if kind.is_file() => std::fs::read(path).unwrap_or_default(),
        kind if kind.is_symlink() => std::fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
        _ => Vec::new(),
    };
    let note = |name: &std::ffi::CStr| {
        let mut value = [0; 64];
        let len = r::lgetxattr(c(path), name, &mut value[..]).unwrap_or(0);
        value[..len].to_vec()
    };
    let notes = [note(c"user.note"), note(OTHER)];
    Thing { is_directory: meta.is_dir(), kind, mode: meta.mode() & 0o7777, bytes, notes, mtime: meta.mtime() }
}

/// All that is below a directory. `label` says how a file goes that has this number, and was first met at this path.
fn snap(top: &Path, label: &mut dyn FnMut(u64, &str) -> String) -> Snap {
    let mut snap = Snap::default();
    let mut todo = vec![(top.to_owned(), String::new(), TOP.to_owned())];
    while let Some((at, path, dir)) = todo.pop() {
        let entries: BTreeSet<_> = std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        for name in entries {
            let (at, name) = (at.join(&name), name.to_string_lossy().into_owned());
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            let meta = std::fs::symlink_metadata(&at).unwrap();
            let label = label(meta.ino(), &path);
            if meta.is_dir() {
                todo.push((at.clone(), path, label.clone()));
            }
            snap.names.insert((dir.clone(), name), label.clone());
            snap.things.insert(label, thing(&at, &meta));
        }
    }
    snap
}

/// Paths of a tree and what is there.
pub fn paths_of(top: &Path) -> BTreeMap<String, Thing> {
    // Each path is a file of its own here: links are compared elsewhere.
    snap(top, &mut |_, path| format!("/{path}")).paths()
}

/// A tree in which something is tried.
pub struct Twin {
    pub top: PathBuf,
    labels: HashMap<u64, String>,
    /// What was done to the bytes of each file, by one side.
    pub edits: HashMap<String, Vec<Edit>>,
}

impl Twin {
    pub fn new(top: PathBuf) -> Twin {
        let _ = std::fs::remove_dir_all(&top);
        plant_old(&top);
        let mut twin = Twin { top, labels: HashMap::new(), edits: HashMap::new() };
        twin.snap("base");
        twin
    }

    /// What it looks like; files not seen before are called after `side`.
    pub fn snap(&mut self, side: &str) -> Snap {
        let labels = &mut self.labels;
        snap(&self.top, &mut |number, path| labels.entry(number).or_insert_with(|| format!("{side}:{path}")).clone())
    }

    fn edited(&mut self, side: &str, edit: Option<(&'static str, Edit)>) {
        if let Some((path, edit)) = edit
            && let Ok(meta) = std::fs::symlink_metadata(self.top.join(path))
        {
            let label = self.labels.entry(meta.ino()).or_insert_with(|| format!("{side}:{path}")).clone();
            self.edits.entry(label).or_default().push(edit);
        }
    }

    /// By the session alone.
    pub fn ours(&mut self, op: Op) -> bool {
        let done = by_kernel(&self.top, op);
        if done {
            self.edited("ours", operations::our_edit(op));
        }
        done
    }

    /// By another program alone.
    pub fn theirs(&mut self, op: Theirs) -> bool {
        let done = operations::act(&self.top, op);
        if done {
            self.edited("theirs", operations::their_edit(op));
        }
        done
    }
}

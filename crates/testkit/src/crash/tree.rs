//! A tree as a user sees it, but for access times and inode numbers.

use super::model::hash_of_bytes;
use base::{Cx, Kind, Node};
use engine::Fs;
use pm::UserSlice;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

/// A name and what it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Path from the root, without a leading slash.
    pub path: Vec<u8>,
    /// Its type, as `DT_*`.
    pub kind: u8,
    /// Mode, and in bit 16 whether it is frozen; owner, group, links, size.
    pub words: [u64; 5],
    /// When contents and when inode were changed last, nanoseconds.
    pub times: [i64; 2],
    /// Number of the first entry with the same inode.
    pub same: usize,
    /// Contents or target.
    pub data: Vec<u8>,
    /// Extended attributes: name, NUL, value.
    pub xattrs: Vec<Vec<u8>>,
}

/// A whole tree, in the order of names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree(pub Vec<Entry>);

impl Hash for Tree {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for entry in &self.0 {
            let Entry { path, kind, words, times, same, data, xattrs } = entry;
            (hash_of_bytes(path), kind, words, times, same, hash_of_bytes(data)).hash(hasher);
            xattrs.iter().for_each(|xattr| hash_of_bytes(xattr).hash(hasher));
        }
        self.0.len().hash(hasher);
    }
}

/// Longest file that is read.
const BYTES_MAX: u64 = 1 << 20;
const DEPTH_MAX: usize = 8;

struct Reader<'a> {
    fs: &'a Fs,
    cx: Cx<'a>,
    entries: Vec<Entry>,
    inodes: Vec<u64>,
}

impl Tree {
    /// Reads the tree.
    ///
    /// # Errors
    /// What could not be read.
    pub fn read(fs: &Fs, cx: &Cx) -> Result<Tree, String> {
        let mut reader = Reader { fs, cx: *cx, entries: Vec::new(), inodes: Vec::new() };
        reader.entry(fs.root_node(), Vec::new(), Kind::Directory)?;
        reader.directory(fs.root_node(), &[], 0)?;
        Ok(Tree(reader.entries))
    }

    /// The same, without times unless it is `timed`.
    pub fn kept(mut self, timed: bool) -> Tree {
        self.0.iter_mut().filter(|_| !timed).for_each(|entry| entry.times = [0; 2]);
        self
    }

    /// Where two trees differ.
    pub fn difference(&self, other: &Tree) -> String {
        let mut text = String::new();
        let shown = |path: &[u8]| format!("/{}", path.escape_ascii());
        for entry in &self.0 {
            match other.0.iter().find(|o| o.path == entry.path) {
                None => _ = write!(text, "{} is not there; ", shown(&entry.path)),
                Some(o) if o == entry => {}
                Some(o) => {
                    let at = entry.data.iter().zip(&o.data).position(|(a, b)| a != b);
                    _ = write!(
                        text,
                        "{}: kind {} mode,uid,gid,links,size {:?} times {:?} is {} {:?} {:?}; same {} {}; data differ at {at:?}; xattrs {} {}; ",
                        shown(&entry.path),
                        entry.kind,
                        entry.words,
                        entry.times,
                        o.kind,
                        o.words,
                        o.times,
                        entry.same,
                        o.same,
                        entry.xattrs.len(),
                        o.xattrs.len()
                    );
                }
            }
        }
        for o in other.0.iter().filter(|o| !self.0.iter().any(|e| e.path == o.path)) {
            _ = write!(text, "{} is there; ", shown(&o.path));
        }
        text
    }
}

impl Reader<'_> {
    fn directory(&mut self, dir: Node, path: &[u8], depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err("too deep".into());
        }
        let mut names = Vec::new();
        let read = self.fs.readdir(&self.cx, dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.kind, entry.ino));
            }
            names.len() < 1000
        });
        read.map_err(|error| format!("readdir /{}: {error:?}", path.escape_ascii()))?;
        names.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, kind, ino) in names {
            let mut path = path.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let shown = || format!("/{}", path.escape_ascii());
            let node = self.fs.lookup(&self.cx, dir, &name).map_err(|error| format!("lookup {}: {error:?}", shown()))?;
            let attr = self.entry(node, path.clone(), kind)?;
            if attr.ino != ino || attr.kind != kind {
                return Err(format!("{}: readdir and stat differ", shown()));
            }
            if kind == Kind::Directory {
                self.directory(node, &path, depth + 1)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, node: Node, path: Vec<u8>, kind: Kind) -> Result<base::Attr, String> {
        let failed = |what: &str, error: base::Error| format!("{what} /{}: {error:?}", path.escape_ascii());
        let attr = self.fs.attr(&self.cx, node).map_err(|error| failed("stat", error))?;
        let same = match self.inodes.iter().position(|ino| *ino == attr.ino) {
            Some(first) => first,
            None => self.inodes.len(),
        };
        self.inodes.push(attr.ino);
        let mut data = Vec::new();
        if kind == Kind::Regular {
            data = vec![0xee; attr.size.min(BYTES_MAX) as usize];
            let len =
                self.fs.read(&self.cx, node, 0, &[UserSlice::from_mut(&mut data)]).map_err(|error| failed("read", error))?;
            data.truncate(len);
        } else if kind == Kind::Symlink {
            data = vec![0; 4096];
            let len =
                self.fs.readlink(&self.cx, node, UserSlice::from_mut(&mut data)).map_err(|error| failed("readlink", error))?;
            data.truncate(len);
        }
        let xattrs = self.xattrs(node).map_err(|error| failed("xattrs", error))?;
        let frozen = self.fs.is_frozen(node).map_err(|error| failed("freezing of", error))?;
        let words = [
            u64::from(attr.mode) | u64::from(frozen) << 16,
            u64::from(attr.uid),
            u64::from(attr.gid),
            u64::from(attr.nlink),
            attr.size,
        ];
        let times = [attr.mtime, attr.ctime];
        self.entries.push(Entry { path, kind: kind as u8, words, times, same, data, xattrs });
        Ok(attr)
    }

    fn xattrs(&self, node: Node) -> Result<Vec<Vec<u8>>, base::Error> {
        let mut names = [0u8; 1024];
        let len = self.fs.list_xattr(&self.cx, node, UserSlice::from_mut(&mut names))?;
        let mut found = Vec::new();
        for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 8192];
            let len = self.fs.get_xattr(&self.cx, node, name, UserSlice::from_mut(&mut value))?;
            value.truncate(len);
            found.push([name, b"\0", &value].concat());
        }
        found.sort();
        Ok(found)
    }
}

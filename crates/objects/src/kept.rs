//! `posix`: mode, owner, time of change and symlinks in the metadata of objects, as s3fs and others write them.
//!
//! ```text
//! x-amz-meta-mode    st_mode, decimal, with the type: 33188, or 41471 for a symlink, whose target the object's bytes are
//! x-amz-meta-uid     decimal, and so -gid
//! x-amz-meta-mtime   seconds since 1970, with a fraction if there is one
//! ```
//! A listing tells nothing of them: each object is asked once for each of its versions. They go with an upload; where they
//! are changed alone, the file is uploaded again.

use crate::nodes::{Node, Set, lock};
use crate::store::{Meta, Store};
use crate::tree::Tree;
use pm::Errno;
use std::collections::HashMap;
use std::sync::Arc;

const SECOND: i64 = 1_000_000_000;
const S_IFMT: u32 = 0o170000;
const S_IFREG: u32 = 0o100000;
const S_IFLNK: u32 = 0o120000;
/// Longest text of a symlink.
const TARGET_MAX: usize = 4096;

/// Metadata of an object.
pub type Kept = HashMap<String, String>;

/// What metadata says.
pub fn read<'m>(all: impl Iterator<Item = (&'m str, &'m str)>) -> Set {
    let mut set = Set::default();
    for (name, value) in all {
        match name {
            "mode" => {
                let mode = value.parse::<u32>().ok();
                set.mode = mode.map(|mode| mode & 0o7777);
                set.is_link = mode.is_some_and(|mode| mode & S_IFMT == S_IFLNK);
            }
            "uid" => set.uid = value.parse().ok(),
            "gid" => set.gid = value.parse().ok(),
            "mtime" => set.mtime = time(value),
            _ => {}
        }
    }
    set
}

fn time(text: &str) -> Option<i64> {
    let (seconds, parts) = text.split_once('.').unwrap_or((text, ""));
    if !parts.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let parts: i64 = format!("{parts:0<9}").get(..9)?.parse().ok()?;
    seconds.parse::<i64>().ok()?.checked_mul(SECOND)?.checked_add(parts)
}

fn written(set: &Set, mtime: i64) -> Kept {
    let mode = match set.is_link {
        true => S_IFLNK | 0o777,
        false => S_IFREG | set.mode.unwrap_or(crate::requests::FILE_MODE),
    };
    let (seconds, parts) = (mtime.div_euclid(SECOND), mtime.rem_euclid(SECOND));
    let mtime = if parts == 0 { seconds.to_string() } else { format!("{seconds}.{parts:09}") };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let texts = [mode.to_string(), set.uid.unwrap_or(uid).to_string(), set.gid.unwrap_or(gid).to_string(), mtime];
    ["mode", "uid", "gid", "mtime"].map(str::to_string).into_iter().zip(texts).collect()
}

impl Tree {
    /// Asks for what an object's metadata says, unless it is known of this version.
    pub fn learn(&self, path: &str, meta: &Meta) -> Result<(), Errno> {
        if !self.is_posix || meta.is_dir || lock(&self.table).knows(path, meta) {
            return Ok(());
        }
        let (found, set) = self.store.kept(path)?;
        lock(&self.table).learn(path, found, set);
        Ok(())
    }

    /// The same of many, several at a time. Who goes meanwhile is not there.
    pub fn learn_all(&self, all: Vec<(String, Meta)>) -> Result<(), Errno> {
        if !self.is_posix {
            return Ok(());
        }
        let unknown: Vec<String> = {
            let table = lock(&self.table);
            let is_unknown = |(path, meta): &(String, Meta)| !meta.is_dir && !table.knows(path, meta);
            all.into_iter().filter(is_unknown).map(|(path, _)| path).collect()
        };
        for (path, found, set) in self.store.kept_of_all(unknown)? {
            lock(&self.table).learn(&path, found, set);
        }
        Ok(())
    }

    /// What is to be sent with a file's bytes.
    pub fn kept_of(&self, node: &Node, path: &str) -> Option<Kept> {
        self.is_posix.then(|| {
            let set = lock(&self.table).set_of(path);
            let mtime = set.mtime.unwrap_or(lock(&node.place).meta.mtime);
            written(&set, mtime)
        })
    }

    /// A program has set attributes of a file: they go to the store, with its bytes.
    pub fn keep(&self, node: &Arc<Node>) -> Result<(), Errno> {
        if !self.is_posix || node.is_dir {
            return Ok(());
        }
        let mut contents = lock(&node.contents);
        contents.load(self.store, &self.spool, node, u64::MAX)?;
        contents.is_dirty = true;
        lock(&node.place).is_local = true;
        self.changed_alone(node, contents)
    }

    /// A symlink: an object that holds its target.
    pub fn symlink(&self, directory: &Node, name: &[u8], target: &[u8]) -> Result<Arc<Node>, Errno> {
        if !self.is_posix {
            return Err(Errno::EPERM);
        }
        let set = Set { mode: Some(0o777), is_link: true, ..Set::default() };
        let node = self.create(directory, name, set)?;
        let written = lock(&node.contents).write(self.store, &self.spool, &node, 0, target);
        let stored = written.and_then(|()| self.closed(&node));
        self.release(&node);
        stored.map(|()| node)
    }

    /// Where a symlink leads.
    pub fn read_link(&self, node: &Node) -> Result<Vec<u8>, Errno> {
        if !node.is_link {
            return Err(Errno::EINVAL);
        }
        let mut target = vec![0; TARGET_MAX];
        let len = lock(&node.contents).read(self.store, node, 0, &mut target)?;
        target.truncate(len);
        Ok(target)
    }
}

/// Whether a store has room for metadata; said before anything is mounted.
pub fn check(store: &Store) -> Result<(), String> {
    if store.keeps_metadata() { Ok(()) } else { Err("posix: this store keeps no metadata with an object".to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is written is read again, what others write is understood, and nonsense says nothing.
    #[test]
    fn metadata() {
        let set = Set { mode: Some(0o4751), uid: Some(3), gid: Some(4), ..Set::default() };
        let kept = written(&set, -1);
        assert_eq!((kept["mode"].as_str(), kept["mtime"].as_str()), ("35305", "-1.999999999"));
        let back = read(kept.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        assert_eq!((back.mode, back.uid, back.gid, back.mtime), (set.mode, set.uid, set.gid, Some(-1)));
        let link = written(&Set { is_link: true, ..Set::default() }, SECOND);
        assert_eq!((link["mode"].as_str(), link["mtime"].as_str()), ("41471", "1"));
        assert!(read([("mode", "41471")].into_iter()).is_link);
        assert_eq!(read([("mtime", "1354040105.25")].into_iter()).mtime, Some(1_354_040_105_250_000_000));
        for wrong in ["", "x", "1.x", "99999999999999999999"] {
            assert_eq!(read([("mtime", wrong)].into_iter()).mtime, None, "{wrong}");
        }
    }
}

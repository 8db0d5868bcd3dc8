//! What a round could not write is noted in the image, for those who wait for it and for people.

use crate::plan::{if_there, image};
use crate::{Failure, Result};
use base::{Cx, Kind, NewNode, RenameMode};
use cache::Cache;
use cache::failures::{Failed, HEAD, NAME};
use pm::{Errno, UserSlice};

/// Name of a list that is to take the place of the one that is there.
const NEXT: &[u8] = b"failed+";
/// Longest list; what does not fit in it fails for everybody.
const LEN_MAX: usize = 256 << 10;

/// A name or file that could not be written, and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// Which, and why.
    pub failed: Failed,
    /// Its path in the directory below.
    pub path: Vec<u8>,
}

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = std::io::Error::from_raw_os_error(self.failed.errno.0).to_string();
        let why = why.split(" (os error").next().unwrap_or_default().to_lowercase();
        write!(f, "{}: {why}; {}", String::from_utf8_lossy(&self.path), self.advice())
    }
}

impl Unwritten {
    /// What to do.
    fn advice(&self) -> &'static str {
        match self.failed.errno {
            Errno::ENOSPC => "make room in the file system of the directory",
            Errno::EDQUOT => "raise the quota",
            Errno::EACCES | Errno::EPERM => "permit the change, or skip it",
            Errno::EROFS => "make the file system writable, or skip it",
            Errno::ESTALE => "it was removed or changed below, and a part of it is not in the cache: skip it",
            Errno::EBUSY => "end the program that uses it, then try again",
            _ => "mend that, or skip it",
        }
    }
}

/// Notes what a round could not write; nothing: what an earlier one has noted goes.
pub fn note(cache: &Cache, cx: &Cx, all: &[Unwritten]) -> Result<()> {
    let fs = cache.fs();
    if all.is_empty() {
        return if_there(fs.unlink(cx, cache.touched(), NAME)).map(drop);
    }
    let mut bytes = Vec::new();
    for one in all {
        if bytes.len() > LEN_MAX {
            let rest = Failed { dir: 0, node: 0, ..one.failed };
            bytes.extend_from_slice(&rest.head(4));
            bytes.extend_from_slice(b"more");
            break;
        }
        bytes.extend_from_slice(&one.failed.head(one.path.len() as u32));
        bytes.extend_from_slice(&one.path);
    }
    let replaced = replace(cache, cx, &bytes);
    if replaced.is_err() {
        // An older one would say that the rest is well.
        if_there(fs.unlink(cx, cache.touched(), NAME))?;
    }
    replaced
}

fn replace(cache: &Cache, cx: &Cx, bytes: &[u8]) -> Result<()> {
    let (fs, touched) = (cache.fs(), cache.touched());
    if_there(fs.unlink(cx, touched, NEXT))?;
    let new = NewNode { kind: Kind::Regular, mode: 0o600, rdev: 0, target: b"" };
    let next = fs.create(cx, touched, NEXT, &new).map_err(image)?;
    let (done, _) = fs.write(cx, next, Some(0), &[UserSlice::from_ref(bytes)]).map_err(image)?;
    if done < bytes.len() {
        return Err(image(Errno::ENOSPC.into()));
    }
    fs.rename(cx, touched, NEXT, touched, NAME, RenameMode::Replace).map(drop).map_err(image)
}

/// What the last round could not write.
pub fn of(cache: &Cache, cx: &Cx) -> std::result::Result<Vec<Unwritten>, Failure> {
    let fs = cache.fs();
    let mut all = Vec::new();
    let Some(file) = if_there(fs.lookup(cx, cache.touched(), NAME))? else { return Ok(all) };
    let size = fs.attr(cx, file).map_err(image)?.size.min(2 * LEN_MAX as u64) as usize;
    let mut bytes = vec![0u8; size];
    let came = fs.read(cx, file, 0, &[UserSlice::from_mut(&mut bytes)]).map_err(image)?;
    let mut rest = &bytes[..came];
    while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
        let (failed, len) = Failed::parse(head);
        let Some((path, after)) = after.split_at_checked(len as usize) else { break };
        all.push(Unwritten { failed, path: path.to_vec() });
        rest = after;
    }
    Ok(all)
}

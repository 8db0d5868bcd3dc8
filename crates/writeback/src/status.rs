//! How far behind the directory below is.

use crate::plan::{Noted, if_there, image, names_in, node, read_noted};
use crate::{Failure, Result};
use base::Cx;
use cache::Cache;
use cache::touch::{Label, OF_NODES};
use pm::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Names whose changes are not below.
    pub names: u64,
    /// Files with bytes or attributes that are not below.
    pub files: u64,
    /// Process that writes back; 0: none.
    pub writer: u32,
    /// Error number of what could not be written; 0: none.
    pub error: i32,
    /// Those of them that somebody may store into by a mapping at any time.
    pub mapped: u64,
    /// Rounds ever.
    pub rounds: u64,
    /// Bytes written back, ever.
    pub written: u64,
}

impl Status {
    /// That of this cache.
    pub fn of(cache: &Cache, cx: &Cx) -> std::result::Result<Status, Failure> {
        let fs = cache.fs();
        let (writer, error, rounds) = fs.writer().map_err(image)?;
        let mut status = Status { writer, error, rounds, written: fs.count_written(0).map_err(image)?, ..Status::default() };
        for_each_log(cache, cx, |log| {
            let mut files = BTreeSet::new();
            for label in names_if_there(cache, cx, log)? {
                match label.first() {
                    Some(b'n') => {
                        if let Some(dir) = if_there(fs.lookup(cx, log, &label))? {
                            status.names += names_if_there(cache, cx, dir)?.len() as u64;
                        }
                    }
                    Some(kind) if OF_NODES.contains(kind) => drop(files.insert(label[1..].to_vec())),
                    _ => {}
                }
            }
            status.files += files.len() as u64;
            Ok(())
        })?;
        status.mapped = names_in(cache, cx, cache.mapped())?.len() as u64;
        status.files += status.mapped;
        Ok(status)
    }
}

/// What waits to be written below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Bytes that a round would write.
    pub bytes: u64,
    /// When the oldest change was noted, nanoseconds since the epoch; of contents that change again and again, when they
    /// did last before the round that is under way. `None`: nothing waits.
    pub since: Option<i64>,
}

impl Waiting {
    /// That of this cache.
    pub fn of(cache: &Cache, cx: &Cx) -> std::result::Result<Waiting, Failure> {
        let (fs, mut since) = (cache.fs(), None);
        let mut files: BTreeMap<u64, Noted> = BTreeMap::new();
        for_each_log(cache, cx, |log| {
            for label in names_if_there(cache, cx, log)? {
                let (Some(kind), Some(id)) = (label.first().copied(), label.get(1..).and_then(Label::parse)) else { continue };
                if kind != b'n' && !OF_NODES.contains(&kind) {
                    continue;
                }
                let Some(note) = if_there(fs.lookup(cx, log, &label))? else { continue };
                let noted = match kind {
                    b'n' => if_there(cache.known_if(note))?.flatten().map(|known| known.seen),
                    _ => if_there(fs.attr(cx, note))?.map(|attr| attr.mtime),
                };
                since = [since, noted].into_iter().flatten().min();
                if kind != b'n' {
                    // Who writes back may take it away meanwhile.
                    let _ = read_noted(cache, cx, (kind, note), files.entry(id).or_default());
                }
            }
            Ok(())
        })?;
        for name in names_in(cache, cx, cache.mapped())? {
            if let Some(id) = Label::parse(&name) {
                files.entry(id).or_default().from = Some(0);
            }
        }
        let mut waiting = Waiting { bytes: 0, since };
        for (id, noted) in files {
            let size = if_there(fs.attr(cx, node(id)))?.map_or(0, |attr| attr.size);
            let mut done = 0;
            for (from, to) in noted.runs() {
                let (from, to) = (from.max(done), to.min(size));
                waiting.bytes += to.saturating_sub(from);
                done = done.max(to);
            }
        }
        Ok(waiting)
    }
}

/// Paths that are gone here and not below yet.
pub fn removed(cache: &Cache, cx: &Cx) -> std::result::Result<Vec<Vec<u8>>, Failure> {
    let (fs, mut gone) = (cache.fs(), Vec::new());
    for_each_log(cache, cx, |log| {
        for label in names_if_there(cache, cx, log)? {
            let Some(id) = label.strip_prefix(b"n").and_then(Label::parse) else { continue };
            let dir = base::Node { id, hint: u32::MAX };
            let Some(notes) = if_there(fs.lookup(cx, log, &label))? else { continue };
            for name in names_if_there(cache, cx, notes)? {
                let was = if_there(fs.lookup(cx, notes, &name))?;
                let was_below =
                    was.is_some_and(|was| cache.known_if(was).is_ok_and(|was| was.is_some_and(|was| was.stamp.number != 0)));
                let mut path = [0; 4096];
                if was_below
                    && if_there(fs.lookup(cx, dir, &name))?.is_none()
                    && let Ok(begin) = fs.path_of(dir, cache.tree(), &mut path)
                {
                    gone.push([&path[begin..], b"/", &name[..]].concat().split_off(1));
                }
            }
        }
        Ok(())
    })?;
    gone.sort();
    gone.dedup();
    Ok(gone)
}

fn for_each_log(cache: &Cache, cx: &Cx, mut each: impl FnMut(base::Node) -> Result<()>) -> Result<()> {
    for name in names_in(cache, cx, cache.touched())? {
        if Label::parse(&name).is_some() {
            // Who writes back may take it away meanwhile.
            if let Some(log) = if_there(cache.fs().lookup(cx, cache.touched(), &name))? {
                each(log)?;
            }
        }
    }
    Ok(())
}

/// Names of a directory of the log; none if that has gone.
fn names_if_there(cache: &Cache, cx: &Cx, dir: base::Node) -> Result<Vec<Vec<u8>>> {
    match names_in(cache, cx, dir) {
        Err(failure) if matches!(failure.errno, Errno::ENOENT | Errno::ESTALE) => Ok(Vec::new()),
        names => names,
    }
}

/// Whether nothing has been noted that is not below.
pub fn is_clean(cache: &Cache, cx: &Cx) -> Result<bool> {
    let mut clean = names_in(cache, cx, cache.mapped())?.is_empty();
    for_each_log(cache, cx, |log| {
        // What was made by the round before is no change.
        clean &= names_if_there(cache, cx, log)?.iter().all(|label| matches!(label.first(), Some(b'm' | b'p' | b'v')));
        Ok(())
    })?;
    Ok(clean)
}

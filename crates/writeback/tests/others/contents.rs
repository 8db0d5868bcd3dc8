//! What the bytes of a file are to be that both sides have changed.

use super::operations::Edit;

/// What is to be found at a name.
#[derive(Clone)]
pub enum Bytes {
    /// This, and nothing else.
    Exact(Vec<u8>),
    /// Both have changed the same bytes: ours stand, none comes from nowhere.
    Either(Box<Both>),
}

/// A file of which both have changed the same bytes.
#[derive(Clone)]
pub struct Both {
    pub base: Vec<u8>,
    pub ours: Vec<u8>,
    pub theirs: Vec<u8>,
    pub our_edits: Vec<Edit>,
    pub their_edits: Vec<Edit>,
}

/// The range of bytes that a change is about, in a file that is so long.
fn range(edit: &Edit, len: u64) -> (u64, u64) {
    match edit {
        Edit::Put(at, bytes) => (*at, at + bytes.len() as u64),
        Edit::Append(bytes) => (len, len + bytes.len() as u64),
        Edit::Size(size) if *size < len => (*size, u64::MAX),
        Edit::Size(size) => (len, *size),
        Edit::Zero(at, size) => (*at, at + size),
    }
}

/// Whether the changes of both sides are of different bytes. What we append goes behind all of theirs.
fn are_apart(len: u64, ours: &[Edit], theirs: &[Edit]) -> bool {
    ours.iter().filter(|edit| !matches!(edit, Edit::Append(_))).all(|edit| {
        let (from, to) = range(edit, len);
        theirs.iter().map(|edit| range(edit, len)).all(|(start, end)| to <= start || end <= from)
    })
}

/// What they have made of it, with our changes.
fn apply(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for edit in edits {
        match edit {
            Edit::Put(at, new) => {
                let end = *at as usize + new.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*at as usize..end].copy_from_slice(new);
            }
            Edit::Append(new) => bytes.extend_from_slice(new),
            Edit::Size(size) => bytes.resize(*size as usize, 0),
            Edit::Zero(at, len) => {
                let end = bytes.len().min((*at + *len) as usize);
                bytes[(*at as usize).min(end)..end].fill(0);
            }
        }
    }
    bytes
}

/// Whether all that a side wrote is where it wrote it.
fn are_in_place(there: &[u8], len: u64, edits: &[Edit]) -> bool {
    edits.iter().all(|edit| match edit {
        Edit::Put(_, bytes) | Edit::Append(bytes) => {
            let from = range(edit, len).0 as usize;
            there.get(from..from + bytes.len()) == Some(bytes)
        }
        _ => true,
    })
}

impl Both {
    pub fn merged(self) -> Bytes {
        if self.our_edits.is_empty() || self.ours == self.theirs {
            return Bytes::Exact(self.theirs);
        }
        if self.their_edits.is_empty() {
            return Bytes::Exact(self.ours);
        }
        if are_apart(self.base.len() as u64, &self.our_edits, &self.their_edits) {
            return Bytes::Exact(apply(&self.theirs, &self.our_edits));
        }
        Bytes::Either(Box::new(self))
    }

    /// Whether a file keeps ours, and has nothing of nobody's.
    fn is_kept_by(&self, there: &[u8]) -> bool {
        if there == self.ours || there == apply(&self.theirs, &self.our_edits) {
            return true;
        }
        let of = |bytes: &Vec<u8>, at: usize| bytes.get(at).copied().unwrap_or(0);
        let lens = [self.ours.len(), self.theirs.len(), self.base.len()];
        // Only where a program has cut it, it is shorter than anybody left it.
        lens.contains(&there.len())
            && are_in_place(there, self.base.len() as u64, &self.our_edits)
            && there
                .iter()
                .enumerate()
                .all(|(at, byte)| [&self.ours, &self.theirs, &self.base].into_iter().any(|bytes| of(bytes, at) == *byte))
    }

    /// Whether nothing that they wrote is missing, so that no copy is needed.
    fn has_theirs(&self, there: &[u8]) -> bool {
        are_in_place(there, self.base.len() as u64, &self.their_edits)
    }
}

impl Bytes {
    pub fn are(&self, there: &[u8]) -> bool {
        match self {
            Bytes::Exact(bytes) => bytes == there,
            Bytes::Either(both) => both.is_kept_by(there),
        }
    }

    /// Whether a copy of theirs is to stand beside a file that holds this.
    pub fn needs_copy(&self, there: &[u8]) -> bool {
        matches!(self, Bytes::Either(both) if !both.has_theirs(there))
    }
}

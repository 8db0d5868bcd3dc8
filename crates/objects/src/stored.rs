//! What of a file in the spool the store has already: parts of it that were not rewritten are copied there, not sent.

use crate::store::Meta;
use std::collections::BTreeSet;

/// Bytes of which it is known together whether they were rewritten.
const PIECE: u64 = 1 << 20;

/// The object that a file in the spool was, and which of its bytes are others by now.
pub struct Stored {
    /// Where it is.
    pub path: String,
    /// Which version: another one is not copied from.
    pub etag: String,
    /// From here on nothing is its own.
    len: u64,
    changed: BTreeSet<u64>,
}

impl Stored {
    /// A file of `len` bytes that is as the object at `path`; `None` where its version can't be told.
    pub fn as_it_is(path: &str, meta: &Meta, len: u64) -> Option<Stored> {
        Some(Stored { path: path.to_string(), etag: meta.etag.clone()?, len, changed: BTreeSet::new() })
    }

    /// Bytes are written.
    pub fn rewritten(&mut self, from: u64, len: u64) {
        let end = from.saturating_add(len).min(self.len);
        if from < end {
            self.changed.extend(from / PIECE..end.div_ceil(PIECE));
        }
    }

    /// The file is cut off.
    pub fn cut(&mut self, len: u64) {
        self.len = self.len.min(len);
    }

    /// Whether a range is as it was.
    pub fn has(&self, from: u64, end: u64) -> bool {
        end <= self.len && self.changed.range(from / PIECE..end.div_ceil(PIECE)).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a byte that was written, or that the object never had, is not taken from it.
    #[test]
    fn ranges() {
        let meta = Meta { is_dir: false, size: 10 * PIECE, mtime: 0, etag: Some("e".into()) };
        let mut stored = Stored::as_it_is("a", &meta, meta.size).unwrap();
        stored.rewritten(3 * PIECE - 1, 2);
        assert!(stored.has(0, 2 * PIECE) && stored.has(4 * PIECE, 10 * PIECE));
        assert!(!stored.has(2 * PIECE, 3 * PIECE) && !stored.has(3 * PIECE, 4 * PIECE) && !stored.has(0, 10 * PIECE));
        assert!(!stored.has(9 * PIECE, 10 * PIECE + 1));
        stored.rewritten(u64::MAX - 1, 1);
        stored.cut(5 * PIECE + 1);
        stored.cut(8 * PIECE);
        assert!(stored.has(4 * PIECE, 5 * PIECE) && !stored.has(5 * PIECE, 6 * PIECE));
        assert!(Stored::as_it_is("a", &Meta { etag: None, ..meta }, 1).is_none());
    }
}

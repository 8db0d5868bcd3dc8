//! Reading by ranges: what is read in order is asked for ahead, in pieces that grow.

use crate::store::{Meta, Store};
use opendal::Buffer;
use pm::Errno;
use std::collections::VecDeque;
use tokio::task::JoinHandle;

/// The first piece of a file that is read in order, and the largest, bytes.
const FIRST: u64 = 256 << 10;
const LARGEST: u64 = 8 << 20;
/// Pieces of a file that are kept.
const KEPT: usize = 2;

/// Pieces of an open file.
#[derive(Debug, Default)]
pub struct Windows {
    kept: VecDeque<(u64, Buffer)>,
    ahead: Option<Ahead>,
    /// Where the last read ended.
    end: u64,
    span: u64,
}

#[derive(Debug)]
struct Ahead {
    from: u64,
    len: u64,
    task: JoinHandle<Result<Buffer, Errno>>,
}

impl Windows {
    /// Nothing that is here is the file's any more.
    pub fn clear(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            ahead.task.abort();
        }
        *self = Windows::default();
    }

    /// Fills `out` from `offset` on; how much there was.
    pub fn read(&mut self, store: &'static Store, path: &str, meta: &Meta, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let len = (out.len() as u64).min(meta.size.saturating_sub(offset));
        let in_order = offset == self.end;
        self.end = offset + len;
        self.span = if in_order { (self.span * 2).clamp(FIRST, LARGEST) } else { 0 };
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let (from, piece) = match self.kept.iter().find(|(from, piece)| (*from..from + piece.len() as u64).contains(&at)) {
                Some(kept) => kept,
                None => self.fetch(store, path, meta, at, len - done)?,
            };
            let skipped = (at - from) as usize;
            let count = (piece.len() - skipped).min((len - done) as usize);
            let target = &mut out[done as usize..done as usize + count];
            copy(&piece.slice(skipped..skipped + count), target);
            let next = from + piece.len() as u64;
            done += count as u64;
            if in_order {
                self.ask_ahead(store, path, meta, next);
            }
        }
        Ok(len as usize)
    }

    /// Gets a piece that holds the byte at `at`.
    fn fetch(&mut self, store: &'static Store, path: &str, meta: &Meta, at: u64, len: u64) -> Result<&(u64, Buffer), Errno> {
        let expected = self.ahead.take_if(|ahead| (ahead.from..ahead.from + ahead.len).contains(&at));
        let (from, piece) = match expected {
            Some(ahead) => (ahead.from, store.runtime().block_on(ahead.task).map_err(|_| Errno::EIO)??),
            None => {
                let len = len.max(self.span).min(meta.size - at);
                (at, store.runtime().block_on(store.read(path, meta, at, len))?)
            }
        };
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((from, piece));
        self.kept.back().ok_or(Errno::EIO)
    }

    fn ask_ahead(&mut self, store: &'static Store, path: &str, meta: &Meta, from: u64) {
        let is_held = self.kept.iter().any(|(held, _)| *held == from);
        if from >= meta.size || is_held || self.ahead.is_some() {
            return;
        }
        let len = self.span.min(meta.size - from);
        let (path, meta) = (path.to_string(), meta.clone());
        let task = store.runtime().spawn(async move { store.read(&path, &meta, from, len).await });
        self.ahead = Some(Ahead { from, len, task });
    }
}

fn copy(piece: &Buffer, mut target: &mut [u8]) {
    for part in piece.clone() {
        let (now, rest) = target.split_at_mut(part.len());
        now.copy_from_slice(&part);
        target = rest;
    }
}

//! A program's buffers as one stream, and what a write takes its bytes from.

use crate::fs::{Fs, corrupt};
use crate::segment::Cachelet;
use base::Result;
use core::sync::atomic::Ordering::Acquire;
use format::BLOCK;
use pm::{Errno, UserSlice};

/// Several buffers, gone through once.
pub(super) struct Cursor<'b> {
    buffers: &'b [UserSlice],
    /// Bytes of the first that are done.
    done: usize,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(buffers: &'b [UserSlice]) -> Cursor<'b> {
        Cursor { buffers, done: 0 }
    }

    /// The next at most `len` bytes that lie together; `None` at the end.
    pub(super) fn next(&mut self, len: u64) -> Option<UserSlice> {
        while let Some((first, rest)) = self.buffers.split_first() {
            if self.done < first.len {
                let part = first.part(self.done, len.min(usize::MAX as u64) as usize);
                self.done += part.len;
                return Some(part);
            }
            (self.buffers, self.done) = (rest, 0);
        }
        None
    }
}

/// Somebody who fills memory, and whether he has come to his end.
pub(super) struct Filler<'b> {
    pub fill: &'b mut dyn FnMut(UserSlice) -> core::result::Result<usize, Errno>,
    /// Bytes that came.
    pub done: u64,
    /// There are no more.
    pub ended: bool,
    /// Why there are no more, if that was an error.
    pub error: Option<Errno>,
}

impl Filler<'_> {
    /// Fills `len` bytes at `to`; with zeros what does not come any more, except
    /// for the first `keep` bytes, which are data already.
    fn put(&mut self, fs: &Fs, mut to: u64, len: u64, keep: u64) -> Result<()> {
        let (data, end) = (to + keep.min(len), to + len);
        while to < end && !self.ended {
            let came = fs.image.fill(to, end - to, self.fill).unwrap_or_else(|errno| {
                self.error = Some(errno);
                0
            });
            self.ended = came == 0;
            self.done += came;
            to += came;
        }
        to = to.max(data);
        if to < end {
            fs.image.zero(to, end - to)?;
        }
        Ok(())
    }
}

/// Where the bytes of a write come from.
pub(super) enum Source<'b> {
    /// A program's buffers.
    Program(Cursor<'b>),
    /// Another file (or the same), from a place on; its inode is locked too.
    File { cachelet: &'b Cachelet, at: u64 },
    /// Whoever fills the image's own memory, such as the kernel reading a file of its own.
    Filler(Filler<'b>),
    /// Nowhere: zeros.
    Zero,
}

impl Source<'_> {
    /// Puts the next `len` bytes to `to` in the image, the first `keep` of which
    /// are data already, and starts their write-back.
    pub(super) fn put(&mut self, fs: &Fs, mut to: u64, len: u64, keep: u64) -> Result<()> {
        fs.present(to, len)?;
        let end = to + len;
        match self {
            Source::Zero => fs.image.zero(to, len)?,
            Source::Filler(filler) => filler.put(fs, to, len, keep)?,
            Source::Program(cursor) => {
                while to < end {
                    let Some(part) = cursor.next(end - to) else { break };
                    fs.image.copy_in(to, part)?;
                    to += part.len as u64;
                }
            }
            Source::File { cachelet, at } => {
                while to < end {
                    let done = copy_piece(fs, cachelet.root.load(Acquire), *at, to, end - to)?;
                    *at += done;
                    to += done;
                }
            }
        }
        Ok(())
    }
}

impl Source<'_> {
    /// Takes the next bytes out, of a program's buffers or a file.
    pub(super) fn get(&mut self, fs: &Fs, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            done += match self {
                Source::Program(cursor) => match cursor.next(rest.len() as u64) {
                    Some(part) => pm::user::copy(part, UserSlice::from_mut(rest))?,
                    None => break,
                },
                Source::File { cachelet, at } => {
                    let piece = fs.piece(cachelet.root.load(Acquire), *at, rest.len() as u64)?;
                    let part = UserSlice::from_mut(&mut rest[..piece.len as usize]);
                    match piece.image {
                        Some(from) => {
                            fs.present(from, piece.len)?;
                            fs.image.copy_out(from, part)?;
                        }
                        None => _ = part.zero(),
                    }
                    *at += piece.len;
                    part.len
                }
                Source::Filler(_) | Source::Zero => return Err(Errno::EINVAL.into()),
            };
        }
        Ok(())
    }

    /// How far a write of `start..end` has come that has taken all there was; an error if that is nothing because of one.
    pub(super) fn reached(&self, start: u64, end: u64) -> Result<u64> {
        match self {
            Source::Filler(Filler { done: 0, error: Some(errno), .. }) => Err((*errno).into()),
            Source::Filler(filler) => Ok(start + filler.done),
            _ => Ok(end),
        }
    }
}

/// Copies what of a file lies together, at most `len` bytes from `at` on, to `to` in the image.
fn copy_piece(fs: &Fs, root: u64, at: u64, to: u64, len: u64) -> Result<u64> {
    let piece = fs.piece(root, at, len)?;
    match piece.image {
        Some(from) => {
            fs.present(from, piece.len)?;
            fs.image.copy_within(from, to, piece.len)?;
        }
        None => fs.image.zero(to, piece.len)?,
    }
    Ok(piece.len)
}

/// Bytes of a file that lie together, or a hole.
pub(super) struct Piece {
    /// Where they are in the image; `None`: a hole.
    pub image: Option<u64>,
    /// How many.
    pub len: u64,
    /// Other extents may have the blocks too: they are not to be written.
    pub shared: bool,
}

impl Fs {
    /// What lies at byte `at` of a file, and how far, at most `len` (not 0) bytes.
    pub(super) fn piece(&self, root: u64, at: u64, len: u64) -> Result<Piece> {
        Ok(match self.find_extent(root, at / BLOCK)? {
            Some(e) if e.file * BLOCK <= at => {
                let within = at - e.file * BLOCK;
                // A reader without a lock may have met a leaf that is being written anew.
                let rest = (e.len * BLOCK).checked_sub(within).filter(|rest| *rest > 0).ok_or(corrupt("order of extents", at))?;
                Piece { image: Some(e.block * BLOCK + within), len: len.min(rest), shared: e.shared }
            }
            Some(e) => Piece { image: None, len: len.min(e.file * BLOCK - at), shared: false },
            None => Piece { image: None, len, shared: false },
        })
    }
}

//! Requests are taken apart and answers put together here.

use super::abi::{InHeader, OutHeader};
use base::Error;
use pm::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Result of handling a request.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure with this number.
pub fn err<T>(errno: Errno) -> Result<T> {
    Err(errno.into())
}

/// What follows a request's header. Bytes from outside: every step is checked,
/// and what is too short or unterminated is `EINVAL`.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// Splits a request; `None` if it is none.
    pub fn split(request: &'a [u8]) -> Option<(InHeader, Body<'a>)> {
        let (header, rest) = InHeader::read_from_prefix(request).ok()?;
        let end = (header.len as usize).checked_sub(size_of::<InHeader>() + usize::from(header.extensions) * 8)?;
        Some((header, Body(rest.get(..end)?)))
    }

    /// The next structure.
    pub fn take<T: FromBytes>(&mut self) -> Result<T> {
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::EINVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// The next name or text, without its NUL.
    pub fn text(&mut self) -> Result<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    /// The next `len` bytes.
    pub fn bytes(&self, len: u32) -> Result<&'a [u8]> {
        Ok(self.0.get(..len as usize).ok_or(Errno::EINVAL)?)
    }
}

/// An answer under construction; its memory is used again, and not zeroed anew.
#[derive(Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    len: usize,
}

const HEADER: usize = size_of::<OutHeader>();

impl Reply {
    /// An empty answer.
    pub fn new() -> Reply {
        Reply { bytes: vec![0; HEADER], len: HEADER }
    }

    /// Forgets what was put in.
    pub fn clear(&mut self) {
        self.len = HEADER;
    }

    /// Room for `len` more bytes, with whatever is in it.
    fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.len..end]
    }

    /// Adds a structure.
    pub fn put<T: IntoBytes + Immutable>(&mut self, value: &T) {
        self.bytes(value.as_bytes());
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Adds zeros up to the next multiple of 8.
    pub fn align(&mut self) {
        let len = (self.len - HEADER).next_multiple_of(8) + HEADER - self.len;
        self.room(len).fill(0);
        self.len += len;
    }

    /// Lets `fill` put at most `len` bytes in; it returns how many.
    pub fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
        let filled = fill(self.room(len))?;
        self.len += filled.min(len);
        Ok(())
    }

    /// The whole message: what was put in, or an error number instead.
    pub fn finish(&mut self, unique: u64, result: Result<()>) -> &[u8] {
        let error = match result {
            Ok(()) => 0,
            Err(error) => {
                self.clear();
                -error.errno().0
            }
        };
        let header = OutHeader { len: self.len as u32, error, unique };
        self.bytes[..HEADER].copy_from_slice(header.as_bytes());
        &self.bytes[..self.len]
    }
}

impl Default for Reply {
    fn default() -> Self {
        Reply::new()
    }
}

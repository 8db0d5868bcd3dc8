//! Text made without an allocation: what a new program is told, paths for the kernel.

use pm::Errno;

/// Bytes written one after the other into a buffer of fixed size.
pub(crate) struct TextOut<'a> {
    out: &'a mut [u8],
    len: usize,
    full: Errno,
}

impl<'a> TextOut<'a> {
    /// Into `out`; `full` is the error when it is too short.
    pub(crate) fn new(out: &'a mut [u8], full: Errno) -> TextOut<'a> {
        TextOut { out, len: 0, full }
    }

    /// How many bytes were written.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What was written.
    pub(crate) fn bytes(self) -> &'a [u8] {
        &self.out[..self.len]
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let end = self.len + bytes.len();
        self.out.get_mut(self.len..end).ok_or(self.full)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// The digits of `value` in base `radix` (2 to 16).
    pub(crate) fn number(&mut self, value: u64, radix: u64) -> Result<(), Errno> {
        let mut digits = [0u8; 64];
        let mut at = digits.len();
        let mut left = value;
        loop {
            at -= 1;
            digits[at] = b"0123456789abcdef"[(left % radix) as usize];
            left /= radix;
            if left == 0 {
                break;
            }
        }
        self.put(&digits[at..])
    }
}

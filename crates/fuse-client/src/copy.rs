//! Copying within the daemon's file system, without the bytes coming here.

use crate::call::Message;
use crate::handles::READ;
use crate::protocol::{COPY_FILE_RANGE, COPY_MAX, word32};
use crate::{FuseClient, posix};
use base::{Cx, Errno, Error, Node, Result};
use core::sync::atomic::Ordering::Relaxed;
use session::SessionCache;

impl FuseClient {
    /// `COPY_FILE_RANGE`; `EXDEV` where the daemon has none.
    pub(super) fn copy_within(&self, s: &SessionCache, cx: &Cx, from: (Node, u64), to: (Node, u64), len: u64) -> Result<u64> {
        if self.ring.header()?.minor.load(Relaxed) < 28 || self.ring.is_unknown(COPY_FILE_RANGE) {
            return posix(Errno::EXDEV);
        }
        self.drop_set_id(s, cx, to.0)?;
        let (source, target) = self.keys(s, cx, from.0, to.0)?;
        let index = Self::for_change(self.open_bits(s, to.0, target.incarnation)?);
        let (source_handle, handle) = (self.handle(s, cx, from.0, source, READ)?, self.handle(s, cx, to.0, target, index)?);
        let len = len.min(COPY_MAX);
        let mut message = Message::new();
        message.word64(source_handle).word64(from.1).word64(target.id).word64(handle).word64(to.1).word64(len).word64(0);
        let mut reply = [0u8; 8];
        match self.ask_exact(cx, COPY_FILE_RANGE, source, [message.bytes(), b"", b""], &mut reply) {
            Err(Error::Posix(Errno::ENOSYS | Errno::EOPNOTSUPP)) => posix(Errno::EXDEV),
            Err(error) => Err(error),
            Ok(()) if u64::from(word32(&reply, 0)) > len => posix(Errno::EIO),
            Ok(()) => Ok(word32(&reply, 0).into()),
        }
    }
}

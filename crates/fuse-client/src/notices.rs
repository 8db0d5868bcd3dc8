//! The daemon's notices, obeyed: what the session has cached of a name, of attributes, of contents is asked for again.

use super::FuseClient;
use super::protocol::{word32, word64};
use base::Errno;
use session::SessionCache;

const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const STORE: u32 = 4;
const DELETE: u32 = 6;

impl FuseClient {
    /// Makes the session forget what notices name that are there, or come within `nap_ns`. By one thread at a time, between
    /// [`super::ring::Ring::watch_notices`] with `true` and with `false`.
    pub fn obey_notices(&self, s: &SessionCache, nap_ns: i64) -> Result<(), Errno> {
        self.ring.obey_notices(nap_ns, |code, bytes| obey(s, code, bytes))
    }
}

/// One notice; what makes no sense, and what is not about caches, does nothing.
fn obey(s: &SessionCache, code: u32, bytes: &[u8]) {
    match code {
        // Node, offset, length: below 0, the attributes alone.
        INVAL_INODE => s.invalidate(word64(bytes, 0), word64(bytes, 8) as i64 >= 0),
        // Directory, length and flags, name.
        INVAL_ENTRY => invalidate_name(s, word64(bytes, 0), word32(bytes, 8), bytes.get(16..)),
        // Directory, node, length, name.
        DELETE => {
            invalidate_name(s, word64(bytes, 0), word32(bytes, 16), bytes.get(24..));
            s.invalidate(word64(bytes, 8), false);
        }
        // The contents are not taken, but asked for by who wants them.
        STORE => s.invalidate(word64(bytes, 0), true),
        _ => {}
    }
}

fn invalidate_name(s: &SessionCache, dir: u64, len: u32, text: Option<&[u8]>) {
    if let Some(name) = text.and_then(|text| text.get(..len as usize)).filter(|name| !name.is_empty()) {
        s.invalidate_name(dir, name);
    }
}

//! `INIT`: the kernel says what it can, we say what we want of it.

use super::abi::{InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, init};
use super::message::{Body, Reply, Result, err};
use super::{Call, abi, listings};
use pm::Errno;
use std::sync::atomic::Ordering::Relaxed;

/// Most bytes of one `WRITE` or `READ`, and pages of them.
pub const DATA_MAX: u32 = 1 << 20;
const PAGES_MAX: u16 = (DATA_MAX / 4096) as u16;

/// How far the kernel reads ahead in files, bytes, where it is told so besides ([`crate::device::read_ahead`]).
pub const READ_AHEAD: u32 = 512 << 10;

/// What we want.
///
/// Not among it: `WRITEBACK_CACHE` (the kernel would keep what others have to
/// see), `DONT_MASK` (the kernel applies the umask).
const WANTED: u64 = init::ASYNC_READ
    | init::POSIX_LOCKS
    | init::ATOMIC_O_TRUNC
    | init::BIG_WRITES
    | init::FLOCK_LOCKS
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::ABORT_ERROR
    | init::MAX_PAGES
    | init::HANDLE_KILLPRIV_V2
    | init::EXTENDED
    | init::DIRECT_IO_ALLOW_MMAP
    | init::AUTO_INVAL_DATA;

impl Call<'_> {
    pub(super) fn init(&self, mut body: Body, reply: &mut Reply) -> Result<()> {
        // Kernels before 5.17 send the first 16 bytes only.
        let asked = match body.take::<InitIn>() {
            Ok(asked) => asked,
            Err(_) => {
                let [major, minor, readahead, flags] = body.take::<[u32; 4]>()?;
                InitIn { major, minor, readahead, flags, ..InitIn::default() }
            }
        };
        if asked.major != MAJOR || asked.minor < MINOR_MIN {
            return err(Errno::EPROTO);
        }
        let offered = u64::from(asked.flags) | u64::from(asked.flags2) << 32;
        let agreed = offered & WANTED;
        self.fuse.direct.store(agreed & init::DIRECT_IO_ALLOW_MMAP != 0, Relaxed);
        self.fuse.drops_after.store(asked.minor >= abi::MINOR_DROPS_AFTER, Relaxed);
        self.fuse.keeps_found.store(asked.minor >= abi::MINOR_EVICTIONS, Relaxed);
        let is_known = self.keep_attr(self.backend().root()) != 0;
        self.fuse.keeps_listed.store(is_known && listings::can_be_cached(), Relaxed);
        reply.put(&InitOut {
            major: MAJOR,
            minor: MINOR.min(asked.minor),
            // The least of this and of what the mount is set to.
            readahead: asked.readahead.max(READ_AHEAD),
            flags: agreed as u32,
            background: 64,
            congestion: 48,
            write_max: DATA_MAX,
            time_granularity: 1,
            pages_max: PAGES_MAX,
            flags2: (agreed >> 32) as u32,
            ..abi::InitOut::default()
        });
        Ok(())
    }
}

//! What a recorder of stores sees (crash explorer).

/// Gets every store, flush and fence of a region, in the order of one thread;
/// the implementation tells threads apart itself.
pub trait Recorder: Sync {
    /// Up to eight bytes were stored at `offset`, not crossing an 8-byte boundary.
    fn store(&self, offset: u64, bytes: &[u8]);
    /// The write-back of the lines holding this range was started.
    fn flush(&self, offset: u64, len: u64);
    /// A fence.
    fn fence(&self);
}

impl core::fmt::Debug for dyn Recorder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Recorder")
    }
}

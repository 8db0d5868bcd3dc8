//! An image gets what not every program of its format knows.
//!
//! Both copies of the superblock are written, the second first, so that one of them is whole at every moment. Who attaches
//! just then reads the one or the other. Who writes holds the lock of the counts of what is shared: two at once would mix
//! their words, or the second would write what it had read before the first.

use crate::fs::Fs;
use crate::lane::Tx;
use base::{Cx, Result};
use core::mem::size_of;
use core::sync::atomic::Ordering::Relaxed;
use format::lane::Kind;
use format::layout::SUPERBLOCK_COPY;
use format::{Features, Superblock, VERSION};
use pm::{Errno, UserSlice};
use zerocopy::IntoBytes;

impl Fs {
    /// Records may copy bytes from here on: a program that does not know how leaves the image alone. `EROFS`;
    /// `EOPNOTSUPP` for an image of an older format.
    pub fn allow_atomic(&self, cx: &Cx) -> Result<()> {
        if self.has(Features::ATOMIC) { Ok(()) } else { self.allow(&mut self.begin(cx, Kind::SetAttr)?, Features::ATOMIC) }
    }

    /// Notes of a cache are exact from here on: a program that does not know how to read them leaves the image alone.
    /// `EROFS`.
    pub fn allow_exact_notes(&self, cx: &Cx) -> Result<()> {
        if self.has(Features::NOTES) { Ok(()) } else { self.allow(&mut self.begin(cx, Kind::SetAttr)?, Features::NOTES) }
    }

    #[inline]
    fn has(&self, feature: Features) -> bool {
        self.files.features.load(Relaxed) & feature.0 != 0
    }

    /// The image has this from here on: a program that does not know it leaves the image alone. `EROFS`; `EOPNOTSUPP` for
    /// an image of an older format.
    /// `tx` takes no lock after that but those that come after the lock of the counts.
    pub(crate) fn allow<'a>(&'a self, tx: &mut Tx<'a>, feature: Features) -> Result<()> {
        if self.has(feature) {
            return Ok(());
        }
        tx.lock_shares()?;
        let result = self.allow_now(feature);
        tx.unlock_shares();
        result
    }

    #[cold]
    fn allow_now(&self, feature: Features) -> Result<()> {
        self.writable()?;
        if self.files.version != VERSION {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let [first, second] = [self.superblock_at(0)?, self.superblock_at(SUPERBLOCK_COPY)?];
        let Ok((superblock, _)) = Superblock::choose(first, second) else { return Err(Errno::EUCLEAN.into()) };
        let new = superblock.with(Features(superblock.features | feature.0));
        let words: [u64; size_of::<Superblock>() / 8] = zerocopy::transmute!(new);
        for at in [SUPERBLOCK_COPY, 0] {
            for (word, value) in self.words(at, words.len(), "superblock")?.iter().zip(words) {
                self.image.store(word, value);
            }
            self.image.flush(at, size_of::<Superblock>() as u64);
            self.image.fence();
        }
        self.files.features.store(new.features, Relaxed);
        Ok(())
    }

    fn superblock_at(&self, at: u64) -> Result<Superblock> {
        let mut copy = Superblock::new(0, [0; 2], 0, 0, 0);
        self.image.copy_out(at, UserSlice::from_mut(copy.as_mut_bytes()))?;
        Ok(copy)
    }
}

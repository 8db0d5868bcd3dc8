//! Directories that the kernel lists by itself (`FOPEN_CACHE_DIR`), from pages in which it keeps our answers.
//!
//! A change by the direct path is told as ever: the flag in the cachelet ([`Call::keep_attr`]) is set
//! before a directory is read, and the invalidation drops the pages. An answer that was made before the
//! change and is taken in after the invalidation would stay. So where answers may be on their way, another
//! invalidation goes first, about a name that no directory has ([`forget_no_name`]): for it the kernel takes the directory's
//! lock, which whoever lists holds from before his request until he has taken the answer in.
//!
//! | order | |
//! |---|---|
//! | `READDIR` | lists → *answered* is set → flag set → directory read → answer taken in → lock given back |
//! | invalidation | directory changed → flag seen → *answered* taken → lock had and given back → pages dropped → who changed it goes on |
//!
//! Whichever `READDIR` read the directory before the change has set *answered* before it is taken; so
//! its pages are there when they are dropped. Changes through the mount hold the same lock, and the kernel counts them.
//!
//! Whoever lists a directory looks at the names next. `READDIRPLUS` brings them along, pages do not; so a listing
//! that was whole for [`FRESH`] is dropped by the next `OPENDIR`, while the names can still be cached for as long.
//!
//! [`Call::keep_attr`]: super::Call::keep_attr
//! [`forget_no_name`]: super::notify::forget_no_name

use super::Fuse;
use super::notify::forget_no_name;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a listing is cached, from its first answer on: half of what names are.
const FRESH: Duration = Duration::from_millis(500);

/// Kernels whose invalidation about a name waits for the directory's lock even if they don't have the name, and whose
/// renames of directories hold those, too: from the first to before the second. Linux 6.19 looks for the name first.
const RELEASES: [(u32, u32); 2] = [(6, 5), (6, 19)];

/// Whether such a kernel is running here.
pub(super) fn can_be_cached() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| is_among(&release))
}

fn is_among(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let [from, to] = RELEASES;
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (from..to).contains(&(major, minor)))
}

/// What the kernel may have of a directory.
#[derive(Debug, Default)]
struct Listing {
    /// An answer was made, and no invalidation since.
    answered: bool,
    /// When the last listing began, unless an answer in it came without attributes.
    begun: Option<Instant>,
    /// It came to its end: the kernel asks no more.
    whole: bool,
}

/// The directories of which the kernel may have pages, by number.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<HashMap<u64, Listing>>);

impl Listings {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Listing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory is about to be read from `offset` on.
    pub(super) fn answer(&self, number: u64, offset: u64) {
        let mut all = self.all();
        let listing = all.entry(number).or_default();
        listing.answered = true;
        if offset == 0 {
            (listing.begun, listing.whole) = (Some(Instant::now()), false);
        }
    }

    /// It has been read: nothing was left, or there are entries, with attributes or not.
    pub(super) fn has_answer(&self, number: u64, is_end: bool, plus: bool) {
        if let Some(listing) = self.all().get_mut(&number) {
            listing.whole |= is_end;
            listing.begun = listing.begun.filter(|_| is_end || plus);
        }
    }

    /// Whether who opens the directory may be shown what the kernel has. If not, that is dropped.
    pub(super) fn is_fresh(&self, number: u64) -> bool {
        let mut all = self.all();
        let Some(listing) = all.get_mut(&number) else { return true };
        let old = listing.whole && listing.begun.is_none_or(|begun| begun.elapsed() > FRESH);
        listing.whole &= !old;
        !old
    }

    /// An invalidation is about to be sent: whether answers may be on their way.
    fn take(&self, number: u64) -> bool {
        self.all().get_mut(&number).is_some_and(|listing| {
            listing.whole = false;
            std::mem::take(&mut listing.answered)
        })
    }

    /// Whether the directory was ever listed.
    pub(super) fn has(&self, number: u64) -> bool {
        self.all().contains_key(&number)
    }

    /// The kernel has forgotten the directory, pages and all.
    pub(super) fn forget(&self, number: u64) {
        self.all().remove(&number);
    }
}

impl Fuse {
    /// What has the kernel wait until answers about a directory have been taken in, if any may be on their way.
    /// Goes before the invalidation that has it forget the directory.
    pub fn settle_listing(&self, number: u64) -> Option<Vec<u8>> {
        self.listings.take(number).then(|| forget_no_name(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: kernels are told apart by their release, whatever follows the two numbers.
    #[test]
    fn releases() {
        for (release, is) in
            [("6.18.44-fc-v669\n", true), ("6.5.0", true), ("6.18", true), ("6.4.99", false), ("6.19.0-rc1", false)]
        {
            assert_eq!(is_among(release), is, "{release}");
        }
        for release in ["7.0", "5.18.1", "", "6", "x.y"] {
            assert!(!is_among(release), "{release}");
        }
    }

    /// Goal: an answer is waited for by the invalidation after it, once; what is forgotten is not.
    #[test]
    fn answers() {
        let listings = Listings::default();
        assert!(!listings.take(7) && !listings.has(7));
        listings.answer(7, 0);
        assert!(listings.has(7) && !listings.take(8));
        assert!(listings.take(7) && !listings.take(7));
        listings.answer(7, 5);
        assert!(listings.take(7));
        listings.answer(7, 0);
        listings.forget(7);
        assert!(!listings.take(7));
    }

    /// Goal: the invalidation that waits goes once after an answer, and to the same directory.
    #[test]
    fn invalidations() {
        let backend: &vfs::mem::Mem = Box::leak(Box::new(vfs::mem::Mem::new(0, 0, 0o755)));
        let fuse = Fuse::new(backend, super::super::Keepers::of_file(0, 0, 0o600), Box::new(|_| ()), super::super::REST);
        assert_eq!(fuse.settle_listing(9), None);
        fuse.listings.answer(9, 0);
        assert_eq!(fuse.settle_listing(8), None);
        assert_eq!(fuse.settle_listing(9), Some(forget_no_name(9)));
        assert_eq!(fuse.settle_listing(9), None);
    }

    /// Goal: what was listed whole, with attributes, is shown for [`FRESH`]; what is not whole yet goes on.
    #[test]
    fn fresh_ones() {
        let listings = Listings::default();
        let list = |plus| {
            for (offset, is_end, plus) in [(0, false, true), (5, false, plus), (9, true, false)] {
                listings.answer(7, offset);
                listings.has_answer(7, is_end, plus);
            }
        };
        let age = |by| {
            if let Some(begun) = listings.all().get_mut(&7).and_then(|listing| listing.begun.as_mut()) {
                *begun = begun.checked_sub(by).unwrap();
            }
        };
        assert!(listings.is_fresh(7));
        list(true);
        assert!(listings.is_fresh(7) && listings.is_fresh(7));
        age(FRESH * 2);
        assert!(!listings.is_fresh(7));
        assert!(listings.is_fresh(7), "dropped by the first that opened it");
        list(false);
        assert!(!listings.is_fresh(7));
        listings.answer(7, 0);
        age(FRESH * 2);
        assert!(listings.is_fresh(7));
        list(true);
        age(FRESH * 2);
        listings.take(7);
        assert!(listings.is_fresh(7));
    }
}

//! The volatile header: which segment belongs to an image, and whether anybody lives.
//!
//! It counts only under the boot and for the file it was written for: after a
//! restart, or in a copy of the image, it means nothing and is made anew.

use super::{kernel, machine};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use format::Volatile;
use format::layout::{self, LANES, LINE, PROCESSES};
use pm::file::{self, File, Stat};
use pm::life::Look;
use pm::mutex::{Attempt, RobustMutex, Whose};
use pm::{Domain, Region};

/// Under which boot, and for which file, a volatile header is valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    boot: Option<[u64; 2]>,
    file: [u64; 2],
}

impl Identity {
    /// That of this boot and of an open image.
    pub fn new(stat: &Stat) -> Identity {
        Identity { boot: kernel::boot_id(), file: [stat.dev, stat.ino] }
    }

    /// The boot id, where it is to be had.
    pub fn boot(&self) -> Option<[u64; 2]> {
        self.boot
    }

    /// Whether the header was written for us. Where `/proc` is not to be had,
    /// the boot is believed: the segment, which a restart removes, tells as much.
    pub fn matches(&self, header: &Volatile) -> bool {
        let boot = [header.boot[0].load(Relaxed), header.boot[1].load(Relaxed)];
        let file = [header.file[0].load(Relaxed), header.file[1].load(Relaxed)];
        file == self.file && boot != [0; 2] && self.boot.is_none_or(|own| own == boot)
    }

    /// Makes all mutexes free and the header ours, without a segment. Nobody
    /// may use the image: all mutexes are of another boot or of another file.
    pub fn initialise(&self, image: &Region, header: &Volatile) {
        image.store_volatile(&header.token, 0);
        image.store_volatile(&header.generation, 0);
        image.store_volatile(&header.segment, 0);
        for mutex in all_mutexes(image) {
            mutex.init();
        }
        let boot = self.boot.unwrap_or([1, 1]);
        for (word, value) in header.boot.iter().zip(boot).chain(header.file.iter().zip(self.file)) {
            image.store_volatile(word, value);
        }
        machine::note(image, boot);
    }
}

/// The mutexes of all processes and lanes.
fn all_mutexes(image: &Region) -> impl Iterator<Item = &RobustMutex> {
    let count = u64::from(LANES) + u64::from(PROCESSES);
    (0..count).filter_map(|i| RobustMutex::at(image, layout::LANE_MUTEXES + i * LINE))
}

/// Whether a living thread holds any of the image's mutexes, or a process lives whose thread has ended with one.
pub(super) fn anyone_lives(image: &Region) -> bool {
    let mutex = |first: u64, number: u32| RobustMutex::at(image, first + u64::from(number) * LINE);
    let is_held = |mutex: &RobustMutex, whose| match mutex.try_take_from(whose, Look::Thorough) {
        Attempt::Busy => true,
        Attempt::Broken => false,
        Attempt::Taken | Attempt::Inherited => {
            mutex.give_back();
            false
        }
    };
    let mut processes = (0..PROCESSES).filter_map(|number| mutex(layout::PROCESS_MUTEXES, number));
    let mut lanes = (0..LANES).filter_map(|number| mutex(layout::LANE_MUTEXES, number));
    // Asked first: who takes a mutex is noted in the place of its last holder.
    processes
        .any(|mutex| mutex.holder().and_then(|who| who.lives(Look::Thorough)) == Some(true) || is_held(mutex, Whose::Process))
        || lanes.any(|mutex| is_held(mutex, Whose::Thread))
}

/// Whether an open file is an image that a living process uses. For `mkfs`; anything that is no image is not used.
pub(crate) fn is_used(file: &File, stat: &Stat) -> bool {
    let len = layout::LANE_AREA;
    if super::attach::superblock(file).is_err() || stat.size < len {
        return false;
    }
    let Ok(address) = file.map(len, true, false) else { return false };
    // SAFETY: just mapped shared and writable, unmapped below.
    let image = unsafe { Region::new(address, len, len, Domain::Process) };
    let used = image
        .at::<Volatile>(layout::VOLATILE)
        .is_some_and(|header| Identity::new(stat).matches(header) && header.token.load(Acquire) != 0 && anyone_lives(&image));
    // SAFETY: nothing refers to the mapping any more; no mutex in it is held by us.
    unsafe { file::unmap(address, len) };
    used
}

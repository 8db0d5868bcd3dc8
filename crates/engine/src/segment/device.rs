//! `st_dev`, and where the fast path finds it: on the directory's line, which it reads anyway.
//!
//! One number for the whole image ([`Served::device`](super::Served::device)), until a kernel mount brings another. A
//! directory's cachelet has no use for `mtime`, which is read from the inode; there it keeps a copy of the number for `stat`
//! of what is in the directory. Who walks there and finds none copies it.
//!
//! No copy is older than the number once [`Fs::set_device`] has returned. Who changes the number stores it and then takes
//! all other copies away; who copies it holds `owner`, makes the sequence odd before he reads it, and looks again afterwards.
//! So one of them sees the other, and who reads a copy without seeing the odd sequence began before the number changed. Of a
//! copier who dies the cachelet is loaded again, and what a changer who dies leaves undone the next process does that comes.

use super::cachelet::{Cachelet, DEAD, INVALID};
use crate::fs::Fs;
use crate::index::Seen;
use base::{Cx, Kind};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::fence;

/// The lower half of a directory's `mtime` if the upper one is `st_dev`, which has 32 bits in the kernel too. A file that has
/// been given the cachelet meanwhile has that in its time by one chance in 2^32, and never in one of whole seconds.
const TOLD: u32 = 0x5eed_de71;
/// The same while it is not: a nanosecond of the year 1677.
pub(crate) const UNTOLD: u64 = 1 << 63 | 0xbad_de71;

/// `mtime` of a directory whose files have this `st_dev`.
const fn told(device: u64) -> u64 {
    device << 32 | TOLD as u64
}

impl Cachelet {
    /// A directory's: `st_dev` of what is in it, if it has been told.
    #[inline]
    pub(crate) fn told_device(&self) -> Option<u64> {
        let word = self.mtime.load(Relaxed);
        (word as u32 == TOLD).then_some(word >> 32)
    }
}

impl Fs {
    /// `st_dev` of everything in the image: that of the kernel mount, if there is or was one. Without a segment, our own.
    #[inline]
    pub fn device(&self) -> u64 {
        match self.header().served.device.load(Relaxed) {
            0 => self.device,
            device => device,
        }
    }

    /// Makes the mount's `st_dev` that of everything in the image, so that both ways agree.
    pub fn set_device(&self, device: u64) {
        let served = &self.header().served;
        // No longer, and not yet: until all are told, whoever comes tells them.
        served.device_told.store(0, SeqCst);
        served.device.store(device, SeqCst);
        self.tell_device();
    }

    /// Takes away what the cachelets of directories say of a number that is no longer so, if that has not been done.
    pub(crate) fn tell_device(&self) {
        let served = &self.header().served;
        let before = served.device_told.load(SeqCst);
        let device = served.device.load(SeqCst);
        if before == device {
            return;
        }
        for number in 0..self.header().cachelet_next.load(SeqCst).min(self.areas.cachelet_count) {
            let Some(cachelet) = self.cachelet(number) else { break };
            let word = cachelet.mtime.load(Acquire);
            // Asked after the word: a cachelet that has been given to a file says so before it has the file's time.
            let is_directory = (cachelet.mode.load(Relaxed) >> 16) as u8 == Kind::Directory as u8;
            if is_directory && word as u32 == TOLD && word != told(device) {
                let _ = cachelet.mtime.compare_exchange(word, UNTOLD, SeqCst, Relaxed);
            }
        }
        // Unless somebody has changed it meanwhile.
        let _ = served.device_told.compare_exchange(before, device, SeqCst, Relaxed);
    }

    /// Has a directory tell `st_dev` of what is in it, unless somebody else is changing it.
    #[cold]
    #[inline(never)]
    pub(crate) fn learn_device(&self, cx: &Cx, directory: &Seen) {
        let (Ok(lane), cachelet) = (self.lane_of(cx), directory.cachelet) else { return };
        self.lane_state(lane).loading_cachelet.store(self.segment.offset_of(&cachelet.owner), SeqCst);
        if cachelet.owner.compare_exchange(0, lane + 1, SeqCst, Relaxed).is_err() {
            return self.lane_state(lane).loading_cachelet.store(0, SeqCst);
        }
        if cachelet.node.load(SeqCst) == directory.id && cachelet.flags.load(SeqCst) & (DEAD | INVALID) == 0 {
            let change = self.change(cachelet);
            fence(SeqCst);
            let device = self.device();
            if device >> 32 == 0 {
                change.mtime.store(told(device), SeqCst);
                fence(SeqCst);
                if self.device() != device {
                    change.mtime.store(UNTOLD, SeqCst);
                }
            }
        }
        self.let_go(lane, cachelet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use crate::{Cred, NewNode, Node, Thread};
    use base::stat::Stat;
    use base::{Caller, Fast};
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicU32, AtomicU64};
    use pm::Text;

    const FILE: NewNode<'static> = NewNode { kind: Kind::Regular, mode: 0o644, rdev: 0, target: b"" };
    const DIRECTORY: NewNode<'static> = NewNode { kind: Kind::Directory, mode: 0o755, rdev: 0, target: b"" };

    /// An image with the file `d/f`.
    fn image() -> TestFs {
        let test = TestFs::new(64 << 20);
        let dir = test.create(&test.cx(), test.root_node(), b"d", &DIRECTORY).unwrap();
        test.create(&test.cx(), dir, b"f", &FILE).unwrap();
        test
    }

    /// `st_dev` of `d/f` on the fast path.
    fn shown(fs: &Fs, root: Node) -> Option<u64> {
        let mut stat = MaybeUninit::<Stat>::zeroed();
        let caller = Caller { uid: 0, privileged: true };
        // SAFETY: the text ends in a NUL, and outlives the call.
        let text = unsafe { Text::new(c"d/f".as_ptr().cast()) };
        let found = fs.stat_fast(&caller, (root, text), true, |_| false, &mut stat);
        // SAFETY: zeroed, then filled.
        (found == Fast::Done(())).then(|| unsafe { stat.assume_init() }.st_dev)
    }

    /// What who has not found it there does next.
    fn walk(fs: &Fs, cx: &Cx, root: Node) {
        let dir = fs.lookup(cx, root, b"d").unwrap();
        fs.lookup(cx, dir, b"f").unwrap();
    }

    /// Goal: who walks to a file has its directory tell `st_dev` on the fast path, of every number that the kernel's mounts have.
    #[test]
    fn directories_tell_the_number() {
        let test = image();
        for device in [test.device(), 45, 46, 45, u64::from(u32::MAX), 0x8_0000] {
            if device != test.device() {
                test.set_device(device);
            }
            assert_eq!(shown(&test, test.root_node()), None, "{device}");
            walk(&test, &test.cx(), test.root_node());
            assert_eq!(shown(&test, test.root_node()), Some(device));
        }
        // None that the kernel gives.
        test.set_device(1 << 32);
        walk(&test, &test.cx(), test.root_node());
        assert_eq!(shown(&test, test.root_node()), None);
    }

    /// Goal: what a server that died has left untold, the next process tells; and a file's time stays what it is.
    #[test]
    fn who_comes_next_tells_it() {
        let test = image();
        walk(&test, &test.cx(), test.root_node());
        let dir = test.lookup(&test.cx(), test.root_node(), b"d").unwrap();
        let file = test.lookup(&test.cx(), dir, b"f").unwrap();
        let time = |node: Node| test.cached(&test.cx(), node).unwrap().mtime.load(Relaxed);
        test.cached(&test.cx(), file).unwrap().mtime.store(told(7), Relaxed);
        let served = &test.header().served;
        served.device_told.store(0, Relaxed);
        served.device.store(45, Relaxed);
        assert_ne!(shown(&test, test.root_node()), Some(45));
        test.tell_device();
        assert_eq!((time(dir), time(file)), (UNTOLD, told(7)));
        assert_eq!((served.device_told.load(Relaxed), shown(&test, test.root_node())), (45, None));
    }

    /// Goal: whoever asks once a number has been set is told none that is older. Method: one sets them one after the other
    /// while others walk and look.
    #[test]
    fn nobody_is_told_an_old_number() {
        let test = image();
        let (fs, root) = (test.fs, test.root_node());
        let (set, looking) = (AtomicU64::new(100), AtomicU32::new(3));
        test.set_device(100);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let thread = Thread::new();
                    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
                    let mut walked = 0;
                    while walked < 20_000 && looking.load(SeqCst) > 0 {
                        let before = set.load(SeqCst);
                        match shown(fs, root) {
                            Some(device) if device < before => {
                                looking.store(0, SeqCst);
                                panic!("{device} after {before}");
                            }
                            // Until there is another number, where there are fewer processors than threads.
                            Some(_) => std::thread::yield_now(),
                            None => {
                                walk(fs, &cx, root);
                                walked += 1;
                            }
                        }
                    }
                    fs.give_lane_back(&thread);
                    let _ = looking.fetch_update(SeqCst, SeqCst, |looking| looking.checked_sub(1));
                });
            }
            let mut device = 100;
            while looking.load(SeqCst) > 0 {
                device += 1;
                fs.set_device(device);
                set.store(device, SeqCst);
                if device % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}

//! A directory on a disk that loses power, and an image that is kept: `tests/power.rs` says how.

use super::{Bench, Ends, How, OPS, Op, Shown, make_image, plant, tree};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use writeback::CUT;
use writeback::journal::Left;

/// Bytes of the disk.
const DISK: u64 = 16 << 20;
/// Steps of a round at most, and of the one that runs again.
const STEPS: u64 = 24;

fn runs(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Without blocks for what is zero: a cache that was let go keeps its image in memory.
fn write_sparsely(path: &Path, bytes: &[u8]) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (number, block) in bytes.chunks(4096).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, number as u64 * 4096).unwrap();
        }
    }
}

/// A file system of the kernel's on a disk that may lose power.
struct Disk {
    kind: String,
    file: PathBuf,
    device: String,
    low: PathBuf,
    /// As `stat` tells it.
    number: AtomicU64,
}

impl Disk {
    /// `None` where this cannot be had.
    fn make(top: &Path) -> Option<Disk> {
        let kind = std::env::var("BYPATH_POWER_FS").unwrap_or_else(|_| "ext4".into());
        let (file, low) = (top.join("disk"), top.join("low"));
        std::fs::create_dir_all(&low).ok()?;
        let len = if kind == "ext4" { DISK } else { number("BYPATH_POWER_DISK", 512 << 20) };
        std::fs::File::create(&file).and_then(|file| file.set_len(len)).ok()?;
        // Of one group: what is freed is what is given next.
        let options: &[&str] = if kind == "ext4" { &["-q", "-F", "-b", "4096"] } else { &["-q", "-f"] };
        if !runs(&format!("mkfs.{kind}"), &[options, &[file.to_str()?]].concat()) {
            return None;
        }
        let found = Command::new("losetup").args(["--find", "--show", file.to_str()?]).output().ok()?;
        let device = String::from_utf8(found.stdout).ok()?.trim().to_owned();
        let disk = Disk { kind, file, device, low, number: AtomicU64::new(0) };
        (found.status.success() && disk.mount()).then_some(disk)
    }

    fn mount(&self) -> bool {
        let options = if self.kind == "ext4" { "commit=300" } else { "noatime" };
        let mounted = runs("mount", &["-t", &self.kind, "-o", options, &self.device, self.low.to_str().unwrap()]);
        let number = std::fs::metadata(&self.low).map_or(0, |meta| meta.dev());
        let before = self.number.swap(number, SeqCst);
        // btrfs has one made up at each mount: the image would not know its directory again.
        assert!(before == 0 || before == number, "another has taken the device number meanwhile");
        mounted
    }

    fn sync(&self) {
        rustix::fs::syncfs(std::fs::File::open(&self.low).unwrap()).unwrap();
    }

    /// What is on it at one moment: between two readings that are alike nothing was written.
    fn copy(&self) -> Vec<u8> {
        let mut last = std::fs::read(&self.file).unwrap();
        for _ in 0..1000 {
            let next = std::fs::read(&self.file).unwrap();
            if next == last {
                return next;
            }
            last = next;
        }
        panic!("the file system never stops to write");
    }

    /// The power comes back: it holds this, and is mounted again.
    fn back(&self, holds: &[u8]) {
        assert!(runs("umount", &[self.low.to_str().unwrap()]), "the directory is in use");
        let file = std::fs::File::options().write(true).open(&self.file).unwrap();
        file.write_all_at(holds, 0).unwrap();
        assert!(runs("blockdev", &["--flushbufs", &self.device]));
        assert!(self.mount(), "the file system is not mounted again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        runs("umount", &["-l", self.low.to_str().unwrap()]);
        runs("losetup", &["--detach", &self.device]);
    }
}

/// All that a case begins with.
pub struct Start {
    disk: Disk,
    how: How,
    top: PathBuf,
    holds: Vec<u8>,
    image: Vec<u8>,
    next: u64,
}

impl Start {
    /// A directory of which the image is kept, or (`JournalBeside`) with its journal on the same disk.
    pub fn make(how: How) -> Option<Start> {
        // Whoever has a copy of the mount elsewhere would keep the file system mounted.
        if pm::host::own_mounts().is_err() || !runs("mount", &["--make-rprivate", "/"]) {
            return None;
        }
        let top = PathBuf::from(format!("/dev/shm/bypath-power-{}-{}", std::process::id(), how as u8));
        let _ = std::fs::remove_dir_all(&top);
        std::fs::create_dir_all(&top).ok()?;
        let disk = Disk::make(&top)?;
        let mut start = Start { disk, how, top, holds: Vec::new(), image: Vec::new(), next: 1 };
        plant(&start.low().join("0"), how);
        let image = start.top.join("0.img");
        make_image(&image, 32 << 20);
        let bench = Bench::at(start.low(), start.top.join("twins"), image.clone(), how);
        bench.warm();
        bench.let_go();
        start.disk.sync();
        (start.holds, start.image) = (start.disk.copy(), std::fs::read(image).ok()?);
        Some(start)
    }

    /// The directory.
    fn low(&self) -> PathBuf {
        if self.how == How::JournalBeside { self.disk.low.join("d") } else { self.disk.low.clone() }
    }

    /// A cache over the directory with this image, in a place of its own.
    fn bench(&mut self, image: &[u8]) -> Bench {
        let path = self.top.join(format!("{}.img", self.next));
        self.next += 1;
        write_sparsely(&path, image);
        Bench::at(self.low(), self.top.join("twins"), path, self.how)
    }

    /// The case that a seed draws.
    pub fn drawn(&mut self, seed: u64) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let work = [OPS[below(OPS.len() as u64) as usize], OPS[below(OPS.len() as u64) as usize]];
        let (syncs, cut, again) = (below(STEPS), below(STEPS), below(STEPS));
        let syncs = (below(3) > 0).then_some(syncs);
        match self.how {
            How::JournalBeside => self.without_image(work, below(2) == 0, (syncs, cut), again),
            _ => self.case(&work, syncs, cut, again),
        }
    }

    pub fn end(self) {
        let top = self.top.clone();
        drop(self);
        let _ = std::fs::remove_dir_all(top);
    }

    /// One case: `work` is done; the file system writes by itself before step `syncs`, or always; the power fails at step
    /// `cut`, and at step `again` of the round that runs then.
    pub fn case(&mut self, work: &[Op], syncs: Option<u64>, cut: u64, again: u64) {
        let what = format!("{work:?}, written at {syncs:?}, cut at {cut}, then at {again}");
        let (holds, image) = (std::mem::take(&mut self.holds), std::mem::take(&mut self.image));
        self.disk.back(&holds);
        let twin = self.top.join("twins/0");
        let _ = std::fs::remove_dir_all(&twin);
        plant(&twin, How::Outlived);
        let bench = self.bench(&image);
        for op in work {
            bench.both(0, *op);
        }
        let after = self.round(&bench, (syncs, cut), &what);
        bench.let_go();
        self.acknowledged(&after, &what, &twin);
        // The image is kept: the round runs again, is cut off again, and runs to its end.
        self.disk.back(&after.disk);
        let bench = self.bench(&after.image);
        let after = self.round(&bench, (syncs.map(|_| again / 2), again), &what);
        bench.let_go();
        self.acknowledged(&after, &what, &twin);
        self.disk.back(&after.disk);
        let bench = self.bench(&after.image);
        bench.check(0, &what);
        bench.let_go();
        for number in self.next - 3..self.next {
            let _ = std::fs::remove_file(self.top.join(format!("{number}.img")));
        }
        (self.holds, self.image) = (holds, image);
    }

    /// One case with a journal: the first of `work` is done and said in the journal, or not, then the second; a round begins,
    /// the power fails at its step `cut`, and takes the image. It fails again at step `again` of the replay.
    pub fn without_image(&mut self, work: [Op; 2], is_said: bool, (syncs, cut): (Option<u64>, u64), again: u64) {
        let what = format!("{work:?}, said: {is_said}, written at {syncs:?}, cut at {cut}, replay cut at {again}");
        let (holds, image) = (std::mem::take(&mut self.holds), std::mem::take(&mut self.image));
        self.disk.back(&holds);
        let twin = self.top.join("twins/0");
        let _ = std::fs::remove_dir_all(&twin);
        plant(&twin, self.how);
        let bench = self.bench(&image);
        let mut wanted = tree(&twin);
        bench.both(0, work[0]);
        if is_said {
            assert!(bench.committer.as_ref().unwrap().lock().unwrap().commit().unwrap(), "{what}");
            wanted = tree(&twin);
        }
        bench.both(0, work[1]);
        if cut > 0 {
            // It says first what it is about to do.
            wanted = tree(&twin);
        }
        let after = self.round(&bench, (syncs, cut), &what);
        let (path, journal) = (bench.image.clone(), bench.journal.clone());
        bench.let_go();
        std::fs::remove_file(path).unwrap();
        self.disk.back(&after.disk);
        if let Some(disk) = self.replay(&journal, again, &what) {
            self.disk.back(&disk);
            assert!(self.replay(&journal, u64::MAX, &what).is_none(), "{what}");
        }
        self.is_there(&wanted, &what);
        assert!(!self.low().join(writeback::PARK).exists(), "{what}: left in the park");
        (self.holds, self.image) = (holds, image);
    }

    /// What the disk holds when the power fails at a step of a replay; `None` if it came to its end.
    fn replay(&self, journal: &Path, cut: u64, what: &str) -> Option<Vec<u8>> {
        let (mut step, mut disk) = (0, None);
        let mut hook = |_: &str| {
            step += 1;
            if step > cut {
                disk.get_or_insert_with(|| self.disk.copy());
                return Err(CUT);
            }
            Ok(())
        };
        let mut left = Left::open(journal).unwrap().unwrap_or_else(|| panic!("{what}: no journal"));
        let result = left.replay_with(&self.low(), false, &mut hook);
        assert!(disk.is_some() || result.is_ok(), "{what}: {result:?}");
        disk
    }

    /// All of it is in the directory.
    fn is_there(&self, wanted: &BTreeMap<String, Shown>, what: &str) {
        let there = tree(&self.low().join("0"));
        let names = there.keys().chain(wanted.keys()).filter(|name| there.get(*name) != wanted.get(*name));
        let other: Vec<_> = names.map(|name| (name, there.get(name).map(short), wanted.get(name).map(short))).collect();
        assert!(other.is_empty(), "{what}: promised, and not all there without the image: {other:?}");
    }

    /// A round that is cut off, or not, and what both media hold then.
    fn round(&self, bench: &Bench, (syncs, cut): (Option<u64>, u64), what: &str) -> Media {
        let (is_still, is_over) = (Mutex::new(()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            if syncs.is_none() {
                scope.spawn(|| {
                    while !is_over.load(SeqCst) {
                        let _moves = is_still.lock();
                        self.disk.sync();
                    }
                });
            }
            let _ends = Ends(&is_over);
            self.round_beside(bench, (syncs, cut), &is_still, what)
        })
    }

    fn round_beside(&self, bench: &Bench, (syncs, cut): (Option<u64>, u64), is_still: &Mutex<()>, what: &str) -> Media {
        let (mut step, mut media) = (0, None);
        let take = |is_over| {
            let _still = is_still.lock();
            Media { disk: self.disk.copy(), image: std::fs::read(&bench.image).unwrap(), is_over }
        };
        let mut hook = |_: &str| {
            step += 1;
            if Some(step) == syncs {
                self.disk.sync();
            }
            if step > cut {
                media.get_or_insert_with(|| take(false));
                return Err(CUT);
            }
            Ok(())
        };
        let round = bench.writer.lock().unwrap().round_with(true, &mut hook);
        media.unwrap_or_else(|| {
            round.unwrap_or_else(|failure| panic!("{what}: {failure}"));
            take(true)
        })
    }

    /// A round that is over has been acknowledged: all of it is on the disk, also if the image is lost.
    fn acknowledged(&self, after: &Media, what: &str, twin: &Path) {
        if after.is_over {
            self.disk.back(&after.disk);
            self.is_there(&tree(twin), what);
        }
    }
}

/// What both media hold when the power fails.
struct Media {
    disk: Vec<u8>,
    image: Vec<u8>,
    /// The round was over.
    is_over: bool,
}

/// What there is to be seen of a file, for people.
fn short(shown: &Shown) -> (u8, u32, u32, usize) {
    (shown.0, shown.1, shown.2, shown.3.len())
}

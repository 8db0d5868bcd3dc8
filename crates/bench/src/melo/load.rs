//! Filebench's loads, by their published definitions (`workloads/*.f` of filebench 1.5): how many files of which sizes, how
//! many threads, and what each does over and over.
//!
//! A file that a thread deletes, creates or opens is its own until it is done with it, as filebench has it. Sizes are drawn
//! from a gamma distribution of shape 1.5. What is scaled is the number of files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering::AcqRel, Ordering::Relaxed};

/// One of a thread's steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// `deletefile`: one that is there.
    Delete,
    /// `createfile`: one that is not there; it is open then.
    Create,
    /// `openfile`: one that is there.
    Open,
    /// `closefile`.
    Close,
    /// `writewholefile`, of the size drawn.
    WriteWhole,
    /// `readwholefile`, in pieces of 1 MiB.
    ReadWhole,
    /// `appendfilerand`: 1 to 16 KiB at the end.
    Append,
    /// The same, to the one log that all threads share.
    AppendLog,
    /// `fsync`.
    Fsync,
    /// `statfile`: one that is there.
    Stat,
}

/// A load.
#[derive(Debug)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// Files.
    pub files: usize,
    /// Files in a directory; 0: all in one.
    pub width: usize,
    /// Mean size, bytes.
    pub mean: u64,
    /// Of a hundred files so many are there at first.
    pub there: usize,
    /// Threads.
    pub threads: usize,
    /// What each does.
    pub steps: &'static [Step],
}

use Step::{Append, AppendLog, Close, Create, Delete, Fsync, Open, ReadWhole, Stat, WriteWhole};

/// The four that MeLo@V's figure 2 has.
pub const LOADS: [Load; 4] = [
    Load {
        name: "varmail",
        files: 1000,
        width: 0,
        mean: 16 << 10,
        there: 80,
        threads: 16,
        steps: &[Delete, Create, Append, Fsync, Close, Open, ReadWhole, Append, Fsync, Close, Open, ReadWhole, Close],
    },
    Load {
        name: "fileserver",
        files: 10_000,
        width: 20,
        mean: 128 << 10,
        there: 80,
        threads: 50,
        steps: &[Create, WriteWhole, Close, Open, Append, Close, Open, ReadWhole, Close, Delete, Stat],
    },
    Load {
        name: "webserver",
        files: 1000,
        width: 20,
        mean: 16 << 10,
        there: 100,
        threads: 100,
        steps: &[
            Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole,
            Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open,
            ReadWhole, Close, AppendLog,
        ],
    },
    Load {
        name: "webproxy",
        files: 10_000,
        width: 0,
        mean: 16 << 10,
        there: 80,
        threads: 100,
        steps: &[
            Delete, Create, Append, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open, ReadWhole, Close, Open,
            ReadWhole, Close, Open, ReadWhole, Close,
        ],
    },
];

/// Numbers drawn from a seed.
pub struct Draw(u64);

impl Draw {
    /// From a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Between 0 and 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A size, bytes: gamma distributed with shape 1.5 and this mean (Marsaglia and Tsang).
    pub fn size(&mut self, mean: u64) -> u64 {
        const SHAPE: f64 = 1.5;
        let (d, c) = (SHAPE - 1.0 / 3.0, 1.0 / (9.0 * (SHAPE - 1.0 / 3.0)).sqrt());
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return (d * v / SHAPE * mean as f64) as u64 + 1;
            }
        }
    }
}

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const BUSY: u8 = 2;

/// The files of a load, and what of each is so.
pub struct Files {
    /// Their paths below the directory of the load.
    pub paths: Vec<PathBuf>,
    /// The directories that they need, parents first.
    pub directories: Vec<PathBuf>,
    states: Vec<AtomicU8>,
}

impl Files {
    /// Those of a load, a `scale`th of its number.
    pub fn new(load: &Load, scale: usize) -> Files {
        let count = (load.files / scale).max(2 * load.threads);
        let mut directories = Vec::new();
        let paths = (0..count).map(|file| {
            let name = format!("{file:08}");
            if load.width == 0 {
                return PathBuf::from(name);
            }
            let (dir, above) = (file / load.width, file / load.width / load.width);
            let top = PathBuf::from(format!("d{above:04}"));
            let place = top.join(format!("d{dir:06}"));
            for dir in [&top, &place] {
                if directories.last() != Some(dir) && !directories.contains(dir) {
                    directories.push(dir.clone());
                }
            }
            place.join(name)
        });
        let paths: Vec<PathBuf> = paths.collect();
        let states = (0..count).map(|file| AtomicU8::new(if file % 100 < load.there { PRESENT } else { ABSENT })).collect();
        Files { paths, directories, states }
    }

    /// Which are there now.
    pub fn there(&self) -> impl Iterator<Item = usize> {
        self.states.iter().enumerate().filter(|(_, state)| state.load(Relaxed) == PRESENT).map(|(file, _)| file)
    }

    fn take(&self, draw: &mut Draw, wanted: u8) -> usize {
        loop {
            let file = draw.below(self.states.len() as u64) as usize;
            if self.states[file].compare_exchange(wanted, BUSY, AcqRel, Relaxed).is_ok() {
                return file;
            }
            std::hint::spin_loop();
        }
    }

    /// One that is there, this thread's from now on.
    pub fn take_present(&self, draw: &mut Draw) -> usize {
        self.take(draw, PRESENT)
    }

    /// One that is not there.
    pub fn take_absent(&self, draw: &mut Draw) -> usize {
        self.take(draw, ABSENT)
    }

    /// It is anybody's again.
    pub fn give_back(&self, file: usize, is_there: bool) {
        self.states[file].store(if is_there { PRESENT } else { ABSENT }, std::sync::atomic::Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sizes are distributed as the loads say. Method: mean and variance of many.
    #[test]
    fn sizes_have_the_mean_that_is_said() {
        let mut draw = Draw::new(1);
        let sizes: Vec<f64> = (0..100_000).map(|_| draw.size(16 << 10) as f64).collect();
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / sizes.len() as f64;
        assert!((mean / 16384.0 - 1.0).abs() < 0.02, "{mean}");
        // Of shape 1.5 it is the mean's square divided by that.
        assert!((variance / (16384.0f64.powi(2) / 1.5) - 1.0).abs() < 0.05, "{variance}");
    }

    /// Goal: a thread's steps leave it without an open file, and files are what they were taken as.
    #[test]
    fn steps_open_and_close() {
        for load in &LOADS {
            let mut open = false;
            for step in load.steps {
                match step {
                    Step::Create | Step::Open => assert!(!std::mem::replace(&mut open, true), "{}", load.name),
                    Step::Close => assert!(std::mem::replace(&mut open, false), "{}", load.name),
                    Step::WriteWhole | Step::ReadWhole | Step::Append | Step::Fsync => assert!(open, "{}", load.name),
                    Step::Delete | Step::Stat | Step::AppendLog => assert!(!open, "{}", load.name),
                }
            }
            assert!(!open);
            let files = Files::new(load, 10);
            let before = files.there().count();
            let mut draw = Draw::new(2);
            let file = files.take_present(&mut draw);
            assert_eq!(files.there().count(), before - 1);
            files.give_back(file, false);
            assert!(files.there().all(|other| other != file));
        }
    }
}

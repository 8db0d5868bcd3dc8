//! Who opens and locks until it is killed.

use super::{CHILDREN, FAILED, FORKING, HOLDERS, LOCKED, MADE, fork, is_orphan};
use crate::restless;
use crate::rng::Rng;
use crate::shared::Words;
use crate::world::World;
use pm::sys::abi as nr;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Names that all use.
const NAMES: u64 = 6;
/// Numbers that a worker keeps.
const NUMBERS: usize = 8;
/// Children of workers in a round.
const CHILDREN_MAX: u64 = 12;

/// The calls that are made here only.
pub(super) struct Calls(pub(super) World);

/// A record lock on `len` bytes.
pub(super) fn record(kind: i32, start: i64, len: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
}

impl Calls {
    fn raw(&self, number: u32, args: [i64; 3]) -> i64 {
        let args = [args[0] as usize, args[1] as usize, args[2] as usize, 0, 0, 0];
        // SAFETY: numbers, and what outlives the call.
        unsafe { self.0.serve(number as usize, args) as i64 }
    }

    pub(super) fn dup(&self, fd: i64) -> i64 {
        self.raw(nr::__NR_dup, [fd, 0, 0])
    }

    fn dup_to(&self, fd: i64, to: i64) -> i64 {
        self.raw(nr::__NR_dup3, [fd, to, 0])
    }

    pub(super) fn seek(&self, fd: i64, to: i64) -> i64 {
        self.raw(nr::__NR_lseek, [fd, to, i64::from(libc::SEEK_SET)])
    }

    /// `flock` that waits for nobody.
    pub(super) fn flock(&self, fd: i64, kind: i32) -> i64 {
        self.raw(nr::__NR_flock, [fd, i64::from(kind | libc::LOCK_NB), 0])
    }

    /// `fcntl` on a record.
    pub(super) fn record(&self, fd: i64, command: i32, lock: &mut libc::flock) -> i64 {
        self.raw(nr::__NR_fcntl, [fd, i64::from(command), core::ptr::from_mut(lock) as i64])
    }
}

/// Results that say nothing but how things were at that moment.
const FINE: [i32; 6] = [libc::ENOENT, libc::EEXIST, libc::EBADF, libc::EAGAIN, libc::EINVAL, libc::ENOSPC];

/// A worker.
pub(super) struct Worker {
    words: Words,
    seed: u64,
    numbers: [AtomicI64; NUMBERS],
}

impl Worker {
    /// One that has `inherited` numbers.
    pub(super) fn new(seed: u64, words: Words, inherited: &[i64]) -> Worker {
        let number = |at: usize| AtomicI64::new(inherited.get(at).copied().unwrap_or(-1));
        Worker { words, seed, numbers: std::array::from_fn(number) }
    }

    /// Works with one thread, or with two that share the numbers, until the process is killed.
    pub(super) fn run(&self, world: World, threads: u64) {
        let calls = Calls(world);
        if threads == 1 {
            return self.work(&calls, true);
        }
        std::thread::scope(|scope| {
            let process = calls.0.process;
            scope.spawn(move || {
                restless::begin(self.seed ^ 1);
                let world = World { process, thread: crate::world::thread_state(), has_kernel: false };
                self.work(&Calls(world), false);
            });
            self.work(&calls, false);
        });
    }

    fn work(&self, calls: &Calls, is_alone: bool) {
        let mut rng = Rng::new(self.seed ^ u64::from(is_alone));
        while self.words.get(FAILED) == 0 {
            let done =
                if is_alone && rng.one_in(4) { self.lock_alone(calls, &mut rng) } else { self.step(calls, &mut rng, is_alone) };
            if let Err(error) = done {
                eprintln!("process {}: {error}", std::process::id());
                self.words.set(FAILED, 1);
            }
            self.words.add(MADE, 1);
        }
    }

    fn step(&self, calls: &Calls, rng: &mut Rng, is_alone: bool) -> Result<(), String> {
        let place = &self.numbers[rng.below(NUMBERS as u64) as usize];
        let other = &self.numbers[rng.below(NUMBERS as u64) as usize];
        let (name, to) = (format!("/name{}", rng.below(NAMES)), format!("/name{}", rng.below(NAMES)));
        // What is replaced is closed. Where nothing takes its place the number stays: it may be closed
        // again, by another thread at the same time.
        let put = |place: &AtomicI64, number: i64| {
            let old = if number < 0 { place.load(Relaxed) } else { place.swap(number, Relaxed) };
            if old >= 0 { (number, calls.0.close(old) as i64) } else { (number, 0) }
        };
        let world = &calls.0;
        let what = rng.below(if is_alone { 14 } else { 13 });
        let results = match what {
            0 | 1 => put(place, world.open(&name, libc::O_CREAT | libc::O_RDWR)),
            2 => put(place, world.open("/", libc::O_TMPFILE | libc::O_RDWR)),
            3 | 4 => put(other, calls.dup(place.load(Relaxed))),
            5 => (0, calls.dup_to(place.load(Relaxed), other.load(Relaxed))),
            6 | 7 => put(place, -i64::from(libc::EBADF)),
            8 => (0, world.unlink(&name) as i64),
            9 => (0, world.rename(&name, &to) as i64),
            10 => (0, world.write(place.load(Relaxed), &[7; 300]) as i64),
            11 => {
                let path = format!("/lock{}", rng.below(LOCKED));
                put(place, world.open(&path, libc::O_RDWR))
            }
            12 => {
                // A number that was duplicated from one of who stays may be its own lock.
                let fd = world.open(&format!("/lock{}", rng.below(LOCKED)), libc::O_RDWR);
                let kind = [libc::LOCK_SH, libc::LOCK_UN][rng.below(2) as usize];
                let locked = calls.flock(fd, kind);
                let shared = calls.record(fd, libc::F_OFD_SETLK, &mut record(libc::F_RDLCK, rng.below(50) as i64, 10));
                put(place, fd);
                (locked, shared)
            }
            _ => (0, self.multiply(&calls.0, rng)),
        };
        for result in [results.0, results.1] {
            // Closed by the other thread, and gone.
            if !is_alone && result == -i64::from(libc::ESTALE) {
                continue;
            }
            if result < 0 && result != crate::world::NOBODYS as i64 && !FINE.contains(&(-result as i32)) {
                return Err(format!("call {what}: {}", crate::differential::compare::error(result as isize)));
            }
        }
        Ok(())
    }

    /// Forks a child that works on with the same numbers.
    fn multiply(&self, world: &World, rng: &mut Rng) -> i64 {
        if self.words.add(CHILDREN, 1) > CHILDREN_MAX {
            return 0;
        }
        let draw = rng.draw();
        self.words.add(FORKING, 1);
        let Ok(token) = world.process.fork_prepare(&world.thread) else { return 0 };
        let parent = std::process::id();
        let pid = fork(|| {
            if is_orphan(parent) {
                return;
            }
            world.process.fork_child(token);
            restless::begin(draw);
            let world = World { process: world.process, thread: crate::world::thread_state(), has_kernel: false };
            let numbers: Vec<i64> = self.numbers.iter().map(|number| number.load(Relaxed)).collect();
            Worker::new(draw, self.words, &numbers).run(world, 1);
        });
        world.process.fork_done(token, pid as u32);
        self.words.add(FORKING, u64::MAX);
        0
    }

    /// Takes an exclusive lock, in one of three ways, sees that nobody else has it, and gives it up.
    fn lock_alone(&self, calls: &Calls, rng: &mut Rng) -> Result<(), String> {
        let file = rng.below(LOCKED);
        let way = rng.below(3) as usize;
        let fd = calls.0.open(&format!("/lock{file}"), libc::O_RDWR);
        if fd < 0 {
            return Err(format!("lock file: {}", crate::differential::compare::error(fd as isize)));
        }
        let command = [0, libc::F_OFD_SETLK, libc::F_SETLK][way];
        let lock = |kind: i32| {
            if way == 0 {
                calls.flock(fd, if kind == libc::F_WRLCK { libc::LOCK_EX } else { libc::LOCK_UN })
            } else {
                calls.record(fd, command, &mut record(kind, 100, 10))
            }
        };
        let got = lock(libc::F_WRLCK);
        if got == 0 {
            // Those of records see each other.
            let holder = HOLDERS + file as usize * 2 + usize::from(way == 0);
            let own = u64::from(std::process::id());
            let before = self.words.swap(holder, own);
            if before != 0 && before != own && !ends_soon(before as i32) {
                return Err(format!("two have lock {file}, taken in way {way}: {own} and {before}"));
            }
            let _ = calls.0.stat("/kept");
            if self.words.swap(holder, 0) != own {
                return Err(format!("another has got lock {file}, taken in way {way}"));
            }
            if rng.one_in(2) {
                lock(libc::F_UNLCK);
            }
        } else if got != -i64::from(libc::EAGAIN) {
            return Err(format!("lock {file} in way {way}: {}", crate::differential::compare::error(got as isize)));
        }
        match calls.0.close(fd) {
            0 => Ok(()),
            result => Err(format!("close after a lock: {}", crate::differential::compare::error(result))),
        }
    }
}

/// Whether a process that was killed is gone, or about to be.
fn ends_soon(pid: i32) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        let state = state.as_deref().and_then(|text| text.rsplit_once(") ")).map(|(_, rest)| rest.as_bytes()[0]);
        if matches!(state, None | Some(b'Z' | b'X')) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

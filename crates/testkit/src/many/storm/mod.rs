//! Goal: a process killed at any instruction disturbs nobody: what it had
//! acknowledged is there, what it had not is whole or not there, the others go
//! on at once, and all that it held comes back.
//! Method: eight workers make every kind of call on one image, on names of
//! their own and on shared ones; each notes in memory that outlives it what it
//! is about to do and what has returned. One after the other is killed with
//! `SIGKILL`, some in their first microseconds; a new one takes the seat and
//! looks for everything that was acknowledged. In the end all are killed, and
//! what is held must be what was held before the first one began.

mod board;
mod calls;
mod own;
mod shared;

use super::Image;
use crate::image::{self, check};
use crate::restless;
use crate::rng::Rng;
use crate::world::World;
use board::{Board, LIVES, SEATS, now};
use calls::Worker;
use hdrhistogram::Histogram;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A call that takes longer is stuck, nanoseconds.
const STUCK: u64 = 20_000_000_000;
/// What the parent expects to hold itself: its place, and its working directory.
const ANY_DESCRIPTOR: [isize; shared::KEPT] = [-1; shared::KEPT];

/// The parent of all workers.
struct Storm {
    /// The parent's own view; children are forked from it.
    view: Worker,
    board: &'static Board,
    fs: &'static engine::Fs,
    rng: Rng,
    seed: u64,
    /// Most workers are interrupted at random.
    restless: bool,
    lives: u32,
    pids: [i32; SEATS],
    /// Lives, by seat: the last one is the newborn.
    born: [u32; SEATS],
    dying: [bool; SEATS],
}

/// Kills `kills` workers; where it is `restless`, most of them are interrupted at random.
///
/// # Errors
/// What was lost, torn, stuck or left behind.
pub fn storm(kills: u64, seed: u64, restless: bool) -> Result<String, String> {
    let image = Image::new("storm", 2 << 30);
    let native = image::attach(image.path());
    let board = Board::new();
    let view = Worker { world: World::new(native), board, fs: native.0, number: 0 };
    view.prepare()?;
    let mut storm = Storm {
        view,
        board,
        fs: native.0,
        rng: Rng::new(seed),
        seed,
        restless,
        lives: 0,
        pids: [0; SEATS],
        born: [0; SEATS],
        dying: [false; SEATS],
    };
    let at_first = storm.fs.census();
    let start = Instant::now();
    let blown = storm.blow(kills);
    storm.kill_all();
    blown?;
    let spent = start.elapsed();
    let records = storm.aftermath()?;
    // Everything of the dead is back.
    let at_last = storm.fs.census();
    if at_last != at_first {
        return Err(format!("held after the storm: {at_last:?}\nand before it: {at_first:?}"));
    }
    storm.leave();
    let orphans = settle(&image)?;
    Ok(format!("{}\n{records} records in the log; {orphans} orphans left to the next attachment", table(board, kills, spent)))
}

impl Storm {
    /// Starts a worker in a seat.
    fn start(&mut self, seat: usize) -> Result<(), String> {
        let (process, thread) = (self.view.world.process, &self.view.world.thread);
        let life = self.lives;
        self.lives += 1;
        let token = process.fork_prepare(thread).map_err(|errno| format!("before fork: {errno}"))?;
        // SAFETY: this program has one thread.
        match unsafe { libc::fork() } {
            ..0 => Err("fork failed".into()),
            0 => {
                // SAFETY: at the parent's death this child ends too.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                // SAFETY: numbers only.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
                let thread = crate::world::thread_state();
                process.fork_child(token);
                if self.restless && !life.is_multiple_of(4) {
                    restless::begin(self.seed ^ u64::from(life) << 40);
                }
                let worker =
                    Worker { world: World { process, thread, has_kernel: false }, board: self.board, fs: self.fs, number: seat };
                if let Err(text) = work(&worker, life, self.seed) {
                    worker.seat().fail(&text);
                }
                // SAFETY: ends this child without the parent's exit handlers.
                unsafe { libc::_exit(1) };
            }
            pid => {
                process.fork_done(token, pid as u32);
                (self.pids[seat], self.born[seat]) = (pid, life);
                Ok(())
            }
        }
    }

    /// Kills and starts, `kills` times. A killed process needs a turn on a
    /// processor to die: meanwhile the next ones are killed.
    fn blow(&mut self, kills: u64) -> Result<(), String> {
        // The killer must get a processor between eight workers; where it may not ask for that, it takes longer.
        // SAFETY: numbers only.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
        (0..SEATS).try_for_each(|seat| self.start(seat))?;
        for kill in 0..kills {
            // Every fourth victim is the one that was started last, soon after.
            let newborn = self.rng.one_in(4);
            std::thread::sleep(Duration::from_nanos(self.rng.below(if newborn { 300_000 } else { 3_000_000 })));
            while let Some(seat) = self.reap(false)? {
                self.start(seat)?;
            }
            // Two at least live on.
            while self.dying.iter().filter(|dying| **dying).count() > SEATS - 2 {
                if let Some(seat) = self.reap(true)? {
                    self.start(seat)?;
                }
            }
            let living: Vec<usize> = (0..SEATS).filter(|seat| !self.dying[*seat]).collect();
            let last = living.iter().copied().max_by_key(|seat| self.born[*seat]);
            let seat = last.filter(|_| newborn).unwrap_or_else(|| self.rng.pick(&living));
            self.kill(seat);
            self.all_well().map_err(|text| format!("after kill {kill}: {text}"))?;
        }
        Ok(())
    }

    fn kill(&mut self, seat: usize) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.pids[seat], libc::SIGKILL) };
        self.board.kills.fetch_add(1, SeqCst);
        self.dying[seat] = true;
    }

    /// The seat of a worker that has died, if there is one or if we `wait`.
    fn reap(&mut self, wait: bool) -> Result<Option<usize>, String> {
        let mut status = 0;
        // SAFETY: children of ours.
        let pid = unsafe { libc::waitpid(-1, &mut status, if wait { 0 } else { libc::WNOHANG }) };
        let Some(seat) = (0..SEATS).find(|seat| pid > 0 && self.pids[*seat] == pid) else { return Ok(None) };
        self.pids[seat] = 0;
        if !std::mem::take(&mut self.dying[seat]) || !libc::WIFSIGNALED(status) || libc::WTERMSIG(status) != libc::SIGKILL {
            self.all_well()?;
            return Err(format!("worker {seat} ended by itself, status {status:#x}"));
        }
        if self.rng.one_in(2) {
            self.fs.adopt_dead_processes(&self.view.world.process.cx(&self.view.world.thread));
        }
        Ok(Some(seat))
    }

    fn kill_all(&mut self) {
        for seat in (0..SEATS).filter(|seat| self.pids[*seat] != 0).collect::<Vec<_>>() {
            if !self.dying[seat] {
                self.kill(seat);
            }
        }
        while self.pids.iter().any(|pid| *pid != 0) && self.reap(true).is_ok() {}
    }

    /// Whether no worker has failed, and none is stuck.
    fn all_well(&self) -> Result<(), String> {
        for (number, seat) in self.board.seats.iter().enumerate() {
            if let Some(text) = seat.failure() {
                return Err(format!("worker {number}: {text}"));
            }
            let began = seat.began.load(SeqCst);
            if began != 0 && self.pids[number] != 0 && now().saturating_sub(began) > STUCK {
                return Err(format!("worker {number} is stuck in call {}", seat.intent.what.load(SeqCst)));
            }
        }
        Ok(())
    }

    /// After the last death: everything that was acknowledged is there.
    fn aftermath(&mut self) -> Result<u64, String> {
        self.all_well()?;
        let living = self.fs.adopt_dead_processes(&self.view.world.process.cx(&self.view.world.thread));
        if living != 0 {
            return Err(format!("{living} of the dead are taken to live"));
        }
        for seat in 0..SEATS {
            self.view.number = seat;
            self.view.take_over().map_err(|text| format!("in the end, worker {seat}: {text}"))?;
        }
        self.view.all_tokens()?;
        self.view.whole_log()
    }

    fn leave(&self) {
        self.view.world.process.detach(&self.view.world.thread);
    }
}

/// Whoever held the seat before is dead: what he left half done is finished before
/// anybody looks, by us or by another worker, who may be at it already.
fn finish_dead(worker: &Worker, dead: u32) -> Result<(), String> {
    let begun = now();
    loop {
        worker.fs.adopt_dead_processes(&worker.world.process.cx(&worker.world.thread));
        if !worker.fs.users().any(|pid| pid == dead) {
            return Ok(());
        }
        if now() - begun > STUCK {
            return Err(format!("process {dead} is dead, and nobody adopts it"));
        }
        std::thread::yield_now();
    }
}

/// A worker's life.
fn work(worker: &Worker, life: u32, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ u64::from(life) << 32);
    let seat = worker.seat();
    seat.sit(worker.board);
    // Noted only after: whoever follows a worker that died at this waits for the same one.
    finish_dead(worker, seat.pid.load(SeqCst))?;
    seat.pid.store(std::process::id(), SeqCst);
    worker.take_over()?;
    if life as usize >= LIVES {
        return Err("too many lives".into());
    }
    let log = worker.open("/log", libc::O_WRONLY | libc::O_APPEND);
    let mut kept = shared::Kept { life, log, open: ANY_DESCRIPTOR };
    loop {
        if rng.one_in(2) { worker.own_step(&mut rng)? } else { worker.shared_step(&mut rng, &mut kept)? }
    }
}

/// Attaches the image as the next user does, and checks it; how many orphans he found.
fn settle(image: &Image) -> Result<u64, String> {
    let left = check(image.path())?.orphans;
    for _ in 0..5 {
        super::wait_all(
            vec![crate::differential::sandbox::spawn(|_| {
                let world = image.world();
                world.process.detach(&world.thread);
                Ok(())
            })],
            60,
        )?;
        if check(image.path())?.orphans == 0 {
            return Ok(left);
        }
    }
    Err("orphans stay".into())
}

/// What the survivors' next calls took.
fn table(board: &Board, kills: u64, spent: Duration) -> String {
    let mut times = Histogram::<u64>::new(3).expect("three digits are fine");
    for sample in board.samples() {
        times.saturating_record(sample);
    }
    let calls: u64 = board.seats.iter().map(|seat| seat.calls.load(SeqCst)).sum();
    let longest = board.seats.iter().map(|seat| seat.longest.load(SeqCst)).max().unwrap_or(0);
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "{kills} kills in {:.1} s ({:.0}/s), {calls} calls: none lost, none torn, none stuck\n\
         survivors' next call, ms: p50 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3} ({} of them); longest call of all {:.3}",
        spent.as_secs_f64(),
        kills as f64 / spent.as_secs_f64(),
        ms(times.value_at_quantile(0.5)),
        ms(times.value_at_quantile(0.99)),
        ms(times.value_at_quantile(0.999)),
        ms(times.max()),
        times.len(),
        ms(longest)
    )
}

//! Threads between the kernel and [`Fuse`]: each reads a request, has it
//! answered, writes the answer. One more looks after requests that wait.

use crate::fuse::{self, Fuse, Keepers, Worker, message::Reply};
use crate::pool::Seat;
use base::{Cred, Cx, Stale};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vfs::Backend;

/// A request with the most data, and room to spare.
const REQUEST_MAX: usize = (1 << 20) + 4096;

/// How long the thread for invalidations sleeps at a time, nanoseconds.
const NAP_NS: i64 = 200_000_000;

/// How long, and after what pauses, an invalidation is repeated that has overtaken an answer. Less than
/// a change waits for its invalidation.
const OVERTAKEN_MAX: Duration = Duration::from_millis(500);
const OVERTAKEN_PAUSE: Duration = Duration::from_micros(50);

/// A mount being served.
#[derive(Debug)]
pub struct Session {
    fuse: Arc<Fuse>,
    stop: Arc<AtomicBool>,
    workers: Workers,
    caretaker: JoinHandle<()>,
    waiter: JoinHandle<()>,
    answerer: JoinHandle<()>,
    notifier: JoinHandle<()>,
}

impl Session {
    /// Starts to serve `backend` over `device` with this many threads, or more where they have to wait, of which
    /// each calls `at_end` when it has no more to do. `invalidations` reports changes made
    /// elsewhere, then sleeps for a time in nanoseconds; `report` is told what a person may want to know.
    pub fn start(
        device: OwnedFd,
        backend: &'static dyn Backend,
        keepers: Keepers,
        threads: usize,
        invalidations: impl Fn(&Cx, i64, &mut dyn FnMut(Stale)) + Send + 'static,
        report: impl Fn(&str) + Send + 'static,
        at_end: impl Fn(&base::Thread) + Clone + Send + 'static,
    ) -> std::io::Result<Session> {
        let (device, threads) = (Arc::new(device), threads.max(2));
        let later = {
            let device = Arc::clone(&device);
            Box::new(move |answer: &[u8]| {
                let _ = send(&device, answer);
            })
        };
        let fuse = Arc::new(Fuse::new(backend, keepers, later, fuse::REST));
        let stop = Arc::new(AtomicBool::new(false));
        let workers = Workers::default();
        let more = {
            let (fuse, device, at_end) = (Arc::clone(&fuse), Arc::clone(&device), at_end.clone());
            let (stop, workers) = (Arc::clone(&stop), Arc::clone(&workers));
            move || {
                let Some(seat) = fuse.pool().seat(threads) else { return Ok(()) };
                let (fuse, device, at_end, stop) = (Arc::clone(&fuse), Arc::clone(&device), at_end.clone(), Arc::clone(&stop));
                let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
                workers.retain(|worker: &JoinHandle<_>| !worker.is_finished());
                let name = std::thread::Builder::new().name(format!("fuse-{}", workers.len()));
                workers.push(name.spawn(move || {
                    let worker = Worker::at(Arc::clone(&seat));
                    let result = work(&fuse, &device, &worker, &seat, (backend, threads));
                    // Not only when all workers have: one of them may be at something long.
                    if result == Ok(Ended::Unmounted) {
                        stop.store(true, Relaxed);
                        fuse.pool().wake();
                    }
                    fuse.pool().leave(&seat);
                    at_end(worker.thread());
                    result.map(drop)
                })?);
                Ok::<(), std::io::Error>(())
            }
        };
        (0..threads).try_for_each(|_| more())?;
        let caretaker = {
            let (fuse, stop) = (Arc::clone(&fuse), Arc::clone(&stop));
            let look = move || fuse.pool().look_after(backend, threads, &stop, &|| drop(more()), &report);
            std::thread::Builder::new().name("fuse-threads".to_string()).spawn(look)?
        };
        let notifier = {
            let (fuse, device) = (Arc::clone(&fuse), Arc::clone(&device));
            let (stop, at_end) = (Arc::clone(&stop), at_end.clone());
            let pass_on = move || {
                let worker = Worker::default();
                let cx = Cx { cred: Cred::ROOT, umask: 0, thread: worker.thread() };
                while !stop.load(Relaxed) {
                    invalidations(&cx, NAP_NS, &mut |stale| notify(&fuse, &device, &cx, stale, &stop));
                }
                at_end(worker.thread());
            };
            std::thread::Builder::new().name("fuse-invalidations".to_string()).spawn(pass_on)?
        };
        let waiter = {
            let (fuse, stop, at_end) = (Arc::clone(&fuse), Arc::clone(&stop), at_end.clone());
            let wait = move || {
                let worker = Worker::default();
                fuse.wait_for_locks(&worker, &stop);
                at_end(worker.thread());
            };
            std::thread::Builder::new().name("fuse-locks".to_string()).spawn(wait)?
        };
        let answerer = {
            let (fuse, stop) = (Arc::clone(&fuse), Arc::clone(&stop));
            let answer = move || {
                let worker = Worker::default();
                fuse.answer_in_turn(&worker, &stop, &|message| {
                    let _ = send(&device, message);
                });
                at_end(worker.thread());
            };
            std::thread::Builder::new().name("fuse-answers".to_string()).spawn(answer)?
        };
        Ok(Session { fuse, stop, workers, caretaker, waiter, answerer, notifier })
    }

    /// Whether the mount is gone.
    pub fn is_over(&self) -> bool {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter().all(JoinHandle::is_finished)
    }

    /// Waits until the mount is gone. `wake` ends the sleep of `invalidations`.
    pub fn join(self, wake: impl Fn()) -> Result<(), Errno> {
        let mut result = Ok(());
        loop {
            // Not held while one is waited for: there may be more.
            let next = self.workers.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(worker) = next else { break };
            result = worker.join().unwrap_or(Err(Errno::IO)).and(result);
        }
        self.stop.store(true, Relaxed);
        self.fuse.pool().wake();
        let _ = self.caretaker.join();
        self.fuse.wake_locks();
        self.fuse.wake_answers();
        wake();
        let _ = self.waiter.join();
        let _ = self.answerer.join();
        let _ = self.notifier.join();
        result
    }
}

/// Threads that serve requests, also those that have ended.
type Workers = Arc<Mutex<Vec<JoinHandle<Result<(), Errno>>>>>;

/// Why a thread serves no more requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// There is no mount any more.
    Unmounted,
    /// There are enough others.
    Spare,
}

/// Serves requests until there is no mount any more, or there are so many who do, at least `least`.
fn work(
    fuse: &Fuse,
    device: &OwnedFd,
    worker: &Worker,
    seat: &Seat,
    (backend, least): (&dyn Backend, usize),
) -> Result<Ended, Errno> {
    seat.take(backend, &Cx { cred: Cred::ROOT, umask: 0, thread: worker.thread() });
    let mut request = vec![0; REQUEST_MAX];
    let mut reply = Reply::new();
    while fuse.pool().rest(least) {
        let read = rustix::io::read(device, &mut request[..]);
        fuse.pool().work();
        let len = match read {
            Ok(len) => len,
            // A request was taken back before it was read.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(Errno::NODEV) => return Ok(Ended::Unmounted),
            Err(errno) => return Err(errno),
        };
        if let Some(answer) = fuse.answer(worker, &request[..len], &mut reply) {
            // One that the kernel does not want any more (the caller was killed, the mount is gone) is dropped.
            let _ = send(device, answer);
        }
    }
    Ok(Ended::Spare)
}

/// Sends an answer, or an invalidation.
fn send(device: &OwnedFd, message: &[u8]) -> Result<(), Errno> {
    loop {
        match rustix::io::write(device, message) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Makes the kernel forget. Once `stop` says that the mount is gone the kernel knows nothing more, though
/// nobody has told us that it forgot: waiting for each node would keep the server for as many half seconds.
fn notify(fuse: &Fuse, device: &OwnedFd, cx: &Cx, stale: Stale, stop: &AtomicBool) {
    let forget = |number| {
        if let Some(first) = fuse.settle_listing(number) {
            // That there is no such name, the kernel says when it has had the lock.
            let _ = send(device, &first);
        }
        fuse.tell_end(cx, number, &|message| {
            let _ = send(device, message);
        });
        insist(|| !stop.load(Relaxed) && fuse.is_known(number), || send(device, &fuse::forget_node(number)));
    };
    match stale {
        Stale::Node(node) => forget(fuse.number(node)),
        // Names are only cached in a directory that the kernel has.
        Stale::Name(dir, name) => drop(send(device, &fuse::forget_name(fuse.number(dir), name))),
        Stale::Everything => fuse.all_known().into_iter().for_each(forget),
    }
}

/// Sends an invalidation; again, if the kernel has no such node yet though it was told of one.
fn insist(is_known: impl Fn() -> bool, send: impl Fn() -> Result<(), Errno>) {
    let begun = Instant::now();
    while send() == Err(Errno::NOENT) && is_known() && begun.elapsed() < OVERTAKEN_MAX {
        std::thread::sleep(OVERTAKEN_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Goal: an invalidation is repeated while the kernel is about to know the node, and no longer.
    #[test]
    fn overtaken_answers() {
        // So often the kernel has no such node, so often it was told of one, so many invalidations.
        for (missing, told, sent) in [(0, 9, 1), (3, 9, 4), (3, 0, 1), (9, 2, 3)] {
            let (times, asked) = (Cell::new(0), Cell::new(0));
            let count = |cell: &Cell<u32>| cell.replace(cell.get() + 1);
            let send = || if count(&times) < missing { Err(Errno::NOENT) } else { Ok(()) };
            insist(|| count(&asked) < told, send);
            assert_eq!(times.get(), sent, "{missing} {told}");
        }
        let times = Cell::new(0);
        insist(|| true, || times.replace(times.get() + 1).eq(&9).then_some(()).ok_or(Errno::NODEV));
        assert_eq!(times.get(), 1);
    }
}

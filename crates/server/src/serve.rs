//! Threads between the kernel and [`Fuse`]: each reads a request, has it
//! answered, writes the answer. One more looks after requests that wait.

use crate::fuse::{self, Fuse, Keepers, Worker, message::Reply};
use base::{Cred, Cx, Stale};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vfs::Backend;

/// A request with the most data, and room to spare.
const REQUEST_MAX: usize = (1 << 20) + 4096;

/// How long the thread for notices sleeps at a time, nanoseconds.
const NAP_NS: i64 = 200_000_000;

/// How long, and after what pauses, a notice is repeated that has overtaken an answer. Less than
/// a change waits for its notice.
const OVERTAKEN_MAX: Duration = Duration::from_millis(500);
const OVERTAKEN_PAUSE: Duration = Duration::from_micros(50);

/// A mount being served.
#[derive(Debug)]
pub struct Session {
    fuse: Arc<Fuse>,
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<Result<(), Errno>>>,
    waiter: JoinHandle<()>,
    answerer: JoinHandle<()>,
    notifier: JoinHandle<()>,
}

impl Session {
    /// Starts to serve `backend` over `device` with this many threads, of which
    /// each calls `at_end` when it has no more to do. `notices` reports changes made
    /// elsewhere, then sleeps for a time in nanoseconds.
    pub fn start(
        device: OwnedFd,
        backend: &'static dyn Backend,
        keepers: Keepers,
        threads: usize,
        notices: impl Fn(&Cx, i64, &mut dyn FnMut(Stale)) + Send + 'static,
        at_end: impl Fn(&base::Thread) + Clone + Send + 'static,
    ) -> std::io::Result<Session> {
        let device = Arc::new(device);
        let later = {
            let device = Arc::clone(&device);
            Box::new(move |answer: &[u8]| {
                let _ = send(&device, answer);
            })
        };
        let fuse = Arc::new(Fuse::new(backend, keepers, later, fuse::REST));
        let stop = Arc::new(AtomicBool::new(false));
        let mut workers = Vec::new();
        for number in 0..threads.max(2) {
            let (fuse, device, at_end) = (Arc::clone(&fuse), Arc::clone(&device), at_end.clone());
            let stop = Arc::clone(&stop);
            let work = move || {
                let worker = Worker::default();
                let result = work(&fuse, &device, &worker);
                // Not only when all workers have: one of them may be at something long.
                if result.is_ok() {
                    stop.store(true, Relaxed);
                }
                at_end(worker.thread());
                result
            };
            workers.push(std::thread::Builder::new().name(format!("fuse-{number}")).spawn(work)?);
        }
        let notifier = {
            let (fuse, device) = (Arc::clone(&fuse), Arc::clone(&device));
            let (stop, at_end) = (Arc::clone(&stop), at_end.clone());
            let pass_on = move || {
                let worker = Worker::default();
                let cx = Cx { cred: Cred::ROOT, umask: 0, thread: worker.thread() };
                while !stop.load(Relaxed) {
                    notices(&cx, NAP_NS, &mut |stale| notify(&fuse, &device, &cx, stale, &stop));
                }
                at_end(worker.thread());
            };
            std::thread::Builder::new().name("fuse-notices".to_string()).spawn(pass_on)?
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
        Ok(Session { fuse, stop, workers, waiter, answerer, notifier })
    }

    /// Whether the mount is gone.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the mount is gone. `wake` ends the sleep of `notices`.
    pub fn join(self, wake: impl Fn()) -> Result<(), Errno> {
        let mut result = Ok(());
        for worker in self.workers {
            result = worker.join().unwrap_or(Err(Errno::IO)).and(result);
        }
        self.stop.store(true, Relaxed);
        self.fuse.wake_locks();
        self.fuse.wake_answers();
        wake();
        let _ = self.waiter.join();
        let _ = self.answerer.join();
        let _ = self.notifier.join();
        result
    }
}

/// Serves requests until there is no mount any more.
fn work(fuse: &Fuse, device: &OwnedFd, worker: &Worker) -> Result<(), Errno> {
    let mut request = vec![0; REQUEST_MAX];
    let mut reply = Reply::new();
    loop {
        let len = match rustix::io::read(device, &mut request[..]) {
            Ok(len) => len,
            // A request was taken back before it was read.
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
            Err(Errno::NODEV) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        if let Some(answer) = fuse.answer(worker, &request[..len], &mut reply) {
            // One that the kernel does not want any more (the caller was killed, the mount is gone) is dropped.
            let _ = send(device, answer);
        }
    }
}

/// Sends an answer, or a notice.
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
        insist(|| !stop.load(Relaxed) && fuse.is_told(number), || send(device, &fuse::forget_node(number)));
    };
    match stale {
        Stale::Node(node) => forget(fuse.number(node)),
        // Names are only kept in a directory that the kernel has.
        Stale::Name(dir, name) => drop(send(device, &fuse::forget_name(fuse.number(dir), name))),
        Stale::Everything => fuse.all_told().into_iter().for_each(forget),
    }
}

/// Sends a notice; again, if the kernel has no such node yet though it was told of one.
fn insist(is_told: impl Fn() -> bool, send: impl Fn() -> Result<(), Errno>) {
    let begun = Instant::now();
    while send() == Err(Errno::NOENT) && is_told() && begun.elapsed() < OVERTAKEN_MAX {
        std::thread::sleep(OVERTAKEN_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Goal: a notice is repeated while the kernel is about to know the node, and no longer.
    #[test]
    fn overtaken_answers() {
        // So often the kernel has no such node, so often it was told of one, so many notices.
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

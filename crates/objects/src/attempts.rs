//! What becomes of the attempts of a request, and whether the store can be reached at all.
//!
//! An attempt that fails is followed by others until the time of the request is over. Two kinds of requests end sooner: the
//! first one of a mount, as soon as an attempt shows that nothing answers at the address; and, after the store was found out
//! of reach, each one with its first attempt, until one is answered. Otherwise each miss of a cache in front of the store
//! would take all of its time.

use futures::future::{Either, select};
use opendal::Error;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::Notify;

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The first one of a mount.
    First,
    /// Any other.
    Again,
    /// What may be answered without the store: the answer says nothing of that.
    Prepare,
}

/// What is known of the attempts so far.
#[derive(Default)]
pub struct Attempts {
    /// Why the last one failed, and whether nothing could be reached.
    last: Mutex<Option<(String, bool)>>,
    failed: Notify,
    is_away: AtomicBool,
}

impl Attempts {
    /// Notes an attempt that failed.
    pub fn note(&self, error: &Error) {
        let why = match unreachable(error) {
            Some(why) => (why, true),
            None => (crate::store::shown(error), false),
        };
        if let Ok(mut last) = self.last.lock() {
            *last = Some(why);
        }
        self.failed.notify_waiters();
    }

    /// Waits for an answer; `None` if an attempt has failed and others are not worth their time.
    pub async fn ask<T>(&self, how: Ask, request: impl Future<Output = T>) -> Option<T> {
        let mut request = pin!(request);
        loop {
            let failed = pin!(self.failed.notified());
            match select(request.as_mut(), failed).await {
                Either::Left((answer, _)) => {
                    if how != Ask::Prepare {
                        self.answered();
                    }
                    return Some(answer);
                }
                Either::Right(_) if self.is_away.load(Relaxed) || how == Ask::First && self.is_unreachable() => return None,
                Either::Right(_) => {}
            }
        }
    }

    fn answered(&self) {
        self.is_away.store(false, Relaxed);
        if let Ok(mut last) = self.last.lock() {
            *last = None;
        }
    }

    /// The time of a request is over: the next ones end sooner if nothing could be reached.
    pub fn overdue(&self) {
        if self.is_unreachable() {
            self.is_away.store(true, Relaxed);
        }
    }

    /// Whether the last attempt has reached nothing.
    pub fn is_unreachable(&self) -> bool {
        self.last.lock().is_ok_and(|last| last.as_ref().is_some_and(|(_, is_unreachable)| *is_unreachable))
    }

    /// Why the last attempt failed, behind a colon.
    pub fn why(&self) -> String {
        self.last.lock().ok().and_then(|last| last.as_ref().map(|(why, _)| format!(": {why}"))).unwrap_or_default()
    }
}

/// Why nothing could be reached at the address: no such name, nobody who listens, no route, no trust. `None` for what may be
/// different a moment later.
fn unreachable(error: &Error) -> Option<String> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return is_lasting(error.kind()).then(|| plain(error));
        }
        cause = error.source();
    }
    None
}

fn is_lasting(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
            | ErrorKind::NotConnected
            | ErrorKind::TimedOut
            | ErrorKind::UnexpectedEof
            | ErrorKind::WouldBlock
    )
}

/// The system's words without the number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: ErrorKind) -> Error {
        Error::new(opendal::ErrorKind::Unexpected, "send http request").set_source(io::Error::from(kind))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// A request whose attempts fail so, for ever.
    async fn failing(attempts: &Attempts, kind: ErrorKind, most: u32) -> u32 {
        for count in 0..most {
            attempts.note(&failed(kind));
            tokio::task::yield_now().await;
            assert!(count < 100, "it is asked for ever");
        }
        most
    }

    /// Goal: the first request of a mount ends when nothing can be reached, and not for a connection that broke; later ones
    /// end so after one whose time was over, until one is answered.
    #[test]
    fn ends() {
        let attempts = Attempts::default();
        let ask = |how, kind, most| block_on(attempts.ask(how, failing(&attempts, kind, most)));
        assert_eq!(ask(Ask::First, ErrorKind::ConnectionRefused, 1000), None);
        assert_eq!(attempts.why(), ": connection refused");
        assert_eq!(ask(Ask::First, ErrorKind::ConnectionReset, 50), Some(50));
        assert_eq!(ask(Ask::Again, ErrorKind::ConnectionRefused, 50), Some(50));
        assert_eq!(attempts.why(), "");
        attempts.note(&failed(ErrorKind::ConnectionRefused));
        attempts.overdue();
        assert_eq!(ask(Ask::Again, ErrorKind::ConnectionReset, 1000), None);
        assert_eq!(ask(Ask::Prepare, ErrorKind::ConnectionReset, 0), Some(0));
        assert_eq!(ask(Ask::Again, ErrorKind::ConnectionReset, 1000), None);
        assert_eq!(ask(Ask::Again, ErrorKind::ConnectionReset, 0), Some(0));
        assert_eq!(ask(Ask::Again, ErrorKind::ConnectionRefused, 50), Some(50));
    }
}

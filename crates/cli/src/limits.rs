//! `bypath` under narrow limits on stack and memory (`ulimit -s`, `ulimit -d`).
//!
//! The limits are for the programs of a session, which inherit them: `bypath` itself works on a stack of its own where the
//! limit is small, and a failure to get memory ends in a message.

use crate::failure::{Failure, Result};
use rustix::process::{Resource, getrlimit};
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::thread::{Builder, JoinHandle};

/// Stack on which a verb runs, bytes: what the kernel gives by default.
const STACK: usize = 8 << 20;
/// A limit below which the main thread's stack is not enough.
const STACK_MIN: u64 = 1 << 20;
/// Memory that a backtrace takes, at least.
const BACKTRACE: usize = 32 << 20;

/// Runs a verb, on a stack that is large enough.
pub fn on_stack(run: fn() -> ExitCode) -> ExitCode {
    std::panic::set_hook(hook());
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= STACK_MIN) {
        return run();
    }
    match Builder::new().stack_size(STACK).spawn(run).map(JoinHandle::join) {
        Ok(Ok(code)) => code,
        Ok(Err(_)) => ExitCode::from(101),
        Err(_) => run(),
    }
}

/// Starts a thread, or says what to do.
pub fn start<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let started = Builder::new().name(name.into()).spawn(work);
    started
        .map_err(|error| Failure::new(format!("a thread: {error}; raise the limits on memory or processes (ulimit -d, -v, -u)")))
}

/// The standard library's hook waits for itself for ever where memory runs out in the middle of a backtrace.
fn hook() -> Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send> {
    let usual = std::panic::take_hook();
    Box::new(move |info| match Vec::<u8>::new().try_reserve_exact(BACKTRACE) {
        Ok(()) => usual(info),
        Err(_) => eprintln!("bypath: {info}"),
    })
}

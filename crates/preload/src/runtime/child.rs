//! A child of this process that has memory of its own.

use crate::runtime::front_end::PROCESS;
use crate::runtime::hook::Hook;
use crate::runtime::tls::Tls;
use crate::runtime::{alloc, count, operation, sanitizers, thread};
use posix::ForkToken;

/// Called in it.
pub static IN_CHILD: Hook = Hook::none();

/// First thing in it, within an operation.
pub fn begins(tls: &Tls, token: ForkToken) {
    alloc::after_fork();
    thread::reset(tls);
    PROCESS.fork_child(token);
    operation::forget(tls);
    count::forget(tls);
    sanitizers::again();
    IN_CHILD.call();
    // It is the first thread now.
    tls.own_stack.set(0);
    tls.shared.set(0);
}

//! `bypath`: make images, run programs in them, look into them, check them.
//!
//! One file per verb under `cmd/`. A verb returns the exit code; whatever goes
//! wrong is a [`Failure`](failure::Failure): one line that says what happened,
//! to what, and what to do.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod bundled;
mod check;
mod cmd;
mod doctor;
mod failure;
mod image;
mod library;
mod limits;
mod mounts;
mod place;
mod progress;
mod seen_as;
mod show;
mod size;
mod transfer;

use clap::Parser;
use std::process::ExitCode;

/// Says that the system calls of its own of this program (by `rustix`) do without a session's mounts.
#[used]
static OWN_CALLS: [u8; 19] = *b"__bypath_own_calls_";

fn main() -> ExitCode {
    limits::on_stack(run)
}

fn run() -> ExitCode {
    if let Some(code) = mounts::helper::serve() {
        return code;
    }
    let args = args::Args::parse();
    match cmd::dispatch(args.verb) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("bypath: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

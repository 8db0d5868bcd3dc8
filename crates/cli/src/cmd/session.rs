//! `bypath session --mount SPEC:/dir`: mounts without a program, for as long as
//! somebody holds the other end of standard input (the C library).
//!
//! The first process only starts the second and ends, so that the steward is
//! nobody's child. The steward writes what `BYPATH_MOUNTS` would be, with a
//! NUL, on standard output, and closes that when all is taken away again.

use crate::failure::{Failure, Result};
use crate::mounts::spec::Mount;
use crate::mounts::{For, Session, check_points};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts the steward, or is it.
pub fn session(mounts: &[OsString], keeps: bool) -> Result<u8> {
    if keeps { keep(mounts) } else { start(mounts) }
}

/// Exit code for mounts that cannot be understood: the C library makes it `EINVAL`.
const WRONG: u8 = 2;

fn start(mounts: &[OsString]) -> Result<u8> {
    mounts.iter().try_for_each(|text| Mount::parse(text).map(drop)).map_err(|failure| failure.code(WRONG))?;
    let own = std::env::current_exe().map_err(|error| Failure::io("/proc/self/exe", &error))?;
    let mut command = Command::new(own);
    command.args(["session", "--keep"]).args(mounts.iter().flat_map(|spec| [OsString::from("--mount"), spec.clone()]));
    // What the terminal sends is for the program whose mounts these are.
    command.process_group(0).spawn().map_err(|error| Failure::io("/proc/self/exe", &error))?;
    Ok(0)
}

fn keep(mounts: &[OsString]) -> Result<u8> {
    let mounts = mounts.iter().map(|text| Mount::parse(text)).collect::<Result<Vec<_>>>()?;
    check_points(&mounts)?;
    let session = Session::start(&mounts, Vec::new(), For::Itself)?;
    // Whoever has gone is noticed below, where all is taken away in order.
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(&[&session.list[..], b"\0"].concat()).and_then(|()| output.flush());
    // Whatever comes means nothing; the end does.
    let mut input = std::io::stdin().lock();
    let mut part = [0; 64];
    while matches!(input.read(&mut part), Ok(count) if count > 0) {}
    Ok(0)
}

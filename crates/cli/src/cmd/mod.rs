//! One file per verb. Each returns the exit code.

mod bench;
pub mod cache;
mod cat;
mod check;
mod clean;
mod clone;
mod copy;
mod crew;
mod diff;
mod doctor;
mod dump;
mod enter;
mod guard;
mod info;
mod inside;
mod ls;
mod manual;
pub mod mkfs;
pub mod mount;
mod mounts;
mod pack;
mod resize;
mod run;
mod session;
mod shrink;
mod stat;
mod stats;
mod transfer;
mod upgrade;
mod ways;

use crate::args::Verb;
use crate::failure::{Failure, Result};
use std::io::Write;

/// Does what the command line asks.
pub fn dispatch(verb: Verb) -> Result<u8> {
    match verb {
        Verb::Mkfs { image, size, force } => mkfs::mkfs(&image, size, force),
        Verb::Run(run) => run::run(&run),
        Verb::Session { mounts, keep } => session::session(&mounts, keep),
        Verb::Mounts { json } => mounts::mounts(json),
        Verb::ExecInside { command } => run::exec_inside(&command),
        Verb::Mount(mount) => mount::mount(&mount),
        Verb::CacheSpare { seconds, image, directory, holds, writes } => {
            crate::mounts::spare::wait(seconds, &image, &directory, (holds, writes))
        }
        Verb::GuardMount { server, thread, directory, covers } => guard::guard(server, thread, &directory, covers),
        Verb::Umount { directory, lazy } => mount::umount(&directory, lazy),
        Verb::Import { source, target, unpack, force, quiet } => transfer::import(&source, &target, unpack, force, quiet),
        Verb::Clone { source, target, json, quiet } => clone::clone(&source, &target, clone::Options { json, quiet }),
        Verb::Snap { source, name, json, quiet } => clone::snap(&source, &name, clone::Options { json, quiet }),
        Verb::Copy { image, target, force, wait, json, quiet } => {
            copy::copy(&image, &target, copy::Options { force, wait, json, quiet })
        }
        Verb::Diff { first, second, json } => diff::diff(&first, &second, json).map_err(|failure| failure.code(2)),
        Verb::Drop { places, json, quiet } => clone::drop(&places, clone::Options { json, quiet }),
        Verb::Pack { image, target, level, quiet } => pack::pack(&image, &target, level, quiet),
        Verb::Restore { source, image, force, quiet } => pack::restore(&source, &image, force, quiet),
        Verb::Export { source, target, quiet } => transfer::export(&source, &target, quiet),
        Verb::Ls { places, long, human, all, recursive, json, help: _ } => {
            ls::ls(&places, ls::Options { long, human, all, recursive, json })
        }
        Verb::Cat { places } => cat::cat(&places),
        Verb::Stat { places, follow, json } => stat::stat(&places, follow, json),
        Verb::Check { image, repair, yes, force, json } => check::check(&image, check::Options { repair, yes, force, json }),
        Verb::Upgrade { image, inode32, force, json } => upgrade::upgrade(&image, upgrade::Options { inode32, force, json }),
        Verb::Resize { image, size, force, json, quiet } => resize::resize(&image, size, resize::Options { force, json, quiet }),
        Verb::Shrink { image, force, json } => shrink::shrink(&image, force, json),
        Verb::Info { image, json } => info::info(&image, json),
        Verb::Stats { images, json, prometheus } => {
            let form = match (json, prometheus) {
                (true, _) => stats::Form::Json,
                (_, true) => stats::Form::Prometheus,
                _ => stats::Form::Text,
            };
            stats::stats(&images, form)
        }
        Verb::Top { images, interval } => stats::top(&images, interval),
        Verb::Dump { image } => dump::dump(&image),
        Verb::Enter(enter) => enter::enter(enter.session.as_deref(), &enter.command, enter.list, enter.json),
        Verb::Cache { what } => cache::cache(&what),
        Verb::Clean { json } => clean::clean(json),
        Verb::Doctor { json, command } => doctor::doctor(&command, json),
        Verb::Completions { shell } => manual::completions(shell),
        Verb::Man { directory } => manual::man(directory.as_deref()),
        Verb::Bench(bench) => bench::run(bench.what),
    }
}

/// Prints `text` on standard output. A reader that has gone ends the program in silence, as everywhere in Unix.
pub fn print(text: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(141),
        other => other.map_err(|error| Failure::io("standard output", &error)),
    }
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(format!("JSON: {error}")))?;
    print(format!("{text}\n").as_bytes())
}

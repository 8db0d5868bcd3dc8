//! `testkit`: tests of the whole, by name. See `README.md`.

mod arguments;
mod backends;

use arguments::{Crash, Daemons, Storm, Test};
use bypath_testkit::{crash, daemons, damage, differential, image, many};
use clap::Parser;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;

fn main() -> ExitCode {
    let test = arguments::Arguments::parse().test;
    // Not for those that are killed by the score, and have no image.
    let has_images = !matches!(test, Test::Daemons(_));
    let _segments = has_images.then(image::Segments::new);
    let fine = match test {
        Test::Differential(asked) => match backends::plan(&asked) {
            Ok(plan) => differential::run(&plan),
            Err(problem) => shown(Err(problem)),
        },
        Test::Random { processes, ops, seed } => shown(many::random(processes, ops, seed)),
        Test::Append { processes, records } => shown(many::append(processes, records)),
        Test::Visible { rounds } => shown(many::visible(rounds)),
        Test::Stops { stops, seed } => shown(many::stops(stops, seed)),
        Test::Storm(Storm { kills, restless, cachelets, atomic, seed }) => {
            image::ATOMIC.store(atomic.map_or(0, |how| how as u32 + 1), Relaxed);
            image::CACHELETS.store(cachelets, Relaxed);
            shown(many::storm(kills, seed, restless))
        }
        Test::Daemons(asked) => shown(run_daemons(asked)),
        Test::Damage { images, from, seconds, seed } => shown(damage::damage(seed, from, images, seconds)),
        Test::Flips { count, seconds, seed } => shown(damage::flips(seed, count, seconds)),
        Test::Flat { entries } => shown(many::flat(entries)),
        Test::Deaths { rounds, seed } => shown(many::deaths(rounds, seed)),
        Test::Held { rounds, seed } => shown(many::held(rounds, seed)),
        Test::Recover { files, seed } => shown(many::recover(files, seed)),
        Test::Crash(asked) => run_crash(&asked),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what a test says; whether it was good.
fn shown(result: Result<String, String>) -> bool {
    match result {
        Ok(ref text) => println!("{text}"),
        Err(ref text) => println!("FAILED: {text}"),
    }
    result.is_ok()
}

fn run_daemons(asked: Daemons) -> Result<String, String> {
    if let Some(client) = asked.client {
        return daemons::client(client, asked.millis);
    }
    if let Some(clients) = asked.clients {
        return daemons::clients(clients, asked.seconds, asked.seed);
    }
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("bypath"));
    let bypath = asked.bypath.or(beside).ok_or("say --bypath PROGRAM")?;
    daemons::daemons(&bypath, 10, asked.seconds, asked.seed)
}

fn run_crash(asked: &Crash) -> bool {
    if !asked.worker.is_empty() {
        return crash::command::worker(&asked.worker);
    }
    if asked.persists {
        return shown(crash::persists::table().and_then(|(text, fine)| if fine { Ok(text) } else { Err(text) }));
    }
    let every = asked.every.max(1);
    if asked.mutants {
        let every_pair = asked.every_pair.unwrap_or(every);
        return crash::command::mutants((every as usize, every_pair as usize), asked.alike, asked.media.as_deref());
    }
    if asked.pages {
        return shown(crash::page::run(every as usize, asked.cap, asked.seed));
    }
    if let Some(text) = &asked.replay {
        return crash::command::replay(text);
    }
    if let Some(path) = &asked.regressions {
        return crash::command::regressions(path);
    }
    let plan = crash::command::Plan {
        depth: asked.depth,
        shortest: asked.shortest,
        every,
        jobs: asked.jobs,
        seed: asked.seed,
        pairs: asked.pairs,
        alike: asked.alike,
        seconds: asked.seconds,
    };
    match &asked.journal {
        Some(path) => crash::journal::run(&plan, asked.parts, path),
        None => crash::command::run(&plan, asked.part),
    }
}

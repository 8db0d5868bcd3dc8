//! Goal: a process killed at any instant stops nobody and loses nothing that
//! was acknowledged.
//! Method: victims loop over create, append, rename and unlink, count in shared
//! words what has returned, and are killed after a random time. A survivor
//! works in the same directory all along and, after each death, looks for
//! everything that was acknowledged. A watchdog sees to it that no call of the
//! survivor's takes a second.

use super::{Image, expect, wait_all};
use crate::differential::sandbox::{Report, spawn};
use crate::image::check;
use crate::rng::Rng;
use crate::shared::Words;
use crate::world::World;
use std::time::{Duration, Instant};

/// Words: rounds that are over (set by the parent) and verified (by the
/// survivor), the survivor's calls, its longest call in microseconds, whether it is to stop.
const OVER: usize = 0;
const VERIFIED: usize = 1;
const CALLS: usize = 2;
const LONGEST: usize = 3;
const STOP: usize = 4;
/// What the victim of this round has had acknowledged.
const CREATED: usize = 8;
const APPENDED: usize = 9;
const RENAMED: usize = 10;
const UNLINKED: usize = 11;
/// The victim is attached.
const READY: usize = 12;

const RECORD: usize = 100;
/// A renamed file is removed that many turns later.
const KEPT: u64 = 5;

fn record(round: u64, turn: u64) -> [u8; RECORD] {
    let mut record = [b'r'; RECORD];
    record[..8].copy_from_slice(&round.to_ne_bytes());
    record[8..16].copy_from_slice(&turn.to_ne_bytes());
    record
}

/// One victim: works until it is killed.
fn victim(image: &Image, words: Words, round: u64) -> Result<(), String> {
    let world = image.world();
    let log = world.open(&format!("/log{round}"), libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND);
    expect(log as isize, || "open the log".into())?;
    words.set(READY, round + 1);
    for turn in 0.. {
        expect(world.create(&format!("/f{round}-{turn}")), || format!("create {turn}"))?;
        words.set(CREATED, turn + 1);
        expect(world.write(log, &record(round, turn)), || format!("append {turn}"))?;
        words.set(APPENDED, turn + 1);
        expect(world.rename(&format!("/f{round}-{turn}"), &format!("/g{round}-{turn}")), || format!("rename {turn}"))?;
        words.set(RENAMED, turn + 1);
        if turn >= KEPT {
            expect(world.unlink(&format!("/g{round}-{}", turn - KEPT)), || format!("unlink {turn}"))?;
            words.set(UNLINKED, turn - KEPT + 1);
        }
    }
    Ok(())
}

/// Removes file `turn`. The operation that death has interrupted is finished by
/// whoever next needs its names: until then what was not acknowledged is not seen.
fn remove(
    world: &World,
    round: u64,
    turn: u64,
    (old, new): (bool, bool),
    interrupted: bool,
    acknowledged: bool,
) -> Result<(), String> {
    let (f, g) = (format!("/f{round}-{turn}"), format!("/g{round}-{turn}"));
    if !interrupted {
        return match (old, new) {
            (true, _) => expect(world.unlink(&f), || format!("removing {f}")),
            (_, true) => expect(world.unlink(&g), || format!("removing {g}")),
            _ => Ok(()),
        };
    }
    // What changes a name needs it free, and so finishes what held it.
    let gone = -(libc::ENOENT as isize);
    let created = world.create(&f);
    let (first, second) = (world.unlink(&f), world.unlink(&g));
    for result in [first, second] {
        if result != gone {
            expect(result, || format!("removing {f} or {g} again"))?;
        }
    }
    let was_there = created < 0 || second == 0;
    if acknowledged && !was_there { Err(format!("{f} was acknowledged, and is lost")) } else { Ok(()) }
}

/// Looks for everything that the victim of `round` had acknowledged, then removes it.
fn verify(world: &World, words: Words, round: u64) -> Result<(), String> {
    let (created, appended, renamed, unlinked) =
        (words.get(CREATED), words.get(APPENDED), words.get(RENAMED), words.get(UNLINKED));
    // One operation may have happened without being acknowledged.
    for turn in 0..created + 1 {
        let (old, new) = (world.stat(&format!("/f{round}-{turn}")).is_ok(), world.stat(&format!("/g{round}-{turn}")).is_ok());
        let fine = match turn {
            turn if turn < unlinked => !old && !new,
            turn if turn < renamed => !old && (new || turn == unlinked),
            // The rename may come to its end between one look and the other.
            turn if turn < created && turn == renamed => old || new,
            turn if turn < created => old && !new,
            _ => !new,
        };
        if !fine {
            return Err(format!(
                "round {round}: file {turn}: old name {old}, new name {new}; acknowledged {created} creations, {renamed} renames, {unlinked} removals"
            ));
        }
        remove(world, round, turn, (old, new), [created, renamed, unlinked].contains(&turn), turn < created && turn != unlinked)?;
    }
    let name = format!("/log{round}");
    match world.stat(&name) {
        Err(-2) if words.get(READY) <= round => return Ok(()),
        Err(error) => return Err(format!("round {round}: the log: {error}")),
        Ok(stat) => {
            let records = stat.st_size as u64 / RECORD as u64;
            if !(stat.st_size as u64).is_multiple_of(RECORD as u64) || records < appended || records > appended + 1 {
                return Err(format!("round {round}: {} bytes in the log, {appended} records acknowledged", stat.st_size));
            }
            let fd = world.open(&name, libc::O_RDONLY);
            for turn in 0..records {
                let mut data = [0; RECORD];
                if world.pread(fd, &mut data, turn * RECORD as u64) != RECORD as isize || data != record(round, turn) {
                    return Err(format!("round {round}: record {turn} is not what was written"));
                }
            }
            expect(world.close(fd), || "close".into())?;
        }
    }
    expect(world.unlink(&name), || format!("round {round}: removing the log"))
}

/// Works beside the victims for as long as it is told to.
fn survivor(image: &Image, words: Words, step: &dyn Fn(usize)) -> Result<(), String> {
    let world = image.world();
    let mut verified = 0;
    let mut turn = 0u64;
    while words.get(STOP) == 0 {
        let timed = |what: &str, call: &dyn Fn() -> isize| {
            let start = Instant::now();
            let result = call();
            let spent = start.elapsed().as_micros() as u64;
            if spent > words.get(LONGEST) {
                words.set(LONGEST, spent);
            }
            step(words.add(CALLS, 1) as usize);
            expect(result, || format!("the survivor's {what} {turn}"))
        };
        timed("create", &|| world.create(&format!("/s{turn}")))?;
        timed("rename", &|| world.rename(&format!("/s{turn}"), &format!("/t{turn}")))?;
        timed("mkdir", &|| world.mkdir(&format!("/d{turn}")))?;
        timed("move", &|| world.rename(&format!("/t{turn}"), &format!("/d{turn}/x")))?;
        timed("unlink", &|| world.unlink(&format!("/d{turn}/x")))?;
        timed("rmdir", &|| {
            world.path_call(pm::sys::abi::__NR_unlinkat, &[super::CWD], &format!("/d{turn}"), &[libc::AT_REMOVEDIR as i64])
        })?;
        turn += 1;
        if words.get(OVER) > verified {
            verify(&world, words, verified)?;
            verified += 1;
            words.set(VERIFIED, verified);
        }
    }
    Ok(())
}

/// Kills `rounds` victims.
pub fn kill(rounds: u64, seed: u64) -> Result<String, String> {
    let image = Image::new("kill", 1 << 30);
    let words = Words::new();
    let mut rng = Rng::new(seed);
    let beside = spawn(|watch| survivor(&image, words, &|step| watch.step(step)));
    let mut operations = 0;
    let mut result = Ok(());
    for round in 0..rounds {
        for word in CREATED..=UNLINKED {
            words.set(word, 0);
        }
        let doomed = spawn(|_| victim(&image, words, round));
        // Some die while they attach, most while they work.
        if !rng.one_in(10) && !words.wait(READY, round + 1, Duration::from_secs(5)) {
            result = Err(format!("round {round}: the victim did not start"));
        }
        std::thread::sleep(Duration::from_nanos(rng.below(2_000_000)));
        doomed.kill();
        if let Report::Failed { text, .. } = doomed.wait(20)
            && text != "died of signal 9"
        {
            result = Err(format!("round {round}: the victim: {text}"));
        }
        operations += words.get(CREATED) + words.get(APPENDED) + words.get(RENAMED) + words.get(UNLINKED);
        words.set(OVER, round + 1);
        if result.is_ok() && !words.wait(VERIFIED, round + 1, Duration::from_secs(10)) {
            result = Err(format!("round {round}: the survivor does not answer"));
        }
        if result.is_err() {
            break;
        }
    }
    words.set(STOP, 1);
    // What the survivor has to say comes first: it is why the round failed.
    wait_all(vec![beside], 20).and(result)?;
    let longest_ms = words.get(LONGEST) as f64 / 1000.0;
    if longest_ms > 1000.0 {
        return Err(format!("a call of the survivor's took {longest_ms} ms"));
    }
    let report = check(image.path())?;
    if report.names != 0 {
        return Err(format!("{} names are left", report.names));
    }
    Ok(format!(
        "{rounds} killed, {operations} acknowledged operations all there; the survivor's {} calls took at most {longest_ms:.1} ms",
        words.get(CALLS)
    ))
}

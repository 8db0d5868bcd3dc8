//! Goal: a process stopped at any instruction (`SIGSTOP`, Ctrl-Z, a debugger) keeps nobody from another file or name.
//! Method: five workers make an image grow, make small files, write in place, build trees, and start programs; one after
//! the other is stopped at a random moment, and while it is, another process makes calls of every kind
//! on files and names of its own, also beside those of the stopped one, and each tenth time another user attaches the image.
//! What waits all the same is asked for what: a name waits where the stopped one holds just its bucket, one of
//! 1,024, in the middle of a change; for nothing else.

use super::{Image, expect};
use crate::differential::sandbox::{Child, Report, spawn};
use crate::image::{self, check};
use crate::rng::Rng;
use crate::shared::Words;
use crate::world::World;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

// Words of the board.
/// The turn that is asked for, and the one that is done.
const TURN: usize = 0;
const DONE: usize = 1;
/// When the call under way was begun, nanoseconds + 1; 0: none is.
const BEGAN: usize = 2;
/// What the waits of the one who makes calls are known by.
const WAITER: usize = 3;
const CALLS: usize = 4;
const LONGEST: usize = 5;
/// Calls that took more than 10 ms, and 1 ms.
const SLOW: usize = 6;
const OVER_1_MS: usize = 7;
/// Everybody ends.
const OVER: usize = 8;
/// The longest attachment.
const ATTACHED: usize = 9;
/// The directories are there.
const READY: usize = 10;

/// A call that takes longer, and waits for the stopped one, is one that waits; one that waits for nobody known is stuck.
const WAITS: u64 = 50_000_000;
const STUCK: u64 = 5_000_000_000;
/// How long a turn may take once nobody is stopped any more.
const LIMIT: Duration = Duration::from_secs(20);
/// Of so many stops one may keep somebody waiting: it takes a bucket for a quarter of the time, at most.
const ONE_OF: u64 = 50;

type Victim = fn(&World, &Words, &mut Rng) -> Result<(), String>;

/// Stops workers `stops` times.
///
/// # Errors
/// Who waited, and for what.
pub fn stops(stops: u64, seed: u64) -> Result<String, String> {
    let image = Image::new("stops", 4 << 30);
    let words = Words::new();
    let begin = |number: u64, victim: Victim| {
        let child = spawn(|_| {
            own_group();
            let world = image.world();
            let mut rng = Rng::new(seed ^ number << 40);
            while words.get(READY) == 0 {
                std::thread::yield_now();
            }
            while words.get(OVER) == 0 {
                victim(&world, &words, &mut rng)?;
            }
            world.process.detach(&world.thread);
            Ok(())
        });
        // SAFETY: our own child; it does so too.
        unsafe { libc::setpgid(child.pid(), child.pid()) };
        child
    };
    let victims: [Victim; 4] = [grow, make_small, write_in_place, build];
    let mut children: Vec<Child> = (0..).zip(victims).map(|(number, victim)| begin(number, victim)).collect();
    children.push(starter(&image, words));
    let prober = spawn(|_| {
        let native = image::attach(image.path());
        let world = World::new(native);
        words.set(WAITER, u64::from(native.0.waits_as(&world.process.cx(&world.thread))));
        probe(&world, words, seed)
    });
    let fs = image::attach(image.path()).0;

    if !words.wait(READY, 1, LIMIT) {
        return Err("no directories".into());
    }
    let (mut rng, begun) = (Rng::new(seed), Instant::now());
    let mut waits = BTreeMap::<&'static str, u64>::new();
    let mut result = Ok(());
    for turn in 1..=stops {
        std::thread::sleep(Duration::from_nanos(rng.below(3_000_000)));
        let group = rng.pick(&children.iter().map(Child::pid).collect::<Vec<_>>());
        signal(group, libc::SIGSTOP);
        wait_until_stopped(group)?;
        let attacher = turn.is_multiple_of(10).then(|| attacher(&image, words));
        words.set(TURN, turn);
        let waited = watch(words, turn, |number| fs.waits_for(number));
        signal(group, libc::SIGCONT);
        if let Some(what) = waited {
            *waits.entry(what).or_default() += 1;
        }
        if !words.wait(DONE, turn, LIMIT) {
            result = Err(format!("stop {turn}: a call hangs, or has failed, though nobody is stopped"));
            break;
        }
        if let Some(Report::Failed { text, .. }) = attacher.map(|child| child.wait(20)) {
            result = Err(format!("stop {turn}: attaching: {text}"));
            break;
        }
    }
    words.set(OVER, 1);
    words.set(TURN, stops + 1);
    children.push(prober);
    // Whoever has failed says why; whoever hangs is killed after that.
    super::wait_all(children, 30)?;
    result?;
    let spent = begun.elapsed();
    fs.adopt_dead_processes(&base::Cx { cred: base::Cred::ROOT, umask: 0, thread: &base::Thread::new() });
    check(image.path())?;
    let ms = |word| words.get(word) as f64 / 1e6;
    let text = format!(
        "{stops} stops in {:.1} s, {} calls of others: longest {:.1} ms, {} over 10 ms, {} over 1 ms; longest attachment {:.1} ms; \
         waits for the stopped one: {waits:?}",
        spent.as_secs_f64(),
        words.get(CALLS),
        ms(LONGEST),
        words.get(SLOW),
        words.get(OVER_1_MS),
        ms(ATTACHED),
    );
    let allowed = waits.keys().all(|what| *what == "bucket");
    let few = waits.values().sum::<u64>() <= stops / ONE_OF + 2;
    if allowed && few { Ok(text) } else { Err(text) }
}

/// Waits until the turn is done, or somebody waits for the stopped one: for what.
fn watch(words: Words, turn: u64, waits_for: impl Fn(u32) -> Option<&'static str>) -> Option<&'static str> {
    let since = Instant::now();
    while words.get(DONE) < turn {
        let began = words.get(BEGAN);
        let spent = if began == 0 { 0 } else { now().saturating_sub(began - 1) };
        if spent > WAITS
            && words.get(BEGAN) == began
            && let Some(what) = (words.get(WAITER) as u32).checked_sub(1).and_then(&waits_for)
        {
            return Some(what);
        }
        // Not in a call any more, it has failed: that is told in the end.
        if spent > STUCK || since.elapsed() > LIMIT {
            return Some("nothing known");
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    None
}

fn now() -> u64 {
    pm::clock::monotonic() as u64
}

fn own_group() {
    // SAFETY: numbers only.
    unsafe { libc::setpgid(0, 0) };
}

fn signal(group: i32, signal: i32) {
    // SAFETY: a group that our own child leads.
    unsafe { libc::kill(-group, signal) };
}

/// Stopping takes effect when the process gets to it.
fn wait_until_stopped(pid: i32) -> Result<(), String> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| format!("a worker is gone: {error}"))?;
        match stat.rsplit(") ").next().and_then(|rest| rest.chars().next()) {
            Some('T') => return Ok(()),
            Some('Z' | 'X') => return Err("a worker has ended".into()),
            _ => std::thread::yield_now(),
        }
    }
    Err(format!("process {pid} cannot be stopped"))
}

// ---- who is stopped ----

fn grow(world: &World, words: &Words, rng: &mut Rng) -> Result<(), String> {
    let path = "/v0/large";
    let fd = world.open(path, libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY);
    expect(fd as isize, || format!("open {path}"))?;
    let piece = vec![7; 1 << 20];
    // What it takes is not given back for a while, so that the image must grow.
    for _ in 0..32 + rng.below(64) {
        if words.get(OVER) == 0 {
            expect(world.write(fd, &piece), || format!("write {path}"))?;
        }
    }
    expect(world.close(fd), || "close".into())?;
    let kept = format!("/v0/kept{}", rng.below(24));
    expect(world.rename(path, &kept), || format!("rename {path}"))
}

fn make_small(world: &World, _: &Words, rng: &mut Rng) -> Result<(), String> {
    let (path, kept) = ("/v1/new".to_string(), format!("/v1/{}", rng.below(2000)));
    let fd = world.open(&path, libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY);
    expect(fd as isize, || format!("open {path}"))?;
    expect(world.write(fd, &vec![1; 10_000]), || format!("write {path}"))?;
    expect(world.close(fd), || "close".into())?;
    expect(world.rename(&path, &kept), || format!("rename {path}"))
}

fn write_in_place(world: &World, _: &Words, rng: &mut Rng) -> Result<(), String> {
    let fd = world.open("/v2/file", libc::O_CREAT | libc::O_WRONLY);
    expect(fd as isize, || "open /v2/file".into())?;
    let piece = vec![3; 1 << 20];
    for _ in 0..8 {
        expect(world.write(fd, &piece), || "write /v2/file".into())?;
    }
    expect(world.close(fd), || "close".into())?;
    expect(world.truncate("/v2/file", rng.below(8 << 20)), || "truncate".into())
}

fn build(world: &World, _: &Words, rng: &mut Rng) -> Result<(), String> {
    let directory = format!("/v3/d{}", rng.below(50));
    let at = |name: &str| format!("{directory}/{name}");
    expect(world.mkdir(&directory), || format!("mkdir {directory}"))?;
    for number in 0..rng.below(40) {
        expect(world.create(&at(&format!("f{number}"))), || "create".into())?;
    }
    expect(world.create(&at("file")), || "create".into())?;
    expect(world.link(&at("file"), &at("link")), || "link".into())?;
    expect(world.symlink("nowhere", &at("symlink")), || "symlink".into())?;
    for name in ["file", "link", "symlink"] {
        expect(world.unlink(&at(name)), || format!("unlink {name}"))?;
    }
    for number in 0..40 {
        let _ = world.unlink(&at(&format!("f{number}")));
    }
    expect(world.rmdir(&directory), || format!("rmdir {directory}"))
}

/// Starts one program after the other, of which each attaches the image, and is stopped with it.
fn starter(image: &Image, words: Words) -> Child {
    let child = spawn(|_| {
        own_group();
        while words.get(OVER) == 0 {
            if let Report::Failed { text, .. } = spawn(|_| leave(&image.world())).wait(60) {
                return Err(format!("a program: {text}"));
            }
        }
        Ok(())
    });
    // SAFETY: our own child; it does so too.
    unsafe { libc::setpgid(child.pid(), child.pid()) };
    child
}

fn leave(world: &World) -> Result<(), String> {
    let _ = world.stat("/");
    world.process.detach(&world.thread);
    Ok(())
}

// ---- who goes on ----

/// Attaches the image, and leaves it.
fn attacher(image: &Image, words: Words) -> Child {
    spawn(|_| {
        let begun = now();
        let world = image.world();
        let spent = now() - begun;
        if spent > words.get(ATTACHED) {
            words.set(ATTACHED, spent);
        }
        leave(&world)
    })
}

/// Makes calls, a round each time it is asked to.
fn probe(world: &World, words: Words, seed: u64) -> Result<(), String> {
    for directory in ["/probe", "/v0", "/v1", "/v2", "/v3"] {
        expect(world.mkdir(directory), || format!("mkdir {directory}"))?;
    }
    words.set(READY, 1);
    let timed = |what: &str, call: &dyn Fn() -> isize| {
        let begun = now();
        words.set(BEGAN, begun + 1);
        let result = call();
        words.set(BEGAN, 0);
        let spent = now() - begun;
        words.add(CALLS, 1);
        words.set(LONGEST, spent.max(words.get(LONGEST)));
        words.add(SLOW, u64::from(spent > 10_000_000));
        words.add(OVER_1_MS, u64::from(spent > 1_000_000));
        expect(result, || what.to_string()).map(|()| result)
    };
    let mut rng = Rng::new(seed ^ 0xb0b);
    for turn in 1.. {
        while words.get(TURN) < turn {
            std::thread::sleep(Duration::from_micros(20));
        }
        if words.get(OVER) != 0 {
            break;
        }
        // Its own directory, and those of the others.
        for directory in ["/probe".to_string(), format!("/v{}", rng.below(4))] {
            let at = |name: &str| format!("{directory}/p{turn}{name}");
            let (file, other, inner) = (at("file"), at("other"), at("dir"));
            let data = vec![5; 1 + rng.below(300_000) as usize];
            let fd = timed("create", &|| world.open(&file, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR) as isize)? as i64;
            timed("write", &|| world.write(fd, &data))?;
            timed("read", &|| world.pread(fd, &mut [0; 100], 0))?;
            timed("close", &|| world.close(fd))?;
            timed("mkdir", &|| world.mkdir(&inner))?;
            timed("rename", &|| world.rename(&file, &other))?;
            timed("link", &|| world.link(&other, &file))?;
            timed("stat", &|| world.stat(&file).map_or_else(|error| error, |_| 0))?;
            timed("truncate", &|| world.truncate(&other, 10))?;
            timed("unlink", &|| world.unlink(&file))?;
            timed("unlink", &|| world.unlink(&other))?;
            timed("rmdir", &|| world.rmdir(&inner))?;
        }
        words.set(DONE, turn);
    }
    words.set(DONE, u64::MAX);
    world.process.detach(&world.thread);
    Ok(())
}

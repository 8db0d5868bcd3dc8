//! Runs targets without libFuzzer, on any compiler: first the kept inputs, then
//! as many new ones as the time allows, made from a seed.
//!
//!   replay [--seconds N] [--seed S] [--target NAME] [--ops N] [FILE…]
//!
//! With files, runs just these. Each target is a process of its own; the input
//! it is at stands in a file, so that what kills it can be told and kept.

use bypath_fuzz::target::ALL;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use testkit::rng::Rng;

/// Processor time that an input may take, seconds.
const CPU_SECONDS: i64 = 1;
const INPUT_MAX: usize = 400;

fn option(args: &[String], name: &str) -> Option<String> {
    args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned()
}

fn number(args: &[String], name: &str, default: u64) -> u64 {
    option(args, name).and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(target) = option(&args, "--child") {
        return child(&args, &target);
    }
    let only = option(&args, "--target");
    let mut fine = true;
    for (name, _) in ALL.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)) {
        fine &= parent(&args, name);
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one target in a process of its own and says how that went.
fn parent(args: &[String], name: &str) -> bool {
    let at = std::env::temp_dir().join(format!("bypath-fuzz-{}-{name}.input", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--child", name, "--input", &at.to_string_lossy()]).args(args);
    let status = command.status().expect("start");
    let fine = status.success();
    if !fine {
        let kept = PathBuf::from(format!("find-{name}"));
        let input = std::fs::read(&at).unwrap_or_default();
        let len = input.get(..4).map_or(0, |len| u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize);
        let _ = std::fs::write(&kept, input.get(4..4 + len).unwrap_or_default());
        println!("FAIL fuzz {name}: {status}; the input is kept as {}", kept.display());
    }
    let _ = std::fs::remove_file(at);
    remove_leftovers();
    fine
}

/// What a child that was killed has left in `/dev/shm`.
fn remove_leftovers() {
    for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let own = ["bypath-fuzz-", "bypath-testkit-"].iter().find_map(|prefix| name.strip_prefix(prefix));
        let owner = own.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let path = entry.path();
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
    }
}

fn child(args: &[String], name: &str) -> ExitCode {
    let Some((_, run)) = ALL.iter().find(|(known, _)| *known == name) else { return ExitCode::FAILURE };
    let at = option(args, "--input").expect("an input file");
    let run = Watched { run: *run, note: File::create(at).expect("a file for inputs") };
    let files: Vec<&String> = args.iter().filter(|arg| Path::new(arg.as_str()).is_file()).collect();
    let given: Vec<PathBuf> =
        files.into_iter().map(PathBuf::from).filter(|file| !file.ends_with(format!("{name}.input"))).collect();
    let given: Vec<PathBuf> = given.into_iter().filter(|file| !file.to_string_lossy().ends_with(".input")).collect();
    if !given.is_empty() {
        for file in given {
            run.on(&std::fs::read(file).expect("readable"));
        }
        return ExitCode::SUCCESS;
    }
    let kept = corpus(name);
    for input in &kept {
        run.on(input);
    }
    let seed = number(args, "--seed", 1);
    let (end, most) = (Duration::from_secs(number(args, "--seconds", 7)), number(args, "--ops", u64::MAX));
    let (begun, mut rng, mut count) = (Instant::now(), Rng::new(seed), 0);
    while count < most && begun.elapsed() < end {
        run.on(&made(&mut rng, &kept));
        count += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("ok   fuzz {name}: {} kept inputs, {count} new ones from seed {seed} in {seconds:.1} s", kept.len());
    ExitCode::SUCCESS
}

/// The kept inputs of a target, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

/// A new input: made up, or a kept one with changes.
fn made(rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8> {
    let mut input = match kept.len() as u64 {
        0 => Vec::new(),
        _ if rng.one_in(2) => Vec::new(),
        many => kept[rng.below(many) as usize].clone(),
    };
    if input.is_empty() {
        let len = rng.below(INPUT_MAX as u64) as usize;
        input = (0..len).map(|_| rng.draw() as u8).collect();
        // Few patches more often than many: the first ones hide the others.
        if let Some(first) = input.first_mut()
            && !rng.one_in(3)
        {
            *first = *first & 0xe0 | *first & 3;
        }
    } else {
        for _ in 0..=rng.below(4) {
            let at = rng.below(input.len() as u64) as usize;
            match rng.below(3) {
                0 => input[at] = rng.draw() as u8,
                1 => input[at] ^= 1 << rng.below(8),
                _ => input.insert(at, rng.draw() as u8),
            }
        }
    }
    input.truncate(2 * INPUT_MAX);
    input
}

/// A target under watch.
struct Watched {
    run: fn(&[u8]),
    note: File,
}

impl Watched {
    /// Runs an input: noted first; a second of processor time is deadly.
    fn on(&self, input: &[u8]) {
        let mut noted = (input.len() as u32).to_le_bytes().to_vec();
        noted.extend(input);
        self.note.write_all_at(&noted, 0).expect("note");
        alarm(CPU_SECONDS);
        (self.run)(input);
        alarm(0);
    }
}

/// Ends this process by `SIGPROF` when this thread has used so much processor time more; 0: never.
fn alarm(seconds: i64) {
    static TIMER: OnceLock<usize> = OnceLock::new();
    let timer = *TIMER.get_or_init(|| {
        // SAFETY: all zero is a valid one.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_SIGNAL, libc::SIGPROF);
        let mut timer = std::ptr::null_mut();
        // SAFETY: both are whole structures of ours.
        let made = unsafe { libc::timer_create(libc::CLOCK_THREAD_CPUTIME_ID, &mut event, &mut timer) };
        assert_eq!(made, 0, "a timer");
        timer as usize
    });
    let (never, when) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, libc::timespec { tv_sec: seconds, tv_nsec: 0 });
    let value = libc::itimerspec { it_interval: never, it_value: when };
    // SAFETY: a timer of this thread's; the old value is not asked for.
    unsafe { libc::timer_settime(timer as libc::timer_t, 0, &value, std::ptr::null_mut()) };
}

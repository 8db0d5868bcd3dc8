//! `testkit`: tests of the whole, by name. See `README.md`.

use bypath_testkit::differential::{self, Ours, Plan, run::Limits};
use bypath_testkit::many;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vfs::native::Native;
use vfs::native::cached::{CachedNative, Way};
use vfs::native::kept::{AGE_NS, Kept};

/// A number that no other call in this process gives.
fn another() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Relaxed)
}

fn mem() -> &'static dyn vfs::Backend {
    // SAFETY: takes no arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    vfs::mem::Mem::leak(uid, gid, 0o777, 0x6d65 + another())
}

fn native() -> &'static dyn vfs::Backend {
    attached()
}

/// A new image.
fn attached() -> &'static Native {
    let path = bypath_testkit::image::fresh_path("differential");
    bypath_testkit::image::make(&path, 1 << 30);
    let native = bypath_testkit::image::attach(&path);
    // It stays for as long as it is mapped.
    let _ = std::fs::remove_file(path);
    native
}

/// The same image through the cached way.
fn cached_native(way: Way) -> &'static dyn vfs::Backend {
    let place = std::path::PathBuf::from(differential::sandbox::root_of(std::process::id() as i32));
    let kept = place.join(format!("kept-{}", another()));
    std::fs::create_dir_all(&place).expect("a directory");
    std::fs::File::create(&kept).and_then(|file| file.set_len(Kept::bytes())).expect("a file");
    let kept = Kept::open(&[kept.as_os_str().as_encoded_bytes(), b"\0"].concat(), AGE_NS).expect("what is kept");
    Box::leak(Box::new(CachedNative::new(*attached(), kept, way)))
}

fn conventional() -> &'static dyn vfs::Backend {
    cached_native(Way::Conventional)
}

fn byvfs() -> &'static dyn vfs::Backend {
    cached_native(Way::Byvfs)
}

/// A directory of the kernel's, new and on tmpfs; it goes with this child's other things.
fn host() -> &'static dyn vfs::Backend {
    let place = std::path::PathBuf::from(differential::sandbox::root_of(std::process::id() as i32));
    let (directory, ledger) = (place.join("host"), place.join("ledger"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&directory, open_to_all).expect("its mode");
    std::fs::File::create(&ledger).and_then(|file| file.set_len(vfs::ledger::Ledger::bytes())).expect("a ledger");
    let shared = vfs::ledger::Ledger::open(&[ledger.as_os_str().as_encoded_bytes(), b"\0"].concat()).expect("a ledger");
    let host = vfs::host::Host::new(directory.as_os_str().as_encoded_bytes(), false).expect("the directory");
    Box::leak(Box::new(vfs::cached::Cached::new(host, shared)))
}

/// The daemon of the session of `bypath run` around this call.
fn wire() -> &'static dyn vfs::Backend {
    let list = std::env::var("BYPATH_MOUNTS").unwrap_or_default();
    let plain = |part: &[u8]| {
        let mut out = vec![0; part.len()];
        let len = posix::environment::unescape(part, &mut out).unwrap_or(0);
        out.truncate(len);
        out
    };
    let source = posix::environment::parse(list.as_bytes()).map(|spec| plain(spec.image)).find(|text| text.starts_with(b"wire:"));
    let source = source.expect("no session with a daemon around this call: bypath run --mount 'fuse:… @:/dir' -- testkit …");
    let mut parts = source[5..].splitn(2, |&b| b == b':');
    let (ledger, channel) = (parts.next().unwrap_or(b""), parts.next().unwrap_or(b""));
    let ledger = vfs::ledger::Ledger::open(&[ledger, b"\0"].concat()).expect("the session's ledger");
    let wire = vfs::wire::Wire::open(channel, ledger.device(), false).expect("the daemon's channel");
    Box::leak(Box::new(vfs::cached::Cached::new(wire, ledger)))
}

/// Where an image is mounted whose files may all be removed.
fn mount_point(args: &[String]) -> std::path::PathBuf {
    let directory = option(args, "--directory").unwrap_or_default();
    // Nothing else is emptied by mistake.
    let mounts = std::fs::read_to_string("/proc/mounts").expect("a table of mounts");
    let is_ours = mounts.lines().any(|line| line.split(' ').skip(1).take(2).eq([&directory[..], "fuse.bypath"]));
    assert!(is_ours, "say --directory, where an image is mounted that may be emptied: {directory:?} is no such place");
    directory.into()
}

/// The value after `--name`.
fn option(args: &[String], name: &str) -> Option<String> {
    let at = args.iter().position(|a| a == name)?;
    args.get(at + 1).cloned()
}

fn number(args: &[String], name: &str, default: u64) -> u64 {
    option(args, name).and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Prints what a test says; whether it was good.
fn shown(result: Result<String, String>) -> bool {
    match result {
        Ok(ref text) => println!("{text}"),
        Err(ref text) => println!("FAILED: {text}"),
    }
    result.is_ok()
}

fn crash(args: &[String]) -> bool {
    use bypath_testkit::crash::{command, journal, page, persists, sequences};
    let has = |name: &str| args.iter().any(|arg| arg == name);
    if has("--worker") {
        let numbers: Vec<u64> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
        return command::worker(&numbers);
    }
    if has("--persists") {
        return shown(persists::table().and_then(|(text, fine)| if fine { Ok(text) } else { Err(text) }));
    }
    if has("--mutants") {
        let every = number(args, "--every", 1);
        return command::mutants(
            (every as usize, number(args, "--every-pair", every) as usize),
            number(args, "--alike", 0),
            option(args, "--media").as_deref(),
        );
    }
    if has("--pages") {
        let (every, cap) = (number(args, "--every", 1) as usize, number(args, "--cap", 200) as usize);
        return shown(page::run(every.max(1), cap, number(args, "--seed", 1)));
    }
    if let Some(text) = option(args, "--replay") {
        return command::replay(&text);
    }
    if let Some(path) = option(args, "--regressions") {
        return command::regressions(&path);
    }
    let plan = command::Plan {
        depth: number(args, "--depth", 2) as usize,
        shortest: number(args, "--shortest", 1) as usize,
        every: number(args, "--every", 1),
        jobs: number(args, "--jobs", 2),
        seed: number(args, "--seed", 1),
        pairs: number(args, "--pairs", 400),
        alike: number(args, "--alike", 0),
        seconds: number(args, "--seconds", 0),
    };
    if let Some(path) = option(args, "--journal") {
        return journal::run(&plan, number(args, "--parts", 40), &path);
    }
    let part = option(args, "--part").unwrap_or_else(|| "1/1".into());
    let Some(share) = sequences::Share::parse(&part) else {
        return shown(Err(format!("not a part: {part}; say --part 3/40 for the third of forty")));
    };
    command::run(&plan, share)
}

fn daemons(args: &[String]) -> bool {
    use bypath_testkit::daemons;
    let (seconds, seed) = (number(args, "--seconds", 60), number(args, "--seed", 1));
    if let Some(client) = option(args, "--client").and_then(|text| text.parse().ok()) {
        return shown(daemons::client(client, number(args, "--millis", 1000)));
    }
    if let Some(clients) = option(args, "--clients").and_then(|text| text.parse().ok()) {
        return shown(daemons::clients(clients, seconds, seed));
    }
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("bypath"));
    match option(args, "--bypath").map(Into::into).or(beside) {
        Some(bypath) => shown(daemons::daemons(&bypath, 10, seconds, seed)),
        None => shown(Err("say --bypath PROGRAM".into())),
    }
}

const USAGE: &str = "usage: testkit differential [--backend mem|native|conventional|byvfs|host|wire|mount] [--nested] [--directory DIR] [--ops N] [--len N] [--seed S] [--jobs N]\n\
    \x20      testkit random [--processes N] [--ops N] [--seed S]\n\
    \x20      testkit append [--processes N] [--records N]\n\
    \x20      testkit visible [--rounds N]\n\
    \x20      testkit storm [--kills N] [--restless] [--cachelets N] [--seed S]\n\
    \x20      testkit daemons [--seconds N] [--seed S] [--bypath PROGRAM]\n\
    \x20      testkit damage [--images N] [--from N] [--seconds S] [--seed S]\n\
    \x20      testkit flips [--count N] [--seconds S] [--seed S]\n\
    \x20      testkit flat [--entries N]\n\
    \x20      testkit deaths [--rounds N] [--seed S]\n\
    \x20      testkit held [--rounds N] [--seed S]\n\
    \x20      testkit recover [--files N] [--seed S]\n\
    \x20      testkit crash [--depth N] [--shortest N] [--every N] [--pairs N] [--jobs N] [--seconds S] [--seed S] [--alike N] [--part K/N | --parts N --journal FILE]\n\
    \x20      testkit crash --persists | --mutants [--every N] [--every-pair N] [--alike N] | --pages [--every N] [--cap N] | --replay STATE | --regressions FILE";

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    bypath_testkit::image::CACHELETS.store(number(&args, "--cachelets", 0) as u32, Relaxed);
    // Not for those that are killed by the score, and have no image.
    let has_images = args.first().map(String::as_str) != Some("daemons");
    let _segments = has_images.then(bypath_testkit::image::Segments::new);
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return std::process::ExitCode::SUCCESS;
    }
    let fine = match args.first().map(String::as_str) {
        Some("differential") => {
            let backend = option(&args, "--backend").unwrap_or_else(|| "mem".into());
            let is_image = ["native", "conventional", "byvfs"].contains(&&backend[..]);
            let nested = args.iter().any(|arg| arg == "--nested");
            assert!(!nested || is_image || backend == "mem", "--nested: an image or the model inside another, not {backend:?}");
            let plan = Plan {
                ours: match &backend[..] {
                    "mem" => Ours::Alone(mem),
                    "host" => Ours::BesideKernel(host),
                    "wire" => Ours::Alone(wire),
                    "mount" => Ours::Mounted(mount_point(&args)),
                    "conventional" => Ours::Alone(conventional),
                    "byvfs" => Ours::Alone(byvfs),
                    _ => Ours::Alone(native),
                },
                nested,
                limits: Limits {
                    no_shared_maps: backend == "mem" || backend == "wire",
                    space_ahead: is_image || backend == "mount",
                    no_parent_of_removed: is_image,
                    order_of_two: backend == "host",
                    no_link_of_open: backend == "host",
                    nodes_are_paths: backend == "host",
                    stale_when_gone: backend == "mount",
                    vague_lock_holders: backend == "mount",
                    no_tmpfile: backend == "wire",
                    no_copy_range: backend == "wire",
                    mounts_by_text: nested,
                },
                ops: number(&args, "--ops", 20_000),
                len: number(&args, "--len", 400) as usize,
                seed: number(&args, "--seed", 1),
                // A daemon shows one tree to all, and so does a mount.
                jobs: if backend == "wire" || backend == "mount" { 1 } else { number(&args, "--jobs", 2) as usize },
            };
            differential::run(&plan)
        }
        Some("random") => {
            shown(many::random(number(&args, "--processes", 4), number(&args, "--ops", 200_000), number(&args, "--seed", 1)))
        }
        Some("append") => shown(many::append(number(&args, "--processes", 4), number(&args, "--records", 100_000))),
        Some("visible") => shown(many::visible(number(&args, "--rounds", 2000))),
        Some("crash") => crash(&args),
        Some("daemons") => daemons(&args),
        Some("storm") => {
            let restless = args.iter().any(|arg| arg == "--restless");
            shown(many::storm(number(&args, "--kills", 10_000), number(&args, "--seed", 1), restless))
        }
        Some("damage") => shown(bypath_testkit::damage::damage(
            number(&args, "--seed", 1),
            number(&args, "--from", 0),
            number(&args, "--images", 10_000),
            number(&args, "--seconds", 0),
        )),
        Some("flips") => shown(bypath_testkit::damage::flips(
            number(&args, "--seed", 1),
            number(&args, "--count", 1_000_000),
            number(&args, "--seconds", 0),
        )),
        Some("flat") => shown(many::flat(number(&args, "--entries", 1_000_000))),
        Some("deaths") => shown(many::deaths(number(&args, "--rounds", 2000), number(&args, "--seed", 1))),
        Some("held") => shown(many::held(number(&args, "--rounds", 1000), number(&args, "--seed", 1))),
        Some("recover") => shown(many::recover(number(&args, "--files", 1_000_000), number(&args, "--seed", 1))),
        _ => {
            eprintln!("{USAGE}");
            false
        }
    };
    if fine { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}

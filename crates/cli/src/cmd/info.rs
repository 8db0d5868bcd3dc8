//! `bypath info IMG`, `bypath info IMG:/path`

use crate::attach;
use crate::cmd::clone::failure;
use crate::cmd::{print, print_json};
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::mounts::cache::origin_of;
use crate::place::Place;
use crate::seen_as::find;
use crate::size;
use base::{Cred, Cx, Thread};
use engine::process::machine::Host;
use pm::{Domain, Errno};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use vfs::tree::usage::Usage;
use vfs::tree::{Tally, Trees};

#[derive(Serialize)]
struct Info {
    image: String,
    /// Bytes it may grow to.
    limit: u64,
    /// Bytes in use, tables included.
    used: u64,
    free: u64,
    files: u64,
    shared: Shared,
    /// What the medium promises.
    domain: &'static str,
    survives: &'static str,
    /// How often it has been taken into use anew.
    generation: u32,
    format_version: u32,
    device: u64,
    /// Empty: none, the file is not writable.
    segment: String,
    read_only: bool,
    /// PIDs of the processes that use it, this one left out.
    users: Vec<u32>,
    /// Those of them that are stopped in the middle of a change, so that others may wait for them.
    stopped: Vec<u32>,
    /// Those of them that are stopped at all.
    #[serde(skip)]
    halted: Vec<u32>,
    calls: Calls,
    /// The machine that uses it, or used it last; nothing if nobody has yet.
    machine: Option<Machine>,
    /// How far behind the directory is that it is the cache of.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<Behind>,
}

/// Of a cache.
#[derive(Serialize)]
struct Behind {
    /// What it is the cache of.
    of: String,
    #[serde(flatten)]
    figures: Option<super::cache::Figures>,
}

impl Behind {
    fn of(of: String, image: &Path) -> Behind {
        Behind { of, figures: super::cache::figures(image) }
    }

    fn shown(&self) -> String {
        let figures = self.figures.map_or_else(String::new, |figures| format!("; {}", figures.shown("there")));
        format!("cache of    {}{figures}\n", self.of)
    }
}

/// What files have in common.
#[derive(Serialize)]
struct Shared {
    /// Bytes that several files have, each counted once.
    bytes: u64,
    /// How many more they would take if each file had its own.
    saved: u64,
}

/// Who uses an image, or used it last.
#[derive(Serialize)]
struct Machine {
    /// Its host name; empty if it is not known.
    host: String,
    /// Boot id of its kernel.
    boot: String,
    /// When it last attached or left, seconds since the epoch; 0 if that is not known.
    used: i64,
    /// It is another one, and may be using it now: `--force` says that it is not.
    elsewhere: bool,
    #[serde(skip)]
    shown: String,
}

impl Machine {
    fn of(host: Host, elsewhere: bool) -> Machine {
        let boot = format!("{:016x}{:016x}", host.boot[0], host.boot[1]);
        Machine { host: host.name().to_string(), boot, used: host.used / 1_000_000_000, elsewhere, shown: host.to_string() }
    }
}

/// Calls since the image was taken into use, by the way they came.
#[derive(Serialize)]
struct Calls {
    symbols: u64,
    patched: u64,
    mount: u64,
    /// Of those through the mount: by programs that have the library.
    passed: u64,
}

impl From<base::Calls> for Calls {
    fn from(base::Calls { symbols, patched, mount, passed }: base::Calls) -> Calls {
        Calls { symbols, patched, mount, passed }
    }
}

/// What a tree in an image takes.
#[derive(Serialize)]
struct Taken {
    path: String,
    /// Its own among them.
    names: u64,
    /// Bytes of files that no other file has.
    own: u64,
    /// Bytes that others have too, here or elsewhere in the image.
    shared: u64,
}

/// Shows an image as a whole, or what a tree in it takes.
pub fn info(what: &OsString, json: bool) -> Result<u8> {
    let path = Path::new(what);
    // A file is an image, wherever it lies; what else names a place in one is that.
    if !path.metadata().is_ok_and(|found| !found.is_dir())
        && let Ok(place) = find(what)
        && place.image.as_os_str() != what.as_os_str()
    {
        return taken(&place, json);
    }
    of_image(path, json)
}

/// Shows what a file, or all files below a directory, take: their own, and what they share.
fn taken(place: &Place, json: bool) -> Result<u8> {
    let mut tree = Tree::attach_to_read_at(place)?;
    let node = tree.find(place, true)?;
    let mut each = |_: &Tally| true;
    let usage = Trees { backend: tree.backend, cx: &tree.cx(), each: &mut each }.usage(node);
    let Usage { names, own, shared } = usage.map_err(|failed| match failed.error.errno() {
        Errno::EOPNOTSUPP => {
            Failure::new(format!("{place}: files of a cache share nothing with the directory behind it; use du"))
        }
        _ => failure(place, &failed),
    })?;
    if json {
        print_json(&Taken { path: place.to_string(), names, own, shared })?;
    } else {
        let (own, shared) = (size::show(own), size::show(shared));
        print(format!("path        {place}\nnames       {names}\nown         {own}, which no other file has\nshared      {shared}, which other files have too\n").as_bytes())?;
    }
    Ok(0)
}

/// Shows size, use, promises and users of an image.
fn of_image(image: &Path, json: bool) -> Result<u8> {
    let (host, elsewhere) = attach::host(image)?;
    // Figures of an image in use by another machine are those of no instant.
    let attached = if elsewhere { attach::copied_beside(image)? } else { attach::attach_to_read(image)? };
    let fs = attached.fs;
    let stat = attached.backend.statfs().map_err(|error| Failure::engine(image.display(), error))?;
    let own = std::process::id();
    // Thoroughly: nobody who is dead is shown as a user.
    let thread = Thread::new();
    fs.adopt_dead_processes(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
    fs.give_lane_back(&thread);
    // Where that is damaged `check` says so.
    let (shared, more) = fs.shared_blocks().unwrap_or_default();
    let shared = Shared { bytes: shared * stat.block_bytes, saved: more * stat.block_bytes };
    let mut info = Info {
        image: image.display().to_string(),
        limit: fs.limit(),
        used: stat.blocks.saturating_sub(stat.blocks_free) * stat.block_bytes,
        free: stat.blocks_free * stat.block_bytes,
        files: stat.files.saturating_sub(stat.files_free),
        shared,
        domain: fs.domain().name(),
        survives: survives(fs.domain()),
        generation: fs.generation(),
        format_version: fs.format_version(),
        device: fs.device(),
        segment: String::from_utf8_lossy(fs.segment_path()).into_owned(),
        read_only: stat.read_only,
        users: fs.users().filter(|&pid| pid != own).collect(),
        stopped: stopped(fs),
        halted: fs.user_states().filter(|(_, state)| matches!(state, b'T' | b't')).map(|(pid, _)| pid).collect(),
        calls: fs.calls().into(),
        machine: host.map(|host| Machine::of(host, elsewhere)),
        cache: None,
    };
    let of = (fs.is_cache() && !elsewhere).then(|| origin_of(fs));
    attached.leave();
    info.cache = of.map(|of| Behind::of(of, image));
    if json {
        print_json(&info)?;
    } else {
        print(text(&info).as_bytes())?;
    }
    Ok(0)
}

fn stopped(fs: &engine::Fs) -> Vec<u32> {
    let mut pids: Vec<u32> = fs.stopped_users().collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn survives(domain: Domain) -> &'static str {
    match domain {
        Domain::Process => {
            "the death of any process at any instant; power failure only as far as the file system underneath goes"
        }
        Domain::Power | Domain::Whole => "the death of any process, and power failure",
        Domain::Sim => "what the test chooses",
    }
}

fn calls(calls: &Calls) -> String {
    let Calls { symbols, patched, mount, passed } = calls;
    if symbols + patched + mount == 0 {
        return "none yet".to_string();
    }
    format!(
        "{symbols} by symbols, {patched} patched, {mount} through the kernel mount ({passed} of them by programs that have the library)"
    )
}

/// A process by number and name.
fn named(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim_end())
}

fn text(info: &Info) -> String {
    let users = match info.users.len() {
        0 => "none".to_string(),
        count => {
            let state = |pid| if info.halted.contains(pid) { " (stopped)" } else { "" };
            let pids: Vec<String> = info.users.iter().map(|pid| format!("{pid}{}", state(pid))).collect();
            format!("{count}: {}", pids.join(" "))
        }
    };
    let users = match info.stopped.as_slice() {
        [] => users,
        stopped => {
            let named: Vec<String> = stopped.iter().map(|pid| named(*pid)).collect();
            format!("{users}\nstopped     in the middle of a change, so that others may wait: {}", named.join(", "))
        }
    };
    let percent = info.used * 100 / (info.used + info.free).max(1);
    let elsewhere = info.machine.as_ref().is_some_and(|machine| machine.elsewhere);
    let segment = match (info.segment.is_empty(), elsewhere) {
        (true, true) => "none: another machine uses it, so this is a private copy",
        (true, false) => "none: the file is not writable, so this is a private copy",
        (false, _) => &info.segment,
    };
    let machine = match &info.machine {
        None => "none yet".to_string(),
        Some(machine) if elsewhere => format!("in use by {}, or it was when that crashed", machine.shown),
        Some(machine) => format!("last used by {}", machine.shown),
    };
    let read_only = if info.read_only { "  (read-only)" } else { "" };
    let shared = match &info.shared {
        Shared { bytes: 0, .. } => String::new(),
        Shared { bytes, saved } => format!("shared      {} by clones, which save {}\n", size::show(*bytes), size::show(*saved)),
    };
    format!(
        "image       {}{read_only}\nsize        {} used, {} free ({percent} %), may grow to {}\n{shared}files       {}\ndomain      {}: survives {}\n\
         generation  {} (format {}{})\nmachine     {machine}\nusers       {users}\ncalls       {}\nsegment     {}\n{}",
        info.image,
        size::show(info.used),
        size::show(info.free),
        size::show(info.limit),
        info.files,
        info.domain,
        info.survives,
        info.generation,
        info.format_version,
        if info.format_version == format::VERSION { "" } else { "; bypath upgrade gives it the current one" },
        calls(&info.calls),
        segment,
        info.cache.as_ref().map_or_else(String::new, Behind::shown),
    )
}

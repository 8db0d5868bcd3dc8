//! `bypath info IMG`

use crate::attach::attach_to_read;
use crate::cmd::{print, print_json};
use crate::failure::{Failure, Result};
use crate::size;
use pm::Domain;
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Info {
    image: String,
    /// Bytes it may grow to.
    limit: u64,
    /// Bytes in use, tables included.
    used: u64,
    free: u64,
    files: u64,
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
    calls: Calls,
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

/// Shows size, use, promises and users of an image.
pub fn info(image: &Path, json: bool) -> Result<u8> {
    let attached = attach_to_read(image)?;
    let fs = attached.fs;
    let stat = attached.backend.statfs().map_err(|error| Failure::engine(image.display(), error))?;
    let own = std::process::id();
    let info = Info {
        image: image.display().to_string(),
        limit: std::fs::metadata(image).map_or(0, |meta| meta.len()),
        used: stat.blocks.saturating_sub(stat.blocks_free) * stat.block_bytes,
        free: stat.blocks_free * stat.block_bytes,
        files: stat.files.saturating_sub(stat.files_free),
        domain: fs.domain().name(),
        survives: survives(fs.domain()),
        generation: fs.generation(),
        format_version: format::VERSION,
        device: fs.device(),
        segment: String::from_utf8_lossy(fs.segment_path()).into_owned(),
        read_only: stat.read_only,
        users: fs.users().filter(|&pid| pid != own).collect(),
        stopped: stopped(fs),
        calls: fs.calls().into(),
    };
    attached.leave();
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
            let pids: Vec<String> = info.users.iter().map(u32::to_string).collect();
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
    let segment =
        if info.segment.is_empty() { "none: the file is not writable, so this is a private copy" } else { &info.segment };
    let read_only = if info.read_only { "  (read-only)" } else { "" };
    format!(
        "image       {}{read_only}\nsize        {} used, {} free ({percent} %), may grow to {}\nfiles       {}\ndomain      {}: survives {}\n\
         generation  {} (format {})\nusers       {users}\ncalls       {}\nsegment     {}\n",
        info.image,
        size::show(info.used),
        size::show(info.free),
        size::show(info.limit),
        info.files,
        info.domain,
        info.survives,
        info.generation,
        info.format_version,
        calls(&info.calls),
        segment,
    )
}

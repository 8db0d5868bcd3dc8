//! `bypath enter [SESSION] -- CMD…`: another program in a session that runs.
//!
//! What a session's programs are told stands in the environment they were started with, which the kernel shows to
//! whoever may trace them: this user, or root. A program that enters attaches its images itself, as any other does; files
//! that are the session's own go with the session.

use crate::bundled;
use crate::cmd::{print, print_json, run};
use crate::failure::{Failure, Result};
use crate::mounts::plain;
use posix::environment;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// Directories in which a session notes what was said; its number follows.
const SAID: &str = "bypath-said-";

/// A session that runs.
#[derive(Serialize)]
struct Session {
    /// Of its `bypath run`.
    pid: u32,
    mounts: Vec<Mounted>,
    /// Its programs.
    programs: Vec<u32>,
    /// What the first of them is.
    command: String,
    #[serde(skip)]
    variables: Vec<(OsString, OsString)>,
}

#[derive(Serialize)]
struct Mounted {
    source: String,
    point: String,
}

/// Starts `command`, or a shell, in the session that `which` names, or in the only one. Or lists them.
pub fn enter(which: Option<&OsStr>, command: &[OsString], list: bool, json: bool) -> Result<u8> {
    let sessions = sessions();
    if list {
        return show(&sessions, json).map(|()| 0);
    }
    let wanted: Vec<&Session> = sessions.iter().filter(|session| which.is_none_or(|which| session.is(which))).collect();
    let session = match (wanted.as_slice(), which) {
        ([session], _) => session,
        ([], Some(which)) => {
            let which = which.display();
            return Err(Failure::new(format!(
                "{which}: no session of this user's has that number, image or directory; `bypath enter --list` shows them"
            )));
        }
        ([], None) => {
            return Err(Failure::new("no session of this user's runs; start one with `bypath run --mount IMG:/dir -- CMD`"));
        }
        _ => {
            let numbers: Vec<String> = wanted.iter().map(|session| session.shown()).collect();
            return Err(Failure::new(format!("{} sessions: {}; name one by its number", wanted.len(), numbers.join("; "))));
        }
    };
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| OsString::from("/bin/sh"));
    let words = if command.is_empty() { vec![shell] } else { command.to_vec() };
    session.share_mounts()?;
    let points: Vec<&[u8]> = session.mounts.iter().map(|mount| mount.point.as_bytes()).collect();
    let mut command = run::command(&words, &points)?;
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    command.envs(session.variables.iter().map(|(name, value)| (name, value)));
    // Whether a program had it then or later, this one has it as it needs it.
    if let Some((_, list)) = session.variables.iter().find(|(name, _)| *name == "LD_PRELOAD" || *name == bundled::LATER) {
        command.env_remove(bundled::LATER);
        bundled::preload(&mut command, list);
    }
    Err(run::not_started(&words[0], &command.exec()))
}

impl Session {
    /// Whether somebody means this one: by a number of a process, an image or a directory.
    fn is(&self, which: &OsStr) -> bool {
        let number = which.to_str().and_then(|text| text.parse::<u32>().ok());
        let path = std::fs::canonicalize(which).ok().map(|path| path.display().to_string());
        let text = which.to_string_lossy();
        number.is_some_and(|pid| pid == self.pid || self.programs.contains(&pid))
            || self.mounts.iter().any(|mount| mount.point == text || mount.source == text || path.as_ref() == Some(&mount.source))
    }

    fn shown(&self) -> String {
        let mounts: Vec<String> = self.mounts.iter().map(|mount| format!("{} at {}", mount.source, mount.point)).collect();
        format!("{} ({}: {})", self.pid, self.command, mounts.join(", "))
    }

    /// A session of root's covers directories that programs past the library would find, in a mount namespace of its own.
    fn share_mounts(&self) -> Result<()> {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let Some(first) = self.programs.first() else { return Ok(()) };
        if namespace("self") == namespace(&first.to_string()) {
            return Ok(());
        }
        let path = format!("/proc/{first}/ns/mnt");
        let failed = |error: &std::io::Error| Failure::io(format!("the mounts of {first}"), error);
        let file = File::open(path).map_err(|error| failed(&error))?;
        let here = std::env::current_dir();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount)).map_err(|errno| failed(&errno.into()))?;
        // It has put us into the root directory.
        here.and_then(std::env::set_current_dir).map_err(|error| failed(&error))
    }
}

fn show(sessions: &[Session], json: bool) -> Result<()> {
    if json {
        return print_json(&sessions);
    }
    let lines: Vec<String> = sessions.iter().map(|session| format!("{}\n", session.shown())).collect();
    print(lines.concat().as_bytes())
}

/// Variables that programs have from their session; the state of a program is not among them.
fn is_ours(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == b"LD_PRELOAD" || name.starts_with(b"BYPATH_") && name != environment::STATE
}

/// All sessions whose programs' environments we may read, in order of their numbers.
fn sessions() -> Vec<Session> {
    let mut found: BTreeMap<u32, Session> = BTreeMap::new();
    let own = std::process::id();
    let mut pids: Vec<u32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| pid != own)
        .collect();
    pids.sort_unstable();
    for pid in pids {
        let Some(variables) = variables(pid) else { continue };
        let Some(number) = variables.iter().find_map(|(name, value)| session_of(name, value)) else { continue };
        let session = found.entry(number).or_insert_with(|| Session {
            pid: number,
            mounts: mounts(&variables),
            programs: Vec::new(),
            command: std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string(),
            variables,
        });
        session.programs.push(pid);
    }
    found.into_values().collect()
}

/// Sources and points of the mounts of all those sessions.
pub fn mounts_of_all() -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = sessions().into_iter().flat_map(|session| session.mounts);
    all.map(|mount| (mount.source.into_bytes(), mount.point.into_bytes())).collect()
}

/// What a process was told of its session, if it is in one.
fn variables(pid: u32) -> Option<Vec<(OsString, OsString)>> {
    let text = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variables = text.split(|&byte| byte == 0).filter_map(|variable| {
        let cut = variable.iter().position(|&byte| byte == b'=')?;
        let name = OsStr::from_bytes(&variable[..cut]);
        is_ours(name).then(|| (name.to_os_string(), OsString::from_vec(variable[cut + 1..].to_vec())))
    });
    Some(variables.collect())
}

/// The number of the session that a variable tells of, if that is there still.
fn session_of(name: &OsStr, value: &OsStr) -> Option<u32> {
    if name.as_bytes() != environment::SESSION {
        return None;
    }
    let value = value.as_bytes();
    let place = PathBuf::from(OsStr::from_bytes(&value[value.iter().position(|&byte| byte == b';')? + 1..]));
    let (pid, _) = place.file_name()?.to_str()?.strip_prefix(SAID)?.split_once('-')?;
    let pid = pid.parse().ok()?;
    (place.is_dir() && Path::new("/proc").join(format!("{pid}")).is_dir()).then_some(pid)
}

fn mounts(variables: &[(OsString, OsString)]) -> Vec<Mounted> {
    let list = variables.iter().find(|(name, _)| name.as_bytes() == environment::MOUNTS).map(|(_, value)| value.as_bytes());
    let shown = |part: &[u8]| String::from_utf8_lossy(&plain(part)).into_owned();
    let list = environment::parse(list.unwrap_or_default());
    list.map(|mount| Mounted { source: shown(mount.image), point: shown(mount.point) }).collect()
}

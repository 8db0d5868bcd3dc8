//! The figures of one moment, of all that is watched.

use crate::attach::{self, Attached, How};
use crate::cmd::{enter, mounts};
use crate::failure::{Failure, Result};
use crate::mounts::plain;
use base::{Cred, Cx, MOUNTS_MAX, Thread};
use engine::process::usage::{LaneUsage, UserUsage};
use posix::environment;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What is shown.
#[derive(Serialize, Default)]
pub struct Sample {
    pub images: Vec<Image>,
    /// Mounts that are no images, as `bypath mounts --json` has them.
    pub mounts: Vec<mounts::Row>,
    /// Images that cannot be looked at, and why.
    pub unreadable: Vec<Unreadable>,
}

/// An image that cannot be looked at.
#[derive(Serialize, Clone)]
pub struct Unreadable {
    pub image: String,
    pub reason: String,
}

/// An image.
#[derive(Serialize)]
pub struct Image {
    pub image: String,
    /// Where sessions have it.
    pub points: Vec<String>,
    /// Bytes that it may grow to, that are in use, that are free.
    pub limit: u64,
    pub used: u64,
    pub free: u64,
    pub files: u64,
    /// How often it has been taken into use anew: counts of calls begin then.
    pub generation: u32,
    pub open_files: u32,
    pub locks: u32,
    /// Files whose attributes are cached, and how many can be.
    pub cached: u32,
    pub cached_max: u32,
    /// Changes ever made.
    pub changes: u64,
    /// Threads that wait for another one.
    pub waiting: u32,
    /// Calls, by the way they came; programs add them by thousands.
    pub calls: Calls,
    pub processes: Vec<Process>,
    /// Changes by journal lane, with the process that has it.
    #[serde(skip)]
    pub lanes: Vec<(u32, Option<u32>, u32)>,
}

/// Calls by way.
#[derive(Serialize, Clone, Copy, Default)]
pub struct Calls {
    pub symbols: u64,
    pub patched: u64,
    pub mount: u64,
}

impl Calls {
    /// All of them.
    pub fn all(self) -> u64 {
        self.symbols + self.patched + self.mount
    }
}

/// A process that uses an image.
#[derive(Serialize)]
pub struct Process {
    pub pid: u32,
    pub command: String,
    /// As `/proc/PID/stat` has it; empty where that can't be asked.
    pub state: String,
    /// Calls that it has added so far.
    pub calls: u64,
    pub fds: u32,
    /// What its threads wait for.
    pub waits_for: Vec<&'static str>,
    /// Its places in the image's table: one, and one for each child that it is about to make.
    #[serde(skip)]
    pub slots: Vec<u32>,
}

impl Process {
    fn of(user: &UserUsage, lanes: &[LaneUsage]) -> Process {
        let waits = lanes.iter().filter(|lane| lane.slot == Some(user.slot)).filter_map(|lane| lane.waits_for);
        Process {
            pid: user.pid,
            command: std::fs::read_to_string(format!("/proc/{}/comm", user.pid)).unwrap_or_default().trim_end().to_string(),
            state: user.state.map(|letter| char::from(letter).to_string()).unwrap_or_default(),
            calls: user.calls,
            fds: user.fds,
            waits_for: waits.collect(),
            slots: vec![user.slot],
        }
    }

    /// What another place of the same process has.
    fn add(&mut self, other: Process) {
        self.calls += other.calls;
        self.fds += other.fds;
        self.waits_for.extend(other.waits_for);
        self.slots.extend(other.slots);
    }
}

/// What is watched: attached as long as it is.
pub struct Watch {
    /// Nothing: whatever sessions have.
    named: Vec<PathBuf>,
    images: Vec<(PathBuf, Option<Attached>, Vec<String>)>,
    others: Vec<(Vec<u8>, Vec<u8>)>,
    unreadable: Vec<Unreadable>,
}

impl Watch {
    /// These images; without any, what the session around has, or all sessions of this user.
    pub fn of(images: &[PathBuf]) -> Result<Watch> {
        let mut watch = Watch { named: images.to_vec(), images: Vec::new(), others: Vec::new(), unreadable: Vec::new() };
        if images.is_empty() {
            watch.find();
            return Ok(watch);
        }
        for image in images {
            let slot = watch.free_slot().ok_or_else(|| Failure::new(format!("at most {MOUNTS_MAX} images at a time")))?;
            let attached = attach::attach_as(image, How { slot, ..How::default() })?;
            watch.put(slot, image.clone(), attached, Vec::new());
        }
        Ok(watch)
    }

    /// Whether it is about sessions, which come and go.
    pub fn of_sessions(&self) -> bool {
        self.named.is_empty()
    }

    /// Looks which sessions there are now: attaches what is new, leaves what is not in use any more.
    pub fn find(&mut self) {
        let mut images: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        (self.others, self.unreadable) = (Vec::new(), Vec::new());
        for (source, point) in session_mounts() {
            if source.starts_with(b"/") {
                let points = images.entry(PathBuf::from(OsStr::from_bytes(&source))).or_default();
                points.push(String::from_utf8_lossy(&point).into_owned());
                points.sort();
                points.dedup();
            } else if !self.others.contains(&(source.clone(), point.clone())) {
                self.others.push((source, point));
            }
        }
        for place in &mut self.images {
            if place.1.is_some() && !images.contains_key(&place.0) {
                place.1.take().inspect(Attached::leave);
            }
        }
        for (path, points) in images {
            if let Some(known) = self.images.iter_mut().find(|(image, attached, _)| attached.is_some() && *image == path) {
                known.2 = points;
                continue;
            }
            match self
                .free_slot()
                .map(|slot| attach::attach_as(&path, How { slot, ..How::default() }).map(|attached| (slot, attached)))
            {
                Some(Ok((slot, attached))) => self.put(slot, path, attached, points),
                Some(Err(failure)) => self.cannot(&path, failure.to_string()),
                None => self.cannot(&path, format!("at most {MOUNTS_MAX} images at a time")),
            }
        }
    }

    fn cannot(&mut self, path: &Path, reason: String) {
        self.unreadable.push(Unreadable { image: path.display().to_string(), reason });
    }

    fn free_slot(&self) -> Option<usize> {
        (0..MOUNTS_MAX).find(|slot| self.images.get(*slot).is_none_or(|(_, attached, _)| attached.is_none()))
    }

    fn put(&mut self, slot: usize, path: PathBuf, attached: Attached, points: Vec<String>) {
        let entry = (path, Some(attached), points);
        match self.images.get_mut(slot) {
            Some(place) => *place = entry,
            None => self.images.push(entry),
        }
    }

    /// The figures of now.
    pub fn sample(&mut self) -> Sample {
        let images = self.images.iter().filter_map(|(path, attached, points)| Some(image(path, attached.as_ref()?, points)));
        let mut images: Vec<Image> = images.collect();
        images.sort_by(|one, other| one.image.cmp(&other.image));
        let mounts = self.others.iter().map(|(source, point)| mounts::row(source, point)).collect();
        Sample { images, mounts, unreadable: self.unreadable.clone() }
    }

    /// Leaves all images.
    pub fn leave(&mut self) {
        for (_, attached, _) in &mut self.images {
            attached.take().inspect(Attached::leave);
        }
    }
}

/// Sources and points of the session around; else of all of this user's.
fn session_mounts() -> Vec<(Vec<u8>, Vec<u8>)> {
    let list = std::env::var_os(OsStr::from_bytes(environment::MOUNTS)).unwrap_or_default().into_vec();
    let around: Vec<_> = environment::parse(&list).map(|spec| (plain(spec.image), plain(spec.point))).collect();
    if around.is_empty() { enter::mounts_of_all() } else { around }
}

fn image(path: &Path, attached: &Attached, points: &[String]) -> Image {
    let fs = attached.fs;
    let thread = Thread::new();
    // Nobody who is dead is shown as a user.
    fs.adopt_dead_processes(&Cx { cred: Cred::ROOT, umask: 0, thread: &thread });
    fs.give_lane_back(&thread);
    let (usage, calls) = (fs.usage(), fs.calls());
    let space = attached.backend.statfs().unwrap_or_default();
    let lanes: Vec<LaneUsage> = fs.lanes_usage().collect();
    let own = std::process::id();
    let mut processes: Vec<Process> = Vec::new();
    for process in fs.users_usage().filter(|user| user.pid != own).map(|user| Process::of(&user, &lanes)) {
        match processes.iter_mut().find(|known| known.pid == process.pid) {
            Some(known) => known.add(process),
            None => processes.push(process),
        }
    }
    let file = PathBuf::from(OsString::from_vec(attach::image_behind(path.as_os_str().as_bytes())));
    Image {
        image: file.display().to_string(),
        points: points.to_vec(),
        limit: std::fs::metadata(file).map_or(0, |meta| meta.len()),
        used: space.blocks.saturating_sub(space.blocks_free) * space.block_bytes,
        free: space.blocks_free * space.block_bytes,
        files: space.files.saturating_sub(space.files_free),
        generation: fs.generation(),
        open_files: usage.open_files,
        locks: usage.locks,
        cached: usage.cached,
        cached_max: usage.cached_max,
        changes: usage.changes,
        waiting: usage.waiting,
        calls: Calls { symbols: calls.symbols, patched: calls.patched, mount: calls.mount },
        processes,
        lanes: lanes.iter().map(|lane| (lane.lane, lane.slot, lane.changes)).collect(),
    }
}

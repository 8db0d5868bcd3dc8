//! The journal: what `fsync` has promised is in a file on a disk before the directory below has it.
//!
//! ```text
//!  fsync ── cut ── group ──> journal (durable: fsync returns)
//!                               │
//!  every second: cut, durable, then a round: directory below, synced ──> tail of the journal moves
//!
//!  power loss: the image is gone.  journal ── replay ──> directory below
//! ```
//! | file | what |
//! |---|---|
//! | [`ring`] | the file: groups, checksums, tail |
//! | [`disk`] | where it lies |
//! | [`record`] | what a group says |
//! | [`cut`] | a group is made, with the gate closed |
//! | [`fold`], [`replay`] | all groups as one; the directory becomes that |
//!
//! - **Nothing is done below that is not in the journal.** A round begins with a cut, at the same moment as its own look at
//!   the tree, and that is durable before it does anything. So what a crash leaves of a round is named there, and the last
//!   group says what the directory is to be: never a mixture.
//! - **The tail moves after the sync**, and after another cut: what was changed in the middle of the round it has found changed
//!   or gone. Until then groups are replayed over what the round has done, and come to the same.
//! - A group that could not be written counts as never made: the next says what it said.

mod cut;
mod disk;
mod fold;
mod record;
mod replay;
mod ring;

pub use disk::is_in_memory;
pub(crate) use disk::sync_parent;
use replay::How;
pub use replay::Replayed;
pub use ring::Damage;
use ring::{End, Header};

use crate::below::Below;
use crate::plan::Plan;
use crate::trusted::failed;
use crate::{Failure, Hook, Result};
use base::Cx;
use cache::Cache;
use cache::lower::Devices;
use cut::Cutter;
use disk::Disk;
use pm::Errno;
use record::Body;
use ring::Ring;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a journal where no option says otherwise.
pub const SIZE: u64 = 32 << 20;
/// Part of it, percent, from which a round is due.
const DUE: u64 = 25;
/// Bytes of files that are mapped to be stored into and are read for each `fsync`; with more a round is made instead.
const MAPPED_MAX: u64 = 16 << 20;

/// A journal that is written.
#[derive(Debug)]
pub struct Journal {
    state: Mutex<State>,
    device: u64,
    path: PathBuf,
}

#[derive(Debug)]
struct State {
    ring: Ring<Disk>,
    cutter: Cutter,
}

/// Where a journal lies if nothing else is said: beside the directory.
pub fn beside(directory: &Path) -> PathBuf {
    let name = directory.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
    directory.parent().unwrap_or(directory).join(format!(".{name}.bypath-journal"))
}

/// Number of this start of the machine.
fn boot() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    [digits.get(..16), digits.get(16..32)].map(|half| half.and_then(|half| u64::from_str_radix(half, 16).ok()).unwrap_or(0))
}

/// When the machine started, nanoseconds since the epoch.
fn booted() -> i64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|word| word.trim().parse::<i64>().ok());
    seconds.unwrap_or(0) * 1_000_000_000
}

impl Journal {
    /// Opens the journal of a cache, or makes it. One with changes of another cache is refused.
    pub fn open(cache: &Cache, image_path: &Path, path: &Path, size: u64) -> Result<Journal> {
        let root = Below::open(cache.place(), cache.devices(), true)?
            .stat(b"")?
            .ok_or_else(|| Failure::new("the directory", Errno::ENOENT))?;
        let header = Header {
            image: cache.fs().identity(),
            boot: boot(),
            root: root.stamp.number,
            room: size.next_multiple_of(ring::BLOCK).max(1 << 20),
            directory: cache.place().to_vec(),
            image_path: image_path.as_os_str().as_encoded_bytes().to_vec(),
            ..Header::default()
        };
        let disk = Disk::open(path, header.room)?;
        let opened = Ring::open(disk).map_err(|error| Failure::new(format!("{}: {error}", path.display()), error.errno))?;
        let ring = match opened {
            // The image has all that it says, and what the image has not written back the first cut says again.
            Some((ring, _, End::Damaged(damage))) if ring.header.image == header.image => {
                let aside = set_aside(path)?;
                eprintln!("bypath: {}: {damage}; kept as {}, and begun anew from the image", path.display(), aside.display());
                Ring::make(Disk::open(path, header.room)?, header)?
            }
            Some((ring, ..)) if ring.header.image == header.image && ring.header.root == header.root => {
                let mut ring = ring;
                let boot = header.boot;
                ring.write_header(Header { boot, replayed_since: 0, ..ring.header.clone() })?;
                ring
            }
            Some((ring, _, end)) if !ring.is_empty() || end != End::Clean => {
                return Err(Failure::new(
                    format!("{}: a journal with changes of {}", path.display(), String::from_utf8_lossy(&ring.header.directory)),
                    Errno::EBUSY,
                ));
            }
            // Of another cache, with nothing in it; or no journal yet.
            _ => {
                let _ = std::fs::remove_file(path);
                Ring::make(Disk::open(path, header.room)?, header)?
            }
        };
        let state = State { ring, cutter: Cutter::default() };
        Ok(Journal { state: Mutex::new(state), device: root.stamp.device, path: path.to_path_buf() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a round is due.
    pub fn is_due(&self) -> bool {
        self.locked().ring.fullness() >= DUE
    }

    /// Nobody else makes a cut, or closes the gate, as long as this is kept.
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody has called for a while: what was answered so far is marked as whole.
    pub(crate) fn confirm(&self) -> Result<()> {
        self.locked().ring.confirm()
    }

    /// The same, for a round.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        Held(self.locked())
    }

    /// All that was changed before is in the journal, durable, when this returns `true`. `false`: it needs a round.
    pub(crate) fn commit(&self, cache: &Cache, cx: &Cx) -> Result<bool> {
        let mut state = self.locked();
        let State { ring, cutter } = &mut *state;
        let mut mapped = true;
        let cut = Plan::closed(cache, cx, |now| {
            let (plan, bytes) = Plan::since(cache, cx, (cutter.covered, now), MAPPED_MAX)?;
            mapped = bytes > MAPPED_MAX;
            let mut body = Body::new(self.device);
            if !mapped {
                cutter.say(cache, cx, &plan, &mut body)?;
            }
            Ok((now, body))
        });
        if mapped && cut.is_ok() {
            return Ok(false);
        }
        write(ring, cutter, cut.map(|(now, body)| (now, body, ())), false).map(|_| true)
    }

    /// The plan of a round, and the number of the group that says all that it will do: durable.
    pub(crate) fn cover(&self, cache: &Cache, cx: &Cx) -> Result<(Plan, u64)> {
        let mut state = self.locked();
        let State { ring, cutter } = &mut *state;
        let cut = Plan::closed(cache, cx, |now| {
            let (plan, _) = Plan::since(cache, cx, (cutter.covered, now), MAPPED_MAX)?;
            let mut body = Body::new(self.device);
            cutter.say(cache, cx, &plan, &mut body)?;
            Ok((now, body, Plan::of_round(cache, cx, now)?))
        });
        let plan = write(ring, cutter, cut, true)?;
        Ok((plan, ring.last()))
    }

    /// A round is over, and synced: the groups up to the one that it began with are not needed any more. What has been
    /// changed meanwhile it has found changed, or gone, so that is said before.
    pub(crate) fn is_below(&self, cache: &Cache, cx: &Cx, plan: &Plan, group: u64) -> Result<()> {
        let mut state = self.locked();
        let State { ring, cutter } = &mut *state;
        let cut = Plan::closed(cache, cx, |now| {
            let (plan, _) = Plan::since(cache, cx, (cutter.covered, now), MAPPED_MAX)?;
            let mut body = Body::new(self.device);
            cutter.say(cache, cx, &plan, &mut body)?;
            Ok((now, body, ()))
        });
        write(ring, cutter, cut, false)?;
        let mut body = Body::new(self.device);
        for node in plan.targets.keys() {
            if let Some(id) = plan.ids.get(node) {
                body.made(*node, *id);
            }
        }
        // Whoever reads only what comes now is told which files those are.
        if state.ring.last() > group && !body.is_empty() {
            state.ring.append(&body.bytes, now())?;
        }
        state.ring.free(group)?;
        state.cutter.is_below();
        Ok(())
    }

    /// All is below, synced, and nothing has been noted since: it says nothing any more.
    pub(crate) fn empty(&self) -> Result<()> {
        let mut state = self.locked();
        let last = state.ring.last();
        state.ring.free(last)
    }
}

/// Gives a damaged journal another name, under which nothing replays it; durable when this returns.
pub fn set_aside(path: &Path) -> Result<PathBuf> {
    for number in 0..1000 {
        let mut aside = path.as_os_str().to_os_string();
        aside.push(if number == 0 { ".damaged".to_owned() } else { format!(".damaged.{number}") });
        let aside = PathBuf::from(aside);
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(rustix::fs::CWD, path, rustix::fs::CWD, &aside, flags) {
            Err(rustix::io::Errno::EXIST) => {}
            renamed => return renamed.map_err(failed(path)).and_then(|()| sync_parent(path)).map(|()| aside),
        }
    }
    Err(Failure::new(path.as_os_str().as_encoded_bytes(), Errno::EEXIST))
}

struct Held<'a>(#[expect(dead_code, reason = "it is kept, not read")] MutexGuard<'a, State>);

impl Drop for Held<'_> {
    fn drop(&mut self) {}
}

fn now() -> u64 {
    pm::clock::now() as u64
}

/// Writes a cut; only then it counts.
fn write<T>(ring: &mut Ring<Disk>, cutter: &mut Cutter, cut: Result<(u64, Body, T)>, is_for_round: bool) -> Result<T> {
    let written = cut.and_then(|(upto, body, with)| {
        if !body.is_empty() {
            ring.append(&body.bytes, now())?;
        }
        Ok((upto, with))
    });
    match written {
        Ok((upto, with)) => {
            cutter.is_durable(upto - 1, is_for_round);
            Ok(with)
        }
        Err(failure) => {
            cutter.is_lost();
            Err(failure)
        }
    }
}

/// What a journal holds for a directory.
#[derive(Debug)]
pub struct Left {
    ring: Ring<Disk>,
    groups: Vec<Vec<u8>>,
    end: End,
}

/// Whose journal it is: by its header alone, since a session may be writing it.
#[derive(Debug)]
pub struct Whose {
    /// Number of the image whose changes it holds.
    pub image: u64,
    /// It was written since the machine started.
    pub is_of_this_boot: bool,
}

impl Whose {
    /// Of the journal at a path, if one is there.
    pub fn of(path: &Path) -> Result<Option<Whose>> {
        let Some(disk) = Disk::open_if(path)? else { return Ok(None) };
        let header = Header::read(&disk)?;
        Ok(header.map(|header| Whose { image: header.image, is_of_this_boot: header.boot == boot() }))
    }
}

impl Left {
    /// The journal at a path, if one is there.
    pub fn open(path: &Path) -> Result<Option<Left>> {
        let Some(disk) = Disk::open_if(path)? else { return Ok(None) };
        Ok(Ring::open(disk)?.map(|(ring, groups, end)| Left { ring, groups, end }))
    }

    /// Groups that are not below.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Whether what was written last is not whole, because the machine stopped in the middle of it.
    pub fn is_torn(&self) -> bool {
        self.end == End::Torn
    }

    /// Replays them on the directory, and empties the journal, unless it is damaged: then it stays as it is.
    pub fn replay(&mut self, directory: &Path, skip: bool) -> Result<Replayed> {
        self.replay_with(directory, skip, &mut |_| Ok(()))
    }

    /// The same, asking before each step.
    pub fn replay_with(&mut self, directory: &Path, skip: bool, hook: &mut Hook<'_>) -> Result<Replayed> {
        let below = Below::open(directory.as_os_str().as_encoded_bytes(), Devices::SAME, true)?;
        let root = below.stat(b"")?.ok_or_else(|| Failure::new("the directory", Errno::ENOENT))?;
        if root.stamp.number != self.ring.header.root {
            return Err(Failure::new(format!("{}: the journal is not of this directory", directory.display()), Errno::EXDEV));
        }
        let header = self.ring.header.clone();
        if header.replayed_since == 0 {
            self.ring.write_header(Header { replayed_since: now(), ..header.clone() })?;
        }
        // In the start of the machine in which it was written nobody can tell whose a file is.
        let since = self.ring.header.replayed_since as i64;
        let others = (header.boot != boot()).then(|| (booted(), since));
        let mut ask = |step: &str| hook(step);
        let damage = if let End::Damaged(damage) = &self.end { Some(damage.clone()) } else { None };
        let (first, places) = self.ring.places();
        let how = How { others, skip, damage, first, places };
        let done = replay::replay(&below, &self.groups, how, &mut ask)?;
        if done.damage.is_some() {
            return Ok(done);
        }
        ask("tail").map_err(|errno| Failure::new("tail", errno))?;
        self.ring.free(self.ring.last())?;
        self.groups.clear();
        Ok(done)
    }
}

#[cfg(test)]
#[path = "hostile_tests.rs"]
mod tests;

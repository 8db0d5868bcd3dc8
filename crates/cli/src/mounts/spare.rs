//! Who keeps the cache of a directory fresh, and writes back, when programs go on after `bypath run`, which may have been killed.
//!
//! A process that does nothing but wait: its standard input says that the session has ended and nobody uses the image any more
//! ([`ENDED`]), or ends without that: then it attaches the image and goes on as the server, and as the writer, until nobody else
//! uses it. It has its own session, so that a terminal's signals, and those for a group of processes, pass it by, and holds
//! nothing else.

use super::keeper::Keeper;
use super::spec::Actimeo;
use super::writer::Writing;
use super::{linger, over, own_cache};
use crate::attach::{self, How};
use crate::failure::{Failure, Result};
use base::{Cred, Cx, Thread};
use cache::{Cache, Changes, Origin};
use engine::Fs;
use rustix::fd::OwnedFd;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The session has ended in order, and its programs too.
const ENDED: u8 = b'e';
/// The same, but the cache is to be kept fresh for a while: so many seconds, four bytes, little-endian.
const LINGERS: u8 = b'l';
/// How long a session that ends waits for the process that goes on.
const TAKES_OVER: Duration = Duration::from_millis(500);

/// It, as long as the session lasts.
pub struct Spare {
    child: Child,
    stays: bool,
    /// For which cache, and for how many seconds, it goes on when the session has ended.
    wish: Option<(&'static Fs, u32)>,
    /// It does.
    lingers: bool,
}

impl Spare {
    /// Starts it, for the image of the directory at `place`. Without one all is as with it, as long as nobody is killed.
    pub fn start(image: &Path, place: &Path, actimeo: Actimeo, writes: bool) -> Option<Spare> {
        Spare::spawn(image, place, actimeo, Stdio::null(), &["--writes"][..usize::from(writes)])
    }

    /// The same, which has the directory open: others reach it through this process ([`Spare::through`]) for as long as
    /// anybody uses the image, whatever is mounted over it.
    pub fn hold(image: &Path, directory: OwnedFd, actimeo: Actimeo, writes: bool) -> Option<Spare> {
        let flags = ["--holds", "--writes"];
        Spare::spawn(image, over::path(&over::through("self")), actimeo, directory.into(), &flags[..1 + usize::from(writes)])
    }

    fn spawn(image: &Path, place: &Path, actimeo: Actimeo, out: Stdio, flags: &[&str]) -> Option<Spare> {
        let seconds = match actimeo {
            Actimeo::Seconds(seconds) => seconds,
            Actimeo::Never => u32::MAX,
            _ => 0,
        };
        // By the link: its path might lead into a mount.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("bypath").arg("cache-spare").arg(seconds.to_string()).arg(image).arg(place).args(flags).current_dir("/");
        let child = command.stdin(Stdio::piped()).stdout(out).stderr(Stdio::null()).spawn().ok()?;
        Some(Spare { child, stays: false, wish: None, lingers: false })
    }

    /// By what path all reach the directory that it holds.
    pub fn through(&self) -> Vec<u8> {
        over::through(&self.child.id().to_string())
    }

    /// It is to keep this cache fresh for so many seconds after the session.
    pub fn wish(&mut self, cache: &'static Fs, seconds: u32) {
        self.wish = Some((cache, seconds));
    }

    /// The session, which keeps the cache fresh no longer, ends: has it take over, if that is wished for and no other process
    /// has done so.
    pub fn linger(&mut self) {
        let Some((cache, seconds)) = self.wish else { return };
        let Some(input) = self.child.stdin.as_mut().filter(|_| !cache.is_cache_kept()) else { return };
        let word = [&[LINGERS][..], &seconds.to_le_bytes()].concat();
        self.lingers = input.write_all(&word).is_ok();
        let begun = Instant::now();
        while self.lingers && cache.cache_keeper() != u64::from(self.child.id()) && begun.elapsed() < TAKES_OVER {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Others go on to use the image when this session has ended.
    pub fn stay(&mut self) {
        self.stays = true;
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if self.stays || self.lingers {
            return;
        }
        if let Some(mut input) = self.child.stdin.take() {
            let _ = input.write_all(&[ENDED]);
        }
        let _ = self.child.wait();
    }
}

/// What that process does.
pub fn wait(seconds: u32, image: &Path, place: &Path, (holds, writes): (bool, bool)) -> Result<u8> {
    let _ = rustix::process::setsid();
    let (mut word, mut time) = ([0], [0; 4]);
    let lingers = match std::io::stdin().read(&mut word) {
        Ok(1) if word[0] == LINGERS && std::io::stdin().read_exact(&mut time).is_ok() => {
            linger::begin();
            Some(Duration::from_secs(u32::from_le_bytes(time).into()))
        }
        Ok(1) => return Ok(0),
        _ => None,
    };
    let attached = attach::attach_as(image, How::default())?;
    if lingers.is_none() && !holds && !writeback::marker::is_there(place) && !over::is_used(&attached, None) {
        // Whoever went on has ended meanwhile, and left nothing.
        attached.leave();
        own_cache::remove_if_over(image);
        return Ok(0);
    }
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let cache = Cache::new(&cx, attached.fs, &Origin::Directory(place.as_os_str().as_bytes()), Changes::Refused)
        .map_err(|error| Failure::errno(image.display(), error.errno()))?;
    cache.give_lane_back(&thread);
    let actimeo = if seconds == 0 { Actimeo::Told } else { Actimeo::Seconds(seconds) };
    let cache: &'static Cache = Box::leak(Box::new(cache));
    // Where the session wrote back, its programs may go on to change something; and what it has left is there anyway.
    let writes = writes || writeback::marker::is_there(place);
    let writing = if writes { Writing::start(cache, image, &place.display().to_string(), (None, None)).ok() } else { None };
    Keeper::of_directory(cache, image, place, actimeo).run_until_alone(holds, lingers);
    drop(writing);
    attached.leave();
    own_cache::remove_when_over(image);
    Ok(0)
}

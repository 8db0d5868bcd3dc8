//! A directory behind a cache image.

use super::Session;
use super::spec::{Actimeo, CacheImage, Mount};
use super::writer::Writing;
use crate::attach;
use crate::failure::{Failure, Result};
use base::{Cred, Cx, Errno, Error, Thread};
use cache::{Cache, Changes, Mismatch, prepare};
use engine::Fs;
use engine::mkfs::{self, MkfsError, Options};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vfs::Backend;

/// So many times as long as a round took the server rests at least.
const REST: u32 = 9;

/// Who keeps a cache fresh; ends when it is dropped.
pub struct Server {
    end: Option<Sender<()>>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Relaxed);
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Server {
    fn start(cache: &'static Cache, pause: Duration) -> Server {
        let (end, ended) = channel::<()>();
        let ending = Arc::new(AtomicBool::new(false));
        let is_ending = ending.clone();
        let run = move || {
            let thread = Thread::new();
            let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
            let mut rest = pause;
            while ended.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                let begun = Instant::now();
                // What fails now is looked at again.
                let _ = cache.refresh(&cx, &mut || !is_ending.load(Relaxed));
                rest = pause.max(begun.elapsed() * REST);
            }
            cache.give_lane_back(&thread);
        };
        Server { end: Some(end), ending, thread: std::thread::Builder::new().name("cache".into()).spawn(run).ok() }
    }
}

impl Session {
    /// Mounts the directory at `lower` behind its cache image, which is made if it is missing.
    #[inline(never)]
    pub(super) fn make_cache(
        &mut self,
        mount: &Mount,
        image: &CacheImage,
        lower: &Path,
        slot: usize,
    ) -> Result<&'static dyn Backend> {
        let shown = image.path.display().to_string();
        let place = lower.as_os_str().as_bytes();
        let thread = Thread::new();
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        make_if_missing(image)?;
        let attached = attach::attach_as(&image.path, slot)?;
        self.images.push(attached);
        if !attached.fs.is_cache() {
            return Err(Failure::new(format!(
                "{shown}: it is an image with files of its own, and no cache; choose another name"
            )));
        }
        let was_one = prepare(&cx, attached.fs, place).map_err(|mismatch| refused(&shown, attached.fs, mismatch))?;
        let cache = Cache::new(&cx, attached.fs, place, changes(mount)).map_err(|error| Failure::errno(&shown, error.errno()))?;
        let cache: &'static Cache = Box::leak(Box::new(cache));
        let point = mount.shown_point();
        if !mount.options.read_only || has_left(cache, &cx) {
            self.writers.push(Writing::start(cache, &image.path, &point)?);
        }
        if let Actimeo::Seconds(seconds) = mount.options.actimeo {
            // Nobody has looked since the last session.
            if was_one {
                refresh_first(cache, &cx, &shown)?;
            }
            self.servers.push(Server::start(cache, Duration::from_secs(seconds.into())));
        }
        cache.give_lane_back(&thread);
        let path = image.path.as_os_str().as_bytes();
        let source = [format!("cache:{}:", path.len()).as_bytes(), path, b":", place].concat();
        let sync = if mount.options.sync_image { "sync=image" } else { "" };
        self.tell(mount, &source, &[&super::id(path), sync]);
        Ok(cache)
    }
}

/// What becomes of changes in a mount.
fn changes(mount: &Mount) -> Changes {
    match (mount.options.read_only, mount.options.sync_image) {
        (true, _) => Changes::Refused,
        (false, true) => Changes::Image,
        (false, false) => Changes::Backend,
    }
}

/// Whether a session before has left changes that are not below.
fn has_left(cache: &Cache, cx: &Cx) -> bool {
    writeback::Status::of(cache, cx).is_ok_and(|status| status.names + status.files != 0)
}

fn refused(shown: &str, fs: &Fs, mismatch: Mismatch) -> Failure {
    match mismatch {
        Mismatch::Another => Failure::new(format!(
            "{shown}: it is the cache of {} as that was when it was made; remove it, or choose another image",
            super::place_of(fs)
        )),
        Mismatch::Files => Failure::new(format!("{shown}: it is no empty image; remove it, or choose another name")),
        Mismatch::Failed(error) => Failure::errno(shown, error.errno()),
    }
}

fn refresh_first(cache: &Cache, cx: &Cx, shown: &str) -> Result<()> {
    match cache.refresh(cx, &mut || true) {
        Err(Error::Posix(Errno::ENOSPC)) => {
            Err(Failure::new(format!("{shown}: the cache is full; remove it, or make a larger one")))
        }
        Err(error) => Err(Failure::errno(format!("{shown}: looking at what has changed"), error.errno())),
        Ok(_) => Ok(()),
    }
}

fn make_if_missing(image: &CacheImage) -> Result<()> {
    let shown = image.path.display();
    let text = [image.path.as_os_str().as_bytes(), b"\0"].concat();
    let options = Options { limit: image.size, features: format::Features::CACHE, mode: 0o700, ..Options::default() };
    match mkfs::make(&text, &options) {
        Ok(()) | Err(MkfsError::NotEmpty) => Ok(()),
        Err(MkfsError::File(errno)) => Err(Failure::errno(shown, errno)),
        Err(error) => Err(Failure::new(format!("{shown}: {error}"))),
    }
}

//! A directory, or a daemon, behind a cache image.

use super::Session;
use super::ahead::Ahead;
use super::daemon::Daemon;
use super::keeper::{Keeper, Server};
use super::over;
use super::point::Under;
use super::spare::Spare;
use super::spec::{Actimeo, CacheImage, JOURNAL_SIZE, Mount};
use super::writer::Writing;
use crate::attach::{self, How};
use crate::cmd::cache::figures;
use crate::cmd::cache::source_of;
use crate::cmd::mount::SessionMount;
use crate::failure::{Failure, Result};
use base::{Cred, Cx, Errno, Error, Thread};
use cache::{Cache, Changes, Mismatch, Origin, is_of_daemon, prepare};
use engine::Fs;
use engine::mkfs::{self, MkfsError, Options};
use fuse_client::FuseClient;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use vfs::Backend;
use vfs::cached::Cached;

/// Another cache of the directory is mounted over it: what is below can't be reached.
fn refuse_another(place: &Path) -> Result<()> {
    match over::image_at(place).filter(|there| figures(there).is_some()) {
        None => Ok(()),
        Some(there) => {
            let (place, there) = (place.display(), there.display());
            Err(Failure::new(format!(
                "{place}: a session, or a program that has gone on after one, has it behind the cache {there}: join with \
                 cache={there}, or wait until they have ended"
            )))
        }
    }
}

impl Session {
    /// Mounts the directory at `lower` behind its cache image; `shows`: the kernel is to show it too, and how the mount
    /// point is.
    pub(super) fn make_cache_of_directory(
        &mut self,
        mount: &Mount,
        image: &CacheImage,
        lower: &Path,
        slot: usize,
        shows: Option<Under>,
    ) -> Result<&'static dyn Backend> {
        let place = lower.as_os_str().as_bytes();
        self.make_cache(mount, image, (Origin::Directory(place), place), slot, shows)
    }

    /// Mounts a daemon behind its cache image: `started` are its command, and by what programs reach it, which the kernel's
    /// server is too.
    pub(super) fn make_cache_of_daemon(
        &mut self,
        mount: &Mount,
        image: &CacheImage,
        daemon: &'static Cached<FuseClient>,
        started: (&[OsString], &[u8]),
        slot: usize,
        shows: Option<Under>,
    ) -> Result<&'static dyn Backend> {
        let command = started.0.join(OsStr::new(" "));
        self.make_cache(mount, image, (Origin::Daemon(daemon, command.as_bytes()), started.1), slot, shows)
    }

    /// Mounts what is behind a cache image, which is made if it is missing.
    #[inline(never)]
    fn make_cache(
        &mut self,
        mount: &Mount,
        image: &CacheImage,
        (mut origin, mut source): (Origin, &[u8]),
        slot: usize,
        shows: Option<Under>,
    ) -> Result<&'static dyn Backend> {
        let shown = image.path.display().to_string();
        let thread = Thread::new();
        let cx = Cx { cred: own_cred(), umask: 0, thread: &thread };
        if let (Origin::Directory(place), false) = (&origin, mount.options.read_only) {
            super::replay::if_lost(Path::new(OsStr::from_bytes(place)))?;
        }
        let below = mount.source.shown();
        if let (Origin::Directory(place), false) = (&origin, image.path.exists()) {
            // Before an image is made that nobody could use.
            std::fs::read_dir(OsStr::from_bytes(place)).map_err(|error| Failure::io(&below, &error))?;
        }
        make_if_missing(image)?;
        let attached = attach::attach_as(&image.path, How { slot, ..How::default() })?;
        self.images.push(attached);
        if !attached.fs.is_cache() {
            return Err(Failure::new(format!(
                "{shown}: it is an image of its own, and no cache; choose a name that is not there yet: the cache is made"
            )));
        }
        // Where another session has it mounted over the directory, that is reached as that session does.
        let joined = match origin {
            Origin::Directory(place) => over::below(attached.fs, &image.path, over::path(place)),
            _ => None,
        };
        match (origin, &joined) {
            (Origin::Directory(place), Some(through)) => (origin, source) = (Origin::Through(place, through), through),
            (Origin::Directory(place), None) => refuse_another(over::path(place))?,
            _ => {}
        }
        let is_away = matches!(origin, Origin::Daemon(..)) && self.daemons.last().is_some_and(Daemon::is_away);
        if is_away && attached.fs.cache_of().is_err() {
            return Err(Failure::new(format!("{below}: it does not answer, and {shown} has nothing of it yet; try again later")));
        }
        let was_one = prepare(&cx, attached.fs, &origin).map_err(|mismatch| refused(&shown, &below, attached.fs, mismatch))?;
        let changes = changes(mount, &origin);
        let journal = journal(mount, &origin);
        let held = match (origin, shows) {
            (Origin::Directory(place), Some(Under::Same)) if over::is_free(over::path(place), &image.path, journal.as_ref()) => {
                let directory = over::open(over::path(place));
                directory.and_then(|it| Spare::hold(&image.path, it, mount.options.actimeo, changes != Changes::Refused))
            }
            _ => None,
        };
        let through = held.as_ref().map(Spare::through);
        if let (Origin::Directory(place), Some(through)) = (origin, &through) {
            (origin, source) = (Origin::Through(place, through), through);
        }
        let has_spare = held.is_some();
        self.spares.extend(held);
        let cache = Cache::new(&cx, attached.fs, &origin, changes).map_err(|error| Failure::errno(&shown, error.errno()))?;
        let cache: &'static Cache = Box::leak(Box::new(cache));
        let point = mount.shown_point();
        let is_directory = !matches!(origin, Origin::Daemon(..));
        if changes != Changes::Refused || is_directory && has_left(cache, &cx) {
            self.writers.push(Writing::start(cache, &image.path, &point, (journal, mount.options.conflict))?);
        }
        self.ahead.push(Ahead::start(cache));
        if mount.options.actimeo != Actimeo::Never || cache.keeps_locks() {
            let actimeo = mount.options.actimeo;
            let mut keeper = match origin {
                Origin::Directory(place) | Origin::Through(_, place) => {
                    let place = over::path(place);
                    // Another session's holds it.
                    if !has_spare && joined.is_none() {
                        self.spares.extend(Spare::start(&image.path, place, actimeo, changes != Changes::Refused));
                    }
                    if let (None, Some(spare), Some(seconds)) = (&joined, self.spares.last_mut(), mount.options.linger) {
                        spare.wish(attached.fs, seconds);
                    }
                    Keeper::of_directory(cache, &image.path, place, actimeo)
                }
                // It ends with the session, however that ends.
                Origin::Daemon(..) => Keeper::of_daemon(cache, actimeo),
            };
            keeper.begin(&cx, (was_one, is_away), &shown)?;
            self.servers.push(Server::start(keeper));
        }
        if mount.options.actimeo == Actimeo::Never && cache.is_alone(std::process::id()) {
            // What is here is taken as it is.
            cache.fs().set_all_compared();
        }
        cache.give_lane_back(&thread);
        let is_refused = changes == Changes::Refused && !mount.options.read_only;
        if is_refused {
            eprintln!("bypath: {point}: this directory can't be written: changes are refused (EROFS)");
        }
        let path = image.path.as_os_str().as_bytes();
        let whole = [format!("cache:{}:", path.len()).as_bytes(), path, b":", source].concat();
        let sync = match (mount.options.sync_image, mount.options.sync_journal) {
            (true, _) => "sync=image",
            (false, true) => "sync=journal",
            (false, false) => "",
        };
        let refused = if is_refused { "ro" } else { "" };
        self.tell(mount, &whole, &[&super::id(path), sync, refused]);
        if let (Some(there), None) = (shows, &joined) {
            self.show_cache(mount, image, (source, there), changes);
        }
        Ok(cache)
    }

    /// The kernel's way to a cache whose directory, or daemon, is reached at `below`; `there`: what is at the mount point.
    fn show_cache(&mut self, mount: &Mount, image: &CacheImage, (below, there): (&[u8], Under), changes: Changes) {
        let point = over::path(&mount.point);
        let may = match there {
            Under::Empty | Under::Stale => true,
            Under::Same => below.starts_with(b"/proc/"),
            Under::Nothing | Under::Shared => false,
        };
        let sync = match changes {
            Changes::Image => "image",
            Changes::Journal => "journal",
            Changes::Backend | Changes::Refused => "backend",
        };
        let (how, text) = (attach::How { read_only: changes == Changes::Refused, ..How::default() }, over::text(below));
        let shown = may.then(|| SessionMount::start_cache(&image.path, point, how, (&text, sync))).flatten();
        match shown {
            Some(kernel) => {
                if there == Under::Same {
                    over::say_who_is_inside(point, &mount.shown_point());
                    self.covered.push(point.to_path_buf());
                }
                self.over.push(kernel);
            }
            None if there == Under::Shared => {}
            None => {
                self.guard(mount, there);
                super::say_no_mount(mount, there, false);
            }
        }
    }
}

/// Where the journal of a mount lies, if it has one.
fn journal(mount: &Mount, origin: &Origin) -> Option<CacheImage> {
    let (Origin::Directory(place) | Origin::Through(place, _), true) = (origin, mount.options.sync_journal) else { return None };
    let beside = || writeback::journal::beside(Path::new(OsStr::from_bytes(place)));
    Some(mount.options.journal.clone().unwrap_or_else(|| CacheImage { path: beside(), size: JOURNAL_SIZE }))
}

/// What becomes of changes in a mount.
fn changes(mount: &Mount, origin: &Origin) -> Changes {
    let may_write = match *origin {
        Origin::Directory(place) | Origin::Through(_, place) => {
            let want = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            rustix::fs::access(OsStr::from_bytes(place), want).is_ok()
        }
        // What it refuses is told when it is written back.
        Origin::Daemon(..) => true,
    };
    match (mount.options.read_only || !may_write, mount.options.sync_image) {
        (true, _) => Changes::Refused,
        (false, true) => Changes::Image,
        (false, false) if mount.options.sync_journal => Changes::Journal,
        (false, false) => Changes::Backend,
    }
}

/// Whether a session before has left changes that are not below.
fn has_left(cache: &Cache, cx: &Cx) -> bool {
    writeback::Status::of(cache, cx).is_ok_and(|status| status.names + status.files != 0)
}

/// In whose name the session itself asks.
pub fn own_cred() -> Cred<'static> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Cred { uid, gid, privileged: uid == 0, ..Cred::ROOT }
}

/// Refuses a cache that is to be used as an image with files of its own.
pub fn refuse_alone(fs: &Fs, path: &Path) -> Result<()> {
    if !fs.is_cache() {
        return Ok(());
    }
    let (shown, origin) = (path.display(), origin_of(fs));
    Err(Failure::new(format!("{shown}: it is a cache; mount it by `bypath run` as {origin}:/dir,cache={shown}")))
}

/// What an image is the cache of, as one writes it.
pub fn origin_of(fs: &Fs) -> String {
    match fs.cache_of() {
        Err(_) => "another directory".into(),
        Ok(of) => {
            let place = String::from_utf8_lossy(of.place()).into_owned();
            if is_of_daemon(&of) { format!("'{}'", source_of(&place)) } else { format!("host:{place}") }
        }
    }
}

fn refused(shown: &str, below: &str, fs: &Fs, mismatch: Mismatch) -> Failure {
    match mismatch {
        Mismatch::Another => Failure::new(format!(
            "{shown}: it is the cache of {} as that was when it was made; remove it, or choose another image",
            origin_of(fs)
        )),
        Mismatch::Files => Failure::new(format!("{shown}: image is not empty; remove it, or choose another name")),
        // What the image itself can fail with; everything else is of what it is to be the cache of.
        Mismatch::Failed(error @ Error::Corrupt { .. }) => Failure::engine(shown, error),
        Mismatch::Failed(Error::Posix(errno @ (Errno::ENOSPC | Errno::EROFS))) => Failure::errno(shown, errno),
        Mismatch::Failed(error) => Failure::errno(below, error.errno()),
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

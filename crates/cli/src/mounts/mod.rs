//! The mounts of a session: made before the program starts, taken away at its end.

mod ahead;
pub mod cache;
mod copies;
mod daemon;
mod daemon_log;
pub mod helper;
pub mod in_place;
pub mod keeper;
pub mod leavings;
pub mod linger;
mod nested;
pub mod over;
pub mod own_cache;
mod point;
mod proxy;
pub mod replay;
mod rescue;
mod said;
pub mod shared_file;
pub mod spare;
pub mod spec;
pub mod transport;
pub mod unwritten;
mod upkeep;
mod watch;
pub mod writer;

use crate::attach::{self, Attached, How};
use crate::cmd::mkfs;
use crate::cmd::mount::SessionMount;
use crate::doctor::{machine, program};
use crate::failure::{Failure, Result};
use base::{Atomic, Cred, Cx, Scratch, Thread};
use daemon::Daemon;
use fuse_client::FuseClient;
use own_cache::OwnCache;
use plugin::{Aside, Plugin};
use point::Under;
use posix::environment::{self, MountSpec};
use said::Said;
use shared_file::{SharedFile, Whose};
use spec::{Mount, Source};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use upkeep::Upkeep;
use vfs::cached::Cached;
use vfs::host::Host;
use vfs::{Backend, MountTable};

thread_local! {
    /// For libraries that are entered here.
    static ASIDE: &'static Aside = Box::leak(Box::default());
}

/// Everything that a session of `bypath run` has made; dropping it takes all away.
pub struct Session {
    images: Vec<Attached>,
    /// The kernel's way to those images.
    kernel: Vec<SessionMount>,
    /// The same to caches.
    over: Vec<SessionMount>,
    /// Directories that those cover.
    pub covered: Vec<PathBuf>,
    /// Dropped before the daemons that they look after.
    upkeep: Vec<Upkeep>,
    daemons: Vec<Daemon>,
    /// Who list directories ahead of programs.
    ahead: Vec<ahead::Ahead>,
    /// Who keep caches fresh.
    servers: Vec<keeper::Server>,
    /// And who do so when this process is killed.
    spares: Vec<spare::Spare>,
    /// Who write back what is changed in them.
    pub writers: Vec<writer::Writing>,
    files: Vec<SharedFile>,
    /// Cache images of its own.
    caches: Vec<OwnCache>,
    /// Empty directories where programs without the library would find them in a mount's place.
    pub uncovered: Vec<PathBuf>,
    said: Option<Said>,
    /// What the programs of the session are told of its mounts.
    pub list: Vec<u8>,
}

/// Who looks at the mounts of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// A program that has no other way to them.
    Itself,
    /// Programs, some of which go past the library.
    Programs {
        /// The kernel gets mounts too, where it can.
        kernel: bool,
    },
}

impl Session {
    /// Makes all mounts, in order.
    pub fn start(mounts: &[Mount], list: Vec<u8>, whom: For) -> Result<Session> {
        let (images, kernel, daemons) = (Vec::new(), Vec::new(), Vec::new());
        let mut session = Session {
            images,
            kernel,
            over: Vec::new(),
            covered: Vec::new(),
            upkeep: Vec::new(),
            daemons,
            ahead: Vec::new(),
            servers: Vec::new(),
            spares: Vec::new(),
            writers: Vec::new(),
            files: Vec::new(),
            caches: Vec::new(),
            uncovered: Vec::new(),
            said: None,
            list,
        };
        session.said = (whom != For::Itself).then(Said::make);
        // Mounted here too, so that what no program could mount is said once.
        let table = MountTable::new();
        let (thread, mut scratch) = (Thread::new(), Box::new(Scratch::new()));
        let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
        for (slot, mount) in mounts.iter().enumerate() {
            let backend = session.make(mount, slot, whom)?;
            table
                .add(&cx, &mount.point, backend, &mut scratch)
                .map_err(|errno| Failure::errno(format!("{} at {}", mount.source.shown(), mount.shown_point()), errno))?;
        }
        for image in &session.images {
            image.fs.give_lane_back(&thread);
        }
        Ok(session)
    }

    fn make(&mut self, mount: &Mount, slot: usize, whom: For) -> Result<&'static dyn Backend> {
        if let Some(size) = mount.options.own_cache {
            let own = OwnCache::new(size, &mount.shown_point())?;
            let mut mount = mount.clone();
            (mount.options.cache, mount.options.own_cache) = (Some(own.image()), None);
            self.caches.push(own);
            return self.make(&mount, slot, whom);
        }
        if let Source::Image(path) = &mount.source {
            return self.make_image(mount, path, slot, whom);
        }
        if let Source::New(limit) = mount.source {
            return self.make_new(mount, limit, slot, whom);
        }
        let there = if whom == For::Itself { Under::Nothing } else { point::look(mount, None)? };
        // The kernel gets a mount of a cache too, where no daemon would come by that itself.
        let is_wanted = mount.options.cache.is_some() && whom == For::Programs { kernel: true };
        let shows = (is_wanted && !daemon::is_named(mount)).then_some(there);
        if shows.is_none() {
            self.guard(mount, there);
        }
        match &mount.source {
            Source::Image(path) => self.make_image(mount, path, slot, whom),
            Source::New(limit) => self.make_new(mount, *limit, slot, whom),
            Source::Host(path) => match &mount.options.cache {
                Some(image) => self.make_cache_of_directory(mount, image, path, slot, shows),
                None => self.make_host(mount, path, there),
            },
            Source::Fuse(words) => self.make_daemon(mount, words, slot, shows),
            Source::Objects(address) => self.make_objects(mount, address, slot, shows),
            Source::Plugin(library, args) => self.make_plugin(mount, library, args),
        }
    }

    fn make_daemon(
        &mut self,
        mount: &Mount,
        words: &[OsString],
        slot: usize,
        shows: Option<Under>,
    ) -> Result<&'static dyn Backend> {
        let (daemon, source) = self.start_daemon(mount, words)?;
        if let Some(image) = &mount.options.cache {
            return self.make_cache_of_daemon(mount, image, daemon, (words, &source), slot, shows);
        }
        self.tell(mount, &source, &[]);
        Ok(daemon)
    }

    /// A store of objects. A cache of it goes by what the mount names, not by what it is started with.
    fn make_objects(&mut self, mount: &Mount, address: &str, slot: usize, shows: Option<Under>) -> Result<&'static dyn Backend> {
        let words = daemon::objects(mount, address)?;
        let Some(image) = &mount.options.cache else { return self.make_daemon(mount, &words, slot, shows) };
        let (daemon, source) = self.start_daemon(mount, &words)?;
        let mut named = vec![OsString::from(address)];
        if mount.options.posix {
            named.push(crate::cmd::cache::POSIX.trim_start().into());
        }
        self.make_cache_of_daemon(mount, image, daemon, (&named, &source), slot, shows)
    }

    /// Notes a mount point that programs without the library find as it is.
    fn guard(&mut self, mount: &Mount, there: Under) {
        if there == Under::Empty {
            self.uncovered.push(PathBuf::from(OsStr::from_bytes(&mount.point)));
        }
    }

    fn make_image(&mut self, mount: &Mount, path: &Path, slot: usize, whom: For) -> Result<&'static dyn Backend> {
        let Found { image, copy, in_place } = image(path, slot, &mount.options)?;
        // Of a copy the kernel's way would be one that nobody else has.
        let is_whole = copy.is_none() || in_place;
        let attached = copy.as_ref().map_or(path, SharedFile::path);
        cache::refuse_alone(image.fs, path)?;
        self.images.push(image);
        let there = if whom == For::Itself { Under::Nothing } else { point::look(mount, is_whole.then_some(&image))? };
        let kernel = match (there, whom) {
            (Under::Empty | Under::Stale, For::Programs { kernel: true }) if is_whole => {
                SessionMount::start(attached, Path::new(OsStr::from_bytes(&mount.point)), how(&mount.options))
            }
            _ => None,
        };
        match kernel {
            Some(kernel) => self.kernel.push(kernel),
            None => {
                self.guard(mount, there);
                if whom == (For::Programs { kernel: true }) && there != Under::Same {
                    say_no_mount(mount, there, !is_whole);
                }
            }
        }
        if let Some(copy) = copy {
            let in_place = if in_place { "in-place" } else { "" };
            self.tell(mount, copy.bytes(), &[&id(copy.bytes()), in_place]);
            self.files.push(copy);
            return Ok(image.backend);
        }
        self.tell(mount, path.as_os_str().as_bytes(), &[&id(path.as_os_str().as_bytes())]);
        Ok(image.backend)
    }

    /// An image where the shared caches lie, which goes with the session.
    fn make_new(&mut self, mount: &Mount, limit: u64, slot: usize, whom: For) -> Result<&'static dyn Backend> {
        let file = SharedFile::make("new", 0, Whose::Ours)?;
        mkfs::make(file.path(), limit, true)?;
        let path = file.path().to_path_buf();
        self.files.push(file);
        self.make_image(mount, &path, slot, whom)
    }

    // Not inlined, and so the next two: cached file systems are built on the stack, which would
    // be touched page by page for images too: a tenth of the page faults of `bypath run`.
    #[inline(never)]
    fn make_host(&mut self, mount: &Mount, path: &Path, there: Under) -> Result<&'static dyn Backend> {
        let shown = mount.source.shown();
        let (file, cache) = SharedFile::session(Whose::of(mount))?;
        let text = path.as_os_str().as_bytes();
        if !mount.options.read_only {
            replay::if_lost(path)?;
        }
        if !mount.options.read_only
            && let Some(cache) = writeback::marker::that_stays(path).map_err(|error| Failure::new(error.to_string()))?
        {
            return Err(Failure::new(format!(
                "{shown}: the cache {cache} holds changes of it: mount it with cache={cache}, or `bypath cache drain {cache}`; \
                 with the option ro it can be read as it is"
            )));
        }
        let host = Host::new(text, mount.options.read_only).map_err(|errno| Failure::errno(&shown, errno))?;
        let host = host.unsynced_if(mount.options.unsynced);
        let same = if there == Under::Same { "same" } else { "" };
        let unsynced = if mount.options.unsynced { "sync=none" } else { "" };
        self.tell(mount, &[b"host:", file.bytes(), b":", text].concat(), &[same, unsynced]);
        self.files.push(file);
        Ok(Box::leak(Box::new(Cached::new(host, cache))))
    }

    #[inline(never)]
    fn start_daemon(&mut self, mount: &Mount, words: &[OsString]) -> Result<(&'static Cached<FuseClient>, Vec<u8>)> {
        let shown = mount.source.shown();
        let (file, cache) = SharedFile::session_with_pages(mount.options.pages, Whose::of(mount))?;
        let daemon = Daemon::start(mount, words)?;
        let client = FuseClient::open(daemon.bytes(), cache.device(), mount.options.read_only);
        let client = client.map_err(|errno| Failure::errno(&shown, errno))?;
        let source = [b"wire:", file.bytes(), b":", daemon.bytes()].concat();
        self.daemons.push(daemon);
        self.files.push(file);
        let mounted: &'static Cached<FuseClient> = Box::leak(Box::new(Cached::new(client, cache)));
        self.upkeep.push(Upkeep::start(mounted));
        Ok((mounted, source))
    }

    #[inline(never)]
    fn make_plugin(&mut self, mount: &Mount, library: &Path, args: &[OsString]) -> Result<&'static dyn Backend> {
        let shown = mount.source.shown();
        let (file, cache) = SharedFile::session(Whose::Ours)?;
        let text = args.iter().fold(library.as_os_str().to_os_string(), |mut text, arg| {
            text.push(",");
            text.push(arg);
            text
        });
        // This program only looks: its calls are the kernel's anyway.
        let plugin = Plugin::new(text.as_bytes(), cache.device(), mount.options.read_only, || ASIDE.with(|aside| *aside));
        let plugin = plugin.map_err(|errno| Failure::errno(&shown, errno))?;
        if !is_plugin(library)? {
            return Err(Failure::new(format!("{shown}: not a library with a function bypath_plugin (bypath_plugin.h)")));
        }
        self.tell(mount, &[b"plugin:", file.bytes(), b":", text.as_bytes()].concat(), &[]);
        self.files.push(file);
        Ok(Box::leak(Box::new(Cached::new(plugin, cache))))
    }

    /// Adds a mount to the list, with what programs must know of it besides.
    fn tell(&mut self, mount: &Mount, source: &[u8], besides: &[&str]) {
        let read_only = if mount.options.read_only { "ro" } else { "" };
        let atomic = mount.options.atomic.map(|how| format!("atomic={}", how.name())).unwrap_or_default();
        let words = [&[read_only, atomic.as_str()], besides].concat();
        let options = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(",");
        let list = &mut self.list;
        environment::format(list.is_empty(), source, &mount.point, options.as_bytes(), &mut |b| list.push(b));
    }

    /// What programs are told of the session itself.
    pub fn told(&self) -> Vec<u8> {
        self.said.as_ref().map_or_else(Vec::new, Said::told)
    }
}

/// Tells whoever sits at a terminal why the kernel has no mount there, since programs that need one fail later, far from here.
fn say_no_mount(mount: &Mount, there: Under, is_copy: bool) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let point = mount.shown_point();
    let why = match there {
        _ if is_copy => "a copy of the image is used".to_string(),
        Under::Nothing => format!("it is no directory (mkdir {point} before makes it one)"),
        _ => machine::no_kernel_mount(),
    };
    let past = program::past_library();
    eprintln!("bypath: no kernel mount at {point}: {why}; {past}, other users and /proc do not see it");
}

/// How an image is served to the kernel.
fn how(options: &spec::Options) -> How {
    How { read_only: options.read_only, atomic: options.atomic, ..How::default() }
}

/// The option by which programs know the image's file again.
fn id(image: &[u8]) -> String {
    said::identity(Path::new(OsStr::from_bytes(image))).map_or_else(String::new, |id| format!("id={id}"))
}

impl Drop for Session {
    fn drop(&mut self) {
        self.ahead.clear();
        self.servers.clear();
        // Once with the kernel's way there still, so that what is below is hardly behind when it goes.
        if !self.over.is_empty() {
            self.writers.iter().for_each(writer::Writing::write_back);
        }
        let mut is_used = false;
        while let Some(mount) = self.over.pop() {
            is_used |= mount.end();
        }
        self.writers.clear();
        // Programs that go on change something, and wait for it.
        is_used |= self.images.iter().any(|image| image.fs.is_cache() && over::goes_on(image));
        self.spares.iter_mut().for_each(spare::Spare::linger);
        if is_used {
            self.spares.iter_mut().for_each(spare::Spare::stay);
        }
        for image in &self.images {
            image.leave();
        }
        match is_used && !self.spares.is_empty() {
            true => self.caches.drain(..).for_each(OwnCache::leave),
            false => self.caches.clear(),
        }
        // One inside another goes first.
        while let Some(mount) = self.kernel.pop() {
            let _ = mount.end();
        }
    }
}

/// An image, attached.
struct Found {
    image: Attached,
    /// The session's file that programs attach in its place.
    copy: Option<SharedFile>,
    /// That file has no contents; those are the image's own.
    in_place: bool,
}

/// The image at `path`, or, where its file may not be written and is only to be read, what a session puts before it: a file
/// of all but its contents, or, where that can't be, a copy.
fn image(path: &Path, slot: usize, options: &spec::Options) -> Result<Found> {
    let how = How { slot, atomic: options.atomic.filter(|_| !options.read_only), ..How::default() };
    if let Some(image) = attach::attach_if_writable(path, how)? {
        return Ok(Found { image, copy: None, in_place: false });
    }
    if !options.read_only {
        let shown = path.display();
        if std::fs::File::open(path).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
            return Err(Failure::new(format!("{shown}: this user may neither read nor write the file")));
        }
        return Err(Failure::new(format!("{shown}: the file is not writable; with the option ro it can be read")));
    }
    if let Some(copy) = in_place::make(path)? {
        let image = attach::attach_as(copy.path(), How { in_place: true, ..how })?;
        return Ok(Found { image, copy: Some(copy), in_place: true });
    }
    let copy = rescue::copy(path)?;
    Ok(Found { image: attach::attach_as(copy.path(), how)?, copy: Some(copy), in_place: false })
}

/// Whether a file is a library that has the name of a plugin's entry. It is not loaded
/// here: what it does at its start, and the names it wants, are the programs' business.
fn is_plugin(library: &Path) -> Result<bool> {
    let bytes = std::fs::read(library).map_err(|error| Failure::io(library.display(), &error))?;
    let name = b"\0bypath_plugin\0";
    Ok(bytes.starts_with(b"\x7fELF") && bytes.windows(name.len()).any(|window| window == name))
}

/// Every point once, and no more of them than a program can have.
pub fn check_points(mounts: &[Mount]) -> Result<()> {
    for (index, mount) in mounts.iter().enumerate() {
        let same = mounts[..index].iter().find(|other| other.point == mount.point);
        if same.is_some() {
            return Err(Failure::new(format!("two mounts at {}; give each its own directory", mount.shown_point())));
        }
        let hidden = mounts[..index]
            .iter()
            .find(|other| other.point.starts_with(&mount.point) && other.point.get(mount.point.len()) == Some(&b'/'));
        if let Some(other) = hidden {
            let (outer, inner) = (mount.shown_point(), other.shown_point());
            return Err(Failure::new(format!("{outer} would hide {inner}; give --mount …:{outer} first")));
        }
    }
    if mounts.len() > base::MOUNTS_MAX {
        return Err(Failure::new(format!("{} mounts; a program can have {}", mounts.len(), base::MOUNTS_MAX)));
    }
    nested::check(mounts)
}

/// What is left to mount beside a session around this one, whose list that is: its mounts stay where they are, in the same
/// order, since what a program inherits from it goes by their numbers. One that is there already needs no second one.
pub fn beside(mounts: Vec<Mount>, around: &[u8]) -> Result<Vec<Mount>> {
    let mut left = Vec::new();
    for mount in mounts {
        let mut is_there = false;
        for outer in environment::parse(around) {
            let shown = mount.shown_point();
            let point = plain(outer.point);
            if point == mount.point {
                if !is_same(&mount, outer) {
                    let what = "is a directory of the session around this call already; choose another one";
                    return Err(Failure::new(format!("{shown} {what}")));
                }
                is_there = true;
            } else if point.starts_with(&mount.point) && point.get(mount.point.len()) == Some(&b'/') {
                let inner = String::from_utf8_lossy(&point);
                return Err(Failure::new(format!(
                    "{shown} would hide {inner} of the session around this call; choose another directory"
                )));
            }
        }
        if !is_there {
            left.push(mount);
        }
    }
    Ok(left)
}

/// Whether that is what the mount asks for: the same image, as it is.
fn is_same(mount: &Mount, outer: MountSpec<'_>) -> bool {
    let Source::Image(path) = &mount.source else { return false };
    let is_read_only = environment::option(outer.options, b"ro").is_some();
    let other = plain(outer.image);
    let same_file = said::is_same_file(path, Path::new(OsStr::from_bytes(&other)));
    let atomic = environment::option(outer.options, b"atomic").and_then(Atomic::from_name);
    same_file && mount.options.read_only == is_read_only && mount.options.atomic == atomic
}

/// A part of the list without its escapes.
pub fn plain(part: &[u8]) -> Vec<u8> {
    let mut out = vec![0; part.len()];
    let len = environment::unescape(part, &mut out).unwrap_or(0);
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &[u8]) -> Mount {
        Mount { source: Source::Image("/i:1.img".into()), point: point.to_vec(), options: Default::default() }
    }

    /// Goal: a mount may lie inside an earlier one, never around it or on it.
    #[test]
    fn points() {
        assert!(check_points(&[mount(b"/bp"), mount(b"/bp/x"), mount(b"/bpx")]).is_ok());
        assert!(check_points(&[mount(b"/bp/x"), mount(b"/bp")]).is_err());
        assert!(check_points(&[mount(b"/bp"), mount(b"/bp")]).is_err());
    }

    /// Goal: in a session nothing covers what is there: the same image at the same place is left as it is, all else is refused.
    #[test]
    fn beside_a_session() {
        let image = std::env::current_exe().unwrap();
        let at = |point: &[u8]| Mount { source: Source::Image(image.clone()), ..mount(point) };
        let mut around = Vec::new();
        environment::format(true, image.as_os_str().as_bytes(), b"/b;p", b"", &mut |b| around.push(b));
        environment::format(false, b"/other.img", b"/q/x", b"ro", &mut |b| around.push(b));
        let points = |mounts: Vec<Mount>| {
            beside(mounts, &around).map(|left| left.into_iter().map(|mount| mount.point).collect::<Vec<_>>())
        };
        assert_eq!(points(vec![at(b"/b;p"), at(b"/b;p/in"), at(b"/q/xy")]).unwrap(), [&b"/b;p/in"[..], b"/q/xy"]);
        assert!(points(vec![mount(b"/b;p")]).is_err());
        assert!(points(vec![at(b"/q/x")]).is_err());
        assert!(points(vec![at(b"/q")]).is_err());
        let read_only = Mount { options: spec::Options { read_only: true, ..Default::default() }, ..at(b"/b;p") };
        assert!(points(vec![read_only]).is_err());
        let atomic = Mount { options: spec::Options { atomic: Some(Atomic::Undo), ..Default::default() }, ..at(b"/b;p") };
        assert!(points(vec![atomic]).is_err());
    }
}

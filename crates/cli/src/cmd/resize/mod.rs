//! `bypath resize IMG SIZE`: another limit for how large an image may grow.
//!
//! Where the blocks of an image begin follows from its limit, so a new image is made beside it, which gets all that is in it
//! and, when it is whole and durable, its name. Until then the old one is as it was, whatever happens.
//!
//! Meanwhile nobody uses the image: a lock of those that any number can have keeps everybody from attaching it, and lets us
//! read it in a private copy. Who has opened the old file before the rename, and gets its lock behind us, finds no image in it.

mod copy;

use super::{mkfs, print_json};
use crate::attach::{self, Attached, How};
use crate::failure::{Failure, Result};
use crate::mounts::cache::refuse_alone;
use crate::{check, progress, size};
use base::{Cred, Cx, Thread};
use copy::Copy;
use format::layout::{BLOCK, SUPERBLOCK_COPY};
use pm::Errno;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno as HostErrno;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use vfs::Backend;
use vfs::tree::{Failed, Tally};

/// How it is done, and what is said.
#[derive(Clone, Copy)]
pub struct Options {
    /// Another machine does not use it, whatever it says.
    pub force: bool,
    /// As JSON.
    pub json: bool,
    /// Nothing.
    pub quiet: bool,
}

#[derive(Serialize)]
struct Resized {
    image: String,
    /// Limits, bytes.
    before: u64,
    now: u64,
    names: u64,
    /// Bytes of files that were copied, and of those that share them.
    copied: u64,
    shared: u64,
    seconds: f64,
}

/// Gives an image that nobody uses another limit.
pub fn resize(image: &Path, limit: u64, options: Options) -> Result<u8> {
    let begun = Instant::now();
    let failed = |error: std::io::Error| Failure::io(image.display(), &error);
    // A symlink to it stays.
    let path = std::fs::canonicalize(image).map_err(failed)?;
    if options.force {
        attach::take_over(&path)?;
    }
    let alone = Alone::new(&path)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    let part = beside(&path);
    let made = make(&path, &part, limit, options, &stop).and_then(|made| {
        if made.0 != limit {
            alone.replace_by(&part, &path)?;
        }
        Ok(made)
    });
    let (before, tally) = made.inspect_err(|_| drop(std::fs::remove_file(&part)))?;
    let seconds = begun.elapsed().as_secs_f64();
    if options.json {
        let (image, Tally { names, copied, shared, .. }) = (image.display().to_string(), tally);
        print_json(&Resized { image, before, now: limit, names, copied, shared, seconds })?;
    } else if !options.quiet && before == limit {
        eprintln!("{}: may grow up to {} already", image.display(), size::show(limit));
    } else if !options.quiet {
        let (before, now, copied) = (size::show(before), size::show(limit), size::show(tally.copied));
        eprintln!("{}: up to {now}, {before} before; {} names, {copied} in {seconds:.2} s", image.display(), tally.names);
    }
    Ok(0)
}

/// Where the new image is made.
fn beside(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.resize", path.display()))
}

/// Makes the new image at `part`: the limit before, and what was copied. Nothing is made if the limit stays.
fn make(path: &Path, part: &Path, limit: u64, options: Options, stop: &AtomicBool) -> Result<(u64, Tally)> {
    let checking = progress::bar(options.quiet || options.json, "checking", 1000);
    refuse_damaged(path, &checking)?;
    let thread = Thread::new();
    let cx = Cx { cred: Cred::ROOT, umask: 0, thread: &thread };
    let old = Using { attached: attach::copied(path)?, cx: &cx };
    refuse_alone(old.attached.fs, path)?;
    let before = old.attached.fs.limit();
    if before == limit {
        return Ok((before, Tally::default()));
    }
    refuse_without_room(part, &old)?;
    mkfs::make(part, limit, true)?;
    let new = Using { attached: attach::attach_as(part, How { slot: 1, ..How::default() })?, cx: &cx };
    let bar = progress::bar(options.quiet || options.json, "copying", used(old.attached.backend)?);
    let mut each = |tally: &Tally| {
        if !bar.is_hidden() {
            bar.set_position(tally.copied);
            bar.set_message(format!("{} names, {}", tally.names, size::show(tally.copied)));
        }
        !stop.load(Relaxed)
    };
    let copied = Copy::new(old.attached.backend, new.attached.backend, &cx, &mut each).all();
    bar.finish_and_clear();
    let tally = copied.map_err(|failed| not_copied(path, limit, &failed))?;
    drop((old, new));
    refuse_damaged(part, &checking)?;
    checking.finish_and_clear();
    Ok((before, tally))
}

fn refuse_damaged(path: &Path, bar: &indicatif::ProgressBar) -> Result<()> {
    match check::verify(path, bar)?.issues.first() {
        None => Ok(()),
        Some(issue) => {
            Err(Failure::new(format!("{}: damaged: {issue}; fix it with `bypath check --repair` first", path.display())))
        }
    }
}

fn not_copied(path: &Path, limit: u64, failed: &Failed) -> Failure {
    let shown = path.display();
    match failed.error.errno() {
        Errno::EINTR => Failure::new(format!("{shown}: stopped; it is as it was")).code(130),
        Errno::ENOSPC => Failure::new(format!(
            "{shown}: is as it was: what is in it does not fit into {}, or there is no space beside it",
            size::show(limit)
        )),
        _ => Failure::engine(format!("{shown}:/{}", String::from_utf8_lossy(&failed.path)), failed.error),
    }
}

/// Bytes in use in an image.
fn used(backend: &dyn Backend) -> Result<u64> {
    let figures = backend.statfs().map_err(|error| Failure::engine("its figures", error))?;
    Ok((figures.blocks - figures.blocks_free) * figures.block_bytes)
}

/// The file system below must have room for both.
fn refuse_without_room(part: &Path, old: &Using) -> Result<()> {
    let dir = part.parent().unwrap_or(Path::new("/"));
    let below = rustix::fs::statvfs(dir).map_err(|error| Failure::io(dir.display(), &error.into()))?;
    let (needs, has) = (used(old.attached.backend)?, below.f_bavail * below.f_frsize);
    if needs <= has {
        return Ok(());
    }
    let (dir, needs, has) = (dir.display(), size::show(needs), size::show(has));
    Err(Failure::new(format!(
        "{dir}: the new image is made there, beside the old one, and needs {needs}; {has} are free; move the image to where there \
         is room (cp --sparse=always), resize it there, and move it back"
    )))
}

/// An image in use by this program.
struct Using<'a> {
    attached: Attached,
    cx: &'a Cx<'a>,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.attached.fs.end_session(self.cx);
    }
}

/// An image that nobody attaches for as long as this is kept.
struct Alone {
    file: File,
    mode: u32,
    owner: (u32, u32),
}

impl Alone {
    fn new(path: &Path) -> Result<Alone> {
        let shown = path.display();
        let failed = |error: std::io::Error| Failure::io(&shown, &error);
        let file = File::options().read(true).write(true).open(path).map_err(failed)?;
        let lock = |operation| match flock(&file, operation) {
            Ok(()) => Ok(()),
            Err(HostErrno::WOULDBLOCK) => Err(Failure::new(format!(
                "{shown}: it is in use: a session reads it, or another command is at it; end that first"
            ))),
            Err(error) => Err(failed(error.into())),
        };
        // Nobody reads it where it lies; from here on others can read it only, as we do. In between somebody may come, who is
        // seen when it is attached.
        lock(FlockOperation::NonBlockingLockExclusive)?;
        lock(FlockOperation::NonBlockingLockShared)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.nlink() != 1 {
            return Err(Failure::new(format!(
                "{shown}: has {} names (hard links), and only this one would be resized; remove the others first",
                meta.nlink()
            )));
        }
        let (mode, owner) = (meta.mode() & 0o7777, (meta.uid(), meta.gid()));
        Ok(Alone { file, mode, owner })
    }

    /// The new image at `part`, durable, takes its name.
    fn replace_by(&self, part: &Path, path: &Path) -> Result<()> {
        let replaced = || {
            let (uid, gid) = self.owner;
            let new = File::open(part)?;
            let is_own = new.metadata().is_ok_and(|meta| (meta.uid(), meta.gid()) == (uid, gid));
            if !is_own {
                chown(part, Some(uid), Some(gid))?;
            }
            new.set_permissions(std::fs::Permissions::from_mode(self.mode))?;
            new.sync_all()?;
            std::fs::rename(part, path)?;
            File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        replaced().map_err(|error| Failure::io(path.display(), &error))?;
        // It has no name any more: who waits for its lock is not to fill it.
        for at in [0, SUPERBLOCK_COPY] {
            let _ = self.file.write_all_at(&[0; BLOCK as usize], at);
        }
        Ok(())
    }
}

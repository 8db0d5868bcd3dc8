//! What whoever is told of changes by the kernel asks for: the directories that are here, and a look at single names.
//!
//! One server does so for an image at a time ([`Cache::serve`]).
//!
//! A directory's own times are taken over last, as they were when nothing was left to be looked at: what is noted of it
//! is never newer than its names, so that whoever comes after a death lists it again.

use crate::fresh::{CLOSED, Pass, Round, text};
use crate::lower::{Handle, Original, Path, Target, is_of_one};
use crate::touch::Label;
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, RenameMode, Result};
pub use engine::lower::{Cursor, News};
use engine::lower::{Fetched, Written, bits};
use engine::watch::events::Event;

/// What has come of a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// What is here is what is below.
    Done,
    /// Something is newer here, and decided by a round: it is to be looked at again when that is over.
    Later,
    /// It was changed here during the look: it is to be looked at again.
    Again,
}

/// What a directory below was like at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Seen(Original);

impl Cache {
    /// Whether this process (`pid`) is the one that keeps the image fresh, or becomes it: none else does that lives.
    pub fn serve(&self, pid: u32) -> bool {
        self.fs().serve_cache(pid)
    }

    /// Leaves that to others.
    pub fn end_service(&self, pid: u32) {
        self.fs().end_cache_service(pid);
    }

    /// Whether nobody uses the image but this process (`pid`).
    pub fn is_alone(&self, pid: u32) -> bool {
        self.fs().is_alone(pid)
    }

    /// Rises with every directory that comes here.
    pub fn brought(&self) -> u64 {
        self.fs().brought()
    }

    /// Whether there are directories to be watched, or names to be looked at again.
    pub fn news(&self) -> News {
        self.fs().news()
    }

    /// Whether something here of a file or directory is newer than below.
    pub fn is_behind(&self, node: Node) -> Result<bool> {
        self.is_newer(node)
    }

    /// Calls `each` with the directories in a directory that are here.
    pub fn each_directory_in(&self, cx: &Cx, dir: Node, each: &mut dyn FnMut(Node)) -> Result<()> {
        self.fs().readdir(&own(cx), dir, 0, &mut |entry| {
            if entry.kind == Kind::Directory && !matches!(entry.name, b"." | b"..") {
                each(Node { id: entry.id, hint: u32::MAX });
            }
            true
        })
    }

    /// The original of a directory, open, to be watched and listed. `ESTALE` while its path leads to another one below.
    pub fn open_below(&self, cx: &Cx, dir: Node) -> Result<Handle> {
        let handle = self.lower.open(cx, self.path(&mut Path::room(), dir, b"")?, true)?;
        if self.known(dir)?.stamp.is_same_file(&handle.original(cx)?.stamp) { Ok(handle) } else { Err(Errno::ESTALE.into()) }
    }

    /// Compares all names of a directory with those of its original, but nothing below. What can't be compared yet is left.
    pub fn refresh_one(&self, cx: &Cx, dir: Node) -> Result<Look> {
        self.refresh_one_while(cx, dir, &mut || true)
    }

    /// The same for as long as `goes_on` says so; it is asked once in a while.
    pub fn refresh_one_while(&self, cx: &Cx, dir: Node, goes_on: &mut dyn FnMut() -> bool) -> Result<Look> {
        self.fs().look_alone(|| self.refresh_names_of(cx, dir, goes_on))
    }

    fn refresh_names_of(&self, cx: &Cx, dir: Node, goes_on: &mut dyn FnMut() -> bool) -> Result<Look> {
        let handle = self.open_below(cx, dir)?;
        let mut pass = Pass { round: Round::default(), goes_on, is_deep: false, is_left: false };
        self.refresh_directory(cx, dir, (&handle, &handle.original(cx)?), 0, &mut pass)?;
        // Also where the times are the same: names may have come since within one tick of the clock, or while a round that sets
        // the times was at it.
        let mut look = Look::Done;
        if self.known(dir)?.is_listed() {
            handle.each_name(cx, &mut |listed| {
                let one = self.bring_new(cx, (dir, &handle), listed.name.to_bytes())?.0;
                look = if one == Look::Done { look } else { one };
                Ok(())
            })?;
        }
        Ok(if pass.is_left || self.is_newer(dir)? { Look::Later } else { look })
    }

    /// Looks at one name of a directory, whether it is here, there, or both.
    pub fn refresh_entry(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Look> {
        self.fs().look_alone(|| self.refresh_name_of(cx, dir, name))
    }

    fn refresh_name_of(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Look> {
        if dir == self.tree && crate::is_ours(name) {
            return Ok(Look::Done);
        }
        // Before anything below is asked: a round makes events too, of names that it has not finished with.
        if self.is_entry_newer(cx, dir, name)? {
            return Ok(Look::Later);
        }
        // A move here of a directory above it is not made below yet.
        let handle = match self.lower.handle(cx, self.path(&mut Path::room(), dir, b"")?) {
            Err(Error::Posix(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)) => return Ok(Look::Later),
            handle => handle?,
        };
        if !self.known(dir)?.stamp.is_same_file(&handle.original(cx)?.stamp) {
            return Ok(Look::Later);
        }
        let forgotten = self.fs().forgotten();
        let was_listed = self.known(dir)?.is_listed();
        let mut pass = Pass { round: Round::default(), goes_on: &mut || true, is_deep: false, is_left: false };
        match self.refresh_name(cx, (dir, &handle), name, 0, &mut pass) {
            Err(Error::Posix(Errno::ENOENT)) => self.changed_by_another_name(cx, &handle, name),
            // Changed here since.
            Err(Error::Posix(Errno::ESTALE)) => return Ok(Look::Again),
            result => result?,
        }
        if !was_listed {
            return Ok(Look::Done);
        }
        let (look, is_here) = self.bring_new(cx, (dir, &handle), name)?;
        // Only if no names went meanwhile by another hand; else the next listing asks below.
        if is_here && !self.known(dir)?.is_listed() {
            self.fs().mark_listed(&own(cx), dir, forgotten + 1)?;
        }
        Ok(look)
    }

    /// Another program has moved something below: what is here of it moves too, with what is newer in it, and with whoever has it
    /// open. Only while no round is under way, which would look for it where it was. Nothing is done where it is not what has moved,
    /// or something is at the new name here: then the two names are looked at.
    pub fn follow_move(&self, cx: &Cx, from: (Node, &[u8]), to: (Node, &[u8])) -> Result<Look> {
        let fs = self.fs();
        let is_own = |(dir, name): &(Node, &[u8])| *dir == self.tree && crate::is_ours(name);
        // A daemon's numbers do not say which file it is.
        if self.goes_by_names() || [from, to].iter().any(is_own) || fs.lookup(&own(cx), to.0, to.1).is_ok() {
            return Ok(Look::Done);
        }
        let Ok(node) = fs.lookup(&own(cx), from.0, from.1) else { return Ok(Look::Done) };
        let Some(known) = self.known_if(node)? else { return Ok(Look::Done) };
        let is_directory = fs.attr(&own(cx), node)?.kind == Kind::Directory;
        if !is_directory && !known.is_dirty() && fs.is_open(&own(cx), node) != Ok(true) {
            // Nobody sees whether it is another node.
            return Ok(Look::Done);
        }
        let there = |(dir, name): (Node, &[u8])| {
            self.lower.handle(cx, self.path(&mut Path::room(), dir, b"")?)?.child(cx, text(name, &mut [0; 256])?)
        };
        match (there(from), there(to)) {
            (Err(Error::Posix(Errno::ENOENT)), Ok(moved)) if known.stamp.is_same_file(&moved.stamp) && !moved.has_names() => {}
            _ => return Ok(Look::Done),
        }
        let Some(closed) = fs.close_changes(CLOSED)? else { return Ok(Look::Later) };
        let done = self.move_here(&own(cx), node, from, to);
        closed.open();
        if done == Ok(Look::Done) {
            self.tell_name(cx, from.0, from.1);
            self.tell_watchers(cx, from, Some(node));
            self.tell_new(cx, to, node)?;
        }
        done
    }

    /// Moves a name, while nobody changes anything.
    fn move_here(&self, cx: &Cx, node: Node, from: (Node, &[u8]), to: (Node, &[u8])) -> Result<Look> {
        let fs = self.fs();
        if self.has_round(cx)? || self.is_name_newer(cx, from.0, from.1)? || self.is_name_newer(cx, to.0, to.1)? {
            return Ok(Look::Later);
        }
        if fs.lookup(cx, from.0, from.1)? != node || fs.lookup(cx, to.0, to.1).is_ok() {
            return Ok(Look::Again);
        }
        fs.rename(cx, from.0, from.1, to.0, to.1, RenameMode::NoReplace)?;
        // By that name it is found below.
        fs.written(cx, node, &Written { stamp: self.known(node)?.stamp, is_clean: false, name: Some(to) })?;
        // The rename is no change of the original; what is newer here keeps its own times.
        for node in [node, from.0, to.0] {
            if !self.is_newer(node)? {
                self.restore_times(cx, node)?;
            }
        }
        Ok(Look::Done)
    }

    /// Whether a round is under way, or was cut off. A cut of a journal begins a log as well, and is none.
    pub(crate) fn has_round(&self, cx: &Cx) -> Result<bool> {
        let (now, mut cookie) = (self.fs().round()?, 0);
        while let Some((name, next)) = self.next_name(cx, self.touched, cookie, |kind| kind == Kind::Directory)? {
            cookie = next;
            let Some(round) = Label::parse(name.bytes()).filter(|round| *round < now) else { continue };
            if let Some(log) = self.find_note(cx, self.touched, name.bytes())?
                && self.find_note(cx, log, Label::new(b'p', round).whole())?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether programs have changed a name, or what it leads to, and no round that is over has made that below.
    fn is_entry_newer(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<bool> {
        Ok(self.is_name_newer(cx, dir, name)?
            || match self.fs().lookup(&own(cx), dir, name) {
                Ok(node) => self.is_newer(node)?,
                Err(_) => false,
            })
    }

    /// Brings a name of a directory of which all names are to be here, if it has come below. Whether it is here if it is there.
    fn bring_new(&self, cx: &Cx, (dir, handle): (Node, &Handle), name: &[u8]) -> Result<(Look, bool)> {
        if dir == self.tree && crate::is_ours(name) {
            return Ok((Look::Done, true));
        }
        // In a directory that becomes newer meanwhile it may have been removed here. One that is newer now stays listed, so
        // that only the server brings names into it.
        let unless = if self.is_newer(dir)? { 0 } else { bits::DIRTY };
        if self.fs().lookup(&own(cx), dir, name).is_ok() {
            return Ok((Look::Done, true));
        }
        if self.is_name_newer(cx, dir, name)? {
            return Ok((Look::Later, false));
        }
        match self.bring_inner(cx, (dir, handle), name, unless) {
            // The directory has become newer meanwhile, or there is no such name.
            Err(Error::Posix(Errno::ENOENT)) if unless != 0 && self.is_newer(dir)? => return Ok((Look::Again, false)),
            Err(Error::Posix(Errno::ENOENT)) => return Ok((Look::Done, true)),
            // Of what type it is a listing tells.
            Err(error) if is_of_one(error) => {
                self.fs().forget();
                self.fs().mark(&own(cx), dir, 0, bits::LISTED)?;
                self.tell_name(cx, dir, name);
                return Ok((Look::Done, false));
            }
            brought => self.tell_new(cx, (dir, name), brought?)?,
        }
        Ok((Look::Done, true))
    }

    /// A name has come: a kernel mount beside may keep that there is none, and there may be programs that watch.
    fn tell_new(&self, cx: &Cx, (dir, name): (Node, &[u8]), node: Node) -> Result<()> {
        self.tell_name(cx, dir, name);
        self.tell_watchers(cx, (dir, name), None);
        if self.fs().is_watched() && self.fs().attr(&own(cx), node)?.kind == Kind::Regular {
            // A program that waits until a file is written waits for its close.
            self.fs().tell(cx, node, Event::ClosedWritten);
        }
        Ok(())
    }

    /// Brings what a name of a directory below leads to, whatever path leads there by now.
    fn bring_inner(&self, cx: &Cx, (dir, handle): (Node, &Handle), name: &[u8], unless: u64) -> Result<Node> {
        let before = self.names_lead(cx, (dir, name))?;
        self.fs().count_fetched(Fetched { questions: 1, ..Fetched::default() });
        let found = handle.inner(cx, text(name, &mut [0; 256])?)?;
        let original = found.original(cx)?;
        let target = Target::of(cx, &found, &original)?;
        self.names_led(cx, before, (dir, name))?;
        self.bring(&own(cx), (dir, unless), name, &original, target.text())
    }

    /// What the original of a directory is like now.
    pub fn see(&self, cx: &Cx, dir: Node) -> Result<Seen> {
        Ok(Seen(self.lower.at(cx, self.path(&mut Path::room(), dir, b"")?)?.1))
    }

    /// All names of a directory have been looked at that had changed when it was seen so.
    pub fn settle(&self, cx: &Cx, dir: Node, seen: &Seen) -> Result<()> {
        if self.known(dir)?.stamp == seen.0.stamp {
            return Ok(());
        }
        self.fs().restamp(&own(cx), dir, &seen.0.change())
    }
}

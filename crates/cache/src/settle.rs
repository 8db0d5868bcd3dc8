//! Waiting for a round, where what is asked for below is not where it belongs yet.
//!
//! Whoever asks below goes by the names of the tree. Between a move here and the round that makes it below, the names lead
//! to nothing there, or to another file: that it is another is seen (`ESTALE`), that there is nothing is not believed while
//! directories have moved. Then a round is waited for.

use crate::data::Brought;
use crate::{Cache, Changes, own};
use base::{Cx, Errno, Error, Node, Result};
use engine::lower::bits;

/// How often something is asked again.
const ATTEMPTS: u32 = 4;

/// How many moves there had been.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moves(u64);

impl Cache {
    /// Whether a name is all that says which file it is below: a daemon's numbers say nothing. Then every move counts as
    /// one of a directory does, and no name below is believed between a move here and the round that makes it there.
    pub(crate) fn goes_by_names(&self) -> bool {
        self.lower.as_daemon().is_some()
    }

    /// Before something below is looked at by its name: `ESTALE` while names there may lead to another file than here.
    pub(crate) fn names_lead(&self) -> Result<Moves> {
        match self.fs().directory_moves()? {
            (_, false) if self.goes_by_names() => Err(Errno::ESTALE.into()),
            (moved, _) => Ok(Moves(moved)),
        }
    }

    /// Whether they still led where they do here when it was looked at.
    pub(crate) fn names_led(&self, before: Moves) -> Result<()> {
        if !self.goes_by_names() || self.names_lead()? == before { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }

    /// Asks below, once all is where it belongs there.
    pub(crate) fn settled<T>(&self, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let mut result = Err(Errno::ESTALE.into());
        for _ in 0..ATTEMPTS {
            let (moved, are_written) = self.fs().directory_moves()?;
            if !are_written {
                self.fs().want_round()?;
            }
            result = ask();
            match result {
                Err(Error::Posix(Errno::ESTALE)) if self.changes != Changes::Refused => self.fs().want_round()?,
                _ if self.fs().directory_moves()?.0 == moved => return result,
                _ => {}
            }
        }
        result
    }

    /// A name that was not here: `ENOENT`, unless its directory is not listed, and it is below.
    pub(crate) fn ask_settled(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        loop {
            let forgotten = self.fs().forgotten();
            let found = match self.known_if(dir)? {
                Some(known) if !(known.is_listed() || dir == self.tree && crate::is_ours(name)) => {
                    self.settled(|| self.ask(cx, dir, name, bits::LISTED))
                }
                // Listed by now: it may have come since it was looked for.
                _ => self.fs().lookup(&own(cx), dir, name),
            };
            match found {
                // Perhaps it is just being replaced.
                Err(Error::Posix(Errno::ENOENT)) if self.fs().forgotten() != forgotten => {}
                found => return found,
            }
        }
    }

    /// Has all names of a directory here before somebody asks for them; whether they had not been.
    pub fn list_ahead(&self, cx: &Cx, dir: Node) -> Result<bool> {
        match self.known_if(dir)? {
            Some(known) if !known.is_listed() => self.list(cx, dir).map(|()| true),
            _ => Ok(false),
        }
    }

    /// What is below at a name that is not here any more, though its directory is listed.
    pub fn bring_back(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        self.settled(|| self.ask(cx, dir, name, 0))
    }

    /// Has all names of a directory here.
    pub(crate) fn list_settled(&self, cx: &Cx, dir: Node) -> Result<()> {
        match self.known_if(dir)? {
            Some(known) if !known.is_listed() => self.settled(|| self.list(cx, dir)),
            // Made here, or listed.
            _ => Ok(()),
        }
    }

    /// Has bytes of a file here, unless they are.
    pub(crate) fn bring_settled(&self, cx: &Cx, node: Node, offset: u64, len: u64) -> Result<Brought> {
        if !self.is_missing(cx, node, offset, len)? {
            return Ok(Brought::All);
        }
        self.settled(|| self.bring_bytes(cx, node, offset, len))
    }
}

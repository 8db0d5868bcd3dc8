//! Waiting for a round, where what is asked for below is not where it belongs yet.
//!
//! Whoever asks below goes by the names of the tree. Between a move here and the round that makes it below, the names lead
//! to nothing there, or to another file: that it is another is seen (`ESTALE`), that there is nothing is not believed while
//! directories have moved. Then a round is waited for.

use crate::data::Brought;
use crate::{Cache, Changes, own};
use base::{Cx, Errno, Error, Node, Result};
use engine::lower::{Answer, bits};

/// How often something is asked again.
const ATTEMPTS: u32 = 16;
/// Rounds that may fail meanwhile.
const FAILED_MAX: u32 = 2;
/// Bytes of a block of the image.
const BLOCK: u64 = 4096;
/// Most names of a path: one letter each, and what divides them.
const NAMES_MAX: usize = base::PATH_MAX / 2;

/// When something was looked for below: how many moves there had been here, and the number of the next round.
#[derive(Clone, Copy)]
pub(crate) struct Moves {
    moved: u64,
    round: u64,
}

/// What the path of a node says below when it leads to nothing there, or to something of another type (a symlink, a socket): as
/// long as a round is to put the original where it belongs, that is somewhere else.
pub(crate) fn elsewhere(error: Error) -> Error {
    match error {
        Error::Posix(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENXIO) => Errno::ESTALE.into(),
        error => error,
    }
}

impl Cache {
    /// Whether a name is all that says which file it is below: a daemon's numbers say nothing. Then every move counts as
    /// one of a directory does, and no path below is believed between a move here of one of its names and the round that makes it
    /// there.
    pub(crate) fn goes_by_names(&self) -> bool {
        self.lower.as_daemon().is_some()
    }

    /// Before something below is looked at by its path, that of `name` in `at`, or of `at` itself: `ESTALE` while that may lead
    /// to another file there than here.
    pub(crate) fn names_lead(&self, cx: &Cx, (at, name): (Node, &[u8])) -> Result<Moves> {
        match self.moves(cx, (at, name))? {
            (_, true) if self.goes_by_names() => Err(Errno::ESTALE.into()),
            (moves, _) => Ok(moves),
        }
    }

    /// Whether it still led where it does here when it was looked at.
    pub(crate) fn names_led(&self, cx: &Cx, before: Moves, way: (Node, &[u8])) -> Result<()> {
        if !self.goes_by_names() || self.has_not_moved(cx, before, way)? { Ok(()) } else { Err(Errno::ESTALE.into()) }
    }

    /// The moves until now; and whether a path may lead elsewhere below than here.
    fn moves(&self, cx: &Cx, way: (Node, &[u8])) -> Result<(Moves, bool)> {
        let (moved, are_written) = self.fs().directory_moves()?;
        let moves = Moves { moved, round: self.fs().round()? };
        Ok((moves, !are_written && self.is_touched(cx, way)?))
    }

    /// Whether none of the names of a path has moved since.
    fn has_not_moved(&self, cx: &Cx, before: Moves, way: (Node, &[u8])) -> Result<bool> {
        // A round that has begun since may be over, and its notes gone.
        let (now, fs) = (self.fs().directory_moves()?.0, self.fs());
        Ok(now == before.moved || fs.round()? == before.round && !self.is_touched(cx, way)?)
    }

    /// Whether one of the names of a path is noted as changed here.
    pub(crate) fn is_touched(&self, cx: &Cx, (at, name): (Node, &[u8])) -> Result<bool> {
        if !name.is_empty() && self.is_name_touched(cx, at, name)? {
            return Ok(true);
        }
        let (mut at, mut text) = (at, [0; 255]);
        for _ in 0..NAMES_MAX {
            if at == self.tree {
                return Ok(false);
            }
            // Whichever name it is reached by.
            let Some((dir, len)) = self.fs().named(at, &mut text)? else { return Ok(true) };
            if self.is_name_touched(cx, dir, &text[..len])? {
                return Ok(true);
            }
            at = dir;
        }
        Err(Errno::ELOOP.into())
    }

    /// Asks below for what has this path, once it is where it belongs there.
    pub(crate) fn settled<T>(&self, cx: &Cx, way: (Node, &[u8]), mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let (mut result, mut waited, mut failed) = (Err(Errno::ESTALE.into()), false, 0);
        for _ in 0..ATTEMPTS {
            let rounds = self.fs().news().rounds;
            let (mut before, is_elsewhere) = self.moves(cx, way)?;
            if is_elsewhere {
                let answer = self.fs().ask_round()?;
                let (moves, is_still) = self.moves(cx, way)?;
                // It is one of those that could not be moved below; the failure of any other is no concern.
                if let (Answer::Failed(errno), true) = (answer, is_still) {
                    return Err(errno.into());
                }
                before = moves;
            }
            result = ask();
            match result {
                // No round puts it back, unless one has ended since: another program has taken it away below.
                Err(Error::Posix(Errno::ESTALE)) if !self.may_settle(cx, way)? && self.fs().news().rounds == rounds => {
                    return result;
                }
                Err(Error::Posix(Errno::ESTALE)) if self.changes != Changes::Refused => {
                    failed += u32::from(self.fs().ask_round()? != Answer::Done);
                    if failed > FAILED_MAX {
                        return result;
                    }
                }
                Err(Error::Posix(Errno::EACCES | Errno::EPERM)) if !waited && self.are_rights_newer(cx, way.0)? => {
                    // The rights below are those of before until a round has set them.
                    waited = true;
                    let _ = self.fs().ask_round()?;
                }
                _ if self.has_not_moved(cx, before, way)? => return result,
                _ => {}
            }
        }
        result
    }

    /// Whether a round may yet put what has this path where it belongs below.
    fn may_settle(&self, cx: &Cx, (at, name): (Node, &[u8])) -> Result<bool> {
        // A file that has lost its name to another one never gets it again; one of which the name is not known was renamed here.
        Ok(self.fs().names_here(at)? > 0 && self.is_touched(cx, (at, name))?)
    }

    /// Whether attributes of a node, or of a directory on the way to it, may be newer here than below.
    fn are_rights_newer(&self, _: &Cx, at: Node) -> Result<bool> {
        let (mut at, mut text) = (at, [0; 255]);
        for _ in 0..NAMES_MAX {
            if self.changes == Changes::Refused {
                return Ok(false);
            }
            if self.is_newer(at)? {
                return Ok(true);
            }
            let named = if at == self.tree { None } else { self.fs().named(at, &mut text)? };
            let Some((dir, _)) = named else { return Ok(false) };
            at = dir;
        }
        Ok(false)
    }

    /// A change of bytes from `at` on, for which a part of a block may have to be fetched. The process may be refused that
    /// below while the rights there are older than here: then it is fetched once a round has set them, and the change is
    /// made again.
    pub(crate) fn with_rights<T>(&self, cx: &Cx, node: Node, at: u64, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        let changed = change();
        let Err(Error::Posix(Errno::EACCES | Errno::EPERM)) = changed else { return changed };
        let border = at.min(self.fs().attr(&own(cx), node)?.size) & !(BLOCK - 1);
        match self.bring_settled(cx, node, border, BLOCK) {
            Ok(Brought::All) => change(),
            _ => changed,
        }
    }

    /// A name that was not here: `ENOENT`, unless its directory is not listed, and it is below.
    pub(crate) fn ask_settled(&self, cx: &Cx, dir: Node, name: &[u8]) -> Result<Node> {
        loop {
            let forgotten = self.fs().forgotten();
            let found = match self.known_if(dir)? {
                Some(known) if !(known.is_listed() || dir == self.tree && crate::is_ours(name)) => {
                    self.settled(cx, (dir, name), || self.ask(cx, dir, name, bits::LISTED))
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
        self.settled(cx, (dir, name), || self.ask(cx, dir, name, 0))
    }

    /// Has all names of a directory here.
    pub(crate) fn list_settled(&self, cx: &Cx, dir: Node) -> Result<()> {
        match self.known_if(dir)? {
            Some(known) if !known.is_listed() => self.settled(cx, (dir, b""), || self.list(cx, dir)),
            // Made here, or listed.
            _ => Ok(()),
        }
    }

    /// Has bytes of a file here, unless they are.
    pub(crate) fn bring_settled(&self, cx: &Cx, node: Node, offset: u64, len: u64) -> Result<Brought> {
        if !self.is_missing(cx, node, offset, len)? {
            return Ok(Brought::All);
        }
        self.settled(cx, (node, b""), || self.bring_bytes(cx, node, offset, len))
    }
}

//! A file that others have changed below while it is newer here.
//!
//! Ours is written over theirs, as if the program had run later, unless the mount says otherwise. Whoever decides by what a
//! file was like below must not take a round that was cut off for somebody else: so that one has begun to write is noted
//! (`wNODE` in the log of the round) before the first byte.

use crate::below::{Dir, join};
use crate::plan::{if_there, image, node};
use crate::{Failure, Result, Work};
use base::Kind;
use cache::touch::Label;
use pm::Errno;

/// What is done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// Ours is written over it.
    #[default]
    Ours,
    /// Theirs is kept beside it, as `NAME.bypath-theirs`.
    Both,
    /// Ours is not written until somebody decides: `fsync` fails, the rest is written.
    Stop,
}

impl Conflict {
    /// As a mount option says it.
    pub fn from_name(name: &str) -> Option<Conflict> {
        Some(match name {
            "ours" => Conflict::Ours,
            "both" => Conflict::Both,
            "stop" => Conflict::Stop,
            _ => return None,
        })
    }

    /// The same.
    pub fn name(self) -> &'static str {
        match self {
            Conflict::Ours => "ours",
            Conflict::Both => "both",
            Conflict::Stop => "stop",
        }
    }
}

impl Work<'_> {
    /// A file is about to be changed below.
    pub fn before_writing(&mut self, id: u64, (dir, name): (&Dir, &[u8])) -> Result<()> {
        let is_ours = [&self.plan.begun, &self.plan.made, &self.plan.unsure].iter().any(|nodes| nodes.contains(&id));
        if self.conflict == Conflict::Ours || is_ours {
            return Ok(());
        }
        let (Some(known), Some(there)) = (if_there(self.cache.known_if(node(id)))?.flatten(), dir.stat(name)?) else {
            return Ok(());
        };
        let is_as_known = (there.stamp.size, there.stamp.mtime) == (known.stamp.size, known.stamp.mtime);
        if !is_as_known {
            match self.conflict {
                Conflict::Stop => return Err(Failure::new(join(&dir.path, name), Errno::ESTALE)),
                _ => self.keep_theirs(dir, name)?,
            }
        }
        self.before("begin")?;
        let Some(round) = self.plan.rounds.last() else { return Ok(()) };
        let log = self.cache.log_of(&self.cx, *round).map_err(image)?;
        let label = Label::new(b'w', id);
        self.cache.note(&self.cx, log, label.whole(), Kind::Fifo, None).map_err(image)
    }

    /// A copy of what is there, beside it.
    fn keep_theirs(&mut self, dir: &Dir, name: &[u8]) -> Result<()> {
        let (park, new) = (self.below.park()?, b"theirs".to_vec());
        if park.stat(&new)?.is_some() {
            // Half of one.
            park.remove(&new, false)?;
        }
        self.before("theirs")?;
        let (from, to) = (dir.open_file(name)?, park.make_file(&new)?);
        from.copy_to(&to)?;
        self.set_aside_from((&park, &new), dir, name)
    }
}

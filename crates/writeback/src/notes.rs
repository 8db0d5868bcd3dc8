//! Notes that a round makes itself: in its own log, which the next round takes if this one is cut off, or in the log of now,
//! which the next round takes in any case.

use crate::below::Dir;
use crate::plan::{Appends, Begun, if_there, image};
use crate::{Result, Work};
use base::{Kind, Node, RenameMode};
use cache::touch::{Label, Set, size_as_blocks};
use engine::lower::Stamp;

impl Work<'_> {
    /// The log of this round.
    fn log_of_round(&self) -> Result<Option<Node>> {
        let Some(round) = self.plan.rounds.last() else { return Ok(None) };
        self.cache.log_of(&self.cx, *round).map(Some).map_err(image)
    }

    /// The log that programs write their notes into now.
    fn log_of_now(&self) -> Result<Node> {
        let now = self.cache.fs().round().map_err(image)?;
        self.cache.log_of(&self.cx, now).map_err(image)
    }

    /// Notes of a node what its file below is like, unless that is noted.
    fn note_file(&self, log: Node, kind: u8, id: u64, stamp: &Stamp) -> Result<()> {
        let stamp = Stamp { size: id, blocks: size_as_blocks(stamp.size), ..*stamp };
        self.cache.note_as(&self.cx, log, Label::new(kind, id).whole(), Kind::Fifo, stamp).map_err(image)
    }

    /// The same in place of what is noted, which is there until then.
    fn note_file_anew(&self, log: Node, kind: u8, id: u64, stamp: &Stamp) -> Result<()> {
        let (fs, new, label) = (self.cache.fs(), Label::new(b't', id), Label::new(kind, id));
        if if_there(fs.lookup(&self.cx, log, label.whole()))?.is_none() {
            return self.note_file(log, kind, id, stamp);
        }
        // Half of an attempt.
        if_there(fs.unlink(&self.cx, log, new.whole()))?;
        self.note_file(log, b't', id, stamp)?;
        fs.rename(&self.cx, log, new.whole(), log, label.whole(), RenameMode::Replace).map_err(image)
    }

    /// The number of what was made is noted, before it has a name and before the node says so: who finds it there knows it.
    pub fn note_made(&mut self, id: u64, stamp: &Stamp) -> Result<()> {
        self.note_file_anew(self.log_of_now()?, b'm', id, stamp)
    }

    /// A node, or a name of it, has gone here while its file was written below: the round that removes that has no other way to
    /// know what it was like.
    pub fn note_written(&mut self, id: u64, stamp: &Stamp) -> Result<()> {
        self.note_file_anew(self.log_of_now()?, b'v', id, stamp)
    }

    /// The round is over, though it keeps notes: what other programs move below moves here again.
    pub fn note_over(&self) -> Result<()> {
        let (fs, touched) = (self.cache.fs(), self.cache.touched());
        for round in &self.plan.rounds {
            let label = Label::new(b'p', *round);
            if let Some(log) = if_there(fs.lookup(&self.cx, touched, label.number()))? {
                if_there(fs.unlink(&self.cx, log, label.whole()))?;
            }
        }
        Ok(())
    }

    /// The round is about to write a file, or has appended bytes to it: `left` says what size and time of change it has when the
    /// round is through with it.
    pub fn note_begun(&mut self, id: u64, appends: Option<Appends>, left: (u64, i64)) -> Result<()> {
        let is_before = self.plan.begun.get(&id).is_some_and(|begun| begun.is_before);
        let begun = Begun { appends, left: (size_as_blocks(left.0), left.1), is_before, is_now: true };
        self.plan.begun.insert(id, begun);
        self.note_left(id, appends, left)
    }

    /// The round could not write all of a file that it had begun: what the file is like now is this round's work.
    pub fn note_failed(&mut self, id: u64, (dir, name): (&Dir, &[u8])) -> Result<()> {
        let begun = self.plan.begun.get(&id).copied().filter(|begun| begun.is_now);
        let (Some(begun), Some(there)) = (begun, dir.stat(name)?) else { return Ok(()) };
        self.note_left(id, begun.appends, (there.stamp.size, there.stamp.mtime))
    }

    fn note_left(&self, id: u64, appends: Option<Appends>, (size, mtime): (u64, i64)) -> Result<()> {
        let Some(log) = self.log_of_round()? else { return Ok(()) };
        let appends = appends.map(|appends| (appends.from.wrapping_add(1), appends.at + 1, appends.done as i64));
        let (device, number, ctime) = appends.unwrap_or_default();
        self.note_file_anew(log, b'w', id, &Stamp { size, device, number, mtime, ctime, ..Stamp::default() })
    }

    /// The next round takes a file of this size and time of change for what rounds have left.
    pub fn note_left_to_next(&self, id: u64, (size, mtime): (u64, i64)) -> Result<()> {
        self.note_file_anew(self.log_of_now()?, b'w', id, &Stamp { size, mtime, ..Stamp::default() })
    }

    /// Attributes of a node are to be set.
    pub fn note_set(&mut self, at: Node, set: Set) -> Result<()> {
        let Some(log) = self.log_of_round()? else { return Ok(()) };
        self.cache.note_attributes(&self.cx, log, at, set).map_err(image)
    }

    /// All attributes of a node are to be set.
    pub fn note_new(&mut self, id: u64) -> Result<()> {
        let Some(log) = self.log_of_round()? else { return Ok(()) };
        self.cache.note(&self.cx, log, Label::new(b'd', id).whole(), Kind::Regular, None).map_err(image)
    }
}

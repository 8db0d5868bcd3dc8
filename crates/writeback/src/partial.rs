//! The end of a round of which a part failed: what succeeded is over, and the notes of the rest stay.
//!
//! Each note stands for itself, but those of what a round has begun, which go last: so they go one by one, and a writer that
//! dies in between leaves some that find their work done. A note of a name is not needed once the name is below as it is here,
//! even while another name of the same round fails: what moved away from it is found in the park, or where it was left.
//!
//! With a journal, whose tail moves only when all is below, and behind a daemon, where the log of moves goes with the notes,
//! all of them stay.

use crate::plan::{if_there, image, names_in, node};
use crate::{Result, Work};
use base::Node;
use cache::touch::Label;
use engine::lower::bits;

impl Work<'_> {
    /// Removes the notes of what succeeded.
    pub fn finish_part(&mut self) -> Result<()> {
        if self.has_all_or_nothing() {
            return self.note_over();
        }
        let outcomes = &self.outcomes;
        self.plan.unmapped.retain(|id| !outcomes.keeps(*id));
        self.forget_mapped()?;
        for round in self.plan.rounds.clone() {
            self.before("free")?;
            self.free(round)?;
        }
        if !self.outcomes.has_names() {
            self.cache.fs().moves_are_written(self.plan.moved).map_err(image)?;
        }
        self.cache.fs().count_written(self.bytes).map_err(image)?;
        self.forget_removed()?;
        self.look_again();
        Ok(())
    }

    /// Whether all notes stay when one thing has failed.
    pub fn has_all_or_nothing(&self) -> bool {
        self.journal.is_some() || self.below.names().is_some()
    }

    /// The notes of a round that are not needed any more.
    fn free(&mut self, round: u64) -> Result<()> {
        let (fs, touched) = (self.cache.fs(), self.cache.touched());
        let name = Label::new(b'r', round);
        let Some(log) = if_there(fs.lookup(&self.cx, touched, name.number()))? else { return Ok(()) };
        let mut is_empty = true;
        let mut labels = names_in(self.cache, &self.cx, log)?;
        // As long as it is noted that bytes were appended, it is noted that they are below; and that the round is under way.
        labels.sort_by_key(|label| match label.first() {
            Some(b'p') => 2,
            Some(b'w') => 1,
            _ => 0,
        });
        for label in labels {
            let stays = match (label.first(), label.get(1..).and_then(Label::parse)) {
                (Some(b'n'), Some(dir)) => self.free_names(log, (&label, dir))?,
                (_, Some(node)) if !self.outcomes.keeps_notes(node) => {
                    self.remove_note(log, &label)?;
                    false
                }
                _ => true,
            };
            is_empty &= !stays;
        }
        if is_empty {
            if_there(fs.rmdir(&self.cx, touched, name.number()))?;
        }
        Ok(())
    }

    /// The same of the names of one directory; whether some of them stay.
    fn free_names(&mut self, log: Node, (label, dir): (&[u8], u64)) -> Result<bool> {
        let fs = self.cache.fs();
        let Some(notes) = if_there(fs.lookup(&self.cx, log, label))? else { return Ok(false) };
        // Its times are still to be set.
        let mut stays = self.outcomes.keeps(dir);
        for name in names_in(self.cache, &self.cx, notes)? {
            if self.outcomes.of_name(&(dir, name.clone())).is_some() {
                stays = true;
            } else {
                if_there(fs.unlink(&self.cx, notes, &name))?;
            }
        }
        if !stays {
            if_there(fs.rmdir(&self.cx, log, label))?;
        }
        Ok(stays)
    }

    /// What was removed below, and changed here in nothing but attributes, goes here, too.
    pub fn forget_removed(&mut self) -> Result<()> {
        let removed = std::mem::take(&mut self.removed);
        if removed.is_empty() {
            return Ok(());
        }
        self.closed(|work| {
            let logs = work.logs_since()?;
            for (id, _) in &removed {
                if !work.is_noted(&logs, *id)? {
                    if_there(work.cache.fs().mark(&work.cx, node(*id), 0, bits::DIRTY))?;
                }
            }
            Ok(())
        })?;
        for (_, (dir, name)) in removed {
            // A look that fails is made again by whoever keeps the cache fresh.
            let _ = self.cache.refresh_entry(&self.cx, node(dir), &name);
        }
        Ok(())
    }
}

//! Bytes: what was touched is below as it is here; a hole that is to be fetched is left alone, the others are made.

use crate::below::{File, PIECE};
use crate::plan::{Noted, if_there, image, node};
use crate::{Failure, Result, Work};
use base::{Error, Kind, Node};
use cache::touch::CHUNK;
use pm::{Errno, UserSlice};

impl Work<'_> {
    pub fn contents(&mut self) -> Result<()> {
        self.find_names()?;
        let nodes: Vec<(u64, Noted)> = self.plan.nodes.iter().map(|(id, noted)| (*id, noted.clone())).collect();
        for (id, noted) in nodes {
            let done = match self.contents_of(id, &noted) {
                Err(failure) if failure.errno == Errno::ESTALE && self.is_gone(node(id))? => Ok(()),
                done => done,
            };
            self.progress.done();
            self.or_cut(done)?;
        }
        Ok(())
    }

    /// Whether a node has gone from the image meanwhile, which is noted for the next round.
    pub fn is_gone(&self, at: Node) -> Result<bool> {
        Ok(if_there(self.cache.fs().attr(&self.cx, at))?.is_none())
    }

    fn contents_of(&mut self, id: u64, noted: &Noted) -> Result<()> {
        let fs = self.cache.fs();
        let Some(attr) = if_there(fs.attr(&self.cx, node(id)))? else { return Ok(()) };
        let Some(file) = self.plan.ids.get(&id).copied() else { return Ok(()) };
        if self.plan.made.contains(&id) && attr.kind != Kind::Directory {
            return Ok(());
        }
        if id == self.plan.root {
            let root = self.below.top()?;
            self.before("attributes")?;
            return self.set_attributes(&root, b".", node(id)).map(drop);
        }
        let Some(found) = self.find(id, file)? else {
            // Without a name in the tree: whoever has it open is the last to see it.
            let has_name = noted.spot.is_some() || self.plan.targets.contains_key(&id);
            return if has_name { Err(Failure::new(self.shown(noted, id), Errno::ESTALE)) } else { Ok(()) };
        };
        if attr.kind == Kind::Regular {
            self.before_writing(id, (&found.dir, &found.name))?;
        }
        if attr.kind == Kind::Regular && (!noted.ranges.is_empty() || noted.from.is_some()) {
            self.before("contents")?;
            let file = found.dir.open_file(&found.name)?;
            self.write_ranges(&file, node(id), noted)?;
        } else if attr.kind == Kind::Regular {
            // A size that was changed alone.
            self.before("size")?;
            let below = found.dir.stat(&found.name)?.map_or(0, |original| original.attr.size);
            if below != attr.size {
                let file = found.dir.open_file(&found.name)?;
                self.write_ranges(&file, node(id), noted)?;
            }
        }
        self.before("attributes")?;
        self.set_attributes(&found.dir, &found.name, node(id)).map(drop)
    }

    /// A name for people.
    fn shown(&self, noted: &Noted, id: u64) -> Vec<u8> {
        noted.spot.as_ref().map_or_else(|| format!("file {id:x}").into_bytes(), |(_, name)| name.clone())
    }

    /// All bytes of a node, into a new file; whether it is still here.
    pub fn write_all(&mut self, file: &File, at: Node) -> Result<bool> {
        let noted = Noted { from: Some(0), ..Noted::default() };
        match self.write_ranges(file, at, &noted) {
            Err(failure) if failure.errno == Errno::ESTALE => Ok(false),
            result => result.map(|()| true),
        }
    }

    fn write_ranges(&mut self, file: &File, at: Node, noted: &Noted) -> Result<()> {
        let fs = self.cache.fs();
        let below = file.size()?;
        let size = fs.attr(&self.cx, at).map_err(image)?.size;
        let end = self.cache.known_if(at).map_err(image)?.map_or(0, |known| known.end);
        let mut ranges = noted.ranges.clone();
        let all = u64::MAX;
        if let Some(from) = noted.from {
            ranges.push((from, all));
        }
        // What is behind the end below has never been there.
        if below < size {
            ranges.push((below - below % CHUNK, all));
        }
        // In order, so that the size below says how far it has come.
        ranges.sort_unstable();
        let mut done = 0;
        for (from, to) in ranges {
            let (from, to) = (from.max(done), to.min(size));
            if from < to {
                self.write_range(file, at, (from, to), (end, below))?;
                done = to;
            }
        }
        if file.size()? != size {
            file.set_size(size)?;
        }
        Ok(())
    }

    /// One run of bytes. `end`: below it holes are to be fetched, and so they are there. `below`: bytes that are there.
    fn write_range(&mut self, file: &File, at: Node, (from, to): (u64, u64), (end, below): (u64, u64)) -> Result<()> {
        let fs = self.cache.fs();
        let mut from = from;
        while from < to {
            let data = match fs.seek(&self.cx, at, from, true) {
                Ok(data) => data.min(to),
                Err(Error::Posix(Errno::ENXIO)) => to,
                Err(error) => return Err(image(error)),
            };
            file.zero(from.max(end), data.min(below))?;
            from = data;
            if from >= to {
                break;
            }
            let hole = match fs.seek(&self.cx, at, from, false) {
                Ok(hole) => hole.min(to),
                Err(Error::Posix(Errno::ENXIO)) => return Ok(()),
                Err(error) => return Err(image(error)),
            };
            self.write_bytes(file, at, from, hole)?;
            from = hole;
        }
        Ok(())
    }

    fn write_bytes(&mut self, file: &File, at: Node, from: u64, to: u64) -> Result<()> {
        let fs = self.cache.fs();
        let mut buffer = vec![0u8; (to - from).min(PIECE) as usize];
        let mut from = from;
        while from < to {
            let want = (to - from).min(PIECE) as usize;
            let came = fs.read(&self.cx, at, from, &[UserSlice::from_mut(&mut buffer[..want])]).map_err(image)?;
            if came == 0 {
                // Made shorter meanwhile: that is noted for the next round.
                return Ok(());
            }
            file.write(&buffer[..came], from)?;
            self.bytes += came as u64;
            from += came as u64;
        }
        Ok(())
    }
}

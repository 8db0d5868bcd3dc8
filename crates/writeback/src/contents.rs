//! Bytes: what was touched is below as it is here; a hole that is to be fetched is left alone, the others are made.

use crate::below::errno;
use crate::plan::{Noted, if_there, image, node};
use crate::{Failure, Result, Work};
use base::{Error, Kind, Node};
use cache::touch::CHUNK;
use pm::{Errno, UserSlice};
use rustix::fd::OwnedFd;
use rustix::fs::FallocateFlags;

/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;

impl Work<'_> {
    pub fn contents(&mut self) -> Result<()> {
        self.find_names()?;
        let nodes: Vec<(u64, Noted)> = self.plan.nodes.iter().map(|(id, noted)| (*id, noted.clone())).collect();
        for (id, noted) in nodes {
            let done = self.contents_of(id, &noted);
            self.or_cut(done)?;
        }
        Ok(())
    }

    fn contents_of(&mut self, id: u64, noted: &Noted) -> Result<()> {
        let fs = self.cache.fs();
        let Some(attr) = if_there(fs.attr(&self.cx, node(id)))? else { return Ok(()) };
        let Some(file) = self.plan.ids.get(&id).copied() else { return Ok(()) };
        if self.plan.made.contains(&id) && attr.kind != Kind::Directory {
            return Ok(());
        }
        if id == self.plan.root {
            let root = self.below.dir(b"")?;
            self.before("attributes")?;
            return self.set_attributes(&root, b".", node(id)).map(drop);
        }
        let Some(found) = self.find(id, file)? else {
            // Without a name in the tree: whoever has it open is the last to see it.
            let has_name = noted.spot.is_some() || self.plan.targets.contains_key(&id);
            return if has_name { Err(Failure::new(self.shown(noted, id), Errno::ESTALE)) } else { Ok(()) };
        };
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
    pub fn write_all(&mut self, file: &OwnedFd, at: Node) -> Result<bool> {
        let noted = Noted { from: Some(0), ..Noted::default() };
        match self.write_ranges(file, at, &noted) {
            Err(failure) if failure.errno == Errno::ESTALE => Ok(false),
            result => result.map(|()| true),
        }
    }

    fn write_ranges(&mut self, file: &OwnedFd, at: Node, noted: &Noted) -> Result<()> {
        let fs = self.cache.fs();
        let failed = |error| Failure::new("bytes of a file", errno(error));
        let below = rustix::fs::fstat(file).map_err(failed)?.st_size as u64;
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
        let now = rustix::fs::fstat(file).map_err(failed)?.st_size as u64;
        if now != size {
            rustix::fs::ftruncate(file, size).map_err(failed)?;
        }
        Ok(())
    }

    /// One run of bytes. `end`: below it holes are to be fetched, and so they are there. `below`: bytes that are there.
    fn write_range(&mut self, file: &OwnedFd, at: Node, (from, to): (u64, u64), (end, below): (u64, u64)) -> Result<()> {
        let fs = self.cache.fs();
        let mut from = from;
        while from < to {
            let data = match fs.seek(&self.cx, at, from, true) {
                Ok(data) => data.min(to),
                Err(Error::Posix(Errno::ENXIO)) => to,
                Err(error) => return Err(image(error)),
            };
            zero(file, from.max(end), data.min(below))?;
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

    fn write_bytes(&mut self, file: &OwnedFd, at: Node, from: u64, to: u64) -> Result<()> {
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
            let mut done = 0;
            while done < came {
                let wrote = rustix::io::pwrite(file, &buffer[done..came], from + done as u64)
                    .map_err(|error| Failure::new("bytes of a file", errno(error)))?;
                done += wrote;
            }
            self.bytes += came as u64;
            from += came as u64;
        }
        Ok(())
    }
}

/// Makes bytes zero that are there.
pub fn zero(file: &OwnedFd, from: u64, to: u64) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, from, to - from) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        done => return done.map_err(|error| Failure::new("a hole of a file", errno(error))),
    }
    let zeros = vec![0u8; PIECE as usize];
    let mut from = from;
    while from < to {
        let len = (to - from).min(PIECE) as usize;
        let done = rustix::io::pwrite(file, &zeros[..len], from);
        from += done.map_err(|error| Failure::new("a hole of a file", errno(error)))? as u64;
    }
    Ok(())
}

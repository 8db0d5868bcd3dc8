//! Giving up the changes of one name: what it leads to here goes into the image's `/lost`, and what is below is seen again.

use crate::plan::{if_there, image, names_in, node};
use crate::{Failure, Result, Writer};
use base::{Kind, NewNode, Node, RenameMode};
use cache::touch::{Label, OF_NODES};
use engine::lower::Stamp;
use pm::Errno;

/// Name of the directory of the image for what was skipped.
const LOST: &[u8] = b"lost";
/// How long nobody changes anything at most, nanoseconds, and attempts.
const CLOSED: u64 = 1_000_000_000;
const ATTEMPTS: u32 = 100;

impl Writer {
    /// Skips the name at this path of the tree; what it led to is called so in the image from now on.
    pub fn skip(&self, path: &[u8]) -> std::result::Result<String, Failure> {
        let (cx, fs) = (self.cx(), self.cache.fs());
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        let mut dir = self.cache.tree();
        let name = loop {
            let name = names.next().ok_or_else(|| Failure::new(path, Errno::EINVAL))?;
            if names.peek().is_none() {
                break name;
            }
            dir = fs.lookup(&cx, dir, name).map_err(|error| Failure::new(path, error.errno()))?;
        };
        let at = fs.lookup(&cx, dir, name).map_err(|error| Failure::new(path, error.errno()))?;
        let attr = fs.attr(&cx, at).map_err(image)?;
        let is_below = self.cache.known_if(at).map_err(image)?.is_some();
        if attr.kind == Kind::Directory && is_below || attr.kind != Kind::Directory && fs.names_here(at).map_err(image)? > 2 {
            // What is in it, or its other names, would be without what they belong to.
            return Err(Failure::new(path, if attr.kind == Kind::Directory { Errno::EISDIR } else { Errno::EMLINK }));
        }
        let lost = self.lost()?;
        let kept = [format!("{:x}-", at.id).as_bytes(), &name[..name.len().min(200)]].concat();
        let mut spots = Vec::new();
        for _ in 0..ATTEMPTS {
            let Some(closed) = fs.close_changes(CLOSED).map_err(image)? else {
                std::thread::sleep(std::time::Duration::from_millis(5));
                continue;
            };
            let moved = self.set_apart(at, (dir, name), (lost, &kept));
            closed.open();
            spots.extend(moved?);
            break;
        }
        if spots.is_empty() {
            return Err(Failure::new("a program is stopped in the middle of a change", Errno::EBUSY));
        }
        for (dir, name) in spots {
            // Where nothing is below there is nothing to be seen.
            let _ = self.cache.bring_back(&cx, node(dir), &name);
        }
        Ok(format!("/lost/{}", String::from_utf8_lossy(&kept)))
    }

    fn lost(&self) -> Result<Node> {
        let (cx, fs) = (self.cx(), self.cache.fs());
        let new = NewNode { kind: Kind::Directory, mode: 0o700, rdev: 0, target: b"" };
        match fs.create(&cx, fs.root_node(), LOST, &new) {
            Err(error) if error.errno() == Errno::EEXIST => fs.lookup(&cx, fs.root_node(), LOST).map_err(image),
            made => made.map_err(image),
        }
    }

    /// Moves it, and takes the notes of it away: of its contents, and of all names by which it was known below. Those.
    fn set_apart(&self, at: Node, (dir, name): (Node, &[u8]), (lost, kept): (Node, &[u8])) -> Result<Vec<(u64, Vec<u8>)>> {
        let (cx, fs) = (self.cx(), self.cache.fs());
        let stamp = self.cache.known_if(at).map_err(image)?.map(|known| known.stamp);
        let is_its = |was: &Stamp| was.size == at.id || stamp.is_some_and(|stamp| was.number != 0 && stamp.is_same_file(was));
        let mut spots = vec![(dir.id, name.to_vec())];
        self.cache.part(&cx, at);
        fs.rename(&cx, dir, name, lost, kept, RenameMode::Replace).map_err(image)?;
        for round in names_in(self.cache, &cx, self.cache.touched())? {
            let (Some(_), Some(log)) = (Label::parse(&round), if_there(fs.lookup(&cx, self.cache.touched(), &round))?) else {
                continue;
            };
            for label in b"mwv".iter().chain(&OF_NODES).map(|kind| Label::new(*kind, at.id)) {
                let Some((note, kind)) = if_there(fs.lookup_kind(&cx, log, label.whole()))? else { continue };
                if kind != Kind::Directory {
                    if_there(fs.unlink(&cx, log, label.whole()))?;
                    continue;
                }
                for attribute in names_in(self.cache, &cx, note)? {
                    if_there(fs.unlink(&cx, note, &attribute))?;
                }
                if_there(fs.rmdir(&cx, log, label.whole()))?;
            }
            for label in names_in(self.cache, &cx, log)? {
                let Some(id) = label.strip_prefix(b"n").and_then(Label::parse) else { continue };
                let notes = fs.lookup(&cx, log, &label).map_err(image)?;
                for noted in names_in(self.cache, &cx, notes)? {
                    let note = fs.lookup(&cx, notes, &noted).map_err(image)?;
                    let was = self.cache.known_if(note).map_err(image)?.map(|known| known.stamp);
                    let is_here = (id, &noted[..]) == (dir.id, name);
                    // A name that has been given to something else since is that one's.
                    let is_free = if_there(fs.lookup(&cx, node(id), &noted))?.is_none();
                    if is_here || is_free && was.is_some_and(|was| is_its(&was)) {
                        fs.unlink(&cx, notes, &noted).map_err(image)?;
                        spots.push((id, noted));
                    }
                }
            }
        }
        if_there(fs.unlink(&cx, self.cache.mapped(), Label::new(b'd', at.id).number()))?;
        Ok(spots)
    }
}

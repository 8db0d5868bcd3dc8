//! Making room: what can be had below again goes.
//!
//! Contents first, of files that nobody has open; then names, but for directories: those of a whole directory at a time,
//! since one that lacks a name is listed anew by whoever wants all of them.

use crate::ask::Key;
use crate::{Cache, Changes, own};
use base::{Cx, Kind, Node, Result};
use engine::lower::bits;

/// This part of the image is freed at once.
const PART: u64 = 64;
/// And so many blocks, or names, at least.
const LEAST: u64 = 256;

impl Cache {
    /// Takes contents away that can be had below again, of files that nobody has open; whether there were any.
    pub fn make_room(&self, cx: &Cx) -> Result<bool> {
        self.evict_contents(cx, self.tree)
    }

    /// Makes room by contents of other files than `keep`; whether there is some.
    pub(crate) fn evict_contents(&self, cx: &Cx, keep: Node) -> Result<bool> {
        let (fs, cx, mut freed) = (self.fs(), own(cx), 0);
        let wanted = (fs.statfs()?.blocks / PART).max(LEAST);
        for _ in 0..fs.names_steps() {
            fs.next_names(&mut |_, child, kind| {
                if kind == Kind::Regular && child.id != keep.id {
                    // What somebody has taken away meanwhile, or has mapped, is nothing to us.
                    freed += fs.evict_contents(&cx, child).unwrap_or(0);
                }
            })?;
            if freed >= wanted {
                break;
            }
        }
        Ok(freed > 0)
    }

    /// Makes room for names in `keep`: by contents, or else by names of other directories; whether there is some.
    pub(crate) fn evict(&self, cx: &Cx, keep: Node) -> Result<bool> {
        if self.evict_contents(cx, keep)? {
            return Ok(true);
        }
        if self.changes != Changes::Refused {
            // Who opens a file just when its name goes would write into what has no name.
            return Ok(false);
        }
        let (fs, mut freed) = (self.fs(), 0);
        for _ in 0..fs.names_steps() {
            let mut found = None;
            fs.next_names(&mut |dir, _, kind| {
                if kind != Kind::Directory && ![keep.id, self.links.id].contains(&dir.id) {
                    found = Some(dir);
                }
            })?;
            if let Some(dir) = found {
                freed += self.forget_names(cx, dir).unwrap_or(0);
            }
            if freed >= LEAST {
                break;
            }
        }
        Ok(freed > 0)
    }

    /// Takes away the names of a directory that are no directories' and whose files nobody has open; how many there were.
    fn forget_names(&self, cx: &Cx, dir: Node) -> Result<u64> {
        let (fs, own) = (self.fs(), own(cx));
        // Not of the log, and nothing that is newer here.
        fs.path_of(dir, self.tree, &mut [0; 4096])?;
        if self.is_newer(dir)? {
            return Ok(0);
        }
        fs.forget();
        fs.mark(&own, dir, 0, bits::LISTED)?;
        let (mut freed, mut cookie) = (0, 0);
        while let Some((name, next)) = self.next_name(cx, dir, cookie, |kind| kind != Kind::Directory)? {
            cookie = next;
            let Ok(node) = fs.lookup(&own, dir, name.bytes()) else { continue };
            if !fs.is_open(&own, node)? && self.remove_entry(&own, dir, name.bytes(), (node, None), false).is_ok() {
                freed += 1;
            }
        }
        self.restore_times(&own, dir)?;
        Ok(freed)
    }

    /// A node is to be no copy of its original any more: that is brought anew.
    pub fn part(&self, cx: &Cx, node: Node) {
        if let Ok(known) = self.known(node) {
            let _ = self.fs().unlink(&own(cx), self.links, &Key::new(&known.stamp).0);
        }
    }

    /// A name has gone: the one that its file has by its number goes with the last.
    pub(crate) fn forget_link(&self, own: &Cx, node: Node) {
        let Ok(known) = self.known(node) else { return };
        // Who has no other name is gone already, and so is its number.
        if self.fs().names_here(node) == Ok(1) {
            let _ = self.fs().unlink(own, self.links, &Key::new(&known.stamp).0);
        }
    }
}

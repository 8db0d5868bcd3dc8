//! A glance: the attributes at the end of a plain, warm path, in one pass.
//!
//! What `stat`, `access` and `open` ask most often: a few ordinary components,
//! each with its cachelet at hand. One look at a bucket and one at a cachelet a
//! component, the attributes copied between two loads of the last one's
//! sequence word, nothing allocated, locked or written. Whatever is out of the
//! ordinary (`.` and `..`, symlinks, long names, cold entries, cold lines,
//! missing rights) answers [`Glance::Unsure`], and [`Fs::walk`] does it properly.

use crate::fs::Fs;
use crate::segment::cachelet::{self, Cachelet, NAME_SHORT};
use base::{Attr, Cred, Glance, Kind, Node, X};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::BLOCK;
use format::bucket::{self, ENTRIES};
use format::inode::node_offset;

/// Flags that make a cachelet one for the proper way.
const ODD: u32 = cachelet::INVALID | cachelet::DEAD | cachelet::COLD | cachelet::RECOUNT | cachelet::REMOVED;

/// Outcome of a look for one name.
enum Look<'a> {
    /// Its cachelet, which carried the name while the sequence was this.
    Named(&'a Cachelet, u32),
    Absent,
    Unsure,
}

impl Fs {
    /// The attributes of the node at the end of `path` from directory `base`;
    /// `follow` says whether a symlink there is to be followed.
    #[inline]
    pub fn glance(&self, cred: &Cred, base: Node, path: &[u8], follow: bool, attr: &mut Attr) -> Glance {
        let Some(mut dir) = self.at_hand(base) else { return Glance::Unsure };
        let mut id = base.id;
        let (mut sequence, mut rest) = (dir.sequence.load(Acquire), path);
        if sequence & 1 != 0 || dir.node.load(Relaxed) != id || rest.is_empty() {
            return Glance::Unsure;
        }
        let root = self.root();
        let buckets = root.buckets.load(Acquire);
        loop {
            if !may_search(cred, dir, sequence) {
                return Glance::Unsure;
            }
            let end = component(rest);
            let (name, last) = (&rest[..end], end == rest.len());
            if name.is_empty() || name[0] == b'.' || end > NAME_SHORT {
                return Glance::Unsure;
            }
            let parent = node_offset(id);
            let (child, seen) = match self.look(buckets, parent, name) {
                Look::Named(child, seen) => (child, seen),
                Look::Absent if last && dir.sequence.load(Relaxed) == sequence && root.buckets.load(Relaxed) == buckets => {
                    return Glance::Absent;
                }
                _ => return Glance::Unsure,
            };
            if last {
                return self.attributes(child, seen, follow, attr);
            }
            id = child.node.load(Relaxed);
            (dir, sequence, rest) = (child, seen, &rest[end + 1..]);
        }
    }

    /// The cachelet of a node, if it has one.
    #[inline(always)]
    fn at_hand(&self, node: Node) -> Option<&Cachelet> {
        match self.cachelet(node.hint) {
            Some(cachelet) if cachelet.node.load(Relaxed) == node.id => Some(cachelet),
            // The hint of a mount's root is as old as the mount.
            _ => self.reference(self.inode(node_offset(node.id)).ok()?, node.id),
        }
    }

    /// Looks for a name in its bucket and the cachelet beside the entry.
    #[inline(always)]
    fn look(&self, buckets: u64, parent: u64, name: &[u8]) -> Look<'_> {
        let hash = self.hash(parent, name);
        let Ok(offset) = self.bucket_offset(hash, buckets) else { return Look::Unsure };
        let Ok(bucket) = self.bucket(offset) else { return Look::Unsure };
        let print = format::hash::fingerprint(hash);
        for i in 0..ENTRIES {
            if bucket::entry_fingerprint(bucket.entries[i].load(Acquire)) != print {
                continue;
            }
            if bucket.generation.load(Relaxed) != self.generation {
                return Look::Unsure;
            }
            let Some(child) = self.cachelet(bucket.cachelets[i].load(Relaxed).wrapping_sub(1)) else { return Look::Unsure };
            let sequence = child.sequence.load(Acquire);
            if sequence & 1 == 0 && self.carries_name(child, parent, name) {
                return Look::Named(child, sequence);
            }
            return Look::Unsure;
        }
        if bucket.next.load(Acquire) == 0 { Look::Absent } else { Look::Unsure }
    }

    /// The attributes of the last node, read while its sequence was `sequence`.
    #[inline(always)]
    fn attributes(&self, cachelet: &Cachelet, sequence: u32, follow: bool, attr: &mut Attr) -> Glance {
        let word = cachelet.mode.load(Relaxed);
        let offset = node_offset(cachelet.node.load(Relaxed));
        attr.mode = word as u16;
        attr.uid = cachelet.uid.load(Relaxed);
        attr.gid = cachelet.gid.load(Relaxed);
        attr.ino = self.ino(offset);
        let plain = match (word >> 16) as u8 {
            8 => {
                file_attributes(cachelet, attr);
                attr.blocks = u64::from(cachelet.blocks.load(Relaxed)) * (BLOCK / 512);
                true
            }
            4 => self.directory_attributes(offset, attr),
            10 if !follow => {
                file_attributes(cachelet, attr);
                attr.kind = Kind::Symlink;
                true
            }
            _ => false,
        };
        let odd = cachelet.flags.load(Relaxed) & ODD;
        fence(Acquire);
        if plain && odd == 0 && cachelet.sequence.load(Relaxed) == sequence { Glance::Seen } else { Glance::Unsure }
    }

    /// What of a directory only its inode knows; false if that is to be counted again.
    #[inline]
    fn directory_attributes(&self, offset: u64, attr: &mut Attr) -> bool {
        let Ok(inode) = self.inode(offset) else { return false };
        attr.kind = Kind::Directory;
        attr.nlink = (inode.links.load(Acquire) as u32).wrapping_add(2);
        attr.size = inode.size.load(Acquire).wrapping_mul(20).wrapping_add(40);
        attr.mtime = inode.mtime.load(Acquire) as i64;
        attr.ctime = inode.ctime.load(Acquire) as i64;
        attr.atime = attr.mtime;
        inode.head().flags & (format::inode::RECOUNT | format::inode::COLD) == 0
    }
}

/// What of anything but a directory its cachelet knows.
#[inline(always)]
fn file_attributes(cachelet: &Cachelet, attr: &mut Attr) {
    attr.nlink = cachelet.nlink.load(Relaxed);
    attr.size = cachelet.size.load(Relaxed);
    attr.mtime = cachelet.mtime.load(Relaxed) as i64;
    attr.ctime = cachelet.ctime.load(Relaxed) as i64;
    attr.atime = attr.mtime;
}

/// Length of the first component of a path, eight bytes at a time.
#[inline(always)]
fn component(path: &[u8]) -> usize {
    const LOW: u64 = u64::MAX / 255;
    let mut at = 0;
    while let Some(chunk) = path[at..].first_chunk::<8>() {
        let differs = u64::from_le_bytes(*chunk) ^ (LOW * b'/' as u64);
        let slash = differs.wrapping_sub(LOW) & !differs & (LOW << 7);
        if slash != 0 {
            return at + slash.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < path.len() && path[at] != b'/' {
        at += 1;
    }
    at
}

/// Whether a cachelet is a directory's that the caller may search, and was so
/// while its sequence was `sequence`.
#[inline(always)]
fn may_search(cred: &Cred, dir: &Cachelet, sequence: u32) -> bool {
    let word = dir.mode.load(Relaxed);
    let odd = dir.flags.load(Relaxed) & (cachelet::INVALID | cachelet::DEAD | cachelet::REMOVED);
    let allowed = (word >> 16) as u8 == Kind::Directory as u8
        && (cred.privileged || cred.may(Kind::Directory, word as u16, dir.uid.load(Relaxed), dir.gid.load(Relaxed), X));
    fence(Acquire);
    allowed && odd == 0 && dir.sequence.load(Relaxed) == sequence
}

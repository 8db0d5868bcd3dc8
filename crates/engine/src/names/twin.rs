//! A node that is another one's twin: type, owner, mode, time, text or device number, and the blocks, in one record.
//!
//! The source file is locked until the record has ended, so that the twin is as the file was at one moment. Its blocks are
//! counted, its extent says that it may be shared, and the new inode leads to them, all by the same record.
//!
//! A directory has a cachelet at once, since names are made in it; the rest gets one when somebody looks, as after a start:
//! most of what is cloned nobody ever does.

use super::inode::Plan;
use super::{gone, proper, touch_directory};
use crate::fs::Fs;
use crate::lane::Tx;
use crate::lane::record::Set;
use crate::segment::Cachelet;
use base::{Attr, Cx, Error, Kind, Node, PATH_MAX, R, Result, Twin};
use core::sync::atomic::Ordering::{Relaxed, Release};
use format::inode::{node_offset, pack_links, unpack_links};
use format::{Inode, LINE, inode, lane};
use pm::fetch::fetch;
use pm::{Errno, UserSlice};

/// Number of no cachelet.
const NONE: u32 = u32::MAX;

/// What is asked for.
struct Wanted<'a> {
    source: Node,
    kind: Kind,
    dir: Node,
    name: &'a [u8],
    /// Of a symlink.
    text: &'a [u8],
    /// For a directory, while it is filled.
    mode: Option<u16>,
}

impl Fs {
    /// A node will soon be the source of a twin called `name` in `dir`: what that takes is fetched. Far ahead, and near.
    #[inline]
    pub fn expect_twin(&self, id: u64, far: Option<(Node, &[u8])>) {
        let Ok(inode) = self.inode(node_offset(id)) else { return };
        match far {
            Some((dir, name)) => {
                fetch(inode);
                // Where it is by what is known: to ask the bucket would be to wait for it.
                let home = self.known_home(self.hash(node_offset(dir.id), name));
                self.image.bring(self.image.offset_of(home));
            }
            None => {
                if let Some(cachelet) = self.cachelet((inode.cachelet.load(Relaxed) as u32).wrapping_sub(1)) {
                    fetch(cachelet);
                }
            }
        }
    }

    /// Whether a node that is no directory has several names, or may have. As its inode says, now.
    #[inline]
    pub fn has_several_names(&self, id: u64) -> bool {
        self.inode(node_offset(id)).map_or(true, |inode| unpack_links(inode.links.load(Relaxed)).0 > 1)
    }

    /// Makes a node called `name` in `dir` as `source` of this type is. See `vfs::Backend::twin`.
    pub fn twin(&self, cx: &Cx, (source, kind): (Node, Kind), dir: Node, name: &[u8], mode: Option<u16>) -> Result<Twin> {
        let wanted = Wanted { source, kind, dir, name: proper(name)?, text: b"", mode };
        if kind == Kind::Symlink { self.twin_of_symlink(cx, &wanted) } else { self.twin_of(cx, &wanted) }
    }

    #[inline(never)]
    fn twin_of_symlink(&self, cx: &Cx, wanted: &Wanted) -> Result<Twin> {
        let mut text = [0; PATH_MAX];
        let len = self.readlink(cx, wanted.source, UserSlice::from_mut(&mut text))?;
        self.twin_of(cx, &Wanted { text: &text[..len], ..*wanted })
    }

    fn twin_of(&self, cx: &Cx, wanted: &Wanted) -> Result<Twin> {
        // Asking may be an operation of its own; of a file it is not, and is done where the file is locked.
        let attr = if wanted.kind == Kind::Regular { None } else { Some(self.attr(cx, wanted.source)?) };
        self.until_free(cx, || self.try_twin(cx, wanted, attr))
    }

    fn try_twin(&self, cx: &Cx, wanted: &Wanted, attr: Option<Attr>) -> Result<Twin> {
        let mut tx = self.begin(cx, lane::Kind::Clone)?;
        let parent = self.enter(&mut tx, cx, wanted.dir)?;
        parent.may_change(&cx.cred)?;
        let key = self.entry_key(parent.offset, wanted.name);
        let room = self.new_name(&mut tx, &key)?;
        // What has a record of its own comes first.
        let (at, slot) = self.reserve_any_slot(&mut tx, &parent)?;
        let (attr, original) = match attr {
            Some(attr) => (attr, None),
            None => {
                let cachelet = self.lock_node(&mut tx, cx, wanted.source).map_err(gone)?;
                let attr = self.attr_of(cx, wanted.source, cachelet)?;
                self.is_here((cachelet, wanted.source), 0, attr.size)?;
                (attr, Some(cachelet))
            }
        };
        may_copy(cx, wanted.kind, &attr)?;
        let (uid, gid, mode) = owned(cx, &attr);
        let now_mode = if wanted.kind == Kind::Directory { wanted.mode.unwrap_or(mode | 0o700) } else { mode };
        let permission = self.permission_index(&mut tx, uid, gid, now_mode)?;
        let place = self.place_inode(&mut tx)?;
        let (edentry, allocated) = self.new_edentry(&mut tx, &key, wanted.kind as u8, place.id, at)?;
        let (text_at, text) = match wanted.kind {
            Kind::Symlink => self.new_text(&mut tx, wanted.text).map(|(at, text)| (at, Some(text)))?,
            Kind::CharDevice | Kind::BlockDevice => (attr.rdev, None),
            _ => (0, None),
        };
        let (spot, entry) = self.insert(&mut tx, room, key.hash, edentry)?;
        tx.object(place.offset, 1)?;
        let source = self.inode(node_offset(wanted.source.id))?;
        let contents = self.contents(&mut tx, original, source, attr.size)?;
        let (size, root, blocks, mark) = match contents {
            Some((root, blocks, mark)) if original.is_some() => (attr.size, root, blocks, mark),
            _ => (wanted.text.len() as u64, text_at, 0, None),
        };
        let plan =
            Plan { kind: wanted.kind, mode: now_mode, uid, gid, permission, flags: 0, nlink: 1, size, root, now: attr.mtime };
        let is_directory = wanted.kind == Kind::Directory;
        let cachelet = if is_directory { Some(self.new_cachelet(tx.number, tx.state)?) } else { None };
        let number = cachelet.map_or(NONE, |cachelet| self.cachelet_number(cachelet));
        if let Some(cachelet) = cachelet {
            self.fill_fresh(cachelet, place.id, &plan, Some(&key));
        }
        self.write_inode(&place, &plan, if is_directory { edentry } else { 0 }, number);
        self.stamp_twin(place.inode, cachelet, blocks);
        self.image.flush(place.offset, LINE);
        self.lead(&spot, number);
        tx.files(1);
        let touched = touch_directory(parent.inode, i64::MIN, 1, i8::from(is_directory));
        let named = (Set { word: slot, value: edentry }, entry, touched);
        if let Err(error) = tx.commit_with((place.allocated, allocated, named, text, mark)) {
            cachelet.inspect(|cachelet| self.forget_fresh(tx.state, cachelet));
            return Err(error);
        }
        tx.slot_filled();
        if let (Some(original), Some(mark)) = (original, mark) {
            self.change(original).root.store(mark.value, Release);
        }
        if let Some(cachelet) = cachelet {
            self.release_fresh(tx.state, cachelet);
        }
        drop(tx);
        if spot.is_full() {
            self.grow_index(cx);
        }
        Ok(Twin {
            node: Node { id: place.id, hint: number },
            mode,
            size: attr.size,
            mtime: attr.mtime,
            atime: attr.atime,
            nlink: attr.nlink,
            is_filled: contents.is_some(),
            has_more: source.head().flags & inode::COLD != 0,
            is_taken: (uid, gid) != (attr.uid, attr.gid),
        })
    }

    /// What a twin has for contents, if one record does: see [`Fs::share_new`].
    fn contents<'a>(
        &'a self,
        tx: &mut Tx<'a>,
        original: Option<&Cachelet>,
        source: &'a Inode,
        size: u64,
    ) -> Result<Option<(u64, u32, Option<Set<'a>>)>> {
        match original {
            Some(original) => self.share_new(tx, original, source, size),
            None => Ok(Some((0, 0, None))),
        }
    }

    /// What a twin does not have from its original, or has beyond any new node. Nobody can have found it yet.
    fn stamp_twin(&self, inode: &Inode, cachelet: Option<&Cachelet>, blocks: u32) {
        let now = self.clock.now() as u64;
        self.image.store(&inode.ctime, now);
        match cachelet {
            Some(cachelet) => self.change(cachelet).ctime.store(now, Relaxed),
            None => self.image.store(&inode.links, pack_links(1, blocks)),
        }
    }
}

/// Who reads a file may make a twin of it, and who may make devices, of one of those.
fn may_copy(cx: &Cx, kind: Kind, attr: &Attr) -> Result<()> {
    match kind {
        _ if attr.kind != kind => Err(Errno::ESTALE.into()),
        Kind::Regular if !cx.cred.may(kind, attr.mode, attr.uid, attr.gid, R) => Err(Errno::EACCES.into()),
        Kind::CharDevice | Kind::BlockDevice if !cx.cred.privileged => Err(Error::Posix(Errno::EPERM)),
        _ => Ok(()),
    }
}

/// Owner, group and mode, as `cp -a` leaves them: nobody but the superuser makes others' files, nor such with their rights.
fn owned(cx: &Cx, attr: &Attr) -> (u32, u32, u16) {
    if cx.cred.is_privileged_over(attr.uid, attr.gid) {
        return (attr.uid, attr.gid, attr.mode);
    }
    let gid = if cx.cred.in_group(attr.gid) { attr.gid } else { cx.cred.gid };
    let same = (cx.cred.uid, gid) == (attr.uid, attr.gid);
    (cx.cred.uid, gid, if same { attr.mode } else { attr.mode & !0o6000 })
}

//! Moving a name: over another, beside it, or two for each other; one record.
//!
//! Looked at without locks, checked, then locked and looked at again: if
//! anything has changed the attempt starts afresh. A directory that is replaced
//! is closed first (it must stay empty), and one that changes its parent is
//! moved under the rename lock, which alone keeps the tree a tree.
//!
//! The usual case, in which none of this can happen, has a way of its own
//! ([`super::move_plainly`]).

use super::remove::{Fate, note_gone};
use super::rmdir::{Outcome, is_surely_empty, later};
use super::{Parent, STICKY, proper, touch_directory};
use crate::fs::{Fs, corrupt};
use crate::index::{EntryKey, Hit, Room, Seen};
use crate::lane::Tx;
use crate::lane::record::{Empty, Raise, Set, Stores, Touch};
use crate::segment::Cachelet;
use crate::segment::cachelet::DELETING;
use base::{Cx, Kind, Node, RenameMode, Result, W};
use core::sync::atomic::Ordering::Relaxed;
use format::hash::fingerprint;
use format::inode::{Inode, node_offset};
use format::lane;
use pm::Errno;

/// Deepest directory that the check for loops climbs from.
const DEPTH_MAX: u32 = 1 << 20;

/// What is asked for.
#[derive(Clone, Copy)]
struct Request<'a> {
    from_dir: Node,
    from: &'a [u8],
    to_dir: Node,
    to: &'a [u8],
    mode: RenameMode,
}

/// A name that takes part: where it leads.
#[derive(Clone, Copy)]
struct End<'a> {
    /// Until the buckets are locked, the node is all that is known of it.
    hit: Hit<'a>,
    cachelet: &'a Cachelet,
    seen: Seen<'a>,
}

impl<'a> End<'a> {
    fn is_directory(&self) -> bool {
        self.seen.is(Kind::Directory)
    }

    fn offset(&self) -> u64 {
        node_offset(self.hit.node.id)
    }

    fn inode(&self, fs: &'a Fs) -> Result<&'a Inode> {
        fs.inode(self.offset())
    }
}

/// The two directories, entered, and the names in them.
struct Ends<'a> {
    a: Parent<'a>,
    b: Parent<'a>,
    from: EntryKey<'a>,
    to: EntryKey<'a>,
    /// Names may be changed in both directories, as a rule.
    free: bool,
}

/// Everything about a rename that has been looked at.
struct Plan<'a> {
    a: Parent<'a>,
    b: Parent<'a>,
    from: EntryKey<'a>,
    to: EntryKey<'a>,
    source: End<'a>,
    target: Option<End<'a>>,
    /// The parents differ.
    cross: bool,
    exchange: bool,
    /// Names may be changed in both directories, as a rule.
    free: bool,
}

impl Plan<'_> {
    /// Whether a directory gets another parent or is the target: the tree's shape is at stake.
    fn moves_directory(&self) -> bool {
        self.cross && (self.source.is_directory() || self.target.is_some_and(|t| t.is_directory()))
    }
}

/// Stores for the inode moved: a file's ctime, or a directory's and its own edentry.
type Moved<'a> = (Option<Set<'a>>, Option<(Raise<'a>, Set<'a>)>);

impl Fs {
    /// Moves a name. See `vfs::Backend::rename`.
    pub fn rename(&self, cx: &Cx, from_dir: Node, from: &[u8], to_dir: Node, to: &[u8], mode: RenameMode) -> Result<()> {
        let from = proper(from)?;
        let to = match proper(to) {
            Ok(to) => to,
            Err(error) => {
                // The source is looked up first.
                self.lookup(cx, from_dir, from)?;
                return Err(error);
            }
        };
        let request = Request { from_dir, from, to_dir, to, mode };
        let first = self.try_rename(cx, &request).or_else(later)?;
        self.until_done(cx, first, &|fs| fs.try_rename(cx, &request))
    }

    fn try_rename(&self, cx: &Cx, request: &Request) -> Result<Outcome> {
        let mut tx = match self.begin(cx, lane::Kind::Rename) {
            Ok(tx) => tx,
            Err(error) => return Err(self.unless_closed_to(cx, [request.from_dir, request.to_dir], error)),
        };
        let (a, b) = self.enter_two(&mut tx, cx, request.from_dir, request.to_dir)?;
        let free = a.is_free_to(&cx.cred) && b.is_free_to(&cx.cred);
        let (from, to) = (self.entry_key(a.offset, request.from), self.entry_key(b.offset, request.to));
        let plain = free && request.mode != RenameMode::Exchange && a.seen.mode() & STICKY == 0;
        if plain
            && self.seems_free(self.home(to.hash)?.0, fingerprint(to.hash))
            && let Some(full) = self.move_plainly(&mut tx, cx, (&a, &b), (&from, &to))?
        {
            drop(tx);
            if full {
                self.grow_index(cx);
            }
            return Ok(Outcome::Done);
        }
        self.rename_slow(tx, cx, request.mode, Ends { a, b, from, to, free })
    }

    /// Whatever is to be moved, wherever.
    fn rename_slow<'a>(&'a self, mut tx: Tx<'a>, cx: &Cx, mode: RenameMode, ends: Ends<'a>) -> Result<Outcome> {
        let tx = &mut tx;
        let mut plan = self.plan_rename(cx, mode, ends)?;
        match self.needs_nothing(tx, cx, &plan) {
            Ok(false) => {}
            // That was seen without locks, of one name after the other.
            decided => {
                tx.lock_buckets(plan.from.hash, plan.to.hash)?;
                return match self.is_as_planned(&plan)? {
                    true => decided.map(|_| Outcome::Done),
                    false => Ok(Outcome::Again(0)),
                };
            }
        }

        let replaced = plan.target.filter(|_| !plan.exchange);
        if let Some(target) = replaced.filter(End::is_directory) {
            if !is_surely_empty(target.inode(self)?)? {
                return Ok(Outcome::Recount(target.hit.node));
            }
            match tx.close_directory(target.cachelet, target.hit.node.id, DELETING) {
                Ok(()) => {}
                Err(base::Error::Posix(Errno::EBUSY)) => return Ok(Outcome::Again(self.closer_of(target.cachelet))),
                Err(base::Error::Posix(Errno::ESTALE)) => return Ok(Outcome::Again(0)),
                Err(error) => return Err(error),
            }
        }
        if plan.moves_directory() {
            tx.lock(&self.header().rename.0)?;
            self.check_loops(&plan)?;
        }
        tx.lock_buckets(plan.from.hash, plan.to.hash)?;
        // What was seen without locks is looked at again: where the names stand counts from here on.
        match self.hit(&plan.from)? {
            Some(hit) if hit.node.id == plan.source.hit.node.id => plan.source.hit = hit,
            _ => return Ok(Outcome::Again(0)),
        }
        let room = match &mut plan.target {
            None => self.room(&plan.to)?,
            Some(target) => match self.hit(&plan.to)? {
                Some(hit) if hit.node.id == target.hit.node.id => {
                    target.hit = hit;
                    Room::Taken
                }
                _ => return Ok(Outcome::Again(0)),
            },
        };
        if plan.target.is_none() && matches!(room, Room::Taken) {
            return Ok(Outcome::Again(0));
        }
        if plan.exchange {
            return self.exchange(tx, &plan);
        }
        self.move_name(tx, cx, &plan, room)
    }

    /// Whether there is nothing to do, both names being one file's; or why it may not be done.
    fn needs_nothing<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, plan: &Plan) -> Result<bool> {
        if plan.moves_directory() {
            // Only for the right error, before anything else is looked at.
            let keep = tx.held;
            tx.lock(&self.header().rename.0)?;
            self.check_loops(plan)?;
            tx.unlock_to(keep);
        }
        if plan.target.is_some_and(|target| target.hit.node == plan.source.hit.node) {
            return Ok(true);
        }
        check_permissions(cx, plan).map(|()| false)
    }

    /// Whether both names still lead to what was planned for. Their buckets are locked.
    fn is_as_planned(&self, plan: &Plan) -> Result<bool> {
        let id = |key| self.hit(key).map(|hit| hit.map(|hit| hit.node.id));
        let source = Some(plan.source.hit.node.id);
        Ok(id(&plan.from)? == source && id(&plan.to)? == plan.target.map(|target| target.hit.node.id))
    }

    /// Looks at both names, without locks.
    fn plan_rename<'a>(&'a self, cx: &Cx, mode: RenameMode, ends: Ends<'a>) -> Result<Plan<'a>> {
        let Ends { a, b, from, to, free } = ends;
        if !free {
            a.may_search(cx)?;
            b.may_search(cx)?;
        }
        let Some(source) = self.find(cx, &from)? else { return Err(Errno::ENOENT.into()) };
        let target = self.find(cx, &to)?;
        match (mode, &target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST.into()),
            (RenameMode::Exchange, None) => return Err(Errno::ENOENT.into()),
            _ => {}
        }
        let end = |seen: Seen<'a>| {
            let hit =
                Hit { node: self.node_seen(&seen), kind: (seen.word >> 16) as u8, edentry: 0, place: None, index: 0, entry: 0 };
            End { hit, cachelet: seen.cachelet, seen }
        };
        let (source, target) = (end(source), target.map(end));
        let exchange = mode == RenameMode::Exchange;
        Ok(Plan { a, b, from, to, source, target, cross: a.seen.id != b.seen.id, exchange, free })
    }

    /// A directory may not move into itself (`EINVAL`), nor onto one that it is
    /// in (`ENOTEMPTY`). The rename lock is held.
    fn check_loops(&self, plan: &Plan) -> Result<()> {
        if plan.source.is_directory() && self.is_within(plan.b.offset, plan.source.offset())? {
            return Err(Errno::EINVAL.into());
        }
        match plan.target {
            Some(target) if target.is_directory() && self.is_within(plan.a.offset, target.offset())? => {
                Err(if plan.exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether directory `below` is `above`, or somewhere in it.
    fn is_within(&self, mut below: u64, above: u64) -> Result<bool> {
        let root = self.root().root_inode.load(Relaxed);
        for _ in 0..DEPTH_MAX {
            if below == above {
                return Ok(true);
            }
            if below == root {
                return Ok(false);
            }
            below = match self.parent_offset(below) {
                Ok(parent) => parent,
                // Removed meanwhile: it is in nothing.
                Err(base::Error::Posix(Errno::ENOENT)) => return Ok(false),
                Err(error) => return Err(error),
            };
        }
        Err(corrupt("directories in a circle", above))
    }

    /// Takes the inodes of both ends, in order. False: look again.
    fn lock_ends<'a>(&'a self, tx: &mut Tx<'a>, source: &End<'a>, target: Option<&End<'a>>) -> Result<bool> {
        let mut ends = [Some(source), target];
        if let Some(target) = target
            && self.cachelet_number(target.cachelet) < self.cachelet_number(source.cachelet)
        {
            ends.swap(0, 1);
        }
        for end in ends.into_iter().flatten() {
            match tx.lock_inode(end.cachelet, end.hit.node.id) {
                Ok(()) => {}
                Err(base::Error::Posix(Errno::ESTALE)) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Moves the source to a free name, or over the target.
    fn move_name<'a>(&'a self, tx: &mut Tx<'a>, cx: &Cx, plan: &Plan<'a>, room: Room<'a>) -> Result<Outcome> {
        let (a, b, source) = (&plan.a, &plan.b, &plan.source);
        let (old_at, old_slot) = self.slot_of(&source.hit)?;
        let (at, slot) = match &plan.target {
            Some(target) => self.slot_of(&target.hit)?,
            // In its directory a name keeps its place, so that readers see it once.
            None if !plan.cross => (old_at, old_slot),
            None => self.reserve_any_slot(tx, b)?,
        };
        if !self.lock_ends(tx, source, plan.target.as_ref())? {
            return Ok(Outcome::Again(0));
        }
        if let Some(target) = plan.target.filter(End::is_directory)
            && !is_surely_empty(target.inode(self)?)?
        {
            return Ok(Outcome::Recount(target.hit.node));
        }
        let now = self.clock.now();
        let (edentry, allocated) = self.new_edentry(tx, &plan.to, source.hit.kind, source.hit.node.id, at)?;
        let (spot, entry) = match &plan.target {
            Some(target) => self.redirect(&target.hit, plan.to.hash, edentry)?,
            None => self.insert(tx, room, plan.to.hash, edentry)?,
        };
        self.lead(&spot, self.cachelet_number(source.cachelet));
        // The new name comes before the old one goes.
        let new = (allocated, entry, Set { word: slot, value: edentry });
        let emptied = (at != old_at).then_some(Empty { word: old_slot, was: source.hit.edentry });
        let old = (self.remove(&source.hit)?, emptied, self.old_edentry(tx, source.hit.edentry, plan.from.name.len())?);
        let stores = (new, old, self.moved(source, edentry, now)?, self.count_move(plan, now));
        let fate = match &plan.target {
            None => {
                tx.commit_with(stores)?;
                None
            }
            Some(target) => Some(self.commit_replacement(tx, (target, plan.to.name.len()), now, stores)?),
        };
        tx.slot_filled();
        self.name_moved(source, &plan.to, now);
        if at != old_at {
            self.slot_freed(a, old_at);
        }
        tx.end();
        self.after_move(cx, plan, fate, spot.is_full());
        Ok(Outcome::Done)
    }

    /// Commits a move over a target, which loses its name, of `len` bytes.
    fn commit_replacement<'a, S: Stores>(
        &'a self,
        tx: &mut Tx<'a>,
        (target, len): (&End, usize),
        now: i64,
        stores: S,
    ) -> Result<Fate> {
        let stores = (stores, self.old_edentry(tx, target.hit.edentry, len)?);
        if target.is_directory() {
            self.commit_directory_removal(tx, target.cachelet, target.hit.node.id, stores)
        } else {
            self.commit_removal(tx, target.cachelet, &target.hit, now, stores)
        }
    }

    /// What is left to do when nothing is held any more.
    fn after_move(&self, cx: &Cx, plan: &Plan, fate: Option<Fate>, full: bool) {
        if let (Some(target), Some(fate)) = (&plan.target, fate) {
            note_gone(cx, &target.hit, fate);
            self.after_removal(cx, target.cachelet, target.hit.node, fate);
        }
        if full {
            self.grow_index(cx);
        }
    }

    /// What a move does to the inode moved: ctime, and a directory's own edentry.
    fn moved(&self, end: &End, edentry: u64, now: i64) -> Result<Moved<'_>> {
        let inode = self.inode(end.offset())?;
        if !end.is_directory() {
            return Ok((Some(Set { word: &inode.ctime, value: now as u64 }), None));
        }
        let own = Set { word: self.at(self.own_word(end.offset(), inode)?, "own edentry")?, value: edentry };
        Ok((None, Some((Raise { word: &inode.ctime, value: now }, own))))
    }

    /// After the commit: the cachelet of an inode that has been moved.
    fn name_moved(&self, end: &End, key: &EntryKey, now: i64) {
        self.name_cachelet(end.cachelet, key);
        self.change(end.cachelet).ctime.store(now as u64, Relaxed);
    }

    /// Times and counts of the two directories.
    fn count_move<'a>(&self, plan: &Plan<'a>, now: i64) -> (Touch<'a>, Option<Touch<'a>>) {
        let moved = i8::from(plan.source.is_directory());
        let gone = i8::from(plan.target.is_some());
        let gone_directory = i8::from(plan.target.is_some_and(|t| t.is_directory()));
        if !plan.cross {
            return (touch_directory(plan.a.inode, now, -gone, -gone_directory), None);
        }
        let to = touch_directory(plan.b.inode, now, 1 - gone, moved - gone_directory);
        (touch_directory(plan.a.inode, now, -1, -moved), Some(to))
    }

    /// Swaps two names.
    fn exchange<'a>(&'a self, tx: &mut Tx<'a>, plan: &Plan<'a>) -> Result<Outcome> {
        let (a, b, source) = (&plan.a, &plan.b, &plan.source);
        let Some(target) = &plan.target else { return Err(Errno::ENOENT.into()) };
        let ((at, slot_a), (other, slot_b)) = (self.slot_of(&source.hit)?, self.slot_of(&target.hit)?);
        if !self.lock_ends(tx, source, Some(target))? {
            return Ok(Outcome::Again(0));
        }
        let now = self.clock.now();
        let (at_a, new_a) = self.new_edentry(tx, &plan.from, target.hit.kind, target.hit.node.id, at)?;
        let (at_b, new_b) = self.new_edentry(tx, &plan.to, source.hit.kind, source.hit.node.id, other)?;
        let (in_a, entry_a) = self.redirect(&source.hit, plan.from.hash, at_a)?;
        let (in_b, entry_b) = self.redirect(&target.hit, plan.to.hash, at_b)?;
        self.lead(&in_a, self.cachelet_number(target.cachelet));
        self.lead(&in_b, self.cachelet_number(source.cachelet));
        let slots = (Set { word: slot_a, value: at_a }, Set { word: slot_b, value: at_b });
        let old = (
            self.old_edentry(tx, source.hit.edentry, plan.from.name.len())?,
            self.old_edentry(tx, target.hit.edentry, plan.to.name.len())?,
        );
        let moved = (self.moved(source, at_b, now)?, self.moved(target, at_a, now)?);
        let change = i8::from(target.is_directory()) - i8::from(source.is_directory());
        let in_one = if plan.cross { change } else { 0 };
        let touched = touch_directory(a.inode, now, 0, in_one);
        let other = plan.cross.then(|| touch_directory(b.inode, now, 0, -change));
        tx.commit_with(((new_a, new_b, entry_a, entry_b), slots, old, moved, touched, other))?;
        self.name_moved(source, &plan.to, now);
        self.name_moved(target, &plan.from, now);
        Ok(Outcome::Done)
    }
}

/// The kernel's `may_delete` and `may_create`, in its order.
fn check_permissions(cx: &Cx, plan: &Plan) -> Result<()> {
    let (cred, source) = (&cx.cred, &plan.source);
    let may_change = |parent: &Parent| if plan.free { Ok(()) } else { parent.may_change(cred) };
    may_change(&plan.a)?;
    plan.a.may_remove(cred, source.seen.uid, source.seen.gid)?;
    match &plan.target {
        None => may_change(&plan.b)?,
        Some(target) => {
            may_change(&plan.b)?;
            plan.b.may_remove(cred, target.seen.uid, target.seen.gid)?;
            if !plan.exchange && source.is_directory() != target.is_directory() {
                return Err(if source.is_directory() { Errno::ENOTDIR } else { Errno::EISDIR }.into());
            }
        }
    }
    if plan.cross {
        // A directory's `..` changes: that is writing to it.
        may_reparent(cx, source)?;
        if let Some(target) = plan.target.filter(|_| plan.exchange) {
            may_reparent(cx, &target)?;
        }
    }
    Ok(())
}

fn may_reparent(cx: &Cx, end: &End) -> Result<()> {
    let seen = &end.seen;
    if end.is_directory() && !cx.cred.may(Kind::Directory, seen.mode(), seen.uid, seen.gid, W) {
        return Err(Errno::EACCES.into());
    }
    Ok(())
}

//! A glance: what is at the end of a plain, warm path, in one straight pass.
//!
//! What `stat`, `access` and `open` ask most often: a few ordinary components,
//! each with its cachelet at hand. One look at a bucket (rarely at those [`behind`] it too)
//! and one at a cachelet a component, what is asked for copied between two loads of the last one's
//! sequence word, nothing allocated, locked or written. Whatever is out of the
//! ordinary (`.` and `..`, symlinks to be followed, cold entries, cold lines,
//! rights by group) answers [`Glance::Unsure`], and [`Fs::walk`] does it properly.

mod behind;
mod long;
mod parent;

use crate::fs::Fs;
use crate::segment::cachelet::{Cachelet, NAME_SHORT, ODD, ODD_ATTRIBUTES};
use base::stat::{Figures, Stat};
use base::{Caller, Glance, Kind, Node, Sight};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;
use format::BLOCK;
use format::bucket::{self, Bucket, ENTRIES};
use format::inode::node_offset;
use pm::Text;
use pm::text::{Scan, Short};

/// The mode word of a directory that everybody may search, and the bits that say so.
const SEARCH: (u32, u32) = ((Kind::Directory as u32) << 16 | 0o111, 0xff_0000 | 0o111);

/// Set in the mode word of a symlink, and of devices, but of no file, directory, FIFO or socket.
const MAY_BE_LINK: u32 = 2 << 16;
const _: () =
    assert!(Kind::Symlink as u32 & 2 != 0 && (Kind::Regular as u32 | Kind::Directory as u32 | Kind::Socket as u32) & 2 == 0);

/// What a look for one name tells. Two words, so that it comes back in registers from where it is looked for out of line.
struct Looked<'a> {
    /// The name's cachelet.
    child: Option<&'a Cachelet>,
    /// The sequence while the cachelet carried the name; without one [`ABSENT`] or [`UNSURE`].
    word: u64,
}

/// There was no such name when the bucket was looked at.
const ABSENT: u64 = 1;
/// Its bucket does not tell.
const UNSURE: u64 = 0;

impl<'a> Looked<'a> {
    const UNSURE: Self = Looked { child: None, word: UNSURE };

    /// Of a name found where it is looked for first, or what a look elsewhere told.
    fn of(near: Result<Near<'a>, Self>) -> Self {
        near.map_or_else(|looked| looked, |(child, word)| Looked { child: Some(child), word })
    }
}

/// What a look for one name tells where its home bucket has it: no second look at whether it was found.
type Near<'a> = (&'a Cachelet, u64);

/// What was seen at the end of a path, for who opens it.
pub(crate) struct Seen<'a> {
    pub cachelet: &'a Cachelet,
    /// [`Node::id`] of it, and of the directory that it was seen in.
    pub id: u64,
    pub parent: u64,
    /// Its mode word: [`Sight::word`].
    pub word: u32,
    /// Owner.
    pub uid: u32,
}

impl Fs {
    /// What is at the end of `path` from directory `base`; `follow` says whether
    /// a symlink there is to be followed. `who` is only asked where not everybody may search;
    /// `covered` tells on which nodes something is mounted.
    #[inline(always)]
    pub fn glance<'c>(
        &self,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        follow: bool,
        covered: impl Fn(u64) -> bool,
        sight: &mut Sight,
    ) -> Glance {
        self.way(
            who,
            (base, node_offset),
            path,
            covered,
            #[inline(always)]
            |cachelet, sequence, id, dir| {
                let word = cachelet.mode.load(Relaxed);
                sight.node = Node { id, hint: self.number_at_hand(cachelet) };
                sight.parent = dir.node.load(Relaxed);
                sight.word = word;
                sight.uid = cachelet.uid.load(Relaxed);
                sight.gid = cachelet.gid.load(Relaxed);
                let link = follow && word & MAY_BE_LINK != 0;
                if link || !cachelet.is_still::<ODD>(sequence) { Glance::Unsure } else { Glance::Seen }
            },
        )
    }

    /// As [`Fs::glance`], where nothing is asked but whether there is something.
    #[inline(always)]
    pub fn glance_existence<'c>(
        &self,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        follow: bool,
        covered: impl Fn(u64) -> bool,
    ) -> Glance {
        self.way(
            who,
            (base, offset_of),
            path,
            covered,
            #[inline(always)]
            |cachelet, sequence, _, _| {
                let link = follow && cachelet.mode.load(Relaxed) & MAY_BE_LINK != 0;
                if link || !cachelet.is_still::<ODD>(sequence) { Glance::Unsure } else { Glance::Seen }
            },
        )
    }

    /// As [`Fs::glance`], for who opens what is there, and no symlink.
    #[inline(always)]
    pub(crate) fn glance_at<'a, 'c>(
        &'a self,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        covered: impl Fn(u64) -> bool,
        at: &mut Option<Seen<'a>>,
    ) -> Glance {
        self.way(
            who,
            (base, node_offset),
            path,
            covered,
            #[inline(always)]
            |cachelet, sequence, id, dir| {
                let (word, uid) = (cachelet.mode.load(Relaxed), cachelet.uid.load(Relaxed));
                let parent = dir.node.load(Relaxed);
                if !cachelet.is_still::<ODD>(sequence) {
                    return Glance::Unsure;
                }
                *at = Some(Seen { cachelet, id, parent, word, uid });
                Glance::Seen
            },
        )
    }

    /// The attributes at the end of `path`, for the program. `out` is left as it was unless they were seen, or it is not all there.
    #[inline]
    pub fn glance_stat<'c>(
        &self,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text,
        follow: bool,
        covered: impl Fn(u64) -> bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Glance {
        self.way(
            who,
            (base, node_offset),
            path,
            covered,
            #[inline(always)]
            |cachelet, sequence, id, dir| match dir.told_device() {
                Some(device) => self.stat_of(cachelet, sequence, (id, device), follow, out),
                None => Glance::Unsure,
            },
        )
    }

    /// The attributes of an open node, for the program, as `glance_stat`.
    #[inline]
    pub fn glance_node(&self, node: Node, out: &mut MaybeUninit<Stat>) -> Glance {
        let Some(cachelet) = self.cachelet_at_hand(node.hint) else { return Glance::Unsure };
        let sequence = cachelet.sequence.load(Acquire);
        if sequence & 1 != 0 || cachelet.node.load(Relaxed) != node.id {
            return Glance::Unsure;
        }
        self.stat_of(cachelet, u64::from(sequence), (node.id, self.device()), false, out)
    }

    /// Whether a directory is called `name` in `dir`, if that is seen at a glance.
    pub fn is_seen_as(&self, directory: Node, dir: Node, name: &[u8]) -> Option<bool> {
        let (cachelet, sequence) = self.start(directory)?;
        let parent = node_offset(dir.id);
        let is_there = cachelet.parent.load(Relaxed) == parent;
        if is_there && name.len() > NAME_SHORT {
            return None;
        }
        let is_named = is_there && self.carries_name(cachelet, parent, name);
        cachelet.is_still::<ODD>(sequence).then_some(is_named)
    }

    /// Goes along `path` from a directory, whose inode's offset is got by either way to do so, but not onto what is `covered`. `seen` is told of the last component's cachelet, the
    /// sequence while it carried the name, its node, and the directory's cachelet.
    #[inline(always)]
    fn way<'a, 'c>(
        &'a self,
        who: impl Fn() -> &'c Caller,
        (base, offset): (Node, impl FnOnce(u64) -> u64),
        path: Text,
        covered: impl Fn(u64) -> bool,
        seen: impl FnOnce(&'a Cachelet, u64, u64, &'a Cachelet) -> Glance,
    ) -> Glance {
        let Some((mut dir, mut sequence)) = self.start(base) else { return Glance::Unsure };
        let mut parent = offset(base.id);
        let (mut scan, mut rest) = (Scan::start(), path);
        loop {
            if !may_search(&who, dir, sequence) {
                return Glance::Unsure;
            }
            let (looked, end, dots) = match scan.short(rest) {
                // Empty, `.` or `..`: no names of the index.
                Some((name, end)) => (self.look_short(parent, &name), end, name.may_be_dots()),
                None => {
                    let (name, end) = rest.component();
                    if matches!(name, b"" | b"." | b"..") || path.is_long_by(rest, end) {
                        return Glance::Unsure;
                    }
                    (Err(self.look_long(parent, name)), end, false)
                }
            };
            let (child, word) = match looked {
                Ok(near) => near,
                Err(Looked { child: Some(child), word }) => {
                    scan.renew();
                    (child, word)
                }
                Err(Looked { child: None, word }) => {
                    // That holds when the bucket was read, whatever has become of the directory since it was
                    // searched: a removed one has no names, and no name of another one is found by its offset.
                    let absent = word == ABSENT && end.first() == 0 && !dots && dir.is_whole(sequence);
                    return if absent { Glance::Absent } else { Glance::Unsure };
                }
            };
            let id = child.node.load(Relaxed);
            if covered(id) {
                return Glance::Unsure;
            }
            match end.next() {
                None => return seen(child, word, id, dir),
                Some(next) => rest = next,
            }
            parent = offset_of(id);
            (dir, sequence) = (child, word);
        }
    }

    /// The cachelet of the directory where a way starts, and its sequence, [settled].
    #[inline(always)]
    fn start(&self, base: Node) -> Option<(&Cachelet, u64)> {
        let mut dir = self.cachelet_at_hand(base.hint).or_else(|| self.by_reference(base.id))?;
        let mut sequence = dir.sequence.load(Acquire);
        if dir.node.load(Relaxed) != base.id {
            // The hint of a mount's root is as old as the mount.
            dir = self.by_reference(base.id)?;
            sequence = dir.sequence.load(Acquire);
            if dir.node.load(Relaxed) != base.id {
                return None;
            }
        }
        Some((dir, settled(sequence)))
    }

    #[cold]
    #[inline(never)]
    fn by_reference(&self, id: u64) -> Option<&Cachelet> {
        self.reference(self.inode(node_offset(id)).ok()?, id)
    }

    /// Looks for a name of at most 15 bytes: see [`Near`] and [`Looked`]. Two words that are the name's say
    /// how long it is too: a longer name has no zero at the end of the second one.
    #[inline(always)]
    fn look_short(&self, parent: u64, name: &Short) -> Result<Near<'_>, Looked<'_>> {
        let hash = format::hash::name_short(self.name_key, parent, name.low, name.high, name.len);
        let is_named = |child: &Cachelet| child.name[0].load(Relaxed) == name.low && child.name[1].load(Relaxed) == name.high;
        // Its length is not kept for what is rare.
        let behind = |_, _| self.look_short_behind(parent, Short::of_words(name.low, name.high));
        self.look(hash, |bucket, i| self.look_at(bucket, i, parent, is_named), behind)
    }

    /// Looks for any other name.
    #[inline(never)]
    fn look_long(&self, parent: u64, name: &[u8]) -> Looked<'_> {
        if name.len() > NAME_SHORT {
            return self.look_longer(parent, name);
        }
        let hash = self.hash(parent, name);
        let is_named = |child: &Cachelet| self.carries_name(child, parent, name);
        let at = |bucket, i| self.look_at(bucket, i, parent, is_named);
        Looked::of(self.look(hash, at, |home, buckets| self.look_behind(home, buckets, hash, at)))
    }

    /// Looks into the home bucket of a hash, and with `at` at what may be the name's entry. Where that
    /// bucket has others behind it, `behind` looks there, told of it and of the number of buckets.
    #[inline(always)]
    fn look<'a>(
        &'a self,
        hash: u64,
        at: impl Fn(&'a Bucket, usize) -> Option<Near<'a>>,
        behind: impl FnOnce(&'a Bucket, u64) -> Looked<'a>,
    ) -> Result<Near<'a>, Looked<'a>> {
        let (bucket, buckets) = self.buckets.of_hash(hash);
        for i in 0..ENTRIES {
            if bucket::seems_of(bucket.entries[i].load(Acquire), hash) {
                return at(bucket, i).ok_or_else(|| self.look_later());
            }
        }
        // Read before the bucket is asked whether it was split, and by who asks the directory.
        fence(Acquire);
        if bucket.is_split_since(buckets) {
            return Err(self.look_later());
        }
        Err(match bucket.next.load(Acquire) {
            0 => self.look_again(bucket, hash),
            _ => behind(bucket, buckets),
        })
    }

    /// There is nothing behind the bucket, and was nothing that seemed to be of this hash in it. What was
    /// behind until now has come here before, by a split that we may know of already (`index::split`).
    #[inline(always)]
    fn look_again(&self, bucket: &Bucket, hash: u64) -> Looked<'_> {
        match self.seems_free(bucket, format::hash::fingerprint(hash)) {
            true => Looked { child: None, word: ABSENT },
            false => Looked::UNSURE,
        }
    }

    /// The name may be in a bucket that there was not yet when we last asked.
    #[cold]
    #[inline(never)]
    fn look_later(&self) -> Looked<'_> {
        self.learn_buckets();
        Looked::UNSURE
    }

    /// The cachelet beside an entry may carry the name. If it does, the name is there, whoever gave its number and in
    /// whatever generation: so nobody asks that of the bucket.
    #[inline(always)]
    fn look_at(&self, bucket: &Bucket, i: usize, parent: u64, is_named: impl Fn(&Cachelet) -> bool) -> Option<Near<'_>> {
        let child = self.glanced.get(bucket.cachelets[i].load(Relaxed))?;
        let sequence = settled(child.sequence.load(Acquire));
        (child.parent.load(Relaxed) == parent && is_named(child)).then_some((child, sequence))
    }

    /// The attributes of node `id` on `device`, read while its sequence was `sequence`.
    #[inline(always)]
    fn stat_of(
        &self,
        cachelet: &Cachelet,
        sequence: u64,
        (id, device): (u64, u64),
        follow: bool,
        out: &mut MaybeUninit<Stat>,
    ) -> Glance {
        let word = cachelet.mode.load(Relaxed);
        if (word >> 16) as u8 != Kind::Regular as u8 {
            return self.stat_of_other(cachelet, sequence, id, follow, out);
        }
        let figures = self.figures(cachelet, (id, device), word);
        let blocks = u64::from(cachelet.blocks.load(Relaxed)) * (BLOCK / 512);
        if !cachelet.is_still::<ODD_ATTRIBUTES>(sequence) {
            return Glance::Unsure;
        }
        match (Figures { blocks, ..figures }).write(out) {
            true => Glance::Seen,
            false => Glance::Unsure,
        }
    }

    /// What the cachelet of anything but a directory tells.
    #[inline(always)]
    fn figures(&self, cachelet: &Cachelet, (id, device): (u64, u64), word: u32) -> Figures {
        let mtime = cachelet.mtime.load(Relaxed) as i64;
        Figures {
            device,
            ino: self.ino(id),
            mode: word >> 4 & 0xf000 | word & 0xfff,
            nlink: cachelet.nlink.load(Relaxed),
            uid: cachelet.uid.load(Relaxed),
            gid: cachelet.gid.load(Relaxed),
            rdev: 0,
            size: cachelet.size.load(Relaxed),
            blocks: 0,
            atime: mtime,
            mtime,
            ctime: cachelet.ctime.load(Relaxed) as i64,
        }
    }

    /// As `stat_of`, for directories, whose inode knows more, and symlinks.
    #[inline(never)]
    fn stat_of_other(&self, cachelet: &Cachelet, sequence: u64, id: u64, follow: bool, out: &mut MaybeUninit<Stat>) -> Glance {
        let word = cachelet.mode.load(Relaxed);
        let mut figures = self.figures(cachelet, (id, self.device()), word);
        let plain = match (word >> 16) as u8 {
            10 => !follow,
            4 => self.directory_figures(node_offset(id), &mut figures),
            _ => false,
        };
        if !plain || !cachelet.is_still::<ODD_ATTRIBUTES>(sequence) {
            return Glance::Unsure;
        }
        match figures.write(out) {
            true => Glance::Seen,
            false => Glance::Unsure,
        }
    }

    /// What of a directory only its inode knows; false if that is to be counted again.
    #[inline]
    fn directory_figures(&self, offset: u64, figures: &mut Figures) -> bool {
        let Ok(inode) = self.inode(offset) else { return false };
        figures.nlink = (inode.links.load(Acquire) as u32).wrapping_add(2);
        figures.size = inode.size.load(Acquire).wrapping_mul(20).wrapping_add(40);
        figures.mtime = inode.mtime.load(Acquire) as i64;
        figures.ctime = inode.ctime.load(Acquire) as i64;
        figures.atime = figures.mtime;
        inode.head().flags & (format::inode::RECOUNT | format::inode::COLD) == 0
    }
}

/// Where the number of the line begins in a node's id, from above, and in its offset.
const OFFSET_FROM: u32 = 24;
const OFFSET_TO: u32 = OFFSET_FROM - format::LINE.trailing_zeros();
const _: () = assert!(node_offset(u64::MAX) == u64::MAX << OFFSET_FROM >> OFFSET_TO);

/// As [`node_offset`]: two shifts, of which the compiler would make a longer mask.
#[inline(always)]
pub(crate) fn offset_of(id: u64) -> u64 {
    pm::unknown(id << OFFSET_FROM) >> OFFSET_TO
}

/// A sequence number that stays while nothing is changed. In the middle of a change it is one that will not come again:
/// who asks for it afterwards, as all must, finds another.
#[inline(always)]
fn settled(sequence: u32) -> u64 {
    u64::from(sequence) & !1
}

/// Whether a cachelet is a directory's that the caller may search, and was so
/// while its sequence was `sequence`.
#[inline(always)]
fn may_search<'c>(who: impl Fn() -> &'c Caller, dir: &Cachelet, sequence: u64) -> bool {
    let word = dir.mode.load(Relaxed);
    let allowed = word & SEARCH.1 == SEARCH.0 || may_search_as(who(), dir);
    allowed && dir.is_still::<ODD>(sequence)
}

/// As the owner or the superuser; by group, the proper way finds out.
#[inline(never)]
fn may_search_as(who: &Caller, dir: &Cachelet) -> bool {
    let word = dir.mode.load(Relaxed);
    (word >> 16) as u8 == Kind::Directory as u8 && who.may_search_own(dir.uid.load(Relaxed), word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestFs;
    use base::NewNode;
    use base::walk::{Last, Scratch, Walk};
    use std::vec;

    fn make(test: &TestFs, dir: Node, name: &[u8], kind: Kind) -> Node {
        test.create(&test.cx(), dir, name, &NewNode { kind, mode: 0o755, rdev: 0, target: b"" }).unwrap()
    }

    /// Goal: where a glance is sure, it says what a walk says, wherever in a page
    /// the text lies. Method: short and long names, missing ones, dots and slashes.
    #[test]
    fn agrees_with_the_walk() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let dir = make(&test, root, b"dir", Kind::Directory);
        let long = make(&test, dir, b"a-name-of-seventeen", Kind::Directory);
        make(&test, long, b"fifteen-bytes-x", Kind::Regular);
        make(&test, long, b"sixteen-bytes-xy", Kind::Regular);
        let paths = [
            &b"dir"[..],
            b"dir/a-name-of-seventeen/fifteen-bytes-x",
            b"dir/a-name-of-seventeen/sixteen-bytes-xy",
            b"missing",
            b"dir/missing-and-rather-long",
            b"",
            b".",
            b"..",
            b"dir/",
            b"dir/.",
            b"dir/..",
            b"dir//a-name-of-seventeen",
            b"dir/fifteen/x",
            b"dir/a-name-of-seventeen/fifteen-bytes-x/y",
        ];
        let who = Caller { uid: 0, privileged: true };
        let mut buffer = vec![0u8; 3 * 4096];
        let page = buffer.as_ptr().align_offset(4096) + 4096;
        let (mut seen, mut absent) = (0, 0);
        for path in paths {
            let mut scratch = Scratch::new();
            let walked = match test.walk(&cx, root, path, Last::Follow, &mut 0, None, &mut scratch) {
                Ok(Walk::Found(found)) => Some(found.node.map(|node| node.id)),
                _ => None,
            };
            for lead in 0..64 {
                let at = page - lead;
                buffer[at..at + path.len()].copy_from_slice(path);
                buffer[at + path.len()] = 0;
                // SAFETY: NUL-terminated, just above.
                let text = unsafe { Text::new(buffer.as_ptr().add(at)) };
                let mut sight = Sight::EMPTY;
                match test.glance(|| &who, root, text, true, |_| false, &mut sight) {
                    Glance::Seen => {
                        seen += 1;
                        assert_eq!(walked, Some(Some(sight.node.id)), "{} at -{lead}", path.escape_ascii());
                    }
                    Glance::Absent => {
                        absent += 1;
                        assert_eq!(walked, Some(None), "{} at -{lead}", path.escape_ascii());
                    }
                    Glance::Unsure => {}
                }
            }
        }
        assert!(seen >= 3 * 63 && absent >= 2 * 63, "{seen} seen, {absent} absent");
    }

    /// Goal: an image whose root block says that there are no buckets hides no name. Method: one with that
    /// damage, attached anew.
    #[test]
    fn no_buckets_hide_nothing() {
        let test = TestFs::new(16 << 20);
        test.root().buckets.store(0, Relaxed);
        let test = test.again();
        let root = test.root_node();
        // The directory itself is at hand.
        test.attr(&test.cx(), root).unwrap();
        for name in 0..100 {
            let name = std::format!("name{name}");
            assert_eq!(crate::testing::glance(&test, root, name.as_bytes()).0, Glance::Unsure, "{name}");
        }
    }

    /// Goal: a number of buckets that others have raised since hides no name. Method: names are made, without
    /// a glance, until the index has grown; then each is looked at: never absent, and seen at the second look.
    #[test]
    fn an_old_number_of_buckets_hides_nothing() {
        let test = TestFs::new(64 << 20);
        let root = test.root_node();
        let who = Caller { uid: 0, privileged: true };
        let name = |i: u32| std::format!("name{i}\0").into_bytes();
        let hash = |i: u32| test.hash(node_offset(root.id), name(i).strip_suffix(b"\0").unwrap());
        let look = |i: u32| {
            let text = name(i);
            // SAFETY: NUL-terminated, and dropped after the glance.
            test.glance(|| &who, root, unsafe { Text::new(text.as_ptr()) }, true, |_| false, &mut { Sight::EMPTY })
        };
        let mut made = 0;
        while test.root().buckets.load(Acquire) < bucket::BUCKETS_MIN + 300 {
            make(&test, root, name(made).strip_suffix(b"\0").unwrap(), Kind::Regular);
            made += 1;
        }
        let moved = |i: &u32| {
            let home = test.bucket_offset(hash(*i), test.root().buckets.load(Acquire)).unwrap();
            test.fs.image.offset_of(test.buckets.of_hash(hash(*i)).0) != home
        };
        let first = (0..made).find(moved).expect("some names have moved");
        assert_eq!([look(first), look(first)], [Glance::Unsure, Glance::Seen]);
        assert_eq!((0..made).find(moved), None, "one look learns the number");
        assert!((0..made).all(|i| look(i) != Glance::Absent));
    }
}

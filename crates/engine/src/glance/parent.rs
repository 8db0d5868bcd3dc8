//! A glance at the place of a name: what `creat`, `mkdir`, `unlink`, `rename` and
//! their kin begin with. The last component is not looked up; the operation does
//! that under the bucket's lock.

use super::{Looked, may_search};
use crate::fs::Fs;
use base::{Caller, Name, Node};
use core::sync::atomic::Ordering::Relaxed;
use format::edentry::NAME_MAX;
use format::hash::short_words;
use format::inode::node_offset;
use pm::Text;
use pm::text::{Scan, Short};

impl Fs {
    /// The directory in which `path` from `base` ends, and the last component: a proper name. That
    /// is a directory which may be searched, or `base` itself: who enters that asks the same of it.
    /// `covered` tells on which nodes something is mounted. `None`: walk properly.
    #[inline(always)]
    pub fn glance_parent<'a, 'c>(
        &self,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text<'a>,
        covered: impl Fn(u64) -> bool,
    ) -> Option<(Node, Name<'a>)> {
        if let Some((short, name, end)) = Scan::start().short_part(path)
            && end.next().is_none()
        {
            return (!short.may_be_dots()).then_some((base, Name::of(name, [short.low, short.high])));
        }
        let (Node { id, hint }, name) = self.glance_parent_along(who, base, path, covered)?;
        // Copies, so that they may be in registers where there is but one component.
        Some((Node { id: id.rotate_left(0), hint }, name.copied()))
    }

    /// As [`Fs::glance_parent`], of several components, or a long one.
    #[inline(never)]
    fn glance_parent_along<'a, 'c>(
        &self,
        who: impl Fn() -> &'c Caller,
        base: Node,
        path: Text<'a>,
        covered: impl Fn(u64) -> bool,
    ) -> Option<(Node, Name<'a>)> {
        let mut scan = Scan::start();
        let mut part = Part::first_of(&mut scan, path, path)?;
        let Some(mut rest) = part.end.next() else { return Some((base, part.name)) };
        let (mut dir, mut sequence) = self.start(base)?;
        let mut id = base.id;
        if !may_search(&who, dir, sequence) {
            return None;
        }
        loop {
            let parent = node_offset(id);
            let looked = match part.short() {
                Some(short) => self.look_short(parent, &short),
                None => Err(self.look_long(parent, part.name.bytes())),
            };
            (dir, sequence) = match looked {
                Ok(near) => near,
                Err(Looked { child, word }) => (child?, word),
            };
            id = dir.node.load(Relaxed);
            if covered(id) || !may_search(&who, dir, sequence) {
                return None;
            }
            part = Part::first_of(&mut scan, rest, path)?;
            match part.end.next() {
                None => return Some((Node { id, hint: self.number_at_hand(dir) }, part.name)),
                Some(next) => rest = next,
            }
        }
    }
}

/// A component that is a proper name.
struct Part<'a> {
    name: Name<'a>,
    end: Text<'a>,
}

impl<'a> Part<'a> {
    /// The first one of what is left of `path`; `None` if it is empty, `.`, `..` or too long, or `path` is.
    #[inline(always)]
    fn first_of(scan: &mut Scan, rest: Text<'a>, path: Text<'a>) -> Option<Part<'a>> {
        if let Some((short, name, end)) = scan.short_part(rest) {
            return (!short.may_be_dots()).then_some(Part { name: Name::of(name, [short.low, short.high]), end });
        }
        let (name, end) = rest.component();
        scan.renew();
        let proper = matches!(name.len(), 1..=NAME_MAX) && !matches!(name, b"." | b"..") && !path.is_long_by(rest, end);
        let (low, high) = short_words(name);
        proper.then_some(Part { name: Name::of(name, [low, high]), end })
    }

    /// Its words, if it has at most 15 bytes.
    #[inline(always)]
    fn short(&self) -> Option<Short> {
        let ([low, high], len) = (self.name.words(), self.name.bytes().len());
        (len < 16).then_some(Short { low, high, len: len as u32 })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestFs;
    use base::walk::{Last, Scratch, Walk};
    use base::{Caller, Kind, NewNode, SetAttr};
    use pm::Text;
    use std::vec;
    use std::vec::Vec;

    /// Goal: where a glance is sure of the place of a name, a walk finds the same
    /// one; it is never sure of what is no proper name, or where it may not search.
    #[test]
    fn agrees_with_the_walk() {
        let test = TestFs::new(64 << 20);
        let (cx, root) = (test.cx(), test.root_node());
        let make = |dir, name: &[u8], kind, target: &[u8]| {
            test.create(&cx, dir, name, &NewNode { kind, mode: 0o755, rdev: 0, target }).unwrap()
        };
        let dir = make(root, b"dir", Kind::Directory, b"");
        let long = make(dir, b"a-name-of-seventeen", Kind::Directory, b"");
        make(root, b"link", Kind::Symlink, b"dir");
        make(long, b"file", Kind::Regular, b"");
        let (fits, too_long) = (vec![b'n'; 255], vec![b'n'; 256]);
        let sure: [&[u8]; 7] = [
            b"new",
            b"dir",
            b"link",
            b"dir/x",
            b"dir/a-name-of-seventeen/file",
            b"dir/a-name-of-seventeen/sixteen-bytes-xy",
            &fits,
        ];
        let unsure: [&[u8]; 14] = [
            b"",
            b".",
            b"..",
            b"dir/",
            b"dir/.",
            b"dir/..",
            b"dir//x",
            b"link/x",
            b"missing/x",
            b"./x",
            b"dir/../x",
            b"dir/a-name-of-seventeen/file/x",
            b"missing/x-of-more-than-15-bytes",
            &too_long,
        ];
        let look = |uid: u32, path: &[u8]| {
            let who = Caller { uid, privileged: uid == 0 };
            let text: Vec<u8> = path.iter().copied().chain([0]).collect();
            // SAFETY: the text ends in a NUL, and is dropped only after the glance.
            let found = test.glance_parent(|| &who, root, unsafe { Text::new(text.as_ptr()) }, |_| false);
            found.map(|(node, name)| (node.id, name.bytes().to_vec()))
        };
        // The first look in a step of the index only learns where it lies.
        look(0, b"dir/x");
        for path in sure {
            let mut scratch = Scratch::new();
            let Ok(Walk::Found(found)) = test.walk(&cx, root, path, Last::Parent, &mut 0, None, &mut scratch) else {
                panic!("{path:?}");
            };
            assert_eq!(look(0, path), Some((found.parent.id, found.name.to_vec())), "{path:?}");
        }
        for path in unsure {
            assert_eq!(look(0, path), None, "{path:?}");
        }
        test.set_attr(&cx, dir, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).unwrap();
        assert_eq!((look(1000, b"dir/x"), look(0, b"dir/x").is_some()), (None, true));
    }
}

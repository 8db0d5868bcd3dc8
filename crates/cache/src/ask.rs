//! Bringing one name.

use crate::lower::{Original, Path, Target};
use crate::{Cache, own};
use base::{Cx, Errno, Error, Kind, Node, Result};
use engine::lower::{Change, Fetched, Stamp, Whole};

/// How often somebody else may be making or removing the same name.
const ATTEMPTS: u32 = 100;

/// The name of an original in the directory of those with several: device and number, as hexadecimal digits.
pub(crate) struct Key(pub [u8; 33]);

impl Key {
    pub(crate) fn new(stamp: &Stamp) -> Key {
        let mut text = [b'.'; 33];
        let hexadecimal = |into: &mut [u8], value: u64| {
            for (place, digit) in into.iter_mut().enumerate() {
                *digit = b"0123456789abcdef"[(value >> (60 - 4 * place) & 15) as usize];
            }
        };
        hexadecimal(&mut text[..16], stamp.device);
        hexadecimal(&mut text[17..], stamp.number);
        Key(text)
    }
}

impl Cache {
    /// A name that is not here: asks below. `ENOENT` if it is not there either; `unless` as in [`Cache::bring`].
    pub(crate) fn ask(&self, cx: &Cx, dir: Node, name: &[u8], unless: u64) -> Result<Node> {
        let before = self.names_lead(cx, (dir, name))?;
        let mut room = Path::room();
        let path = self.path(&mut room, dir, name)?;
        self.fs().count_fetched(Fetched { questions: 1, ..Fetched::default() });
        let (handle, original) = self.lower.at(cx, path)?;
        let target = Target::of(cx, &handle, &original)?;
        self.names_led(cx, before, (dir, name))?;
        self.bring(&own(cx), (dir, unless), name, &original, target.text())
    }

    /// Makes a name of what its original is like, with a [`Target::text`], unless somebody else has just made it, or the
    /// directory's state has one of these bits by now: with `LISTED` it may have been here, and removed or moved since it was
    /// seen below. Then what is here is told, or `ENOENT`.
    pub(crate) fn bring(
        &self,
        cx: &Cx,
        (dir, unless): (Node, u64),
        name: &[u8],
        original: &Original,
        text: (&[u8], u64),
    ) -> Result<Node> {
        let fs = self.fs();
        for _ in 0..ATTEMPTS {
            let known = if original.has_names() { self.linked(cx, original) } else { None };
            let made = match known {
                Some(node) => self.name_again(cx, node, (dir, unless), name, original),
                None => fs.create_whole(cx, dir, name, &Whole { unless, ..original.whole(text) }),
            };
            if let Ok(node) = made {
                fs.count_fetched(Fetched { names: 1, ..Fetched::default() });
                if original.attr.kind == Kind::Directory {
                    fs.count_brought();
                    fs.watch_soon(node);
                }
            }
            match made {
                Ok(node) if known.is_some() || !original.has_names() => return Ok(node),
                Ok(node) => match self.note_links(cx, node, original) {
                    Ok(()) => {
                        fs.count_linked();
                        return Ok(node);
                    }
                    // Another name of it was brought at the same moment: that node is the one.
                    Err(Error::Posix(Errno::EEXIST)) => match self.remove_entry(cx, dir, name, (node, None), false) {
                        Ok(()) | Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => {}
                        Err(error) => return Err(error),
                    },
                    Err(error) => return Err(error),
                },
                Err(Error::Posix(Errno::EEXIST)) => match fs.lookup(cx, dir, name) {
                    Err(Error::Posix(Errno::ENOENT)) => {}
                    found => return found,
                },
                Err(Error::Posix(Errno::EAGAIN)) => return fs.lookup(cx, dir, name),
                Err(Error::Posix(Errno::ESTALE)) => {}
                Err(Error::Posix(Errno::ENOSPC)) if self.evict(cx, dir)? => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EIO.into())
    }

    /// The node of an original with several names, one of which has been brought before.
    fn linked(&self, cx: &Cx, original: &Original) -> Option<Node> {
        let node = self.fs().lookup(cx, self.links, &Key::new(&original.stamp).0).ok()?;
        let known = self.known(node).ok()?;
        known.stamp.is_same_file(&original.stamp).then_some(node)
    }

    fn name_again(&self, cx: &Cx, node: Node, (dir, unless): (Node, u64), name: &[u8], original: &Original) -> Result<Node> {
        self.fs().link_unless(cx, node, (dir, name), unless)?;
        // Times have changed by that, which are the originals'.
        self.fs().restamp(cx, node, &original.change())?;
        self.restore_times(cx, dir)?;
        Ok(node)
    }

    /// Gives a directory whose names were changed here, or a file that got or lost a name here, the times of its original
    /// again.
    pub(crate) fn restore_times(&self, cx: &Cx, node: Node) -> Result<()> {
        let (attr, known) = (self.fs().attr(cx, node)?, self.known(node)?);
        let change = Change { mode: attr.mode, uid: attr.uid, gid: attr.gid, stamp: known.stamp, before: Some(known.stamp) };
        match self.fs().restamp(cx, node, &change) {
            // It has got others by now.
            Err(Error::Posix(Errno::ESTALE)) => Ok(()),
            restamped => restamped,
        }
    }

    pub(crate) fn note_links(&self, cx: &Cx, node: Node, original: &Original) -> Result<()> {
        self.fs().link(cx, node, self.links, &Key::new(&original.stamp).0)?;
        self.fs().restamp(cx, node, &original.change())
    }
}

//! What a group of the journal says: facts, one behind the other, little-endian.
//!
//! A group is how everything that was touched since the group before is at one moment. So groups are read as a whole in
//! order, each fact is a state and none a step, and to read them twice is to read them once.
//!
//! ```text
//! node   1, id, kind, flags, device, number, mode, uid, gid, rdev, atime, mtime, size, target, hint, [attributes]
//! name   2, directory, node (0: leads nowhere), device and number of what it led to below (0: nothing), name
//! data   3, node, offset, bytes
//! zeros  4, node, offset, length
//! made   5, node, device, number: the round that is over has made it below
//! ```
//! **Nothing of a record is believed**: names are names ([`Name`]), hints are paths of names, and texts, sizes, offsets and
//! modes are within what the kernel takes. One that is not makes the whole group damage.
//!
//! Device 0 is that of the directory's root, whatever number it has after a start of the machine.

use crate::Id;
use base::{Kind, Name};

/// What is behind it are the node's extended attributes.
const HAS_XATTRS: u8 = 1;
/// All bytes of the node are in this group: it needs nothing of what is below.
const IS_WHOLE: u8 = 2;
/// Its attributes are to be set; without it only what the node is matters.
const IS_CHANGED: u8 = 4;

/// Longest text of a symlink, and longest value of an attribute.
const TARGET_MAX: usize = 4095;
const VALUE_MAX: usize = 64 << 10;
/// Largest offset that the kernel takes.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Permission bits.
const MODE_MAX: u64 = 0o7777;
/// Names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What is known of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFact {
    pub id: u64,
    pub kind: Kind,
    /// Which file below it is; `None`: made since, and not there when the group was made.
    pub lower: Option<Id>,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub atime: i64,
    pub mtime: i64,
    pub size: u64,
    /// Of a symlink.
    pub target: Vec<u8>,
    /// A path that it had; only a hint.
    pub hint: Vec<u8>,
    pub xattrs: Option<Xattrs>,
    pub is_whole: bool,
    pub is_changed: bool,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Node(NodeFact),
    Name {
        dir: u64,
        name: Vec<u8>,
        node: u64,
        was: Option<Id>,
    },
    /// `at`: where its bytes are in the group's body.
    Data {
        node: u64,
        offset: u64,
        at: usize,
        len: usize,
    },
    Zeros {
        node: u64,
        offset: u64,
        len: u64,
    },
    Made {
        node: u64,
        id: Id,
    },
}

/// The body of a group in the making.
#[derive(Debug, Default)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// Device of the root.
    pub device: u64,
}

impl Body {
    pub fn new(device: u64) -> Body {
        Body { bytes: Vec::new(), device }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn word(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text);
    }

    fn id(&mut self, id: Option<Id>) {
        let (device, number) = id.unwrap_or_default();
        self.word(if device == self.device { 0 } else { device });
        self.word(number);
    }

    pub fn node(&mut self, node: &NodeFact) {
        self.bytes.push(1);
        self.word(node.id);
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let flags = flag(node.xattrs.is_some(), HAS_XATTRS) | flag(node.is_whole, IS_WHOLE) | flag(node.is_changed, IS_CHANGED);
        self.bytes.extend_from_slice(&[node.kind as u8, flags]);
        self.id(node.lower);
        self.word(node.mode.into());
        self.word(u64::from(node.uid) << 32 | u64::from(node.gid));
        for word in [node.rdev, node.atime as u64, node.mtime as u64, node.size] {
            self.word(word);
        }
        self.text(&node.target);
        self.text(&node.hint);
        if let Some(xattrs) = &node.xattrs {
            self.word(xattrs.len() as u64);
            for (name, value) in xattrs {
                self.text(name);
                self.text(value);
            }
        }
    }

    pub fn name(&mut self, dir: u64, name: &[u8], node: u64, was: Option<Id>) {
        self.bytes.push(2);
        self.word(dir);
        self.word(node);
        self.id(was);
        self.text(name);
    }

    pub fn data(&mut self, node: u64, offset: u64, bytes: &[u8]) {
        self.bytes.push(3);
        self.word(node);
        self.word(offset);
        self.text(bytes);
    }

    pub fn zeros(&mut self, node: u64, offset: u64, len: u64) {
        self.bytes.push(4);
        for word in [node, offset, len] {
            self.word(word);
        }
    }

    pub fn made(&mut self, node: u64, id: Id) {
        self.bytes.push(5);
        self.word(node);
        self.id(Some(id));
    }
}

/// Reads bytes; nothing is believed of their lengths.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    device: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn word(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        self.take(len as usize)
    }

    fn id(&mut self) -> Option<Option<Id>> {
        let (device, number) = (self.word()?, self.word()?);
        let device = if device == 0 { self.device } else { device };
        Some((number != 0).then_some((device, number)))
    }

    /// A name in a directory.
    fn name(&mut self) -> Option<Vec<u8>> {
        self.text().and_then(Name::new).map(|name| name.to_vec())
    }

    /// Paths with NUL between them, of names only.
    fn hint(&mut self) -> Option<Vec<u8>> {
        let text = self.text()?;
        let is_path = |path: &[u8]| path.split(|byte| *byte == b'/').all(|name| Name::new(name).is_some());
        text.split(|byte| *byte == 0).filter(|path| !path.is_empty()).all(is_path).then(|| text.to_vec())
    }

    /// The text of a symlink; of anything else there is none.
    fn target(&mut self, kind: Kind) -> Option<Vec<u8>> {
        let text = self.text()?;
        let fits = match kind {
            // One that has not changed is said without it.
            Kind::Symlink => text.len() <= TARGET_MAX && !text.contains(&0),
            _ => text.is_empty(),
        };
        fits.then(|| text.to_vec())
    }

    /// A word that is at most this.
    fn at_most(&mut self, most: u64) -> Option<u64> {
        self.word().filter(|word| *word <= most)
    }

    /// Number of a node: the image has none 0.
    fn number(&mut self) -> Option<u64> {
        self.word().filter(|word| *word != 0)
    }

    fn xattrs(&mut self) -> Option<Xattrs> {
        let mut all = Vec::new();
        for _ in 0..self.word()? {
            let name = self.text()?;
            let is_name = !name.is_empty() && name.len() <= Name::MAX && !name.contains(&0);
            let value = self.text()?;
            if !is_name || value.len() > VALUE_MAX {
                return None;
            }
            all.push((name.to_vec(), value.to_vec()));
        }
        Some(all)
    }

    fn node(&mut self) -> Option<NodeFact> {
        let id = self.number()?;
        let (kind, flags) = (Kind::from_dt(self.byte()?)?, self.byte()?);
        let lower = self.id()?;
        let (mode, owner) = (self.at_most(MODE_MAX)? as u16, self.word()?);
        let (rdev, atime, mtime) = (self.word()?, self.word()? as i64, self.word()? as i64);
        let size = self.at_most(OFFSET_MAX)?;
        let (target, hint) = (self.target(kind)?, self.hint()?);
        let xattrs = if flags & HAS_XATTRS != 0 { Some(self.xattrs()?) } else { None };
        let (uid, gid) = ((owner >> 32) as u32, owner as u32);
        let (is_whole, is_changed) = (flags & IS_WHOLE != 0, flags & IS_CHANGED != 0);
        Some(NodeFact { id, kind, lower, mode, uid, gid, rdev, atime, mtime, size, target, hint, xattrs, is_whole, is_changed })
    }

    fn fact(&mut self) -> Option<Fact> {
        Some(match self.byte()? {
            1 => Fact::Node(self.node()?),
            2 => {
                let (dir, node, was) = (self.number()?, self.word()?, self.id()?);
                Fact::Name { dir, node, was, name: self.name()? }
            }
            3 => {
                let (node, offset) = (self.number()?, self.word()?);
                let len = self.text()?.len();
                self.range(offset, len as u64)?;
                Fact::Data { node, offset, at: self.at - len, len }
            }
            4 => {
                let (node, offset, len) = (self.number()?, self.word()?, self.word()?);
                self.range(offset, len)?;
                Fact::Zeros { node, offset, len }
            }
            5 => Fact::Made { node: self.number()?, id: self.id()?? },
            _ => return None,
        })
    }

    /// Bytes that a file can have.
    fn range(&self, offset: u64, len: u64) -> Option<u64> {
        offset.checked_add(len).filter(|end| *end <= OFFSET_MAX)
    }
}

/// Reads a body; `None`: it is none, or a fact in it can't be true. `device`: that of the root now.
pub fn read(bytes: &[u8], device: u64) -> Option<Vec<Fact>> {
    let (mut reader, mut facts) = (Reader { bytes, at: 0, device }, Vec::new());
    while reader.at < bytes.len() {
        facts.push(reader.fact()?);
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeFact {
        NodeFact {
            id: 77,
            kind: Kind::Symlink,
            lower: Some((9, 1234)),
            mode: 0o4751,
            uid: 11,
            gid: 22,
            rdev: 3,
            atime: -4,
            mtime: 5,
            size: 6,
            target: b"there".to_vec(),
            hint: b"a/b".to_vec(),
            xattrs: Some(vec![(b"user.a".to_vec(), b"v".to_vec())]),
            is_whole: true,
            is_changed: true,
        }
    }

    /// Goal: what was said is read; a device that is the root's is the root's under another number too; whatever is cut
    /// off, anywhere, is no body, or a shorter one.
    #[test]
    fn facts() {
        let mut body = Body::new(9);
        body.node(&node());
        body.node(&NodeFact { lower: None, xattrs: None, is_whole: false, ..node() });
        body.name(1, b"name", 0, Some((8, 5)));
        body.data(77, 4096, b"bytes");
        body.zeros(77, 1, 2);
        body.made(77, (9, 6));
        let facts = read(&body.bytes, 10).unwrap();
        assert_eq!(facts.len(), 6);
        assert_eq!(facts[0], Fact::Node(NodeFact { lower: Some((10, 1234)), ..node() }));
        assert_eq!(facts[2], Fact::Name { dir: 1, name: b"name".to_vec(), node: 0, was: Some((8, 5)) });
        let Fact::Data { at, len, .. } = facts[3] else { panic!() };
        assert_eq!(&body.bytes[at..at + len], b"bytes");
        assert_eq!(facts[5], Fact::Made { node: 77, id: (10, 6) });
        for len in 0..body.bytes.len() {
            assert!(read(&body.bytes[..len], 10).is_none_or(|cut| cut.len() < facts.len()));
        }
    }

    fn reads(say: impl FnOnce(&mut Body)) -> bool {
        let mut body = Body::new(9);
        body.zeros(1, 0, 1);
        say(&mut body);
        read(&body.bytes, 9).is_some()
    }

    /// Goal: a fact that leads out of the directory, or is more than the kernel takes, makes its group damage.
    #[test]
    fn facts_that_cannot_be_true() {
        let long = [b'n'; 256];
        for name in [&b""[..], b".", b"..", b"../x", b"/x", b"a/b", b"a\0b", &long] {
            assert!(!reads(|body| body.name(1, name, 2, None)), "{name:?}");
        }
        for hint in [&b".."[..], b"a/../../x", b"/x", b"a//b", b"a\0../b"] {
            assert!(!reads(|body| body.node(&NodeFact { hint: hint.to_vec(), ..node() })), "{hint:?}");
        }
        for target in [&b"a\0b"[..], &[b't'; 4096]] {
            assert!(!reads(|body| body.node(&NodeFact { target: target.to_vec(), ..node() })), "{}", target.len());
        }
        assert!(!reads(|body| body.node(&NodeFact { kind: Kind::Regular, ..node() })));
        assert!(!reads(|body| body.node(&NodeFact { mode: 0o10777, ..node() })));
        assert!(!reads(|body| body.node(&NodeFact { size: 1 << 63, ..node() })));
        assert!(!reads(|body| body.node(&NodeFact { id: 0, ..node() })));
        for (name, len) in [(&b""[..], 1), (b"user.a\0b", 1), (b"user.a", VALUE_MAX + 1)] {
            let xattrs = Some(vec![(name.to_vec(), vec![0; len])]);
            assert!(!reads(|body| body.node(&NodeFact { xattrs, ..node() })), "{name:?}");
        }
        assert!(!reads(|body| body.data(1, u64::MAX - 3, b"bytes")));
        assert!(!reads(|body| body.zeros(1, 1 << 62, 1 << 62)));
        assert!(reads(|body| body.name(1, b"..name", 2, None)));
        assert!(reads(|body| body.node(&NodeFact { hint: b"a/b\0c".to_vec(), ..node() })));
    }
}

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
//! Device 0 is that of the directory's root, whatever number it has after a start of the machine.

use crate::Id;
use base::Kind;

/// What is behind it are the node's extended attributes.
const HAS_XATTRS: u8 = 1;
/// All bytes of the node are in this group: it needs nothing of what is below.
const IS_WHOLE: u8 = 2;
/// Its attributes are to be set; without it only what the node is matters.
const IS_CHANGED: u8 = 4;

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

    fn node(&mut self) -> Option<NodeFact> {
        let id = self.word()?;
        let (kind, flags) = (Kind::from_dt(self.byte()?)?, self.byte()?);
        let lower = self.id()?;
        let (mode, owner) = (self.word()? as u16, self.word()?);
        let (rdev, atime, mtime, size) = (self.word()?, self.word()? as i64, self.word()? as i64, self.word()?);
        let (target, hint) = (self.text()?.to_vec(), self.text()?.to_vec());
        let mut xattrs = None;
        if flags & HAS_XATTRS != 0 {
            let mut all = Vec::new();
            for _ in 0..self.word()? {
                all.push((self.text()?.to_vec(), self.text()?.to_vec()));
            }
            xattrs = Some(all);
        }
        let (uid, gid) = ((owner >> 32) as u32, owner as u32);
        let (is_whole, is_changed) = (flags & IS_WHOLE != 0, flags & IS_CHANGED != 0);
        Some(NodeFact { id, kind, lower, mode, uid, gid, rdev, atime, mtime, size, target, hint, xattrs, is_whole, is_changed })
    }

    fn fact(&mut self) -> Option<Fact> {
        Some(match self.byte()? {
            1 => Fact::Node(self.node()?),
            2 => {
                let (dir, node, was) = (self.word()?, self.word()?, self.id()?);
                Fact::Name { dir, node, was, name: self.text()?.to_vec() }
            }
            3 => {
                let (node, offset) = (self.word()?, self.word()?);
                let len = self.text()?.len();
                Fact::Data { node, offset, at: self.at - len, len }
            }
            4 => Fact::Zeros { node: self.word()?, offset: self.word()?, len: self.word()? },
            5 => Fact::Made { node: self.word()?, id: self.id()?? },
            _ => return None,
        })
    }
}

/// Reads a body; `None`: it is none. `device`: that of the root now.
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
}

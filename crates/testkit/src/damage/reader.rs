//! An image read from its bytes alone, by `docs/internals/format.md` and nothing of the
//! engine: what files there are, what they hold, and which bytes each needs.

use format::directory::{SLOTS_PER_BLOCK, reserved_by};
use format::extent::{ENTRY_SHARED, Extent, Root};
use format::inode::{COLD, Head, node_offset, word};
use format::layout::{BLOCK, LINE, Layout, ROOT};
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of an image.
pub type Bytes = Range<u64>;

/// A name and what it leads to.
#[derive(Clone, Debug)]
pub struct File {
    /// `DT_*`.
    pub kind: u8,
    /// Checksum of contents or text; 0 for what has none.
    pub sum: u64,
    /// Whether there is anything in it.
    pub empty: bool,
    /// All words of the inode that are not volatile, and of its cold line.
    pub words: Vec<u64>,
    /// Where its name, inode and contents are.
    pub own: Vec<Bytes>,
    /// The slots that lead here, and all that the directories above need.
    pub way: Vec<Bytes>,
}

/// The files of a sound image by path. `None` where it is not sound.
pub fn read(image: &[u8]) -> Option<BTreeMap<String, File>> {
    let reader = Reader(image);
    let mut files = BTreeMap::new();
    let root = reader.word(ROOT + 16)?;
    let mut waiting = vec![(String::new(), root, Vec::new())];
    while let Some((path, directory, way)) = waiting.pop() {
        for (slot, at) in reader.slots(directory)? {
            let name = reader.name(at)?;
            let child = node_offset(reader.word(at + 16)?);
            let path = format!("{path}/{name}");
            let lines = u64::from(format::edentry::lines(name.len())) * LINE;
            let mut file = reader.file(child)?;
            file.own.push(at..at + lines);
            file.way.clone_from(&way);
            file.way.push(slot..slot + 8);
            if file.kind == 4 {
                let mut below = file.way.clone();
                below.extend(file.own.iter().cloned());
                waiting.push((path.clone(), child, below));
            }
            if files.insert(path, file).is_some() {
                return None;
            }
        }
    }
    Some(files)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&self, at: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        Some(u64::from_le_bytes(self.0.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }

    fn bytes(&self, at: u64, len: u64) -> Option<&[u8]> {
        self.0.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(len)?).ok()?)
    }

    fn name(&self, at: u64) -> Option<String> {
        let head = format::edentry::Head::unpack(self.word(at)?)?;
        let text = self.bytes(at + format::edentry::NAME, u64::from(head.name_len))?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// Slots in use of a directory: where, and what is in them.
    fn slots(&self, directory: u64) -> Option<Vec<(u64, u64)>> {
        let mut slots = Vec::new();
        for extent in self.map(directory, &mut Vec::new())? {
            for slot in (0..extent.len * SLOTS_PER_BLOCK).map(|i| extent.block * BLOCK + i * 8) {
                let at = self.word(slot)?;
                if at != 0 && reserved_by(at).is_none() {
                    slots.push((slot, at));
                }
            }
        }
        Some(slots)
    }

    /// The extents of a file or directory; the blocks of its nodes go to `nodes`.
    fn map(&self, inode: u64, nodes: &mut Vec<Bytes>) -> Option<Vec<Extent>> {
        let mut extents = Vec::new();
        let mut waiting = match Root::unpack(self.word(inode + word::ROOT)?)? {
            Root::Empty => Vec::new(),
            Root::One { block, len, shared } => {
                extents.push(Extent { file: 0, block, len, shared });
                Vec::new()
            }
            Root::Tree { node, depth } => vec![(node, depth)],
        };
        while let Some((node, depth)) = waiting.pop() {
            let at = node * BLOCK;
            let count = self.word(at)?;
            if count > 255 || nodes.len() > 10_000 {
                return None;
            }
            nodes.push(at..at + 16 + count * 16);
            for entry in (0..count).map(|i| at + 16 + i * 16) {
                let (file, run) = (self.word(entry)?, self.word(entry + 8)?);
                match depth {
                    0 => {
                        let (shared, file) = (file & ENTRY_SHARED != 0, file & !ENTRY_SHARED);
                        extents.push(Extent { file, block: run >> 32, len: run & 0xffff_ffff, shared });
                    }
                    _ => waiting.push((run >> 32, depth - 1)),
                }
            }
        }
        extents.sort_by_key(|extent| extent.file);
        Some(extents)
    }

    fn file(&self, inode: u64) -> Option<File> {
        let head = Head::unpack(self.word(inode)?);
        let size = self.word(inode + word::SIZE)?;
        let mut own = Vec::new();
        own.push(inode..inode + LINE);
        let mut words = vec![
            // Not the generation, which nothing but the name knows of.
            u64::from(head.kind) << 16 | u64::from(head.permission),
            size,
            self.word(inode + word::MTIME)?,
            self.word(inode + word::CTIME)?,
        ];
        let mut sum = 0;
        let mut empty = true;
        if head.flags & COLD != 0 {
            let cold = self.word(inode + word::EXTRA)?;
            own.push(cold..cold + LINE);
            words.extend([self.word(cold)?, self.word(cold + 8)?]);
        }
        match head.kind {
            4 => own.extend(self.map(inode, &mut Vec::new())?.iter().map(|e| e.block * BLOCK..e.block * BLOCK)),
            8 => {
                let extents = self.map(inode, &mut own)?;
                empty = size == 0 || extents.is_empty();
                for extent in extents {
                    let (start, len) = (extent.file * BLOCK, extent.len * BLOCK);
                    let len = len.min(size.saturating_sub(start));
                    own.push(extent.block * BLOCK..extent.block * BLOCK + extent.len * BLOCK);
                    // Holes and zeros are the same.
                    for (i, chunk) in self.bytes(extent.block * BLOCK, len)?.chunks(8).enumerate() {
                        if chunk.iter().any(|byte| *byte != 0) {
                            let mut bytes = [0; 8];
                            bytes[..chunk.len()].copy_from_slice(chunk);
                            sum = mix(sum, (start / 8 + i as u64) ^ u64::from_le_bytes(bytes).rotate_left(17));
                        }
                    }
                }
                sum = mix(sum, size);
            }
            10 => {
                let text = self.word(inode + word::ROOT)?;
                own.push(text..text + size.next_multiple_of(LINE));
                sum = self.bytes(text, size)?.iter().fold(size, |sum, byte| mix(sum, u64::from(*byte)));
                empty = false;
            }
            _ => words.push(self.word(inode + word::ROOT)?),
        }
        // What says that these lines are in use.
        let blocks: Vec<u64> = own.iter().flat_map(|bytes| bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)).collect();
        own.extend(blocks.into_iter().map(|block| Layout::bitmap_word(block)..Layout::bitmap_word(block) + 8));
        Some(File { kind: head.kind, sum, empty, words, own, way: Vec::new() })
    }
}

fn mix(sum: u64, word: u64) -> u64 {
    format::hash::fold(sum ^ word, 0x9e37_79b9_7f4a_7c15).wrapping_add(word.rotate_left(32)) | 1
}

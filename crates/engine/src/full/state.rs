//! What an operation that fails must leave as it was.

use crate::testing::TestFs;
use crate::{Kind, Node};
use core::sync::atomic::Ordering::Relaxed;
use format::extent::Root;
use format::layout::Layout;
use pm::UserSlice;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

/// A directory of the root whose many files are not looked at.
pub(super) const FULL: &str = "full";

/// An image, as far as it can be seen.
pub(super) struct State {
    /// Every name with its attributes and contents.
    pub tree: String,
    /// Lines that the bitmap calls free.
    pub free_lines: u64,
    /// Blocks of directories' slots, of their maps, and of the index.
    pub table_blocks: u64,
    /// Buckets that overflow has added to the index.
    pub overflow_lines: u64,
    /// Reservations that this thread's lane still lists.
    pub reserved: u64,
}

/// The state of an image.
pub(super) fn of(test: &TestFs) -> State {
    let mut state = State { tree: String::new(), free_lines: 0, table_blocks: 0, overflow_lines: 0, reserved: 0 };
    directory(test, test.root_node(), "", &mut state);
    let root = test.fs.root();
    for block in test.fs.layout.first_block()..test.fs.layout.block_count() {
        let word = test.fs.image.word(Layout::bitmap_word(block)).map_or(0, |word| word.load(Relaxed));
        state.free_lines += u64::from(word.count_zeros());
    }
    let per_block = format::BLOCK / format::LINE;
    let mut buckets = 0;
    for (i, segment) in root.index.iter().enumerate() {
        if segment.load(Relaxed) != 0 {
            buckets += format::bucket::BUCKETS_MIN << i.saturating_sub(1);
        }
    }
    state.table_blocks += buckets / per_block;
    for number in 0..root.buckets.load(Relaxed) {
        let mut at = test.fs.bucket_offset(number, root.buckets.load(Relaxed)).unwrap();
        loop {
            at = test.fs.bucket(at).unwrap().next.load(Relaxed);
            if at == 0 {
                break;
            }
            state.overflow_lines += 1;
        }
    }
    state.reserved = u64::from(test.fs.lane_state(0).reserved_count.load(Relaxed));
    state
}

fn directory(test: &TestFs, dir: Node, path: &str, state: &mut State) {
    let mut names: Vec<String> = Vec::new();
    let looked_at = path.strip_prefix('/') != Some(FULL);
    test.readdir(&test.cx(), dir, 0, &mut |entry| {
        if looked_at && entry.name != b"." && entry.name != b".." {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
        }
        looked_at
    })
    .unwrap();
    names.sort();
    let root = test.fs.inode(format::inode::node_offset(dir.id)).unwrap().root.load(Relaxed);
    state.table_blocks += test.fs.end_of_extents(root).unwrap();
    if let Some(Root::Tree { depth, .. }) = Root::unpack(root) {
        assert_eq!(depth, 0, "a map of one node");
        state.table_blocks += 1;
    }
    for name in names {
        let node = test.lookup(&test.cx(), dir, name.as_bytes()).unwrap();
        let attr = test.attr(&test.cx(), node).unwrap();
        let path = format!("{path}/{name}");
        state.tree += &format!("{path} {attr:?}");
        let mut bytes = vec![0; 70_000];
        if attr.kind == Kind::Regular {
            let mut at = 0;
            while at < attr.size.min(1 << 20) {
                let done = test.read(&test.cx(), node, at, &[UserSlice::from_mut(&mut bytes)]).unwrap();
                state.tree += &format!(" {:x}", format::checksum::bytes(&bytes[..done]));
                at += done as u64;
            }
        }
        if matches!(attr.kind, Kind::Regular | Kind::Directory) {
            let len = test.list_xattr(&test.cx(), node, UserSlice::from_mut(&mut bytes)).unwrap();
            state.tree += &format!(" xattrs {:?}", String::from_utf8_lossy(&bytes[..len]));
        }
        state.tree += "\n";
        if attr.kind == Kind::Directory {
            directory(test, node, &path, state);
        }
    }
}

//! An image in words, for people and for the golden image's test.
//!
//! Shows what is there, damaged or not; nothing is recovered first.

use crate::dir::NameBuffer;
use crate::fs::Fs;
use crate::inspect::Inspected;
use crate::lane::apply;
use core::fmt::{Error, Write};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use format::bucket::{self, ENTRIES};
use format::directory::{SLOTS_PER_BLOCK, reserved_by};
use format::extent::Root as Map;
use format::inode::{self, Cold, Inode, node_generation, node_offset, unpack_links};
use format::lane::{Lane, Op, State};
use format::layout::{self, BLOCK, LINE, Layout};
use format::permission::{self, Permission};
use heap::string::String;
use heap::vec::Vec;

/// What is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Every name and inode.
    pub tree: bool,
    /// What changes with every use: generation, shared cache.
    pub volatile: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { tree: true, volatile: true }
    }
}

/// Prints an image.
pub fn print(image: &Inspected, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let fs = &*image.fs;
    superblock(image, out)?;
    root(fs, options, out)?;
    if options.volatile {
        let volatile = fs.volatile();
        let (token, generation) = (volatile.token.load(Relaxed), volatile.generation.load(Relaxed));
        writeln!(out, "shared cache token {token:016x}, of generation {generation}")?;
    }
    for number in 0..layout::LANES {
        lane(fs, number, out)?;
    }
    permissions(fs, out)?;
    orphans(fs, out)?;
    index(fs, out)?;
    space(fs, out)?;
    if options.tree { tree(fs, out) } else { Ok(()) }
}

fn superblock(image: &Inspected, out: &mut dyn Write) -> Result<(), Error> {
    let s = &image.superblock;
    writeln!(out, "superblock   version {}, {:016x}{:016x}, made {}", s.version, s.uuid[0], s.uuid[1], s.made)?;
    writeln!(out, "             limit {} bytes, inode key {:016x}, hash seed {:016x}", s.limit, s.ino_key, s.hash_seed)?;
    match s.numbers() {
        format::hash::LONG => writeln!(out, "             inode numbers of 48 bits, features {:#x}", s.features)?,
        bits => writeln!(out, "             inode numbers of 32 bits, {bits} of them the line's, features {:#x}", s.features)?,
    }
    let l = image.layout();
    writeln!(out, "layout       bitmap {:#x}, blocks {:#x} to {:#x}", layout::BITMAP, l.blocks, l.limit)
}

fn root(fs: &Fs, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let root = fs.root();
    write!(out, "root         ")?;
    if options.volatile {
        write!(out, "generation {}, ", root.generation.load(Relaxed))?;
    }
    let (grown, buckets, flags) = (root.grown.load(Relaxed), root.buckets.load(Relaxed), root.flags.load(Relaxed));
    writeln!(
        out,
        "grown to {grown} blocks, root directory {:#x}, {buckets} buckets, flags {flags:#x}",
        root.root_inode.load(Relaxed)
    )?;
    let shares = root.shares.load(Relaxed);
    if shares != 0 {
        writeln!(out, "             what is shared is counted at {shares:#x}")?;
    }
    for (segment, base) in root.index.iter().enumerate() {
        let base = base.load(Relaxed);
        if base != 0 {
            writeln!(out, "             index segment {segment} at {base:#x}")?;
        }
    }
    Ok(())
}

fn lane(fs: &Fs, number: u32, out: &mut dyn Write) -> Result<(), Error> {
    let lane = fs.lane(number);
    let (state, intent, lines, files) =
        (lane.state.load(Relaxed), lane.intent.load(Relaxed), lane.lines.load(Relaxed), lane.files.load(Relaxed));
    if state == 0 && intent == 0 && lines == 0 && files == 0 {
        return Ok(());
    }
    writeln!(out, "lane {number:<7} {} lines, {} inodes", lines as i64, files as i64)?;
    if intent != 0 {
        writeln!(
            out,
            "             gives up blocks of the inode at {:#x} from {} on",
            node_offset(intent),
            lane.intent_arg.load(Relaxed)
        )?;
    }
    match State::unpack(state) {
        _ if !State::counts(state) => Ok(()),
        None => writeln!(out, "             a record whose state word is damaged: {state:#x}"),
        Some(record) => {
            let whole = if apply::valid_record(fs, lane).is_some() { "whole" } else { "torn: it never happened" };
            writeln!(out, "             record {} ({}), {whole}", record.sequence, kind(record.kind))?;
            operations(lane, record, out)
        }
    }
}

fn operations(lane: &Lane, record: State, out: &mut dyn Write) -> Result<(), Error> {
    for object in &lane.objects[..usize::from(record.objects)] {
        let object = object.load(Relaxed);
        writeln!(out, "               object {:#x}, {} lines", object & 0xffff_ffff_ffff, object >> 48)?;
    }
    for op in &lane.ops[..usize::from(record.ops)] {
        match Op::unpack(op.place.load(Relaxed), op.value.load(Relaxed)) {
            Some(Op::Set { at, value }) => writeln!(out, "               {at:#x} = {value:#x}")?,
            Some(Op::Max { at, value }) => writeln!(out, "               {at:#x} at least {value}")?,
            Some(Op::SetBits { at, bits }) => writeln!(out, "               {at:#x} gets bits {bits:#x}")?,
            Some(Op::ClearBits { at, bits }) => writeln!(out, "               {at:#x} loses bits {bits:#x}")?,
            Some(Op::SetRun { at, count }) => writeln!(out, "               {count} blocks from {} are used", run(at))?,
            Some(Op::ClearRun { at, count }) => writeln!(out, "               {count} blocks from {} are free", run(at))?,
            Some(Op::Empty { at, was }) => writeln!(out, "               {at:#x} = 0, if it is {was:#x}")?,
            Some(Op::Touch { at, now, entries, directories }) => {
                let counts = format_args!("{entries:+} entries, {directories:+} directories");
                writeln!(out, "               directory {at:#x} changed at {now}, {counts}")?;
            }
            Some(Op::Counters { lines, files }) => {
                writeln!(out, "               the lane counts {} lines, {} inodes", lines as i64, files as i64)?;
            }
            Some(Op::Counts { at, count, value }) => {
                writeln!(out, "               {count} counts at {at:#x} become {value}")?;
            }
            Some(Op::Copy { to, block, len }) => {
                writeln!(out, "               {len} bytes at {to:#x} are those put aside in block {block}")?;
            }
            None => writeln!(out, "               an operation that does not exist")?,
        }
    }
    Ok(())
}

/// The block whose bitmap word is at an offset.
fn run(at: u64) -> u64 {
    at.wrapping_sub(layout::BITMAP) / 8
}

fn kind(number: u16) -> &'static str {
    const NAMES: [&str; 20] = [
        "?",
        "create",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "write",
        "truncate",
        "setattr",
        "xattr",
        "directory grows",
        "index grows",
        "index splits",
        "image grows",
        "reclaim",
        "orphan",
        "fallocate",
        "tmpfile",
        "overwrite",
        "clone",
    ];
    NAMES.get(usize::from(number)).unwrap_or(&"?")
}

fn permissions(fs: &Fs, out: &mut dyn Write) -> Result<(), Error> {
    for index in 0..layout::PERMISSIONS {
        let Ok(entry) = fs.at::<Permission>(layout::PERMISSION_TABLE + index * 16, "permission") else { break };
        let (owner, mode) = (entry.owner.load(Relaxed), entry.mode.load(Relaxed));
        if mode & permission::VALID != 0 {
            writeln!(out, "permission   {index}: uid {}, gid {}, mode {:04o}", owner as u32, owner >> 32, mode & 0o7777)?;
        }
    }
    Ok(())
}

fn orphans(fs: &Fs, out: &mut dyn Write) -> Result<(), Error> {
    for number in 0..layout::ORPHANS {
        let Ok(slot) = fs.orphan_slot(number) else { break };
        let id = slot.load(Relaxed);
        if id != 0 {
            writeln!(out, "orphan       {number}: inode {:#x}, generation {}", node_offset(id), node_generation(id))?;
        }
    }
    Ok(())
}

fn index(fs: &Fs, out: &mut dyn Write) -> Result<(), Error> {
    let buckets = fs.root().buckets.load(Relaxed).min(fs.layout.block_count() * 64);
    let (mut entries, mut overflow, mut longest) = (0u64, 0u64, 0u64);
    for number in 0..buckets {
        let Ok(mut offset) = fs.bucket_place(number) else { break };
        let mut chain = 0;
        while chain < crate::index::CHAIN_MAX as u64 {
            let Ok(bucket) = fs.bucket(offset) else { break };
            entries +=
                bucket.entries[..ENTRIES].iter().filter(|entry| bucket::entry_fingerprint(entry.load(Relaxed)) != 0).count()
                    as u64;
            chain += 1;
            offset = bucket.next.load(Relaxed);
            if offset == 0 {
                break;
            }
        }
        overflow += chain.saturating_sub(1);
        longest = longest.max(chain);
    }
    writeln!(out, "index        {entries} entries, {overflow} overflow buckets, longest chain {longest}")
}

fn space(fs: &Fs, out: &mut dyn Write) -> Result<(), Error> {
    let (mut lines, mut blocks, mut whole) = (0u64, 0u64, 0u64);
    for block in fs.layout.first_block()..fs.root().grown.load(Relaxed).min(fs.layout.block_count()) {
        let Ok(word) = fs.at::<AtomicU64>(Layout::bitmap_word(block), "bitmap word") else { break };
        let word = word.load(Relaxed);
        lines += u64::from(word.count_ones());
        blocks += u64::from(word != 0);
        whole += u64::from(word == u64::MAX);
    }
    writeln!(out, "space        {lines} lines in {blocks} blocks, {whole} of them full")
}

/// Every name from the root on, each inode's contents once.
fn tree(fs: &Fs, out: &mut dyn Write) -> Result<(), Error> {
    let mut seen: Vec<u64> = heap::vec![0; fs.layout.block_count().min(fs.image.valid() / BLOCK) as usize];
    let root = fs.root().root_inode.load(Relaxed);
    let mut waiting = heap::vec![(root, String::from("/"))];
    inode_line(fs, root, "/", out)?;
    while let Some((offset, path)) = waiting.pop() {
        let Some(word) = seen.get_mut((offset / BLOCK) as usize) else { continue };
        let bit = 1u64 << (offset % BLOCK / LINE);
        if *word & bit != 0 {
            continue;
        }
        *word |= bit;
        let Ok(node) = fs.inode(offset) else { continue };
        let slots = fs.slot_blocks(node).unwrap_or(0).min(fs.layout.block_count()) * SLOTS_PER_BLOCK;
        for slot in 0..slots {
            let Ok(Some(at)) = fs.slot_offset(node, slot) else { break };
            let Ok(word) = fs.at::<AtomicU64>(at, "directory slot") else { break };
            let word = word.load(Relaxed);
            if word == 0 || reserved_by(word).is_some() {
                continue;
            }
            let mut name = NameBuffer::new();
            match fs.read_edentry(word, &mut name) {
                Ok(entry) => {
                    let text = String::from_utf8_lossy(name.raw(entry.head.name_len));
                    let path = heap::format!("{}/{text}", path.trim_end_matches('/'));
                    let child = node_offset(entry.child);
                    inode_line(fs, child, &path, out)?;
                    if entry.head.kind == base::Kind::Directory as u8 {
                        waiting.push((child, path));
                    }
                }
                Err(_) => writeln!(out, "{path}: slot {slot} refers to {word:#x}, which is no edentry")?,
            }
        }
    }
    Ok(())
}

fn inode_line(fs: &Fs, offset: u64, path: &str, out: &mut dyn Write) -> Result<(), Error> {
    let Ok(node) = fs.inode(offset) else { return writeln!(out, "{path:?} at {offset:#x}: outside the image") };
    let head = node.head();
    write!(out, "{path:?} {offset:#x}.{} ", head.generation)?;
    match fs.permission(head.permission) {
        Ok((uid, gid, mode)) => write!(out, "{} {mode:04o} {uid}:{gid}", kind_name(head.kind))?,
        Err(_) => write!(out, "{} permission {}", kind_name(head.kind), head.permission)?,
    }
    let (links, size) = (node.links.load(Relaxed), node.size.load(Relaxed));
    if head.kind == base::Kind::Directory as u8 {
        write!(out, ", {size} entries, {links} directories")?;
    } else {
        let (nlink, blocks) = unpack_links(links);
        write!(out, ", {nlink} names, {size} bytes, {blocks} blocks")?;
    }
    write!(out, ", mtime {}, ctime {}", node.mtime.load(Relaxed) as i64, node.ctime.load(Relaxed) as i64)?;
    contents(fs, node, out)?;
    writeln!(out)
}

fn contents(fs: &Fs, node: &Inode, out: &mut dyn Write) -> Result<(), Error> {
    let (head, root) = (node.head(), node.root.load(Relaxed));
    match (base::Kind::from_dt(head.kind), Map::unpack(root)) {
        (Some(base::Kind::Regular | base::Kind::Directory), Some(Map::Empty)) => {}
        (Some(base::Kind::Regular | base::Kind::Directory), Some(Map::One { block, len, shared })) => {
            write!(out, ", {len} at {block}{}", if shared { ", shared" } else { "" })?;
        }
        (Some(base::Kind::Regular | base::Kind::Directory), Some(Map::Tree { node, depth })) => {
            write!(out, ", tree of depth {depth} at {node}")?
        }
        (Some(base::Kind::Regular | base::Kind::Directory), None) => write!(out, ", data root {root:#x} damaged")?,
        (Some(base::Kind::Symlink), _) => write!(out, ", text at {root:#x}")?,
        _ => write!(out, ", device {root:#x}")?,
    }
    if head.flags & inode::COLD != 0
        && let Ok(cold) = fs.at::<Cold>(node.extra.load(Relaxed), "cold line")
    {
        let xattr = cold.xattr.load(Relaxed);
        write!(out, ", cold: flags {}", cold.flags.load(Relaxed))?;
        if xattr != 0 {
            write!(out, ", {} bytes of attributes at {}", xattr as u32, xattr >> 32)?;
        }
    }
    if head.flags & inode::RECOUNT != 0 {
        write!(out, ", to be counted again")?;
    }
    if head.flags & inode::LINKABLE != 0 {
        write!(out, ", linkable")?;
    }
    if head.flags & inode::FROZEN != 0 {
        write!(out, ", frozen")?;
    }
    Ok(())
}

fn kind_name(kind: u8) -> &'static str {
    match base::Kind::from_dt(kind) {
        Some(base::Kind::Fifo) => "fifo",
        Some(base::Kind::CharDevice) => "character device",
        Some(base::Kind::Directory) => "directory",
        Some(base::Kind::BlockDevice) => "block device",
        Some(base::Kind::Regular) => "file",
        Some(base::Kind::Symlink) => "symlink",
        Some(base::Kind::Socket) => "socket",
        None => "nothing",
    }
}

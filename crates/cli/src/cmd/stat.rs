//! `bypath stat IMG:/path…`

use crate::cmd::{print, print_json};
use crate::failure::Result;
use crate::image::Tree;
use crate::place::Place;
use crate::seen_as::find;
use crate::show::{self, Entry};
use base::{Attr, Kind, Node};
use std::ffi::OsString;
use vfs::tree::{Tally, Trees};

/// Prints all attributes of files.
pub fn stat(places: &[OsString], follow: bool, json: bool) -> Result<u8> {
    let mut entries = Vec::new();
    for text in places {
        let place = find(text)?;
        let mut tree = Tree::attach_to_read_at(&place)?;
        let node = tree.find(&place, follow)?;
        if json {
            let (attr, target) = known(&tree, &place, node)?;
            let (own, shared) = taken(&tree, &attr, node).unzip();
            let mut entry = Entry::new(&place.path, &attr, target.as_deref());
            (entry.own, entry.shared) = (own, shared);
            entries.push(entry);
        } else {
            one(&tree, &place, node)?;
        }
    }
    match &entries[..] {
        [] => Ok(()),
        [entry] => print_json(entry),
        several => print_json(&several),
    }?;
    Ok(0)
}

/// Attributes, and what a symlink points to.
fn known(tree: &Tree, place: &Place, node: Node) -> Result<(Attr, Option<Vec<u8>>)> {
    let attr = tree.attr(place, node)?;
    let target = if attr.kind == Kind::Symlink { Some(tree.target(place, node)?) } else { None };
    Ok((attr, target))
}

/// Bytes of a file's blocks that are its own, and that others have too; nothing where that is not known.
fn taken(tree: &Tree, attr: &Attr, node: Node) -> Option<(u64, u64)> {
    let is_file = attr.kind == Kind::Regular;
    let mut each = |_: &Tally| true;
    is_file.then(|| Trees { backend: tree.backend, cx: &tree.cx(), each: &mut each }.own_and_shared(node).ok()).flatten()
}

fn one(tree: &Tree, place: &Place, node: Node) -> Result<()> {
    let (attr, target) = known(tree, place, node)?;
    let mut name = show::name_text(&place.path);
    if let Some(target) = &target {
        name.push_str(&format!(" -> {}", show::name_text(target)));
    }
    let device = match attr.kind {
        Kind::CharDevice | Kind::BlockDevice => format!("  device {},{}", show::device(attr.rdev)[0], show::device(attr.rdev)[1]),
        _ => String::new(),
    };
    let mut text = format!(
        "  File: {name}\n  Type: {}{device}\n  Size: {}  blocks {} (of 512 bytes)\n Inode: {}  links {}\n  Mode: {:04o} {}  uid {}  gid {}\n",
        show::kind_name(attr.kind),
        attr.size,
        attr.blocks,
        attr.ino,
        attr.nlink,
        attr.mode,
        show::mode_text(attr.kind, attr.mode),
        attr.uid,
        attr.gid,
    );
    if let Some((own, shared)) = taken(tree, &attr, node) {
        text.push_str(&format!(" Space: {own} its own, {shared} that other files have too\n"));
    }
    let times =
        [("Access", Some(attr.atime)), ("Modify", Some(attr.mtime)), ("Change", Some(attr.ctime)), (" Birth", attr.btime)];
    for (label, time) in times {
        let time = time.map_or("-".to_string(), |ns| format!("{} UTC", show::time_text(ns, false)));
        text.push_str(&format!("{label}: {time}\n"));
    }
    print(text.as_bytes())
}

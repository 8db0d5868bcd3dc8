//! `bypath stat IMG:/path…`

use crate::cmd::{print, print_json};
use crate::failure::Result;
use crate::image::Tree;
use crate::place::Place;
use crate::seen_as::find;
use crate::show::{self, Entry};
use base::{Attr, Kind, Node};
use std::ffi::OsString;

/// Prints all attributes of files.
pub fn stat(places: &[OsString], follow: bool, json: bool) -> Result<u8> {
    let mut entries = Vec::new();
    for text in places {
        let place = find(text)?;
        let mut tree = Tree::attach_to_read_at(&place)?;
        let node = tree.find(&place, follow)?;
        if json {
            let (attr, target) = known(&tree, &place, node)?;
            entries.push(Entry::new(&place.path, &attr, target.as_deref()));
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
    let times =
        [("Access", Some(attr.atime)), ("Modify", Some(attr.mtime)), ("Change", Some(attr.ctime)), (" Birth", attr.btime)];
    for (label, time) in times {
        let time = time.map_or("-".to_string(), |ns| format!("{} UTC", show::time_text(ns, false)));
        text.push_str(&format!("{label}: {time}\n"));
    }
    print(text.as_bytes())
}

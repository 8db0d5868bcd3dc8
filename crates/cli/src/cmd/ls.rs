//! `bypath ls IMG:/path…`

use crate::cmd::{print, print_json};
use crate::failure::Result;
use crate::image::Tree;
use crate::place::Place;
use crate::seen_as::find;
use crate::show::{self, Entry};
use crate::size;
use base::{Attr, Kind, Node};
use std::collections::HashMap;
use std::ffi::OsString;

/// What to list and how.
#[derive(Clone, Copy)]
pub struct Options {
    /// With attributes.
    pub long: bool,
    /// Sizes with units.
    pub human: bool,
    /// With names that start with a dot.
    pub all: bool,
    /// With everything below.
    pub recursive: bool,
    /// As JSON.
    pub json: bool,
}

struct Line {
    name: Vec<u8>,
    node: Node,
    attr: Attr,
    target: Option<Vec<u8>>,
}

/// Lists directories and files: files first, as everywhere.
pub fn ls(places: &[OsString], options: Options) -> Result<u8> {
    let places = places.iter().map(find).collect::<Result<Vec<_>>>()?;
    let accounts = Accounts::new(options.long && !options.json);
    let is_several = places.len() > 1;
    let (mut lines, mut directories) = (Vec::new(), Vec::new());
    for place in &places {
        let mut tree = Tree::attach_to_read_at(place)?;
        let mut node = tree.find(place, !options.long)?;
        let mut attr = tree.attr(place, node)?;
        // `ls -l link/` and the link to a directory that was asked for without -l list the directory.
        if attr.kind == Kind::Symlink && place.path.ends_with(b"/") {
            node = tree.find(place, true)?;
            attr = tree.attr(place, node)?;
        }
        if attr.kind != Kind::Directory {
            lines.push(line(&tree, place, place.path.clone(), node)?);
        } else if options.json {
            // Of one directory its names, of several their paths.
            let mut prefix = if is_several { place.path.clone() } else { Vec::new() };
            if is_several && !prefix.ends_with(b"/") {
                prefix.push(b'/');
            }
            collect(&tree, place, node, prefix, options, &mut lines)?;
        } else {
            directories.push(place);
        }
    }
    if options.json {
        let entries: Vec<Entry> = lines.iter().map(|line| Entry::new(&line.name, &line.attr, line.target.as_deref())).collect();
        print_json(&entries)?;
        return Ok(0);
    }
    print(text(&lines, options, &accounts).as_bytes())?;
    for (index, place) in directories.into_iter().enumerate() {
        if index > 0 || !lines.is_empty() {
            print(b"\n")?;
        }
        if is_several && !options.recursive {
            print(format!("{place}:\n").as_bytes())?;
        }
        let mut tree = Tree::attach_to_read_at(place)?;
        let node = tree.find(place, true)?;
        directory(&tree, place, node, &place.path, options, &accounts)?;
    }
    Ok(0)
}

fn line(tree: &Tree, place: &Place, name: Vec<u8>, node: Node) -> Result<Line> {
    let attr = tree.attr(place, node)?;
    let target = if attr.kind == Kind::Symlink { Some(tree.target(place, node)?) } else { None };
    Ok(Line { name, node, attr, target })
}

fn lines_of(tree: &Tree, place: &Place, dir: Node, options: Options) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for name in tree.list(place, dir)? {
        if !options.all && name.starts_with(b".") {
            continue;
        }
        // What has gone since is not there.
        if let Some(node) = tree.lookup(place, dir, &name)? {
            lines.push(line(tree, place, name, node)?);
        }
    }
    Ok(lines)
}

/// All entries for JSON; names below are paths relative to the directory asked for.
fn collect(tree: &Tree, place: &Place, dir: Node, prefix: Vec<u8>, options: Options, into: &mut Vec<Line>) -> Result<()> {
    for mut line in lines_of(tree, place, dir, options)? {
        let mut path = prefix.clone();
        path.extend_from_slice(&line.name);
        line.name = path.clone();
        let (node, is_directory) = (line.node, line.attr.kind == Kind::Directory);
        into.push(line);
        if options.recursive && is_directory {
            path.push(b'/');
            collect(tree, place, node, path, options, into)?;
        }
    }
    Ok(())
}

fn directory(tree: &Tree, place: &Place, dir: Node, path: &[u8], options: Options, accounts: &Accounts) -> Result<()> {
    let lines = lines_of(tree, place, dir, options)?;
    if options.recursive {
        print(format!("{}:\n", show::name_text(path)).as_bytes())?;
    }
    print(text(&lines, options, accounts).as_bytes())?;
    for line in lines.iter().filter(|line| options.recursive && line.attr.kind == Kind::Directory) {
        let mut below = path.to_vec();
        if !below.ends_with(b"/") {
            below.push(b'/');
        }
        below.extend_from_slice(&line.name);
        print(b"\n")?;
        directory(tree, place, line.node, &below, options, accounts)?;
    }
    Ok(())
}

fn text(lines: &[Line], options: Options, accounts: &Accounts) -> String {
    let mut text = String::new();
    let rows: Vec<_> =
        if options.long { lines.iter().map(|line| columns(line, options, accounts)).collect() } else { Vec::new() };
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    for (index, line) in lines.iter().enumerate() {
        if let Some([links, user, group, size]) = rows.get(index) {
            text.push_str(&format!(
                "{} {links:>w0$} {user:<w1$} {group:<w2$} {size:>w3$} {} ",
                show::mode_text(line.attr.kind, line.attr.mode),
                show::time_text(line.attr.mtime, true),
                w0 = widths[0],
                w1 = widths[1],
                w2 = widths[2],
                w3 = widths[3],
            ));
        }
        text.push_str(&show::name_text(&line.name));
        if let (true, Some(target)) = (options.long, &line.target) {
            text.push_str(&format!(" -> {}", show::name_text(target)));
        }
        text.push('\n');
    }
    text
}

fn columns(line: &Line, options: Options, accounts: &Accounts) -> [String; 4] {
    let size = match line.attr.kind {
        Kind::CharDevice | Kind::BlockDevice => {
            format!("{}, {}", show::device(line.attr.rdev)[0], show::device(line.attr.rdev)[1])
        }
        _ if options.human => size::short(line.attr.size),
        _ => line.attr.size.to_string(),
    };
    let name = |names: &HashMap<u32, String>, id: u32| names.get(&id).cloned().unwrap_or_else(|| id.to_string());
    [line.attr.nlink.to_string(), name(&accounts.users, line.attr.uid), name(&accounts.groups, line.attr.gid), size]
}

struct Accounts {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Accounts {
    fn new(needed: bool) -> Accounts {
        let read = |file| if needed { show::account_names(file) } else { HashMap::new() };
        Accounts { users: read("/etc/passwd"), groups: read("/etc/group") }
    }
}

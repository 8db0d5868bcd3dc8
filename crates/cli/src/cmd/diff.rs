//! `bypath diff IMG:/a IMG:/b`

use super::clone::same_image;
use super::{print, print_json};
use crate::failure::{Failure, Result};
use crate::image::Tree;
use crate::progress;
use crate::seen_as::find;
use crate::show::kind_name;
use base::{Kind, Node};
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use std::ffi::OsString;
use vfs::tree::Tally;
use vfs::tree::compare::{Change, How, Side, compare};

/// One change, as JSON shows it.
#[derive(Serialize)]
struct Row {
    path: String,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is: Option<&'static str>,
}

/// Progress is shown each so many names.
const SHOWN: u64 = 1024;

/// Prints what changes; whether anything does.
pub fn diff(first: &OsString, second: &OsString, json: bool) -> Result<u8> {
    let (a, b) = (find(first)?, find(second)?);
    let mut tree = Tree::attach_to_read_at(&a)?;
    let mut other = if same_image(&a, &b) { None } else { Some(Tree::attach_to_read_at(&b)?) };
    let node = tree.find(&a, false)?;
    let target = other.as_mut().unwrap_or(&mut tree).find(&b, false)?;
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let bar = progress::bar(json, "comparing", 0);
    let mut each = |change: Option<Change>, tally: &Tally| {
        if let Some(change) = change {
            if json { rows.push(row(&change)) } else { line(&change, &mut lines) }
        } else if tally.names.is_multiple_of(SHOWN) && !bar.is_hidden() {
            bar.set_message(format!("{} names, {}", HumanCount(tally.names), HumanBytes(tally.shared + tally.copied)));
        }
        true
    };
    let (cx, other_cx) = (tree.cx(), other.as_ref().map(Tree::cx));
    let side = |node: Node| Side { backend: tree.backend, cx: &cx, node };
    let second = match (&other, &other_cx) {
        (Some(other), Some(cx)) => Side { backend: other.backend, cx, node: target },
        _ => side(target),
    };
    let compared = compare(side(node), second, &mut each);
    bar.finish_and_clear();
    compared.map_err(|failed| {
        let mut path = a.path.clone();
        path.extend_from_slice(b"/");
        path.extend_from_slice(&failed.path);
        Failure::engine(format!("{} (or in {b})", a.with(path)), failed.error)
    })?;
    let is_any = !rows.is_empty() || !lines.is_empty();
    if json {
        print_json(&rows)?
    } else {
        print(&lines)?
    }
    Ok(u8::from(is_any))
}

fn row(change: &Change) -> Row {
    let change_name = match change.how {
        How::Added => "added",
        How::Removed => "deleted",
        How::Type => "type",
        How::Contents => "contents",
        How::Attributes => "attributes",
    };
    let (was, is) = (change.kinds.0.map(kind_name), change.kinds.1.map(kind_name));
    Row { path: String::from_utf8_lossy(change.path).into_owned(), change: change_name, was, is }
}

fn line(change: &Change, lines: &mut Vec<u8>) {
    lines.push(match change.how {
        How::Added => b'A',
        How::Removed => b'D',
        How::Type => b'T',
        How::Contents => b'M',
        How::Attributes => b'P',
    });
    lines.push(b'\t');
    lines.extend_from_slice(if change.path.is_empty() { b"." } else { change.path });
    let is_one = matches!(change.how, How::Added | How::Removed);
    if is_one && change.kinds.0.or(change.kinds.1) == Some(Kind::Directory) {
        lines.push(b'/');
    }
    lines.push(b'\n');
}
